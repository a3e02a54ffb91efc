"""What a record contributes at a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from expunge.columns import each
from expunge.errors import BadPlan, BadRecords
from expunge.extents import Extent
from expunge.grid import grid_unit, on_grid
from expunge.losses import Loss
from expunge.moments import EXACT_TO, Moments
from expunge.preprocessing import row_norms, shortened
from expunge.rows import Path
from expunge.types import AnyArray, Array, Batch, Ints


@dataclass(frozen=True)
class PerRecord:
    """A query from a plain function of one record: ``function(step, path, *fields) -> size numbers``.

    Slower than a query that takes whole batches, but easy to write. Rows of sparse columns come as plain arrays.

    >>> mean = PerRecord(lambda step, path, x: x - path[-1], size=2, bound=4.0)
    >>> mean.contributions(0, Path(np.zeros(2), None, 0), (np.eye(2),)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    function: Callable[..., Any]
    size: int
    bound: float

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Call the function for every record."""
        records = zip(*map(each, batch), strict=True)
        rows = [np.asarray(self.function(step, path, *fields), dtype=float) for fields in records]
        return np.stack(rows) if rows else np.zeros((0, self.size))


@dataclass(frozen=True)
class Gradient:
    """The gradient of a linear model's loss; records are (features, target) with features of bounded norm.

    The parameters are one flat array: for each feature as many numbers as the loss has outputs. ``intercept`` is a
    constant that every record has as one more feature, behind the others (0: none). Slopes (derivatives of the loss
    in the scores) longer than ``clip`` are scaled down to it. Rows longer than ``feature_norm`` are refused, or, with
    ``shorten``, scaled down to it when they enter.

    >>> from expunge.losses import Logistic
    >>> Gradient(Logistic(), size=4, feature_norm=3.0, intercept=4.0).bound
    5.0
    """

    loss: Loss
    size: int
    feature_norm: float = 1.0
    intercept: float = 0.0
    clip: float | None = None
    shorten: bool = False

    def __post_init__(self) -> None:
        for name, value in (("feature_norm", self.feature_norm), ("clip", self.clip)):
            if value is not None and not value > 0:
                raise BadPlan(f"{name}={value!r}: give a number above 0.")
        if self.size % self.loss.outputs or self.columns < 0:
            raise BadPlan(
                f"size={self.size}: give {self.loss.outputs} numbers for each feature"
                f"{' and the intercept' if self.intercept else ''}."
            )

    @property
    def columns(self) -> int:
        """How many features a record has, without the intercept's."""
        return self.size // self.loss.outputs - (self.intercept != 0)

    @property
    def reach(self) -> float:
        """The largest norm of a record's features, the intercept's constant among them."""
        return math.hypot(self.feature_norm, self.intercept)

    @property
    def steepest(self) -> float:
        """The largest norm of a record's slopes, before clipping."""
        return self.loss.lipschitz

    @property
    def bound(self) -> float:
        """The largest norm that a contribution can have."""
        return self.reach * (self.steepest if self.clip is None else min(self.clip, self.steepest))

    def admit(self, batch: Batch) -> None:
        """Refuse features of the wrong width or longer than declared, and classes that do not exist."""
        features = batch[0]
        if len(batch) != 2 or features.ndim != 2 or features.shape[1] != self.columns:
            raise BadRecords(
                f"records: expected features of {self.columns} columns and a target, got {features.shape}."
            )
        longest = 0.0 if self.shorten else row_norms(features).max(initial=0.0)
        if longest > self.feature_norm * (1 + 1e-9):
            raise BadRecords(
                f"features: a row has norm {longest:.6g}, above feature_norm={self.feature_norm:g}. "
                "Scale rows down to it, or declare a larger one (more noise for the same ρ)."
            )
        classes = getattr(self.loss, "classes", None)
        if classes is not None:
            codes = batch[1]
            strange = np.abs(codes) != 1 if self.loss.outputs == 1 else (codes < 0) | (codes >= classes)
            if strange.any():
                known = "-1 and 1" if self.loss.outputs == 1 else f"0 to {classes - 1}"
                raise BadRecords(f"targets: {codes[strange][0]} is none of the classes, {known}.")

    @property
    def prepare(self) -> Callable[[Batch], Batch] | None:
        """How records are brought into form when they enter."""
        return self._shorten if self.shorten else None

    def _shorten(self, batch: Batch) -> Batch:
        return shortened(batch[0], self.feature_norm), *batch[1:]

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return the gradient of each record's loss, the same to the last bit in whatever batch it comes."""
        features, targets = batch
        slopes = self._slopes(step, path, features, targets, _one_by_one).reshape(len(targets), -1)
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        if self.intercept:
            dense = np.column_stack([dense, np.full(len(targets), self.intercept)])
        return np.asarray(dense[:, :, None] * slopes[:, None, :]).reshape(len(targets), self.size)

    def total(self, step: int, path: Path, batch: Batch) -> tuple[Array, int]:
        """Return the sum of the gradients, by two products; none can be above the bound."""
        features, targets = batch
        slopes = self._slopes(step, path, features, targets, _at_once)
        if not self.intercept:
            return np.asarray(features.T.dot(slopes)).ravel(), 0
        summed = np.empty(self.size)
        if slopes.ndim == 1:
            summed[:-1] = features.T.dot(slopes)
            summed[-1] = self.intercept * np.add.reduce(slopes)
        else:
            table = summed.reshape(-1, slopes.shape[1])
            table[:-1] = features.T @ slopes
            table[-1] = self.intercept * np.add.reduce(slopes, axis=0)
        return summed, 0

    def _slopes(
        self, step: int, path: Path, features: Any, targets: AnyArray, product: Callable[[Any, Array], Array]
    ) -> Array:
        return self._clipped(self._slopes_at(path[-1], features, targets, product))

    def _clipped(self, slopes: Array) -> Array:
        clip = self.clip
        if clip is None or clip > self.steepest:
            return slopes
        if slopes.ndim == 1:
            return np.clip(slopes, -clip, clip)
        lengths = np.sqrt(np.add.reduce(slopes * slopes, axis=1))
        return np.asarray(slopes * (clip / np.maximum(lengths, clip))[:, None])

    def _slopes_at(
        self, parameters: Array, features: Any, targets: AnyArray, product: Callable[[Any, Array], Array]
    ) -> Array:
        """Return the derivative of each record's loss in its scores."""
        outputs = self.loss.outputs
        table = parameters if outputs == 1 else parameters.reshape(-1, outputs)
        if not self.intercept:
            return self.loss.derivative(product(features, table), targets)
        scores = product(features, table[:-1])
        scores += self.intercept * table[-1]
        return self.loss.derivative(scores, targets)


def _at_once(features: Any, table: Array) -> Array:
    """Return features @ table; in which batch a record comes may show in the last bit."""
    return np.asarray(features.dot(table))


def _one_by_one(features: Any, table: Array) -> Array:
    """Return features @ table, each record's scores rounded alike in every batch."""
    if not isinstance(features, np.ndarray):  # a sparse product sums each row by itself
        return np.asarray(features @ table)
    if table.ndim == 1:
        return np.asarray((features * table).sum(axis=1))
    return np.stack([(features * column).sum(axis=1) for column in table.T], axis=1)


@dataclass(frozen=True)
class HybridGradient(Gradient):
    """The variance-reduced gradient of Frank-Wolfe (SARAH): (t+1)∇ℓ(w_t) - t∇ℓ(w_{t-1}), and 2∇ℓ(w₁) at first.

    The sum over t steps estimates (t+1) times the gradient at w_t. Contributions stay within max(2G, HD + G)
    because the rule moves by at most D/t to reach w_t; ``diameter`` is D. (docs/guarantee.md#frank-wolfe)
    """

    diameter: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.steepest):
            raise BadPlan(
                "HybridGradient needs a smooth loss and a bounded domain: smooth the hinge (SmoothedHinge), "
                "and give the diameter of the domain."
            )

    @property
    def steepest(self) -> float:
        """The largest norm of a record's slopes, before clipping."""
        lipschitz = self.loss.lipschitz
        return max(2.0 * lipschitz, self.loss.smoothness * self.reach * self.diameter + lipschitz)

    def _slopes(
        self, step: int, path: Path, features: Any, targets: AnyArray, product: Callable[[Any, Array], Array]
    ) -> Array:
        newest = self._slopes_at(path[-1], features, targets, product)
        if step == 0:
            return self._clipped(2.0 * newest)
        before = self._slopes_at(path[-2], features, targets, product)
        return self._clipped((step + 2) * newest - (step + 1) * before)


@dataclass(frozen=True)
class GridGradient(Gradient):
    """The gradient where a step visits everyone: two matrix products, and yet exact, in any order of the records.

    Features are rounded towards zero when they enter, slopes to the nearest, to ``bits`` binary digits each, and the
    parameters (here only) to as many as leave the scores exact. Then nothing in either product is rounded. Rows
    longer than ``feature_norm`` are always shortened. (docs/guarantee.md#sums)
    """

    shorten: bool = True
    bits: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 20:
            raise BadPlan(f"bits={self.bits}: give a whole number from 1 to 20.")
        super().__post_init__()
        if not math.isfinite(self._steepest_kept):
            raise BadPlan("GridGradient needs a loss of bounded slope, or clip= to bound it.")
        object.__setattr__(self, "clip", self._steepest_kept)  # `norms` must hold, whatever a loss says of itself
        if self.intercept:
            units = max(1, math.floor(self.intercept / self._feature_unit))
            object.__setattr__(self, "intercept", units * self._feature_unit)

    @cached_property
    def _feature_unit(self) -> float:
        return grid_unit(self.feature_norm, self.bits)

    @cached_property
    def _slope_unit(self) -> float:
        return grid_unit(self._steepest_kept, self.bits)

    @cached_property
    def _steepest_kept(self) -> float:
        return self.steepest if self.clip is None else min(self.clip, self.steepest)

    @cached_property
    def _longest_slopes(self) -> float:
        """The largest norm of a record's slopes, once they are rounded."""
        return self._steepest_kept + 0.5 * math.sqrt(self.loss.outputs) * self._slope_unit

    @cached_property
    def bound(self) -> float:
        """The largest norm that a contribution can have."""
        return self.reach * self._longest_slopes

    @cached_property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        return int(2.0**53 * self._feature_unit * self._slope_unit / self.bound)

    def norms(self, batch: Batch) -> Array:
        """Return how long each record's contribution can be, on whatever path."""
        return np.asarray(np.hypot(row_norms(batch[0]), self.intercept) * self._longest_slopes)

    @property
    def prepare(self) -> Callable[[Batch], Batch]:
        """How records are brought into form when they enter."""
        return self._round

    def _round(self, batch: Batch) -> Batch:
        features = shortened(batch[0], self.feature_norm)
        if isinstance(features, np.ndarray):
            return on_grid(features, self._feature_unit), *batch[1:]
        rounded = features.copy()
        rounded.data = on_grid(rounded.data, self._feature_unit)
        return rounded, *batch[1:]

    def _clipped(self, slopes: Array) -> Array:
        unit = self._slope_unit
        return np.asarray(np.rint(super()._clipped(slopes) / unit) * unit)

    def _slopes_at(
        self, parameters: Array, features: Any, targets: AnyArray, product: Callable[[Any, Array], Array]
    ) -> Array:
        return super()._slopes_at(self._rounded(parameters), features, targets, _at_once)

    def _rounded(self, parameters: Array) -> Array:
        """Return parameters (several in rows) with so few digits that no score needs more than 53: none is lost."""
        widest = math.sqrt(self.columns + 1) * self.reach / self.feature_norm
        exponents = np.frexp(np.abs(parameters).max(axis=-1, keepdims=True))[1]
        return on_grid(
            parameters, np.ldexp(1.0, np.maximum(exponents + self.bits + math.ceil(math.log2(widest)) - 52, -1000))
        )

    def along(self, steps: list[int], path: Path, batch: Batch, weights: Array) -> Array:
        """Return weighted sums of the contributions to several steps, by two products for all of them."""
        features, targets = batch
        number, outputs = len(targets), self.loss.outputs
        tables = self._rounded(path.rows(0, steps[-1] + 1)[steps]).reshape(len(steps), -1, outputs)
        flat = tables.transpose(1, 0, 2).reshape(tables.shape[1], -1)  # a column for each step and output
        scores = np.asarray(features @ flat[: self.columns])
        if self.intercept:
            scores = scores + self.intercept * flat[-1]
        scores = scores.reshape(number, len(steps), outputs).transpose(1, 0, 2).reshape(len(steps) * number, outputs)
        each = np.tile(targets, len(steps))
        slopes = self._clipped(self.loss.derivative(scores[:, 0] if outputs == 1 else scores, each))
        slopes = slopes.reshape(len(steps), number, outputs) * weights[:, :, None]
        moved = np.asarray(features.T @ slopes.transpose(1, 0, 2).reshape(number, -1))
        summed = np.empty_like(tables)
        summed[:, : self.columns] = moved.reshape(self.columns, len(steps), outputs).transpose(1, 0, 2)
        if self.intercept:
            summed[:, -1] = self.intercept * slopes.sum(axis=1)
        return summed.reshape(len(steps), self.size)


@dataclass(frozen=True, eq=False)
class ClusterMoments:
    """What Lloyd's algorithm needs of a point: itself and a one, in the block of its nearest centre.

    Records are points, relative to the centre of the ``extent``; those outside are moved to its edge when they enter.
    A step sees ``centers[step]`` centres, the first rows of the newest iterate.
    ``weight`` is what stands for the one: more of it means less noise in the counts and more in the sums.

    Points, centres and ``weight`` lie on a grid of `BITS` binary digits. So products of a point and a centre are
    exact, and which centre is the nearest does not depend on the batch, nor on the machine; nor do the sums. The norm
    of a contribution is the same on every path, so that the adaptive coupling has no slack.

    >>> query = ClusterMoments(Extent(np.zeros(1), 1.0), centers=(2,), weight=0.5)
    >>> path = Path(np.array([-0.5, 0.5]), None, 0)
    >>> query.total(0, path, (np.array([[0.25], [0.75], [-1.0]]),))[0].reshape(2, 2).tolist()
    [[-1.0, 0.5], [1.0, 1.0]]
    """

    extent: Extent
    centers: tuple[int, ...]
    weight: float

    BITS: ClassVar[int] = 24

    def __post_init__(self) -> None:
        if not (self.weight > 0 and math.isfinite(self.weight)):
            raise BadPlan(f"weight={self.weight!r}: give a finite number above 0.")
        weight = max(1, math.floor(self.weight / self.unit)) * self.unit
        object.__setattr__(self, "weight", weight)

    @property
    def features(self) -> int:
        """How many numbers a point has."""
        return len(self.extent.center)

    @property
    def most_centers(self) -> int:
        """How many blocks a contribution has."""
        return max(self.centers)

    @property
    def size(self) -> int:
        """How many numbers a record contributes."""
        return self.most_centers * (self.features + 1)

    @cached_property
    def unit(self) -> float:
        """The grid."""
        return grid_unit(math.hypot(self.extent.radius, self.weight), self.BITS)

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""
        return math.hypot(self.extent.radius, self.weight)

    @property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        return int(2 ** (53 - self.BITS))

    def admit(self, batch: Batch) -> None:
        """Refuse points of another dimension."""
        points = batch[0]
        if len(batch) != 1 or points.ndim != 2 or points.shape[1] != self.features:
            raise BadRecords(f"records: expected points of {self.features} features, got {points.shape}.")

    def prepare(self, batch: Batch) -> Batch:
        """Move points into the extent, and to the grid."""
        return (on_grid(self.extent.inside(batch[0]), self.unit),)

    def norms(self, batch: Batch) -> Array:
        """Return how long each record's contribution is, on whatever path."""
        points = batch[0]
        return np.sqrt(np.einsum("ij,ij->i", points, points) + self.weight**2)

    def along(self, steps: list[int], path: Path, batch: Batch, weights: Array) -> Array:
        """Return weighted sums of the contributions to several steps."""
        points, width = batch[0], self.features + 1
        iterates = path.rows(0, steps[-1] + 1)
        tail = np.full((len(points), 1), self.weight)
        summed = np.zeros((len(steps), self.most_centers, width))
        for row, step, shares in zip(summed, steps, weights, strict=True):
            labels = nearest(points, iterates[step].reshape(-1, self.features)[: self.centers[step]])
            np.add.at(row, labels, shares[:, None] * np.concatenate([points, tail], axis=1))
        return summed.reshape(len(steps), self.size)

    def nearest(self, step: int, path: Path, points: Array) -> Ints:
        """Return the number of each point's nearest centre (of several, the first)."""
        centers = path[-1].reshape(-1, self.features)[: self.centers[step]]
        return nearest(points, centers)

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return, for each point, itself and the weight in its centre's block, and zeros elsewhere."""
        points = batch[0]
        each = np.zeros((len(points), self.most_centers, self.features + 1))
        rows, labels = np.arange(len(points)), self.nearest(step, path, points)
        each[rows, labels, :-1] = points
        each[rows, labels, -1] = self.weight
        return each.reshape(len(points), self.size)

    def total(self, step: int, path: Path, batch: Batch) -> tuple[Array, int]:
        """Return the sum of the contributions, a block for each centre."""
        points = batch[0]
        labels, number = self.nearest(step, path, points), len(points)
        summed = np.zeros((self.most_centers, self.features + 1))
        if number <= 16:
            for point, label in zip(points, labels.tolist(), strict=True):
                summed[label, :-1] += point
                summed[label, -1] += self.weight
            return summed.ravel(), 0
        one_hot = sparse.csc_array((np.ones(number), labels, np.arange(number + 1)), shape=(self.most_centers, number))
        summed[:, :-1] = one_hot @ points
        summed[:, -1] = self.weight * np.bincount(labels, minlength=self.most_centers)
        return summed.ravel(), 0


def nearest(points: Array, centers: Array, rows: int = 2048) -> Ints:
    """Return the number of each point's nearest centre (of several, the first), working on so many rows at a time.

    >>> nearest(np.array([[0.0], [0.9]]), np.array([[0.1], [1.0]])).tolist()
    [0, 1]
    """
    half_norms = 0.5 * np.einsum("ij,ij->i", centers, centers)
    labels = np.empty(len(points), dtype=np.int64)
    for first in range(0, len(points), rows):
        part = slice(first, first + rows)
        scores = points[part] @ centers.T
        scores -= half_norms
        np.argmax(scores, axis=1, out=labels[part])
    return labels


@dataclass(frozen=True)
class Gram:
    """All that least squares needs: products of the features, the target and 1, two and two, summed without rounding.

    Records are (features, target), each number within the bound of its column. It is rounded to 45 bits below it, and
    a contribution is exact from there on; see `Moments`. Meant for one step that everyone meets, without noise.

    >>> Gram(Moments((1.0, 1.0, 8.0))).columns
    2
    """

    moments: Moments

    @property
    def columns(self) -> int:
        """How many features a record has."""
        return self.moments.width - 2

    @property
    def size(self) -> int:
        """How many numbers a record contributes."""
        return self.moments.size

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""
        return math.sqrt(self.size) * self.moments.largest

    @property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        return EXACT_TO

    def admit(self, batch: Batch) -> None:
        """Refuse rows of the wrong width, and numbers beyond their bounds."""
        features = batch[0]
        if len(batch) != 2 or features.ndim != 2 or features.shape[1] != self.columns or batch[1].ndim != 1:
            raise BadRecords(
                f"records: expected features of {self.columns} columns and a target, got {features.shape}."
            )
        if features.shape[0] == 0:
            return
        *bounds, target_bound = self.moments.bounds
        largest = largest_of(features)
        beyond = np.flatnonzero(~(largest <= bounds))
        if len(beyond):
            column = int(beyond[0])
            raise BadRecords(
                f"features: column {column} holds {largest[column]:.6g} (or its negative), beyond "
                f"feature_bound={bounds[column]:g}. Declare a larger feature_bound for it, or scale it down."
            )
        highest = float(np.abs(batch[1]).max())
        if not highest <= target_bound:
            raise BadRecords(
                f"targets: there is {highest:.6g} (or its negative), beyond target_bound={target_bound:g}. "
                "Declare a larger target_bound, or scale targets down."
            )

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return the products of each record."""
        return self.moments.each(batch)

    def total(self, step: int, path: Path, batch: Batch) -> tuple[Array, int]:
        """Return their sum, by matrix products; none can be above the bound."""
        return self.moments.total(batch), 0


def largest_of(features: Any) -> Array:
    """Return the largest number of each column, in absolute value."""
    if isinstance(features, np.ndarray):
        return np.maximum(features.max(axis=0, initial=0.0), -features.min(axis=0, initial=0.0).astype(np.float64))
    largest, rows = np.zeros(features.shape[1]), features.tocsr()
    np.maximum.at(largest, rows.indices, np.abs(rows.data))
    return largest
