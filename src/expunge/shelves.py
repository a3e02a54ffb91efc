"""Columns of records that lie together by place, in flat buffers: no Python object for a record or a place.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from expunge.columns import LARGEST, counts_in, csr, empty, index_type, is_sparse, pointers, rows_in
from expunge.types import AnyArray, Batch, Column, Ints

ALIGNMENT = 64
CHUNK = 2**22


def _aligned(elements: int, dtype: np.dtype[np.generic]) -> AnyArray:
    """Return memory that starts on the boundary, blank so that nothing of old comes back in it."""
    raw = np.zeros(elements * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + elements * dtype.itemsize].view(dtype)


def _realigned(array: AnyArray) -> AnyArray:
    copy = _aligned(len(array), array.dtype)
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
        self.buffer = _realigned(self.buffer)

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
        new.buffer, new.offsets = _aligned(int(room.sum()), new.dtype), np.cumsum(room) - room
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
            larger = _aligned(max(2 * len(self.buffer), self.used + room), self.dtype)
            larger[: self.used] = self.buffer[: self.used]
            smaller = self.buffer
            self.buffer, smaller[...] = larger, self.blank
        old = self.block(place, length)
        self.buffer[self.used : self.used + old.size] = old.ravel()
        self.offsets[place], self.used, old[...] = self.used, self.used + room, self.blank


class SparseShelf:
    """One sparse column: the numbers of a place's records side by side, and how many each record has.

    A place is rewritten as a whole. Its region of the buffers has some room to spare, always blank.
    """

    __slots__ = ("counts", "data", "indices", "offsets", "rooms", "used", "width")

    def __init__(self, column: Column) -> None:
        self.width = column.shape[1]
        self.counts = Shelf(np.zeros(0, dtype=np.int32))
        self.data: AnyArray
        self.indices: AnyArray
        self.offsets: Ints
        self.rooms: Ints
        self.used = 0

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            setattr(self, name, value)
        self.data, self.indices = _realigned(self.data), _realigned(self.indices)

    def _buffers(self, elements: int) -> tuple[AnyArray, AnyArray]:
        return _aligned(elements, np.dtype(np.float64)), _aligned(elements, np.dtype(index_type(self.width)))

    def empty(self) -> Column:
        """Return a column like this one, without records."""
        return empty(self.width)

    def admit(self, column: Column, fresh: bool, lengths: Ints, capacities: Ints) -> None:
        """Accept any sparse column of this width: they are all of one type."""

    def lay(self, column: Column, order: Ints, lengths: Ints, starts: Ints) -> None:
        """Lay ``column[order]`` out, place by place."""
        counts = counts_in(column)
        self.counts.lay(counts.astype(np.int32), order, lengths, starts)
        ends = np.append(0, np.cumsum(counts[order], dtype=np.int64))
        first = ends[starts]
        self.rooms = _padded(ends[starts + lengths] - first)
        self.offsets = np.cumsum(self.rooms) - self.rooms
        self.used = int(self.rooms.sum())
        self.data, self.indices = self._buffers(self.used)
        shifts = np.repeat(self.offsets - first, lengths)  # from where a row's numbers are in order, to their region
        cuts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1] + CHUNK, CHUNK)).clip(max=len(order)))
        for begin, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            rows = column[order[begin:stop]]
            where = np.repeat(shifts[begin:stop], counts_in(rows)) + np.arange(ends[begin], ends[stop])
            self.data[where], self.indices[where] = rows.data, rows.indices

    def block(self, place: int, length: int) -> Column:
        """Return the first ``length`` rows of a place, as a sparse column on views."""
        ends = pointers(self.counts.block(place, length), max(self.width, self.rooms.item(place)))
        start = self.offsets.item(place)
        stop = start + ends.item(length)
        return csr(self.data[start:stop], self.indices[start:stop], ends, self.width)

    def gather(self, places: Ints, slots: Ints) -> Column:
        """Return a copy of single rows."""
        counts = self.counts.gather(places, slots)
        first = self.offsets[places]
        order = np.argsort(places, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(places[order])) + 1) if len(order) else ():
            here = slots[rows]
            ends = np.cumsum(self.counts.block(places.item(rows.item(0)), int(here.max()) + 1), dtype=np.int64)
            first[rows] += ends[here] - counts[rows]
        ends = pointers(counts, LARGEST + 1)
        where = np.repeat(first - ends[:-1], counts) + np.arange(ends[-1])
        return csr(self.data[where], self.indices[where], pointers(counts, max(self.width, len(where))), self.width)

    def keep(self, place: int, length: int) -> Column:
        """Return a copy of a place, for `rewrite` to start from."""
        return self.block(place, length).copy()

    def rewrite(self, place: int, length: int, slots: list[int], rows: Column, after: int, kept: Column) -> None:
        """Make a place what was ``kept`` of it, with rows put into slots (ascending), and end at ``after``."""
        splice = Splice(kept, slots, rows, after)
        if splice.stored > self.rooms.item(place):
            self._leave(place, splice.stored)
        start = self.offsets.item(place)
        stop, end = start + splice.stored, start + self.rooms.item(place)
        splice.write(kept.data, rows.data if slots else None, self.data[start:stop])
        splice.write(kept.indices, rows.indices if slots else None, self.indices[start:stop])
        self.data[stop:end] = 0.0
        self.indices[stop:end] = 0
        counts = self.counts.block(place, max(length, after, rows_in(kept)))
        counts[:after] = splice.counts
        counts[after:] = 0

    def _leave(self, place: int, needed: int) -> None:
        """Blank the region of a place, and give it a larger one at the end of the buffers."""
        old = slice(self.offsets.item(place), self.offsets.item(place) + self.rooms.item(place))
        self.data[old] = 0.0
        self.indices[old] = 0
        start, room = self.used, _padded(needed + needed // 4)
        if start + room > len(self.indices):
            self._refit(self.offsets, max(2 * len(self.indices), start + room))
        self.used += room
        self.offsets[place] = start
        self.rooms[place] = room
        total = int(self.rooms.sum())
        if self.used > 2 * total + 1024:
            self._refit(np.cumsum(self.rooms) - self.rooms, total)
            self.used = total

    def _refit(self, offsets: Ints, elements: int) -> None:
        """Carry all regions over to new buffers, and blank the old, all at once at the end."""
        old_data, old_indices = self.data, self.indices
        data, indices = self._buffers(elements)
        for place in np.flatnonzero(self.rooms).tolist():
            room, start, target = self.rooms.item(place), self.offsets.item(place), offsets.item(place)
            data[target : target + room] = old_data[start : start + room]
            indices[target : target + room] = old_indices[start : start + room]
        self.offsets, self.data, self.indices, old_data[...], old_indices[...] = offsets, data, indices, 0.0, 0

    def move(self, place: int, length: int, capacity: int) -> None:
        """Make room for the counts of more records; the records themselves find theirs in `rewrite`."""
        self.counts.move(place, length, capacity)

    def close_gaps(self, lengths: Ints, capacities: Ints) -> None:
        """Do for the counts what a dense shelf does; regions of records are taken care of in `rewrite`."""
        self.counts.close_gaps(lengths, capacities)

    def resize(self, places: int, capacities: Ints) -> None:
        """Drop empty places at the end, or add empty ones."""
        self.counts.resize(places, capacities)
        have = len(self.offsets)
        for place in range(have - 1, places - 1, -1):
            if self.offsets.item(place) + self.rooms.item(place) == self.used:
                self.used -= self.rooms.item(place)
        more = np.zeros(max(places - have, 0), dtype=np.int64)
        self.offsets = np.concatenate([self.offsets[:places], more + self.used])
        self.rooms = np.concatenate([self.rooms[:places], more])

    @property
    def content_bytes(self) -> int:
        """Size of what the records take up, spare room included."""
        return self.data.nbytes + self.indices.nbytes + self.counts.content_bytes

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        return self.data.nbytes + self.indices.nbytes + self.counts.nbytes + self.offsets.nbytes + self.rooms.nbytes


class Splice:
    """How some rows of a sparse column give way to others."""

    __slots__ = ("counts", "new", "old", "stored")

    def __init__(self, column: Column, slots: list[int], rows: Column, after: int) -> None:
        before = min(rows_in(column), after)
        self.counts = np.zeros(after, dtype=np.int32)
        self.counts[:before] = counts_in(column)[:before]
        if slots:
            self.counts[slots] = counts_in(rows)
        self.stored = int(self.counts.sum(dtype=np.int64))
        fences = np.array([-1, *slots, before])
        first, stop = column.indptr[(fences[:-1] + 1).clip(max=before)], column.indptr[fences[1:].clip(max=before)]
        self.old = list(zip(first.tolist(), stop.tolist(), strict=True))
        """The parts that stay: before, between and after the slots."""
        self.new = rows.indptr.tolist() if slots else [0]

    def write(self, old: AnyArray, new: AnyArray | None, target: AnyArray) -> None:
        """Write the numbers (or their indices) of the result."""
        pieces = [old[slice(*self.old[0])]]
        if new is not None:
            for part, first, stop in zip(self.old[1:], self.new[:-1], self.new[1:], strict=True):
                pieces += [new[first:stop], old[slice(*part)]]
        np.concatenate(pieces, out=target)


def _padded(elements: Any) -> Any:
    """Return how many elements a region has, so that the next begins on the boundary."""
    return -(-elements // 16) * 16


class Shelves:
    """Several columns with the same places."""

    __slots__ = ("capacities", "columns", "least", "lengths", "nothing", "sparse")

    def __init__(self, columns: Batch, order: Ints, lengths: Ints, least: int = 0) -> None:
        self.least = least
        self.columns = [SparseShelf(column) if is_sparse(column) else Shelf(column) for column in columns]
        starts = np.cumsum(lengths) - lengths
        for shelf, column in zip(self.columns, columns, strict=True):
            shelf.lay(column, order, lengths, starts)
        self.lengths = lengths
        self.capacities = lengths.copy()
        self.sparse = any(isinstance(shelf, SparseShelf) for shelf in self.columns)
        self.nothing = (None,) * len(columns)

    def __len__(self) -> int:
        return len(self.lengths)

    def block(self, place: int) -> Batch:
        """Return the columns of a place, on views."""
        length = self.lengths.item(place)
        return tuple([shelf.block(place, length) for shelf in self.columns])

    def gather(self, places: Ints, slots: Ints) -> Batch:
        """Return a copy of single rows, in all columns."""
        return tuple([shelf.gather(places, slots) for shelf in self.columns])

    def admit(self, rows: Batch, fresh: bool) -> None:
        """Make room for longer strings than any before (with ``fresh`` shelves, for any type)."""
        for shelf, column in zip(self.columns, rows, strict=True):
            shelf.admit(column, fresh, self.lengths, self.capacities)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        have = len(self.lengths)
        if places == have:
            return
        assert not self.lengths[places:].any()
        for shelf in self.columns:
            shelf.resize(places, self.capacities)
        more = np.zeros(max(places - have, 0), dtype=np.int64)
        self.capacities = np.concatenate([self.capacities[:places], more])
        self.lengths = np.concatenate([self.lengths[:places], more])

    def keep(self, place: int, length: int) -> Sequence[Any]:
        """Return what must be kept of a place to rewrite it, be it several times: for sparse columns, a copy."""
        if not self.sparse:
            return self.nothing
        return [shelf.keep(place, length) for shelf in self.columns]

    def rewrite(self, place: int, length: int, slots: list[int], rows: Batch, after: int, kept: Sequence[Any]) -> None:
        """Put rows into slots of a place of ``length`` rows, so that it has ``after`` rows then; overwrite the rest.

        After an interruption it can be done again; putting back what lay in the slots undoes it.
        """
        if after > length:
            self._reserve(place, length, after)
            self.lengths[place] = after  # should something fail from here on, all of it is put back
        for shelf, column, before in zip(self.columns, rows or self.nothing, kept, strict=True):
            shelf.rewrite(place, length, slots, column, after, before)
        self.lengths[place] = after

    def _reserve(self, place: int, length: int, needed: int) -> None:
        if needed <= self.capacities.item(place):
            return
        capacity = max(needed + needed // 4, self.least)
        for shelf in self.columns:
            shelf.move(place, length, capacity)
        self.capacities[place] = capacity
        for shelf in self.columns:
            shelf.close_gaps(self.lengths, self.capacities)

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        return self.lengths.nbytes + self.capacities.nbytes + sum(shelf.nbytes for shelf in self.columns)
