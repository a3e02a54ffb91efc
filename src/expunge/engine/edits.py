"""Edits of the records: who goes into which slot, and which ends of places are dropped.

Proofs that every edit keeps the law of the layout: docs/guarantee.md, "Schedules".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from expunge.base.types import Batch, Ints, Keys, Mask

SLOT_BITS = np.int64(32)
SLOT_MASK = np.int64(2**32 - 1)
NONE: Ints = np.zeros(0, dtype=np.int64)
NOT_ANY: Mask = np.zeros(0, dtype=bool)
MINUS_ONE: Ints = np.array([-1])
NOT_ONE: Mask = np.zeros(1, dtype=bool)
ZERO: Ints = np.zeros(1, dtype=np.int64)
ONLY_ONE: Mask = np.ones(1, dtype=bool)
NEWCOMER_FIRST: Ints = np.array([0, -1])
FIRST_ENTERS: Mask = np.array([True, False])


@dataclass(frozen=True)
class Edit:
    """A change of the records: rows are put into slots, then the ends of some places are dropped.

    ``put_sources`` says which row goes into a slot: j ≥ 0 the j-th entering record, -1 - j the record that
    lay at ``moved_places[j], moved_slots[j]``. ``put_enters`` marks the rows that come from outside the place.
    ``leave_places, leave_slots`` are the rows that leave their place, first those that leave for good.
    """

    put_places: Ints = field(default_factory=lambda: NONE)
    put_slots: Ints = field(default_factory=lambda: NONE)
    put_sources: Ints = field(default_factory=lambda: NONE)
    put_enters: Mask = field(default_factory=lambda: NOT_ANY)
    moved_places: Ints = field(default_factory=lambda: NONE)
    moved_slots: Ints = field(default_factory=lambda: NONE)
    drop_places: Ints = field(default_factory=lambda: NONE)
    drop_slots: Ints = field(default_factory=lambda: NONE)
    leave_places: Ints = field(default_factory=lambda: NONE)
    leave_slots: Ints = field(default_factory=lambda: NONE)
    keys: Keys | None = None
    """Keys of the entering records, where the schedule has them."""
    entering: Batch = ()
    """The entering records themselves, in all their columns; filled in by the records."""
    removed: int = 0
    added: int = 0

    @cached_property
    def within_a_place(self) -> bool:
        """Whether one record is deleted and no other changes its place: the everyday case, served without ado."""
        return self.removed == 1 and self.added == 0 and len(self.leave_places) == 1

    def places(self) -> Ints:
        """Return the places whose records change, ascending."""
        if self.within_a_place:
            return self.leave_places
        return np.unique(np.concatenate([self.put_places[self.put_enters], self.leave_places]))


def fill_holes(lengths: Ints, places: Ints, slots: Ints) -> Edit:
    """Fill the holes among the first n - k slots of each place, in order, with the survivors of its last k."""
    number = len(places)
    if number == 1:
        last = lengths[places] - 1
        if last.item(0) == slots.item(0):
            return Edit(
                drop_places=places, drop_slots=slots, leave_places=places, leave_slots=slots, removed=1
            )  # fmt: skip
        return Edit(places, slots, MINUS_ONE, NOT_ONE, places, last, places, last, places, slots, removed=1)
    taken = np.bincount(places, minlength=len(lengths))
    touched = np.flatnonzero(taken)
    left = lengths - taken
    tail_places = np.repeat(touched, taken[touched])
    within = np.arange(number) - np.repeat(np.cumsum(taken[touched]) - taken[touched], taken[touched])
    tail_slots = left[tail_places] + within
    gone = np.sort((places << SLOT_BITS) | slots)
    holes = gone[(gone & SLOT_MASK) < left[gone >> SLOT_BITS]]
    tails = (tail_places << SLOT_BITS) | tail_slots
    movers = tails[~np.isin(tails, gone, assume_unique=True)]
    return Edit(
        holes >> SLOT_BITS, holes & SLOT_MASK, -1 - np.arange(len(holes)), np.zeros(len(holes), dtype=bool),
        movers >> SLOT_BITS, movers & SLOT_MASK, tail_places, tail_slots, places, slots, removed=number,
    )  # fmt: skip


def draw_slots(lengths: Ints, places: Ints, rng: np.random.Generator) -> Edit:
    """Give each newcomer a uniform slot among the n + 1 of its place; the one displaced goes last."""
    if len(places) == 1:
        last = lengths[places]
        drawn = rng.integers(last + 1)
        if drawn.item(0) == last.item(0):
            return Edit(places, last, ZERO, ONLY_ONE, added=1)
        slots, twice = np.concatenate([drawn, last]), np.concatenate([places, places])
        return Edit(twice, slots, NEWCOMER_FIRST, FIRST_ENTERS, places, drawn, added=1)
    order = np.argsort(places, kind="stable")
    in_order = places[order]
    last = np.empty_like(places)
    last[order] = lengths[in_order] + np.arange(len(places)) - np.searchsorted(in_order, in_order)
    drawn = rng.integers(last + 1) if len(last) else last
    content: dict[int, int] = {}  # position -> newcomer j, or -1 - old position
    ends, slots = (places << SLOT_BITS) | last, (places << SLOT_BITS) | drawn
    for j, (end, slot) in enumerate(zip(ends.tolist(), slots.tolist(), strict=True)):
        if slot != end:
            content[end] = content.get(slot, -1 - slot)
        content[slot] = j
    number = len(content)
    targets, sources = np.fromiter(content, np.int64, number), np.fromiter(content.values(), np.int64, number)
    order = np.argsort(targets)
    targets, sources = targets[order], sources[order]
    old = sources < 0
    came = -1 - sources[old]
    sources[old] = -1 - np.arange(len(came))
    return Edit(
        targets >> SLOT_BITS, targets & SLOT_MASK, sources, ~old, came >> SLOT_BITS, came & SLOT_MASK,
        added=len(places),
    )  # fmt: skip


def into_steps(edit: Edit, batch: int) -> Edit:
    """Turn an edit of one long place into one of places of ``batch`` records each."""
    put, moved, drop = edit.put_slots, edit.moved_slots, edit.drop_slots
    put_places, moved_places = put // batch, moved // batch
    old = edit.put_sources < 0
    origin = moved_places[-1 - edit.put_sources[old]]
    crossing = put_places[old] != origin
    enters = ~old
    enters[old] = crossing
    crossed = moved[-1 - edit.put_sources[old]][crossing]
    leave = np.concatenate([edit.leave_slots, crossed])
    return replace(
        edit, put_places=put_places, put_slots=put % batch, put_enters=enters,
        moved_places=moved_places, moved_slots=moved % batch, drop_places=drop // batch, drop_slots=drop % batch,
        leave_places=leave // batch, leave_slots=leave % batch,
    )  # fmt: skip
