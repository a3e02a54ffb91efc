"""How Newton's method sees records: in which units, less which centres, with which scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from expunge.base.types import Array, Ints
from expunge.solvers.stages import Stage

FEW = 8
"""Up to so many records scores are made row by row; the digits are the same."""


def dense(features: Any) -> Array:
    """Return rows as an array."""
    return np.asarray(features if isinstance(features, np.ndarray) else features.toarray(), dtype=np.float64)


class Frame(NamedTuple):
    """In which units, and less which centres, columns are seen: the target's first, then the features', then 1."""

    exponents: Ints
    centres: Array
    centred: bool

    def raw(self, iterate: Array) -> Array:
        """Return an iterate's parameters in the units of the records: of the features, then the intercept."""
        width = len(self.centres)
        return np.ldexp(iterate[width + 1 :], self.exponents[0] - self.exponents[1:])


class View(NamedTuple):
    """How a step sees records: in which frame, times which powers of two; how it expands the loss, if so, and where.

    ``scales`` are those of the features, 1 and the target; ``parameters`` those of scaled features, and the intercept;
    there are none where targets say by themselves where to expand.
    """

    frame: Frame
    scales: Array
    by_row: Array
    """The scales of the features, one a row."""
    stage: Stage | None
    parameters: Array


def frame_of(iterate: Array) -> Frame:
    """Return the frame that a step has found: its iterate has the exponents, then the centres."""
    width = len(iterate) // 2
    centres = iterate[width:]
    return Frame(iterate[:width].astype(np.int64), centres, bool(centres.any()))


def scores_of(rows: Array, parameters: Array) -> Array:
    """Return the score of each row, to the last bit the same in whatever batch it comes: column after column."""
    if len(rows) <= FEW:
        scores = (rows * parameters[:-1]).cumsum(axis=1)[:, -1]
    else:
        scores = np.add.reduce(np.multiply(rows.T, parameters[:-1, None], order="C"), axis=0)  # row after row of these
    return np.asarray(scores + parameters[-1])
