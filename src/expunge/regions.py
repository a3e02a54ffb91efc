"""Regions of memory, one for each place, whose sizes tell what is there now and not what was there before.

How much room a place has is a function of what lies there. Places that have the same room share a *pool*: cells of
this size, as many as there are places, and which place lies in which cell is a uniformly random order. A place that
needs another room goes over to another pool, into a random cell, whose owner goes last; the hole that it leaves is
filled by the last of the pool. So at any time rooms, pools and cells are distributed as if the places had just been
laid out, whatever the history; and a request costs the copy of a few places at most.
"""

from __future__ import annotations

import math
import secrets
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from expunge.types import AnyArray, Ints

ALIGNMENT = 64
GRAINS = 16
"""A room is a multiple of one part in so many of the next power of two: never more than an eighth is to spare."""
PAGE = 2**15
"""About how many bytes of small cells lie in one buffer."""
SHARE = 8
"""One part in so many of a list of numbers is room to spare when it grows."""


def aligned(elements: int, dtype: np.dtype[Any]) -> AnyArray:
    """Return memory that starts on the boundary, blank so that nothing of old comes back in it."""
    raw = np.zeros(elements * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + elements * dtype.itemsize].view(dtype)


def blank(dtype: np.dtype[Any]) -> AnyArray:
    """Return what memory of this type is overwritten with."""
    return np.zeros((), dtype=dtype)


def resized(numbers: Ints, size: int) -> Ints:
    """Return the first ``size`` of some numbers, zeros added if there are fewer.

    What is returned may lie in a longer array, so that to add or drop one at a time costs little.
    """
    have, whole = len(numbers), numbers.base
    if size == have:
        return numbers
    if not isinstance(whole, np.ndarray) or whole.ctypes.data != numbers.ctypes.data or whole.dtype != numbers.dtype:
        whole = numbers
    if size < have and 4 * size + 64 >= len(whole):
        numbers[size:] = 0
        return numbers[:size]
    if size < have or size > len(whole):
        whole = np.zeros(size + size // SHARE + 16, dtype=numbers.dtype)
        kept = min(size, have)
        whole[:kept] = numbers[:kept]
    return whole[:size]


def step_of(dtypes: tuple[np.dtype[Any], ...]) -> int:
    """Return after how many elements buffers of all these types are on the boundary again: a power of two."""
    return max([ALIGNMENT // math.gcd(ALIGNMENT, dtype.itemsize) for dtype in dtypes])


def spots(cells: Ints, bits: Ints) -> tuple[Ints, Ints]:
    """Return what `Pool.spot` says of many cells, in pools whose pages have 2 to the power of ``bits`` cells."""
    high, small = cells >> bits, np.frexp(cells)[1].astype(np.int64)
    far = high > 0
    return np.where(far, bits + high, small), cells - np.where(far, high << bits, (np.int64(1) << small) >> 1)


class Pool:
    """Regions of one size, called cells; every cell has an owner.

    The first cells lie in buffers of 1, 1, 2, 4, … cells, up to about a page; the others in buffers of that size.
    How many buffers there are is a function of the number of cells.
    """

    __slots__ = ("bits", "dtypes", "joint", "owners", "pages", "room")

    def __init__(self, room: int, dtypes: tuple[np.dtype[Any], ...]) -> None:
        self.room = room
        self.joint = 0
        """How many cells lie in pages that were made together, and whose memory can only be given back together."""
        self.dtypes = dtypes
        self.bits = max(PAGE // (room * max([dtype.itemsize for dtype in dtypes])), 1).bit_length() - 1
        """A page has 2 to the power of this many cells."""
        self.pages: list[tuple[AnyArray, ...]] = []
        self.owners = array("q")
        """The place that each cell belongs to."""

    def spot(self, cell: int) -> tuple[int, int]:
        """Return in which page a cell lies, and how many cells lie before it there."""
        bits = self.bits
        if cell >> bits:
            return bits + (cell >> bits), cell & ((1 << bits) - 1)
        number = cell.bit_length()
        return number, cell - (1 << number >> 1)

    def at(self, cell: int) -> tuple[tuple[AnyArray, ...], int]:
        """Return the buffers in which a cell lies, and where it begins."""
        page, before = self.spot(cell)
        return self.pages[page], before * self.room

    def region(self, cell: int) -> tuple[AnyArray, AnyArray]:
        """Return a cell, as views of both types; if there is one type, the other is empty."""
        buffers, start = self.at(cell)
        first = buffers[0][start : start + self.room]
        return first, first[:0] if len(buffers) == 1 else buffers[1][start : start + self.room]

    def pages_for(self, cells: int) -> int:
        """Return how many pages there are with so many cells."""
        return self.spot(cells - 1)[0] + 1 if cells else 0

    def reserve(self, cells: int) -> None:
        """Make the pages for so many cells, if they are not there; several at once are parts of one piece of memory."""
        numbers = range(len(self.pages), self.pages_for(cells))
        sizes = [min(1 << max(number - 1, 0), 1 << self.bits) * self.room for number in numbers]
        if len(sizes) > 1:
            self.joint += sum(sizes) // self.room
        ends = np.cumsum(sizes).tolist()
        whole = [aligned(ends[-1], dtype) for dtype in self.dtypes] if ends else []
        self.pages += [
            tuple([memory[end - size : end] for memory in whole]) for end, size in zip(ends, sizes, strict=True)
        ]

    def apart(self) -> list[tuple[AnyArray, ...]]:
        """Return copies of all pages, each by itself."""
        pages = [tuple([aligned(len(buffer), buffer.dtype) for buffer in page]) for page in self.pages]
        for page, copy in zip(self.pages, pages, strict=True):
            for buffer, own in zip(page, copy, strict=True):
                own[:] = buffer
        return pages

    def by_page(self) -> Iterator[tuple[tuple[AnyArray, ...], Ints]]:
        """Return each page with the owners of its cells, in order."""
        owners, first = np.array(self.owners, dtype=np.int64), 0
        for buffers in self.pages:
            stop = first + len(buffers[0]) // self.room
            yield buffers, owners[first:stop]
            first = stop


NOWHERE: tuple[int, tuple[AnyArray, ...], int] = (-1, (), 0)


class Regions:
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
                pool = self.pools[room]
                page, before = pool.spot(self.cells.item(place))
                buffers, start = pool.pages[page], before * room
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

    def settle(self, places: Ints, lengths: Ints) -> None:
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
            self._settle(place, number)

    def _settle(self, place: int, needed: int) -> None:
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
