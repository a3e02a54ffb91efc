"""Plausible mistakes in federated averaging, each in the real code: `check_same_law` must catch every one.

Each has a twin beside it: the same story without the mistake, which must pass. `not_mistakes` look like mistakes, and
are none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

import expunge.federated.federation as federation
from cases.federated_stories import ROUNDS, START, Case, World, cases
from cases.patching import patched_everywhere, patched_method
from expunge.base.types import Array, Draws
from expunge.engine.changing import Change, advance, decide_on
from expunge.engine.couplings.common import KEPT, OldPass, Toss, Verdict, changes, keep_or_jump
from expunge.engine.couplings.sequential import whitened
from expunge.engine.learner import Learner, Transcript
from expunge.engine.mechanisms.noise import GivenNoise
from expunge.engine.schedules import joins_each
from expunge.federated.clients import MemoryContributions
from expunge.solvers.averaging import FederatedAverage

Mistake = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Control:
    """A mistake: another story than the right one, or a patch of the real code while the right one is told."""

    name: str
    right: Case
    wrong: Case
    mistake: Mistake = nullcontext
    """What makes the mistake for a while."""
    runs: int = 4_000
    """How many runs a side show it for certain."""
    in_tests: int | None = None
    """With how many runs it is among the quick tests."""


def _patched(name: str, case: Case, mistake: Mistake, **more: Any) -> Control:
    return Control(name, case, case, mistake, **more)


def _everywhere(name: str, wrong: Callable[..., Any]) -> Mistake:
    return partial(patched_everywhere, name, wrong)


def _told(name: str, case: Case, story: Callable[[World], None], **more: Any) -> Control:
    return Control(name, case, replace(case, story=story), **more)


# --- coins ------------------------------------------------------------------------------------------------------


def _fresh_noise(shift: float, projection: float, coins: Draws) -> Toss:
    """After a rejected coin the noise along the shift is drawn anew (across it, that would change nothing)."""
    decided = keep_or_jump(shift, projection, coins)
    return decided if decided.kept else Toss(False, float(round((projection - coins.standard_normal()) / shift)))


def _no_coin(shift: float, projection: float, coins: Draws) -> Toss:
    """The contribution is subtracted, and the path kept."""
    return KEPT


def _one_coin(old: OldPass) -> Verdict:
    """One decision about all rows, after which only the first of them jumps."""
    verdict = Verdict()
    if not old.touched:
        return verdict
    found = changes(old)
    distances, projections = whitened(old, found.shifts)
    length = math.sqrt(distances @ distances)
    decided = keep_or_jump(length, float(distances @ projections) / max(length, 1e-300), old.coins)
    if decided.kept:
        verdict.sums = dict(zip(old.touched, found.sums, strict=True))
        return verdict
    first, noise = old.touched[0], old.noise(old.horizon)
    noise[first] -= decided.moved(found.shifts[0])
    return verdict.replay(first, GivenNoise(noise), found.sums[0])


def _until_it_keeps(*given: Any, **more: Any) -> Change:
    """A request that would replay is tried again with new coins, at most ten times."""
    for _ in range(10):
        change = decide_on(*given, **more)
        if change.staged is None:
            break
        change.rollback()
    else:
        change = decide_on(*given, **more)
    return change


def _until_it_counts(learner: Learner, clients: Any, transcript: Transcript, rng: np.random.Generator) -> Change:
    """A round in which hardly anybody seems to have taken part has failed, and is made again."""
    rule = learner.rule
    assert isinstance(rule, FederatedAverage)
    while True:
        change = advance(learner, clients, transcript, rng)
        assert change.staged is not None
        if change.staged.answers[0, -1] >= rule.weight:
            return change
        change.rollback()


# --- rounds -----------------------------------------------------------------------------------------------------


def _keep_all(held: MemoryContributions, slots: Any, first: int) -> None:
    """What clients have answered along the old path stays where it is."""


def _late_answers(world: World) -> None:
    """Round 2 is under way when bob leaves; what comes afterwards is taken, whatever the model was."""
    world.go(2)
    late = {task.client: world.answer(task, world.rng) for task in world.federation.tasks()}
    world.forget("bob")
    if world.federation.made == 2:
        world.federation.receive([(task, late[task.client]) for task in world.federation.tasks()])


def _leave_while_they_compute(world: World) -> None:
    world.go(2)
    late = [(task, world.answer(task, world.rng)) for task in world.federation.tasks()]
    world.forget("bob")
    world.federation.receive(late)


def _fresh_fit(world: World) -> None:
    """Instead of a replay the others train anew."""
    world.go()
    world.forget("bob")
    if not world.federation.finished:
        left = world.federation.members
        world.federation = federation.Federation(world.federation.plan, START, world.rng)
        world.federation.join(left)


# --- who takes part ---------------------------------------------------------------------------------------------


def _gone_then(world: World) -> None:
    """Let bob leave; cy has gone away without a word, which shows when it is asked again, and is taken out then.

    If the coins keep the path nobody is asked, so cy stays. So whoever sees a model without cy knows that it was
    replayed: among those, the law is not that of training without cy.
    """
    world.go()
    world.forget("bob")
    if not world.federation.finished:
        world.forget("cy")


def _gone_before(world: World) -> None:
    """Call the roll before the coins are tossed, so that cy leaves whatever they say."""
    world.go()
    world.forget("bob", "cy")


def _redraw(world: World, *, wanted: Callable[[list[bool], list[bool]], bool]) -> None:
    """Let bob leave; if that cuts the pass off, give the others keys that say the same of the rounds made."""
    world.go()
    world.forget("bob")
    clients, made = world.federation.clients, world.federation.made
    if made == ROUNDS:
        return
    for name, client in clients.members.items():
        before = _joins(client.key, world)
        while True:
            key = int(world.rng.integers(2**64, dtype=np.uint64))
            after = _joins(key, world)
            if before[:made] == after[:made] and wanted(before[made:], after[made:]):
                break
        clients.members[name] = client._replace(key=key)


def _joins(key: int, world: World) -> list[bool]:
    rate = world.federation.plan.rate
    return joins_each(np.array([key], dtype=np.uint64), list(range(ROUNDS)), rate)[:, 0].tolist()


def _filled_up(world: World) -> None:
    """After a cut there is one less, so the next round is made with all who are there."""
    _redraw(world, wanted=lambda before, after: after[0])


def _drawn_anew(world: World) -> None:
    """After a cut it is drawn anew who takes part in the rounds to come."""
    _redraw(world, wanted=lambda before, after: True)


# --- joining ----------------------------------------------------------------------------------------------------


def _from_the_next_round(world: World) -> None:
    """Let cy join; where the coin rejects, the round stays as it was without cy, who begins with the next."""
    world.go()
    made = world.federation
    before = [table[:].copy() for table in (made.transcript.sums, made.transcript.answers, made.transcript.iterates)]
    world.join("cy")
    if not made.finished:
        last = made.made - 1
        for table, old in zip((made.transcript.sums, made.transcript.answers, made.transcript.iterates), before,
                              strict=True):  # fmt: skip
            table.write(last, old[last : last + 1])
        nothing = np.zeros((1, made.plan.query.size), dtype=np.int32)
        made.clients.held.write([made.clients.members["cy"].slot], last, nothing)


def _from_the_newest(world: World) -> None:
    """Let cy join; for every round it is asked how it would change the newest model."""
    world.go()
    made = world.federation
    made.invite("cy")
    tasks = made.tasks_of_candidates()
    made.receive([(task, world.answer(task._replace(model=made.newest), world.rng)) for task in tasks])
    made.admit("cy")


def _asked_again(world: World) -> None:
    """Let cy answer for all rounds, and bob leave before it is admitted, which is refused; cy answers no second time.

    So cy becomes a member only if nobody had to be asked again: among models with cy, all paths were kept.
    """
    world.go()
    world.federation.invite("cy")
    world.ask(world.federation.tasks_of_candidates())
    with mock.patch.object(world.federation, "_refuse_while_joining") as refuse:
        world.forget("bob")
    assert refuse.called
    if world.federation.finished:
        world.federation.admit("cy")
    else:
        world.forget("cy")


def _admitted_first(world: World) -> None:
    """Finish with cy before the coins for bob are tossed."""
    world.go()
    world.join("cy")
    world.forget("bob")


# --- the order of requests --------------------------------------------------------------------------------------

WISHES = {
    "ann": np.array([-0.5, 0.5]), "bob": np.array([1.0, 0.0]), "cy": np.array([0.4, 0.0]), "dan": np.array([1.0, 0.0])
}  # fmt: skip
"""What each contributes to the first round: all but ann's in one direction."""


def _once(task: federation.Task, rng: np.random.Generator) -> Array:
    return WISHES[task.client] if task.step == 0 else np.full(2, np.nan)


def _when_ready(world: World) -> None:
    """Let bob leave, dan join as soon as it has answered, and cy leave at a certain time.

    If bob's leaving cuts the pass off, dan is not ready at that time; else it is. So what the coins said for bob
    decides in which order dan and cy are served.
    """
    world.go()
    world.forget("bob")
    if world.federation.finished:
        world.join("dan")
        world.forget("cy")
    else:
        world.forget("cy")
        world.go()
        world.join("dan")


def _in_order(world: World) -> None:
    """Serve requests in the order in which they were made: cy waits until dan is ready."""
    world.go()
    world.forget("bob")
    world.join("dan")
    world.forget("cy")


def _bundled(world: World) -> None:
    """After a cut the next two leave at once, since the pass must go on anyhow; else one after the other."""
    world.go()
    world.forget("bob")
    if world.federation.finished:
        world.forget("cy")
        world.forget("dan")
    else:
        world.forget("cy", "dan")


def _one_by_one(world: World) -> None:
    world.go()
    for name in ("bob", "cy", "dan"):
        world.forget(name)


def _waits(world: World) -> None:
    """Let bob leave, then cy; if the pass was cut off after the first round, it is gone on with before."""
    world.go()
    world.forget("bob")
    if world.federation.made == 1:
        world.go()
    world.forget("cy")


# --- all of them ------------------------------------------------------------------------------------------------


def controls() -> list[Control]:
    """Return all mistakes."""
    named = {case.name: case for case in cases()}
    old_answers = partial(patched_method, MemoryContributions, "cut", _keep_all)
    leave, join, half = named["leave"], named["join"], named["leave, half of the rounds"]
    roll_call = Case("roll call", _gone_before, ("ann",))
    late = Case("late answers", _leave_while_they_compute, ("ann", "cy"))
    first = Case("admitted first", _admitted_first, ("ann", "cy"), ("ann", "bob"))
    order = Case("in order", _in_order, ("ann", "dan"), ("ann", "bob", "cy"), answer=_once, rho=0.97)
    each = Case("one by one", _one_by_one, ("ann",), ("ann", "bob", "cy", "dan"), answer=_once, rho=0.97)
    return [
        _patched("fresh noise after a rejected coin", leave, _everywhere("keep_or_jump", _fresh_noise)),
        _patched("no coin", leave, _everywhere("keep_or_jump", _no_coin)),
        _patched("one coin for all rounds, one jumps", leave, _everywhere("row_by_row", _one_coin), runs=10_000),
        _told("who is missing in a replay is taken out then", roll_call, _gone_then),
        _told("a fresh fit instead of a replay", leave, _fresh_fit),
        _patched("new coins until it keeps", leave, _everywhere("decide_on", _until_it_keeps), in_tests=500),
        _patched("answers along the old path", leave, old_answers, in_tests=250),
        _told("late answers", late, _late_answers),
        _told("absent ones take part after a cut", half, _filled_up),
        _told("a newcomer begins after the cut", join, _from_the_next_round),
        _told("a newcomer is asked about the newest model", join, _from_the_newest),
        _patched("failed rounds are made again", leave, _everywhere("advance", _until_it_counts)),
        _told("a newcomer does not answer again after a cut", first, _asked_again, in_tests=600),
        _told("who joins is served when ready", order, _when_ready),
        _told("bulks cut by what the last request did", each, _bundled),
    ]


def not_mistakes() -> list[Case]:
    """Return what looks like a mistake and is none.

    Rounds after the one that jumped have been looked at by no coin: who takes part in them may be drawn anew.
    And rounds may be made between two requests or not, also because of how the first went: those to come are drawn
    as in fresh training either way. (The engine keeps the keys, for they are drawn already.)
    """
    return [
        Case("who takes part is drawn anew after a cut", _drawn_anew, ("ann", "cy"), rate=0.5),
        Case("whether the next waits depends on how it went", _waits, ("ann",)),
    ]
