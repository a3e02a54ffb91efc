"""Sums of products of columns, two and two, that are exact: no rounding, whatever the order. (docs/guarantee.md#sums)

A number is rounded to the grid of 45 bits below its bound and cut into three slices of 15 bits, x = h + m + l. The
product of two numbers then falls on five levels, hh, hm + mh, mm + hl + lh, ml + lm and ll, each a whole multiple of
its own power of two. Each level is summed by itself, exactly in 64-bit floats as long as it is within 2⁵³ of these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.grid import grid_unit
from expunge.base.types import Array, Batch, Ints

BITS = 15
SLICES, LEVELS = 3, 5
EXACT_TO = 2**53 // (5 * 2 ** (2 * BITS - 2))
"""Slices are at most 2¹⁵, 2¹⁴ and 2¹⁴ of their units, so the third level is at most 2²⁸ + 2·2²⁹ = 1.25·2³⁰ of its own,
and no other is more."""
AT_ONCE = 2**18
"""How many numbers of slices are made at a time."""
FEW = 4
"""Up to this many rows are multiplied out one by one."""
NARROW = 0.1
"""Columns whose variance is below this share of their mean square are shifted before they are centred."""
EXTREME = 2.0**200
"""Bounds must not be above this, or below its inverse: products of units could no longer be represented."""


class Normal(NamedTuple):
    """What least squares is made of: sums of products of all columns, in the upper triangle only, and their means."""

    products: Array
    means: Array


@dataclass(frozen=True)
class Moments:
    """Sums of the products of some columns, with the given bounds, and of a column of ones behind them.

    A packed row holds, level by level, the products of each column with the ones at distance 0, 1, 2, … behind it, as
    if they stood in a circle: up to half-way round, every two of them meet.

    >>> moments = Moments((1.0, 4.0))
    >>> moments.each((np.array([[0.5, -3.0]]),))[0, :6].tolist()
    [0.25, 9.0, 1.0, -1.5, -3.0, 0.5]
    """

    bounds: tuple[float, ...]

    def __post_init__(self) -> None:
        for bound in self.bounds:
            if not 1.0 / EXTREME <= bound <= EXTREME:
                raise BadPlan(f"bounds: {bound!r}: give numbers above 0, from 1e-60 to 1e60.")

    @cached_property
    def width(self) -> int:
        """How many columns there are, the ones included."""
        return len(self.bounds) + 1

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a packed row: levels × distances × columns."""
        return LEVELS, self.width // 2 + 1, self.width

    @cached_property
    def size(self) -> int:
        """How many numbers a packed row has."""
        return math.prod(self.shape)

    @cached_property
    def largest(self) -> float:
        """The largest number of a packed row of one record."""
        return 2.0**53 / EXACT_TO * max(1.0, float(self.units[0].max())) ** 2

    @cached_property
    def units(self) -> Array:
        """What the numbers of each slice are whole multiples of, by column: powers of two."""
        first = np.array([*(grid_unit(bound, BITS) for bound in self.bounds), 1.0])
        return first * 2.0 ** -np.array([[0.0], [BITS], [2 * BITS]])

    @cached_property
    def _rounding(self) -> Array:
        """What, added and taken off again, leaves whole multiples of the units: numbers end where its last bit is."""
        return 1.5 * 2.0**52 * self.units

    def slices(self, columns: Batch) -> Array:
        """Return the slices of each row of some columns (matrices or single ones): rows × slices × columns."""
        cut = np.empty((columns[0].shape[0], SLICES, self.width))
        numbers = cut[:, 2]
        first = 0
        for column in columns:
            if column.ndim == 1:
                numbers[:, first] = column
                first += 1
            else:
                stop = first + column.shape[1]
                numbers[:, first:stop] = column if isinstance(column, np.ndarray) else column.toarray()
                first = stop
        numbers[:, first] = 1.0
        self._cut(numbers, cut[:, 0], cut[:, 1])
        return cut

    def _cut(self, numbers: Array, high: Array, middle: Array) -> None:
        """Cut numbers into slices: the lowest takes their place. What is below the grid is rounded to nearest."""
        first, second, third = self._rounding
        np.add(numbers, first, out=high)
        high -= first
        numbers -= high
        np.add(numbers, second, out=middle)
        middle -= second
        numbers -= middle
        numbers += third
        numbers -= third

    def each(self, columns: Batch) -> Array:
        """Return the products of each row of some columns, packed."""
        cut = self.slices(columns)
        packed = np.empty((len(cut), *self.shape))
        for row, out in zip(cut, packed, strict=True):
            _pair(row, row, out)
        return packed.reshape(len(cut), self.size)

    def total(self, columns: Batch) -> Array:
        """Return the sum of the products of all rows, packed.

        By matrix products, some rows at a time: all numbers are whole multiples within 2⁵³ of a unit, partial sums too,
        so that in whatever order they are added, nothing is rounded.
        """
        number, width = columns[0].shape[0], SLICES * self.width
        if number <= FEW:
            each = self.each(columns)
            return each[0] if number == 1 else np.add.reduce(each, axis=0)
        blocks = np.zeros((width, width))
        rows = max(64, AT_ONCE // width)
        for first in range(0, number, rows):
            part = columns if rows >= number else tuple([column[first : first + rows] for column in columns])
            cut = self.slices(part).reshape(-1, width)
            blocks += cut.T @ cut
        return self._packed(blocks.reshape(SLICES, self.width, SLICES, self.width))

    def _packed(self, blocks: Array) -> Array:
        width = self.width
        levels = np.zeros((LEVELS, width, 2 * width))  # each matrix twice, side by side
        for one in range(SLICES):
            for other in range(SLICES):
                levels[one + other, :, :width] += blocks[one, :, other]
        levels[:, :, width:] = levels[:, :, :width]
        level, row, column = levels.strides
        return np.ndarray(self.shape, buffer=levels, strides=(level, column, row + column)).ravel()

    def normal(self, packed: Array, centred: bool) -> Normal:
        """Return the sums of a packed row as a matrix, of the columns less their means if ``centred``.

        Where a column's mean is large against its spread, its mean's nearest number on the grid is first taken off it
        level by level, which is exact: so nothing is lost by cancellation.
        """
        width = self.width
        levels = packed.reshape(LEVELS, -1)
        slices = levels[:SLICES, _with_ones(width)]
        records = max(slices.item(0, -1), 1.0)  # of none, all sums are 0
        joined, sums = _joined(levels), _joined(slices)
        means = sums / records
        if centred:
            narrow = sums * means > (1.0 - NARROW) * joined[:width]
            narrow[-1] = False
            if narrow.any():
                shift = np.empty((SLICES, width))
                np.multiply(means, narrow, out=shift[2])
                self._cut(shift[2], shift[0], shift[1])
                joined = _joined(levels - self._moved(shift, slices - 0.5 * records * shift))
                sums = _joined(slices - records * shift)
        products = np.zeros((width, width))
        products.reshape(-1)[_upper(width)] = joined
        if centred:
            from scipy.linalg import blas

            products = blas.dger(-1.0 / records, sums, sums, a=products.T, overwrite_a=1).T
        return Normal(products[:-1, :-1], means[:-1])

    def _moved(self, shift: Array, half: Array) -> Array:
        """Return by how much levels are larger than if columns were shifted: Σ(x - s)(y - s) = Σxy - s·Y - X·s."""
        moved = np.empty((2, *self.shape))
        _pair(shift, half, moved[0])
        _pair(half, shift, moved[1])
        return moved.sum(axis=0).reshape(LEVELS, -1)


def _pair(left: Array, right: Array, out: Array) -> None:
    """Multiply slices with those of the columns at distance 0, 1, 2, … around the circle, and sum them by level."""
    doubled = np.concatenate([right, right], axis=1)
    row, column = doubled.strides
    behind = np.ndarray((SLICES, *out.shape[1:]), buffer=doubled, strides=(row, column, column)).copy()
    high, middle, low = left
    np.multiply(high, behind, out=out[:3])
    np.multiply(low, behind[1:], out=out[3:])
    out[2] += low * behind[0]
    behind *= middle
    out[1:4] += behind


def _joined(levels: Array) -> Array:
    """Return what some levels amount to; the smallest are added first."""
    return np.add.reduce(levels[::-1], axis=0)


def _circle(width: int) -> tuple[Ints, Ints]:
    """Return the two columns that meet at each number of a level."""
    distance, one = np.divmod(np.arange(width * (width // 2 + 1)), width)
    return one, (one + distance) % width


@lru_cache(maxsize=8)
def _upper(width: int) -> Ints:
    """Return where the numbers of a level are in the upper triangle of a matrix."""
    one, other = _circle(width)
    return np.minimum(one, other) * width + np.maximum(one, other)


@lru_cache(maxsize=8)
def _with_ones(width: int) -> Ints:
    """Return where in a level each column meets the ones."""
    columns = np.arange(width)
    distance = width - 1 - columns
    return np.where(distance <= width // 2, distance * width + columns, (columns + 1) * width + width - 1)
