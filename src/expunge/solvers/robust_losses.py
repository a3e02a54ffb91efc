"""The loss of a regression that outliers hardly move: Huber's, in units of a scale that is learned with the weights."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.types import AnyArray, Array

FLATTEST = 2.0**-10
"""The least curvature as Newton's method sees it, of residuals however large."""

LARGEST_EPSILON = 1e6
"""Beyond it no residual counts as an outlier."""


@dataclass(frozen=True)
class ScaledHuber:
    """Huber's loss of residuals in units of their scale s: what scikit-learn's `HuberRegressor` minimises.

    A record with residual r = z·s costs s·(1 + H(z))/2, with H(z) = z² up to epsilon and 2·epsilon·|z| - epsilon²
    beyond. The sum is convex in weights and scale together. What follows is at s = 1, and without what no residual
    changes.

    >>> ScaledHuber().derivative(np.array([1.0, 5.0]), np.zeros(2)).tolist()
    [1.0, 1.35]
    """

    epsilon: float = 1.35
    outputs = 1
    smoothness = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, Real) and 1.0 < self.epsilon <= LARGEST_EPSILON):
            raise BadPlan(
                f"epsilon={self.epsilon!r}: give a number above 1 and at most {LARGEST_EPSILON:,.0f}, such as 1.35."
            )

    @property
    def lipschitz(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        error = np.abs(scores - targets)
        curved = np.minimum(error, self.epsilon)
        return np.asarray(0.5 * np.square(curved) + self.epsilon * (error - curved))

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return np.clip(scores - targets, -self.epsilon, self.epsilon)

    def expansion(self, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
        """Return its derivative, and the curvature of the quadratic that touches the loss here and lies above it.

        The loss itself is straight beyond epsilon. With less curvature there Newton's method goes too far, first of all
        in columns whose few records all lie beyond.
        """
        slopes = self.derivative(scores, targets)
        error = np.maximum(np.abs(scores - targets), self.epsilon)
        return slopes, np.maximum(self.epsilon / error, FLATTEST)
