"""Tables and the picture of what `digits.py` has measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table
from scipy import stats

from expunge.base.types import Array

Found = dict[str, Any]


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def tables(found: Found) -> Iterator[Table]:
    """Return what is printed at the end."""
    yield _accuracy(found)
    yield _departures(found)
    yield _trails(found)
    yield _server(found)


def _which(row: Found) -> tuple[str, str, str]:
    return f"{row['clients']:,}", f"{row['rho']:g}", "noisy" if row["finish"] is None else row["finish"]


def _accuracy(found: Found) -> Table:
    table = _table(
        f"Accuracy on the test part, %; scikit-learn on all images at one place: {percent(found['pooled'])}",
        "clients", "ρ", "last round", "rounds", "clip", "model", "noise / clip", "accuracy ± sd",
        "as many rounds, plain", "one round, no noise", "plain averaging",
    )  # fmt: skip
    beside = {row["clients"]: row for row in found["without noise"]}
    for row in found["rows"]:
        plain = beside[row["clients"]]
        table.add_row(
            *_which(row), str(row["rounds"]), f"{row['clip']:g}", row["selector"],
            f"{row['noise']:.2f}", f"{percent(row['accuracy'])} ± {percent(row['spread'])}",
            percent(row["plain, as many rounds"]), percent(plain["one round"]),
            f"{percent(plain['plain'])} ({plain['plain rounds']} rounds)",
        )  # fmt: skip
    return table


def _departures(found: Found) -> Table:
    table = _table(
        "Clients that leave", "clients", "ρ", "last round", "departures", "updates", "updates / retraining's (95 %)",
        "changed (95 %)", "expected", "asked anybody", "paper's ρ", "√T · paper's ρ",
    )  # fmt: skip
    for row in found["rows"]:
        table.add_row(
            *_which(row), str(row["departures"]), f"{row['updates']:.1f}",
            f"{row['share']:.3f} ({row['share low']:.3f}–{row['share high']:.3f})",
            f"{row['changed']:.3f} ({row['changed low']:.3f}–{row['changed high']:.3f})",
            f"{row['expected']:.3f}", f"{row['asking']:.3f}", f"{row['stability']:.3f}", f"{row['round by round']:.3f}",
        )  # fmt: skip
    return table


def _trails(found: Found) -> Table:
    table = _table(
        "Accuracy after departures, %", "clients", "ρ", "last round", "compared", "those left ± sd",
        "trained anew ± sd", "difference (95 %)",
    )  # fmt: skip
    for row in found["rows"]:
        ours, anew = 100 * np.array(row["unlearned"]), 100 * np.array(row["retrained"])
        number = len(ours)
        apart = f"{np.mean(ours - anew):+.1f}"
        if number > 1:
            half = stats.t.ppf(0.975, number - 1) * np.std(ours - anew, ddof=1) / number**0.5
            apart += f" ± {half:.1f}"
        table.add_row(*_which(row), str(number), _spread(ours), _spread(anew), apart)
    return table


def _spread(scores: Array) -> str:
    mean = f"{scores.mean():.1f}"
    return mean if len(scores) == 1 else f"{mean} ± {scores.std(ddof=1):.1f}"


def _server(found: Found) -> Table:
    table = _table(
        "The server's time, milliseconds",
        "clients",
        "ρ",
        "last round",
        "departure that changes nothing",
        "all rounds",
        "ratio",
    )
    for row in found["rows"]:
        kept, training = row["kept milliseconds"], row["training milliseconds"]
        alone, ratio = ("", "") if kept is None else (f"{kept:.2f}", f"1/{training / kept:.0f}")
        table.add_row(*_which(row), alone, f"{training:.1f}", ratio)
    return table


def draw(found: Found) -> Figure:
    """Return two panels over ρ: accuracy, and what a departure costs the others."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, beside in zip(("C0", "C1", "C2"), found["without noise"], strict=False):
        for finish, marker, line in (("exact", "o", "-"), (None, "x", "-.")):
            rows = [
                row
                for row in found["rows"]
                if row["clients"] == beside["clients"] and (row["finish"] == finish or row["rho"] == 1.0)
            ]
            rhos = [row["rho"] for row in rows]
            label = f"{beside['clients']:,} clients" + ("" if finish else ", noisy")
            scores, spreads = ([100 * row[name] for row in rows] for name in ("accuracy", "spread"))
            style = {"marker": marker, "linestyle": line, "capsize": 3, "color": colour, "label": label}
            left.errorbar(rhos, scores, spreads, **style)
            shares = np.array([row["share"] for row in rows])
            around = [shares - [row["share low"] for row in rows], [row["share high"] for row in rows] - shares]
            right.errorbar(rhos, shares, around, **style)
        left.axhline(100 * beside["plain"], color=colour, linestyle="--", linewidth=1)
        left.axhline(100 * beside["one round"], color=colour, linestyle=":", linewidth=1)
    left.plot([], [], "k--", linewidth=1, label="plain averaging")
    left.plot([], [], "k:", linewidth=1, label="one round, no noise")
    right.plot([0.1, 1.0], [0.1, 1.0], "k:", label="ρ")
    right.set_yscale("log")
    left.set_ylim(0, 100)
    left.set_ylabel("test accuracy, %")
    right.set_ylabel("updates asked for / those of retraining")
    for axes in (left, right):
        axes.set_xscale("log")
        ticks = sorted({row["rho"] for row in found["rows"]})
        axes.set_xticks(ticks, [f"{rho:g}" for rho in ticks])
        axes.minorticks_off()
        axes.set_xlabel("ρ")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9)
    return figure
