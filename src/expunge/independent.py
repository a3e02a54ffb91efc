"""Reconciling where every row has noise of its own (`Identity`): all touched steps are looked at together.

Proofs: docs/guarantee.md#sequential and docs/guarantee.md#adaptive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from expunge.coupling import Bridge, pooled_projection, reflect, replay_probability
from expunge.errors import BadContribution
from expunge.forward import GivenNoise
from expunge.records import Total, Totals
from expunge.types import Array
from expunge.verdicts import Reconciliation, Setting, Verdict, changes

ROUNDING = 1.0 + 1e-9
"""By how much what was computed may be longer than it should."""
TOO_LONG = (
    "a contribution is longer than the query's norms() say, which the adaptive coupling relies on. Return the largest "
    "norm that each can have, on whatever path, or leave norms() out."
)


def row_by_row(setting: Setting) -> Reconciliation:
    """Keep or reflect each row by itself; after the first reflection no more coins."""
    verdict = Verdict()
    if not setting.touched:
        return verdict
    shifts = yield from changes(setting, verdict)
    distances, projections = _whitened(setting, shifts)
    for position, (distance, projection) in enumerate(zip(distances.tolist(), projections.tolist(), strict=True)):
        verdict.probabilities.append(replay_probability(distance))
        decision = reflect(distance, projection, setting.coins)
        if not decision.kept:
            row, noise = setting.touched[position], setting.noise(setting.horizon)
            noise[row] -= decision.moved(shifts.sums[position])
            verdict.sums = {step: kept for step, kept in verdict.sums.items() if step < row}
            return verdict.replay(setting, row, shifts.sums[position], GivenNoise(noise))
    return verdict


def adaptive(setting: Setting) -> Reconciliation:
    """Decide once for all rows, within a budget fixed beforehand."""
    verdict = Verdict()
    if not setting.touched:
        return verdict
    shifts = yield from changes(setting, verdict)
    _check_within(int(shifts.above.sum()))
    allowed = allowances(setting, shifts)
    budget = float(allowed.sum())
    if budget == 0.0:
        return verdict
    distances, projections = _whitened(setting, shifts)
    if (distances**2 > allowed * ROUNDING).any():
        raise BadContribution(TOO_LONG)
    pooled = pooled_projection(distances, projections, budget, setting.coins)
    decision = reflect(math.sqrt(budget), pooled, setting.coins)
    verdict.probabilities.append(replay_probability(math.sqrt(budget)))
    if decision.kept:
        return verdict
    position = int(np.argmax(shifts.evaluations > 0))
    first = setting.touched[position]
    verdict.sums = {step: row for step, row in verdict.sums.items() if step < first}
    bridge = Bridge(-math.sqrt(budget) * pooled, budget)
    source = _BridgedNoise(setting, frozenset(setting.touched), bridge)
    return verdict.replay(setting, first, shifts.sums[position], source)


def _whitened(setting: Setting, shifts: Totals) -> tuple[Array, Array]:
    """Return, for each touched row, how far it shifts and the noise along that, in units of its standard deviation."""
    touched = setting.touched
    scales = setting.sigma * setting.mechanism.scales(setting.horizon)[touched]
    lengths = np.sqrt(np.einsum("ij,ij->i", shifts.sums, shifts.sums))
    along = np.einsum("ij,ij->i", setting.answers[touched] - setting.sums[touched], shifts.sums)
    return lengths / scales, along / (scales * np.where(lengths > 0.0, lengths, 1.0))


def allowances(setting: Setting, shifts: Totals) -> Array:
    """Return how much of the squared shift each row may take up, on whatever path: it must not look at the shifts."""
    reach = shifts.evaluations * setting.bound if shifts.reach is None else shifts.reach
    return np.asarray((reach / setting.sigma) ** 2)


def _check_within(above: int) -> None:
    if above:
        raise BadContribution(
            f"{above} contributions are above the query's bound, which the adaptive coupling relies on. "
            "Clip contributions to the bound, declare a larger one, or use the sequential coupling."
        )


@dataclass
class _BridgedNoise:
    """The noise of an adaptive replay: fresh, but for the part along the shift, which adds up to what is due."""

    setting: Setting
    touched: frozenset[int]
    bridge: Bridge

    def wants_shift(self, step: int) -> bool:
        return step in self.touched

    def row(self, step: int, shift: Total | None) -> Array:
        sigma, draws = self.setting.sigma, self.setting.draws
        xi = sigma * draws.standard_normal(self.setting.sums.shape[1])
        if shift is None:
            return xi
        _check_within(shift.above)
        length = math.sqrt(shift.sum @ shift.sum)
        if shift.reach is not None and length > shift.reach * ROUNDING:
            raise BadContribution(TOO_LONG)
        if length > 0.0:
            direction = shift.sum / length
            x, self.bridge = self.bridge.cross(length / sigma, draws)
            xi += (sigma * x - xi @ direction) * direction
        return xi
