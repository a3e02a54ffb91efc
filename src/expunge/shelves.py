"""Columns of records that lie together by place, dense or sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from expunge.columns import is_sparse, narrowest, stack
from expunge.edits import NONE
from expunge.regions import resized
from expunge.shelf import Shelf
from expunge.sparse_shelf import SparseShelf
from expunge.types import Batch, Ints


class Shelves:
    """Several columns with the same places."""

    __slots__ = ("columns", "least", "lengths", "nothing", "sparse", "unsettled")

    def __init__(self, columns: Batch, order: Ints, lengths: Ints, least: int = 0) -> None:
        self.least = least
        self.columns = [SparseShelf(column, least) if is_sparse(column) else Shelf(column, least) for column in columns]
        starts = np.cumsum(lengths) - lengths
        for shelf, column in zip(self.columns, columns, strict=True):
            shelf.lay(column, order, lengths, starts)
        self.lengths = lengths.copy()
        self.sparse = any(isinstance(shelf, SparseShelf) for shelf in self.columns)
        self.nothing = (None,) * len(columns)
        self.unsettled: Ints = NONE
        """Places that have more room than is meant for them, for want of memory."""

    def __getstate__(self) -> tuple[Batch, Ints, int]:
        """Return the columns place by place: a function of the records and where they lie."""
        full = np.flatnonzero(self.lengths).tolist()
        blocks = [self.block(place) for place in full]
        columns = [
            narrowest(stack([shelf.empty(), *(block[k] for block in blocks)])) for k, shelf in enumerate(self.columns)
        ]
        return tuple(columns), self.lengths.copy(), self.least

    def __setstate__(self, state: tuple[Batch, Ints, int]) -> None:
        columns, lengths, least = state
        self.__init__(columns, np.arange(int(lengths.sum())), lengths, least)  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.lengths)

    def block(self, place: int) -> Batch:
        """Return the columns of a place, on views."""
        length = self.lengths.item(place)
        return tuple([shelf.block(place, length) for shelf in self.columns])

    def single(self, place: int, slot: int) -> Batch:
        """Return a copy of one row, in all columns."""
        return tuple([shelf.single(place, slot) for shelf in self.columns])

    def gather(self, places: Ints, slots: Ints) -> Batch:
        """Return a copy of single rows, in all columns."""
        return tuple([shelf.gather(places, slots) for shelf in self.columns])

    def admit(self, rows: Batch, fresh: bool) -> None:
        """Make room for longer strings than any before (with ``fresh`` shelves, for any type)."""
        for shelf, column in zip(self.columns, rows, strict=True):
            shelf.admit(column, fresh, self.lengths)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        if places < len(self.lengths):
            assert not self.lengths[places:].any()
        for shelf in self.columns:
            shelf.resize(places)
        self.lengths = resized(self.lengths, places)

    def make_room(self, places: Ints, slots: Ints, rows: Batch) -> None:
        """Make room for rows that come to these slots."""
        if places.item(0) == places.item(-1) and len(places) <= 2:
            distinct, at = places[:1], np.zeros(len(places), dtype=np.int64)
        else:
            distinct, at = np.unique(places, return_inverse=True)
        after = self.lengths[distinct]
        np.maximum.at(after, at, slots + 1)
        for shelf, column in zip(self.columns, rows, strict=True):
            shelf.make_room(distinct, after, at, column)

    def reserve(self, places: Ints, rows: Ints) -> None:
        """Make room for so many rows at each of some places; sparse columns find room for their numbers themselves."""
        for shelf in self.columns:
            dense = shelf.counts if isinstance(shelf, SparseShelf) else shelf
            dense.expect(places, rows * dense.width)

    def keep(self, places: Ints) -> Sequence[Any]:
        """Return what must be kept of places to rewrite them, be it several times: for sparse columns, copies."""
        if not self.sparse:
            return self.nothing
        return [shelf.keep(places, self.lengths) if isinstance(shelf, SparseShelf) else None for shelf in self.columns]

    def rewrite(
        self, places: Ints, after: Ints, kept: Sequence[Any], at: Ints, slots: Ints, rows: Batch,
        drop_at: Ints, drop_slots: Ints,
    ) -> None:  # fmt: skip
        """Put rows into slots ``at, slots`` of some places, overwrite others, so that there are ``after`` rows then.

        There must be room. After an interruption it can be done again, and `restore` undoes it.
        """
        for shelf, column, before in zip(self.columns, rows or self.nothing, kept, strict=True):
            if isinstance(shelf, SparseShelf):
                shelf.rewrite_all(places, after, before, at, slots, column)
            else:
                shelf.put(at, slots, column)
                shelf.wipe(drop_at, drop_slots)
        self.lengths[places] = after

    def restore(
        self, places: Ints, before: Ints, kept: Sequence[Any], at: Ints, slots: Ints, rows: Batch,
        new_at: Ints, new_slots: Ints,
    ) -> None:  # fmt: skip
        """Undo `rewrite`: put the rows that lay there back, and overwrite the ones that came behind them."""
        for shelf, column, old in zip(self.columns, rows, kept, strict=True):
            if isinstance(shelf, SparseShelf):
                shelf.rewrite_all(places, before, old)
            else:
                shelf.put(at, slots, column)
                shelf.wipe(new_at, new_slots)
        self.lengths[places] = before

    def settle(self, places: Ints) -> None:
        """Give places the room that is meant for what lies there now. If there is no memory, the next call does it."""
        if len(places) == 1 and not len(self.unsettled) and places.item(0) < len(self.lengths):
            place = places.item(0)
            self.unsettled, length = places, self.lengths.item(place)
            for shelf in self.columns:
                shelf.settle_one(place, length)
            self.unsettled = NONE
            return
        self.unsettled = np.union1d(self.unsettled, places) if len(self.unsettled) else places
        self.unsettled = self.unsettled[self.unsettled < len(self.lengths)]
        for shelf in self.columns:
            shelf.settle(self.unsettled, self.lengths)
        self.unsettled = NONE

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        return self.lengths.nbytes + sum(shelf.nbytes for shelf in self.columns)
