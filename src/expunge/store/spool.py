"""Records on their way into a store: written down as they come, then read back place by place.

A `Spool` holds more records than memory does. To lay them out it deals them into bucket files, each a stretch of the
layout that fits into memory, and then puts one bucket after the other in order: every byte is read and written
twice, in long runs.
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

from expunge.errors import BadPlan, BadRecords, FullStore, StoreError
from expunge.store.file import private
from expunge.types import AnyArray, Ints

Arrays = tuple[AnyArray, ...]
Convert = Callable[[Arrays], Arrays]

AT_ONCE = 2**22
"""About how many bytes are read, and how many of a bucket are put in order, at a time."""


@dataclass
class _Run:
    """Consecutive records whose strings are equally wide."""

    types: list[np.dtype[Any]]
    rows: int = 0


class Spool:
    """Columns of records in a folder of temporary files, which it makes and deletes.

    Whoever opens it closes it, by ``with`` or `close`; at the latest it is deleted with the object. A process that
    is killed cannot do so: then the folder stays, and must be deleted.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise StoreError(
                f"{folder}: is there already. If no other process is using it, one was killed and left it: delete it."
            ) from error
        self._remove = weakref.finalize(self, shutil.rmtree, folder)
        self._folder = folder
        self._shapes: list[tuple[int, ...]] = []
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

    def add(self, columns: Arrays) -> None:
        """Append records: one array for each column, always of the same types and shapes (strings may get wider).

        After `BadRecords` the records before are still there; after any other error the spool is good for nothing.
        """
        columns = tuple([np.ascontiguousarray(column) for column in columns])
        self._check(columns)
        types = [column.dtype for column in columns]
        if not self._runs or self._runs[-1].types != types:
            self._runs.append(_Run(types))
            self._shapes = [column.shape[1:] for column in columns]
        with _writing(self._folder):
            for number, column in enumerate(columns):
                with open(self._file(number), "ab", opener=private) as file:
                    file.write(_bytes(column))
        self._runs[-1].rows += len(columns[0])
        self.count += len(columns[0])

    def _check(self, columns: Arrays) -> None:
        """Raise unless the columns are equally long and go with those before."""
        if not columns:
            raise BadRecords("columns: give at least one array of records.")
        if self._runs and len(columns) != len(self._shapes):
            raise BadRecords(f"columns: {len(columns)} given, {len(self._shapes)} before; give the same columns.")
        for number, column in enumerate(columns):
            if column.dtype.hasobject:
                raise BadRecords(f"columns[{number}]: Python objects; convert them to numbers or strings.")
            if len(column) != len(columns[0]):
                raise BadRecords(
                    f"columns[{number}] has {len(column)} rows, columns[0] has {len(columns[0])}: give every column "
                    "one row for each record."
                )
            if self._runs and not self._fits(number, column):
                raise BadRecords(
                    f"columns[{number}]: {column.dtype} of shape {column.shape[1:]} a record, "
                    f"{self._runs[-1].types[number]} of shape {self._shapes[number]} before; convert it."
                )

    def _fits(self, number: int, column: AnyArray) -> bool:
        """Say whether a column has the type (for strings, of any width) and shape of those before."""
        before = self._runs[-1].types[number]
        alike = column.dtype.kind == "U" if before.kind == "U" else column.dtype == before
        return alike and column.shape[1:] == self._shapes[number]

    def _file(self, number: int) -> Path:
        return self._folder / f"column-{number}"

    def _types(self) -> list[np.dtype[Any]]:
        """Return the columns' types; strings are as wide as the widest."""
        return [np.result_type(*each) for each in zip(*(run.types for run in self._runs), strict=True)]

    def _read(self, numbers: range, rows: int) -> Iterator[Arrays]:
        """Read some columns, up to ``rows`` records at a time."""
        widest = self._types()
        offsets = [0] * len(self._shapes)
        for run in self._runs:
            for start in range(0, run.rows, rows):
                length = min(rows, run.rows - start)
                columns = []
                for number in numbers:
                    part = _load(
                        self._file(number), run.types[number], (length, *self._shapes[number]), offsets[number]
                    )
                    offsets[number] += part.nbytes
                    columns.append(part.astype(widest[number], copy=False))
                yield tuple(columns)

    def column(self, number: int) -> Iterator[AnyArray]:
        """Read one column from the beginning, some records at a time."""
        if not self.count:
            return
        rows = max(1, AT_ONCE // max(1, _row_bytes([self._types()[number]], [self._shapes[number]])))
        for (part,) in self._read(range(number, number + 1), rows):
            yield part

    def by_place(
        self, order: Ints, lengths: Ints, *, memory: int = 2**28, convert: Convert | None = None
    ) -> Iterator[tuple[int, Arrays]]:
        """Lay the records out and read them, place after place: ``column[order[start : start + length]]`` for each.

        Places without records are passed over. A place that takes more than ``memory`` bytes comes in consecutive
        parts, each with the place's number. In memory there are that many bytes, a copy of the place at hand, and
        a few for each record.

        ``convert`` is given the columns of some records at a time, once for each record, and returns what to lay out
        instead: as many rows, of the same types and shapes at every call. The arrays that come out are not copied
        again: they may be views, not to be written to.
        """
        if memory < 1:
            raise BadPlan(f"memory={memory}: give a number of bytes of at least 1.")
        _check_layout(order, lengths, self.count)
        return self._by_place(order, lengths, memory, convert) if self.count else iter(())

    def _by_place(
        self, order: Ints, lengths: Ints, memory: int, convert: Convert | None
    ) -> Iterator[tuple[int, Arrays]]:
        row = _row_bytes(self._types(), self._shapes)
        parts = self._read(range(len(self._shapes)), max(1, max(AT_ONCE, memory // 16) // max(1, row)))
        if convert is not None:
            parts = _converted(parts, convert)
        parts, model = _peeked(parts)
        row = _row_bytes([column.dtype for column in model], [column.shape[1:] for column in model])
        cuts = _cuts(lengths, max(1, memory // max(1, row)))
        places = np.flatnonzero(lengths)
        ends = np.cumsum(lengths)[places]
        if len(cuts) == 2:
            yield from _in_order(_gathered(parts, model, self.count), order, 0, places, ends)
            return
        with tempfile.TemporaryDirectory(prefix="buckets-", dir=self._folder) as name:
            files = [Path(name) / str(number) for number in range(len(model))]
            _deal(parts, order, cuts, files)
            for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                ranks = _ranks(order[start:stop])
                yield from _in_order(_collected(files, model, stop - start), ranks, start, places, ends)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Say so if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FullStore(f"{folder}: no room on the disk for the records; make room, or use another disk.") from error


def _bytes(column: AnyArray) -> memoryview:
    """Return the bytes of a contiguous array."""
    return column.reshape(-1).view(np.uint8).data


def _load(file: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int = 0) -> AnyArray:
    """Read an array from a file."""
    return np.fromfile(file, dtype, prod(shape), offset=offset).reshape(shape)


def _row_bytes(types: list[np.dtype[Any]], shapes: list[tuple[int, ...]]) -> int:
    """Return how many bytes one record takes."""
    return sum(dtype.itemsize * prod(shape) for dtype, shape in zip(types, shapes, strict=True))


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
        raise BadRecords(f"order: record {int(seen.argmin())} is left out; lay out each record once.")


def _converted(parts: Iterator[Arrays], convert: Convert) -> Iterator[Arrays]:
    """Convert each part, and raise if the result is not of one form."""
    form = None
    for part in parts:
        columns = tuple([np.ascontiguousarray(column) for column in convert(part)])
        if not columns or any(len(column) != len(part[0]) for column in columns):
            raise BadRecords(
                f"convert: gave {[len(column) for column in columns]} rows for {len(part[0])} records; "
                "return one row for each."
            )
        new = [(column.dtype, column.shape[1:]) for column in columns]
        form = form or new
        if new != form:
            raise BadRecords(f"convert: gave {new}, and {form} before; return the same types and shapes at every call.")
        yield columns


def _peeked(parts: Iterator[Arrays]) -> tuple[Iterator[Arrays], Arrays]:
    """Return the same parts, and arrays of their types and shapes without records."""
    first = next(parts)
    return chain([first], parts), tuple([column[:0].copy() for column in first])


def _cuts(lengths: Ints, capacity: int) -> Ints:
    """Cut the layout into stretches of up to ``capacity`` records: within a place only if it is larger than that."""
    ends = np.cumsum(lengths)
    cuts = [0]
    while cuts[-1] < ends[-1]:
        last = int(np.searchsorted(ends, cuts[-1] + capacity, side="right")) - 1
        whole = int(ends[last]) if last >= 0 else 0
        cuts.append(whole if whole > cuts[-1] else cuts[-1] + capacity)
    return np.array(cuts)


def _gathered(parts: Iterator[Arrays], model: Arrays, count: int) -> Arrays:
    """Put all parts together in memory."""
    columns = tuple([np.empty((count, *column.shape[1:]), column.dtype) for column in model])
    start = 0
    for part in parts:
        stop = start + len(part[0])
        for column, rows in zip(columns, part, strict=True):
            column[start:stop] = rows
        start = stop
    return columns


def _deal(parts: Iterator[Arrays], order: Ints, cuts: Ints, files: list[Path]) -> None:
    """Write each record to the bucket of its stretch of the layout; in a bucket they lie by number.

    There is a file for each column. It has the last bucket first, so that the first can be cut off.
    """
    buckets = np.empty(len(order), dtype=np.min_scalar_type(len(cuts)))
    for bucket, (first, stop) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
        buckets[order[first:stop]] = bucket
    filled = cuts[-1] - cuts[1:]
    start = 0
    with _writing(files[0].parent), ExitStack() as stack:
        streams = [stack.enter_context(open(file, "wb", opener=private)) for file in files]
        for part in parts:
            mine = buckets[start : start + len(part[0])]
            start += len(mine)
            by_bucket = np.argsort(mine, kind="stable")
            present, begins = np.unique(mine[by_bucket], return_index=True)
            for stream, column in zip(streams, part, strict=True):
                for bucket, rows in zip(present.tolist(), np.split(column[by_bucket], begins[1:]), strict=True):
                    stream.seek(int(filled[bucket]) * (rows.nbytes // len(rows)))
                    stream.write(_bytes(rows))
            filled[present] += np.diff(begins, append=len(mine))


def _collected(files: list[Path], model: Arrays, count: int) -> Arrays:
    """Take the bucket that lies last, of ``count`` records, off the files."""
    columns = []
    for file, column in zip(files, model, strict=True):
        shape = (count, *column.shape[1:])
        offset = file.stat().st_size - column.itemsize * prod(shape)
        columns.append(_load(file, column.dtype, shape, offset))
        os.truncate(file, offset)
    return tuple(columns)


def _ranks(numbers: Ints) -> Ints:
    """Return how many of the others are below each of some distinct numbers."""
    ranks = np.empty_like(numbers)
    ranks[np.argsort(numbers)] = np.arange(len(numbers))
    return ranks


def _in_order(bucket: Arrays, ranks: Ints, start: int, places: Ints, ends: Ints) -> Iterator[tuple[int, Arrays]]:
    """Give out a bucket's records by place; ``ranks`` says where each lies, in the order of the layout.

    The bucket begins at record ``start`` of the layout, where ``places`` (those with records) end at ``ends``.
    """
    stop = start + len(ranks)
    first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
    borders = np.concatenate([[start], np.minimum(ends[first : last + 1], stop)]) - start
    row = max(1, sum(column.nbytes for column in bucket) // len(ranks))
    groups = np.unique(np.searchsorted(borders[1:], np.arange(0, len(ranks), max(1, AT_ONCE // row)), side="right"))
    for begin, end in zip(groups.tolist(), [*groups[1:].tolist(), len(borders) - 1], strict=True):
        base = int(borders[begin])
        chosen = ranks[base : borders[end]]
        columns = [column[chosen] for column in bucket]
        edges = (borders[begin : end + 1] - base).tolist()
        for place, left, right in zip(places[first + begin : first + end].tolist(), edges, edges[1:], strict=False):
            yield place, tuple([column[left:right] for column in columns])
