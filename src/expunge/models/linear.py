"""What linear models with noisy gradients have in common: their parameters, how records are encoded, serving."""

from __future__ import annotations

import inspect
import math
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import is_regressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted, validate_data

from expunge.base.checking import check_positive
from expunge.base.columns import is_sparse
from expunge.base.errors import BadPlan, PlanWarning, warn_caller
from expunge.base.types import AnyArray, Array
from expunge.engine.randomness import Randomness
from expunge.engine.records.memory import MemoryRecords
from expunge.models.forgetting import ROWS, TABLE, refuse_masked
from expunge.models.habits import LINEAR, guided
from expunge.models.preprocessing import bound_rows
from expunge.models.projecting import AnyProjection, drawn
from expunge.models.supervised import SupervisedModel
from expunge.solvers.losses import Loss
from expunge.solvers.plans.compatible import Coupling, Noise, Region, Selected, When
from expunge.solvers.plans.linear import Plan, make_plan
from expunge.solvers.plans.newton import AnySolver, NewtonPlan, make_newton_plan


class LinearModel(SupervisedModel):
    """A linear model with exact deletion. Subclasses say which loss it has and how targets are encoded."""

    @guided
    def __init__(
        self,
        *,
        rho: float | Literal["auto"] = "auto",
        solver: AnySolver = "dual_averaging",
        C: float = 1.0,
        standardize: bool = True,
        n_components: int | Literal["auto"] | None = None,
        schedule: When = "scattered",
        mechanism: Noise = "sqrt",
        coupling: Coupling | None = None,
        steps: int | None = None,
        batch: int | None = None,
        epochs: int | None = None,
        rate: float = 1.0,
        clip: float | Literal["auto"] | None = "auto",
        alpha: float = 0.0,
        radius: float | None = None,
        domain: Region | None = None,
        feature_norm: float = 1.0,
        fit_intercept: bool = True,
        step_size: float | Literal["theorem", "paper", "anytime"] | None = None,
        selector: Selected | Literal["auto"] = "auto",
        records_per_subject: int = 1,
        expected_records: int | None = None,
        horizon: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.rho = rho
        self.solver = solver
        self.C = C
        self.standardize = standardize
        self.n_components = n_components
        self.schedule = schedule
        self.mechanism = mechanism
        self.coupling = coupling
        self.steps = steps
        self.batch = batch
        self.epochs = epochs
        self.rate = rate
        self.clip = clip
        self.alpha = alpha
        self.radius = radius
        self.domain = domain
        self.feature_norm = feature_norm
        self.fit_intercept = fit_intercept
        self.step_size = step_size
        self.selector = selector
        self.records_per_subject = records_per_subject
        self.expected_records = expected_records
        self.horizon = horizon
        self.random_state = random_state

    # --- what a subclass says ---

    def make_loss(self) -> Loss:
        """Return the loss; it may depend on parameters and declared classes, never on records."""
        raise NotImplementedError(
            f"{type(self).__name__}: override make_loss() and return a loss, see expunge.solvers.losses."
        )

    def _meet_targets(self, y: AnyArray, classes: Any) -> None:
        """Fix, at the first fit, what must be known about targets."""

    def _kept_by_targets(self) -> list[tuple[str, Any, Any]]:
        """Return (parameter, as it was, as it is) for parameters by which the records' targets were encoded."""
        return []

    INSTEAD = LINEAR
    _projection: AnyProjection | None
    SCORES: ClassVar[dict[str, float]]
    """How large scores become, by solver."""

    def _largest_scores(self, features: int) -> float:
        """Return how large scores become, from which the default radius follows."""
        return self.SCORES.get(self.solver, 1.0)

    def _default_clip(self, loss: Loss) -> float | None:
        """Return at which slope to clip if the user does not say; None means nowhere."""
        return None

    def _coefficients(self, weights: Array, intercepts: Array) -> tuple[Array, Any]:
        """Return ``coef_`` and ``intercept_`` from one row of weights, and one intercept, for each output."""
        return weights, intercepts

    def _plain(self) -> Any:
        """Return scikit-learn's model of this kind, without coefficients."""
        raise NotImplementedError

    # --- requests ---

    def _fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> None:
        refuse_masked(X, y)
        X, y = validate_data(self, X, y, y_numeric=is_regressor(self), **TABLE)
        self._plan_fit(X.shape[0], X.shape[1], y, classes)
        self._refuse_crowds(subjects, None)
        with Randomness.given(self.random_state, 0) as randomness:
            self._draw(randomness.plan)
            columns = (self._encode_rows(X), self._encode_targets(y))
            self._sparse = is_sparse(columns[0])
            self._learn(columns, ids, subjects, randomness)

    def _plan_fit(self, records: int, features: int, y: Any = None, classes: Any = None) -> None:
        self._meet_targets(y, classes)
        self.__dict__.pop("_projection", None)  # of an earlier fit
        super()._plan_fit(records, features)

    def _draw(self, rng: np.random.Generator) -> None:
        self._projection = drawn(self.plan_, self.n_features_in_, float(self.feature_norm), rng)

    def _check_replan(self, before: Plan, records: MemoryRecords) -> None:
        if self._projection is not None and self.n_components == "auto":
            raise BadPlan(
                "n_components='auto': the number of projections depends on the number of records, which are stored "
                "projected. Refit from the original records."
            )
        super()._check_replan(before, records)

    def _kept_by_records(self, before: Plan) -> list[tuple[str, Any, Any]]:
        was_newton, is_newton = (isinstance(plan, NewtonPlan) for plan in (before, self.plan_))
        norm = before.feature_norm if self._projection is None else self._projection.norm
        was, now = (plan.features if plan.projected else None for plan in (before, self.plan_))
        if was_newton and is_newton:
            return self._kept_by_targets()
        return [
            ("solver", "newton" if was_newton else "another", "newton" if is_newton else "another"),
            ("feature_norm", norm, float(self.feature_norm)),
            ("n_components", was, now),
            *self._kept_by_targets(),
        ]

    def to_sklearn(self) -> Any:
        """Return the model alone, for serving: a scikit-learn model, without records and transcript.

        With ``solver="newton"`` it is that model. Else it is a pipeline: `bound_rows` scales rows longer than
        ``feature_norm`` down to it, then comes scikit-learn's model (``to_sklearn()[-1]``). Deletions do not reach this
        copy: make a new one after requests.
        """
        self._need_fit()
        model = self._plain()
        model.coef_, model.intercept_ = map(np.copy, self._published[:2])
        for name in ("classes_", "n_features_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        if math.isinf(self._row_norm):
            return model
        rows = FunctionTransformer(bound_rows, accept_sparse=True, kw_args={"norm": self._row_norm})
        return Pipeline([("rows", rows), ("model", model)])

    # --- parts ---

    def _make_plan(self, records: int, features: int, expected: int | None) -> Any:
        loss = self.__dict__.get("_given_loss") or self.make_loss()  # handed in when it was opened
        if expected is not None:
            check_positive("expected_records", expected, whole=True)
        if self.solver == "newton":
            self._refuse_others(_NOT_NEWTONS, "solver='newton' does without it")
            names = "rho", "standardize", "fit_intercept"
            chosen = {name: getattr(self, name) for name in names}
            plan = make_newton_plan(loss, features, int(expected or records), C=self._newtons_C(), **chosen)
            for said in plan.advice():
                warn_caller(said, PlanWarning)
            return plan
        self._refuse_others(
            ("C", "standardize"), "it goes with solver='newton'; else use alpha = 1/(n·C) for n records"
        )
        choices = {name: getattr(self, name) for name in _CHOICES}
        if isinstance(self.clip, str) and self.clip == "auto":
            choices["clip"] = self._default_clip(loss)
            if self.solver == "frank_wolfe":  # twice the gradient, as in its first step
                choices["clip"] = 2.0 * (choices["clip"] or loss.lipschitz)
        if self.selector == "auto":  # the theorem on Frank-Wolfe is about the last iterate
            choices["selector"] = "last" if self.solver == "frank_wolfe" and self.clip is None else "tail"
        choices["scores"] = self._largest_scores(features)
        if self.__dict__.get("_projection") is not None:  # a new plan: records stay shortened as they are
            choices["projected_norm"] = self.plan_.feature_norm
        return make_plan(loss, features, int(expected or records), n_components=self.n_components, **choices)

    def _newtons_C(self) -> float:
        """Return the weight of the loss beside the penalty, for Newton's method."""
        return self.C

    def _refuse_others(self, names: tuple[str, ...], why: str) -> None:
        """Raise if parameters were given that the solver does not have."""
        usual, mine = (inspect.signature(kind.__init__).parameters for kind in (LinearModel, type(self)))
        for name in names:
            if name in mine and getattr(self, name) not in (usual[name].default, mine[name].default):
                raise BadPlan(f"{name}={getattr(self, name)!r}: {why}. Leave it out.")

    @property
    def _row_norm(self) -> float:
        """To which norm longer rows are shortened, before they are projected."""
        return self.plan_.feature_norm if self._projection is None else self._projection.norm

    def _encode_rows(self, X: Any) -> Any:
        """Return rows as records have them: projected, if the plan says so."""
        return X if self._projection is None else self._projection.apply(X)

    def _derive(self, model: Array) -> tuple[Any, ...]:
        """Return the coefficients of a model's parameters."""
        weights, intercepts = self.plan_.coefficients(model)
        if self._projection is not None:
            weights = self._projection.back(weights)
        return self._coefficients(np.ascontiguousarray(weights), intercepts)

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **ROWS)
        weights, intercept = self._published[:2]
        rows = X if math.isinf(self._row_norm) else bound_rows(X, self._row_norm)
        return np.asarray(rows @ np.atleast_2d(weights).T + intercept)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


_NOT_NEWTONS = (
    "n_components", "schedule", "mechanism", "coupling", "steps", "batch", "epochs", "rate", "clip", "alpha", "radius",
    "domain", "feature_norm", "step_size", "selector", "records_per_subject", "horizon",
)  # fmt: skip
_CHOICES = (
    "rho", "solver", "schedule", "mechanism", "coupling", "steps", "batch", "epochs", "rate", "clip", "alpha", "radius",
    "domain", "feature_norm", "fit_intercept", "step_size", "selector", "records_per_subject", "horizon",
)  # fmt: skip
