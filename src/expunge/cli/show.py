"""`expunge demo`: all of it, on a real table that ships with scikit-learn and on 200,000 made-up people."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.cli.options import Json, whole
from expunge.cli.output import Report, reporting
from expunge.errors import BadPlan
from expunge.types import AnyArray, Array
from expunge.wording import duration, percent

FEWEST = 1_000
FEATURES, RHO, ON_DISK = 30, 0.05, 25
FILES = ("patients.csv", "others.csv", "schema.toml", "patients.expunge", "people.expunge", "report.html", "demo.png")


def demo(
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put its files.")] = Path("out/demo"),
    people: Annotated[
        Any, typer.Option(parser=whole, metavar="N", help="How many made-up people; at least 1,000.")
    ] = 200_000,
    json: Json = False,
) -> None:
    """Show all of it, from a table to a report, in under two minutes.

    First the commands, one after the other, on a real table of 569 patients
    (Wisconsin breast cancer, from scikit-learn); then 200,000 made-up people,
    beside retraining; then the report that `expunge audit` writes. Offline.
    """
    with reporting(json) as report:
        if people < FEWEST:
            raise BadPlan(f"--people: {people:,} are too few to show anything; give at least {FEWEST:,}.")
        began = time.perf_counter()
        _make_room(folder)
        _patients(report, folder)
        _people(report, folder, people)
        _prompt(report, ["audit", f"{folder}/people.expunge", "--runs", "1000", "-o", f"{folder}/report.html"])
        report.data |= {"seconds": time.perf_counter() - began, "folder": str(folder)}
        report.say("")
        report.say(f"Open {folder / 'report.html'} in a browser, and look at {folder / 'demo.png'}.", "bold")
        report.say(f"That took {duration(report.data['seconds'])}. Now with a table of yours: expunge schema data.csv")


def _make_room(folder: Path) -> None:
    """Make a folder of the demo's own, and remove what an earlier demo has left there."""
    from expunge.store.file import ENDINGS, beside

    mark = folder / ".expunge-demo"
    if folder.is_dir() and any(folder.iterdir()) and not mark.exists():
        raise BadPlan(f"--folder: {folder} has files that are not the demo's; give an empty or a new one.")
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()
    for name in FILES:
        for ending in ("", "-key", *ENDINGS):
            beside(folder / name, ending).unlink(missing_ok=True)


def _title(report: Report, text: str) -> None:
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
    _title(report, "1. A real table, at the prompt")
    write_patients(folder)
    table, others, model = (f"{folder}/{name}" for name in ("patients.csv", "others.csv", "patients.expunge"))
    schema = f"{folder}/schema.toml"
    report.say("A schema says what each column is. It is drafted, and then it is yours to confirm.")
    _prompt(report, ["schema", table, "--id", "patient", "--target", "diagnosis", "-o", schema])
    _prompt(report, ["fit", table, "--schema", schema, "--test", others, "-o", model])
    report.say("Two patients ask to be erased. (So few records need no noise: every deletion replays, in no time.)")
    _prompt(report, ["unlearn", model, "--id", "patient-0017", "--id", "patient-0042", "--outcome"])
    report.say("Not a byte of them is left:")
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


def make_people(number: int) -> tuple[Array, Array]:
    """Make a table in which a linear rule explains most, but not all, of the answers."""
    import numpy as np

    rng = np.random.default_rng(0)
    features = rng.normal(size=(number, FEATURES))
    features /= np.maximum(np.linalg.norm(features, axis=1), 1.0)[:, None]
    scores = 12.0 * features @ rng.normal(size=FEATURES) / np.sqrt(FEATURES) * np.sqrt(3)
    return features, np.where(rng.random(number) < 1.0 / (1.0 + np.exp(-scores)), 1.0, -1.0)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _people(report: Report, folder: Path, people: int) -> None:
    """Erase people from a large model, in memory and in a file, beside retraining."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression as ScikitLearns

    import expunge

    _title(report, f"2. {people:,} made-up people, from Python")
    features, answers = make_people(people + people // 10)
    test = features[people:], answers[people:]
    features, answers = features[:people], answers[:people]
    names = np.array([f"person-{number:06d}" for number in range(people)])
    wanted = expunge.LogisticRegression(rho=RHO, classes=[-1, 1])
    model, fitted = _timed(lambda: wanted.fit(features, answers, ids=names))
    peer, refit = _timed(lambda: ScikitLearns().fit(features, answers))
    scores = {"scikit-learn": peer.score(*test), "before": model.score(*test)}

    leaving = np.random.default_rng().permutation(names)[: 1 + people // 100 + people // 20 + ON_DISK]
    single, many, last = np.split(leaving[1:], [people // 100, people // 100 + people // 20])
    model.unlearn(leaving[:1])  # the first deletion builds the index of ids
    outcomes = _erase_singly(model, single, report)
    _, bulk = _timed(lambda: model.unlearn(many))
    scores["after erasing"] = model.score(*test)
    stay = ~np.isin(names, leaving)
    again, retrained = _timed(lambda: ScikitLearns().fit(features[stay], answers[stay]))
    scores["scikit-learn, retrained"] = again.score(*test)

    path = folder / "people.expunge"
    model.save(path)
    with expunge.open(path) as stored:
        on_disk = [_timed(partial(stored.unlearn, [one]))[1] for one in last]
        checked = stored.verify()
    kept = [one.seconds for one in outcomes if one.kept]
    replayed = [one.seconds for one in outcomes if not one.kept]
    usual, replay = float(np.median(kept)), float(np.mean(replayed)) if replayed else 0.0
    report.data["people"] = {
        "records": people, "kept": len(kept), "replayed": len(replayed), "accuracy": scores, "verified": checked.ok,
        "seconds": {
            "fit": fitted, "scikit_learn": refit, "kept": usual, "replayed": replay, "bulk": bulk,
            "on_disk": float(np.median(on_disk)),
        },
    }  # fmt: skip
    report.facts(
        f"logistic regression, {FEATURES} features, ρ = {RHO} (noise σ = {model.plan_.sigma:.2g})",
        {
            "learned in": f"{duration(fitted)} (scikit-learn: {duration(refit)})",
            f"{len(single):,} erased one by one": f"{len(kept):,} kept the model as it was, {len(replayed)} replayed, "
            f"in {duration(replay)} each",
            "such a deletion": f"{duration(usual)} in memory, "
            f"{duration(float(np.median(on_disk)))} in a file, synced to disk, with a receipt",
            f"{len(many):,} erased at once": duration(bulk),
            "retraining with scikit-learn": f"{duration(retrained)}, each time",
            "accuracy on others": ", ".join(f"{percent(score)} {name}" for name, score in scores.items()),
            "verify": "every sum and iterate agrees, bit for bit" if checked.ok else "; ".join(checked.problems),
        },
    )
    _draw(folder / "demo.png", kept, replayed, refit, scores)


def _erase_singly(model: Any, names: AnyArray, report: Report) -> list[Any]:
    """Erase people one by one; return how that went."""
    from expunge.progress import progress_bars

    outcomes = []
    with progress_bars(False if report.as_json else None) as show:
        for number, name in enumerate(names, 1):
            outcomes.append(model.unlearn(name))
            show("erasing", number, len(names))
    return outcomes


def _draw(path: Path, kept: list[float], replayed: list[float], refit: float, accuracies: dict[str, float]) -> None:
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    bins = np.logspace(-5, np.log10(3 * refit), 60)
    left.hist(kept, bins, label=f"{len(kept)} kept", color="C0")
    left.hist(replayed, bins, label=f"{len(replayed)} replayed", color="C1")
    left.axvline(refit, color="C3", label="retraining with scikit-learn")
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("seconds for one deletion")
    left.set_title(f"Deleting {len(kept) + len(replayed):,} people, one by one")
    left.legend()
    colors = ["grey" if "scikit" in name else "C0" for name in accuracies]
    bars = right.barh(list(accuracies), [100 * a for a in accuracies.values()], color=colors)
    right.bar_label(bars, [f" {100 * a:.2f} %" for a in accuracies.values()])
    right.set_xlim(100 * min(accuracies.values()) - 2, 100 * max(accuracies.values()) + 2)
    right.set_title("Accuracy on others")
    figure.savefig(path, dpi=120)
