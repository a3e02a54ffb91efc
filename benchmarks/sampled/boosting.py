"""Gradient boosting from a keyed sample, beside scikit-learn's on everyone and on the sample alone, in one run.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/sampled/boosting.py [TABLE ...]

Default parameters, five fits each at several ρ. scikit-learn's `HistGradientBoosting` gets the same rows; on the sample
alone it has as many trees and leaves as we take from it. Then up to 300 deletions of random records: how many fit anew,
what a kept one takes, and the mean as a share of a fit; and in the end the state must be, bit for bit, that of a fresh
fit with the same keys. Ten minutes; tables that are missing are left out. Writes out/boosting.json.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score

import expunge
from benchmarks.accuracy.datasets import there
from benchmarks.accuracy.tables import AMOUNTS, CLASSES, SEVERAL, SHARED
from benchmarks.smoke import OUT, parser_of, sized
from expunge.base.types import Array, Mask

FITS, DELETIONS, SECONDS = sized(5, 1), sized(300, 5), sized(60.0, 1.0)
SMALL: dict[str, Any] = sized({}, {"max_iter": 3})


class Asked(NamedTuple):
    """Which shares a table is measured at."""

    shares: tuple[float, ...]
    at: float = 0.0
    scores: tuple[tuple[str, float], ...] = ()
    """What must be reached at one of them."""


TABLES = {
    "adult": Asked((0.1, 0.03), 0.1, (("score", 86.9), ("AUC", 0.921))),
    "a9a": Asked((0.1, 0.03)),
    "covtype": Asked((0.1, 0.03, 0.01), 0.03, (("score", 83.0),)),
    "make_classification": Asked((0.1, 0.03)),
    "cover types": Asked((0.1,)),
    "california value": Asked((0.1, 0.03), 0.1, (("score", 78.0),)),
    "flights delay": Asked((0.1, 0.03)),
    "make_friedman1": Asked((0.1, 0.03)),
}
READ = {**CLASSES, **SEVERAL, **AMOUNTS}


def dense(rows: Any) -> Array:
    """Return rows as an array."""
    return np.asarray(rows.todense()) if hasattr(rows, "todense") else np.asarray(rows, dtype=np.float64)


def scores(name: str, model: Any, X: Array, y: Array) -> dict[str, float]:
    """Return accuracy and AUC, or R², in percent but for the AUC."""
    found = {"score": 100.0 * float(model.score(X, y))}
    if name in CLASSES:
        found["AUC"] = float(roc_auc_score(y, model.decision_function(X)))
    return found


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds, and what came out."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def deleted(model: Any, seed: int) -> tuple[Array, Mask]:
    """Delete random records one by one: seconds of each, and which were kept."""
    order, began, costs, kept = np.random.default_rng(seed).permutation(model.ids_), time.perf_counter(), [], []
    for one in order[:DELETIONS].tolist():
        cost, outcome = timed(partial(model.unlearn, [one]))
        costs.append(cost)
        kept.append(outcome.kept)
        if time.perf_counter() - began > SECONDS:
            break
    return np.array(costs), np.array(kept)


def one_fit(name: str, rho: float, seed: int, X: Array, y: Array, test: tuple[Array, Array]) -> dict[str, Any]:
    """Fit once, beside the sample alone, and delete."""
    ours = expunge.GradientBoostingClassifier if name not in AMOUNTS else expunge.GradientBoostingRegressor
    theirs = HistGradientBoostingClassifier if name not in AMOUNTS else HistGradientBoostingRegressor
    model = ours(rho=rho, **SMALL)
    seconds, _ = timed(partial(model.fit, X, y))
    plan, records = model.plan_, model._records
    joined = plan.structure.joins(None, records.keys_at(0), ())
    rows, ids = records.batch_at(0)[0][joined], records.ids_at(0)[joined]
    alone = theirs(max_iter=plan.trees, max_leaf_nodes=plan.leaves, early_stopping=False)
    found: dict[str, Any] = {"ours": scores(name, model, *test)}
    found["sample alone"] = scores(name, alone.fit(rows, y[ids]), *test) if len(ids) else found["ours"]
    costs, kept = deleted(model, seed)
    anew = float(costs[~kept].mean()) if (~kept).any() else seconds
    read, _ = timed(partial(model.predict, test[0][:1]))
    return {
        **found, "sampled": int(joined.sum()), "fit, seconds": seconds, "kept, µs": 1e6 * float(np.median(costs[kept])),
        "deletions": len(costs), "fitted anew": int((~kept).sum()), "anew, in fits": anew / seconds,
        "mean, in fits": ((1.0 - rho) * float(costs[kept].mean()) + rho * anew) / seconds, "read, ms": 1e3 * read,
        "verified": model.verify().ok,
    }  # fmt: skip


def measured(name: str) -> dict[str, Any]:
    """Return what is found on one table."""
    X, y, test, truth = READ[name]()
    X, test = dense(X), (dense(test), truth)
    theirs = (HistGradientBoostingClassifier if name not in AMOUNTS else HistGradientBoostingRegressor)(
        early_stopping=False, random_state=0, **SMALL
    )
    seconds, _ = timed(partial(theirs.fit, X, y))
    found: dict[str, Any] = {"n": len(y), "d": X.shape[1], "seconds": seconds}
    found["scikit-learn"] = scores(name, theirs, *test)
    for rho in TABLES[name].shares:
        found[f"{rho:g}"] = [one_fit(name, rho, seed, X, y, test) for seed in range(FITS)]
    return found


def of(fits: list[dict[str, Any]], what: str) -> float:
    """Return the median of what fits found."""
    return float(np.median([one[what] for one in fits]))


def shown(each: list[dict[str, float]]) -> str:
    """Return mean scores."""
    parts = [f"{np.mean([one['score'] for one in each]):.2f}"]
    if "AUC" in each[0]:
        parts.append(f"{np.mean([one['AUC'] for one in each]):.4f}")
    return " / ".join(parts)


def told(name: str, found: dict[str, Any]) -> list[str]:
    """Return lines of a table in Markdown."""
    lines = []
    for rho in TABLES[name].shares:
        fits = found[f"{rho:g}"]
        ours = [one["ours"] for one in fits]
        asked = TABLES[name].scores if rho == TABLES[name].at else ()
        held = all(np.mean([one[what] for one in ours]) >= least for what, least in asked)
        lines.append(
            f"| {name} | {found['n']:,} × {found['d']} | {shown([found['scikit-learn']])} | {rho:g} | {shown(ours)} "
            f"| {min(one['score'] for one in ours):.2f} | {shown([one['sample alone'] for one in fits])} "
            f"| {of(fits, 'kept, µs'):,.0f} µs | 1/{1 / of(fits, 'mean, in fits'):.0f} "
            f"| {of(fits, 'fit, seconds') / found['seconds']:.2f} "
            f"| {('held' if held else 'missed') if asked else ''} |"
        )
        if not all(one["verified"] for one in fits):
            raise AssertionError(f"{name}, {rho}: a state does not verify")
    return lines


HEAD = [
    "| table | n × d | scikit-learn on everyone | ρ | ours | worst | the sample alone | kept deletion "
    "| mean deletion / fit | fit / scikit-learn's | asked |",
    "|" + "---|" * 11,
]


def main(
    about: str | None = __doc__, tables: Iterable[str] = TABLES, head: list[str] = HEAD,
    measure: Callable[[str], dict[str, Any]] = measured, tell: Callable[[str, dict[str, Any]], list[str]] = told,
    file: str = "boosting.json",
) -> None:  # fmt: skip
    """Measure tables, one after the other, and write what was found."""
    parser = parser_of(about)
    parser.add_argument("names", nargs="*", help="tables (default: all)")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    every: dict[str, Any] = {}
    print("\n".join(head))
    wanted = given.names or list(tables)
    found = there(list(dict.fromkeys(SHARED[name] for name in wanted if name in SHARED)))
    for name in wanted:
        if SHARED.get(name) in (None, *found):
            every[name] = measure(name)
            print("\n".join(tell(name, every[name])), flush=True)
            (OUT / file).write_text(json.dumps(every, indent=1))


if __name__ == "__main__":
    main()
