"""Accuracy with default parameters, and what a deletion costs, on eight data sets and for many ρ.

    python benchmarks/accuracy/scores.py            # all data sets, about an hour and a half
    python benchmarks/accuracy/scores.py a9a adult  # some of them

Each line of out/accuracy.jsonl is one measurement; what is there already is not measured again. Afterwards the
table is written to out/accuracy.md and a plot of accuracy against the cost of a deletion to out/accuracy.png.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.linear_model
import sklearn.svm
from rich.progress import Progress

import expunge
from benchmarks.accuracy.datasets import NAMES, Dataset, load, needed
from benchmarks.accuracy.report import write_report
from benchmarks.smoke import OUT, parser_of, sized
from expunge.solvers import DualAveraging

RHOS: tuple[float | str, ...] = sized((1.0, "auto", 0.5, 0.2, 0.1, 0.03, 0.01), ("auto", 0.5))
SEEDS = sized(5, 1)
DELETIONS = sized(2_000, 3)


def models(data: Dataset) -> dict[str, tuple[Any, Any]]:
    """Return our estimator and scikit-learn's, by name; theirs without limits that would stop them early."""
    if data.task == "regression":
        return {
            "HuberRegressor": (
                expunge.HuberRegressor(solver=DualAveraging(target_range=data.target_range)),
                sklearn.linear_model.HuberRegressor(max_iter=1000),
            ),
            "LinearRegression": (
                expunge.LinearRegression(solver=DualAveraging(target_range=data.target_range)),
                sklearn.linear_model.LinearRegression(),
            ),
        }
    return {
        "LogisticRegression": (
            expunge.LogisticRegression(solver="dual_averaging"),
            sklearn.linear_model.LogisticRegression(max_iter=1000),
        ),
        "LinearSVC": (expunge.LinearSVC(solver="dual_averaging"), sklearn.svm.LinearSVC(loss="hinge", max_iter=1000)),
    }


class Results:
    """The lines of a file, one measurement each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            self.rows = [json.loads(line) for line in path.read_text().splitlines()]

    def has(self, **key: Any) -> bool:
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def fit_scikit_learn(model: Any, data: Dataset) -> dict[str, float]:
    y_train, scale = data.y_train, 1.0
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LinearSVC says when it has not converged
        if isinstance(model, sklearn.linear_model.HuberRegressor):  # it does not converge in dollars
            assert data.target_range is not None
            scale = (data.target_range[1] - data.target_range[0]) / 2.0
            y_train = y_train / scale
        model.fit(data.X_train, y_train)
    seconds = time.perf_counter() - began
    return {
        "score": float(model.score(data.X_test, data.y_test / scale if scale != 1.0 else data.y_test)),
        "seconds": seconds,
    }


def fit_ours(model: Any, data: Dataset) -> dict[str, float]:
    began = time.perf_counter()
    model.fit(data.X_train, data.y_train)
    seconds = time.perf_counter() - began
    return {"score": float(model.score(data.X_test, data.y_test)), "seconds": seconds, "rho_planned": model.plan_.rho}


def delete_some(model: Any, data: Dataset, seconds: float, progress: Progress, title: str) -> dict[str, float]:
    """Delete random records one by one, for so long at most; return how often it replayed and what it cost."""
    victims = np.random.default_rng(7).permutation(data.X_train.shape[0])[: DELETIONS + 1]
    model.unlearn(victims[:1])  # builds the index
    task = progress.add_task(title, total=DELETIONS)
    costs, kept = [], []
    began = time.perf_counter()
    for victim in victims[1:]:
        before = time.perf_counter()
        outcome = model.unlearn([victim])
        costs.append(time.perf_counter() - before)
        kept.append(outcome.kept)
        progress.advance(task)
        if time.perf_counter() - began > seconds:
            break
    progress.remove_task(task)
    return {
        "deletions": len(costs),
        "replay_rate": 1.0 - float(np.mean(kept)),
        "mean_seconds": float(np.mean(costs)),
        "median_seconds": float(np.median(costs)),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", default=list(NAMES), help="data sets (default: all)")
    parser.add_argument("--seconds", type=float, default=120.0, help="longest time for one series of deletions")
    parser.add_argument("--only-accuracy", action="store_true", help="leave out the deletions")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    results = Results(OUT / "accuracy.jsonl")
    with Progress() as progress:
        for name in progress.track(needed(options.names), description="data sets"):
            data = load(name)
            for kind, (ours, theirs) in models(data).items():
                key = {"data": name, "model": kind}
                for rho in progress.track(RHOS, description=f"{name}, {kind}"):
                    for seed in range(SEEDS):
                        if not results.has(**key, what="fit", rho=rho, seed=seed):
                            ours.set_params(rho=rho, random_state=seed)
                            results.add(**key, what="fit", rho=rho, seed=seed, **fit_ours(ours, data))
                    if not options.only_accuracy and not results.has(**key, what="deletions", rho=rho):
                        ours.set_params(rho=rho, random_state=SEEDS)
                        seconds = fit_ours(ours, data)["seconds"]
                        cost = delete_some(ours, data, options.seconds, progress, f"{name}, {kind}, ρ = {rho}")
                        results.add(**key, what="deletions", rho=rho, fit_seconds=seconds, **cost)
                if not results.has(**key, what="scikit-learn"):
                    results.add(**key, what="scikit-learn", **fit_scikit_learn(theirs, data))
    write_report(results.rows, OUT)
    print((OUT / "accuracy.md").read_text())


if __name__ == "__main__":
    main()
