"""The loss of counts: how often something happens, with the logarithm of the mean as score."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from expunge.base.types import AnyArray, Array

LEAST_MEAN = 2.0**-9
"""The least curvature as Newton's method sees it: where the loss is flatter, steps would be too long."""
LARGEST_SCORE = 30.0
"""Beyond this score, on either side, the loss goes on as a straight line: so no mean overflows."""


@dataclass(frozen=True)
class Poisson:
    """exp(s) - y s for counts y ≥ 0: half of the deviance of a Poisson law with mean exp(s), up to a constant.

    >>> Poisson().derivative(np.zeros(2), np.array([0.0, 3.0])).tolist()
    [1.0, -2.0]
    """

    outputs = 1
    lipschitz = math.inf
    smoothness = math.inf
    link = True
    """Scores are not in the units of targets."""

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        within = np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE)
        return np.asarray(np.exp(within) * (1.0 + scores - within) - targets * scores)

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return np.asarray(_means(scores) - targets)

    def expansion(self, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
        """Return derivative and curvature."""
        means = _means(scores)
        return np.asarray(means - targets), np.maximum(means, LEAST_MEAN)

    def guess(self, records: float, total: float) -> float:
        """Return the logarithm of the mean."""
        return math.log((total + 0.5) / (records + 0.5))

    def saturated(self, targets: AnyArray) -> Array:
        """Return the score that each target has by itself: where to expand if no round has found a better one."""
        return np.log(targets + 0.5)


def _means(scores: Array) -> Array:
    return np.exp(np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE))
