"""Where a record lies: a hash table in two arrays, whose content depends on who is in it and nothing else.

Entries lie in order of their hash, each at the first free cell from its home on. So the table is a function of
the set of its entries (and of its size): it cannot tell what was deleted, or in which order.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from expunge.base.types import Ints, Keys

EMPTY = -1


class HashIndex:
    """From hashed ids to where their records lie (any number of at least 0)."""

    __slots__ = ("_hashes", "_shift", "_values", "count")

    def __init__(self, hashed: Keys, values: Ints) -> None:
        self._build(hashed, values)

    def __getstate__(self) -> tuple[Keys, Ints]:
        """Return what is pickled: the entries, for a table of the right size."""
        return self.entries()

    def __setstate__(self, state: tuple[Keys, Ints]) -> None:
        self._fill(*state)

    def _build(self, hashed: Keys, values: Ints, kind: Literal["quick", "stable"] = "quick") -> None:
        """Build the table; "stable" sorting is quick if most entries are in order."""
        order = np.argsort(hashed, kind=kind)
        ordered = hashed[order]
        if (ordered[1:] == ordered[:-1]).any():  # entries of one hash lie by value
            order = np.lexsort((values, hashed))
        self._fill(hashed[order], values[order])

    def _fill(self, hashed: Keys, values: Ints) -> None:
        """Build the table from entries in order of their hash."""
        self.count = len(hashed)
        bits = max((2 * self.count).bit_length(), 3)
        self._shift = 64 - bits
        number = np.arange(self.count)
        home = (hashed >> np.uint64(self._shift)).astype(np.int64)
        cells = np.maximum.accumulate(home - number) + number
        size = max(2**bits, int(cells[-1]) + 1 if self.count else 0) + 2
        self._hashes = np.zeros(size, dtype=np.uint64)
        self._values = np.full(size, EMPTY, dtype=np.int64)
        self._hashes[cells] = hashed
        self._values[cells] = values

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self._hashes.nbytes + self._values.nbytes

    def entries(self) -> tuple[Keys, Ints]:
        """Return all hashes and values, in order of the hashes."""
        live = self._values != EMPTY
        return self._hashes[live], self._values[live]

    def _cell(self, hashed: int) -> int:
        """Return the first cell with this hash, or the one where it would be."""
        cell = hashed >> self._shift
        while self._values.item(cell) != EMPTY and self._hashes.item(cell) < hashed:
            cell += 1
        return cell

    def find(self, hashed: int) -> list[int]:
        """Return the values of all entries with this hash."""
        cell = self._cell(hashed)
        found = []
        while self._hashes.item(cell) == hashed and (value := self._values.item(cell)) != EMPTY:
            found.append(value)
            cell += 1
        return found

    def _first_cells(self, hashed: Keys) -> Ints:
        """Return `_cell` for many."""
        cells = (hashed >> np.uint64(self._shift)).astype(np.int64)
        active = np.arange(len(hashed))
        while len(active):
            here = cells[active]
            active = active[(self._values[here] != EMPTY) & (self._hashes[here] < hashed[active])]
            cells[active] += 1
        return cells

    def first(self, hashed: Keys) -> Ints:
        """Return the value of the first entry with each hash, or -1."""
        if len(hashed) == 1:
            return np.array((self.find(hashed.item(0)) or [EMPTY])[:1])
        cells = self._first_cells(hashed)
        return np.where(self._hashes[cells] == hashed, self._values[cells], EMPTY)

    def _cells(self, hashed: Keys, values: Ints) -> Ints:
        """Return the cells of entries that are there, ascending; entries that are alike lie side by side."""
        order = np.lexsort((values, hashed))
        hashed, values = hashed[order], values[order]
        cells = self._first_cells(hashed)
        active = np.flatnonzero(self._values[cells] != values)
        while len(active):
            cells[active] += 1
            active = active[self._values[cells[active]] != values[active]]
        alike = np.searchsorted(cells, cells)
        return cells + np.arange(len(cells)) - alike

    def same_as(self, other: HashIndex) -> bool:
        """Say whether both hold the same entries."""
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(self.entries(), other.entries(), strict=True))

    def move(self, hashed: Keys, old: Ints, new: Ints) -> None:
        """Change the values of entries."""
        if len(hashed) == 1:
            if old.item(0) != new.item(0):
                self.move_one(hashed.item(0), old.item(0), new.item(0))
            return
        changing = old != new
        hashed, old, new = hashed[changing], old[changing], new[changing]
        cells = self._first_cells(hashed)
        alone = (self._hashes[cells + 1] != hashed) & (self._values[cells] == old)
        self._values[cells[alone]] = new[alone]
        if not alone.all():  # entries of one hash lie by value
            self.remove(hashed[~alone], old[~alone])
            self.add(hashed[~alone], new[~alone])

    def move_one(self, hashed: int, old: int, new: int) -> None:
        """Change the value of an entry."""
        cell = self._cell(hashed)
        if self._values.item(cell) == old and self._hashes.item(cell + 1) != hashed:
            self._values[cell] = new
        else:
            self.remove_one(hashed, old)
            self._add_one(hashed, new)
            self.count += 1

    def remove(self, hashed: Keys, values: Ints) -> None:
        """Take entries out; later ones of their cluster move up."""
        if len(hashed) == 1:
            self.remove_one(hashed.item(0), values.item(0))
            return
        holes = self._cells(hashed, values)
        self.count -= len(holes)
        for _ in range(8):  # in each cluster from the back, so that no entry moves that is still to go
            if len(holes) == 0:
                break
            last = np.append(holes[1:] >= self._cluster_ends(holes[:-1]), True)
            self._shift_up(holes[last])
            holes = holes[~last]
        self._values[holes] = EMPTY
        if len(holes) or self._spacious:
            self._fill(*self.entries())
        elif self._overlong:
            self._cut_end()

    @property
    def _spacious(self) -> bool:
        """Whether there are so few entries that a smaller table would do."""
        return 8 * self.count < len(self._hashes) - 16

    @property
    def _overlong(self) -> bool:
        """Whether there are cells beyond the homes, for entries that did not find room before."""
        return len(self._hashes) > 2 ** (64 - self._shift) + 2

    def _cut_end(self) -> None:
        """Drop the cells beyond the homes that nobody needs any more."""
        if self._values.item(len(self._values) - 3) != EMPTY:  # the last that there would be in any case
            return
        homes = 2 ** (64 - self._shift)
        size = homes + int(np.flatnonzero(self._values[homes - 1 :] != EMPTY).max(initial=0)) + 2
        if size < len(self._hashes):
            self._hashes, self._values = self._hashes[:size].copy(), self._values[:size].copy()

    def _cluster_ends(self, cells: Ints) -> Ints:
        """Return the first cell after each that is empty or where an entry is at home."""
        ends = cells + 1
        active = np.arange(len(ends))
        while len(active):
            here = ends[active]
            home = (self._hashes[here] >> np.uint64(self._shift)).astype(np.int64)
            active = active[(self._values[here] != EMPTY) & (home < here)]
            ends[active] += 1
        return ends

    def remove_one(self, hashed: int, value: int) -> None:
        """Take an entry out."""
        cell = self._cell(hashed)
        while self._values.item(cell) != value:
            cell += 1
        end = cell + 1
        while self._values.item(end) != EMPTY and self._hashes.item(end) >> self._shift < end:
            end += 1
        self._hashes[cell : end - 1] = self._hashes[cell + 1 : end]
        self._values[cell : end - 1] = self._values[cell + 1 : end]
        self._hashes[end - 1] = 0
        self._values[end - 1] = EMPTY
        self.count -= 1
        if self._spacious:
            self._fill(*self.entries())
        elif self._overlong:
            self._cut_end()

    def _shift_up(self, holes: Ints) -> None:
        while len(holes):
            after = holes + 1
            displaced = (self._values[after] != EMPTY) & (
                (self._hashes[after] >> np.uint64(self._shift)).astype(np.int64) < after
            )
            done, going = holes[~displaced], holes[displaced]
            self._hashes[done] = 0
            self._values[done] = EMPTY
            self._hashes[going] = self._hashes[going + 1]
            self._values[going] = self._values[going + 1]
            holes = going + 1

    def add(self, hashed: Keys, values: Ints) -> None:
        """Put entries in."""
        if len(hashed) * 64 > self.count or 2 * (self.count + len(hashed)) >= 2 ** (64 - self._shift):
            have, at = self.entries()
            order = np.argsort(hashed)
            self._build(np.concatenate([have, hashed[order]]), np.concatenate([at, values[order]]), "stable")
            return
        for one, value in zip(hashed.tolist(), values.tolist(), strict=True):
            self._add_one(one, value)
        self.count += len(hashed)

    def _add_one(self, hashed: int, value: int) -> None:
        cell = self._cell(hashed)
        while self._hashes.item(cell) == hashed and EMPTY != self._values.item(cell) < value:
            cell += 1
        end = cell
        while self._values.item(end) != EMPTY:
            end += 1
        if end + 2 >= len(self._values):  # keep empty cells at the end
            self._hashes = np.concatenate([self._hashes, np.zeros(64, dtype=np.uint64)])
            self._values = np.concatenate([self._values, np.full(64, EMPTY, dtype=np.int64)])
        self._hashes[cell + 1 : end + 1] = self._hashes[cell:end]
        self._values[cell + 1 : end + 1] = self._values[cell:end]
        self._hashes[cell] = hashed
        self._values[cell] = value
