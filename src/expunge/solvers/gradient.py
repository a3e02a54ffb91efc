"""The gradient of a loss, as a query."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.norms import row_norms, shortened
from expunge.base.types import AnyArray, Array, Batch
from expunge.engine.transcript import Path
from expunge.solvers.losses import Loss


@dataclass(frozen=True)
class Gradient:
    """The gradient of a linear model's loss; records are (features, target) with features of bounded norm.

    The parameters are one flat array: for each feature as many numbers as the loss has outputs. ``intercept`` is a
    constant that every record has as one more feature, behind the others (0: none). Slopes (derivatives of the loss
    in the scores) longer than ``clip`` are scaled down to it. Rows longer than ``feature_norm`` are refused, or, with
    ``shorten``, scaled down to it when they enter.

    >>> from expunge.solvers.losses import Logistic
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
    def longest_row(self) -> float:
        """The largest norm of a record's features, the intercept's constant among them."""
        return math.hypot(self.feature_norm, self.intercept)

    @property
    def steepest(self) -> float:
        """The largest norm of a record's slopes, before clipping."""
        return self.loss.lipschitz

    @cached_property
    def bound(self) -> float:
        """The largest norm that a contribution can have."""
        return self.longest_row * (self.steepest if self.clip is None else min(self.clip, self.steepest))

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
                raise BadRecords(f"targets: {codes[strange][0]} is not one of the classes, {known}.")

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
        slopes = self._slopes(step, path, features, targets, at_once)
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
        return self._clipped(self._slopes_at(path.newest, features, targets, product))

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


def at_once(features: Any, table: Array) -> Array:
    """Return features @ table; in which batch a record comes may show in the last bit."""
    return np.asarray(features.dot(table))


def _one_by_one(features: Any, table: Array) -> Array:
    """Return features @ table, each record's scores rounded alike in every batch."""
    if not isinstance(features, np.ndarray):  # a sparse product sums each row by itself
        return np.asarray(features @ table)
    if table.ndim == 1:
        return np.asarray((features * table).sum(axis=1))
    return np.stack([(features * column).sum(axis=1) for column in table.T], axis=1)
