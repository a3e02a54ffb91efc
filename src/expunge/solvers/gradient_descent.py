"""Gradient descent over everyone: exact sums on a grid, and steps with momentum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.grid import grid_unit, on_grid
from expunge.base.norms import row_norms, shortened
from expunge.base.types import AnyArray, Array, Batch
from expunge.engine.transcript import Path
from expunge.solvers.domains import Domain, Everywhere
from expunge.solvers.gradient import Gradient, at_once


@dataclass(frozen=True, eq=False)
class GradientDescentRule:
    """w ← Π((w + μ(w - w₋) - η a)/(1 + ηλ)): steps along the noisy gradient of the round (for `Identity`).

    ``penalty`` is λ, the weight of an L2 penalty |w|²/2 in a round, a number or one for each parameter. ``momentum`` is
    μ, which part of the last move, from w₋ to w, is made again.
    """

    start: Array
    step_size: float
    domain: Domain = field(default_factory=Everywhere)
    penalty: float | Array | None = None
    momentum: float = 0.0

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        moved = np.asarray(path[-1] - self.step_size * answer)
        if self.momentum and step:
            moved += self.momentum * (path[-1] - path[-2])
        if self.penalty is not None:
            moved = moved / (1.0 + self.step_size * self.penalty)
        return self.domain.project(moved)


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
        return self.longest_row * self._longest_slopes

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
        return super()._slopes_at(self._rounded(parameters), features, targets, at_once)

    def _rounded(self, parameters: Array) -> Array:
        """Return parameters (several in rows) with so few digits that no score needs more than 53: none is lost."""
        widest = math.sqrt(self.columns + 1) * self.longest_row / self.feature_norm
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
