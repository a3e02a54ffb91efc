"""Records on their way into a store: written down as they come, then read back place by place.

A `Spool` holds more records than memory does. To lay them out it deals them into bucket files, each a stretch of the
layout that fits into memory, and then puts one bucket after the other in order: every byte is read and written
twice, in long runs. Of a sparse column there are three files: how many numbers each record has, the numbers, and which
columns they belong to.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from expunge.base.columns import counts_in, csr, index_type, is_sparse, pointers, rows_in, stack
from expunge.base.errors import BadPlan, BadRecords, FullStore, StoreError
from expunge.base.types import AnyArray, Batch, Column, Ints
from expunge.store.surroundings import private

Convert = Callable[[Batch], Batch]

AT_ONCE = 2**22
"""About how many bytes are read, and how many of a bucket are put in order, at a time."""
SPARSE_AT_ONCE = 2**14
"""How many records with sparse columns are read at a time, at most: they may become dense."""


@dataclass
class _Run:
    """Consecutive records whose strings are equally wide."""

    types: list[np.dtype[Any]]
    """Of a sparse column, that of how many numbers each record has."""
    rows: int = 0


class _Sizes:
    """How many bytes records take: ``row`` each, and what ``more`` has of each where they differ."""

    def __init__(self, row: int, more: Ints | None) -> None:
        self._row = max(1, row)
        self._ends = None if more is None else np.append(0, np.cumsum(more + self._row))

    def reach(self, start: int, size: int) -> int:
        """Return how far so many bytes reach from a record on: one record at least."""
        if self._ends is None:
            return start + max(1, size // self._row)
        return max(start + 1, int(np.searchsorted(self._ends, self._ends[start] + size, side="right")) - 1)


class Spool:
    """Columns of records in a folder of temporary files, which it makes and deletes.

    Whoever opens it closes it, by ``with`` or `close`; at the latest it is deleted with the object. A process that
    is killed cannot do so: then the folder stays, and must be deleted.
    """

    def __init__(self, folder: Path) -> None:
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)  # before there is anything
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError as error:
            self._remove.detach()  # it is another's
            raise StoreError(
                f"{folder}: exists already. If no other process is using it, a killed process left it: delete it."
            ) from error
        self._folder = folder
        self._shapes: list[tuple[int, ...]] = []
        """Of a record of each column."""
        self._sparse: list[bool] = []
        self._more: list[Ints] = []
        """How many bytes the numbers of sparse columns take in each record."""
        self._runs: list[_Run] = []
        self.count = 0
        """How many records there are so far."""

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete everything."""
        self._remove()

    def add(self, columns: Batch) -> None:
        """Append records: one array for each column, always of the same types and shapes (strings may get wider).

        After `BadRecords` the records before are still there; after any other error the spool is good for nothing.
        """
        columns = tuple([column if is_sparse(column) else np.ascontiguousarray(column) for column in columns])
        self._check(columns)
        types = [column.dtype for column in columns]
        if not self._runs or self._runs[-1].types != types:
            self._runs.append(_Run(types))
            self._shapes = [column.shape[1:] for column in columns]
            self._sparse = [is_sparse(column) for column in columns]
        with _writing(self._folder):
            for number, column in enumerate(columns):
                for file, array in zip(_files(self._file(number)), _arrays(column), strict=False):
                    _append(file, array)
        if any(self._sparse):
            sizes = [counts_in(column) * _number_bytes(column) for column in columns if is_sparse(column)]
            self._more.append(np.sum(sizes, axis=0, dtype=np.int64))
        self._runs[-1].rows += rows_in(columns[0])
        self.count += rows_in(columns[0])

    def _check(self, columns: Batch) -> None:
        """Raise unless the columns are equally long and go with those before."""
        if not columns:
            raise BadRecords("columns: give at least one array of records.")
        if self._runs and len(columns) != len(self._shapes):
            raise BadRecords(f"columns: {len(columns)} given, {len(self._shapes)} before; give the same columns.")
        for number, column in enumerate(columns):
            if column.dtype.hasobject:
                raise BadRecords(f"columns[{number}]: Python objects; convert them to numbers or strings.")
            if rows_in(column) != rows_in(columns[0]):
                raise BadRecords(
                    f"columns[{number}] has {rows_in(column)} rows, columns[0] has {rows_in(columns[0])}: give every "
                    "column one row for each record."
                )
            if self._runs and not self._fits(number, column):
                raise BadRecords(
                    f"columns[{number}]: {'sparse ' * is_sparse(column)}{column.dtype} of shape {column.shape[1:]} a "
                    f"record, {'sparse ' * self._sparse[number]}{self._runs[-1].types[number]} of shape "
                    f"{self._shapes[number]} before; convert it."
                )

    def _fits(self, number: int, column: Column) -> bool:
        """Say whether a column has the type (for strings, of any width) and shape of those before."""
        before = self._runs[-1].types[number]
        alike = column.dtype.kind == "U" if before.kind == "U" else column.dtype == before
        return alike and column.shape[1:] == self._shapes[number] and is_sparse(column) == self._sparse[number]

    def _file(self, number: int) -> Path:
        return self._folder / f"column-{number}"

    def _types(self) -> list[np.dtype[Any]]:
        """Return the columns' types; strings are as wide as the widest."""
        return [np.result_type(*each) for each in zip(*(run.types for run in self._runs), strict=True)]

    def _sizes(self, numbers: range) -> _Sizes:
        """Return how many bytes the records take in some columns."""
        sparse, types = self._sparse, self._types()
        row = sum(8 if sparse[number] else _row_bytes(types[number], self._shapes[number]) for number in numbers)
        return _Sizes(row, np.concatenate(self._more) if any(sparse[number] for number in numbers) else None)

    def _read(self, numbers: range, at_once: int) -> Iterator[Batch]:
        """Read some columns, about ``at_once`` bytes at a time."""
        widest, sizes = self._types(), self._sizes(numbers)
        offsets = [0] * len(self._shapes)
        taken = [0] * len(self._shapes)
        start = 0
        for run in self._runs:
            end = start + run.rows
            while start < end:
                stop = min(sizes.reach(start, at_once), end, start + SPARSE_AT_ONCE if any(self._sparse) else end)
                columns = []
                for number in numbers:
                    file, shape = self._file(number), (stop - start, *self._shapes[number])
                    if self._sparse[number]:
                        part = _load_sparse(file, shape, offsets[number], taken[number])
                        offsets[number] += 8 * len(part.indptr) - 8
                        taken[number] += len(part.data)
                    else:
                        part = _load(file, run.types[number], shape, offsets[number])
                        offsets[number] += part.nbytes
                        part = part.astype(widest[number], copy=False)
                    columns.append(part)
                yield tuple(columns)
                start = stop

    def column(self, number: int) -> Iterator[Column]:
        """Read one column from the beginning, some records at a time."""
        if self.count:
            for (part,) in self._read(range(number, number + 1), AT_ONCE):
                yield part

    def by_place(
        self, order: Ints, lengths: Ints, *, memory: int = 2**28, convert: Convert | None = None
    ) -> Iterator[tuple[int, Batch]]:
        """Lay the records out and read them, place after place: ``column[order[start : start + length]]`` for each.

        Places without records are passed over. A place that takes more than ``memory`` bytes comes in consecutive
        parts, each with the place's number. In memory there are that many bytes, a copy of the place at hand, and
        a few for each record.

        ``convert`` is given the columns of some records at a time, once for each record, and returns what to lay out
        instead: as many rows, of the same types and shapes at every call. A sparse column may become dense, or keep as
        many numbers. The arrays that come out are not copied again: they may be views, not to be written to.
        """
        if memory < 1:
            raise BadPlan(f"memory={memory}: give a number of bytes of at least 1.")
        _check_layout(order, lengths, self.count)
        return self._by_place(order, lengths, memory, convert) if self.count else iter(())

    def _by_place(
        self, order: Ints, lengths: Ints, memory: int, convert: Convert | None
    ) -> Iterator[tuple[int, Batch]]:
        parts = self._read(range(len(self._shapes)), max(AT_ONCE, memory // 16))
        if convert is not None:
            parts = _converted(parts, convert)
        parts, model = _peeked(parts)
        row = sum(8 if is_sparse(column) else _row_bytes(column.dtype, column.shape[1:]) for column in model)
        more = None
        if any(map(is_sparse, model)):  # twice, for they are put together
            more = 2 * np.concatenate(self._more)[order]
        cuts = _cuts(lengths, _Sizes(row, more), memory)
        places = np.flatnonzero(lengths)
        ends = np.cumsum(lengths)[places]
        if len(cuts) == 2:
            yield from _in_order(_gathered(parts, model, self.count), order, 0, places, ends)
            return
        with tempfile.TemporaryDirectory(prefix="buckets-", dir=self._folder) as name:
            files = [Path(name) / str(number) for number in range(len(model))]
            _deal(parts, order, cuts, files)
            for bucket, (start, stop) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
                ranks = _ranks(order[start:stop])
                yield from _in_order(_collected(files, model, bucket, stop - start), ranks, start, places, ends)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Say so if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FullStore(f"{folder}: not enough disk space for the records; free some, or use another disk.") from error


def _bytes(column: AnyArray) -> memoryview:
    """Return the bytes of a contiguous array."""
    return column.reshape(-1).view(np.uint8).data


def _append(file: Path, array: AnyArray) -> None:
    with open(file, "ab", opener=private) as stream:
        stream.write(_bytes(array))


def _files(file: Path, bucket: str = "") -> tuple[Path, Path, Path]:
    """Return the files of a column; those of the numbers of a sparse one and their indices come last."""
    return file, file.with_name(f"{file.name}-data{bucket}"), file.with_name(f"{file.name}-indices{bucket}")


def _arrays(column: Column) -> tuple[AnyArray, ...]:
    """Return what is written of a column: of a sparse one, how many numbers each record has, these, their indices."""
    if not is_sparse(column):
        return (column,)
    indices = column.indices.astype(index_type(column.shape[1]), copy=False)
    return counts_in(column).astype(np.int64), np.ascontiguousarray(column.data), np.ascontiguousarray(indices)


def _number_bytes(column: Column) -> int:
    """Return how many bytes a number of a sparse column takes, with its index."""
    return int(column.dtype.itemsize + np.dtype(index_type(column.shape[1])).itemsize)


def _load(file: Path, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> AnyArray:
    """Read an array from a file."""
    return np.fromfile(file, dtype, prod(shape), offset=offset).reshape(shape)


def _load_sparse(file: Path, shape: tuple[int, ...], offset: int, taken: int, bucket: str = "") -> Column:
    """Read rows of a sparse column, of which so many numbers were read before."""
    rows, width = shape
    counts, numbers, indices = _files(file, bucket)
    each = _load(counts, np.int64, (rows,), offset)
    ends = pointers(each, max(width, int(each.sum())))
    kind = np.dtype(index_type(width))
    data = _load(numbers, np.float64, (ends.item(-1),), 8 * taken)
    return csr(data, _load(indices, kind, (ends.item(-1),), kind.itemsize * taken), ends, width)


def _row_bytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return how many bytes one record takes in a dense column."""
    return dtype.itemsize * prod(shape)


def _check_layout(order: Ints, lengths: Ints, count: int) -> None:
    """Raise unless the layout has every record once."""
    if len(order) != count or int(lengths.sum()) != count:
        raise BadRecords(
            f"order has {len(order)} records and lengths {int(lengths.sum())}, the spool {count}: "
            "lay out each of them once."
        )
    seen = np.zeros(count, dtype=bool)
    seen[order] = True
    if not seen.all():
        raise BadRecords(f"order: record {int(seen.argmin())} is missing; lay out each record once.")


def _converted(parts: Iterator[Batch], convert: Convert) -> Iterator[Batch]:
    """Convert each part, and raise if the result is not of one form."""
    form = None
    for part in parts:
        columns = tuple([column if is_sparse(column) else np.ascontiguousarray(column) for column in convert(part)])
        count = rows_in(part[0])
        if not columns or any(rows_in(column) != count for column in columns):
            raise BadRecords(
                f"convert: gave {[rows_in(column) for column in columns]} rows for {count} records; "
                "return one row for each."
            )
        new = [(column.dtype, column.shape[1:], is_sparse(column)) for column in columns]
        form = form or new
        if new != form:
            raise BadRecords(f"convert: gave {new}, and {form} before; return the same types and shapes at every call.")
        yield columns


def _peeked(parts: Iterator[Batch]) -> tuple[Iterator[Batch], Batch]:
    """Return the same parts, and arrays of their types and shapes without records."""
    first = next(parts)
    return chain([first], parts), tuple([column[:0].copy() for column in first])


def _cuts(lengths: Ints, sizes: _Sizes, memory: int) -> Ints:
    """Cut the layout into stretches of up to ``memory`` bytes: within a place only if it is larger than that."""
    ends = np.cumsum(lengths)
    cuts = [0]
    while cuts[-1] < ends[-1]:
        reach = sizes.reach(cuts[-1], memory)
        last = int(np.searchsorted(ends, reach, side="right")) - 1
        whole = int(ends[last]) if last >= 0 else 0
        cuts.append(whole if whole > cuts[-1] else reach)
    return np.array(cuts)


def _gathered(parts: Iterator[Batch], model: Batch, count: int) -> Batch:
    """Put all parts together in memory."""
    columns = [
        [column] if is_sparse(column) else np.empty((count, *column.shape[1:]), column.dtype) for column in model
    ]
    start = 0
    for part in parts:
        stop = start + rows_in(part[0])
        for column, rows in zip(columns, part, strict=True):
            if isinstance(column, list):
                column.append(rows)
            else:
                column[start:stop] = rows
        start = stop
    return tuple([stack(column) if isinstance(column, list) else column for column in columns])


def _deal(parts: Iterator[Batch], order: Ints, cuts: Ints, files: list[Path]) -> None:
    """Write each record to the bucket of its stretch of the layout; in a bucket they lie by number.

    There is a file for each column. It has the last bucket first, so that the first can be cut off. The numbers of
    sparse columns, of which there may be any number, have a file for each bucket.
    """
    buckets = np.empty(len(order), dtype=np.min_scalar_type(len(cuts)))
    for bucket, (first, stop) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
        buckets[order[first:stop]] = bucket
    filled = cuts[-1] - cuts[1:]
    start = 0
    with _writing(files[0].parent), ExitStack() as stack:
        streams = [stack.enter_context(open(file, "wb", opener=private)) for file in files]
        for part in parts:
            mine = buckets[start : start + rows_in(part[0])]
            start += len(mine)
            by_bucket = np.argsort(mine, kind="stable")
            present, begins = np.unique(mine[by_bucket], return_index=True)
            stops = np.append(begins[1:], len(mine))
            for stream, file, column in zip(streams, files, part, strict=True):
                ordered = column[by_bucket]
                for bucket, first, stop in zip(present.tolist(), begins.tolist(), stops.tolist(), strict=True):
                    rows, *numbers = _arrays(ordered[first:stop])
                    stream.seek(int(filled[bucket]) * (rows.nbytes // len(rows)))
                    stream.write(_bytes(rows))
                    for more, array in zip(_files(file, f"-{bucket}")[1:], numbers, strict=False):
                        _append(more, array)
            filled[present] += stops - begins


def _collected(files: list[Path], model: Batch, bucket: int, count: int) -> Batch:
    """Take a bucket of ``count`` records, which lies last, off the files."""
    columns = []
    for file, column in zip(files, model, strict=True):
        shape = (count, *column.shape[1:])
        offset = file.stat().st_size - (8 * count if is_sparse(column) else column.itemsize * prod(shape))
        if is_sparse(column):
            columns.append(_load_sparse(file, shape, offset, 0, f"-{bucket}"))
            for numbers in _files(file, f"-{bucket}")[1:]:
                numbers.unlink()
        else:
            columns.append(_load(file, column.dtype, shape, offset))
        os.truncate(file, offset)
    return tuple(columns)


def _ranks(numbers: Ints) -> Ints:
    """Return how many of the others are below each of some distinct numbers."""
    ranks = np.empty_like(numbers)
    ranks[np.argsort(numbers)] = np.arange(len(numbers))
    return ranks


def _in_order(bucket: Batch, ranks: Ints, start: int, places: Ints, ends: Ints) -> Iterator[tuple[int, Batch]]:
    """Give out a bucket's records by place; ``ranks`` says where each lies, in the order of the layout.

    The bucket begins at record ``start`` of the layout, where ``places`` (those with records) end at ``ends``.
    """
    stop = start + len(ranks)
    first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
    borders = np.concatenate([[start], np.minimum(ends[first : last + 1], stop)]) - start
    row = max(1, sum(array.nbytes for column in bucket for array in _arrays(column)) // len(ranks))
    groups = np.unique(np.searchsorted(borders[1:], np.arange(0, len(ranks), max(1, AT_ONCE // row)), side="right"))
    for begin, end in zip(groups.tolist(), [*groups[1:].tolist(), len(borders) - 1], strict=True):
        base = int(borders[begin])
        chosen = ranks[base : borders[end]]
        columns = [column[chosen] for column in bucket]
        edges = (borders[begin : end + 1] - base).tolist()
        for place, left, right in zip(places[first + begin : first + end].tolist(), edges, edges[1:], strict=False):
            yield place, tuple([column[left:right] for column in columns])
