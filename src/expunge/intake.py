"""Checks of what comes in: columns, ids and subjects. Each says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from expunge.errors import BadRecords, DuplicateId
from expunge.types import AnyArray, Batch


def _native(array: AnyArray) -> AnyArray:
    """Return the array in this machine's byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_columns(columns: Sequence[Any]) -> Batch:
    """Return the columns as arrays of finite numbers, all equally long."""
    arrays = tuple([_native(np.asarray(column)) for column in columns])
    if not arrays:
        raise BadRecords("columns: give at least one array of records.")
    for number, array in enumerate(arrays):
        if array.ndim == 0:
            raise BadRecords(f"columns[{number}]: expected an array with one row for each record, got a scalar.")
        if array.dtype.kind not in "fiub":
            raise BadRecords(f"columns[{number}]: expected numbers, got {array.dtype}; encode them first.")
        if len(array) != len(arrays[0]):
            raise BadRecords(
                f"columns[{number}] has {len(array)} rows, columns[0] has {len(arrays[0])}: "
                "give every column one row for each record."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = int(np.argwhere(~np.isfinite(array))[0][0])
            raise BadRecords(f"columns[{number}]: row {bad} holds NaN or infinity; fill in or leave out the record.")
    return arrays


def as_ids(name: str, values: object) -> AnyArray:
    """Return ids as 64-bit integers or fixed-width strings."""
    ids = _native(np.asarray(values))
    if ids.ndim != 1:
        raise BadRecords(f"{name}: expected a flat sequence of ids, got shape {ids.shape}.")
    if ids.size == 0:
        return ids if ids.dtype.kind == "U" else ids.astype(np.int64)
    if ids.dtype.kind in "iu":
        if ids.dtype.kind == "u" and ids.max() > np.iinfo(np.int64).max:
            raise BadRecords(f"{name}: unsigned ids above 2^63 - 1; pass them as strings.")
        return ids.astype(np.int64)
    if ids.dtype.kind == "O" and all(isinstance(value, str) for value in ids.tolist()):
        return ids.astype(np.str_)
    if ids.dtype.kind == "U":
        return ids
    raise BadRecords(f"{name}: ids must be integers or strings, got {ids.dtype}; convert them with str().")


def check_number(name: str, given: AnyArray, number: int) -> None:
    """Raise unless there is one id for each record."""
    if len(given) != number:
        raise BadRecords(f"{name}: {len(given)} for {number} records; give one for each record.")


def check_distinct(ids: AnyArray, remedy: str) -> None:
    """Raise if an id stands twice."""
    if len(ids) < 2:
        return
    ordered = np.sort(ids)
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise DuplicateId(f"ids: {ordered[twice[0]].item()!r} stands twice; {remedy}.")


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
        if not np.can_cast(array.dtype, mine.dtype, "same_kind"):
            raise BadRecords(
                f"columns[{position}]: {array.dtype} does not fit the model's {mine.dtype}; convert it first."
            )
    return tuple([array.astype(mine.dtype) for array, mine in zip(arrays, model, strict=True)])
