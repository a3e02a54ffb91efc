"""Newton's method for a loss in units of a scale that is learned with the weights: its query and its laws.

The steps are those of `expunge.solvers.newton`. An iterate has the logarithm of the scale in the target's place, before
the parameters, and draws it with them. A round has four sums more: how many records there are, how many lie beyond
epsilon, and of the others, squares of residuals and products of these with the columns. Rounds begin at the middle of
the targets and their spread, found from counts of targets by size, which no outlier moves far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.types import AnyArray, Array, Batch, Ints
from expunge.engine.laws import Gaussian, Law, Point
from expunge.engine.transcript import Path
from expunge.solvers.damping import Columns, damping_of
from expunge.solvers.exact_products import ExactProducts, whole
from expunge.solvers.frames import Frame, dense, frame_of, scores_of
from expunge.solvers.newton import (
    BUCKETS,
    COLUMNS,
    FIRST,
    SETTLED,
    SIZES,
    Newton,
    SummedAnew,
)
from expunge.solvers.robust_losses import ScaledHuber
from expunge.solvers.solving import PHASE, RIDGE, power_near, solved

SMALLEST, OCTAVES, PARTS = -24, 32, 4
"""Targets are counted by sign and by powers of two, from this one on, so many, each in so many parts."""
BINS = 2 * OCTAVES * PARTS + 1
WITHIN = 0.6
"""The first scale is such that so many targets would be nearer to the middle, if they were normal."""
NORMAL = 0.8416
"""How far from the middle, in standard deviations, that share of normal numbers lies."""
LOWEST, HIGHEST = -24.0, 30.0
"""Between which logarithms scales lie, in the target's unit."""
FASTEST, SLOWEST = 1.0 / 64.0, 16.0
"""By how much the square of the scale may change in a round."""
FEWEST_INSIDE = 0.1
"""Records beyond epsilon count as if at least this share of all were left for the scale."""
LEAST_SQUARES = 1e-30
"""The least sum of squares, in units of the scale, that is divided by."""
NOISE_OF_SCALE = 1.0
"""How much a record changes the logarithm of the scale, times the number of records."""


@dataclass(frozen=True)
class ScaledExpansion(SummedAnew):
    """What a record contributes. After the products there are counts."""

    loss: ScaledHuber

    @cached_property
    def products(self) -> ExactProducts:
        """The sums of products of the features, 1, the target, and the residual up to epsilon."""
        return ExactProducts(self.features + 3)

    @cached_property
    def size(self) -> int:
        """How many numbers a record contributes."""
        return max(self.products.size + BINS, 1 + BUCKETS * (self.features + 1))

    def counts(self, sums: Array) -> Array:
        """Return the counts that come after the products."""
        return sums[self.products.size : self.products.size + BINS]

    def _summed(self, step: int, path: Path, batch: Batch) -> Array:
        """Return the sum of what records contribute, in its one form."""
        summed = np.zeros(self.size)
        if step == SIZES:
            self._count(batch, summed, 1.0)
        elif not self._settled(step, path):
            parts = (self._seen(step, path, self.counts(summed), *part) for part in self._parts(batch))
            self.products.moved(summed, parts, True)
        return summed

    def _seen(self, step: int, path: Path, counts: Array, features: Any, targets: AnyArray) -> Array:
        """Count records, and return the columns whose products are summed, as whole numbers: columns × records."""
        frame = frame_of(path[min(step, COLUMNS)])
        rows = dense(features)
        if frame.centred:
            rows = rows - frame.centres[1:-1]
        targets = np.ldexp(targets - frame.centres[0], -frame.exponents[0])
        columns = np.empty((self.features + 3, len(targets)))
        if step <= COLUMNS or self.rounds == 0:
            columns[:-3], columns[-3], columns[-2], columns[-1] = rows.T, 1.0, targets, 0.0
            if step == COLUMNS:
                counts += np.bincount(bins_of(targets), minlength=BINS)
        else:
            scale = math.exp(within(path[step][len(frame.centres)]))
            scores = np.ldexp(scores_of(rows, frame.raw(path[step])), -frame.exponents[0])
            self._expanded((targets - scores) / scale, rows, columns)
            counts[0] += len(targets)
            counts[1] += np.count_nonzero(columns[-3] < 1.0)
        columns[:-3] *= np.ldexp(1.0, -frame.exponents[1:-1])[:, None]
        columns *= 2.0**self.digits
        return whole(columns)

    def _expanded(self, residuals: Array, rows: Array, columns: Array) -> None:
        """Write the columns of a round, from residuals in units of the scale."""
        slopes, curvatures = self.loss.expansion(-residuals, np.zeros(1))
        roots = np.sqrt(curvatures)
        np.multiply(rows.T, roots, out=columns[:-3])
        columns[-3] = roots
        columns[-2] = -slopes / roots
        columns[-1] = np.where(roots < 1.0, 0.0, residuals)


def within(logarithm: float) -> float:
    """Return the logarithm of a scale that was drawn, as it is used: however far out it lies, nothing overflows.

    >>> within(1e6), within(0.5)
    (30.0, 0.5)
    """
    return min(max(float(logarithm), LOWEST), HIGHEST)


def bins_of(numbers: Array) -> Ints:
    """Return in which bin each number is: they rise with it, and the middle one has those near 0."""
    fractions, exponents = np.frexp(numbers)
    size = (exponents - 1 - SMALLEST) * PARTS + np.floor((2.0 * np.abs(fractions) - 1.0) * PARTS).astype(np.int64) + 1
    found = np.clip(np.where(fractions == 0.0, 0, size), 0, OCTAVES * PARTS)
    return np.asarray(np.where(fractions < 0.0, -found, found) + OCTAVES * PARTS)


def edges() -> Array:
    """Return the edges of the bins: one more than there are."""
    parts = np.arange(OCTAVES * PARTS + 1)
    above = np.ldexp(1.0 + (parts % PARTS) / PARTS, SMALLEST + parts // PARTS)
    return np.append(-above[::-1], above)


def middle_and_spread(counts: Array, about: float | None = None) -> tuple[float, float]:
    """Return the median of targets, and their spread about it or about a given number, as if they were normal.

    >>> counts = np.bincount(bins_of(np.random.default_rng(0).normal(3.0, 2.0, 10_000)), minlength=BINS)
    >>> middle, spread = middle_and_spread(counts)
    >>> abs(middle - 3.0) < 0.2, abs(spread - 2.0) < 0.2
    (True, True)
    """
    below, where = np.append(0.0, np.cumsum(counts)), edges()
    below /= max(below[-1], 1.0)
    middle = float(np.interp(0.5, below, where)) if about is None else about
    low, high = 0.0, 2.0 * float(where[-1])
    for _ in range(64):
        half = 0.5 * (low + high)
        inside = np.interp(middle + half, where, below) - np.interp(middle - half, where, below)
        low, high = (half, high) if inside < WITHIN else (low, half)
    return middle, high / NORMAL


@dataclass(frozen=True, eq=False)
class ScaledNewton(Newton):
    """The laws of the rounds, and the solve at the end: parameters, and then the scale."""

    query: ScaledExpansion

    def law(self, step: int, path: Path, sums: Array) -> Law | None:
        """Return the law of what a step draws."""
        if step <= COLUMNS or step == FIRST + self.query.rounds or not sums[step].any():
            return super().law(step, path, sums)
        frame = frame_of(path[COLUMNS])
        return self._next(step - FIRST, path[step], frame, self._columns(sums), self._seen(sums[step]))

    def _matrix(self, sums: Array) -> Array:
        """Return sums of products of the columns, 1 and the target, in their units."""
        return super()._matrix(sums)[:-1, :-1]

    def _seen(self, sums: Array) -> Seen:
        matrix, (records, beyond) = super()._matrix(sums), self.query.counts(sums)[:2]
        used = self._used
        weight, weighted, squares = matrix.diagonal()[-3:].tolist()
        return Seen(
            matrix[:used, :used], matrix[:used, -2], matrix[:used, -1], weight, weighted, squares,
            float(records), float(beyond),
        )  # fmt: skip

    def _starting(self, sums: Array, frame: Frame) -> Law:
        """Return the law of the first parameters and scale: coarse, so that they seldom change."""
        placed = self.start
        counts = self.query.counts(sums[COLUMNS])
        if counts.any():
            middle, spread = middle_and_spread(counts, None if self.fit_intercept else 0.0)
            coarse = float(power_near(np.array([spread]))[0])
            placed[self._width] = math.log(coarse)
            placed[-1] = math.floor(middle / coarse + PHASE) * coarse
        return Point(placed)

    def _next(self, number: int, last: Array, frame: Frame, columns: Columns, seen: Seen) -> Law:
        """Return the law of a round: parameters about the solution, and beside them the logarithm of the scale."""
        from scipy.linalg import lapack

        used, spread, first = self._used, self.spreads[number], self._width + 1
        point, features, size = last[first : first + used], self.query.features, self.expected * self.rate
        height = within(last[first - 1])
        scale = math.exp(height)
        exact = self._penalty(columns.variances, frame) * math.ldexp(scale, int(frame.exponents[0]))
        penalty, damping = np.full(used, 1e-9 * size), np.zeros(used)
        penalty[:features] = self.rate * (power_near(exact) if spread else exact)
        damping[:features] = damping_of(columns, spread, self.rate)
        metric = seen.curvature + np.diag(penalty + damping)
        metric.reshape(-1)[:: used + 1] *= 1.0 + used * RIDGE
        factor = np.tril(lapack.dpotrf(metric, lower=1)[0])
        gradient = seen.slope - penalty * point / scale
        step = lapack.dpotrs(factor, gradient, lower=1)[0]
        growth = 0.5 * math.log(seen.growth(step, self.query.loss.epsilon))
        higher = within(height + growth)
        if spread == 0.0:
            moved = gradient @ step + seen.records * (higher - height) ** 2
            placed = self._placed(point + scale * step)
            placed[first - 1] = higher
            return Point(last.copy() if moved <= SETTLED * seen.records else placed)
        share = seen.records / seen.weight  # by so much less curvature there is than of least squares
        noise = math.sqrt(spread * share) * math.exp(higher)
        block = np.zeros((used + 1, used + 1))
        block[0, 0] = noise / (NOISE_OF_SCALE * math.sqrt(spread / size))
        block[1:, 1:] = factor
        wider = 0.5 * math.log1p(share**2 * spread * used / size)  # residuals have the noise of the draw as well
        mean = np.append(higher + wider, point + scale * step)
        return Gaussian(mean, block, noise, len(last), first - 1)

    def model(self, path: Path, sums: Array) -> Array:
        """Return the parameters of the columns, the intercept and the scale, in the units of the records.

        One step of Newton's method for all of them at once, from the last draw; without a finish that draw itself.
        """
        if self.query.rounds == 0:
            return self._of_least_squares(path, sums)
        used, first, frame = self._used, self._width + 1, frame_of(path[COLUMNS])
        if not sums[SIZES, 0]:
            return np.zeros(self._width)
        if len(sums) <= FIRST + self.query.rounds:  # no finish: the last draw
            return self._in_units(path[len(sums)], math.exp(within(path[len(sums)][first - 1])), frame)
        seen, last = self._seen(sums[-1]), path[FIRST + self.query.rounds]
        scale, point = math.exp(within(last[first - 1])), last[first : first + used]
        penalty, features = np.zeros(used), self.query.features
        penalty[:features] = self._penalty(self._columns(sums).variances, frame)
        penalty *= math.ldexp(scale, int(frame.exponents[0]))
        curvature = seen.curvature + np.diag(penalty)
        step = solved(curvature, seen.slope - penalty * point / scale)
        turn = solved(curvature, seen.inner)
        pull = 0.5 * (seen.squares + seen.beyond * self.query.loss.epsilon**2 - seen.records)
        stiff = max(seen.squares - float(seen.inner @ turn), FEWEST_INSIDE * seen.records)
        growth = min(max((pull - float(seen.inner @ step)) / stiff, -1.0), 1.0)
        placed = self._placed(point + scale * (step - growth * turn))
        return self._in_units(placed, scale * math.exp(growth), frame)

    def _of_least_squares(self, path: Path, sums: Array) -> Array:
        """Return the same without rounds: least squares, and the root of the mean square of residuals."""
        found, frame, matrix = super().model(path, sums), frame_of(path[COLUMNS]), self._matrix(sums[-1])
        records = matrix[-2, -2]
        parameters = found[:-1]
        intercept = found[-1] - frame.centres[0] + frame.centres[1:-1] @ parameters
        own = np.append(parameters, intercept) * np.ldexp(1.0, frame.exponents[1:] - frame.exponents[0])
        residual = np.append(own, -1.0)
        square = float(residual @ matrix @ residual) / max(records, 1.0)
        return np.append(found, math.ldexp(math.sqrt(max(square, 0.0)), int(frame.exponents[0])))

    def _in_units(self, placed: Array, scale: float, frame: Frame) -> Array:
        """Return parameters and scale in the units of the records."""
        parameters = frame.raw(placed)
        parameters[-1] += frame.centres[0] - frame.centres[1:-1] @ parameters[:-1]
        return np.append(parameters, math.ldexp(scale, int(frame.exponents[0])))


@dataclass(frozen=True)
class Seen:
    """What the sums of a round say, in units of the scale: curvature, slopes, and how residuals lie.

    ``inner`` and ``squares`` are of the residuals up to epsilon: their products with the columns, and their squares.
    ``weight`` and ``weighted`` are of all: their curvatures, and their squares times these.
    """

    curvature: Array
    slope: Array
    inner: Array
    weight: float
    weighted: float
    squares: float
    records: float
    beyond: float

    def growth(self, step: Array, epsilon: float) -> float:
        """Return by what the square of the scale is to be multiplied, if weights make a step.

        The scale s is right if Σ(r/s)² over residuals up to epsilon, and epsilon² for each beyond, are the number of
        records. The squares after the step are foreseen in two ways: as if all had the same curvature, and as if those
        up to epsilon fell as the others do. The lower is nearer to what comes.
        """
        inside, curved = (self.records - self.beyond) / max(self.weight, 1.0), float(step @ self.curvature @ step)
        alike = self.squares - 2.0 * float(step @ self.inner) + inside * curved
        rest = 1.0 + (curved - 2.0 * float(step @ self.slope)) / max(self.weighted, LEAST_SQUARES)
        squares = min(max(min(alike, rest * self.squares), FASTEST * self.squares), self.squares)
        beyond = self.beyond * epsilon**2
        both = squares + beyond
        if both < self.records:
            return max(squares / (self.records - beyond), FASTEST)
        faster = both / max(squares, FEWEST_INSIDE * both)  # since those beyond stay as they are
        return min((both / self.records) ** faster, SLOWEST)
