"""k-means from a keyed sample, and exact sums over cells: no noise, no declared region, no clipping.

Each record has a key, 64 random bits that are drawn when it enters. The key, the record itself and those who joined in
earlier stages say whether it joins the sample. The sample alone decides the *structure*: cells of space. Everyone,
sampled or not, is counted and summed in its cell, exactly. The model is k-means of the cells' means.

So structure and sums are a function of the set of records with their keys. Whoever is outside the sample leaves the
structure as it is: to take it out of the sums gives, bit for bit, what a fresh fit of the others with their keys gives.

    stages      first_stage, next_stage     who joins (`Stage.joins`), given those who have joined before
    structure   cells_of                    cells: nearest of the sample's centres × nearest of its seeds
    sums        Cells.total, Cells.one      counts and Σx by cell: whole multiples of powers of two, in any order
    model       centers_of                  when it is read
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from expunge.base.checking import check_positive, check_rho
from expunge.base.errors import BadPlan, BadRecords
from expunge.base.grid import grid_unit
from expunge.base.types import Array, Ints, Keys, Mask
from expunge.engine.hashing import mix
from expunge.solvers.weighted_kmeans import (
    GOLDEN,
    GROUPS,
    begun,
    best,
    clustered,
    grouped,
    inertias,
    nearest,
    settled,
    to_own,
)

SHARES = (1 / 2, 1 / 6, 1 / 3)
"""The stages' shares of rho: first everyone alike, then by distance, twice."""
CAP = 32.0
"""How much likelier than others a far record may join."""
MOST = 0.5
"""The largest probability to join in one stage."""
ENOUGH = 5
"""The sample's own centres, to measure distances from, have at least so many members each on average."""
FINALISTS, REFINED = 3, 20
"""So many of the starts of k-means go on over the whole sample, for so many rounds at most."""
BITS, SLICES = 20, 4
"""A number is cut into slices of so many bits."""
EXACT_TO = 2 ** (53 - BITS)
"""So many records can be summed without rounding: a slice is at most 2²⁰ of its units."""
BOUND = 2.0**40
"""The largest number that a record may have, unless another bound is given."""
EXTREME = 2.0**200
"""Bounds must not be above this, or below its inverse."""
ROOM = 2**22
"""There are fewer seeds, rather than more numbers than this in the sums."""
AT_ONCE = 2**15
"""How many rows are cut into slices at a time."""


@dataclass(frozen=True)
class KeyedClusters:
    """All that is fixed before records take part. (Make it with `keyed_clusters`.)

    ``rho`` is the planned share of records in the sample, which is the share of deletions that fit anew. A far record
    joins up to sixteen times as likely. ``seed`` decides where k-means starts; it is no secret, unlike the keys.
    """

    clusters: int
    features: int
    rho: float
    seeds: int = GROUPS
    bound: float = BOUND
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("clusters", "features", "seeds"):
            check_positive(name, getattr(self, name), whole=True)
        check_rho(self.rho)
        if self.seeds > GROUPS:
            raise BadPlan(f"seeds={self.seeds}: give at most {GROUPS}.")
        if not 1.0 / EXTREME <= self.bound <= EXTREME:
            raise BadPlan(f"bound={self.bound!r}: give a number above 0, from 1e-60 to 1e60.")

    @cached_property
    def width(self) -> int:
        """How many numbers a cell has: the count, then all columns' first slices, their second ones and so on."""
        return 1 + SLICES * self.features

    def admit(self, points: Array) -> None:
        """Refuse records that cannot be summed exactly, before anything is done with them."""
        if points.ndim != 2 or points.shape[1] != self.features:
            raise BadRecords(f"records: expected points of {self.features} features, got {points.shape}.")
        largest = max(np.max(points, initial=0.0), -np.min(points, initial=0.0))
        if not largest <= self.bound:  # nor NaN
            raise BadRecords(
                f"records: a number is {'not finite' if not math.isfinite(largest) else f'above {self.bound:.3g}'}. "
                "Divide its column by a constant, or give a larger bound."
            )


def keyed_clusters(clusters: int, features: int, rho: float, *, bound: float = BOUND, seed: int = 0) -> KeyedClusters:
    """Return settings: as many seeds as there is room for.

    >>> keyed_clusters(6, 10, 0.05).seeds, keyed_clusters(10, 784, 0.05).seeds
    (256, 133)
    """
    check_positive("clusters", clusters, whole=True)
    check_positive("features", features, whole=True)
    room = ROOM // (clusters * (1 + SLICES * features))
    return KeyedClusters(clusters, features, rho, max(1, min(GROUPS, room)), bound, seed)


# --- who is in the sample ---


@dataclass(frozen=True, eq=False)
class Stage:
    """Who joins: with probability ``rate`` where there are no centres, else more likely the farther from them.

    ``spread`` is the mean squared distance of records from the centres, estimated from those who have joined before.

    >>> stage = Stage(1, 0.01, np.array([[0.0]]), 4.0)
    >>> stage.chances(np.array([[2.0], [4.0], [1000.0], [0.0]])).tolist()
    [0.01, 0.04, 0.32, 0.0]
    """

    number: int
    rate: float
    centers: Array
    spread: float

    def chances(self, points: Array) -> Array:
        """Return the probability that each record joins in this stage."""
        if not len(self.centers):
            return np.full(len(points), min(MOST, self.rate))
        far = to_own(points, self.centers, nearest(points, self.centers))
        if self.spread == 0.0:
            times = np.where(far > 0.0, CAP, 0.0)
        else:
            times = np.minimum(far, CAP * self.spread) / self.spread
        return np.minimum(MOST, self.rate * times)

    def joins(self, keys: Keys, points: Array) -> Mask:
        """Say who joins in this stage: a function of each record's own key and content, and of those in before."""
        drawn = mix(keys + np.uint64(self.number * GOLDEN % 2**64)) >> np.uint64(11)
        draws = drawn * 2.0**-53
        most = min(MOST, self.rate * CAP if len(self.centers) else self.rate)
        possible = np.flatnonzero(draws < most)
        joined = np.zeros(len(keys), dtype=bool)
        joined[possible] = draws[possible] < self.chances(points[possible])
        return joined


Stages = tuple[Stage, ...]


def first_stage(settings: KeyedClusters) -> Stage:
    """Return the stage that everyone joins alike."""
    return Stage(0, settings.rho * SHARES[0], np.zeros((0, settings.features)), 0.0)


def next_stage(settings: KeyedClusters, stages: Stages, keys: Keys, points: Array) -> Stage:
    """Return the stage after these, given who has joined in them, in any order. A few of them all join alike again."""
    number, joined = len(stages), len(points)
    rate = settings.rho * SHARES[number]
    clusters = min(settings.clusters, joined // ENOUGH)
    if not clusters:
        return Stage(number, rate, np.zeros((0, settings.features)), 0.0)
    points, weights = _weighted(stages, keys, points)
    centers, _ = _structure(points, weights, clusters, settings, number)
    far = to_own(points, centers, nearest(points, centers))
    own = (joined + clusters) / (joined - clusters)  # others are farther from these centres than their own members
    spread = own * float(np.cumsum(weights * far)[-1] / np.cumsum(weights)[-1])
    return Stage(number, rate, centers, spread)


def _weighted(stages: Stages, keys: Keys, points: Array) -> tuple[Array, Array]:
    """Return those who have joined in an order that is theirs alone, and their weights: 1 / probability to join."""
    order = np.lexsort((*points.T[::-1], keys))
    points = points[order]
    missed = np.ones(len(points))
    for stage in stages:
        missed *= 1.0 - stage.chances(points)
    return points, 1.0 / (1.0 - missed)


def _structure(
    points: Array, weights: Array, clusters: int, settings: KeyedClusters, number: int
) -> tuple[Array, Array]:
    """Return centres and seeds of a sample: seeds first, k-means of the seeds, and from its best ends of the sample."""
    seeds = grouped(points, weights, settings.seeds, (settings.seed, number, 0))
    if len(seeds) == len(points):
        return clustered(points, weights, clusters, (settings.seed, number, 1), None), seeds
    sizes = np.asarray(np.bincount(nearest(points, seeds), weights, len(seeds)), dtype=np.float64)
    ends = settled(seeds, sizes, begun(seeds, sizes, clusters, (settings.seed, number, 1)))
    ends = ends[np.argsort(inertias(seeds, sizes, ends), kind="stable")[:FINALISTS]]
    return best(points, weights, settled(points, weights, ends, REFINED)), seeds


# --- cells, and sums over everyone ---


@dataclass(frozen=True, eq=False)
class Cells:
    """The structure: a record's cell is its nearest centre and its nearest seed.

    Sums have a row for each cell (`KeyedClusters.width` numbers). All are whole multiples of powers of two and within
    2⁵³ of them up to `EXACT_TO` records: records are added and taken out in any order, and nothing is rounded.

    >>> cells = Cells(keyed_clusters(1, 1, 0.1), np.array([[0.0]]), np.array([[-1.0], [1.0]]))
    >>> cells.total(np.array([[0.625], [3.0], [-0.25]])).tolist()
    [[1.0, 0.0, 0.0, -0.25, 0.0], [2.0, 0.0, 4.0, -0.375, 0.0]]
    >>> cell, row = cells.one(np.array([0.625]))
    >>> cell, row.tolist()
    (1, [1.0, 0.0, 1.0, -0.375, 0.0])
    """

    settings: KeyedClusters
    centers: Array
    seeds: Array

    @cached_property
    def number(self) -> int:
        """How many cells there are."""
        return len(self.centers) * len(self.seeds)

    @cached_property
    def units(self) -> Array:
        """What the numbers of each slice are whole multiples of."""
        return np.asarray(grid_unit(self.settings.bound, BITS) * 2.0 ** (-BITS * np.arange(SLICES)[:, None]))

    @cached_property
    def _per_unit(self) -> Array:
        return 1.0 / self.units

    @cached_property
    def _columns(self) -> Array:
        """Centres and seeds, a column each: at least two, so that a sum over rows goes row by row."""
        return np.ascontiguousarray(np.concatenate([self.centers, self.seeds]).T)

    def cell(self, points: Array) -> Ints:
        """Return each record's cell."""
        return nearest(points, self.centers) * len(self.seeds) + nearest(points, self.seeds)

    def one(self, point: Array) -> tuple[int, Array]:
        """Return the cell of one record, and what it contributes to it."""
        apart = self._columns - point[:, None]
        apart *= apart
        far = np.add.reduce(apart, axis=0)
        clusters = len(self.centers)
        row = np.empty(self.settings.width)
        row[0] = 1.0
        self._cut(point, row[1:].reshape(SLICES, -1))
        return int(far[:clusters].argmin()) * len(self.seeds) + int(far[clusters:].argmin()), row

    def _cut(self, points: Array, out: Array) -> None:
        """Cut numbers into slices: rounded to each slice's unit, less what was rounded to the one before."""
        np.multiply(points, self._per_unit, out=out)
        np.rint(out, out=out)
        out *= self.units
        out[1:] -= out[:-1].copy()

    def contributions(self, points: Array) -> Array:
        """Return what each record contributes to its cell."""
        each = np.ones((len(points), self.settings.width))
        for point, row in zip(points, each, strict=True):
            self._cut(point, row[1:].reshape(SLICES, -1))
        return each + 0.0

    def total(self, points: Array) -> Array:
        """Return the sums over some records, a row for each cell."""
        sums = np.zeros((self.settings.width, self.number))
        for first in range(0, len(points), AT_ONCE):
            part = points[first : first + AT_ONCE]
            cells = self.cell(part)
            sums[0] += np.bincount(cells, minlength=self.number)
            cut = np.empty((SLICES, len(part)))
            for column in range(self.settings.features):
                self._cut(part[:, column], cut)
                for place, numbers in enumerate(cut):
                    sums[1 + place * self.settings.features + column] += np.bincount(cells, numbers, self.number)
        return np.ascontiguousarray(sums.T)


def cells_of(settings: KeyedClusters, stages: Stages, keys: Keys, points: Array) -> Cells:
    """Return the cells, given all stages and who has joined in them, in any order."""
    if not len(points):
        nowhere = np.zeros((1, settings.features))
        return Cells(settings, np.repeat(nowhere, settings.clusters, axis=0), nowhere)
    points, weights = _weighted(stages, keys, points)
    return Cells(settings, *_structure(points, weights, settings.clusters, settings, len(stages)))


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
    >>> settings = keyed_clusters(3, 2, rho=0.1)
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


# --- the model ---


def centers_of(cells: Cells, sums: Array) -> Array:
    """Return the centres: k-means of the means of all cells that have members, weighted by how many these are."""
    live = sums[sums[:, 0] > 0.0]
    if not len(live):
        return cells.centers
    counts = live[:, 0]
    slices = live[:, 1:].reshape(len(live), SLICES, -1)
    totals = ((slices[:, 3] + slices[:, 2]) + slices[:, 1]) + slices[:, 0]
    settings = cells.settings
    return clustered(
        totals / counts[:, None], counts, settings.clusters, (settings.seed, len(SHARES), 2), cells.centers
    )
