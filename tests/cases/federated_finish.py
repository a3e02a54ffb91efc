"""Stories of federations whose last round is exact, and mistakes that only they can have.

A keyed sample takes part in all rounds but the last, everyone in that. There is no noise and no coin: given the keys,
what is kept is a function of what clients answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cases.federated_mistakes import Control
from cases.federated_stories import ROUNDS, START, Case, World, cases
from cases.patching import patched_everywhere, patched_method
from expunge.base.types import Array
from expunge.engine import changing
from expunge.engine.contributions import Participation, Total, Totals
from expunge.engine.couplings.common import OldPass, Sums, Verdict
from expunge.engine.couplings.noiseless import noiseless
from expunge.engine.forward import Staged
from expunge.engine.learner import Learner
from expunge.engine.transcript import Path
from expunge.federated.clients import Client, Clients, MemoryContributions
from expunge.federated.federation import Federation

SHARE = 0.5
"""The part of the clients that rounds before the last see."""
NOISELESS = "expunge.engine.couplings.noiseless.noiseless"
LAST = ROUNDS - 1


def exact_cases() -> list[Case]:
    """Return the stories with a sample and an exact last round instead of noise.

    (Of one without members nothing is random: it is compared bit for bit in tests/federated.)
    """
    return [
        replace(case, name=f"{case.name}, exact at last", rate=1.0, rho=SHARE, finish="exact")
        for case in cases()
        if case.left and "half of the rounds" not in case.name
    ]


# --- the finish ---------------------------------------------------------------------------------------------------


def _not_updated(old: OldPass) -> Verdict:
    """Who is not in the sample leaves, and the last sum stays as it is."""
    verdict = noiseless(old)
    return Verdict() if verdict.first is not None and old.only_adds(verdict.first) else verdict


def _moved(learner: Learner, old: OldPass, verdict: Verdict, *given: Any) -> Staged:
    """The model moves by what a mean changes without one of its numbers, instead of being derived again."""
    staged, row = REPLAYED(learner, old, verdict, *given), verdict.first
    if row is None or not old.only_adds(row):
        return staged
    weight, before, after = learner.rule.weight, old.sums[row], staged.sums[0]  # type: ignore[attr-defined]
    mean, shift = before[:-1] * (weight / before[-1]), after - before
    change = (shift[:-1] - mean * (shift[-1] / weight)) * (weight / after[-1])
    return staged._replace(iterates=old.iterates[row : row + 1] + change)


REPLAYED = changing._replayed


def _float_sum(clients: Clients, taking: Any, step: int) -> Total:
    """Sums are made of floats."""
    some = clients.takes_part(taking, step)
    rows = clients.held.read([client.slot for client in some], step) * clients._query.unit
    return Total(np.cumsum(rows, axis=0, dtype=np.float32)[-1].astype(float) if some else np.zeros(3), len(some), 0)


_changed = Sums.changed


def _float_changed(sums: Sums, step: int, path: Path, stored: Array) -> Total:
    """What leaves is subtracted from them."""
    found = _changed(sums, step, path, stored)
    return found._replace(sum=found.sum.astype(np.float32).astype(float))


@contextmanager
def _floats() -> Iterator[None]:
    with patched_method(Clients, "_sum", _float_sum), patched_method(Sums, "changed", _float_changed):
        yield


# --- the sample ---------------------------------------------------------------------------------------------------


def _is_sampled(client: Client) -> bool:
    return client.key < int(SHARE * 2.0**64)


@contextmanager
def _structure_of_everyone() -> Iterator[None]:
    """All rounds are made with everyone, though who is not in the sample is taken out of the last only."""
    right = Clients.shifts

    def shifts(clients: Clients, place: int, steps: list[int], *given: Any) -> Totals:
        found = right(clients, place, steps, *given)
        if not any(_is_sampled(client) for moving in clients._moving for client in moving):
            found.sums[np.array(steps) != LAST] = 0.0
        return found

    with patched_method(Participation, "joined", lambda *given: None), patched_method(Clients, "shifts", shifts):
        yield


def _rounds(clients: Clients, client: Client, steps: Sequence[int]) -> list[int]:
    return [step for step in steps if step >= LAST - 1 or _is_sampled(client)]


def _taking(clients: Clients, each: Any, step: int) -> list[Client]:
    return [client for client in each if step >= LAST - 1 or _is_sampled(client)]


def _keep_all(held: MemoryContributions, slots: Any, first: int) -> None:
    """What clients have answered along the old path stays where it is."""


@contextmanager
def _two_exact() -> Iterator[None]:
    """The last two rounds are exact: the last is asked for at a model that depends on a sum over everyone."""
    with (
        patched_method(Clients, "rounds_of", _rounds),
        patched_method(Clients, "takes_part", _taking),
        patched_method(MemoryContributions, "cut", _keep_all),
    ):
        yield


def _filled_up(world: World) -> None:
    """Let bob leave; if it was in the sample, somebody else comes into it, so that it stays as large."""
    world.go()
    world.forget("bob")
    if not world.federation.finished:
        members = world.federation.clients.members
        for name in [name for name, client in members.items() if not _is_sampled(client)][:1]:
            members[name] = members[name]._replace(key=int(world.rng.integers(2**63)))
        world.federation = Federation(world.federation.plan, START, world.rng)
        world.federation.clients.members.update(members)


def _looked_at(world: World) -> None:
    """Let bob leave; a model that does not look good at last is trained anew, with other keys."""
    world.go()
    world.forget("bob")
    world.go()
    if world.federation.model()[0] < 0.5:
        left = world.federation.members
        world.federation = Federation(world.federation.plan, START, world.rng)
        world.federation.join(left)


def exact_controls() -> list[Control]:
    """Return all mistakes."""
    named = {case.name: case for case in exact_cases()}
    leave = named["leave, exact at last"]
    anew = partial(patched_method, MemoryContributions, "cut", _keep_all)

    def patched(name: str, mistake: Any, **more: Any) -> Control:
        return Control(name, leave, leave, mistake, **more)

    def told(name: str, story: Any, **more: Any) -> Control:
        return Control(name, leave, replace(leave, story=story), **more)

    return [
        patched("a last sum that is not updated", partial(patched_everywhere, NOISELESS, _not_updated), in_tests=250),
        patched("a model that moves instead", partial(patched_everywhere, "_replayed", _moved), in_tests=500),
        patched("a last sum of floats", _floats, in_tests=250),
        patched("rounds that see everyone", _structure_of_everyone, in_tests=250),
        patched("two exact rounds", _two_exact, in_tests=250),
        patched("answers along the old path, exact at last", anew),
        told("a sample that is filled up", _filled_up, in_tests=400),
        told("a model that is looked at", _looked_at),
    ]
