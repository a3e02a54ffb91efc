"""Columns of records, dense or sparse: what has to be done differently for the two kinds.

A sparse column is a `scipy.sparse.csr_array` of 64-bit floats. In each row the indices ascend, none appears twice
and no zero is stored, so that equal records are equal to the last bit. Both kinds have ``shape`` and are cut
alike: ``column[first:stop]``, ``column[numbers]``, ``column[mask]``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from expunge.base.types import AnyArray, Column, Ints

LARGEST = np.iinfo(np.int32).max
AT_ONCE = 2**16
"""How many numbers are looked at together."""


def is_sparse(column: object) -> bool:
    """Say whether a column is sparse, in any format."""
    if isinstance(column, np.ndarray):
        return False
    issparse = getattr(sys.modules.get("scipy.sparse"), "issparse", None)  # nothing is, before that was imported
    return issparse is not None and bool(issparse(column))


def rows_in(column: Column) -> int:
    """Return how many records a column has."""
    return int(column.shape[0])


def in_parts(numbers: AnyArray) -> Iterator[AnyArray]:
    """Cut an array into views of a few rows each, which stay in the processor's cache."""
    rows = max(1, AT_ONCE * len(numbers) // max(numbers.size, 1))
    for first in range(0, len(numbers), rows):
        yield numbers[first : first + rows]


def index_type(width: int) -> type[np.signedinteger]:
    """Return the type of the indices of rows of ``width`` numbers."""
    return np.int32 if width <= LARGEST else np.int64


def pointers(counts: AnyArray, largest: int) -> AnyArray:
    """Return where each row begins, from how many numbers each has; ``largest`` is any bound on what to count."""
    ends = np.zeros(len(counts) + 1, dtype=index_type(largest))
    np.cumsum(counts, out=ends[1:])
    return ends


def csr(data: AnyArray, indices: AnyArray, ends: AnyArray, width: int) -> Column:
    """Return a sparse column on these arrays; they are not copied."""
    from scipy import sparse

    column = sparse.csr_array((len(ends) - 1, width))  # given these arrays, it would copy views of larger ones
    column.data, column.indptr = data, ends
    column.indices = indices if indices.dtype == ends.dtype else indices.astype(ends.dtype)
    column.has_canonical_format = True
    return column


def empty(width: int) -> Column:
    """Return a sparse column without records."""
    from scipy import sparse

    return sparse.csr_array((0, width), dtype=np.float64)


def counts_in(column: Column) -> Ints:
    """Return how many numbers each row of a sparse column has."""
    return np.diff(column.indptr)


def canonical(column: Column) -> Column:
    """Return a two-dimensional column in the form that sparse columns have; what is given stays as it is."""
    from scipy import sparse

    rows = sparse.csr_array(column)
    rows.check_format(full_check=True)
    rows = rows.astype(np.float64, copy=False)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    indices = rows.indices.astype(index_type(max(rows.shape[1], len(rows.data))), copy=False)
    return csr(rows.data, indices, rows.indptr.astype(indices.dtype, copy=False), rows.shape[1])


def stack(columns: Sequence[Column]) -> Column:
    """Return the rows of all columns, one after the other, as a copy."""
    if not is_sparse(columns[0]):
        return np.concatenate(columns)
    data = np.concatenate([column.data for column in columns])
    indices = np.concatenate([column.indices for column in columns])
    counts = np.concatenate([counts_in(column) for column in columns])
    width = columns[0].shape[1]
    return csr(data, indices, pointers(counts, max(width, len(data))), width)


def narrowest(column: Column) -> Column:
    """Return strings in no more room than the longest of them needs; other columns as they are.

    >>> narrowest(np.array(["ann", "bob"], dtype="U9")).dtype.itemsize // 4
    3
    """
    if is_sparse(column) or column.dtype.kind != "U":
        return column
    return column.astype(f"U{int(np.char.str_len(column).max(initial=1))}", copy=False)


def overwrite(column: Column, rows: Column) -> None:
    """Put rows in the place of those of a column; sparse ones must have their numbers in the same places."""
    if is_sparse(column):
        column.data[:] = rows.data
    else:
        column[...] = rows


def each(column: Column) -> Iterable[AnyArray]:
    """Return the rows of a column one by one, as plain arrays."""
    if not is_sparse(column):
        return column
    return (column[row : row + 1].toarray()[0] for row in range(rows_in(column)))
