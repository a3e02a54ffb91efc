"""How long the rows of a column are, and shortening those that are too long."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np

from expunge.base.columns import is_sparse
from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array

NORMS = (1e-30, 1e30)
"""Norms between these can be squared, and stepped down from, in single precision too."""


def shortened(X: Any, norm: float) -> Any:
    """Scale rows longer than ``norm`` down to it, but for a rounding error; X itself if there are none."""
    lengths = row_norms(X)
    if lengths.max(initial=0.0) <= norm:
        return X
    return _times(X, norm / np.maximum(lengths, norm))


def row_norms(X: Any) -> Array:
    """Return the Euclidean norm of every row of a dense or sparse table.

    >>> row_norms(np.array([[3.0, 4.0], [0.0, 1e200]])).tolist()
    [5.0, 1e+200]
    """
    X = as_table(X)
    squares = _squares(X)
    lengths = np.sqrt(squares)
    for row in np.flatnonzero(~np.isfinite(squares)).tolist():  # NaN, infinity, or a square that overflows
        lengths[row] = math.hypot(*(X[[row]].toarray()[0] if is_sparse(X) else X[row]).tolist())
        if not math.isfinite(lengths[row]):
            raise BadRecords(f"X: row {row} has NaN or infinity, or is too long; fill it in, or leave out the record.")
    return lengths


def as_table(X: Any) -> Any:
    """Return a dense or sparse table of 32- or 64-bit floats; a sparse one without duplicate entries."""
    if is_sparse(X):
        X = X if X.format in ("csr", "csc") else X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    else:
        X = np.asarray(X)
    if X.ndim != 2:
        raise BadRecords(f"X: expected a table with one row for each record, got shape {X.shape}.")
    if X.dtype.kind == "O" and not is_sparse(X):  # a data frame whose columns have several types
        with suppress(TypeError, ValueError):
            X = X.astype(np.float64)
    if X.dtype.kind not in "fiub":
        raise BadRecords(f"X: expected numbers, got {X.dtype}; encode them first.")
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def _squares(X: Any) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        if is_sparse(X):
            values = X.data[: X.nnz].astype(np.float64, copy=False)
            return np.asarray(np.bincount(row_numbers(X), weights=values * values, minlength=X.shape[0]), dtype=float)
        X = np.ascontiguousarray(X)  # the order of summation is that of the columns, however X lies in memory
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)


def _times(X: Any, factors: Array) -> Any:
    """Return X with every row multiplied by its factor."""
    if not is_sparse(X):
        return (X * factors[:, None]).astype(X.dtype, copy=False)
    product = X.copy()
    product.data = (X.data[: X.nnz] * factors[row_numbers(X)]).astype(X.dtype, copy=False)
    product.indices = X.indices[: X.nnz].copy()
    return product


def row_numbers(X: Any) -> AnyArray:
    """Return the row of each stored value."""
    if X.format == "csc":
        return X.indices[: X.nnz]
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def column_numbers(X: Any) -> AnyArray:
    """Return the column of each stored value."""
    if X.format == "csr":
        return X.indices[: X.nnz]
    return np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))
