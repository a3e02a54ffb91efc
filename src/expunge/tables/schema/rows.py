"""Rows of features that are being made, column after column: dense or sparse, with the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.base.columns import canonical
from expunge.base.types import AnyArray, Column, Mask


class DenseRows:
    """Rows that are being made, column after column."""

    def __init__(self, number: int, width: int, dtype: np.dtype[Any]) -> None:
        self._X = np.zeros((number, width), dtype=dtype)
        self._at = 0

    def add(self, values: AnyArray) -> None:
        """Add a column."""
        self._X[:, self._at] = values
        self._at += 1

    def mark(self, codes: AnyArray, present: Mask, width: int) -> None:
        """Add so many columns: 1 where the codes say, in the rows that have one."""
        self._X[np.flatnonzero(present), self._at + codes[present]] = 1.0
        self._at += width

    def join(self, columns: Any) -> None:
        """Add several columns that come as a sparse matrix."""
        self._X[:, self._at : self._at + columns.shape[1]] = columns.toarray()
        self._at += columns.shape[1]

    def rows(self, share: np.floating[Any]) -> Column:
        """Return the rows, times a number."""
        self._X *= share
        return self._X


class SparseRows:
    """The same for sparse rows: the numbers are those of dense ones, but only those that are not 0 are kept."""

    def __init__(self, number: int, width: int, dtype: np.dtype[Any]) -> None:
        self._number, self._dtype = number, dtype
        self._parts: list[Any] = []

    def add(self, values: AnyArray) -> None:
        """Add a column."""
        from scipy import sparse

        self._parts.append(sparse.csr_array(values.astype(self._dtype)[:, None]))

    def mark(self, codes: AnyArray, present: Mask, width: int) -> None:
        """Add so many columns: 1 where the codes say, in the rows that have one."""
        from scipy import sparse

        ends = np.concatenate([[0], np.cumsum(present)])
        ones = np.ones(int(ends[-1]), dtype=self._dtype)
        self._parts.append(sparse.csr_array((ones, codes[present], ends), shape=(self._number, width)))

    def join(self, columns: Any) -> None:
        """Add several columns that come as a sparse matrix."""
        from scipy import sparse

        self._parts.append(sparse.csr_array(columns))

    def rows(self, share: np.floating[Any]) -> Column:
        """Return the rows, times a number."""
        from scipy import sparse

        joined = sparse.hstack(self._parts, format="csr")
        joined.data *= share
        return canonical(joined)
