"""The engine: learn, change, verify, for every combination of schedule, mechanism and coupling."""

import numpy as np
import pytest

from cases.toys import Swirl, people, state, toy
from expunge import (
    Arrival,
    BinaryTree,
    Delete,
    DualAveragingRule,
    Everyone,
    Gradient,
    GradientDescentRule,
    Identity,
    Insert,
    Learner,
    MemoryRecords,
    PerRecord,
    Replace,
    Scattered,
    Shuffled,
    SquareRoot,
    change,
    insert,
    learn,
    learn_with_outcome,
    replace,
    unlearn,
    verify,
)
from expunge.base.errors import BadContribution, BadIterate, BadPlan, ClippedWarning
from expunge.engine.changing import decide_on, propose
from expunge.engine.couplings.common import replay_probability
from expunge.engine.randomness import Randomness
from expunge.solvers.losses import Logistic

SCHEDULES = [
    Scattered(4),
    Scattered(3, epochs=2),
    Shuffled(1),
    Shuffled(3),
    Arrival(2),
    Everyone(3),
    Everyone(3, 0.5),
]
WAYS = [
    (SquareRoot(), "joint"), (BinaryTree(), "joint"), (BinaryTree(), "sequential"), (BinaryTree("anytime"), "joint"),
    (Identity(), "joint"), (Identity(), "sequential"), (Identity(), "adaptive"),
]  # fmt: skip
COMBINATIONS = [
    (schedule, mechanism, coupling)
    for schedule in SCHEDULES
    for mechanism, coupling in WAYS
    if not (coupling == "adaptive" and schedule.ordered)
]


@pytest.mark.parametrize("sigma", [0.0, 1.5])
@pytest.mark.parametrize(("schedule", "mechanism", "coupling"), COMBINATIONS, ids=str)
def test_after_every_kind_of_request_the_state_verifies_bit_for_bit(schedule, mechanism, coupling, sigma):
    rng = np.random.default_rng(1)
    learner = toy(schedule, mechanism, coupling, sigma)
    for _ in range(4):
        records = people(7, ids=list("abcdefg"), subjects=[0, 0, 1, 2, 3, 3, 4])
        transcript = learn(learner, records, rng)
        new = rng.normal(size=(2, 2))
        for request in (
            Delete(["c"]), Insert((new,), ["a long new name", "h"], [0, 9]), Delete(subjects=[0, 3]),
            Replace((new[:1],), ["h"]), Delete(["d", "g", "h"]), Insert((new,), ["x", "y"], [7, 7]), Delete(["x"]),
        ):  # fmt: skip
            outcome = change(learner, records, transcript, request, rng).commit()
            assert outcome.seconds >= 0
            report = verify(learner, records, transcript)
            assert report.ok, report.problems
            assert transcript.model(learner).shape == (2,)
        assert records.count == 1


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_deletion_goes_down_to_nothing_and_growth_starts_from_nothing(schedule):
    rng = np.random.default_rng(2)
    learner = toy(schedule, BinaryTree())
    records = people(3)
    transcript = learn(learner, records, rng)
    for one in (1, 0, 2):
        unlearn(learner, records, transcript, [one], rng=rng)
        assert verify(learner, records, transcript)
    assert records.count == 0
    assert transcript.steps == schedule.steps(0)
    assert np.isfinite(transcript.model(learner)).all()
    insert(learner, records, transcript, (np.ones((2, 2)),), rng=rng)
    assert verify(learner, records, transcript)
    empty = people(0)
    nothing = learn(learner, empty, rng)
    insert(learner, empty, nothing, (np.ones((5, 2)),), rng=rng)
    assert verify(learner, empty, nothing)


def test_with_no_records_left_the_state_is_a_draw_of_training_on_nothing():
    rng = np.random.default_rng(3)
    learner, records = toy(), people(1)
    transcript = learn(learner, records, rng)
    unlearn(learner, records, transcript, [0], rng=rng)
    assert not transcript.sums[:].any()
    assert transcript.answers[:].all()  # noise only


def test_without_noise_the_state_after_a_deletion_is_the_fresh_one_bit_for_bit():
    rng = np.random.default_rng(4)
    for schedule in (Arrival(2), Everyone(3)):
        learner = toy(schedule, BinaryTree(), sigma=0.0)
        records = people(9)
        transcript = learn(learner, records, rng)
        unlearn(learner, records, transcript, [3, 8], rng=rng)
        left = MemoryRecords((np.concatenate([records.batch_at(p)[0] for p in range(len(records.places))]),))
        fresh = learn(learner, left, rng)
        for mine, theirs in zip(
            (transcript.sums, transcript.answers, transcript.iterates), (fresh.sums, fresh.answers, fresh.iterates),
            strict=True,
        ):  # fmt: skip
            assert np.array_equal(mine[:], theirs[:])


@pytest.mark.parametrize("schedule", [Everyone(3), Scattered(4)], ids=["everyone", "scattered"])
def test_without_noise_and_prefix_sums_answers_and_sums_are_one_table(schedule):
    rng = np.random.default_rng(4)
    learner, records = toy(schedule, Identity(), sigma=0.0), people(9)
    transcript = learn(learner, records, rng)
    assert transcript.answers is transcript.sums
    unlearn(learner, records, transcript, [3, 8], rng=rng)
    assert verify(learner, records, transcript).ok
    noisy = learn(toy(schedule, Identity()), people(9), rng)
    assert noisy.answers is not noisy.sums


def test_a_kept_deletion_leaves_answers_iterates_and_model_as_they_are():
    rng = np.random.default_rng(5)
    learner, records = toy(sigma=50.0), people(40)
    transcript = learn(learner, records, rng)
    before = (np.array(transcript.answers), np.array(transcript.iterates), transcript.model(learner))
    outcome = unlearn(learner, records, transcript, [17], rng=rng)
    assert outcome.kept
    for old, new in zip(before, (transcript.answers, transcript.iterates, transcript.model(learner)), strict=True):
        assert np.array_equal(old, new)


def test_the_outcome_tells_what_was_done():
    rng = np.random.default_rng(6)
    learner, records = toy(Scattered(1), sigma=30.0), people(20)
    transcript, learned = learn_with_outcome(learner, records, rng)
    assert (learned.added, learned.evaluations, learned.replayed_from) == (20, 20, 0)
    shift = np.linalg.norm(np.tanh(1.5 * records.batch_at(0)[0][records.ids_at(0) == 4]))
    outcome = unlearn(learner, records, transcript, [4], rng=rng)
    assert (outcome.removed, outcome.added, outcome.kept, outcome.above_bound) == (1, 0, True, 0)
    assert outcome.evaluations == 19
    assert outcome.replay_probability == pytest.approx(replay_probability(shift / 30.0))


def test_on_a_grid_a_kept_deletion_evaluates_the_leaving_record_only():
    rng = np.random.default_rng(7)
    learner, records = toy(Everyone(5), Identity(), "sequential", sigma=1000.0), people(50)
    transcript = learn(learner, records, rng)
    outcome = unlearn(learner, records, transcript, [4], rng=rng)
    assert outcome.kept
    assert outcome.evaluations == 5


def test_a_bulk_takes_at_most_one_forward_pass():
    rng = np.random.default_rng(8)
    learner, records = toy(Scattered(200), sigma=0.5), people(1000)
    transcript, learned = learn_with_outcome(learner, records, rng)
    outcome = unlearn(learner, records, transcript, np.arange(0, 1000, 2), rng=rng)
    assert not outcome.kept
    assert outcome.evaluations <= learned.evaluations + 500 + 10  # every record once, and the first touched step twice
    assert verify(learner, records, transcript)


def test_many_touched_steps_are_decided_as_one_by_one(monkeypatch):
    from expunge.engine.couplings import joint

    def run(group):
        monkeypatch.setattr(joint._Group, "SIZE", group)
        rng = np.random.default_rng(9)
        learner, records = toy(Scattered(300), sigma=4.0), people(900)
        transcript = learn(learner, records, rng)
        outcome = unlearn(learner, records, transcript, np.arange(0, 900, 3), rng=rng)
        return outcome.replayed_from, np.array(transcript.answers)

    (one, answers), (other, same) = run(1), run(64)
    assert one == other
    np.testing.assert_allclose(answers, same, rtol=1e-9, atol=1e-9)


def test_the_same_generator_state_gives_the_same_change_so_that_a_crash_can_be_repeated():
    learner = toy(sigma=0.7)
    records = people(12)
    transcript = learn(learner, records, np.random.default_rng(10))
    results = []
    for _ in range(2):
        decided = change(learner, records, transcript, Delete([3, 7]), np.random.default_rng(77))
        results.append((decided.outcome.replayed_from, None if decided.staged is None else decided.staged.answers))
        decided.rollback()
    assert results[0][0] == results[1][0]
    assert np.array_equal(results[0][1], results[1][1])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_rolled_back_change_leaves_everything_as_it_was_to_the_last_bit(schedule):
    rng = np.random.default_rng(11)
    learner = toy(schedule, BinaryTree(), sigma=0.5)
    records = people(9)
    transcript = learn(learner, records, rng)
    before = state(records, transcript)
    for request in (
        Delete([1]),
        Delete([0, 5, 8]),
        Insert((np.ones((4, 2)),)),
        Replace((np.ones((1, 2)),), [2]),
    ):
        change(learner, records, transcript, request, rng).rollback()
        assert state(records, transcript) == before
        assert verify(learner, records, transcript)


@pytest.mark.parametrize("failing", [BadIterate, KeyboardInterrupt])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_an_error_in_the_middle_of_a_replay_leaves_everything_as_it_was(schedule, failing):
    class Breaking(DualAveragingRule):
        armed = False

        def step(self, step, path, answer):
            if Breaking.armed and step >= 1:
                if failing is BadIterate:
                    return np.full(2, np.nan)
                raise KeyboardInterrupt
            return super().step(step, path, answer)

    rng = np.random.default_rng(12)
    learner = toy(schedule, BinaryTree(), sigma=0.05, rule=Breaking(np.zeros(2), 0.4))
    records = people(9)
    Breaking.armed = False
    transcript = learn(learner, records, rng)
    before = state(records, transcript)
    Breaking.armed = True
    for request in (Delete([0, 3, 5]), Insert((np.ones((4, 2)),))):
        with pytest.raises(failing):
            change(learner, records, transcript, request, rng)
        assert state(records, transcript) == before


def test_replacing_changes_the_content_and_nothing_else():
    rng = np.random.default_rng(13)
    learner, records = toy(), people(8)
    transcript = learn(learner, records, rng)
    outcome = replace(learner, records, transcript, (np.full((1, 2), 0.25),), [5], rng=rng)
    assert (outcome.removed, outcome.added, records.count) == (1, 1, 8)
    place, slot = (part.item() for part in records.locate([5]))
    assert records.batch_at(place)[0][slot].tolist() == [0.25, 0.25]
    assert verify(learner, records, transcript)


def test_a_plain_function_of_one_record_learns_what_the_batched_query_learns():
    single = PerRecord(lambda step, path, x: np.tanh(1.5 * x - path[-1][::-1]), size=2, bound=2**0.5)
    models = []
    for query in (Swirl(), single):
        records = people(10)
        transcript = learn(toy(query=query), records, np.random.default_rng(14))
        unlearn(toy(query=query), records, transcript, [3], rng=np.random.default_rng(15))
        models.append(transcript.model(toy()))
    np.testing.assert_allclose(*models)


def test_logistic_regression_learns_and_forgets():
    rng = np.random.default_rng(16)
    truth = np.array([1.0, -2.0, 0.5])
    features = rng.normal(size=(4000, 3))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    labels = np.where(rng.random(4000) < 1 / (1 + np.exp(-6 * features @ truth)), 1.0, -1.0)
    learner = Learner(Scattered(64), Gradient(Logistic(), 3), DualAveragingRule(np.zeros(3), 0.3), SquareRoot(), 3.0)
    records = MemoryRecords((features, labels))
    transcript = learn(learner, records, rng)
    unlearn(learner, records, transcript, np.arange(100), rng=rng)
    assert verify(learner, records, transcript)
    model = transcript.model(learner)
    assert np.mean(np.sign(features @ model) == labels) > 0.8


def test_progress_can_be_watched():
    seen = []
    learn(toy(), people(5), np.random.default_rng(17), watch=seen.append)
    assert seen == [1, 2, 3, 4]


def test_selectors_make_the_model():
    records = people(6)
    transcript = learn(toy(), records, np.random.default_rng(18))
    path = np.vstack([np.zeros(2), transcript.iterates[:]])
    np.testing.assert_allclose(transcript.model(toy()), path[2:].mean(axis=0))
    np.testing.assert_allclose(transcript.model(toy(selector="average")), path.mean(axis=0))
    np.testing.assert_allclose(transcript.model(toy(selector="last")), path[-1])
    np.testing.assert_allclose(transcript.model(toy(selector=lambda p: p[1])), path[1])


# --- plans that cannot be ---


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: toy(sigma=-1.0), "sigma"),
        (lambda: toy(sigma=float("nan")), "sigma"),
        (lambda: toy(coupling="sequential"), "SquareRoot"),
        (lambda: toy(coupling="adaptive"), "Identity"),
        (lambda: toy(Shuffled(2), Identity(), "adaptive"), "fixed number of steps"),
        (lambda: toy(coupling="other"), "coupling"),
        (lambda: toy(selector="best"), "selector"),
        (lambda: toy(query=PerRecord(lambda *_: np.zeros(2), 2, 0.0)), "bound"),
    ],
)
def test_refused_pairings_say_why(make, match):
    with pytest.raises(BadPlan, match=match):
        make()


class Loud(Swirl):
    bound = 0.01


def test_contributions_above_the_bound_are_counted_where_only_the_cost_depends_on_it():
    learner, records = toy(query=Loud()), people(10)
    transcript, learned = learn_with_outcome(learner, records, np.random.default_rng(19))
    assert learned.above_bound == 10
    assert unlearn(learner, records, transcript, [2], rng=np.random.default_rng(20)).above_bound >= 1
    assert verify(learner, records, transcript)


@pytest.mark.parametrize("schedule", [Everyone(2), Scattered(2)])
def test_contributions_above_the_bound_count_with_it_where_the_adaptive_coupling_relies_on_it(schedule):
    learner, records = toy(schedule, Identity(), "adaptive", query=Loud()), people(3)
    with pytest.warns(ClippedWarning, match=r"above query\.bound=0\.01"):
        transcript = learn(learner, records, np.random.default_rng(21))
    assert np.linalg.norm(transcript.sums[:], axis=1).max() <= 3 * 0.01 * (1 + 1e-6)
    outcome = insert(learner, records, transcript, (np.full((1, 2), 9.0),), rng=np.random.default_rng(23))
    assert outcome.above_bound >= 1
    assert verify(learner, records, transcript).ok


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda step, path, x: np.full(2, np.nan), "NaN"),
        (lambda step, path, x: np.full(2, np.inf), "NaN or infinity"),
        (lambda step, path, x: np.zeros(2 + step), "size=2"),
    ],
)
def test_a_query_that_misbehaves_is_named(function, match):
    records = people(40)
    with pytest.raises(BadContribution, match=match):
        learn(toy(query=PerRecord(function, 2, 1.0)), records, np.random.default_rng(24))
    assert verify(toy(), records, learn(toy(), records, np.random.default_rng(24)))  # the records are as before
    with pytest.raises(BadContribution):
        learn(toy(Everyone(3), query=PerRecord(function, 2, 1.0)), people(4), np.random.default_rng(25))


def test_a_fast_total_of_the_wrong_size_is_named():
    class Wrong(Swirl):
        def total(self, step, path, batch):
            return np.zeros(3), 0

    with pytest.raises(BadContribution, match="total"):
        learn(toy(query=Wrong()), people(4), np.random.default_rng(26))


def test_a_rule_that_returns_nan_is_named():
    class Wild(DualAveragingRule):
        def step(self, step, path, answer):
            return np.full(2, np.nan)

    with pytest.raises(BadIterate, match="step 0"):
        learn(toy(rule=Wild(np.zeros(2), 1.0)), people(4), np.random.default_rng(27))


def test_sums_too_large_for_the_grid_are_refused():
    with pytest.raises(BadContribution, match="grid"):
        learn(
            toy(Everyone(2), query=PerRecord(lambda s, p, x: x * 1e12, 2, 1.0)),
            people(4),
            np.random.default_rng(28),
        )


def test_without_noise_a_record_that_contributes_nothing_leaves_sums_and_answers_in_agreement():
    rng = np.random.default_rng(29)
    query = PerRecord(lambda step, path, x: x, 2, 10.0)
    for seed in range(40):
        features = np.random.default_rng(seed).normal(size=(9, 2))
        features[4] = 0.0
        learner, records = toy(Scattered(1), sigma=0.0, query=query), MemoryRecords((features,))
        transcript = learn(learner, records, rng)
        unlearn(learner, records, transcript, [4], rng=rng)
        assert verify(learner, records, transcript)


def test_gradients_over_everyone_are_summed_exactly_whatever_the_batch():
    rng = np.random.default_rng(30)
    features = rng.normal(size=(3000, 7))
    features /= np.linalg.norm(features, axis=1)[:, None]
    labels = np.where(rng.random(3000) < 0.5, 1.0, -1.0)
    rule = GradientDescentRule(np.zeros(7), 1e-3)
    learner = Learner(Everyone(3, bits=40), Gradient(Logistic(), 7), rule, Identity(), 200.0, "sequential")
    records = MemoryRecords((features, labels))
    transcript = learn(learner, records, rng)
    for one in range(60):
        unlearn(learner, records, transcript, [one], rng=rng)
    assert verify(learner, records, transcript)


def test_more_records_than_the_grid_holds_are_refused_before_any_coin():
    learner = toy(Everyone(2, bits=45), Identity(), "sequential", sigma=1000.0)
    records = people(150)
    transcript = learn(learner, records, np.random.default_rng(31))
    before = state(records, transcript)
    with pytest.raises(BadPlan, match="fewer bits"):
        insert(learner, records, transcript, (np.ones((300, 2)),), rng=np.random.default_rng(32))
    assert state(records, transcript) == before


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_an_arrival_costs_at_most_a_step_of_evaluations_and_no_replay(batch):
    rng = np.random.default_rng(33)
    learner, records = toy(Arrival(batch), BinaryTree()), people(8)
    transcript = learn(learner, records, rng)
    for _ in range(9):
        outcome = insert(learner, records, transcript, (rng.normal(size=(1, 2)),), rng=rng)
        assert outcome.kept
        assert outcome.evaluations <= batch
        assert verify(learner, records, transcript)


def test_iterates_must_be_flat():
    with pytest.raises(BadPlan, match="flatten"):
        toy(rule=DualAveragingRule(np.zeros((2, 2)), 0.1))


@pytest.mark.parametrize("schedule", [Scattered(80), Shuffled(2), Scattered(30, epochs=3)], ids=str)
def test_bulks_are_decided_alike_with_tables_and_without(schedule, monkeypatch):
    states = []
    for limit in (2048, 0):
        monkeypatch.setattr("expunge.engine.mechanisms.square_root.TABLE_LIMIT", limit)
        rng = np.random.default_rng(8)
        learner, records = toy(schedule, sigma=6.0), people(240)
        transcript = learn(learner, records, rng)
        kept = [
            unlearn(learner, records, transcript, np.arange(first, first + 60), rng=rng).replayed_from
            for first in (0, 60, 120)
        ]
        states.append((kept, transcript.answers[:].copy(), transcript.sums[:].copy()))
        assert verify(learner, records, transcript).ok
    assert states[0][0] == states[1][0]
    np.testing.assert_allclose(states[0][1], states[1][1], atol=1e-9)
    np.testing.assert_allclose(states[0][2], states[1][2], atol=1e-9)


@pytest.mark.parametrize(
    ("mechanism", "coupling"), [(BinaryTree(), "sequential"), (SquareRoot(), "joint"), (Identity(), "joint")]
)
def test_a_replay_pauses_only_where_later_rows_can_be_made_anew(mechanism, coupling):
    learner, records = toy(Everyone(3), mechanism, coupling=coupling), people(4)
    rng = np.random.default_rng(0)
    transcript = learn(learner, records, rng)
    before = state(records, transcript)
    edit = propose(learner, records, Delete([1]), Randomness.of(rng))
    with pytest.raises(BadPlan, match="a replay can only pause"):
        decide_on(learner, records, transcript, edit, Randomness.fresh(), pause=True)
    assert state(records, transcript) == before
    assert records.staged is None
