"""Columns of text as whole numbers, numbers, or true and false, where they are: guessed from a file's beginning."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from expunge.base.errors import BadRecords
from expunge.tables.arrow import arrow
from expunge.tables.reading import Broken, Chunk, Table

_WORDS = {"int64": "a whole number", "bool": "true or false", "double": "a number"}


def typed_chunks(
    table: Table, columns: list[str], features: Sequence[str], broken: Broken, rows: int
) -> Iterator[Chunk]:  # fmt: skip
    """Read columns in chunks of up to ``rows`` rows, those of a text in the types of the first block of it.

    What Arrow takes for null in CSV ("", NA, null and so on) is null. Features are floats, though the first be whole.
    """
    if not table.of_texts:
        yield from table.chunks(columns, broken, rows)
        return
    chunks = table.chunks(columns, broken, sys.maxsize)
    first = list(islice(chunks, 2))  # the second may be but the last line, if the file does not end with a newline
    kinds = {name: _guessed(first, name, name in features) for name in columns} if first else {}
    for chunk in chain(first, chunks):
        made = {name: _cast(chunk, name, column, kinds[name]) for name, column in chunk.columns.items()}
        for start in range(0, len(chunk.lines), rows):
            part = {name: column.slice(start, rows) for name, column in made.items()}
            yield Chunk(part, chunk.lines[start : start + rows], chunk.file)


def _with_nulls(column: Any) -> Any:
    """Return texts with null for those that mean null."""
    from pyarrow import compute, csv

    pa = arrow()
    null = compute.is_in(column, pa.array(csv.ConvertOptions().null_values, column.type))
    return compute.if_else(null, pa.scalar(None, column.type), column) if null.true_count else column


def _guessed(chunks: list[Chunk], name: str, is_feature: bool) -> Any:
    """Return the first type that all texts of a column are written in; in JSON, numbers that are all quoted are texts.

    Of what could be whole numbers, features are floats: later ones may not be whole.
    """
    pa = arrow()
    column = _with_nulls(pa.concat_arrays([chunk.columns[name] for chunk in chunks]))
    quoted = bool(chunks[0].numbers) and not any(chunk.numbers[name].any() for chunk in chunks)
    kinds = [pa.bool_()] if quoted else [pa.int64(), pa.bool_(), pa.float64()]
    kind = next((kind for kind in kinds if _is_written_in(column, kind)), column.type)
    return pa.float64() if is_feature and kind == pa.int64() else kind


def _is_written_in(column: Any, kind: Any) -> bool:
    try:
        column.cast(kind)
    except arrow().ArrowInvalid:
        return False
    return True


def _cast(chunk: Chunk, name: str, column: Any, kind: Any) -> Any:
    """Return a column in a type; raise, with its line, for the first text that is not written in it."""
    invalid = arrow().ArrowInvalid
    try:  # what stands for null is no number, but for NaN, which is missing too
        return column.cast(kind) if kind != column.type else _with_nulls(column)
    except invalid:
        column = _with_nulls(column)
    try:
        return column.cast(kind)
    except invalid:
        first, stop = 0, len(column)
        while stop - first > 1:
            middle = (first + stop) // 2
            first, stop = (middle, stop) if _is_written_in(column[first:middle], kind) else (first, middle)
        raise BadRecords(
            f"{chunk.file}: column {name!r}: line {chunk.lines[first]} is not {_WORDS[str(kind)]}, unlike the lines "
            "before it; fix it, or declare what the column is and read the file by a schema "
            "(expunge.tables.schema.EncodedTables)."
        ) from None
