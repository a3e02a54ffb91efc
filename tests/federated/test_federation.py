"""Federations: rounds, clients that come and leave at any time, and verification.

The law itself is tested in tests/exactness/test_federated.py, interruptions in tests/federated/test_histories.py.
"""

import tracemalloc
from unittest import mock

import numpy as np
import pytest

from cases.federations import TRIO, WISHES, ask, begun, go, join, planned, state
from expunge.base.errors import BadPlan, BadRecords, DuplicateId, Unfinished, UnknownId
from expunge.engine.changing import decide_on
from expunge.engine.couplings.common import KEPT, Toss
from expunge.engine.randomness import Randomness
from expunge.engine.schedules import Edit, joins_each
from expunge.federated.federation import Federation
from expunge.solvers.plans.federated import ArrayType, plan_federation


def always(kept):
    """Let coins say the same, always."""
    said = KEPT if kept else Toss(False, -2.0)
    return mock.patch(
        "expunge.engine.couplings.sequential.keep_or_jump", lambda shift, projection, coins: said if shift else KEPT
    )


# --- rounds ---


def test_a_round_is_made_when_all_have_answered_and_each_is_asked_once():
    federation = begun()
    tasks = federation.tasks()
    assert [(task.client, task.step, task.model.tolist()) for task in tasks] == [(one, 0, [0, 0]) for one in TRIO]
    assert ask(federation, tasks[:2]).taken == 2
    assert [task.client for task in federation.tasks()] == ["cy"]
    with pytest.raises(Unfinished, match="round 0 waits for 1 clients: 'cy'"):
        federation.advance()
    ask(federation, tasks[2:])
    assert federation.advance() == 3
    assert (federation.made, federation.finished) == (1, False)
    assert np.array_equal(federation.tasks()[0].model, federation.newest)


def test_sums_are_made_without_all_contributions_being_in_memory_at_once():
    wide, many = 20_000, 200
    plan = plan_federation([ArrayType("w", (wide,), "<f4")], clients=many, rounds=1, clip=1.0, rho=0.5)
    federation = Federation(plan, np.zeros(wide), np.random.default_rng(0))
    federation.join([f"client {number}" for number in range(many)])
    for number, task in enumerate(federation.tasks()):
        federation.receive([(task, np.full(wide, 1e-5 * number))])
    tracemalloc.start()
    federation.advance()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 0.75 * 4 * wide * many
    assert federation.verify().ok


def test_the_model_is_there_when_all_rounds_are_made():
    federation = begun(selector="average")
    with pytest.raises(Unfinished, match="0 of 4 rounds"):
        federation.model()
    go(federation)
    assert federation.tasks() == []
    assert federation.model() == pytest.approx(federation.transcript.iterates[:].mean(axis=0), abs=0.5)
    with pytest.raises(BadPlan, match="all 4 rounds"):
        federation.advance()


def test_of_two_answers_the_first_counts_and_nobody_answers_unasked():
    federation = begun()
    ann, bob, cy = federation.tasks()
    received = federation.receive([(ann, np.array([0.1, 0.2])), (ann, np.array([0.5, 0.5]))])
    assert (received.taken, received.ignored) == (1, ("ann",))
    strangers = [bob._replace(client="dan"), cy._replace(step=1), ann, bob._replace(path=object())]
    assert ask(federation, strangers).ignored == ("dan", "cy", "ann", "bob")
    slot = federation.clients.members["ann"].slot
    held = federation.clients.held.history(slot, [0])[0] * federation.plan.query.unit
    assert held[:2] == pytest.approx([0.1, 0.2], abs=1e-8)


WRONG = {
    "long": np.zeros(3), "column": np.zeros((2, 1)), "number": 0.0, "texts": np.array(["a", "b"]),
    "complex": np.array([1j, 0]), "objects": np.array([0.0, None]), "truths": np.array([True, False]),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_of_answers_with_one_of_the_wrong_shape_or_kind_none_is_taken(wrong):
    federation = begun()
    ann, bob, cy = federation.tasks()
    with pytest.raises(BadRecords, match=r"'bob' answered .* in round 0, the model has 2 real numbers"):
        federation.receive([(ann, np.zeros(2)), (bob, wrong)])
    assert len(federation.tasks()) == 3
    assert federation.receive([(ann, [0.1, 0.2]), (bob, np.array([1, 0])), (cy, np.zeros(2, np.float16))]).taken == 3


def test_nan_counts_for_nothing_and_what_is_clipped_is_said():
    federation = begun(rho=1.0)
    updates = {"ann": [0.3, 0.1], "bob": [np.nan, 0.0], "cy": [3.0, 4.0]}
    received = federation.receive([(task, np.array(updates[task.client])) for task in federation.tasks()])
    assert (received.taken, received.clipped, received.unfit) == (3, ("cy",), ("bob",))
    federation.advance()
    assert federation.newest == pytest.approx([0.45, 0.45], abs=1e-8)  # of two, not of three
    assert federation.verify().ok


def test_every_round_has_noise_of_its_own_and_of_the_planned_size():
    federation = go(begun(rounds=60))
    noise = federation.transcript.answers[:] - federation.transcript.sums[:]
    assert len(np.unique(noise)) == 180
    assert federation.verify().noise_p_value > 0.001
    assert noise.std() == pytest.approx(federation.plan.sigma, rel=0.25)


def test_the_start_must_fit_the_plan():
    for wrong in (np.zeros(3), np.array([0.0, np.nan])):
        with pytest.raises(BadRecords, match="start: expected 2 finite numbers"):
            Federation(planned(), wrong, np.random.default_rng(0))


def test_keys_say_who_takes_part_and_nobody_else_is_asked():
    federation = begun(tuple(WISHES), rate=0.5, rounds=6)
    keys = np.array([federation.clients.members[name].key for name in WISHES], dtype=np.uint64)
    expected = joins_each(keys, list(range(6)), 0.5)
    for step in range(6):
        asked = {task.client for task in federation.tasks()}
        assert asked == {name for name, joined in zip(WISHES, expected[step], strict=True) if joined}
        ask(federation, federation.tasks())
        assert federation.advance() == len(asked)
    assert 0 < expected.sum() < expected.size
    assert federation.verify().ok


def test_one_client_is_enough_and_none_too():
    federation = go(begun(("ann",)))
    assert federation.verify().ok
    federation.forget("ann")
    assert federation.members == []
    go(federation)  # rounds of pure noise
    assert not federation.transcript.sums[:].any()
    assert federation.transcript.answers[:].all()
    assert np.isfinite(federation.model()).all()
    assert federation.verify().ok


# --- coming and leaving ---


@pytest.mark.parametrize("call", ["join", "invite", "admit", "forget"])
@pytest.mark.parametrize("names", ["", ["ann", ""], "x" * 201, [3], [None]], ids=str)
def test_names_are_words_of_1_to_200_letters(call, names):
    with pytest.raises(BadRecords, match="names of 1 to 200 letters"):
        getattr(begun(), call)(names)


def test_who_is_unknown_there_already_or_named_twice_is_refused_and_nothing_changes():
    federation = go(begun(), 2)
    before = state(federation)
    for call, names, error in (
        (federation.forget, ["ann", "dan"], UnknownId), (federation.forget, ["ann", "ann"], DuplicateId),
        (federation.invite, ["dan", "ann"], DuplicateId), (federation.invite, ["dan", "dan"], DuplicateId),
        (federation.admit, "dan", UnknownId), (federation.admit, "ann", UnknownId), (federation.join, "dan", BadPlan),
    ):  # fmt: skip
        with pytest.raises(error):
            call(names)
        assert state(federation) == before
    assert state(federation) == before


def test_who_joins_answers_for_every_round_along_its_own_model():
    federation = go(begun(), 3)
    assert federation.invite(["dan", "eve"]) == ["dan", "eve"]
    assert federation.invite(["eve", "dan"]) == []  # twice is once
    tasks = federation.tasks_of_candidates()
    assert [(task.client, task.step) for task in tasks] == [(one, step) for step in range(3) for one in ("dan", "eve")]
    path = federation.transcript.path
    assert all(np.array_equal(task.model, path[task.step]) for task in tasks)
    ask(federation, tasks[:-1])
    with pytest.raises(Unfinished, match="'eve' has not answered for 1 of 3 rounds"):
        federation.admit(["dan", "eve"])
    assert (federation.candidates, federation.members) == (["dan", "eve"], list(TRIO))
    assert len(federation.tasks()) == 3  # candidates take no part yet
    ask(federation, tasks[-1:])
    assert federation.admit(["eve", "dan"]).added == 2
    assert (federation.candidates, federation.members) == ([], ["ann", "bob", "cy", "dan", "eve"])
    assert go(federation).verify().ok


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("made", [0, 2, 4])
def test_while_somebody_is_joining_nobody_else_comes_or_leaves(made, answered):
    federation = go(begun(("ann", "bob")), made)
    federation.invite(["cy", "dan"])
    if answered:
        ask(federation, federation.tasks_of_candidates())
    before, random = state(federation), federation._rng.bit_generator.state
    for call, names in (
        (federation.forget, "ann"), (federation.forget, ["bob", "dan"]), (federation.forget, ["ann", "bob"]),
        (federation.invite, "eve"), (federation.invite, "cy"), (federation.invite, ["cy", "dan", "eve"]),
        (federation.admit, "cy"), (federation.admit, []),
    ):  # fmt: skip
        with pytest.raises(Unfinished, match=r"(is|are) joining.* (withdraw it \(forget\)|\(forget\) them first)\."):
            call(names)
        assert state(federation) == before
    assert federation._rng.bit_generator.state == random  # nor were coins drawn
    if not made:
        with pytest.raises(Unfinished):
            federation.join("eve")
    go(federation)  # rounds go on
    ask(federation, federation.tasks_of_candidates())
    federation.admit(["cy", "dan"])
    federation.forget("ann")
    federation.invite("eve")
    assert (federation.members, federation.candidates) == (["bob", "cy", "dan"], ["eve"])


def test_of_several_candidates_some_withdraw_and_the_others_are_admitted():
    federation = go(begun(("ann", "bob")), 2)
    federation.invite(["cy", "dan", "eve"])
    ask(federation, [task for task in federation.tasks_of_candidates() if task.client != "cy"])
    assert federation.forget("cy").kept
    assert federation.candidates == ["dan", "eve"]
    with pytest.raises(Unfinished, match="'eve' is joining"):
        federation.admit("dan")
    assert federation.forget("eve").removed == 0
    assert federation.admit("dan").added == 1
    assert (federation.members, federation.candidates) == (["ann", "bob", "dan"], [])
    assert go(federation).verify().ok


def test_a_candidate_answers_for_rounds_made_meanwhile_too():
    federation = go(begun(), 1)
    federation.invite("dan")
    ask(federation, federation.tasks_of_candidates())
    go(federation, 3)
    assert [task.step for task in federation.tasks_of_candidates()] == [1, 2]


def test_a_candidate_withdraws_without_a_trace():
    federation = go(begun(), 2)
    before = state(federation)
    federation.invite("dan")
    ask(federation, federation.tasks_of_candidates())
    slot = federation.clients.candidates["dan"].slot
    outcome = federation.forget("dan")
    assert (outcome.removed, outcome.kept, outcome.evaluations) == (0, True, 0)
    assert state(federation) == before
    assert not any(federation.clients.held.has(slot, step) for step in range(4))


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "cut off"])
def test_a_member_leaves_with_all_who_are_joining(kept):
    federation = go(begun(), 3)
    federation.invite(["dan", "eve"])
    ask(federation, federation.tasks_of_candidates()[:3])
    late, late_candidates = federation.tasks(), federation.tasks_of_candidates()
    with always(kept):
        outcome = federation.forget(["dan", "bob", "eve"])
    assert (outcome.removed, outcome.kept, federation.made) == (1, kept, 3 if kept else 1)
    assert (federation.members, federation.candidates) == (["ann", "cy"], [])
    assert set(federation.clients.held._numbers) == {federation.clients.members[name].slot for name in ("ann", "cy")}
    assert ask(federation, late).ignored == (("bob",) if kept else TRIO)
    assert ask(federation, late_candidates).taken == 0
    assert go(federation).verify().ok


@pytest.mark.parametrize("made", [0, 1])
def test_an_answer_that_a_client_computed_before_it_left_is_not_taken_when_it_has_come_back(made):
    federation = go(begun(rho=0.01), made)
    late = [task for task in federation.tasks() if task.client == "bob"]
    assert federation.forget("bob").kept
    federation.invite("bob")
    assert ask(federation, late).ignored == ("bob",)
    old = federation.tasks_of_candidates()
    federation.forget("bob")
    federation.invite("bob")
    assert ask(federation, old).ignored == ("bob",) * made
    ask(federation, federation.tasks_of_candidates())
    federation.admit("bob")
    assert ask(federation, late).ignored == ("bob",)
    assert "bob" in [task.client for task in federation.tasks()]
    assert go(federation).verify().ok


def test_before_the_first_round_there_are_no_coins_and_answers_stay():
    federation = begun()
    ask(federation, federation.tasks()[:2])
    outcome = federation.forget("bob")
    assert (outcome.kept, outcome.replay_probability) == (True, 0.0)
    assert [task.client for task in federation.tasks()] == ["cy"]
    federation.join("bob")
    assert [task.client for task in federation.tasks()] == ["cy", "bob"]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "cut off"])
def test_what_a_client_that_left_has_contributed_is_gone_and_it_may_come_back(kept):
    federation = go(begun())
    client = federation.clients.members["bob"]
    numbers = federation.clients.held._numbers[client.slot]
    with always(kept):
        federation.forget("bob")
    assert not numbers.any()
    assert client.slot not in federation.clients.held._numbers
    go(federation)
    join(federation, "bob")
    back = federation.clients.members["bob"]
    assert back.slot != client.slot
    assert back.key != client.key
    assert go(federation).verify().ok


def test_a_kept_path_stays_as_it_is_and_nobody_is_asked():
    federation = go(begun(), 2)
    late = federation.tasks()
    iterates = federation.transcript.iterates[:].copy()
    with always(True):
        outcome = federation.forget("bob")
    assert (outcome.kept, outcome.replayed_from, outcome.evaluations, outcome.removed) == (True, None, 0, 1)
    assert np.array_equal(federation.transcript.iterates[:], iterates)
    received = ask(federation, late)  # what the others are computing is still of use
    assert (received.taken, received.ignored) == (2, ("bob",))


def test_after_a_cut_the_rounds_from_there_on_are_made_anew_and_late_answers_are_ignored():
    federation = go(begun(), 3)
    late = federation.tasks()
    ask(federation, late[:1])
    with always(False):
        outcome = federation.forget("bob")
    assert (outcome.replayed_from, outcome.kept, federation.made) == (0, False, 1)
    assert outcome.evaluations == 0
    assert ask(federation, late).ignored == TRIO
    assert [(task.client, task.step) for task in federation.tasks()] == [("ann", 1), ("cy", 1)]
    assert federation.verify().ok


def test_after_a_cut_by_newcomers_all_answer_anew_for_the_rounds_from_there_on():
    federation = go(begun(), 3)
    federation.invite(["dan", "eve"])
    late, late_candidates = federation.tasks(), federation.tasks_of_candidates()
    ask(federation, late[:1])
    ask(federation, late_candidates)
    with always(False):
        outcome = federation.admit(["dan", "eve"])
    assert (outcome.added, outcome.replayed_from, federation.made) == (2, 0, 1)
    assert ask(federation, late + late_candidates).taken == 0
    assert [(task.client, task.step) for task in federation.tasks()] == [(name, 1) for name in WISHES]
    slot = federation.clients.members["dan"].slot  # its answer for round 0 is along the old model, which stays
    assert [federation.clients.held.has(slot, step) for step in range(4)] == [True, False, False, False]
    assert go(federation).verify().ok


def test_a_cut_in_a_later_round_leaves_those_before():
    federation = go(begun(), 3)
    late = federation.tasks()
    before = federation.transcript.iterates[:].copy()
    with mock.patch("expunge.engine.couplings.sequential.keep_or_jump", side_effect=[KEPT, KEPT, Toss(False, -2.0)]):
        assert federation.forget("bob").replayed_from == 2
    assert federation.made == 3
    assert np.array_equal(federation.transcript.iterates[:2], before[:2])
    assert not np.array_equal(federation.transcript.iterates[2], before[2])
    assert ask(federation, late).ignored == TRIO  # this is the round they were asked for, but not its model
    assert federation.verify().ok


def test_without_noise_a_departure_replays_from_the_first_round_that_it_changes():
    for seed in range(8):
        federation = go(begun(tuple(WISHES), seed, rho=1.0, rate=0.5))
        rounds = federation.clients.rounds_of(federation.clients.members["bob"], range(4))
        outcome = federation.forget("bob")
        first = min(rounds, default=3)
        assert federation.made == first + 1
        assert outcome.replayed_from == (None if first == 3 else first)  # the last sum is only added to


def test_without_noise_a_departure_that_changes_no_sum_changes_nothing():
    federation = begun(rho=1.0)
    federation.receive([(task, np.full(2, np.nan if task.client == "bob" else 0.1)) for task in federation.tasks()])
    federation.advance()
    late, iterates = federation.tasks(), federation.transcript.iterates[:].copy()
    ask(federation, late[:1])
    outcome = federation.forget("bob")
    assert (outcome.kept, outcome.replay_probability, outcome.removed) == (True, 0.0, 1)
    assert np.array_equal(federation.transcript.iterates[:], iterates)
    assert [task.client for task in federation.tasks()] == ["cy"]  # ann has answered, and need not again
    assert ask(federation, late[2:]).taken == 1
    federation.advance()
    assert go(federation).verify().ok


def test_without_noise_a_newcomer_that_changes_no_sum_changes_nothing():
    federation = go(begun(rho=1.0), 2)
    late = federation.tasks()
    federation.invite("dan")
    federation.receive([(task, np.full(2, np.inf)) for task in federation.tasks_of_candidates()])
    assert federation.admit("dan").kept
    assert ask(federation, late).taken == 3
    assert [task.client for task in federation.tasks()] == ["dan"]


@pytest.mark.parametrize("rounds", [2, 4])
def test_without_noise_the_state_is_bit_for_bit_that_of_fresh_training(rounds):
    federation = go(begun(rho=1.0), rounds)
    ask(federation, federation.tasks()[:1])
    federation.forget("bob")
    go(federation, 3)
    join(federation, "dan", "eve")
    go(federation, 2)
    federation.forget("ann")
    go(federation)
    fresh = go(begun(("eve", "cy", "dan"), 9, rho=1.0))
    assert state(federation)[-1] == state(fresh)[-1]
    assert np.array_equal(federation.model(), fresh.model())


# --- verification ---


def tamper_sum(federation, step):
    federation.transcript.sums.write(step, federation.transcript.sums[step : step + 1] + federation.plan.query.unit)


def tamper_iterate(federation, step):
    federation.transcript.iterates.write(step, federation.transcript.iterates[step : step + 1] + 1e-9)


def tamper_contribution(federation, step):
    federation.clients.held._numbers[federation.clients.members["bob"].slot][step, 0] += 1


def tamper_length(federation, step):
    federation.clients.held._numbers[federation.clients.members["bob"].slot][step] = 2**30


def tamper_count(federation, step):
    federation.clients.held._numbers[federation.clients.members["bob"].slot][step, -1] += 1


def tamper_missing(federation, step):
    federation.clients.held._there[federation.clients.members["bob"].slot][step] = False


def tamper_bit(federation, step):
    federation.transcript.answers.array[step, 1] += 1.0


@pytest.mark.parametrize(
    ("tamper", "found"),
    [(tamper_sum, "sums: row {}"), (tamper_iterate, "iterates: row {}"), (tamper_contribution, "sums: row {}"),
     (tamper_length, "round {}, client 'bob': above the clip"), (tamper_count, "round {}, client 'bob'"),
     (tamper_missing, "contributions: round {} has none of 'bob'"), (tamper_bit, "answers: ")],
)  # fmt: skip
@pytest.mark.parametrize(("made", "step"), [(1, 0), (3, 1), (4, 3)])
def test_verify_finds_what_was_tampered_with_after_any_number_of_rounds(tamper, found, made, step):
    federation = go(begun(), made)
    assert federation.verify().ok
    tamper(federation, step)
    assert any(found.format(step) in problem for problem in federation.verify().problems)


def test_verify_names_a_client_that_was_smuggled_in():
    federation = go(begun(), 3)
    bob = federation.clients.held.history(federation.clients.members["bob"].slot, [1]) * federation.plan.query.unit
    federation.transcript.sums.write(1, federation.transcript.sums[1:2] - bob)
    assert any("record 'bob' was added from outside" in problem for problem in federation.verify().problems)


def test_verify_reports_a_tampered_sum_when_nobody_is_left():
    federation = go(begun())
    federation.forget(TRIO)
    assert go(federation).verify().ok
    federation.transcript.sums.write(0, np.ones((1, 3)))
    assert "sums: row 0" in federation.verify().problems[0]


def test_verify_reports_a_client_all_of_whose_contributions_are_gone():
    federation = go(begun())
    federation.clients.held.erase(federation.clients.members["bob"].slot)
    assert "round 0 has none of 'bob'" in federation.verify().problems[0]


def test_deciding_leaves_alone_what_another_has_staged():
    federation = go(begun(), 2)
    clients, edit = federation.clients, Edit()
    clients.stage(edit)
    leaving = clients.leave([clients.members["bob"]])
    with pytest.raises(BadRecords, match="another change is under way"):
        decide_on(federation.learner, clients, federation.transcript, leaving, Randomness.fresh(), pause=True)
    assert clients.staged is edit


def test_a_departure_of_nobody_is_refused():
    federation = go(begun())
    before = state(federation)
    with pytest.raises(BadRecords, match="give at least one"):
        federation.forget([])
    assert state(federation) == before
