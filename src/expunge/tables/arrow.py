"""Parquet, Arrow files, pandas and Polars as record batches of PyArrow, each within a budget.

A small file may hold values that fill any memory: a value that stands often is kept once, in a dictionary. So texts are
read as they are kept, their lengths are looked at, and only as many rows as the budget allows are unfolded together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.types import Ints
from expunge.tables import limits

_AT_ONCE = 16
"""How many rows are read together where their lengths cannot be known before."""
_NO_DICTIONARY = "DictAccumulator"
"""What Arrow says of texts in a form (delta) that it does not read as a dictionary."""


def arrow() -> Any:
    """Return PyArrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise BadPlan("reading tables needs PyArrow; install it with pip install 'expunge[arrow]'.") from error
    return pyarrow


class Batches(NamedTuple):
    """A file or table that can be read in record batches, as often as one likes (a stream only once)."""

    names: list[str]
    nested: list[str]
    """Which of them hold lists or objects."""
    total: int | None
    """How many rows there are, if that is known."""
    read: Callable[[list[str], int], Iterator[Any]]
    """Read columns in batches of up to this many rows and about `limits.BUDGET` bytes, categories as their values."""


# What can be read


def of_parquet(path: Path) -> Batches:
    """Open a Parquet file."""
    from pyarrow.parquet import ParquetFile

    def read(columns: list[str], rows: int) -> Iterator[Any]:
        done = 0
        try:
            for batch in _of_parquet(path, columns, rows, folded=True):
                done += len(batch)
                yield batch
        except OSError as error:
            if _NO_DICTIONARY not in str(error):
                raise
            for batch in _of_parquet(path, columns, rows, folded=False):
                if done < len(batch):
                    yield batch.slice(done)
                done = max(0, done - len(batch))

    with ParquetFile(path) as file:
        return Batches(*_columns(file.schema_arrow), file.metadata.num_rows, read)


def of_arrow_file(path: Path) -> Batches:
    """Open a file of Arrow's own format (Feather)."""
    from pyarrow import dataset, ipc

    from expunge.tables.unpacking import check_unpacked

    def read(columns: list[str], rows: int) -> Iterator[Any]:
        check_unpacked(path)
        with ipc.open_file(str(path)) as file:
            wanted = [file.schema.get_field_index(name) for name in columns]
        with ipc.open_file(str(path), options=ipc.IpcReadOptions(included_fields=wanted)) as file:
            batches = (_sound(file.get_batch(number).select(columns)) for number in range(file.num_record_batches))
            yield from _within_budget(str(path), file.schema, batches, columns, rows)

    with ipc.open_file(str(path)) as file:
        return Batches(*_columns(file.schema), dataset.dataset(path, format="ipc").count_rows(), read)


def of_pandas(frame: Any, label: str) -> Batches:
    """Open a data frame of pandas, without its index."""
    names = [str(name) for name in frame.columns]
    arrow()

    def read(columns: list[str], rows: int) -> Iterator[Any]:
        places = [names.index(name) for name in columns]
        for start in range(0, len(frame), rows):
            part = frame.iloc[start : start + rows, places]
            table = arrow().Table.from_pandas(part, preserve_index=False)  # which may have columns in chunks
            table = table.rename_columns(columns).combine_chunks()
            yield from _within_budget(label, table.schema, table.to_batches(), columns, rows)

    return Batches(names, [], len(frame), read)


def of_stream(table: Any, label: str) -> Batches:
    """Open a table of PyArrow or Polars, or whatever else is a stream of Arrow's."""
    readers = arrow().RecordBatchReader

    def read(columns: list[str], rows: int) -> Iterator[Any]:
        stream = readers.from_stream(table)
        batches = (batch.select(columns) for batch in stream)
        return _within_budget(label, stream.schema, batches, columns, rows)

    names = readers.from_stream(table).schema.names
    return Batches(names, [], len(table) if hasattr(table, "__len__") else None, read)


def _columns(schema: Any) -> tuple[list[str], list[str]]:
    """Return the names of all columns, and of those that hold lists or objects."""
    return schema.names, [field.name for field in schema if arrow().types.is_nested(field.type)]


def _sound(batch: Any) -> Any:
    """Return a batch of a file, if nothing in it points beyond its end."""
    batch.validate(full=True)
    return batch


def _of_parquet(path: Path, columns: list[str], rows: int, folded: bool) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        schema = file.schema_arrow
    texts = [name for name in columns if _is_text(schema.field(name).type)]
    rows = _most_rows(str(path), schema, columns, rows)
    at_once = rows if folded or not texts else _AT_ONCE
    how: dict[str, Any] = {"pre_buffer": False, "buffer_size": 2**16}  # or else it reads many rows ahead
    with ParquetFile(path, read_dictionary=texts if folded else None, **how) as file:
        batches = file.iter_batches(at_once, columns=columns)
        joined = batches if at_once == rows else _joined(batches, rows)
        yield from _within_budget(str(path), schema, joined, columns, rows)


def _joined(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """Put small batches together, up to a number of rows or half the budget."""
    kept, number, room = list[Any](), 0, 0
    for batch in batches:
        kept.append(batch)
        number, room = number + len(batch), room + batch.nbytes
        if number >= rows or room >= limits.BUDGET // 2:
            yield from arrow().Table.from_batches(kept).combine_chunks().to_batches()
            kept, number, room = [], 0, 0
    if kept:
        yield from arrow().Table.from_batches(kept).combine_chunks().to_batches()


# The budget


def _within_budget(label: str, schema: Any, batches: Iterable[Any], columns: list[str], rows: int) -> Iterator[Any]:
    """Cut batches so that none has more rows than asked for, or more bytes than the budget; unfold categories."""
    rows, done = _most_rows(label, schema, columns, rows), 0
    for batch in batches:
        for start in range(0, len(batch), rows):
            part = batch.slice(start, rows)
            first = 0
            for stop in _ends(_lengths(label, part, columns, done)):
                yield _unfolded(part.slice(first, stop - first))
                first = stop
            done += len(part)


def _most_rows(label: str, schema: Any, columns: list[str], rows: int) -> int:
    """Return how many rows may be read together, by the width of those values whose types say it."""
    width = sum(_width(schema.field(name).type) for name in columns)
    if width > limits.BUDGET:
        raise BadRecords(
            f"{label}: a row has {width:,} bytes, but at most {limits.BUDGET:,} can be read; leave columns out."
        )
    return max(1, min(rows, limits.BUDGET // max(width, 1)))


def _lengths(label: str, batch: Any, columns: list[str], done: int) -> Ints:
    """Return how many bytes of text each row of a batch has; raise if a value has too many."""
    from pyarrow import compute

    total: Ints = np.zeros(len(batch), dtype=np.int64)
    for name in columns:
        column = batch.column(name)
        types = arrow().types
        if types.is_dictionary(column.type) and _is_text(column.type.value_type):
            of_each = compute.binary_length(_plain(column.dictionary)).take(column.indices)
        elif _is_text(column.type):
            of_each = compute.binary_length(_plain(column))
        else:
            continue
        lengths = of_each.fill_null(0).to_numpy(zero_copy_only=False)
        if lengths.max(initial=0) > limits.LONGEST:
            row = done + int(lengths.argmax()) + 1
            raise BadRecords(
                f"{label}: column {name!r}: row {row} has {lengths.max():,} bytes, but a value may have at most "
                f"{limits.LONGEST >> 20} MB; shorten it, or leave the column out."
            )
        total += lengths
    return total


def _ends(lengths: Ints) -> list[int]:
    """Return after which rows to cut a batch, so that no part has more bytes than the budget, unless it is one row."""
    ends, sums, first = list[int](), np.cumsum(lengths), 0
    while first < len(lengths):
        before = int(sums[first - 1]) if first else 0
        first = max(first + 1, int(np.searchsorted(sums, before + limits.BUDGET, "right")))
        ends.append(first)
    return ends


def _unfolded(batch: Any) -> Any:
    """Return a batch whose columns of categories are columns of their values, and texts are of the usual types."""
    pa = arrow()
    columns = [_plain_texts(_values(one)) for one in batch.columns]
    if all(made is one for made, one in zip(columns, batch.columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _values(column: Any) -> Any:
    """Return a column of categories as one of their values."""
    if not arrow().types.is_dictionary(column.type):
        return column
    return _plain_texts(column.dictionary).take(column.indices)


def _plain_texts(column: Any) -> Any:
    """Return a column of strings in views as one of plain strings."""
    pa = arrow()
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _plain(texts: Any) -> Any:
    """Return texts in a form whose lengths Arrow can tell."""
    types = arrow().types
    if types.is_string_view(texts.type) or types.is_binary_view(texts.type):
        return texts.cast(arrow().large_binary())
    return texts


def _is_text(kind: Any) -> bool:
    types = arrow().types
    tests = (
        types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary,
        types.is_binary_view,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _width(kind: Any) -> int:
    """Return how many bytes a value has whose type says so."""
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 16
