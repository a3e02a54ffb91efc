"""Drawings of how a plan uses records, and how it adds noise, for readers who are new to both."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from expunge.audit.canvas import BLUE, DARK, GREY, ORANGE, PALE, WIDTH, bare, figure
from expunge.base.types import Array, Mask
from expunge.engine.mechanisms.binary_tree import BinaryTree
from expunge.engine.mechanisms.square_root import SquareRoot
from expunge.solvers.plans.protocol import Drawing

SHOWN = 8
"""How many steps are drawn, however many there are."""
PEOPLE = 20
ONE = 12
"""Which of the records is the one in orange."""
SMALL = 8.0


def plan_diagram(drawing: Drawing) -> str:
    """Draw how records are used."""
    match drawing.kind:
        case "steps":
            label = (
                f"Records, one of them marked, are distributed to {drawing.steps:,} steps. Each step adds its sum to "
                f"those before{', with noise' * drawing.noise}; the model follows from these sums."
            )
            return _sheet(label, 6.5, lambda axes: _steps(axes, drawing))
        case "rounds":
            label = (
                f"All records, one of them marked, take part in each of {drawing.steps:,} rounds. Each round computes "
                f"a sum{', with noise' * drawing.noise}, and from it the next model."
            )
            return _sheet(label, 5.6, lambda axes: _rounds(axes, drawing))
        case "sums":
            label = "Records go into one table of exact sums, from which the model is solved; one record is marked."
            return _sheet(label, 3.9, _sums)


def _sheet(label: str, height: float, draw: Any) -> str:
    """Draw on a sheet that is 10 wide."""

    def on(axes: Any) -> None:
        bare(axes, 10.0, height)
        draw(axes)

    return figure("plan", label, height * WIDTH / 10.0, on, sheet=True)


# --- parts -------------------------------------------------------------------------------------------


def _numbered(total: int, shown: int) -> list[str]:
    """Return what is written on steps: all of them, or the first ones and the last."""
    if total <= shown:
        return [str(number + 1) for number in range(total)]
    return [*(str(number + 1) for number in range(shown - 2)), "…", f"{total:,}"]


def _say(axes: Any, y: float, text: str, color: str = DARK) -> None:
    axes.text(5.0, y, text, ha="center", va="center", fontsize=SMALL, color=color, linespacing=1.35)


def _dots(axes: Any, places: Array, y: float, hollow: Mask | None = None) -> None:
    colors = [ORANGE if j == ONE else BLUE for j in range(len(places))]
    faces = colors if hollow is None else ["white" if empty else c for empty, c in zip(hollow, colors, strict=True)]
    axes.scatter(places, np.full(len(places), y), s=30, c=faces, edgecolors=colors, linewidths=1.0, zorder=3)


def _box(axes: Any, x: float, y: float, width: float, height: float, text: str, *, marked: bool = False) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.1", facecolor="white",
            edgecolor=ORANGE if marked else GREY, linewidth=1.6 if marked else 1.0, zorder=2,
        )
    )  # fmt: skip
    axes.text(x, y, text, ha="center", va="center_baseline", fontsize=SMALL, zorder=4)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], color: str = GREY) -> None:
    style = {"arrowstyle": "-|>", "color": color, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
    axes.annotate("", end, start, arrowprops=style)


def _wave(axes: Any, x: float, y: float, width: float = 0.6) -> None:
    """Draw noise."""
    along = np.linspace(-0.5, 0.5, 41)
    axes.plot(x + width * along, y + 0.09 * np.sin(6 * np.pi * along), color=GREY, linewidth=1.1, zorder=3)


# --- steps, rounds, sums -----------------------------------------------------------------------------

_LOTS = {
    "scattered": "records, each in a random step",
    "shuffled": "records, in random order",
    "arrival": "records, in the order of arrival",
}


def _steps(axes: Any, drawing: Drawing) -> None:
    names = _numbered(drawing.steps, SHOWN)
    xs = np.linspace(0.8, 9.2, len(names)) if len(names) > 1 else np.array([5.0])
    people = np.linspace(0.5, 9.5, PEOPLE)
    homes = _homes(drawing.schedule, names)
    _say(axes, 6.2, _LOTS.get(drawing.schedule, "records"))
    for j, home in enumerate(homes):
        color, width, seen, order = (ORANGE, 1.6, 1.0, 2) if j == ONE else (GREY, 0.5, 0.55, 1)
        axes.plot([people[j], xs[home]], [5.65, 4.5], color=color, linewidth=width, alpha=seen, zorder=order)
    _dots(axes, people, 5.75)
    for j, (x, name) in enumerate(zip(xs, names, strict=True)):
        if name == "…":
            axes.text(x, 4.15, name, ha="center", va="center")
            axes.text(x, 2.9, name, ha="center", va="center")
            continue
        marked = j == homes[ONE]
        _box(axes, x, 4.15, 0.8, 0.7, name, marked=marked)
        _arrow(axes, (x, 3.8), (x, 3.25), ORANGE if marked else GREY)
        _box(axes, x, 2.9, 0.66, 0.66, "Σ", marked=j >= homes[ONE])
        if drawing.noise:
            _wave(axes, x, 2.33)
    for left, right in pairwise(xs):
        _arrow(axes, (left + 0.36, 2.9), (right - 0.36, 2.9))
    noise = ", each with noise (waves)" if drawing.noise else ""
    _say(
        axes,
        1.72,
        f"steps, and sums of all steps so far{noise};\nthe path of the training, and so the model, follows from them",
    )
    again = f" (in each of {drawing.epochs:,} passes)" if drawing.epochs > 1 else ""
    after = "All that follows from it is made again."
    if drawing.noise:
        after = "A coin decides: later sums are either kept or computed again."
    _say(axes, 0.62, f"To delete the record in orange, its step{again} is summed again.\n{after}", ORANGE)


def _homes(schedule: str, names: list[str]) -> list[int]:
    """Return the drawn step of each record (not the one drawn in place of many)."""
    there = [step for step, name in enumerate(names) if name != "…"]
    cut = [there[j * len(there) // PEOPLE] for j in range(PEOPLE)]
    if schedule == "arrival":
        return cut
    rng = np.random.default_rng(7)
    homes = [there[j] for j in rng.integers(len(there), size=PEOPLE)]
    if schedule == "shuffled":
        homes = [cut[j] for j in rng.permutation(PEOPLE)]
    other = homes.index(there[len(there) // 2 - 1]) if there[len(there) // 2 - 1] in homes else ONE
    homes[ONE], homes[other] = homes[other], homes[ONE]  # somewhere in the middle, where one sees what comes after
    return homes


def _rounds(axes: Any, drawing: Drawing) -> None:
    names = _numbered(drawing.steps, 6)
    xs = np.linspace(1.0, 9.0, len(names)) if len(names) > 1 else np.array([5.0])
    people = np.linspace(0.5, 9.5, PEOPLE)
    hollow, who = None, "all records take part in every round"
    if drawing.rate < 1.0:
        hollow = np.random.default_rng(1).random(PEOPLE) >= max(drawing.rate, 0.2)
        hollow[ONE] = False
        who = f"records, each of which joins a round with probability {drawing.rate:g}"
    _say(axes, 5.3, who)
    _dots(axes, people, 4.85, hollow)
    for x, name in zip(xs, names, strict=True):
        if name == "…":
            axes.text(x, 2.9, name, ha="center", va="center")
            continue
        axes.fill([0.4, 9.6, x + 0.4, x - 0.4], [4.65, 4.65, 3.3, 3.3], color=PALE, alpha=0.45, linewidth=0)
        axes.plot([people[ONE], x], [4.7, 3.3], color=ORANGE, linewidth=1.1)
        _box(axes, x, 2.9, 1.0, 0.72, f"Σ  {name}", marked=True)
        if drawing.noise:
            _wave(axes, x, 2.28)
    for left, right in pairwise(xs):
        _arrow(axes, (left + 0.52, 2.9), (right - 0.52, 2.9))
    noise = ", with noise (waves)," if drawing.noise else ""
    _say(axes, 1.7, f"rounds: the sum of each{noise} gives the model of the next")
    after = "All that follows from it is made again."
    if drawing.noise:
        after = "A coin decides: rounds are either kept or computed again."
    _say(axes, 0.65, f"To delete the record in orange, it is subtracted from every round’s sum.\n{after}", ORANGE)


def _sums(axes: Any) -> None:
    for j, x in enumerate(np.linspace(0.5, 3.0, 9)):
        color, width = (ORANGE, 1.5) if j == 5 else (GREY, 0.6)
        axes.plot([x, 4.2], [2.75, 2.3], color=color, linewidth=width, zorder=1)
        axes.scatter([x], [2.8], s=30, color=ORANGE if j == 5 else BLUE, zorder=3)
    axes.text(1.75, 3.4, "records", ha="center", fontsize=SMALL)
    shades = np.array([[0.9, 0.5, 0.3], [0.5, 0.8, 0.4], [0.3, 0.4, 0.7]])
    for (row, column), shade in np.ndenumerate(shades):
        left, top = 4.2 + 0.42 * column, 2.9 - 0.42 * row
        axes.fill(
            [left, left + 0.42, left + 0.42, left], [top, top, top - 0.42, top - 0.42],
            facecolor=BLUE, alpha=0.15 + 0.6 * shade, edgecolor="white", linewidth=1.0,
        )  # fmt: skip
    axes.text(4.83, 3.4, "exact sums of products", ha="center", fontsize=SMALL)
    _arrow(axes, (5.65, 2.27), (6.85, 2.27))
    axes.text(6.25, 2.42, "solve", ha="center", fontsize=SMALL)
    _box(axes, 8.1, 2.27, 2.3, 0.75, "coefficients")
    _say(
        axes, 0.65,
        "To delete the record in orange, its products are subtracted without\nrounding, and the equations are solved "
        "again.",
        ORANGE,
    )  # fmt: skip


# --- noise -------------------------------------------------------------------------------------------


def noise_diagram(drawing: Drawing) -> str:
    """Draw which draws of noise are in which sum."""
    steps = min(drawing.steps * drawing.epochs, SHOWN)
    mix = np.eye(steps)
    if drawing.mechanism != "identity":
        mix = (SquareRoot() if drawing.mechanism == "sqrt" else BinaryTree()).color(mix)

    def draw(axes: Any) -> None:
        for (row, column), share in np.ndenumerate(mix):
            if share:
                square = (
                    [column - 0.5, column + 0.5, column + 0.5, column - 0.5],
                    [row - 0.5, row - 0.5, row + 0.5, row + 0.5],
                )
                axes.fill(*square, facecolor=BLUE, alpha=0.12 + 0.45 * share, edgecolor="white", linewidth=1.0)
                text = "1" if share == 1.0 else f"{share:.2f}"[1:]
                axes.text(column, row, text, ha="center", va="center", fontsize=7.5)
        axes.set_xlim(-0.5, steps - 0.5)
        axes.set_ylim(steps - 0.5, -0.5)
        axes.set_aspect("auto")
        numbers = [str(number + 1) for number in range(steps)]
        axes.set_xticks(range(steps), numbers)
        axes.set_yticks(range(steps), numbers)
        what = "round" if drawing.kind == "rounds" else "step"
        axes.set_xlabel(f"noise drawn in {what} …")
        axes.set_ylabel(f"… is in the sum of {what}" if drawing.kind == "rounds" else "… is in the sum after step")
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    label = f"A table of {steps} by {steps}: how much of the noise drawn in each step is in each sum."
    return figure("mechanism", label, 2.9, draw)
