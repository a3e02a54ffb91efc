"""Slopes and curvatures of the loss of classes at given scores, of each record by itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from expunge.base.types import AnyArray, Array

CAUTION = 4.0
"""A record's step is at most so large: one that is far on the wrong side pulls no farther."""
UNIT = 2.0**-22
"""What slopes and curvatures are whole multiples of."""


class ClassSlopes(NamedTuple):
    """What records say of the scores: outputs × records, whole multiples of `UNIT`."""

    pulls: Array
    """Minus the derivatives of the loss."""
    weights: Array
    """Its curvatures, or more."""


def class_slopes(scores: Array, targets: AnyArray) -> ClassSlopes:
    """Return slopes and curvatures at some scores (outputs × records), with the same bits in whatever batch.

    With one output, targets above 0 are of the second class; with more they are numbers of classes.
    """
    if len(scores) == 1:
        from scipy.special import expit

        chances, times = expit(scores), 1.0
        pulls = (targets > 0) - chances
    else:
        chances, times = _softmax(scores), len(scores) / (len(scores) - 1.0)
        pulls = (np.arange(len(scores))[:, None] == targets) - chances
    weights = np.maximum(times * chances * (1.0 - chances), np.abs(pulls) / CAUTION)
    return ClassSlopes(_rounded(pulls), _rounded(weights))


def _rounded(numbers: Array) -> Array:
    return np.asarray(np.rint(numbers * (1.0 / UNIT)) * UNIT + 0.0)


def _softmax(scores: Array) -> Array:
    """Return the probability of each class; of a record the same bits in whatever batch it comes."""
    powers = np.exp(scores - np.maximum.reduce(scores, axis=0))
    total = powers[0].copy()
    for one in powers[1:]:
        total += one
    return np.asarray(powers / total)
