"""What comes in: requests, columns, ids and subjects, as arrays or a clear error, which says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal
from uuid import UUID

import numpy as np

from expunge.base.columns import canonical, in_parts, is_sparse, rows_in
from expunge.base.errors import BadRecords, DuplicateId
from expunge.base.types import AnyArray, Batch, Column

LONGEST = 1_000
"""How many letters an id or a subject may have."""


def _native(array: AnyArray) -> AnyArray:
    """Return the array in this machine's byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _sparse(name: str, column: Column) -> Column:
    """Return a sparse column in canonical form, as 64-bit floats."""
    if column.ndim != 2:
        raise BadRecords(f"{name}: expected a sparse matrix with one row for each record, got shape {column.shape}.")
    if column.dtype.kind not in "fiub":
        raise BadRecords(f"{name}: expected numbers, got sparse {column.dtype}; encode them first.")
    try:
        return canonical(column)
    except ValueError as error:
        raise BadRecords(f"{name}: not a valid sparse matrix ({error}); build it again.") from error


def _bad_row(array: Column) -> int | None:
    """Return the first row with NaN or infinity."""
    if array.dtype.kind != "f":
        return None
    numbers = array.data if is_sparse(array) else array
    if all(np.isfinite(part).all() for part in in_parts(numbers)):
        return None
    finite = np.isfinite(numbers)
    bad = int(np.argwhere(~finite)[0][0])
    return int(np.searchsorted(array.indptr, bad, side="right")) - 1 if is_sparse(array) else bad


def as_columns(columns: Sequence[Any]) -> Batch:
    """Return the columns as arrays (or canonical sparse columns) of finite numbers, all equally long."""
    arrays = tuple(
        [
            _sparse(f"columns[{number}]", column) if is_sparse(column) else _native(np.asarray(column))
            for number, column in enumerate(columns)
        ]
    )
    if not arrays:
        raise BadRecords("columns: give at least one array of records.")
    for number, array in enumerate(arrays):
        if array.ndim == 0:
            raise BadRecords(f"columns[{number}]: expected an array with one row for each record, got a scalar.")
        if array.dtype.kind not in "fiub":
            raise BadRecords(f"columns[{number}]: expected numbers, got {array.dtype}; encode them first.")
        if rows_in(array) != rows_in(arrays[0]):
            raise BadRecords(
                f"columns[{number}] has {rows_in(array)} rows, columns[0] has {rows_in(arrays[0])}: "
                "give every column one row for each record."
            )
        if (bad := _bad_row(array)) is not None:
            raise BadRecords(f"columns[{number}]: row {bad} has NaN or infinity; fill it in, or leave out the record.")
    return arrays


def as_ids(name: str, values: object) -> AnyArray:
    """Return ids as 64-bit integers or fixed-width strings; UUIDs become strings.

    >>> as_ids("ids", [UUID(int=7)]).tolist()
    ['00000000-0000-0000-0000-000000000007']
    """
    if isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1:
        return values.astype(np.int64)  # as they are, in a copy
    if isinstance(values, Sequence) and not isinstance(values, (str, range)):
        _check_lengths(name, values)  # before NumPy gives all of them the room of the longest
    try:
        ids = _native(np.asarray(values))
    except ValueError as error:
        raise BadRecords(f"{name}: expected a flat sequence of ids ({error}).") from error
    if ids.ndim != 1:
        raise BadRecords(f"{name}: expected a flat sequence of ids, got shape {ids.shape}.")
    if ids.size == 0:
        return ids if ids.dtype.kind == "U" else ids.astype(np.int64)
    if ids.dtype.kind in "iu":
        if ids.dtype.kind == "u" and ids.max() > np.iinfo(np.int64).max:
            raise BadRecords(f"{name}: unsigned ids above 2^63 - 1; pass them as strings.")
        return ids.astype(np.int64)
    if ids.dtype.kind in "OT":
        return _from_objects(name, ids.tolist())
    if ids.dtype.kind == "U":
        if ids.dtype.itemsize > 4 * LONGEST:
            _check_lengths(name, ids)
            ids = ids.astype(f"U{LONGEST}")
        if isinstance(values, Iterable) and not isinstance(values, np.ndarray):
            _check_texts(name, values)
        return ids
    if ids.dtype.kind == "b":
        raise BadRecords(f"{name}: got a mask of True and False; pass the {name} themselves, as integers or strings.")
    raise BadRecords(f"{name}: ids must be integers or strings, got {ids.dtype}; convert them with str().")


def as_own_ids(name: str, given: Any) -> Any:
    """Return ids or subjects, if any are given, as an array of their own, also if there is one, or a set of them."""
    if given is None:
        return None
    if isinstance(given, Set):
        try:
            given = sorted(given)
        except TypeError as error:
            raise BadRecords(f"{name}: ids must be integers or strings, all of one kind ({error}).") from error
    elif isinstance(given, str) or not isinstance(given, Sized) or getattr(given, "ndim", 1) == 0:
        given = [given]
    return as_ids(name, given).copy()


def _from_objects(name: str, values: list[Any]) -> AnyArray:
    """Return ids that came as Python objects."""
    kinds = set(map(type, values))
    if all(issubclass(kind, UUID) for kind in kinds):
        return np.array([str(value) for value in values])
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            raise BadRecords(f"{name}: integers of more than 64 bits; pass them as strings.") from None
    _check_texts(name, values)
    _check_lengths(name, values)
    return np.array(values, dtype=np.str_)


def _check_texts(name: str, values: Iterable[Any]) -> None:
    """Raise if not all are strings, or one would become another: NumPy drops NULs at the end."""
    try:
        doubtful = "\0" in "".join(values)
    except TypeError:
        kinds = " and ".join(sorted({type(value).__name__ for value in values}))
        raise BadRecords(
            f"{name}: ids must be integers or strings, all of one kind, got {kinds}; give every record one, and "
            "convert them with str()."
        ) from None
    if doubtful:
        for position, value in enumerate(values):
            if value.endswith("\0"):
                raise BadRecords(f"{name}: number {position}, {value!r}, ends with NUL, which NumPy drops; strip it.")


def _check_lengths(name: str, values: Iterable[Any]) -> None:
    """Raise if a name is so long that hashing and keeping it would cost everybody."""
    if not any(issubclass(kind, str) for kind in set(map(type, values))):
        return
    for position, value in enumerate(values):
        if isinstance(value, str) and len(value) > LONGEST:
            raise BadRecords(
                f"{name}: number {position} has {len(value):,} letters; give {name} of at most {LONGEST:,}, such as a "
                "digest of a longer name."
            )


def check_number(name: str, given: AnyArray, number: int) -> None:
    """Raise unless there is one id for each record."""
    if len(given) != number:
        raise BadRecords(f"{name}: {len(given)} for {number} records; give one for each record.")


def check_distinct(ids: AnyArray, remedy: str) -> None:
    """Raise if an id appears twice."""
    if len(ids) < 2:
        return
    ordered = np.sort(ids)
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise DuplicateId(f"ids: duplicate id {ordered[twice[0]].item()!r}; {remedy}.")


def once(ids: AnyArray) -> AnyArray:
    """Return each id once, in order of first appearance."""
    return ids if len(ids) < 2 else ids[np.sort(np.unique(ids, return_index=True)[1])]


def match_columns(columns: Sequence[Any], model: Batch) -> Batch:
    """Return new columns in the types of the model's, or say how they differ."""
    arrays = as_columns(columns)
    if len(arrays) != len(model):
        raise BadRecords(f"columns: {len(arrays)} given, the model's records have {len(model)}.")
    for position, (array, mine) in enumerate(zip(arrays, model, strict=True)):
        if array.shape[1:] != mine.shape[1:]:
            raise BadRecords(
                f"columns[{position}]: rows of shape {array.shape[1:]}, the model's records have {mine.shape[1:]}."
            )
        if is_sparse(array) and not is_sparse(mine):
            raise BadRecords(f"columns[{position}]: sparse, the model's records are dense; pass its toarray().")
        if not np.can_cast(array.dtype, mine.dtype, "same_kind"):
            raise BadRecords(
                f"columns[{position}]: {array.dtype} does not fit the model's {mine.dtype}; convert it first."
            )
    return tuple([_as(mine, array) for array, mine in zip(arrays, model, strict=True)])


def _as(model: Column, array: Column) -> Column:
    """Return a copy of a column in the kind and type of the model's, row by row, so that sums round alike."""
    if is_sparse(model):
        return array.copy() if is_sparse(array) else canonical(array)
    return array.astype(model.dtype, order="C")


Kind = Literal["delete", "insert", "replace"]
NamedBy = Literal["ids", "subjects"]


class _Asking:
    """A request, with what it says of ids and subjects."""

    ids: Any
    subjects: Any

    @cached_property
    def labels(self) -> dict[str, AnyArray]:
        """The ids and the subjects that it gives, as arrays."""
        given = {"ids": self.ids, "subjects": self.subjects}
        return {name: as_ids(name, labels) for name, labels in given.items() if labels is not None}


class _Naming(_Asking):
    """A request that names the records it is about, by their ids or by their subjects."""

    @cached_property
    def named_by(self) -> NamedBy:
        """How it names them."""
        return "subjects" if self.ids is None else "ids"

    @cached_property
    def names(self) -> AnyArray:
        """Whom it names, as an array."""
        return self.labels[self.named_by]


@dataclass(frozen=True, eq=False)
class Delete(_Naming):
    """Delete records, by id or by subject.

    With ``missing="ignore"`` those that are not found (they may have been deleted already) are skipped, and one
    named twice is deleted once. ``at`` is when it was asked for, by any clock; see `expunge.engine.streams.apply`.

    >>> Delete(subjects=["ann"], missing="ignore").missing
    'ignore'
    """

    kind: ClassVar[Kind] = "delete"
    ids: Any = None
    subjects: Any = None
    missing: Literal["error", "ignore"] = "error"
    at: float | None = None

    def __post_init__(self) -> None:
        _check_missing(self.missing)


@dataclass(frozen=True, eq=False)
class Insert(_Asking):
    """Add records. An id that was deleted may come back: it is a new record like any other.

    >>> Insert(([[0.5, 1.0]], [1]), ids=["ann"]).ids
    ['ann']
    """

    kind: ClassVar[Kind] = "insert"
    named_by: ClassVar[None] = None
    names: ClassVar[None] = None  # it names nobody who is there
    columns: tuple[Any, ...]
    ids: Any = None
    subjects: Any = None
    at: float | None = None

    def __post_init__(self) -> None:
        _check_columns(self.columns)


@dataclass(frozen=True, eq=False)
class Replace(_Naming):
    """Give records new content; they keep their ids, subjects and places. A subject named must have one record.

    With ``missing="ignore"`` those that are not found are skipped.

    >>> Replace(([[0.5, 1.0]], [0]), ids=["ann"]).ids
    ['ann']
    """

    kind: ClassVar[Kind] = "replace"
    columns: tuple[Any, ...]
    ids: Any = None
    subjects: Any = None
    missing: Literal["error", "ignore"] = "error"
    at: float | None = None

    def __post_init__(self) -> None:
        _check_columns(self.columns)
        _check_missing(self.missing)


Request = Delete | Insert | Replace


def _check_missing(missing: Any) -> None:
    if missing not in ("error", "ignore"):
        raise BadRecords(f"missing={missing!r}: give 'error', or 'ignore' to skip what is not found.")


def _check_columns(columns: Any) -> None:
    if not isinstance(columns, (tuple, list)):
        raise BadRecords(f"columns: give a tuple of columns, such as (X, y), not {type(columns).__name__}.")


def check_named(request: Delete | Replace) -> None:
    """Raise unless a request says in one way which records it is about."""
    if (request.ids is None) == (request.subjects is None):
        raise BadRecords(f"give either ids or subjects, to say which records to {request.kind}.")
