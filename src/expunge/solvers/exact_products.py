"""Sums of products of columns, two and two, for columns that are whole numbers: exact, reversible, in one form.

A number of up to 43 bits is cut into two slices of 22, v = h·2²² + l, |l| ≤ 2²¹. Products of slices are summed by
matrix products of at most 2¹⁰ rows, in which nothing is rounded. A sum is kept as three limbs, a·2⁶⁶ + b·2³³ + c with
0 ≤ b, c < 2³³: every whole number has one such form, so that what was added and taken off again leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from expunge.base.types import Array, Ints

SLICE = 2.0**22
LARGEST = 2.0**43
"""Columns are whole numbers up to this."""
LIMB = 2.0**33
AT_ONCE = 2**10
"""How many rows are multiplied together: products of slices are at most 2⁴³, and below 2⁵³ sums are exact."""
EXACT_TO = 2**30
"""How many rows can be summed: the highest limb is then below 2⁵³, whatever they hold."""


@dataclass(frozen=True)
class ExactProducts:
    """Sums of the products of ``width`` columns, two and two: three limbs, each in the order of the upper triangle.

    >>> products = ExactProducts(2)
    >>> total = products.total(np.array([[3.0, 1.0], [-5.0, 2.0]]))  # columns by rows
    >>> products.matrix(total).tolist()
    [[10.0, -13.0], [-13.0, 29.0]]
    """

    width: int

    @cached_property
    def pairs(self) -> int:
        """How many products there are."""
        return self.width * (self.width + 1) // 2

    @cached_property
    def size(self) -> int:
        """How many numbers a sum has."""
        return 3 * self.pairs

    @cached_property
    def _upper(self) -> Ints:
        """Where the products are in a matrix."""
        one, other = np.triu_indices(self.width)
        return np.asarray(one * self.width + other)

    @cached_property
    def _square(self) -> Ints:
        """Which product stands at each place of a matrix."""
        square = np.zeros((self.width, self.width), dtype=np.int64)
        square.reshape(-1)[self._upper] = np.arange(self.pairs)
        return np.maximum(square, square.T)

    def total(self, columns: Array) -> Array:
        """Return the sum over the rows of some columns (columns × rows of whole numbers), in its one form."""
        return self.normal(self.summed(columns))

    def summed(self, columns: Array) -> Array:
        """Return the same in any form: to be added to others, and then brought into the one form."""
        limbs = np.zeros((3, self.pairs))
        for first in range(0, columns.shape[1], AT_ONCE):
            if first:
                carry(limbs)
            self._add(columns[:, first : first + AT_ONCE], limbs)
        return limbs.reshape(-1)

    def _add(self, columns: Array, limbs: Array) -> None:
        """Add the products of at most `AT_ONCE` rows."""
        top = max(float(columns.max(initial=0.0)), -float(columns.min(initial=0.0)))
        if top <= SLICE / 2.0:
            limbs[0] += self._products(columns, columns)
            return
        high = np.floor(columns * (1.0 / SLICE) + 0.5)
        low = columns - high * SLICE
        limbs[0] += self._products(low, low)
        mixed = self._mixed(high, low)
        carried = np.floor(mixed * 2.0**-11)
        limbs[0] += (mixed - carried * 2.0**11) * SLICE
        limbs[1] += carried
        highest = self._products(high, high)
        carried = np.floor(highest * (1.0 / SLICE))
        limbs[1] += (highest - carried * SLICE) * 2.0**11
        limbs[2] += carried

    def _products(self, one: Array, other: Array) -> Array:
        if one.shape[1] == 1:
            return np.multiply(one, other.T).reshape(-1)[self._upper]
        return (one @ other.T).reshape(-1)[self._upper]

    def _mixed(self, high: Array, low: Array) -> Array:
        """Return the products of high and low slices, both ways; a diagonal one counts twice."""
        both = high @ low.T
        return (both + both.T).reshape(-1)[self._upper]

    def normal(self, total: Array) -> Array:
        """Bring a sum into its one form, in place, and return it."""
        carry(total[: self.size].reshape(3, -1))
        return total

    def matrix(self, total: Array) -> Array:
        """Return a sum as a matrix of numbers."""
        low, middle, high = total[: self.size].reshape(3, -1)
        joined = (high * LIMB + middle) * LIMB + low
        return joined[self._square]


def carry(limbs: Array) -> None:
    """Carry what is above 33 bits, or below 0, from each limb to the next."""
    for low, high in ((limbs[0], limbs[1]), (limbs[1], limbs[2])):
        carried = np.floor(low * (1.0 / LIMB))
        low -= carried * LIMB
        high += carried
    limbs += 0.0  # there is one zero


def whole(numbers: Array) -> Array:
    """Round to whole numbers, those beyond `LARGEST` to that; the numbers themselves are used up."""
    np.rint(numbers, out=numbers)
    np.minimum(numbers, LARGEST, out=numbers)
    np.maximum(numbers, -LARGEST, out=numbers)
    return numbers
