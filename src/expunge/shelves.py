"""Columns of records that lie together by place, in flat buffers: no Python object for a record or a place.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

import numpy as np

from expunge.types import AnyArray, Batch, Ints

ALIGNMENT = 64


def _aligned(elements: int, dtype: np.dtype[np.generic]) -> AnyArray:
    """Return memory that starts on the boundary, blank so that nothing of old comes back in it."""
    raw = np.zeros(elements * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + elements * dtype.itemsize].view(dtype)


class Shelf:
    """One column: ``width`` numbers a record, the records of a place side by side."""

    __slots__ = ("blank", "buffer", "dtype", "flat", "offsets", "tail", "used", "width")

    def __init__(self, column: AnyArray) -> None:
        self.dtype = column.dtype
        self.blank = np.zeros((), dtype=self.dtype)
        self.tail = column.shape[1:]
        self.width = int(np.prod(self.tail, dtype=np.int64))
        self.flat = column.ndim == 1
        self.buffer: AnyArray
        self.offsets: Ints
        self.used = 0

    def room(self, capacities: Ints) -> Ints:
        """Return how many elements each place takes up, padded to the boundary."""
        size = self.dtype.itemsize
        step = ALIGNMENT // np.gcd(ALIGNMENT, size)  # elements between boundaries that elements can start on
        return -(-(capacities * self.width) // step) * step

    def lay(self, column: AnyArray, order: Ints, lengths: Ints, starts: Ints) -> None:
        """Lay ``column[order]`` out, place by place."""
        room = self.room(lengths)
        ends = np.cumsum(room)
        self.offsets = ends - room
        self.used = int(ends[-1]) if len(ends) else 0
        self.buffer = _aligned(self.used, self.dtype)
        if len(order) >= 16 * len(lengths):
            for place in np.flatnonzero(lengths).tolist():
                start = starts.item(place)
                rows = order[start : start + lengths.item(place)]
                np.take(column, rows, axis=0, out=self.block(place, len(rows)), mode="clip")
            return
        where = np.repeat(self.offsets - starts * self.width, lengths) + np.arange(len(order)) * self.width
        if self.flat:
            self.buffer[where] = column[order]
        else:
            inside = np.arange(self.width)
            for chunk in range(0, len(order), 65536):
                part = slice(chunk, chunk + 65536)
                self.buffer[where[part, None] + inside] = column[order[part]].reshape(-1, self.width)

    def block(self, place: int, length: int) -> AnyArray:
        """Return the first ``length`` rows of a place, as a view."""
        start = self.offsets.item(place)
        if self.flat:
            return self.buffer[start : start + length]
        return self.buffer[start : start + length * self.width].reshape(length, *self.tail)

    def relay(self, lengths: Ints, capacities: Ints, dtype: np.dtype[np.generic] | None = None) -> None:
        """Lay all places out anew, without gaps (and in another type, for longer strings); overwrite the old."""
        old = self.buffer
        blocks = [(place, self.block(place, lengths.item(place))) for place in np.flatnonzero(lengths).tolist()]
        self.dtype = self.dtype if dtype is None else dtype
        room = self.room(capacities)
        self.buffer, self.offsets = _aligned(int(room.sum()), self.dtype), np.cumsum(room) - room
        self.used = len(self.buffer)
        for place, block in blocks:
            self.block(place, len(block))[...] = block
        old[...] = self.blank
        self.blank = np.zeros((), dtype=self.dtype)

    def gather(self, places: Ints, slots: Ints) -> AnyArray:
        """Return a copy of single rows."""
        where = self.offsets[places] + slots * self.width
        if self.flat:
            return self.buffer[where]
        return self.buffer[where[:, None] + np.arange(self.width)].reshape(len(where), *self.tail)

    def move(self, place: int, length: int, capacity: int) -> None:
        """Give a place new room at the end of the buffer, and overwrite the old."""
        room = int(self.room(np.array([capacity]))[0])
        if self.used + room > len(self.buffer):
            larger = _aligned(max(2 * len(self.buffer), self.used + room), self.dtype)
            larger[: self.used] = self.buffer[: self.used]
            smaller, self.buffer = self.buffer, larger
            smaller[...] = self.blank
        old = self.block(place, length)
        self.buffer[self.used : self.used + old.size] = old.ravel()
        self.offsets[place] = self.used
        self.used += room
        old[...] = self.blank


class Shelves:
    """Several columns with the same places."""

    __slots__ = ("capacities", "columns", "least", "lengths")

    def __init__(self, columns: Batch, order: Ints, lengths: Ints, least: int = 0) -> None:
        self.least = least
        self.columns = [Shelf(column) for column in columns]
        starts = np.cumsum(lengths) - lengths
        for shelf, column in zip(self.columns, columns, strict=True):
            shelf.lay(column, order, lengths, starts)
        self.lengths = lengths
        self.capacities = lengths.copy()

    def __len__(self) -> int:
        return len(self.lengths)

    def block(self, place: int) -> Batch:
        """Return the columns of a place, as views."""
        length = self.lengths.item(place)
        return tuple([shelf.block(place, length) for shelf in self.columns])

    def gather(self, places: Ints, slots: Ints) -> Batch:
        """Return a copy of single rows, in all columns."""
        return tuple([shelf.gather(places, slots) for shelf in self.columns])

    def admit(self, rows: Batch, fresh: bool) -> None:
        """Make room for longer strings than any before (with ``fresh`` shelves, for any type)."""
        for shelf, column in zip(self.columns, rows, strict=True):
            longer = column.dtype.kind == "U" and shelf.dtype.itemsize < column.dtype.itemsize
            if longer or (fresh and column.dtype.kind != shelf.dtype.kind):
                shelf.relay(self.lengths, self.capacities, column.dtype)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        have = len(self.lengths)
        if places < have:
            assert not self.lengths[places:].any()
            for shelf in self.columns:
                room = shelf.room(self.capacities)
                for place in range(have - 1, places - 1, -1):  # room at the end of the buffer can be used again
                    if shelf.offsets.item(place) + room.item(place) == shelf.used:
                        shelf.used -= room.item(place)
            self.lengths, self.capacities = self.lengths[:places].copy(), self.capacities[:places].copy()
            for shelf in self.columns:
                shelf.offsets = shelf.offsets[:places].copy()
        elif places > have:
            more = np.zeros(places - have, dtype=np.int64)
            for shelf in self.columns:
                shelf.offsets = np.concatenate([shelf.offsets, more + shelf.used])
            self.capacities = np.concatenate([self.capacities, more])
            self.lengths = np.concatenate([self.lengths, more])

    def extend(self, place: int, length: int, rows: Batch) -> None:
        """Put rows behind the first ``length`` of a place."""
        needed = length + len(rows[0])
        if needed > self.capacities.item(place):
            capacity = max(needed + needed // 4, self.least)
            for shelf in self.columns:
                shelf.move(place, length, capacity)
            self.capacities[place] = capacity
            self._close_gaps()
        for shelf, column in zip(self.columns, rows, strict=True):
            shelf.block(place, needed)[length:] = column
        self.lengths[place] = needed

    def _close_gaps(self) -> None:
        """Lay everything out anew when more than half of a buffer is room that places have left."""
        for shelf in self.columns:
            if shelf.used > 2 * int(shelf.room(self.capacities).sum()) + 1024:
                shelf.relay(self.lengths, self.capacities)

    def truncate(self, place: int, length: int, block: Batch) -> None:
        """Drop the rows of a place (whose columns are ``block``) from ``length`` on, and overwrite them."""
        for column, shelf in zip(block, self.columns, strict=True):
            column[length:] = shelf.blank
        self.lengths[place] = length

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        own = self.lengths.nbytes + self.capacities.nbytes
        return own + sum(shelf.buffer.nbytes + shelf.offsets.nbytes for shelf in self.columns)
