"""Records in whatever form users have them, as a stream of blocks of one form.

`blocks_of` reads files, tables and arrays a block at a time, so that what does not fit into memory can be stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from expunge.columns import is_sparse
from expunge.errors import BadPlan, BadRecords
from expunge.intake import as_ids
from expunge.types import AnyArray

ENDINGS = (".parquet", ".csv", ".csv.gz", ".arrow", ".feather")


class Block(NamedTuple):
    """Some records. The arrays may be views of what was given: read them, and do not write to them."""

    X: AnyArray
    """A row of numbers for each: 32-bit floats in all blocks of a source, or 64-bit floats in all."""
    y: AnyArray | None
    """A number or string for each."""
    ids: AnyArray | None
    """A 64-bit integer or a string for each."""
    subjects: AnyArray | None
    """Whose record each is: a 64-bit integer or a string."""


class _Roles(NamedTuple):
    """Which columns of a table are what."""

    features: list[str] | None
    target: str | None
    id: str | None
    subject: str | None

    @property
    def columns(self) -> list[str]:
        """All columns that have a role, each once."""
        return list(dict.fromkeys([*(self.features or []), *(name for name in self[1:] if name is not None)]))

    def label(self, field: str, position: int = 0) -> str:
        """Return what to call a field of a block, or one of the features, in an error."""
        if self.features is None:
            return f"X[:, {position}]" if field == "X" else field
        name = {"X": self.features[position], "y": self.target, "ids": self.id, "subjects": self.subject}[field]
        return f"column {name!r}"


class _Part(NamedTuple):
    """A file, table or tuple of arrays, opened."""

    names: list[str] | None
    """The columns' names, if they have names."""
    total: int | None
    """How many records there are, if that is known."""
    blocks: Callable[[_Roles, int, int], Iterator[Block]]
    """Read blocks, by roles and for a largest number of rows; the third number is that of the first record."""


class Source:
    """A stream of blocks. It can be read as often as what it was made from."""

    def __init__(self, items: Iterable[Any], asked: _Roles, rows: int) -> None:
        self._spent = False
        self._asked = asked
        self._rows = rows
        self._items = items
        start = iter(items)
        first = next(start, None)
        if start is items:
            self._items = chain([] if first is None else [first], start)
        names = None if first is None else _open(first, 0).names
        if first is not None and names is None:
            _check_nameless(asked)
        self._roles = asked if names is None else _choose(names, asked, None, 0)
        self.names = None if names is None else self._roles.features
        """The features' names, where they have names."""
        self.total = _total(items) if isinstance(items, (list, tuple)) else None
        """How many records there are, if that can be told without reading them."""

    def __iter__(self) -> Iterator[Block]:
        if self._spent:
            raise BadRecords("source: an iterator that was read already; make it anew, or give a list or a file.")
        self._spent = isinstance(self._items, Iterator)
        return self._blocks()

    def _blocks(self) -> Iterator[Block]:
        start = 0
        model = None
        for item in self._items:
            part = _open(item, start)
            if (part.names is None) != (self.names is None):
                raise BadRecords(
                    f"source: {type(item).__name__} from row {start} on; give either tables or arrays, not both."
                )
            if part.names is not None:
                _choose(part.names, self._asked, self.names, start)
            for block in part.blocks(self._roles, self._rows, start):
                _check_finite(block, self._roles, start)
                model = model or Block._make([None if array is None else array[:0].copy() for array in block])
                yield _alike(block, model, self._roles, start)
                start += len(block.X)


def blocks_of(
    source: Any,
    *,
    target: str | None = None,
    id: str | None = None,
    subject: str | None = None,
    features: Sequence[str] | None = None,
    rows: int = 65536,
) -> Source:
    """Read records as blocks of up to ``rows`` of them, in their order.

    ``source`` may be

    - a file (.parquet, .csv, .csv.gz, .arrow, .feather), several of them, or a folder of Parquet files,
    - a table of PyArrow, pandas (its index is no column) or Polars, or an iterable of tables, such as a
      `pyarrow.RecordBatchReader`,
    - arrays ``(X, y, ids, subjects)``, of which all but the first may be None or left out, or an iterable of such
      tuples. Arrays in files (`numpy.memmap`) are read a block at a time.

    Of a table, ``target``, ``id`` and ``subject`` name columns; all others, or those named by ``features``, in that
    order, are features: numbers, or True and False. They become 32-bit floats if these hold every value of the
    columns' types (in the first block, should they change), and otherwise 64-bit floats.

    The types in a CSV file are guessed from its beginning: ids like 007 are read as 7. To declare them, open the file
    with `pyarrow.csv.open_csv` and give what it returns.

    >>> source = blocks_of((np.eye(3, dtype=np.float32), ["a", "b", "a"]), rows=2)
    >>> source.total, [block.y.tolist() for block in source]
    (3, [['a', 'b'], ['a']])
    """
    if rows < 1:
        raise BadPlan(f"rows={rows}: give a number of records of at least 1.")
    if isinstance(features, str):
        raise BadPlan(f"features={features!r}: give a list of names.")
    return Source(_items(source), _Roles(None if features is None else list(features), target, id, subject), rows)


def _items(source: Any) -> Iterable[Any]:
    """Return what a source consists of: files, tables or tuples of arrays."""
    if isinstance(source, (str, os.PathLike)):
        return _files([source])
    if _is_table(source) or isinstance(source, np.ndarray):
        return [source]
    if isinstance(source, (Mapping, bytes)) or not isinstance(source, Iterable):
        raise _unknown(source)
    start = iter(source)
    first = next(start, None)
    if isinstance(first, (str, os.PathLike)):
        return _files([first, *start])
    if isinstance(source, (list, tuple)) and (isinstance(first, np.ndarray) or is_sparse(first)):
        return [source]
    return source if start is not source else chain([] if first is None else [first], start)


def _files(paths: Iterable[Any]) -> list[Path]:
    """Return the files at some paths; of a folder, its Parquet files in the order of their names."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.glob("*.parquet") if file.name[0] not in "._")
            if not inside:
                raise BadRecords(f"{path}: a folder without Parquet files (*.parquet); list the files instead.")
            files += inside
        elif not path.exists():
            raise BadRecords(f"{path}: there is no such file; check the path.")
        elif not path.name.lower().endswith(ENDINGS):
            raise BadRecords(f"{path}: unknown kind of file; give one that ends in {', '.join(ENDINGS)}.")
        else:
            files.append(path)
    return files


def _open(item: Any, start: int) -> _Part:
    """Open one item of a source, without reading its records."""
    if isinstance(item, (list, tuple, np.ndarray)):
        return _arrays(item, start)
    return _table(item)


def _is_pandas(item: Any) -> bool:
    return hasattr(item, "iloc") and hasattr(item, "columns")


def _is_table(item: Any) -> bool:
    return _is_pandas(item) or (hasattr(item, "__arrow_c_stream__") and hasattr(item, "columns"))


def _unknown(source: Any) -> BadRecords:
    return BadRecords(
        f"source: cannot read records from {type(source).__name__}; give files, tables of PyArrow, pandas or Polars, "
        "arrays (X, y, ids, subjects), or an iterable of such."
    )


def _total(items: Sequence[Any]) -> int | None:
    """Return how many records there are in all, if that is known."""
    total = 0
    for item in items:
        more = _open(item, total).total
        if more is None:
            return None
        total += more
    return total


# Arrays


def _check_nameless(asked: _Roles) -> None:
    """Raise if columns of arrays are named."""
    for name, value in zip(("features", "target", "id", "subject"), asked, strict=True):
        if value is not None:
            raise BadRecords(
                f"{name}={value!r}: the columns of arrays have no names; leave it out, and give (X, y, ids, subjects)."
            )


def _arrays(item: Any, start: int) -> _Part:
    given = [item] if isinstance(item, np.ndarray) else list(item)
    if not 1 <= len(given) <= 4:
        raise BadRecords(f"source: {len(given)} arrays at row {start}; give (X, y, ids, subjects), or the first few.")
    given += [None] * (4 - len(given))
    arrays = {name: _array(name, one, start) for name, one in zip(Block._fields, given, strict=True) if one is not None}
    X = arrays.get("X")
    if X is None or X.ndim != 2 or X.shape[1] == 0:
        shape = "None" if X is None else f"shape {X.shape}"
        raise BadRecords(f"X: expected a table, with a row of numbers for each record, got {shape} at row {start}.")
    if X.dtype.kind not in "fiub":
        raise BadRecords(f"X: expected numbers, got {X.dtype} at row {start}; encode them first.")
    for name, array in arrays.items():
        if name != "X" and array.ndim != 1:
            raise BadRecords(f"{name}: expected a flat array, got shape {array.shape} at row {start}.")
        if len(array) != len(X):
            raise BadRecords(
                f"{name}: {len(array)} for the {len(X)} rows of X from row {start} on; give one for each record."
            )

    def blocks(roles: _Roles, rows: int, start: int) -> Iterator[Block]:
        for first in range(0, len(X), rows):
            part = {name: array[first : first + rows] for name, array in arrays.items()}
            yield _block(np.ascontiguousarray(part.pop("X"), _float_for([X.dtype])), part, roles, start + first)

    return _Part(None, len(X), blocks)


def _array(name: str, given: Any, start: int) -> AnyArray:
    """Return what was given as an array, without reading it from a file."""
    if is_sparse(given):
        raise BadRecords(f"{name}: sparse, at row {start}; give an iterable of blocks, each with its toarray().")
    array = np.asanyarray(given)
    if isinstance(array, np.ma.MaskedArray):
        raise BadRecords(f"{name}: a masked array, at row {start}; fill in what is missing, or leave out the records.")
    return np.asarray(array)


# Tables


def _arrow() -> Any:
    """Return PyArrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise BadPlan("source: PyArrow is needed to read files and tables; install expunge[arrow].") from error
    return pyarrow


@contextmanager
def _reading(label: str) -> Iterator[None]:
    """Say what could not be read."""
    arrow = _arrow()
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        raise BadRecords(
            f"{label}: cannot be read ({error}); mend it, or give its records as tables or arrays."
        ) from error


class _Table(NamedTuple):
    """A table that can be read in record batches of PyArrow."""

    names: list[str]
    total: int | None
    batches: Callable[[_Roles, int], Iterable[Any]]
    """Read the columns that have a role; batches may have more rows than asked for."""


def _table(item: Any) -> _Part:
    """Open a file or table."""
    if not isinstance(item, Path) and not _is_table(item):
        raise _unknown(item)
    label = str(item) if isinstance(item, Path) else f"source ({type(item).__name__})"
    with _reading(label):
        table = _opener(item)(item)

    def blocks(roles: _Roles, rows: int, start: int) -> Iterator[Block]:
        with _reading(label):
            for batch in table.batches(roles, rows):
                for first in range(0, len(batch), rows):
                    yield _batch_block(batch.slice(first, rows), roles, start + first)
                start += len(batch)

    return _Part(table.names, table.total, blocks)


def _opener(item: Any) -> Callable[[Any], _Table]:
    """Return what opens a file or table of this kind."""
    if not isinstance(item, Path):
        return _pandas if _is_pandas(item) else _in_memory
    return {".parquet": _parquet, ".arrow": _ipc, ".feather": _ipc}.get(item.suffix.lower(), _csv)


def _pandas(frame: Any) -> _Table:
    names = [str(name) for name in frame.columns]

    def batches(roles: _Roles, rows: int) -> Iterator[Any]:
        columns = [names.index(name) for name in roles.columns]
        for start in range(0, len(frame), rows):
            part = frame.iloc[start : start + rows, columns]
            table = _arrow().Table.from_pandas(part, preserve_index=False)  # which may have columns in chunks
            yield from table.combine_chunks().to_batches()

    return _Table(names, len(frame), batches)


def _in_memory(table: Any) -> _Table:
    readers = _arrow().RecordBatchReader

    def batches(roles: _Roles, rows: int) -> Iterator[Any]:
        return (batch.select(roles.columns) for batch in readers.from_stream(table))

    total = len(table) if hasattr(table, "__len__") else None
    return _Table(readers.from_stream(table).schema.names, total, batches)


def _parquet(path: Path) -> _Table:
    from pyarrow.parquet import ParquetFile

    def batches(roles: _Roles, rows: int) -> Iterator[Any]:
        with ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:  # or else it reads many rows ahead
            yield from file.iter_batches(rows, columns=roles.columns)

    with ParquetFile(path) as file:
        return _Table(file.schema_arrow.names, file.metadata.num_rows, batches)


def _ipc(path: Path) -> _Table:
    from pyarrow import dataset, ipc

    def batches(roles: _Roles, rows: int) -> Iterator[Any]:
        with ipc.open_file(str(path)) as file:
            for number in range(file.num_record_batches):
                yield file.get_batch(number).select(roles.columns)

    with ipc.open_file(str(path)) as file:
        return _Table(file.schema.names, dataset.dataset(path, format="ipc").count_rows(), batches)


def _csv(path: Path) -> _Table:
    from pyarrow import csv

    reading = csv.ReadOptions(use_threads=False, block_size=2**22)  # with threads, errors do not say which row
    with csv.open_csv(path, read_options=reading) as file:
        guessed = file.schema

    def batches(roles: _Roles, rows: int) -> Iterator[Any]:
        features = [guessed.field(name) for name in roles.features or []]
        floats = {field.name: _arrow().float64() for field in features if _is_whole_or_empty(field.type)}
        types = csv.ConvertOptions(column_types=floats, include_columns=roles.columns, strings_can_be_null=True)
        with csv.open_csv(path, read_options=reading, convert_options=types) as file:
            yield from file

    return _Table(guessed.names, None, batches)


def _is_whole_or_empty(kind: Any) -> bool:
    types = _arrow().types
    return types.is_integer(kind) or types.is_null(kind)


def _choose(names: list[str], asked: _Roles, before: list[str] | None, start: int) -> _Roles:
    """Say which columns of a table are what; ``before`` has the features of an earlier one."""
    there = f"there are {', '.join(map(repr, names))}"
    others = [name for name in names if name not in asked[1:]]
    if asked.features is None and before is not None and len(others) != len(before):
        raise BadRecords(
            f"source: {len(others)} feature columns from row {start} on, {len(before)} before; give every table the "
            "same columns, or name those to take with features=."
        )
    if asked.features is None:
        asked = asked._replace(features=others if before is None else before)
    if not asked.features:
        raise BadRecords(f"source: no feature columns; {there}. Take some of them with features=.")
    for name in asked.columns:
        if name not in names:
            raise BadRecords(f"column {name!r}: not in the table at row {start}; {there}.")
        if names.count(name) > 1 or asked.features.count(name) > 1:
            raise BadRecords(f"column {name!r}: stands twice; rename one, or leave it out with features=.")
        if name in asked.features and name in asked[1:]:
            raise BadRecords(f"column {name!r}: a feature, and target, id or subject too; leave it out of features=.")
    return asked


def _batch_block(batch: Any, roles: _Roles, start: int) -> Block:
    """Turn a record batch into a block."""
    columns = [
        _numbers(roles.label("X", position), batch.column(name), start)
        for position, name in enumerate(roles.features or [])
    ]
    X = np.empty((len(batch), len(columns)), dtype=_float_for(column.dtype for column in columns))
    for position, column in enumerate(columns):
        X[:, position] = column
    given = zip(Block._fields[1:], roles[1:], strict=True)
    others = {name: _values(roles.label(name), batch.column(at), start) for name, at in given if at is not None}
    return _block(X, others, roles, start)


def _numbers(label: str, column: Any, start: int) -> AnyArray:
    """Return a feature as an array of numbers."""
    pa, kind = _arrow(), column.type
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise BadRecords(
            f"{label}: {kind}, where numbers are needed; encode it first, or leave it out by naming the others with "
            "features=."
        )
    return _plain(label, column, start)


def _values(label: str, column: Any, start: int) -> AnyArray:
    """Return a column of numbers, strings, categories or UUIDs as an array."""
    pa = _arrow()
    if pa.types.is_dictionary(column.type):
        categories = column.dictionary
        if pa.types.is_string_view(categories.type):
            categories = categories.cast(pa.large_string())
        column = categories.take(column.indices)
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


# Both


def _block(X: AnyArray, others: dict[str, AnyArray], roles: _Roles, start: int) -> Block:
    """Return a block, with targets, ids and subjects as plain numbers or strings."""
    made = {}
    for name, values in others.items():
        label = roles.label(name)
        plain = _from_objects(label, values, start) if values.dtype.kind == "O" else values
        made[name] = _labels(label, plain, start) if name == "y" else as_ids(label, plain)
    return Block(X, made.get("y"), made.get("ids"), made.get("subjects"))


def _float_for(types: Iterable[np.dtype[Any]]) -> type[np.floating[Any]]:
    """Return 32-bit floats if they hold all values of some types, or else 64-bit floats."""
    return np.float32 if all(np.can_cast(dtype, np.float32) for dtype in types) else np.float64


def _from_objects(label: str, values: AnyArray, start: int) -> AnyArray:
    """Return Python strings and UUIDs as an array of strings, and other objects as they are."""
    objects = values.tolist()
    if None in objects:
        raise _missing(label, start + objects.index(None))
    if all(isinstance(value, UUID) for value in objects):
        return np.array([str(value) for value in objects], dtype=np.str_)
    return values.astype(np.str_) if all(isinstance(value, str) for value in objects) else values


def _labels(label: str, values: AnyArray, start: int) -> AnyArray:
    """Return targets in this machine's byte order, if they are numbers or strings."""
    if values.dtype.kind not in "fiubU":
        raise BadRecords(f"{label}: expected numbers or strings, got {values.dtype} at row {start}; convert them.")
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))


def _missing(label: str, row: int) -> BadRecords:
    return BadRecords(f"{label}: row {row} is missing (null or NaN) or infinite; fill it in, or leave out the record.")


def _check_finite(block: Block, roles: _Roles, start: int) -> None:
    """Raise if a number is missing or infinite."""
    for name, array in (("X", block.X), ("y", block.y)):
        if array is not None and array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
            row, *position = np.argwhere(~finite)[0].tolist()
            raise _missing(roles.label(name, *position), start + row)


def _alike(block: Block, model: Block, roles: _Roles, start: int) -> Block:
    """Return a block in the types of the first one, or say how it differs."""
    if block.X.shape[1] != model.X.shape[1]:
        raise BadRecords(
            f"X: {block.X.shape[1]} columns from row {start} on, {model.X.shape[1]} before; give the same columns."
        )
    arrays = []
    for name, array, before in zip(Block._fields, block, model, strict=True):
        if (array is None) != (before is None):
            missing, given = (f"from row {start} on", "before") if array is None else ("before", f"from row {start} on")
            raise BadRecords(f"{name}: given {given}, but not {missing}; give it in every block, or in none.")
        arrays.append(None if array is None or before is None else _as_type(name, array, before.dtype, roles, start))
    return Block._make(arrays)


def _as_type(name: str, array: AnyArray, dtype: np.dtype[Any], roles: _Roles, start: int) -> AnyArray:
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
