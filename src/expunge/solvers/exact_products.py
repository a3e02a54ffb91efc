"""Sums of products of columns, two and two, for columns that are whole numbers: exact, reversible, in one form.

Products are summed by matrix products. Where the sums of squares stay below 2⁵², nothing in them was rounded, in
whatever order they were added: no sum of products, of all rows or of some, is larger than the sums of squares allow
(Cauchy and Schwarz). Else numbers, which have up to 43 bits, are cut into two slices of 22, v = h·2²² + l, |l| ≤ 2²¹,
and at most 2¹⁰ rows are multiplied at a time. A sum is kept as three limbs, a·2⁶⁶ + b·2³³ + c with 0 ≤ b, c < 2³³:
every whole number has one such form, so that what was added and taken off again leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from expunge.base.types import Array, Ints

SLICE = 2.0**22
DIGITS_HELD = 43
LARGEST = 2.0**DIGITS_HELD
"""Columns are whole numbers up to this."""
LIMB = 2.0**33
AT_ONCE = 2**10
"""How many rows of slices are multiplied together: their products are at most 2⁴², and below 2⁵³ sums are exact."""
SURE = 2.0**52
"""Where a sum of squares comes out as no more than this, it is exact: had it been above 2⁵³, it could not."""
ROOT = 2.0**26
"""Products of two numbers up to this are no larger."""
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
    def _factors(self) -> tuple[Ints, Ints]:
        """Which columns each product is of."""
        one, other = np.triu_indices(self.width)
        return one, other

    @cached_property
    def _upper(self) -> Ints:
        """Where the products are in a matrix."""
        one, other = self._factors
        return np.asarray(one * self.width + other)

    @cached_property
    def _square(self) -> Ints:
        """Which product stands at each place of a matrix."""
        square = np.zeros((self.width, self.width), dtype=np.int64)
        square.reshape(-1)[self._upper] = np.arange(self.pairs)
        return np.maximum(square, square.T)

    def total(self, columns: Array) -> Array:
        """Return the sum over the rows of some columns (columns × rows of whole numbers), in its one form."""
        return self.gathered([columns])

    def gathered(self, blocks: Iterable[Array]) -> Array:
        """Return the sum over the rows of many such blocks, in its one form."""
        return self.moved(np.zeros(self.size), blocks, True)

    def moved(self, total: Array, blocks: Iterable[Array], come: bool) -> Array:
        """Let the rows of some blocks come to a sum in its one form, or leave it, in place; return it, in that form.

        Numbers beyond `LARGEST` are taken for it. Blocks may be used up.
        """
        limbs = total[: self.size].reshape(3, -1)
        for block in blocks:
            products = self._sure(block)
            if products is None:
                more, changed = self._of_slices(whole(block)), limbs
            else:
                more, changed = products, limbs[0]
            np.add(changed, more, out=changed) if come else np.subtract(changed, more, out=changed)
            carry(limbs)
        return total

    def _sure(self, block: Array) -> Array | None:
        """Return the products of a block, if it is sure that nothing in them was rounded."""
        if block.shape[1] == 1:
            column = block[:, 0]
            if np.maximum.reduce(column) <= ROOT and np.minimum.reduce(column) >= -ROOT:
                one, other = self._factors
                products = column.take(one)
                products *= column.take(other)
                return products
        squares = _squares(block)
        return self._of(squares) if np.maximum.reduce(squares.diagonal()) <= SURE else None  # it may be NaN

    def _of_slices(self, columns: Array) -> Array:
        """Return the limbs of the products of columns with larger numbers."""
        limbs = np.zeros((3, self.pairs))
        for first in range(0, columns.shape[1], AT_ONCE):
            part = columns[:, first : first + AT_ONCE]
            carry(limbs)
            high = np.floor(part * (1.0 / SLICE) + 0.5)
            low = part - high * SLICE
            limbs[0] += self._of(low @ low.T)
            mixed = self._mixed(high, low)
            carried = np.floor(mixed * 2.0**-11)
            limbs[0] += (mixed - carried * 2.0**11) * SLICE
            limbs[1] += carried
            highest = self._of(high @ high.T)
            carried = np.floor(highest * (1.0 / SLICE))
            limbs[1] += (highest - carried * SLICE) * 2.0**11
            limbs[2] += carried
        carry(limbs)
        return limbs

    def _of(self, matrix: Array) -> Array:
        """Return the upper triangle of a matrix."""
        return matrix.reshape(-1).take(self._upper)

    def _mixed(self, high: Array, low: Array) -> Array:
        """Return the products of high and low slices, both ways; a diagonal one counts twice."""
        both = high @ low.T
        return self._of(both + both.T)

    def normal(self, total: Array) -> Array:
        """Bring a sum into its one form, in place, and return it."""
        carry(total[: self.size].reshape(3, -1))
        return total

    def matrix(self, total: Array) -> Array:
        """Return a sum as a matrix of numbers."""
        low, middle, high = total[: self.size].reshape(3, -1)
        joined = (high * LIMB + middle) * LIMB + low
        return joined[self._square]


def _squares(columns: Array) -> Array:
    """Return the products of all columns; where they overflow, nothing is said."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(columns @ columns.T)


def carry(limbs: Array) -> None:
    """Carry what is above 33 bits, or below 0, from each limb to the next."""
    low, middle, high = limbs
    _carry(low, middle)
    if not (np.minimum.reduce(middle) >= 0.0 and np.maximum.reduce(middle) < LIMB):  # few records seldom get so far
        _carry(middle, high)
    high += 0.0  # there is one zero; the others have it already


def _carry(low: Array, high: Array) -> None:
    carried = low * (1.0 / LIMB)
    np.floor(carried, out=carried)
    high += carried
    carried *= LIMB
    low -= carried


def whole(numbers: Array) -> Array:
    """Round to whole numbers, those beyond `LARGEST` to that; the numbers themselves are used up."""
    np.rint(numbers, out=numbers)
    np.minimum(numbers, LARGEST, out=numbers)
    np.maximum(numbers, -LARGEST, out=numbers)
    return numbers
