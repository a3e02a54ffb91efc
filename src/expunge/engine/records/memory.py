"""Records in memory: made, laid out by place, pickled and copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from expunge.base.columns import narrowest, overwrite, rows_in, stack
from expunge.base.errors import BadRecords
from expunge.base.intake import as_columns, as_ids, check_distinct, check_number
from expunge.base.types import AnyArray, Batch
from expunge.engine.contributions import Abilities
from expunge.engine.records.entering import new_ids
from expunge.engine.records.index import HashIndex
from expunge.engine.records.lookup import fresh_hash_key
from expunge.engine.records.places import Places
from expunge.engine.records.staging import StagedEdit, Staging
from expunge.engine.schedules import Assignment, Edit, Schedule

_NOT_PICKLED = ("_index", "_subject_index", "hash_key")


class MemoryRecords(Staging):
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
        self.staged: Edit | None = None
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
