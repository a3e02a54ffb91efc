"""Losses of linear models: value and derivative in the scores, the largest slope and the largest curvature.

A record's result is the same to the last bit in whatever batch it comes: there are only elementwise operations and
sums along contiguous rows, no products by BLAS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any, Protocol

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.types import AnyArray, Array, Ints
from expunge.solvers.count_losses import Poisson
from expunge.solvers.robust_losses import ScaledHuber


class Loss(Protocol):
    """A convex function of a record's scores and its target."""

    @property
    def outputs(self) -> int:
        """Scores per record: 1 means scores of shape (n,), K means (n, K)."""

    @property
    def lipschitz(self) -> float:
        """The largest Euclidean norm of one record's derivative."""

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue of the second derivative in the scores; infinite if there is none."""

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the scores."""


class CurvedLoss(Loss, Protocol):
    """A loss of one score that Newton's method can take.

    It may also have ``guess(records, total) -> score``, a first constant score from the number of records and the sum
    of their targets; without it the method begins at 0. ``link`` says that scores are not in the units of targets;
    then ``saturated(targets) -> scores`` is where the loss is expanded if there are no rounds.
    """

    def expansion(self, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
        """Return its derivative in the score, and a curvature above 0 for the quadratic that takes its place."""


FLAT = 2.0**-9
"""The least curvature of a logistic loss, as Newton's method sees it: where it is flatter, steps would be too long."""


@cache
def logistic_function() -> Any:
    """Return the logistic function; SciPy is imported when it is first needed."""
    from scipy.special import expit

    return expit


class ClassLoss(Loss, Protocol):
    """A loss of classes: targets are -1 and +1 if there is one output, else the codes 0 to classes - 1."""

    @property
    def classes(self) -> int:
        """How many there are."""


def _positive(name: str, value: float) -> None:
    if not (isinstance(value, Real) and math.isfinite(value) and value > 0):
        raise BadPlan(f"{name}={value!r}: give a finite number above 0.")


def _several(classes: int) -> None:
    if isinstance(classes, bool) or not isinstance(classes, (int, np.integer)) or classes < 2:
        raise BadPlan(f"classes={classes!r}: give a whole number of at least 2.")


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(-y s)) for y in {-1, +1}.

    >>> float(Logistic().derivative(np.zeros(1), np.ones(1))[0])
    -0.5
    """

    outputs = 1
    classes = 2
    lipschitz = 1.0
    smoothness = 0.25

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        return np.logaddexp(0.0, -targets * scores)

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return -targets * logistic_function()(-targets * scores)

    def expansion(self, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
        """Return derivative and curvature."""
        away = -targets
        wrong = logistic_function()(away * scores)
        curvatures = 1.0 - wrong
        curvatures *= wrong
        return away * wrong, np.maximum(curvatures, FLAT, out=curvatures)

    def guess(self, records: float, total: float) -> float:
        """Return a part of the log-odds."""
        return 0.7 * math.log((records + total + 1.0) / (records - total + 1.0))


@dataclass(frozen=True)
class SquaredHinge:
    """max(0, 1 - y s)² for y in {-1, +1}: what scikit-learn's `LinearSVC` minimises.

    >>> SquaredHinge().value(np.array([0.0, 3.0]), np.ones(2)).tolist()
    [1.0, 0.0]
    """

    outputs = 1
    classes = 2
    lipschitz = math.inf
    smoothness = 2.0

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        return np.square(np.maximum(1.0 - targets * scores, 0.0))

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return np.asarray(-2.0 * targets * np.maximum(1.0 - targets * scores, 0.0))

    def expansion(self, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
        """Return derivative and curvature; where the loss is flat, a small one."""
        slope = self.derivative(scores, targets)
        return slope, np.where(slope != 0.0, 2.0, 0.1)


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 - y s) for y in {-1, +1}; flat at the kink.

    >>> Hinge().value(np.array([0.0, 3.0]), np.ones(2)).tolist()
    [1.0, 0.0]
    """

    outputs = 1
    classes = 2
    lipschitz = 1.0
    smoothness = math.inf

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        return np.maximum(1.0 - targets * scores, 0.0)

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return np.where(targets * scores < 1.0, -targets, 0.0)


@dataclass(frozen=True)
class SmoothedHinge:
    """The hinge with its kink rounded off by a parabola over margins from 1 - width to 1, for y in {-1, +1}.

    >>> SmoothedHinge(0.5).value(np.array([0.0, 0.75, 1.0]), np.ones(3)).tolist()
    [0.75, 0.0625, 0.0]
    """

    width: float = 1.0
    outputs = 1
    classes = 2
    lipschitz = 1.0

    def __post_init__(self) -> None:
        _positive("width", self.width)

    @property
    def smoothness(self) -> float:
        """Return the curvature of the parabola."""
        return 1.0 / self.width

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        missing = np.maximum(1.0 - targets * scores, 0.0)
        curved = np.minimum(missing, self.width)
        return np.asarray(0.5 * curved * (curved / self.width) + (missing - curved))

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return -targets * (np.clip(1.0 - targets * scores, 0.0, self.width) / self.width)


@dataclass(frozen=True)
class Multinomial:
    """The cross entropy of the softmax of K scores; targets are the codes 0 to K - 1.

    The derivative p - e_y has norm at most √2 (1 - p_y). The second derivative is diag(p) - ppᵀ; along a unit vector v
    it is the variance of v_j with j drawn from p, at most (max v - min v)²/4 ≤ 2|v|²/4 = 1/2; p = (½, ½) attains it.

    >>> Multinomial(2).derivative(np.zeros((1, 2)), np.array([0])).tolist()
    [[-0.5, 0.5]]
    """

    classes: int
    lipschitz = math.sqrt(2.0)
    smoothness = 0.5

    def __post_init__(self) -> None:
        _several(self.classes)

    @property
    def outputs(self) -> int:
        """Return one score per class."""
        return self.classes

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        return _soft_maximum(_leads(scores, _codes(targets), 0.0), 1.0)

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the scores."""
        codes = _codes(targets)
        return _soft_slope(_leads(scores, codes, 0.0), codes, 1.0)


@dataclass(frozen=True)
class MulticlassHinge:
    """Crammer and Singer's max_j (1[j≠y] + s_j - s_y); with a width, width·logsumexp of the same over width.

    Targets are the codes 0 to classes - 1. Without a width, ties go to the true class first (no slope), then to the
    lowest code. With one, the second derivative is that of `Multinomial` over the width: at most 1/(2 width).

    >>> MulticlassHinge(3).value(np.array([[0.0, 0.5, 0.0]]), np.array([0])).tolist()
    [1.5]
    >>> MulticlassHinge(3).derivative(np.array([[0.0, 0.5, 0.0]]), np.array([0])).tolist()
    [[-1.0, 1.0, 0.0]]
    """

    classes: int
    width: float = 0.0
    lipschitz = math.sqrt(2.0)

    def __post_init__(self) -> None:
        _several(self.classes)
        if not (isinstance(self.width, Real) and math.isfinite(self.width) and self.width >= 0):
            raise BadPlan(f"width={self.width!r}: give a finite number of at least 0 (0 means no smoothing).")

    @property
    def outputs(self) -> int:
        """Return one score per class."""
        return self.classes

    @property
    def smoothness(self) -> float:
        """Return half the inverse of the width."""
        return 0.5 / self.width if self.width else math.inf

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        leads = _leads(scores, _codes(targets), 1.0)
        return _soft_maximum(leads, self.width) if self.width else np.asarray(leads.max(axis=1))

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the scores."""
        codes = _codes(targets)
        leads = _leads(scores, codes, 1.0)
        return _soft_slope(leads, codes, self.width) if self.width else _hard_slope(leads, codes)


@dataclass(frozen=True)
class Squared:
    """(s - y)²/2 for real targets, where |s - y| is at most the declared reach, which is also the largest slope.

    Nothing here is clipped: whoever builds the model sees to the reach by the radius of the domain and the range of the
    targets, or clips contributions.

    >>> Squared(reach=4.0).derivative(np.array([3.0]), np.array([1.0])).tolist()
    [2.0]
    """

    reach: float
    outputs = 1
    smoothness = 1.0

    def __post_init__(self) -> None:
        _positive("reach", self.reach)

    @property
    def lipschitz(self) -> float:
        """Return the reach."""
        return self.reach

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        return np.asarray(0.5 * np.square(scores - targets))

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return np.asarray(scores - targets)

    def expansion(self, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
        """Return derivative and curvature."""
        return np.asarray(scores - targets), np.ones_like(scores)


@dataclass(frozen=True)
class Huber:
    """(s - y)²/2 within the width and linear beyond it, for real targets.

    >>> Huber(2.0).value(np.array([1.0, 5.0]), np.zeros(2)).tolist()
    [0.5, 8.0]
    """

    width: float = 1.0
    outputs = 1
    smoothness = 1.0

    def __post_init__(self) -> None:
        _positive("width", self.width)

    @property
    def lipschitz(self) -> float:
        """Return the width."""
        return self.width

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the loss of each record."""
        error = np.abs(scores - targets)
        curved = np.minimum(error, self.width)
        return np.asarray(0.5 * np.square(curved) + self.width * (error - curved))

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the score."""
        return np.clip(scores - targets, -self.width, self.width)


@dataclass(frozen=True)
class Weighted:
    """A loss of classes in which each class has its weight: (negative, positive), or one per code.

    >>> Weighted(Logistic(), (1.0, 3.0)).derivative(np.zeros(2), np.array([-1, 1])).tolist()
    [0.5, -1.5]
    """

    loss: ClassLoss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not hasattr(self.loss, "classes"):
            raise BadPlan(f"loss={self.loss!r}: has no classes to weight; use a loss of classes, or weight nothing.")
        object.__setattr__(self, "weights", tuple(self.weights))  # a list cannot be hashed
        for code, weight in enumerate(self.weights):
            _positive(f"weights[{code}]", weight)
        if len(self.weights) != self.loss.classes:
            raise BadPlan(f"weights={self.weights!r}: give one for each of the {self.loss.classes} classes.")

    @property
    def outputs(self) -> int:
        """Return the loss's own."""
        return self.loss.outputs

    @property
    def classes(self) -> int:
        """Return the loss's own."""
        return self.loss.classes

    @property
    def lipschitz(self) -> float:
        """Return the loss's own times the largest weight."""
        return self.loss.lipschitz * max(self.weights)

    @property
    def smoothness(self) -> float:
        """Return the loss's own times the largest weight."""
        return self.loss.smoothness * max(self.weights)

    def value(self, scores: Array, targets: AnyArray) -> Array:
        """Return the weighted loss of each record."""
        return np.asarray(self.each(targets) * self.loss.value(scores, targets))

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        """Return its derivative in the scores."""
        weights = self.each(targets)
        return np.asarray((weights if self.outputs == 1 else weights[:, None]) * self.loss.derivative(scores, targets))

    def expansion(self, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
        """Return weighted derivatives and curvatures."""
        curved: Any = self.loss
        weights, (slopes, curvatures) = self.each(targets), curved.expansion(scores, targets)
        return weights * slopes, weights * curvatures

    def each(self, targets: AnyArray) -> Array:
        """Return the weight of each record."""
        codes = _codes(targets) if self.outputs > 1 else _codes(np.asarray(targets) > 0)
        return np.array(self.weights, dtype=float)[codes]


KNOWN = (
    Logistic, SquaredHinge, Hinge, SmoothedHinge, Multinomial, MulticlassHinge, Squared, Huber, Poisson, ScaledHuber,
    Weighted,
)  # fmt: skip
"""The losses that a store knows by name; others are the user's own."""


def _codes(targets: AnyArray) -> Ints:
    return np.asarray(targets).astype(np.int64)


def _leads(scores: Array, codes: Ints, margin: float) -> Array:
    """Return how far each class is ahead of the true one, plus the margin, in contiguous rows; 0 for itself."""
    scores, rows = np.ascontiguousarray(scores, dtype=float), np.arange(len(codes))
    leads = scores - scores[rows, codes][:, None] + margin
    leads[rows, codes] = 0.0
    return leads


def _soft_maximum(leads: Array, width: float) -> Array:
    """Return width·log Σ exp(lead/width) of each row, accurate also where one term is nearly everything."""
    top = leads.max(axis=1)
    powers = np.exp((leads - top[:, None]) / width)
    powers[np.arange(len(leads)), leads.argmax(axis=1)] = 0.0  # the one that log1p adds
    return np.asarray(top + width * np.log1p(powers.sum(axis=1)))


def _soft_slope(leads: Array, codes: Ints, width: float) -> Array:
    """Return softmax(leads/width) - e_y; the true class gets minus the sum of the others, which is accurate."""
    powers = np.exp((leads - leads.max(axis=1)[:, None]) / width)
    slope = powers / powers.sum(axis=1)[:, None]
    rows = np.arange(len(codes))
    slope[rows, codes] = 0.0
    slope[rows, codes] = -slope.sum(axis=1)
    return slope


def _hard_slope(leads: Array, codes: Ints) -> Array:
    """Return e_j - e_y for the first class j that is most ahead; 0 if none is ahead."""
    ahead = np.flatnonzero(leads.max(axis=1) > 0.0)
    slope = np.zeros_like(leads)
    slope[ahead, leads[ahead].argmax(axis=1)] = 1.0
    slope[ahead, codes[ahead]] = -1.0
    return slope
