"""One column of records that lie together by place, in few buffers: no Python object for a record or a place.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from expunge.regions import NOWHERE, Regions, blank, spots
from expunge.types import AnyArray, Ints


class Shelf(Regions):
    """One dense column: ``width`` numbers a record, the records of a place side by side."""

    __slots__ = ("flat", "tail", "width")

    def __init__(self, column: AnyArray, least: int = 0) -> None:
        self.tail = column.shape[1:]
        self.width = int(np.prod(self.tail, dtype=np.int64))
        self.flat = column.ndim == 1
        super().__init__((column.dtype,), least * self.width)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the numbers."""
        return self.dtypes[0]

    def empty(self) -> AnyArray:
        """Return a column like this one, without records."""
        return np.zeros((0, *self.tail), dtype=self.dtype)

    def admit(self, column: AnyArray, fresh: bool, lengths: Ints) -> None:
        """Make room for longer strings than any before (on a ``fresh`` shelf, for any type)."""
        longer = column.dtype.kind == "U" and self.dtype.itemsize < column.dtype.itemsize
        if longer or (fresh and column.dtype.kind != self.dtype.kind):
            self.change_type(column.dtype, lengths)

    def change_type(self, dtype: np.dtype[Any], lengths: Ints) -> None:
        """Keep the same records in another type. One statement does it: an interruption comes before it or after."""
        new = Shelf(np.zeros((0, *self.tail), dtype=dtype))
        new.whole = self.whole
        new.lay_out(lengths * self.width)
        for place in np.flatnonzero(lengths).tolist():
            length = lengths.item(place)
            new.block(place, length)[...] = self.block(place, length)
        values = new.dtypes, new.step, new.rooms, new.cells, new.pools, None, list(self.buffers()), NOWHERE
        self.dtypes, self.step, self.rooms, self.cells, self.pools, self._left, self._stale, self._found = values
        self._clear()

    def _filled(self, places: Ints, lengths: Ints) -> Ints:
        return lengths[places] * self.width

    def lay(self, column: AnyArray, order: Ints, lengths: Ints, starts: Ints) -> None:
        """Lay ``column[order]`` out, place by place."""
        self.lay_out(lengths * self.width)
        if len(order) >= 16 * len(lengths):
            for place in np.flatnonzero(lengths).tolist():
                start = starts.item(place)
                rows = order[start : start + lengths.item(place)]
                np.take(column, rows, axis=0, out=self.block(place, len(rows)), mode="clip")
            return
        for pool in self.pools.values():
            for (buffer,), owners in pool.by_page():
                numbers = lengths[owners]
                before = np.cumsum(numbers) - numbers
                one = np.arange(int(numbers.sum()))
                rows = np.repeat(starts[owners] - before, numbers) + one
                where = np.repeat(np.arange(len(owners)) * pool.room - before * self.width, numbers) + one * self.width
                self._windows(buffer)[where] = column[order[rows]].reshape(-1, self.width)

    def block(self, place: int, length: int) -> AnyArray:
        """Return the first ``length`` rows of a place, as a view."""
        buffers, start = self.at(place)
        if self.flat:
            return buffers[0][start : start + length]
        return buffers[0][start : start + length * self.width].reshape(length, *self.tail)

    def single(self, place: int, slot: int) -> AnyArray:
        """Return a copy of one row."""
        row = self._row(place, slot).copy()
        return row if self.flat else row.reshape(1, *self.tail)

    def _row(self, place: int, slot: int) -> AnyArray:
        """Return the numbers of one row, as a view."""
        asked, buffers, start = self._found
        if asked != place:
            buffers, start = self.at(place)
        start += slot * self.width
        return buffers[0][start : start + self.width]

    def _windows(self, buffer: AnyArray) -> AnyArray:
        """Return a buffer as rows, one from every element on: fancy indexing takes them as a whole."""
        shape = (max(len(buffer) - self.width + 1, 0), self.width)
        return np.ndarray(shape, buffer.dtype, buffer, 0, (buffer.itemsize, buffer.itemsize))

    def _each(self, places: Ints, slots: Ints) -> list[AnyArray]:
        """Return rows, as views."""
        rooms, cells, inside = self.rooms[places].tolist(), self.cells[places].tolist(), (slots * self.width).tolist()
        found, pools, width = [], self.pools, self.width
        for room, cell, start in zip(rooms, cells, inside, strict=True):
            buffers, first = pools[room].at(cell)
            found.append(buffers[0][first + start : first + start + width])
        return found

    def _are_few(self, number: int) -> bool:
        """Say whether so many rows are better looked at one by one than buffer by buffer."""
        return number < 2 * sum([len(pool.pages) for pool in self.pools.values()])

    def _by_buffer(self, places: Ints, slots: Ints) -> Iterator[tuple[Ints, AnyArray, Ints]]:
        """Return rows buffer by buffer: their numbers, a table, and which of its rows they are."""
        sizes, which = np.unique(self.rooms[places], return_inverse=True)
        pools = [self.pools[size] for size in sizes.tolist()]
        bits = np.array([pool.bits for pool in pools], dtype=np.int64)[which]
        pages, before = spots(self.cells[places], bits)
        order = np.lexsort((pages, which))
        starts, pages, which = (before * sizes[which] + slots * self.width)[order], pages[order], which[order]
        first = [0, *(np.flatnonzero((which[1:] != which[:-1]) | (pages[1:] != pages[:-1])) + 1).tolist()]
        for begin, stop in zip(first, [*first[1:], len(order)], strict=True):
            buffer = pools[which.item(begin)].pages[pages.item(begin)][0]
            yield order[begin:stop], self._windows(buffer), starts[begin:stop]

    def put(self, places: Ints, slots: Ints, rows: AnyArray) -> None:
        """Put rows into slots."""
        if len(slots) == 1:
            self._row(places.item(0), slots.item(0))[...] = rows.reshape(-1)
        elif len(slots) and self._are_few(len(slots)):
            for row, new in zip(self._each(places, slots), rows.reshape(-1, self.width), strict=True):
                row[:] = new
        elif len(slots):
            rows = rows.reshape(-1, self.width)
            for numbers, table, where in self._by_buffer(places, slots):
                table[where] = rows[numbers]

    def wipe(self, places: Ints, slots: Ints) -> None:
        """Overwrite rows."""
        nothing = blank(self.dtype)
        if len(slots) == 1:
            self._row(places.item(0), slots.item(0))[...] = nothing
        elif self._are_few(len(slots)):
            for row in self._each(places, slots):
                row[:] = nothing
        elif len(slots):
            for _, table, where in self._by_buffer(places, slots):
                table[where] = nothing

    def gather(self, places: Ints, slots: Ints) -> AnyArray:
        """Return a copy of single rows."""
        if len(slots) == 1:
            return self.single(places.item(0), slots.item(0))
        rows = np.empty((len(slots), self.width), dtype=self.dtype)
        if self._are_few(len(slots)):
            for row, copy in zip(self._each(places, slots), rows, strict=True):
                copy[:] = row
        elif len(slots):
            for numbers, table, where in self._by_buffer(places, slots):
                rows[numbers] = table[where]
        return rows.reshape(len(slots), *self.tail)

    def make_room(self, places: Ints, rows: Ints, at: Ints, entering: AnyArray) -> None:
        """Give places room for so many rows each."""
        self.expect(places, rows * self.width)

    def settle_one(self, place: int, length: int) -> None:
        """Give one place the room that is meant for its rows."""
        if place < len(self.rooms):
            self._settle(place, length * self.width)
