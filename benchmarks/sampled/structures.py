"""Structures of one's own from a keyed sample (`expunge.Sampled`), beside the same pipelines of scikit-learn.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/sampled/structures.py [TABLE ...]

In one run. The pipeline is fitted on everyone, and on the sample alone. Three fits each at two ρ, then up to 300
deletions of random records. In the end each state must be, bit for bit, what its records and keys give. Five minutes;
tables that are missing are left out. Writes out/structures.json.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, StandardScaler

import expunge
from benchmarks.sampled.boosting import READ, deleted, dense, main, of, scores, shown, timed
from benchmarks.smoke import sized
from expunge.base.types import Array

FITS = sized(3, 1)
SHARES = sized((0.1, 0.02), (0.1,))


class Tried(NamedTuple):
    """A structure, and the head and most columns that go with it."""

    structure: Any
    head: Any = "newton"
    columns: Any = "auto"


TABLES = {
    "adult": Tried(StandardScaler()),
    "covtype": Tried(KBinsDiscretizer(16, quantile_method="averaged_inverted_cdf"), columns=300),
    "california value": Tried(make_pipeline(StandardScaler(), Nystroem(n_components=200, random_state=0)), "ridge"),
    "make_friedman1": Tried(make_pipeline(StandardScaler(), PolynomialFeatures(3, include_bias=False)), "ridge"),
}


def one_fit(name: str, rho: float, seed: int, X: Array, y: Array, test: tuple[Array, Array]) -> dict[str, Any]:
    """Fit once, beside the sample alone, and delete."""
    tried = TABLES[name]
    model = expunge.Sampled(tried.structure, head=tried.head, columns=tried.columns, rho=rho)
    seconds, _ = timed(partial(model.fit, X, y))
    records = model._records
    joined = model.plan_.structure.joins(None, records.keys_at(0), ())
    rows, ids = records.batch_at(0)[0][joined], records.ids_at(0)[joined]
    found: dict[str, Any] = {"ours": scores(name, model, *test)}
    found["sample alone"] = scores(name, theirs(tried).fit(rows, y[ids]), *test)
    costs, kept = deleted(model, seed)
    anew = float(costs[~kept].mean()) if (~kept).any() else seconds
    return {
        **found, "columns": model.plan_.columns, "fit, seconds": seconds,
        "kept, µs": 1e6 * float(np.median(costs[kept])),
        "mean, in fits": ((1.0 - rho) * float(costs[kept].mean()) + rho * anew) / seconds,
        "verified": model.verify().ok,
    }  # fmt: skip


def theirs(tried: Tried) -> Any:
    """Return the same pipeline of scikit-learn."""
    last: Any = Ridge(1.0) if tried.head == "ridge" else LogisticRegression(max_iter=1_000)
    return make_pipeline(tried.structure, StandardScaler(with_mean=False), last)


def measured(name: str) -> dict[str, Any]:
    """Return what is found on one table."""
    X, y, test, truth = READ[name]()
    X, test = dense(X), (dense(test), truth)
    seconds, everyone = timed(partial(theirs(TABLES[name]).fit, X, y))
    found: dict[str, Any] = {"n": len(y), "d": X.shape[1], "seconds": seconds}
    found["scikit-learn"] = scores(name, everyone, *test)
    for rho in SHARES:
        found[f"{rho:g}"] = [one_fit(name, rho, seed, X, y, test) for seed in range(FITS)]
    return found


def told(name: str, found: dict[str, Any]) -> list[str]:
    """Return lines of a table in Markdown."""
    lines = []
    for rho in SHARES:
        fits = found[f"{rho:g}"]
        if not all(one["verified"] for one in fits):
            raise AssertionError(f"{name}, {rho}: a state does not verify")
        lines.append(
            f"| {name} | {found['n']:,} × {found['d']} → {fits[0]['columns']} | {shown([found['scikit-learn']])} "
            f"| {rho:g} | {shown([one['ours'] for one in fits])} | {shown([one['sample alone'] for one in fits])} "
            f"| {of(fits, 'kept, µs'):,.0f} µs | 1/{1 / of(fits, 'mean, in fits'):.0f} "
            f"| {of(fits, 'fit, seconds') / found['seconds']:.2f} |"
        )
    return lines


HEAD = [
    "| table | n × columns → features | scikit-learn on everyone | ρ | ours | the sample alone | kept deletion "
    "| mean deletion / fit | fit / scikit-learn's |",
    "|" + "---|" * 9,
]


if __name__ == "__main__":
    main(__doc__, TABLES, HEAD, measured, told, "structures.json")
