"""Looking for ids, subjects and rows: are they records of the model, and are their bytes in its files?

Two ways: all ids, subjects and rows that the store holds are read and compared, and every byte of its files is
searched. Small numbers and short names can only be looked for in the first way, since such bytes are everywhere.

A report must not bring back those who were deleted. So nothing here passes a name on: what was given is known by
its position.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from expunge.audit.findings import Given, Status
from expunge.audit.integrity import leftovers
from expunge.base.columns import is_sparse
from expunge.base.errors import BadRecords, CorruptStore, StoreError, UnknownId
from expunge.base.intake import Insert, as_ids
from expunge.base.progress import Show
from expunge.base.types import AnyArray
from expunge.store.receipts import digest_names
from expunge.store.scanning import Hit, forms_of, search, standing
from expunge.store.state import read_pending

SHORT = 6
"""A name of fewer bytes is found by chance in a large file."""


@dataclass(frozen=True)
class _Wanted:
    """Something to look for."""

    what: Literal["id", "subject", "row"]
    position: int
    live: bool
    waiting: bool
    """Whether a request that is not finished has it."""
    patterns: tuple[Any, ...]
    """The forms that its bytes may have in the files; those that can be searched for."""
    days: tuple[str, ...] | None = None
    """The days of the receipts that name it, if that can be known."""
    found: list[Hit] = field(default_factory=list)


def look_for(
    model: Any, path: Path, show: Show, *, ids: Any = None, subjects: Any = None, rows: Any = None
) -> tuple[Given, ...]:
    """Look for ids, subjects and rows in all that a model holds and in the bytes of its files.

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
        over = tuple(name for name, _ in leftovers(path))
        return tuple(_given(model, one, alive, known, over) for one, alive in zip(wanted, live, strict=True))


def _given(model: Any, one: _Wanted, live: bool, known: set[bytes], over: tuple[str, ...]) -> Given:
    hits = [hit for hit in one.found if live or hit.half not in known]  # others have that half
    spots = {(hit.finding.file.name, hit.finding.offset) for hit in hits}
    status: Status
    if live:
        status = "live"
    elif one.waiting:
        status = "waiting"
    elif not one.patterns:
        status = "not checked" if over else "absent"
    elif not spots:
        status = "gone"
    else:
        status = "unclear" if _belongs(model, one, known) else "left"
    files = over if status == "not checked" else tuple(sorted({name for name, _ in spots}))
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
        raise BadRecords("subjects: this model was fitted without subjects; give ids.")
    position = records.width + (name == "subjects")
    kept = records.template[position].dtype.kind
    names = [_alike(one, kept) for one in as_ids(name, given).tolist()]
    what: Literal["id", "subject"] = "id" if name == "ids" else "subject"
    held, waiting, days = _held(records, position, names), _waiting(model, name), _days(model, name, names)
    for number, one in enumerate(names):
        live = one in held or _is_live(records, name, np.array([one]))
        yield _Wanted(
            what, number + 1, live, one in waiting, _searchable([one]), None if days is None else days[number]
        )


def _held(records: Any, position: int, names: list[Any]) -> set[Any]:
    """Return which of some names are in a column of ids or subjects: all of it is read, whatever an index says."""
    if records.audit():  # an index that knows more than the column might know one of them
        raise CorruptStore("records: an index does not fit the records that are there; restore a backup.")
    column, lengths = records.places.columns[position], records.places.lengths
    wanted = np.array([one for one in names if isinstance(one, str) == (records.template[position].dtype.kind == "U")])
    found: set[Any] = set()
    for place in np.flatnonzero(lengths).tolist() if len(wanted) else ():
        labels = column.block(place, lengths.item(place))
        found.update(labels[np.isin(labels, wanted)].tolist())
    return found


def _waiting(model: Any, name: Literal["ids", "subjects"]) -> set[Any]:
    """Return the names in the request that is recorded and not finished, if there is one."""
    pending = read_pending(model._store.file)
    named = None if pending is None else getattr(pending.request, name)
    return set() if named is None else set(as_ids(name, named).tolist())


def _days(model: Any, name: Literal["ids", "subjects"], names: list[Any]) -> list[tuple[str, ...]] | None:
    """Return, for each name, the days of the receipts that name it."""
    try:
        key, (_, receipts) = model._store.session.key, model._store.receipts()
    except StoreError:  # damaged, or without a key: there are checks of their own for that
        return None
    digests = [digest_names(key, name, np.array([one]))[0] for one in names]
    found: dict[str, list[str]] = {digest: [] for digest in digests}
    for receipt in receipts:
        for digest in receipt.digests:
            if digest in found:
                found[digest].append(receipt.day)
    return [tuple(found[digest]) for digest in digests]


def _alike(name: Any, kept: str) -> Any:
    """Return a name as a number if the model's are numbers and it is the digits of one, or the other way round.

    >>> _alike("17", "i"), _alike("x17", "i"), _alike(17, "U")
    (17, 'x17', '17')
    """
    if kept == "U":
        return str(name)
    if isinstance(name, str) and re.fullmatch(r"-?[0-9]{1,19}", name) and -(2**63) <= int(name) < 2**63:
        return int(name)
    return name


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
    live, waiting = _live_rows(model, kept, show), _waiting_rows(model)
    for position, content in enumerate(_contents(kept)):
        forms = [dense[position], _numbers(kept, position)]
        yield _Wanted("row", position + 1, live[position], content in waiting, _searchable(forms))


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
    return _prepared(model, batch)


def _prepared(model: Any, batch: Any) -> Any:
    """Return the rows of a request in the form in which the model keeps them."""
    prepare = model.plan_.learner.abilities.prepare
    batch = batch if prepare is None else prepare(batch)
    return model._store.state.inventory.layout.columns[0].narrowed(batch[0])


def _waiting_rows(model: Any) -> set[bytes]:
    """Return the rows of the request that is recorded and not finished, if there is one."""
    pending = read_pending(model._store.file)
    columns = None if pending is None else getattr(pending.request, "columns", None)
    return set() if not columns else set(_contents(_prepared(model, columns)))


def _numbers(kept: Any, position: int) -> AnyArray:
    """Return the numbers that a file has for a row: for a sparse row, those that are not 0."""
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
    places = np.flatnonzero(records.places.lengths).tolist()
    for done, place in enumerate(places):
        yield records.batch_at(place)[0]
        show("comparing", done + 1, len(places))


def _contents(block: Any) -> Iterator[bytes]:
    """Return the bytes of each row; for a sparse row, with the positions of its numbers."""
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
    """Return those findings of rows, whole or half, that are also contiguous in current records."""
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
