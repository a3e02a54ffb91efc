"""Models with targets."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted, validate_data

from expunge.base.columns import is_sparse
from expunge.base.guiding import guided
from expunge.base.intake import Insert, Replace
from expunge.base.types import AnyArray, Array
from expunge.engine.outcome import Outcome
from expunge.models.forgetting import TABLE, ForgettingModel
from expunge.models.refusing import in_plain_words, refuse_nan
from expunge.models.showing import if_available


class SupervisedModel(ForgettingModel):
    """A model whose records are features and a target."""

    COLUMNS = ("X", "y")
    TABLE: ClassVar[dict[str, Any]] = TABLE
    """What rows may be."""

    def _encode_rows(self, X: Any) -> Any:
        """Return rows as records have them."""
        return X

    def _encode_targets(self, y: AnyArray) -> AnyArray:
        """Return targets as the loss wants them."""
        raise NotImplementedError

    def _fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> None:
        """Check records, make a plan and learn."""
        raise NotImplementedError

    @guided
    def fit(self, X: Any, y: Any, ids: Any = None, subjects: Any = None) -> Self:
        """Learn from records, with an id each (without ids they are numbered 0, 1, 2, …).

        ``subjects`` says whose record each is; by default each record is its own subject.
        """
        with self._as_it_was():
            self._fit(X, y, ids, subjects)
        return self

    def _partial_fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> Self:
        if "_owner" in self.__dict__:
            self.insert(X, y, ids, subjects)
            return self
        with self._as_it_was():
            self._fit(X, y, ids, subjects, classes)
        return self

    def insert(self, X: Any, y: Any, ids: Any = None, subjects: Any = None) -> Outcome:
        """Add records, exactly as if they had been in the data from the start. An id that was deleted may come back."""
        return self.serve_request(self.prepare_request(Insert((X, y), ids, subjects)))

    def replace(
        self, X: Any, y: Any, ids: Any = None, subjects: Any = None, missing: Literal["error", "ignore"] = "error"
    ) -> Outcome:
        """Correct records, by id (or by subject, with one record each), as if they had always been so.

        With ``missing="ignore"`` those that are not found are skipped.
        """
        return self.serve_request(self.prepare_request(Replace((X, y), ids, subjects, missing)))

    def _new_columns(self, X: Any, y: Any) -> tuple[Any, AnyArray]:
        given = X
        if not self._are_plain(X, y):
            refuse_nan("X", X)
            refuse_nan("y", y)
            with in_plain_words(X, y):
                X, y = validate_data(
                    self, X, y, reset=False, y_numeric=is_regressor(self), ensure_min_samples=0, **self.TABLE
                )  # fmt: skip
        rows = self._encode_rows(X)
        if is_sparse(rows):
            rows = rows.copy() if self._sparse else rows.toarray()
        elif isinstance(given, np.ndarray) and np.may_share_memory(rows, given):
            rows = rows.copy()  # a request may wait, and what was given may change meanwhile
        return rows, self._encode_targets(y)

    def _are_plain(self, X: Any, y: Any) -> bool:
        """Say whether rows and targets are arrays as they should be, so that scikit-learn need not look at them."""
        if type(X) is not np.ndarray or type(y) is not np.ndarray or hasattr(self, "feature_names_in_"):
            return False
        shaped = X.ndim == 2 and y.ndim == 1 and X.shape == (len(y), self.n_features_in_) and len(y) > 0
        typed = X.dtype == np.float64 and y.dtype.kind in "biuf"
        return shaped and typed and bool(np.isfinite(X).all() and np.isfinite(y).all())


class WithSample(SupervisedModel):
    """A model of this kind whose structure comes from a keyed sample of one stage."""

    @property
    @if_available
    def n_sampled_(self) -> int:
        """How many records there are in the sample that the structure comes from."""
        self._need_fit()
        with self._owner.lock:
            structure = self.plan_.structure
            return int(structure.joins(None, self._records.keys_at(0), self._records.batch_at(0)).sum())

    def _rows(self, X: Any) -> Array:
        """Return rows to predict from."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, **self.TABLE))


class WithCoefficients(SupervisedModel):
    """A model of this kind that has coefficients."""

    PUBLISHED: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")

    @property
    @if_available
    def coef_(self) -> Array:
        """The weights of the features."""
        return self._shown(0)

    @property
    @if_available
    def intercept_(self) -> Any:
        """What is added to them."""
        return self._shown(1)
