"""Numbers on a grid: multiples of a power of two, whose sums are exact in any order."""

from __future__ import annotations

import math

import numpy as np

from expunge.base.types import Array, Uniforms

FINENESS = 24
"""How many binary digits below the noise the grid of the answers is. It is a constant of the file format."""
LOST = 5e-10
"""How much the digits that a coin's arithmetic loses may change the probability of what it says."""
CAPACITY = 2.0**50
"""The most units of the grid that sums, and noise, may reach: then nothing is rounded when they are added."""


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


def dithered(numbers: Array, unit: float, draws: Uniforms) -> Array:
    """Round to a multiple of ``unit`` at random: up or down, so that the mean stays as it is.

    It turns Gaussian noise into noise on the grid. Rounding to the nearest would favour even multiples where a number
    lies half-way between two. (docs/guarantee.md#the-grid)
    """
    found = numbers / unit
    found += draws.random(found.shape)
    np.floor(found, out=found)
    found *= unit
    return found
