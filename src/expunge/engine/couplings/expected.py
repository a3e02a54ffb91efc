"""How likely a request is to replay, before any coin is tossed. The formulas: docs/guarantee.md#couplings."""

from __future__ import annotations

import math

from expunge.base.types import Array
from expunge.engine.contributions import Totals
from expunge.engine.couplings.adaptive import allowances
from expunge.engine.couplings.common import OldPass, replay_probability


def _parts(old: OldPass) -> Totals:
    """Sum what enters and leaves every touched step, and look at no other record."""
    touched = old.touched
    if old.grid.exact:
        return old.edited.shifts(touched, old.path_to(old.horizon))
    return Totals.of([old.edited.shift(step, old.path_to(step)) for step in touched])


def expectation(old: OldPass, coupling: str) -> float:
    """Return how likely a replay is, over all noise: exact if one step is touched, else an upper bound."""
    mechanism = old.mechanism
    if not old.touched:
        return 0.0
    found = _parts(old)
    shifts = dict(zip(old.touched, found.sums, strict=True))
    if old.sigma == 0.0:
        return float(any(shift.any() for step, shift in shifts.items() if not old.only_adds(step)))
    if coupling == "adaptive":
        return replay_probability(math.sqrt(allowances(old, found).sum()))
    distances: list[float] = []
    if coupling == "sequential":
        seen: dict[int, Array] = {}
        for step, shift in shifts.items():
            column = mechanism.column(step, old.horizon)
            rows = range(old.horizon)[column.rows] if isinstance(column.rows, slice) else column.rows.tolist()
            for row, weight in zip(rows, column.weights.tolist(), strict=True):
                seen[row] = seen.get(row, 0.0) + weight * shift
        scales = mechanism.scales(old.horizon)
        distances = [math.sqrt(shift @ shift) / (old.sigma * scales.item(row)) for row, shift in seen.items()]
        return 1.0 - math.prod(1.0 - replay_probability(distance) for distance in distances)
    for step, shift in shifts.items():
        distances.append(math.sqrt(shift @ shift) * mechanism.column(step, old.horizon).norm / old.sigma)
    return min(1.0, sum(replay_probability(distance) for distance in distances))
