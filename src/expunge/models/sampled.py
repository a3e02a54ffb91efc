"""Any transformer as a structure that forgets: fitted on a keyed sample, with a linear model of its features."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
from sklearn.base import RegressorMixin, TransformerMixin, is_regressor
from sklearn.utils import RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from expunge.base.checking import check_positive
from expunge.base.errors import BadPlan, BadRecords, PlanWarning, warn_caller
from expunge.base.guiding import guided
from expunge.base.types import AnyArray, Array
from expunge.engine.contributions import KeyedRecords
from expunge.engine.learner import Transcript
from expunge.engine.randomness import Randomness
from expunge.models.habits import SAMPLED
from expunge.models.labels import WithProbabilities
from expunge.models.refusing import in_plain_words
from expunge.models.showing import if_available
from expunge.models.supervised import WithSample
from expunge.solvers.frames import scores_of
from expunge.solvers.heads import ONE, HeadName
from expunge.solvers.plans.sampled_features import SampledFeaturesPlan, make_sampled_features_plan
from expunge.solvers.sampled_features import Fitted, parts_of

RandomState = int | np.random.Generator | np.random.RandomState | None
_DENSE: dict[str, Any] = {"dtype": np.float64, "order": "C"}


TRIED = 16
"""Of so many records features are made twice, to see whether they are the same."""
Method = TypeVar("Method", bound=Callable[..., Any])


def _head(model: Any) -> str:
    """Return the head of a model: that of its fit, which a parameter that was set since does not change."""
    head: str = model.plan_.head if "plan_" in model.__dict__ else model.head
    return head


def _has_probabilities(model: Any) -> bool:
    return _head(model) == "newton"


def _has_classes(model: Any) -> bool:
    return _head(model) != "ridge"


def _where(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """Let a model have a method only where a check of it says so."""
    return cast("Callable[[Method], Method]", available_if(check))


class Sampled(TransformerMixin, WithSample, WithProbabilities):
    """A structure of your own, fitted on a keyed sample, with a linear model of its features over everyone.

    ``structure`` is any transformer of scikit-learn, or a pipeline of them. It sees the rows of a secret sample only, a
    share ``rho`` of all. Then exact sums over everyone give the weights of its features: by one step of Newton's method
    for classes (``head="newton"``), or by least squares for amounts (``"ridge"``) or classes (``"ridge_classifier"``).
    Deleting a record outside the sample takes it out of the sums; that leaves, bit for bit, what a fresh fit with the
    same keys gives. Deleting one of the sample fits anew. Every parameter: docs/sampled.md#your-own-structure.

    >>> from sklearn.preprocessing import StandardScaler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3)) * [1.0, 50.0, 0.01]
    >>> y = np.where(X[:, 0] + X[:, 1] / 50.0 > 0, "yes", "no")
    >>> model = Sampled(StandardScaler()).fit(X, y, ids=np.arange(2000))
    >>> outcome = model.unlearn([17, 42])
    >>> outcome.removed, model.n_records_, model.verify().ok, model.score(X, y) > 0.95
    (2, 1998, True, True)
    """

    TABLE = _DENSE
    INSTEAD = SAMPLED
    PUBLISHED: ClassVar[tuple[str, ...]] = ("coef_", "intercept_", "structure_", "weights of features on their grid")
    HANDED_IN = ("structure",)
    plan_: SampledFeaturesPlan

    @guided
    def __init__(
        self,
        structure: Any,
        *,
        head: HeadName = "newton",
        rho: float | Literal["auto"] = "auto",
        C: float = 1.0,
        columns: int | Literal["auto"] = "auto",
        classes: Any = None,
        expected_records: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.structure = structure
        self.head = head
        self.rho = rho
        self.C = C
        self.columns = columns
        self.classes = classes
        self.expected_records = expected_records
        self.random_state = random_state

    # --- what it is good for ---

    @property
    @if_available
    def structure_(self) -> Any:
        """A copy of the transformer that was fitted on the sample; None if it has refused the sample."""
        return copy.deepcopy(self._fitted.transformer)

    @property
    @if_available
    def coef_(self) -> Array:
        """The weights of the features that `transform` returns: a row for each output, or, for amounts, one row."""
        coef: Array = self._shown(0)
        return coef

    @property
    @if_available
    def intercept_(self) -> Any:
        """What is added to them."""
        return self._shown(1)

    def transform(self, X: Any) -> Array:
        """Return the features of rows as the model sees them, rounded to its grid."""
        rows, fitted = self._rows(X), self._fitted
        return (
            np.ascontiguousarray(fitted.grid(rows, fitted.taken, kept=False).T) * (fitted.units / ONE) + fitted.centres
        )

    @_where(_has_classes)
    def decision_function(self, X: Any) -> Array:
        """Return the scores: of the second class if there are two, else one for each class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @_where(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class."""
        return super().predict_proba(X)

    @_where(_has_probabilities)
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class."""
        return super().predict_log_proba(X)

    def predict(self, X: Any) -> AnyArray:
        """Return the class of each row, or the amount."""
        return super().predict(X) if _has_classes(self) else self._scores(X)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy, or, of amounts, R²."""
        if _has_classes(self):
            return float(super().score(X, y, sample_weight))
        return float(RegressorMixin.score(self, X, y, sample_weight))

    # --- parts ---

    def _fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> None:
        with in_plain_words(X, y):
            X, y = validate_data(self, X, y, y_numeric=is_regressor(self), **self.TABLE)
        self._plan_fit(X.shape[0], X.shape[1], y, classes)
        self._sparse = False
        with Randomness.given(self.random_state, 0) as randomness:
            self._learn((X.copy(), self._encode_targets(y)), ids, subjects, randomness)
        self._report_features()

    def _report_features(self) -> None:
        """Warn if the head has begun with nothing: the sample is of one class."""
        if _has_probabilities(self) and not self._fitted.start[:, :-1].any():
            warn_caller(
                f"rho={self.plan_.rho:.3g}: the sample has {self.n_sampled_:,} records, which say nothing of the "
                "classes. Weights are only one step from 0. Use a larger rho.",
                PlanWarning,
            )

    def _plan_fit(self, records: int, features: int, y: Any = None, classes: Any = None, sparse: bool = False) -> None:
        with Randomness.given(self.random_state, 0) as randomness:
            self._seed = int(randomness.plan.integers(2**63))
        self._meet_targets(y, classes, features, sparse)
        super()._plan_fit(records, features)

    def _meet_targets(self, y: Any, classes: Any, features: int, sparse: bool) -> None:
        """Fix, at the first fit, which classes there are, if there are any."""
        if self.head != "ridge":
            self._meet_classes(y, classes)
        elif self.classes is not None or classes is not None:
            raise BadPlan("classes: head='ridge' is for amounts, which have none. Leave them out, or use another head.")
        else:
            self.__dict__.pop("classes_", None)  # of an earlier fit

    def _make_plan(self, records: int, features: int, expected: int | None) -> SampledFeaturesPlan:
        if expected is not None:
            check_positive("expected_records", expected, whole=True)
        classes = len(self.classes_) if self.head != "ridge" and hasattr(self, "classes_") else 0
        return make_sampled_features_plan(
            self.structure, classes, features, int(expected or records), head=self.head, rho=self.rho, C=self.C,
            columns=self.columns, seed=self._seed,
        )  # fmt: skip

    def _refuse_fresh(self, transcript: Transcript) -> None:
        """Raise if the transformer refuses records, makes too many features, or other ones the second time."""
        fitted: Fitted = transcript.found(self.plan_.structure)[1]
        name = type(self.plan_.transformer).__name__
        if fitted.trouble:
            raise BadRecords(
                f"rho={self.plan_.rho:.3g}: {name} refuses the sample ({fitted.trouble}). Use a larger rho, up to 1, "
                "or a structure that takes such records."
            )
        if fitted.own > self.plan_.columns:
            raise BadPlan(
                f"columns={self.plan_.columns}: {name} makes {fitted.own} features of this sample. Give the largest "
                "number that it may come to."
            )
        if fitted.refused:
            raise BadRecords(
                f"X: {name}, fitted on the sample, refuses a record, or makes no finite numbers of it. "
                "Let it take all records, such as by handle_unknown='ignore', or leave such records out."
            )
        rows = next(iter(cast(KeyedRecords, transcript.assignment).parts())).batch[0][:TRIED].astype(np.float64)
        twice = [fitted.grid(some, self.plan_.columns) for some in (rows, rows[::-1])]
        if not np.array_equal(twice[0], twice[1][:, ::-1]):
            raise BadPlan(
                f"structure: {name} makes other features of the same row the second time, so that no deletion could "
                "take out what it has put in. Its transform must depend on nothing but the row."
            )

    def _kept_by_records(self, before: SampledFeaturesPlan) -> list[tuple[str, Any, Any]]:
        was, now = ("amounts" if plan.head == "ridge" else "classes" for plan in (before, self.plan_))
        return [("head", was, now), *(self._kept_by_targets() if _has_classes(self) else [])]

    def _encode_targets(self, y: AnyArray) -> AnyArray:
        if _has_classes(self):
            return super()._encode_targets(y)
        if y.dtype.kind not in "biuf":
            raise BadRecords(f"y: expected numbers, got {y.dtype}; convert them first.")
        return y.astype(np.float64)

    def _derive(self, model: Array) -> tuple[Array, Any, Fitted, Array]:
        structure = self._owner.solver.structure
        numbers, parameters = np.split(model, [structure.packed])
        fitted: Fitted = structure.unpack(numbers)[1]
        parameters = parameters.reshape(-1, self.plan_.columns + 1)
        coef = parameters[:, : fitted.taken] / fitted.units
        intercept = parameters[:, -1] - coef @ fitted.centres
        for published in (coef, intercept, parameters):
            published.setflags(write=False)
        return (coef, intercept, fitted, parameters) if _has_classes(self) else (
            coef[0], intercept.item(0), fitted, parameters
        )  # fmt: skip

    @property
    def _fitted(self) -> Fitted:
        fitted: Fitted = self._shown(2)
        return fitted

    def _scores(self, X: Any) -> Array:
        """Return a column of scores for each output."""
        rows = self._rows(X)
        _, _, fitted, parameters = self._published
        scores = np.empty((len(rows), len(parameters)))
        for part in parts_of(len(rows), parameters.shape[1]):
            features = np.ascontiguousarray(fitted.grid(rows[part], parameters.shape[1] - 1, kept=False).T) * (
                1.0 / ONE
            )
            scores[part] = np.column_stack([scores_of(features, one) for one in parameters])
        return scores

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is published: the fitted transformer is nobody's state, and is found again in the sample."""
        state = super().__getstate__()
        return {**state, "_derived": None} if "_derived" in state else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.head == "ridge":
            tags.estimator_type, tags.classifier_tags, tags.regressor_tags = "regressor", None, RegressorTags()
        return tags
