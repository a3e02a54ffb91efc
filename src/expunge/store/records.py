"""Records in a store, lying by place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from expunge.base.errors import BadPlan, CorruptStore
from expunge.base.types import Batch, Ints, Keys
from expunge.engine.contributions import Abilities, Part, Participation, Query, Total
from expunge.engine.records.lookup import KEY_BYTES, fresh_hash_key, hashes
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.records.staging import evaluate
from expunge.engine.schedules import SLOT_BITS, Edit, Schedule
from expunge.engine.transcript import Path
from expunge.store.file import StoreFile
from expunge.store.layout import Layout
from expunge.store.places import StoredPlaces, store_lengths
from expunge.store.receipts import is_hex
from expunge.store.rows import StoredIndex

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
    hash_key: str = ""
    """What ids are hashed with, in hexadecimal digits; none in stores of earlier versions, until they are compacted."""

    def __post_init__(self) -> None:
        width, columns = self.layout.width, self.layout.columns
        keys = len(columns) - width - self.has_subjects  # ids, and what decides who joins
        if width < 1 or keys not in (1, 2) or any(one.tail for one in columns[width:]):
            raise BadPlan(f"{len(columns)} columns, {width} of them given, cannot be those of records.")
        if not (self.count >= 0 and 1 <= self.buckets <= 2**32 and 0 <= self.subject_buckets <= 2**32):
            raise BadPlan(f"{self.count} records in {self.buckets} and {self.subject_buckets} buckets cannot be.")


class StoredRecords(MemoryRecords):
    """Records in a store: the same as in memory, but that places and the index are read and written there."""

    _places: StoredPlaces  # type: ignore[assignment]
    _index: StoredIndex  # type: ignore[assignment]
    _subject_index: StoredIndex | None  # type: ignore[assignment]

    def __init__(self, file: StoreFile, inventory: Inventory, schedule: Schedule) -> None:
        layout = inventory.layout
        self.count = inventory.count
        self.has_subjects = inventory.has_subjects
        self.next_id = inventory.next_id
        self.width = layout.width
        self.keyed = len(layout.columns) > layout.width + 1 + self.has_subjects
        self._ordered = schedule.ordered
        self._waiting = None
        self._staging = self.staged = None
        self._file = file
        if inventory.hash_key != "" and not is_hex(inventory.hash_key, 2 * KEY_BYTES):
            raise CorruptStore(f"{file.path}: the key of the index cannot be read; restore a backup.")
        self.hash_key = bytes.fromhex(inventory.hash_key)
        self._places = StoredPlaces(file, layout, schedule.full_step)
        self._check_lengths(schedule)
        self.template: Batch = tuple([column.empty() for column in self._places.columns])
        self._index = StoredIndex(file, "ids", inventory.buckets)
        self._subject_index = StoredIndex(file, "subjects", inventory.subject_buckets) if self.has_subjects else None

    def _check_lengths(self, schedule: Schedule) -> None:
        lengths, steps = self._places.lengths, schedule.steps(self.count)
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
            0 if subjects is None else subjects.buckets, self._places.layout, self.hash_key.hex(),
        )  # fmt: skip

    def total(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what the records of a place contribute to a step; where sums are exact in any order, part by part."""
        if participation.unit is None:
            return super().total(place, step, path, query, participation)
        if self._staging is not None and not self._staging.done:
            self._staging.finish()
        total = Total(np.zeros(query.size), 0, 0)
        for first, batch in self._places.batches(place, self.width, AT_ONCE):
            if participation.rate < 1.0:
                stop = first + int(batch[0].shape[0])
                keys = self._places.joined(len(self.template) - 1, place, first, stop)
                mask = participation.joined(keys, step)
                batch = batch if mask is None else tuple([column[mask] for column in batch])
            part = evaluate(query, step, path, batch, participation)
            total = Total(total.sum + part.sum, total.evaluations + part.evaluations, total.above + part.above)
        normal = participation.abilities.normal
        return total if normal is None else total._replace(sum=normal(total.sum))

    def parts(self) -> Iterator[Part]:
        """Return all records, where everyone lies at one place, some parts of it at a time."""
        if self._staging is not None and not self._staging.done:
            self._staging.finish()
        if not self._places.lengths.any():
            yield Part(self.template[: self.width], np.zeros(0, dtype=np.uint64))
        for first, batch in self._places.batches(0, self.width, AT_ONCE):
            keys = self._places.joined(len(self.template) - 1, 0, first, first + int(batch[0].shape[0]))
            yield Part(batch, keys)

    def check_entering(self, abilities: Abilities, edit: Edit) -> Edit:
        """Let the query check the records that enter by an edit; return it with them in form, as they are kept."""
        edit = super().check_entering(abilities, edit)
        if edit.entering:
            self._places.layout.check_rows(edit.entering, self._file.longest)
        types = self._places.layout.columns[: self.width]
        if not edit.entering or not any(one.kept for one in types):
            return edit
        rows = [one.narrowed(column) for one, column in zip(types, edit.entering, strict=False)]
        return replace(edit, entering=(*rows, *edit.entering[self.width :]))

    def rollback(self) -> None:
        """Forget the staged edit; the owner rolls the transaction back and reads all again, if it was written."""
        self._staging = self.staged = None


def index_records(file: StoreFile, ids: list[Keys], subjects: list[Keys] | None, lengths: Ints) -> tuple[int, int]:
    """Write lengths and indexes again, from hashes place by place; return how many buckets they have."""
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
    source, width = records.places, records.width
    kept = records.inventory.layout.columns[0].kept if isinstance(records, StoredRecords) else ""
    layout = Layout.of(records.template, width, kept)
    target = StoredPlaces(file, layout, source.least)
    ids, subjects, key = [], [], records.hash_key or fresh_hash_key()
    for place in np.flatnonzero(source.lengths).tolist():
        block = source.block(place)
        target.lay(place, block)
        ids.append(hashes(block[width], key))
        if records.has_subjects:
            subjects.append(hashes(block[width + 1], key))
    buckets = index_records(file, ids, subjects if records.has_subjects else None, source.lengths)
    return Inventory(records.count, records.next_id, records.has_subjects, *buckets, layout, key.hex())
