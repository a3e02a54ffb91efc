"""Gradient descent beside dual averaging: accuracy against the cost of a deletion, on a9a and covtype.

    python benchmarks/linear/descent.py [--only a9a]

About ten minutes. Prints a table, writes out/descent.json and docs/images/descent.png. All times are processor seconds
of one thread, so that others on the machine hardly count. The cost of a deletion is that of a kept one (median) plus
the chance of a replay (mean over records, from their norms and the noise) times the cost of a replay. The deletions
that are really made say how often they replayed, and how many contributions they evaluated, beside those of learning.
With --only the results of the other data set are those that are there.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import sklearn.linear_model
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import expunge
from benchmarks.accuracy.datasets import Dataset, load, needed
from benchmarks.smoke import IMAGES, OUT, parser_of, sized
from benchmarks.streams.report import save_small
from cases.in_solver import in_solver

RESULTS = OUT / "descent.json"
RHOS: dict[str, tuple[float, ...]] = sized(
    {"a9a": (1.0, 0.2, 0.05, 0.01), "covtype": (1.0, 0.03, 0.01)}, {"a9a": (1.0, 0.5), "covtype": (1.0, 0.5)}
)
ROUNDS: dict[str, tuple[int, ...]] = sized(
    {"a9a": (20, 50, 100, 200), "covtype": (20, 50, 100)}, {"a9a": (20, 100), "covtype": (20, 100)}
)
RATES = (1.0, 0.1, 0.01)
WITHOUT_NOISE = sized({"a9a": 10, "covtype": 4}, {"a9a": 2, "covtype": 2})
"""How many deletions there are where each of them replays."""
SEEDS, CHANCES, REPLAYS, FEWEST, MOST = sized((3, 200, 5, 100, 2000), (1, 10, 1, 5, 10))
"""There are so many deletions that about so many replays are to be expected, within limits."""

Row = dict[str, Any]


def settings(name: str) -> Iterator[Row]:
    """Return the parameters of every model."""
    for rho in RHOS[name]:
        yield {"rho": rho, "solver": "dual_averaging"}
        for rounds in ROUNDS[name]:
            for rate in RATES:
                if rounds * rate >= 1:
                    yield {"rho": rho, "solver": "gradient_descent", "steps": rounds, "rate": rate}
            if rho < 1.0 and rounds in (20, 100):
                yield {"rho": rho, "solver": "gradient_descent", "steps": rounds, "coupling": "sequential"}


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def log_loss(model: Any, data: Dataset) -> float:
    """Return how surprised a model is by the labels of the test part, -1 and +1."""
    return float(np.logaddexp(0.0, -data.y_test * model.decision_function(data.X_test)).mean())


def measure(data: Dataset, given: Row) -> Row:
    """Fit some times, and delete from the first fit."""
    X, y = data.X_train, data.y_train
    models = [expunge.LogisticRegression(**in_solver(**given, random_state=seed)) for seed in range(SEEDS)]
    seconds = [timed(partial(model.fit, X, y))[0] for model in models]
    scores = [100 * model.score(data.X_test, data.y_test) for model in models]
    model, plan = models[0], models[0].plan_
    fit, learning = float(np.median(seconds)), len(y) * plan.passes
    order = np.random.default_rng(1).permutation(len(y))  # the same victims, and coins, for all
    chance = float(model.replay_probability(order[:CHANCES]).mean())
    model.unlearn(order[-1:])  # builds the index
    number = WITHOUT_NOISE[data.name]
    if plan.sigma > 0.0:
        number = int(np.clip(REPLAYS / chance, FEWEST, MOST))
    costs, kept, evaluations = np.empty(number), np.empty(number, dtype=bool), np.empty(number)
    for j, victim in enumerate(order[:number]):
        costs[j], outcome = timed(partial(model.unlearn, victim))
        kept[j], evaluations[j] = outcome.kept, outcome.evaluations
    keeping = float(np.median(costs[kept])) if kept.any() else 0.0
    replaying = float(costs[~kept].mean()) if not kept.all() else fit
    return {
        "data": data.name, **given, "coupling": plan.coupling, "rounds": plan.steps, "rate": plan.rate,
        "passes": plan.passes, "sigma": plan.sigma, "accuracy": float(np.mean(scores)), "spread": float(np.ptp(scores)),
        "log-loss": float(np.mean([log_loss(model, data) for model in models])),
        "fit seconds": fit, "fit evaluations": learning, "kept seconds": keeping, "replay seconds": replaying,
        "chance of a replay": chance, "deletions": number, "replays": int((~kept).sum()),
        "mean deletion seconds": keeping + chance * (replaying - keeping),
        "measured mean seconds": float(costs.mean()), "deletion / learning": float(evaluations.mean() / learning),
    }  # fmt: skip


def reference(data: Dataset) -> Row:
    """Fit scikit-learn's model twice."""
    fits = [
        timed(lambda: sklearn.linear_model.LogisticRegression(max_iter=1000).fit(data.X_train, data.y_train))
        for _ in range(2)
    ]
    seconds, model = min(fits, key=lambda fit: fit[0])
    accuracy = 100 * model.score(data.X_test, data.y_test)
    found = {"data": data.name, "solver": "scikit-learn", "accuracy": accuracy, "log-loss": log_loss(model, data)}
    return {**found, "fit seconds": seconds}


HEAD = (
    "| data | ρ | solver | rounds | rate | accuracy | log-loss | fit | passes | kept | chance of a replay | replays "
    "| deletion, mean | evaluations / learning |\n|" + "---|" * 14
)


def line(row: Row) -> str:
    """Return the figures as a line of the table."""
    if row["solver"] == "scikit-learn":
        cells = [row["data"], "", "scikit-learn", "", "", f"{row['accuracy']:.2f}", f"{row['log-loss']:.3f}"]
        cells += [f"{row['fit seconds']:.2f} s", *[""] * 6]
    else:
        descent = row["solver"] == "gradient_descent"
        cells = [
            row["data"], f"{row['rho']:g}", f"descent, {row['coupling']}" if descent else "dual averaging",
            str(row["rounds"]), f"{row['rate']:g}", f"{row['accuracy']:.2f}", f"{row['log-loss']:.3f}",
            f"{row['fit seconds']:.2f} s", f"{row['passes']:g}", f"{1e3 * row['kept seconds']:.2f} ms",
            f"{row['chance of a replay']:.4f}",
            f"{row['replays']} of {row['deletions']}", f"{1e3 * row['mean deletion seconds']:.2f} ms",
            f"{row['deletion / learning']:.2g}",
        ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


LIMITS = {"a9a": (81.0, 85.6), "covtype": (72.0, 76.2)}
MARKERS = {1.0: "o", 0.1: "s", 0.01: "^"}
LABELS = {"dual_averaging": "dual averaging", "gradient_descent": "gradient descent, 100 rounds"}
COLOURS = {"dual_averaging": "C0", "gradient_descent": "C1"}


def draw(rows: Sequence[Row]) -> Figure:
    """Return a panel for each data set: accuracy against what a deletion costs."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(6.2 * len(names), 4.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        mine = [row for row in rows if row["data"] == name]
        for row in mine:
            if row["solver"] == "scikit-learn":
                axes.axhline(row["accuracy"], color="grey", linewidth=1, linestyle="--")
                star = {"marker": "*", "markersize": 13, "linestyle": "", "color": "black"}
                axes.plot(1e3 * row["fit seconds"], row["accuracy"], **star, label="scikit-learn, fitted anew")
            elif row["accuracy"] >= LIMITS[name][0]:
                _point(axes, row)
        for solver, label in LABELS.items():
            usual = [row for row in mine if row["solver"] == solver and _is_default(row)]
            cost, accuracy = zip(*((1e3 * row["mean deletion seconds"], row["accuracy"]) for row in usual), strict=True)
            axes.plot(cost, accuracy, color=COLOURS[solver], linewidth=2, marker="o", markersize=8, label=label)
            for row, x, y in zip(usual, cost, accuracy, strict=True):
                below = row["rho"] < (1.0 if solver == "gradient_descent" else 0.03)
                at = {"xytext": (-6, -17 if below else 9), "textcoords": "offset points", "fontsize": 9}
                axes.annotate(f"ρ={row['rho']:g}", (x, y), color=COLOURS[solver], **at)
        axes.set_xscale("log")
        axes.set_ylim(*LIMITS[name])
        axes.set_title(name)
        axes.set_xlabel("mean deletion, milliseconds")
        axes.set_ylabel("test accuracy, %")
        axes.grid(alpha=0.3)
        for rate, marker in MARKERS.items():
            axes.plot([], [], marker, color="C1", alpha=0.4, label=f"other rounds, rate {rate:g}")
        axes.plot([], [], "x", color="C1", alpha=0.6, label="row by row (sequential)")
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _is_default(row: Row) -> bool:
    return row["solver"] == "dual_averaging" or (
        row["rounds"] == 100 and row["rate"] == 1.0 and row["coupling"] == "adaptive"
    )


def _point(axes: Any, row: Row) -> None:
    if not _is_default(row):
        sequential = row["coupling"] == "sequential"
        marker = "x" if sequential else MARKERS[row["rate"]]
        alpha = 0.6 if sequential else 0.4
        axes.plot(1e3 * row["mean deletion seconds"], row["accuracy"], marker, color="C1", alpha=alpha, markersize=6)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=RHOS, help="only this data set")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(HEAD)
    for name in needed([options.only] if options.only else list(RHOS)):
        data = load(name)
        rows = [reference(data)]
        for given in settings(name):
            print(line(rows[-1]), flush=True)
            rows.append(measure(data, given))
        print(line(rows[-1]), flush=True)
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**found, name: {"commit": commit, "rows": rows}}, indent=1))
    found = json.loads(RESULTS.read_text())
    whole = all(name in found for name in RHOS)
    save_small(
        draw([row for name in RHOS if name in found for row in found[name]["rows"]]),
        (IMAGES if whole else OUT) / "descent.png",
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
