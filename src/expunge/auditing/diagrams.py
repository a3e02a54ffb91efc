"""Drawings of how a plan uses records, and how it adds noise: for who has never heard of either."""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.auditing.canvas import BLUE, DARK, GREY, ORANGE, PALE, bare, figure
from expunge.auditing.findings import Drawing
from expunge.mechanisms import BinaryTree, SquareRoot
from expunge.types import Array

SHOWN = 8
"""How many steps are drawn, however many there are."""
PEOPLE = 20
ONE = 12
"""Which of the records is the one in orange."""


def plan_diagram(drawing: Drawing) -> str:
    """Draw how records are used."""
    match drawing.kind:
        case "steps":
            return figure("plan", _steps_label(drawing), 3.3, lambda axes: _steps(axes, drawing))
        case "rounds":
            return figure("plan", _rounds_label(drawing), 3.0, lambda axes: _rounds(axes, drawing))
        case "sums":
            label = "Records flow into one table of sums, which is solved for the coefficients. One record, marked, is subtracted."
            return figure("plan", label, 2.3, _sums)


def _steps_label(drawing: Drawing) -> str:
    return (
        f"Records, one of them marked, are dealt out to {drawing.steps:,} steps. Each step adds its sum, and noise, to those "
        "before; the model follows from these noisy sums."
    )


def _rounds_label(drawing: Drawing) -> str:
    return (
        f"All records, one of them marked, take part in each of {drawing.steps:,} rounds. Each round adds noise to its sum and "
        "passes the model on to the next."
    )


def _numbered(total: int, shown: int) -> list[str]:
    """Return what is written on steps: all of them, or the first ones and the last."""
    if total <= shown:
        return [str(number + 1) for number in range(total)]
    return [*(str(number + 1) for number in range(shown - 2)), "…", f"{total:,}"]


def _dots(axes: Any, places: Array, y: float, hollow: Array | None = None) -> None:
    colors = [ORANGE if j == ONE else BLUE for j in range(len(places))]
    faces = colors if hollow is None else ["white" if empty else c for empty, c in zip(hollow, colors, strict=True)]
    axes.scatter(places, np.full(len(places), y), s=26, c=faces, edgecolors=colors, linewidths=1.0, zorder=3)


def _box(axes: Any, x: float, y: float, width: float, height: float, text: str, *, marked: bool = False) -> None:
    from matplotlib.patches import FancyBboxPatch

    edge = ORANGE if marked else GREY
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.12", facecolor="white",
            edgecolor=edge, linewidth=1.6 if marked else 1.0, zorder=2,
        )
    )  # fmt: skip
    axes.text(x, y, text, ha="center", va="center", fontsize=8.5, zorder=4)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], color: str = GREY) -> None:
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
    )


def _steps(axes: Any, drawing: Drawing) -> None:
    bare(axes, 10.0, 6.6)
    names = _numbered(drawing.steps, SHOWN)
    xs = np.linspace(1.0, 9.0, len(names)) if len(names) > 1 else np.array([5.0])
    people = np.linspace(0.6, 9.4, PEOPLE)
    homes = _homes(drawing.schedule, len(names))
    for j, home in enumerate(homes):
        color, width, order = (ORANGE, 1.5, 2) if j == ONE else (GREY, 0.5, 1)
        axes.plot(
            [people[j], xs[home]],
            [5.65, 4.55],
            color=color,
            linewidth=width,
            alpha=1.0 if j == ONE else 0.55,
            zorder=order,
        )
    _dots(axes, people, 5.75)
    lot = {"scattered": "drawn by lot", "shuffled": "in an order drawn by lot", "arrival": "in order of arrival"}
    axes.text(5.0, 6.25, f"records, {lot.get(drawing.schedule, '')}", ha="center", fontsize=8.5, color=DARK)
    width = 0.8 * min(1.3, 8.0 / max(1, len(names) - 1))
    for j, (x, name) in enumerate(zip(xs, names, strict=True)):
        if name == "…":
            axes.text(x, 4.15, "…", ha="center", va="center")
            axes.text(x, 2.4, "…", ha="center", va="center")
            continue
        marked = j == homes[ONE]
        _box(axes, x, 4.15, width, 0.75, name, marked=marked)
        _arrow(axes, (x, 3.75), (x, 2.85), ORANGE if marked else GREY)
        _box(axes, x, 2.4, width, 0.85, "Σ+≈" if drawing.noise else "Σ", marked=j >= homes[ONE])
    for left, right in zip(xs, xs[1:], strict=False):
        _arrow(axes, (left + width / 2, 2.4), (right - width / 2, 2.4))
    axes.text(0.05, 4.72, "steps", fontsize=8.5, color=GREY)
    summed = "sums so far, each with noise (≈)" if drawing.noise else "sums so far"
    axes.text(
        5.0, 1.55, f"{summed}; the path of the training, and so the model, follows from them", ha="center", fontsize=8.5
    )
    again = f"; the records are gone through {drawing.epochs:,} times" if drawing.epochs > 1 else ""
    axes.text(
        5.0, 0.5,
        f"To erase the record in orange: its step is summed up anew. By a coin, the\nsums after it either fit as they are, or are made again{again}."
        if drawing.noise else
        f"To erase the record in orange: its step is summed up anew,\nand all that follows from it is made again{again}.",
        ha="center", va="center", fontsize=8.5, color=ORANGE,
    )  # fmt: skip


def _homes(schedule: str, steps: int) -> list[int]:
    """Return in which of the steps drawn each record lies (not in the one that stands for many)."""
    there = [step for step in range(steps) if not (steps == SHOWN and step == SHOWN - 2)]
    cut = [there[j * len(there) // PEOPLE] for j in range(PEOPLE)]
    if schedule == "arrival":
        return cut
    rng = np.random.default_rng(4)
    return (
        [cut[j] for j in rng.permutation(PEOPLE)]
        if schedule == "shuffled"
        else [there[j] for j in rng.integers(len(there), size=PEOPLE)]
    )


def _rounds(axes: Any, drawing: Drawing) -> None:
    bare(axes, 10.0, 6.0)
    names = _numbered(drawing.steps, 6)
    xs = np.linspace(1.2, 8.8, len(names)) if len(names) > 1 else np.array([5.0])
    people = np.linspace(0.6, 9.4, PEOPLE)
    hollow = None
    if drawing.rate < 1.0:
        hollow = np.random.default_rng(1).random(PEOPLE) >= max(drawing.rate, 0.2)
        hollow[ONE] = False
    who = (
        "all records, in every round"
        if hollow is None
        else f"in every round each record joins with probability {drawing.rate:g}"
    )
    axes.text(5.0, 5.65, who, ha="center", fontsize=8.5)
    _dots(axes, people, 5.15, hollow)
    for x, name in zip(xs, names, strict=True):
        if name == "…":
            axes.text(x, 2.8, "…", ha="center", va="center")
            continue
        axes.fill([0.5, 9.5, x + 0.35, x - 0.35], [4.9, 4.9, 3.3, 3.3], color=PALE, alpha=0.45, linewidth=0)
        axes.plot([people[ONE], x], [5.0, 3.3], color=ORANGE, linewidth=1.1)
        _box(axes, x, 2.8, 1.15, 0.95, f"{name}\nΣ+≈" if drawing.noise else f"{name}\nΣ")
    for left, right in zip(xs, xs[1:], strict=False):
        _arrow(axes, (left + 0.6, 2.8), (right - 0.6, 2.8))
    axes.text(
        5.0,
        1.75,
        f"rounds: a sum{', with noise (≈),' if drawing.noise else ''} gives the model of the next round",
        ha="center",
        fontsize=8.5,
    )
    axes.text(
        5.0, 0.65,
        "To erase the record in orange: it is taken out of every round's sum. By a coin,\nthe rounds either fit as they are, or are made again."
        if drawing.noise else
        "To erase the record in orange: it is taken out of every round's sum,\nand all rounds are made again.",
        ha="center", va="center", fontsize=8.5, color=ORANGE,
    )  # fmt: skip


def _sums(axes: Any) -> None:
    bare(axes, 10.0, 4.4)
    people = np.linspace(0.6, 3.4, 10)
    for j, x in enumerate(people):
        marked = j == 6
        axes.plot([x, 4.3], [3.3, 2.75], color=ORANGE if marked else GREY, linewidth=1.4 if marked else 0.5)
        axes.scatter([x], [3.4], s=26, color=ORANGE if marked else BLUE, zorder=3)
    axes.text(2.0, 3.85, "records", ha="center", fontsize=8.5)
    shades = [[0.9, 0.5, 0.3], [0.5, 0.8, 0.4], [0.3, 0.4, 0.7]]
    for row in range(3):
        for column in range(3):
            axes.fill(
                [4.3 + 0.42 * column, 4.72 + 0.42 * column, 4.72 + 0.42 * column, 4.3 + 0.42 * column],
                [3.4 - 0.42 * row, 3.4 - 0.42 * row, 2.98 - 0.42 * row, 2.98 - 0.42 * row],
                facecolor=BLUE, alpha=0.15 + 0.5 * shades[row][column], edgecolor="white", linewidth=1.0,
            )  # fmt: skip
    axes.text(4.93, 3.85, "exact sums of products", ha="center", fontsize=8.5)
    _arrow(axes, (5.7, 2.75), (6.9, 2.75))
    axes.text(6.3, 2.95, "solve", ha="center", fontsize=8.5)
    _box(axes, 8.0, 2.75, 2.1, 0.8, "coefficients")
    axes.text(
        5.0, 1.0, "To erase the record in orange: its products are subtracted, without rounding,\nand the equations are solved again.",
        ha="center", va="center", fontsize=8.5, color=ORANGE,
    )  # fmt: skip


# --- noise -------------------------------------------------------------------------------------------


def noise_diagram(drawing: Drawing) -> str:
    """Draw which draws of noise are in which sum."""
    steps = min(drawing.steps * drawing.epochs, SHOWN)
    if drawing.mechanism == "identity":
        mix = np.eye(steps)
    else:
        mechanism = SquareRoot() if drawing.mechanism == "sqrt" else BinaryTree()
        mix = mechanism.color(np.eye(steps))

    def draw(axes: Any) -> None:
        axes.imshow(mix, cmap="Blues", vmin=0.0, vmax=1.4, aspect="equal")
        for row in range(steps):
            for column in range(steps):
                if mix[row, column]:
                    share = f"{mix[row, column]:.2f}".rstrip("0").rstrip(".").replace("0.", ".")
                    axes.text(column, row, share, ha="center", va="center", fontsize=7.5)
        axes.set_xticks(range(steps), [str(number + 1) for number in range(steps)])
        axes.set_yticks(range(steps), [str(number + 1) for number in range(steps)])
        axes.set_xlabel("noise drawn in step")
        axes.set_ylabel("is in the sum after step")
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    label = f"A table of {steps} times {steps}: how much of the noise drawn in each step is in the sum after each step."
    return figure("mechanism", label, 3.0, draw)
