"""An edit of the shelves, cut up by place: done place by place when needed, and undone to the last byte."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expunge.edits import Edit
from expunge.shelves import Shelves
from expunge.types import AnyArray, Batch, Ints


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
        """Add the places that the edit needs."""
        if len(self.edit.put_places) and not self.edit.within_a_place:
            self.shelves.resize(max(len(self.shelves), int(self.edit.put_places.max()) + 1))

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
        number = len(edit.entering[0])
        numbers = np.where(edit.put_sources >= 0, edit.put_sources, number - 1 - edit.put_sources)
        return tuple([np.concatenate(pair)[numbers] for pair in zip(edit.entering, moved, strict=True)])

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

        def part(rows: list[AnyArray], first: int, stop: int) -> Batch:
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
            patch.before = shelves.lengths.item(place)
        length = patch.before
        block = tuple([shelf.block(place, length) for shelf in shelves.columns])
        inside = len(slots) if not slots or slots[-1] < length else sum(slot < length for slot in slots)
        if inside:
            here = slots[:inside] if inside > 1 else slots[0]
            for column, new in zip(block, patch.rows, strict=True):
                column[here] = new[:inside] if inside > 1 else new[0]
        if inside < len(slots):
            shelves.extend(place, length, tuple([column[inside:] for column in patch.rows]))
        if patch.dropped:
            shelves.truncate(place, length - patch.dropped, block)
        patch.done = True

    def finish(self) -> None:
        """Do what has not been done yet."""
        for place, patch in self.by_place.items():
            if not patch.done:
                self._do(place, patch)

    def undo(self) -> None:
        """Put every byte back: the rows that left or moved are all that was overwritten."""
        edit, shelves = self.edit, self.shelves
        done = {place for place, patch in self.by_place.items() if patch.before is not None}
        for place in done:
            before = self.by_place[place].before
            assert before is not None
            shelves.truncate(place, min(before, shelves.lengths.item(place)), shelves.block(place))
            shelves.lengths[place] = before
        moved = edit.put_sources < 0
        back = -1 - edit.put_sources[moved]
        self._restore(done, edit.leave_places, edit.leave_slots, self.leave_rows)
        self._restore(
            done,
            edit.moved_places[back],
            edit.moved_slots[back],
            tuple([column[moved] for column in self.put_rows]),
        )
        shelves.resize(self.places_before)

    def _restore(self, done: set[int], places: Ints, slots: Ints, rows: Batch) -> None:
        for j, (place, slot) in enumerate(zip(places.tolist(), slots.tolist(), strict=True)):
            if place in done:
                for column, old in zip(self.shelves.block(place), rows, strict=True):
                    column[slot] = old[j]
