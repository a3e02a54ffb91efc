"""One sparse column of records that lie together by place: their numbers and indices in buffers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from expunge.base.columns import LARGEST, counts_in, csr, empty, index_type, pointers
from expunge.base.types import AnyArray, Column, Ints
from expunge.engine.records.buffers import Buffers, DenseColumn
from expunge.engine.records.pools import resized
from expunge.engine.schedules import NONE

CHUNK = 2**22


class SparseColumn(Buffers):
    """One sparse column: the numbers of a place's records side by side, and how many each record has.

    A place is rewritten as a whole.
    """

    __slots__ = ("counts", "filled", "stored", "width")

    def __init__(self, column: Column, least: int = 0) -> None:
        self.width = column.shape[1]
        self.counts = DenseColumn(np.zeros(0, dtype=np.int32), least)
        self.filled: Ints = np.zeros(0, dtype=np.int64)
        """How many numbers each place has."""
        self.stored = 0
        """How many there are."""
        super().__init__((np.dtype(np.float64), np.dtype(index_type(self.width))), 0)

    def empty(self) -> Column:
        """Return a column like this one, without records."""
        return empty(self.width)

    def admit(self, column: Column, fresh: bool, lengths: Ints) -> None:
        """Accept any sparse column of this width: they are all of one type."""

    def _filled(self, places: Ints, lengths: Ints) -> Ints:
        return self.filled[places]

    def lay(self, column: Column, order: Ints, lengths: Ints, starts: Ints) -> None:
        """Lay ``column[order]`` out, place by place."""
        counts = counts_in(column)
        self.counts.lay(counts.astype(np.int32), order, lengths, starts)
        ends = np.append(0, np.cumsum(counts[order], dtype=np.int64))
        first = ends[starts]
        self.filled = ends[starts + lengths] - first
        self.stored = int(ends[-1])
        self.lay_out(self.filled)
        stops = first + self.filled
        cuts = np.unique(np.searchsorted(stops, np.arange(0, ends[-1] + CHUNK, CHUNK), "right").clip(max=len(lengths)))
        for begin, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(lengths)], strict=True):
            if begin < stop:
                rows = column[order[starts.item(begin) : starts.item(stop - 1) + lengths.item(stop - 1)]]
                self._fill(range(begin, stop), rows, (first[begin:stop] - first.item(begin)).tolist())

    def _fill(self, places: range, rows: Column, first: list[int]) -> None:
        """Write the numbers of some places, which begin at ``first``."""
        for place, begin in zip(places, first, strict=True):
            number = self.filled.item(place)
            if number:
                (data, indices), start = self.at(place)
                data[start : start + number] = rows.data[begin : begin + number]
                indices[start : start + number] = rows.indices[begin : begin + number]

    def block(self, place: int, length: int) -> Column:
        """Return the first ``length`` rows of a place, as a sparse column on views."""
        ends = pointers(self.counts.block(place, length), max(self.width, self.rooms.item(place)))
        (data, indices), start = self.at(place)
        stop = start + ends.item(length)
        return csr(data[start:stop], indices[start:stop], ends, self.width)

    def single(self, place: int, slot: int) -> Column:
        """Return a copy of one row."""
        return self.gather(np.array([place]), np.array([slot]))

    def rows(self, place: int, slots: list[int]) -> list[Column]:
        """Return copies of single rows of a place."""
        return [self.single(place, slot) for slot in slots]

    def gather(self, places: Ints, slots: Ints) -> Column:
        """Return a copy of single rows."""
        counts = self.counts.gather(places, slots)
        first = np.zeros(len(places), dtype=np.int64)
        order = np.argsort(places, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(places[order])) + 1) if len(order) else ():
            here = slots[rows]
            ends = np.cumsum(self.counts.block(places.item(rows.item(0)), int(here.max()) + 1), dtype=np.int64)
            first[rows] = ends[here] - counts[rows]
        data, indices = [np.zeros(0)], [np.zeros(0, dtype=self.dtypes[1])]
        for place, begin, number in zip(places.tolist(), first.tolist(), counts.tolist(), strict=True):
            buffers, start = self.at(place)
            data.append(buffers[0][start + begin : start + begin + number])
            indices.append(buffers[1][start + begin : start + begin + number])
        stored = int(counts.sum(dtype=np.int64))
        ends = pointers(counts, max(self.width, stored))
        return csr(np.concatenate(data), np.concatenate(indices), ends, self.width)

    def keep(self, places: Ints, lengths: Ints) -> list[Packed]:
        """Return copies of places, for `rewrite` to start from."""
        kept = []
        for place, length in zip(places.tolist(), lengths[places].tolist(), strict=True):
            (data, indices), start = self.at(place)
            here = slice(start, start + self.filled.item(place))
            counts = self.counts.block(place, length)
            kept.append(Packed(counts.copy(), data[here].copy(), indices[here].copy()))
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
        self.reserve(place, stored)
        (data, indices), start = self.at(place)
        stop, end = start + stored, start + self.rooms.item(place)
        splice.write(kept.data, None if rows is None else rows.data, data[start:stop])
        splice.write(kept.indices, None if rows is None else rows.indices, indices[start:stop])
        data[stop:end] = 0.0
        indices[stop:end] = 0
        self.stored, self.filled[place] = self.stored + stored - self.filled.item(place), stored
        counts = self.counts.block(place, self.counts.rooms.item(place))
        counts[:after] = splice.counts
        counts[after:] = 0

    def make_room(self, places: Ints, rows: Ints, at: Ints, entering: Column) -> None:
        """Give places room for so many rows each; the ``entering`` ones go to ``places[at]``."""
        self.counts.make_room(places, rows, at, entering)
        more = np.bincount(at, counts_in(entering), len(places)).astype(np.int64)
        self.expect(places, self.filled[places] + more)

    def fit_rooms(self, places: Ints, lengths: Ints) -> None:
        """Give places the room that is meant for what lies there now."""
        self.counts.fit_rooms(places, lengths)
        super().fit_rooms(places[places < len(self.filled)], lengths)

    def fit_one(self, place: int, length: int) -> None:
        """Give one place the room that is meant for its rows."""
        self.counts.fit_one(place, length)
        if place < min(len(self.rooms), len(self.filled)):
            self._fit(place, self.filled.item(place))

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
