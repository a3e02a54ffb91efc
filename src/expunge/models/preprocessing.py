"""Scaling that learns nothing from the records, so that a deleted one leaves no trace in it."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_array, validate_data

from expunge.base.columns import is_sparse
from expunge.base.errors import BadPlan, BadRecords
from expunge.base.norms import NORMS, as_table, row_norms, row_numbers, shortened
from expunge.base.types import AnyArray, Array


def bound_rows(X: Any, norm: float = 1.0) -> Any:
    """Scale rows longer than ``norm`` down to it; the others are returned unchanged, bit for bit.

    Takes a dense array or a sparse matrix (CSR and CSC stay what they are, others become CSR). What a row becomes
    depends on this row alone. The input is never changed; it is returned itself if no row is too long.

    >>> bound_rows(np.array([[6.0, 8.0], [0.25, 0.5]]), norm=5.0).tolist()
    [[3.0, 4.0], [0.25, 0.5]]
    """
    if not (isinstance(norm, Real) and NORMS[0] <= norm <= NORMS[1]):
        raise BadPlan(f"norm={norm!r}: give a number from {NORMS[0]:g} to {NORMS[1]:g}.")
    X = as_table(X)
    bounded = shortened(X, norm)
    if bounded is X:
        return X
    step = 1.0 - 2.0 * float(np.finfo(X.dtype).eps)  # a number of X's type
    while (long := row_norms(bounded) > norm).any():  # too long by a rounding error
        if is_sparse(bounded):
            bounded.data *= np.where(long, step, 1.0)[row_numbers(bounded)].astype(X.dtype)
        else:
            bounded[long] *= step
    return bounded


class BoundedScaler(TransformerMixin, OneToOneFeatureMixin, BaseEstimator):
    """Maps public ranges, ``low`` to ``high``, to ``feature_range``, and keeps nothing of any record.

    ``low`` and ``high`` are numbers, or one number for each column. Take them from what is known about the columns (an
    age is between 0 and 120), never from the records. Values outside are clipped, unless ``clip`` is false. ``fit``
    keeps the number and names of the columns, nothing else, and ``transform`` works without it.

    >>> BoundedScaler(low=[0, 10], high=[120, 20]).fit_transform([[30, 15], [150, 10]]).tolist()
    [[-0.5, 0.0], [1.0, -1.0]]
    """

    def __init__(
        self, low: Any = 0.0, high: Any = 1.0, *, feature_range: tuple[float, float] = (-1.0, 1.0), clip: bool = True
    ) -> None:
        self.low = low
        self.high = high
        self.feature_range = feature_range
        self.clip = clip

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the ranges, and keep the number and names of the columns."""
        self._ranges(self._checked(X, reset=True).shape[1])
        return self

    def transform(self, X: Any) -> AnyArray:
        """Return the values in the feature range; each depends on itself and its column's range only."""
        X = self._checked(X, reset=False)
        return self._map(X, *self._ranges(X.shape[1]))

    def inverse_transform(self, X: Any) -> AnyArray:
        """Map values of the feature range back. What was clipped comes back as the end of its range."""
        X = check_array(X, dtype=(np.float64, np.float32), estimator=self, input_name="X", ensure_all_finite=False)
        _refuse_nan(X)
        columns = getattr(self, "n_features_in_", X.shape[1])
        if X.shape[1] != columns:
            raise BadRecords(f"X: {X.shape[1]} columns; this scaler was fitted with {columns}.")
        low, high, start, end = self._ranges(X.shape[1])
        return self._map(X, start, end, low, high)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _checked(self, X: Any, reset: bool) -> AnyArray:
        """Return X as floating-point numbers without NaN, with the columns of ``fit``."""
        X = validate_data(self, X, reset=reset, dtype=(np.float64, np.float32), ensure_all_finite=False)
        _refuse_nan(X)
        return X

    def _ranges(self, columns: int) -> tuple[Array, Array, Array, Array]:
        """Return low, high and the feature range's ends, one of each for each column."""
        low, high = _each("low", self.low, columns), _each("high", self.high, columns)
        _in_order("low", low, "high", high)
        try:
            first, last = self.feature_range
        except (TypeError, ValueError):
            raise BadPlan(f"feature_range={self.feature_range!r}: give two numbers.") from None
        start, end = _each("feature_range[0]", first, columns), _each("feature_range[1]", last, columns)
        _in_order("feature_range[0]", start, "feature_range[1]", end)
        return low, high, start, end

    def _map(self, X: AnyArray, low: Array, high: Array, start: Array, end: Array) -> AnyArray:
        """Map low to start and high to end."""
        mapped = np.clip(X, low, high) - low if self.clip else X - low
        mapped /= high - low
        mapped *= end - start
        mapped += start
        if self.clip:
            np.clip(mapped, start, end, out=mapped)
        return mapped.astype(X.dtype, copy=False)


def _refuse_nan(X: AnyArray) -> None:
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise BadRecords(
            f"X: row {row}, column {column} has NaN or infinity; leave out the record, or fill in a constant with "
            "SimpleImputer(strategy='constant', keep_empty_features=True)."
        )


def _each(name: str, value: Any, columns: int) -> Array:
    """Return a finite number for each column."""
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadPlan(f"{name}={value!r}: give a number, or one for each column.") from None
    if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != columns):
        raise BadPlan(f"{name}: shape {numbers.shape} for {columns} columns; give a number, or one for each column.")
    if not np.isfinite(numbers).all():
        raise BadPlan(f"{name}={value!r}: give finite numbers.")
    return np.broadcast_to(numbers, (columns,))


def _in_order(low_name: str, low: Array, high_name: str, high: Array) -> None:
    """Raise unless low is below high in every column, and not infinitely far."""
    wrong = np.flatnonzero(low >= high)
    if wrong.size:
        column = int(wrong[0])
        raise BadPlan(
            f"{low_name}: {low[column]:g} in column {column} is not below {high_name}, {high[column]:g}; "
            "give every column a range of some width."
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(high - low).all():
            raise BadPlan(f"{high_name}: too far above {low_name} for floating-point numbers; give a narrower range.")
