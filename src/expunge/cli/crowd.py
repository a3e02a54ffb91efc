"""The crowd of `expunge demo`: made-up people, erased from a large model beside retraining it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expunge.base.progress import Show
from expunge.base.wording import duration, percent
from expunge.cli.output import Report

if TYPE_CHECKING:
    from expunge.base.types import AnyArray

NUMBERS, KINDS = 10, 4
"""How many numbers are known of a person, and how many things that are one of `VALUES`."""
VALUES, SHARES = ("a", "b", "c", "d", "e"), (0.5, 0.25, 0.15, 0.08, 0.02)
RHO, SINGLY, ON_DISK = 0.05, 2_000, 100


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


@dataclass(frozen=True)
class _Crowd:
    """The made-up people of both tables, as models take them."""

    schema: Any
    features: AnyArray
    answers: AnyArray
    names: AnyArray
    test: tuple[AnyArray, AnyArray]
    """Features and answers of others."""


@dataclass(frozen=True)
class _Leaving:
    """Who is to be erased, and how."""

    first: AnyArray
    single: AnyArray
    """One by one, in memory."""
    alone: AnyArray
    """One by one, in a file."""
    many: AnyArray
    """At once, in the file; the first of them alone."""


@dataclass
class _Measured:
    """How long everything took, and how good the models are."""

    seconds: dict[str, float] = field(default_factory=dict)
    accuracy: dict[str, float] = field(default_factory=dict)
    kept: list[float] = field(default_factory=list)
    """Seconds of each deletion in memory that kept the model as it was."""
    replayed: list[float] = field(default_factory=list)
    checked: Any = None
    """What `verify` says of the file."""

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        """Do something, and note how long it took."""
        began = time.perf_counter()
        done = work()
        self.seconds[name] = time.perf_counter() - began
        return done


@contextmanager
def _stage(show: Show, name: str) -> Iterator[None]:
    show(name, 0, None)
    yield
    show(name, 1, 1)


def erase_people(report: Report, folder: Path, people: int) -> str:
    """Delete people from a large model, in memory and in a file, and retrain; return a head hash to note."""
    from expunge.base.progress import progress_bars
    from expunge.store import make_signing_key

    key, path, found = folder / "operator.pem", folder / "people.expunge", _Measured()
    with progress_bars(False if report.as_json else None) as show:
        crowd = _made_up(folder, people, show)
        model = _fitted(crowd, found, show)
        make_signing_key(key)
        model.schema_ = crowd.schema
        model.save(path)
        leaving = _drawn(crowd.names)
        _erase_in_memory(model, crowd, leaving, found, show)
        (folder / "erased.txt").write_text("".join(f"{one}\n" for one in leaving.alone), encoding="utf-8")
        noted = _erase_in_file(path, key, leaving, found, show)
    _say_what_was_measured(report, people, model, leaving, found)
    anew = {"Expunge": found.seconds["fit"], "scikit-learn": found.seconds["retrained"]}
    _draw(folder / "demo.png", people, found.kept, found.replayed, anew, found.accuracy)
    return noted


def _made_up(folder: Path, people: int, show: Show) -> _Crowd:
    """Write tables of made-up people, and read them."""
    import numpy as np

    from expunge.tables.schema import EncodedTables, schema_toml

    schema = people_schema()
    (folder / "people.toml").write_text(schema_toml(schema), encoding="utf-8")
    with _stage(show, "making up"):
        write_people(folder, people, people // 10)
    with _stage(show, "reading"):
        known, others = (
            EncodedTables(schema, folder / name).all() for name in ("people.parquet", "more-people.parquet")
        )
    test = others.X.astype(float), np.asarray(others.y)
    return _Crowd(schema, known.X.astype(float), np.asarray(known.y), np.asarray(known.ids), test)


def _fitted(crowd: _Crowd, found: _Measured, show: Show) -> Any:
    """Fit a model, and scikit-learn's beside it."""
    from sklearn.linear_model import LogisticRegression as ScikitLearns

    import expunge

    wanted = expunge.LogisticRegression(rho=RHO, classes=["no", "yes"], solver="dual_averaging")
    with _stage(show, "fitting"):
        model = found.timed("fit", lambda: wanted.fit(crowd.features, crowd.answers, ids=crowd.names))
    with _stage(show, "scikit-learn"):
        peer = found.timed("scikit_learn", lambda: ScikitLearns().fit(crowd.features, crowd.answers))
    found.accuracy |= {"scikit-learn": peer.score(*crowd.test), "Expunge": model.score(*crowd.test)}
    return model


def _drawn(names: AnyArray) -> _Leaving:
    """Draw who is to be erased."""
    import numpy as np

    singly, on_disk = min(SINGLY, len(names) // 100), min(ON_DISK, len(names) // 100)
    leaving = np.random.default_rng().permutation(names)[: 1 + singly + on_disk + len(names) // 20]
    return _Leaving(*np.split(leaving, [1, 1 + singly, 1 + singly + on_disk]))


def _erase_in_memory(model: Any, crowd: _Crowd, leaving: _Leaving, found: _Measured, show: Show) -> None:
    """Erase people one by one, and retrain scikit-learn's model without them."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression as ScikitLearns

    model.unlearn(leaving.first)  # the first deletion builds the index of ids
    for number, name in enumerate(leaving.single, 1):
        outcome = model.unlearn(name)
        (found.kept if outcome.kept else found.replayed).append(outcome.seconds)
        show("deleting", number, len(leaving.single))
    fewer = f"{len(leaving.single):,} fewer"
    found.accuracy[f"Expunge, {fewer}"] = model.score(*crowd.test)
    stay = ~np.isin(crowd.names, np.concatenate([leaving.first, leaving.single]))
    with _stage(show, "retraining"):
        again = found.timed("retrained", lambda: ScikitLearns().fit(crowd.features[stay], crowd.answers[stay]))
    found.accuracy[f"scikit-learn, {fewer}"] = again.score(*crowd.test)
    found.seconds |= {
        "kept": float(np.median(found.kept)),
        "replayed": float(np.mean(found.replayed)) if found.replayed else 0.0,
        "mean": float(np.mean(found.kept + found.replayed)),
    }


def _erase_in_file(path: Path, key: Path, leaving: _Leaving, found: _Measured, show: Show) -> str:
    """Erase people from the file, one by one and at once, with signed receipts; return a head hash to note."""
    import numpy as np

    import expunge

    with expunge.open(path, sign_with=key) as stored:
        stored.unlearn(leaving.many[:1])
        noted = str(stored.export_receipts()["head"])
        synced = []
        for number, one in enumerate(leaving.alone, 1):
            found.timed("on_disk", partial(stored.unlearn, [one]))
            synced.append(found.seconds["on_disk"])
            show("in a file", number, len(leaving.alone))
        with _stage(show, "at once"):
            found.timed("bulk", lambda: stored.unlearn(leaving.many[1:]))
        found.checked = stored.verify()
    found.seconds["on_disk"] = float(np.median(synced))
    return noted


def _say_what_was_measured(report: Report, people: int, model: Any, leaving: _Leaving, found: _Measured) -> None:
    """Print what erasing took, beside retraining."""
    checked, mean = found.checked, found.seconds["mean"]
    took = {name: duration(seconds) for name, seconds in found.seconds.items()}
    kept, replayed = len(found.kept), len(found.replayed)
    ratios = [f"{found.seconds[name] / mean:,.0f} times as" for name in ("fit", "retrained")]
    order = ("fit", "scikit_learn", "retrained", "kept", "replayed", "mean", "bulk", "on_disk")
    report.data["people"] = {
        "records": people, "kept": kept, "replayed": replayed, "accuracy": found.accuracy, "verified": checked.ok,
        "seconds": {name: found.seconds[name] for name in order},
    }  # fmt: skip
    report.facts(
        f"logistic regression, {model.schema_.width} features, ρ = {RHO} (noise σ = {model.plan_.sigma:.2g})",
        {
            "learned in": f"{took['fit']} (scikit-learn: {took['scikit_learn']})",
            f"{len(leaving.single):,} deleted one by one": f"{kept:,} kept the model as it was, {replayed} replayed, "
            f"in {took['replayed']} each",
            "a deletion": f"{took['kept']} if kept, {took['mean']} on average, in memory",
            "the same in a file": f"{took['on_disk']}, synced to disk, with a signed receipt",
            f"{len(leaving.many) - 1:,} deleted at once": f"{took['bulk']}, in the file",
            "retraining": f"{took['fit']} with Expunge, {took['retrained']} with scikit-learn, each time",
            "so a deletion is": f"{ratios[0]} fast as the one, {ratios[1]} the other",
            "accuracy on others": ", ".join(f"{percent(score)} {name}" for name, score in found.accuracy.items()),
            "verify": "every sum and iterate agrees, bit for bit" if checked.ok else "; ".join(checked.problems),
        },
    )


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
