"""A keyed sample for k-means: who is in it, and what it says about the rest.

Each record has a key, 64 random bits that are drawn when it enters. In the first stage everyone joins alike, in two
more the far ones are likelier. Whether a record joins depends on its own key and content, on the settings, and on those
who have joined in earlier stages. So taking out one who is not in the sample changes nothing for anyone else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from expunge.base.checking import check_positive, check_rho, is_number
from expunge.base.errors import BadPlan, BadRecords
from expunge.base.types import Array, Keys, Mask
from expunge.engine.hashing import mix
from expunge.engine.records.lookup import mix_one
from expunge.solvers.slices import SLICES
from expunge.solvers.weighted_kmeans import (
    GOLDEN,
    begun,
    best,
    clustered,
    grouped,
    inertias,
    nearest,
    settled,
    to_own,
)  # fmt: skip

SHARES = (1 / 2, 1 / 6, 1 / 3)
"""The stages' shares of rho: first everyone alike, then by distance, twice."""
CAP = 32.0
"""How much likelier than others a far record may join."""
MOST = 0.5
"""The largest probability to join in one stage."""
ENOUGH = 5
"""Distances are measured from centres that have so many members each on average, or from fewer centres."""
ROUGH = 8
"""Centres that distances are measured from are found by way of so many groups for each."""
FINALISTS, REFINED = 3, 20
"""So many of the starts of k-means go on over the whole sample, for so many rounds at most."""
GROUPS = 256
"""The most seeds: means of small groups of the sample."""
AUTO = 128
"""How many records the sample has for each cluster, if the user does not say."""
SIDES = 2
"""So many cells there are for each centre and seed."""
BOUND = 2.0**40
"""The largest number that a record may have, unless another bound is given."""
EXTREME = 2.0**200
"""Bounds must not be above this, or below its inverse."""
ROOM = 2**22
"""There are fewer seeds, rather than more numbers than this in the sums."""


@dataclass(frozen=True)
class KeyedClusters:
    """All that is fixed before records take part. (`keyed_clusters` makes it.)

    ``rho`` is the planned share of records in the sample, which is the share of deletions that fit anew. A far record
    joins up to sixteen times as likely. Numbers of records are at most ``bound``, and exact to 2⁻⁸⁰ of it. ``seed``
    decides where k-means starts; it is no secret, unlike the keys.
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
        if not (is_number(self.rho) and 0.0 < self.rho <= 1.0):
            raise BadPlan(f"rho={self.rho!r}: give a probability above 0 and at most 1.")
        if self.seeds > GROUPS:
            raise BadPlan(f"seeds={self.seeds}: give at most {GROUPS}.")
        if not 1.0 / EXTREME <= self.bound <= EXTREME:
            raise BadPlan(f"bound={self.bound!r}: give a number above 0, from 1e-60 to 1e60.")

    def admit(self, points: Array) -> None:
        """Refuse records that cannot be summed exactly, before anything is done with them."""
        if points.ndim != 2 or points.shape[1] != self.features:
            raise BadRecords(f"records: expected points of {self.features} features, got {points.shape}.")
        largest = float(max(np.max(points, initial=0.0), -np.min(points, initial=0.0)))
        if not largest <= self.bound:  # nor if it is NaN
            column = int(np.flatnonzero(~(np.abs(points) <= self.bound).all(axis=0))[0])
            if not np.isfinite(points[:, column]).all():
                raise BadRecords(f"X: a number in column {column} is not finite. Replace it, or leave its record out.")
            raise BadRecords(
                f"X: a number in column {column} is above {self.bound:.3g}. Divide the column by a constant, or give a "
                "larger bound: solver=expunge.solvers.KeyedSample(bound=...)."
            )


def keyed_clusters(
    clusters: int,
    features: int,
    records: int,
    rho: float | Literal["auto"] = "auto",
    *,
    bound: float = BOUND,
    seed: int = 0,
) -> KeyedClusters:
    """Return settings for so many records, rounded up to a power of two; there are as many seeds as there is room for.

    If ``rho`` is "auto" the sample has about `AUTO` records for each cluster, however many records there are.

    >>> keyed_clusters(8, 10, 500_000).rho, keyed_clusters(8, 10, 2**19).rho, keyed_clusters(8, 10, 800).rho
    (0.001953125, 0.001953125, 1.0)
    >>> keyed_clusters(6, 10, 500_000, 0.05).seeds, keyed_clusters(10, 784, 60_000, 0.05).seeds
    (256, 66)
    """
    check_positive("clusters", clusters, whole=True)
    check_positive("features", features, whole=True)
    check_positive("records", records, whole=True)
    check_rho(rho)
    share = min(1.0, AUTO * clusters / (1 << (records - 1).bit_length())) if rho == "auto" else float(rho)
    room = ROOM // (SIDES * clusters * (1 + SLICES * features))
    return KeyedClusters(clusters, features, share, max(1, min(GROUPS, room)), bound, seed)


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
        possible = np.flatnonzero(draws < self._most)
        joined = np.zeros(len(keys), dtype=bool)
        joined[possible] = draws[possible] < self.chances(points[possible])
        return joined

    def joins_alone(self, key: int, point: Array) -> bool:
        """Say the same of one record, quickly."""
        draw = (mix_one((key + self.number * GOLDEN) % 2**64) >> 11) * 2.0**-53
        return draw < self._most and draw < self.chances(point[None]).item()

    @cached_property
    def _most(self) -> float:
        """The largest probability to join."""
        return min(MOST, self.rate * CAP if len(self.centers) else self.rate)


Stages = tuple[Stage, ...]


def first_stage(settings: KeyedClusters) -> Stage:
    """Return the stage that everyone joins alike."""
    return Stage(0, settings.rho * SHARES[0], np.zeros((0, settings.features)), 0.0)


def next_stage(settings: KeyedClusters, stages: Stages, keys: Keys, points: Array) -> Stage:
    """Return the stage after these, given who has joined in them, in any order.

    As long as hardly anyone has joined, everyone joins alike once more.
    """
    number, joined = len(stages), len(points)
    rate = settings.rho * SHARES[number]
    clusters = min(settings.clusters, joined // ENOUGH)
    if not clusters:
        return Stage(number, rate, np.zeros((0, settings.features)), 0.0)
    points, weights = weighted(stages, keys, points)
    most = min(settings.seeds, ROUGH * clusters)
    centers, _ = structure(points, weights, clusters, most, (settings.seed, number))
    far = to_own(points, centers, nearest(points, centers))
    own = (joined + clusters) / (joined - clusters)  # others are farther from these centres than their own members
    spread = own * float(np.cumsum(weights * far)[-1] / np.cumsum(weights)[-1])
    return Stage(number, rate, centers, spread)


def weighted(stages: Stages, keys: Keys, points: Array) -> tuple[Array, Array]:
    """Return those who have joined in an order that is theirs alone, and their weights: 1 / probability to join."""
    order = np.lexsort((*points.T[::-1], keys))
    points = points[order] + 0.0  # -0 becomes 0
    missed = np.ones(len(points))
    for stage in stages:
        missed *= 1.0 - stage.chances(points)
    return points, 1.0 / np.maximum(1.0 - missed, 2.0**-53)


def structure(points: Array, weights: Array, clusters: int, most: int, numbers: tuple[int, ...]) -> tuple[Array, Array]:
    """Return centres and seeds of a sample: seeds first, k-means of the seeds, and from its best ends of the sample."""
    seeds = grouped(points, weights, most, (*numbers, 0))
    if len(seeds) == len(points):
        return clustered(points, weights, clusters, (*numbers, 1), None), seeds
    sizes = np.asarray(np.bincount(nearest(points, seeds), weights, len(seeds)), dtype=np.float64)
    ends = settled(seeds, sizes, begun(seeds, sizes, clusters, (*numbers, 1)))
    ends = ends[np.argsort(inertias(seeds, sizes, ends), kind="stable")[:FINALISTS]]
    return best(points, weights, settled(points, weights, ends, REFINED)), seeds
