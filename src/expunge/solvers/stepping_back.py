"""Where a whole step of Newton's method went up, the next goes half-way back.

The squared hinge is quadratic on either side of its kink, so one step would be enough, but for records that change
sides: because of these a step may go too far, and steps to and fro for ever. Its expansion says the loss itself: with
slope g and curvature h, the target of the least squares is z = score - g/h, and h(z - score)² = g²/h is twice the loss.
So the sums of a round say the objective at its point, and nothing else needs to be summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from expunge.base.types import Array
from expunge.solvers.losses import SquaredHinge, Weighted

SAME = 1e-12
"""Objectives that differ by less than this share are the same."""


def is_quadratic(loss: object) -> bool:
    """Say whether a loss is half of what its expansion leaves over.

    >>> is_quadratic(Weighted(SquaredHinge(), (1.0, 2.0)))
    True
    """
    return isinstance(loss.loss if isinstance(loss, Weighted) else loss, SquaredHinge)


def lowest(seen: Sequence[tuple[Array, Array]], penalty: Array) -> int:
    """Return the last of those points whose objective is the least, up to rounding.

    Each comes with its sums of products: of the columns, of 1, and of the targets of the least squares.
    """
    best, least = 0, math.inf
    for number, (point, matrix) in enumerate(seen):
        used, columns = len(point), len(penalty)
        left = matrix[-1, -1] + point @ (matrix[:used, :used] @ point - 2.0 * matrix[:used, -1])
        objective = float(left + penalty @ point[:columns] ** 2)
        if objective <= least * (1.0 + SAME):
            best, least = number, min(objective, least)
    return best
