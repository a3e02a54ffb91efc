"""How often deletions replay in the worst case: full contributions at the least favourable step (for `complexity`).

Every decision goes through the engine's own reconciliation, against the exact probability that the accounting gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from expunge import (
    BinaryTree,
    Delete,
    Everyone,
    GradientDescentRule,
    Identity,
    Learner,
    MemoryRecords,
    Scattered,
    SquareRoot,
    Transcript,
)
from expunge.base.types import Array, Batch, Ints
from expunge.engine.accounting import noise_for, worst_case_rho
from expunge.engine.changing import decide
from expunge.engine.mechanisms.noise import draw_noise
from expunge.engine.schedules import Assignment
from expunge.engine.transcript import ArrayRows
from expunge.engine.transcript import Path as Iterates


@dataclass(frozen=True)
class Full:
    """A query whose contributions are always at the bound, whatever the path."""

    size: int = 1
    bound: float = 1.0

    def contributions(self, step: int, path: Iterates, batch: Batch) -> Array:
        return np.asarray(batch[0])


@dataclass(frozen=True)
class AtPlaceZero(Scattered):
    """All records lie at the first place, whose column of C is the longest."""

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        lengths = np.zeros(self.places, dtype=np.int64)
        lengths[0] = count
        return Assignment(np.arange(count), lengths, None)


def number_of_replays(learner: Learner, trials: int, rng: np.random.Generator) -> int:
    """Draw transcripts of one record and count how many a deletion would replay."""
    records = MemoryRecords((np.ones((1, 1)),))
    records.arrange(learner.schedule, rng)
    steps = learner.schedule.steps(1)
    sums = np.zeros((steps, 1))
    visits = range(steps) if learner.schedule.touches_everyone else range(1)
    sums[list(visits)] = 1.0
    clean = np.cumsum(sums, axis=0) if learner.mechanism.prefix else sums
    iterates, kept_sums = ArrayRows(np.zeros((steps, 1))), ArrayRows(sums)
    count, at_once = 0, max(1, 2**20 // steps)
    for first in range(0, trials, at_once):
        number = min(at_once, trials - first)
        noise = draw_noise(learner.mechanism, steps, number, learner.sigma, learner.grid.unit, rng)
        for answers in np.ascontiguousarray((clean + noise).T)[:, :, None]:
            transcript = Transcript(kept_sums, ArrayRows(answers), iterates, np.zeros(1), records)
            count += decide(learner, records, transcript, Delete([0]), rng).first is not None
    return count


def measure_setting(setting: dict[str, Any], learner: Learner, trials: int, seed: int) -> dict[str, Any]:
    """Measure one setting, with the 99.9 % interval of Clopper and Pearson."""
    predicted = worst_case_rho(learner.sigma, learner.schedule, learner.mechanism, bound=1.0, coupling=learner.coupling)
    count = number_of_replays(learner, trials, np.random.default_rng(seed))
    interval = stats.binomtest(count, trials).proportion_ci(0.999)
    return {
        **setting, "coupling": learner.coupling, "mechanism": type(learner.mechanism).__name__,
        "predicted": predicted, "measured": count / trials, "low": interval.low, "high": interval.high,
        "within_error": bool(interval.low <= predicted <= interval.high), "trials": trials,
    }  # fmt: skip


STEPS = (16, 64, 256, 1024, 4096, 16384, 65536)
ROUNDS = (4, 16, 64, 256)
RHOS = (0.01, 0.03, 0.3, 0.5)


def settings(most_steps: int) -> list[tuple[dict[str, Any], Learner]]:
    """Return all settings of up to so many steps, each with its learner: ρ = 0.1, and at one length other ρ too."""
    found: list[tuple[dict[str, Any], Learner]] = []
    rule = GradientDescentRule(np.zeros(1), 0.0)
    for steps, rho in [*((steps, 0.1) for steps in STEPS), *((1024, rho) for rho in RHOS)]:
        if steps > most_steps:
            continue
        for mechanism in (BinaryTree(), SquareRoot()):
            sigma = noise_for(rho, Scattered(steps), mechanism, bound=1.0)
            setting = {"queries": "prefix sums", "steps": steps, "rho": rho, "paper": rho * math.log2(steps)}
            for coupling in ("joint", "sequential"):
                if coupling == "joint" or mechanism.row_by_row:
                    found.append((setting, Learner(AtPlaceZero(steps), Full(), rule, mechanism, sigma, coupling)))
    for rounds, rho in [*((rounds, 0.1) for rounds in ROUNDS), *((64, rho) for rho in RHOS)]:
        if rounds > most_steps:
            continue
        sigma = noise_for(rho, Everyone(rounds), Identity(), bound=1.0, coupling="adaptive")
        setting = {"queries": "linear", "steps": rounds, "rho": rho, "paper": rho * math.sqrt(rounds)}
        for coupling in ("joint", "sequential", "adaptive"):
            found.append((setting, Learner(Everyone(rounds), Full(), rule, Identity(), sigma, coupling)))
    return found
