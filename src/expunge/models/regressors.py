"""Regressions from which records can be deleted exactly."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
import sklearn.linear_model
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from expunge.base.checking import check_positive
from expunge.base.errors import BadPlan, BadRecords, NotAvailable, RangeWarning, warn_caller
from expunge.base.guiding import guided
from expunge.base.types import AnyArray, Array
from expunge.models.habits import COUNTS, HUBER
from expunge.models.linear import Finish, LinearModel, RandomState
from expunge.models.showing import if_available
from expunge.solvers.count_losses import Poisson, means_of
from expunge.solvers.losses import Huber, Loss, Squared
from expunge.solvers.objects import Newton, Said, solver_of
from expunge.solvers.plans.newton import NewtonPlan
from expunge.solvers.robust_losses import ScaledHuber

NARROW = 0.1
"""Below this share of their range nine tenths of the targets are close together."""
ENOUGH = 100
"""Fewer targets than this are no sample to judge a range by."""


class LinearRegressor(RegressorMixin, LinearModel):
    """A regression. Subclasses say which loss it has.

    All solvers but Newton map targets from the range that they declare, ``target_range``, to [-1, 1] before that.

    With Newton targets are taken as they are, and no range is declared.
    """

    SCORES: ClassVar = {"dual_averaging": 5.0, "frank_wolfe": 6.0, "gradient_descent": 5.0}

    def _range(self) -> tuple[float, float]:
        given = self._chosen.target_range
        try:
            low, high = map(float, given)
        except (TypeError, ValueError):
            here = type(self._chosen).__name__
            raise BadPlan(
                f"target_range={given!r}: {here} needs the range of the targets, declared from public knowledge, such "
                f"as solver=expunge.solvers.{here}(target_range=(0, 500_000)). A range taken from the records would "
                "reveal their largest and smallest target. Newton's method needs no range: solver='newton'."
            ) from None
        if not (low < high and math.isfinite(high - low)):
            raise BadPlan(f"target_range={given!r}: give two finite numbers, the lower one first.")
        return low, high

    @guided
    def partial_fit(self, X: Any, y: Any, *, ids: Any = None, subjects: Any = None) -> Self:
        """Continue learning, like `insert`; with ``schedule="arrival"`` at a cost that does not grow with the records.

        The first call fits: declare ``expected_records``, which it cannot know from its few records.
        """
        return self._partial_fit(X, y, ids, subjects)

    def _meet_targets(self, y: AnyArray, classes: Any, features: int, sparse: bool) -> None:
        super()._meet_targets(y, classes, features, sparse)
        self.__dict__.pop("target_range_", None)  # of an earlier fit
        if not isinstance(self._chosen, Newton):
            self.target_range_ = self._range()
            self._report_narrow(y)

    def _report_narrow(self, y: AnyArray | None) -> None:
        """Warn, and store nothing, if most targets are close together: the model starts far from all of them."""
        low, high = self.target_range_
        if y is None or len(y) < ENOUGH or y.dtype.kind not in "biuf":  # none, where only a plan is wanted
            return
        first, last = np.quantile(y.astype(np.float64), [0.05, 0.95])
        if 0.0 < last - first < NARROW * (high - low):
            warn_caller(
                f"y: nine tenths of the targets are in less than a tenth of target_range=({low:g}, {high:g}). A model "
                "may not see the differences between them. Declare the range of most targets from public knowledge; "
                "targets outside are clipped to it.",
                RangeWarning,
            )

    def _kept_by_targets(self) -> list[tuple[str, Any, Any]]:
        ranged = self._ranged and not isinstance(self._chosen, Newton)
        return [("target_range", self.target_range_, self._range())] if ranged else []

    @property
    def _ranged(self) -> bool:
        """Whether targets are mapped from a range."""
        return hasattr(self, "target_range_")

    def _encode_targets(self, y: AnyArray) -> AnyArray:
        """Return targets in [-1, 1]; those outside their range are clipped to it. Without a range, as they are."""
        if y.dtype.kind not in "biuf":
            raise BadRecords(f"y: expected numbers, got {y.dtype}; convert them first.")
        if not self._ranged:
            return y.astype(np.float64)
        low, high = self.target_range_
        return np.clip((y - low) * (2.0 / (high - low)) - 1.0, -1.0, 1.0)

    def _coefficients(self, weights: Array, intercepts: Array) -> tuple[Array, Any]:
        if not self._ranged:
            return weights[0], float(intercepts[0])
        low, high = self.target_range_
        half = (high - low) / 2.0
        return half * weights[0], float(half * intercepts[0] + (low + high) / 2.0)

    def _plain(self) -> Any:
        return sklearn.linear_model.LinearRegression()

    def predict(self, X: Any) -> Array:
        """Return the prediction for each row."""
        return self._scores(X).ravel()


class LinearRegression(LinearRegressor):
    """Least squares from which records can be deleted exactly, as in scikit-learn: no penalty, targets as they are.

    By default it is solved from exact sums: there is no noise, nothing to declare, and no deletion replays. With a
    solver such as ``expunge.solvers.DualAveraging(target_range=(0, 10))``, residuals larger than its ``clip``
    half-ranges of the target (by default 1) count as that large. Every parameter: docs/estimators.md.

    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = LinearRegression().fit(X, 5 + 3 * X[:, 0])
    >>> outcome = model.unlearn([17, 18])
    >>> model.coef_.round(6).tolist(), round(model.intercept_, 6), outcome.kept
    ([3.0], 5.0, True)
    """

    LARGEST_RESIDUAL = 1.0

    def make_loss(self) -> Loss:
        """Return the squared loss, for residuals as large as will be counted."""
        clip = getattr(self._chosen, "clip", "auto")
        if isinstance(clip, str) and clip == "auto":
            return Squared(self.LARGEST_RESIDUAL)
        if clip is None:
            raise BadPlan(
                "clip=None: the slopes of the squared loss have no bound; give a number, or 'auto', which is 1."
            )
        check_positive("clip", clip)
        return Squared(float(clip))

    def _default_clip(self, loss: Loss) -> float | None:
        return self.LARGEST_RESIDUAL

    def _newtons_C(self) -> float:
        self._refuse_others(("C", "standardize"), "least squares has no penalty; Ridge has one")
        return math.inf


class HuberRegressor(LinearRegressor):
    """A regression that outliers hardly move, from which records can be deleted exactly.

    By default it is scikit-learn's with alpha = 1/C, behind a `StandardScaler` if ``standardize``: columns and targets
    as they are, and ``scale_`` beside the weights. (docs/newton.md)

    ``epsilon`` is where the loss turns from quadratic to linear: with Newton in units of the residuals' scale, which is
    learned too, as in scikit-learn ("auto" is 1.35); with other solvers in half-ranges of the target ("auto" is 0.2),
    where a smaller one needs less noise for the same ρ.

    >>> from expunge.solvers import DualAveraging
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = HuberRegressor(solver=DualAveraging(target_range=(0, 10))).fit(X, 5 + 3 * X[:, 0])
    >>> bool(abs(model.predict([[0.5]]) - 6.5)[0] < 0.2)
    True
    >>> y = 5 + 3 * X[:, 0] + np.random.default_rng(0).normal(size=200)
    >>> y[::20] = 1e6
    >>> model = HuberRegressor().fit(X, y)
    >>> outcome = model.unlearn([17, 18])
    >>> model.coef_.round().tolist(), round(model.intercept_), 0.5 < model.scale_ < 2.0
    ([3.0], 5, True)
    """

    INSTEAD = HUBER
    PUBLISHED = ("coef_", "intercept_", "scale_")

    @guided
    def __init__(
        self,
        *,
        epsilon: float | Literal["auto"] = "auto",
        rho: float | Literal["auto"] = "auto",
        C: float = 10_000.0,
        standardize: bool = True,
        fit_intercept: bool = True,
        expected_records: int | None = None,
        solver: Said = "auto",
        finish: Finish = "auto",
        random_state: RandomState = None,
    ) -> None:
        super().__init__(
            rho=rho, C=C, standardize=standardize, fit_intercept=fit_intercept, expected_records=expected_records,
            solver=solver, finish=finish, random_state=random_state,
        )  # fmt: skip
        self.epsilon = epsilon

    def make_loss(self) -> Loss:
        """Return Huber's loss."""
        kind, usual = (ScaledHuber, 1.35) if isinstance(self._chosen, Newton) else (Huber, 0.2)
        if isinstance(self.epsilon, str) and self.epsilon == "auto":
            return kind(usual)
        check_positive("epsilon", self.epsilon)
        return kind(float(self.epsilon))

    def _derive(self, model: Array) -> tuple[Any, ...]:
        scale = self.plan_.scale(model) if isinstance(self.plan_, NewtonPlan) else None
        return *super()._derive(model), scale

    @property
    @if_available
    def scale_(self) -> float:
        """The scale of the residuals, with Newton."""
        scale: float | None = self._shown(2)
        if scale is None:
            raise NotAvailable("scale_: there is one with Newton only.")
        return scale

    def to_sklearn(self) -> Any:
        """Return the model alone, for serving: a scikit-learn model, without records and transcript.

        Deletions do not reach this copy: make a new one after requests.
        """
        served = super().to_sklearn()
        if (scale := self._published[2]) is not None:
            served.scale_ = scale
        return served

    def _plain(self) -> Any:
        return sklearn.linear_model.HuberRegressor()


class PoissonRegressor(LinearRegressor):
    """A regression of counts, from which records can be deleted exactly: the mean of a count is exp(score).

    It is scikit-learn's with alpha = 1/(n·C) for n records, behind a `StandardScaler` if ``standardize``. Columns and
    counts are taken as they are. ``rho`` is the planned share of deletions that replay: docs/newton.md.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> model = PoissonRegressor().fit(X, rng.poisson(np.exp(1.0 + 0.5 * X[:, 0])))
    >>> outcome = model.unlearn([17, 42])
    >>> model.coef_.round(1)[:1].tolist(), round(model.intercept_, 1), model.verify().ok
    ([0.5], 1.0, True)
    """

    INSTEAD = COUNTS
    LARGEST_COUNT = 2.0**30

    def _choose(self, features: int, sparse: bool) -> None:
        self._chosen = solver_of(self.solver) or Newton()  # nothing else can take counts, however many columns

    def _range(self) -> tuple[float, float]:
        raise BadPlan(f"solver={self.solver!r}: counts have no declared range, and slopes no bound. Use 'newton'.")

    def make_loss(self) -> Loss:
        """Return the loss of counts."""
        return Poisson()

    def _encode_targets(self, y: AnyArray) -> AnyArray:
        counts = super()._encode_targets(y)
        for wrong in counts[~((counts >= 0.0) & (counts <= self.LARGEST_COUNT))][:1]:
            raise BadRecords(f"y: it has {wrong:g}; counts are from 0 to {self.LARGEST_COUNT:,.0f}. Correct it.")
        return counts

    def predict(self, X: Any) -> Array:
        """Return the mean count for each row: at least exp(-30) and at most exp(30), far above any count it takes."""
        return means_of(super().predict(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D², the share of the deviance that is explained, as scikit-learn's does.

        Where all counts are the same there is nothing to explain: it is 1 if they are met to 1e-6, else 0.
        """
        counts = np.asarray(y)
        if counts.size and (counts == counts.flat[0]).all():
            return float(np.allclose(self.predict(X), counts, rtol=1e-6, atol=1e-6))
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _plain(self) -> Any:
        model = sklearn.linear_model.PoissonRegressor()
        model._base_loss = model._get_loss()
        return model
