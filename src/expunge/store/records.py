"""Records in a store, lying by place."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from expunge.edits import SLOT_BITS, Edit
from expunge.errors import CorruptStore
from expunge.index import hashes
from expunge.memory import MemoryRecords
from expunge.records import Query, Share, Total, evaluate
from expunge.rows import Path
from expunge.schedules import Schedule, joins
from expunge.store.file import StoreFile
from expunge.store.index import StoredIndex
from expunge.store.parts import Layout
from expunge.store.shelves import StoredShelves, store_lengths
from expunge.types import Batch, Ints, Keys

AT_ONCE = 64
"""How many parts of a place that everyone lies at are looked at together."""


@dataclass(frozen=True)
class Inventory:
    """What is kept of some records beside them: few numbers, which change with requests."""

    count: int
    next_id: int | None
    has_subjects: bool
    buckets: int
    subject_buckets: int
    layout: Layout


class StoredRecords(MemoryRecords):
    """Records in a store: the same as in memory, but that places and the index are read and written there."""

    _shelves: StoredShelves  # type: ignore[assignment]
    _index: StoredIndex  # type: ignore[assignment]
    _subject_index: StoredIndex | None  # type: ignore[assignment]

    def __init__(self, file: StoreFile, inventory: Inventory, schedule: Schedule) -> None:
        layout = inventory.layout
        self.count = inventory.count
        self.has_subjects = inventory.has_subjects
        self.next_id = inventory.next_id
        self.width = layout.width
        self._keyed = len(layout.columns) > layout.width + 1 + self.has_subjects
        self._ordered = schedule.ordered
        self._waiting = None
        self._patches = None
        self._file = file
        self._shelves = StoredShelves(file, layout, getattr(schedule, "batch", 0))
        self._check_lengths(schedule)
        self.model: Batch = tuple([column.empty() for column in self._shelves.columns])
        self._index = StoredIndex(file, "ids", inventory.buckets)
        self._subject_index = StoredIndex(file, "subjects", inventory.subject_buckets) if self.has_subjects else None

    def _check_lengths(self, schedule: Schedule) -> None:
        lengths, steps = self._shelves.lengths, schedule.steps(self.count)
        places = schedule.place(steps - 1) + 1 if steps else 0
        if len(lengths) != places or lengths.min(initial=0) < 0 or int(lengths.sum()) != self.count:
            raise CorruptStore(
                f"{self._file.path}: places: {len(lengths)} places with {lengths.sum()} records, where there should be "
                f"{places} with {self.count}; restore a backup."
            )

    @property
    def inventory(self) -> Inventory:
        """What has to be kept beside the records."""
        subjects = self._subject_index
        return Inventory(
            self.count, self.next_id, self.has_subjects, self._index.buckets,
            0 if subjects is None else subjects.buckets, self._shelves.layout,
        )  # fmt: skip

    def total(self, place: int, step: int, path: Path, query: Query, share: Share) -> Total:
        """Sum what the records of a place contribute to a step; where sums are exact in any order, part by part."""
        if share.unit is None:
            return super().total(place, step, path, query, share)
        if self._patches is not None and not self._patches.done:
            self._patches.finish()
        total = Total(np.zeros(query.size), 0, 0)
        for first, batch in self._shelves.batches(place, self.width, AT_ONCE):
            if share.rate < 1.0:
                stop = first + int(batch[0].shape[0])
                mask = joins(self._shelves.joined(len(self.model) - 1, place, first, stop), step, share.rate)
                batch = tuple([column[mask] for column in batch])
            part = evaluate(query, step, path, batch, share)
            total = Total(total.sum + part.sum, total.evaluations + part.evaluations, total.above + part.above)
        return total

    def let_in(self, query: Query, edit: Edit) -> Edit:
        """Let the query check the records that enter by an edit; return it with them in form, as they are kept."""
        edit = super().let_in(query, edit)
        types = self._shelves.layout.columns[: self.width]
        if not edit.entering or not any(one.kept for one in types):
            return edit
        rows = [one.narrowed(column) for one, column in zip(types, edit.entering, strict=False)]
        return replace(edit, entering=(*rows, *edit.entering[self.width :]))

    def rollback(self) -> None:
        """Forget the staged edit; the owner rolls the transaction back and reads everything anew, if it was written."""
        self._patches = None


def index_records(file: StoreFile, ids: list[Keys], subjects: list[Keys] | None, lengths: Ints) -> tuple[int, int]:
    """Write lengths and indexes anew, from hashes place by place; return how many buckets they have."""
    store_lengths(file, lengths)
    places = np.repeat(np.arange(len(lengths)), lengths)
    slots = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    nothing = np.zeros(0, dtype=np.uint64)
    by_id = StoredIndex.store(file, "ids", np.concatenate([nothing, *ids]), (places << SLOT_BITS) | slots)
    if subjects is None:
        return by_id.buckets, 0
    return by_id.buckets, StoredIndex.store(file, "subjects", np.concatenate([nothing, *subjects]), places).buckets


def store_records(file: StoreFile, records: MemoryRecords) -> Inventory:
    """Write records that lie by place, with all that is needed to find them."""
    shelves, width = records.shelves, records.width
    kept = records.inventory.layout.columns[0].kept if isinstance(records, StoredRecords) else ""
    layout = Layout.of(records.model, width, kept)
    target = StoredShelves(file, layout, shelves.least)
    ids, subjects = [], []
    for place in np.flatnonzero(shelves.lengths).tolist():
        block = shelves.block(place)
        target.lay(place, block)
        ids.append(hashes(block[width]))
        if records.has_subjects:
            subjects.append(hashes(block[width + 1]))
    buckets = index_records(file, ids, subjects if records.has_subjects else None, shelves.lengths)
    return Inventory(records.count, records.next_id, records.has_subjects, *buckets, layout)
