"""Federations that are interrupted, shared between threads, or have any history; and how often they replay."""

import threading
import time
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import expunge.engine.changing as engine
import expunge.federated.federation as module
from cases.federations import WISHES, answer, ask, begun, go, join, planned, state
from expunge.base.errors import BadPlan, Unfinished, UnknownId
from expunge.engine.changing import Change
from expunge.engine.couplings.common import replay_probability
from expunge.engine.transcript import ArrayRows
from expunge.federated.clients import MemoryContributions
from expunge.federated.federation import Federation, Task

# --- interruptions ---


def interrupted(federation, where, name, error, call):
    """Raise an error once, the first time that something is called."""
    right = getattr(where, name)
    left = [error]

    def wrong(*given, **more):
        if left:
            raise left.pop()
        return right(*given, **more)

    with mock.patch.object(where, name, wrong), pytest.raises(error):
        call(federation)
    assert not left


def leaves(federation):
    federation.forget("bob")


def enters(federation):
    join(federation, "dan")


@pytest.mark.parametrize("call", [leaves, enters])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("where", [(engine, "_reconcile"), (engine, "Change"), (Change, "commit")], ids=lambda p: p[1])
def test_a_request_without_memory_is_finished_by_the_next_call_with_the_same_coins(call, seed, where):
    expected, federation = go(begun(seed=seed), 3), go(begun(seed=seed), 3)
    call(expected)
    interrupted(federation, *where, MemoryError, call)
    federation.tasks()
    assert state(federation) == state(expected)
    assert state(go(federation)) == state(go(expected))


def leaves_with_one_that_joins(federation):
    federation.invite("dan")
    ask(federation, federation.tasks_of_candidates()[:2])
    federation.forget(["dan", "bob"])


def withdraws(federation):
    federation.invite("dan")
    ask(federation, federation.tasks_of_candidates()[:2])
    federation.forget("dan")


COMMITTING = [
    (withdraws, MemoryContributions, "erase"),
    (leaves, ArrayRows, "write"), (leaves, MemoryContributions, "erase"), (enters, ArrayRows, "write"),
    (leaves, Federation, "_withdraw"), (leaves_with_one_that_joins, MemoryContributions, "erase"),
    (leaves_with_one_that_joins, ArrayRows, "write"), (enters, Federation, "_acknowledge"),
]  # fmt: skip


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("call", "where", "name"), COMMITTING)
def test_a_request_that_fails_within_its_commit_is_finished_by_the_next_call(call, where, name, seed, error):
    expected, federation = go(begun(seed=seed), 3), go(begun(seed=seed), 3)
    call(expected)
    interrupted(federation, where, name, error, call)
    federation.tasks()
    assert state(federation) == state(expected)
    assert federation._pending is None
    assert federation.clients.staged is None
    assert set(federation.clients.held._numbers) == {client.slot for client in federation.clients.members.values()}
    assert federation.verify().ok
    assert state(go(federation)) == state(go(expected))


@pytest.mark.parametrize("call", [leaves, enters])
@pytest.mark.parametrize("seed", range(4))
def test_a_request_that_fails_again_and_again_is_finished_at_last(call, seed):
    expected, federation = go(begun(seed=seed), 3), go(begun(seed=seed), 3)
    call(expected)
    right, left = ArrayRows.write, [MemoryError] * 3

    def wrong(*given):
        right(*given)
        if left:
            raise left.pop()

    with mock.patch.object(ArrayRows, "write", wrong):
        for work in (call, Federation.tasks, Federation.verify):
            with pytest.raises(MemoryError):
                work(federation)
        federation.tasks()
    assert state(federation) == state(expected)


@pytest.mark.parametrize(("where", "name"), [(ArrayRows, "write"), (MemoryContributions, "erase")])
@pytest.mark.parametrize("seed", range(4))
def test_ctrl_c_within_a_commit_comes_when_it_is_done(where, name, seed):
    expected, federation = go(begun(seed=seed), 3), go(begun(seed=seed), 3)
    expected.forget("bob")
    interrupted(federation, where, name, KeyboardInterrupt, leaves)
    assert federation.members == ["ann", "cy"]
    federation.tasks()
    assert state(federation) == state(expected)
    with pytest.raises(UnknownId, match="it may have left already"):
        federation.forget("bob")


def test_a_round_that_fails_before_it_is_written_is_made_again_with_the_same_noise():
    expected, federation = go(begun()), go(begun(), 2)
    ask(federation, federation.tasks())
    interrupted(federation, module, "advance", MemoryError, Federation.advance)
    assert state(go(federation)) == state(expected)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["resize", "write"])
def test_a_round_that_fails_within_its_commit_is_made_once_and_the_next_has_noise_of_its_own(name, error):
    expected, federation = go(begun()), go(begun(), 1)
    ask(federation, federation.tasks())
    interrupted(federation, ArrayRows, name, error, Federation.advance)
    assert {task.step for task in federation.tasks()} == {2}  # the round has been made
    assert state(go(federation)) == state(expected)
    noise = federation.transcript.answers[:] - federation.transcript.sums[:]
    assert len(np.unique(noise)) == noise.size


@pytest.mark.parametrize("name", ["_make_round", "_end_round"])
def test_a_round_that_has_begun_is_finished_before_anybody_leaves(name):
    federation = go(begun(), 1)
    assert federation._round_key is None
    ask(federation, federation.tasks())
    interrupted(federation, Federation, name, MemoryError, Federation.advance)
    assert federation._round_key is not None
    federation.forget("bob")
    assert federation._round_key is None
    assert federation.members == ["ann", "cy"]
    assert federation.verify().ok
    noise = go(federation).transcript.answers[:] - federation.transcript.sums[:]
    assert len(np.unique(noise)) == noise.size


def test_clients_leave_from_another_thread_while_rounds_go_on():
    federation = begun(tuple(WISHES), rounds=60, rho=0.9)
    gone = threading.Event()

    def leave():
        for name, rounds in (("bob", 5), ("dan", 10), ("eve", 15)):
            while federation.made < rounds:
                time.sleep(0.0005)
            federation.forget(name)
        gone.set()

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    while not (gone.is_set() and federation.finished):
        ask(federation, federation.tasks())
        try:
            if not federation.finished:
                federation.advance()
        except (Unfinished, BadPlan):  # somebody left between asking and advancing, and rounds are to be made again
            continue
    thread.join(timeout=10)
    assert federation.members == ["ann", "cy"]
    assert federation.verify().ok


# --- any history ---


class Histories(RuleBasedStateMachine):
    """Clients come and leave, answer and do not, in any order."""

    @initialize(
        rho=st.sampled_from([0.3, 0.95, 1.0]),
        more=st.sampled_from([{"rate": 1.0}, {"rate": 0.6}, {"finish": "exact"}]),
        seed=st.integers(0, 99),
    )
    def begin(self, rho, more, seed):
        self.federation = begun(seed=seed, rho=rho, **more)

    def refused(self, call, names):
        """Others are joining: then nothing is done."""
        before = state(self.federation)
        with pytest.raises(Unfinished, match="joining"):
            call(names)
        assert state(self.federation) == before

    @rule(names=st.lists(st.sampled_from(list(WISHES)), min_size=1, max_size=2, unique=True))
    def invite(self, names):
        wanted = [name for name in names if name not in self.federation.members]
        if self.federation.candidates and set(self.federation.candidates) != set(wanted):
            self.refused(self.federation.invite, wanted)
        else:
            self.federation.invite(wanted)

    @rule(data=st.data())
    def some_answer(self, data):
        tasks = self.federation.tasks() + self.federation.tasks_of_candidates()
        if tasks:
            ask(self.federation, data.draw(st.lists(st.sampled_from(tasks), max_size=8)))

    @rule(rounds=st.integers(1, 4))
    def rounds_are_made(self, rounds):
        go(self.federation, min(4, self.federation.made + rounds))

    @rule(data=st.data())
    def forget(self, data):
        members, candidates = self.federation.members, self.federation.candidates
        if not members + candidates:
            return
        names = set(data.draw(st.lists(st.sampled_from(members + candidates), min_size=1, max_size=3)))
        if set(candidates) <= names or names <= set(candidates):
            self.federation.forget(sorted(names))
        else:
            self.refused(self.federation.forget, sorted(names))

    @rule(data=st.data())
    def forget_with_all_who_are_joining(self, data):
        if self.federation.members:
            name = data.draw(st.sampled_from(self.federation.members))
            self.federation.forget([name, *self.federation.candidates])

    @rule()
    def admit(self):
        if self.federation.candidates:
            ask(self.federation, self.federation.tasks_of_candidates())
            self.federation.admit(self.federation.candidates)

    @invariant()
    def all_agrees(self):
        if not hasattr(self, "federation"):
            return
        assert self.federation.verify().ok
        clients, path, fit = self.federation.clients, self.federation.transcript.path, self.federation.plan.query.fit
        for step in range(min(self.federation.made + 1, 4)):
            total = np.zeros(3, dtype=np.int64)
            for client in (*clients.candidates.values(), *reversed(clients.members.values())):
                if clients.held.has(client.slot, step):
                    held = clients.held.history(client.slot, [step])
                    task = Task(client.name, step, path[step], None, client.slot)
                    assert np.array_equal(held, fit(answer(task)[None]).numbers)  # along this path, not another
                    total += (client.name in clients.members) * held[0]
            if step < self.federation.made:
                assert np.array_equal(total * self.federation.plan.query.unit, self.federation.transcript.sums[step])
        there = {client.slot for client in (*clients.members.values(), *clients.candidates.values())}
        assert set(clients.held._numbers) <= there


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=14, deadline=None, derandomize=True)
TestHistories = Histories.TestCase


# --- how often ---


def frequency(updates, runs=700, **more):
    """How often the first client makes the others repeat rounds, if each contributes the same to every round."""
    cuts = 0
    for seed in range(runs):
        federation = begun(("ann", "bob"), seed, rounds=2, **more)
        while not federation.finished:
            federation.receive([(task, updates[task.client == "bob"]) for task in federation.tasks()])
            federation.advance()
        cuts += not federation.forget("ann").kept
    return cuts / runs


def test_a_client_at_the_clip_replays_with_rho_and_a_shorter_one_less_often():
    """Frequencies of 700 runs, within four standard deviations."""
    plan = planned(rho=0.4, rounds=2)
    at_clip = frequency([np.array([0.6, 0.8]), np.zeros(2)], rho=0.4)
    assert abs(at_clip - plan.rho) < 4 * np.sqrt(0.4 * 0.6 / 700)
    row = replay_probability(np.hypot(0.3, plan.weight) / plan.sigma)
    expected = 1 - (1 - row) ** 2
    shorter = frequency([np.array([0.18, 0.24]), np.zeros(2)], rho=0.4)
    assert abs(shorter - expected) < 4 * np.sqrt(expected * (1 - expected) / 700)
    assert shorter < plan.rho
