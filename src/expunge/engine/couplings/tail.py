"""Row T* of ordered schedules, and the rows after it: recomputed, dropped or drawn again, whatever the coins said.

For the schedules of Ullah & Arora (2023): a permutation, or a stream. Proof: docs/guarantee.md#ordered-schedules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expunge.base.grid import dithered
from expunge.base.types import Array
from expunge.engine.couplings.common import OldPass, Verdict
from expunge.engine.mechanisms.noise import NoiseSource, SameNoise


@dataclass
class Tail:
    """Noise of an ordered schedule: row ``horizon`` stays as it is, or keeps its ξ; other rows get fresh ones.

    (docs/guarantee.md#ordered-schedules)
    """

    old: OldPass
    inner: NoiseSource | None
    first: int
    history: Array
    """The new noise from row ``first`` on; rows below the first recomputed one are filled in."""
    xi_at_horizon: Array | None
    """The ξ of row ``horizon``, where it is on the grid."""
    row_at_horizon: Array | None
    """The noise of that row, where that of the rows before it is what it was."""

    def wants_shift(self, step: int) -> bool:
        """Ask the source of the earlier rows."""
        return self.inner is not None and step < self.old.horizon and self.inner.wants_shift(step)

    def row(self, step: int, shift: Array | None) -> Array:
        """Return the row, and remember it for the rows that continue it."""
        old, row = self.old, step - self.first
        if step < old.horizon:
            assert self.inner is not None
            self.history[row] = self.inner.row(step, shift)
        elif old.sigma == 0.0:
            self.history[row] = 0.0
        else:
            self.history[row] = self._at_horizon() if step == old.horizon else self._fresh(step)
        return self.history[row]

    def _at_horizon(self) -> Array:
        if self.row_at_horizon is not None:
            return self.row_at_horizon
        step = self.old.horizon
        if self.xi_at_horizon is None:
            return self._fresh(step)
        return self.old.mechanism.carry(self.history, step, self.first) + self.xi_at_horizon

    def _fresh(self, step: int) -> Array:
        old = self.old
        scale = old.sigma * old.mechanism.scale_of(step)
        xi = scale * old.draws.standard_normal(self.history.shape[1])
        carry = old.mechanism.carry(self.history, step, self.first)
        return dithered(carry + xi, old.grid.unit, old.draws)


def with_tail(old: OldPass, verdict: Verdict, before: int, after: int) -> Array:
    """Let the rows from the horizon on be recomputed, whatever was decided about the earlier ones.

    Return the sum up to the first recomputed row. If the earlier ones are kept, only rows that the new ones continue
    are read: an append to a tree costs the same however long it is.
    """
    horizon, mechanism = old.horizon, old.mechanism
    one_row = verdict.first is None and old.sigma > 0.0 and after == horizon + 1 <= before
    if one_row and (mechanism.whole or not verdict.sums):
        return _with_last_row(old, verdict)
    base = -1
    if verdict.first is None:
        base = horizon - 1 if old.sigma == 0.0 else min([horizon - 1, *map(mechanism.continues, range(horizon, after))])
    xi = row = None
    if old.sigma > 0.0 and horizon < min(before, after):
        noise = old.since(base, horizon + 1)[0]
        if verdict.first is None and not verdict.sums:
            row = noise[-1]
        elif mechanism.whole:
            xi = noise[-1] - mechanism.carry(noise, horizon, max(base, 0))
    verdict.first = horizon if verdict.first is None else verdict.first
    known, running = old.since(base, verdict.first, verdict.sums)
    first = max(base, 0)
    history = np.zeros((after - first, old.sums.shape[1]))
    history[: len(known)] = known
    verdict.noise = Tail(old, verdict.noise, first, history, xi, row)
    return running


def _with_last_row(old: OldPass, verdict: Verdict) -> Array:
    """Recompute the row at the horizon alone: answers before it stay, so it moves by what it sees of changed sums."""
    step = old.horizon
    rest = old.answers[step] - old.grid.met(old.sums[step])
    for touched, row in verdict.sums.items():
        weight = old.mechanism.weight(step, touched)
        if weight != 0.0:
            rest = rest + weight * old.shift(touched, row)
    verdict.first, verdict.noise = step, SameNoise(rest)
    return np.zeros_like(rest)
