"""Numbers cut into slices of 20 bits, so that sums of them are exact in any order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from expunge.base.grid import grid_unit
from expunge.base.types import Array

BITS = 20
"""A number is cut into slices of so many bits."""
SLICES = 4
"""How many slices it has."""
EXACT_TO = 2 ** (53 - BITS)
"""So many numbers can be summed without rounding: a slice is at most 2²⁰ of its units."""


@dataclass(frozen=True)
class Slices:
    """Slices of numbers up to a bound: 80 bits below it are kept.

    >>> Slices(2.0**40).cut(np.array([3.0, -0.25])).tolist()
    [[0.0, 0.0], [3.0, 0.0], [0.0, -0.25], [0.0, 0.0]]
    """

    bound: float

    @cached_property
    def units(self) -> Array:
        """What the numbers of each slice are whole multiples of, a row for each."""
        return np.asarray(grid_unit(self.bound, BITS) * 2.0 ** (-BITS * np.arange(SLICES)[:, None]))

    @cached_property
    def _per_unit(self) -> Array:
        return 1.0 / self.units

    def cut(self, numbers: Array, out: Array | None = None) -> Array:
        """Cut numbers into slices: rounded to each slice's unit, less what was rounded to the one before.

        Slices are the last axis but one: where there are many rows of numbers, give them as (rows, 1, numbers).
        """
        out = np.multiply(numbers, self._per_unit, out=out)
        np.rint(out, out=out)
        out *= self.units
        out[..., 1:, :] -= out[..., :-1, :].copy()
        out += 0.0  # -0 becomes 0
        return out


def joined(high: Array, second: Array, third: Array, low: Array) -> Array:
    """Return the numbers that slices are of, from the least significant on."""
    return ((low + third) + second) + high
