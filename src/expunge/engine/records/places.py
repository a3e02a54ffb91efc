"""Columns of records that lie together by place, dense or sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from expunge.base.columns import is_sparse, narrowest, stack
from expunge.base.types import Batch, Ints
from expunge.engine.records.buffers import DenseColumn
from expunge.engine.records.pools import resized
from expunge.engine.records.sparse import SparseColumn
from expunge.engine.schedules import NONE


class Places:
    """Several columns with the same places."""

    __slots__ = ("columns", "least", "lengths", "nothing", "sparse", "unfitted")

    def __init__(self, columns: Batch, order: Ints, lengths: Ints, least: int = 0) -> None:
        self.least = least
        self.columns = [
            SparseColumn(column, least) if is_sparse(column) else DenseColumn(column, least) for column in columns
        ]
        starts = np.cumsum(lengths) - lengths
        for column, new in zip(self.columns, columns, strict=True):
            column.lay(new, order, lengths, starts)
        self.lengths = lengths.copy()
        self.sparse = any(isinstance(column, SparseColumn) for column in self.columns)
        self.nothing = (None,) * len(columns)
        self.unfitted: Ints = NONE
        """Places that have more room than is meant for them, for want of memory."""

    def __getstate__(self) -> tuple[Batch, Ints, int]:
        """Return the columns place by place: a function of the records and where they lie."""
        full = np.flatnonzero(self.lengths).tolist()
        blocks = [self.block(place) for place in full]
        columns = [
            narrowest(stack([column.empty(), *(block[k] for block in blocks)])) for k, column in enumerate(self.columns)
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
        return tuple([column.block(place, length) for column in self.columns])

    def rows(self, place: int, slots: list[int]) -> list[Batch]:
        """Return copies of single rows of a place, each in all columns."""
        return list(zip(*[column.rows(place, slots) for column in self.columns], strict=True))

    def gather(self, places: Ints, slots: Ints) -> Batch:
        """Return a copy of single rows, in all columns."""
        return tuple([column.gather(places, slots) for column in self.columns])

    def admit(self, rows: Batch, fresh: bool) -> None:
        """Make room for longer strings than any before (in ``fresh`` columns, for any type)."""
        for column, new in zip(self.columns, rows, strict=True):
            column.admit(new, fresh, self.lengths)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        if places < len(self.lengths):
            assert not self.lengths[places:].any()
        for column in self.columns:
            column.resize(places)
        self.lengths = resized(self.lengths, places)

    def make_room(self, places: Ints, slots: Ints, rows: Batch) -> None:
        """Make room for rows that come to these slots."""
        if places.item(0) == places.item(-1) and len(places) <= 2:
            distinct, at = places[:1], np.zeros(len(places), dtype=np.int64)
        else:
            distinct, at = np.unique(places, return_inverse=True)
        after = self.lengths[distinct]
        np.maximum.at(after, at, slots + 1)
        for column, new in zip(self.columns, rows, strict=True):
            column.make_room(distinct, after, at, new)

    def reserve(self, places: Ints, rows: Ints) -> None:
        """Make room for so many rows at each of some places; sparse columns find room for their numbers themselves."""
        for column in self.columns:
            dense = column.counts if isinstance(column, SparseColumn) else column
            dense.expect(places, rows * dense.width)

    def keep(self, places: Ints) -> Sequence[Any]:
        """Return what must be kept of places to rewrite them, be it several times: for sparse columns, copies."""
        if not self.sparse:
            return self.nothing
        return [
            column.keep(places, self.lengths) if isinstance(column, SparseColumn) else None for column in self.columns
        ]

    def rewrite(
        self, places: Ints, after: Ints, kept: Sequence[Any], at: Ints, slots: Ints, rows: Batch,
        drop_at: Ints, drop_slots: Ints,
    ) -> None:  # fmt: skip
        """Put rows into slots ``at, slots`` of some places, overwrite others, so that there are ``after`` rows then.

        There must be room. After an interruption it can be done again, and `restore` undoes it.
        """
        for column, new, before in zip(self.columns, rows or self.nothing, kept, strict=True):
            if isinstance(column, SparseColumn):
                column.rewrite_all(places, after, before, at, slots, new)
            else:
                column.put(at, slots, new)
                column.wipe(drop_at, drop_slots)
        self.lengths[places] = after

    def restore(
        self, places: Ints, before: Ints, kept: Sequence[Any], at: Ints, slots: Ints, rows: Batch,
        new_at: Ints, new_slots: Ints,
    ) -> None:  # fmt: skip
        """Undo `rewrite`: put the rows that lay there back, and overwrite the ones that came behind them."""
        for column, new, old in zip(self.columns, rows, kept, strict=True):
            if isinstance(column, SparseColumn):
                column.rewrite_all(places, before, old)
            else:
                column.put(at, slots, new)
                column.wipe(new_at, new_slots)
        self.lengths[places] = before

    def fit_rooms(self, places: Ints) -> None:
        """Give places the room that is meant for what lies there now. If there is no memory, the next call does it."""
        if len(places) == 1 and not len(self.unfitted) and places.item(0) < len(self.lengths):
            place = places.item(0)
            self.unfitted, length = places, self.lengths.item(place)
            for column in self.columns:
                column.fit_one(place, length)
            self.unfitted = NONE
            return
        self.unfitted = np.union1d(self.unfitted, places) if len(self.unfitted) else places
        self.unfitted = self.unfitted[self.unfitted < len(self.lengths)]
        for column in self.columns:
            column.fit_rooms(self.unfitted, self.lengths)
        self.unfitted = NONE

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        return self.lengths.nbytes + sum(column.nbytes for column in self.columns)
