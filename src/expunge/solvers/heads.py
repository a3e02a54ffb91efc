"""Heads: linear models of features whose structure is found in a sample, as sums of products over everyone.

Features are columns of whole numbers, of which `ONE` is 1. What a record adds is a few such columns, products of which
are summed exactly; each head has one row of sums, or one for each output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from expunge.base.types import AnyArray, Array
from expunge.solvers.boosting import power_above
from expunge.solvers.class_slopes import class_slopes
from expunge.solvers.exact_products import whole
from expunge.solvers.frames import scores_of
from expunge.solvers.solving import solved

ONE = 2.0**20
"""The whole number that stands for 1: features of the sample are within it."""
FINE = 2.0**12
"""Parameters that the sample gives are whole multiples of its inverse: so their last digits seldom matter."""
FINEST = 2.0**-30
"""The least spread of targets, in units of the largest: below it are roundings."""
CALM = 0.1
"""C of the sample's own logistic regression, relative to everyone's: a small sample is too sure of itself."""
ROUNDS = 200
"""How many rounds scikit-learn has for the parameters that the sample gives."""

HeadName = Literal["newton", "ridge", "ridge_classifier"]


class Head(Protocol):
    """A linear model of features: what it finds in the sample, what everyone adds, and how it is solved."""

    classes: int
    """How many classes there are; 0 where targets are amounts."""
    columns: int
    """How many features there are."""

    @property
    def outputs(self) -> int:
        """How many scores a record has."""

    @property
    def rows(self) -> int:
        """How many rows the sums have."""

    @property
    def width(self) -> int:
        """How many columns a record has in each row, whose products are summed."""

    def start(self, features: Array, variances: Array, targets: AnyArray) -> Array:
        """Return what it needs to begin with, from the sample alone: columns × records, in the order of their keys."""

    def blocks(self, start: Array, features: Array, targets: AnyArray) -> Iterator[Array]:
        """Give for each row of the sums the columns of some records; of each record by itself."""

    def parameters(self, start: Array, variances: Array, matrices: list[Array]) -> Array:
        """Solve for the parameters, outputs × (weights of features, then the intercept)."""


@dataclass(frozen=True)
class NewtonHead:
    """Logarithms of odds: one step of Newton's method over everyone, from a logistic regression on the sample."""

    classes: int
    columns: int
    C: float

    @property
    def outputs(self) -> int:
        """One for two classes, else one for each."""
        return self.classes if self.classes > 2 else 1

    @property
    def rows(self) -> int:
        """One for each output."""
        return self.outputs

    @property
    def width(self) -> int:
        """The features, 1 and the pull."""
        return self.columns + 2

    def start(self, features: Array, variances: Array, targets: AnyArray) -> Array:
        """Return a logistic regression on the sample; of classes that it lacks only how rare they are."""
        codes = codes_of(targets, self.classes)
        counts = np.bincount(codes, minlength=self.classes)
        there = np.flatnonzero(counts)
        logs = np.log((counts + 0.5) / (len(codes) + 0.5 * self.classes))
        found = np.zeros((self.outputs, self.columns + 1))
        found[:, -1] = logs if self.outputs > 1 else logs[1] - logs[0]
        if len(there) > 1 and features.any():
            from sklearn.linear_model import LogisticRegression

            scales = np.sqrt(variances)
            model = LogisticRegression(C=CALM * self.C, max_iter=ROUNDS)
            model.fit((features / ONE).T / scales, codes)
            its = np.column_stack([model.coef_ / scales, model.intercept_])
            if self.outputs == 1 or len(there) == self.classes:
                found = its
            else:  # two of several have one score: half of it for the one, half against the other
                found[there] = np.outer([-0.5, 0.5], its[0]) if len(there) == 2 else its
                absent = np.setdiff1d(np.arange(self.classes), there)
                found[absent, -1] = found[there, -1].min() - math.log(len(codes) + 1.0)
        return np.asarray(np.rint(found * FINE) / FINE + 0.0)

    def blocks(self, start: Array, features: Array, targets: AnyArray) -> Iterator[Array]:
        """Give √h·x, √h and pull/√h of each output, for curvatures h."""
        rows = np.ascontiguousarray(features.T) * (1.0 / ONE)
        at = class_slopes(np.stack([scores_of(rows, one) for one in start]), targets)
        for pull, weight in zip(at.pulls, at.weights, strict=True):
            root = np.sqrt(weight)
            block = np.empty((self.width, features.shape[1]))
            np.multiply(features, root, out=block[:-2])
            block[-2] = ONE * root
            block[-1] = ONE * np.divide(pull, root, out=np.zeros_like(pull), where=root > 0.0)
            yield whole(block)

    def parameters(self, start: Array, variances: Array, matrices: list[Array]) -> Array:
        """Take the step: Σ h·x·xᵀ and the penalty against the pulls, less what the penalty pulls back."""
        penalties = np.append(variances / self.C, 0.0)
        steps = [
            penalised(matrix[:-1, :-1], matrix[:-1, -1] - penalties * one, penalties)
            for one, matrix in zip(start, matrices, strict=True)
        ]
        return start + np.stack(steps)


@dataclass(frozen=True)
class RidgeHead:
    """Amounts, by least squares."""

    columns: int
    C: float
    classes: ClassVar[int] = 0

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    @property
    def rows(self) -> int:
        """One."""
        return 1

    @property
    def width(self) -> int:
        """The features, 1 and the target."""
        return self.columns + 2

    def start(self, features: Array, variances: Array, targets: AnyArray) -> Array:
        """Return about where targets are, and about how far apart, a power of two."""
        if not len(targets) or targets.max() == targets.min():
            middle = targets.item(0) if len(targets) else 0.0
            return np.array([[middle, power_above(targets)]])
        largest = float(np.abs(targets).max())
        middle, spread = float(np.mean(targets / largest)) * largest, largest * float(np.std(targets / largest))
        return np.array([[middle, power_above(np.array([max(spread, largest * FINEST)]))]])

    def blocks(self, start: Array, features: Array, targets: AnyArray) -> Iterator[Array]:
        """Give x, 1 and y, in units of the sample's spread; what is far out counts as less far."""
        block = np.empty((self.width, features.shape[1]))
        block[:-2], block[-2] = features, ONE
        with np.errstate(over="ignore"):
            block[-1] = (targets - start[0, 0]) / start[0, 1] * ONE
        yield whole(block)

    def parameters(self, start: Array, variances: Array, matrices: list[Array]) -> Array:
        """Solve the normal equations with the penalty."""
        (matrix,) = matrices
        middle, spread = start[0]
        found = spread * penalised(matrix[:-1, :-1], matrix[:-1, -1], np.append(variances / self.C, 0.0))
        found[-1] += middle
        return np.asarray(found[None])


@dataclass(frozen=True)
class RidgeClassifierHead:
    """Classes, by least squares on targets of 1 and -1."""

    classes: int
    columns: int
    C: float

    @property
    def outputs(self) -> int:
        """One for two classes, else one for each."""
        return self.classes if self.classes > 2 else 1

    @property
    def rows(self) -> int:
        """One, whatever the number of classes."""
        return 1

    @property
    def width(self) -> int:
        """The features, 1 and the targets."""
        return self.columns + 1 + self.outputs

    def start(self, features: Array, variances: Array, targets: AnyArray) -> Array:
        """Return nothing: targets are known."""
        return np.zeros((1, 0))

    def blocks(self, start: Array, features: Array, targets: AnyArray) -> Iterator[Array]:
        """Give x, 1 and the targets."""
        block = np.empty((self.width, features.shape[1]))
        block[: self.columns], block[self.columns] = features, ONE
        own = codes_of(targets, self.classes) == np.arange(self.classes)[-self.outputs :, None]
        block[self.columns + 1 :] = np.where(own, ONE, -ONE)
        yield block

    def parameters(self, start: Array, variances: Array, matrices: list[Array]) -> Array:
        """Solve the normal equations of each output."""
        (matrix,) = matrices
        inner, penalties = matrix[: self.columns + 1, : self.columns + 1], np.append(variances / self.C, 0.0)
        return np.stack([penalised(inner, right, penalties) for right in matrix[self.columns + 1 :, : len(inner)]])


def head_of(name: str, classes: int, columns: int, C: float) -> Any:
    """Return the head of a name."""
    if name == "ridge":
        return RidgeHead(columns, C)
    return (NewtonHead if name == "newton" else RidgeClassifierHead)(classes, columns, C)


def codes_of(targets: AnyArray, classes: int) -> AnyArray:
    """Return the numbers of classes, which of two classes are kept as -1 and 1; amounts are returned as they are."""
    if not classes:
        return targets
    return ((targets > 0) if classes == 2 else targets).astype(np.int64)


def penalised(matrix: Array, vector: Array, penalties: Array) -> Array:
    """Solve for parameters, each with a penalty of its own."""
    held = matrix.copy()
    held.reshape(-1)[:: len(vector) + 1] += penalties
    return solved(held, vector)
