"""Ridge regression that forgets, beside scikit-learn's and a bare rank-one update with NumPy, in one run.

    OPENBLAS_NUM_THREADS=1 python benchmarks/linear/ridge.py

200,000 records of 100 features. First the seconds of a fit, and of single deletions; then 100,000 deletions, singly
and in bulks of 100 and 5,000, after which the coefficients are compared with scikit-learn's on the remaining rows,
and the sums with those of a fresh fit, bit for bit. About a minute. Writes out/ridge.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import sklearn.linear_model
from rich.console import Console
from rich.progress import track
from rich.table import Table

import expunge
from benchmarks.smoke import OUT, parser_of, sized
from expunge.base.types import Array, Ints

RECORDS, FEATURES, ALPHA, BOUND = sized(200_000, 400), 100, 1.0, 64.0
FITS = sized(3, 1)
BULKS = sized({1: 10_000, 100: 300, 5_000: 12}, {1: 100, 100: 1})
"""How many requests of each size: 100,000 deletions in all."""


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def data() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(RECORDS, FEATURES)).clip(-8.0, 8.0)
    return X, (2.0 + X @ rng.normal(size=FEATURES) / 4 + rng.normal(size=RECORDS)).clip(-BOUND, BOUND)


def rank_one(
    X: Array,
    y: Array,
    victims: Ints,
    solve: Callable[[Array, Array], Any],
    clock: Callable[[], float] = time.perf_counter,
) -> Array:
    """Return the seconds of updating a Gram matrix and solving for the coefficients, for each victim."""
    products, vector, penalty = X.T @ X, X.T @ y, ALPHA * np.eye(FEATURES)
    costs = np.empty(len(victims))
    for number, victim in enumerate(victims):
        row, target = X[victim], y[victim]
        began = clock()
        products -= np.outer(row, row)
        vector -= target * row
        solve(products + penalty, vector)
        costs[number] = clock() - began
    return costs


def delete_all(model: expunge.Ridge, victims: Ints) -> dict[int, Array]:
    """Delete all victims, and return the seconds of the requests of each size."""
    requests = np.random.default_rng(2).permutation(np.repeat(list(BULKS), list(BULKS.values())))
    bulks = np.split(victims, np.cumsum(requests)[:-1])
    costs: dict[int, list[float]] = {size: [] for size in BULKS}
    for bulk in track(bulks, "deletions"):
        seconds, outcome = timed(partial(model.unlearn, bulk))
        assert outcome.kept
        costs[len(bulk)].append(seconds)
    return {size: np.array(seconds) for size, seconds in costs.items()}


def sums_of(model: expunge.Ridge) -> bytes:
    return model.transcript_.sums[:].tobytes()


def main() -> None:
    parser_of(__doc__).parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    X, y = data()
    make = partial(expunge.Ridge, ALPHA, feature_bound=8.0, target_bound=BOUND)
    theirs = [timed(lambda: sklearn.linear_model.Ridge(ALPHA).fit(X, y))[0] for _ in range(FITS)]
    same = X.copy()  # with X itself NumPy would compute half of the product
    products = [timed(lambda: X.T @ same)[0] for _ in range(FITS)]
    fits, model = [], make()
    for _ in range(FITS):
        model = make()
        fits.append(timed(partial(model.fit, X, y))[0])
    order = np.random.default_rng(1).permutation(RECORDS)
    victims, left = order[: RECORDS // 2], np.sort(order[RECORDS // 2 :])
    first, _ = timed(lambda: model.unlearn(victims[:1]))  # builds the index
    model.insert(X[victims[:1]], y[victims[:1]], ids=victims[:1])
    numpy_solve = rank_one(X, y, victims[:5_000], np.linalg.solve)
    scipy_solve = rank_one(X, y, victims[:5_000], partial(scipy.linalg.solve, assume_a="pos"))
    costs = delete_all(model, victims)
    reference = sklearn.linear_model.Ridge(ALPHA).fit(X[left], y[left])
    fresh = make().fit(X[left], y[left])
    micro = 1e6
    found = {
        "fit, seconds": float(np.median(fits)),
        "scikit-learn's fit, seconds": float(np.median(theirs)),
        "fit, in matrix products of all rows": float(np.median(fits) / np.median(products)),
        "first deletion, with building the index, µs": micro * first,
        **{
            f"{name} of a request of {size:,} deletions, µs": micro * float(of(seconds))
            for size, seconds in costs.items()
            for name, of in (("median", np.median), ("mean", np.mean))
        },
        "rank-one update and numpy.linalg.solve, median, µs": micro * float(np.median(numpy_solve)),
        "rank-one update and scipy.linalg.solve, median, µs": micro * float(np.median(scipy_solve)),
        "a deletion, in updates with NumPy": float(np.median(costs[1]) / np.median(numpy_solve)),
        "a deletion, in updates with SciPy": float(np.median(costs[1]) / np.median(scipy_solve)),
        "a deletion of a bulk of 100, in updates with NumPy": float(
            np.median(costs[100]) / 100 / np.median(numpy_solve)
        ),
        "deletions": len(victims),
        "largest difference from scikit-learn's coefficients": float(np.abs(model.coef_ - reference.coef_).max()),
        "difference from scikit-learn's intercept": float(abs(model.intercept_ - reference.intercept_)),
        "sums bit for bit those of a fresh fit": sums_of(model) == sums_of(fresh),
        "coefficients bit for bit those of a fresh fit": model.coef_.tobytes() == fresh.coef_.tobytes(),
        "verified": model.verify().ok,
    }
    (OUT / "ridge.json").write_text(json.dumps(found, indent=1))
    table = Table("", "value", title=f"Ridge, {RECORDS:,} records of {FEATURES} features, {len(victims):,} deletions")
    for name, value in found.items():
        table.add_row(name, f"{value:,.4g}" if isinstance(value, float) else str(value))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
