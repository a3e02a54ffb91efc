"""Numbers in a store: the tables of a transcript, the lengths of places, in pieces of a few pages each, and the index.

The index says where a record lies: hashed ids in buckets of about a page, each in order of its hashes. A bucket's
content depends on who is in it and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.errors import CorruptStore
from expunge.base.types import AnyArray, Array, Ints, Keys
from expunge.engine.records.index import HashIndex
from expunge.engine.transcript import ArrayRows
from expunge.store.file import StoreFile, Table

PIECE = 2**15
"""About how many bytes are written as one."""
CELLS = 2**12
"""The same of sums of which a request changes single rows."""


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

    def __init__(
        self, file: StoreFile, table: Table, width: int, steps: int | None = None, piece: int | None = None
    ) -> None:
        self._file = file
        self._table = table
        self._width = width
        self._expected = steps
        self._at_once = max(1, (piece or PIECE) // max(8 * width, 1))

    @classmethod
    def store(cls, file: StoreFile, table: Table, array: Array, piece: int | None = None) -> StoredRows:
        """Write a table again."""
        rows = cls(file, table, array.shape[1], None, piece)
        rows._loaded = ArrayRows(array)
        file.drop(table, 0)
        rows._put(0, len(array))
        return rows

    @cached_property
    def _loaded(self) -> ArrayRows:
        numbers = all_numbers(self._file, self._table, "<f8").astype(np.float64, copy=False)
        if len(numbers) % max(self._width, 1):
            raise CorruptStore(f"{self._file.path}: {self._table}: a row is not whole; restore a backup.")
        rows = numbers.reshape(-1, self._width)
        if self._expected not in (None, len(rows)):
            raise CorruptStore(
                f"{self._file.path}: {self._table}: {len(rows)} rows for {self._expected} steps; restore a backup."
            )
        return ArrayRows(rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and numbers a step."""
        return self._loaded.array.shape

    def __getitem__(self, rows: Any) -> Array:
        return self._loaded.array[rows]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._loaded.array, dtype=dtype, copy=copy)

    def write(self, start: int, block: Array) -> None:
        """Overwrite the rows from ``start`` on."""
        self._loaded.write(start, block)
        self._put(start, start + len(block))

    def write_rows(self, rows: Ints, block: Array) -> None:
        """Overwrite some rows."""
        self._loaded.write_rows(rows, block)
        for row in rows.tolist():
            self._put(row, row + 1)

    def resize(self, steps: int) -> None:
        """Drop or add rows at the end."""
        have = len(self._loaded.array)
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


_ENTRY = np.dtype([("hash", "<u8"), ("value", "<i8")])
REMEMBERED = 16
"""How many buckets that were just read are kept for a moment: who is looked for is then taken out."""
FULL = 0.78
"""How full a bucket of one page is meant to be."""


def buckets_for(count: int, page: int) -> int:
    """Return a number of buckets for so many entries."""
    return max(1, -(-count * _ENTRY.itemsize // int(FULL * page)))


class StoredIndex:
    """From hashed ids to where their records lie, as `HashIndex` has it, in a store."""

    def __init__(self, file: StoreFile, table: Table, buckets: int) -> None:
        self._file = file
        self._table = table
        self.buckets = buckets
        self._recent: OrderedDict[int, AnyArray] = OrderedDict()

    @classmethod
    def store(cls, file: StoreFile, table: Table, hashed: Keys, values: Ints) -> StoredIndex:
        """Write an index again."""
        index = cls(file, table, buckets_for(len(hashed), file.page))
        file.drop(table, 0)
        for bucket, entries in index._sorted(hashed, values):
            index._put(bucket, entries)
        return index

    def _bucket(self, hashed: Keys) -> Ints:
        """Return the bucket of each hash: the buckets have equal shares of all hashes, in their order."""
        return ((hashed >> np.uint64(32)) * np.uint64(self.buckets) >> np.uint64(32)).astype(np.int64)

    def _bucket_of(self, hashed: int) -> int:
        return (hashed >> 32) * self.buckets >> 32

    def _sorted(self, hashed: Keys, values: Ints) -> Iterator[tuple[int, AnyArray]]:
        """Return entries by bucket, in order."""
        if len(hashed) == 0:
            return
        entries = np.empty(len(hashed), dtype=_ENTRY)
        order = np.lexsort((values, hashed))
        entries["hash"], entries["value"] = hashed[order], values[order]
        buckets = self._bucket(entries["hash"])
        first = np.flatnonzero(np.append(True, buckets[1:] != buckets[:-1])).tolist()
        for begin, stop in zip(first, [*first[1:], len(entries)], strict=True):
            yield buckets.item(begin), entries[begin:stop]

    def _get(self, bucket: int) -> AnyArray:
        entries = self._recent.get(bucket)
        if entries is None:
            content = self._file.get(self._table, bucket)
            if content is None:
                return np.zeros(0, dtype=_ENTRY)
            entries = as_numbers(self._file, self._table, bucket, content, _ENTRY)
            self._remember(bucket, entries)
        return entries

    def _remember(self, bucket: int, entries: AnyArray) -> None:
        self._recent[bucket] = entries
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)

    def _put(self, bucket: int, entries: AnyArray) -> None:
        self._recent.pop(bucket, None)
        if len(entries):
            self._file.put(self._table, bucket, entries.tobytes())
        else:
            self._file.drop(self._table, bucket, bucket + 1)

    # --- looking up ---

    def entries(self) -> tuple[Keys, Ints]:
        """Return all hashes and values, in order of the hashes."""
        entries = all_numbers(self._file, self._table, _ENTRY)
        return entries["hash"].astype(np.uint64), entries["value"].astype(np.int64)

    def same_as(self, other: HashIndex) -> bool:
        """Say whether both hold the same entries."""
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(self.entries(), other.entries(), strict=True))

    def find(self, hashed: int) -> list[int]:
        """Return the values of all entries with this hash."""
        entries = self._get(self._bucket_of(hashed))
        found: list[int] = entries["value"][entries["hash"] == np.uint64(hashed)].tolist()
        return found

    def first(self, hashed: Keys) -> Ints:
        """Return the value of the first entry with each hash, or -1."""
        values = np.full(len(hashed), -1, dtype=np.int64)
        for bucket, wanted in self._sorted(hashed, np.arange(len(hashed))):
            entries = self._get(bucket)
            at = np.searchsorted(entries["hash"], wanted["hash"])
            found = at < len(entries)
            found[found] = entries["hash"][at[found]] == wanted["hash"][found]
            values[wanted["value"][found]] = entries["value"][at[found]]
        return values

    # --- changing ---

    def _change(self, gone: tuple[Keys, Ints], come: tuple[Keys, Ints]) -> None:
        leaving, coming = dict(self._sorted(*gone)), dict(self._sorted(*come))
        for bucket in sorted({*leaving, *coming}):
            entries = self._get(bucket)
            if bucket in leaving:
                entries = self._without(bucket, entries, leaving[bucket])
            if bucket in coming:
                entries = np.concatenate([entries, coming[bucket]])
                entries = entries[np.lexsort((entries["value"], entries["hash"]))]
            self._put(bucket, entries)

    def _without(self, bucket: int, entries: AnyArray, gone: AnyArray) -> AnyArray:
        """Return what is left; both are in order, and one that goes takes one like it along."""
        stay, at = np.ones(len(entries), dtype=bool), -1
        starts = np.searchsorted(entries["hash"], gone["hash"]).tolist()
        for start, one in zip(starts, gone.tolist(), strict=True):
            at = max(at + 1, start)
            while at < len(entries) and entries[at].item() != one:
                at += 1
            if at >= len(entries):
                raise self._lacking(bucket)
            stay[at] = False
        return entries[stay]

    def _lacking(self, bucket: int) -> CorruptStore:
        return CorruptStore(f"{self._file.path}: {self._table}, row {bucket} lacks a record; restore a backup.")

    def add(self, hashed: Keys, values: Ints) -> None:
        """Put entries in."""
        self._change(_NOTHING, (hashed, values))

    def remove(self, hashed: Keys, values: Ints) -> None:
        """Take entries out."""
        self._change((hashed, values), _NOTHING)

    def move(self, hashed: Keys, old: Ints, new: Ints) -> None:
        """Change the values of entries."""
        changing = old != new
        self._change((hashed[changing], old[changing]), (hashed[changing], new[changing]))

    def remove_one(self, hashed: int, value: int) -> None:
        """Take an entry out."""
        bucket = self._bucket_of(hashed)
        entries = self._get(bucket)
        at = self._at(bucket, entries, hashed, value)
        self._put(bucket, np.concatenate([entries[:at], entries[at + 1 :]]))

    def move_one(self, hashed: int, old: int, new: int) -> None:
        """Change the value of an entry."""
        bucket = self._bucket_of(hashed)
        entries = self._get(bucket)
        at = self._at(bucket, entries, hashed, old)
        alone = (entries["hash"] == np.uint64(hashed)).sum() == 1
        if not alone:  # entries of one hash lie by value
            self.move(np.array([hashed], dtype=np.uint64), np.array([old]), np.array([new]))
        elif old != new:
            entries = entries.copy()
            entries["value"][at] = new
            self._put(bucket, entries)

    def _at(self, bucket: int, entries: AnyArray, hashed: int, value: int) -> int:
        """Return where an entry lies in its bucket."""
        found = np.flatnonzero((entries["hash"] == np.uint64(hashed)) & (entries["value"] == value))
        if len(found) == 0:
            raise self._lacking(bucket)
        return int(found[0])


_NOTHING: tuple[Keys, Ints] = (np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))
