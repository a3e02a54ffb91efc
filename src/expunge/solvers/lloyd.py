"""Lloyd's k-means: sums and counts by cluster, and the rule that moves centres to noisy means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.grid import grid_unit, on_grid
from expunge.base.types import Array, Batch, Ints
from expunge.engine.transcript import Path
from expunge.solvers.extents import Extent


@dataclass(frozen=True, eq=False)
class LloydRule:
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
    """A count below this many standard deviations of its noise counts as 0."""
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


@dataclass(frozen=True, eq=False)
class PlainLloyd:
    """Lloyd's algorithm on the answers of `ClusterMoments`, and nothing else: noisy sums over noisy counts.

    A count below one is taken for one, and centres stay within the extent, on the grid of the points. `LloydRule` finds
    its centres by itself and is far better at small ρ.
    """

    centers: Array
    query: ClusterMoments

    @property
    def start(self) -> Array:
        """The given centres, one after the other."""
        return on_grid(self.query.extent.inside(self.centers), self.query.unit).ravel()

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next centres."""
        table = answer.reshape(-1, self.query.features + 1)
        means = table[:, :-1] / np.maximum(table[:, -1:] / self.query.weight, 1.0)
        return on_grid(self.query.extent.inside(means), self.query.unit).ravel()


def _cost(center: Array, weight: float, centers: Array, weights: Array) -> Array:
    """Return by how much the sum of squared distances grows if a centre is put together with each of the others."""
    apart = centers - center
    return np.asarray(np.einsum("ij,ij->i", apart, apart) * (weight * weights / (weight + weights)))


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
        from scipy import sparse

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
