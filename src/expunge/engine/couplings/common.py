"""What all couplings have in common: sums and the grid on which they meet the noise, the stored pass, one coin.

A coupling works on an `OldPass`, tosses coins, and says in the end what a `Verdict` holds. In the words of the proofs:
docs/guarantee.md#couplings.

The coin is in units in which the noise is standard normal. It is that of the maximal coupling of two Gaussians by
rejection and reflection, as in Ullah, Mai, Rao, Rossi & Arora (2021), "Machine unlearning via algorithmic stability";
the jump does on a grid what the reflection does without one. Proofs: docs/guarantee.md#reflection,
docs/guarantee.md#the-jump, and for what is pooled and bridged docs/guarantee.md#adaptive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from expunge.base.grid import FINENESS
from expunge.base.types import Array, Draws
from expunge.engine.contributions import Contributors, Participation, Query, Total, Totals
from expunge.engine.mechanisms.noise import NoiseSource
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.randomness import Randomness
from expunge.engine.schedules import Schedule
from expunge.engine.transcript import Path, Rows

COUPLINGS = ("joint", "sequential", "adaptive", "likelihood", "keys")


class Toss(NamedTuple):
    """Whether the noise is kept, and by which whole multiple of the shift it moves."""

    kept: bool
    move: float

    def moved(self, shift: Array) -> Array:
        """Return by how much the noise moves."""
        return shift if self.kept else self.move * shift


KEPT = Toss(True, 1.0)


def replay_probability(shift: float) -> float:
    """Return 2Φ(A/2) - 1, the total variation distance of two unit Gaussians at distance A.

    >>> round(replay_probability(0.25), 4)
    0.0995
    """
    return math.erf(shift / (2.0 * math.sqrt(2.0)))


def keeps(shift: float, projection: float, coins: Draws) -> bool:
    """Toss the coin: keep with probability min(1, exp(A·S - A²/2)), the ratio of the two densities.

    ``shift`` is the distance A of the two means and ``projection`` the noise S along their difference.
    """
    return bool(-coins.standard_exponential() <= shift * projection - 0.5 * shift * shift)


def keep_or_jump(shift: float, projection: float, coins: Draws) -> Toss:
    """Turn noise about the old mean into noise about the new, unchanged in sum as often as any method can.

    Kept, the noise moves by the whole shift, so that mean plus noise stays as it was. Otherwise it jumps by a whole
    multiple of the shift, so that it stays on the grid, to where noise about the new mean is still due. Either way it
    has the law that it had. (docs/guarantee.md#the-jump)
    """
    if shift == 0.0 or keeps(shift, projection, coins):
        return KEPT
    mode = math.ceil(-projection / shift - 0.5)
    beyond = (shift * mode + projection) ** 2 + 2.0 * coins.standard_exponential()
    return Toss(False, -float(math.floor((math.sqrt(beyond) - projection) / shift)))


def pooled_projection(
    shifts: Sequence[float] | Array, projections: Sequence[float] | Array, budget: float, coins: Draws
) -> float:
    """Return S, standard normal whatever the path was, from all rows' projections and one fresh normal.

    ``budget`` is A² ≥ Σ aₜ², fixed before any noise was looked at. (docs/guarantee.md#adaptive)
    """
    a = np.asarray(shifts)
    spent = float(a @ a)
    rest = math.sqrt(max(budget - spent, 0.0))
    return (float(a @ np.asarray(projections)) + rest * coins.standard_normal()) / math.sqrt(budget)


class Bridge(NamedTuple):
    """What the rows still to come must add up to: Σ aₜ xₜ = ``due`` out of a budget ``left``."""

    due: float
    left: float

    def draw(self, shift: float, draws: Draws) -> float:
        """Draw the projection x of the next row, whose shift is a, given what is due."""
        share = shift / self.left
        spread = math.sqrt(max(1.0 - shift * share, 0.0))
        return float(share * self.due + spread * draws.standard_normal())

    def beyond(self, shift: float, projection: float) -> Bridge:
        """Return what is due after a row with this projection."""
        left = self.left - shift * shift
        return Bridge(self.due - shift * projection, left if left > 0.0 else math.inf)


def rounded(numbers: Array, unit: float) -> Array:
    """Round to the nearest multiple of ``unit``, a power of two; there is one zero, the positive one.

    To add 1.5·2⁵² units leaves no room for anything finer than one.

    >>> rounded(np.array([0.8, -0.7, -0.1]), 0.5).tolist()
    [1.0, -0.5, 0.0]
    """
    much = 1.5 * 2.0**52 * unit
    shifted = numbers + much
    shifted -= much
    return shifted


@dataclass(frozen=True)
class NoiseGrid:
    """Where sums and noise meet: all answers are multiples of ``unit``, and nothing that is added is ever rounded.

    Without noise there is no grid (``unit`` is 0). With ``exact`` the sums that are kept have a grid of their own, and
    are rounded only where they meet the noise; else they are kept as they meet it. (docs/guarantee.md#the-grid)
    """

    unit: float
    exact: bool

    @classmethod
    def of(cls, smallest: float, exact: bool) -> NoiseGrid:
        """Return the grid for noise whose rows have at least this standard deviation.

        >>> NoiseGrid.of(1.5, False).unit == 2.0**-24
        True
        """
        return cls(2.0 ** (math.floor(math.log2(smallest)) - FINENESS) if smallest > 0.0 else 0.0, exact)

    def kept(self, sums: Array) -> Array:
        """Return sums as they are kept."""
        return sums if self.exact or self.unit == 0.0 else rounded(sums, self.unit)

    def met(self, sums: Array) -> Array:
        """Return sums, which are kept so, as they meet the noise."""
        return rounded(sums, self.unit) if self.exact and self.unit > 0.0 else sums

    def extra(self, size: int) -> float:
        """Return by how much, at most, rounding makes the change of a sum of ``size`` numbers longer."""
        return math.sqrt(size) * self.unit


class Summing(Protocol):
    """What is known of a learner's sums before any record is seen."""

    @property
    def query(self) -> Query:
        """What a record contributes."""

    @property
    def schedule(self) -> Schedule:
        """Which place a step visits."""

    @property
    def participation(self) -> Participation:
        """How a step takes its records."""

    @property
    def grid(self) -> NoiseGrid:
        """Where sums and noise meet."""


class Sums:
    """A learner's sums over some records; once an edit is staged, over the records that it leaves.

    What a coin depends on is summed before it is tossed, all of it: an error that came up only after some of its
    outcomes would be a bias.
    """

    __slots__ = ("above", "evaluations", "grid", "participation", "query", "records", "schedule")

    def __init__(self, records: Contributors, learner: Summing) -> None:
        self.records = records
        self.query, self.schedule = learner.query, learner.schedule
        self.participation, self.grid = learner.participation, learner.grid
        self.evaluations = 0
        """How many contributions were computed so far."""
        self.above = 0
        """How many of them were above the bound."""

    def total(self, step: int, path: Path) -> Array:
        """Return the sum of a step, as it is kept."""
        place = self.schedule.place(step)
        return self.grid.kept(self._counted(self.records.total(place, step, path, self.query, self.participation)).sum)

    def before(self, step: int, path: Path) -> Array:
        """Return the sum of a step without the staged edit, as it would be kept."""
        place = self.schedule.place(step)
        return self.grid.kept(self._counted(self.records.before(place, step, path, self.query, self.participation)).sum)

    def shift(self, step: int, path: Path) -> Total:
        """Sum what enters a step by the staged edit, minus what leaves it."""
        place = self.schedule.place(step)
        return self._counted(self.records.shift(place, step, path, self.query, self.participation))

    def shifts(self, steps: list[int], path: Path) -> Totals:
        """Return the shifts of several steps, all of one place, along a path that goes beyond them."""
        place = self.schedule.place(steps[0])
        found = self.records.shifts(place, steps, path, self.query, self.participation)
        self.evaluations += int(found.evaluations.sum())
        self.above += int(found.above.sum())
        return found

    def changed(self, step: int, path: Path, stored: Array) -> Total:
        """Return the exact sum of a step, which is stored, as the staged edit changes it."""
        place = self.schedule.place(step)
        return self._counted(self.records.changed(place, step, path, self.query, self.participation, stored))

    def _counted(self, total: Total) -> Total:
        self.evaluations += total.evaluations
        self.above += total.above
        return total


def longest_pull(mechanism: Mechanism, steps: int) -> float:
    """Return a bound on the sum of |pull| of any step: a node on each height of a tree counts twice.

    (Of the square root it grows by 0.44 with each doubling of the steps.)
    """
    return 2.0 * steps.bit_length() / mechanism.smallest_scale**2


@dataclass(frozen=True)
class OldPass:
    """What a reconciliation works on: the stored rows, before the change."""

    mechanism: Mechanism
    sigma: float
    bound: float
    start: Array
    sums: Rows
    answers: Rows
    iterates: Rows
    steps: int
    """How many rows there are."""
    touched: list[int]
    """The steps whose records change, ascending, below the horizon."""
    horizon: int
    """Coins look at rows below this one only."""
    grid: NoiseGrid
    """Where sums and noise meet. If sums are exact, a kept one can be changed by adding."""
    largest: float
    """No sum that answers are made of is larger, as long as contributions are within the bound."""
    randomness: Randomness
    edited: Sums
    """What steps sum to once the request is done."""
    finish: int | None = None
    """The last step, where it only sums and draws nothing."""

    @property
    def rounds(self) -> int:
        """How many steps draw something, in a pass of draws."""
        return self.steps if self.finish is None else self.finish

    @property
    def coins(self) -> Draws:
        """What is tossed."""
        return self.randomness.coins

    @property
    def draws(self) -> Draws:
        """Where new noise comes from."""
        return self.randomness.noise

    def path_to(self, step: int) -> Path:
        """Return the stored iterates that step ``step`` could see."""
        return Path(self.start, self.iterates, step)

    def noise(self, stop: int) -> Array:
        """Return the stored noise N = a - R P, rows below ``stop``."""
        return self.since(-1, stop)[0]

    def since(self, base: int, stop: int, changed: Mapping[int, Array] | None = None) -> tuple[Array, Array]:
        """Return the noise of the rows from ``base`` on, less that of row ``base``, and the sum of all below ``stop``.

        The sum is counted from the answer of row ``base``, so that nothing before it is read; without noise it is then
        the same to the last bit. A ``base`` of -1 is where all starts: noise and sum themselves. ``changed`` are sums
        that are to take the place of the stored ones.
        """
        first = max(base, 0)
        sums = self.grid.met(self.sums[first:stop].copy())
        for step, row in (changed or {}).items():
            if first <= step < stop:
                sums[step - first] = self.grid.met(row)
        answers = self.answers[first:stop]
        if not self.mechanism.prefix:
            return answers - sums, np.zeros(sums.shape[1])
        if base >= 0:
            sums[0] = answers[0]
        running = np.cumsum(sums, axis=0, out=sums)
        return answers - running, running[-1].copy() if len(running) else np.zeros(sums.shape[1])

    def changed(self, step: int) -> tuple[Array, Array]:
        """Return the new sum of a step along the stored path, as it is to be kept, and its `shift`."""
        path, stored = self.path_to(step), self.sums[step]
        new = self.edited.changed(step, path, stored).sum if self.grid.exact else self.edited.total(step, path)
        return new, np.asarray(self.grid.met(new) - self.grid.met(stored))

    def shift(self, step: int, new: Array) -> Array:
        """Return by how much a step's sum changes, as it meets the noise."""
        return np.asarray(self.grid.met(new) - self.grid.met(self.sums[step]))

    def lost(self, shift: Array, running: Array) -> float:
        """Return how much a coin can be off that multiplies answers and sums by a shift before it subtracts them.

        ``running`` are the running sums of these products. (docs/guarantee.md#what-is-rounded)
        """
        products = 2.0 * len(shift) * self.largest * math.sqrt(shift @ shift)
        sums = len(running) * float(np.abs(running).max())
        return longest_pull(self.mechanism, self.horizon) * (products + sums) * 2.0**-53 / self.sigma**2

    def only_adds(self, step: int) -> bool:
        """Say whether, without noise, all that a change from this step on takes is to add to its sum."""
        return self.sigma == 0.0 and self.grid.exact and step == self.horizon - 1


@dataclass
class Verdict:
    """Which sums change while the path is kept, and from where on (and with which noise) it is replayed."""

    sums: dict[int, Array] = field(default_factory=dict)
    first: int | None = None
    noise: NoiseSource | None = None
    probabilities: list[float] = field(default_factory=list)
    known: Array | None = None
    """The new sum of the first replayed row, where it is known: its path is the old one."""
    drawn: Array | None = None
    """What the first replayed row has drawn, where rounds are draws."""

    def replay(self, step: int, noise: NoiseSource, known: Array | None = None) -> Verdict:
        """Say that rows are replayed from a step on, whose new sum may be known."""
        self.first, self.noise, self.known = step, noise, known
        return self


class Changes(NamedTuple):
    """What an edit changes of all touched steps along the stored path: a row, or a number, for each."""

    sums: Array
    """The new sums."""
    shifts: Array
    """By how much sums change, as they meet the noise."""
    parts: Totals
    """What enters and leaves, summed by itself."""


def changes(old: OldPass) -> Changes:
    """Return what the edit changes of every touched step along the stored path."""
    touched = old.touched
    stored = old.sums[touched]
    if old.grid.exact:
        parts = old.edited.shifts(touched, old.path_to(old.horizon))
        sums = stored + parts.sums
    else:
        each, totals = [], []
        for step in touched:
            path = old.path_to(step)
            each.append(old.edited.shift(step, path))
            totals.append(old.edited.total(step, path))
        parts, sums = Totals.of(each), np.stack(totals)
    return Changes(sums, old.grid.met(sums) - old.grid.met(stored), parts)
