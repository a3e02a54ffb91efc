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
FAR_ABOVE = 20.0
"""A mean that is so many times the count is not believed: Newton's method would come down by 1 a step."""
LEAST_GAP = 2.0**-60
"""What differences of scores are divided by, at least."""


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
        return np.asarray(means_of(scores) - targets)

    def expansion(self, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
        """Return derivative and a curvature with which no record's step goes beyond the best score of its own.

        Where the mean is below the count, it is the slope of the derivative's chord from the score to the logarithm of
        the count. That is the least with which the quadratic is nowhere below the loss, up to there. The mean itself
        would be far too little: exp(-5) for a count of 1, and so a step of 147. Where the mean is far above the count,
        a chord as well, in place of steps of 1. Elsewhere the mean, as Newton has it.

        >>> slopes, curvatures = Poisson().expansion(np.array([-5.0]), np.array([1.0]))
        >>> float(-slopes[0] / curvatures[0])
        5.0
        """
        means = means_of(scores)
        return np.asarray(means - targets), np.maximum(_curvatures(scores, targets, means), LEAST_MEAN)

    def guess(self, records: float, total: float) -> float:
        """Return the logarithm of the mean."""
        return math.log((total + 0.5) / (records + 0.5))

    def saturated(self, targets: AnyArray) -> Array:
        """Return the score that each target has by itself: where to expand if no round has found a better one."""
        return np.log(targets + 0.5)


def means_of(scores: Array) -> Array:
    """Return the means of scores: above 0 and finite, since they stay as they are beyond the largest score.

    >>> means_of(np.array([0.0, 1e6])).round(-10).tolist()
    [0.0, 10690000000000.0]
    """
    return np.exp(np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE))


def _curvatures(scores: Array, targets: AnyArray, means: Array) -> Array:
    """Return slopes of chords where the means are below the counts or far above them, and means elsewhere."""
    below, above = means < targets, means > FAR_ABOVE * (targets + 1.0)
    own = np.log(np.where(below, targets, targets + 0.5))
    gaps = np.where(below, np.maximum(own - scores, LEAST_GAP), np.where(above, own - scores, 1.0))
    chords = (targets - means) / gaps
    return np.where(below, np.clip(chords, means, np.maximum(means, targets)), np.where(above, chords, means))
