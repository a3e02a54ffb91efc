"""k-means of weighted points with fixed bits: the same points in the same order give the same centres, to the last bit.

A squared distance is a sum over columns, one after the other, so that a point has the same in every batch. Matrix
products, whose last bits depend on the batch, only say which centre is surely the nearest; where they leave a doubt,
distances decide. Sums over points are taken in the points' order. Random numbers are scrambled counters.
"""

from __future__ import annotations

import math

import numpy as np

from expunge.base.types import Array, Ints
from expunge.engine.hashing import mix

STARTS = 10
"""How many starts k-means has, besides one that is given."""
ROUNDS = 100
"""The most rounds of k-means; most starts settle far earlier."""
ROUGHLY = 5
"""The most rounds in which groups are made."""
AT_ONCE = 2**16
"""How many distances are computed at a time."""
GOLDEN = 0x9E3779B97F4A7C15
"""Counters are scrambled in steps of this odd number."""
TINY = 1e-290
"""Products below this may have lost digits."""


def uniforms(numbers: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Return numbers between 0 and 1 that look random, a function of some whole numbers.

    >>> uniforms((1, 2), (2,)).round(3).tolist() == uniforms((1, 2), (3,)).round(3).tolist()[:2]
    True
    """
    state = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        state = mix(state + np.uint64((number + 1) * GOLDEN % 2**64))
    counters = state + np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    return np.asarray((mix(counters) >> np.uint64(11)) * 2.0**-53).reshape(shape)


def distances(points: Array, centers: Array) -> Array:
    """Return squared distances, a row for each point. Each has the same bits in whatever company.

    >>> distances(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0], [4.0, 6.0]])).tolist()
    [[0.0, 25.0]]
    """
    found = np.zeros((len(points), len(centers)))
    apart = np.empty_like(found)
    for column in range(points.shape[1]):
        np.subtract(points[:, column, None], centers[:, column], out=apart)
        apart *= apart
        found += apart
    return found


def to_own(points: Array, centers: Array, labels: Ints) -> Array:
    """Return the squared distance of each point to the centre that its label names, with the bits of `distances`."""
    found = np.zeros(labels.shape)
    for column in range(points.shape[1]):
        apart = points[:, column] - centers[labels, column]
        apart *= apart
        found += apart
    return found


def nearest(points: Array, centers: Array) -> Ints:
    """Return the number of each point's nearest centre: the first of those with the smallest of `distances`.

    >>> nearest(np.array([[0.0], [0.9]]), np.array([[0.1], [1.0]])).tolist()
    [0, 1]
    """
    return nearest_each(points, centers[None])[0]


def nearest_each(points: Array, groups: Array) -> Ints:
    """Return the same for several groups of centres, equally many: a row of labels for each group.

    Take x and c from one origin, s = |c|²/2 - x·c by a matrix product in any order, and u = 2⁻⁵³. Then |x|² + 2s and
    the distance by columns differ by less than (8d + 32)·u·(|x|² + |c|²). So a centre is surely the nearest if its
    score, with half of this added, is below that of all others with half of theirs taken off.
    """
    number, clusters, features = groups.shape
    flat = groups.reshape(-1, features)
    centers = flat - flat[0]
    slack = (2 * features + 8) * 2.0**-52
    squares = np.einsum("ij,ij->i", centers, centers)
    low = (0.5 - slack) * squares
    labels = np.empty((number, len(points)), dtype=np.int64)
    rows = max(1, AT_ONCE // len(flat))
    for first in range(0, len(points), rows):
        part = points[first : first + rows]
        moved = part - flat[0]
        scores = low - moved @ centers.T
        scores = scores.reshape(len(part), number, clusters)
        found = scores.argmin(axis=2)
        most = np.take_along_axis(scores, found[:, :, None], axis=2)[:, :, 0]
        most += 2.0 * slack * squares.reshape(number, clusters)[np.arange(number), found]
        most += 2.0 * slack * np.einsum("ij,ij->i", moved, moved)[:, None] + TINY
        doubtful, group = np.nonzero(np.count_nonzero(scores <= most[:, :, None], axis=2) != 1)
        if len(doubtful):
            found[doubtful, group] = _by_distances(part[doubtful], groups, group)
        labels[:, first : first + rows] = found.T
    return labels


def _by_distances(points: Array, groups: Array, group: Ints) -> Ints:
    """Return each point's nearest centre of its own group, by distances."""
    labels = np.empty(len(points), dtype=np.int64)
    rows = max(1, AT_ONCE // groups.shape[1])
    for first in range(0, len(points), rows):
        part = slice(first, first + rows)
        found = np.zeros((len(points[part]), groups.shape[1]))
        for column in range(points.shape[1]):
            apart = points[part, column, None] - groups[group[part], :, column]
            apart *= apart
            found += apart
        labels[part] = found.argmin(axis=1)
    return labels


def spread(points: Array, weights: Array, clusters: int, numbers: tuple[int, ...], starts: int, trials: int) -> Ints:
    """Return which points to start from, a row for each start: k-means++, each time the best of some trials."""
    count = len(points)
    draws = uniforms(numbers, (clusters, starts, trials))
    chosen = np.empty((starts, clusters), dtype=np.int64)
    cumulated = np.cumsum(weights)
    chosen[:, 0] = _picked(cumulated, draws[0, :, 0])
    closest = distances(points[chosen[:, 0]], points)
    for step in range(1, clusters):
        cumulated = np.cumsum(closest * weights, axis=1)
        picks = np.stack([_picked(row, draw) for row, draw in zip(cumulated, draws[step], strict=True)])
        closer = distances(points[picks.ravel()], points).reshape(starts, trials, count)
        np.minimum(closer, closest[:, None], out=closer)
        if trials == 1:
            chosen[:, step], closest = picks[:, 0], closer[:, 0]
            continue
        left = np.cumsum(closer * weights, axis=2)[:, :, -1]
        best = np.arange(starts), left.argmin(axis=1)
        chosen[:, step], closest = picks[best], closer[best]
    return chosen


def _picked(cumulated: Array, draws: Array) -> Ints:
    """Return whom draws hit, each with a probability in proportion to its share of the cumulated sum."""
    return np.minimum(np.searchsorted(cumulated, draws * cumulated[-1], side="right"), len(cumulated) - 1)


def settled(points: Array, weights: Array, starts: Array, rounds: int = ROUNDS) -> Array:
    """Return where Lloyd's algorithm leads from each start (starts × centres × columns). Empty clusters stay."""
    centers = starts.copy()
    weighted = np.tile(np.column_stack([points * weights[:, None], weights]).T, len(starts))
    moving = np.arange(len(starts))
    before = np.full((len(starts), len(points)), -1)
    for _ in range(rounds):
        labels = nearest_each(points, centers[moving])
        moved = (labels != before[moving]).any(axis=1)
        moving, labels = moving[moved], labels[moved]
        if not len(moving):
            break
        before[moving] = labels
        centers[moving] = _means(weighted, labels, centers[moving])
    return centers


def _means(weighted: Array, labels: Ints, centers: Array) -> Array:
    """Return the weighted means of the clusters, and a cluster's centre if it is empty."""
    number, clusters, features = centers.shape
    places = (labels + clusters * np.arange(number)[:, None]).ravel()
    sums = np.stack([np.bincount(places, row[: len(places)], number * clusters) for row in weighted], axis=1)
    total = sums[:, -1:]
    means = np.divide(sums[:, :-1], total, out=centers.reshape(-1, features).copy(), where=total > 0.0)
    return means.reshape(centers.shape)


def inertias(points: Array, weights: Array, starts: Array) -> Array:
    """Return the weighted sum of squared distances to the nearest centre, for each start."""
    labels = nearest_each(points, starts)
    far = np.stack([to_own(points, centers, row) for centers, row in zip(starts, labels, strict=True)])
    return np.cumsum(far * weights, axis=1)[:, -1]


def clustered(points: Array, weights: Array, clusters: int, numbers: tuple[int, ...], first: Array | None) -> Array:
    """Return centres of weighted points, k-means from ten starts and from ``first``, whichever is best.

    If there are no more points than clusters they are the centres, and the last of them again and again.

    >>> points = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> clustered(points, np.array([1.0, 1.0, 1.0, 3.0]), 2, (7,), None).tolist()
    [[0.5], [8.75]]
    """
    if len(points) <= clusters:
        return points[np.minimum(np.arange(clusters), len(points) - 1)]
    starts = begun(points, weights, clusters, numbers)
    if first is not None:
        starts = np.concatenate([first[None], starts])
    return best(points, weights, settled(points, weights, starts))


def begun(points: Array, weights: Array, clusters: int, numbers: tuple[int, ...]) -> Array:
    """Return ten starts: points that k-means++ has chosen."""
    return np.asarray(points[spread(points, weights, clusters, numbers, STARTS, 2 + int(math.log(clusters)))])


def best(points: Array, weights: Array, ends: Array) -> Array:
    """Return the centres with the smallest inertia (of several, the first), in order."""
    return in_order(ends[int(inertias(points, weights, ends).argmin())])


def in_order(centers: Array) -> Array:
    """Return centres in ascending order of their first columns: it does not tell from which start they came."""
    return np.asarray(centers[np.lexsort(centers.T[::-1])])


def grouped(points: Array, weights: Array, groups: int, numbers: tuple[int, ...]) -> Array:
    """Return centres of many small groups, roughly; the points themselves if they are no more than groups."""
    if len(points) <= groups:
        return points
    starts = points[spread(points, weights, groups, numbers, 1, 1)]
    return np.asarray(settled(points, weights, starts, ROUGHLY)[0])
