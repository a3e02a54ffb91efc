"""Numbers on a grid: multiples of a power of two, whose sums are exact in any order."""

from __future__ import annotations

import math
from dataclasses import dataclass

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


def rounded(numbers: Array, unit: float) -> Array:
    """Round to the nearest multiple of ``unit``, a power of two; there is one zero, the positive one.

    To add 1.5·2⁵² units leaves no room for anything finer than one.

    >>> rounded(np.array([0.8, -0.7, -0.1]), 0.5).tolist()
    [1.0, -0.5, 0.0]
    """
    much = 1.5 * 2.0**52 * unit
    shifted = numbers + much
    shifted -= much
    return shifted


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


@dataclass(frozen=True)
class NoiseGrid:
    """Where sums and noise meet: all answers are multiples of ``unit``, and nothing that is added is ever rounded.

    Without noise there is no grid (``unit`` is 0). With ``exact`` the sums that are kept have a grid of their own, and
    are rounded only where they meet the noise; else they are kept as they meet it. (docs/guarantee.md#the-grid)
    """

    unit: float
    exact: bool

    @classmethod
    def of(cls, smallest: float, exact: bool) -> NoiseGrid:
        """Return the grid for noise whose rows have at least this standard deviation.

        >>> NoiseGrid.of(1.5, False).unit == 2.0**-24
        True
        """
        return cls(2.0 ** (math.floor(math.log2(smallest)) - FINENESS) if smallest > 0.0 else 0.0, exact)

    def kept(self, sums: Array) -> Array:
        """Return sums as they are kept."""
        return sums if self.exact or self.unit == 0.0 else rounded(sums, self.unit)

    def met(self, sums: Array) -> Array:
        """Return sums, which are kept so, as they meet the noise."""
        return rounded(sums, self.unit) if self.exact and self.unit > 0.0 else sums

    def extra(self, size: int) -> float:
        """Return by how much, at most, rounding makes the change of a sum of ``size`` numbers longer."""
        return math.sqrt(size) * self.unit
