"""An edit of the shelves, cut up by place: done place by place when needed, and undone to the last byte."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expunge.schedules import Edit
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
    before: tuple[int, Batch, Batch] | None = None
    """The length, the overwritten rows and the dropped rows; None while the patch is not done."""


class Patches:
    """A staged edit."""

    def __init__(self, shelves: Shelves, edit: Edit) -> None:
        self.shelves = shelves
        self.edit = edit
        self.places_before = len(shelves)
        self.put_rows = self._sources()
        if edit.removed == 1 and edit.added == 0 and not edit.put_enters.any():  # one deletion: the everyday case
            slot = edit.leave_slots.item(0)
            place = edit.leave_places.item(0)
            leaving = tuple([column[slot : slot + 1].copy() for column in shelves.block(place)])
            self.leave_rows: Batch = leaving
            self.by_place = {place: Patch(edit.put_slots.tolist(), self.put_rows, 1, (), leaving)}
        else:
            self.leave_rows = shelves.gather(edit.leave_places, edit.leave_slots)
            self.by_place = self._cut()
            shelves.resize(max(len(shelves), int(edit.put_places.max(initial=-1)) + 1))

    def _sources(self) -> Batch:
        """Return the rows to put, in the order of ``put_sources``."""
        edit = self.edit
        if len(edit.put_sources) == 0:
            return ()
        if len(edit.moved_places) == 0:
            return tuple([column[edit.put_sources] for column in edit.entering])
        moved = self.shelves.gather(edit.moved_places, edit.moved_slots)
        if not edit.entering:
            return moved if len(edit.put_sources) == 1 else tuple([column[-1 - edit.put_sources] for column in moved])
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
            return np.searchsorted(at, [places, places + 1]).T.tolist()  # type: ignore[no-any-return]

        def part(rows: list[AnyArray], first: int, stop: int) -> Batch:
            return tuple([column[first:stop] for column in rows]) if stop > first else ()

        return {
            place: Patch(put_slots[p:q], part(put_rows, p, q), s - r, part(enter_rows, *e), part(leave_rows, *f))
            for place, (p, q), (r, s), e, f in zip(
                places.tolist(), bounds(put_at), bounds(drop_at), bounds(enter_at), bounds(leave_at), strict=True
            )
        }

    def at(self, place: int) -> Patch | None:
        """Return the patch of a place, after doing it."""
        patch = self.by_place.get(place)
        if patch is not None and patch.before is None:
            self._do(place, patch)
        return patch

    def _do(self, place: int, patch: Patch) -> None:
        shelves = self.shelves
        block = shelves.block(place)
        length = len(block[0])
        slots = patch.slots
        inside = len(slots) if not slots or slots[-1] < length else sum(slot < length for slot in slots)
        overwritten: Batch = ()
        if inside:
            overwritten = tuple([column[slots[:inside]] for column in block])
        dropped: Batch = ()
        if patch.dropped:
            dropped = tuple([column[length - patch.dropped :].copy() for column in block])
        patch.before = (length, overwritten, dropped)
        if inside:
            for column, new in zip(block, patch.rows, strict=True):
                column[slots[:inside]] = new[:inside]
        if inside < len(slots):
            shelves.extend(place, tuple([column[inside:] for column in patch.rows]))
        if patch.dropped:
            shelves.truncate(place, length - patch.dropped)

    def finish(self) -> None:
        """Do what has not been done yet."""
        for place, patch in self.by_place.items():
            if patch.before is None:
                self._do(place, patch)

    def undo(self) -> None:
        """Put every byte back."""
        for place, patch in self.by_place.items():
            if patch.before is None:
                continue
            length, overwritten, dropped = patch.before
            if dropped:
                self.shelves.extend(place, dropped)
            if overwritten:
                slots = patch.slots[: len(overwritten[0])]
                for column, old in zip(self.shelves.block(place), overwritten, strict=True):
                    column[slots] = old
            self.shelves.truncate(place, length)
        self.shelves.resize(self.places_before)
