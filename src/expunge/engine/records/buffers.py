"""Regions of memory, one for each place, whose sizes tell what is there now and not what was there before.

How much room a place has is a function of what lies there. Places that have the same room share a *pool*: cells of
this size, as many as there are places, and which place lies in which cell is a uniformly random order. A place that
needs another room goes over to another pool, into a random cell, whose owner goes last; the hole that it leaves is
filled by the last of the pool. So at any time rooms, pools and cells are distributed as if the places had just been
laid out, whatever the history; and a request costs the copy of a few places at most.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from expunge.base.types import AnyArray, Ints
from expunge.engine.records.pools import ALIGNMENT, Pool, resized, spots, step_of

GRAINS = 16
"""A room is a multiple of one part in so many of the next power of two: never more than an eighth is to spare."""


@cache
def blank(dtype: np.dtype[Any]) -> AnyArray:
    """Return what memory of this type is overwritten with."""
    nothing = np.zeros((), dtype=dtype)
    nothing.setflags(write=False)
    return nothing


NOWHERE: tuple[int, tuple[AnyArray, ...], int] = (-1, (), 0)


class Buffers:
    """A region for each place, in memory of one or two types; what no record takes up is blank."""

    __slots__ = ("_found", "_growing", "_left", "_stale", "cells", "dtypes", "pools", "rooms", "step", "whole")

    def __init__(self, dtypes: tuple[np.dtype[Any], ...], whole: int) -> None:
        self.dtypes = dtypes
        self.step = step_of(dtypes)
        """How many elements there are from one boundary that a region can start on to the next."""
        self.whole = whole
        """How many elements a region has that will be full some day, or 0 if there is no end to it.

        If there is, all places but the last are full, and lie in their order.
        """
        self.rooms: Ints = np.zeros(0, dtype=np.int64)
        self.cells: Ints = np.zeros(0, dtype=np.int64)
        """Which cell of the pool of its size each place has."""
        self.pools: dict[int, Pool] = {}
        """The cells by their size, ascending."""
        self._left: tuple[int, int] | None = None
        """The pool and the cell that a place has just left: the last cell of the pool is to go there."""
        self._found = NOWHERE
        """The place that was asked for last, and where it lies."""
        self._growing = 0
        """The size of the pool that gets more pages at the moment."""
        self._stale: list[AnyArray] = []
        """Buffers that are not in use any more, and to be overwritten."""

    def buffers(self) -> Iterator[AnyArray]:
        """Return all that there is memory for."""
        for pool in self.pools.values():
            for page in pool.pages:
                yield from page

    @property
    def content_bytes(self) -> int:
        """Size of what the records take up, spare room included."""
        return sum(buffer.nbytes for buffer in self.buffers())

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        owners = sum(pool.owners.itemsize * len(pool.owners) for pool in self.pools.values())
        return self.content_bytes + self.cells.nbytes + self.rooms.nbytes + owners

    def _filled(self, places: Ints, lengths: Ints) -> Ints:
        """Return how many elements the records of some places take up."""
        raise NotImplementedError

    def room_for(self, needed: int) -> int:
        """Return the room of a region that has so many elements."""
        if self.whole and needed:
            return -(-max(needed, self.whole) // self.step) * self.step
        grain = max(self.step, (1 << (needed - 1).bit_length()) // GRAINS)
        return -(-needed // grain) * grain

    def rooms_for(self, needed: Ints) -> Ints:
        """Return the rooms of many regions."""
        if self.whole:
            return -(-np.maximum(needed, self.whole) * np.minimum(needed, 1) // self.step) * self.step
        bits = np.frexp(np.maximum(needed - 1, 0))[1].astype(np.int64)
        grain = np.maximum(self.step, (np.int64(1) << bits) // GRAINS)
        return -(-needed // grain) * grain

    def at(self, place: int) -> tuple[tuple[AnyArray, ...], int]:
        """Return the buffers in which a place lies, and where it begins."""
        asked, buffers, start = self._found
        if asked != place:
            room, start = self.rooms.item(place), 0
            if room:
                pool, cell = self.pools[room], self.cells.item(place)
                bits, far = pool.bits, cell >> pool.bits  # what `Pool.spot` says: this is asked for most
                page = bits + far if far else cell.bit_length()
                buffers, start = pool.pages[page], (cell - (far << bits if far else 1 << page >> 1)) * room
            else:
                buffers = self._nowhere()
            self._found = place, buffers, start
        return buffers, start

    def _nowhere(self) -> tuple[AnyArray, ...]:
        return tuple([np.zeros(0, dtype=dtype) for dtype in self.dtypes])

    # --- laying out ---

    def lay_out(self, needed: Ints) -> None:
        """Give all places blank regions, where there are none yet."""
        self.rooms, self.cells, self.pools = self._drawn(needed)
        self._found = NOWHERE

    def _drawn(self, needed: Ints) -> tuple[Ints, Ints, dict[int, Pool]]:
        """Draw which place gets which cell."""
        rooms, chance = self.rooms_for(needed), np.random.default_rng()
        cells = np.zeros(len(rooms), dtype=np.int64)
        pools: dict[int, Pool] = {}
        for room in np.unique(rooms[rooms > 0]).tolist():
            members = np.flatnonzero(rooms == room)
            if not self.whole:
                members = chance.permutation(members)
            pools[room] = pool = Pool(room, self.dtypes)
            pool.reserve(len(members))
            pool.owners.frombytes(members.astype(np.int64).tobytes())
            cells[members] = np.arange(len(members))
        return rooms, cells, pools

    # --- one place after the other ---

    def reserve(self, place: int, needed: int) -> None:
        """Give a place room for ``needed`` elements, its records included."""
        if needed > self.rooms.item(place):
            self._move(place, self.room_for(needed))

    def expect(self, places: Ints, needed: Ints) -> None:
        """Give many places room at once."""
        if len(places) == 1:
            self.reserve(places.item(0), needed.item(0))
            return
        short = np.flatnonzero(needed > self.rooms[places])
        if self.whole and len(short) and not self.rooms[places[short]].any():
            self._add_last(places[short])
            return
        for place, number in zip(places[short].tolist(), needed[short].tolist(), strict=True):
            self.reserve(place, number)

    def fit_rooms(self, places: Ints, lengths: Ints) -> None:
        """Give places the room that is meant for what lies there now; after an interruption, call it again."""
        self._found = NOWHERE  # it would tell at which place a record was deleted
        self._clear()
        places = places[places < len(self.rooms)]
        needed = self._filled(places, lengths)
        other = np.flatnonzero(self.rooms_for(needed) != self.rooms[places])
        if self.whole and len(other) and not needed[other].any() and self._are_last(places[other]):
            self._drop_last(places[other])
            return
        for place, number in zip(places[other].tolist(), needed[other].tolist(), strict=True):
            self._fit(place, number)

    def _fit(self, place: int, needed: int) -> None:
        self._found = NOWHERE
        if self._growing or self._stale or self._left is not None:
            self._clear()
        room, have = self.room_for(needed), self.rooms.item(place)
        if room != have:
            alone = len(self.rooms) == 1 and needed <= have <= 2 * needed + ALIGNMENT  # told from nobody
            if not alone:
                self._move(place, room)

    def _move(self, place: int, room: int) -> None:
        """Give a place another room. One statement does it: an interruption comes before it or after."""
        self._clear()
        have, cell = self.rooms.item(place), self.cells.item(place)
        if room == 0:
            self.rooms[place], self.cells[place], self._left, self._found = 0, 0, (have, cell), NOWHERE
            self._clear()
            return
        pool = self._grown(room, 1)
        end, kept = len(pool.owners), min(have, room)
        spot = end if self.whole else secrets.randbelow(end + 1)
        other = place if spot == end else pool.owners[spot]  # who makes way
        (x, y), (a, b), cells, rooms, owners = pool.region(spot), pool.region(end), self.cells, self.rooms, pool.owners
        old = self.pools[have].region(cell) if have else (x[:0], y[:0])
        values = (
            x, y, old[0][:kept], old[1][:kept], blank(x.dtype), blank(y.dtype),
            array("q", (other,)), place, end, spot, room, (have, cell) if have else None, 0, NOWHERE,
        )  # fmt: skip
        a[:], b[:], x[:kept], y[:kept], x[kept:], y[kept:], owners[end:], owners[spot], cells[other], cells[place], rooms[place], self._left, self._growing, self._found = values  # fmt: skip # noqa: E501
        self._clear()

    def _grown(self, room: int, more: int) -> Pool:
        """Return the pool of a size, made if there is none, with pages for some more cells."""
        self._growing = room
        if room not in self.pools:
            self.pools = dict(sorted([*self.pools.items(), (room, Pool(room, self.dtypes))]))
        pool = self.pools[room]
        pool.reserve(len(pool.owners) + more)
        return pool

    def _clear(self) -> None:
        """Fill the cell that was left with the last of its pool, and tidy up after an interruption."""
        self._overwrite_stale()
        if self._growing:
            pool = self.pools.get(self._growing)
            if pool is not None:
                del pool.pages[pool.pages_for(len(pool.owners)) :]
            self.pools = {size: one for size, one in self.pools.items() if len(one.owners)}
            self._growing = 0
        if self._left is None:
            return
        room, cell = self._left
        pool = self.pools[room]
        end = len(pool.owners) - 1
        other, pages = pool.owners[end], pool.pages_for(end)
        where = self.cells.item(other) if cell == end else cell  # the last one may be the one that has left
        (x, y), (a, b), cells, owners = pool.region(cell), pool.region(end), self.cells, pool.owners
        pools = self.pools if end else {size: one for size, one in self.pools.items() if size != room}
        values: Any = a, b, blank(a.dtype), blank(b.dtype), other, array("q"), [], where, pools, None, NOWHERE
        x[:], y[:], a[:], b[:], owners[cell], owners[end:], pool.pages[pages:], cells[other], self.pools, self._left, self._found = values  # fmt: skip # noqa: E501
        self._loosen(pool)

    def _loosen(self, pool: Pool) -> None:
        """Give memory back that pages share with others which are gone, once these are more than half of it."""
        if pool.joint > 2 * len(pool.owners):
            pages, stale = pool.apart(), [buffer for page in pool.pages for buffer in page]
            pool.pages, pool.joint, self._found, self._stale = pages, 0, NOWHERE, self._stale + stale
            self._overwrite_stale()

    def _overwrite_stale(self) -> None:
        for buffer in self._stale:
            buffer[...] = blank(buffer.dtype)
        self._stale = []

    # --- places at the end, of regions that will be full some day ---

    def _add_last(self, places: Ints) -> None:
        """Give places without room the cells after all others."""
        self._clear()
        pool = self._grown(self.room_for(1), len(places))
        end, number = len(pool.owners), len(places)
        values = array("q", places.tolist()), end + np.arange(number), pool.room, 0, NOWHERE
        pool.owners[end:], self.cells[places], self.rooms[places], self._growing, self._found = values

    def _are_last(self, places: Ints) -> bool:
        """Say whether places, ascending, have the last cells of their pool."""
        end = len(self.pools[self.room_for(1)].owners)
        return np.array_equal(self.cells[places], np.arange(end - len(places), end))

    def _drop_last(self, places: Ints) -> None:
        """Take the last cells, which are blank, away from their places."""
        pool = self.pools[self.room_for(1)]
        end = len(pool.owners) - len(places)
        pages = pool.pages_for(end)
        values: Any = array("q"), [], 0, 0, self.pools if end else {}, NOWHERE
        pool.owners[end:], pool.pages[pages:], self.cells[places], self.rooms[places], self.pools, self._found = values
        self._loosen(pool)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        self._clear()
        for place in (places + np.flatnonzero(self.rooms[places:])).tolist()[::-1]:
            self._move(place, 0)
        self.rooms, self.cells = resized(self.rooms, places), resized(self.cells, places)


class DenseColumn(Buffers):
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
        """Make room for longer strings than any before (in a ``fresh`` column, for any type)."""
        longer = column.dtype.kind == "U" and self.dtype.itemsize < column.dtype.itemsize
        if longer or (fresh and column.dtype.kind != self.dtype.kind):
            self.change_type(column.dtype, lengths)

    def change_type(self, dtype: np.dtype[Any], lengths: Ints) -> None:
        """Keep the same records in another type. One statement does it: an interruption comes before it or after."""
        new = DenseColumn(np.zeros((0, *self.tail), dtype=dtype))
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

    def rows(self, place: int, slots: list[int]) -> list[AnyArray]:
        """Return copies of single rows of a place."""
        (memory, *_), begin = self.at(place)
        width, shape, copies = self.width, (1, *self.tail), []
        for slot in slots:
            start = begin + slot * width
            row = memory[start : start + width].copy()
            copies.append(row if self.flat else row.reshape(shape))
        return copies

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
            self._row(places.item(0), slots.item(0))[...] = rows if self.flat else rows.reshape(-1)
        elif len(slots) and self._are_few(len(slots)):
            for row, new in zip(self._each(places, slots), rows.reshape(-1, self.width), strict=True):
                row[:] = new
        elif len(slots):
            rows = rows.reshape(-1, self.width)
            for numbers, table, where in self._by_buffer(places, slots):
                table[where] = rows[numbers]

    def wipe(self, places: Ints, slots: Ints) -> None:
        """Overwrite rows."""
        nothing = blank(self.dtypes[0])
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

    def fit_one(self, place: int, length: int) -> None:
        """Give one place the room that is meant for its rows."""
        if place < len(self.rooms):
            self._fit(place, length * self.width)
