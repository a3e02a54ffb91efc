"""Where records lie: by place, by id and by subject.

Ids are hashed with a key, so that nobody can choose ids that collide.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from expunge.base.errors import BadRecords, UnknownId
from expunge.base.intake import Delete, as_ids, check_distinct, check_named, once
from expunge.base.types import AnyArray, Batch, Ints, Keys, Mask
from expunge.engine.contributions import UNDER_WAY, Located
from expunge.engine.hashing import mix
from expunge.engine.records.index import HashIndex
from expunge.engine.records.places import Places
from expunge.engine.schedules import SLOT_BITS, SLOT_MASK, Edit

MOST_NAMED = 5
"""How many unknown ids an error names."""


KEY_BYTES = 16


def fresh_hash_key() -> bytes:
    """Return what an index hashes with: as nobody knows it, nobody can choose ids whose hashes lie together."""
    return os.urandom(KEY_BYTES)


def hashes(ids: AnyArray, key: bytes = b"") -> Keys:
    """Hash ids to 64 bits; strings hash alike whatever the width of their array.

    Without a key they hash as in stores of earlier versions.
    """
    if ids.dtype.kind == "i":
        if len(ids) == 1:
            return np.array([hash_one(ids, key)], dtype=np.uint64)
        return mix(ids.view(np.uint64), _halves(key))
    if not key:
        return _unkeyed(ids)
    digest = blake2b(digest_size=8, key=key).copy
    found = bytearray()
    for text in ids.tolist():
        state = digest()
        state.update(text.encode("utf-8", "surrogatepass"))
        found += state.digest()
    return np.frombuffer(found, "<u8").astype(np.uint64, copy=False)


def _halves(key: bytes) -> tuple[int, int]:
    return int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")


def _unkeyed(ids: AnyArray) -> Keys:
    letters = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), ids.dtype.itemsize // 4)
    state = np.full(len(ids), 0x51ED270B, dtype=np.uint64)
    for position in range(letters.shape[1]):
        letter = letters[:, position].astype(np.uint64)
        state = np.where(letter != 0, mix(state * np.uint64(0x9E3779B97F4A7C15) + letter), state)
    return state


def hash_one(ids: AnyArray, key: bytes = b"") -> int:
    """Hash the only id of an array, as `hashes` does."""
    return mix_one(ids.item(0) % 2**64, _halves(key)) if ids.dtype.kind == "i" else int(hashes(ids, key).item(0))


def mix_one(x: int, keys: tuple[int, int] = (0, 0)) -> int:
    """Scramble one 64-bit number, as `mix` does."""
    for key in keys:
        x ^= key
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        x = x ^ (x >> 31)
    return x


class Lookup:
    """Finds records that lie by place; `MemoryRecords` lays them out and changes them."""

    count: int
    width: int
    """How many columns were given; after them come ids, subjects and keys."""
    has_subjects: bool
    next_id: int | None
    """The number that the next record gets, where they are numbered."""
    keyed: bool
    """Whether each record has a key, which decides about the steps that it joins."""
    template: Batch
    """All columns, without records: what they are like."""
    hash_key: bytes
    """What indexes hash ids with."""
    _places: Places | None
    _index: HashIndex | None
    _subject_index: HashIndex | None
    _staging: Any
    """The edit that is under way, if any; see `Staging`."""

    # --- by place ---

    @property
    def places(self) -> Places:
        """The columns by place: the given ones, then ids, subjects and keys."""
        if self._places is None:
            raise BadRecords("records: not laid out yet; call learn() first.")
        return self._places

    def _labels(self, position: int, place: int) -> AnyArray:
        places = self.places
        return places.columns[position].block(place, places.lengths.item(place))

    def ids_at(self, place: int) -> AnyArray:
        """Return the ids of a place, in their order."""
        return self._labels(self.width, place)

    def keys_at(self, place: int) -> Keys:
        """Return the keys of a place, in the same order."""
        return self._labels(-1, place)

    def batch_at(self, place: int) -> Batch:
        """Return the columns of a place, in the same order."""
        places = self.places
        length = places.lengths.item(place)
        return tuple([column.block(place, length) for column in places.columns[: self.width]])

    # --- by id and by subject ---

    @property
    def index(self) -> HashIndex:
        """The places by hashed id, built when first needed."""
        if self._index is None:
            self._index = self._fresh_index()
        return self._index

    def hashes_of(self, ids: AnyArray) -> Keys:
        """Hash ids or subjects, as these records' indexes do."""
        return hashes(ids, self.hash_key)

    def _fresh_index(self) -> HashIndex:
        self._refuse_staged()
        return HashIndex(self.hashes_of(self.all_ids()), self._packed_positions())

    @property
    def by_subject(self) -> HashIndex:
        """The places by hashed subject, built when first needed."""
        if self._subject_index is None:
            self._subject_index = self._fresh_subject_index()
        return self._subject_index

    def _fresh_subject_index(self) -> HashIndex:
        self._refuse_staged()
        return HashIndex(self.hashes_of(self._all_labels(self.width + 1)), self.positions().places)

    def _refuse_staged(self) -> None:
        if self._staging is not None:
            raise BadRecords(UNDER_WAY)

    def _all_labels(self, position: int) -> AnyArray:
        """Return a column of ids or subjects, place by place."""
        full = np.flatnonzero(self.places.lengths).tolist()
        return np.concatenate([self.template[position], *(self._labels(position, place) for place in full)])

    def all_ids(self) -> AnyArray:
        """Return the ids of all records, place by place."""
        return self._all_labels(self.width)

    def positions(self) -> Located:
        """Return where all records lie, place by place."""
        lengths = self.places.lengths
        places = np.repeat(np.arange(len(lengths)), lengths)
        slots = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return Located(places, slots)

    def _packed_positions(self) -> Ints:
        places, slots = self.positions()
        return (places << SLOT_BITS) | slots

    def audit(self) -> list[str]:
        """Name every record that an index and the places do not agree on."""
        problems = []
        if self._index is not None and not self._index.same_as(self._fresh_index()):
            ids, positions = self.all_ids(), self._packed_positions()
            for record, hashed, position in zip(ids, self.hashes_of(ids).tolist(), positions.tolist(), strict=True):
                if position not in self._index.find(hashed):
                    place = position >> 32
                    problems.append(f"records: {record.item()!r} lies at place {place}, which the index does not know")
            known, where = self._index.entries()
            for position in where[~np.isin(known, self.hashes_of(ids))].tolist():
                problems.append(f"records: a record of place {position >> 32} is in the index, but not there")
            problems = problems or ["records: the index of ids does not fit the records"]
        if self._subject_index is not None and not self._subject_index.same_as(self._fresh_subject_index()):
            problems.append("records: the index of subjects does not fit the records")
        return problems

    def locate(self, ids: AnyArray) -> Located:
        """Return where records lie; raise `UnknownId` for those that are not found."""
        return self._locate(as_ids("ids", ids))

    def _locate(self, wanted: AnyArray) -> Located:
        self.like("ids", wanted, self.width)
        if len(wanted) == 1:
            return self.locate_one(wanted)
        positions = self.packed(wanted)
        if len(unknown := np.flatnonzero(positions < 0)):
            raise _unknown_ids(wanted[unknown])
        return Located(positions >> SLOT_BITS, positions & SLOT_MASK)

    def packed(self, wanted: AnyArray) -> Ints:
        """Return where records lie, as the index has it, and -1 for those that are not there."""
        positions = self.index.first(self.hashes_of(wanted))
        there = np.flatnonzero(positions >= 0)
        found = self.places.columns[self.width].gather(positions[there] >> SLOT_BITS, positions[there] & SLOT_MASK)
        for j in there[found != wanted[there]].tolist():  # another id has the same hash
            positions[j] = self._position(wanted[j : j + 1])
        return positions

    def locate_one(self, wanted: AnyArray) -> Located:
        """Return where the only record of an array lies; raise `UnknownId` if it is not there."""
        position = self._position(wanted)
        if position < 0:
            raise _unknown_ids(wanted)
        return Located(np.array([position >> 32]), np.array([position & 0xFFFFFFFF]))

    def _position(self, wanted: AnyArray) -> int:
        ids = self.places.columns[self.width]
        for position in self.index.find(hash_one(wanted, self.hash_key)):
            if ids.single(position >> 32, position & 0xFFFFFFFF)[0] == wanted[0]:
                return position
        return -1

    def where(self, subject: Any, hashed: int) -> list[tuple[int, Ints]]:
        """Return (place, slots) of all records of a subject."""
        places = sorted(set(self.by_subject.find(hashed)))
        found = [(place, np.flatnonzero(self._labels(self.width + 1, place) == subject)) for place in places]
        return [(place, slots) for place, slots in found if len(slots)]

    def ids_of(self, subjects: Any, missing: Literal["error", "ignore"] = "error") -> AnyArray:
        """Return the ids of all records of these subjects."""
        if not self.has_subjects:
            return as_ids("subjects", subjects)
        wanted = self.like("subjects", as_ids("subjects", subjects), self.width + 1)
        if missing == "ignore":
            wanted = once(wanted)
        else:
            check_distinct(wanted, "give each subject once")
        found: list[AnyArray] = []
        unknown: list[int] = []
        for number, hashed in enumerate(self.hashes_of(wanted).tolist()):
            where = self.where(wanted[number], hashed)
            found.extend([self.ids_at(place)[slots] for place, slots in where])
            if not where:
                unknown.append(number)
        if unknown and missing == "error":
            raise _unknown_subjects(wanted[unknown])
        return np.concatenate(found) if found else self.template[self.width]

    def numbers_of(self, subjects: Any) -> Ints:
        """Return how many records each subject has."""
        if not self.has_subjects:
            return (self.packed(self.like("ids", as_ids("ids", subjects), self.width)) >= 0).astype(np.int64)
        names = self.like("subjects", as_ids("subjects", subjects), self.width + 1)
        hashed = self.hashes_of(names)
        numbers = np.zeros(len(names), dtype=np.int64)
        for j in np.flatnonzero(self.by_subject.first(hashed) >= 0).tolist():
            numbers[j] = sum(len(slots) for _, slots in self.where(names[j], hashed.item(j)))
        return numbers

    def has(self, ids: Any) -> Mask:
        """Say of each id whether there is such a record."""
        return self.packed(self.like("ids", as_ids("ids", ids), self.width)) >= 0

    def like(
        self, name: str, given: AnyArray, position: int, error: type[UnknownId | BadRecords] = UnknownId
    ) -> AnyArray:
        """Return names as given; raise if they are strings where the records' are numbers, or the other way round."""
        kind = self.template[position].dtype.kind
        if len(given) and given.dtype.kind != kind:
            wanted = "integers" if kind == "i" else "strings"
            raise error(f"{name}: this model's {name} are {wanted}, got {given.dtype}; pass {wanted}.")
        return given

    def _reindex(
        self, edit: Edit, left: Batch, put: Batch, by_id: HashIndex | None, by_subject: HashIndex | None
    ) -> None:
        """Bring the indexes up to date: records that ``left``, and those that moved or came (``put``)."""
        if edit.added and edit.removed:  # a replacement: everyone stays where they are
            return
        if edit.within_a_place and by_subject is None and by_id is not None:
            base = edit.leave_places.item(0) << 32
            slot = edit.leave_slots.item(0)
            leaver = hash_one(left[self.width], self.hash_key)
            mover = hash_one(put[self.width], self.hash_key) if put else None
            by_id.remove_one(leaver, base | slot)
            if mover is not None:
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
                index.remove(self.hashes_of(left[position][: edit.removed]), values[0])
            if len(was):
                index.move(self.hashes_of(put[position][moved]), values[1], values[2])
            if edit.added:
                index.add(self.hashes_of(put[position][~moved]), values[3])

    def leaving(self, request: Delete) -> Located:
        """Return where the records to delete lie."""
        check_named(request)
        wanted = self.ids_of(request.subjects, request.missing) if request.ids is None else as_ids("ids", request.ids)
        if request.missing == "error":
            check_distinct(wanted, "give each record once")
            return self._locate(wanted)
        positions = self.packed(once(self.like("ids", wanted, self.width)))
        positions = positions[positions >= 0]
        return Located(positions >> SLOT_BITS, positions & SLOT_MASK)

    def locate_each(self, ids: Any) -> Located:
        """Return where records lie, each named once; raise for those that are not there."""
        wanted = as_ids("ids", ids)
        check_distinct(wanted, "give each record once")
        return self._locate(wanted)

    def of_one_each(self, subjects: Any) -> AnyArray:
        """Return the ids of the only record of each subject."""
        ids = self.ids_of(subjects)
        if len(ids) != len(wanted := as_ids("subjects", subjects)):
            counts = self.numbers_of(wanted)
            crowd = int(np.argmax(counts > 1))
            raise BadRecords(
                f"subjects: {wanted[crowd].item()!r} has {counts[crowd]} records; give the ids of those to replace."
            )
        return ids


def _unknown_ids(ids: AnyArray) -> UnknownId:
    if len(ids) == 1:
        return UnknownId(f"ids: id not found: {ids[0].item()!r}; it may have been deleted already.")
    return UnknownId(f"ids: ids not found: {_listed(ids)}; {_GONE}.")


def _unknown_subjects(names: AnyArray) -> UnknownId:
    if len(names) == 1:
        return UnknownId(f"subjects: subject not found: {names[0].item()!r}.")
    return UnknownId(f"subjects: subjects not found: {_listed(names)}; {_GONE}.")


_GONE = "they may have been deleted already"


def _listed(names: AnyArray) -> str:
    """Name the first few.

    >>> _listed(np.array([3, 1])), _listed(np.arange(7))
    ('3 and 1', '0, 1, 2, 3, 4 and 2 more')
    """
    shown = [repr(name) for name in names[:MOST_NAMED].tolist()]
    last = f"{len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else shown.pop()
    return f"{', '.join(shown)} and {last}"
