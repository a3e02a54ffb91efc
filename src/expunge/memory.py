"""Records in memory, lying by place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from expunge.columns import narrowest, overwrite, rows_in, stack
from expunge.edits import SLOT_BITS, SLOT_MASK, Edit
from expunge.errors import BadRecords, DuplicateId, UnknownId
from expunge.index import HashIndex, hash_one, hashes
from expunge.intake import as_columns, as_ids, check_distinct, check_number, match_columns, once
from expunge.patches import Patches
from expunge.randomness import Randomness
from expunge.records import (
    AT_ONCE,
    Delete,
    Insert,
    Located,
    Query,
    Replace,
    Request,
    Share,
    Total,
    Totals,
    check_named,
    evaluate,
)  # fmt: skip
from expunge.rows import Path
from expunge.schedules import Assignment, Entering, Schedule, joins, joins_each
from expunge.shelves import Shelves
from expunge.types import AnyArray, Batch, Ints, Keys

MOST_NAMED = 5
"""How many unknown ids an error names."""


class MemoryRecords:
    """Records in memory: any number of columns, an id each, and (optionally) the subject each belongs to.

    Without ids, records are numbered 0, 1, 2, …; without subjects, every record is its own. A column may be
    sparse (any format of `scipy.sparse`): queries get it as a `csr_array`, with sorted indices and no stored zeros.

    >>> records = MemoryRecords((np.eye(3),), ids=["ann", "bob", "cy"])
    >>> records.count
    3
    """

    def __init__(self, columns: Sequence[Any], ids: Any = None, subjects: Any = None) -> None:
        rows = as_columns(columns)
        self.count = rows_in(rows[0])
        self.next_id = self.count if ids is None else None
        """The number that the next record gets, where they are numbered."""
        own = np.arange(self.count) if ids is None else as_ids("ids", ids)
        check_number("ids", own, self.count)
        if ids is not None:
            check_distinct(own, "ids must be unique (use subjects to group records)")
        labels = [own]
        if subjects is not None:
            labels.append(as_ids("subjects", subjects))
            check_number("subjects", labels[1], self.count)
        self.has_subjects = subjects is not None
        self._keyed = False
        self._ordered = False
        self.width = len(rows)
        """How many columns were given; after them come ids, subjects and keys."""
        self._waiting: Batch | None = (*rows, *labels)
        self.model: Batch = tuple([column[:0].copy() for column in self._waiting])
        """All columns, without records: what they are like."""
        self._shelves: Shelves | None = None
        self._index: HashIndex | None = None
        self._subject_index: HashIndex | None = None
        self._patches: Patches | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: no column of strings is wider than what is there."""
        return {**self.__dict__, "model": tuple([narrowest(column) for column in self.model])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._patches is not None:
            self._patches.make_room_again()

    # --- what is there ---

    @property
    def shelves(self) -> Shelves:
        """The columns by place: the given ones, then ids, subjects and keys."""
        if self._shelves is None:
            raise BadRecords("records: not laid out yet; call learn() first.")
        return self._shelves

    def _labels(self, position: int, place: int) -> AnyArray:
        shelves = self.shelves
        return shelves.columns[position].block(place, shelves.lengths.item(place))

    def ids_at(self, place: int) -> AnyArray:
        """Return the ids of a place, in their order."""
        return self._labels(self.width, place)

    def keys_at(self, place: int) -> Keys:
        """Return the keys of a place, in the same order."""
        return self._labels(-1, place)

    def batch_at(self, place: int) -> Batch:
        """Return the columns of a place, in the same order."""
        shelves = self.shelves
        length = shelves.lengths.item(place)
        return tuple([shelf.block(place, length) for shelf in shelves.columns[: self.width]])

    @property
    def index(self) -> HashIndex:
        """The places by hashed id, built when first needed."""
        if self._index is None:
            self._index = self._fresh_index()
        return self._index

    def _fresh_index(self) -> HashIndex:
        self._refuse_staged()
        return HashIndex(hashes(self.all_ids()), self._packed_positions())

    @property
    def _by_subject(self) -> HashIndex:
        if self._subject_index is None:
            self._subject_index = self._fresh_subject_index()
        return self._subject_index

    def _fresh_subject_index(self) -> HashIndex:
        self._refuse_staged()
        return HashIndex(hashes(self._all_labels(self.width + 1)), self.positions().places)

    @property
    def staged(self) -> Edit | None:
        """The edit that is under way, if any."""
        return None if self._patches is None else self._patches.edit

    def _refuse_staged(self) -> None:
        if self._patches is not None:
            raise BadRecords("records: another change is under way; commit it or roll it back first.")

    def _all_labels(self, position: int) -> AnyArray:
        """Return a column of ids or subjects, place by place."""
        full = np.flatnonzero(self.shelves.lengths).tolist()
        return np.concatenate([self.model[position], *(self._labels(position, place) for place in full)])

    def all_ids(self) -> AnyArray:
        """Return the ids of all records, place by place."""
        return self._all_labels(self.width)

    def positions(self) -> Located:
        """Return where all records lie, place by place."""
        lengths = self.shelves.lengths
        places = np.repeat(np.arange(len(lengths)), lengths)
        slots = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return Located(places, slots)

    def _packed_positions(self) -> Ints:
        places, slots = self.positions()
        return (places << SLOT_BITS) | slots

    @property
    def subjects(self) -> AnyArray | None:
        """The subjects of all records, place by place (or in the order given, if they are not laid out)."""
        if not self.has_subjects:
            return None
        return self._all_labels(self.width + 1) if self._waiting is None else self._waiting[self.width + 1]

    def copy(self) -> MemoryRecords:
        """Return the records, with the same ids and subjects, not laid out yet; for `Arrival` in the stored order."""
        self._refuse_staged()
        places = np.flatnonzero(self.shelves.lengths).tolist()
        blocks = [self.shelves.block(place) for place in places]
        columns = [stack([empty, *(block[k] for block in blocks)]) for k, empty in enumerate(self.model)]
        columns = [narrowest(column) for column in columns]
        subjects = columns[self.width + 1] if self.has_subjects else None
        copied = MemoryRecords(columns[: self.width], columns[self.width], subjects)
        copied.next_id = self.next_id
        return copied

    def audit(self) -> list[str]:
        """Name every record that an index and the shelves do not agree on."""
        problems = []
        if self._index is not None and not self._index.same_as(self._fresh_index()):
            ids, positions = self.all_ids(), self._packed_positions()
            for record, hashed, position in zip(ids, hashes(ids).tolist(), positions.tolist(), strict=True):
                if position not in self._index.find(hashed):
                    place = position >> 32
                    problems.append(f"records: {record.item()!r} lies at place {place}, which the index does not know")
            known, where = self._index.entries()
            for position in where[~np.isin(known, hashes(ids))].tolist():
                problems.append(f"records: a record of place {position >> 32} is in the index, but not there")
            problems = problems or ["records: the index of ids does not fit the records"]
        if self._subject_index is not None and not self._subject_index.same_as(self._fresh_subject_index()):
            problems.append("records: the index of subjects does not fit the records")
        return problems

    def nbytes(self) -> dict[str, int]:
        """Return the size of the records' columns, and of all that is kept to find them."""
        data = sum(shelf.content_bytes for shelf in self.shelves.columns[: self.width])
        indexes = (self._index, self._subject_index)
        return {
            "columns": data,
            "index": self.shelves.nbytes - data + sum(index.nbytes for index in indexes if index is not None),
        }

    # --- laying out and looking up ---

    def arrange(self, schedule: Schedule, rng: np.random.Generator) -> Assignment:
        """Draw a place for every record and lay the records out; this can be done once."""
        if self._shelves is not None or self._waiting is None:
            raise BadRecords("records: already laid out; learn(..., arranged=True) keeps their places.")
        numbers = np.unique(self._waiting[-1], return_inverse=True)[1] if self.has_subjects else None
        assignment = schedule.assign(self.count, numbers, rng)
        self._keyed, self._ordered = assignment.keys is not None, schedule.ordered
        columns = self._waiting if assignment.keys is None else (*self._waiting, assignment.keys)
        self.model = tuple([column[:0].copy() for column in columns])
        least = getattr(schedule, "batch", 0)  # a step of an order will be full some day
        self._shelves = Shelves(columns, assignment.order, assignment.lengths, least)
        return assignment

    def settle(self, learned: bool) -> None:
        """Keep the layout: from here on the rows live on the shelves only. Or forget it, if learning failed."""
        if learned:
            self._waiting = None
        else:
            self._shelves = self._index = self._subject_index = None

    def admit(self, query: Query) -> None:
        """Let the query check all records before they are laid out."""
        check = getattr(query, "admit", None)
        if check is not None and self._waiting is not None:
            check(self._waiting[: self.width])

    def prepare(self, query: Query) -> None:
        """Let the query bring all records, now laid out, into form."""
        prepare = getattr(query, "prepare", None)
        if prepare is None:
            return
        for place in np.flatnonzero(self.shelves.lengths).tolist():
            block = self.batch_at(place)
            for column, prepared in zip(block, prepare(block), strict=True):
                if prepared is not column:
                    overwrite(column, prepared)

    def let_in(self, query: Query, edit: Edit) -> Edit:
        """Let the query check the records that enter by an edit; return it with them in form."""
        rows, prepare = edit.entering[: self.width], getattr(query, "prepare", None)
        if rows and hasattr(query, "admit"):
            query.admit(rows)
        if not rows or prepare is None:
            return edit
        return replace(edit, entering=(*prepare(rows), *edit.entering[self.width :]))

    def locate(self, ids: AnyArray) -> Located:
        """Return where records lie; raise `UnknownId` for those that are not there."""
        return self._locate(as_ids("ids", ids))

    def _locate(self, wanted: AnyArray) -> Located:
        self._like("ids", wanted, self.width)
        if len(wanted) == 1:
            return self._locate_one(wanted)
        positions = self._packed(wanted)
        if len(unknown := np.flatnonzero(positions < 0)):
            raise _unknown_ids(wanted[unknown])
        return Located(positions >> SLOT_BITS, positions & SLOT_MASK)

    def _packed(self, wanted: AnyArray) -> Ints:
        """Return where records lie, as the index has it, and -1 for those that are not there."""
        positions = self.index.first(hashes(wanted))
        there = np.flatnonzero(positions >= 0)
        found = self.shelves.columns[self.width].gather(positions[there] >> SLOT_BITS, positions[there] & SLOT_MASK)
        for j in there[found != wanted[there]].tolist():  # another id has the same hash
            positions[j] = self._position(wanted[j : j + 1])
        return positions

    def _locate_one(self, wanted: AnyArray) -> Located:
        position = self._position(wanted)
        if position < 0:
            raise _unknown_ids(wanted)
        return Located(np.array([position >> 32]), np.array([position & 0xFFFFFFFF]))

    def _position(self, wanted: AnyArray) -> int:
        for position in self.index.find(hash_one(wanted)):
            if self.shelves.columns[self.width].single(position >> 32, position & 0xFFFFFFFF)[0] == wanted[0]:
                return position
        return -1

    def _where(self, subject: Any, hashed: int) -> list[tuple[int, Ints]]:
        """Return (place, slots) of all records of a subject."""
        places = sorted(set(self._by_subject.find(hashed)))
        found = [(place, np.flatnonzero(self._labels(self.width + 1, place) == subject)) for place in places]
        return [(place, slots) for place, slots in found if len(slots)]

    def ids_of(self, subjects: Any, missing: Literal["error", "ignore"] = "error") -> AnyArray:
        """Return the ids of all records of these subjects."""
        if not self.has_subjects:
            return as_ids("subjects", subjects)
        wanted = self._like("subjects", as_ids("subjects", subjects), self.width + 1)
        if missing == "ignore":
            wanted = once(wanted)
        else:
            check_distinct(wanted, "name each subject once")
        found: list[AnyArray] = []
        unknown: list[int] = []
        for number, hashed in enumerate(hashes(wanted).tolist()):
            where = self._where(wanted[number], hashed)
            found.extend([self.ids_at(place)[slots] for place, slots in where])
            if not where:
                unknown.append(number)
        if unknown and missing == "error":
            raise _unknown_subjects(wanted[unknown])
        return np.concatenate(found) if found else self.model[self.width]

    def numbers_of(self, subjects: Any) -> Ints:
        """Return how many records each subject has."""
        if not self.has_subjects:
            return (self._packed(self._like("ids", as_ids("ids", subjects), self.width)) >= 0).astype(np.int64)
        names = self._like("subjects", as_ids("subjects", subjects), self.width + 1)
        hashed = hashes(names)
        numbers = np.zeros(len(names), dtype=np.int64)
        for j in np.flatnonzero(self._by_subject.first(hashed) >= 0).tolist():
            numbers[j] = sum(len(slots) for _, slots in self._where(names[j], hashed.item(j)))
        return numbers

    def check_new(self, ids: Any) -> None:
        """Raise if an id is already there, or stands twice."""
        if ids is not None:
            self._new_ids(ids, len(ids))

    def _like(
        self, name: str, given: AnyArray, position: int, error: type[UnknownId | BadRecords] = UnknownId
    ) -> AnyArray:
        kind = self.model[position].dtype.kind
        if len(given) and given.dtype.kind != kind:
            wanted = "integers" if kind == "i" else "strings"
            raise error(f"{name}: this model's {name} are {wanted}, got {given.dtype}; pass {wanted}.")
        return given

    # --- requests ---

    def edit(self, schedule: Schedule, request: Request, randomness: Randomness) -> Edit:
        """Check a request and turn it into an edit."""
        match request:
            case Delete():
                check_named(request)
                return schedule.delete(self.shelves.lengths, *self._leaving(request))
            case Replace():
                check_named(request)
                return self._replacement(request)
            case Insert():
                return self._insertion(schedule, request, randomness)

    def _leaving(self, request: Delete) -> Located:
        """Return where the records to delete lie."""
        ids = self.ids_of(request.subjects, request.missing) if request.ids is None else request.ids
        if request.missing == "error":
            return self._locate_each(ids)
        wanted = once(self._like("ids", as_ids("ids", ids), self.width))
        positions = self._packed(wanted)
        positions = positions[positions >= 0]
        return Located(positions >> SLOT_BITS, positions & SLOT_MASK)

    def _replacement(self, request: Replace) -> Edit:
        rows = match_columns(request.columns, self.model[: self.width])
        name = "subjects" if request.ids is None else "ids"
        names = as_ids(name, request.subjects if request.ids is None else request.ids)
        check_number(name, names, rows_in(rows[0]))
        if request.missing == "ignore":
            there = (
                self.numbers_of(names) > 0
                if request.ids is None
                else self._packed(self._like("ids", names, self.width)) >= 0
            )
            names, rows = names[there], tuple([column[there] for column in rows])
        located = self._locate_each(self._of_one_each(names) if request.ids is None else names)
        number = len(located.places)
        labels = [shelf.gather(*located) for shelf in self.shelves.columns[self.width :]]
        return Edit(
            *located, np.arange(number), np.ones(number, dtype=bool),
            leave_places=located.places, leave_slots=located.slots,
            entering=(*rows, *labels), removed=number, added=number,
        )  # fmt: skip

    def _of_one_each(self, subjects: Any) -> AnyArray:
        """Return the ids of the only record of each subject."""
        ids = self.ids_of(subjects)
        if len(ids) != len(wanted := as_ids("subjects", subjects)):
            counts = self.numbers_of(wanted)
            crowd = int(np.argmax(counts > 1))
            raise BadRecords(
                f"subjects: {wanted[crowd].item()!r} has {counts[crowd]} records; name those to replace by ids."
            )
        return ids

    def _locate_each(self, ids: Any) -> Located:
        wanted = as_ids("ids", ids)
        check_distinct(wanted, "name each record once")
        return self._locate(wanted)

    def _insertion(self, schedule: Schedule, request: Insert, randomness: Randomness) -> Edit:
        rows = match_columns(request.columns, self.model[: self.width])
        number = rows_in(rows[0])
        ids = self._new_ids(request.ids, number)
        if (request.subjects is None) == self.has_subjects:
            raise BadRecords("subjects: give them for all records or for none, as at the first fit.")
        numbers, homes, keys = None, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
        labels = [ids]
        if request.subjects is not None:
            subjects = self._like("subjects", as_ids("subjects", request.subjects), self.width + 1, BadRecords)
            check_number("subjects", subjects, number)
            names, numbers = np.unique(subjects, return_inverse=True)
            homes, keys = self._homes(names)
            labels.append(subjects)
        entering = Entering(self.count, number, self.shelves.lengths, numbers, homes, keys)
        edit = schedule.insert(entering, randomness.layout)
        if edit.keys is not None:
            labels.append(edit.keys)
        return replace(edit, entering=(*rows, *labels))

    def _new_ids(self, given: Any, number: int) -> AnyArray:
        if given is None:
            if self.next_id is None:
                raise BadRecords("ids: this model's records have ids of their own; give one for each new record.")
            return np.arange(self.next_id, self.next_id + number)
        ids = as_ids("ids", given)
        if self.count:
            self._like("ids", ids, self.width, BadRecords)
        check_number("ids", ids, number)
        check_distinct(ids, "give every record its own id")
        if ids.dtype.kind == self.model[self.width].dtype.kind:
            for j in np.flatnonzero(self.index.first(hashes(ids)) >= 0).tolist():
                with suppress(UnknownId):  # another id may have the same hash
                    self._locate_one(ids[j : j + 1])
                    raise DuplicateId(f"ids: {ids[j].item()!r} is already there; use replace, or give a new id.")
        return ids

    def _homes(self, names: AnyArray) -> tuple[Ints, Keys]:
        """Return where subjects' records already lie (or -1), and with which key."""
        homes = np.full(len(names), -1, dtype=np.int64)
        keys = np.zeros(len(names), dtype=np.uint64)
        hashed = hashes(names)
        for j in np.flatnonzero(self._by_subject.first(hashed) >= 0).tolist():
            for place, slots in self._where(names[j], hashed.item(j))[:1]:
                homes[j] = place
                if self._keyed:
                    keys[j] = self.keys_at(place)[slots[0]]
        return homes, keys

    # --- sums and staged edits ---

    def total(self, place: int, step: int, path: Path, query: Query, share: Share) -> Total:
        """Sum what the records of a place contribute to a step."""
        if self._patches is not None and not self._patches.done:
            self._patches.finish()
        batch = self.batch_at(place)
        if share.rate < 1.0:
            batch = _joining(batch, self.keys_at(place), step, share.rate)
        total = evaluate(query, step, path, batch, share)
        return total if share.unit is None else total._replace(sum=0.0 + total.sum)

    def before(self, place: int, step: int, path: Path, query: Query, share: Share) -> Total:
        """Sum what the records of a place would contribute to a step without the staged edit."""
        patches = self._patches
        batch = self.batch_at(place) if patches is None or not patches.done else patches.before_at(place, self.width)
        return evaluate(query, step, path, batch, share)

    def shift(self, place: int, step: int, path: Path, query: Query, share: Share) -> Total:
        """Sum what enters a place by the staged edit, minus what leaves it."""
        entering, leaving = ((), ()) if self._patches is None else self._patches.at(place)
        left = self._part(leaving, step, path, query, share)
        if not entering:
            return left._replace(sum=-left.sum)
        came = self._part(entering, step, path, query, share)
        reach = None if came.reach is None or left.reach is None else came.reach + left.reach
        return Total(came.sum - left.sum, came.evaluations + left.evaluations, came.above + left.above, reach)

    def _part(self, rows: Batch, step: int, path: Path, query: Query, share: Share) -> Total:
        """Sum what some rows, in all their columns, contribute to a step."""
        norms = getattr(query, "norms", None)
        if not rows:
            return Total(np.zeros(query.size), 0, 0, None if norms is None else 0.0)
        batch = rows[: self.width]
        if share.rate < 1.0:
            batch = _joining(batch, rows[-1], step, share.rate)
        total = evaluate(query, step, path, batch, share)
        return total if norms is None else total._replace(reach=float(norms(batch).sum()))

    def shifts(self, place: int, steps: list[int], path: Path, query: Query, share: Share) -> Totals:
        """Return the shifts of several steps that visit a place, along a path that goes beyond them."""
        along, norms = getattr(query, "along", None), getattr(query, "norms", None)
        if self._patches is None or along is None or norms is None or not hasattr(query, "exact_to"):
            return Totals.of([self.shift(place, step, path.upto(step), query, share) for step in steps])
        groups = self._patches.at(place)
        signs = np.repeat([1.0, -1.0], [rows_in(rows[0]) if rows else 0 for rows in groups])
        if not len(signs):
            return Totals.of([Total(np.zeros(query.size), 0, 0, 0.0)] * len(steps))
        rows = groups[0] or groups[1]
        if all(groups):
            rows = tuple([stack(parts) for parts in zip(*groups, strict=True)])
        batch = rows[: self.width]
        lengths, sums, joining, reach = norms(batch), [], [], []
        at_once = max(1, AT_ONCE // (len(signs) * query.size))
        for part in (steps[first : first + at_once] for first in range(0, len(steps), at_once)):
            weights = np.tile(signs, (len(part), 1))
            if share.rate < 1.0:
                weights *= joins_each(rows[-1], part, share.rate)
            sums.append(along(part, path, batch, weights) + 0.0)
            joining.append(np.count_nonzero(weights, axis=1))
            reach.append(np.abs(weights) @ lengths)
        evaluations = np.concatenate(joining)
        return Totals(np.concatenate(sums), evaluations, np.zeros_like(evaluations), np.concatenate(reach))

    def stage(self, edit: Edit) -> None:
        """Hold an edit ready; places change when a sum over one is first asked for, or at `commit`."""
        self._refuse_staged()
        if edit.entering:
            self.shelves.admit(edit.entering, self.count == 0)
        self._patches = Patches(self.shelves, edit, self.count + edit.added - edit.removed)
        self._patches.make_room()

    def commit(self) -> None:
        """Make the staged edit final. Should this fail half-way (no memory), it can be called again."""
        patches = self._patches
        if patches is None:
            raise BadRecords("records: there is no change to commit.")
        edit = patches.edit
        patches.finish()
        self._settle(patches.places)
        if self._ordered:
            self.shelves.resize(-(-patches.count_after // self.shelves.least))
        indexes = self._index, self._subject_index
        self._index = self._subject_index = None  # if something fails, they are built anew
        self._reindex(patches, *indexes)
        if edit.added and not edit.removed:
            self._number_on(edit.entering[self.width])
            self.model = tuple([shelf.empty() for shelf in self.shelves.columns])
        self.count = patches.count_after
        self._patches = None
        self._index, self._subject_index = indexes

    def _number_on(self, ids: AnyArray) -> None:
        """Let automatic ids begin after all that were given."""
        if self.next_id is not None:
            numbers = ids.dtype.kind == "i"
            self.next_id = max(self.next_id, int(ids.max(initial=-1)) + 1) if numbers else None

    def _reindex(self, patches: Patches, by_id: HashIndex | None, by_subject: HashIndex | None) -> None:
        """Bring the indexes up to date: records that left, moved, or came."""
        edit = patches.edit
        if edit.added and edit.removed:  # a replacement: everyone stays where they are
            return
        if edit.within_a_place and by_subject is None and by_id is not None:
            base = edit.leave_places.item(0) << 32
            slot = edit.leave_slots.item(0)
            by_id.remove_one(hash_one(patches.leave_rows[self.width]), base | slot)
            if patches.put_rows:
                mover = hash_one(patches.put_rows[self.width])
                by_id.move_one(mover, base | edit.moved_slots.item(0), base | slot)
            return
        at = (edit.put_places << SLOT_BITS) | edit.put_slots
        moved = edit.put_sources < 0
        came_from = -1 - edit.put_sources[moved]
        was = (edit.moved_places[came_from] << SLOT_BITS) | edit.moved_slots[came_from]
        gone = (edit.leave_places << SLOT_BITS) | edit.leave_slots
        for position, index in ((self.width, by_id), (self.width + 1, by_subject)):
            if index is None:
                continue
            values = [gone[: edit.removed], was, at[moved], at[~moved]]
            if position > self.width:  # subjects are indexed by place
                values = [value >> SLOT_BITS for value in values]
            if edit.removed:
                index.remove(hashes(patches.leave_rows[position][: edit.removed]), values[0])
            if len(was):
                index.move(hashes(patches.put_rows[position][moved]), values[1], values[2])
            if edit.added:
                index.add(hashes(patches.put_rows[position][~moved]), values[3])

    def rollback(self) -> None:
        """Forget the staged edit; every record is as before."""
        if self._patches is not None:
            self._patches.undo()
            self._settle(self._patches.places)
            self._patches = None

    def _settle(self, places: Ints) -> None:
        try:
            self.shelves.settle(places)
        except MemoryError:  # it takes room, for a while; then it is done after a later request
            return


def _unknown_ids(ids: AnyArray) -> UnknownId:
    if len(ids) == 1:
        return UnknownId(f"ids: there is no record {ids[0].item()!r}; it may have been deleted already.")
    return UnknownId(f"ids: there are no records {_listed(ids)}; {_GONE}.")


def _unknown_subjects(names: AnyArray) -> UnknownId:
    if len(names) == 1:
        return UnknownId(f"subjects: there is no record of subject {names[0].item()!r}.")
    return UnknownId(f"subjects: there are no records of subjects {_listed(names)}; {_GONE}.")


_GONE = "they may have been deleted already"


def _listed(names: AnyArray) -> str:
    """Name the first few.

    >>> _listed(np.array([3, 1])), _listed(np.arange(7))
    ('3 and 1', '0, 1, 2, 3, 4 and 2 more')
    """
    shown = [repr(name) for name in names[:MOST_NAMED].tolist()]
    last = f"{len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else shown.pop()
    return f"{', '.join(shown)} and {last}"


def _joining(batch: Batch, keys: AnyArray, step: int, rate: float) -> Batch:
    mask = joins(keys, step, rate)
    return tuple([column[mask] for column in batch])
