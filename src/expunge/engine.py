"""One engine: learn, change, verify.

A learner is noisy sums of per-record contributions, followed by a deterministic rule. `learn` draws a schedule
and the noise and takes the steps; `change` turns a transcript of some records into one of the changed records,
with exactly the law that learning on them has; `verify` re-derives what can be.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from expunge.edits import Edit
from expunge.errors import BadContribution, BadPlan, BadRecords, ClippedWarning, warn_caller
from expunge.forward import Ask, GivenNoise, NoiseSource, NoNoise, Reply, SameNoise, Staged, forward
from expunge.grid import dithered
from expunge.learner import Learner, Transcript
from expunge.mechanisms import draw_noise
from expunge.randomness import Randomness
from expunge.reconcile import RECONCILIATIONS, expectation, noiseless, with_tail
from expunge.records import Contributors, Delete, Insert, Records, Replace, Request, Total
from expunge.rows import ArrayRows, Path, Rows
from expunge.types import Array
from expunge.verdicts import Setting, Verdict
from expunge.verification import Verification, verify

T = TypeVar("T")

__all__ = [
    "Change", "Learner", "Outcome", "Transcript", "Verification",
    "advance", "chance_of_replay", "change", "decide", "decide_on", "insert", "learn", "learn_with_outcome", "propose",
    "replace", "unlearn", "verify",
]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a request went. For the caller only: it depends on the deleted record, so never store it."""

    removed: int
    added: int
    replayed_from: int | None
    """The first step that was replayed, or None if none was: the path was kept, or (without noise, in a learner of
    one round) its only sum was added to."""
    evaluations: int
    """How often a record's contribution was computed (the paper's count of queries)."""
    above_bound: int
    """How many of these contributions were above the query's bound."""
    seconds: float
    replay_probability: float
    """How likely the coins that were tossed were to say replay (of a row-by-row coupling, those up to the first
    that did). With one touched step and the joint or adaptive coupling this is the probability itself."""

    @property
    def kept(self) -> bool:
        """Whether nothing was replayed."""
        return self.replayed_from is None


@dataclass
class _Tally:
    evaluations: int = 0
    above: int = 0

    def add(self, total: Total) -> Total:
        self.evaluations += total.evaluations
        self.above += total.above
        return total


def _serve(asking: Generator[Ask, Reply, T], learner: Learner, records: Contributors, tally: _Tally) -> T:
    """Answer all that a pass asks from the records, and return its result."""
    share, query, place = learner.share, learner.query, learner.schedule.place
    try:
        ask = next(asking)
        while True:
            step, path = ask.step, ask.path
            if ask.steps is not None:
                shifts = records.shifts(place(step), ask.steps, path, query, share)
                tally.evaluations += int(shifts.evaluations.sum())
                tally.above += int(shifts.above.sum())
                ask = asking.send(Reply(shifts=shifts))
                continue
            shift = before = total = None
            if ask.shift:
                shift = tally.add(records.shift(place(step), step, path, query, share))
            if ask.before:
                before = tally.add(learner.before(records, step, path))
            if ask.total:
                total = tally.add(learner.total(records, step, path))
            ask = asking.send(Reply(total, shift, before))
    except StopIteration as stop:
        return stop.value


# --- learning -----------------------------------------------------------------------------------------


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
    tally = _Tally()
    if arranged:
        transcript = _take_all_steps(learner, records, randomness, rows, watch, tally)
    else:
        records.admit(learner.query)
        records.arrange(learner.schedule, randomness.layout)
        try:
            records.prepare(learner.query)
            transcript = _take_all_steps(learner, records, randomness, rows, watch, tally)
        except BaseException:
            records.settle(False)
            raise
        records.settle(True)
    seconds = time.perf_counter() - began
    return transcript, Outcome(0, records.count, 0, tally.evaluations, tally.above, seconds, 1.0)


def _take_all_steps(
    learner: Learner, records: Records, randomness: Randomness, rows: Callable[[Array], Rows],
    watch: Callable[[int], None] | None, tally: _Tally,
) -> Transcript:  # fmt: skip
    _check_capacity(learner, records.count)
    steps, size = learner.schedule.steps(records.count), learner.query.size
    start = np.asarray(learner.rule.start, dtype=float)
    noise: NoiseSource = NoNoise()
    if learner.sigma > 0.0:
        drawn = draw_noise(learner.mechanism, steps, size, learner.sigma, learner.grid.unit, randomness.noise)
        noise = GivenNoise(drawn)
    path, prefix = Path(start, None, 0), learner.mechanism.prefix
    asking = forward(learner.rule, prefix, learner.grid, path, steps, size, np.zeros(size), noise, watch)
    staged = _serve(asking, learner, records, tally)
    _check_reach(learner, staged)
    _warn_above_bound(learner, tally)
    sums = rows(staged.sums)
    answers = sums if learner.silent else rows(staged.answers)
    return Transcript(sums, answers, rows(staged.iterates), start, records)


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


def _check_capacity(learner: Learner, count: int) -> None:
    """Refuse more records than sums on a grid can hold exactly, before any coin."""
    unit, exact_to = learner.share.unit, getattr(learner.query, "exact_to", None)
    if unit is not None and exact_to is not None:
        if count > exact_to:
            raise BadPlan(
                f"{count} records at once: this learner can sum {exact_to} exactly. Plan for more (an estimator: "
                "replan(), or expected_records at its first fit; a query of your own: fewer bits a number), or, for a "
                "replacement, make several requests."
            )
    elif unit is not None and count * learner.query.bound >= unit * 2.0**53:
        raise BadPlan(
            f"{count} records with bound {learner.query.bound:g} cannot be summed exactly on a grid of {unit:g}. "
            "Use Everyone with fewer bits."
        )
    if learner.sigma > 0.0 and learner.largest(count) >= learner.capacity:
        raise BadPlan(
            f"{count} records with bound {learner.query.bound:g}: their sums are too large beside noise of "
            f"{learner.sigma:g} to be added without error. Take a smaller rho, or rho=1, which means no noise."
        )
    steps = learner.schedule.steps(count)
    if learner.sigma > 0.0 and not learner.holds_noise(steps):
        raise BadPlan(
            f"mechanism: the noise of {steps} steps is too uneven for one grid; give scales that differ less."
        )


def _check_reach(learner: Learner, staged: Staged) -> None:
    """Refuse sums that the grid cannot hold: contributions were far above their bound."""
    if learner.sigma == 0.0:
        return
    largest = max(float(np.abs(table).max(initial=0.0)) for table in (staged.sums, staged.answers))
    if largest >= 2.0 * learner.capacity:
        raise BadContribution(
            f"contributions are so far above query.bound={learner.query.bound:g} that sums are too large beside the "
            "noise. Declare a larger bound, and take the noise that goes with it."
        )


def _warn_above_bound(learner: Learner, tally: _Tally) -> None:
    if learner.share.clip and tally.above:
        warn_caller(
            f"{tally.above:,} contributions are above query.bound={learner.query.bound:g}. The adaptive coupling needs "
            "the bound, so they count with that length. Declare a larger bound to let them count as they are.",
            ClippedWarning,
        )


# --- changing -----------------------------------------------------------------------------------------


@dataclass
class Change:
    """A request, decided but not yet done: `commit` does it, `rollback` leaves everything as it was."""

    records: Contributors
    transcript: Transcript
    edit: Edit
    steps: int
    sums: dict[int, Array]
    """New sums of steps whose answers are kept."""
    staged: Staged | None
    """New rows from some step on."""
    outcome: Outcome

    begun: bool = False
    """Whether the commit has begun: from then on there is no way back."""
    finished: bool = False
    """Whether all is done."""

    def commit(self) -> Outcome:
        """Make the change final, and return how it went.

        Ctrl-C during a commit is raised when the commit is done. Should it fail (no memory, no disk), call it again.
        """
        if not self.begun and self.records.staged is not self.edit:
            raise BadRecords("this change was rolled back or superseded; decide the request anew.")
        self.begun = True
        try:
            self._write()
        except KeyboardInterrupt:
            self._write()
            raise
        return self.outcome

    def _write(self) -> None:
        """Write everything; whatever was written before an interruption is written again."""
        transcript = self.transcript
        self._write_kept_sums()
        for table in (transcript.sums, transcript.answers, transcript.iterates):
            if table.shape[0] != self.steps:
                table.resize(self.steps)
        if self.staged is not None:
            transcript.sums.write(self.staged.first, self.staged.sums)
            if transcript.answers is not transcript.sums:
                transcript.answers.write(self.staged.first, self.staged.answers)
            transcript.iterates.write(self.staged.first, self.staged.iterates)
        if self.records.staged is self.edit:
            self.records.commit()
        self.finished = True

    def _write_kept_sums(self) -> None:
        sums, rows = self.transcript.sums, self.sums
        first, last = min(rows, default=0), max(rows, default=0)
        if len(rows) < 2 or 8 * len(rows) < last - first:
            for step, row in rows.items():
                sums.write(step, row[None])
        else:  # one write costs less than many
            block = sums[first : last + 1].copy()
            for step, row in rows.items():
                block[step - first] = row
            sums.write(first, block)

    def rollback(self) -> None:
        """Leave records and transcript as they were before the request, to the last bit."""
        if self.begun:
            raise BadRecords("this change has been committed, or its commit has begun; call commit() to finish it.")
        if self.records.staged is self.edit:
            self.records.rollback()


def change(
    learner: Learner,
    records: Records,
    transcript: Transcript,
    request: Request,
    rng: np.random.Generator | Randomness,
    *,
    watch: Callable[[int], None] | None = None,
) -> Change:
    """Decide a request: the returned change, once committed, leaves a state with the law of fresh learning.

    An error leaves records and transcript as they were. ``rng`` is the only source of randomness: to repeat
    a request after a crash, repeat it with the same key (`Randomness`), or generator state.
    """
    began, randomness = time.perf_counter(), Randomness.of(rng)
    edit = propose(learner, records, request, randomness)
    return decide_on(learner, records, transcript, edit, randomness, began=began, watch=watch)


def propose(learner: Learner, records: Records, request: Request, rng: np.random.Generator | Randomness) -> Edit:
    """Check a request and turn it into an edit: nothing has been decided, and it can still be refused."""
    edit = records.let_in(learner.query, records.edit(learner.schedule, request, Randomness.of(rng)))
    _check_capacity(learner, records.count + edit.added - edit.removed)
    _check_capacity(learner, edit.added + edit.removed)  # what changes is a sum of its own
    _refuse_staged(records)
    return edit


def decide_on(
    learner: Learner,
    records: Contributors,
    transcript: Transcript,
    edit: Edit,
    rng: np.random.Generator | Randomness,
    *,
    began: float | None = None,
    watch: Callable[[int], None] | None = None,
    pause: bool = False,
) -> Change:
    """Toss the coins of an edit. Should this fail, try it again with the same key, or never.

    The transcript may be that of a pass which is still under way. With ``pause`` a replay stops after the first row,
    the one that the coins have changed, and `advance` makes the others. That is for the sequential coupling, which
    looks at no later row and needs the edit no more (docs/guarantee.md#passes-under-way).
    """
    if pause and (learner.mechanism.prefix or (learner.coupling != "sequential" and learner.sigma > 0.0)):
        raise BadPlan(f"coupling={learner.coupling!r}: a replay can only pause with 'sequential', and with Identity.")
    _refuse_staged(records)
    try:
        records.stage(edit)
        randomness = Randomness.of(rng)
        return _decide(learner, records, transcript, edit, randomness, began or time.perf_counter(), watch, pause)
    except BaseException:
        records.rollback()
        raise


def advance(
    learner: Learner, records: Contributors, transcript: Transcript, rng: np.random.Generator | Randomness
) -> Change:
    """Take one more step of a pass, once all that its records contribute to it is there.

    Every row must have noise of its own (`Identity`): it is drawn now, and nobody has seen it before. Should this
    fail, try it again with the same key.
    """
    began, made, size = time.perf_counter(), transcript.steps, learner.query.size
    if learner.mechanism.prefix:
        raise BadPlan("mechanism: a pass can only be made step by step with Identity.")
    if made >= learner.schedule.steps(records.count):
        raise BadPlan(f"all {made} steps have been taken.")
    _refuse_staged(records)
    noise: NoiseSource = NoNoise()
    if learner.sigma > 0.0:
        scale = learner.sigma * learner.mechanism.scale_of(made)
        draws = Randomness.of(rng).noise
        noise = SameNoise(dithered(scale * draws.standard_normal(size), learner.grid.unit, draws))
    path, tally, edit = transcript.path, _Tally(), Edit()
    asking = forward(learner.rule, False, learner.grid, path, made + 1, size, np.zeros(0), noise)
    staged = _serve(asking, learner, records, tally)
    _check_reach(learner, staged)
    records.stage(edit)
    outcome = Outcome(0, 0, None, tally.evaluations, tally.above, time.perf_counter() - began, 0.0)
    return Change(records, transcript, edit, made + 1, {}, staged, outcome)


def _refuse_staged(records: Contributors) -> None:
    if records.staged is not None:
        raise BadRecords("records: another change is under way; commit it or roll it back first.")


def _setting(
    learner: Learner, records: Contributors, transcript: Transcript, edit: Edit, randomness: Randomness
) -> tuple[Setting, int]:
    """Return what a reconciliation works on, and the number of steps after the edit."""
    schedule = learner.schedule
    after = schedule.steps(records.count + edit.added - edit.removed)
    places = edit.places()
    horizon = min(after, transcript.steps)  # fewer, where a pass is still under way
    if schedule.ordered and horizon and (places < horizon).any():
        horizon -= 1  # coins leave the last common row out: it is always recomputed
    setting = Setting(
        learner.mechanism, learner.sigma, learner.query.bound, transcript.start,
        transcript.sums, transcript.answers, transcript.iterates,
        schedule.visits(places, horizon).tolist(), horizon, learner.grid, learner.largest(records.count),
        randomness,
    )  # fmt: skip
    return setting, after


def _reconcile(learner: Learner, records: Contributors, setting: Setting, tally: _Tally) -> Verdict:
    reconcile = noiseless if learner.sigma == 0.0 else RECONCILIATIONS[learner.coupling]
    return _serve(reconcile(setting), learner, records, tally)


def decide(
    learner: Learner, records: Records, transcript: Transcript, request: Request, rng: np.random.Generator | Randomness
) -> Verdict:
    """Toss the coins of a request and say what they decide, but change nothing: for measurements only.

    Deciding twice about one transcript and acting on the second is a bias. Use `change` to serve a request.
    """
    randomness = Randomness.of(rng)
    edit = propose(learner, records, request, randomness)
    try:
        records.stage(edit)
        return _reconcile(learner, records, _setting(learner, records, transcript, edit, randomness)[0], _Tally())
    finally:
        records.rollback()


def chance_of_replay(learner: Learner, records: Records, transcript: Transcript, request: Request) -> float:
    """Return how likely a request is to replay, over the noise and the coins; changes nothing.

    If it touches several steps, this is an upper bound. It depends on the records named: do not store it.
    """
    randomness = Randomness.fresh()
    edit = propose(learner, records, request, randomness)
    try:
        records.stage(edit)
        setting = _setting(learner, records, transcript, edit, randomness)[0]
        return _serve(expectation(setting, learner.coupling), learner, records, _Tally())
    finally:
        records.rollback()


def _decide(
    learner: Learner, records: Contributors, transcript: Transcript, edit: Edit, randomness: Randomness,
    began: float, watch: Callable[[int], None] | None, pause: bool,
) -> Change:  # fmt: skip
    tally = _Tally()
    setting, after = _setting(learner, records, transcript, edit, randomness)
    verdict = _reconcile(learner, records, setting, tally)
    only_adds = verdict.first is not None and setting.only_adds(verdict.first)
    replayed_from = None if only_adds else verdict.first
    running = with_tail(setting, verdict, transcript.steps, after) if learner.schedule.ordered else None
    if pause:
        after = transcript.steps if verdict.first is None else verdict.first + 1
    staged = None
    if verdict.first is not None and verdict.first < after:
        assert verdict.noise is not None
        path, size, prefix = setting.path_to(verdict.first), learner.query.size, learner.mechanism.prefix
        if running is None:
            running = setting.since(-1, verdict.first, verdict.sums)[1] if prefix else np.zeros(0)
        asking = forward(
            learner.rule, prefix, learner.grid, path, after, size, running, verdict.noise, watch, verdict.known
        )
        staged = _serve(asking, learner, records, tally)
        _check_reach(learner, staged)
    outcome = Outcome(
        edit.removed, edit.added, replayed_from, tally.evaluations, tally.above,
        time.perf_counter() - began, _probability(learner, verdict.probabilities),
    )  # fmt: skip
    return Change(records, transcript, edit, after, verdict.sums, staged, outcome)


def _probability(learner: Learner, each: list[float]) -> float:
    if learner.coupling == "joint" and learner.mechanism.prefix:
        return min(1.0, sum(each))
    return 1.0 - math.prod(1.0 - p for p in each)


def unlearn(
    learner: Learner,
    records: Records,
    transcript: Transcript,
    ids: Any = None,
    *,
    subjects: Any = None,
    rng: np.random.Generator | Randomness,
) -> Outcome:
    """Delete records, by id or by subject, at once."""
    return change(learner, records, transcript, Delete(ids, subjects), rng).commit()


def insert(
    learner: Learner,
    records: Records,
    transcript: Transcript,
    columns: tuple[Any, ...],
    ids: Any = None,
    *,
    subjects: Any = None,
    rng: np.random.Generator | Randomness,
) -> Outcome:
    """Insert records at once."""
    return change(learner, records, transcript, Insert(columns, ids, subjects), rng).commit()


def replace(
    learner: Learner,
    records: Records,
    transcript: Transcript,
    columns: tuple[Any, ...],
    ids: Any,
    *,
    rng: np.random.Generator | Randomness,
) -> Outcome:
    """Give records new content at once (rectification)."""
    return change(learner, records, transcript, Replace(columns, ids), rng).commit()
