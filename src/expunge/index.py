"""Which place a record lies at: a hash table in two arrays, whose content depends on who is in it and nothing else.

Entries lie in order of their hash, each at the first free cell from its home on. So the table is a function of
the set of its entries (and of its size): it cannot tell what was deleted, or in which order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from expunge.schedules import mix
from expunge.types import AnyArray, Ints, Keys

EMPTY = -1
Int32s = npt.NDArray[np.int32]


def hashes(ids: AnyArray) -> Keys:
    """Hash ids to 64 bits; strings hash alike whatever the width of their array."""
    if ids.dtype.kind == "i":
        return mix(ids.view(np.uint64))
    letters = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), ids.dtype.itemsize // 4)
    state = np.full(len(ids), 0x51ED270B, dtype=np.uint64)
    for position in range(letters.shape[1]):
        letter = letters[:, position].astype(np.uint64)
        state = np.where(letter != 0, mix(state * np.uint64(0x9E3779B97F4A7C15) + letter), state)
    return state


class PlaceIndex:
    """From hashed ids to places."""

    __slots__ = ("_hashes", "_places", "_shift", "count")

    def __init__(self, hashed: Keys, places: Ints) -> None:
        self._sort_and_fill(hashed, places.astype(np.int32))

    def _sort_and_fill(self, hashed: Keys, places: Int32s) -> None:
        order = np.argsort(hashed)
        ordered = hashed[order]
        if (ordered[1:] == ordered[:-1]).any():  # entries of one hash lie by place
            order = np.lexsort((places, hashed))
        self._fill(hashed[order], places[order])

    def _fill(self, hashed: Keys, places: Int32s) -> None:
        """Build the table from entries in order of their hash."""
        self.count = len(hashed)
        bits = max((2 * self.count).bit_length(), 3)
        self._shift = 64 - bits
        number = np.arange(self.count)
        home = (hashed >> np.uint64(self._shift)).astype(np.int64)
        cells = np.maximum.accumulate(home - number) + number
        size = max(2**bits, int(cells[-1]) + 1 if self.count else 0) + 1
        self._hashes = np.zeros(size, dtype=np.uint64)
        self._places = np.full(size, EMPTY, dtype=np.int32)
        self._hashes[cells] = hashed
        self._places[cells] = places

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self._hashes.nbytes + self._places.nbytes

    def find(self, hashed: int) -> list[tuple[int, int]]:
        """Return (cell, place) of every entry with this hash."""
        cell = hashed >> self._shift
        found = []
        while (place := self._places.item(cell)) != EMPTY:
            here = self._hashes.item(cell)
            if here == hashed:
                found.append((cell, place))
            elif here > hashed:
                break
            cell += 1
        return found

    def places(self, hashed: Keys) -> Ints:
        """Return the place of the first entry with each hash, or -1."""
        if len(hashed) == 1:
            found = self.find(hashed.item(0))
            return np.array([found[0][1] if found else EMPTY])
        result = np.full(len(hashed), EMPTY, dtype=np.int64)
        active = np.arange(len(hashed))
        cells = (hashed >> np.uint64(self._shift)).astype(np.int64)
        while len(active):
            here, place = self._hashes[cells], self._places[cells]
            wanted = hashed[active]
            hit = (here == wanted) & (place != EMPTY)
            result[active[hit]] = place[hit]
            going = (place != EMPTY) & (here < wanted)
            active, cells = active[going], cells[going] + 1
        return result

    def entries(self) -> tuple[Keys, Ints]:
        """Return all hashes and places, in order of the hashes."""
        live = self._places != EMPTY
        return self._hashes[live], self._places[live].astype(np.int64)

    def remove(self, hashed: Keys, places: Ints) -> None:
        """Take entries out."""
        if len(hashed) * 64 > self.count:
            self._refill_without(hashed, places)
            return
        for value, place in zip(hashed.tolist(), places.tolist(), strict=True):
            self._remove_one(next(cell for cell, at in self.find(value) if at == place))
        self.count -= len(hashed)
        if 8 * self.count < len(self._hashes):
            self._fill(*self._raw())

    def _raw(self) -> tuple[Keys, Int32s]:
        live = self._places != EMPTY
        return self._hashes[live], self._places[live]

    def _remove_one(self, cell: int) -> None:
        following = cell + 1
        while self._places.item(following) != EMPTY and self._hashes.item(following) >> self._shift < following:
            following += 1
        self._hashes[cell : following - 1] = self._hashes[cell + 1 : following]
        self._places[cell : following - 1] = self._places[cell + 1 : following]
        self._hashes[following - 1] = 0
        self._places[following - 1] = EMPTY

    def _refill_without(self, hashed: Keys, places: Ints) -> None:
        have, at = self._raw()
        leaving = np.zeros(len(have), dtype=bool)
        first = np.searchsorted(have, hashed)
        leaving[first[at[first] == places]] = True
        if np.count_nonzero(leaving) < len(hashed):  # entries that share a hash: one by one
            leaving[:] = False
            for cell, place in zip(first.tolist(), places.tolist(), strict=True):
                while leaving.item(cell) or at.item(cell) != place:
                    cell += 1
                leaving[cell] = True
        self._fill(have[~leaving], at[~leaving])

    def add(self, hashed: Keys, places: Ints) -> None:
        """Put entries in."""
        if len(hashed) * 64 > self.count or 2 * (self.count + len(hashed)) >= 2 ** (64 - self._shift):
            have, at = self._raw()
            self._sort_and_fill(np.concatenate([have, hashed]), np.concatenate([at, places.astype(np.int32)]))
            return
        for value, place in zip(hashed.tolist(), places.tolist(), strict=True):
            self._add_one(value, place)
        self.count += len(hashed)

    def _add_one(self, value: int, place: int) -> None:
        cell = value >> self._shift
        while self._places.item(cell) != EMPTY and (self._hashes.item(cell), self._places.item(cell)) < (value, place):
            cell += 1
        end = cell
        while self._places.item(end) != EMPTY:
            end += 1
        if end + 1 >= len(self._places):  # keep one empty cell at the end
            self._hashes = np.concatenate([self._hashes, np.zeros(64, dtype=np.uint64)])
            self._places = np.concatenate([self._places, np.full(64, EMPTY, dtype=np.int32)])
        self._hashes[cell + 1 : end + 1] = self._hashes[cell:end]
        self._places[cell + 1 : end + 1] = self._places[cell:end]
        self._hashes[cell] = value
        self._places[cell] = place
