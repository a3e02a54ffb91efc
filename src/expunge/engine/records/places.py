"""Columns of records that lie together by place, dense or sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from expunge.base.columns import is_sparse, narrowest, rows_in, stack
from expunge.base.types import Batch, Ints
from expunge.engine.edits import NONE, Edit
from expunge.engine.records.buffers import DenseColumn
from expunge.engine.records.pools import aligned, resized
from expunge.engine.records.sparse import SparseColumn


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

    def single(self, place: int, slot: int) -> Batch:
        """Return a copy of one row, in all columns."""
        return tuple([column.single(place, slot) for column in self.columns])

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


class StagedEdit:
    """A staged edit, and what is needed to undo it."""

    before: Ints
    """How many rows each place has."""
    after: Ints
    """How many it will have."""

    def __init__(self, places: Places, edit: Edit, count_after: int) -> None:
        self.count_after = count_after
        self.places = places
        self.edit = edit
        self.places_before = len(places)
        self.begun = self.done = False
        self.put_rows: Batch = ()
        self.kept: Sequence[Any] = ()
        """What is kept of each place, to do the edit again or undo it."""
        if edit.within_a_place:
            self.touched = edit.leave_places
            place = self.touched.item(0)
            self.leave_rows: Batch = places.single(place, edit.leave_slots.item(0))
            if len(edit.put_slots):
                self.put_rows = places.single(place, edit.moved_slots.item(0))
            self.groups = {place: ((), self.leave_rows)}
        else:
            self.touched = np.unique(np.concatenate([edit.put_places, edit.leave_places, edit.drop_places]))
            self.leave_rows = places.gather(edit.leave_places, edit.leave_slots)
            self.put_rows = self._sources()
            self.groups = self._grouped()

    def make_room(self) -> None:
        """Add the places that the edit needs, and room for the rows that come."""
        edit, by_place = self.edit, self.places
        inserting = edit.added and not edit.removed
        if inserting:
            by_place.resize(max(len(by_place), self.touched.item(-1) + 1))
            by_place.make_room(edit.put_places, edit.put_slots, self.put_rows)
        self.before = self.after = by_place.lengths[self.touched]
        if edit.within_a_place:
            self.after = self.before - 1
        elif inserting:
            beyond = edit.put_slots >= by_place.lengths[edit.put_places]
            self.after = self.before + _numbers(self.touched, edit.put_places[beyond])
        elif edit.removed:
            self.after = self.before - _numbers(self.touched, edit.drop_places)

    def make_room_again(self) -> None:
        """Make room for what the edit puts, or takes back, where all has just been read."""
        there = self.touched < len(self.places)
        self.places.reserve(self.touched[there], np.maximum(self.before, self.after)[there])

    def _sources(self) -> Batch:
        """Return the rows to put, in the order of ``put_sources``."""
        edit = self.edit
        if len(edit.put_sources) == 0:
            return ()
        if len(edit.moved_places) == 0:
            return tuple([column[edit.put_sources] for column in edit.entering])
        moved = self.places.gather(edit.moved_places, edit.moved_slots)
        if not edit.entering:
            return tuple([column[-1 - edit.put_sources] for column in moved])
        number = rows_in(edit.entering[0])
        numbers = np.where(edit.put_sources >= 0, edit.put_sources, number - 1 - edit.put_sources)
        return tuple([stack(pair)[numbers] for pair in zip(edit.entering, moved, strict=True)])

    def _grouped(self) -> dict[int, tuple[Batch, Batch]]:
        """Return the rows that enter and leave each place: what its sums gain and lose."""
        edit = self.edit
        enters = np.flatnonzero(edit.put_enters)
        entering = self._by_place(edit.put_places[enters], enters, self.put_rows)
        leaving = self._by_place(edit.leave_places, np.arange(len(edit.leave_places)), self.leave_rows)
        return {place: (entering.get(place, ()), leaving.get(place, ())) for place in {**entering, **leaving}}

    def _by_place(self, at: Ints, numbers: Ints, rows: Batch) -> dict[int, Batch]:
        if len(at) <= 1:
            return {place: tuple([column[numbers] for column in rows]) for place in at.tolist()}
        order = np.argsort(at, kind="stable")
        places, first = np.unique(at[order], return_index=True)
        columns = [column[numbers[order]] for column in rows]
        bounds = [*first.tolist(), len(at)]
        return {
            place: tuple([column[begin:stop] for column in columns])
            for place, begin, stop in zip(places.tolist(), bounds[:-1], bounds[1:], strict=True)
        }

    def at(self, place: int) -> tuple[Batch, Batch]:
        """Return the rows that enter and leave a place."""
        return self.groups.get(place, ((), ()))

    def before_at(self, place: int, width: int) -> Batch:
        """Return the first ``width`` columns of a place as they were before the edit, which is done, in a copy."""
        now = self.places.block(place)[:width]
        number, edit = rows_in(now[0]), self.edit
        at = np.searchsorted(self.touched, place)
        if at == len(self.touched) or self.touched[at] != place:
            return now
        left = np.flatnonzero(edit.leave_places == place)
        moved = np.flatnonzero(edit.put_sources < 0)
        came_from = -1 - edit.put_sources[moved]
        here = edit.moved_places[came_from] == place
        moved, came_from = moved[here], came_from[here]
        order = np.arange(self.before[at])
        order[edit.leave_slots[left]] = number + np.arange(len(left))
        order[edit.moved_slots[came_from]] = number + len(left) + np.arange(len(moved))
        parts = zip(now, self.leave_rows, self.put_rows or self.leave_rows, strict=False)
        return tuple([_aligned(stack([column, gone[left], put[moved]])[order]) for column, gone, put in parts])

    def finish(self) -> None:
        """Do the edit, unless it is done; after an interruption, again."""
        if self.done:
            return
        edit, by_place = self.edit, self.places
        if not self.begun:
            self.kept = by_place.keep(self.touched)
            self.begun = True
        by_place.rewrite(
            self.touched, self.after, self.kept, edit.put_places, edit.put_slots, self.put_rows,
            edit.drop_places, edit.drop_slots,
        )  # fmt: skip
        self.done = True

    def undo(self) -> None:
        """Put every byte back: the rows that left or moved are all that was overwritten."""
        edit, by_place = self.edit, self.places
        if self.begun:
            moved = edit.put_sources < 0
            back = -1 - edit.put_sources[moved]
            places = np.concatenate([edit.leave_places, edit.moved_places[back]])
            slots = np.concatenate([edit.leave_slots, edit.moved_slots[back]])
            rows = self.leave_rows
            if len(back):
                rows = tuple([stack([left, put[moved]]) for left, put in zip(rows, self.put_rows, strict=True)])
            new = edit.put_slots >= self.before[np.searchsorted(self.touched, edit.put_places)]
            by_place.restore(
                self.touched, self.before, self.kept, places, slots, rows, edit.put_places[new], edit.put_slots[new]
            )
            self.begun = self.done = False
        by_place.resize(self.places_before)


def _aligned(column: Any) -> Any:
    """Return a dense column on the boundary that it has at its place, so that summing it gives the same bits."""
    if is_sparse(column):
        return column
    copy = aligned(column.size, column.dtype).reshape(column.shape)
    copy[...] = column
    return copy


def _numbers(places: Ints, at: Ints) -> Ints:
    """Return how often each place is among others."""
    return np.bincount(np.searchsorted(places, at), minlength=len(places))
