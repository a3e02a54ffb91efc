"""What the columns of a store hold, and how records lie there: stored with the model, before any of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.columns import empty, is_sparse
from expunge.base.errors import BadPlan, BadRecords
from expunge.base.types import Batch, Column

PART = 2**16
"""About how many bytes a part has."""
SPARSE_ROWS = 256
"""How many records a part has if a column is sparse."""
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
