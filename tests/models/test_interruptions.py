"""Requests that fail or are interrupted: finished by the next, with the coins that were tossed for them."""

import copy
import itertools
import pickle
import threading
import time

import numpy as np
import pytest

import expunge.engine.changing
from cases.toys import interrupted, long_but
from expunge.base.errors import BadRecords
from expunge.base.intake import Replace
from expunge.engine.changing import Change, chance_of_replay
from expunge.engine.checks import _state, _state_names, compare
from expunge.models import LinearRegression, LogisticRegression
from expunge.solvers import DualAveraging

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 4)) * 0.4
Y = (X[:, 0] > 0).astype(int)


def assert_sound(model):
    report = model.verify()
    assert report.ok, report.problems


@pytest.mark.parametrize("schedule", long_but(["scattered"], ["scattered", "shuffled"]))
def test_ctrl_c_at_any_line_leaves_a_sound_model_that_goes_on(schedule):
    base = LogisticRegression(rho=1.0, solver=DualAveraging(batch=15, schedule=schedule)).fit(X, Y)
    for line in itertools.count():
        model = copy.deepcopy(base)
        done = interrupted(lambda model=model: model.unlearn([7]), line)
        assert_sound(model)
        assert model.n_records_ in (59, 60)
        model.unlearn([8])
        assert_sound(model)
        if done:
            break
    assert line > 300


def test_ctrl_c_twice_during_a_commit_is_made_up_for(monkeypatch):
    model = LogisticRegression(rho=1.0, solver=DualAveraging(steps=4)).fit(X, Y)
    write, calls = Change._write, []

    def twice(self):
        calls.append(self)
        if len(calls) <= 2:
            raise KeyboardInterrupt
        write(self)

    monkeypatch.setattr(Change, "_write", twice)
    with pytest.raises(KeyboardInterrupt):
        model.unlearn(3)
    assert model.n_records_ == 60
    model.unlearn(4)
    assert model.n_records_ == 58
    assert_sound(model)


def replays_fail(monkeypatch, failing):
    forward = expunge.engine.changing.forward

    def without_memory(*given):
        if failing[0]:
            raise MemoryError
        return forward(*given)

    monkeypatch.setattr(expunge.engine.changing, "forward", without_memory)


def state_after(failing, deletes, runs, forget_the_coins=False):
    few, labels, ids = X[:6, :2], np.array([0, 1, 0, 1, 1, 0]), np.arange(6)
    rows, names = [], []
    for _ in range(runs):
        model = LogisticRegression(
            rho=0.6, solver=DualAveraging(radius=2.0, steps=3), expected_records=6, classes=[0, 1]
        )
        model.fit(few, labels) if deletes else model.fit(few[1:], labels[1:], ids=ids[1:])
        if deletes:
            failing[0] = True
            for _ in range(3):
                try:
                    model.unlearn([0])
                    break
                except MemoryError:
                    if forget_the_coins:
                        model._owner._pending = None
            failing[0] = False
            if model.n_records_ == 6:
                if forget_the_coins:
                    model.unlearn([0])
                else:
                    model._need_fit()
        state = model.plan_.learner, model._records, model.transcript_, ids[1:]
        rows.append(_state(*state))
        names = _state_names(*state)
    return np.array(rows), names


@pytest.mark.long
def test_a_replay_that_fails_and_is_tried_again_is_no_bias(monkeypatch):
    failing = [False]
    replays_fail(monkeypatch, failing)
    changed, names = state_after(failing, True, 1500)
    fresh, _ = state_after(failing, False, 1500)
    assert compare(changed, fresh, names, 0.01).passed


@pytest.mark.long
def test_to_try_again_with_new_coins_would_be_one(monkeypatch):
    failing = [False]
    replays_fail(monkeypatch, failing)
    changed, names = state_after(failing, True, 1500, forget_the_coins=True)
    fresh, _ = state_after(failing, False, 1500)
    assert compare(changed, fresh, names, 0.01).p_value < 1e-6


def test_what_was_begun_survives_a_pickle(monkeypatch):
    failing = [True]
    model = LogisticRegression(rho=1.0, solver=DualAveraging(steps=4)).fit(X, Y)
    replays_fail(monkeypatch, failing)
    with pytest.raises(MemoryError):
        model.unlearn(3)
    other = pickle.loads(pickle.dumps(model))
    failing[0] = False
    for each in (model, other):
        each.unlearn(4)
        assert each.n_records_ == 58
        assert_sound(each)
    assert np.array_equal(model.coef_, other.coef_)


def test_what_is_refused_is_not_tried_again():
    model = LogisticRegression(rho=1.0, solver=DualAveraging(steps=4)).fit(X, Y)
    with pytest.raises(KeyError):
        model.unlearn(99)
    assert model._owner._pending is None
    model.unlearn(4)
    assert model.n_records_ == 59


def test_others_may_predict_while_requests_are_served():
    many = np.tile(X, (50, 1))
    model = LogisticRegression(rho=0.1, solver="dual_averaging").fit(many, np.tile(Y, 50))
    stop, errors = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                model.predict(X[:1])
            except Exception as error:
                errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for first in range(0, 600, 20):
        model.unlearn(np.arange(first, first + 20))
    stop.set()
    reader.join()
    assert not errors
    assert model.n_records_ == 2400
    assert_sound(model)


def test_two_threads_may_ask_at_once():
    model = LogisticRegression(rho=0.5, solver=DualAveraging(steps=4)).fit(X, Y)
    halves = [
        threading.Thread(target=lambda part=part: [model.unlearn(one) for one in part])
        for part in (range(20), range(20, 40))
    ]
    for half in halves:
        half.start()
    for half in halves:
        half.join()
    assert model.n_records_ == 20
    assert_sound(model)


def test_who_waits_while_all_is_fitted_anew_is_served_by_the_new_owner():
    model = LogisticRegression(rho=0.5, solver=DualAveraging(steps=4)).fit(X, Y)
    before, worker = model._owner, threading.Thread(target=lambda: model.unlearn(3))
    with before.lock:
        worker.start()
        time.sleep(0.2)  # until it waits
        model.replan()
    worker.join()
    assert model._owner is not before
    assert 3 not in model.ids_
    assert_sound(model)


def test_a_copy_has_its_own_records():
    model = LogisticRegression(rho=1.0, solver=DualAveraging(steps=4)).fit(X, Y)
    other = copy.copy(model)
    other.unlearn([1])
    assert (model.n_records_, other.n_records_) == (60, 59)
    assert_sound(model)
    assert_sound(other)


def test_verify_notices_a_model_that_is_not_the_transcripts():
    model = LogisticRegression(rho=1.0, solver=DualAveraging(steps=4)).fit(X, Y)
    model.coef_[:] = 7.0
    assert model.verify().problems == ("coef_: does not fit the transcript",)


def test_the_transcript_is_arrays_and_verify_notices_a_change_of_one():
    model = LogisticRegression(rho=0.5, solver=DualAveraging(steps=4)).fit(X, Y)
    assert [type(table) for table in (model.transcript_.sums, model.transcript_.answers)] == [np.ndarray] * 2
    assert model.transcript_.iterates.shape == (4, 5)
    model.transcript_.answers[2, 1] += 1e-9
    assert any("answers" in problem for problem in model.verify().problems)


def test_a_publication_that_fails_is_made_up_for(monkeypatch):
    model = LogisticRegression(rho=1.0, solver=DualAveraging(steps=4)).fit(X, Y)

    def fails(self):
        raise MemoryError

    publish = LogisticRegression._publish
    monkeypatch.setattr(LogisticRegression, "_publish", fails)
    with pytest.raises(MemoryError):
        model.unlearn(3)
    monkeypatch.setattr(LogisticRegression, "_publish", publish)
    assert_sound(model)
    assert model.n_records_ == 59


def test_numpys_numbers_clip_as_well():
    for clip in (2, 2.0, np.int64(2), np.float32(2)):
        model = LinearRegression(solver=DualAveraging(target_range=(-1, 1), clip=clip, radius=400.0), rho=0.1).fit(
            X, X[:, 0]
        )
        assert model.plan_.clip == 2.0
        assert model.replay_probability(range(60)).max() <= 0.1 + 1e-9


def test_subjects_may_be_python_strings():
    names = np.array([f"s{j // 2}" for j in range(60)], dtype=object)
    with pytest.raises(BadRecords, match="'s0' would have 2 records"):
        LogisticRegression(solver="dual_averaging").fit(X, Y, subjects=names)


def test_the_chance_of_a_replacement_is_that_of_the_row_as_it_will_enter():
    model = LogisticRegression(rho=0.1, random_state=0, solver="dual_averaging").fit(X, Y)
    learner, records, transcript = model.plan_.learner, model._records, model.transcript_
    row = X[:1] / np.linalg.norm(X[:1])
    chances = [chance_of_replay(learner, records, transcript, Replace((k * row, [1.0]), [5])) for k in (1, 100)]
    np.testing.assert_allclose(*chances)
    with pytest.raises(BadRecords, match="targets"):
        chance_of_replay(learner, records, transcript, Replace((row, [77.0]), [5]))


def test_ids_may_be_a_set():
    model = LogisticRegression(solver=DualAveraging(steps=4)).fit(X, Y)
    assert model.unlearn({3, 5}).removed == 2


def test_a_generator_goes_on_alike_whether_or_not_a_request_had_to_be_finished(monkeypatch):
    """Else the next request would draw the numbers that have been the coins of the one that was finished."""

    def broken(*given, **more):
        raise MemoryError

    states = []
    for fails in (True, False):
        given = np.random.default_rng(5)
        model = LogisticRegression(random_state=given, rho=0.7, solver=DualAveraging(steps=4)).fit(X[:40], Y[:40])
        with monkeypatch.context() as patch:
            if fails:
                patch.setattr("expunge.engine.owner.decide_on", broken)
                with pytest.raises(MemoryError):
                    model.insert(X[40:41], Y[40:41])
            else:
                model.insert(X[40:41], Y[40:41])
        assert_sound(model)
        assert model.n_records_ == 41
        states.append((given.bit_generator.state, model.coef_.tolist()))
    assert states[0] == states[1]


def test_a_pending_request_does_not_look_at_what_was_given_any_more():
    for number in range(100, 500, 9):
        model = LogisticRegression(rho=0.7, solver=DualAveraging(steps=4), random_state=0).fit(X[:40], Y[:40])
        rows, names = X[40:42].copy(), np.array([90, 91])
        interrupted(lambda model=model, rows=rows, names=names: model.insert(rows, Y[40:42], ids=names), number)
        rows[:] = np.nan
        names[:] = 0
        assert_sound(model)
        if model.n_records_ == 42:
            assert {90, 91} <= set(model._records.all_ids().tolist())


def test_other_threads_see_whole_states():
    model = LogisticRegression(rho=0.5, solver=DualAveraging(steps=16, schedule="shuffled"), expected_records=64).fit(
        X, Y
    )
    stop = threading.Event()

    def serve():
        number = 0
        while not stop.is_set():
            model.unlearn([number])
            model.insert(X[number : number + 1], Y[number : number + 1], ids=[number])
            number = (number + 1) % len(X)

    worker = threading.Thread(target=serve)
    worker.start()
    try:
        for _ in range(15):
            assert_sound(model)
            assert_sound(copy.deepcopy(model))
            assert_sound(pickle.loads(pickle.dumps(model)))
    finally:
        stop.set()
        worker.join()
