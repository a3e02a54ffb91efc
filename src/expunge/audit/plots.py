"""Plots of what was found: noise, deletions by day, scores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from expunge.audit.canvas import BLUE, DARK, GREY, ORANGE, PALE, figure
from expunge.audit.findings import Activity, Calibration, Noise, Score
from expunge.audit.scoring import said_value
from expunge.base.wording import counted

BY_DAY = 92
"""Over a longer time, months are shown instead of days."""
KINDS = {"delete": ("deleted", ORANGE), "replace": ("corrected", BLUE), "insert": ("added", GREY)}


def noise_plot(noise: Noise) -> str:
    """Draw the histogram of the noise against the normal distribution."""
    edges, heights = np.array(noise.edges), np.array(noise.heights)

    def draw(axes: Any) -> None:
        axes.bar(
            edges[:-1],
            heights,
            np.diff(edges),
            align="edge",
            color=PALE,
            edgecolor=GREY,
            linewidth=0.6,
            label="in the file",
        )
        x = np.linspace(edges[0], edges[-1], 161)
        axes.plot(x, np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi), color=ORANGE, linewidth=1.8, label="as planned: normal")
        axes.set_xlim(edges[0], edges[-1])
        axes.set_xlabel("noise, in units of its planned size")
        axes.set_ylabel("density")
        axes.set_title(f"p ≈ {noise.p_value:g}", loc="right", fontsize=9)
        axes.legend(frameon=False, fontsize=8, loc="upper left")

    label = f"Histogram of {noise.numbers:,} noise values and the normal density; p about {noise.p_value:g}."
    return figure("noise", label, 2.6, draw)


# --- deletions ----------------------------------------------------------------------------------------


def activity_plot(activity: Sequence[Activity]) -> str:
    """Draw how many records were deleted, corrected and added, by day or by month."""
    days = [date.fromisoformat(one.day) for one in activity]
    first, last = min(days), max(days)
    monthly = (last - first).days > BY_DAY
    marks = _months(first, last) if monthly else _days(first, last)
    where = {mark: place for place, mark in enumerate(marks)}
    counts = {kind: np.zeros(len(marks), dtype=np.int64) for kind in KINDS}
    for one, day in zip(activity, days, strict=True):
        mark = day.replace(day=1) if monthly else day
        counts[one.kind][where[mark]] += one.added if one.kind == "insert" else one.removed

    def draw(axes: Any) -> None:
        below = np.zeros(len(marks))
        for kind, (name, color) in KINDS.items():
            if counts[kind].any():
                axes.bar(range(len(marks)), counts[kind], 0.8, bottom=below, color=color, label=name)
                below += counts[kind]
        shown = range(0, len(marks), -(-len(marks) // 7))
        axes.set_xticks(list(shown), [marks[j].strftime("%Y-%m" if monthly else "%m-%d") for j in shown])
        axes.set_xlim(-0.7, len(marks) - 0.3)
        axes.set_ylim(0, max(1.0, 1.15 * float(below.max())))
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.set_major_formatter(lambda value, position: f"{value:,.0f}")
        axes.set_ylabel("records")
        axes.set_xlabel(
            "month (UTC)" if monthly else f"day of {first.year} (UTC)" if first.year == last.year else "day"
        )
        if below.any():
            axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")

    said = ", ".join(f"{counts[kind].sum():,} {name}" for kind, (name, _) in KINDS.items() if counts[kind].any())
    return figure(
        "activity", f"Records by {'month' if monthly else 'day'}, {first} to {last}: {said or 'none'}.", 2.4, draw
    )


def _days(first: date, last: date) -> list[date]:
    """Return all days, a week of them at least."""
    first = min(first, last - timedelta(days=6))
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _months(first: date, last: date) -> list[date]:
    number = 12 * (last.year - first.year) + last.month - first.month + 1
    return [date(*divmod_month(first.year, first.month - 1 + j), 1) for j in range(number)]


def divmod_month(year: int, months: int) -> tuple[int, int]:
    """Return the year and the month that are this many months after the beginning of a year.

    >>> divmod_month(2026, 12)
    (2027, 1)
    """
    return year + months // 12, months % 12 + 1


# --- scores ------------------------------------------------------------------------------------------


def score_plot(score: Score) -> str:
    """Draw a score: two bars for classes, errors of numbers, sizes of clusters."""
    match score.kind:
        case "classes":
            return _bars(score)
        case "numbers":
            return _errors(score)
        case "clusters":
            return _sizes(score)


def _bars(score: Score) -> str:
    right, most = (value or 0.0 for _, value in score.values[:2])

    def draw(axes: Any) -> None:
        bars = axes.barh(["most frequent class", "this model"], [100 * most, 100 * right], 0.6, color=[PALE, BLUE])
        axes.bar_label(bars, [f"{100 * most:.1f} %", f"{100 * right:.1f} %"], padding=4)
        axes.set_xlim(0, 115)
        axes.set_xticks([0, 25, 50, 75, 100])
        axes.set_xlabel("correct, % of the test records")

    label = f"Accuracy of the model {right:.1%}; of always naming the most frequent class {most:.1%}."
    return figure("score", label, 1.5, draw)


def _errors(score: Score) -> str:
    edges = np.array(score.edges)

    def draw(axes: Any) -> None:
        axes.bar(edges[:-1], 100 * np.array(score.shares), np.diff(edges), align="edge", color=BLUE, edgecolor="white")
        axes.axvline(0.0, color=DARK, linewidth=0.8)
        axes.set_xlabel("prediction minus truth (the outermost bars include everything beyond)")
        axes.set_ylabel("% of test records")

    return figure("score", f"Histogram of the errors on {score.records:,} test records; {_said(score)}.", 2.4, draw)


def _sizes(score: Score) -> str:
    counts = score.counts[0]
    shares = 100 * np.sort(np.array(counts))[::-1] / max(1, sum(counts))

    def draw(axes: Any) -> None:
        axes.bar(range(1, len(shares) + 1), shares, 0.8, color=BLUE)
        axes.set_xlabel("clusters, by size")
        axes.set_ylabel("% of test records")
        axes.xaxis.get_major_locator().set_params(integer=True)

    label = f"Sizes of {len(counts):,} clusters on {score.records:,} test records; {_said(score)}."
    return figure("score", label, 2.2, draw)


def _said(score: Score) -> str:
    return ", ".join(f"{name} {said_value(name, value)}" for name, value in score.values)


def calibration_plot(calibration: Calibration) -> str:
    """Draw observed shares against predicted probabilities: a dot for each bin, larger if it has more records."""
    predicted = [one.predicted for one in calibration.bins]
    observed = [one.observed for one in calibration.bins]
    counts = np.array([one.records for one in calibration.bins])

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, linestyle="--", label="perfectly calibrated")
        axes.plot(predicted, observed, color=BLUE, linewidth=1.2)
        axes.scatter(predicted, observed, 14 + 110 * counts / counts.max(), color=BLUE, alpha=0.8, label="this model")
        axes.set_xlim(-0.04, 1.04)
        axes.set_ylim(-0.04, 1.04)
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("observed share")
        axes.legend(frameon=False, fontsize=8, loc="upper left", markerscale=0.6)

    said = ", ".join(f"{x:g} predicted and {y:g} observed" for x, y in zip(predicted, observed, strict=True))
    return figure("calibration", f"Calibration on {counted(counts.sum(), 'test record')}: {said}.", 2.9, draw)
