"""The tables of a transcript, and the lengths of the places, in pieces of a few pages each."""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.base.errors import CorruptStore
from expunge.base.types import AnyArray, Array, Ints
from expunge.engine.transcript import ArrayRows
from expunge.store.file import StoreFile, Table

PIECE = 2**15
"""About how many bytes are written as one."""


def as_numbers(file: StoreFile, table: Table, number: int, content: memoryview, dtype: Any) -> AnyArray:
    """Return the content of a row as an array of numbers; it is not copied."""
    if len(content) % np.dtype(dtype).itemsize:
        raise CorruptStore(f"{file.path}: {table}, row {number} is not whole; restore a backup.")
    return np.frombuffer(content, dtype)


def all_numbers(file: StoreFile, table: Table, dtype: Any) -> AnyArray:
    """Return the contents of all rows as one array of numbers."""
    pieces = [as_numbers(file, table, number, content, dtype) for number, content in file.all(table)]
    return np.concatenate([np.zeros(0, dtype), *pieces])


class StoredRows:
    """Rows in a store: read as a whole when first needed, written through in pieces."""

    def __init__(self, file: StoreFile, table: Table, width: int, steps: int | None = None) -> None:
        self._file = file
        self._table = table
        self._width = width
        self._expected = steps
        self._at_once = max(1, PIECE // max(8 * width, 1))
        self._rows: ArrayRows | None = None

    @classmethod
    def store(cls, file: StoreFile, table: Table, array: Array) -> StoredRows:
        """Write a table again."""
        rows = cls(file, table, array.shape[1])
        rows._rows = ArrayRows(array)
        file.drop(table, 0)
        rows._put(0, len(array))
        return rows

    @property
    def _loaded(self) -> ArrayRows:
        if self._rows is None:
            numbers = all_numbers(self._file, self._table, "<f8").astype(np.float64, copy=False)
            if len(numbers) % max(self._width, 1):
                raise CorruptStore(f"{self._file.path}: {self._table}: a row is not whole; restore a backup.")
            rows = numbers.reshape(-1, self._width)
            if self._expected not in (None, len(rows)):
                raise CorruptStore(
                    f"{self._file.path}: {self._table}: {len(rows)} rows for {self._expected} steps; restore a backup."
                )
            self._rows = ArrayRows(rows)
        return self._rows

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and numbers a step."""
        return self._loaded.shape

    def __getitem__(self, rows: Any) -> Array:
        return self._loaded[rows]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._loaded.array, dtype=dtype, copy=copy)

    def write(self, start: int, block: Array) -> None:
        """Overwrite the rows from ``start`` on."""
        self._loaded.write(start, block)
        self._put(start, start + len(block))

    def resize(self, steps: int) -> None:
        """Drop or add rows at the end."""
        have = self._loaded.shape[0]
        self._loaded.resize(steps)
        self._put(min(have, steps), steps)
        self._file.drop(self._table, -(-steps // self._at_once))

    def _put(self, first: int, stop: int) -> None:
        """Write the pieces of some rows; of one that is cut off, what is left of it."""
        at_once, array = self._at_once, self._loaded.array
        begin = first // at_once if first < stop else (first - 1) // at_once if first % at_once else stop
        for piece in range(begin, -(-stop // at_once)):
            part = array[piece * at_once : (piece + 1) * at_once]
            self._file.put(self._table, piece, part.astype("<f8", copy=False).tobytes())

    def damage(self) -> str | None:
        """Name what changed in memory other than by `write` and `resize`."""
        return self._loaded.damage()


class StoredNumbers:
    """A list of whole numbers in a store, of which a few are changed at a time."""

    def __init__(self, file: StoreFile, table: Table) -> None:
        self._file = file
        self._table = table

    def read(self) -> Ints:
        """Return all of them."""
        return all_numbers(self._file, self._table, "<i8").astype(np.int64, copy=False)

    def write(self, numbers: Ints, changed: AnyArray) -> None:
        """Write the pieces in which some positions lie."""
        at_once = PIECE // 8
        for piece in sorted({*(changed // at_once).tolist()}):
            self._put(numbers, piece)

    def resize(self, numbers: Ints, have: int) -> None:
        """Write what changes where ``have`` numbers became more or fewer."""
        at_once, stop = PIECE // 8, len(numbers)
        for piece in range(min(have, stop) // at_once, -(-stop // at_once)):
            self._put(numbers, piece)
        self._file.drop(self._table, -(-stop // at_once))

    def _put(self, numbers: Ints, piece: int) -> None:
        at_once = PIECE // 8
        part = numbers[piece * at_once : (piece + 1) * at_once]
        self._file.put(self._table, piece, part.astype("<i8", copy=False).tobytes())
