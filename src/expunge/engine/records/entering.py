"""What enters: new records, and new content of old ones, checked and turned into edits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from expunge.base.columns import rows_in
from expunge.base.errors import BadRecords, DuplicateId, UnknownId
from expunge.base.intake import Insert, Replace, as_ids, check_distinct, check_number, match_columns
from expunge.base.types import AnyArray, Ints, Keys
from expunge.engine.randomness import Randomness
from expunge.engine.records.lookup import Lookup
from expunge.engine.schedules import Edit, Entering, Schedule


def replacement(records: Lookup, request: Replace) -> Edit:
    """Return the edit that gives records new content."""
    rows = match_columns(request.columns, records.template[: records.width])
    name = "subjects" if request.ids is None else "ids"
    names = as_ids(name, request.subjects if request.ids is None else request.ids)
    check_number(name, names, rows_in(rows[0]))
    if request.missing == "ignore":
        there = (
            records.numbers_of(names) > 0
            if request.ids is None
            else records.packed(records.like("ids", names, records.width)) >= 0
        )
        names, rows = names[there], tuple([column[there] for column in rows])
    located = records.locate_each(records.of_one_each(names) if request.ids is None else names)
    number = len(located.places)
    labels = [column.gather(*located) for column in records.places.columns[records.width :]]
    return Edit(
        *located, np.arange(number), np.ones(number, dtype=bool),
        leave_places=located.places, leave_slots=located.slots,
        entering=(*rows, *labels), removed=number, added=number,
    )  # fmt: skip


def insertion(records: Lookup, schedule: Schedule, request: Insert, randomness: Randomness) -> Edit:
    """Return the edit that puts new records in; where they lie is drawn."""
    rows = match_columns(request.columns, records.template[: records.width])
    number = rows_in(rows[0])
    ids = new_ids(records, request.ids, number)
    if (request.subjects is None) == records.has_subjects:
        raise BadRecords("subjects: give them for all records or for none, as at the first fit.")
    numbers, homes, keys = None, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
    labels = [ids]
    if request.subjects is not None:
        subjects = records.like("subjects", as_ids("subjects", request.subjects), records.width + 1, BadRecords)
        check_number("subjects", subjects, number)
        names, numbers = np.unique(subjects, return_inverse=True)
        homes, keys = _homes(records, names)
        labels.append(subjects)
    entering = Entering(records.count, number, records.places.lengths, numbers, homes, keys)
    edit = schedule.insert(entering, randomness.layout)
    if edit.keys is not None:
        labels.append(edit.keys)
    return replace(edit, entering=(*rows, *labels))


def new_ids(records: Lookup, given: Any, number: int) -> AnyArray:
    """Return ids for so many new records, as given or the next numbers; raise if one is taken."""
    if given is None:
        if records.next_id is None:
            raise BadRecords("ids: this model's records have ids; give one for each new record.")
        return np.arange(records.next_id, records.next_id + number)
    ids = as_ids("ids", given)
    if records.count:
        records.like("ids", ids, records.width, BadRecords)
    check_number("ids", ids, number)
    check_distinct(ids, "give every record its own id")
    if ids.dtype.kind == records.template[records.width].dtype.kind:
        for j in np.flatnonzero(records.index.first(records.hashes_of(ids)) >= 0).tolist():
            with suppress(UnknownId):  # another id may have the same hash
                records.locate_one(ids[j : j + 1])
                raise DuplicateId(f"ids: {ids[j].item()!r} is in the model already; use replace, or give a new id.")
    return ids


def _homes(records: Lookup, names: AnyArray) -> tuple[Ints, Keys]:
    """Return where subjects' records already lie (or -1), and with which key."""
    homes = np.full(len(names), -1, dtype=np.int64)
    keys = np.zeros(len(names), dtype=np.uint64)
    hashed = records.hashes_of(names)
    for j in np.flatnonzero(records.by_subject.first(hashed) >= 0).tolist():
        for place, slots in records.where(names[j], hashed.item(j))[:1]:
            homes[j] = place
            if records.keyed:
                keys[j] = records.keys_at(place)[slots[0]]
    return homes, keys
