"""Federations whose last round is exact: who is asked, and that what is left is what fresh training gives, to the bit.

Clients answer without chance, so that all that is kept is a function of slots and keys.
"""

from functools import partial
from unittest import mock

import numpy as np
import pytest

import expunge.engine.changing as engine
import expunge.federated.federation as module
from cases.federations import TRIO, WISHES, answer, ask, begun, go, join, planned, state
from expunge.engine.changing import Change
from expunge.engine.transcript import ArrayRows
from expunge.federated.clients import MemoryContributions
from expunge.federated.federation import Federation

IN, OUT = 2**62, 3 * 2**62
"""A key below one half, and one above."""
exact = partial(begun, finish="exact")


def keyed(*sampled, names=TRIO, **more):
    """A federation of which these clients are the sample; all rounds are made."""
    federation = exact(names, **more)
    for name, client in federation.clients.members.items():
        federation.clients.members[name] = client._replace(key=IN if name in sampled else OUT)
    return go(federation)


def fresh(federation):
    """The same clients, with the same slots and keys, trained as far."""
    other = Federation(federation.plan, federation.transcript.start, np.random.default_rng(99))
    other.clients.members.update(federation.clients.members)
    return go(other, federation.made)


def updates(names, model, step):
    task = module.Task("", step, model, None, 0)
    return np.array([answer(task._replace(client=name)) for name in names])


# --- rounds ---


def test_the_sample_is_asked_in_every_round_and_the_others_in_the_last():
    federation, asked = exact(tuple(WISHES), seed=3), []
    sampled = [name for name, client in federation.clients.members.items() if client.key < 2**63]
    assert 0 < len(sampled) < 5
    while not federation.finished:
        asked.append(sorted(task.client for task in federation.tasks()))
        ask(federation, federation.tasks())
        assert federation.advance() == len(asked[-1])
    assert asked == [sorted(sampled)] * 3 + [sorted(WISHES)]


def test_the_model_is_the_mean_of_what_everyone_makes_of_the_sample_s():
    federation = keyed("ann", "bob", clip=100.0)
    model = np.zeros(2)
    for step in range(3):
        model = model + updates(("ann", "bob"), model, step).mean(axis=0)
    assert federation.model() == pytest.approx(model + updates(TRIO, model, 3).mean(axis=0), abs=1e-6)
    assert federation.transcript.answers is federation.transcript.sums  # there is no noise
    assert federation.verify().ok


@pytest.mark.parametrize("rounds", [1, 4])
def test_without_a_sample_there_is_one_round(rounds):
    federation = keyed(rounds=rounds, clip=100.0)
    assert federation.model() == pytest.approx(updates(TRIO, np.zeros(2), rounds - 1).mean(axis=0), abs=1e-6)
    assert federation.forget("bob").kept
    assert federation.finished
    assert federation.verify().ok


def test_no_clients_and_one_leave_the_start_and_its_own_model():
    federation = go(exact(()))
    assert (federation.model().tolist(), federation.verify().ok) == ([0.0, 0.0], True)
    for key in (IN, OUT):
        federation = keyed(*["ann"] * (key == IN), names=("ann",))
        federation.forget("ann")
        assert state(go(federation)) == state(fresh(federation))
        assert federation.model().tolist() == [0.0, 0.0]
        assert not federation.transcript.sums[:].any()


def test_nan_in_the_last_round_counts_for_nothing_and_can_leave():
    federation = keyed("ann", rounds=1, clip=100.0)
    other = exact(rounds=1, clip=100.0)
    bob = next(task for task in other.tasks() if task.client == "bob")
    other.receive([(bob, np.full(2, np.nan))])
    ask(other, other.tasks())
    assert other.advance() == 3
    without = other.model()
    for one in (federation, other):
        one.forget("bob")
        assert one.model().tobytes() == without.tobytes()


# --- leaving and joining ---


def test_one_outside_the_sample_leaves_the_last_sum_and_nobody_is_asked():
    federation = keyed("ann", "bob")
    before, slot = federation.transcript.sums[:].copy(), federation.clients.members["cy"].slot
    taken = federation.clients.held.history(slot, [3])[0] * federation.plan.query.unit
    outcome = federation.forget("cy")
    assert (outcome.kept, outcome.replay_probability, federation.finished) == (True, 0.0, True)
    assert np.array_equal(federation.transcript.sums[:3], before[:3])
    assert np.array_equal(federation.transcript.sums[3], before[3] - taken)
    assert slot not in federation.clients.held._numbers
    assert federation.model().tobytes() == keyed("ann", "bob", names=("ann", "bob")).model().tobytes()


def test_one_of_the_sample_leaves_and_all_rounds_after_the_first_are_made_again():
    federation = keyed("ann", "bob")
    outcome = federation.forget("bob")
    assert (outcome.kept, outcome.replayed_from, federation.made) == (False, 0, 1)
    asked = []
    while not federation.finished:
        asked.append([task.client for task in federation.tasks()])
        go(federation, federation.made + 1)
    assert asked == [["ann"], ["ann"], ["ann", "cy"]]
    assert federation.model().tobytes() == keyed("ann", names=("ann", "cy")).model().tobytes()


def test_a_newcomer_outside_the_sample_is_asked_for_the_last_round_only():
    federation = go(exact(seed=2))
    for name in ("dan", "eve"):
        federation.invite(name)
        client = federation.clients.candidates[name]
        steps = [task.step for task in federation.tasks_of_candidates()]
        assert steps == ([0, 1, 2, 3] if client.key < 2**63 else [3])
        ask(federation, federation.tasks_of_candidates())
        federation.admit(name)
        assert federation.finished == (client.key >= 2**63)
        assert state(go(federation)) == state(fresh(federation))
    assert {client.key < 2**63 for client in federation.clients.members.values()} == {True, False}


@pytest.mark.parametrize("seed", range(40))
def test_after_any_history_all_is_bit_for_bit_what_fresh_training_with_the_same_keys_gives(seed):
    rng = np.random.default_rng(seed)
    federation = exact(seed=seed, rho=float(rng.choice([0.2, 0.5, 0.9])), selector="tail")
    for _ in range(12):
        act, who = rng.integers(4), str(rng.choice(list(WISHES)))
        if act == 0:
            go(federation, min(4, federation.made + int(rng.integers(1, 5))))
        elif act == 1:
            ask(federation, [task for task in federation.tasks() if rng.random() < 0.5])
        elif who in federation.members:
            federation.forget([who, *[name for name in federation.members if rng.random() < 0.1 and name != who]])
        else:
            join(federation, who)
        assert federation.verify().ok
        rows, again = state(federation)[-1], state(fresh(federation))[-1]
        assert rows == again
    assert state(go(federation)) == state(fresh(federation))
    assert federation.model().tobytes() == fresh(federation).model().tobytes()


def test_the_comparison_notices_a_last_sum_that_is_not_updated():
    federation = keyed("ann", "bob")
    before = federation.transcript.sums[3].copy()
    federation.forget("cy")
    federation.transcript.sums.write(3, before[None])
    assert state(federation) != state(fresh(federation))
    assert "sums: row 3" in str(federation.verify().problems)


# --- interruptions ---


INTERRUPTED = [(engine, "_reconcile"), (engine, "Change"), (Change, "commit"), (ArrayRows, "write"),
               (MemoryContributions, "erase")]  # fmt: skip


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["bob", "cy"])
@pytest.mark.parametrize("where", INTERRUPTED, ids=lambda place: place[1])
def test_a_departure_that_is_interrupted_ends_as_one_that_is_not(where, name, error):
    federation, expected = keyed("ann", "bob"), keyed("ann", "bob")
    expected.forget(name)
    right, left = getattr(*where), [error]

    def wrong(*given, **more):
        if left:
            raise left.pop()
        return right(*given, **more)

    with mock.patch.object(*where, wrong), pytest.raises(error):
        federation.forget(name)
    federation.tasks()
    assert state(federation) == state(expected)
    assert state(go(federation)) == state(fresh(go(expected)))


def test_the_plan_of_a_federation_without_finish_is_as_it_was():
    assert planned().finish is None
    assert planned().learner(np.zeros(2)).participation.finish is None
