"""What chapters share: deletions from one transcript, means with their errors, slopes with intervals, decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from expunge import Delete, MemoryRecords, Transcript, change
from expunge.base.types import Array
from expunge.engine.learner import Learner

TOLERANCE = 0.1
"""A sum of powers is not one power: exponents are told apart if they differ by more than this."""
LEAST_ERROR = 0.02
"""Weights treat no point as known better than to 2 %, so that none decides alone."""


@dataclass(frozen=True)
class Mean:
    """A mean over independent runs, and its standard error."""

    mean: float
    error: float
    runs: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        each = np.array(list(values), dtype=float)
        return cls(float(each.mean()), float(each.std(ddof=1)) / math.sqrt(len(each)), len(each))

    @property
    def half(self) -> float:
        """Half of the 95 % interval (Student's)."""
        return float(stats.t.ppf(0.975, self.runs - 1)) * self.error

    @property
    def interval(self) -> tuple[float, float]:
        return self.mean - self.half, self.mean + self.half

    def __str__(self) -> str:
        return f"{self.mean:.2g} ± {self.half:.1g}"

    def record(self) -> dict[str, Any]:
        """Return what JSON holds of it."""
        return asdict(self)


# --- deletions ------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What deletions of random records cost, on average over one transcript."""

    complexity: float
    """Evaluations of a deletion over those of learning: the paper's relative unlearning complexity."""
    replays: float
    """The share of deletions that replay."""


def cost_of_deletions(
    learner: Learner,
    records: MemoryRecords,
    transcript: Transcript,
    learned: int,
    number: int,
    rng: np.random.Generator,
) -> Cost:
    """Delete records drawn at random, each from the same transcript: every deletion is rolled back."""
    evaluations = replays = 0
    drawn = rng.choice(records.count, min(number, records.count), replace=False).tolist()
    for one in drawn:
        deletion = change(learner, records, transcript, Delete([one]), rng)
        deletion.rollback()
        evaluations += deletion.outcome.evaluations
        replays += not deletion.outcome.kept
    return Cost(evaluations / len(drawn) / learned, replays / len(drawn))


# --- slopes ---------------------------------------------------------------------------------------------


class Slope(NamedTuple):
    """An exponent, and its 95 % interval."""

    slope: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.slope:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def slope_of(x: Sequence[Mean] | Sequence[float], y: Sequence[Mean]) -> Slope:
    """Return the slope of log y against log x by weighted least squares, with Student's interval over the runs.

    Errors of x count as errors of y, multiplied by the slope.
    """
    log_x = np.log([at.mean if isinstance(at, Mean) else at for at in x])
    log_y = np.log([at.mean for at in y])
    rough = float(np.polyfit(log_x, log_y, 1)[0])
    of_x = np.array([at.error / at.mean if isinstance(at, Mean) else 0.0 for at in x])
    relative = np.array([at.error / at.mean for at in y]) ** 2 + (rough * of_x) ** 2
    weights = 1.0 / (relative + LEAST_ERROR**2)
    centred = log_x - np.average(log_x, weights=weights)
    pull = weights * centred / np.sum(weights * centred**2)
    slope, each = float(pull @ log_y), pull**2 * relative
    if not each.any():
        return Slope(slope, slope, slope)
    freedom = each.sum() ** 2 / np.sum(each**2 / (np.array([at.runs for at in y]) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(each.sum())
    return Slope(slope, slope - half, slope + half)


class Curve(NamedTuple):
    """Points (x, y), both measured."""

    x: list[Mean]
    y: list[Mean]

    def drawn(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return logarithms of the points as they might have come out, ascending in x."""
        moved = [
            np.array([math.log(at.mean) + at.error / at.mean * rng.standard_t(at.runs - 1) for at in axis])
            for axis in self
        ]
        order = np.argsort(moved[0])
        return moved[0][order], moved[1][order]


def ratio_at_equal_x(
    one: Curve, other: Curve, rng: np.random.Generator, draws: int = 400
) -> tuple[float, float, float]:
    """Return how many times higher ``one`` is than ``other`` where both have values of x, and its 95 % interval.

    It is the geometric mean over the common range, by interpolation of logarithms; the interval is bootstrapped.
    """

    def ratio(a: tuple[Array, Array], b: tuple[Array, Array]) -> float:
        low, high = max(a[0][0], b[0][0]), min(a[0][-1], b[0][-1])
        at = np.linspace(low, high, 50)
        return float(np.mean(np.interp(at, *a) - np.interp(at, *b)))

    def logs(curve: Curve) -> tuple[Array, Array]:
        found = np.log([[at.mean for at in axis] for axis in curve])
        order = np.argsort(found[0])
        return found[0][order], found[1][order]

    each = np.exp([ratio(one.drawn(rng), other.drawn(rng)) for _ in range(draws)])
    low, high = np.quantile(each, [0.025, 0.975])
    return math.exp(ratio(logs(one), logs(other))), float(low), float(high)


# --- decisions ------------------------------------------------------------------------------------------


def at_most(limit: float, low: float, high: float) -> bool | None:
    """Say whether something within [low, high] is at most ``limit``; None if that is not decided."""
    if high <= limit:
        return True
    return False if low > limit else None


def at_least(limit: float, low: float, high: float) -> bool | None:
    """Say whether something within [low, high] is at least ``limit``; None if that is not decided."""
    if low >= limit:
        return True
    return False if high < limit else None
