"""Parts of places as bytes: some records in all their columns, among them ids, subjects and keys."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.columns import csr, empty, index_type, is_sparse, pointers
from expunge.base.errors import BadPlan, BadRecords, CorruptStore
from expunge.base.types import AnyArray, Batch, Column

PART = 2**16
"""About how many bytes a part has."""
SPARSE_ROWS = 256
"""How many records a part has if a column is sparse."""
_LAST_LETTER = 0x10FFFF
_KIND = re.compile("U|b1|[iu][1248]|f[248]")


@dataclass(frozen=True)
class ColumnType:
    """What a column holds: numbers of a ``kind`` ("f8", "i8", …) in rows of shape ``tail``.

    Strings ("U") have their length in each part. Numbers may be ``kept`` in a shorter type than they are served in.
    """

    kind: str
    tail: tuple[int, ...] = ()
    sparse: bool = False
    kept: str = ""

    def __post_init__(self) -> None:
        sides = all(0 <= side < 2**62 for side in self.tail) and (self.sparse or math.prod(self.tail) < 2**31)
        sound = _KIND.fullmatch(self.kind) and self.kept in ("", "f2", "f4", "f8") and sides
        if not sound or (self.sparse and (self.kind != "f8" or len(self.tail) != 1)):
            raise BadPlan(f"a column of {self.kind[:20]!r} in rows of {len(self.tail)} sides cannot be stored.")

    @classmethod
    def of(cls, column: Column, kept: str = "") -> ColumnType:
        """Return the type of a column."""
        if is_sparse(column):
            return cls("f8", (column.shape[1],), True)
        return cls("U" if column.dtype.kind == "U" else column.dtype.str[1:], column.shape[1:], False, kept)

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The type of the numbers in the file."""
        return np.dtype("<" + (self.kept or self.kind))

    @cached_property
    def served(self) -> np.dtype[Any]:
        """The type of the numbers in memory."""
        return np.dtype("U1" if self.kind == "U" else self.kind)

    @cached_property
    def numbers(self) -> int:
        """How many numbers a record has."""
        return math.prod(self.tail)

    def empty(self) -> Column:
        """Return such a column without records, as it is served."""
        return empty(self.tail[0]) if self.sparse else np.zeros((0, *self.tail), dtype=self.served)

    def none(self) -> Column:
        """Return such a column without records, as it is kept."""
        return self.empty() if self.sparse or self.kind == "U" else np.zeros((0, *self.tail), dtype=self.stored)

    def narrowed(self, column: Column) -> Column:
        """Return numbers with the digits that are kept, in the type in which they are served: never longer than given.

        >>> ColumnType("f8", (2,), kept="f4").narrowed(np.array([[0.1, 0.5]])).tolist()
        [[0.09999999403953552, 0.5]]
        """
        if not self.kept:
            return column
        kept = column.astype(self.stored)
        longer = np.abs(kept.astype(column.dtype)) > np.abs(column)
        kept[longer] = np.nextafter(kept[longer], self.stored.type(0.0))
        return kept.astype(column.dtype)


@dataclass(frozen=True)
class Layout:
    """How records lie in the file."""

    columns: tuple[ColumnType, ...]
    """The given columns, then ids, subjects and keys."""
    width: int
    """How many of them are given ones."""
    rows: int
    """How many records a part has, if it is not the last of its place."""

    def __post_init__(self) -> None:
        if not (0 <= self.width <= len(self.columns) <= self.width + 3 and 1 <= self.rows < 2**31):
            raise BadPlan(
                f"{len(self.columns)} columns, {self.width} of them given, in parts of {self.rows} cannot be."
            )

    @classmethod
    def of(cls, columns: Batch, width: int, kept: str = "") -> Layout:
        """Return the layout of records like these; floating-point rows of the first column are ``kept`` so."""
        types = [ColumnType.of(columns[0], kept), *(ColumnType.of(column) for column in columns[1:])]
        if any(one.sparse for one in types):
            return cls(tuple(types), width, SPARSE_ROWS)
        bytes_a_row = sum(one.numbers * one.stored.itemsize for one in types[:width])
        return cls(tuple(types), width, max(1, PART // max(bytes_a_row, 16)))

    def check_rows(self, columns: Batch, longest: int) -> None:
        """Raise if a part full of such records could be longer than a row of the file: nobody could be moved there."""
        for kind, column in zip(self.columns, columns, strict=False):
            if kind.sparse:
                most, largest = longest // self.rows // 16 - 1, int(np.diff(column.indptr).max(initial=0))
                if largest > most:
                    raise BadRecords(
                        f"columns: a record has {largest:,} numbers that are not 0; in a file, one can have {most:,}. "
                        "Leave some out, or project them."
                    )

    def write(self, columns: Batch) -> bytes:
        """Return a part as bytes."""
        written = [_written(*each) for each in zip(self.columns, columns, strict=True)]
        heads = [int(columns[0].shape[0]), *(head for head, _ in written)]
        return b"".join([struct.pack(f"<{len(heads)}Q", *heads), *(body for _, body in written)])

    def read(self, content: memoryview, name: str) -> Part:
        """Return a part."""
        try:
            return Part(self, content)
        except (struct.error, ValueError, OverflowError) as error:
            raise CorruptStore(f"{name} cannot be read ({error}); restore a backup.") from error


def _written(kind: ColumnType, column: Column) -> tuple[int, bytes]:
    """Return a number that says what is needed to read a column, and its bytes."""
    if kind.sparse:
        counts = np.diff(column.indptr).astype("<i4").tobytes()
        indices = column.indices.astype(_index_type(kind))
        return len(column.data), counts + column.data.astype("<f8").tobytes() + indices.tobytes()
    if kind.kind != "U":
        return 0, np.ascontiguousarray(column, dtype=kind.stored).tobytes()
    letters = np.ascontiguousarray(column).view(np.uint32).reshape(len(column), column.dtype.itemsize // 4)
    used = np.flatnonzero(letters.any(axis=0))
    letters = letters[:, : used.item(-1) + 1 if len(used) else 1]
    size = 1 if letters.max(initial=0) < 2**8 else 2 if letters.max(initial=0) < 2**16 else 4
    return letters.shape[1] * 8 + size, letters.astype(f"<u{size}").tobytes()


def _index_type(kind: ColumnType) -> np.dtype[Any]:
    return np.dtype(index_type(kind.tail[0])).newbyteorder("<")


def _length(kind: ColumnType, head: int, count: int) -> int:
    """Return how many bytes a column has."""
    if kind.sparse:
        return 4 * count + head * (8 + _index_type(kind).itemsize)
    if kind.kind == "U":
        if head >> 3 == 0 or head & 7 not in (1, 2, 4):
            raise ValueError("strings of an odd size")
        return count * (head >> 3) * (head & 7)
    return count * kind.numbers * kind.stored.itemsize


class Part:
    """Some records in all their columns, read from bytes when asked for."""

    __slots__ = ("_content", "_heads", "_layout", "_starts", "count")

    def __init__(self, layout: Layout, content: memoryview) -> None:
        self._layout = layout
        self._content = content
        self.count, *self._heads = struct.unpack_from(f"<{len(layout.columns) + 1}Q", content)
        if self.count > layout.rows:
            raise ValueError(f"{self.count} records")
        at = 8 * (len(layout.columns) + 1)
        self._starts = []
        for kind, head in zip(layout.columns, self._heads, strict=True):
            self._starts.append(at)
            at += _length(kind, head, self.count)
        if at != len(content):
            raise ValueError(f"{len(content)} bytes")

    def column(self, position: int) -> Column:
        """Return a column as it is kept; read-only."""
        kind, head, at = self._layout.columns[position], self._heads[position], self._starts[position]
        if kind.sparse:
            return self._sparse(kind, head, at)
        if kind.kind == "U":
            length, size = head >> 3, head & 7
            letters = np.frombuffer(self._content, f"<u{size}", self.count * length, at)
            if size == 4 and letters.max(initial=0) > _LAST_LETTER:
                raise CorruptStore("a string is not valid; restore a backup.")
            return letters.astype(np.uint32).reshape(self.count, length).view(f"U{length}")[:, 0]
        return np.frombuffer(self._content, kind.stored, self.count * kind.numbers, at).reshape(self.count, *kind.tail)

    def _sparse(self, kind: ColumnType, stored: int, at: int) -> Column:
        counts = np.frombuffer(self._content, "<i4", self.count, at)
        data = np.frombuffer(self._content, "<f8", stored, at + 4 * self.count)
        indices = np.frombuffer(self._content, _index_type(kind), stored, at + 4 * self.count + 8 * stored)
        if (
            counts.min(initial=0) < 0
            or int(counts.sum()) != stored
            or (stored and not 0 <= indices.min() <= indices.max() < kind.tail[0])
        ):
            raise CorruptStore("a sparse column is not valid; restore a backup.")
        native = indices.dtype.newbyteorder("=")
        return csr(data.copy(), indices.astype(native), pointers(counts, kind.tail[0]), kind.tail[0])

    @property
    def columns(self) -> Batch:
        """All columns, as they are kept."""
        return tuple([self.column(position) for position in range(len(self._layout.columns))])


def as_served(kind: ColumnType, column: Column) -> AnyArray:
    """Return a column in the type in which it is served."""
    return column if kind.sparse or kind.kind == "U" else column.astype(kind.served, copy=False)
