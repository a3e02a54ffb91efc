"""Losses of linear models: value and derivative in the score, and the largest slope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from expunge.types import AnyArray, Array


class Loss(Protocol):
    """A convex function of the score xᵀw and the target."""

    @property
    def lipschitz(self) -> float:
        """The largest absolute derivative."""

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(-y s)) for y in {-1, +1}.

    >>> float(Logistic().derivative(np.zeros(1), np.ones(1))[0])
    -0.5
    """

    lipschitz = 1.0

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        return np.logaddexp(0.0, -targets * scores)

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return -targets * expit(-targets * scores)
