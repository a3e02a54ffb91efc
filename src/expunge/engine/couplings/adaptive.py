"""The adaptive coupling: one coin for all rounds, within a budget that is fixed before any noise is looked at.

For mechanisms whose rows have noise of their own (`Identity`). Not in the paper, whose coins go row by row.
Proof: docs/guarantee.md#adaptive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from expunge.base.grid import dithered
from expunge.base.types import Array
from expunge.engine.contributions import Totals
from expunge.engine.couplings.common import (
    Bridge,
    OldPass,
    Verdict,
    changes,
    keeps,
    pooled_projection,
    replay_probability,
)
from expunge.engine.couplings.sequential import whitened


def adaptive(old: OldPass) -> Verdict:
    """Decide once for all rows, within a budget fixed beforehand."""
    verdict = Verdict()
    if not old.touched:
        return verdict
    found = changes(old)
    budget = float(allowances(old, found.parts).sum())
    kept = dict(zip(old.touched, found.sums, strict=True))
    if budget == 0.0:
        verdict.sums = kept
        return verdict
    distances, projections = whitened(old, found.shifts)
    pooled = pooled_projection(distances, projections, budget, old.coins)
    verdict.probabilities.append(replay_probability(math.sqrt(budget)))
    if keeps(math.sqrt(budget), pooled, old.coins):
        verdict.sums = kept
        return verdict
    position = int(np.argmax(found.parts.evaluations > 0))
    first = old.touched[position]
    verdict.sums = {step: row for step, row in kept.items() if step < first}
    bridge = Bridge(-math.sqrt(budget) * pooled, budget)
    source = _BridgedNoise(old, frozenset(old.touched), bridge)
    return verdict.replay(first, source, found.sums[position])


def allowances(old: OldPass, parts: Totals) -> Array:
    """Return how much of the squared shift each row may take up, on whatever path: it must not look at the shifts."""
    limits = parts.evaluations * old.bound if parts.norm_limit is None else parts.norm_limit
    limits = limits + (parts.evaluations > 0) * old.grid.extra(parts.sums.shape[1])
    return np.asarray((limits / old.sigma) ** 2)


@dataclass
class _BridgedNoise:
    """The noise of an adaptive replay: fresh, but for the part along the shift, which adds up to what is due."""

    old: OldPass
    touched: frozenset[int]
    bridge: Bridge

    def wants_shift(self, step: int) -> bool:
        return step in self.touched

    def row(self, step: int, shift: Array | None) -> Array:
        sigma, unit, draws = self.old.sigma, self.old.grid.unit, self.old.draws
        xi = sigma * draws.standard_normal(self.old.sums.shape[1])
        length = 0.0 if shift is None else math.sqrt(shift @ shift)
        if shift is None or length == 0.0:
            return dithered(xi, unit, draws)
        direction, distance = shift / length, length / sigma
        xi += (sigma * self.bridge.draw(distance, draws) - xi @ direction) * direction
        noise = dithered(xi, unit, draws)
        self.bridge = self.bridge.beyond(distance, float(noise @ direction) / sigma)
        return noise
