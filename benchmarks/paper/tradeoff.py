"""Table 1 as a trade-off: excess risk against the measured relative unlearning complexity, for its four rows.

python -m benchmarks.paper.tradeoff [--quick]
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.paper.chapters import Chapter, Result, Table, Verdict, main
from benchmarks.paper.measuring import (
    TOLERANCE,
    Curve,
    Mean,
    Slope,
    all_at_most,
    at_least,
    at_most,
    cost_of_deletions,
    enough_deletions,
    has_replays,
    pooled,
    ratio_at_equal_x,
    slope_of,
)
from benchmarks.paper.table_rows import OURS, PAPER, ROWS, Row
from expunge import learn, learn_with_outcome


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n: int
    rhos: tuple[float, ...]
    runs: int
    """How often records are drawn and learned from, for every point."""
    pilots: int
    """How often every problem of a family is learned, to find the worst."""
    replays: int
    """How many deletions should replay, for every point; ``least`` to ``most`` are tried."""
    least: int
    most: int


RHOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
FULL = Sizes(2**13, RHOS, runs=8, pilots=4, replays=60, least=160, most=4000)
QUICK = Sizes(2**11, RHOS, runs=4, pilots=2, replays=16, least=60, most=1200)


def _rng(*of: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(" ".join(str(one) for one in of).encode()))


def _worst(row: Row, who: str, rho: float, sizes: Sizes) -> float:
    """Return the member of a row's family that is learned worst, by runs that are not used again."""
    if len(row.family) == 1:
        return row.family[0]
    excess = []
    for member in row.family:
        each = []
        for pilot in range(sizes.pilots):
            rng = _rng("pilot", row.name, who, rho, member, pilot)
            problem = row.problem(who, sizes.n, rho, member, rng)
            each.append(problem.excess(learn(problem.learner, problem.records(), rng).model(problem.learner)))
        excess.append(float(np.mean(each)))
    return row.family[int(np.argmax(excess))]


def _point(row: Row, who: str, rho: float, sizes: Sizes) -> dict[str, Any]:
    """Learn several times, and delete from each transcript."""
    member = _worst(row, who, rho, sizes)
    excess, complexity, replays, number = [], [], [], 0
    for run in range(sizes.runs):
        rng = _rng(row.name, who, rho, member, run)
        problem = row.problem(who, sizes.n, rho, member, rng)
        records = problem.records()
        transcript, learned = learn_with_outcome(problem.learner, records, rng)
        excess.append(problem.excess(transcript.model(problem.learner)))
        if run == 0:
            wanted = enough_deletions(problem.learner, records, transcript, sizes.replays, rng)
            number = math.ceil(min(max(wanted, sizes.least), sizes.most) / sizes.runs)
        cost = cost_of_deletions(problem.learner, records, transcript, learned.evaluations, number, rng)
        complexity.append(cost.complexity)
        replays.append(cost.replays)
    return {
        "rho": rho, "member": member, "unlearned": row.unlearned(member), "parameters": problem.learner.query.size,
        "sigma": problem.learner.sigma, "deletions": number * sizes.runs, "excess": Mean.of(excess).record(),
        "complexity": Mean.of(complexity).record(), "replays": Mean.of(replays).record(),
    }  # fmt: skip


def measure_at(sizes: Sizes, watch: Callable[[float], None]) -> Result:
    """Measure all rows, with both configurations."""
    found, done, total = [], 0, len(ROWS) * 2 * len(sizes.rhos)
    for row in ROWS:
        curves: dict[str, list[dict[str, Any]]] = {}
        for who in (PAPER, OURS):
            curves[who] = []
            for rho in sizes.rhos:
                curves[who].append(_point(row, who, rho, sizes))
                done += 1
                watch(done / total)
        unlearned = row.unlearned(max(row.family))
        found.append(
            {"row": row.name, "exponent": row.exponent, "d": row.d, "unlearned": unlearned, "curves": curves}
        )  # fmt: skip
    return {"n": sizes.n, "runs": sizes.runs, "rows": found}


def measure(quick: bool, watch: Callable[[float], None]) -> Result:
    return measure_at(QUICK if quick else FULL, watch)


# --- what it says ---------------------------------------------------------------------------------------


def _mean(point: dict[str, Any], of: str) -> Mean:
    return Mean(**point[of])


def _curve(points: list[dict[str, Any]]) -> Curve:
    return Curve([_mean(p, "complexity") for p in points], [_mean(p, "excess") for p in points])


def _ruled_by_noise(row: dict[str, Any], who: str) -> list[dict[str, Any]]:
    """Return the points at least twice above what remains without noise, and at most half of nothing learned."""
    points: list[dict[str, Any]] = row["curves"][who]
    quiet = points[-1]["excess"]["mean"]
    return [p for p in points[:-1] if 2.0 * quiet <= p["excess"]["mean"] <= row["unlearned"] / 2.0]


def _slope(row: dict[str, Any], who: str) -> Slope | None:
    points = [p for p in _ruled_by_noise(row, who) if has_replays(p)]
    return slope_of(*_curve(points)) if len(points) >= 3 else None


def _slope_verdict(row: dict[str, Any], who: str) -> Verdict:
    exponent, slope = row["exponent"], _slope(row, who)
    claim = f"Row {row['row']}, {who}: where noise rules, excess falls like complexity^{exponent:.2f} or faster"
    if slope is None:
        return Verdict(claim, None, "fewer than three points where noise rules and enough deletions replay")
    return Verdict(claim, at_most(exponent + TOLERANCE, slope.low, slope.high), f"exponent {slope}")


def _ratio_verdict(row: dict[str, Any]) -> Verdict:
    curves = {
        who: _curve([p for p in row["curves"][who][:-1] if has_replays(p)]) for who in (PAPER, OURS)
    }  # fmt: skip
    claim = f"Row {row['row']}: at equal measured complexity ours has the smaller excess"
    found = ratio_at_equal_x(curves[PAPER], curves[OURS])
    if found is None:
        return Verdict(claim, None, "no complexity that both have")
    ratio, low, high = found
    return Verdict(claim, at_least(1.0, low, high), f"the paper's is {ratio:.2f} times ours [{low:.2f}, {high:.2f}]")


def _rho_verdict(result: Result, who: str) -> Verdict:
    """Table 1 calls ρ the relative unlearning complexity."""
    shares = [
        _mean(p, "complexity").times(1.0 / p["rho"])
        for row in result["rows"] for p in row["curves"][who] if p["rho"] < 1.0
    ]  # fmt: skip
    mean, low, high = pooled(shares)
    found = f"on average {mean:.2f}ρ [{low:.2f}, {high:.2f}], at most {max(share.mean for share in shares):.2f}ρ"
    claim = f"All rows, {who}: the measured complexity is at most ρ"
    return Verdict(claim, all_at_most(1.0, shares), f"{found}, {len(shares)} points")


def _end_verdict(result: Result) -> Verdict:
    """Without noise a deletion replays from its record on, unless one that is equal takes its place."""
    costs = [_mean(row["curves"][who][-1], "complexity") for row in result["rows"] for who in (PAPER, OURS)]
    low, high = min(c.interval[0] for c in costs), max(c.interval[1] for c in costs)
    held = at_least(0.25, low, high) and at_most(0.75, low, high)
    found = f"{min(c.mean for c in costs):.2f} to {max(c.mean for c in costs):.2f} of it"
    return Verdict("Without noise a deletion costs about half of learning (0.25 to 0.75)", held, found)


def judge(result: Result) -> list[Verdict]:
    rows = result["rows"]
    return [
        *[_slope_verdict(row, who) for row in rows for who in (PAPER, OURS)],
        *[_ratio_verdict(row) for row in rows],
        *[_rho_verdict(result, who) for who in (PAPER, OURS)],
        _end_verdict(result),
    ]


def tables(result: Result) -> list[Table]:
    head = ["row", "configuration", "ρ", "parameters", "σ", "replays", "complexity", "excess", "deletions"]
    rows = [
        [
            row["row"], who, f"{p['rho']:g}", str(p["parameters"]), f"{p['sigma']:.3g}", f"{p['replays']['mean']:.2%}",
            str(_mean(p, "complexity")), str(_mean(p, "excess")), str(p["deletions"]),
        ]
        for row in result["rows"] for who in (PAPER, OURS) for p in row["curves"][who]
    ]  # fmt: skip
    return [Table(head, rows)]


# --- the picture ----------------------------------------------------------------------------------------

STYLE = {PAPER: ("C0", "o"), OURS: ("C1", "s")}
LABELS = {
    PAPER: "the paper's: Shuffled(1), tree, sequential",
    OURS: "ours: Scattered(n), square root, joint",
}


def _draw_row(axes: Any, row: dict[str, Any]) -> None:
    for who in (PAPER, OURS):
        points, (color, marker) = row["curves"][who], STYLE[who]
        x, y = _curve(points)
        axes.errorbar(
            [at.mean for at in x], [at.mean for at in y], [at.half for at in y],
            [[min(at.half, 0.9 * at.mean) for at in x], [at.half for at in x]],
            fmt=marker + "-", color=color, markersize=4, linewidth=1, elinewidth=0.7, label=LABELS[who],
        )  # fmt: skip
        for p, at_x, at_y in zip(points, x, y, strict=True):
            if p["rho"] in (0.01, 0.1, 1.0):
                axes.annotate(
                    f"ρ = {p['rho']:g}", (at_x.mean, at_y.mean), (5, 5), textcoords="offset points", fontsize=7,
                    color=color,
                )  # fmt: skip
        used = _ruled_by_noise(row, who)
        if len(used) >= 2:
            xs, ys = (np.array([p[of]["mean"] for p in used]) for of in ("complexity", "excess"))
            middle, height = np.exp(np.log(xs).mean()), np.exp(np.log(ys).mean())
            text = "the theorem's exponent" if who == PAPER else None
            axes.plot(xs, height * (xs / middle) ** row["exponent"], "--", color="0.4", linewidth=1.2, label=text)
    quiet = row["curves"][PAPER][-1]["excess"]["mean"]
    axes.plot([1.0], [quiet], "k*", markersize=10, label="learning anew, without noise")
    axes.axhline(row["unlearned"], color="0.6", linestyle=":", linewidth=1, label="nothing learned")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("evaluations of a deletion / of learning (measured)")
    axes.set_ylabel("excess risk")
    axes.set_title(f"Row {row['row']}\nd = {row['d']}, exponent {row['exponent']:.2f}", fontsize=10)


def draw(result: Result) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8.6), layout="constrained")
    for axes, row in zip(figure.subplots(2, 2).ravel(), result["rows"], strict=True):
        _draw_row(axes, row)
    every = [axes.get_legend_handles_labels() for axes in figure.axes]
    named = {label: handle for handles, labels in every for handle, label in zip(handles, labels, strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=3, fontsize=9)
    figure.suptitle(f"Table 1 as a trade-off, n = {result['n']:,}; ρ from 0.01 to 1 (no noise); 95 % intervals")
    return figure


CHAPTER = Chapter(
    "tradeoff",
    "Table 1 as a trade-off",
    "Table 1 bounds the excess risk of four learners by n, d and ρ, and calls ρ the relative unlearning complexity: "
    "evaluations of a deletion over those of learning. Here both are measured in the same runs, on problems whose "
    "optimum is known. The larger the noise, the cheaper a deletion and the worse the model. At one end there is no "
    "noise, and a deletion costs half of learning; at the other nothing is learned, and nothing has to be deleted. "
    "The paper's configuration and ours have the same ρ, step sizes and numbers of steps; they differ in noise and "
    f"coupling. Exponents are told apart if they differ by more than {TOLERANCE:g}.",
    measure,
    draw,
    judge,
    tables,
)

if __name__ == "__main__":
    raise SystemExit(main(CHAPTER))
