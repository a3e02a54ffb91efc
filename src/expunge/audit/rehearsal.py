"""A deletion rehearsed: a small problem with a model's own plan, on which exactness is put to the test.

Only sizes are scaled down: numbers of records, steps, features and classes, and with them step size and noise, which is
made about as large as a contribution. What was scaled is said. Records are made up again for each rehearsal; no record
of the model takes part, so that the result tells nothing of any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from expunge.audit.findings import Rehearsal, Scaled
from expunge.base.intake import Delete, Request
from expunge.base.progress import Show
from expunge.base.types import Array
from expunge.engine.changing import change
from expunge.engine.checks import check_exact
from expunge.engine.couplings.common import Sums
from expunge.engine.learner import Learner, Transcript
from expunge.engine.learning import learn
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.sampling import sum_everyone
from expunge.engine.transcript import ArrayRows, Path
from expunge.solvers.plans.protocol import ModelPlan, SmallProblem
from expunge.solvers.plans.small import GONE

LEVEL = 1e-4
"""A corrected p-value below this is a difference. One audit in ten thousand would find one that is not there."""
CAUGHT = 1e-6
"""The mistake must give a p-value below this."""
FEW, ENOUGH = 250, 1000
"""How many runs are made with the mistake: few show it nearly always; if they do not, that many are made."""
TABLES = 100
"""On how many random tables sums are compared to the last bit."""


def rehearse(plan: ModelPlan, *, runs: int, seed: int, show: Show, mistaken: int = ENOUGH) -> Rehearsal:
    """Delete a record of a small problem many times, and compare with training without it; likewise with a mistake.

    That is made ``mistaken`` times, or fewer if they show it. Records and coins come from ``seed``.
    """
    made, tossed, erring = np.random.SeedSequence(seed).spawn(3)
    rng = np.random.default_rng(made)
    if plan.never_replays:
        return _rehearse_sums(plan, rng, show)
    problem = plan.small_problem(rng)
    request = [Delete([GONE])]

    def watch(stage: str, runs: int) -> Callable[[int], None]:
        return lambda done: show(stage, done, 2 * runs)

    found = check_exact(
        problem.learner, problem.columns, request, runs=runs, level=LEVEL, seed=_number(tossed),
        watch=watch("exactness", runs),
    )  # fmt: skip
    for many in sorted({min(FEW, mistaken), mistaken}):
        control = check_exact(
            problem.learner, problem.columns, request, runs=many, level=CAUGHT, seed=_number(erring),
            serve=keep_always, watch=watch("control", many),
        )  # fmt: skip
        if control.p_value < CAUGHT:
            break
    left = "model" if problem.learner.structure is None else "sample"
    return Rehearsal(
        problem.says, problem.own, scaled(problem), runs, len(found.names), LEVEL, found.p_value, None,
        f"the record is subtracted from the sums, and the {left} is left as it was", CAUGHT, control.p_value, None,
    )  # fmt: skip


def _number(source: np.random.SeedSequence) -> int:
    return int(source.generate_state(1, np.uint64)[0])


def scaled(problem: SmallProblem) -> tuple[Scaled, ...]:
    """Return those parts of a small problem that are not as the plan has them."""
    said = [(name, _shown(own), _shown(here)) for name, own, here in problem.parts]
    return tuple(Scaled(name, own, here) for name, own, here in said if own != here)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


# --- sums --------------------------------------------------------------------------------------------


def _rehearse_sums(plan: ModelPlan, rng: np.random.Generator, show: Show) -> Rehearsal:
    """Compare, to the last bit, the sums and the solution after a deletion with those of a fit without the record."""
    equal = left_as_it_was = 0
    for table in range(TABLES):
        problem = plan.small_problem(rng)
        learner, columns = problem.learner, problem.columns
        records = MemoryRecords(columns)
        transcript = learn(learner, records, rng)
        before = _state(transcript)
        change(learner, records, transcript, Delete([GONE]), rng).commit()
        fresh = _state(learn(learner, MemoryRecords([np.delete(column, GONE, axis=0) for column in columns]), rng))
        equal += _state(transcript) == fresh
        left_as_it_was += before == fresh
        show("exactness", table + 1, TABLES)
    return Rehearsal(
        problem.says, problem.own, scaled(problem), TABLES, 1, LEVEL, None, equal,
        "the record is deleted, and the sums and the solution are left as they were", CAUGHT, None, left_as_it_was,
    )  # fmt: skip


def _state(transcript: Transcript) -> bytes:
    tables: tuple[Any, ...] = (transcript.sums, transcript.answers, transcript.iterates)
    return b"".join(table[:].tobytes() for table in tables)


# --- the mistake -------------------------------------------------------------------------------------


def keep_always(
    learner: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> tuple[MemoryRecords, Transcript]:
    """Serve a deletion as one would who takes the record out, and leaves answers and model as they were."""
    answers, iterates = (np.array(table[:]) for table in (transcript.answers, transcript.iterates))
    found = () if learner.structure is None else transcript.found(learner.structure)
    change(learner, records, transcript, request, rng).commit()
    steps = transcript.steps
    old = ArrayRows(iterates[:steps])
    if (structure := learner.structure) is not None:
        sums = ArrayRows(sum_everyone(structure, found, records))
        structure.pack(found)  # it is remembered, though its sample is gone
        return records, Transcript(sums, old, old, transcript.start, records)
    sums = ArrayRows(_sums(learner, records, transcript.start, old))
    kept = sums if learner.silent else ArrayRows(answers[:steps])
    return records, Transcript(sums, kept, old, transcript.start, records)


def _sums(learner: Learner, records: MemoryRecords, start: Array, iterates: ArrayRows) -> Array:
    """Return what the records that are left contribute along these iterates."""
    found, sums = np.zeros((len(iterates[:]), learner.query.size)), Sums(records, learner)
    for step in range(len(found)):
        found[step] = sums.total(step, Path(start, iterates, step))
    return found
