"""How far apart the weights of classes may be where Newton's method sums products of columns exactly."""

from __future__ import annotations

import math
from typing import Any

from expunge.base.errors import BadPlan
from expunge.solvers.losses import Weighted

APART, MOST_APART = 2**16, 2**24
"""How many times the smallest weight of a class the largest may be: without loss, and at all."""
NEAR_ONE = 8
"""Powers of two up to which weights of classes stay as given."""


def within_reach(loss: Any, C: float) -> tuple[Any, float]:
    """Return a loss whose weights of classes sums can hold, and the C with which the objective is the same.

    >>> from expunge.solvers.losses import Logistic
    >>> within_reach(Weighted(Logistic(), (2.0**40, 2.0**39)), 1.0)
    (Weighted(loss=Logistic(), weights=(1.0, 0.5)), 1099511627776.0)
    """
    if not isinstance(loss, Weighted):
        return loss, C
    if not _apart(loss) <= MOST_APART:
        raise BadPlan(
            f"class_weight: the largest weight is {_apart(loss):.3g} times the smallest. Newton's method takes "
            f"up to {MOST_APART:,} times. Use closer weights, or solver='dual_averaging'."
        )
    power = math.frexp(max(loss.weights))[1] - 1
    if abs(power) <= NEAR_ONE:
        return loss, C
    weights = tuple(math.ldexp(weight, -power) for weight in loss.weights)
    return Weighted(loss.loss, weights), math.ldexp(C, power)


def _apart(loss: Weighted) -> float:
    """Return how many times the smallest weight of a class the largest is."""
    return max(loss.weights) / min(loss.weights)


def advice_on_weights(loss: Any) -> str:
    """Say what is lost by weights that are far apart, if anything is."""
    if not isinstance(loss, Weighted) or _apart(loss) <= APART:
        return ""
    return (
        f"class_weight: the largest weight is {_apart(loss):.3g} times the smallest. Sums hold {APART:,} times without "
        "loss; beyond that the model is a little off, the more the farther. Use closer weights if that matters."
    )
