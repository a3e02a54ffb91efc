"""One sparse column of records that lie together by place: their numbers and indices in two flat buffers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from expunge.columns import LARGEST, counts_in, csr, empty, index_type, pointers
from expunge.edits import NONE
from expunge.regions import Regions, resized
from expunge.shelf import Shelf
from expunge.types import AnyArray, Column, Ints

CHUNK = 2**22


class SparseShelf(Regions):
    """One sparse column: the numbers of a place's records side by side, and how many each record has.

    A place is rewritten as a whole.
    """

    __slots__ = ("counts", "filled", "stored", "width")

    def __init__(self, column: Column, least: int = 0) -> None:
        self.width = column.shape[1]
        self.counts = Shelf(np.zeros(0, dtype=np.int32), least)
        self.filled: Ints = np.zeros(0, dtype=np.int64)
        """How many numbers each place has."""
        self.stored = 0
        """How many there are."""
        super().__init__([np.dtype(np.float64), np.dtype(index_type(self.width))], 8, 0)

    @property
    def data(self) -> AnyArray:
        """The numbers of all records, and zeros."""
        return self.buffers[0]

    @property
    def indices(self) -> AnyArray:
        """Which columns the numbers belong to."""
        return self.buffers[1]

    def empty(self) -> Column:
        """Return a column like this one, without records."""
        return empty(self.width)

    def admit(self, column: Column, fresh: bool, lengths: Ints) -> None:
        """Accept any sparse column of this width: they are all of one type."""

    def _filled(self, lengths: Ints) -> Ints:
        return self.filled

    def lay(self, column: Column, order: Ints, lengths: Ints, starts: Ints) -> None:
        """Lay ``column[order]`` out, place by place."""
        counts = counts_in(column)
        self.counts.lay(counts.astype(np.int32), order, lengths, starts)
        ends = np.append(0, np.cumsum(counts[order], dtype=np.int64))
        first = ends[starts]
        self.filled = ends[starts + lengths] - first
        self.stored = int(ends[-1])
        self.resize(len(lengths))
        self.relay(self._padded(self.filled))
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

    def keep(self, places: Ints, lengths: Ints) -> list[Packed]:
        """Return copies of places, for `rewrite` to start from."""
        kept = []
        for place, length in zip(places.tolist(), lengths[places].tolist(), strict=True):
            here = slice(self.offsets.item(place), self.offsets.item(place) + self.filled.item(place))
            counts = self.counts.block(place, length)
            kept.append(Packed(counts.copy(), self.data[here].copy(), self.indices[here].copy()))
        return kept

    def rewrite_all(
        self, places: Ints, after: Ints, kept: list[Packed], at: Ints = NONE, slots: Ints = NONE, rows: Column = None
    ) -> None:
        """Make places what was ``kept`` of them, with rows put into slots ``at, slots``, and end each at ``after``."""
        order = np.lexsort((slots, at))
        slots = slots[order]
        bounds = np.searchsorted(at[order], [places, places + 1]).T.tolist()
        rows = empty(self.width) if rows is None else rows[order]
        counts = counts_in(rows)
        for place, length, old, (first, stop) in zip(places.tolist(), after.tolist(), kept, bounds, strict=True):
            new = None
            if first < stop:
                here = slice(rows.indptr.item(first), rows.indptr.item(stop))
                new = Packed(counts[first:stop], rows.data[here], rows.indices[here])
            self.rewrite(place, slots[first:stop], new, length, old)

    def rewrite(self, place: int, slots: Ints, rows: Packed | None, after: int, kept: Packed) -> None:
        """Make a place what was ``kept`` of it, with rows put into slots (ascending), and end at ``after``."""
        splice = Splice(kept, slots, rows, after)
        stored = splice.stored
        self.reserve(place, stored, self.filled)
        start = self.offsets.item(place)
        stop, end = start + stored, start + self.rooms.item(place)
        splice.write(kept.data, None if rows is None else rows.data, self.data[start:stop])
        splice.write(kept.indices, None if rows is None else rows.indices, self.indices[start:stop])
        self.data[stop:end] = 0.0
        self.indices[stop:end] = 0
        self.stored, self.filled[place] = self.stored + stored - self.filled.item(place), stored
        counts = self.counts.block(place, self.counts.rooms.item(place))
        counts[:after] = splice.counts
        counts[after:] = 0

    def make_room(self, places: Ints, rows: Ints, lengths: Ints, at: Ints, entering: Column) -> None:
        """Give places room for so many rows each; the ``entering`` ones go to ``places[at]``."""
        self.counts.make_room(places, rows, lengths, at, entering)
        more = np.bincount(at, counts_in(entering), len(places)).astype(np.int64)
        self.expect(places, self.filled[places] + more, lengths)

    def shrink(self, count: int, lengths: Ints) -> None:
        """Give room back, if ``count`` records need much less than there is."""
        self.counts.shrink(count, lengths)
        self.tidy(self.stored, lengths)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        self.counts.resize(places)
        super().resize(places)
        self.filled = resized(self.filled, places)

    @property
    def content_bytes(self) -> int:
        """Size of what the records take up, spare room included."""
        return super().content_bytes + self.counts.content_bytes

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        return super().nbytes + self.counts.nbytes - self.counts.content_bytes + self.filled.nbytes


class Packed(NamedTuple):
    """Sparse rows side by side: how many numbers each has, the numbers, and which columns they belong to."""

    counts: AnyArray
    data: AnyArray
    indices: AnyArray


class Splice:
    """How some rows of a sparse column give way to others."""

    __slots__ = ("counts", "new", "old", "stored")

    def __init__(self, kept: Packed, slots: Ints, rows: Packed | None, after: int) -> None:
        before = min(len(kept.counts), after)
        self.counts = np.zeros(after, dtype=np.int32)
        self.counts[:before] = kept.counts[:before]
        self.new = [0]
        if rows is not None:
            self.counts[slots] = rows.counts
            self.new = pointers(rows.counts, LARGEST + 1).tolist()
        self.stored = int(self.counts.sum(dtype=np.int64))
        ends = pointers(kept.counts, LARGEST + 1)
        fences = np.concatenate([[-1], slots, [before]])
        first, stop = ends[(fences[:-1] + 1).clip(max=before)], ends[fences[1:].clip(max=before)]
        self.old = list(zip(first.tolist(), stop.tolist(), strict=True))
        """The parts that stay: before, between and after the slots."""

    def write(self, old: AnyArray, new: AnyArray | None, target: AnyArray) -> None:
        """Write the numbers (or their indices) of the result."""
        pieces = [old[slice(*self.old[0])]]
        if new is not None:
            for part, first, stop in zip(self.old[1:], self.new[:-1], self.new[1:], strict=True):
                pieces += [new[first:stop], old[slice(*part)]]
        np.concatenate(pieces, out=target)
