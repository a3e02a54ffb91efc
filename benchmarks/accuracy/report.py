"""Tables and plots of what `scores.py` has measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

Rows = Sequence[dict[str, Any]]


def chosen(rows: Rows, **key: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row.get(name) == value for name, value in key.items())]


def distinct(rows: Rows, name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows if name in row))


def share(value: float) -> str:
    return f"1/{1 / value:,.0f}" if value < 0.5 else f"{value:.2f}"


def write_report(rows: Rows, folder: Path) -> None:
    lines = []
    for model in distinct(rows, "model"):
        lines += [f"### {model}", "", *_table(chosen(rows, model=model)), ""]
    (folder / "accuracy.md").write_text("\n".join(lines))
    _plot(rows).savefig(folder / "accuracy.png", dpi=120)


def _table(rows: Rows) -> list[str]:
    lines = [
        "| data | ρ | score (mean ± sd of 5) | scikit-learn | difference | replays | cost of a deletion / our fit "
        "| / scikit-learn's fit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for data in distinct(rows, "data"):
        theirs = chosen(rows, data=data, what="scikit-learn")
        for rho in distinct(chosen(rows, data=data, what="fit"), "rho"):
            fits = chosen(rows, data=data, what="fit", rho=rho)
            scores = 100.0 * np.array([row["score"] for row in fits])
            label = f"auto ({fits[0]['rho_planned']:.3g})" if rho == "auto" else f"{rho:g}"
            cells = [data, label, f"{scores.mean():.2f} ± {scores.std():.2f}"]
            if theirs:
                reference = 100.0 * theirs[0]["score"]
                cells += [f"{reference:.2f}", f"{scores.mean() - reference:+.2f}"]
            else:
                cells += ["", ""]
            for cost in chosen(rows, data=data, what="deletions", rho=rho)[:1]:
                mean = cost["mean_seconds"]
                cells += [f"{100 * cost['replay_rate']:.2f} %", share(mean / cost["fit_seconds"])]
                cells += [share(mean / theirs[0]["seconds"]) if theirs else ""]
            lines.append("| " + " | ".join(cells + [""] * (8 - len(cells))) + " |")
    return lines


def _plot(rows: Rows) -> Figure:
    names = distinct(rows, "data")
    columns = 4
    figure = Figure(figsize=(4 * columns, 3.2 * -(-len(names) // columns)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(-(-len(names) // columns), columns)).ravel()
    for axis, data in zip(axes, names, strict=False):
        model = distinct(chosen(rows, data=data), "model")[0]
        mine = chosen(rows, data=data, model=model)
        points = []
        for cost in chosen(mine, what="deletions"):
            scores = [row["score"] for row in chosen(mine, what="fit", rho=cost["rho"])]
            points.append((cost["mean_seconds"], 100.0 * float(np.mean(scores)), cost["rho"]))
        by_rho = sorted((p for p in points if p[2] != "auto"), key=lambda point: float(point[2]))
        axis.plot([p[0] for p in by_rho], [p[1] for p in by_rho], "o-", markersize=4, label="Expunge, each ρ")
        for seconds, score, rho in by_rho:
            axis.annotate(f"{rho}", (seconds, score), fontsize=7, xytext=(3, -9), textcoords="offset points")
        for seconds, score, _ in (p for p in points if p[2] == "auto"):
            axis.plot([seconds], [score], "*", markersize=11, color="C1", label='Expunge, rho="auto"')
        for row in chosen(mine, what="scikit-learn"):
            axis.plot([row["seconds"]], [100.0 * row["score"]], "s", color="C3", label="scikit-learn, fitted anew")
        axis.set_xscale("log")
        axis.set_title(f"{data} ({model})", fontsize=9)
        axis.set_xlabel("mean cost of a deletion, seconds", fontsize=8)
        axis.set_ylabel("accuracy or R², %", fontsize=8)
        axis.legend(fontsize=7)
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    return figure
