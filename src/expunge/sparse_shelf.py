"""One sparse column of records that lie together by place: their numbers and indices in two flat buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.columns import LARGEST, counts_in, csr, empty, index_type, pointers, rows_in
from expunge.shelf import Shelf, aligned, realigned
from expunge.types import AnyArray, Column, Ints

CHUNK = 2**22


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
        self.data, self.indices = realigned(self.data), realigned(self.indices)

    def _buffers(self, elements: int) -> tuple[AnyArray, AnyArray]:
        return aligned(elements, np.dtype(np.float64)), aligned(elements, np.dtype(index_type(self.width)))

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
