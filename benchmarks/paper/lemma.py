"""The gradient-error lemma of variance-reduced Frank-Wolfe, along t: E|r_t/(t+1) - ∇L(w_t)|² and the lemma's two terms.

    python benchmarks/paper/lemma.py [--quick] [--draw]

`paper.frank_wolfe` learns a problem whose gradient is known, for several ρ. Writes out/paper/lemma.json and .png.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.paper.chapters import Chapter, Result, Table, Verdict, main
from benchmarks.paper.fitting import TOLERANCE, Point, fitted, near, together
from benchmarks.paper.measuring import Slope, at_most
from benchmarks.paper.methods import TiltedGradient, steps_of
from benchmarks.paper.problems_with_optima import sphere
from expunge import Learner, MemoryRecords, learn, paper
from expunge.base.types import Array

N, D, TILT = 2**12, 16, 0.3
RHOS = (0.05, 0.1, 0.2, 0.4, 1.0)
RUNS, QUICK_RUNS = 40, 12
LEVEL = 0.01
EARLY, LATE = 4, 4
"""The first bins of t, where noise is far above the rest, and from which on slopes are fitted."""


def learner_of(rho: float) -> Learner:
    return paper.frank_wolfe(TiltedGradient(TILT), rho=rho, n=N, d=D, D=2.0, G=1.5, H=0.5)


def squared_errors(learner: Learner, rng: np.random.Generator) -> Array:
    """Learn once; return |r_t/(t+1) - ∇L(w_t)|² for t = 1..n."""
    transcript = learn(learner, MemoryRecords((sphere(N, D, rng),)), rng)
    off = transcript.answers[:] / (np.arange(1, N + 1) + 1.0)[:, None]
    off[:, 0] -= TILT
    off[:, 1] -= TiltedGradient(TILT).curvature * steps_of(transcript)[:, 1]
    return np.asarray(np.einsum("ij,ij->i", off, off))


def over_bins(values: Array) -> Array:
    """Return the means over t from 2^j to 2^(j+1) - 1: noise depends on the binary digits of t."""
    edges = 2 ** np.arange(int(math.log2(N)))
    return np.asarray(np.add.reduceat(values[: N - 1], edges - 1) / edges)


def noise_terms(sigma: float) -> Array:
    """Return d σ² / (t+1)² times the number of nodes that an answer adds up."""
    t = np.arange(1, N + 1)
    nodes = np.array([int(one).bit_count() for one in t])
    return D * sigma**2 * nodes / (t + 1.0) ** 2


def measure(quick: bool, watch: Callable[[float], None]) -> Result:
    runs, curves = QUICK_RUNS if quick else RUNS, []
    t = np.arange(1, N + 1)
    for number, rho in enumerate(RHOS):
        learner, found = learner_of(rho), []
        for run in range(runs):
            found.append(over_bins(squared_errors(learner, np.random.default_rng([7, number, run]))))
            watch((number * runs + run + 1) / (len(RHOS) * runs))
        each, noise = np.array(found), noise_terms(learner.sigma)
        statistical = learner.query.bound**2 / (t + 1.0)
        curves.append({
            "rho": rho, "sigma": learner.sigma, "runs": runs, "mean": each.mean(axis=0).tolist(),
            "error": (each.std(axis=0, ddof=1) / math.sqrt(runs)).tolist(), "noise": over_bins(noise).tolist(),
            "bound": over_bins(statistical + noise).tolist(), "printed": over_bins(noise / rho**2).tolist(),
        })  # fmt: skip
    return {"n": N, "d": D, "t": (1.5 * 2.0 ** np.arange(int(math.log2(N)))).tolist(), "curves": curves}


def exponents_in_t(result: Result) -> list[Slope]:
    """Return, for each ρ, the fitted exponent of t and its interval, from t = 16 on."""
    return [
        fitted([
            Point(t, mean, error, curve["runs"], 0.0)
            for t, mean, error in zip(result["t"], curve["mean"], curve["error"], strict=True)
        ][LATE:])
        for curve in result["curves"]
    ]  # fmt: skip


def exponent_in_rho(result: Result) -> Slope:
    """Return the exponent of ρ where noise is nearly all, at the first t."""
    noisy = [curve for curve in result["curves"] if curve["rho"] < 1.0]
    points = []
    for curve in noisy:
        mean, error = (np.array(curve[key][:EARLY]) * np.array(result["t"][:EARLY]) for key in ("mean", "error"))
        points.append(Point(curve["rho"], mean.sum(), math.sqrt(np.sum(error**2)), curve["runs"], 0.0))
    return fitted(points)


def noise_ratio(curve: dict[str, Any], quiet: dict[str, Any]) -> tuple[float, float, float]:
    """Return what noise adds to the error, over d σ_eff²/(t+1)², and its interval: the mean over bins."""
    noise = np.array(curve["noise"])
    ratios = (np.array(curve["mean"]) - np.array(quiet["mean"])) / noise
    errors = np.hypot(curve["error"], quiet["error"]) / noise
    weights = 1.0 / errors**2
    mean = float(np.sum(weights * ratios) / weights.sum())
    half = float(stats.t.ppf(0.975, curve["runs"] - 1)) / math.sqrt(weights.sum())
    return mean, mean - half, mean + half


def judge(result: Result) -> list[Verdict]:
    curves, quiet = result["curves"], result["curves"][-1]
    slope = exponents_in_t(result)[-1]
    ratios = [noise_ratio(curve, quiet) for curve in curves[:-1]]
    in_rho = exponent_in_rho(result)
    above, share = 0, 0.0
    for curve in curves:
        mean, error, bound = (np.array(curve[key]) for key in ("mean", "error", "bound"))
        least = mean - stats.t.ppf(1.0 - LEVEL / mean.size / len(curves), curve["runs"] - 1) * error
        above, share = above + int(np.sum(least > bound)), max(share, float((mean / bound).max()))
    lowest, highest = min(r[0] for r in ratios), max(r[0] for r in ratios)
    over = [np.array(curve["printed"]) / np.array(curve["mean"]) for curve in curves[:-1]]
    return [
        Verdict(
            "no noise: the squared error falls like 1/(t+1)",
            at_most(-1.0 + TOLERANCE, *slope[1:]), f"exponent {slope}",
        ),
        Verdict(
            "noise adds d σ_eff²/(t+1)², with ρ counted once",
            together([near(1.0, *ratio[1:]) for ratio in ratios]),
            f"{lowest:.3f} to {highest:.3f} times that, for ρ from {curves[0]['rho']} to {curves[-2]['rho']}",
        ),
        Verdict(
            "so in ρ the error has exponent −2, not −4",
            near(-2.0, *in_rho[1:], tolerance=0.1), f"exponent {in_rho}",
        ),
        Verdict(
            "the printed line, which divides σ² by ρ² again, is an upper bound that is too large by 1/ρ²",
            bool(all((ratio >= 1.0).all() for ratio in over)),
            f"{np.median(over[0]):.0f} times the measured error at ρ = {curves[0]['rho']}, "
            f"{np.median(over[-1]):.1f} times at {curves[-2]['rho']} (medians over t)",
        ),
        Verdict(
            "no error is above B²/(t+1) + d σ_eff²/(t+1)²", above == 0,
            f"{above} means above it for certain (level {LEVEL} over all), at most {share:.2f} times it",
        ),
    ]  # fmt: skip


def tables(result: Result) -> list[Table]:
    head = ["ρ", "σ", "exponent of t, 95 %", "noise / d σ_eff²/(t+1)²", "most of the bound", "printed / measured"]
    rows = []
    for curve, slope in zip(result["curves"], exponents_in_t(result), strict=True):
        noisy = curve["rho"] < 1.0
        share = max(m / b for m, b in zip(curve["mean"], curve["bound"], strict=True))
        over = np.median(np.array(curve["printed"]) / np.array(curve["mean"]))
        rows.append([
            f"{curve['rho']:g}", f"{curve['sigma']:.1f}", str(slope),
            f"{noise_ratio(curve, result['curves'][-1])[0]:.3f}" if noisy else "", f"{share:.2f}",
            f"{over:.0f}" if noisy else "",
        ])  # fmt: skip
    return [Table(head, rows)]


def draw(result: Result) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots()
    for number, curve in enumerate(result["curves"]):
        half = np.array(curve["error"]) * stats.t.ppf(0.975, curve["runs"] - 1)
        color, label = f"C{number}", f"ρ = {curve['rho']:g}" + ("" if curve["rho"] < 1.0 else " (no noise)")
        axes.errorbar(result["t"], curve["mean"], half, fmt="o", color=color, markersize=4, label=label)
        expected = np.array(curve["noise"]) + np.array(result["curves"][-1]["mean"])
        axes.plot(result["t"], expected if curve["rho"] < 1.0 else curve["bound"], "-", color=color, linewidth=1)
        if curve["rho"] < 1.0:
            axes.plot(result["t"], curve["printed"], ":", color=color, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("t")
    axes.set_ylabel("E|r_t/(t+1) − ∇L(w_t)|²")
    axes.set_title("Lines: no noise plus d σ_eff²/(t+1)² (lowest: B²/(t+1)); dotted: printed, with ρ twice")
    axes.legend()
    return figure


CHAPTER = Chapter(
    "lemma",
    "The gradient-error lemma along t",
    "E|r_t/(t+1) − ∇L(w_t)|² is at most of order 1/(t+1) + d/((t+1)²ρ²). The proof's line has d σ²/ρ², though σ is "
    "∝ 1/ρ already: ρ counts twice. Measured along one pass of Frank-Wolfe, for several ρ.",
    measure, draw, judge, tables,
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(CHAPTER))
