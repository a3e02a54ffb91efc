"""The random projection: signs made from a key, and sums of signed features that are exact in any order."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.checking import check_positive
from expunge.base.columns import is_sparse
from expunge.base.errors import BadPlan, BadRecords
from expunge.base.grid import grid_unit
from expunge.base.norms import NORMS, as_table, column_numbers, row_norms, row_numbers
from expunge.base.types import AnyArray, Array
from expunge.engine.randomness import KEY_BYTES

COLUMNS = 512
"""How many columns of the matrix are made together. It is a constant of the file format."""
MOST_FEATURES = 2**26
"""Of how many columns rows may be projected; the key says nothing of the room that their weights need."""
MOST_KEPT = 2**26
"""Up to how many bytes of signs are kept in memory; more are made anew each time."""
NUMBERS_AT_ONCE = 2**20
"""How many numbers of dense rows are rounded at a time."""
LONGEST = 2.0
"""Projected rows take part with at most so many times the length of the others, as in the paper."""
_FINE = 256
"""In how many parts a stretch of 1 to `LONGEST` is divided."""


def stretch(components: int, records: int, rho: float) -> float:
    """Return how many times their length projected rows may have: but with probability ρ/2, none of them has more.

    It is the smallest multiple s of 1/256 above 1 for which the bounds on P(|Jx| ≥ s|x|), (s² exp(1 - s²))^(k/2) for
    each row, add up to no more than ρ/2; and at most 2. (docs/guarantee.md#the-random-projection)

    >>> stretch(88, 2**14, 0.1), stretch(1000, 2**14, 0.1), stretch(4, 2**14, 0.1)
    (1.40234375, 1.1171875, 2.0)
    """
    least = math.log(2.0 * records / rho)
    factors = (1.0 + part / _FINE for part in range(1, round(_FINE * (LONGEST - 1.0))))
    return next((s for s in factors if 0.5 * components * (s * s - 1.0 - 2.0 * math.log(s)) >= least), LONGEST)


@dataclass(frozen=True)
class Projection:
    """A matrix J of random signs over √components, made from a key: it preserves lengths and angles of any rows.

    Rows longer than ``norm`` are shortened to it, and rounded to a grid on which sums of signed features are exact: so
    a projected row is the same to the last bit in whatever batch, order and storage it comes. Of the matrix nothing is
    kept but the key. (docs/guarantee.md#the-random-projection)

    >>> projection = Projection(bytes(32), features=1000, components=64)
    >>> np.unique(projection.apply(np.eye(3, 1000))).tolist()
    [-0.125, 0.125]
    """

    key: bytes
    features: int
    components: int
    norm: float = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.key, bytes) and len(self.key) == KEY_BYTES):
            raise BadPlan(f"key: give {KEY_BYTES} bytes.")
        check_positive("features", self.features, whole=True)
        check_positive("components", self.components, whole=True)
        if self.features > MOST_FEATURES:
            raise BadPlan(
                f"features={self.features:,}: at most {MOST_FEATURES:,} can be projected; hash them to fewer."
            )
        if self.components > self.features:
            raise BadPlan(f"components={self.components}: give a whole number from 1 to {self.features}, the features.")
        if not NORMS[0] <= self.norm <= NORMS[1]:
            raise BadPlan(f"norm={self.norm!r}: give a number from {NORMS[0]:g} to {NORMS[1]:g}.")

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # signs are made again

    def apply(self, rows: Any) -> Array:
        """Return Jx for every row x of a dense or sparse table, which stays what it is until it is projected."""
        rows = as_table(rows)
        if rows.shape[1] != self.features:
            raise BadRecords(f"X: {rows.shape[1]} columns; this projection is for {self.features}.")
        sums = np.zeros((rows.shape[0], self.components))  # of whole numbers below 2⁵³: exact in any order
        factors = self.norm / self._unit / np.maximum(_lengths(rows), self.norm)
        if is_sparse(rows):
            self._add_sparse(rows, factors, sums)
        else:
            for some in _parts(rows):
                self._add_dense(rows[some], factors[some], sums[some])
        sums *= self._unit
        sums /= math.sqrt(self.components)
        return sums

    def back(self, weights: Array) -> Array:
        """Return weights @ J: the weights of the features, from those of the components, one row for each output."""
        weights = np.asarray(weights, dtype=np.float64)
        if weights.ndim != 2 or weights.shape[1] != self.components:
            raise BadRecords(f"weights: expected rows of {self.components} numbers, got shape {weights.shape}.")
        found = np.empty((len(weights), self.features))
        for block, columns in self._blocks():
            found[:, columns] = weights @ self._signs(self._packed(block)).T
        found /= math.sqrt(self.components)
        return found

    @property
    def _bytes(self) -> int:
        """How many bytes the signs of a column have."""
        return -(-self.components // 8)

    @property
    def _unit(self) -> float:
        """Features are rounded to multiples of this: sums of any of them, of either sign, have at most 53 digits."""
        return grid_unit(self.norm * math.sqrt(self.features), 52)

    @cached_property
    def _kept(self) -> dict[int, AnyArray]:
        """Blocks of packed signs that were made, by number."""
        return {}

    def _blocks(self) -> Iterator[tuple[int, slice]]:
        """Give the number of each block of columns, and which columns it has."""
        for block, start in enumerate(range(0, self.features, COLUMNS)):
            yield block, slice(start, min(start + COLUMNS, self.features))

    def _packed(self, block: int) -> AnyArray:
        """Return the signs of a block of columns as bits, a row for each column."""
        found = self._kept.get(block)
        if found is None:
            columns = min(COLUMNS, self.features - block * COLUMNS)
            source = hashlib.shake_256(self.key + b"projection" + block.to_bytes(8, "little"))
            found = np.frombuffer(source.digest(columns * self._bytes), dtype=np.uint8).reshape(columns, self._bytes)
            if self.features * self._bytes <= MOST_KEPT:
                self._kept[block] = found
        return found

    def _signs(self, packed: AnyArray) -> Array:
        """Return packed signs as numbers, a row for each column."""
        return np.asarray(1.0 - 2.0 * np.unpackbits(packed, axis=1, count=self.components, bitorder="little"))

    def _add_dense(self, rows: Array, factors: Array, sums: Array) -> None:
        whole = rows * factors[:, None]
        np.trunc(whole, out=whole)
        for block, columns in self._blocks():
            sums += whole[:, columns] @ self._signs(self._packed(block))

    def _add_sparse(self, rows: Any, factors: Array, sums: Array) -> None:
        """Add only what columns with a number add: they are taken together from their blocks."""
        from scipy import sparse

        used, positions = np.unique(column_numbers(rows), return_inverse=True)
        whole = np.trunc(rows.data[: rows.nnz] * factors[row_numbers(rows)])
        table = sparse.csc_array((whole, (row_numbers(rows), positions)), shape=(rows.shape[0], len(used)))
        for start in range(0, len(used), COLUMNS):
            columns = used[start : start + COLUMNS]
            blocks, firsts = np.unique(columns // COLUMNS, return_index=True)
            inside = np.split(columns % COLUMNS, firsts[1:])
            packed = [self._packed(int(block))[some] for block, some in zip(blocks, inside, strict=True)]
            sums += table[:, start : start + COLUMNS].tocsr() @ self._signs(np.concatenate(packed))


def _parts(rows: AnyArray) -> Iterator[slice]:
    """Give rows a few at a time, so many that they have about `NUMBERS_AT_ONCE` numbers."""
    count = max(1, NUMBERS_AT_ONCE // rows.shape[1])
    for start in range(0, len(rows), count):
        yield slice(start, start + count)


def _lengths(rows: Any) -> Array:
    """Return the norm of every row, the same to the last bit for dense and sparse ones: squares are added in order."""
    if is_sparse(rows):
        return row_norms(rows)
    lengths = np.empty(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):
        for some in _parts(rows):
            part = rows[some].astype(np.float64, copy=False)
            lengths[some] = np.sqrt(np.cumsum(part * part, axis=1)[:, -1])
    if not np.isfinite(lengths).all():  # NaN, infinity, or a square that overflows
        from scipy import sparse

        return row_norms(sparse.csr_array(rows))
    return lengths
