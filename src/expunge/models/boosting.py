"""Gradient boosting with exact deletion: trees from a keyed sample, the values of their leaves from everyone."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin, is_regressor
from sklearn.utils.validation import validate_data

from expunge.base.checking import check_positive
from expunge.base.errors import BadRecords, PlanWarning, warn_caller
from expunge.base.guiding import guided
from expunge.base.types import AnyArray, Array, Ints
from expunge.base.wording import counted
from expunge.engine.randomness import Randomness
from expunge.models.habits import BOOSTING
from expunge.models.labels import WithProbabilities
from expunge.models.refusing import in_plain_words
from expunge.models.showing import if_available
from expunge.models.supervised import WithSample
from expunge.solvers.plans.boosting import SMOOTHING, BoostingPlan, make_boosting_plan
from expunge.solvers.trees import Trees

RandomState = int | np.random.Generator | np.random.RandomState | None
_DENSE: dict[str, Any] = {"dtype": np.float64, "order": "C"}


class Boosting(WithSample):
    """Boosted trees with exact deletion. Subclasses say what targets are."""

    TABLE = _DENSE
    INSTEAD = BOOSTING
    PUBLISHED: ClassVar[tuple[str, ...]] = ("leaf_values_", "nodes_", "nodes_ and leaf_values_ together")
    plan_: BoostingPlan

    @guided
    def __init__(
        self,
        *,
        rho: float | Literal["auto"] = "auto",
        max_iter: int | Literal["auto"] = "auto",
        max_leaf_nodes: int | Literal["auto"] = "auto",
        learning_rate: float = 0.1,
        min_samples_leaf: int = 20,
        smoothing: float = SMOOTHING,
        expected_records: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.rho = rho
        self.max_iter = max_iter
        self.max_leaf_nodes = max_leaf_nodes
        self.learning_rate = learning_rate
        self.min_samples_leaf = min_samples_leaf
        self.smoothing = smoothing
        self.expected_records = expected_records
        self.random_state = random_state

    # --- what a subclass says ---

    @property
    def _classes(self) -> int:
        """How many classes there are; 0 where targets are amounts."""
        return 0

    def _meet_targets(self, y: Any, classes: Any, features: int, sparse: bool) -> None:
        """Fix, at the first fit, what must be known about targets."""

    def _kept_by_targets(self) -> list[tuple[str, Any, Any]]:
        """Return (parameter, as it was, as it is) for parameters by which the records' targets were encoded."""
        return []

    # --- what it is good for ---

    @property
    @if_available
    def leaf_values_(self) -> Array:
        """The values of all leaves: outputs × trees × leaves."""
        values: Array = self._shown(0)
        return values

    @property
    @if_available
    def nodes_(self) -> Array:
        """The nodes of all trees: outputs × trees × nodes × (feature, threshold, left child, right child).

        Rows above the threshold go to the right. A leaf is its own child.
        """
        nodes: Array = self._shown(1)
        return nodes

    @property
    @if_available
    def n_iter_(self) -> int:
        """How many trees each output has."""
        return int(self.leaf_values_.shape[1])

    def apply(self, X: Any) -> Ints:
        """Return the number of the leaf of each row in each tree: rows × outputs × trees."""
        return np.ascontiguousarray(self._trees.leaves(self._rows(X)).transpose(2, 0, 1))

    # --- parts ---

    def _fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> None:
        with in_plain_words(X, y):
            X, y = validate_data(self, X, y, y_numeric=is_regressor(self), **self.TABLE)
        self._plan_fit(X.shape[0], X.shape[1], y, classes)
        self._sparse = False
        with Randomness.given(self.random_state, 0) as randomness:
            self._learn((X.copy(), self._encode_targets(y)), ids, subjects, randomness)
        self._report_trees()

    def _report_trees(self) -> None:
        """Warn if the sample has nothing to split by."""
        children = self.nodes_[..., 2:]
        if (children[:, :, 0] == 0).all():
            larger = "a larger rho, or " if self.plan_.rho < 1.0 else ""
            warn_caller(
                f"rho={self.plan_.rho:.3g}: of the sample ({counted(self.n_sampled_, 'record')}) boosting finds "
                f"nothing to split by; all predictions are the same. Use {larger}a smaller min_samples_leaf.",
                PlanWarning,
            )

    def _plan_fit(self, records: int, features: int, y: Any = None, classes: Any = None, sparse: bool = False) -> None:
        self._meet_targets(y, classes, features, sparse)
        super()._plan_fit(records, features)

    def _make_plan(self, records: int, features: int, expected: int | None) -> BoostingPlan:
        if expected is not None:
            check_positive("expected_records", expected, whole=True)
        return make_boosting_plan(
            self._classes, features, int(expected or records), rho=self.rho, trees=self.max_iter,
            leaves=self.max_leaf_nodes, learning_rate=self.learning_rate, least=self.min_samples_leaf,
            smoothing=self.smoothing,
        )  # fmt: skip

    def _kept_by_records(self, before: BoostingPlan) -> list[tuple[str, Any, Any]]:
        return self._kept_by_targets()

    def _derive(self, model: Array) -> tuple[Array, Array, Trees]:
        trees = self.plan_.structure.trees(model)
        nodes = np.stack([trees.features, trees.thresholds, trees.children[..., 0], trees.children[..., 1]], axis=-1)
        trees.values.setflags(write=False)  # they are what predicts
        return trees.values, nodes, trees

    @property
    def _trees(self) -> Trees:
        trees: Trees = self._published[2]
        return trees

    def _scores(self, X: Any) -> Array:
        """Return a row of scores for each output."""
        rows = self._rows(X)
        return self._trees.scores(rows)


class GradientBoostingClassifier(WithProbabilities, Boosting):
    """Gradient boosting for classes, from which records can be deleted exactly.

    Trees are found in a keyed sample: of all records, a share of ``rho`` that secret keys choose. Then exact sums over
    everyone give the values of all leaves at once. Deleting a record outside the sample takes it out of the sums; that
    leaves, bit for bit, what a fresh fit with the same keys gives. Deleting one of the sample fits anew. There is no
    noise, and nothing is declared. Every parameter: docs/sampled.md.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = GradientBoostingClassifier().fit(X, y, ids=np.arange(2000))
    >>> outcome = model.unlearn([17, 42])
    >>> outcome.removed, model.n_records_, model.verify().ok, model.score(X, y) > 0.9
    (2, 1998, True, True)
    """

    @guided
    def __init__(
        self,
        *,
        rho: float | Literal["auto"] = "auto",
        max_iter: int | Literal["auto"] = "auto",
        max_leaf_nodes: int | Literal["auto"] = "auto",
        learning_rate: float = 0.1,
        min_samples_leaf: int = 20,
        smoothing: float = SMOOTHING,
        classes: Any = None,
        expected_records: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        super().__init__(
            rho=rho, max_iter=max_iter, max_leaf_nodes=max_leaf_nodes, learning_rate=learning_rate,
            min_samples_leaf=min_samples_leaf, smoothing=smoothing, expected_records=expected_records,
            random_state=random_state,
        )  # fmt: skip
        self.classes = classes

    def decision_function(self, X: Any) -> Array:
        """Return the scores: of the second class if there are two, else one for each class."""
        scores = self._scores(X)
        return scores[0] if len(scores) == 1 else np.ascontiguousarray(scores.T)

    @property
    def _classes(self) -> int:
        return len(self.classes_)

    def _meet_targets(self, y: Any, classes: Any, features: int, sparse: bool) -> None:
        self._meet_classes(y, classes)


class GradientBoostingRegressor(RegressorMixin, Boosting):
    """Gradient boosting for amounts by least squares, from which records can be deleted exactly.

    Its parts are those of `GradientBoostingClassifier`. Targets are taken as they are.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> model = GradientBoostingRegressor().fit(X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2, ids=np.arange(2000))
    >>> outcome = model.unlearn([17, 42])
    >>> outcome.removed, model.n_records_, model.verify().ok
    (2, 1998, True)
    """

    @guided
    def partial_fit(self, X: Any, y: Any, *, ids: Any = None, subjects: Any = None) -> Self:
        """Continue learning: the first call fits (declare ``expected_records`` for it), later calls insert."""
        return self._partial_fit(X, y, ids, subjects)

    def predict(self, X: Any) -> Array:
        """Return the prediction for each row."""
        return np.asarray(self._scores(X)[0])

    def _encode_targets(self, y: AnyArray) -> Array:
        if y.dtype.kind not in "biuf":
            raise BadRecords(f"y: expected numbers, got {y.dtype}; convert them first.")
        return y.astype(np.float64)
