"""What a coupling works on, and what it says in the end. In the words of the proofs: docs/guarantee.md#couplings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from expunge.base.grid import NoiseGrid
from expunge.base.types import Array, Draws
from expunge.engine.contributions import Totals
from expunge.engine.mechanisms.noise import NoiseSource
from expunge.engine.mechanisms.protocol import Mechanism, longest_pull
from expunge.engine.randomness import Randomness
from expunge.engine.sums import Sums
from expunge.engine.transcript import Path, Rows


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

    def new_sum(self, step: int) -> Array:
        """Return the new sum of a step along the stored path, as it is to be kept."""
        if not self.grid.exact:
            return self.edited.total(step, self.path_to(step))
        change = self.edited.shift(step, self.path_to(step)).sum
        return np.asarray(self.sums[step] + change)

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
