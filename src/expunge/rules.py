"""How the next iterate follows from the noisy answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import lapack

from expunge.domains import Domain, Everywhere
from expunge.moments import Moments, Normal
from expunge.rows import Path
from expunge.types import Array


@dataclass(frozen=True, eq=False)
class DualAveraging:
    """w = Π(w₁ - η a): steps along the noisy sum of all gradients so far, from where it started.

    ``penalty`` is what a step adds to the weight of an L2 penalty |w|²/2, a number or one for each parameter: it
    shrinks w, which costs no noise. With ``anytime``, a number of steps, η becomes η/√(1 + t/anytime) after t steps:
    however many there will be, steps are as short as they should, and in the beginning not longer than is good.
    """

    start: Array
    step_size: float
    domain: Domain = field(default_factory=Everywhere)
    penalty: float | Array | None = None
    anytime: float | None = None

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        step_size = self.step_size
        if self.anytime is not None:
            step_size /= math.sqrt(1.0 + (step + 1) / self.anytime)
        moved = step_size * answer
        if self.penalty is not None:
            moved = moved / (1.0 + step_size * (step + 1) * self.penalty)
        return self.domain.project(self.start - moved)


@dataclass(frozen=True, eq=False)
class FrankWolfe:
    """w ← w + (v - w)/(t+1), where v minimises ⟨a, v⟩ over the domain: mixes of corners, never a projection.

    Its steps do not depend on how many there will be.

    ``penalty`` as in `DualAveraging`; its gradient is added to the answer.
    """

    start: Array
    domain: Domain
    penalty: float | Array | None = None

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        w = path[-1]
        if self.penalty is not None:
            answer = answer + (step + 2) * self.penalty * w
        return np.asarray(w + (self.domain.lmo(answer) - w) / (step + 2))


@dataclass(frozen=True, eq=False)
class GradientDescent:
    """w ← Π(w - η a): steps along the noisy gradient of the round (for `Identity`)."""

    start: Array
    step_size: float
    domain: Domain = field(default_factory=Everywhere)

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        return self.domain.project(np.asarray(path[-1] - self.step_size * answer))


NEGLIGIBLE = 8.0 * float(np.finfo(np.float64).eps)
"""Times the number of features: what counts as 0 beside 1, where least squares is solved."""


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

    Cholesky's factor is taken of the matrix scaled to ones on its diagonal, so that units make no difference. Its
    smallest eigenvalue is at least the share of alpha in the diagonal, and about 1 over the norm of its inverse. If
    that is negligible, eigenvectors take its place, without those whose eigenvalues are negligible beside the largest.
    """
    matrix, vector, scale = normal.products[:-1, :-1], normal.products[:-1, -1], normal.scale[:-1]
    features, negligible = len(scale), len(scale) * NEGLIGIBLE
    penalty = alpha / scale**2
    diagonal = matrix.diagonal() + penalty
    if diagonal.min() > 0.0:
        inverse = 1.0 / np.sqrt(diagonal)
        scaled = matrix * inverse
        scaled *= inverse[:, None]
        scaled.reshape(-1)[:: features + 1] = 1.0
        factor, failed = lapack.dpotrf(scaled.T, lower=1, clean=0, overwrite_a=1)  # its lower is our upper triangle
        least = (penalty / diagonal).min()
        if not failed and (least > negligible or lapack.dpocon(factor, 1.0, uplo="L")[0] > negligible):
            solution = lapack.dpotrs(factor, vector * inverse, lower=1)[0]
            return solution * inverse * (normal.scale[-1] / scale), features
    whole = matrix * np.multiply.outer(scale, scale) + alpha * np.eye(features)
    values, vectors = np.linalg.eigh(whole, UPLO="U")
    large = values > negligible * max(values[-1], 0.0)
    along = vectors[:, large].T @ (vector * scale * normal.scale[-1])
    return vectors[:, large] @ (along / values[large]), int(large.sum())
