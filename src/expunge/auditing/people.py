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
from expunge.records import Insert
from expunge.store.scanning import Finding, _forms, scan
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
    found: list[Finding] = field(default_factory=list)


def look_for(model: Any, path: Path, *, ids: Any = None, subjects: Any = None, rows: Any = None) -> tuple[Given, ...]:
    """Look for ids, subjects and rows in the index of a model and in the bytes of its files."""
    wanted = [*_named(model, "ids", ids), *_named(model, "subjects", subjects), *_rows(model, rows)]
    patterns = [pattern for one in wanted for pattern in one.patterns]
    owner = [one for one in wanted for _ in one.patterns]
    for finding in scan(path, patterns) if patterns else []:
        owner[finding.pattern].found.append(finding)
    return tuple(_given(model, one) for one in wanted)


def _given(model: Any, one: _Wanted) -> Given:
    spots = {(finding.file.name, finding.offset) for finding in one.found}
    status: Status
    if one.live:
        status = "live"
    elif not one.patterns:
        status = "not searchable"
    elif not spots:
        status = "gone"
    else:
        status = "unclear" if _belongs(model, one) else "left"
    files = tuple(sorted({name for name, _ in spots}))
    number = None if one.days is None else len(one.days)
    return Given(one.what, one.position, status, len(spots), files, number, max(one.days or (), default=None))


def _searchable(patterns: list[Any]) -> tuple[Any, ...]:
    """Return the patterns that are not as common as 0 or 1."""
    found = []
    for pattern in patterns:
        try:
            _forms(0, pattern)
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
    for position, one in enumerate(names):
        alone = names[position : position + 1]
        live, patterns = _is_live(records, name, alone), _searchable([one.item()])
        yield _Wanted(what, position + 1, live, patterns, _days(model, name, alone))


def _days(model: Any, name: str, alone: AnyArray) -> tuple[str, ...] | None:
    try:
        return tuple(receipt["day"] for receipt in model.export_receipts(**{name: alone})["receipts"])
    except StoreError:  # damaged, or without a key: there are checks of their own for that
        return None


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


def _rows(model: Any, given: Any) -> Iterator[_Wanted]:
    if given is None:
        return
    kept = _as_kept(model, given)
    dense = given.toarray() if is_sparse(given) else np.atleast_2d(np.asarray(given, dtype=float))
    live = _live_rows(model, kept)
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


def _live_rows(model: Any, kept: Any) -> list[bool]:
    """Say of each row whether a record that is there has the same."""
    live = [False] * kept.shape[0]
    for block in _blocks(model):
        for position in range(len(live)):
            live[position] = live[position] or _has(block, kept[position : position + 1])
    return live


def _blocks(model: Any) -> Iterator[Any]:
    records = model._store.records
    for place in np.flatnonzero(records.shelves.lengths).tolist():
        yield records.batch_at(place)[0]


def _has(block: Any, row: Any) -> bool:
    if is_sparse(block):
        alike = np.flatnonzero(np.diff(block.indptr) == row.nnz).tolist()
        spans = (slice(block.indptr[j], block.indptr[j + 1]) for j in alike)
        return any(
            np.array_equal(block.indices[span], row.indices) and np.array_equal(block.data[span], row.data)
            for span in spans
        )
    near = block[block[:, 0] == row[0, 0]]
    return bool((near == row).all(axis=1).any())


# --- found, though not a record ----------------------------------------------------------------------


def _belongs(model: Any, one: _Wanted) -> bool:
    """Say whether such bytes may well be something else that is rightly there."""
    if one.what == "row":
        return any(_inside(model, np.asarray(pattern)) for pattern in one.patterns)
    name = one.patterns[0]
    if not isinstance(name, str):
        return False
    return len(name.encode("utf-8", "replace")) < SHORT or any(name in text for text in _texts(model))


def _inside(model: Any, row: AnyArray) -> bool:
    """Say whether a row's numbers also stand in a line in records that are there."""
    forms = [row.astype(kind).tobytes() for kind in ("<f8", "<f4")]
    for block in _blocks(model):
        numbers = np.ascontiguousarray(block.data if is_sparse(block) else block)
        if any(form in numbers.astype(kind).tobytes() for form, kind in zip(forms, ("<f8", "<f4"), strict=True)):
            return True
    return False


def _texts(model: Any) -> Iterator[str]:
    """Return all names that live, and what is written about the model: a name may be part of any of them."""
    records = model._store.records
    for labels in (records.all_ids(), records.subjects):
        if labels is not None and labels.dtype.kind == "U":
            yield from labels.tolist()
    for table in ("about", "receipts"):
        yield from model._store.file.texts(table)
