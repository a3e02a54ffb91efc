"""One coin: keep the noise, or let it jump. Pure functions of whitened quantities.

Everything here is in units in which the noise is standard normal. The coin is that of the maximal coupling of two
Gaussians by rejection and reflection, as in Ullah, Mai, Rao, Rossi & Arora (2021), "Machine unlearning via algorithmic
stability"; the jump does on a grid what the reflection does without one. Proofs: docs/guarantee.md#reflection,
docs/guarantee.md#the-jump, and for what is pooled and bridged docs/guarantee.md#adaptive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from expunge.base.types import Array, Draws

COUPLINGS = ("joint", "sequential", "adaptive")


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
