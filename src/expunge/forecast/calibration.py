"""How long things take on this machine: small problems of the same kind are fitted, and records deleted from them.

What a fit, a kept deletion and the replay of all steps take is then taken for a constant, a part for each record (of
a kept deletion: for each record of a step) and a part for each step. These parts are fitted to what was measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.special import ndtri

from expunge.estimators import ingest
from expunge.forecast.problems import RHO, Kind, Size
from expunge.least_squares import RidgePlan
from expunge.types import AnyArray, Array, Ints

FEW_STEPS, FEW_RECORDS = 16, 8
"""The smallest problem: so many steps, with so many records each."""
LARGEST = 2**23
"""No small problem has more numbers in its table than this."""
TRIES = 24
"""From each small problem so many records are deleted, if there is time."""
LOOKED_AT = 96
"""Of so many records it is asked how likely deleting them is to replay."""


class Costs(NamedTuple):
    """Seconds of a fit, of a deletion that is kept, and of a replay of all steps."""

    fit: float
    kept: float
    replay: float


@dataclass(frozen=True)
class Point:
    """What was measured with a small problem."""

    size: Size
    in_memory: Costs
    in_file: Costs
    seconds: float
    """How long it took in all, apart from deletions, whose number depends on the time there is."""


class Typical(NamedTuple):
    """Records that were looked at."""

    moves: Array
    """How far each moves the sums, as a share of the most that any may."""
    replayed: Array
    """Which share of the steps of all its epochs a replay takes again."""


@dataclass(frozen=True)
class Calibration:
    """What was measured with small problems of a kind."""

    kind: Kind
    points: tuple[Point, ...]
    typical: Typical

    def in_memory(self, size: Size, repeats: float) -> Costs:
        """Return what a problem costs, whose steps are repeated so often, in memory."""
        return self._costs(size, repeats, [point.in_memory for point in self.points])

    def in_file(self, size: Size, repeats: float) -> Costs:
        """Return what it costs in a file."""
        return self._costs(size, repeats, [point.in_file for point in self.points])

    def _costs(self, size: Size, repeats: float, found: list[Costs]) -> Costs:
        fit, replay = (self._extended(size, [getattr(one, name) for one in found], 0) for name in ("fit", "replay"))
        kept = self._extended(size, [one.kept for one in found], 1, repeats)
        return Costs(fit + (repeats - 1.0) * replay, kept, repeats * replay)

    def _extended(self, size: Size, seconds: list[float], step: int, repeats: float = 1.0) -> float:
        """Return what was measured, extended to a size; ``step`` says whether all records cost, or those of a step."""
        columns = [_terms(point.size, self.kind, step) for point in self.points]
        target = _terms(size, self.kind, step)
        weights = 1.0 / np.maximum(seconds, 1e-9)
        found, _ = nnls(np.array(columns) / target * weights[:, None], np.ones(len(seconds)))
        constant, rest = found[0], repeats * float(found[1:].sum())
        if isinstance(self.kind.plan, RidgePlan):  # solving takes the cube of the columns, products the square
            return float(constant * self.kind.wider**3 + rest * self.kind.wider**2)
        return float(constant + rest * self.kind.wider)


def _terms(size: Size, kind: Kind, of_a_step: int) -> Array:
    """Return what time grows with: a constant, records and steps."""
    if kind.everyone:
        return np.array([1.0] if of_a_step else [1.0, size.records])
    return np.array([1.0, size.batch if of_a_step else size.records, size.steps])


def calibrate(kind: Kind, seconds: float, folder: Path, bits: int, watch: Callable[[int], None]) -> Calibration:
    """Measure small problems for about so many seconds: more steps, and more records, as long as there is time."""
    begin = time.perf_counter()
    rng = np.random.default_rng(0)
    trials = _Trials(kind, seconds / 32.0, folder, bits, rng)
    wanted, most = kind.wanted, kind.most_steps
    steps = most if kind.everyone else min(most, FEW_STEPS)
    batch = min(wanted.batch, FEW_RECORDS)
    smallest = Size(max(_least(kind), 1, min(wanted.records, 16 * FEW_RECORDS if kind.everyone else steps * batch)), steps)
    trials.run(smallest)  # the first of all takes longer
    points = [trials.run(smallest)]
    if not kind.everyone:
        for point in _grown(trials, points[0], 0.35 * seconds, _longer(kind)):
            points.append(point)
            watch(len(points))
    left = begin + seconds - time.perf_counter()
    for point in _grown(trials, points[0], left, _larger(kind)):
        points.append(point)
        watch(len(points))
    return Calibration(kind, tuple(points), trials.look())


def _least(kind: Kind) -> int:
    return int(getattr(kind.plan, "clusters", 1))


Grow = Callable[[Size, float], Size]


def _longer(kind: Kind) -> Grow:
    """Return how a problem gets more steps."""

    def grow(size: Size, times: float) -> Size:
        steps = min(kind.most_steps, math.ceil(size.steps * times))
        return Size(min(kind.wanted.records, steps * size.batch), steps)

    return grow


def _larger(kind: Kind) -> Grow:
    """Return how a problem gets more records: first in a step, then in more of them."""
    most = max(LARGEST // kind.columns, 16)

    def grow(size: Size, times: float) -> Size:
        records = min(kind.wanted.records, most, math.ceil(size.records * times))
        if kind.everyone:
            return Size(records, size.steps)
        batch = min(kind.wanted.batch, math.ceil(records / size.steps))
        return Size(records, max(1, min(kind.most_steps, records // batch)))

    return grow


def _grown(trials: _Trials, point: Point, seconds: float, grow: Grow) -> Iterator[Point]:
    """Measure ever larger problems, at least one, as long as there is time."""
    begin = time.perf_counter()
    times = 4.0
    while (size := grow(point.size, times)) != point.size:
        point = trials.run(size)
        yield point
        left = begin + seconds - time.perf_counter()
        times = min(64.0, 0.5 * left / point.seconds)
        if times < 1.5:
            return


class _Trials:
    """Fits small problems, in memory and in a file, and deletes records from them."""

    def __init__(self, kind: Kind, seconds: float, folder: Path, bits: int, rng: np.random.Generator) -> None:
        self._kind = kind
        self._seconds = seconds
        self._folder = folder
        self._short = bits == 32
        self._rng = rng
        self._last: tuple[Any, Ints] | None = None

    def run(self, size: Size) -> Point:
        """Measure a problem."""
        begin = time.perf_counter()
        columns = self._kind.draw(size.records, self._rng)
        victims = self._rng.permutation(size.records)[: max(1, size.records // 2)]
        model = self._kind.model_for(size)
        fit = _seconds(lambda: model.fit(*columns))
        kept, replay, spent = self._deletions(model, victims, fit)
        in_memory = Costs(fit, kept, replay)
        self._last = model, victims
        path = self._folder / "calibration.expunge"
        rows = columns[0].astype(np.float32) if self._short else columns[0]
        block = (rows, *columns[1:]) if len(columns) > 1 else (rows, None)
        opened: list[Any] = []
        fit = _seconds(lambda: opened.append(ingest(self._kind.model_for(size), [block], path, progress=False)))
        with opened[0] as stored:
            kept, replay, more = self._deletions(stored, victims, fit)
        for file in self._folder.iterdir():
            file.unlink()
        seconds = time.perf_counter() - begin - spent - more
        return Point(size, in_memory, Costs(fit, kept, replay), seconds)

    def look(self) -> Typical:
        """Look at records of the last problem: how likely deleting each is to replay, and where they lie."""
        assert self._last is not None
        model, victims = self._last
        ids = np.intersect1d(model.ids_, victims)[:LOOKED_AT]
        if not len(ids):
            return Typical(np.ones(1), np.ones(1))
        chances = np.minimum(model.replay_probability(ids), RHO)
        moves = ndtri((1.0 + chances) / 2.0) / ndtri((1.0 + RHO) / 2.0)
        return Typical(moves, 1.0 - model._records.locate(ids).places / model._keeper.transcript.steps)

    def _deletions(self, model: Any, victims: AnyArray, fit: float) -> tuple[float, float, float]:
        """Delete records one by one; return seconds of one kept, of a replay of all steps, and of all of them."""
        begin = time.perf_counter()
        kept: list[float] = []
        replayed: list[tuple[float, float]] = []
        for number, victim in enumerate(victims[: TRIES + 1]):
            began = time.perf_counter()
            outcome = model.unlearn(victim)
            took = time.perf_counter() - began
            if number == 0 and len(victims) > 1:
                continue  # it makes ready what all others need
            if outcome.kept:
                kept.append(took)
            else:
                replayed.append((took, 1.0 - outcome.replayed_from / model._keeper.transcript.steps))
            both = bool(kept and replayed) or number >= 6
            if both and time.perf_counter() - begin > self._seconds:
                break
        taken = [took for took, _ in replayed]
        usual = float(np.median(kept)) if kept else min(taken, default=fit)
        whole = sum(share for _, share in replayed)
        replay = max(sum(taken) - len(taken) * usual, 0.0) / whole if replayed and kept else fit
        return usual, replay, time.perf_counter() - begin


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
