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
from expunge.engine.changing import chance_of_replay, decide
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

    def times(self, factor: float) -> Mean:
        return Mean(self.mean * factor, self.error * factor, self.runs)

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
    deciding: float
    """The part of the complexity that has nothing to do with replays: what it takes to decide about one."""


SEEN = 8
"""A point takes part in a fit if at least so many of its deletions replayed: of fewer the mean says too little."""
REAL = 24
"""How many of the deletions are carried out, at most; of the others only the coins are tossed."""


def cost_of_deletions(
    learner: Learner,
    records: MemoryRecords,
    transcript: Transcript,
    learned: int,
    number: int,
    rng: np.random.Generator,
) -> Cost:
    """Delete records drawn at random, each from the same transcript: every deletion is rolled back.

    Some are carried out, and their evaluations counted. For the others the engine tosses its coins; if they say replay
    from some step on, that takes an evaluation for each record of the later steps, as those carried out must confirm.
    """
    drawn = rng.choice(records.count, min(number, records.count), replace=False).tolist()
    later = _records_after(learner, records, transcript)
    evaluations, replays, deciding = 0.0, 0, []
    for one in drawn[:REAL]:
        deletion = change(learner, records, transcript, Delete([one]), rng)
        deletion.rollback()
        outcome = deletion.outcome
        replayed = 0.0 if outcome.replayed_from is None else float(later[outcome.replayed_from])
        chance = 0.0 if learner.schedule.rate == 1.0 else 6.0 * math.sqrt(learned)  # who joins which round
        if not -chance <= outcome.evaluations - replayed <= chance + 32.0 * learned / transcript.steps:
            raise AssertionError(f"{outcome.evaluations} evaluations, of which {replayed} should be the replay")
        evaluations += outcome.evaluations
        deciding.append(outcome.evaluations - replayed)
        replays += not outcome.kept
    decided = max(0.0, float(np.mean(deciding)))
    for one in drawn[REAL:]:
        first = decide(learner, records, transcript, Delete([one]), rng).first
        evaluations += decided + (0.0 if first is None else float(later[first]))
        replays += first is not None
    return Cost(evaluations / len(drawn) / learned, replays / len(drawn), decided / learned)


def enough_deletions(
    learner: Learner, records: MemoryRecords, transcript: Transcript, replays: float, rng: np.random.Generator
) -> float:
    """Return how many deletions it takes to see so many replays, judged by how likely 40 random ones are to replay."""
    drawn = rng.choice(records.count, min(40, records.count), replace=False).tolist()
    chances = [chance_of_replay(learner, records, transcript, Delete([one])) for one in drawn]
    return replays / max(float(np.mean(chances)), 1e-6)


def has_replays(point: dict[str, Any]) -> bool:
    """Say whether enough deletions of a point replayed to speak of its complexity."""
    return bool(point["replays"]["mean"] * point["deletions"] >= SEEN - 0.5)


def _records_after(learner: Learner, records: MemoryRecords, transcript: Transcript) -> Array:
    """Return how many evaluations the steps after each one take."""
    steps, schedule = transcript.steps, learner.schedule
    if schedule.touches_everyone:
        each = np.full(steps, records.count * schedule.rate)
    else:
        each = np.array([len(records.ids_at(schedule.place(step))) for step in range(steps)], dtype=float)
    return np.append(each[::-1].cumsum()[::-1][1:], 0.0)


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

    def logs(self) -> tuple[Array, Array]:
        """Return the logarithms of the points, ascending in x."""
        return _ascending(*(np.log([at.mean for at in axis]) for axis in self))

    def drawn(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return logarithms of the points as they might have come out, ascending in x."""
        return _ascending(*(
            np.array([math.log(at.mean) + at.error / at.mean * rng.standard_t(at.runs - 1) for at in axis])
            for axis in self
        ))  # fmt: skip


def _ascending(x: Array, y: Array) -> tuple[Array, Array]:
    order = np.argsort(x)
    return x[order], y[order]


def ratio_at_equal_x(
    one: Curve, other: Curve, part: tuple[float, float] = (0.0, 1.0), draws: int = 400
) -> tuple[float, float, float] | None:
    """Return how many times higher ``one`` is than ``other`` where both have values of x, and its 95 % interval.

    It is the geometric mean over a part of the common range (0: its lower end, 1: its upper one), by interpolation of
    logarithms; the interval is bootstrapped. Without a common range there is no ratio.
    """
    rng = np.random.default_rng(0)
    if min(len(one.x), len(other.x)) < 2:
        return None
    ends = [(logs[0][0], logs[0][-1]) for logs in (one.logs(), other.logs())]
    if max(end[0] for end in ends) >= min(end[1] for end in ends):
        return None

    def ratio(a: tuple[Array, Array], b: tuple[Array, Array]) -> float:
        low, high = max(a[0][0], b[0][0]), min(a[0][-1], b[0][-1])
        at = np.linspace(low + part[0] * (high - low), low + part[1] * (high - low), 50)
        return float(np.mean(np.interp(at, *a) - np.interp(at, *b)))

    low, high = np.quantile([ratio(one.drawn(rng), other.drawn(rng)) for _ in range(draws)], [0.025, 0.975])
    found = np.exp(np.clip([ratio(one.logs(), other.logs()), low, high], -50.0, 50.0))
    return float(found[0]), float(found[1]), float(found[2])


def pooled(shares: Sequence[Mean]) -> tuple[float, float, float]:
    """Return the mean of several independent means, and its 95 % interval."""
    mean = float(np.mean([share.mean for share in shares]))
    error = math.sqrt(sum(share.error**2 for share in shares)) / len(shares)
    half = float(stats.t.ppf(0.975, min(share.runs for share in shares) - 1)) * error
    return mean, mean - half, mean + half


# --- decisions ------------------------------------------------------------------------------------------


def at_most(limit: float, low: float, high: float) -> bool | None:
    """Say whether something within [low, high] is at most ``limit``; None if that is not decided."""
    if high <= limit:
        return True
    return False if low > limit else None


def all_at_most(limit: float, shares: Sequence[Mean]) -> bool | None:
    """Say whether all of these are at most ``limit``: their mean is, and none is above it by more than chance does."""
    for share in shares:
        far = float(stats.t.ppf(1.0 - 0.0005 / len(shares), share.runs - 1)) * share.error
        if share.mean - far > limit:
            return False
    return at_most(limit, *pooled(shares)[1:])


def at_least(limit: float, low: float, high: float) -> bool | None:
    """Say whether something within [low, high] is at least ``limit``; None if that is not decided."""
    if low >= limit:
        return True
    return False if high < limit else None
