"""The picture of `complexity`: five panels of random deletions, and three of the worst case."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.paper.measuring import Mean

Points = list[dict[str, Any]]
LABELS = {
    "sequential": "sequential (the paper's)", "joint": "joint, same noise", "ours": "joint, Scattered, square root",
    "adaptive": "adaptive",
}  # fmt: skip
X = {"ρ": ("rho", 10), "n": ("n", 2), "T": ("steps", 2)}


def _draw_points(axes: Any, points: Points, title: str, over: str, bound: str) -> None:
    key, base = X[over]
    for number, way in enumerate(dict.fromkeys(p["way"] for p in points)):
        mine = [p for p in points if p["way"] == way]
        x, means = [p[key] for p in mine], [Mean(**p["complexity"]) for p in mine]
        half = [[min(m.half, 0.9 * m.mean) for m in means], [m.half for m in means]]
        color, label = f"C{number}", LABELS.get(way, way)
        axes.errorbar(x, [m.mean for m in means], half, fmt="o", color=color, markersize=4, elinewidth=0.8, label=label)
        axes.plot(x, [p["predicted"] for p in mine], "-", color=color, linewidth=1)
        axes.plot(x, [max(p["replays"]["mean"], 1e-9) for p in mine], "x", color=color, markersize=4, alpha=0.6)
    of = sorted({(p[key], min(1.0, p["paper"]), p["rho"]) for p in points})
    axes.plot([x for x, _, _ in of], [y for _, y, _ in of], "k--", linewidth=1, label=bound)
    axes.plot([x for x, _, _ in of], [rho for _, _, rho in of], ":", color="0.5", linewidth=1.2, label="ρ")
    _finish(axes, title, over, base, "evaluations of a deletion / of learning")
    shown = [p["complexity"]["mean"] for p in points if p["replays"]["mean"] > 0.0]
    axes.set_ylim(0.4 * min(shown), 1.5)


def _draw_worst(axes: Any, cases: Points, title: str, over: str) -> None:
    if not cases:
        axes.set_visible(False)
        return
    key, base = X[over]
    for number, way in enumerate(sorted({(c["mechanism"], c["coupling"]) for c in cases})):
        mine = sorted((c for c in cases if (c["mechanism"], c["coupling"]) == way), key=lambda c: c[key])
        x, y = [c[key] for c in mine], np.array([c["measured"] for c in mine])
        error = [y - [c["low"] for c in mine], np.array([c["high"] for c in mine]) - y]
        axes.errorbar(x, y, error, fmt="o", color=f"C{number}", markersize=4, elinewidth=0.8, label=", ".join(way))
        axes.plot(x, [c["predicted"] for c in mine], color=f"C{number}", linewidth=1)
    of = sorted({(c[key], min(1.0, c["paper"])) for c in cases})
    axes.plot([x for x, _ in of], [y for _, y in of], "k--", linewidth=1, label="the paper's bound")
    _finish(axes, title, over, base, "share of deletions that replay")


def _finish(axes: Any, title: str, over: str, base: int, label: str) -> None:
    axes.set_xscale("log", base=base)
    axes.set_yscale("log")
    axes.set_xlabel({"ρ": "ρ", "n": "records n", "T": "steps T"}[over])
    axes.set_ylabel(label)
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def draw(result: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 15), layout="constrained")
    grid = figure.subplots(3, 3).ravel()
    panels = [
        ("prefix, ρ", f"Prefix sums, n = {result['n']:,}", "ρ·log₂n"),
        ("prefix, n", "Prefix sums, ρ = 0.1", "ρ·log₂n"),
        ("rows, ρ", f"The learners of Table 1, n = {result['rows_n']:,}", "ρ·log₂n"),
        ("linear, ρ", f"Linear queries, T = {result['rounds']}", "√T·ρ"),
        ("linear, T", "Linear queries, ρ = 0.1", "√T·ρ"),
    ]  # fmt: skip
    for axes, (panel, title, bound) in zip(grid, panels, strict=False):
        _draw_points(axes, [p for p in result["points"] if p["panel"] == panel], title, panel[-1], bound)
    worst = result["worst"]

    def of(queries: str, **fixed: float) -> Points:
        return [c for c in worst if c["queries"] == queries and all(c[k] == v for k, v in fixed.items())]

    _draw_worst(grid[5], of("prefix sums", rho=0.1), "Worst case: prefix sums, ρ = 0.1", "T")
    _draw_worst(grid[6], of("prefix sums", steps=1024), "Worst case: prefix sums, T = 1024", "ρ")
    _draw_worst(grid[7], of("linear", rho=0.1), "Worst case: linear queries, ρ = 0.1", "T")
    _draw_worst(grid[8], of("linear", steps=64), "Worst case: linear queries, T = 64", "ρ")
    figure.suptitle("Complexity of deletions: counted ● (95 %), predicted —, share that replays ×, bounds - -")
    return figure
