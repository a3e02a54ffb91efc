"""Learning: the forward pass over the steps, and what it starts from."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from expunge.base.errors import BadContribution, BadPlan, ClippedWarning, warn_caller
from expunge.base.types import Array
from expunge.engine.contributions import Records
from expunge.engine.couplings.common import Sums
from expunge.engine.drawing import draw_steps
from expunge.engine.forward import Staged, forward
from expunge.engine.learner import Learner, Transcript
from expunge.engine.mechanisms.noise import GivenNoise, NoiseSource, NoNoise, draw_noise
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import Randomness
from expunge.engine.sampling import fit_structure
from expunge.engine.transcript import ArrayRows, Path, Rows


def learn_with_outcome(
    learner: Learner,
    records: Records,
    rng: np.random.Generator | Randomness,
    *,
    arranged: bool = False,
    rows: Callable[[Array], Rows] = ArrayRows,
    watch: Callable[[int], None] | None = None,
) -> tuple[Transcript, Outcome]:
    """Learn, and also say how many evaluations it took; see `learn`."""
    began, randomness = time.perf_counter(), Randomness.of(rng)
    sums = Sums(records, learner)
    if arranged:
        transcript = _take_all_steps(learner, records, sums, randomness, rows, watch)
    else:
        records.admit(learner.abilities)
        records.arrange(learner.schedule, randomness.layout)
        try:
            records.prepare(learner.abilities)
            transcript = _take_all_steps(learner, records, sums, randomness, rows, watch)
        except BaseException:
            records.drop_layout()
            raise
        records.keep_layout()
    seconds = time.perf_counter() - began
    return transcript, Outcome(0, records.count, 0, sums.evaluations, sums.above, seconds, 1.0)


def _take_all_steps(
    learner: Learner, records: Records, sums: Sums, randomness: Randomness, rows: Callable[[Array], Rows],
    watch: Callable[[int], None] | None,
) -> Transcript:  # fmt: skip
    if records.count > learner.most_records:
        raise BadPlan(learner.why_too_many(records.count))
    steps, size = learner.schedule.steps(records.count), learner.query.size
    start = np.asarray(learner.rule.start, dtype=float)
    if learner.laws is not None:
        drawn = draw_steps(learner.laws, sums, Path(start, None, 0), steps, np.zeros((0, size)), randomness, watch)
        iterates = rows(drawn.iterates)
        return Transcript(rows(drawn.sums), iterates, iterates, start, records)
    if learner.structure is not None:
        found = fit_structure(learner.structure, records, watch)
        sums.evaluations = records.count
        iterates = rows(found.iterates)
        return Transcript(rows(found.sums), iterates, iterates, start, records)
    noise: NoiseSource = NoNoise()
    if learner.sigma > 0.0:
        given = draw_noise(learner.mechanism, steps, size, learner.sigma, learner.grid.unit, randomness.noise)
        noise = GivenNoise(given)
    staged = forward(learner, sums, Path(start, None, 0), steps, np.zeros(size), noise, watch)
    check_reach(learner, staged)
    _warn_above_bound(learner, sums)
    kept = rows(staged.sums)
    answers = kept if learner.silent else rows(staged.answers)
    return Transcript(kept, answers, rows(staged.iterates), start, records)


def learn(
    learner: Learner,
    records: Records,
    rng: np.random.Generator | Randomness,
    *,
    arranged: bool = False,
    rows: Callable[[Array], Rows] = ArrayRows,
    watch: Callable[[int], None] | None = None,
) -> Transcript:
    """Lay the records out by a draw of the schedule and take all steps.

    ``arranged`` says that the records lie by such a draw already. ``rows`` makes the tables of the transcript.
    ``watch`` is called with the number of steps taken so far, for a progress bar.
    """
    return learn_with_outcome(learner, records, rng, arranged=arranged, rows=rows, watch=watch)[0]


def check_reach(learner: Learner, staged: Staged) -> None:
    """Refuse sums that the grid cannot hold: contributions were far above their bound."""
    if learner.sigma == 0.0:
        return
    largest = max(float(np.abs(table).max(initial=0.0)) for table in (staged.sums, staged.answers))
    if largest >= 2.0 * learner.capacity:
        raise BadContribution(
            f"contributions are so far above query.bound={learner.query.bound:g} that sums are too large compared with "
            "the noise. Declare a larger bound, and use the noise that it needs."
        )


def _warn_above_bound(learner: Learner, sums: Sums) -> None:
    if learner.participation.clip and sums.above:
        warn_caller(
            f"{sums.above:,} contributions are above query.bound={learner.query.bound:g}. The adaptive coupling needs "
            "the bound, so they are scaled down to it. Declare a larger bound to let them count fully.",
            ClippedWarning,
        )
