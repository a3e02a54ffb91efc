"""Numbers on a grid: multiples of a power of two, whose sums are exact in any order."""

from __future__ import annotations

import math

import numpy as np

from expunge.types import Array


def grid_unit(largest: float, bits: int) -> float:
    """Return the power of two that is ``bits`` binary digits below the one that ``largest`` fits under.

    >>> grid_unit(1.0, 3), grid_unit(1.1, 3)
    (0.125, 0.25)
    """
    return float(2.0 ** (math.ceil(math.log2(largest)) - bits))


def on_grid(numbers: Array, unit: float | Array) -> Array:
    """Round towards zero to multiples of ``unit``, a power of two: norms do not grow, and sums are exact.

    >>> on_grid(np.array([0.8, -0.8]), 0.5).tolist()
    [0.5, -0.5]
    """
    return np.asarray(np.trunc(numbers / unit) * unit)
