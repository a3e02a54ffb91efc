"""Newton's method for regressions beside scikit-learn behind a StandardScaler: unscaled tables, several ρ.

    python benchmarks/accuracy/newton_regressions.py [NAME ...] [--rho auto 0.01 ...]

HuberRegressor: two shared data sets as they are in their files, and generated tables with outliers;
its score is R², on test records without outliers where the table is generated. PoissonRegressor: the same data sets
(house values in thousands of dollars; minutes from 90 before the planned arrival) and generated counts; its score is
D². Each line of out/newton_regressions.jsonl is one fit; the table is out/newton_regressions.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.linear_model
from rich.progress import Progress
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from benchmarks.accuracy.datasets import there
from benchmarks.accuracy.newton import SEEDS, replays_of
from benchmarks.accuracy.tables import AMOUNTS, Table
from benchmarks.smoke import OUT, parser_of, sized

Draws = np.random.Generator


def linear(records: int, columns: int, noise: float, units: bool = False) -> Callable[..., tuple[Any, Any, Any]]:
    """Return what makes rows, targets without outliers, and what they would be without noise."""

    def make(rng: Draws) -> tuple[Any, Any, Any]:
        number = 2 * sized(records, 400)
        X = rng.normal(size=(number, columns))
        truth = X @ rng.normal(size=columns)
        scaled = X * 10.0 ** rng.integers(-3, 7, size=columns) if units else X
        return scaled, truth + noise * truth.std() * rng.normal(size=number), truth

    return make


def with_outliers(made: Any, share: float, how: Callable[[Draws, Any], Any]) -> Callable[[], Table]:
    """Return a table in which a share of the targets is another: what is tested are those without noise."""

    def table() -> Table:
        rng = np.random.default_rng(1)
        X, y, truth = made(rng)
        y = np.where(rng.random(len(y)) < share, how(rng, y), y)
        half = len(y) // 2
        return X[:half], y[:half], X[half:], truth[half:]

    return table


def counts(records: int, columns: int, mean: float, width: float, units: bool = False) -> Callable[[], Table]:
    def table() -> Table:
        rng = np.random.default_rng(1)
        number = 2 * sized(records, 400)
        X = rng.normal(size=(number, columns))
        slopes = rng.normal(size=columns)
        y = rng.poisson(mean * np.exp(width * X @ slopes / np.linalg.norm(slopes)))
        X = X * 10.0 ** rng.integers(-3, 7, size=columns) + rng.integers(0, 2, size=columns) if units else X
        return X[: number // 2], y[: number // 2], X[number // 2 :], y[number // 2 :]

    return table


def heavy(rng: Draws, y: Any) -> Any:
    return y + 0.03 * y.std() * rng.standard_t(2, size=len(y))


def above(rng: Draws, y: Any) -> Any:
    return y + 10.0 * y.std() * np.abs(rng.normal(size=len(y)))


def minutes(values: Any) -> Any:
    return values + 90.0


def thousands(values: Any) -> Any:
    return values / 1000.0


HUBER = {
    "clean": with_outliers(linear(15_000, 15, 0.03), 0.0, above),
    "5 % times ten": with_outliers(linear(15_000, 15, 0.03), 0.05, lambda rng, y: 10.0 * y),
    "20 % above": with_outliers(linear(15_000, 15, 0.03), 0.2, above),
    "20 % above, noisy": with_outliers(linear(15_000, 15, 0.3), 0.2, above),
    "t(2) noise": with_outliers(linear(15_000, 15, 0.0), 1.0, heavy),
    "few records, 10 %": with_outliers(linear(2_000, 20, 0.03), 0.1, lambda rng, y: 10.0 * y),
    "units, y in 1e5": with_outliers(linear(15_000, 15, 0.03, units=True), 0.05, lambda rng, y: 1e5 * y),
}
POISSON = {
    "mean 1.5": counts(20_000, 15, 1.5, 0.6),
    "mean 0.05": counts(50_000, 20, 0.05, 0.6),
    "mean 50": counts(20_000, 15, 50.0, 0.6),
    "mean 1.5, units": counts(20_000, 15, 1.5, 0.4, units=True),
}
SHARED = {"california_housing": "california value", "nycflights13": "flights delay"}
COUNTED = {"california_housing": thousands, "nycflights13": minutes}


def table_of(kind: str, name: str) -> Table:
    """Return a table by the kind of model and its name."""
    generated = HUBER if kind == "huber" else POISSON
    if name in generated:
        return generated[name]()
    X, y, test, truth = AMOUNTS[SHARED[name]]()
    return (X, y, test, truth) if kind == "huber" else (X, COUNTED[name](y), test, COUNTED[name](truth))


def both(kind: str, records: int) -> tuple[Any, Callable[..., Any], Callable[[Any, Any], float]]:
    """Return scikit-learn's model, what makes ours, and the score."""
    if kind == "huber":
        theirs = sklearn.linear_model.HuberRegressor(max_iter=10_000)
        return theirs, lambda **more: expunge.HuberRegressor(solver="newton", **more), r2_score
    theirs = sklearn.linear_model.PoissonRegressor(alpha=1.0 / records, solver="newton-cholesky", tol=1e-8)
    return theirs, expunge.PoissonRegressor, lambda truth, found: float(d2_tweedie_score(truth, found, power=1))


def measure(kind: str, name: str, rhos: list[Any], watch: Callable[[], None]) -> list[dict[str, Any]]:
    """Fit both, several times ours, and return a row for each."""
    X, y, test, truth = table_of(kind, name)
    theirs, make, score = both(kind, len(y))
    began = time.perf_counter()
    expected = score(truth, make_pipeline(StandardScaler(), theirs).fit(X, y).predict(test))
    their_seconds = time.perf_counter() - began
    rows = []
    for rho in rhos:
        for seed in range(SEEDS):
            began = time.perf_counter()
            model = make(rho=rho).fit(X, y, ids=np.arange(len(y)))
            seconds = time.perf_counter() - began
            replays, _, _ = replays_of(model, len(y), X.shape[1], seed)
            rows.append(
                {
                    "kind": kind, "table": name, "records": len(y), "columns": X.shape[1], "asked": rho,
                    "rho": model.plan_.rho, "rounds": model.plan_.rounds, "seed": seed, "seconds": seconds,
                    "their_seconds": their_seconds, "score": expected,
                    "difference": score(truth, model.predict(test)) - expected,
                    "replays": replays,
                }
            )  # fmt: skip
            watch()
    return rows


def in_words(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | table | n × d | scikit-learn R² or D² | asked ρ | ρ (rounds) | points (worst) | replays / ρ "
        "| seconds (scikit-learn) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key in dict.fromkeys((row["kind"], row["table"], row["asked"]) for row in rows):
        own = [row for row in rows if (row["kind"], row["table"], row["asked"]) == key]
        one, points = own[0], 100.0 * np.array([row["difference"] for row in own])
        replays = np.mean([row["replays"] for row in own]) / one["rho"]
        seconds = np.median([row["seconds"] for row in own])
        lines.append(
            f"| {one['kind']} | {one['table']} | {one['records']:,} × {one['columns']} | {one['score']:.4f} "
            f"| {one['asked']} | {one['rho']:.2g} ({one['rounds']}) | {points.mean():+.2f} ({points.min():+.2f}) "
            f"| {replays:.2f} | {seconds:.2f} ({one['their_seconds']:.2f}) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", help="tables (default: all)")
    parser.add_argument("--rho", nargs="+", default=sized(["auto", "0.01"], ["auto"]), help="ρ to measure")
    given = parser.parse_args()
    rhos = [rho if rho == "auto" else float(rho) for rho in given.rho]
    known = there([name for name in sized(SHARED, ()) if name in given.names or not given.names])
    wanted = [
        (kind, name)
        for kind, generated in (("huber", HUBER), ("poisson", POISSON))
        for name in (*known, *generated)
        if name in given.names or not given.names
    ]
    OUT.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        bar = progress.add_task("fits", total=len(wanted) * len(rhos) * SEEDS)
        for kind, name in wanted:
            rows += measure(kind, name, rhos, lambda: progress.advance(bar))
            (OUT / "newton_regressions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            (OUT / "newton_regressions.md").write_text(in_words(rows))
    print(in_words(rows))


if __name__ == "__main__":
    main()
