"""Sweeps over n, ρ or d: points with their errors, exponents with intervals, and what they are compared with."""

from __future__ import annotations

import math
import multiprocessing
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from benchmarks.paper.measuring import Mean, Slope, at_most, slope_of
from benchmarks.paper.methods import Measured, Method, Setting

TOLERANCE = 0.05
"""A sum of powers is not one power: an exponent is missed if all of its interval is slower by more than this."""

QUICK_TIMES = 2


@dataclass(frozen=True)
class Sweep:
    """One quantity varied, the others held: what the theorem says of the exponent."""

    row: str
    """The row of Table 1, or "ours"."""
    method: Method
    regime: str
    varied: str
    values: tuple[float, ...]
    fixed: Setting
    theorem: Fraction
    quick: int = 3
    """How many of the values, the first ones, a quick run takes."""
    of: str = "model"
    judged: bool = True
    """Whether a claim hangs on it; the others are shown for comparison."""
    times: int = 1
    """How many times as many repetitions it gets, where runs differ much; a quick run at most `QUICK_TIMES`."""
    expected: Callable[[Setting], float] | None = None
    """What the exponent is compared with beside the theorem's; by default the derived bound."""

    def setting(self, value: float) -> Setting:
        n, rho, d = self.fixed
        match self.varied:
            case "n":
                return Setting(round(value), rho, d)
            case "n, ρ = n^−¼":
                return Setting(round(value), value**-0.25, d)
            case "ρ":
                return Setting(n, value, d)
            case _:
                return Setting(n, rho, round(value))

    def chosen(self, quick: bool) -> tuple[float, ...]:
        return self.values[: self.quick] if quick else self.values


Runs = dict[tuple[str, str, Setting], list[Measured]]


def seed_of(method: Method, at: Setting, repetition: int) -> list[int]:
    return [zlib.crc32(f"{method.name} {method.problem}".encode()), at.n, round(1e6 * at.rho), at.d, repetition]


class Job(NamedTuple):
    """One run: a setting of a method, and which of its repetitions."""

    method: Method
    at: Setting
    repetition: int


def run_job(job: Job) -> Measured:
    return job.method.measure(job.at, np.random.default_rng(seed_of(job.method, job.at, job.repetition)))


def jobs_of(sweeps: Sequence[Sweep], quick: bool, repetitions: int) -> list[Job]:
    """Return every setting as often as the sweep that wants it most often; sweeps share settings."""
    wanted: dict[tuple[str, str, Setting], tuple[Method, int]] = {}
    for sweep in sweeps:
        for at in map(sweep.setting, sweep.chosen(quick)):
            key = (sweep.method.name, sweep.method.problem, at)
            before = wanted[key][1] if key in wanted else 0
            times = min(sweep.times, QUICK_TIMES) if quick else sweep.times
            wanted[key] = (sweep.method, max(before, times * repetitions))
    each = [Job(method, key[2], k) for key, (method, number) in wanted.items() for k in range(number)]
    return sorted(each, key=lambda job: -job.at.n)  # the long ones first, so that no process waits for the other


def run_all(
    sweeps: Sequence[Sweep], quick: bool, repetitions: int, watch: Callable[[float], None], workers: int
) -> Runs:
    """Measure all, in several processes; seeds belong to the runs, so that it does not matter which one takes them."""
    jobs = jobs_of(sweeps, quick, repetitions)
    work = [2.0**10 + min(job.at.n, 2**16) for job in jobs]  # about proportional to the time
    runs: Runs = {}
    done = 0.0
    with ExitStack() as stack:
        if workers > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(workers))
            found: Iterator[Measured] = pool.imap(run_job, jobs)
        else:
            found = map(run_job, jobs)
        for job, took, measured in zip(jobs, work, found, strict=True):
            runs.setdefault((job.method.name, job.method.problem, job.at), []).append(measured)
            done += took
            watch(done / sum(work))
    return runs


class Point(NamedTuple):
    """The worst problem's mean, its standard error and how many runs it is from."""

    x: float
    mean: float
    error: float
    runs: int
    bound: float


def point(sweep: Sweep, x: float, runs: Runs) -> Point:
    at = sweep.setting(x)
    each = np.stack([measured[sweep.of] for measured in runs[sweep.method.name, sweep.method.problem, at]])
    worst = each[:, each.mean(axis=0).argmax()]
    error = float(worst.std(ddof=1)) / math.sqrt(len(worst))
    return Point(x, float(worst.mean()), error, len(worst), (sweep.expected or sweep.method.bound)(at))


def fitted(points: Sequence[Point]) -> Slope:
    """Return the exponent, and its 95 % interval."""
    return slope_of([p.x for p in points], [Mean(p.mean, p.error, p.runs) for p in points])


def evaluate(sweep: Sweep, quick: bool, runs: Runs) -> dict[str, Any]:
    """Return what JSON holds of a sweep."""
    points = [point(sweep, x, runs) for x in sweep.chosen(quick)]
    slope, low, high = fitted(points)
    of_bound = float(np.polyfit(np.log([p.x for p in points]), np.log([p.bound for p in points]), 1)[0])
    kept = ("n", "rho", "d")
    held = {k: v for k, v in zip(kept, sweep.fixed, strict=True) if v}
    return {
        "row": sweep.row, "method": sweep.method.name, "problem": sweep.method.problem, "regime": sweep.regime,
        "varied": sweep.varied, "of": sweep.of, "fixed": held, "theorem": str(sweep.theorem), "judged": sweep.judged,
        "slope": slope, "low": low, "high": high, "slope_of_bound": of_bound,
        "of_bound": max(p.mean / p.bound for p in points), "points": [p._asdict() for p in points],
    }  # fmt: skip


def near(wanted: float, low: float, high: float, tolerance: float = TOLERANCE) -> bool | None:
    """Say whether what lies within [low, high] is about what is wanted; None: not decided."""
    if high < wanted - tolerance or low > wanted + tolerance:
        return False
    return True if high - low <= 4.0 * tolerance else None


def together(each: Sequence[bool | None]) -> bool | None:
    """Say whether all held; None if some are not decided and none was missed."""
    if False in each:
        return False
    return None if None in each else True


def not_slower(result: dict[str, Any]) -> bool | None:
    """Say whether an exponent is at most the theorem's, or at most what its bound has on the very same points.

    The bound has the logarithms and the smaller terms that the theorem's power leaves out. None: not decided.
    """
    limit = max(float(Fraction(result["theorem"])), result["slope_of_bound"])
    return at_most(limit + TOLERANCE, result["low"], result["high"])


def as_in_the_theorem(result: dict[str, Any]) -> str:
    """Say how a fitted exponent lies to the theorem's."""
    theorem = float(Fraction(result["theorem"]))
    if result["high"] < theorem:
        return "faster"
    return "slower" if result["low"] > theorem else "inside"
