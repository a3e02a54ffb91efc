"""Quantized k-means of Ginart, Guan, Valiant & Zou, "Making AI Forget You" (NeurIPS 2019).

    from benchmarks.linear.quantized import QuantizedKMeans

    model = QuantizedKMeans(n_clusters=8, epsilon=2**-5, seed=0).fit(X)  # rows in the unit cube
    model.delete(17)  # True if it had to train anew

Written from the method's description, not from the released code. The paper's text was not at hand, so that details
(how small clusters are balanced, the default epsilon) may differ. Training is k-means++ and then Lloyd's iterations
whose centres are rounded to a lattice of width epsilon with a random phase, so that one row less seldom moves them. A
deletion takes the row out of the stored sums of every iteration and rounds again with the stored phases; if some
centre moves, or if the row was one of the initial centres, the model is trained anew.

What is exact: a kept model is, up to the rounding of sums, the one that the same initial centres, phases and number
of iterations give on the remaining rows. What is not:

- Training stops at the first iteration that does not lower the loss. A deletion changes all losses, and could change
  where it stops, but only the iterations that were accepted are checked, and the losses are not looked at again.
- k-means++ draws by distances to all rows. Training anew only if the row was drawn is not the same in law as drawing
  without it: initial centres near the row make it less likely to be drawn later, so they are kept too often.
- Training anew draws new phases and initial centres. Which ones are kept depends on the deleted row: a phase that
  puts a centre near the border of its cell is given up more often than others. So, over many runs, deletions shift
  the law of phases and centres a little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from expunge.base.types import Array, Ints, Mask

CHUNK = 4096
EPSILONS = tuple(2.0**power for power in range(-8, 0))


@dataclass(frozen=True, eq=False)
class Partition:
    """The rows by nearest centre: labels, sums and counts of the clusters, and the k-means loss."""

    labels: npt.NDArray[np.int32]
    sums: Array
    counts: Array
    loss: float


def partition(X: Array, squares: Array, centers: Array) -> Partition:
    """Assign rows, whose squared norms are given, to their nearest centres; of equally near ones, to the first."""
    n, k = len(X), len(centers)
    labels = np.empty(n, dtype=np.int32)
    directions, offsets = -2.0 * centers.T, (centers**2).sum(axis=1)
    loss = float(squares.sum())
    for start in range(0, n, CHUNK):
        scores = X[start : start + CHUNK] @ directions
        scores += offsets
        nearest = scores.argmin(axis=1)
        labels[start : start + CHUNK] = nearest
        loss += float(scores[np.arange(len(nearest)), nearest].sum())
    members = sparse.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, k))
    return Partition(labels, np.asarray(members.T @ X), np.bincount(labels, minlength=k).astype(np.float64), loss)


def plus_plus(X: Array, squares: Array, k: int, rng: np.random.Generator) -> Ints:
    """Draw rows for initial centres with k-means++: each by squared distance to those already drawn."""
    n = len(X)
    drawn = np.empty(k, dtype=np.int64)
    drawn[0] = rng.integers(n)
    distances = np.full(n, np.inf)
    for number in range(1, k):
        last = drawn[number - 1]
        fresh = squares - 2.0 * (X @ X[last]) + squares[last]
        np.minimum(distances, np.maximum(fresh, 0.0, out=fresh), out=distances)
        heights = distances.cumsum()
        drawn[number] = min(int(np.searchsorted(heights, rng.random() * heights[-1], side="right")), n - 1)
    return drawn


def balanced(sums: Array, counts: Array, before: Array, least: float) -> Array:
    """Return means of clusters; one with fewer rows than the least gets as many copies of its last centre as it lacks.

    So a row never weighs more than 1 / least, which the paper's bound on retraining needs, and an empty cluster keeps
    its centre.
    """
    weights = np.maximum(counts, least)
    return np.asarray((sums + (weights - counts)[..., None] * before) / weights[..., None])


def rounded(centers: Array, phases: Array, epsilon: float) -> Array:
    """Return the nearest points of the lattice of width epsilon that is shifted by the phases, in units of epsilon."""
    return np.asarray(epsilon * (phases + np.rint(centers / epsilon - phases)))


@dataclass(frozen=True, eq=False)
class History:
    """What a deletion needs of the accepted iterations. Arrays have one entry for each; centers also the initial."""

    initial: Ints
    labels: npt.NDArray[np.int32]
    sums: Array
    counts: Array
    phases: Array
    centers: Array


class QuantizedKMeans:
    """Q-k-means on rows in the unit cube, with deletion of rows by their index in the array that was fitted.

    A cluster of fewer than gamma n / n_clusters rows is balanced with its last centre.
    """

    def __init__(
        self, n_clusters: int, epsilon: float, gamma: float = 0.2, iterations: int = 10, seed: int = 0
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.gamma = gamma
        self.iterations = iterations
        self.seed = seed

    def fit(self, X: Array) -> Self:
        """Train on the rows."""
        self._rng = np.random.default_rng(self.seed)
        self._X = np.array(X, dtype=np.float64, order="C")
        self._ids: Ints = np.arange(len(X))
        self._positions: Ints = np.arange(len(X))  # of rows by their index; -1 for those deleted
        self._alive: Mask = np.ones(len(X), dtype=bool)
        self._left = len(X)
        self._train()
        return self

    def delete(self, i: int) -> bool:
        """Delete row i of those fitted; return whether that took retraining."""
        position = int(self._positions[i])
        if position < 0:
            raise KeyError(i)
        self._positions[i] = -1
        self._alive[position] = False
        self._left -= 1
        if position not in self.history.initial and self._holds(position):
            return False
        self._X = self._X[self._alive]
        self._ids = self._ids[self._alive]
        self._alive = np.ones(self._left, dtype=bool)
        self._positions[self._ids] = np.arange(self._left)
        self._train()
        return True

    @property
    def centers(self) -> Array:
        """The centres, one in a row."""
        return self.history.centers[-1]

    def inertia(self, X: Array) -> float:
        """Return the sum of squared distances of rows to their nearest centres."""
        return partition(X, (X**2).sum(axis=1), self.centers).loss

    @property
    def _least(self) -> float:
        return self.gamma * self._left / self.n_clusters

    def _train(self) -> None:
        """Train on all rows in memory, which are all alive."""
        X = self._X
        if len(X) < self.n_clusters:
            raise ValueError(f"{self.n_clusters} clusters need as many rows; there are {len(X)}")
        squares = np.einsum("ij,ij->i", X, X)
        initial = plus_plus(X, squares, self.n_clusters, self._rng)
        centers = [X[initial]]
        phases = self._rng.random((self.iterations, X.shape[1]))
        parts = [partition(X, squares, centers[0])]
        for phase in phases:
            part = parts[-1]
            following = rounded(balanced(part.sums, part.counts, centers[-1], self._least), phase, self.epsilon)
            parts.append(partition(X, squares, following))
            if parts[-1].loss >= part.loss:
                break
            centers.append(following)
        accepted = len(centers) - 1
        used = parts[:accepted]
        k, d = centers[0].shape
        self.history = History(
            initial,
            np.array([part.labels for part in used], dtype=np.int32).reshape(accepted, len(X)),
            np.array([part.sums for part in used]).reshape(accepted, k, d),
            np.array([part.counts for part in used]).reshape(accepted, k),
            phases[:accepted],
            np.array(centers),
        )

    def _holds(self, position: int) -> bool:
        """Take a row out of the history; return whether all centres stay. If not, the history is of no more use."""
        old = self.history
        every = np.arange(len(old.phases))
        own = old.labels[:, position]
        old.sums[every, own] -= self._X[position]
        old.counts[every, own] -= 1.0
        light, which = np.nonzero(old.counts < self._least)  # these depend on the number of rows
        t, j = np.concatenate([every, light]), np.concatenate([own, which])
        means = balanced(old.sums[t, j], old.counts[t, j], old.centers[t, j], self._least)
        return bool((rounded(means, old.phases[t], self.epsilon) == old.centers[t + 1, j]).all())
