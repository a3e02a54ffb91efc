"""Records in memory, lying by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from expunge.base.columns import narrowest, overwrite, rows_in, stack
from expunge.base.errors import BadRecords
from expunge.base.intake import as_columns, as_ids, check_distinct, check_number
from expunge.base.types import AnyArray, Batch, Ints
from expunge.engine.contributions import AT_ONCE, Abilities, Participation, Query, Total, Totals, evaluate
from expunge.engine.edits import Edit
from expunge.engine.randomness import Randomness
from expunge.engine.records.entering import insertion, new_ids, replacement
from expunge.engine.records.index import HashIndex, fresh_hash_key
from expunge.engine.records.lookup import Lookup
from expunge.engine.records.places import Places, StagedEdit
from expunge.engine.requests import Delete, Insert, Replace, Request, check_named
from expunge.engine.schedules import Assignment, Schedule, joins, joins_each
from expunge.engine.transcript import Path

_NOT_PICKLED = ("_index", "_subject_index", "hash_key")


class MemoryRecords(Lookup):
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
        self.keyed = False
        self._ordered = False
        self.width = len(rows)
        """How many columns were given; after them come ids, subjects and keys."""
        self._waiting: Batch | None = (*rows, *labels)
        self.template: Batch = tuple([column[:0].copy() for column in self._waiting])
        """All columns, without records: what they are like."""
        self._places: Places | None = None
        self._index: HashIndex | None = None
        self._subject_index: HashIndex | None = None
        self._staging: StagedEdit | None = None
        self.hash_key = fresh_hash_key()
        """What indexes hash ids with."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: no column of strings is wider than what is there, and indexes are built again."""
        kept = {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}
        return {**kept, "template": tuple([narrowest(column) for column in self.template])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._index = self._subject_index = None
        self.hash_key = fresh_hash_key()
        if self._staging is not None:
            self._staging.make_room_again()

    @property
    def subjects(self) -> AnyArray | None:
        """The subjects of all records, place by place (or in the order given, if they are not laid out)."""
        if not self.has_subjects:
            return None
        return self._all_labels(self.width + 1) if self._waiting is None else self._waiting[self.width + 1]

    def copy(self) -> MemoryRecords:
        """Return the records, with the same ids and subjects, not laid out yet; for `Arrival` in the stored order."""
        self._refuse_staged()
        places = np.flatnonzero(self.places.lengths).tolist()
        blocks = [self.places.block(place) for place in places]
        columns = [stack([empty, *(block[k] for block in blocks)]) for k, empty in enumerate(self.template)]
        columns = [narrowest(column) for column in columns]
        subjects = columns[self.width + 1] if self.has_subjects else None
        copied = MemoryRecords(columns[: self.width], columns[self.width], subjects)
        copied.next_id = self.next_id
        return copied

    def nbytes(self) -> dict[str, int]:
        """Return the size of the records' columns, and of all that is kept to find them."""
        data = sum(column.content_bytes for column in self.places.columns[: self.width])
        indexes = (self._index, self._subject_index)
        return {
            "columns": data,
            "index": self.places.nbytes - data + sum(index.nbytes for index in indexes if index is not None),
        }

    # --- laying out ---

    def arrange(self, schedule: Schedule, rng: np.random.Generator) -> Assignment:
        """Draw a place for every record and lay the records out; this can be done once."""
        if self._places is not None or self._waiting is None:
            raise BadRecords("records: already laid out; learn(..., arranged=True) keeps their places.")
        numbers = np.unique(self._waiting[-1], return_inverse=True)[1] if self.has_subjects else None
        assignment = schedule.assign(self.count, numbers, rng)
        self.keyed, self._ordered = assignment.keys is not None, schedule.ordered
        columns = self._waiting if assignment.keys is None else (*self._waiting, assignment.keys)
        self.template = tuple([column[:0].copy() for column in columns])
        self._places = Places(columns, assignment.order, assignment.lengths, schedule.full_step)
        return assignment

    def keep_layout(self) -> None:
        """Keep the layout: from here on the rows lie by place only."""
        self._waiting = None

    def drop_layout(self) -> None:
        """Forget the layout, as learning failed: the records are as before `arrange`."""
        self._places = self._index = self._subject_index = None

    def admit(self, abilities: Abilities) -> None:
        """Let the query check all records before they are laid out."""
        if abilities.admit is not None and self._waiting is not None:
            abilities.admit(self._waiting[: self.width])

    def prepare(self, abilities: Abilities) -> None:
        """Let the query bring all records, now laid out, into form."""
        if (prepare := abilities.prepare) is None:
            return
        for place in np.flatnonzero(self.places.lengths).tolist():
            block = self.batch_at(place)
            for column, prepared in zip(block, prepare(block), strict=True):
                if prepared is not column:
                    overwrite(column, prepared)

    def check_entering(self, abilities: Abilities, edit: Edit) -> Edit:
        """Let the query check the records that enter by an edit; return it with them in form."""
        rows = edit.entering[: self.width]
        if rows and abilities.admit is not None:
            abilities.admit(rows)
        if not rows or abilities.prepare is None:
            return edit
        return replace(edit, entering=(*abilities.prepare(rows), *edit.entering[self.width :]))

    def check_new(self, ids: Any) -> None:
        """Raise if an id is already there, or appears twice."""
        if ids is not None:
            new_ids(self, ids, len(ids))

    # --- requests ---

    def edit(self, schedule: Schedule, request: Request, randomness: Randomness) -> Edit:
        """Check a request and turn it into an edit."""
        match request:
            case Delete():
                check_named(request)
                return schedule.delete(self.places.lengths, *self.leaving(request))
            case Replace():
                check_named(request)
                return replacement(self, request)
            case Insert():
                return insertion(self, schedule, request, randomness)

    # --- sums and staged edits ---

    def total(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what the records of a place contribute to a step."""
        if self._staging is not None and not self._staging.done:
            self._staging.finish()
        batch = self.batch_at(place)
        if participation.rate < 1.0:
            batch = _joining(batch, self.keys_at(place), step, participation.rate)
        total = evaluate(query, step, path, batch, participation)
        return total if participation.unit is None else total._replace(sum=0.0 + total.sum)

    def before(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what the records of a place would contribute to a step without the staged edit."""
        staging = self._staging
        batch = self.batch_at(place) if staging is None or not staging.done else staging.before_at(place, self.width)
        return evaluate(query, step, path, batch, participation)

    def shift(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what enters a place by the staged edit, minus what leaves it."""
        entering, leaving = ((), ()) if self._staging is None else self._staging.at(place)
        left = self._part(leaving, step, path, query, participation)
        if not entering:
            return left._replace(sum=-left.sum)
        came = self._part(entering, step, path, query, participation)
        norm_limit = None if came.norm_limit is None or left.norm_limit is None else came.norm_limit + left.norm_limit
        return Total(came.sum - left.sum, came.evaluations + left.evaluations, came.above + left.above, norm_limit)

    def _part(self, rows: Batch, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what some rows, in all their columns, contribute to a step."""
        norms = participation.abilities.norms
        if not rows:
            return Total(np.zeros(query.size), 0, 0, None if norms is None else 0.0)
        batch = rows[: self.width]
        if participation.rate < 1.0:
            batch = _joining(batch, rows[-1], step, participation.rate)
        total = evaluate(query, step, path, batch, participation)
        return total if norms is None else total._replace(norm_limit=float(norms(batch).sum()))

    def shifts(self, place: int, steps: list[int], path: Path, query: Query, participation: Participation) -> Totals:
        """Return the shifts of several steps that visit a place, along a path that goes beyond them."""
        along, norms = participation.abilities.along, participation.abilities.norms
        if self._staging is None or along is None or norms is None or participation.abilities.exact_to is None:
            return Totals.of([self.shift(place, step, path.upto(step), query, participation) for step in steps])
        groups = self._staging.at(place)
        signs = np.repeat([1.0, -1.0], [rows_in(rows[0]) if rows else 0 for rows in groups])
        if not len(signs):
            return Totals.of([Total(np.zeros(query.size), 0, 0, 0.0)] * len(steps))
        rows = groups[0] or groups[1]
        if all(groups):
            rows = tuple([stack(parts) for parts in zip(*groups, strict=True)])
        batch = rows[: self.width]
        lengths, sums, joining, norm_limit = norms(batch), [], [], []
        at_once = max(1, AT_ONCE // (len(signs) * query.size))
        for part in (steps[first : first + at_once] for first in range(0, len(steps), at_once)):
            weights = np.tile(signs, (len(part), 1))
            if participation.rate < 1.0:
                weights *= joins_each(rows[-1], part, participation.rate)
            sums.append(along(part, path, batch, weights) + 0.0)
            joining.append(np.count_nonzero(weights, axis=1))
            norm_limit.append(np.abs(weights) @ lengths)
        evaluations = np.concatenate(joining)
        return Totals(np.concatenate(sums), evaluations, np.zeros_like(evaluations), np.concatenate(norm_limit))

    def stage(self, edit: Edit) -> None:
        """Hold an edit ready; places change when a sum over one is first asked for, or at `commit`."""
        self._refuse_staged()
        if edit.entering:
            self.places.admit(edit.entering, self.count == 0)
        self._staging = StagedEdit(self.places, edit, self.count + edit.added - edit.removed)
        self._staging.make_room()

    def commit(self) -> None:
        """Make the staged edit final. Should this fail half-way (no memory), it can be called again."""
        staging = self._staging
        if staging is None:
            raise BadRecords("records: there is no change to commit.")
        edit = staging.edit
        staging.finish()
        self._fit(staging.touched)
        if self._ordered:
            self.places.resize(-(-staging.count_after // self.places.least))
        indexes = self._index, self._subject_index
        self._index = self._subject_index = None  # if something fails, they are built again
        self._reindex(staging, *indexes)
        if edit.added and not edit.removed:
            self._number_on(edit.entering[self.width])
            self.template = tuple([column.empty() for column in self.places.columns])
        self.count = staging.count_after
        self._staging = None
        self._index, self._subject_index = indexes

    def _number_on(self, ids: AnyArray) -> None:
        """Let automatic ids begin after all that were given."""
        if self.next_id is not None:
            numbers = ids.dtype.kind == "i"
            self.next_id = max(self.next_id, int(ids.max(initial=-1)) + 1) if numbers else None

    def rollback(self) -> None:
        """Forget the staged edit; every record is as before."""
        if self._staging is not None:
            self._staging.undo()
            self._fit(self._staging.touched)
            self._staging = None

    def _fit(self, places: Ints) -> None:
        try:
            self.places.fit_rooms(places)
        except MemoryError:  # it takes room, for a while; then it is done after a later request
            return


def _joining(batch: Batch, keys: AnyArray, step: int, rate: float) -> Batch:
    mask = joins(keys, step, rate)
    return tuple([column[mask] for column in batch])
