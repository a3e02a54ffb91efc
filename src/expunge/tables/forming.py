"""Some records as a block: numbers, targets, ids and subjects as arrays of types that a model can keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from expunge.base.columns import is_sparse
from expunge.base.errors import BadRecords
from expunge.base.intake import as_ids
from expunge.base.types import AnyArray, Column
from expunge.tables import limits
from expunge.tables.arrow import arrow
from expunge.tables.roles import Roles


class Block(NamedTuple):
    """Some records. The arrays may be views of what was given: read them, and do not write to them."""

    X: Column
    """A row of numbers for each: 32-bit floats in all blocks of a source, or 64-bit floats in all; or sparse in all."""
    y: AnyArray | None
    """A number or string for each."""
    ids: AnyArray | None
    """A 64-bit integer or a string for each."""
    subjects: AnyArray | None
    """Whose record each is: a 64-bit integer or a string."""


def block_of_arrays(X: Column, others: dict[str, AnyArray], roles: Roles, start: int) -> Block:
    """Return a block, with targets, ids and subjects as plain numbers or strings."""
    made = {}
    for name, values in others.items():
        label = roles.label(name)
        if values.dtype.kind == "O" and None in (objects := values.tolist()):
            raise _missing(label, start + objects.index(None))
        if name == "y":
            made[name] = _labels(label, _from_objects(label, values, start), start)
        else:
            made[name] = as_ids(label, values)
    return Block(X, made.get("y"), made.get("ids"), made.get("subjects"))


def block_of_columns(columns: Mapping[str, Any], roles: Roles, start: int) -> Block:
    """Turn columns of Arrow into a block."""
    features = [
        _numbers(roles.label("X", position), columns[name], start) for position, name in enumerate(roles.features or [])
    ]
    X = np.empty((len(features[0]), len(features)), dtype=float_for(column.dtype for column in features))
    for position, column in enumerate(features):
        X[:, position] = column
    given = zip(Block._fields[1:], roles[1:], strict=True)
    others = {name: _values(roles.label(name), columns[at], start) for name, at in given if at is not None}
    return block_of_arrays(X, others, roles, start)


def float_for(types: Iterable[np.dtype[Any]]) -> type[np.floating[Any]]:
    """Return 32-bit floats if they hold all values of some types, or else 64-bit floats."""
    return np.float32 if all(np.can_cast(dtype, np.float32) for dtype in types) else np.float64


# Columns of Arrow


def _numbers(label: str, column: Any, start: int) -> AnyArray:
    """Return a feature as an array of numbers."""
    pa, kind = arrow(), column.type
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise BadRecords(
            f"{label}: {kind}, but numbers are needed; encode it first, or leave it out by giving the other columns "
            "with features=."
        )
    return _plain(label, column, start)


def _values(label: str, column: Any, start: int) -> AnyArray:
    """Return a column of numbers, strings or UUIDs as an array."""
    pa = arrow()
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if getattr(column.type, "extension_name", "") == "arrow.uuid":
        column = column.storage
    values = _plain(label, column, start)
    if pa.types.is_fixed_size_binary(column.type) and column.type.byte_width == 16:
        return _uuids(np.frombuffer(b"".join(values.tolist()), dtype=np.uint8).reshape(-1, 16))
    return values


def _plain(label: str, column: Any, start: int) -> AnyArray:
    """Return a column without nulls as an array, of Python objects if it is not of numbers."""
    if column.null_count:
        raise _missing(label, start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))))
    return column.to_numpy(zero_copy_only=False)


def _uuids(numbers: AnyArray) -> AnyArray:
    """Write UUIDs, of 16 bytes each, as strings."""
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    letters = np.full((len(numbers), 36), ord("-"), dtype=np.uint32)
    places = [place for place in range(36) if place not in (8, 13, 18, 23)]
    letters[:, places] = digits[np.stack([numbers >> 4, numbers & 15], axis=2).reshape(-1, 32)]
    return letters.view("U36")[:, 0]


# Arrays


def _from_objects(label: str, values: AnyArray, start: int) -> AnyArray:
    """Return Python strings and UUIDs as an array of strings, and others as they are."""
    objects = values.tolist() if values.dtype.kind == "O" else [None]
    if all(isinstance(value, UUID) for value in objects):
        return np.array([str(value) for value in objects], dtype=np.str_)
    if not all(isinstance(value, str) for value in objects):
        return values
    longest = max(map(len, objects), default=0)
    if 4 * longest * len(objects) > limits.MOST_TEXT:  # each takes as much room as the longest
        row = start + next(row for row, value in enumerate(objects) if len(value) == longest)
        raise BadRecords(f"{label}: a text of {longest:,} letters in row {row}; shorten it, or leave out the record.")
    return values.astype(np.str_)


def _labels(label: str, values: AnyArray, start: int) -> AnyArray:
    """Return targets in this machine's byte order, if they are numbers or strings."""
    if values.dtype.kind not in "fiubU":
        raise BadRecords(f"{label}: expected numbers or strings, got {values.dtype} at row {start}; convert them.")
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))


def _missing(label: str, row: int) -> BadRecords:
    return BadRecords(f"{label}: row {row} is missing (null or NaN) or infinite; fill it in, or leave out the record.")


# Blocks


def check_finite(block: Block, roles: Roles, start: int) -> None:
    """Raise if a number is missing or infinite."""
    array: Column
    for name, array in (("X", block.X), ("y", block.y)):
        if array is None or array.dtype.kind != "f":
            continue
        if not (finite := np.isfinite(array.data if is_sparse(array) else array)).all():
            row, *position = np.argwhere(~finite)[0].tolist()
            if is_sparse(array):
                position = [int(array.indices[row])]
                row = int(np.searchsorted(array.indptr, row, side="right")) - 1
            raise _missing(roles.label(name, *position), start + row)


def alike(block: Block, model: Block, roles: Roles, start: int) -> Block:
    """Return a block in the types of the first one, or say how it differs."""
    if block.X.shape[1] != model.X.shape[1]:
        raise BadRecords(
            f"X: {block.X.shape[1]} columns from row {start} on, {model.X.shape[1]} before; give the same columns."
        )
    if is_sparse(block.X) != is_sparse(model.X):
        kinds = ("dense", "sparse") if is_sparse(model.X) else ("sparse", "dense")
        raise BadRecords(f"X: {kinds[0]} from row {start} on, {kinds[1]} before; give the same in all blocks.")
    arrays = []
    for name, array, before in zip(Block._fields, block, model, strict=True):
        if (array is None) != (before is None):
            missing, given = (f"from row {start} on", "before") if array is None else ("before", f"from row {start} on")
            raise BadRecords(f"{name}: given {given}, but not {missing}; give it in every block, or in none.")
        arrays.append(None if array is None or before is None else _as_type(name, array, before.dtype, roles, start))
    return Block._make(arrays)


def _as_type(name: str, array: AnyArray, dtype: np.dtype[Any], roles: Roles, start: int) -> AnyArray:
    """Return an array in the type of the first block's, if that holds its values exactly."""
    if array.dtype == dtype or array.dtype.kind == dtype.kind == "U":
        return array
    if "U" in (array.dtype.kind, dtype.kind):
        raise BadRecords(
            f"{roles.label(name)}: {array.dtype} from row {start} on, {dtype} before; give numbers in all blocks, or "
            "strings in all."
        )
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        differs = (cast != array) | (cast.astype(array.dtype) != array)
    if differs.any():
        row, *position = np.argwhere(differs)[0].tolist()
        raise BadRecords(
            f"{roles.label(name, *position)}: {array.dtype} that {dtype}, the type of the first block, cannot hold at "
            f"row {start + row}; declare all as float64."
        )
    return cast
