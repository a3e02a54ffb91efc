"""Columns of records that lie together by place, in flat buffers: no Python object for a record or a place.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

import numpy as np

from expunge.types import AnyArray, Batch, Ints

ALIGNMENT = 64


def _aligned(elements: int, dtype: np.dtype[np.generic]) -> AnyArray:
    """Return uninitialized memory that starts on the boundary."""
    raw = np.empty(elements * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
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

    def cast(self, dtype: np.dtype[np.generic], lengths: Ints, capacities: Ints) -> None:
        """Change the type of a flat column (ids that are longer than any before)."""
        inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows = self.buffer[np.repeat(self.offsets, lengths) + inside].astype(dtype)
        self.dtype = dtype
        self.blank = np.zeros((), dtype=dtype)
        room = self.room(capacities)
        self.offsets = np.cumsum(room) - room
        self.used = int(room.sum())
        self.buffer = _aligned(self.used, dtype)
        self.buffer[np.repeat(self.offsets, lengths) + inside] = rows

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
            self.buffer = larger
        old = self.block(place, length)
        kept = old.copy()
        old[...] = self.blank
        self.offsets[place] = self.used
        self.used += room
        self.block(place, length)[...] = kept


class Shelves:
    """Several columns with the same places."""

    __slots__ = ("capacities", "columns", "lengths")

    def __init__(self, columns: Batch, order: Ints, lengths: Ints) -> None:
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
                shelf.cast(column.dtype, self.lengths, self.capacities)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        have = len(self.lengths)
        if places < have:
            assert not self.lengths[places:].any()
            self.lengths, self.capacities = self.lengths[:places].copy(), self.capacities[:places].copy()
            for shelf in self.columns:
                shelf.offsets = shelf.offsets[:places].copy()
        elif places > have:
            more = np.zeros(places - have, dtype=np.int64)
            self.lengths = np.concatenate([self.lengths, more])
            self.capacities = np.concatenate([self.capacities, more])
            for shelf in self.columns:
                shelf.offsets = np.concatenate([shelf.offsets, more + shelf.used])

    def extend(self, place: int, rows: Batch) -> None:
        """Append rows to a place."""
        length = self.lengths.item(place)
        needed = length + len(rows[0])
        if needed > self.capacities.item(place):
            capacity = needed + needed // 4
            for shelf in self.columns:
                shelf.move(place, length, capacity)
            self.capacities[place] = capacity
        self.lengths[place] = needed
        for shelf, column in zip(self.columns, rows, strict=True):
            shelf.block(place, needed)[length:] = column

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
