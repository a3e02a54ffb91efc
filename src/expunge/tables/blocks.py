"""Records in whatever form users have them, as a stream of blocks of one form.

`blocks_of` reads files, tables and arrays a block at a time, so that what does not fit into memory can be stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from expunge.base.columns import canonical, is_sparse, rows_in
from expunge.base.errors import BadPlan, BadRecords
from expunge.base.types import Column
from expunge.tables.arrow import of_pandas, of_stream
from expunge.tables.files import open_table, tables_in
from expunge.tables.forming import Block, alike, block_of_arrays, block_of_columns, check_finite, float_for
from expunge.tables.reading import Broken, reading
from expunge.tables.roles import Roles, check_nameless, choose
from expunge.tables.typed import typed_chunks


class _Part(NamedTuple):
    """A file, table or tuple of arrays, opened."""

    names: list[str] | None
    """The columns' names, if they have names."""
    total: int | None
    """How many records there are, if that is known."""
    blocks: Callable[[Roles, int, int], Iterator[Block]]
    """Read blocks, by roles and for a largest number of rows; the third number is that of the first record."""


class Source:
    """A stream of blocks. It can be read as often as what it was made from."""

    def __init__(self, items: Iterable[Any], asked: Roles, rows: int) -> None:
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
            check_nameless(asked)
        self._roles = asked if names is None else choose(names, asked, None, 0)
        self.names = None if names is None else self._roles.features
        """The features' names, where they have names."""
        self.total = _total(items) if isinstance(items, (list, tuple)) else None
        """How many records there are, if that is known without reading them."""

    def __iter__(self) -> Iterator[Block]:
        if self._spent:
            raise BadRecords("source: an iterator that was read already; make a new one, or give a list or a file.")
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
                choose(part.names, self._asked, self.names, start)
            for block in part.blocks(self._roles, self._rows, start):
                check_finite(block, self._roles, start)
                model = model or Block._make([None if array is None else array[:0].copy() for array in block])
                yield alike(block, model, self._roles, start)
                start += rows_in(block.X)


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

    - a file (CSV, TSV or JSON lines, also compressed; Parquet; Arrow), several of them, or a folder of such files,
    - a table of PyArrow, pandas (its index is no column) or Polars, or an iterable of tables, such as a
      `pyarrow.RecordBatchReader`,
    - arrays ``(X, y, ids, subjects)``, of which all but the first may be None or left out, or an iterable of such
      tuples. Arrays in files (`numpy.memmap`) are read a block at a time. X may be sparse, if it is so in all.

    Of a table, ``target``, ``id`` and ``subject`` name columns; all others, or those named by ``features``, in that
    order, are features: numbers, or True and False. They become 32-bit floats if these hold every value of the
    columns' types (in the first block, should they change), and otherwise 64-bit floats.

    The types in a CSV file are guessed from its beginning: ids like 007 are read as 7. To declare them, read the file
    by a schema (`expunge.tables.schema.EncodedTables`), or give what `pyarrow.csv.open_csv` returns.

    >>> source = blocks_of((np.eye(3, dtype=np.float32), ["a", "b", "a"]), rows=2)
    >>> source.total, [block.y.tolist() for block in source]
    (3, [['a', 'b'], ['a']])
    """
    if rows < 1:
        raise BadPlan(f"rows={rows}: give a number of records of at least 1.")
    if isinstance(features, str):
        raise BadPlan(f"features={features!r}: give a list of names.")
    return Source(_items(source), Roles(None if features is None else list(features), target, id, subject), rows)


def _items(source: Any) -> Iterable[Any]:
    """Return what a source consists of: files, tables or tuples of arrays."""
    if isinstance(source, (str, os.PathLike)):
        return _files([source])
    if _is_table(source) or isinstance(source, np.ndarray) or is_sparse(source):
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
    """Return the files at some paths; of a folder, all tables in it in the order of their names."""
    return [file for path in paths for file in tables_in(Path(path))]


def _open(item: Any, start: int) -> _Part:
    """Open one item of a source, without reading its records."""
    if isinstance(item, (list, tuple, np.ndarray)) or is_sparse(item):
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


# Files and tables


def _table(item: Any) -> _Part:
    """Open a file or table."""
    if isinstance(item, Path):
        return _file(item)
    if not _is_table(item):
        raise _unknown(item)
    label = f"source ({type(item).__name__})"
    with reading(label, _GIVE_OTHERS):
        table = of_pandas(item, label) if _is_pandas(item) else of_stream(item, label)

    def blocks(roles: Roles, rows: int, start: int) -> Iterator[Block]:
        with reading(label, _GIVE_OTHERS):
            for batch in table.read(roles.columns, rows):
                yield block_of_columns({name: batch.column(name) for name in roles.columns}, roles, start)
                start += len(batch)

    return _Part(table.names, table.total, blocks)


_GIVE_OTHERS = "fix it, or give its records as arrays"
_BY_A_SCHEMA = (
    'fix the file, or read it by a schema: expunge.tables.schema.EncodedTables with on_error="skip" leaves such '
    "records out"
)


def _file(path: Path) -> _Part:
    """Open a file; the types of a text are guessed."""
    table = open_table(path)

    def blocks(roles: Roles, rows: int, start: int) -> Iterator[Block]:
        chunks = typed_chunks(table, roles.columns, roles.features or [], Broken(remedy=_BY_A_SCHEMA), rows)
        with reading(path):
            for chunk in chunks:
                yield block_of_columns(chunk.columns, roles, start)
                start += len(chunk.lines)

    return _Part([*table.names, *table.nested], table.total, blocks)


# Arrays


def _arrays(item: Any, start: int) -> _Part:
    given = [item] if isinstance(item, np.ndarray) or is_sparse(item) else list(item)
    if not 1 <= len(given) <= 4:
        raise BadRecords(f"source: {len(given)} arrays at row {start}; give (X, y, ids, subjects), or the first few.")
    given += [None] * (4 - len(given))
    arrays = {name: _array(name, one, start) for name, one in zip(Block._fields, given, strict=True) if one is not None}
    X: Column = arrays.get("X")
    if X is None or X.ndim != 2 or X.shape[1] == 0:
        shape = "None" if X is None else f"shape {X.shape}"
        raise BadRecords(f"X: expected a table, with a row of numbers for each record, got {shape} at row {start}.")
    if X.dtype.kind not in "fiub":
        raise BadRecords(f"X: expected numbers, got {X.dtype} at row {start}; encode them first.")
    for name, array in arrays.items():
        if name != "X" and array.ndim != 1:
            raise BadRecords(f"{name}: expected a flat array, got shape {array.shape} at row {start}.")
        if rows_in(array) != rows_in(X):
            raise BadRecords(
                f"{name}: {len(array)} for the {rows_in(X)} rows of X from row {start} on; give one for each record."
            )

    def blocks(roles: Roles, rows: int, start: int) -> Iterator[Block]:
        for first in range(0, rows_in(X), rows):
            part = {name: array[first : first + rows] for name, array in arrays.items()}
            here = part.pop("X")
            if not is_sparse(here):
                here = np.ascontiguousarray(here, float_for([X.dtype]))
            yield block_of_arrays(here, part, roles, start + first)

    return _Part(None, rows_in(X), blocks)


def _array(name: str, given: Any, start: int) -> Column:
    """Return what was given as an array, without reading it from a file; X may be sparse."""
    if is_sparse(given):
        if name != "X":
            raise BadRecords(f"{name}: sparse, at row {start}; give its toarray().")
        if given.ndim != 2 or given.dtype.kind not in "fiub":
            return given
        try:
            return canonical(given)
        except ValueError as error:
            raise BadRecords(f"X: not a valid sparse matrix, at row {start} ({error}); build it again.") from error
    array = np.asanyarray(given)
    if isinstance(array, np.ma.MaskedArray):
        raise BadRecords(f"{name}: a masked array, at row {start}; fill in what is missing, or leave out the records.")
    return np.asarray(array)
