"""What Newton's method sums for several classes, exactly: curvatures of pairs of classes, the gradient, the misfit.

At scores whose softmax is p, the cross entropy has the curvature diag(p) - ppᵀ = Σ p_k p_l (e_k - e_l)(e_k - e_l)ᵀ,
over pairs k < l. So that of all parameters is made of one sum for each pair, G_kl = Σ p_k p_l x xᵀ. Each is a sum of
squares of whole numbers, √(p_k p_l)·x rounded: whatever was rounded, G_kl and the whole are positive semi-definite.
(docs/guarantee.md#exact-products)

That is the curvature here, but far from there it says little: where a class is thought to be rare and is not, its p is
small, and a step by it far too long. So rounds take (p + y)/√3 in place of p, with y = 1 for the class observed: on
average that is the same curvature where the model is right, and it is large where the model is wrong. The finish, which
starts near, takes p itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from expunge.base.types import Array, Ints
from expunge.solvers.exact_products import LARGEST, LIMB, SLICE, carry, whole

FEW = 8
"""Up to so many records scores are made row by row; the digits are the same."""
ROOM = 2**17
"""About how many numbers are rounded together: they should stay near the processor."""
HALFWAY = 3.0**-0.5
"""What makes (p + y)·(p + y)ᵀ as large as p·pᵀ on average, for two classes that differ."""
MOST_MISFIT = 2.0**42
"""The largest misfit of a record, as a whole number: a block's sum is then below 2⁵³."""


class Expanded(NamedTuple):
    """The cross entropy about some scores, a column for each record."""

    residuals: Array
    """What was observed, 1 or 0, less the probability of each class; times the weight."""
    left: Array
    right: Array
    """For each class; the product of one class's left and another's right one is √(weight·p_k·p_l)."""
    misfit: Array
    """The residuals in the metric of the curvature, for each contrast: 1 on average where the model is calibrated."""


class Seen(NamedTuple):
    """Sums as numbers."""

    curvatures: Array
    """Of each pair of classes, columns × columns."""
    gradient: Array
    """Columns × classes."""
    misfit: float


@dataclass(frozen=True)
class ClassSums:
    """The sums of ``width`` columns for some classes: three limbs, each with pairs, then the gradient, then the misfit.

    >>> ClassSums(classes=7, width=55).count
    32726
    """

    classes: int
    width: int

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """The classes of each pair."""
        one, other = np.triu_indices(self.classes, 1)
        return one, other

    @property
    def products(self) -> int:
        """How many products the columns have, two and two."""
        return self.width * (self.width + 1) // 2

    @property
    def count(self) -> int:
        """How many sums there are; known without making room for them."""
        return self.classes * (self.classes - 1) // 2 * self.products + self.width * self.classes + 1

    @cached_property
    def _upper(self) -> Ints:
        """Where the products are in a matrix."""
        one, other = np.triu_indices(self.width)
        return np.asarray(one * self.width + other)

    @cached_property
    def _square(self) -> Ints:
        """Which product stands at each place of a matrix."""
        square = np.zeros((self.width, self.width), dtype=np.int64)
        square.reshape(-1)[self._upper] = np.arange(self.products)
        return np.maximum(square, square.T)

    def add(self, columns: Array, expanded: Expanded, scale: float, limbs: Array) -> None:
        """Add what at most `AT_ONCE` records contribute; their columns are scaled, and rounded here."""
        of_pairs = len(self.pairs[0]) * self.products
        self._add_curvatures(columns, expanded, limbs[:, :of_pairs])
        rounded, residuals = whole(columns.copy()), whole(expanded.residuals * scale)
        top = max(_largest(rounded), _largest(residuals))
        for limb, part in zip(limbs[:, of_pairs:-1], exact_products(rounded, residuals, top), strict=False):
            limb += part.reshape(-1)
        limbs[0, -1] += np.minimum(np.rint(expanded.misfit * scale), MOST_MISFIT).sum()
        carry(limbs)

    def _add_curvatures(self, columns: Array, expanded: Expanded, limbs: Array) -> None:
        one, other = self.pairs
        largest, together = _largest(columns), max(1, ROOM // max(columns.size, 1))
        for first in range(0, len(one), together):
            some = slice(first, first + together)
            roots = expanded.left[one[some]] * expanded.right[other[some]]
            rooted, top = columns * roots[:, None], largest * _largest(roots) + 1.0
            rooted = np.rint(rooted, out=rooted) if top <= LARGEST else whole(rooted)
            place = slice(first * self.products, (first + together) * self.products)
            for limb, part in zip(limbs[:, place], exact_products(rooted, rooted, top), strict=False):
                limb += part.reshape(len(roots), -1)[:, self._upper].reshape(-1)

    def seen(self, limbs: Array, scale: float) -> Seen:
        """Return sums as numbers, where columns were scaled by this."""
        low, middle, high = limbs
        joined = (high * LIMB + middle) * LIMB + low
        of_pairs = len(self.pairs[0]) * self.products
        curvatures = joined[:of_pairs].reshape(-1, self.products)[:, self._square] / scale**2
        gradient = joined[of_pairs:-1].reshape(self.width, self.classes) / scale**2
        return Seen(curvatures, gradient, float(joined[-1]) / scale)


def exact_products(one: Array, other: Array, top: float) -> tuple[Array, ...]:
    """Return Σ one·otherᵀ for whole numbers up to ``top``, along a last axis of up to `AT_ONCE`, as one or three limbs.

    They are limbs of 33 bits, not yet carried; no more than one is needed where ``top`` is small.
    """
    if top <= SLICE / 2.0:
        return (_product(one, other),)
    high, low = _slices(one)
    high_other, low_other = (high, low) if other is one else _slices(other)
    mixed = _product(high, low_other) + _product(low, high_other)
    highest = _product(high, high_other)
    carried, further = np.floor(mixed * 2.0**-11), np.floor(highest * (1.0 / SLICE))
    lowest = _product(low, low_other) + (mixed - carried * 2.0**11) * SLICE
    return lowest, carried + (highest - further * SLICE) * 2.0**11, further


def _slices(numbers: Array) -> tuple[Array, Array]:
    high = np.floor(numbers * (1.0 / SLICE) + 0.5)
    return high, numbers - high * SLICE


def _product(one: Array, other: Array) -> Array:
    turned = np.swapaxes(other, -1, -2)
    return np.asarray(one * turned if one.shape[-1] == 1 else one @ turned)


def _largest(numbers: Array) -> float:
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))


def expand(scores: Array, codes: Ints, weights: Array | None, least: float, observed: bool = False) -> Expanded:
    """Return the cross entropy about scores (classes × records); the bits of a record are the same in every batch.

    ``least`` is the least probability of a class where it stands for curvature. With ``observed``, curvatures are those
    of rounds: what was observed has a part in them.
    """
    powers, records = np.exp(scores - scores.max(axis=0)), np.arange(len(codes))
    shares = powers / added(powers)
    residuals = -shares
    residuals[codes, records] += 1.0
    held = np.maximum(shares, least)
    misfit = added(residuals * residuals / held) / (added(held) * (len(scores) - 1))
    if observed:
        held[codes, records] += 1.0
        held *= HALFWAY
    roots = np.sqrt(held)
    if weights is None:
        return Expanded(residuals, roots, roots, misfit)
    own = weights[codes]
    return Expanded(residuals * own, roots * np.sqrt(own), roots, misfit * own)


def added(rows: Array) -> Array:
    """Return the sum of the rows, one after the other, so that each number has the same bits in every batch."""
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total


def scores_of_classes(columns: Array, weights: Array) -> Array:
    """Return the scores (classes × records) of columns × records, to the last bit the same in whatever batch."""
    if columns.shape[1] <= FEW:
        return np.ascontiguousarray(np.cumsum(columns * weights[:, :, None], axis=1)[:, -1])
    scores = weights[:, :1] * columns[0]
    for j in range(1, len(columns)):
        scores += weights[:, j : j + 1] * columns[j]
    return scores


def contrasts(classes: int) -> Array:
    """Return orthonormal contrasts, one a column: each class against those before it.

    >>> np.round(contrasts(3), 2).tolist()
    [[0.71, 0.41], [-0.71, 0.41], [0.0, -0.82]]
    """
    found = np.zeros((classes, classes - 1))
    for k in range(1, classes):
        found[:k, k - 1], found[k, k - 1] = 1.0, -k
        found[:, k - 1] /= np.sqrt(k * (k + 1.0))
    return found
