"""An edit of the shelves, cut up by place: done place by place when needed, and undone to the last byte."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expunge.schedules import Edit
from expunge.shelves import Shelves
from expunge.types import Batch


@dataclass
class Patch:
    """What an edit does at one place, and what is needed to undo it."""

    put_slots: list[int]
    incoming: Batch
    drop_slots: list[int]
    dropped: Batch
    overwritten: Batch = ()
    appended: int = 0
    applied: bool = False


class Patches:
    """A staged edit."""

    def __init__(self, shelves: Shelves, edit: Edit) -> None:
        self.shelves = shelves
        self.edit = edit
        self.places_before = len(shelves)
        if len(edit.put_places) == 0 and len(edit.drop_places) == 1:  # one deletion: the everyday case
            place, slot = edit.drop_places.item(0), edit.drop_slots.item(0)
            dropped = tuple([column[slot : slot + 1].copy() for column in shelves.block(place)])
            self.by_place = {place: Patch([], (), [slot], dropped)}
        else:
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
            return tuple([column[-1 - edit.put_sources] for column in moved])
        number = len(edit.entering[0])
        numbers = np.where(edit.put_sources >= 0, edit.put_sources, number - 1 - edit.put_sources)
        return tuple([np.concatenate(pair)[numbers] for pair in zip(edit.entering, moved, strict=True)])

    def _cut(self) -> dict[int, Patch]:
        edit = self.edit
        rows = self._sources()
        puts = np.lexsort((edit.put_slots, edit.put_places))
        drops = np.lexsort((edit.drop_slots, edit.drop_places))
        put_at, drop_at = edit.put_places[puts], edit.drop_places[drops]
        put_slots, drop_slots = edit.put_slots[puts].tolist(), edit.drop_slots[drops].tolist()
        incoming = [column[puts] for column in rows]
        dropped = self.shelves.gather(drop_at, edit.drop_slots[drops])
        places = edit.places()
        put_bounds = np.searchsorted(put_at, [places, places + 1]).T.tolist()
        drop_bounds = np.searchsorted(drop_at, [places, places + 1]).T.tolist()
        return {
            place: Patch(
                put_slots[p:q],
                tuple([column[p:q] for column in incoming]) if q > p else (),
                drop_slots[r:s],
                tuple([column[r:s] for column in dropped]) if s > r else (),
            )
            for place, (p, q), (r, s) in zip(places.tolist(), put_bounds, drop_bounds, strict=True)
        }

    def at(self, place: int) -> Patch | None:
        """Return the patch of a place, after doing it."""
        patch = self.by_place.get(place)
        if patch is not None and not patch.applied:
            self._do(place, patch)
        return patch

    def _do(self, place: int, patch: Patch) -> None:
        patch.applied = True
        if patch.put_slots:
            block = self.shelves.block(place)
            inside = sum(slot < len(block[0]) for slot in patch.put_slots)
            slots = patch.put_slots[:inside]
            if inside:
                patch.overwritten = tuple([column[slots] for column in block])
                for column, new in zip(block, patch.incoming, strict=True):
                    column[slots] = new[:inside]
            patch.appended = len(patch.put_slots) - inside
            if patch.appended:
                self.shelves.extend(place, tuple([column[inside:] for column in patch.incoming]))
        if patch.drop_slots:
            self.shelves.close(place, patch.drop_slots)

    def finish(self) -> None:
        """Do what has not been done yet."""
        for place in self.by_place:
            self.at(place)

    def undo(self) -> None:
        """Put every byte back."""
        for place, patch in self.by_place.items():
            if patch.applied:
                self._undo(place, patch)
        self.shelves.resize(self.places_before)

    def _undo(self, place: int, patch: Patch) -> None:
        if patch.drop_slots:
            self.shelves.reopen(place, patch.drop_slots, patch.dropped)
        if patch.appended:
            length = self.shelves.lengths.item(place)
            self.shelves.close(place, list(range(length - patch.appended, length)))
        if patch.overwritten:
            slots = patch.put_slots[: len(patch.put_slots) - patch.appended]
            for column, old in zip(self.shelves.block(place), patch.overwritten, strict=True):
                column[slots] = old
