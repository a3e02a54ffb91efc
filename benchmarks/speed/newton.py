"""Speed of Newton's method on covtype beside scikit-learn's bare lbfgs on the same rows, and of `Ridge`, in one run.

    OPENBLAS_NUM_THREADS=1 python benchmarks/speed/newton.py

Seconds are of the processor, so that what else the machine does counts little; goals are in brackets. Replays are few
and dear: beside the mean that was measured stands the one that is expected, from the probability of a replay at each
deletion and what a replay costs. Where covtype is missing, a generated table of its shape takes its place. Two minutes;
writes out/speed_newton.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import sklearn.linear_model
from rich.progress import track

import expunge
from benchmarks.accuracy.datasets import load, there
from benchmarks.linear import ridge
from benchmarks.smoke import OUT, parser_of, sized
from expunge.base.types import Array, Ints, Mask

ROWS, NUMBERS, CODES = sized(501_012, 240), 10, 44
"""The shape of covtype: that many records, columns of numbers, and of zeros and ones."""
FITS, DELETIONS, BULK, READS = sized(5, 1), sized(5_000, 20), sized(10_000, 40), sized(50, 3)
Table = tuple[Array, Array, Array, Array]
Found = dict[str, float | str]


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor's seconds, and what came out."""
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def generated() -> Table:
    """Return a table of covtype's shape, for training and for testing."""
    rng, number = np.random.default_rng(0), ROWS + ROWS // 6
    X = np.zeros((number, NUMBERS + CODES))
    X[:, :NUMBERS] = rng.normal(size=(number, NUMBERS)).clip(-3.0, 3.0) / 3.0
    X[np.arange(number), NUMBERS + rng.integers(4, size=number)] = 1.0
    X[np.arange(number), NUMBERS + 4 + rng.geometric(0.1, size=number) % (CODES - 4)] = 1.0
    scores = X @ rng.normal(size=NUMBERS + CODES)
    y = np.where(rng.logistic(size=number) < scores - np.median(scores), 1.0, -1.0)
    return X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:]


def table() -> tuple[str, Table]:
    """Return covtype if it is there."""
    if not there(["covtype"]):
        return "generated", generated()
    data = load("covtype")
    return "covtype", (data.X_train, data.y_train, data.X_test, data.y_test)


def deletions(model: Any, victims: Ints) -> tuple[Array, Mask, Mask, Array]:
    """Delete one after the other: seconds, which were kept, which rounds had seen, and how likely each replays."""
    costs, outcomes = np.empty(len(victims)), []
    for number, victim in track(list(enumerate(victims.tolist())), "deletions"):
        costs[number], outcome = timed(partial(model.unlearn, [victim]))
        outcomes.append(outcome)
    kept = np.array([outcome.kept for outcome in outcomes])
    seen = np.array([outcome.evaluations > 1 for outcome in outcomes])
    return costs, kept, seen, np.array([outcome.replay_probability for outcome in outcomes])


def median(seconds: Array) -> float | str:
    """Return the median in millionths of a second."""
    return 1e6 * float(np.median(seconds)) if len(seconds) else "none"


def logistic(name: str, given: Table) -> Found:
    """Return what is found of the logistic regression."""
    X, y, X_test, y_test = given
    theirs, plain = timed(lambda: sklearn.linear_model.LogisticRegression(C=1.0, max_iter=5_000).fit(X, y))
    fits, model = [], expunge.LogisticRegression(solver="newton")
    for _ in range(1 + FITS):  # the first one gets its memory from the system, and imports libraries
        model = expunge.LogisticRegression(solver="newton")
        fits.append(timed(partial(model.fit, X, y))[0])
    fit, score = float(np.median(fits[1:])), model.score(X_test, y_test)
    order = np.random.default_rng(1).permutation(len(y))
    model.unlearn(order[:1])  # builds the index
    bulk, last = order[1 : 1 + BULK], order[-DELETIONS - READS :]
    costs, kept, seen, chances = deletions(model, last[:DELETIONS])
    reads = []
    for victim in last[DELETIONS:].tolist():
        model.unlearn([victim])
        reads.append(timed(lambda: model.coef_)[0])
    bulk_cost, _ = timed(lambda: model.unlearn(bulk))
    replay, stay = (float(part.mean()) if len(part) else fit for part in (costs[~kept], costs[kept]))
    expected = stay + float(chances.mean()) * replay
    return {
        "table": name,
        "scikit-learn's fit, seconds": theirs,
        "fit, seconds": fit,
        "scikit-learn's fit / fit (at least 15)": theirs / fit,
        "first fit, in fits": fits[0] / fit,
        "accuracy less scikit-learn's, points": 100.0 * float(score - plain.score(X_test, y_test)),
        "kept deletion, median, µs (at most 80)": median(costs[kept]),
        "  of a record that rounds had not seen": median(costs[kept & ~seen]),
        "  of one that they had": median(costs[kept & seen]),
        f"replays of {DELETIONS:,} deletions": float(np.count_nonzero(~kept)),
        "replays that were expected": float(chances.sum()),
        "replay, in fits": replay / fit,
        "deletion, mean, µs": 1e6 * float(costs.mean()),
        "scikit-learn's fit / deletion, mean (at least 30,000)": theirs / float(costs.mean()),
        "scikit-learn's fit / deletion, expected (at least 30,000)": theirs / expected,
        "read that solves, median, ms (at most 0.5)": 1e3 * float(np.median(reads)),
        f"bulk of {BULK:,} / fit (at most 0.6)": bulk_cost / fit,
        "verified": str(model.verify().ok),
    }


def least_squares() -> Found:
    """Return what is found of `Ridge` at 100 columns."""
    X, y = ridge.data()
    victims = np.random.default_rng(1).permutation(len(y))[: sized(2_000, 20)]
    updates = ridge.rank_one(X, y, victims, np.linalg.solve, time.process_time)
    model = expunge.Ridge(ridge.ALPHA, feature_bound=8.0, target_bound=ridge.BOUND).fit(X, y)
    model.unlearn(victims[:1])
    costs = [timed(partial(model.unlearn, [victim]))[0] for victim in victims[1:].tolist()]
    update, deletion = float(np.median(updates)), float(np.median(costs))
    return {
        f"Ridge, {ridge.FEATURES} columns: rank-one update and solve with NumPy, µs": 1e6 * update,
        "Ridge: deletion, median, µs": 1e6 * deletion,
        "Ridge: deletion, in updates (at most 2)": deletion / update,
    }


def main() -> None:
    parser_of(__doc__).parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    found = {**logistic(*table()), **least_squares()}
    (OUT / "speed_newton.json").write_text(json.dumps(found, indent=1))
    for name, value in found.items():
        print(f"{name:72} {value if isinstance(value, str) else format(value, ',.4g')}")


if __name__ == "__main__":
    main()
