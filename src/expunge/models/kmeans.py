"""k-means from which records can be deleted exactly."""

from __future__ import annotations

from typing import Any, Literal, Self, cast

import numpy as np
import sklearn.cluster
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted, validate_data

from expunge.base.checking import check_positive
from expunge.base.errors import BadPlan, BadRecords, ClippedWarning, PlanWarning, warn_caller
from expunge.base.guiding import guided
from expunge.base.intake import Insert, Replace
from expunge.base.types import Array, Ints
from expunge.base.wording import counted
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import Randomness
from expunge.models.forgetting import ForgettingModel
from expunge.models.habits import CLUSTERS
from expunge.models.refusing import in_plain_words
from expunge.models.showing import if_available
from expunge.solvers.cluster_choices import KeyedSample, Lloyd
from expunge.solvers.plans.clusters import ClusterCoupling, ClusterPlan, make_cluster_plan
from expunge.solvers.plans.keyed_clusters import KeyedClusterPlan, make_keyed_cluster_plan
from expunge.solvers.weighted_kmeans import nearest


class KMeans(TransformerMixin, ClusterMixin, ClassNamePrefixFeaturesOutMixin, ForgettingModel):
    """k-means clustering from which records can be deleted exactly.

    By default cells come from a keyed sample, and exact sums over everyone in them make the centres: there is no noise,
    no region is declared, and a deletion of a record outside the sample leaves, bit for bit, what a fresh fit with the
    same keys gives. ``rho`` is the planned share of deletions that fit anew. Another solver is
    `expunge.solvers.Lloyd`, with noisy sums. Every parameter: docs/clustering.md.

    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(center, 0.1, size=(100, 2)) for center in (-1, 0, 1)])
    >>> model = KMeans(3).fit(X)
    >>> outcome = model.unlearn([17, 42])
    >>> outcome.removed, model.n_records_, model.verify().ok, len(model.labels_)
    (2, 298, True, 298)
    >>> np.abs(np.sort(model.cluster_centers_[:, 0])).round(1).tolist()
    [1.0, 0.0, 1.0]
    """

    COLUMNS = ("X",)
    INSTEAD = CLUSTERS
    PUBLISHED = ("cluster_centers_", "cluster_centers_ (relative)")
    plan_: ClusterPlan | KeyedClusterPlan

    @guided
    def __init__(
        self,
        n_clusters: int = 8,
        *,
        rho: float | Literal["auto"] = "auto",
        expected_records: int | None = None,
        solver: Literal["keyed_sample"] | KeyedSample | Lloyd = "keyed_sample",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.rho = rho
        self.expected_records = expected_records
        self.solver = solver
        self.random_state = random_state

    # --- requests ---

    @guided
    def fit(self, X: Any, y: Any = None, ids: Any = None, subjects: Any = None) -> Self:
        """Learn from points, with an id each (without ids they are numbered 0, 1, 2, …).

        ``subjects`` says whose record each is; by default each record is its own subject. ``y`` is ignored.
        """
        with self._as_it_was():
            with in_plain_words(X):
                X = validate_data(self, X, **_TABLE)
            self._plan_fit(len(X), X.shape[1])
            self._refuse_crowds(subjects, None)
            self._report_clipped(X)
            with Randomness.given(self.random_state, 0) as randomness:
                self._learn((X - self.plan_.origin,), ids, subjects, randomness)
        return self

    @guided
    def partial_fit(self, X: Any, y: Any = None, *, ids: Any = None, subjects: Any = None) -> Self:
        """Continue learning: the first call fits (declare ``expected_records`` for it), later calls insert."""
        if "_owner" not in self.__dict__:
            return self.fit(X, y, ids, subjects)
        self.insert(X, ids, subjects)
        return self

    @guided
    def fit_predict(self, X: Any, y: Any = None, ids: Any = None, subjects: Any = None) -> Ints:
        """Fit, and return the cluster of each row."""
        return self.fit(X, y, ids, subjects).predict(X)

    def insert(self, X: Any, ids: Any = None, subjects: Any = None) -> Outcome:
        """Add records, exactly as if they had been in the data from the start. An id that was deleted may come back."""
        return self.serve_request(self.prepare_request(Insert((X,), ids, subjects)))

    def replace(
        self, X: Any, ids: Any = None, subjects: Any = None, missing: Literal["error", "ignore"] = "error"
    ) -> Outcome:
        """Correct records, by id (or by subject, with one record each), as if they had always been so.

        With ``missing="ignore"`` those that are not found are skipped.
        """
        return self.serve_request(self.prepare_request(Replace((X,), ids, subjects, missing)))

    # --- what it is good for ---

    @property
    @if_available
    def cluster_centers_(self) -> Array:
        """The centres, one a row."""
        centers: Array = self._shown(0)
        return centers

    @property
    @if_available
    def labels_(self) -> Ints:
        """The cluster of every live record, as it is stored, by ascending id (see `ids_`).

        Without ids that is the order in which they came. For the rows of your own table use `predict`.
        """
        self._need_fit()
        with self._owner.lock:  # points and centres of one state
            return self._clusters(self._live())

    @property
    @if_available
    def inertia_(self) -> float:
        """The sum of the squared distances of all live records, as they are kept, to their centres."""
        self._need_fit()
        with self._owner.lock:
            return self._inertia(self._live())

    def predict(self, X: Any) -> Ints:
        """Return the cluster of each row: its nearest centre's, also for points outside the region."""
        return self._clusters(self._points(X))

    def transform(self, X: Any) -> Array:
        """Return the distance of each row to every centre."""
        return np.asarray(euclidean_distances(self._points(X), self._centers()))

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the sum of the squared distances of all rows to their centres."""
        return -self._inertia(self._points(X))

    def to_sklearn(self) -> sklearn.cluster.KMeans:
        """Return the model alone, for serving: scikit-learn's, with none of the records. It does not clip points.

        Deletions do not reach this copy: make a new one after requests.
        """
        self._need_fit()
        model = sklearn.cluster.KMeans(self.plan_.clusters, n_init=1)
        model.cluster_centers_, model._n_threads = self.cluster_centers_.copy(), 1
        for name in ("n_features_in_", "feature_names_in_", "_n_features_out"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model

    # --- parts ---

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[0])

    def _make_plan(self, records: int, features: int, expected: int | None) -> ClusterPlan | KeyedClusterPlan:
        if expected is not None:
            check_positive("expected_records", expected, whole=True)
        number, solver = int(expected or records), self.solver
        if isinstance(solver, str) and solver == "keyed_sample":
            solver = KeyedSample()
        match solver:
            case KeyedSample():
                return self._warned(make_keyed_cluster_plan(
                    self.n_clusters, features, number, rho=self.rho, bound=solver.bound, seeds=solver.seeds,
                    seed=self._seed,
                ), number)  # fmt: skip
            case Lloyd():
                return make_cluster_plan(
                    self.n_clusters, features, number, solver.radius, solver.low, solver.high, rho=self.rho,
                    rounds=solver.n_rounds, seeds=solver.n_seeds, coupling=cast(ClusterCoupling, solver.coupling),
                    records_per_subject=solver.records_per_subject, seed=self._seed,
                )  # fmt: skip
        raise BadPlan(
            f"solver={solver!r}: use 'keyed_sample', or expunge.solvers.KeyedSample(...), or, for noisy sums in a "
            "declared region, expunge.solvers.Lloyd(radius=...)."
        )

    def _warned(self, plan: KeyedClusterPlan, records: int) -> KeyedClusterPlan:
        """Return a plan; warn if its sample will be too small to find clusters in."""
        sampled = plan.rho * records
        if sampled < self.n_clusters:
            warn_caller(
                f"rho={plan.rho:.3g}: of {counted(records, 'record')} about {sampled:.2g} will be in the sample that "
                f"{counted(self.n_clusters, 'cluster')} are found in. Use a larger rho, or 'auto'.",
                PlanWarning,
            )
        return plan

    def _plan_fit(self, records: int, features: int, y: Any = None, classes: Any = None, sparse: bool = False) -> None:
        with Randomness.given(self.random_state, 0) as randomness:
            self._seed = int(randomness.plan.integers(2**63))
        super()._plan_fit(records, features)
        if max(records, self.expected_records or 0) < self.n_clusters:
            raise BadRecords(
                f"X: n_samples={records} is below n_clusters={self.n_clusters}. Give more records, or ask for fewer "
                "clusters."
            )
        self._report_plan()

    def _kept_by_records(self, before: ClusterPlan | KeyedClusterPlan) -> list[tuple[str, Any, Any]]:
        return [("radius, low, high" if before.encoding else "solver", before.encoding, self.plan_.encoding)]

    def _new_columns(self, *columns: Any) -> tuple[Any, ...]:
        (X,) = columns
        with in_plain_words(X):
            X = validate_data(self, X, reset=False, ensure_min_samples=0, **_TABLE)
        self._report_clipped(X)
        return (X - self.plan_.origin,)

    def _report_plan(self) -> None:
        """Warn if it is clear beforehand, from what was declared, that little will come of it."""
        for said, kind in self.plan_.doubts():
            warn_caller(said, kind)

    def _report_clipped(self, X: Array) -> None:
        if (said := self.plan_.clipped(X)) is not None:
            warn_caller(said, ClippedWarning)

    def _derive(self, model: Array) -> tuple[Array, Array]:
        relative = self.plan_.clusters_of(model)
        return relative + self.plan_.origin, relative

    def _centers(self) -> Array:
        """Return the centres as records have them: relative to the plan's origin."""
        centers: Array = self._published[1]
        return centers

    def _points(self, X: Any) -> Array:
        """Return rows as records have them."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_TABLE)
        return np.asarray(X - self.plan_.origin)

    def _live(self) -> Array:
        """Return all live records, by ascending id."""
        points: Array = self._records.batch_at(0)[0]
        return points[np.argsort(self._records.all_ids())]

    def _clusters(self, points: Array) -> Ints:
        return nearest(points, self._centers())

    def _inertia(self, points: Array) -> float:
        apart = points - self._centers()[self._clusters(points)]
        return float(np.einsum("ij,ij->", apart, apart))


_TABLE: dict[str, Any] = {"dtype": np.float64, "order": "C"}
