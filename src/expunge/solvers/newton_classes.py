"""Newton's method with noise after the solve for several classes: multinomial logistic regression. (docs/newton.md)

Steps, units and centres are those of `expunge.solvers.newton`. A round expands the cross entropy about the last draw,
by the sums of `expunge.solvers.class_sums`. Scores of classes are known up to a constant, so parameters are those of
classes - 1 orthonormal contrasts, of which the penalty and the noise see as much as of the classes themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array, Batch
from expunge.engine.laws import Gaussian, Law, Point
from expunge.engine.transcript import Path
from expunge.solvers.class_sums import ClassSums, Seen, contrasts, expand, scores_of_classes
from expunge.solvers.damping import damping_of
from expunge.solvers.exact_products import AT_ONCE, carry, whole
from expunge.solvers.frames import Frame, dense
from expunge.solvers.losses import Multinomial, Weighted
from expunge.solvers.newton import (
    BUCKETS,
    CENTRES,
    COLUMNS,
    FINEST,
    FIRST,
    SETTLED,
    SIZES,
    Newton,
    SummedAnew,
)
from expunge.solvers.solving import RIDGE, power_near, solved

BEGINS = 0.7
"""How much of the log-odds of classes the first intercepts have."""


def takes(loss: Any) -> bool:
    """Say whether a loss is one that this method is for: the cross entropy of classes, or that with weights."""
    return isinstance(loss.loss if isinstance(loss, Weighted) else loss, Multinomial)


@dataclass(frozen=True)
class ClassExpansion(SummedAnew):
    """What a record contributes to the steps of Newton's method for several classes; targets are their codes."""

    @cached_property
    def classes(self) -> int:
        """How many classes there are."""
        loss: Any = self.loss
        return int(loss.classes)

    @cached_property
    def sums(self) -> ClassSums:
        """The sums of rounds and finish, of the features and 1."""
        return ClassSums(self.classes, self.features + 1)

    @property
    def parameters(self) -> int:
        """How many parameters there are, with intercepts."""
        return (self.features + 1) * (self.classes - 1)

    @cached_property
    def size(self) -> int:
        """How many numbers a record contributes."""
        return max(3 * self.sums.count, 1 + BUCKETS * (self.features + 1) + self.classes)

    @cached_property
    def contrasts(self) -> Array:
        """The contrasts of classes whose parameters are drawn."""
        return contrasts(self.classes)

    @cached_property
    def weights(self) -> Array | None:
        """The weight of each class, if they have weights."""
        return np.array(self.loss.weights) if isinstance(self.loss, Weighted) else None

    def admit(self, batch: Batch) -> None:
        """Refuse numbers that no scale fits, and codes of no class."""
        super().admit(batch)
        codes = np.asarray(batch[1])
        if not ((codes >= 0) & (codes < self.classes) & (codes == np.floor(codes))).all():
            raise BadRecords(f"y: codes of classes are whole numbers from 0 to {self.classes - 1}. Correct them.")

    def limbs(self, sums: Array) -> Array:
        """Return the limbs of an exact sum."""
        return sums[: 3 * self.sums.count].reshape(3, -1)

    def normal(self, sums: Array) -> Array:
        """Bring an exact sum into its one form, in place. (Counts are in theirs: they are whole, and not negative.)"""
        carry(self.limbs(sums))
        return sums

    def values(self, sums: Array) -> Array:
        """Return the numbers that a sum stands for."""
        curvatures, gradient, misfit = self.sums.seen(self.limbs(sums), 1.0)
        return np.concatenate([curvatures.ravel(), gradient.ravel(), [misfit], sums[3 * self.sums.count :]])

    def _summed(self, step: int, path: Path, batch: Batch) -> Array:
        """Return the sum of what records contribute."""
        summed = np.zeros(self.size)
        if step == SIZES:
            self._count(batch, summed, 1.0)
        elif not self._settled(step, path):
            frame = self.frame(path[min(step, COLUMNS)])
            scale = 2.0**self.digits
            weights = self.by_class(path[step]) / scale if step > COLUMNS else None
            limbs = self.limbs(summed)
            for first in range(0, int(batch[0].shape[0]), AT_ONCE):
                features, targets = (column[first : first + AT_ONCE] for column in batch)
                columns = self._framed(frame, features)
                if weights is None:
                    self._add_products(columns, limbs)
                else:
                    codes = np.asarray(targets).astype(np.int64)
                    scores, in_round = scores_of_classes(columns, weights), step < FIRST + self.rounds
                    expanded = expand(scores, codes, self.weights, 1.0 / scale, in_round)
                    self.sums.add(columns, expanded, scale, limbs)
        return summed

    def _count(self, batch: Batch, counts: Array, sign: float) -> None:
        """Count the records, of each column the numbers between powers of two, and the records of each class."""
        features, codes = batch[0], np.asarray(batch[1]).astype(np.int64)
        super()._count((features, np.zeros(len(codes))), counts, sign)
        self.by_counts(counts)[:] += sign * np.bincount(codes, minlength=self.classes)

    def by_counts(self, counts: Array) -> Array:
        """Return how many records of each class there are."""
        first = 1 + BUCKETS * (self.features + 1)
        return counts[first : first + self.classes]

    def frame(self, iterate: Array) -> Frame:
        """Return the frame that a step has found."""
        width = self.features + 2
        centres = iterate[width : 2 * width]
        return Frame(iterate[:width].astype(np.int64), centres, bool(centres.any()))

    def by_class(self, iterate: Array) -> Array:
        """Return an iterate's parameters as classes × columns; each number is a sum in a fixed order."""
        by_contrast = iterate[: self.parameters].reshape(self.features + 1, -1)
        found = np.zeros((self.classes, self.features + 1))
        for c in range(self.classes - 1):
            found += self.contrasts[:, c : c + 1] * by_contrast[:, c]
        return found

    def _framed(self, frame: Frame, features: AnyArray) -> Array:
        """Return the features and 1 in their units, columns × records, not yet rounded."""
        rows = dense(features)
        if frame.centred:
            rows = rows - frame.centres[1:-1]
        columns = np.empty((self.features + 1, len(rows)))
        columns[:-1], columns[-1] = rows.T, 1.0
        columns *= np.ldexp(1.0, self.digits - frame.exponents[1:])[:, None]
        return columns

    def _add_products(self, columns: Array, limbs: Array) -> None:
        """Add the products of columns and 1, and of a target that is 0."""
        found = whole(np.concatenate([columns, np.zeros((1, columns.shape[1]))]))
        limbs[:, : self.products.pairs] += self.products.total(found).reshape(3, -1)
        carry(limbs)


@dataclass(frozen=True, eq=False)
class ClassNewton(Newton):
    """The laws of the rounds, and the solve at the end.

    An iterate has exponents and centres, as in `Newton`, or else the parameters: of all contrasts for the first
    feature, for the second, and so on; last the intercepts. ``start_spread`` is the standard deviation of each.
    """

    query: ClassExpansion

    @property
    def start(self) -> Array:
        """Zeros."""
        return np.zeros(max(2 * self._width, self.query.parameters))

    @cached_property
    def _used(self) -> int:
        """How many parameters there are."""
        return (self.query.features + self.fit_intercept) * (self.query.classes - 1)

    def law(self, step: int, path: Path, sums: Array) -> Law | None:
        """Return the law of what a step draws."""
        if step == SIZES:
            return Point(self._placed(self._sizes(sums[SIZES])))
        if step == CENTRES:
            return Point(self._placed(self._frame(self.query.frame(path[CENTRES]).exponents, sums)))
        if step == COLUMNS:
            return self._first(self.query.by_counts(sums[SIZES]))
        if step == FIRST + self.query.rounds:
            return None
        if not sums[step].any():  # settled, or nobody is there
            return Point(path[step].copy())
        return self._next(step - FIRST, path[step], self.query.frame(path[COLUMNS]), sums[: step + 1])

    def _matrix(self, sums: Array) -> Array:
        """Return the products of columns that the steps before the rounds sum."""
        products = self.query.products
        return products.matrix(self.query.limbs(sums)[:, : products.pairs]) * 2.0 ** (-2 * self.query.digits)

    def _placed(self, numbers: Array) -> Array:
        """Return numbers as an iterate."""
        placed = self.start
        placed[: len(numbers)] = numbers
        return placed

    def _first(self, counts: Array) -> Law:
        """Return the law of the first parameters: 0, but for intercepts near what the counts of classes suggest."""
        size = len(self.start)
        if not (self.fit_intercept and self.query.rounds):
            return Point(np.zeros(size))
        odds = np.log(counts + 0.5)
        if self.query.weights is not None:
            odds += np.log(self.query.weights)
        guess = BEGINS * (self.query.contrasts.T @ odds) / (1.0 + self.start_spread**2 / 4.0)
        first = self.query.features * len(guess)
        if self.start_spread == 0.0:
            return Point(self._placed(np.append(np.zeros(first), guess)))
        return Gaussian(guess, np.eye(len(guess)), self.start_spread, size, first)

    def _next(self, number: int, last: Array, frame: Frame, sums: Array) -> Law:
        """Return the law of a round: N(w + c·step, (c·s)²N⁻¹)."""
        from scipy.linalg import lapack

        used, spread, contrasts = self._used, self.spreads[number], self.query.classes - 1
        columns, seen = self._columns(sums), self._seen(sums[-1])
        point, curvature = last[:used], self._curvature(seen)
        exact = self._penalty(columns.variances, frame)
        nearly_none = 1e-9 * self.expected * self.rate
        penalty = self._each(self.rate * power_near(exact) if spread else exact, nearly_none)
        more = penalty + self._each(damping_of(columns, spread, self.rate), 0.0)
        metric = curvature + np.diag(more)
        metric.reshape(-1)[:: used + 1] *= 1.0 + used * RIDGE
        factor = np.tril(lapack.dpotrf(metric, lower=1)[0])
        pull = self._pull(seen)
        step = lapack.dpotrs(factor, pull - penalty * point, lower=1)[0]
        total = float(seen.curvatures[:, -1, -1].sum())
        if spread == 0.0:
            settled = (pull - penalty * point) @ step <= SETTLED * total
            return Point(last.copy() if settled else self._placed(point + step))
        inner = lapack.dtrtrs(factor, np.diag(np.sqrt(more)), lower=1)[0]
        effective = max(used - float((inner**2).sum()), 1.0)
        size = self.expected * self.rate
        misfit = seen.misfit + (step @ (curvature @ step) - 2.0 * (step @ pull)) / contrasts
        variance = spread * max(misfit / size, FINEST) * effective / used
        shrunk = 1.0 / (1.0 + variance * effective / max(total, FINEST * size))
        return Gaussian(point + shrunk * step, factor, shrunk * float(np.sqrt(variance)), len(last))

    def _each(self, of_columns: Array, of_intercepts: float) -> Array:
        """Return a number for each parameter, from one for each column and one for intercepts."""
        return np.repeat(np.append(of_columns, of_intercepts), self.query.classes - 1)[: self._used]

    def _seen(self, sums: Array) -> Seen:
        return self.query.sums.seen(self.query.limbs(sums), 2.0**self.query.digits)

    def _pull(self, seen: Seen) -> Array:
        """Return the gradient by contrasts."""
        return (seen.gradient @ self.query.contrasts).reshape(-1)[: self._used]

    def _curvature(self, seen: Seen) -> Array:
        """Return the curvature of all parameters."""
        classes, width = self.query.classes, self.query.sums.width
        one, other = self.query.sums.pairs
        blocks = np.zeros((classes, classes, width, width))
        blocks[one, other] = blocks[other, one] = -seen.curvatures
        blocks[np.arange(classes), np.arange(classes)] = -blocks.sum(axis=1)
        turned = np.tensordot(self.query.contrasts, blocks, (0, 0))
        turned = np.tensordot(self.query.contrasts, turned, (0, 1))
        whole_matrix = turned.transpose(2, 0, 3, 1).reshape(self.query.parameters, -1)
        return np.ascontiguousarray(whole_matrix[: self._used, : self._used])

    def model(self, path: Path, sums: Array) -> Array:
        """Return features and intercept of each class, one class after the other, in the units of the records."""
        frame, point = self.query.frame(path[COLUMNS]), path[FIRST + self.query.rounds][: self._used]
        if len(sums) <= FIRST + self.query.rounds:  # no finish: the last draw, or nobody is there
            point = point if sums[SIZES, 0] else 0.0 * point
        else:
            seen, penalty = self._seen(sums[-1]), self._each(self._penalty(self._columns(sums).variances, frame), 0.0)
            point = point + solved(self._curvature(seen) + np.diag(penalty), self._pull(seen) - penalty * point)
        found = np.ldexp(self.query.by_class(self._placed(point)), -frame.exponents[1:])
        found[:, -1] -= found[:, :-1] @ frame.centres[1:-1]
        return found.reshape(-1)
