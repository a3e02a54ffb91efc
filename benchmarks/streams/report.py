"""The table and the plot of what `accuracy.py` has measured."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

Rows = Sequence[dict[str, Any]]

WINDOW = {"covtype": 5, "nycflights13": 7}
LABEL = {"covtype": "accuracy, %", "nycflights13": "mean absolute error, minutes"}
LIMITS = {"covtype": (45.0, 90.0), "nycflights13": (8.0, 1000.0)}
STYLE: dict[str, dict[str, Any]] = {
    "SGD": {"color": "black", "linestyle": "--"},
    "arrival": {"color": "C0", "linewidth": 2.0},
    "arrival, last iterate": {"color": "C4"},
    "arrival, no noise": {"color": "C2"},
    "arrival, anytime noise": {"color": "C5"},
    "arrival, paper's shares": {"color": "C3"},
    "scattered": {"color": "C9"},
}
"""Models with a line in the plot."""


def distinct(rows: Rows, name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def table(rows: Rows) -> str:
    """Return one table for each stream."""
    lines = []
    for data in distinct(rows, "data"):
        for order in distinct(rows, "order"):
            mine = [row for row in rows if (row["data"], row["order"]) == (data, order)]
            if not mine:
                continue
            score = "accuracy" if len(mine[0]["whole"]) == 1 else "R² (MAE)"
            lines += [
                f"### {data}, {order}",
                "",
                f"{score}, in per cent. {mine[0]['deleted']:,} records deleted.",
                "",
                "| model | whole stream | last quarter | test set | replays: insertions | deletions | learning "
                "| deleting | settings |",
                "|---|---|---|---|---|---|---|---|---|",
                *map(_line, mine),
                "",
            ]
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    rival = row["model"] == "SGD"
    cells = [
        row["model"],
        *(_scores(row[part]) for part in ("whole", "last quarter", "test")),
        "" if rival else f"{row['insertions replayed']} of {row['insertions']}",
        "" if rival else f"{row['deletions replayed']} of {row['deletions']}",
        f"{row['learning seconds']:.1f} s",
        "cannot" if rival else f"{row['deleting seconds']:.1f} s",
        row["settings"],
    ]
    return f"| {' | '.join(cells)} |"


def _scores(scores: Sequence[float]) -> str:
    first = f"{scores[0]:,.2f}" if scores[0] > -1000.0 else "below -1,000"
    return first if len(scores) == 1 else f"{first} ({scores[1]:,.1f})"


def draw(rows: Rows) -> Figure:
    """Return a panel for each stream, a line for each model: means of the days about each day."""
    names, orders = distinct(rows, "data"), distinct(rows, "order")
    figure = Figure(figsize=(5.5 * len(orders), 3.6 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(orders), squeeze=False)
    for panels, data in zip(axes, names, strict=True):
        for axis, order in zip(panels, orders, strict=True):
            for row in rows:
                if (row["data"], row["order"]) == (data, order) and row["model"] in STYLE:
                    days, smooth = _smooth(np.array(row["daily"]), WINDOW[data])
                    axis.plot(days, smooth, label=row["model"], **{"linewidth": 1.2, **STYLE[row["model"]]})
            axis.set_title(f"{data}, {order}", fontsize=10)
            axis.set_xlabel("day", fontsize=8)
            axis.set_ylabel(LABEL[data], fontsize=8)
            axis.set_ylim(*LIMITS[data])
            if data == "nycflights13":
                axis.set_yscale("log")
            axis.tick_params(labelsize=8)
            axis.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def save_small(figure: Figure, file: Path) -> None:
    """Write a picture with few colours, which needs a third of the room."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    Image.open(drawn).convert("RGB").quantize(64).save(file, optimize=True)


def _smooth(daily: Any, window: int) -> tuple[Any, Any]:
    """Return days and means over as many days as the window has, from the second day on."""
    window = min(window, len(daily))
    means = np.convolve(daily, np.full(window, 1.0 / window), mode="valid")
    return 1 + (window - 1) / 2 + np.arange(len(means)), means
