"""Ridge regression with exact deletion: least squares from exact sums, without noise and without replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import sklearn.linear_model
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from expunge.base.checking import check_positive
from expunge.base.columns import is_sparse
from expunge.base.errors import BadPlan, BadRecords, warn_caller
from expunge.base.guiding import guided
from expunge.base.types import AnyArray, Array
from expunge.engine.randomness import Randomness
from expunge.models.forgetting import ROWS, TABLE
from expunge.models.habits import RIDGE
from expunge.models.refusing import finite, in_plain_words
from expunge.models.showing import if_available
from expunge.models.supervised import WithCoefficients
from expunge.solvers.normal_equations import largest_of
from expunge.solvers.plans.ridge import RidgePlan

COARSE = 2.0**10
"""A column whose largest number is below so many units of the grid loses digits that matter."""


class Ridge(RegressorMixin, WithCoefficients):
    """Least squares with an L2 penalty, from which records can be deleted exactly, at once, and without noise.

    It stores sums of products of columns. A deletion subtracts the record without any rounding, and solves for the
    coefficients again. They are scikit-learn's: ``alpha`` is the weight of |w|² relative to the sum of squared
    residuals. Numbers are read to 45 bits below ``feature_bound`` (one for all columns, or one for each) and
    ``target_bound``, and refused beyond: docs/estimators.md#ridge.

    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = Ridge(alpha=0.0).fit(X, 5 + 3 * X[:, 0])
    >>> outcome = model.unlearn([17, 18])
    >>> model.coef_.round(6).tolist(), round(model.intercept_, 6), outcome.kept
    ([3.0], 5.0, True)
    """

    PUBLISHED = ("coef_", "intercept_", "rank_")
    INSTEAD = RIDGE

    @guided
    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        feature_bound: float | Sequence[float] | AnyArray = 2.0**20,
        target_bound: float = 2.0**20,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.feature_bound = feature_bound
        self.target_bound = target_bound

    @property
    @if_available
    def rank_(self) -> int:
        """How many directions of the coefficients the records and the penalty determine."""
        return self._rank()

    @guided
    def partial_fit(self, X: Any, y: Any, *, ids: Any = None, subjects: Any = None) -> Self:
        """Continue learning: the first call fits, later calls insert."""
        return self._partial_fit(X, y, ids, subjects)

    def predict(self, X: Any) -> Array:
        """Return the prediction for each row."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, **ROWS)
        weights, intercept, _ = self._published
        with np.errstate(over="ignore", invalid="ignore"):
            return finite(np.asarray(rows @ weights + intercept))

    def to_sklearn(self) -> Any:
        """Return the model alone, for serving: scikit-learn's own `Ridge`, without the records and the sums.

        Deletions do not reach this copy: make a new one after requests.
        """
        self._need_fit()
        model = sklearn.linear_model.Ridge(self.plan_.alpha, fit_intercept=self.plan_.fit_intercept)
        model.coef_, model.intercept_ = self.coef_.copy(), self.intercept_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model

    # --- parts ---

    def _fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> None:
        with in_plain_words(X, y):
            X, y = validate_data(self, X, y, y_numeric=True, **TABLE)
        self._plan_fit(X.shape[0], X.shape[1])
        self._sparse = is_sparse(X)
        with Randomness.fresh() as randomness:
            self._learn((self._encode_rows(X), self._encode_targets(y)), ids, subjects, randomness)
        if self.rank_ < self.plan_.features:
            warn_caller(*self.plan_.rank_remark(self.rank_, self.n_records_))

    def _make_plan(self, records: int, features: int, expected: int | None) -> RidgePlan:
        check_positive("alpha", self.alpha, zero=True)
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise BadPlan(f"fit_intercept={self.fit_intercept!r}: give True or False.")
        _check_bound("target_bound", self.target_bound)
        given: Any = self.feature_bound
        bounds = list(given) if np.ndim(given) == 1 else [given] * features
        if len(bounds) != features:
            raise BadPlan(f"feature_bound: {len(bounds)} for {features} columns; give one number for all, or one each.")
        for bound in bounds:
            _check_bound("feature_bound", bound)
        return RidgePlan(
            float(self.alpha), bool(self.fit_intercept), tuple(map(float, bounds)), float(self.target_bound)
        )

    def _encode_rows(self, X: Any) -> Any:
        """Return rows as they are, and warn if little is left of a column on the grid."""
        largest = largest_of(X)
        units = self.plan_.moments.units[-1, : len(largest)]
        tiny = np.flatnonzero((largest > 0.0) & (largest < COARSE * units))
        if len(tiny):
            column = int(tiny[0])
            warn_caller(
                f"X: column {column} has at most {largest[column]:.3g}, and with "
                f"feature_bound={self.plan_.feature_bounds[column]:g} numbers are rounded to {units[column]:.3g}. "
                "Declare a smaller feature_bound for it."
            )
        return X

    def _encode_targets(self, y: AnyArray) -> AnyArray:
        if y.dtype.kind not in "biuf":
            raise BadRecords(f"y: expected numbers, got {y.dtype}; convert them first.")
        return y.astype(np.float64)

    def _derive(self, model: Array) -> tuple[Array, float, int]:
        return model[:-2].copy(), model.item(-2), self.plan_.rank_of(model)

    def _rank(self) -> int:
        return int(self._shown(2))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _check_bound(name: str, bound: Any) -> None:
    check_positive(name, bound)
    if not 1e-60 <= bound <= 1e60:
        raise BadPlan(f"{name}={bound!r}: give a number from 1e-60 to 1e60.")
