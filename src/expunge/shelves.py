"""Columns of records that lie together by place, dense or sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from expunge.columns import is_sparse
from expunge.regions import resized
from expunge.shelf import Shelf
from expunge.sparse_shelf import SparseShelf
from expunge.types import Batch, Ints


class Shelves:
    """Several columns with the same places."""

    __slots__ = ("columns", "least", "lengths", "nothing", "sparse")

    def __init__(self, columns: Batch, order: Ints, lengths: Ints, least: int = 0) -> None:
        self.least = least
        self.columns = [SparseShelf(column, least) if is_sparse(column) else Shelf(column, least) for column in columns]
        starts = np.cumsum(lengths) - lengths
        for shelf, column in zip(self.columns, columns, strict=True):
            shelf.lay(column, order, lengths, starts)
        self.lengths = lengths.copy()
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
            shelf.admit(column, fresh, self.lengths)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        if places < len(self.lengths):
            assert not self.lengths[places:].any()
        for shelf in self.columns:
            shelf.resize(places)
        self.lengths = resized(self.lengths, places)

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
            for shelf in self.columns:
                shelf.make_room(place, after, self.lengths)
            self.lengths[place] = after  # should something fail from here on, all of it is put back
        for shelf, column, before in zip(self.columns, rows or self.nothing, kept, strict=True):
            shelf.rewrite(place, length, slots, column, after, before)
        self.lengths[place] = after

    def make_rooms(self, places: Ints, slots: Ints, rows: Batch) -> None:
        """Make room for rows that come to these slots, all at once."""
        distinct, at = np.unique(places, return_inverse=True)
        after = self.lengths[distinct]
        np.maximum.at(after, at, slots + 1)
        for shelf, column in zip(self.columns, rows, strict=True):
            shelf.make_rooms(distinct, after, self.lengths, at, column)

    def shrink(self, count: int) -> None:
        """Give room back, if ``count`` records need much less than there is."""
        for shelf in self.columns:
            shelf.shrink(count, self.lengths)

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        return self.lengths.nbytes + sum(shelf.nbytes for shelf in self.columns)
