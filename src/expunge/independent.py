"""Reconciling where every row has noise of its own (`Identity`): all touched steps are looked at together.

Proofs: docs/guarantee.md#sequential and docs/guarantee.md#adaptive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from expunge.coupling import Bridge, keep_or_jump, keeps, pooled_projection, replay_probability
from expunge.forward import GivenNoise
from expunge.grid import dithered
from expunge.records import Totals
from expunge.types import Array
from expunge.verdicts import Reconciliation, Setting, Verdict, changes


def row_by_row(setting: Setting) -> Reconciliation:
    """Keep each row, or let it jump, by itself; after the first jump no more coins."""
    verdict = Verdict()
    if not setting.touched:
        return verdict
    found = yield from changes(setting)
    distances, projections = _whitened(setting, found.shifts)
    for position, (distance, projection) in enumerate(zip(distances.tolist(), projections.tolist(), strict=True)):
        row, new = setting.touched[position], found.sums[position]
        verdict.probabilities.append(replay_probability(distance))
        decision = keep_or_jump(distance, projection, setting.coins)
        if not decision.kept:
            noise = setting.noise(setting.horizon)
            noise[row] -= decision.moved(found.shifts[position])
            return verdict.replay(row, GivenNoise(noise), new)
        verdict.sums[row] = new
    return verdict


def adaptive(setting: Setting) -> Reconciliation:
    """Decide once for all rows, within a budget fixed beforehand."""
    verdict = Verdict()
    if not setting.touched:
        return verdict
    found = yield from changes(setting)
    budget = float(allowances(setting, found.parts).sum())
    kept = dict(zip(setting.touched, found.sums, strict=True))
    if budget == 0.0:
        verdict.sums = kept
        return verdict
    distances, projections = _whitened(setting, found.shifts)
    pooled = pooled_projection(distances, projections, budget, setting.coins)
    verdict.probabilities.append(replay_probability(math.sqrt(budget)))
    if keeps(math.sqrt(budget), pooled, setting.coins):
        verdict.sums = kept
        return verdict
    position = int(np.argmax(found.parts.evaluations > 0))
    first = setting.touched[position]
    verdict.sums = {step: row for step, row in kept.items() if step < first}
    bridge = Bridge(-math.sqrt(budget) * pooled, budget)
    source = _BridgedNoise(setting, frozenset(setting.touched), bridge)
    return verdict.replay(first, source, found.sums[position])


def _whitened(setting: Setting, shifts: Array) -> tuple[Array, Array]:
    """Return, for each touched row, how far it shifts and the noise along that, in units of its standard deviation."""
    touched = setting.touched
    scales = setting.sigma * setting.mechanism.scales(setting.horizon)[touched]
    lengths = np.sqrt(np.einsum("ij,ij->i", shifts, shifts))
    noise = setting.answers[touched] - setting.grid.met(setting.sums[touched])
    along = np.einsum("ij,ij->i", noise, shifts)
    return lengths / scales, along / (scales * np.where(lengths > 0.0, lengths, 1.0))


def allowances(setting: Setting, parts: Totals) -> Array:
    """Return how much of the squared shift each row may take up, on whatever path: it must not look at the shifts."""
    reach = parts.evaluations * setting.bound if parts.reach is None else parts.reach
    reach = reach + (parts.evaluations > 0) * setting.grid.extra(parts.sums.shape[1])
    return np.asarray((reach / setting.sigma) ** 2)


@dataclass
class _BridgedNoise:
    """The noise of an adaptive replay: fresh, but for the part along the shift, which adds up to what is due."""

    setting: Setting
    touched: frozenset[int]
    bridge: Bridge

    def wants_shift(self, step: int) -> bool:
        return step in self.touched

    def row(self, step: int, shift: Array | None) -> Array:
        sigma, unit, draws = self.setting.sigma, self.setting.grid.unit, self.setting.draws
        xi = sigma * draws.standard_normal(self.setting.sums.shape[1])
        length = 0.0 if shift is None else math.sqrt(shift @ shift)
        if shift is None or length == 0.0:
            return dithered(xi, unit, draws)
        direction, distance = shift / length, length / sigma
        xi += (sigma * self.bridge.draw(distance, draws) - xi @ direction) * direction
        noise = dithered(xi, unit, draws)
        self.bridge = self.bridge.beyond(distance, float(noise @ direction) / sigma)
        return noise
