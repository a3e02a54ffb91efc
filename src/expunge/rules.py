"""How the next iterate follows from the noisy answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.linalg import lapack

from expunge.domains import Domain, Everywhere
from expunge.grid import on_grid
from expunge.moments import Moments, Normal
from expunge.queries import ClusterMoments
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


@dataclass(frozen=True, eq=False)
class FederatedAverage:
    """w ← w + noisy sum / noisy count, where the count is the last number of the answer, in units of ``weight``.

    No average of clipped updates is longer than ``clip``, so that a longer one is shortened; and a count below one
    is taken for one. Both look at noisy answers only.

    >>> rule = FederatedAverage(np.zeros(2), weight=0.5, clip=1.0)
    >>> rule.step(0, Path(np.zeros(2), None, 0), np.array([3.0, 1.0, 2.5])).tolist()
    [0.6, 0.2]
    """

    start: Array
    weight: float
    clip: float

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        mean = answer[:-1] / max(float(answer[-1]) / self.weight, 1.0)
        length = math.sqrt(mean @ mean)
        return np.asarray(path[-1] + (mean if length <= self.clip else mean * (self.clip / length)))


@dataclass(frozen=True, eq=False)
class Lloyd:
    """Lloyd's algorithm on noisy sums and counts, the answers of `ClusterMoments`: explore, merge, refine.

    The first ``explore`` rounds have many more centres than clusters, as many as there are ``seeds``. A centre becomes
    the mean of its points if its noisy count stands out of the noise. Those that do not are dead, and split the ones
    with the most points. Then the live centres, weighted by their noisy counts, are merged to ``clusters``, the two
    that it costs least at a time, and the other rounds refine these: where one has moved by no more than the noise
    explains, it becomes the mean of its estimates so far. All of this looks at noisy answers only: it costs nothing.

    ``sigma`` is the noise to be expected. ``seed`` decides in which directions centres are split.
    """

    seeds: Array
    query: ClusterMoments
    clusters: int
    explore: int
    sigma: float
    seed: int

    DEAD: ClassVar[float] = 3.0
    """A count below so many standard deviations of its noise is taken for 0."""
    FINEST: ClassVar[float] = 0.1
    """Centres are split as long as the noise puts the parts off by less than this share of the radius."""
    APART: ClassVar[float] = 2.0**-12
    """How far from a centre its parts begin, as a share of the radius."""
    EXPLAINED: ClassVar[float] = 2.0
    """A centre that moves by more than this times the expected squared distance of two estimates has really moved."""

    @property
    def start(self) -> Array:
        """The seeds, one after the other."""
        return self.seeds.ravel()

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next centres."""
        number, features = self.query.centers[step], self.query.features
        before = path[-1].reshape(-1, features)[:number]
        table = answer.reshape(-1, features + 1)[:number]
        counts = table[:, -1] / self.query.weight
        live = counts >= self._least
        counts = np.where(live, counts, 1.0)
        means = np.where(live[:, None], self.query.extent.inside(table[:, :-1] / counts[:, None]), before)
        if step >= self.explore:
            found = self._refined(step - self.explore, before, means, counts)
        elif not live.any():
            found = before
        elif step == self.explore - 1:
            found = self._merged(step, means[live], counts[live])
        else:
            found = self._split(step, means[live], counts[live], len(self.seeds), self._smallest(counts[live].sum()))
        iterate = np.empty_like(self.seeds)
        iterate[: len(found)] = on_grid(self.query.extent.inside(found), self.query.unit)
        iterate[len(found) :] = iterate[0]  # no point is nearer to a copy than to the first
        return iterate.ravel()

    @property
    def _least(self) -> float:
        return max(self.DEAD * self.sigma / self.query.weight, 0.5)

    def _smallest(self, points: float) -> float:
        """Return how many points a part must have; at any rate there are to be twice as many parts as clusters."""
        fine = self.sigma * math.sqrt(self.query.features) / (self.FINEST * self.query.extent.radius)
        return max(self._least, min(fine, points / (2 * self.clusters)))

    def _split(self, step: int, means: Array, counts: Array, number: int, smallest: float) -> Array:
        """Return up to ``number`` centres: those with the most points are taken apart."""
        parts = np.ones(len(means), dtype=np.int64)
        while parts.sum() < number:
            largest = int(np.argmax(counts / parts))
            if counts[largest] < smallest * (parts[largest] + 1):
                break
            parts[largest] += 1
        directions = np.random.default_rng([self.seed, step]).standard_normal((int(parts.sum()), means.shape[1]))
        directions *= self.APART * self.query.extent.radius / np.linalg.norm(directions, axis=1, keepdims=True)
        pairs = np.flatnonzero(parts == 2)
        first = (np.cumsum(parts) - parts)[pairs]
        directions[first + 1] = -directions[first]  # two halves lie opposite
        directions[np.repeat(parts, parts) == 1] = 0.0
        return np.asarray(np.repeat(means, parts, axis=0) + directions)

    def _merged(self, step: int, means: Array, counts: Array) -> Array:
        """Return as many centres as clusters: again and again, the two that it costs least are put together (Ward)."""
        if len(means) <= self.clusters:
            return self._split(step, means, counts, self.clusters, 0.0)
        centers, weights = means.copy(), counts.copy()
        costs = np.stack(
            [_cost(center, weight, centers, weights) for center, weight in zip(centers, weights, strict=True)]
        )
        np.fill_diagonal(costs, np.inf)
        for _ in range(len(means) - self.clusters):
            one, other = divmod(int(np.argmin(costs)), len(means))
            together = weights[one] + weights[other]
            centers[one] += (centers[other] - centers[one]) * (weights[other] / together)
            weights[one] = together
            costs[other] = costs[:, other] = np.inf
            anew = np.where(np.isinf(costs[one]), np.inf, _cost(centers[one], together, centers, weights))
            costs[one] = costs[:, one] = anew
            weights[other] = 0.0
        return centers[weights > 0.0]

    def _refined(self, refined: int, before: Array, means: Array, counts: Array) -> Array:
        """Return means, averaged with those of the rounds before where these say the same."""
        if refined == 0:
            return means
        apart = np.einsum("ij,ij->i", means - before, means - before)
        expected = before.shape[1] * (self.sigma / counts) ** 2 * (1.0 + 1.0 / refined)
        same = apart <= self.EXPLAINED * expected
        return np.where(same[:, None], before + (means - before) / (refined + 1), means)


def _cost(center: Array, weight: float, centers: Array, weights: Array) -> Array:
    """Return by how much the sum of squared distances grows if a centre is put together with each of the others."""
    apart = centers - center
    return np.asarray(np.einsum("ij,ij->i", apart, apart) * (weight * weights / (weight + weights)))


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

    If alpha is not negligible beside the diagonal, the matrix is far from singular, and Cholesky's factor is taken.
    Else it is taken of the matrix scaled to ones on its diagonal, so that units make no difference, and the smallest
    eigenvalue is about 1 over the norm of its inverse. If that is negligible, eigenvectors take its place, without
    those whose eigenvalues are negligible beside the largest.
    """
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
