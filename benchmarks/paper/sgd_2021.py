"""Against 2021: excess risk of noisy mini-batch SGD and of variance-reduced Frank-Wolfe, on one smooth problem.

python -m benchmarks.paper.sgd_2021 [--quick]
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
    at_least,
    at_most,
    cost_of_deletions,
    has_replays,
    ratio_at_equal_x,
    slope_of,
)
from benchmarks.paper.problems_with_optima import sphere_across
from expunge import Learner, MemoryRecords, learn, learn_with_outcome, paper
from expunge.base.types import Array

FRANK_WOLFE, SGD = "Frank-Wolfe (2023)", "SGD (2021)"
EXPONENTS = {FRANK_WOLFE: -1.0, SGD: -2.0 / 3.0}
D, G, H = 2.0, 1.5, 0.5
TILTS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    d: int
    n: int
    rhos: tuple[float, ...]
    rho: float
    many: tuple[int, ...]
    """Numbers of records, at ``rho``."""
    runs: int
    pilots: int
    deletions: int
    """In each run."""


FULL = Sizes(4, 2**15, (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32), 0.04, (2**13, 2**14, 2**15, 2**16), 8, 2, 400)
QUICK = Sizes(4, 2**13, (0.01, 0.02, 0.04, 0.08, 0.16, 0.32), 0.04, (2**11, 2**12, 2**13), 4, 1, 100)


def gradient_of(mean: float) -> Callable[[Array, Array], Array]:
    """Return the gradient of ⟨w, z⟩ + (H/2) w₂² with z = μ e₁ + √(1 - μ²) u, u across e₁; a record is u."""
    scatter = math.sqrt(1.0 - mean**2)

    def gradient(w: Array, points: Array) -> Array:
        rows = scatter * points
        rows[:, 0] += mean
        rows[:, 1] += H * w[1]
        return rows

    return gradient


def excess_of(mean: float, w: Array) -> float:
    """Return the excess risk in the ball of diameter D; the optimum is at its edge."""
    return float(mean * (w[0] + D / 2.0) + 0.5 * H * w[1] ** 2)


def learner_of(who: str, mean: float, n: int, rho: float, d: int) -> Learner:
    make = paper.frank_wolfe if who == FRANK_WOLFE else paper.sgd_2021
    return make(gradient_of(mean), rho=rho, n=n, d=d, D=D, G=G, H=H)


def _rng(*of: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(" ".join(str(one) for one in of).encode()))


def _worst(who: str, n: int, rho: float, sizes: Sizes) -> float:
    """Return the tilt that is learned worst, by runs that are not used again: theorems are about that one."""
    excess = []
    for mean in TILTS:
        learner, each = learner_of(who, mean, n, rho, sizes.d), []
        for pilot in range(sizes.pilots):
            rng = _rng("pilot", who, n, rho, mean, pilot)
            records = MemoryRecords((sphere_across(n, sizes.d, rng),))
            each.append(excess_of(mean, learn(learner, records, rng).model(learner)))
        excess.append(float(np.mean(each)))
    return TILTS[int(np.argmax(excess))]


def _point(sweep: str, who: str, n: int, rho: float, sizes: Sizes) -> dict[str, Any]:
    mean = _worst(who, n, rho, sizes)
    learner = learner_of(who, mean, n, rho, sizes.d)
    excess, complexity, replays = [], [], []
    for run in range(sizes.runs):
        rng = _rng(who, n, rho, mean, run)
        records = MemoryRecords((sphere_across(n, sizes.d, rng),))
        transcript, learned = learn_with_outcome(learner, records, rng)
        excess.append(excess_of(mean, transcript.model(learner)))
        cost = cost_of_deletions(learner, records, transcript, learned.evaluations, sizes.deletions, rng)
        complexity.append(cost.complexity)
        replays.append(cost.replays)
    return {
        "sweep": sweep, "who": who, "n": n, "rho": rho, "tilt": mean, "steps": transcript.steps, "sigma": learner.sigma,
        "excess": Mean.of(excess).record(), "complexity": Mean.of(complexity).record(),
        "replays": Mean.of(replays).record(), "deletions": sizes.deletions * sizes.runs,
    }  # fmt: skip


def measure_at(sizes: Sizes, watch: Callable[[float], None]) -> Result:
    asked = [("ρ", sizes.n, rho) for rho in (*sizes.rhos, 1.0)] + [("n", n, sizes.rho) for n in sizes.many]
    work, done = sum(n for _, n, _ in asked), 0
    points: list[dict[str, Any]] = []
    for sweep, n, rho in asked:
        for who in (FRANK_WOLFE, SGD):
            known = [p for p in points if (p["who"], p["n"], p["rho"]) == (who, n, rho)]
            points.append({**known[0], "sweep": sweep} if known else _point(sweep, who, n, rho, sizes))
        done += n
        watch(done / work)
    return {"d": sizes.d, "n": sizes.n, "rho": sizes.rho, "runs": sizes.runs, "points": points}


def measure(quick: bool, watch: Callable[[float], None]) -> Result:
    return measure_at(QUICK if quick else FULL, watch)


# --- what it says ---------------------------------------------------------------------------------------

Points = list[dict[str, Any]]


def _noisy(result: Result, sweep: str, who: str) -> Points:
    return [p for p in result["points"] if p["sweep"] == sweep and p["who"] == who and p["rho"] < 1.0]


def _quiet(result: Result, who: str) -> float:
    return next(float(p["excess"]["mean"]) for p in result["points"] if p["who"] == who and p["rho"] == 1.0)


def _ruled_by_noise(result: Result, sweep: str, who: str) -> Points:
    """Return the points at least twice above what remains without noise, and below a third of nothing learned."""
    least, at = 2.0 * _quiet(result, who), result["n"]
    return [
        p for p in _noisy(result, sweep, who)
        if least * math.sqrt(at / p["n"]) <= p["excess"]["mean"] <= max(TILTS) / 3.0
    ]  # fmt: skip


def _fit(result: Result, sweep: str, who: str) -> Slope | None:
    used = _ruled_by_noise(result, sweep, who)
    if len(used) < 3:
        return None
    return slope_of([p["n"] * p["rho"] for p in used], [Mean(**p["excess"]) for p in used])


def exponent_of_bound(who: str, used: Points) -> float:
    """Return the exponent of the term with the noise on these points.

    Table 1 hides logarithms, which count where n varies: Frank-Wolfe's term is √d·σ·√log₂n·ln n/n, where σ is that of a
    node of the tree.
    """
    if who == SGD or len({p["n"] for p in used}) == 1:
        return EXPONENTS[who]
    terms = [p["sigma"] * math.sqrt(math.log2(p["n"])) * math.log(p["n"]) / p["n"] for p in used]
    return float(np.polyfit(np.log([p["n"] * p["rho"] for p in used]), np.log(terms), 1)[0])


def _slopes(result: Result, sweep: str) -> list[Verdict]:
    fits, found = {who: _fit(result, sweep, who) for who in EXPONENTS}, []
    of = f"against nρ by {'ρ' if sweep == 'ρ' else 'n'}"
    for who, fit in fits.items():
        logs = " and its logarithms" if who == FRANK_WOLFE and sweep == "n" else ""
        claim = f"{who}, {of}: excess falls like (nρ)^{EXPONENTS[who]:.2f}{logs}, or faster"
        if fit is None:
            found.append(Verdict(claim, None, "fewer than three points where noise rules"))
            continue
        limit = exponent_of_bound(who, _ruled_by_noise(result, sweep, who))
        held = at_most(limit + TOLERANCE, fit.low, fit.high)
        found.append(Verdict(claim, held, f"exponent {fit}" + (f", the bound's {limit:.2f}" if logs else "")))
    one, other, claim = fits[FRANK_WOLFE], fits[SGD], f"Frank-Wolfe's excess falls faster than SGD's, {of}"
    if one is None or other is None:
        return [*found, Verdict(claim, None, "fewer than three points where noise rules")]
    off = one.slope - other.slope
    half = math.hypot(one.high - one.slope, other.high - other.slope)
    difference = Slope(off, off - half, off + half)
    return [*found, Verdict(claim, at_most(0.0, difference.low, difference.high), f"exponents differ by {difference}")]


def _curve(points: Points, x: str) -> Curve:
    used = [p for p in points if x != "complexity" or has_replays(p)]
    at = [Mean(**p[x]) if x == "complexity" else Mean(p["n"] * p[x], 0.0, p["excess"]["runs"]) for p in used]
    return Curve(at, [Mean(**p["excess"]) for p in used])


def _ratios(result: Result) -> list[Verdict]:
    """Compare the two at the upper end of what both have; at the lower end constants decide."""
    found = []
    for x, words in (("rho", "nρ"), ("complexity", "measured complexity")):
        curves = [_curve(_noisy(result, "ρ", who), x) for who in (SGD, FRANK_WOLFE)]
        claim = f"At the largest {words} that both have, n = {result['n']:,}, Frank-Wolfe has the smaller excess"
        ends = [ratio_at_equal_x(curves[0], curves[1], (part, part)) for part in (0.0, 1.0)]
        if ends[0] is None or ends[1] is None:
            found.append(Verdict(claim, None, f"no {words} that both have"))
            continue
        (first, *at_first), (last, low, high) = ends[0], ends[1]
        text = f"SGD's is {last:.2f} times as large [{low:.2f}, {high:.2f}]; at the smallest {first:.2f}"
        found.append(Verdict(claim, at_least(1.0, low, high), f"{text} [{at_first[0]:.2f}, {at_first[1]:.2f}]"))
    return found


def judge(result: Result) -> list[Verdict]:
    return [*_slopes(result, "ρ"), *_slopes(result, "n"), *_ratios(result)]


def tables(result: Result) -> list[Table]:
    head = ["learner", "n", "ρ", "nρ", "steps", "σ", "tilt", "excess", "replays", "complexity"]
    rows = [
        [
            p["who"], f"{p['n']:,}", f"{p['rho']:g}", f"{p['n'] * p['rho']:.0f}", f"{p['steps']:,}",
            f"{p['sigma']:.3g}", f"{p['tilt']:g}", str(Mean(**p["excess"])), f"{p['replays']['mean']:.2%}",
            str(Mean(**p["complexity"])),
        ]
        for p in result["points"]
    ]  # fmt: skip
    return [Table(head, rows)]


def _draw_rates(axes: Any, result: Result, who: str, color: str) -> None:
    for sweep, marker in (("ρ", "o-"), ("n", "s:")):
        x, y = _curve(_noisy(result, sweep, who), "rho")
        fixed = f"n = {result['n']:,}" if sweep == "ρ" else f"ρ = {result['rho']:g}"
        fit = _fit(result, sweep, who)
        text = f"{who}, {fixed}" + ("" if fit is None else f": {fit.slope:+.2f}")
        axes.errorbar(
            [at.mean for at in x], [at.mean for at in y], [at.half for at in y], fmt=marker, color=color, markersize=4,
            linewidth=1, markerfacecolor=color if sweep == "ρ" else "none", label=text,
        )  # fmt: skip
    used = _ruled_by_noise(result, "ρ", who)
    if used:
        at = np.array([p["n"] * p["rho"] for p in used])
        middle, height = np.exp(np.log(at).mean()), np.exp(np.mean(np.log([p["excess"]["mean"] for p in used])))
        line = 1.15 * height * (at / middle) ** EXPONENTS[who]
        axes.plot(at, line, "--", color="0.35", linewidth=1.2)
        text = f"{EXPONENTS[who]:.2f}"
        axes.annotate(text, (at[0], line[0]), (4, 4), textcoords="offset points", fontsize=9, ha="left")


def draw(result: Result) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatterSciNotation, NullFormatter

    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, who in enumerate(EXPONENTS):
        _draw_rates(left, result, who, f"C{number}")
        x, y = _curve(_noisy(result, "ρ", who), "complexity")
        if x:
            half = [[min(at.half, 0.9 * at.mean) for at in x], [at.half for at in x]]
            right.errorbar(
                [at.mean for at in x], [at.mean for at in y], [at.half for at in y], half, fmt="o-",
                color=f"C{number}", markersize=4, linewidth=1, elinewidth=0.7, label=who,
            )  # fmt: skip
    for axes, label in ((left, "nρ"), (right, "evaluations of a deletion / of learning (measured)")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.legend(fontsize=8, loc="lower left")
        axes.xaxis.set_major_formatter(LogFormatterSciNotation())
        axes.xaxis.set_minor_formatter(NullFormatter())
    left.set_ylabel("excess risk")
    left.set_title("against nρ (dashed: the theorems' exponents)", fontsize=10)
    right.set_title(f"against measured complexity, n = {result['n']:,}", fontsize=10)
    return figure


CHAPTER = Chapter(
    "sgd_2021",
    "Against 2021: SGD and Frank-Wolfe",
    "The paper improves on Ullah et al. (2021): for smooth losses the term with the noise is √d/(nρ) instead of "
    "(√d/(nρ))^⅔. Here both learners run on one family of smooth problems, each on the problem that is worst for it, "
    "and the exponents are fitted where noise rules: from twice the excess that remains without it to a third of that "
    "of a model that has learned nothing. These are rates: which of the two is better at a given nρ also depends on "
    "constants. The same runs are compared at equal measured complexity. Exponents are told apart if they "
    f"differ by more than {TOLERANCE:g}.",
    measure,
    draw,
    judge,
    tables,
)

if __name__ == "__main__":
    raise SystemExit(main(CHAPTER))
