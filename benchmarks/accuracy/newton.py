"""Newton's method beside scikit-learn behind a StandardScaler: tables as they come, default parameters.

    python benchmarks/accuracy/newton.py [NAME ...] [--rho auto 0.01 ...] [--seeds 5]

Tables are in `benchmarks/accuracy/tables.py`. scikit-learn's model is fitted to the same rows in the same run. Each
line of out/newton.jsonl is one fit: scores on test records, differences from scikit-learn's, the mean probability that
the deletion of a random record replays, and seconds; lines of tables that are not named stay. Verdicts against the
bars below are in out/newton.md. Bars count what is lost: a model that is better than scikit-learn's holds them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.progress import Progress
from sklearn import linear_model, svm
from sklearn.metrics import d2_tweedie_score, log_loss, r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from benchmarks.accuracy.datasets import there
from benchmarks.accuracy.tables import AMOUNTS, CLASSES, COUNTS, SEVERAL, SHARED
from benchmarks.smoke import OUT, parser_of, sized

SEEDS = sized(5, 1)
ASKED = sized(((60, 100), (200, 20), (1_000, 8)), ((1_000, 3),))
"""Up to so many columns, of how many records each fit is asked how likely they are to replay: more take long.

Not counting those that rounds do not see: theirs is 0.
"""
LOST = {"auc": 0.003, "accuracy": 0.0015, "score": 0.002}
"""How much may be lost on average; the worst seed may lose twice as much."""
LOST_BY_TABLE = {("w8a", "auto", "accuracy"): 0.002}
MODELS: dict[str, str] = {
    **dict.fromkeys([*CLASSES, *SEVERAL], "LogisticRegression"), **dict.fromkeys(AMOUNTS, "LinearRegression"),
    **dict.fromkeys(COUNTS, "PoissonRegressor"), "adult, SVC": "LinearSVC", "skewed, SVC": "LinearSVC",
}  # fmt: skip
"""The tables, each with the model that is fitted to it."""
SLOW = ("mnist 8",)
"""Tables that are measured only if they are named."""


def ours(model: str, rho: Any = "auto") -> Any:
    """Return one of our models, with its default parameters."""
    if model == "PoissonRegressor":
        return expunge.PoissonRegressor(rho=rho)
    return getattr(expunge, model)(solver="newton", rho=rho)


def theirs(model: str, records: int) -> Any:
    """Return scikit-learn's model of the same kind, behind a StandardScaler.

    Its solver is the one that finds the optimum soonest on tables of these shapes.
    """
    made = {
        "LogisticRegression": lambda: linear_model.LogisticRegression(solver="newton-cholesky", tol=1e-8),
        "LinearSVC": lambda: svm.LinearSVC(dual=False, tol=1e-6, max_iter=5000, intercept_scaling=100.0),
        "LinearRegression": linear_model.LinearRegression,
        "PoissonRegressor": lambda: linear_model.PoissonRegressor(
            alpha=1.0 / records, solver="newton-cholesky", tol=1e-8
        ),
    }[model]()
    return make_pipeline(StandardScaler(), made)


def table_of(name: str) -> Any:
    """Return (X, y, test X, test y) of a table."""
    name = name.removesuffix(", SVC")
    return {**CLASSES, **SEVERAL, **AMOUNTS, **COUNTS}[name]()


def scores_of(kind: str, model: Any, test: Any, truth: Any) -> dict[str, float]:
    """Return what a model scores on test records."""
    if kind == "LinearRegression":
        return {"score": float(r2_score(truth, model.predict(test)))}
    if kind == "PoissonRegressor":
        return {"score": float(d2_tweedie_score(truth, model.predict(test), power=1))}
    ranks = model.decision_function(test) if len(model.classes_) == 2 else model.predict_proba(test)
    found = {
        "auc": float(roc_auc_score(truth, ranks, multi_class="ovr")),  # of several classes, each against the rest
        "accuracy": float((model.predict(test) == truth).mean()),
    }
    if kind == "LogisticRegression":
        found["log_loss"] = float(log_loss(truth, model.predict_proba(test)))
    return found


def replays_of(model: Any, records: int, columns: int, seed: int) -> tuple[float, float, int]:
    """Return the mean probability of a replay over random records, the largest, and how many were asked."""
    plan = model.plan_
    if plan.rho in (0.0, 1.0) or not plan.rounds:
        return float(plan.rho == 1.0), float(plan.rho == 1.0), 0
    number = min(records, int(next(some for most, some in ASKED if columns <= most) / plan.rate))
    some = np.random.default_rng(seed).choice(records, number, replace=False)
    found = model.replay_probability(some)
    return float(found.mean()), float(found.max()), number


def measure(name: str, rhos: list[tuple[Any, int]]) -> Iterator[dict[str, Any]]:
    """Fit both, ours with each ρ as often as is said beside it, and give a row for each."""
    kind = MODELS[name]
    X, y, test, truth = table_of(name)
    began = time.perf_counter()
    reference = theirs(kind, len(y)).fit(X, y)
    their_seconds = time.perf_counter() - began
    goal = scores_of(kind, reference, test, truth)
    for rho, seeds in rhos:
        if kind == "LinearRegression" and rho != "auto":
            continue  # it has no noise
        for seed in range(seeds):
            began = time.perf_counter()
            model = ours(kind, rho).fit(X, y, ids=np.arange(len(y)))
            seconds = time.perf_counter() - began
            found = scores_of(kind, model, test, truth)
            mean, most, asked_of = replays_of(model, len(y), X.shape[1], seed)
            yield {
                "table": name, "model": kind, "records": len(y), "columns": X.shape[1], "asked": rho,
                "rho": model.plan_.rho, "rounds": model.plan_.rounds, "rate": model.plan_.rate, "seed": seed,
                "seconds": seconds, "their_seconds": their_seconds, "goal": goal,
                "difference": {key: found[key] - goal[key] for key in goal}, "replays": mean,
                "largest_probability": most, "asked_of": asked_of,
            }  # fmt: skip


def verdict(own: list[dict[str, Any]]) -> dict[str, bool]:
    """Say of each score whether the fits of one table at one ρ hold its bar, on average and in the worst seed."""
    held = {}
    for key in own[0]["difference"]:
        if key in LOST:
            may = LOST_BY_TABLE.get((own[0]["table"], own[0]["asked"], key), LOST[key])
            lost = np.array([-row["difference"][key] for row in own])
            held[key] = bool(lost.mean() <= may and lost.max() <= 2.0 * may)
    return held


def _cell(own: list[dict[str, Any]], key: str, times: float, digits: int) -> str:
    if key not in own[0]["difference"]:
        return ""
    values = times * np.array([row["difference"][key] for row in own])
    return f"{values.mean():+.{digits}f} ({values.min():+.{digits}f})"


def report(rows: list[dict[str, Any]]) -> str:
    """Return the table of all fits, one line for each table and ρ."""
    lines = [
        "| table | n × d | scikit-learn | ρ (rounds) | AUC, mean (worst) | points, mean (worst) | log-loss | "
        "replays / ρ | bars |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, asked in dict.fromkeys((row["table"], row["asked"]) for row in rows):
        own = [row for row in rows if (row["table"], row["asked"]) == (name, asked)]
        one, held = own[0], verdict(own)
        goal = " / ".join(
            f"{100 * v:.2f}" if k in ("accuracy", "score") else f"{v:.4f}" for k, v in one["goal"].items()
        )
        points = _cell(own, "accuracy", 100.0, 2) or _cell(own, "score", 100.0, 2)
        replays = f"{np.mean([row['replays'] for row in own]) / one['rho']:.2f}" if one["rho"] else "none"
        loss = f"{np.mean([row['difference']['log_loss'] for row in own]):+.4f}" if "log_loss" in one["goal"] else ""
        said = "held" if all(held.values()) else "missed: " + ", ".join(key for key in held if not held[key])
        lines.append(
            f"| {name} | {one['records']:,} × {one['columns']} | {goal} | {asked}: {one['rho']:.2g} ({one['rounds']}) "
            f"| {_cell(own, 'auc', 1.0, 4)} | {points} | {loss} | {replays} | {said} |"
        )
    return "\n".join(lines) + "\n"


def available(names: list[str]) -> list[str]:
    """Return those tables whose data are there."""
    base = {name: SHARED.get(name.removesuffix(", SVC")) for name in names}
    found = there(list(dict.fromkeys(data for data in base.values() if data)))
    return [name for name in names if base[name] is None or base[name] in found]


def earlier(names: list[str], rhos: list[Any]) -> list[dict[str, Any]]:
    """Return what was found before, but for what is measured now."""
    file = OUT / "newton.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [row for row in rows if row["table"] not in names or row["asked"] not in rhos]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", help=f"tables (default: all but {', '.join(SLOW)})")
    parser.add_argument("--rho", nargs="+", default=["auto", "0.01"], help="ρ to measure")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how often each is fitted")
    given = parser.parse_args()
    rhos = [rho if rho == "auto" else float(rho) for rho in given.rho]
    names = available(given.names or [name for name in MODELS if name not in SLOW])
    OUT.mkdir(parents=True, exist_ok=True)
    rows = earlier(names, rhos)
    with Progress() as progress:
        bar = progress.add_task("fits", total=len(names) * len(rhos) * given.seeds)
        for name in names:
            for row in measure(name, [(rho, given.seeds) for rho in rhos]):
                rows.append(row)
                (OUT / "newton.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
                (OUT / "newton.md").write_text(report(rows))
                progress.advance(bar)
    print(report(rows))


if __name__ == "__main__":
    main()
