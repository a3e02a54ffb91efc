"""Ridge regression from exact sums: the Gram matrix, and the direct solve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.base.errors import BadRecords
from expunge.base.types import Array, Batch
from expunge.engine.transcript import Path
from expunge.solvers.exact_moments import EXACT_TO, Moments, Normal

NEGLIGIBLE = 8.0 * float(np.finfo(np.float64).eps)
"""Times the number of features: what counts as 0 relative to 1, where least squares is solved."""


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Solves least squares with a penalty alpha·|w|² from the sums of a `Gram` query, in one step.

    The iterate is the coefficients, the intercept and the rank of the matrix that was solved for. If that is singular
    to working precision, the coefficients are those of the least norm.
    """

    moments: Moments
    alpha: float = 0.0
    fit_intercept: bool = True

    @property
    def features(self) -> int:
        """How many coefficients there are."""
        return self.moments.width - 2

    @property
    def start(self) -> Array:
        """Zeros."""
        return np.zeros(self.features + 2)

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the coefficients, the intercept and the rank."""
        normal = self.moments.normal(answer, self.fit_intercept)
        solution = np.zeros(self.features + 2)
        weights = solution[:-2]
        weights[:], solution[-1] = _solved(normal, self.alpha)
        if self.fit_intercept:
            solution[-2] = normal.means[-1] - normal.means[:-1].dot(weights)
        return solution


def _solved(normal: Normal, alpha: float) -> tuple[Array, int]:
    """Return coefficients, and the rank of the matrix that gives them.

    If alpha is not negligible beside the diagonal, the matrix is far from singular, and Cholesky's factor is taken.
    Else it is taken of the matrix scaled to ones on its diagonal, so that units make no difference, and the smallest
    eigenvalue is about 1 over the norm of its inverse. If that is negligible, eigenvectors take its place, without
    those whose eigenvalues are negligible beside the largest.
    """
    from scipy.linalg import lapack

    matrix, vector = normal.products[:-1, :-1], normal.products[:-1, -1]
    features, negligible = len(vector), len(vector) * NEGLIGIBLE
    diagonal = matrix.diagonal() + alpha
    if alpha > negligible * diagonal.max():
        penalised = matrix.copy()
        penalised.reshape(-1)[:: features + 1] = diagonal
        factor, failed = lapack.dpotrf(penalised.T, lower=1, clean=0, overwrite_a=1)  # its lower is our upper triangle
        if not failed:
            return lapack.dpotrs(factor, vector, lower=1)[0], features
    elif diagonal.min() > 0.0:
        inverse = 1.0 / np.sqrt(diagonal)
        scaled = matrix * inverse
        scaled *= inverse[:, None]
        scaled.reshape(-1)[:: features + 1] = 1.0
        factor, failed = lapack.dpotrf(scaled.T, lower=1, clean=0, overwrite_a=1)
        if not failed and lapack.dpocon(factor, 1.0, uplo="L")[0] > negligible:
            return lapack.dpotrs(factor, vector * inverse, lower=1)[0] * inverse, features
    values, vectors = np.linalg.eigh(matrix + alpha * np.eye(features), UPLO="U")
    large = values > negligible * max(values[-1], 0.0)
    return vectors[:, large] @ (vectors[:, large].T @ vector / values[large]), int(large.sum())


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
                f"features: column {column} has {largest[column]:.6g} (or its negative), beyond "
                f"feature_bound={bounds[column]:g}. Declare a larger feature_bound for it, or scale it down."
            )
        highest = float(np.abs(batch[1]).max())
        if not highest <= target_bound:
            raise BadRecords(
                f"targets: one is {highest:.6g} (or its negative), beyond target_bound={target_bound:g}. Declare a "
                "larger target_bound, or scale targets down."
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
