"""`expunge demo`: all of it, on a real table that ships with scikit-learn and on 500,000 made-up people."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.base.errors import BadPlan
from expunge.base.progress import Show
from expunge.base.wording import duration, percent
from expunge.cli.options import Json, whole
from expunge.cli.output import Report, reporting

if TYPE_CHECKING:
    from expunge.base.types import AnyArray

FEWEST = 1_000
NUMBERS, KINDS = 10, 4
"""How many numbers are known of a person, and how many things that are one of `VALUES`."""
VALUES, SHARES = ("a", "b", "c", "d", "e"), (0.5, 0.25, 0.15, 0.08, 0.02)
RHO, SINGLY, ON_DISK = 0.05, 2_000, 100
FILES = (
    "patients.csv", "others.csv", "schema.toml", "patients.expunge", "people.parquet", "more-people.parquet",
    "people.toml", "people.expunge", "erased.txt", "operator.pem", "operator.pem.pub", "report.html", "demo.png",
)  # fmt: skip


def demo(
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put its files.")] = Path("out/demo"),
    people: Annotated[
        Any, typer.Option(parser=whole, metavar="N", help="How many synthetic people; at least 1,000.")
    ] = 500_000,
    json: Json = False,
) -> None:
    """Show everything, from a table to a report, in under two minutes.

    First the commands, one by one, on a real table of 569 patients (Wisconsin
    breast cancer, from scikit-learn). Then 500,000 synthetic people, compared
    with retraining. Then the report that `expunge audit` writes. It works
    offline.
    """
    with reporting(json) as report:
        if people < FEWEST:
            raise BadPlan(f"--people: {people:,} are too few to show anything; give at least {FEWEST:,}.")
        began = time.perf_counter()
        _make_room(folder)
        _patients(report, folder)
        noted = _people(report, folder, people)
        _title(report, "3. The report")
        _prompt(report, [
            "audit", f"{folder}/people.expunge", "--ids-file", f"{folder}/erased.txt",
            "--test", f"{folder}/more-people.parquet", "--public-key", f"{folder}/operator.pem.pub", "--noted", noted,
            "--runs", "1000", "-o", f"{folder}/report.html",
        ])  # fmt: skip
        report.data |= {"seconds": time.perf_counter() - began, "folder": str(folder)}
        report.say("")
        report.say(f"Open {folder / 'report.html'} in a browser, and look at {folder / 'demo.png'}.", "bold")
        report.say(f"This took {duration(report.data['seconds'])}. Now try your own table: expunge schema data.csv")


def _make_room(folder: Path) -> None:
    """Make a folder of the demo's own, and remove what an earlier demo has left there."""
    from expunge.store.surroundings import ENDINGS, beside

    mark = folder / ".expunge-demo"
    if folder.is_dir() and any(folder.iterdir()) and not mark.exists():
        raise BadPlan(f"--folder: {folder} has files that are not the demo's; give an empty or a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()
    for name in FILES:
        for ending in ("", "-key", *ENDINGS):
            beside(folder / name, ending).unlink(missing_ok=True)


def _title(report: Report, text: str) -> None:
    if not report.as_json:
        report.console.rule(f" {text} ", align="left", characters="─")


def _prompt(report: Report, arguments: list[str]) -> None:
    """Print a command, and run it."""
    from expunge.cli.app import app

    report.say("$ expunge " + " ".join(f'"{one}"' if " " in one else one for one in arguments), "bold cyan")
    aside = io.StringIO()
    with ExitStack() as hidden:
        if report.as_json:
            hidden.enter_context(redirect_stdout(aside))
            hidden.enter_context(redirect_stderr(aside))
        code = app(arguments, prog_name="expunge", standalone_mode=False)
    if code:
        raise typer.Exit(code)


def _patients(report: Report, folder: Path) -> None:
    """Run the commands on a real table."""
    _title(report, "1. A real table, at the command line")
    write_patients(folder)
    table, others, model = (f"{folder}/{name}" for name in ("patients.csv", "others.csv", "patients.expunge"))
    schema = f"{folder}/schema.toml"
    report.say("A schema says what each column is. The command drafts it; you confirm it.")
    _prompt(report, ["schema", table, "--id", "patient", "--target", "diagnosis", "-o", schema])
    _prompt(report, ["fit", table, "--schema", schema, "--test", others, "-o", model])
    report.say(
        "Two patients ask for deletion. (So few records need no noise: every deletion replays, in milliseconds.)"
    )
    _prompt(report, ["unlearn", model, "--id", "patient-0017", "--id", "patient-0042", "--outcome"])
    report.say("No byte of them is left:")
    _prompt(report, ["scan", model, "--id", "patient-0017"])
    _prompt(report, ["verify", model])
    _prompt(report, ["evaluate", model, others])


def write_patients(folder: Path) -> None:
    """Write two tables of patients, one to learn from and one of others."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    rows = [
        [f"patient-{number:04d}", *values, found.target_names[target]]
        for number, (values, target) in enumerate(zip(found.data.tolist(), found.target.tolist(), strict=True))
    ]
    for name, part in (("patients.csv", rows[:455]), ("others.csv", rows[455:])):
        with open(folder / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", *found.feature_names, "diagnosis"])
            writer.writerows(part)


def people_schema() -> Any:
    """Return what is publicly known of the columns of made-up people."""
    from expunge.tables.schema import Categorical, Classes, Key, Numeric, Schema

    numbers = [Numeric(f"number {number}", 0, 1) for number in range(NUMBERS)]
    kinds = [Categorical(f"kind {number}", VALUES) for number in range(KINDS)]
    return Schema((*numbers, *kinds), id=Key("person"), target=Classes("answer", ("no", "yes")), confirmed=True)


def write_people(folder: Path, number: int, more: int) -> None:
    """Write two tables of people: numbers that go together, kinds of which some are rare, and an answer.

    A linear rule explains most of the answers, but not all.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    rng, count = np.random.default_rng(0), number + more
    common = rng.normal(size=(count, 1))
    numbers = np.clip(0.5 + 0.12 * (common + rng.normal(size=(count, NUMBERS))), 0.0, 1.0)
    kinds = rng.choice(len(VALUES), size=(count, KINDS), p=SHARES)
    effects = 2.5 * rng.normal(size=(KINDS, len(VALUES)))
    scores = numbers @ (2.5 * rng.normal(size=NUMBERS)) + effects[np.arange(KINDS), kinds].sum(axis=1)
    answers = rng.random(count) < 1.0 / (1.0 + np.exp(np.median(scores) - scores))

    def coded(codes: AnyArray, names: tuple[str, ...]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names))

    columns = {"person": pa.array([f"person-{one:06d}" for one in range(count)])}
    columns |= {f"number {column}": pa.array(numbers[:, column]) for column in range(NUMBERS)}
    columns |= {f"kind {column}": coded(kinds[:, column], VALUES) for column in range(KINDS)}
    table = pa.table(columns | {"answer": coded(answers, ("no", "yes"))})
    parquet.write_table(table[:number], folder / "people.parquet")
    parquet.write_table(table[number:], folder / "more-people.parquet")


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _people(report: Report, folder: Path, people: int) -> str:
    """Delete people from a large model, in memory and in a file, and retrain; return a head hash to note."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression as ScikitLearns

    import expunge
    from expunge.base.progress import progress_bars
    from expunge.store import make_signing_key
    from expunge.tables.schema import EncodedTables, schema_toml

    _title(report, f"2. {people:,} synthetic people, in Python")
    schema = people_schema()
    (folder / "people.toml").write_text(schema_toml(schema), encoding="utf-8")
    with progress_bars(False if report.as_json else None) as show:
        show("making up", 0, None)
        write_people(folder, people, people // 10)
        show("making up", 1, 1)
        show("reading", 0, None)
        known, others = (
            EncodedTables(schema, folder / name).all() for name in ("people.parquet", "more-people.parquet")
        )
        show("reading", 1, 1)
        features, answers, names = known.X.astype(float), np.asarray(known.y), np.asarray(known.ids)
        test = others.X.astype(float), others.y
        show("fitting", 0, None)
        wanted = expunge.LogisticRegression(rho=RHO, classes=["no", "yes"])
        model, fitted = _timed(lambda: wanted.fit(features, answers, ids=names))
        show("fitting", 1, 1)
        show("scikit-learn", 0, None)
        peer, refit = _timed(lambda: ScikitLearns().fit(features, answers))
        show("scikit-learn", 1, 1)
        scores = {"scikit-learn": peer.score(*test), "Expunge": model.score(*test)}

        key, path = folder / "operator.pem", folder / "people.expunge"
        make_signing_key(key)
        model.schema_ = schema
        model.save(path)
        singly, on_disk = min(SINGLY, people // 100), min(ON_DISK, people // 100)
        leaving = np.random.default_rng().permutation(names)[: 1 + singly + on_disk + people // 20]
        single, alone, many = np.split(leaving[1:], [singly, singly + on_disk])
        model.unlearn(leaving[:1])  # the first deletion builds the index of ids
        outcomes = _erase_singly(model, single, show)
        scores[f"Expunge, {singly:,} fewer"] = model.score(*test)
        stay = ~np.isin(names, leaving[: 1 + singly])
        show("retraining", 0, None)
        again, retrained = _timed(lambda: ScikitLearns().fit(features[stay], answers[stay]))
        show("retraining", 1, 1)
        scores[f"scikit-learn, {singly:,} fewer"] = again.score(*test)

        (folder / "erased.txt").write_text("".join(f"{one}\n" for one in alone), encoding="utf-8")
        with expunge.open(path, sign_with=key) as stored:
            stored.unlearn(many[:1])
            noted = str(stored.export_receipts()["head"])
            synced = []
            for number, one in enumerate(alone, 1):
                synced.append(_timed(partial(stored.unlearn, [one]))[1])
                show("in a file", number, len(alone))
            show("at once", 0, None)
            _, bulk = _timed(lambda: stored.unlearn(many[1:]))
            show("at once", 1, 1)
            checked = stored.verify()
    kept = [one.seconds for one in outcomes if one.kept]
    replayed = [one.seconds for one in outcomes if not one.kept]
    usual, replay = float(np.median(kept)), float(np.mean(replayed)) if replayed else 0.0
    mean = float(np.mean(kept + replayed))
    report.data["people"] = {
        "records": people, "kept": len(kept), "replayed": len(replayed), "accuracy": scores, "verified": checked.ok,
        "seconds": {
            "fit": fitted, "scikit_learn": refit, "retrained": retrained, "kept": usual, "replayed": replay,
            "mean": mean, "bulk": bulk, "on_disk": float(np.median(synced)),
        },
    }  # fmt: skip
    report.facts(
        f"logistic regression, {schema.width} features, ρ = {RHO} (noise σ = {model.plan_.sigma:.2g})",
        {
            "learned in": f"{duration(fitted)} (scikit-learn: {duration(refit)})",
            f"{len(single):,} deleted one by one": f"{len(kept):,} kept the model as it was, {len(replayed)} replayed, "
            f"in {duration(replay)} each",
            "a deletion": f"{duration(usual)} if kept, {duration(mean)} on average, in memory",
            "the same in a file": f"{duration(float(np.median(synced)))}, synced to disk, with a signed receipt",
            f"{len(many) - 1:,} deleted at once": f"{duration(bulk)}, in the file",
            "retraining": f"{duration(fitted)} with Expunge, {duration(retrained)} with scikit-learn, each time",
            "so a deletion is": f"{fitted / mean:,.0f} and {retrained / mean:,.0f} times as fast",
            "accuracy on others": ", ".join(f"{percent(score)} {name}" for name, score in scores.items()),
            "verify": "every sum and iterate agrees, bit for bit" if checked.ok else "; ".join(checked.problems),
        },
    )
    _draw(folder / "demo.png", people, kept, replayed, {"Expunge": fitted, "scikit-learn": retrained}, scores)
    return noted


def _erase_singly(model: Any, names: AnyArray, show: Show) -> list[Any]:
    """Delete people one by one; return how that went."""
    outcomes = []
    for number, name in enumerate(names, 1):
        outcomes.append(model.unlearn(name))
        show("deleting", number, len(names))
    return outcomes


def _draw(
    path: Path, people: int, kept: list[float], replayed: list[float], anew: dict[str, float], scores: dict[str, float]
) -> None:
    """Draw how long deletions and retraining took, and how accurate the models are."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    bins = np.logspace(np.log10(0.5 * min(kept + replayed)), np.log10(3 * max(*anew.values(), *replayed, 0.0)), 70)
    left.hist(kept, bins, label=f"{len(kept):,} deletions that kept the model", color="C0")
    left.hist(replayed, bins, label=f"{len(replayed):,} that replayed a part", color="C1")
    for (name, seconds), style in zip(anew.items(), ("--", "-"), strict=True):
        left.axvline(seconds, color="C3", linestyle=style, label=f"retraining with {name}: {duration(seconds)}")
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_ylim(bottom=0.7)
    left.set_xlabel("seconds for one deletion, or to retrain (log scale)")
    left.set_ylabel("deletions (log scale)")
    left.set_title(f"Deleting {len(kept) + len(replayed):,} of {people:,} people, one by one", fontsize=11)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    colors = ["grey" if "scikit" in name else "C0" for name in scores]
    bars = right.barh(list(scores), [100 * score for score in scores.values()], color=colors)
    right.bar_label(bars, [f"{100 * score:.2f} %" for score in scores.values()], label_type="center", color="white")
    right.invert_yaxis()
    right.set_xlim(0, 100)
    right.set_xlabel("correct answers, in %")
    right.set_ylabel("model")
    right.set_title("Accuracy on other people", fontsize=11)
    figure.savefig(path, dpi=120)
