"""Newton's method with ρ from 1 to 10⁻⁴: what accuracy costs, and how often deletions replay, beside ρ.

    python benchmarks/accuracy/newton_rho.py [NAME ...] [--seeds 3] [--draw]

Four shared tables as they come and two generated ones, beside scikit-learn behind a StandardScaler. The share of
replays is the mean of `replay_probability` over random records, which costs less than deletions and varies less. Writes
out/newton_rho.jsonl, a line for each fit, out/newton_rho.md and docs/images/newton_rho.png; ``--draw`` only draws anew.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.progress import Progress

from benchmarks.accuracy.newton import available, measure
from benchmarks.smoke import IMAGES, OUT, parser_of, sized
from expunge.base.errors import PlanWarning

TABLES = sized(["covtype", "adult", "a9a", "w8a", "skewed", "correlated"], ["skewed", "correlated"])
RHOS: list[Any] = sized([1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001, "auto"], [1.0, 0.1, 0.001, "auto"])
SEEDS = sized(3, 1)

Rows = list[dict[str, Any]]


def values(rows: Rows, key: str) -> list[float]:
    return [row["difference"][key] for row in rows]


def of(rows: Rows, table: str, asked: Any = None) -> Rows:
    """Return the fits of one table at one ρ, or at all that are numbers."""
    found = [row for row in rows if row["table"] == table]
    return [row for row in found if (row["asked"] == asked if asked is not None else row["asked"] != "auto")]


def share(value: float) -> str:
    return f"{100 * value:.3g} %"


def report(rows: Rows) -> str:
    """Return a table for each table: what is lost at each ρ, and how often deletions replay."""
    lines = [
        "| table | ρ | rounds | AUC, mean (worst) | points, mean (worst) | log-loss | replays | replays / ρ |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for table in dict.fromkeys(row["table"] for row in rows):
        for asked in dict.fromkeys(row["asked"] for row in rows if row["table"] == table):
            own = of(rows, table, asked)
            auc, points = values(own, "auc"), 100.0 * np.array(values(own, "accuracy"))
            rho, replays = own[0]["rho"], float(np.mean([row["replays"] for row in own]))
            label = f"auto: {rho:.2g}" if asked == "auto" else f"{asked:g}"
            lines.append(
                f"| {table} | {label} | {own[0]['rounds']} | {np.mean(auc):+.4f} ({min(auc):+.4f}) | "
                f"{points.mean():+.2f} ({points.min():+.2f}) | {np.mean(values(own, 'log_loss')):+.4f} | "
                f"{share(replays)} | {replays / rho:.2f} |"
            )
    return "\n".join(lines) + "\n"


def picture(rows: Rows) -> Figure:
    """Draw AUC, accuracy and replays against ρ; a star is "auto"."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    lost, points, replays = figure.subplots(1, 3)
    for number, table in enumerate(dict.fromkeys(row["table"] for row in rows)):
        at = sorted({row["rho"] for row in of(rows, table)})
        color = f"C{number}"
        for axis, key, times in ((lost, "auc", 1.0), (points, "accuracy", 100.0)):
            by_rho = [times * np.array(values([r for r in of(rows, table) if r["rho"] == rho], key)) for rho in at]
            axis.plot(at, [one.mean() for one in by_rho], "o-", color=color, markersize=3, label=table)
            axis.fill_between(at, [one.min() for one in by_rho], [one.max() for one in by_rho], color=color, alpha=0.15)
            for row in of(rows, table, "auto")[:1]:
                mean = times * np.mean(values(of(rows, table, "auto"), key))
                axis.plot([row["rho"]], [mean], "*", color=color, markersize=11)
        mean_of = [np.mean([row["replays"] for row in of(rows, table) if row["rho"] == rho]) for rho in at]
        seen = [(rho, share) for rho, share in zip(at, mean_of, strict=True) if share > 0.0]
        replays.plot(*zip(*seen, strict=True), "o-", color=color, markersize=3)
    lost.axhspan(-0.003, 0.003, color="grey", alpha=0.15)
    points.axhspan(-0.15, 0.15, color="grey", alpha=0.15)
    lost.set_yscale("symlog", linthresh=0.003)
    points.set_yscale("symlog", linthresh=0.15)
    lost.set_ylabel("AUC less scikit-learn's")
    points.set_ylabel("accuracy less scikit-learn's, points")
    replays.plot([1e-4, 1], [1e-4, 1], color="grey", linewidth=1, label="ρ")
    replays.set_yscale("log")
    replays.set_ylabel("mean probability of a replay")
    lost.legend(fontsize=8)
    replays.legend(fontsize=8)
    for axis in (lost, points, replays):
        axis.set_xscale("log")
        axis.invert_xaxis()
        axis.set_xlabel("ρ")
    return figure


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", help="tables (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how often each is fitted; once without noise")
    parser.add_argument("--draw", action="store_true", help="only draw, from what was measured")
    given = parser.parse_args()
    file = OUT / "newton_rho.jsonl"
    names = [] if given.draw else available(given.names or TABLES)
    rows: Rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    rows = [row for row in rows if row["table"] not in names]
    OUT.mkdir(parents=True, exist_ok=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Progress() as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanWarning)  # far below what records allow is what is measured
        bar = progress.add_task("ρ", total=len(names) * len(RHOS))
        for name in names:
            for row in measure(name, [(rho, 1 if rho == 1.0 else given.seeds) for rho in RHOS]):
                rows.append(row)
                file.write_text("".join(json.dumps(one) + "\n" for one in rows))
                progress.advance(bar, 1.0 if row["asked"] == 1.0 else 1.0 / given.seeds)
    (OUT / "newton_rho.md").write_text(report(rows))
    picture(rows).savefig(IMAGES / "newton_rho.png", dpi=110)
    print(report(rows))


if __name__ == "__main__":
    main()
