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

from expunge.audit.forecast.problems import Kind
from expunge.base.types import AnyArray, Array, Ints
from expunge.models.ingest import ingest
from expunge.solvers.plans.protocol import Size

FEW_STEPS, FEW_RECORDS = 16, 8
"""The smallest problem: its steps, and the records of each."""
LARGEST = 2**23
"""No small problem has more numbers in its table than this."""
TELLING = 2**15
"""The least size of a problem, in numbers of its table, so that it differs measurably from the smallest."""
TRIES, FEWEST_TRIES = 20, 4
"""How many records are deleted from each small problem if there is time, and from files if there is not."""
LOOKED_AT = 64
"""For how many records the probability of a replay is computed."""
WRITTEN = 2**21
"""So many bytes are written to see how long it takes."""
CLOCK = time.thread_time if time.get_clock_info("thread_time").resolution < 1e-5 else time.perf_counter
"""Work is measured by the time that the processor spends on it, so that other programs do not count."""


class Costs(NamedTuple):
    """Seconds of a fit, of a deletion that is kept, and of a replay of all steps; NaN if there was none."""

    fit: float
    kept: float
    replay: float


@dataclass(frozen=True)
class Point:
    """What was measured with a small problem, without waiting for the disk."""

    size: Size
    costs: Costs
    seconds: float
    """How long it took in all, apart from deletions, whose number depends on the time there is."""


class Typical(NamedTuple):
    """Records that were evaluated."""

    moves: Array
    """How far each moves the sums, as a share of the most that any may."""
    replayed: Array
    """Which share of the steps of all its epochs a replay takes again."""


@dataclass(frozen=True)
class Calibration:
    """What was measured with small problems of a kind."""

    kind: Kind
    memory: tuple[Point, ...]
    file: tuple[Point, ...]
    typical: Typical
    syncing: float
    """Seconds that a request to a file waits for the disk."""
    writing: float
    """Seconds to write a byte."""

    def in_memory(self, size: Size, repeats: float) -> Costs:
        """Return what a problem costs in memory whose steps are repeated so often."""
        return self._costs(size, repeats, self.memory)

    def in_file(self, size: Size, repeats: float, kept_bytes: int, all_bytes: int) -> Costs:
        """Return what it costs in a file of a size.

        Whatever is written is written twice: records to wait until they are laid out, replayed steps into a log.
        """
        least = self.in_memory(size, repeats)
        fit, kept, replay = map(max, self._costs(size, repeats, self.file), least)
        writing = 2.0 * self.writing
        return Costs(fit + self.syncing + writing * all_bytes, kept + self.syncing, replay + writing * kept_bytes)

    def _costs(self, size: Size, repeats: float, points: tuple[Point, ...]) -> Costs:
        fits, kept, replays = (np.array(one) for one in zip(*(point.costs for point in points), strict=True))
        shares = replays / fits
        usual = 1.0 if np.isnan(shares).all() else float(np.nanmedian(shares))
        replays = np.where(np.isnan(replays), usual * fits, replays)
        sizes = [point.size for point in points]
        once = Size(size.records, self.kind.rounds) if self.kind.everyone else size
        replay = self._extended(once, sizes, replays, of_a_step=False)
        fit = self._extended(once, sizes, fits, of_a_step=False) + (repeats - 1.0) * replay
        more = 1.0 if self.kind.everyone else repeats
        return Costs(fit, self._extended(size, sizes, kept, of_a_step=True, repeats=more), repeats * replay)

    def _extended(
        self, size: Size, sizes: list[Size], seconds: Array, *, of_a_step: bool, repeats: float = 1.0
    ) -> float:
        """Return what was measured, extended to a size; all records cost, or, with ``of_a_step``, those of a step."""
        there = ~np.isnan(seconds)
        if not there.any():
            return 0.0
        columns = np.array([_terms(one, self.kind, of_a_step) for one in sizes])[there]
        weights = 1.0 / np.maximum(seconds[there], 1e-9)
        found, _ = nnls(columns / _terms(size, self.kind, of_a_step) * weights[:, None], np.ones(len(weights)))
        constant, rest = float(found[0]), repeats * float(found[1:].sum())
        wider = self.kind.wider
        if self.kind.plan.keeps_products:  # they grow like the square of the columns, solving faster
            return constant * wider**2.5 + rest * wider**2
        return constant + rest * wider


def _terms(size: Size, kind: Kind, of_a_step: bool) -> Array:
    """Return what time grows with: a constant, records and steps."""
    if kind.everyone and of_a_step:
        return np.array([1.0, size.steps])  # the records that stay are not looked at
    return np.array([1.0, size.batch if of_a_step else size.records, size.steps])


def calibrate(kind: Kind, seconds: float, folder: Path, bits: int, watch: Callable[[int], None]) -> Calibration:
    """Measure small problems for about this many seconds: more steps, and more records, as long as there is time."""
    end = time.perf_counter() + seconds
    trials = _Trials(kind, seconds, folder, bits)
    trials.in_memory(_smallest(kind))  # the first of all takes longer
    found: list[list[Point]] = []
    done = 0
    least = max(16.0 if seconds >= 0.5 else 4.0, TELLING / (_smallest(kind).records * kind.columns * kind.outputs))
    for run, share in ((trials.in_memory, 0.5), (trials.in_file, 1.0)):
        finish = time.perf_counter() + share * (end - time.perf_counter())
        points = [run(_smallest(kind))]
        found.append(points)
        for part, grow in ((0.7, _larger(kind)), (1.0, _longer(kind))):
            left = part * (finish - time.perf_counter())
            if left <= 0.0 and len(points) > 1 and kind.everyone:
                break  # more rounds make less of a difference than more steps
            for point in _grown(run, points[0], left, grow, least=least):
                points.append(point)
                watch(done := done + 1)
    memory, file = map(tuple, found)
    return Calibration(kind, memory, file, trials.look(), float(np.median(trials.waits or [0.0])), _writing(folder))


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


def _grown(
    run: Callable[[Size], Point], smallest: Point, seconds: float, grow: Grow, *, least: float
) -> Iterator[Point]:
    """Measure ever larger problems as long as there is time, at least one, ``least`` times as large."""
    end = time.perf_counter() + seconds
    point, times = smallest, max(least, _affordable(smallest, smallest, seconds))
    while times >= 1.5 and (size := grow(point.size, min(times, max(least, 32.0)))) != point.size:
        point = run(size)
        yield point
        times = _affordable(point, smallest, end - time.perf_counter())


def _affordable(point: Point, smallest: Point, seconds: float) -> float:
    """Return how many times as large a problem can be measured in this many seconds."""
    replay = 0.0 if math.isnan(point.costs.replay) else point.costs.replay
    grows = max(point.seconds - smallest.seconds, smallest.seconds / 8.0) + FEWEST_TRIES / 2.0 * replay
    return 0.6 * (seconds - smallest.seconds) / grows


class _Trials:
    """Fits small problems, in memory and in a file, and deletes records from them."""

    def __init__(self, kind: Kind, seconds: float, folder: Path, bits: int) -> None:
        self._kind = kind
        self._seconds = seconds / 40.0  # for deletions from one problem
        self._late = time.perf_counter() + 1.2 * seconds
        self._path = folder / "calibration.expunge"
        self._short = bits == 32
        self._rng = np.random.default_rng(0)
        self._largest: tuple[Any, Ints] | None = None
        self.waits: list[float] = []
        """How long requests to files waited for the disk."""

    def _drawn(self, size: Size) -> tuple[tuple[AnyArray, ...], Ints]:
        """Draw records, and which of them will be deleted."""
        columns = self._kind.draw(size.records, self._rng)
        return columns, self._rng.permutation(size.records)[: max(1, size.records // 2)]

    def in_memory(self, size: Size) -> Point:
        """Measure a problem in memory."""
        begin = time.perf_counter()
        columns, victims = self._drawn(size)
        model = self._kind.model_for(size)
        fit = self._best(lambda: model.fit(*columns))
        seconds = time.perf_counter() - begin
        found = Point(size, Costs(fit, *self._deletions(model, victims)), seconds)
        if self._largest is None or model.n_records_ > self._largest[0].n_records_:
            self._largest = model, victims
        return found

    def in_file(self, size: Size) -> Point:
        """Measure a problem in a file."""
        begin = time.perf_counter()
        columns, victims = self._drawn(size)
        rows = columns[0].astype(np.float32) if self._short else columns[0]
        block = (rows, columns[1] if len(columns) > 1 else None)
        began = CLOCK()
        stored = ingest(self._kind.model_for(size), [block], self._path, progress=False)
        fit = CLOCK() - began
        seconds = time.perf_counter() - begin
        with stored:
            costs = Costs(fit, *self._deletions(stored, victims, self.waits))
        for file in self._path.parent.iterdir():
            file.unlink()
        return Point(size, costs, seconds)

    def _best(self, work: Callable[[], Any]) -> float:
        """Return how long some work takes, at best; what is short is done several times."""
        best, begin = math.inf, time.perf_counter()
        for _ in range(3):
            began = CLOCK()
            work()
            best = min(best, CLOCK() - began)
            if time.perf_counter() - begin > self._seconds / 4.0:
                break
        return best

    def _deletions(self, model: Any, victims: AnyArray, waits: list[float] | None = None) -> tuple[float, float]:
        """Delete records one by one; return seconds of one that is kept, and of a replay of all steps."""
        begin = time.perf_counter()
        kept: list[float] = []
        replayed: list[tuple[float, float]] = []
        model.unlearn(victims[0])  # it makes ready what all others need
        for number, victim in enumerate(victims[1 : TRIES + 1], start=1):
            waited, began = time.perf_counter(), CLOCK()
            outcome = model.unlearn(victim)
            took = CLOCK() - began
            if outcome.replayed_from is None:
                kept.append(took)
                if waits is not None:
                    waits.append(max(time.perf_counter() - waited - took, 0.0))
            else:
                replayed.append((took, 1.0 - outcome.replayed_from / model._owner.transcript.steps))
            now = time.perf_counter()
            enough = number >= FEWEST_TRIES and (waits is not None or now > self._late)
            if now - begin > self._seconds and (enough or (kept and replayed)):
                break
        usual = float(np.median(kept)) if kept else math.nan
        if not replayed:
            return usual, math.nan
        long = [one for one in replayed if one[1] > 0.2] or replayed
        return usual, float(np.median([max(took - (usual if kept else 0.0), 0.0) / share for took, share in long]))

    def look(self) -> Typical:
        """Return, for records of the largest problem, how likely deleting each is to replay, and their places."""
        assert self._largest is not None
        model, victims = self._largest
        ids = np.intersect1d(model.ids_, victims)[:LOOKED_AT]
        if not len(ids):
            return Typical(np.ones(1), np.ones(1))
        chances = np.minimum(model.replay_probability(ids), self._kind.rho)
        moves = ndtri((1.0 + chances) / 2.0) / ndtri((1.0 + self._kind.rho) / 2.0)
        return Typical(moves, 1.0 - model._records.locate(ids).places / model._owner.transcript.steps)


def _writing(folder: Path) -> float:
    """Return how long it takes to write a byte to a file of some size, so that it is there to stay."""
    with open(folder / "written", "wb", buffering=0) as file:
        began = time.perf_counter()
        file.write(bytes(WRITTEN))
        os.fsync(file.fileno())
        return (time.perf_counter() - began) / WRITTEN
