"""k-means from a keyed sample, and exact sums over cells: no noise, no declared region, no clipping.

The sample alone decides the *structure*: cells of space. Everyone, sampled or not, is counted and summed in its cell,
exactly. The model is k-means of the cells' means. So structure and sums are a function of the set of records with their
keys. Whoever is outside the sample leaves the structure as it is: to take it out of the sums gives, bit for bit, what a
fresh fit of the others with their keys gives.

    stages      first_stage, next_stage     who joins (`Stage.joins`), given those who have joined before
    structure   cells_of                    cells: by the sample's centres and by its seeds
    sums        Cells.total, Cells.one      counts and Σx by cell: whole multiples of powers of two, in any order
    model       centers_of                  when it is read
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from expunge.base.types import Array, Ints, Keys, Mask
from expunge.solvers.keyed_sample import (
    SHARES,
    SIDES,
    KeyedClusters,
    Stages,
    first_stage,
    keyed_clusters,
    next_stage,
    structure,
    weighted,
)  # fmt: skip
from expunge.solvers.slices import SLICES, Slices, joined
from expunge.solvers.weighted_kmeans import clustered, distances, in_order, nearest, settled

__all__ = ["Cells", "Fitted", "KeyedClusters", "cells_of", "centers_of", "fit", "keyed_clusters"]

NEAR = 0.2
"""Another centre is nearly as near if its squared distance is not larger by this share of that between the two."""
AT_ONCE = 2**15
"""How many rows are cut into slices at a time."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The structure: a record's cell is its nearest centre, whether another is nearly as near, and its nearest seed.

    So there are small cells where clusters meet, and there it matters: the model's clusters will meet close by.

    Sums have a row for each cell: the count, all columns' first slices, their second ones and so on. All are whole
    multiples of powers of two and within 2⁵³ of them up to `EXACT_TO` records: records are added and taken out in any
    order, and nothing is rounded.

    >>> cells = Cells(keyed_clusters(1, 1, 1000, 0.1), np.array([[0.0]]), np.array([[-1.0], [1.0]]))
    >>> cells.total(np.array([[0.625], [3.0], [-0.25]]))[:2].tolist()
    [[1.0, 0.0, 0.0, -0.25, 0.0], [2.0, 0.0, 4.0, -0.375, 0.0]]
    >>> cell, row = cells.one(np.array([0.625]))
    >>> cell, row.tolist()
    (1, [1.0, 0.0, 1.0, -0.375, 0.0])
    """

    settings: KeyedClusters
    centers: Array
    seeds: Array

    @cached_property
    def width(self) -> int:
        """How many numbers a cell has."""
        return 1 + SLICES * self.settings.features

    @cached_property
    def number(self) -> int:
        """How many cells there are."""
        return SIDES * len(self.centers) * len(self.seeds)

    @cached_property
    def _slices(self) -> Slices:
        return Slices(self.settings.bound)

    @cached_property
    def _columns(self) -> Array:
        """Centres and seeds, a column each: at least two, so that a sum over rows goes row by row."""
        return np.ascontiguousarray(np.concatenate([self.centers, self.seeds]).T)

    @cached_property
    def _strips(self) -> Array:
        """By how much less than a second centre the first may be nearer if both are near, times their distance."""
        return NEAR * distances(self.centers, self.centers)

    def cell(self, points: Array) -> Ints:
        """Return each record's cell."""
        rows, far = np.arange(len(points)), distances(points, self.centers)
        first = far.argmin(axis=1)
        least = far[rows, first]
        far[rows, first] = np.inf
        second = far.argmin(axis=1)
        both = far[rows, second] - least < self._strips[first, second]
        return (SIDES * first + both) * len(self.seeds) + nearest(points, self.seeds)

    def one(self, point: Array) -> tuple[int, Array]:
        """Return the cell of one record, and what it contributes to it."""
        apart = self._columns - point[:, None]
        apart *= apart
        far = np.add.reduce(apart, axis=0)
        seed = int(far[len(self.centers) :].argmin())
        far = far[: len(self.centers)]
        first = int(far.argmin())
        least = far.item(first)
        far[first] = np.inf
        second = int(far.argmin())
        both = far.item(second) - least < self._strips.item(first, second)
        row = np.empty(self.width)
        row[0] = 1.0
        self._slices.cut(point, row[1:].reshape(SLICES, -1))
        return (SIDES * first + both) * len(self.seeds) + seed, row

    def contributions(self, points: Array) -> Array:
        """Return what each record contributes to its cell."""
        each = np.ones((len(points), self.width))
        self._slices.cut(points[:, None], each[:, 1:].reshape(-1, SLICES, self.settings.features))
        return each

    def total(self, points: Array) -> Array:
        """Return the sums over some records, a row for each cell."""
        sums = np.zeros((self.width, self.number))
        for first in range(0, len(points), AT_ONCE):
            part = points[first : first + AT_ONCE]
            cells = self.cell(part)
            sums[0] += np.bincount(cells, minlength=self.number)
            cut = np.empty((SLICES, len(part)))
            for column in range(self.settings.features):
                self._slices.cut(part[:, column], cut)
                for place, numbers in enumerate(cut):
                    sums[1 + place * self.settings.features + column] += np.bincount(cells, numbers, self.number)
        return np.ascontiguousarray(sums.T)


def cells_of(settings: KeyedClusters, stages: Stages, keys: Keys, points: Array) -> Cells:
    """Return the cells, given all stages and who has joined in them, in any order."""
    if not len(points):
        nowhere = np.zeros((1, settings.features))
        return Cells(settings, np.repeat(nowhere, settings.clusters, axis=0), nowhere)
    points, weights = weighted(stages, keys, points)
    return Cells(settings, *structure(points, weights, settings.clusters, settings.seeds, (settings.seed, len(stages))))


class Fitted(NamedTuple):
    """What is kept beside the records and their keys: a function of these, whatever their order."""

    stages: Stages
    sampled: Mask
    """Who is in the sample, as the records lie."""
    cells: Cells
    sums: Array


def fit(settings: KeyedClusters, keys: Keys, points: Array) -> Fitted:
    """Sample, find the cells, and sum over everyone.

    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(place, 0.1, size=(500, 2)) for place in (-1.0, 0.0, 1.0)])
    >>> keys = rng.integers(2**64, size=len(X), dtype=np.uint64)
    >>> settings = keyed_clusters(3, 2, len(X), rho=0.1)
    >>> found = fit(settings, keys, X)
    >>> np.abs(centers_of(found.cells, found.sums)[:, 0]).round(1).tolist()
    [1.0, 0.0, 1.0]
    >>> outside = int(np.flatnonzero(~found.sampled)[0])
    >>> cell, row = found.cells.one(X[outside])
    >>> found.sums[cell] -= row
    >>> fresh = fit(settings, np.delete(keys, outside), np.delete(X, outside, axis=0))
    >>> found.sums.tobytes() == fresh.sums.tobytes()
    True
    """
    settings.admit(points)
    stages: Stages = (first_stage(settings),)
    sampled = stages[0].joins(keys, points)
    for _ in SHARES[1:]:
        stage = next_stage(settings, stages, keys[sampled], points[sampled])
        sampled = sampled | stage.joins(keys, points)
        stages = (*stages, stage)
    cells = cells_of(settings, stages, keys[sampled], points[sampled])
    return Fitted(stages, sampled, cells, cells.total(points))


def centers_of(cells: Cells, sums: Array) -> Array:
    """Return the centres: k-means of the means of all cells that have members, weighted by how many these are.

    Starts are tried on cells by nearest seed only, all that have the same one together: cells that end where the
    sample's clusters meet would favour these clusters. The best goes on over all cells.
    """
    settings = cells.settings
    if not sums[:, 0].any():
        return cells.centers
    means, counts = _means(sums.reshape(-1, len(cells.seeds), cells.width).sum(axis=0))
    start = clustered(means, counts, settings.clusters, (settings.seed, len(SHARES), 2), cells.centers)
    means, counts = _means(sums)
    return in_order(settled(means, counts, start[None])[0])


def _means(sums: Array) -> tuple[Array, Array]:
    """Return the means of all rows that have members, and how many these are."""
    live = sums[sums[:, 0] > 0.0]
    counts = live[:, 0]
    slices = live[:, 1:].reshape(len(live), SLICES, -1).transpose(1, 0, 2)
    return joined(*slices) / counts[:, None], counts
