"""An edit of the shelves, cut up by place: done place by place when needed, and undone to the last byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.columns import rows_in, stack
from expunge.edits import SLOT_BITS, Edit
from expunge.shelves import Shelves
from expunge.types import Batch, Column, Ints


@dataclass
class Patch:
    """What an edit does at one place, and what is needed to undo it."""

    slots: list[int]
    rows: Batch
    """What is put into the slots."""
    dropped: int
    """How many rows at the end are dropped, after that."""
    entering: Batch
    leaving: Batch
    """The rows that change place: what the sums of the place gain and lose."""
    before: int | None = None
    """How many rows there were; None while the patch has not begun."""
    kept: Sequence[Any] = ()
    """What the shelves keep of the place, from when it begins, to do it again or undo it."""
    done: bool = False


class Patches:
    """A staged edit."""

    def __init__(self, shelves: Shelves, edit: Edit, count_after: int) -> None:
        self.count_after = count_after
        self.shelves = shelves
        self.edit = edit
        self.places_before = len(shelves)
        if edit.within_a_place:
            place, slot = edit.leave_places.item(0), edit.leave_slots.item(0)
            block = shelves.block(place)
            self.leave_rows: Batch = tuple([column[slot : slot + 1].copy() for column in block])
            self.put_rows: Batch = ()
            if len(edit.put_slots):
                self.put_rows = tuple([column[-1:].copy() for column in block])
            self.by_place = {place: Patch(edit.put_slots.tolist(), self.put_rows, 1, (), self.leave_rows)}
        else:
            self.leave_rows = shelves.gather(edit.leave_places, edit.leave_slots)
            self.put_rows = self._sources()
            self.by_place = self._cut()

    def make_room(self) -> None:
        """Add the places that the edit needs, and room for many records at once."""
        edit, shelves = self.edit, self.shelves
        if len(edit.put_places) and not edit.within_a_place:
            shelves.resize(max(len(shelves), int(edit.put_places.max()) + 1))
            if edit.added > 1 and not edit.removed:
                shelves.make_rooms(edit.put_places, edit.put_slots, self.put_rows)

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

    def _cut(self) -> dict[int, Patch]:
        edit = self.edit
        puts = np.lexsort((edit.put_slots, edit.put_places))
        put_at, put_slots = edit.put_places[puts], edit.put_slots[puts].tolist()
        put_rows = [column[puts] for column in self.put_rows]
        enters = puts[edit.put_enters[puts]]
        enter_at, enter_rows = edit.put_places[enters], [column[enters] for column in self.put_rows]
        leaves = np.argsort(edit.leave_places, kind="stable")
        leave_at, leave_rows = edit.leave_places[leaves], [column[leaves] for column in self.leave_rows]
        drop_at = np.sort(edit.drop_places)
        places = np.unique(np.concatenate([put_at, leave_at, drop_at]))

        def bounds(at: Ints) -> list[list[int]]:
            return np.searchsorted(at, [places, places + 1]).T.tolist()

        def part(rows: list[Column], first: int, stop: int) -> Batch:
            return tuple([column[first:stop] for column in rows]) if stop > first else ()

        return {
            place: Patch(put_slots[p:q], part(put_rows, p, q), s - r, part(enter_rows, *e), part(leave_rows, *f))
            for place, (p, q), (r, s), e, f in zip(
                places.tolist(),
                bounds(put_at),
                bounds(drop_at),
                bounds(enter_at),
                bounds(leave_at),
                strict=True,
            )
        }

    def at(self, place: int) -> Patch | None:
        """Return the patch of a place, after doing it."""
        patch = self.by_place.get(place)
        if patch is not None and not patch.done:
            self._do(place, patch)
        return patch

    def _do(self, place: int, patch: Patch) -> None:
        shelves, slots = self.shelves, patch.slots
        if patch.before is None:
            length = shelves.lengths.item(place)
            patch.kept = shelves.keep(place, length)
            patch.before = length
        length = patch.before
        more = 0 if not slots or slots[-1] < length else sum(slot >= length for slot in slots)
        shelves.rewrite(place, length, slots, patch.rows, length + more - patch.dropped, patch.kept)
        patch.done = True

    def finish(self) -> None:
        """Do what has not been done yet."""
        for place, patch in self.by_place.items():
            if not patch.done:
                self._do(place, patch)

    def undo(self) -> None:
        """Put every byte back: the rows that left or moved are all that was overwritten."""
        edit, shelves = self.edit, self.shelves
        moved = edit.put_sources < 0
        back = -1 - edit.put_sources[moved]
        places = np.concatenate([edit.leave_places, edit.moved_places[back]])
        slots = np.concatenate([edit.leave_slots, edit.moved_slots[back]])
        rows = self.leave_rows
        if len(back):
            rows = tuple([stack([left, put[moved]]) for left, put in zip(rows, self.put_rows, strict=True)])
        at, first = np.unique((places << SLOT_BITS) | slots, return_index=True)  # ascending, each slot once
        for place, patch in self.by_place.items():
            if patch.before is not None:
                begin, stop = np.searchsorted(at, [place << 32, (place + 1) << 32]).tolist()
                numbers = first[begin:stop]
                old = tuple([column[numbers] for column in rows])
                length = shelves.lengths.item(place)
                shelves.rewrite(place, length, slots[numbers].tolist(), old, patch.before, patch.kept)
        shelves.resize(self.places_before)
