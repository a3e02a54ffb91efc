"""Requests: what is proposed, decided by coins, and committed by whoever owns the records.

`change` turns a transcript of some records into one of the changed records, with exactly the law that learning on
them has (docs/guarantee.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.grid import dithered
from expunge.base.intake import Delete, Insert, Replace, Request
from expunge.base.types import Array
from expunge.engine.contributions import UNDER_WAY, Contributors, KeyedRecords, Records
from expunge.engine.couplings.adaptive import adaptive
from expunge.engine.couplings.common import OldPass, Sums, Verdict
from expunge.engine.couplings.expected import expectation
from expunge.engine.couplings.joint import joint
from expunge.engine.couplings.likelihood import chance_to_replay, likelihood
from expunge.engine.couplings.noiseless import noiseless
from expunge.engine.couplings.sequential import sequential
from expunge.engine.couplings.tail import with_tail
from expunge.engine.drawing import draw_steps
from expunge.engine.forward import Staged, forward
from expunge.engine.learner import Learner, Transcript
from expunge.engine.learning import check_reach
from expunge.engine.mechanisms.noise import NoiseSource, NoNoise, SameNoise
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import Randomness
from expunge.engine.sampling import chance_to_move, move
from expunge.engine.schedules import Edit
from expunge.engine.structures import Structure


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
    moved: bool
    """Whether the model is another now: rows are new, there are more of them, or fewer, or a finish has changed."""
    outcome: Outcome

    cells: int | None = None
    """How many rows sums have, where these are not those of steps."""

    begun: bool = False
    """Whether the commit has begun: from then on there is no way back."""
    finished: bool = False
    """Whether all is done."""

    @property
    def first(self) -> int:
        """The first row that is another now, or is no more."""
        return self.steps if self.staged is None else min(self.staged.first, self.steps)

    def commit(self) -> Outcome:
        """Make the change final, and return how it went.

        Ctrl-C during a commit is raised when the commit is done. Should it fail (no memory, no disk), call it again.
        """
        if not self.begun and self.records.staged is not self.edit:
            raise BadRecords("this change was rolled back or superseded; decide the request again.")
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
        for name, table in transcript.tables.items() if self.moved else ():
            wanted = self.steps if name != "sums" or self.cells is None else self.cells
            if table.shape[0] != wanted:
                table.resize(wanted)
        if self.staged is not None:
            for name, table in transcript.tables.items():
                table.write(self.staged.first, getattr(self.staged, name))
        if self.records.staged is self.edit:
            self.records.commit()
        self.finished = True

    def _write_kept_sums(self) -> None:
        sums, rows = self.transcript.sums, self.sums
        if not rows:
            return
        first, last = min(rows), max(rows)
        if first == last:
            sums.write(first, rows[first][None])
        elif self.cells is not None or 8 * len(rows) < last - first:
            sums.write_rows(np.array(list(rows)), np.stack(list(rows.values())))
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


def propose(learner: Learner, records: Records, request: Request, randomness: Randomness) -> Edit:
    """Check a request and turn it into an edit: nothing has been decided, and it can still be refused."""
    if learner.sigma > 0.0 or learner.laws is not None:
        _import_libraries()
    edit = records.edit(learner.schedule, request, randomness)
    if edit.entering:
        edit = records.check_entering(learner.abilities, edit)
    for number in (records.count + edit.added - edit.removed, edit.added + edit.removed):  # that is a sum of its own
        if number > learner.most_records:
            raise BadPlan(learner.why_too_many(number))
    if records.staged is not None:
        raise BadRecords(UNDER_WAY)
    return edit


@cache
def _import_libraries() -> None:
    """Import what coins, noise and replays use: an import that fails after a coin would fail for some outcomes only."""
    import scipy.fft
    import scipy.linalg
    import scipy.special  # noqa: F401


def decide_on(
    learner: Learner,
    records: Contributors,
    transcript: Transcript,
    edit: Edit,
    randomness: Randomness,
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
    noisy = learner.sigma > 0.0 or learner.laws is not None
    if pause and (learner.mechanism.prefix or (learner.coupling != "sequential" and noisy)):
        raise BadPlan(f"coupling={learner.coupling!r}: a replay can only pause with 'sequential', and with Identity.")
    if records.staged is not None:
        raise BadRecords(UNDER_WAY)
    try:
        began = began or time.perf_counter()
        if learner.structure is not None:
            return _move(learner.structure, records, transcript, edit, began, watch)
        records.stage(edit)
        return _decide(learner, records, transcript, edit, randomness, began, watch, pause)
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
    if learner.mechanism.prefix or learner.solves_late:
        raise BadPlan("mechanism: a pass can only be made step by step with Identity.")
    if made >= learner.schedule.steps(records.count):
        raise BadPlan(f"all {made} steps have been taken.")
    if records.staged is not None:
        raise BadRecords(UNDER_WAY)
    noise: NoiseSource = NoNoise()
    if learner.sigma > 0.0:
        scale = learner.sigma * learner.mechanism.scale_of(made)
        draws = Randomness.of(rng).noise
        noise = SameNoise(dithered(scale * draws.standard_normal(size), learner.grid.unit, draws))
    sums, edit = Sums(records, learner), Edit()
    staged = forward(learner, sums, transcript.path, made + 1, np.zeros(0), noise)
    check_reach(learner, staged)
    records.stage(edit)
    outcome = Outcome(0, 0, None, sums.evaluations, sums.above, time.perf_counter() - began, 0.0)
    return Change(records, transcript, edit, made + 1, {}, staged, True, outcome)


def _old_pass(
    learner: Learner, records: Contributors, transcript: Transcript, edit: Edit, randomness: Randomness
) -> tuple[OldPass, int]:
    """Return what a reconciliation works on, and the number of steps after the edit."""
    schedule = learner.schedule
    steps = transcript.sums.shape[0]
    after = schedule.steps(records.count + edit.added - edit.removed)
    places = edit.places()
    horizon = min(after, steps)  # fewer, where a pass is still under way
    if schedule.ordered and horizon and (places < horizon).any():
        horizon -= 1  # coins leave the last common row out: it is always recomputed
    old = OldPass(
        learner.mechanism, learner.sigma, learner.query.bound, transcript.start,
        transcript.sums, transcript.answers, transcript.iterates, steps, schedule.visits(places, horizon).tolist(),
        horizon, learner.grid, records.count * learner.largest_share, randomness, Sums(records, learner),
        schedule.finish,
    )  # fmt: skip
    return old, after


def _reconcile(learner: Learner, old: OldPass) -> Verdict:
    if learner.laws is not None:
        return likelihood(old, learner.laws)
    return noiseless(old) if learner.sigma == 0.0 else RECONCILIATIONS[learner.coupling](old)


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
        return _reconcile(learner, _old_pass(learner, records, transcript, edit, randomness)[0])
    finally:
        records.rollback()


def chance_of_replay(learner: Learner, records: Records, transcript: Transcript, request: Request) -> float:
    """Return how likely a request is to replay, over the noise and the coins; changes nothing.

    If it touches several steps, this is an upper bound. It depends on the records named: do not store it.
    """
    randomness = Randomness.fresh()
    edit = propose(learner, records, request, randomness)
    found = () if learner.structure is None else transcript.found(learner.structure)
    try:
        records.stage(edit)
        if learner.structure is not None:
            return chance_to_move(learner.structure, records, found)
        old = _old_pass(learner, records, transcript, edit, randomness)[0]
        return expectation(old, learner.coupling) if learner.laws is None else chance_to_replay(old, learner.laws)
    finally:
        records.rollback()


def _decide(
    learner: Learner, records: Contributors, transcript: Transcript, edit: Edit, randomness: Randomness,
    began: float, watch: Callable[[int], None] | None, pause: bool,
) -> Change:  # fmt: skip
    old, after = _old_pass(learner, records, transcript, edit, randomness)
    verdict = _reconcile(learner, old)
    only_adds = verdict.first is not None and learner.laws is None and old.only_adds(verdict.first)
    replayed_from = None if only_adds else verdict.first
    running = with_tail(old, verdict, old.steps, after) if learner.schedule.ordered else None
    if pause:
        after = old.steps if verdict.first is None else verdict.first + 1
    staged = None
    if verdict.first is not None and verdict.first < after:
        staged = _replayed(learner, old, verdict, after, running, watch)
    chances, joined = verdict.probabilities, learner.coupling == "joint" and learner.mechanism.prefix
    chance = min(1.0, sum(chances)) if joined else 1.0 - math.prod([1.0 - one for one in chances])
    outcome = Outcome(
        edit.removed, edit.added, replayed_from, old.edited.evaluations, old.edited.above,
        time.perf_counter() - began, chance,
    )  # fmt: skip
    moved = staged is not None or after != old.steps or old.finish in verdict.sums
    return Change(records, transcript, edit, after, verdict.sums, staged, moved, outcome)


def _move(
    structure: Structure, records: Contributors, transcript: Transcript, edit: Edit, began: float,
    watch: Callable[[int], None] | None,
) -> Change:  # fmt: skip
    """Decide by keys: change single rows of the sums, or find everything anew."""
    found = transcript.found(structure)  # while the sample is still what it was
    records.stage(edit)
    moved = move(structure, cast(KeyedRecords, records), transcript.sums, found, watch)
    anew = moved.staged is not None
    outcome = Outcome(
        edit.removed, edit.added, 0 if anew else None, moved.evaluations, 0, time.perf_counter() - began, float(anew)
    )
    cells = transcript.sums.shape[0] if moved.staged is None else len(moved.staged.sums)
    changed = anew or bool(moved.rows)
    return Change(records, transcript, edit, transcript.steps, moved.rows, moved.staged, changed, outcome, cells)


def _replayed(
    learner: Learner, old: OldPass, verdict: Verdict, after: int, running: Array | None,
    watch: Callable[[int], None] | None,
) -> Staged:  # fmt: skip
    """Make the rows from the first that a verdict changes."""
    assert verdict.first is not None
    path = old.path_to(verdict.first)
    if learner.laws is not None:
        earlier = old.sums[: verdict.first].copy()
        for step, row in verdict.sums.items():
            earlier[step] = row
        return draw_steps(
            learner.laws, old.edited, path, after, earlier, old.randomness, watch, verdict.known, verdict.drawn
        )
    assert verdict.noise is not None
    if running is None:
        running = old.since(-1, verdict.first, verdict.sums)[1] if learner.mechanism.prefix else np.zeros(0)
    staged = forward(learner, old.edited, path, after, running, verdict.noise, watch, verdict.known)
    check_reach(learner, staged)
    return staged


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


RECONCILIATIONS: dict[str, Callable[[OldPass], Verdict]] = {
    "joint": joint,
    "sequential": sequential,
    "adaptive": adaptive,
}
