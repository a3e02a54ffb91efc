"""Rows of numbers, one a step: the arrays of a transcript, in memory or elsewhere, and the path through them."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np

from expunge.base.types import Array, Ints, Keys


class Rows(Protocol):
    """A T×m table that is written in blocks; dropped rows are overwritten."""

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and numbers a step."""

    def __getitem__(self, rows: Any) -> Array:
        """Return rows as an array."""

    def write(self, start: int, block: Array) -> None:
        """Overwrite the rows from ``start`` on."""

    def write_rows(self, rows: Ints, block: Array) -> None:
        """Overwrite some rows."""

    def resize(self, steps: int) -> None:
        """Drop or add rows at the end."""

    def damage(self) -> str | None:
        """Name what changed other than through `write` and `resize`, or return None."""


_STEP = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_ODD = np.uint64(1)
_BOTH = np.uint64(2**32 + 1)
REMEMBERED = 2**17  # weights of so many numbers are kept ready, a megabyte


def _weights(start: int, stop: int) -> Keys:
    """Return a scrambled odd weight for each number, so that no flipped bit goes unnoticed."""
    if stop <= REMEMBERED:
        return _remembered()[start:stop]
    return _weights_anew(start, stop)


@cache
def _remembered() -> Keys:
    weights = _weights_anew(0, REMEMBERED)
    weights.setflags(write=False)
    return weights


def _weights_at(positions: Keys) -> Keys:
    """Return the weights of some numbers."""
    last = positions.max(initial=np.uint64(0))
    return _remembered()[positions] if last < REMEMBERED else _scrambled(positions.copy())


def _weights_anew(start: int, stop: int) -> Keys:
    return _scrambled(np.arange(start, stop, dtype=np.uint64))


def _scrambled(weights: Keys) -> Keys:
    """Turn positions into weights, in place."""
    weights *= _STEP
    weights ^= weights >> _HALF
    weights *= _STEP
    weights |= _ODD
    return weights


def _words(block: Array) -> Keys:
    """Return the bits of all numbers, the higher half added to the lower one.

    So a bit of the higher half counts 2³² + 1 times as much as its fellow in the lower half: no bit counts for a
    multiple of 2³², and a weighted sum tells which bit of which number changed.
    """
    bits = np.ascontiguousarray(block).view(np.uint64).ravel()
    words = bits >> _HALF
    words += bits
    return words


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

    __slots__ = ("_buffer", "_checksum", "_unfinished", "array")

    def __init__(self, array: Array) -> None:
        self._buffer = self.array = np.ascontiguousarray(array)
        self._unfinished: tuple[slice | Ints, Array, int] | None = None
        self._checksum = self._sum(0, _words(self.array))

    def __getstate__(self) -> tuple[Array, int]:
        self._finish()
        return self.array, self._checksum

    def __setstate__(self, state: tuple[Array, int]) -> None:
        self.array, self._checksum = state
        self._buffer = self.array = np.ascontiguousarray(self.array)
        self._unfinished = None

    def _sum(self, start: int, words: Keys) -> int:
        """Return the weighted sum, modulo 2^64, of a block that starts at row ``start``; uses up the words."""
        first = start * self.array.shape[1]
        words *= _weights(first, first + len(words))
        return int(np.add.reduce(words))

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and numbers a step."""
        return self.array.shape

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self._buffer.nbytes

    def __getitem__(self, rows: Any) -> Array:
        return self.array[rows]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array, dtype=dtype, copy=copy)

    def write(self, start: int, block: Array) -> None:
        """Overwrite the rows from ``start`` on."""
        self._finish()
        if len(block) == len(self.array):
            self._unfinished = (slice(None), block, self._sum(0, _words(block)) % 2**64)
        else:
            words = _words(block)
            words -= _words(self.array[start : start + len(block)])
            checksum = (self._checksum + self._sum(start, words)) % 2**64
            self._unfinished = (slice(start, start + len(block)), block, checksum)
        self._finish()

    def write_rows(self, rows: Ints, block: Array) -> None:
        """Overwrite some rows; most of their numbers may stay as they are."""
        self._finish()
        before, width = self.array[rows], np.uint64(self.array.shape[1])
        changed = np.flatnonzero(before.view(np.uint64) != block.view(np.uint64)).astype(np.uint64)
        words = _words(block.ravel()[changed])
        words -= _words(before.ravel()[changed])
        words *= _weights_at(rows.astype(np.uint64)[changed // width] * width + changed % width)
        self._unfinished = (rows, block, (self._checksum + int(np.add.reduce(words))) % 2**64)
        self._finish()

    def _finish(self) -> None:
        """Do what was announced; after an interruption, again."""
        if self._unfinished is not None:
            where, block, checksum = self._unfinished
            self.array[where] = block
            self._checksum = checksum
            self._unfinished = None

    def resize(self, steps: int) -> None:
        """Drop rows at the end (overwriting them first) or add rows of zeros; room for some more is kept ready."""
        have, width = self.array.shape
        if steps < have:
            self.write(steps, np.zeros((have - steps, width)))
        room = len(self._buffer)
        if steps > room or 2 * steps + 64 < room:
            buffer = np.zeros((steps + steps // 4 if steps > room else steps, width))
            kept = min(have, steps)
            buffer[:kept] = self.array[:kept]
            old = self._buffer
            self._buffer, self.array, old[...] = buffer, buffer[:steps], 0.0  # in this order, whatever comes between
        else:
            self.array = self._buffer[:steps]

    def damage(self) -> str | None:
        """Name the bit that was flipped, or say that more than one was."""
        difference = (self._sum(0, _words(self.array)) - self._checksum) % 2**64
        if difference == 0:
            return None
        bit = (difference & -difference).bit_length() - 1  # weights are odd
        mask = np.uint64(2 ** (64 - bit) - 1)
        weights = _weights(0, self.array.size)
        for half, times in ((0, _ODD), (1, _BOTH)):
            for change in (difference >> bit, (-difference % 2**64) >> bit):
                hit = np.flatnonzero((weights * times) & mask == np.uint64(change) & mask).tolist()
                if len(hit) == 1 and bit < 32:
                    row, column = divmod(hit[0], self.array.shape[1])
                    return f"row {row}, column {column}: bit {bit + 32 * half} is flipped"
        return "more than one bit has changed"


class Path:
    """The iterates so far: ``path[0]`` is where the rule started, ``path[-1]`` the newest."""

    __slots__ = ("first", "gathered", "made", "newest", "staged", "start", "stored")

    def __init__(self, start: Array, stored: Rows | None, made: int, staged: Array | None = None) -> None:
        self.start = start
        self.stored = stored
        self.first = made  # iterates from here on are staged
        self.staged = staged
        self.made = made
        self.gathered: dict[int, Any] = {}
        """Of each place, the part of its records that joins all steps of a pass but the finish: looked for once."""
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

    def upto(self, step: int) -> Path:
        """Return the stored iterates that a step could see."""
        return Path(self.start, self.stored, step)

    def rows(self, first: int, stop: int) -> Array:
        """Return the iterates from ``path[first]`` to before ``path[stop]``, one a row."""
        begin, end = max(first - 1, 0), min(stop, len(self)) - 1
        parts = [self.start[None]] if first == 0 < stop else []
        if self.stored is not None and begin < self.first:
            parts.append(self.stored[begin : min(self.first, end)])
        if self.staged is not None and end > self.first:
            parts.append(self.staged[max(begin - self.first, 0) : end - self.first])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def append(self, iterate: Array) -> None:
        """Take one step further; the caller has staged the iterate."""
        self.newest = iterate
        self.made += 1
