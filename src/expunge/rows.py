"""Rows of numbers, one a step: the arrays of a transcript, in memory or elsewhere, and the path through them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from expunge.types import Array, Keys


class Rows(Protocol):
    """A T×m table that is written in blocks; dropped rows are overwritten."""

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and numbers a step."""

    def __getitem__(self, rows: Any) -> Array:
        """Return rows as an array."""

    def write(self, start: int, block: Array) -> None:
        """Overwrite the rows from ``start`` on."""

    def resize(self, steps: int) -> None:
        """Drop or add rows at the end."""

    def damage(self) -> str | None:
        """Name what changed other than through `write` and `resize`, or return None."""


_ODD = np.uint64(1)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xD1342543DE82EF95)


def _weights(start: int, stop: int) -> Keys:
    """Return an odd 64-bit weight for each position, so that no single flipped bit goes unnoticed."""
    x = np.arange(start, stop, dtype=np.uint64)
    x *= _STEP
    x ^= x >> np.uint64(29)
    x *= _MULTIPLIER
    x ^= x >> np.uint64(32)
    x |= _ODD
    return x


class ArrayRows:
    """Rows in memory, with one checksum that can name a flipped bit.

    >>> rows = ArrayRows(np.zeros((3, 2)))
    >>> rows.write(1, np.ones((1, 2)))
    >>> rows.damage() is None
    True
    >>> rows.array[2, 1] = 2.0
    >>> rows.damage()
    'row 2, column 1: bit 62 is flipped'
    """

    __slots__ = ("_checksum", "array")

    def __init__(self, array: Array) -> None:
        self.array = np.ascontiguousarray(array)
        self._checksum = self._sum(0, self.array)

    def _sum(self, start: int, block: Array) -> int:
        bits = np.ascontiguousarray(block).view(np.uint64).ravel()
        first = start * self.array.shape[1]
        bits = bits * _weights(first, first + len(bits))
        return int(np.add.reduce(bits))

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and numbers a step."""
        return self.array.shape  # type: ignore[return-value]

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self.array.nbytes

    def __getitem__(self, rows: Any) -> Array:
        return self.array[rows]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array, dtype=dtype, copy=copy)

    def write(self, start: int, block: Array) -> None:
        """Overwrite the rows from ``start`` on."""
        old = self.array[start : start + len(block)]
        new = np.ascontiguousarray(block)
        difference = new.view(np.uint64).ravel() - np.ascontiguousarray(old).view(np.uint64).ravel()
        first = start * self.array.shape[1]
        difference *= _weights(first, first + len(difference))
        self._checksum = (self._checksum + int(np.add.reduce(difference))) % 2**64
        old[...] = new

    def resize(self, steps: int) -> None:
        """Drop rows at the end (overwriting them first) or add rows of zeros."""
        have, width = self.array.shape
        if steps < have:
            self.write(steps, np.zeros((have - steps, width)))
            self.array = self.array[:steps].copy()
        elif steps > have:
            self.array = np.concatenate([self.array, np.zeros((steps - have, width))])

    def damage(self) -> str | None:
        """Name the bit that was flipped, or say that more than one was."""
        difference = (self._sum(0, self.array) - self._checksum) % 2**64
        if difference == 0:
            return None
        width = self.array.shape[1]
        weights = _weights(0, self.array.size)
        for bit in range(64):
            for changed in (difference, -difference % 2**64):
                hit = np.flatnonzero(weights << np.uint64(bit) == np.uint64(changed))
                if len(hit) == 1:
                    return f"row {hit[0] // width}, column {hit[0] % width}: bit {bit} is flipped"
        return "more than one bit has changed"


class Path:
    """The iterates so far: ``path[0]`` is where the rule started, ``path[-1]`` the newest."""

    __slots__ = ("first", "made", "newest", "staged", "start", "stored")

    def __init__(self, start: Array, stored: Rows | None, made: int, staged: Array | None = None) -> None:
        self.start = start
        self.stored = stored
        self.first = made  # iterates from here on are staged
        self.staged = staged
        self.made = made
        self.newest = start if made == 0 or stored is None else stored[made - 1]

    def __len__(self) -> int:
        return self.made + 1

    def __getitem__(self, index: int) -> Array:
        if index == -1:
            return self.newest
        position = index if index >= 0 else self.made + 1 + index
        if not 0 <= position <= self.made:
            raise IndexError(f"path[{index}]: there are {self.made + 1} iterates so far")
        if position == 0:
            return self.start
        if position - 1 < self.first:
            assert self.stored is not None
            return self.stored[position - 1]
        assert self.staged is not None
        return np.asarray(self.staged[position - 1 - self.first])

    def append(self, iterate: Array) -> None:
        """Take one step further; the caller has staged the iterate."""
        self.newest = iterate
        self.made += 1
