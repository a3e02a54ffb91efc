"""Memory for places that have the same room: cells of one size, in few buffers that start on a boundary."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from expunge.base.types import AnyArray, Ints

ALIGNMENT = 64
PAGE = 2**15
"""About how many bytes of small cells lie in one buffer."""
SHARE = 8
"""One part in so many of a list of numbers is room to spare when it grows."""


def aligned(elements: int, dtype: np.dtype[Any]) -> AnyArray:
    """Return memory that starts on the boundary, blank so that nothing of old comes back in it."""
    raw = np.zeros(elements * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + elements * dtype.itemsize].view(dtype)


def resized(numbers: Ints, size: int) -> Ints:
    """Return the first ``size`` of some numbers, zeros added if there are fewer.

    What is returned may lie in a longer array, so that to add or drop one at a time costs little.
    """
    have, whole = len(numbers), numbers.base
    if size == have:
        return numbers
    if not isinstance(whole, np.ndarray) or whole.ctypes.data != numbers.ctypes.data or whole.dtype != numbers.dtype:
        whole = numbers
    if size < have and 4 * size + 64 >= len(whole):
        numbers[size:] = 0
        return numbers[:size]
    if size < have or size > len(whole):
        whole = np.zeros(size + size // SHARE + 16, dtype=numbers.dtype)
        kept = min(size, have)
        whole[:kept] = numbers[:kept]
    return whole[:size]


def step_of(dtypes: tuple[np.dtype[Any], ...]) -> int:
    """Return after how many elements buffers of all these types are on the boundary again: a power of two."""
    return max([ALIGNMENT // math.gcd(ALIGNMENT, dtype.itemsize) for dtype in dtypes])


def spots(cells: Ints, bits: Ints) -> tuple[Ints, Ints]:
    """Return what `Pool.spot` says of many cells, in pools whose pages have 2 to the power of ``bits`` cells."""
    high, small = cells >> bits, np.frexp(cells)[1].astype(np.int64)
    far = high > 0
    return np.where(far, bits + high, small), cells - np.where(far, high << bits, (np.int64(1) << small) >> 1)


class Pool:
    """Buffers of one size, called cells; every cell has an owner.

    The first cells lie in buffers of 1, 1, 2, 4, … cells, up to about a page; the others in buffers of that size.
    How many buffers there are is a function of the number of cells.
    """

    __slots__ = ("bits", "dtypes", "joint", "owners", "pages", "room")

    def __init__(self, room: int, dtypes: tuple[np.dtype[Any], ...]) -> None:
        self.room = room
        self.joint = 0
        """How many cells lie in pages that were made together, and whose memory can only be given back together."""
        self.dtypes = dtypes
        self.bits = max(PAGE // (room * max([dtype.itemsize for dtype in dtypes])), 1).bit_length() - 1
        """A page has 2 to the power of this many cells."""
        self.pages: list[tuple[AnyArray, ...]] = []
        self.owners = array("q")
        """The place that each cell belongs to."""

    def spot(self, cell: int) -> tuple[int, int]:
        """Return in which page a cell lies, and how many cells lie before it there."""
        bits = self.bits
        if cell >> bits:
            return bits + (cell >> bits), cell & ((1 << bits) - 1)
        number = cell.bit_length()
        return number, cell - (1 << number >> 1)

    def at(self, cell: int) -> tuple[tuple[AnyArray, ...], int]:
        """Return the buffers in which a cell lies, and where it begins."""
        page, before = self.spot(cell)
        return self.pages[page], before * self.room

    def region(self, cell: int) -> tuple[AnyArray, AnyArray]:
        """Return a cell, as views of both types; if there is one type, the other is empty."""
        buffers, start = self.at(cell)
        first = buffers[0][start : start + self.room]
        return first, first[:0] if len(buffers) == 1 else buffers[1][start : start + self.room]

    def pages_for(self, cells: int) -> int:
        """Return how many pages there are with so many cells."""
        return self.spot(cells - 1)[0] + 1 if cells else 0

    def reserve(self, cells: int) -> None:
        """Make the pages for so many cells, if they are not there; several at once are parts of one piece of memory."""
        numbers = range(len(self.pages), self.pages_for(cells))
        sizes = [min(1 << max(number - 1, 0), 1 << self.bits) * self.room for number in numbers]
        if len(sizes) > 1:
            self.joint += sum(sizes) // self.room
        ends = np.cumsum(sizes).tolist()
        whole = [aligned(ends[-1], dtype) for dtype in self.dtypes] if ends else []
        self.pages += [
            tuple([memory[end - size : end] for memory in whole]) for end, size in zip(ends, sizes, strict=True)
        ]

    def apart(self) -> list[tuple[AnyArray, ...]]:
        """Return copies of all pages, each by itself."""
        pages = [tuple([aligned(len(buffer), buffer.dtype) for buffer in page]) for page in self.pages]
        for page, copy in zip(self.pages, pages, strict=True):
            for buffer, own in zip(page, copy, strict=True):
                own[:] = buffer
        return pages

    def by_page(self) -> Iterator[tuple[tuple[AnyArray, ...], Ints]]:
        """Return each page with the owners of its cells, in order."""
        owners, first = np.array(self.owners, dtype=np.int64), 0
        for buffers in self.pages:
            stop = first + len(buffers[0]) // self.room
            yield buffers, owners[first:stop]
            first = stop
