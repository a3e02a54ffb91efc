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
FAR_ABOVE = 5.0
"""A mean above so many times the count and 1 is not believed: Newton's method would come down by 1 a step."""
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
        """Return derivative and a curvature: the mean, if it is believed, as Newton has it.

        A mean below the count is not, nor is one far above it. There the curvature is the slope of the derivative's
        chord, from the score to that of the nearest mean that is believed. For a mean below the count this is the
        least with which the record's own step does not go beyond its best score. With the mean itself it does: by far,
        where a draw went too low.

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
    """Return the means that are believed, and slopes of chords for others; both agree where they meet."""
    believed = np.clip(means, targets, FAR_ABOVE * (targets + 1.0))
    gaps = np.maximum(np.abs(np.log(believed) - scores), LEAST_GAP)
    chords = np.clip(np.abs(believed - means) / gaps, np.minimum(believed, means), np.maximum(believed, means))
    return np.where(believed == means, means, chords)
