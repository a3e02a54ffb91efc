"""Newton's method with noise after the solve: its query and the laws of its rounds. (docs/newton.md)

A pass has these steps. All but the last see the same part of the records.

    0          sizes       how large the numbers of each column are: counts by powers of two
    1          centres     products of the columns, in these units: where each lies, and how far it spreads
    2          columns     products of the columns as all that follows sees them; draws where to start
    3 … K+2    rounds      the loss as weighted least squares at the last draw; draws near its solution
    K+3        finish      the same at the last draw, over everyone; the model is solved from it when it is read

Without a finish the last draw is the model.

Records are kept as they come. A sum sees each column less a centre, in units of a power of two, rounded to whole
numbers: so all sums are exact. Centres and units follow from the first sums. They are coarse and seldom change when a
record leaves; if they do, all is made anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.columns import in_parts
from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array, Batch, Ints
from expunge.engine.laws import Gaussian, Law, Point
from expunge.engine.transcript import Path
from expunge.solvers.damping import Columns, damping_of
from expunge.solvers.exact_products import DIGITS_HELD, EXACT_TO, ExactProducts
from expunge.solvers.frames import FEW, Frame, View, dense, frame_of, scores_of
from expunge.solvers.losses import CurvedLoss
from expunge.solvers.solving import PHASE, RIDGE, power_near, solved
from expunge.solvers.stages import Stage, expanded
from expunge.solvers.stepping_back import is_quadratic, lowest

SIZES, CENTRES, COLUMNS, FIRST = 0, 1, 2, 3
"""The steps before the rounds, and the first of these."""
LEAST, MOST, WIDE = -64, 64, 4
"""Powers of two between which columns lie, and how many of them are counted together."""
BUCKETS = (MOST - LEAST) // WIDE
MANY = 16
"""A column is as large as those numbers are that at least one in so many reaches."""
AT_ONCE, MOST_ROWS = 2**16, 2**13
"""How many numbers, and how many records, columns are made of at a time: they stay in the processor's cache."""
SAYS_NEAR = 0
"""Where an iterate of a careful round without noise has 1 if it is near the solution."""
NEARBY = 0.1
"""It is if the step before, squared in its metric, is no more than this: then no record can be far away any more."""
SETTLED = 1e-12
"""Without noise, rounds are over when a step changes scores by less than this in the mean square."""
FAR = 16.0
"""A column is centred if its mean is more than so many standard deviations away from 0."""
NARROWEST = 1e-10
"""A column whose variance is a smaller part of its mean square is constant, as far as can be told."""
FINEST = 1e-6
"""The least residual mean square that noise is made for, in units of the target."""


@dataclass(frozen=True)
class Expansion:
    """What a record contributes to the steps of Newton's method. Records are (features, target), as they come."""

    loss: CurvedLoss
    features: int
    rounds: int
    digits: int
    """How many binary digits below its size a column is rounded."""
    careful: bool = False
    """Whether rounds have stages: they are far from the solution until they say that they are near."""

    @cached_property
    def products(self) -> ExactProducts:
        """The sums of products of the features, 1, and the target."""
        return ExactProducts(self.features + 2)

    @cached_property
    def _order(self) -> Ints:
        """Where a frame has the features, 1 and the target."""
        return np.append(np.arange(1, self.features + 2), 0)

    @cached_property
    def size(self) -> int:
        """How many numbers a record contributes."""
        return max(self.products.size, 1 + BUCKETS * (self.features + 1))

    @property
    def bound(self) -> float:
        """The largest norm of a contribution; nothing follows from it, since sums have no noise."""
        return 2.0**53

    @property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        return EXACT_TO

    def admit(self, batch: Batch) -> None:
        """Refuse numbers that no scale fits."""
        for name, column in zip(("X", "y"), batch, strict=True):
            numbers = column if isinstance(column, np.ndarray) else column.data
            parts = in_parts(numbers)
            largest = max([max(float(part.max()), -float(part.min())) for part in parts if part.size], default=0.0)
            if not largest < 2.0**MOST:
                raise BadRecords(f"{name}: it has {largest:g}; numbers must be below {2.0**MOST:.2g}. Use other units.")

    def normal(self, sums: Array) -> Array:
        """Bring an exact sum into its one form, in place. (Counts are in theirs: they are whole, and not negative.)"""
        return self.products.normal(sums)

    def values(self, sums: Array) -> Array:
        """Return the numbers that a sum stands for."""
        return np.append(self.products.matrix(sums).ravel(), sums[self.products.size :])

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return what each record contributes."""
        number = int(batch[0].shape[0])
        rows = [tuple([column[i : i + 1] for column in batch]) for i in range(number)]
        return np.array([self.total(step, path, row)[0] for row in rows]).reshape(number, self.size)

    def total(self, step: int, path: Path, batch: Batch) -> tuple[Array, int]:
        """Return their sum, and that none is above the bound."""
        return self._moved(step, path, np.zeros(self.size), batch, True), 0

    def moved(self, step: int, path: Path, stored: Array, came: Batch, left: Batch) -> Array:
        """Return a stored sum after some records came and others left, in its one form."""
        total = stored.copy()
        for batch, come in ((came, True), (left, False)):
            if batch and batch[0].shape[0]:
                self._moved(step, path, total, batch, come)
        return total

    def _moved(self, step: int, path: Path, total: Array, batch: Batch, come: bool) -> Array:
        """Let records come to a sum, or leave it, in place."""
        if step == SIZES:
            for part in self._parts(batch):
                self._count(part, total, 1.0 if come else -1.0)
        elif not self._settled(step, path):
            view = self._view(step, path)
            self.products.moved(total, (self._columns(view, *part) for part in self._parts(batch)), come)
        return total

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """Cut a batch into parts whose columns stay in the processor's cache."""
        number, rows = int(batch[0].shape[0]), max(min(AT_ONCE // (self.features + 2), MOST_ROWS), FEW)
        if number <= rows:
            yield batch
            return
        for first in range(0, number, rows):
            yield tuple([column[first : first + rows] for column in batch])

    @cached_property
    def link(self) -> bool:
        """Whether scores are not in the units of targets: those of classes, logarithms of counts."""
        return bool(getattr(self.loss, "link", hasattr(self.loss, "classes")))

    def of_scores(self, frame: Frame) -> Frame:
        """Return the frame of scores: in the units of targets, but for a link, where it is 1."""
        return frame._replace(exponents=np.append(0, frame.exponents[1:])) if self.link else frame

    @cached_property
    def _saturated(self) -> Callable[[AnyArray], Array] | None:
        """Where to expand without rounds: at the score that each target has by itself, if there is one."""
        return getattr(self.loss, "saturated", None) if self.rounds == 0 else None

    def _settled(self, step: int, path: Path) -> bool:
        """Say whether a round has nothing more to do: the last one has left the parameters as they were."""
        return FIRST < step < FIRST + self.rounds and np.array_equal(path[step], path[step - 1])

    def _stage(self, step: int, path: Path) -> Stage:
        """Return how a step expands the loss; the finish always plainly."""
        if not self.careful or step >= FIRST + self.rounds:
            return Stage.PLAIN
        return Stage.NEAR if path[step][SAYS_NEAR] else Stage.FAR

    def _count(self, batch: Batch, counts: Array, sign: float) -> None:
        """Count the records, and of each column the numbers between powers of two."""
        numbers = np.concatenate([batch[1][:, None], dense(batch[0])], axis=1)
        exponents = np.frexp(numbers)[1] - 1
        np.minimum(exponents, MOST - 1, out=exponents)
        np.maximum(exponents, LEAST, out=exponents)
        buckets = (exponents - LEAST) // WIDE + BUCKETS * np.arange(self.features + 1)
        size = BUCKETS * (self.features + 1)
        counts[0] += sign * len(numbers)
        counts[1 : 1 + size] += sign * np.bincount(buckets[numbers != 0.0], minlength=size)

    def _view(self, step: int, path: Path) -> View:
        """Return how a step sees records. The last one is remembered: nearly all requests ask for the finish alone."""
        expands = step > COLUMNS and (self.rounds > 0 or self._saturated is not None)
        stage = self._stage(step, path) if expands else None
        framed = path[min(step, COLUMNS)]
        point = path[step] if expands and self._saturated is None else None
        asked = stage, framed.tobytes(), b"" if point is None else point.tobytes()
        known: tuple[Any, View] | None = self.__dict__.get("_viewed")
        if known is None or known[0] != asked:
            frame = frame_of(framed)
            seen = self.of_scores(frame) if expands else frame
            scales = np.ldexp(1.0, self.digits - seen.exponents[self._order])
            view = View(frame, scales, scales[:-2, None], stage, np.zeros(0))
            if point is not None:
                parameters = seen.raw(point)
                parameters[:-1] /= view.scales[:-2]
                view = view._replace(parameters=parameters)
            known = asked, view
            self.__dict__["_viewed"] = known
        return known[1]

    def forget(self) -> None:
        """Forget the last view: where nobody is left, no other takes its place."""
        self.__dict__.pop("_viewed", None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: what is remembered is nobody's state."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def _columns(self, view: View, features: Any, targets: AnyArray) -> Array:
        """Return the columns whose products are summed, rounded to whole numbers: columns × records."""
        rows, scales, centre = dense(features), view.scales, view.frame.centres[0]
        if view.frame.centred:
            rows = rows - view.frame.centres[1:-1]
        columns = np.empty((self.features + 2, len(targets)))
        seen = columns[:-2]
        np.multiply(rows.T, view.by_row, out=seen)  # powers of two: digits stay as they are
        if view.stage is None:
            columns[-2], columns[-1] = scales[-2], (targets - centre) * scales[-1]
        else:
            scores = scores_of(seen.T, view.parameters) if self._saturated is None else self._saturated(targets)
            slopes, curvatures = expanded(self.loss, view.stage, scores + centre, targets)
            roots = np.sqrt(curvatures)
            seen *= roots
            np.multiply(roots, scales[-2], out=columns[-2])
            steps = slopes / curvatures
            np.subtract(scores, steps, out=steps)
            steps *= roots
            np.multiply(steps, scales[-1], out=columns[-1])
        return np.rint(columns, out=columns)


@dataclass(frozen=True)
class SummedAnew(Expansion):
    """One whose sums have more than products: what comes or leaves is summed by itself. Subclasses say how."""

    def _moved(self, step: int, path: Path, total: Array, batch: Batch, come: bool) -> Array:
        summed = self._summed(step, path, batch)
        np.add(total, summed, out=total) if come else np.subtract(total, summed, out=total)
        return self.normal(total)

    def _summed(self, step: int, path: Path, batch: Batch) -> Array:
        """Return the sum of what records contribute, in its one form."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Newton:
    """The laws of the rounds, and the solve at the end.

    ``expected`` is the number of records that noise is made for, ``rate`` the share of them that rounds see;
    ``spreads`` has the variance σ² of each round's noise, all 0 for none, and ``start_spread`` the standard deviation
    of where it starts. ``C`` is scikit-learn's: the weight of the loss beside the penalty |w|²/2.
    """

    query: Expansion
    expected: float
    rate: float
    spreads: tuple[float, ...]
    start_spread: float
    C: float = 1.0
    standardize: bool = True
    fit_intercept: bool = True

    @property
    def start(self) -> Array:
        """Zeros. The first half of an iterate is for exponents, the second for centres or parameters.

        Either has one number for the target, one for each feature, and one for the intercept.
        """
        return np.zeros(2 * self._width)

    @property
    def _width(self) -> int:
        return self.query.features + 2

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return what was drawn: it is the iterate."""
        return answer

    @cached_property
    def _guess(self) -> Callable[[float, float], float] | None:
        return getattr(self.query.loss, "guess", None) if self.fit_intercept and self.query.rounds else None

    @cached_property
    def _used(self) -> int:
        """How many parameters there are."""
        return self.query.features + self.fit_intercept

    def law(self, step: int, path: Path, sums: Array) -> Law | None:
        """Return the law of what a step draws."""
        if step == SIZES:
            if not sums[SIZES, 0]:
                self.query.forget()
            return Point(np.append(self._sizes(sums[SIZES]), np.zeros(self._width)))
        if step == CENTRES:
            return Point(self._frame(frame_of(path[CENTRES]).exponents, sums))
        if step == COLUMNS:
            return self._starting(sums, frame_of(path[COLUMNS]))
        if step == FIRST + self.query.rounds:
            return None
        if not sums[step].any():  # settled, or nobody is there
            return Point(path[step].copy())
        frame, columns = self.query.of_scores(frame_of(path[COLUMNS])), self._columns(sums)
        if self.query.careful and is_quadratic(self.query.loss):
            seen = [
                (path[one][self._width + 1 :][: self._used], self._matrix(sums[one])) for one in range(FIRST, step + 1)
            ]
            best = FIRST + lowest(seen, self.rate * self._penalty(columns.variances, frame))
            if best < step:
                return Point(0.5 * (path[best] + path[step]))
        return self._round(step - FIRST, path[step], frame, columns, self._matrix(sums[step]))

    def _sizes(self, counts: Array) -> Array:
        """Return the power of two of the target and of each feature, and 0 for the intercept.

        It is one that many numbers reach, so that they keep their digits; but at least one in which the largest number
        is no larger than sums can hold.
        """
        by_column = counts[1 : 1 + BUCKETS * (self.query.features + 1)].reshape(-1, BUCKETS)
        reaching = np.cumsum(by_column[:, ::-1], axis=1)[:, ::-1]
        there = reaching[:, 0] > 0.0
        common = BUCKETS - 1 - np.argmax((reaching * MANY >= reaching[:, :1])[:, ::-1], axis=1)
        largest = BUCKETS - 1 - np.argmax((reaching > 0.0)[:, ::-1], axis=1)
        room = (DIGITS_HELD - self.query.digits) // WIDE - 1
        return np.append(np.where(there, LEAST + WIDE * np.maximum(common, largest - room), 0.0), 0.0)

    def _frame(self, exponents: Ints, sums: Array) -> Array:
        """Return exponents and centres: those of columns that lie far from 0 are about these."""
        matrix, records = self._matrix(sums[CENTRES]), max(float(sums[SIZES, 0]), 1.0)
        order = [-1, *range(self.query.features)]  # the target comes first
        means, squares = matrix[order, -2] / records, matrix.diagonal()[order] / records
        variances = np.maximum(squares - means**2, NARROWEST * squares)
        far = (means**2 > FAR**2 * variances) & (variances > 0.0) & self.fit_intercept  # which takes up the centres
        far[0] &= not self.query.link
        spread = np.where(far, variances, 1.0)
        finer = WIDE * np.floor(np.log2(spread) / (2 * WIDE) + PHASE).astype(np.int64)  # above the first exponents
        found = np.zeros((2, self._width))
        found[0, :-1] = exponents[:-1] + np.where(far, finer, 0)
        steps = np.ldexp(1.0, finer + WIDE)
        found[1, :-1] = np.where(far, np.ldexp(np.floor(means / steps + PHASE) * steps, exponents[:-1]), 0.0)
        return found.reshape(-1)

    def _matrix(self, sums: Array) -> Array:
        """Return sums of products of the columns, 1 and the target, in their units."""
        products = self.query.products
        return products.matrix(sums) * 2.0 ** (-2 * self.query.digits)

    def _columns(self, sums: Array) -> Columns:
        features = self.query.features
        matrix, counts = self._matrix(sums[COLUMNS]), sums[SIZES]
        records = max(float(counts[0]), 1.0)
        means, squares = matrix[:features, -2] / records, matrix.diagonal()[:features] / records
        variances = squares - means**2
        constant = variances <= NARROWEST * squares  # any weight will do
        variances = np.where(constant, np.where(squares > 0.0, squares, 1.0), variances)
        there = counts[1 + BUCKETS : 1 + BUCKETS * (features + 1)].reshape(-1, BUCKETS).sum(axis=1)
        return Columns(variances, np.maximum(there, 1.0) / records)

    def _penalty(self, variances: Array, frame: Frame) -> Array:
        """Return the weight of each column's penalty, in its unit."""
        weights = variances if self.standardize else np.ldexp(1.0, -2 * frame.exponents[1:-1])
        return weights / self.C

    def _starting(self, sums: Array, frame: Frame) -> Law:
        """Return the law of the first parameters: 0, but for an intercept near what the targets suggest."""
        size = 2 * self._width
        if self._guess is None:
            return Point(np.zeros(size))
        total = math.ldexp(float(self._matrix(sums[COLUMNS])[-1, -2]), int(frame.exponents[0]))
        guess = self._guess(float(sums[SIZES, 0]), total) / (1.0 + self.start_spread**2 / 4.0)
        if self.start_spread == 0.0:
            return Point(np.append(np.zeros(size - 1), guess))
        return Gaussian(np.array([guess]), np.ones((1, 1)), self.start_spread, size, size - 1)

    def _round(self, number: int, last: Array, frame: Frame, columns: Columns, matrix: Array) -> Law:
        """Return the law of a round: N(w + c·step, (c·s)²N⁻¹)."""
        from scipy.linalg import lapack

        used, spread, first = self._used, self.spreads[number], self._width + 1
        point, curvature, pull = last[first : first + used], matrix[:used, :used], matrix[:used, -1]
        penalty, damping = np.zeros(used), np.zeros(used)
        features = self.query.features
        exact = self._penalty(columns.variances, frame)
        penalty[:features] = self.rate * (
            power_near(exact) if spread else exact
        )  # without noise all is made anew anyway
        damping[:features] = damping_of(columns, spread, self.rate)
        penalty[features:] = 1e-9 * self.expected * self.rate
        more = penalty + damping
        metric = curvature + np.diag(more)
        metric.reshape(-1)[:: used + 1] *= 1.0 + used * RIDGE
        factor = np.tril(lapack.dpotrf(metric, lower=1)[0])
        gradient = pull - curvature @ point - penalty * point
        step = lapack.dpotrs(factor, gradient, lower=1)[0]
        if spread == 0.0:
            return self._without_noise(last, point + step, float(gradient @ step), SETTLED * matrix[-2, -2])
        inner = lapack.dtrtrs(factor, np.diag(np.sqrt(more)), lower=1)[0]
        effective = max(used - float((inner**2).sum()), 1.0)
        size = self.expected * self.rate
        rss = matrix[-1, -1] - (point + step) @ pull - (point + step) @ (penalty * point + more * step)
        variance = spread * max(rss / size, FINEST) * effective / used
        shrunk = 1.0 / (1.0 + variance * effective / max(matrix[-2, -2], FINEST * size))
        return Gaussian(point + shrunk * step, factor, shrunk * math.sqrt(variance), len(last), first)

    def _without_noise(self, last: Array, solution: Array, decrement: float, settled: float) -> Law:
        """Return the law of a round that makes a whole step, and says whether it was a small one."""
        if decrement <= settled:
            return Point(last.copy())
        placed = self._placed(solution)
        placed[SAYS_NEAR] = self.query.careful and decrement <= NEARBY
        return Point(placed)

    def _placed(self, parameters: Array) -> Array:
        """Return parameters as an iterate."""
        placed = self.start
        placed[self._width + 1 : self._width + 1 + self._used] = parameters
        return placed

    def model(self, path: Path, sums: Array) -> Array:
        """Return the parameters of the columns and the intercept, in the units of the records."""
        used, frame, features = self._used, self.query.of_scores(frame_of(path[COLUMNS])), self.query.features
        if len(sums) <= FIRST + self.query.rounds:
            iterate = path[len(sums)] if sums[SIZES, 0] else self.start  # no finish: the last draw, or nobody is there
        else:
            matrix = self._matrix(sums[-1])
            penalty = np.zeros(used)
            penalty[:features] = self._penalty(self._columns(sums).variances, frame)
            curvature = matrix[:used, :used] + np.diag(penalty)
            iterate = self._placed(solved(curvature, matrix[:used, -1]))
        parameters = frame.raw(iterate)
        parameters[-1] += frame.centres[0] - frame.centres[1:-1] @ parameters[:-1]
        return parameters
