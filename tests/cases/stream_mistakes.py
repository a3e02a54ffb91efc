"""Plausible mistakes with streams, each in the real engine: `check_exact` must catch every one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cases.learners import ALIGNED, ANYTIME, ROOT, TREE, Case, learner
from cases.mistakes import Control, always_keep
from cases.streams import START, enter
from expunge import Arrival, Delete, Insert, Learner, MemoryRecords, Scattered, Shuffled, Transcript, learn
from expunge.base.grid import dithered
from expunge.base.intake import Request
from expunge.base.types import Array
from expunge.engine.changing import change
from expunge.engine.couplings.tail import Tail
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.schedules import Edit, Entering, Schedule, draw_slots, into_steps

Served = tuple[MemoryRecords, Transcript]


# --- orders ---------------------------------------------------------------------------------------------------


class _OneLess:
    """Draws among n where n + 1 were asked for."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def integers(self, high: Any) -> Any:
        return self.rng.integers(np.maximum(high - 1, 1))


@dataclass(frozen=True)
class _AmongThoseThere(Shuffled):
    """The paper's insertion: the newcomer takes one of the n leaves that there are, the one displaced goes last."""

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        drawn: Any = _OneLess(rng)
        return into_steps(
            draw_slots(np.array([entering.count]), np.zeros(entering.number, dtype=np.int64), drawn), self.batch
        )


# --- rows at the end --------------------------------------------------------------------------------------------


def _anew(tail: Tail) -> bool:
    """Say whether the row at the horizon is a new one."""
    return tail.xi_at_horizon is None and tail.row_at_horizon is None


class _NoCarry(Tail):
    """New rows get noise that does not continue that of earlier ones."""

    def row(self, step: int, shift: Array | None) -> Array:
        old, row = self.old, step - self.first
        if step < old.horizon or (step == old.horizon and not _anew(self)):
            return super().row(step, shift)
        scale = old.sigma * old.mechanism.scale_of(step)
        xi = scale * old.draws.standard_normal(self.history.shape[1])
        self.history[row] = dithered(xi, old.grid.unit, old.draws)
        return self.history[row]


def _when_full(
    plan: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> Served:
    """A newcomer enters the open step's sum; answer and iterate stay until the step is full."""
    last = transcript.steps - 1
    kept = transcript.answers[last].copy(), transcript.iterates[last].copy()
    change(plan, records, transcript, request, rng).commit()
    if transcript.steps == last + 1 and records.places.lengths[last] < plan.schedule.batch:  # type: ignore[attr-defined]
        transcript.answers.write(last, kept[0][None])
        transcript.iterates.write(last, kept[1][None])
    return records, transcript


def _last_row_stays(
    plan: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> Served:
    """If all coins keep, the last common row keeps its answer too, though no coin was tossed for it."""
    before = transcript.steps
    kept = transcript.answers[:].copy(), transcript.iterates[:].copy()
    decided = change(plan, records, transcript, request, rng)
    decided.commit()
    last = min(before, transcript.steps) - 1
    if decided.outcome.kept and transcript.steps <= before:
        transcript.answers.write(last, kept[0][last : last + 1])
        transcript.iterates.write(last, kept[1][last : last + 1])
    return records, transcript


class _Reusing(Tail):
    """New rows get the noise N that rows of this number had when they were dropped."""

    spare: dict[int, Array] = {}  # noqa: RUF012

    def row(self, step: int, shift: Array | None) -> Array:
        found = super().row(step, shift)
        new = step > self.old.horizon or (step == self.old.horizon and _anew(self))
        if new and step in self.spare:
            found = self.history[step - self.first] = self.spare[step]
        return found


class _ReusingSources(_Reusing):
    """New rows get the ξ that rows of this number had when they were dropped. (No mistake: see `not_mistakes`.)"""

    def row(self, step: int, shift: Array | None) -> Array:
        found = super(_Reusing, self).row(step, shift)
        new = step > self.old.horizon or (step == self.old.horizon and _anew(self))
        if new and step in self.spare:
            carry = self.old.mechanism.carry(self.history, step, self.first)
            found = self.history[step - self.first] = carry + self.spare[step]
        return found


@dataclass
class _Hoarding:
    """Serves requests, and remembers the noise of dropped rows for `_Reusing`."""

    sources: bool = False
    seen: list[Transcript] = field(default_factory=list)

    def __call__(
        self, plan: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
    ) -> Served:
        if not self.seen or self.seen[0] is not transcript:
            self.seen = [transcript]
            _Reusing.spare.clear()
        noise = transcript.answers[:] - np.cumsum(transcript.sums[:], axis=0)
        if self.sources:
            noise = np.stack([row - plan.mechanism.carry(noise, step) for step, row in enumerate(noise)])
        change(plan, records, transcript, request, rng).commit()
        for step in range(transcript.steps, len(noise)):
            _Reusing.spare[step] = noise[step].copy()
        return records, transcript


# --- decisions that depend on outcomes ----------------------------------------------------------------------------


@dataclass
class _Bundling:
    """After a replay the next two requests are served as one; else one by one."""

    waiting: list[Any] = field(default_factory=list)
    bundle: bool = False

    def __call__(
        self, plan: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
    ) -> Served:
        assert isinstance(request, Delete)
        if self.bundle:
            self.waiting += list(request.ids)
            if len(self.waiting) == 2:
                change(plan, records, transcript, Delete(self.waiting), rng).commit()
                self.waiting, self.bundle = [], False
            return records, transcript
        outcome = change(plan, records, transcript, request, rng).commit()
        self.bundle = list(request.ids) == [0] and not outcome.kept
        return records, transcript


def _fit_anew(
    plan: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> Served:
    """A request replayed, so the model is fitted anew to all records, as a new plan is."""
    outcome = change(plan, records, transcript, request, rng).commit()
    if not outcome.kept:
        records = records.copy()
        transcript = learn(plan, records, rng)
    return records, transcript


# --- all of them ----------------------------------------------------------------------------------------------------

LONG = 1.3 * np.array([[1.0, 0.1], [0.9, -0.2], [1.0, 0.0], [-1.0, 0.1], [0.8, 0.3]])
TRIO = np.array([[1.0, 0.0], [0.4, 0.0], [-0.4, 0.0], [0.3, 0.8]])  # the second and third cancel out
ONE_BY_ONE: tuple[Request, ...] = (Delete([0]), Delete([1]), Delete([2]))


def _stream(name: str, plan: Learner, requests: tuple[Request, ...], columns: Array = START) -> Case:
    return Case(name, plan, requests, columns=(columns,))


def _again(mechanism: Mechanism) -> Case:
    """Return a stream: row 5 is dropped, row 3 (which it continues in a tree) moves, and row 5 comes again."""
    requests = (Delete([0]), Insert((ALIGNED[:1],), ids=[6]))
    return _stream("grows again", learner(Arrival(1), mechanism, sigma=1.5), requests, ALIGNED)


def controls() -> list[Control]:
    """Return all mistakes."""
    entering: tuple[Request, ...] = (Delete([1]), enter(5), enter(6))
    shuffled = _stream("insertions", learner(Shuffled(2), ROOT), entering)
    found = [
        Control(
            "a newcomer takes one of the n leaves that there are", shuffled,
            mistaken=replace(shuffled.learner, schedule=_AmongThoseThere(2)),
        )
    ]  # fmt: skip
    for name, mechanism in (("tree", TREE), ("root", ROOT), ("anytime tree", ANYTIME)):
        growing = _stream("growing", learner(Arrival(1), mechanism), (enter(5), Delete([3]), enter(6, 7, 8)))
        found.append(Control(f"new rows that do not continue earlier noise, {name}", growing, {"Tail": _NoCarry}))
    open_step: tuple[Request, ...] = tuple(Insert((LONG[j : j + 1],), ids=[5 + j]) for j in range(2))
    three = _stream("open step", learner(Arrival(3), TREE, sigma=1.0), open_step, LONG[:4])
    found.append(Control("the model moves when a step is full", three, serve=_when_full))
    by_two: dict[str, Schedule] = {"scattered": Scattered(2), "arrival": Arrival(2), "shuffled": Shuffled(2)}
    for name in ("arrival", "shuffled"):
        leaving = _stream("leaving", learner(by_two[name], ROOT, sigma=1.0), (Delete([1]), Delete([3])), LONG)
        found.append(Control(f"the last row keeps its answer, {name}", leaving, serve=_last_row_stays))
    for name, mechanism in (("tree", TREE), ("root", ROOT)):
        again = f"noise of dropped rows comes again, {name}"
        found.append(Control(again, _again(mechanism), {"Tail": _Reusing}, _Hoarding()))
    two = (Insert((LONG[:2],), ids=[5, 6]),)
    in_scattered = _stream("scattered", learner(Scattered(2), ROOT, sigma=1.0), two, LONG)
    found.append(Control("an insertion without coins", in_scattered, {"keep_or_jump": always_keep}))
    trio = _stream("trio", learner(Scattered(1), ROOT, sigma=0.7), ONE_BY_ONE, TRIO)
    found.append(Control("bulks cut by what the last request did", trio, serve=_Bundling()))
    opposite = Insert((-ALIGNED[:1],), ids=[6])
    for name in ("scattered", "arrival"):
        several = _stream("several", learner(by_two[name], ROOT, sigma=1.3), (opposite, Delete([0])), ALIGNED)
        found.append(Control(f"a fit anew because a request replayed, {name}", several, serve=_fit_anew))
    return found


def not_mistakes() -> list[Control]:
    """Return what looks like a mistake and is none.

    ξ of a dropped row is independent of all that is left, and no later coin looks at it: reused, it is as good as a
    new one. The engine draws new ones, for nothing of a dropped row shall be kept.
    """
    return [Control("ξ of dropped rows comes again", _again(ROOT), {"Tail": _ReusingSources}, _Hoarding(True))]
