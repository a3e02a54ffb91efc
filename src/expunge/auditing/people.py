"""Looking for ids, subjects and rows: are they records of the model, and are their bytes in its files?

Whoever was erased must not come back by a report about it. So nothing here passes a name on: what was given is known by
its position.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from expunge.auditing.findings import Given, Status
from expunge.columns import is_sparse
from expunge.errors import BadRecords, StoreError, UnknownId
from expunge.intake import as_ids
from expunge.progress import Show
from expunge.records import Insert
from expunge.store.receipts import digest_names
from expunge.store.scanning import Hit, forms_of, search, standing
from expunge.types import AnyArray

SHORT = 6
"""A name of fewer bytes is found by chance in a large file."""


@dataclass(frozen=True)
class _Wanted:
    """Something to look for."""

    what: Literal["id", "subject", "row"]
    position: int
    live: bool
    patterns: tuple[Any, ...]
    """In which forms its bytes may lie in the files; those that can be searched for."""
    days: tuple[str, ...] | None = None
    """The days of the receipts that name it, if that can be known."""
    found: list[Hit] = field(default_factory=list)


def look_for(
    model: Any, path: Path, show: Show, *, ids: Any = None, subjects: Any = None, rows: Any = None
) -> tuple[Given, ...]:
    """Look for ids, subjects and rows in the index of a model and in the bytes of its files.

    Others may write while bytes are searched. Who is found, and was no record before, may have come meanwhile.
    """

    def look_up() -> list[_Wanted]:
        with model._store.lock:
            return [*_named(model, "ids", ids), *_named(model, "subjects", subjects), *_rows(model, rows, show)]

    wanted = look_up()
    patterns = [pattern for one in wanted for pattern in one.patterns]
    owner = [one for one in wanted for _ in one.patterns]
    show("searching", 0, None)
    for hit in search(path, patterns, show):
        owner[hit.finding.pattern].found.append(hit)
    now = look_up() if any(one.found and not one.live for one in wanted) else wanted
    with model._store.lock:
        live = [one.live or later.live for one, later in zip(wanted, now, strict=True)]
        left = [one for one, alive in zip(wanted, live, strict=True) if one.what == "row" and one.found and not alive]
        known = _known(model, left, show)
        return tuple(_given(model, one, alive, known) for one, alive in zip(wanted, live, strict=True))


def _given(model: Any, one: _Wanted, live: bool, known: set[bytes]) -> Given:
    hits = [hit for hit in one.found if live or hit.half not in known]  # others have that half
    spots = {(hit.finding.file.name, hit.finding.offset) for hit in hits}
    status: Status
    if live:
        status = "live"
    elif not one.patterns:
        status = "not searchable"
    elif not spots:
        status = "gone"
    else:
        status = "unclear" if _belongs(model, one, known) else "left"
    files = tuple(sorted({name for name, _ in spots}))
    number = None if one.days is None else len(one.days)
    return Given(one.what, one.position, status, len(spots), files, number, max(one.days or (), default=None))


def _searchable(patterns: list[Any]) -> tuple[Any, ...]:
    """Return the patterns that are not as common as 0 or 1."""
    found = []
    for pattern in patterns:
        try:
            forms_of(0, pattern)
        except BadRecords:
            continue
        found.append(pattern)
    return tuple(found)


# --- ids and subjects --------------------------------------------------------------------------------


def _named(model: Any, name: Literal["ids", "subjects"], given: Any) -> Iterator[_Wanted]:
    if given is None:
        return
    records = model._store.records
    if name == "subjects" and not records.has_subjects:
        raise BadRecords("subjects: this model was fitted without subjects; name the records by ids.")
    names = _alike(as_ids(name, given), records.model[records.width + (name == "subjects")])
    what: Literal["id", "subject"] = "id" if name == "ids" else "subject"
    days = _days(model, name, names)
    for position, one in enumerate(names):
        live, patterns = _is_live(records, name, names[position : position + 1]), _searchable([one.item()])
        yield _Wanted(what, position + 1, live, patterns, None if days is None else days[position])


def _days(model: Any, name: Literal["ids", "subjects"], names: AnyArray) -> list[tuple[str, ...]] | None:
    """Return, for each name, the days of the receipts that name it."""
    try:
        digests, (_, receipts) = digest_names(model._store.key, name, names), model._store.receipts()
    except StoreError:  # damaged, or without a key: there are checks of their own for that
        return None
    found: dict[str, list[str]] = {digest: [] for digest in digests}
    for receipt in receipts:
        for digest in receipt.digests:
            if digest in found:
                found[digest].append(receipt.day)
    return [tuple(found[digest]) for digest in digests]


def _alike(names: AnyArray, kept: AnyArray) -> AnyArray:
    """Return names as numbers if the model's are numbers, and these are the digits of some."""
    if names.dtype.kind == "U" and kept.dtype.kind == "i":
        try:
            return np.array([int(name) for name in names.tolist()], dtype=np.int64)
        except (ValueError, OverflowError):
            return names
    return names


def _is_live(records: Any, name: str, alone: AnyArray) -> bool:
    try:
        if name == "ids":
            records.locate(alone)
            return True
        return bool(records.numbers_of(alone)[0])
    except UnknownId:
        return False


# --- rows --------------------------------------------------------------------------------------------


def _rows(model: Any, given: Any, show: Show) -> Iterator[_Wanted]:
    if given is None:
        return
    kept = _as_kept(model, given)
    dense = given.toarray() if is_sparse(given) else np.atleast_2d(np.asarray(given, dtype=float))
    live = _live_rows(model, kept, show)
    for position in range(len(dense)):
        forms = [dense[position], _numbers(kept, position)]
        yield _Wanted("row", position + 1, live[position], _searchable(forms))


def _as_kept(model: Any, given: Any) -> Any:
    """Return rows in the form in which the model keeps them: encoded, scaled down, rounded."""
    rows = given if is_sparse(given) else np.atleast_2d(given)
    columns: tuple[Any, ...] = (rows,)
    if len(model.COLUMNS) == 2:
        some = model.classes_[0] if hasattr(model, "classes_") else getattr(model, "target_range_", (0.0,))[0]
        columns = rows, np.full(rows.shape[0], some)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of points outside, columns without names: nothing is inserted
        batch = model.prepare_request(Insert(columns)).columns
    prepare = getattr(model.plan_.learner.query, "prepare", None)
    batch = batch if prepare is None else prepare(batch)
    return model._store.state.inventory.layout.columns[0].narrowed(batch[0])


def _numbers(kept: Any, position: int) -> AnyArray:
    """Return the numbers that lie in a file for a row: of a sparse one, those that are not 0."""
    return kept[position : position + 1].data if is_sparse(kept) else kept[position]


def _live_rows(model: Any, kept: Any, show: Show) -> list[bool]:
    """Say of each row whether a record that is there has the same."""
    rows = list(_contents(kept))
    wanted, live = set(rows), set()
    for block in _blocks(model, show) if rows else ():
        live |= wanted.intersection(_contents(block))
    return [row in live for row in rows]


def _blocks(model: Any, show: Show) -> Iterator[Any]:
    records = model._store.records
    places = np.flatnonzero(records.shelves.lengths).tolist()
    for done, place in enumerate(places):
        yield records.batch_at(place)[0]
        show("comparing", done + 1, len(places))


def _contents(block: Any) -> Iterator[bytes]:
    """Return the bytes of each row: of a sparse one, of where its numbers stand, too."""
    if not is_sparse(block):
        for row in np.asarray(block, dtype=np.float64) + 0.0:  # -0.0 is 0.0
            yield row.tobytes()
        return
    indices, numbers = block.indices.astype(np.int64), block.data.astype(np.float64) + 0.0
    for first, stop in zip(block.indptr[:-1].tolist(), block.indptr[1:].tolist(), strict=True):
        yield indices[first:stop].tobytes() + numbers[first:stop].tobytes()


# --- found, though not a record ----------------------------------------------------------------------


def _belongs(model: Any, one: _Wanted, known: set[bytes]) -> bool:
    """Say whether such bytes may well be something else that is rightly there."""
    if one.what == "row":
        return any(form in known for pattern in one.patterns for form in forms_of(0, pattern))
    name = one.patterns[0]
    if not isinstance(name, str):
        return False
    return len(name.encode("utf-8", "replace")) < SHORT or any(name in text for text in _texts(model))


def _known(model: Any, rows: list[_Wanted], show: Show) -> set[bytes]:
    """Return what is found of rows, whole or half, and also stands in a line in records that are there."""
    whole = [one for one in rows if any(hit.half is None for hit in one.found)]
    unknown = {form for one in whole for pattern in one.patterns for form in forms_of(0, pattern)}
    unknown |= {hit.half for one in rows for hit in one.found if hit.half is not None}
    known: set[bytes] = set()
    for block in _blocks(model, show) if unknown else ():
        numbers = np.ascontiguousarray(block.data if is_sparse(block) else block)
        for kind in ("<f8", "<f4"):
            known |= standing(numbers.astype(kind).tobytes(), unknown - known)
    return known


def _texts(model: Any) -> Iterator[str]:
    """Return all names that live, and what is written about the model: a name may be part of any of them."""
    records = model._store.records
    for labels in (records.all_ids(), records.subjects):
        if labels is not None and labels.dtype.kind == "U":
            yield from labels.tolist()
    for table in ("about", "receipts"):
        yield from model._store.file.texts(table)
