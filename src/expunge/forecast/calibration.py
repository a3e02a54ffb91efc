"""How long things take on this machine: small problems of the same kind are fitted, and records deleted from them.

What a fit, a kept deletion and the replay of all steps take is then taken for a constant, a part for each record (of
a kept deletion: for each record of a step) and a part for each step. These parts are fitted to what was measured.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.special import ndtri

from expunge.engine import Outcome
from expunge.estimators import ingest
from expunge.forecast.problems import Kind, Size
from expunge.least_squares import RidgePlan
from expunge.types import AnyArray, Array, Ints

FEW_STEPS, FEW_RECORDS = 16, 8
"""The smallest problem: so many steps, with so many records each."""
LARGEST = 2**23
"""No small problem has more numbers in its table than this."""
TRIES, FEWEST_TRIES = 24, 6
"""From each small problem so many records are deleted, if there is time, and so many if there is not."""
LOOKED_AT = 96
"""Of so many records it is asked how likely deleting them is to replay."""
WRITTEN = 2**21
"""So many bytes are written to see how long it takes."""


class Costs(NamedTuple):
    """Seconds of a fit, of a deletion that is kept, and of a replay of all steps; NaN if there was none."""

    fit: float
    kept: float
    replay: float


@dataclass(frozen=True)
class Point:
    """What was measured with a small problem."""

    size: Size
    in_memory: Costs
    in_file: Costs
    """Deletions without what it takes to write and sync them."""
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
    syncing: float
    """Seconds that a request to a file waits for the disk, and for what else does not depend on the problem."""
    writing: float
    """Seconds to write a byte."""

    def in_memory(self, size: Size, repeats: float, kept_bytes: int) -> Costs:
        """Return what a problem costs in memory; its steps are repeated so often, and leave so many bytes."""
        return self._costs(size, repeats, [point.in_memory for point in self.points])

    def in_file(self, size: Size, repeats: float, kept_bytes: int) -> Costs:
        """Return what it costs in a file, where rows that are replayed are written twice: into a log, and from it."""
        fit, kept, replay = self._costs(size, repeats, [point.in_file for point in self.points])
        return Costs(fit, kept + self.syncing, replay + 2.0 * self.writing * kept_bytes)

    def _costs(self, size: Size, repeats: float, found: list[Costs]) -> Costs:
        fits, kept, replays = (np.array(one) for one in zip(*found, strict=True))
        replays = fits if np.isnan(replays).all() else replays  # as if all were replays
        once = Size(size.records, self.kind.rounds) if self.kind.everyone else size
        replay = self._extended(once, replays, of_a_step=False)
        fit = self._extended(once, fits, of_a_step=False) + (repeats - 1.0) * replay
        more = 1.0 if self.kind.everyone else repeats
        return Costs(fit, self._extended(size, kept, of_a_step=True, repeats=more), repeats * replay)

    def _extended(self, size: Size, seconds: Array, *, of_a_step: bool, repeats: float = 1.0) -> float:
        """Return what was measured, extended to a size; all records cost, or, with ``of_a_step``, those of a step."""
        there = ~np.isnan(seconds)
        if not there.any():
            return 0.0
        columns = np.array([_terms(point.size, self.kind, of_a_step) for point in self.points])[there]
        weights = 1.0 / np.maximum(seconds[there], 1e-9)
        found, _ = nnls(columns / _terms(size, self.kind, of_a_step) * weights[:, None], np.ones(len(weights)))
        constant, rest = float(found[0]), repeats * float(found[1:].sum())
        wider = self.kind.wider
        if isinstance(self.kind.plan, RidgePlan):  # solving takes the cube of the columns, products the square
            return constant * wider**3 + rest * wider**2
        return constant + rest * wider


def _terms(size: Size, kind: Kind, of_a_step: bool) -> Array:
    """Return what time grows with: a constant, records and steps."""
    if kind.everyone and of_a_step:
        return np.array([1.0, size.steps])  # the records that stay are not looked at
    return np.array([1.0, size.batch if of_a_step else size.records, size.steps])


def calibrate(kind: Kind, seconds: float, folder: Path, bits: int, watch: Callable[[int], None]) -> Calibration:
    """Measure small problems for about so many seconds: more steps, and more records, as long as there is time."""
    begin = time.perf_counter()
    trials = _Trials(kind, seconds / 32.0, folder, bits)
    smallest = _smallest(kind)
    trials.run(smallest)  # the first of all takes longer
    points = [trials.run(smallest)]
    for share, grow in ((0.35, _longer(kind)), (1.0, _larger(kind))):
        left = share * (begin + seconds - time.perf_counter())
        for point in _grown(trials, points[0], left, grow):
            points.append(point)
            watch(len(points))
    return Calibration(kind, tuple(points), trials.look(), float(np.median(trials.waits)), _writing(folder))


def _smallest(kind: Kind) -> Size:
    """Return the size of the smallest problem."""
    wanted = kind.wanted
    steps = kind.rounds if kind.everyone else min(kind.most_steps, FEW_STEPS)
    records = FEW_STEPS * FEW_RECORDS if kind.everyone else steps * min(wanted.batch, FEW_RECORDS)
    return Size(min(wanted.records, max(records, getattr(kind.plan, "clusters", 1))), steps)


Grow = Callable[[Size, float], Size]


def _longer(kind: Kind) -> Grow:
    """Return how a problem gets more steps."""

    def grow(size: Size, times: float) -> Size:
        steps = min(kind.most_steps, math.ceil(size.steps * times))
        return Size(size.records if kind.everyone else min(kind.wanted.records, steps * size.batch), steps)

    return grow


def _larger(kind: Kind) -> Grow:
    """Return how a problem gets more records: first in a step, then in more of them."""
    most = max(LARGEST // kind.columns, FEW_STEPS)

    def grow(size: Size, times: float) -> Size:
        records = min(kind.wanted.records, max(size.records, min(most, math.ceil(size.records * times))))
        if kind.everyone:
            return Size(records, size.steps)
        batch = min(kind.wanted.batch, math.ceil(records / size.steps))
        return Size(records, max(1, min(kind.most_steps, records // batch)))

    return grow


def _grown(trials: _Trials, smallest: Point, seconds: float, grow: Grow) -> Iterator[Point]:
    """Measure ever larger problems, at least one, as long as there is time."""
    begin = time.perf_counter()
    point, times = smallest, 4.0
    while (size := grow(point.size, times)) != point.size:
        point = trials.run(size)
        yield point
        left = begin + seconds - time.perf_counter() - smallest.seconds
        replays = FEWEST_TRIES * float(np.nansum([point.in_memory.replay, point.in_file.replay])) / 2.0
        times = 0.6 * left / (max(point.seconds - smallest.seconds, smallest.seconds / 8.0) + replays)
        if times < 1.5:
            return


class _Trials:
    """Fits small problems, in memory and in a file, and deletes records from them."""

    def __init__(self, kind: Kind, seconds: float, folder: Path, bits: int) -> None:
        self._kind = kind
        self._seconds = seconds
        self._path = folder / "calibration.expunge"
        self._short = bits == 32
        self._rng = np.random.default_rng(0)
        self._last: tuple[Any, Ints] | None = None
        self.waits: list[float] = []
        """How long requests to files took beside their work."""

    def run(self, size: Size) -> Point:
        """Measure a problem."""
        begin = time.perf_counter()
        columns = self._kind.draw(size.records, self._rng)
        victims = self._rng.permutation(size.records)[: max(1, size.records // 2)]
        model = self._kind.model_for(size)
        fit = self._best(lambda: model.fit(*columns))
        deleting = time.perf_counter()
        found = self._deletions(model, victims, lambda took, outcome: took)
        deleted = time.perf_counter() - deleting
        self._last = model, victims
        in_memory = Costs(fit, *found)
        rows = columns[0].astype(np.float32) if self._short else columns[0]
        block = (rows, columns[1] if len(columns) > 1 else None)
        began = time.perf_counter()
        stored = ingest(self._kind.model_for(size), [block], self._path, progress=False)
        fit = time.perf_counter() - began
        with stored:
            found = self._deletions(stored, victims, self._without_waits)
        deleted += time.perf_counter() - began - fit
        for file in self._path.parent.iterdir():
            file.unlink()
        return Point(size, in_memory, Costs(fit, *found), time.perf_counter() - begin - deleted)

    def _best(self, work: Callable[[], Any]) -> float:
        """Return how long some work takes, if nothing else is going on: it is done at least twice."""
        best, begin = math.inf, time.perf_counter()
        for number in range(4):
            began = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - began)
            if number and time.perf_counter() - begin > self._seconds / 4.0:
                break
        return best

    def _without_waits(self, took: float, outcome: Outcome) -> float:
        if outcome.kept:
            self.waits.append(took - outcome.seconds)
        return outcome.seconds

    def _deletions(self, model: Any, victims: AnyArray, cost: Callable[[float, Outcome], float]) -> tuple[float, float]:
        """Delete records one by one; return seconds of one that is kept, and of a replay of all steps."""
        begin = time.perf_counter()
        kept: list[float] = []
        replayed: list[tuple[float, float]] = []
        model.unlearn(victims[0])  # it makes ready what all others need
        for number, victim in enumerate(victims[1 : TRIES + 1], start=1):
            began = time.perf_counter()
            outcome = model.unlearn(victim)
            took = cost(time.perf_counter() - began, outcome)
            if outcome.replayed_from is None:
                kept.append(took)
            else:
                replayed.append((took, 1.0 - outcome.replayed_from / model._keeper.transcript.steps))
            if time.perf_counter() - begin > self._seconds and (number >= FEWEST_TRIES or (kept and replayed)):
                break
        usual = float(np.median(kept)) if kept else math.nan
        if not replayed:
            return usual, math.nan
        long = [one for one in replayed if one[1] > 0.2] or replayed
        return usual, float(np.median([max(took - (usual if kept else 0.0), 0.0) / share for took, share in long]))

    def look(self) -> Typical:
        """Look at records of the last problem: how likely deleting each is to replay, and where they lie."""
        assert self._last is not None
        model, victims = self._last
        ids = np.intersect1d(model.ids_, victims)[:LOOKED_AT]
        if not len(ids):
            return Typical(np.ones(1), np.ones(1))
        chances = np.minimum(model.replay_probability(ids), self._kind.rho)
        moves = ndtri((1.0 + chances) / 2.0) / ndtri((1.0 + self._kind.rho) / 2.0)
        return Typical(moves, 1.0 - model._records.locate(ids).places / model._keeper.transcript.steps)


def _writing(folder: Path) -> float:
    """Return how long it takes to write a byte to a file of some size, so that it is there to stay."""
    with open(folder / "written", "wb", buffering=0) as file:
        began = time.perf_counter()
        file.write(bytes(WRITTEN))
        os.fsync(file.fileno())
        return (time.perf_counter() - began) / WRITTEN
