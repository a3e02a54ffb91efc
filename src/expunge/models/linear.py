"""What linear models with noisy gradients have in common: their parameters, how records are encoded, serving."""

from __future__ import annotations

import copy
import inspect
import math
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from sklearn.base import clone, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted, validate_data

from expunge.base.checking import check_one_of, check_positive
from expunge.base.columns import is_sparse
from expunge.base.errors import BadPlan, ClippedWarning, PlanWarning, UnknownParameter, warn_caller
from expunge.base.guiding import guided
from expunge.base.norms import row_norms
from expunge.base.types import AnyArray, Array
from expunge.engine.randomness import Randomness
from expunge.engine.records.memory import MemoryRecords
from expunge.models.forgetting import ROWS, TABLE
from expunge.models.habits import LINEAR
from expunge.models.preprocessing import bound_rows
from expunge.models.projecting import AnyProjection, drawn
from expunge.models.refusing import finite, in_plain_words
from expunge.models.supervised import WithCoefficients
from expunge.solvers.automatic import automatic_solver
from expunge.solvers.losses import Loss
from expunge.solvers.objects import BY_NAME, AnySolver, DualAveraging, FrankWolfe, Newton, Said, solver_of
from expunge.solvers.plans.linear import Plan, make_plan
from expunge.solvers.plans.newton import NewtonPlan, make_newton_plan

Finish = Literal["auto", "exact"] | None
RandomState = int | np.random.Generator | np.random.RandomState | None
INNER = "solver__"
"""What names of the solver's parameters begin with."""
LONG = 10.0
"""How many times as long as they count rows may be without a warning."""


class LinearModel(WithCoefficients):
    """A linear model with exact deletion. Subclasses say which loss it has and how targets are encoded."""

    @guided
    def __init__(
        self,
        *,
        rho: float | Literal["auto"] = "auto",
        C: float = 1.0,
        standardize: bool = True,
        fit_intercept: bool = True,
        expected_records: int | None = None,
        solver: Said = "auto",
        finish: Finish = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.rho = rho
        self.C = C
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.expected_records = expected_records
        self.solver = solver
        self.finish = finish
        self.random_state = random_state

    # --- what a subclass says ---

    def make_loss(self) -> Loss:
        """Return the loss; it may depend on parameters and declared classes, never on records."""
        raise NotImplementedError(
            f"{type(self).__name__}: override make_loss() and return a loss, see expunge.solvers.losses."
        )

    def _meet_targets(self, y: AnyArray, classes: Any, features: int, sparse: bool) -> None:
        """Fix, at the first fit, what must be known about targets, and which solver there is."""
        self._meet_classes(y, classes)
        self._choose(features, sparse)

    def _meet_classes(self, y: AnyArray, classes: Any) -> None:
        """Fix which classes there are, if there are any."""

    def _choose(self, features: int, sparse: bool) -> None:
        self._chosen = solver_of(self.solver)
        if self._chosen is None:
            self._chosen = Newton()  # whose loss is asked about
            self._chosen = automatic_solver(self._loss(), features, sparse=sparse)

    def _kept_by_targets(self) -> list[tuple[str, Any, Any]]:
        """Return (parameter, as it was, as it is) for parameters by which the records' targets were encoded."""
        return []

    INSTEAD = LINEAR
    _projection: AnyProjection | None
    _chosen: Any
    """The solver of the fit, an object."""
    SCORES: ClassVar[dict[str, float]]
    """How large scores become, by solver."""

    def _largest_scores(self, features: int) -> float:
        """Return how large scores become, from which the default radius follows."""
        return self.SCORES.get(self._chosen.NAME, 1.0)

    def _default_clip(self, loss: Loss) -> float | None:
        """Return at which slope to clip if the user does not say; None means nowhere."""
        return None

    def _coefficients(self, weights: Array, intercepts: Array) -> tuple[Array, Any]:
        """Return ``coef_`` and ``intercept_`` from one row of weights, and one intercept, for each output."""
        return weights, intercepts

    def _plain(self) -> Any:
        """Return scikit-learn's model of this kind, without coefficients."""
        raise NotImplementedError

    # --- parameters ---

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the solver as ``solver__epochs``. On a fitted model they take effect at `replan`."""
        inner = {name.removeprefix(INNER): value for name, value in params.items() if name.startswith(INNER)}
        super().set_params(**{name: value for name, value in params.items() if not name.startswith(INNER)})
        if inner:
            solver = solver_of(self.solver)
            if solver is None:
                name = next(iter(inner))
                kind = next((one for one in BY_NAME.values() if name in one.parameters()), DualAveraging)
                raise UnknownParameter(
                    f"{INNER}{name}: solver='auto' has no parameters. Give the solver as an object, such as "
                    f"solver=expunge.solvers.{kind.__name__}()."
                )
            self.solver = copy.copy(solver).set_params(**inner)
        return self

    def solver_for(self, features: int, *, sparse: bool = False, classes: Any = None) -> AnySolver:
        """Return the solver that a fit to a table with so many columns takes: with "auto", by its shape alone.

        The rule is that of `expunge.solvers.automatic_solver`. A classifier must have declared ``classes``, or be
        given them here.
        """
        model: Any = clone(self)
        declared = getattr(model, "classes", None) if classes is None else classes
        if declared is None and hasattr(model, "classes"):
            raise BadPlan("classes=None: the loss, and so the solver, depends on their number; declare them.")
        model._meet_classes(np.asarray(declared), declared)
        model._choose(features, sparse)
        return cast(AnySolver, model._chosen)

    # --- requests ---

    def _fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> None:
        with in_plain_words(X, y):
            X, y = validate_data(self, X, y, y_numeric=is_regressor(self), **TABLE)
        self._plan_fit(X.shape[0], X.shape[1], y, classes, is_sparse(X))
        self._refuse_crowds(subjects, None)
        self._report_long_rows(X)
        with Randomness.given(self.random_state, 0) as randomness:
            self._draw(randomness.plan)
            columns = (self._encode_rows(X), self._encode_targets(y))
            self._sparse = is_sparse(columns[0])
            self._learn(columns, ids, subjects, randomness)

    def _report_long_rows(self, X: Any) -> None:
        """Warn if "auto" has chosen a solver that shortens rows, and most are far longer."""
        norm = self._declared_norm
        if solver_of(self.solver) is None and math.isfinite(norm):
            typical = float(np.median(row_norms(X)))
            if typical > LONG * norm:
                warn_caller(
                    f"X: most rows are longer than {typical:.3g}, and {type(self._chosen).__name__}, which this model "
                    f"needs here, shortens them to {norm:g}: large columns then drown the others. Scale columns first, "
                    "by public ranges (expunge.BoundedScaler).",
                    ClippedWarning,
                )

    def _plan_fit(self, records: int, features: int, y: Any = None, classes: Any = None, sparse: bool = False) -> None:
        self._meet_targets(y, classes, features, sparse)
        self.__dict__.pop("_projection", None)  # of an earlier fit
        super()._plan_fit(records, features)

    def _draw(self, rng: np.random.Generator) -> None:
        self._projection = drawn(self.plan_, self.n_features_in_, self._declared_norm, rng)

    @property
    def _declared_norm(self) -> float:
        return float(getattr(self._chosen, "feature_norm", math.inf))

    def _choose_again(self) -> None:
        self._chosen = solver_of(self.solver) or self._chosen  # records are kept for what "auto" chose

    def _recall(self) -> None:
        usual = Newton() if isinstance(self.plan_, NewtonPlan) else DualAveraging()
        self._chosen = solver_of(self.solver) or usual

    def _check_replan(self, before: Plan, records: MemoryRecords) -> None:
        if self._projection is not None and getattr(self._chosen, "n_components", None) == "auto":
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
            ("feature_norm", norm, self._declared_norm),
            ("n_components", was, now),
            *self._kept_by_targets(),
        ]

    def to_sklearn(self) -> Any:
        """Return the model alone, for serving: a scikit-learn model, without records and transcript.

        With Newton it is that model. Else it is a pipeline: `bound_rows` scales rows longer than
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

    def _loss(self) -> Loss:
        return self.__dict__.get("_given_loss") or self.make_loss()  # handed in when it was opened

    def _make_plan(self, records: int, features: int, expected: int | None) -> Any:
        check_one_of("finish", self.finish, Literal["auto", "exact", None])
        if expected is not None:
            check_positive("expected_records", expected, whole=True)
        make = self._newton_plan if isinstance(self._chosen, Newton) else self._noisy_plan
        return make(self._loss(), features, int(expected or records))

    def _newton_plan(self, loss: Any, features: int, records: int) -> NewtonPlan:
        """Return the plan of Newton's method."""
        names = "rho", "standardize", "fit_intercept"
        chosen = {**{name: getattr(self, name) for name in names}, **self._chosen.get_params()}
        plan = make_newton_plan(loss, features, records, C=self._newtons_C(), finish=self.finish is not None, **chosen)
        for said in plan.advice():
            warn_caller(said, PlanWarning)
        return plan

    def _noisy_plan(self, loss: Loss, features: int, records: int) -> Plan:
        """Return the plan of a solver that puts noise on sums."""
        solver = self._chosen
        here = type(solver).__name__
        self._refuse_others(
            ("C", "standardize"),
            f"it goes with Newton, and this is {here}. Use solver=expunge.solvers.{here}(alpha=...), with alpha = "
            "1/(n·C) for n records",
        )
        if self.finish == "exact":
            raise BadPlan(f"finish='exact': it goes with Newton; {here} has none. Leave it out.")
        choices = solver.get_params()
        del choices["target_range"]
        smooth = isinstance(solver, FrankWolfe)
        if isinstance(solver.clip, str) and solver.clip == "auto":
            choices["clip"] = self._default_clip(loss)
            if smooth:  # twice the gradient, as in its first step
                choices["clip"] = 2.0 * (choices["clip"] or loss.lipschitz)
        if solver.selector == "auto":  # the theorem on Frank-Wolfe is about the last iterate
            choices["selector"] = "last" if smooth and solver.clip is None else "tail"
        choices["scores"] = self._largest_scores(features)
        if self.__dict__.get("_projection") is not None:  # a new plan: records stay shortened as they are
            choices["projected_norm"] = self.plan_.feature_norm
        return make_plan(
            loss, features, records, rho=self.rho, solver=solver.NAME, fit_intercept=self.fit_intercept, **choices
        )

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
        with np.errstate(over="ignore", invalid="ignore"):
            return finite(np.asarray(rows @ np.atleast_2d(weights).T + intercept))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
