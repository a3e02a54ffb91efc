"""Keep or reflect: the couplings, as pure functions of whitened quantities.

Everything here is in units in which the noise is standard normal. Proofs: docs/guarantee.md, "Couplings".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from expunge.randomness import Stream
from expunge.types import Array

COUPLINGS = ("joint", "sequential", "adaptive")


class Decision(NamedTuple):
    """Whether the noise is kept, and by which multiple of the shift it moves."""

    kept: bool
    move: float

    def moved(self, shift: Array) -> Array:
        """Return by how much the noise moves."""
        return shift if self.kept else self.move * shift


KEPT = Decision(True, 1.0)


def replay_probability(shift: float) -> float:
    """Return 2Φ(A/2) - 1, the total variation distance of two unit Gaussians at distance A.

    >>> round(replay_probability(0.25), 4)
    0.0995
    """
    return math.erf(shift / (2.0 * math.sqrt(2.0)))


def reflect(shift: float, projection: float, coins: Stream) -> Decision:
    """Turn noise about the old mean into noise about the new, unchanged in sum as often as any method can.

    ``shift`` is the distance A of the two means and ``projection`` the noise S along their difference.
    Kept, the noise moves by the whole shift, so that mean plus noise stays as it was. Otherwise it
    is reflected: S becomes -S. Either way the new noise is standard normal. (docs/guarantee.md#reflection)
    """
    if shift == 0.0:
        return KEPT
    if -coins.standard_exponential() <= shift * projection - 0.5 * shift * shift:
        return KEPT
    return Decision(False, 2.0 * projection / shift)


def pooled_projection(
    shifts: Sequence[float] | Array, projections: Sequence[float] | Array, budget: float, coins: Stream
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

    def cross(self, shift: float, draws: Stream) -> tuple[float, Bridge]:
        """Draw the projection x of the next row, whose shift is a, given what is due."""
        if shift == 0.0:
            return draws.standard_normal(), self
        share = shift / self.left
        spread = math.sqrt(max(1.0 - shift * share, 0.0))
        x = share * self.due + spread * draws.standard_normal()
        left = self.left - shift * shift
        return x, Bridge(self.due - shift * x, left if left > 0.0 else math.inf)
