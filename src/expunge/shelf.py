"""One column of records that lie together by place, in a flat buffer: no Python object for a record or a place.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.types import AnyArray, Column, Ints

ALIGNMENT = 64


def aligned(elements: int, dtype: np.dtype[np.generic]) -> AnyArray:
    """Return memory that starts on the boundary, blank so that nothing of old comes back in it."""
    raw = np.zeros(elements * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + elements * dtype.itemsize].view(dtype)


def realigned(array: AnyArray) -> AnyArray:
    """Return a copy that starts on the boundary, as after unpickling it may not."""
    copy = aligned(len(array), array.dtype)
    copy[...] = array
    return copy


class Shelf:
    """One dense column: ``width`` numbers a record, the records of a place side by side."""

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

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            setattr(self, name, value)
        self.buffer = realigned(self.buffer)

    def empty(self) -> AnyArray:
        """Return a column like this one, without records."""
        return np.zeros((0, *self.tail), dtype=self.dtype)

    def admit(self, column: AnyArray, fresh: bool, lengths: Ints, capacities: Ints) -> None:
        """Make room for longer strings than any before (on a ``fresh`` shelf, for any type)."""
        longer = column.dtype.kind == "U" and self.dtype.itemsize < column.dtype.itemsize
        if longer or (fresh and column.dtype.kind != self.dtype.kind):
            self.relay(lengths, capacities, column.dtype)

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
        self.buffer = aligned(self.used, self.dtype)
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

    def keep(self, place: int, length: int) -> Column:
        """Return what must be kept to do `rewrite` again after an interruption, or to undo it: nothing."""
        return None

    def rewrite(self, place: int, length: int, slots: list[int], rows: Column, after: int, kept: Column) -> None:
        """Put rows into slots (ascending, some perhaps behind the ``length`` that there are); end at ``after``."""
        block = self.block(place, length if length > after else after)
        if len(slots) == 1:
            block[slots[0]] = rows[0]
        elif slots:
            block[slots] = rows
        if after < length:
            block[after:] = self.blank

    def close_gaps(self, lengths: Ints, capacities: Ints) -> None:
        """Lay everything out anew when more than half of the buffer is room that places have left."""
        if self.used > 2 * int(self.room(capacities).sum()) + 1024:
            self.relay(lengths, capacities)

    def resize(self, places: int, capacities: Ints) -> None:
        """Drop empty places at the end, or add empty ones."""
        have = len(self.offsets)
        if places < have:
            room = self.room(capacities)
            for place in range(have - 1, places - 1, -1):  # room at the end of the buffer can be used again
                if self.offsets.item(place) + room.item(place) == self.used:
                    self.used -= room.item(place)
            self.offsets = self.offsets[:places].copy()
        else:
            self.offsets = np.concatenate([self.offsets, np.full(places - have, self.used)])

    @property
    def content_bytes(self) -> int:
        """Size of what the records take up, spare room included."""
        return self.buffer.nbytes

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        return self.buffer.nbytes + self.offsets.nbytes

    def relay(self, lengths: Ints, capacities: Ints, dtype: np.dtype[np.generic] | None = None) -> None:
        """Lay all places out anew, without gaps (and in another type, for longer strings); overwrite the old.

        The last statement does it all at once: an interruption comes before it or after.
        """
        new = Shelf(np.zeros((0, *self.tail), dtype=self.dtype if dtype is None else dtype))
        room = new.room(capacities)
        new.buffer, new.offsets = aligned(int(room.sum()), new.dtype), np.cumsum(room) - room
        for place in np.flatnonzero(lengths).tolist():
            length = lengths.item(place)
            new.block(place, length)[...] = self.block(place, length)
        old, blank, used = self.buffer, self.blank, len(new.buffer)
        self.dtype, self.blank, self.offsets, self.used, self.buffer, old[...] = (
            new.dtype, new.blank, new.offsets, used, new.buffer, blank
        )  # fmt: skip

    def gather(self, places: Ints, slots: Ints) -> AnyArray:
        """Return a copy of single rows."""
        where = self.offsets[places] + slots * self.width
        if self.flat:
            return self.buffer[where]
        return self.buffer[where[:, None] + np.arange(self.width)].reshape(len(where), *self.tail)

    def move(self, place: int, length: int, capacity: int) -> None:
        """Give a place new room at the end of the buffer, and overwrite the old, all at once at the end."""
        room = int(self.room(np.array([capacity]))[0])
        if self.used + room > len(self.buffer):
            larger = aligned(max(2 * len(self.buffer), self.used + room), self.dtype)
            larger[: self.used] = self.buffer[: self.used]
            smaller = self.buffer
            self.buffer, smaller[...] = larger, self.blank
        old = self.block(place, length)
        self.buffer[self.used : self.used + old.size] = old.ravel()
        self.offsets[place], self.used, old[...] = self.used, self.used + room, self.blank
