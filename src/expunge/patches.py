"""An edit of the shelves: done when a sum over a changed place is first asked for, and undone to the last byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from expunge.columns import is_sparse, rows_in, stack
from expunge.edits import Edit
from expunge.regions import aligned
from expunge.shelves import Shelves
from expunge.types import Batch, Ints


class Patches:
    """A staged edit, and what is needed to undo it."""

    before: Ints
    """How many rows each place has."""
    after: Ints
    """How many it will have."""

    def __init__(self, shelves: Shelves, edit: Edit, count_after: int) -> None:
        self.count_after = count_after
        self.shelves = shelves
        self.edit = edit
        self.places_before = len(shelves)
        self.begun = self.done = False
        self.put_rows: Batch = ()
        self.kept: Sequence[Any] = ()
        """What the shelves keep of each place, to do the edit again or undo it."""
        if edit.within_a_place:
            self.places = edit.leave_places
            place = self.places.item(0)
            self.leave_rows: Batch = shelves.single(place, edit.leave_slots.item(0))
            if len(edit.put_slots):
                self.put_rows = shelves.single(place, edit.moved_slots.item(0))
            self.groups = {place: ((), self.leave_rows)}
        else:
            self.places = np.unique(np.concatenate([edit.put_places, edit.leave_places, edit.drop_places]))
            self.leave_rows = shelves.gather(edit.leave_places, edit.leave_slots)
            self.put_rows = self._sources()
            self.groups = self._grouped()

    def make_room(self) -> None:
        """Add the places that the edit needs, and room for the rows that come."""
        edit, shelves = self.edit, self.shelves
        inserting = edit.added and not edit.removed
        if inserting:
            shelves.resize(max(len(shelves), self.places.item(-1) + 1))
            shelves.make_room(edit.put_places, edit.put_slots, self.put_rows)
        self.before = self.after = shelves.lengths[self.places]
        if edit.within_a_place:
            self.after = self.before - 1
        elif inserting:
            beyond = edit.put_slots >= shelves.lengths[edit.put_places]
            self.after = self.before + _numbers(self.places, edit.put_places[beyond])
        elif edit.removed:
            self.after = self.before - _numbers(self.places, edit.drop_places)

    def make_room_again(self) -> None:
        """Make room for what the edit puts, or takes back, on shelves that have just been read."""
        there = self.places < len(self.shelves)
        self.shelves.reserve(self.places[there], np.maximum(self.before, self.after)[there])

    def _sources(self) -> Batch:
        """Return the rows to put, in the order of ``put_sources``."""
        edit = self.edit
        if len(edit.put_sources) == 0:
            return ()
        if len(edit.moved_places) == 0:
            return tuple([column[edit.put_sources] for column in edit.entering])
        moved = self.shelves.gather(edit.moved_places, edit.moved_slots)
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
        now = self.shelves.block(place)[:width]
        number, edit = rows_in(now[0]), self.edit
        at = np.searchsorted(self.places, place)
        if at == len(self.places) or self.places[at] != place:
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
        edit, shelves = self.edit, self.shelves
        if not self.begun:
            self.kept = shelves.keep(self.places)
            self.begun = True
        shelves.rewrite(
            self.places, self.after, self.kept, edit.put_places, edit.put_slots, self.put_rows,
            edit.drop_places, edit.drop_slots,
        )  # fmt: skip
        self.done = True

    def undo(self) -> None:
        """Put every byte back: the rows that left or moved are all that was overwritten."""
        edit, shelves = self.edit, self.shelves
        if self.begun:
            moved = edit.put_sources < 0
            back = -1 - edit.put_sources[moved]
            places = np.concatenate([edit.leave_places, edit.moved_places[back]])
            slots = np.concatenate([edit.leave_slots, edit.moved_slots[back]])
            rows = self.leave_rows
            if len(back):
                rows = tuple([stack([left, put[moved]]) for left, put in zip(rows, self.put_rows, strict=True)])
            new = edit.put_slots >= self.before[np.searchsorted(self.places, edit.put_places)]
            shelves.restore(
                self.places, self.before, self.kept, places, slots, rows, edit.put_places[new], edit.put_slots[new]
            )
            self.begun = self.done = False
        shelves.resize(self.places_before)


def _aligned(column: Any) -> Any:
    """Return a dense column on the boundary that it has on its shelf, so that summing it gives the same bits."""
    if is_sparse(column):
        return column
    copy = aligned(column.size, column.dtype).reshape(column.shape)
    copy[...] = column
    return copy


def _numbers(places: Ints, at: Ints) -> Ints:
    """Return how often each place is among others."""
    return np.bincount(np.searchsorted(places, at), minlength=len(places))
