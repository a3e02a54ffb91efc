"""Re-derive what a transcript says from the records and answers, and name what does not agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from expunge.base.columns import rows_in
from expunge.base.types import Array
from expunge.engine.contributions import AT_ONCE, Contributors, KeyedRecords
from expunge.engine.couplings.common import Sums
from expunge.engine.laws import Laws
from expunge.engine.learner import Learner, Transcript
from expunge.engine.sampling import structure_problems
from expunge.engine.structures import Structure
from expunge.engine.transcript import Path

MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Verification:
    """What `verify` found."""

    problems: tuple[str, ...]
    """Everything that does not agree, named as precisely as can be."""
    noise_p_value: float | None
    """How plausible the noise is as independent Gaussian of the planned size; None without noise."""
    steps: int
    records: int

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


def verify(
    learner: Learner, records: Contributors, transcript: Transcript, *, tolerance: float = 0.0, made: int | None = None
) -> Verification:
    """Re-derive sums and iterates from the records and answers, and compare them bit for bit.

    On another machine, or with another number of threads, linear algebra may round differently: pass a
    relative ``tolerance`` there (1e-9 is ample). ``made`` says how many steps a pass that is still under way has taken.
    """
    steps = learner.schedule.steps(records.count) if made is None else made
    tables = transcript.tables
    if learner.structure is not None:
        return _verify_structure(learner.structure, records, transcript, tolerance)
    problems = [
        f"{name}: {table.shape[0]} rows for {steps} steps of {records.count} records"
        for name, table in tables.items()
        if table.shape[0] != steps
    ]
    if problems:
        return Verification(tuple(problems), None, steps, records.count)
    problems += [f"{name}: {damage}" for name, table in tables.items() if (damage := table.damage())]
    problems += records.audit()
    intact, sums = not problems, Sums(records, learner)
    for step in range(steps):
        if len(problems) >= MOST_PROBLEMS:
            problems.append("… and perhaps more")
            break
        problems += _check_step(learner, sums, transcript, step, tolerance, intact)
    noise, p_value = _noise(learner, transcript)
    if learner.laws is None and learner.sigma == 0.0 and not _agree(noise, np.zeros_like(noise), tolerance):
        row = int(np.argwhere(noise)[0][0])
        problems.append(f"answers: row {row} is not the sum of the steps, although there is no noise")
    problems += _off_grid(learner, transcript)
    return Verification(tuple(problems), p_value, steps, records.count)


def _verify_structure(
    structure: Structure, records: Contributors, transcript: Transcript, tolerance: float
) -> Verification:
    """Find the structure in the sample again, and sum over everyone."""
    problems = [f"{name}: {damage}" for name, table in transcript.tables.items() if (damage := table.damage())]
    problems += records.audit()
    if transcript.steps != 1:
        problems.append(f"iterates: {transcript.steps} rows, where there should be 1")
    else:
        keyed = cast(KeyedRecords, records)
        problems += structure_problems(structure, keyed, transcript.sums[:], transcript.iterates[0], tolerance)
    return Verification(tuple(problems[:MOST_PROBLEMS]), None, 1, records.count)


def _check_step(
    learner: Learner, sums: Sums, transcript: Transcript, step: int, tolerance: float, intact: bool
) -> list[str]:
    problems = []
    path = Path(transcript.start, transcript.iterates, step)
    place = learner.schedule.place(step)
    total = sums.total(step, path)
    stored = transcript.sums[step]
    values = learner.abilities.values
    compared = (stored, total) if values is None or tolerance == 0.0 else (values(stored), values(total))
    if not _agree(*compared, tolerance):
        why = _explain(learner, sums.records, place, step, path, total - stored) if intact else "see the damage above"
        problems.append(f"sums: row {step} is not what the records at place {place} contribute; {why}")
    if learner.laws is not None:
        return problems + _check_draw(learner.laws, transcript, step, path, tolerance)
    iterate = learner.rule.step(step, path, transcript.answers[step])
    if not _agree(transcript.iterates[step], iterate, tolerance):
        problems.append(f"iterates: row {step} is not what the rule computes from row {step} of answers")
    return problems


def _check_draw(laws: Laws, transcript: Transcript, step: int, path: Path, tolerance: float) -> list[str]:
    """Name a draw that its law cannot have drawn: digits below the lattice could tell of records that are gone."""
    law, drawn = laws.law(step, path, transcript.sums[: step + 1]), transcript.iterates[step]
    if (drawn == 0.0).all() if law is None else law.holds(drawn, tolerance):
        return []
    return [f"iterates: row {step} is not on the lattice of what was drawn"]


def _agree(stored: Array, derived: Array, tolerance: float) -> bool:
    if tolerance == 0.0:
        return np.array_equal(stored, derived)
    return np.allclose(
        stored, derived, rtol=tolerance, atol=tolerance * (1.0 + float(np.abs(derived).max(initial=0.0)))
    )


def _explain(learner: Learner, records: Contributors, place: int, step: int, path: Path, excess: Array) -> str:
    """Name the record whose contribution is the difference, if there is one."""
    limit = 1e-6 * max(float(np.abs(excess).max()), 1e-300)
    batch, at_once = records.batch_at(place), max(1, AT_ONCE // excess.size)
    for first in range(0, rows_in(batch[0]), at_once):
        part = tuple([column[first : first + at_once] for column in batch])
        distance = np.abs(np.asarray(learner.query.contributions(step, path, part)) - excess).max(axis=1)
        closest = int(np.argmin(distance))
        if distance[closest] <= limit:
            return f"record {records.ids_at(place)[first + closest].item()!r} was added from outside"
    return "a record was removed or altered there"


def _off_grid(learner: Learner, transcript: Transcript) -> list[str]:
    """Name answers that are not on the grid: digits below it could tell of records that are gone."""
    unit = learner.grid.unit
    if unit == 0.0:
        return []
    off = np.argwhere(np.fmod(transcript.answers[:], unit))
    return [f"answers: row {off[0][0]}, column {off[0][1]} is not on the grid of {unit:g}"] if len(off) else []


def whitened_draws(laws: Laws, transcript: Transcript) -> list[Array]:
    """Return what each step has drawn as independent standard normal numbers, and 0 in all other coordinates."""
    sums, found = transcript.sums[:], []
    for step in range(len(sums)):
        law = laws.law(step, Path(transcript.start, transcript.iterates, step), sums[: step + 1])
        white = np.zeros(0) if law is None else law.whitened(transcript.iterates[step])
        found.append(np.pad(white, (0, len(transcript.start) - len(white))))
    return found


def noise_of(laws: Laws, transcript: Transcript) -> Array:
    """Return all numbers that were drawn, as standard normal ones."""
    drawn = np.concatenate([np.zeros(0), *whitened_draws(laws, transcript)])
    return drawn[drawn != 0.0]


def _noise(learner: Learner, transcript: Transcript) -> tuple[Array, float | None]:
    if learner.laws is not None:
        from scipy import stats

        drawn = noise_of(learner.laws, transcript)
        return drawn, float(stats.kstest(drawn, "norm").pvalue) if len(drawn) else None
    sums = learner.grid.met(transcript.sums[:])
    noise = transcript.answers[:] - (np.cumsum(sums, axis=0) if learner.mechanism.prefix else sums)
    if learner.sigma == 0.0 or noise.size == 0:
        return noise, None
    from scipy import stats

    xi = learner.mechanism.whiten(noise) / (learner.sigma * learner.mechanism.scales(len(noise)))[:, None]
    return noise, float(stats.kstest(xi.ravel(), "norm").pvalue)
