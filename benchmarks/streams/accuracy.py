"""Accuracy over time where records arrive and leave, beside scikit-learn's SGD, which cannot delete.

    python benchmarks/streams/accuracy.py          # both data sets, in file order and shuffled
    python benchmarks/streams/accuracy.py --quick  # a tenth of the records, about a minute
    python benchmarks/streams/accuracy.py --docs   # the plot goes to docs/images too

Each day the model first predicts the day's records, then learns them, then serves the deletions that were asked for
the day before, as one request. One record in twenty asks, on a day by chance. Nothing is tuned for our models; of
SGD's settings the best in hindsight is shown, for each stream by itself. Seconds are the processor's. Set
OPENBLAS_NUM_THREADS=1: the products are small. Results are written to out/streams_accuracy.json, the plot to
out/streams_accuracy.png (with --quick: streams_accuracy-quick).
"""

from __future__ import annotations

import itertools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from rich.progress import Progress
from sklearn.linear_model import SGDClassifier, SGDRegressor

import expunge
from benchmarks.accuracy.datasets import needed
from benchmarks.smoke import IMAGES, OUT, parser_of, sized
from benchmarks.streams.data import NAMES, ORDERS, Stream, load_stream, requests
from benchmarks.streams.report import draw, save_small, table
from expunge.base.errors import SizeWarning
from expunge.base.types import Array, Ints
from expunge.solvers import DualAveraging


class Model(Protocol):
    """What is put to the test. Counts are of requests (one a day), not of records."""

    settings: str
    insertions_replayed: int
    deletions_replayed: int

    def learn(self, X: Array, y: Array, ids: Ints) -> None: ...
    def forget(self, ids: Ints) -> None: ...
    def predict(self, X: Array) -> Array: ...


class Ours:
    """One of our estimators."""

    def __init__(self, stream: Stream, kind: str, rho: Any = "auto", **choices: Any) -> None:
        given: dict[str, Any] = {"expected_records": len(stream.y), "random_state": 0, "rho": rho}
        if stream.task == "binary":
            given["classes"] = [-1.0, 1.0]
        else:
            choices["target_range"] = stream.target_range
        self.estimator = getattr(expunge, kind)(**given, solver=DualAveraging(**choices))
        self.insertions_replayed = self.deletions_replayed = 0

    @property
    def settings(self) -> str:
        plan = self.estimator.plan_
        return f"ρ = {plan.rho:.3g}, σ = {plan.sigma:.3g}, steps of {plan.batch}"

    def learn(self, X: Array, y: Array, ids: Ints) -> None:
        if not hasattr(self.estimator, "plan_"):
            self.estimator.partial_fit(X, y, ids=ids)
        else:  # what partial_fit calls; it tells whether there was a replay
            self.insertions_replayed += not self.estimator.insert(X, y, ids=ids).kept

    def forget(self, ids: Ints) -> None:
        self.deletions_replayed += not self.estimator.unlearn(ids).kept

    def predict(self, X: Array) -> Array:
        return self.estimator.predict(X)


class Theirs:
    """scikit-learn's SGD, with targets of regressions mapped to [-1, 1] as ours are; it does not forget."""

    insertions_replayed = deletions_replayed = 0

    def __init__(self, stream: Stream, **choices: Any) -> None:
        self.settings = ", ".join(f"{name}={value}" for name, value in choices.items())
        self.middle, self.half, self.more = 0.0, 1.0, {}
        kind = SGDRegressor
        if stream.target_range is None:
            kind, self.more = SGDClassifier, {"classes": [-1.0, 1.0]}
        else:
            low, high = stream.target_range
            self.middle, self.half = (low + high) / 2.0, (high - low) / 2.0
        self.model = kind(random_state=0, **choices)

    def learn(self, X: Array, y: Array, ids: Ints) -> None:
        self.model.partial_fit(X, (y - self.middle) / self.half, **self.more)

    def forget(self, ids: Ints) -> None:
        """Keep everything: it has no way to delete."""

    def predict(self, X: Array) -> Array:
        return self.middle + self.half * self.model.predict(X)


def ours(stream: Stream) -> Iterator[tuple[str, Callable[[], Model]]]:
    """Return our models by name, each to be made when its turn comes."""
    main = "LogisticRegression" if stream.task == "binary" else "HuberRegressor"
    variants: list[tuple[str, str, dict[str, Any]]] = [
        ("arrival", main, {}),
        ("arrival, last iterate", main, {"selector": "last"}),
        ("arrival, anytime noise", main, {"mechanism": "anytime"}),
        ("arrival, paper's shares", main, {"mechanism": "halving"}),
        ("arrival, no noise", main, {"rho": 1.0}),
        ("scattered", main, {"schedule": "scattered"}),
    ]
    if stream.task == "regression":
        variants.append(("arrival, squares", "LinearRegression", {}))
    for name, kind, choices in variants:
        yield name, lambda kind=kind, choices=choices: Ours(stream, kind, **{"schedule": "arrival", **choices})  # type: ignore[misc]


def theirs(stream: Stream) -> Iterator[Callable[[], Model]]:
    """Return SGD with a few settings."""
    rates: list[dict[str, Any]] = [
        {"learning_rate": rate, "eta0": eta}
        for rate, etas in (("constant", (0.01, 0.1)), ("invscaling", (0.01, 0.1, 1.0)))
        for eta in etas
    ]
    if stream.task == "binary":
        losses: list[dict[str, Any]] = [{"loss": "log_loss"}]
        rates.append({"learning_rate": "optimal"})
    else:
        losses = [{"loss": "squared_error"}, {"loss": "huber", "epsilon": 0.2}]
    for loss, rate, alpha in itertools.product(losses, sized(rates, rates[:1]), (1e-4, 1e-6)):
        yield lambda loss=loss, rate=rate, alpha=alpha: Theirs(stream, **loss, **rate, alpha=alpha)  # type: ignore[misc]


def live(model: Model, stream: Stream, asked: list[Ints], tick: Callable[[], None]) -> dict[str, Any]:
    """Go through the days; return what there is to tell."""
    predicted = np.full(len(stream.y), np.nan)
    learning = deleting = 0.0
    served = requested = 0
    for day in range(stream.days):
        today = stream.day(day)
        if day:
            predicted[today] = model.predict(stream.X[today])
        began = time.process_time()
        model.learn(stream.X[today], stream.y[today], np.arange(today.start, today.stop))
        learned = time.process_time()
        leaving = asked[day - 1] if day else asked[0][:0]
        if len(leaving):
            model.forget(leaving)
            served, requested = served + len(leaving), requested + 1
        learning += learned - began
        deleting += time.process_time() - learned
        tick()
    late = slice(int(stream.starts[-(-3 * stream.days // 4)]), None)
    early = slice(int(stream.starts[1]), None)
    days = (stream.day(day) for day in range(1, stream.days))
    return {
        "data": stream.name,
        "order": stream.order,
        "settings": model.settings,
        "daily": [judge(stream, predicted[day], stream.y[day])[-1] for day in days],
        "whole": judge(stream, predicted[early], stream.y[early]),
        "last quarter": judge(stream, predicted[late], stream.y[late]),
        "test": judge(stream, model.predict(stream.X_test), stream.y_test),
        "insertions": stream.days - 1,
        "insertions replayed": model.insertions_replayed,
        "deletions": requested,
        "deletions replayed": model.deletions_replayed,
        "deleted": served,
        "learning seconds": learning,
        "deleting seconds": deleting,
    }


def judge(stream: Stream, predicted: Array, true: Array) -> list[float]:
    """Return the accuracy in per cent; for regressions R² in per cent and the mean absolute error."""
    if stream.task == "binary":
        return [100.0 * float((predicted == true).mean())]
    spread = float(((true - true.mean()) ** 2).sum())
    fit = 1.0 - float(((true - predicted) ** 2).sum()) / spread if spread else math.nan
    return [100.0 * fit, float(np.abs(true - predicted).mean())]


def run(stream: Stream, progress: Progress) -> Iterator[dict[str, Any]]:
    """Go through one stream with each model; of SGD's settings return the best."""
    asked = requests(stream, np.random.default_rng(1))
    mine, rivals = list(ours(stream)), list(theirs(stream))
    title = f"{stream.name}, {stream.order}"
    task = progress.add_task(title, total=stream.days * (len(mine) + len(rivals)))

    def one(name: str, make: Callable[[], Model]) -> dict[str, Any]:
        progress.update(task, description=f"{title}: {name}")
        return {"model": name, **live(make(), stream, asked, lambda: progress.advance(task))}

    yield max((one("SGD", make) for make in rivals), key=lambda found: found["whole"][0])
    for name, make in mine:
        yield one(name, make)
    progress.remove_task(task)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", default=list(NAMES), help="data sets (default: both)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--docs", action="store_true", help="write the plot to docs/images too")
    options = parser.parse_args()
    if options.docs and (options.quick or options.names != list(NAMES)):
        parser.error("--docs: the picture there shows full runs of both data sets.")
    names = needed(options.names)
    if options.docs and names != list(NAMES):
        parser.error("--docs: the picture there needs both data sets.")
    OUT.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    file = OUT / f"streams_accuracy{'-quick' if options.quick else ''}.json"
    with Progress() as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", SizeWarning)  # deletions may take a growing stream back below a quarter
        for name in names:
            for order in ORDERS:
                for found in run(load_stream(name, order, every=10 if options.quick else 1), progress):
                    results.append(found)
                    file.write_text(json.dumps(results))
    figure = draw(results)
    figure.savefig(file.with_suffix(".png"), dpi=110)
    if options.docs:
        save_small(figure, IMAGES / "streams_accuracy.png")
    print(table(results))


if __name__ == "__main__":
    main()
