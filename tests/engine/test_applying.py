"""Requests and streams of them: what is merged, where bulks end, what an error leaves behind."""

import copy
import itertools
import math
import pickle
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import expunge.engine.changing
from cases.in_solver import in_solver
from cases.toys import interrupted, people, state, toy
from expunge import BinaryTree, Identity, LinearSVC, LogisticRegression, learn, verify
from expunge.base.errors import (
    BadContribution,
    BadPlan,
    BadRecords,
    DuplicateId,
    ExpungeError,
    RequestFailed,
    UnknownId,
)
from expunge.base.intake import Delete, Insert, Replace
from expunge.engine.changing import change
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import Randomness
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.schedules import Arrival, Everyone, Scattered, Shuffled
from expunge.engine.streams import Applied, apply
from expunge.solvers import DualAveraging

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 3)) * 0.2
Y = (X[:, 0] > 0).astype(int)


def fitted(count=20, ids=None, subjects=None, **given):
    return LogisticRegression(**in_solver(**{"rho": 0.5, "steps": 4, **given})).fit(X[:count], Y[:count], ids, subjects)


def contents(model):
    """Which records the model has: id -> row (as it was given: all are short)."""
    places = range(len(model._records.places))
    return {
        one: tuple(row)
        for place in places
        for one, row in zip(
            model._records.ids_at(place).tolist(), model._records.batch_at(place)[0].tolist(), strict=True
        )
    }


def assert_sound(model):
    report = model.verify()
    assert report.ok, report.problems


class Fake:
    """A model that only keeps records, and remembers the bulks that it was given."""

    def __init__(self, count=0):
        self.rows = {j: j for j in range(count)}
        self.bulks = []

    def prepare_request(self, request):
        if isinstance(request, Delete):
            return Delete(np.atleast_1d(request.ids), None, request.missing, request.at)
        rows = np.asarray(request.columns[0])
        if (rows < 0).any():
            raise ValueError("columns: negative")
        ids = None if request.ids is None else np.asarray(request.ids)
        return type(request)((rows,), ids, None, at=request.at)

    def serve_request(self, prepared):
        rows = dict(self.rows)
        try:
            names = prepared.ids.tolist()
            if isinstance(prepared, Delete):
                for name in names:
                    if name in rows or prepared.missing == "error":
                        del rows[name]
                changed = len(self.rows) - len(rows)
            else:
                changed = len(names)
                for name, row in zip(names, prepared.columns[0].tolist(), strict=True):
                    if (name in rows) == isinstance(prepared, Insert):
                        raise KeyError(name)
                    rows[name] = row
        except KeyError as error:
            refusal = UnknownId(f"ids: no {error}")
            refusal.refused = True
            raise refusal from error
        self.rows = rows
        self.bulks.append((type(prepared), names))
        removed = 0 if isinstance(prepared, Insert) else changed
        added = 0 if isinstance(prepared, Delete) else changed
        return Outcome(removed, added, None, 0, 0, 0.0, 0.0)


def new(*ids, at=None):
    return Insert((list(ids),), list(ids), at=at)


# --- one request ----------------------------------------------------------------------------------------

SETTINGS = [
    {}, {"schedule": Scattered(3, epochs=2)}, {"schedule": Shuffled(2)}, {"schedule": Arrival(3)},
    {"schedule": Everyone(3), "mechanism": Identity()}, {"schedule": Shuffled(1), "mechanism": BinaryTree()},
]  # fmt: skip


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_a_deletion_of_what_is_not_there_changes_nothing_and_draws_nothing(given):
    learner, records = toy(**given), people(8, subjects=np.arange(8) // 2)
    transcript = learn(learner, records, np.random.default_rng(1))
    before, randomness = state(records, transcript), Randomness(bytes(32))
    for request in (Delete([50, 51], missing="ignore"), Delete(subjects=[9, 9], missing="ignore"), Delete([])):
        outcome = change(learner, records, transcript, request, randomness).commit()
        assert (outcome.removed, outcome.added, outcome.kept, outcome.evaluations) == (0, 0, True, 0)
    assert state(records, transcript) == before
    for stream in ("layout", "noise", "coins"):
        assert getattr(randomness, stream).random() == getattr(Randomness(bytes(32)), stream).random()


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_what_is_there_goes_and_the_rest_is_passed_over(given):
    learner, records = toy(**given), people(8, ids=[f"r{j}" for j in range(8)], subjects=np.arange(8) // 2)
    transcript, rng = learn(learner, records, np.random.default_rng(1)), np.random.default_rng(2)
    for request, removed in (
        (Delete(["r0", "r9", "r0", "r5"], missing="ignore"), 2),
        (Delete(["r0"], missing="ignore"), 0),
        (Delete(subjects=[7, 0, 3, 0], missing="ignore"), 3),
    ):
        assert change(learner, records, transcript, request, rng).commit().removed == removed
        assert verify(learner, records, transcript)
    assert set(records.all_ids().tolist()) == {"r2", "r3", "r4"}
    with pytest.raises(UnknownId, match="this model's ids are strings"):  # not missing: mistaken
        change(learner, records, transcript, Delete([3], missing="ignore"), rng)


def test_without_subjects_each_record_is_its_own():
    learner, records = toy(), people(4)
    transcript, rng = learn(learner, records, np.random.default_rng(1)), np.random.default_rng(2)
    assert change(learner, records, transcript, Delete(subjects=[1, 7], missing="ignore"), rng).commit().removed == 1
    change(learner, records, transcript, Replace((np.ones((1, 2)),), subjects=[2]), rng).commit()
    assert records.audit() == []


def test_hashes_that_collide_are_told_apart(monkeypatch):
    monkeypatch.setattr("expunge.engine.records.lookup.hashes", lambda ids, key: np.zeros(len(ids), dtype=np.uint64))
    monkeypatch.setattr("expunge.engine.records.lookup.hash_one", lambda ids, key: 0)
    learner, records = toy(), people(6)
    transcript, rng = learn(learner, records, np.random.default_rng(1)), np.random.default_rng(2)
    assert change(learner, records, transcript, Delete([3, 9, 4, 3], missing="ignore"), rng).commit().removed == 2
    with pytest.raises(UnknownId, match="not found: 4"):
        change(learner, records, transcript, Delete([0, 4]), rng)
    assert sorted(records.all_ids().tolist()) == [0, 1, 2, 5]


@pytest.mark.parametrize("missing", ["no", None, True, "Ignore"], ids=str)
def test_missing_is_one_of_two_words(missing):
    with pytest.raises(BadRecords, match=r"^missing=.*'error', or 'ignore'"):
        Delete([1], missing=missing)
    with pytest.raises(BadRecords, match=r"^missing="):
        fitted().unlearn([1], missing=missing)


def test_an_estimator_passes_over_what_is_missing():
    model = fitted(subjects=np.arange(20) // 2, records_per_subject=2)
    assert model.unlearn([3, 3, 77], missing="ignore").removed == 1
    before = state(model._records, model.transcript_), model.coef_
    assert model.unlearn(3, missing="ignore").removed == 0
    assert model.unlearn(subjects=99, missing="ignore").removed == 0
    assert state(model._records, model.transcript_) == before[0]
    assert model.coef_ is before[1]
    assert model.unlearn(subjects=[1, 0], missing="ignore").removed == 3
    with pytest.raises(UnknownId):
        model.unlearn(3)
    assert_sound(model)


def test_a_replacement_by_subject_needs_subjects_of_one_record():
    model = fitted(subjects=[f"s{max(j, 2)}" for j in range(20)], records_per_subject=3)
    outcome = model.replace(X[30:32], Y[30:32], subjects=["s7", "s5"])
    assert (outcome.removed, outcome.added) == (2, 2)
    assert contents(model)[7] == tuple(X[30])
    assert contents(model)[5] == tuple(X[31])
    for subjects, error, match in (
        (["s5", "s2"], BadRecords, "^subjects: 's2' has 3 records; give the ids of those to replace"),
        (["s5", "s99"], UnknownId, "^subjects: subject not found: 's99'"),
        (["s5", "s5"], DuplicateId, "duplicate id 's5'"),
        (["s5"], BadRecords, "^subjects: 1 for 2 records"),
    ):
        with pytest.raises(error, match=match):
            model.replace(X[:2], Y[:2], subjects=subjects)
    with pytest.raises(BadRecords, match="either ids or subjects, to say which records to replace"):
        model.replace(X[:2], Y[:2])
    with pytest.raises(BadRecords, match="fitted without subjects"):
        fitted().replace(X[:1], Y[:1], subjects=[3])
    model.replace(X[30:31], Y[30:31], subjects="s9")
    assert_sound(model)


def test_an_id_that_was_deleted_may_come_back():
    model = fitted(ids=[f"r{j}" for j in range(20)])
    for _ in range(3):
        model.unlearn("r3")
        model.insert(X[40:41], Y[40:41], ids=["r3"])
    assert contents(model)["r3"] == tuple(X[40])
    assert model.n_records_ == 20
    assert_sound(model)


def test_a_prepared_request_is_checked_and_encoded_and_nothing_has_changed():
    model = fitted()
    before = state(model._records, model.transcript_)
    prepared = model.prepare_request(Insert((X[:2].tolist(), [0, 1]), at=5))
    np.testing.assert_array_equal(prepared.columns[0], X[:2])
    assert prepared.columns[1].tolist() == [-1.0, 1.0]
    assert (prepared.ids, prepared.subjects, prepared.at) == (None, None, 5)
    gone = model.prepare_request(Delete({3, 5}, missing="ignore", at=6))
    assert (gone.ids.tolist(), gone.missing, gone.at) == ([3, 5], "ignore", 6)
    assert state(model._records, model.transcript_) == before
    assert not model.has_begun(gone)
    assert model.serve_request(gone).removed == 2
    assert model.has_begun(gone)
    assert not model.has_begun(prepared)
    for bad, match in (
        (Insert((X[:2], Y[:2]), ids=[50]), "^ids: 1 for 2 records"),
        (Insert((X[:2],)), r"^columns: expected \(X, y\), got 1"),
        (Insert((X[:1], [7])), "^y: 7 is not one"),
        (Delete([1.5]), "^ids: ids must be integers or strings"),
        (Delete([1], [2]), "either ids or subjects"),
        ("delete 3", "^request: expected an Insert, a Delete or a Replace, got str"),
    ):
        with pytest.raises(BadRecords, match=match):
            model.prepare_request(bad)


def test_requests_are_validated_once(monkeypatch):
    import expunge.models.supervised as base

    calls, validate = [], base.validate_data
    monkeypatch.setattr(base, "validate_data", lambda *given, **more: calls.append(1) or validate(*given, **more))
    model = fitted()
    model.insert(X[:1].tolist(), Y[:1])
    assert len(calls) == 1
    model.insert(X[1:2], Y[1:2])
    assert len(calls) == 1  # arrays of numbers are as they should be
    with pytest.raises(BadRecords, match="X: row 0 has NaN"):
        model.insert(np.full_like(X[:1], np.nan), Y[:1])
    assert len(calls) == 1


def test_the_warning_that_nothing_is_left_points_at_the_callers_line():
    X, Y = globals()["X"][:4], [0, 1, 0, 1]
    for act in (
        lambda model: model.unlearn([0, 1, 2, 3]),
        lambda model: apply(model, [Delete([0, 1]), Delete([2, 3])]),
        lambda model: model.serve_request(model.prepare_request(Delete([0, 1, 2, 3]))),
    ):
        model = LogisticRegression(solver="dual_averaging").fit(X, Y)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            act(model)
            model.unlearn([], missing="ignore")
        assert [warning.filename for warning in caught] == [__file__]


# --- streams: what is merged ----------------------------------------------------------------------------


def test_consecutive_requests_of_one_kind_are_one_bulk():
    fake = Fake(6)
    stream = [Delete([1]), Delete([2, 3]), new(8), new(9, 10), Replace(([7],), [8]), Delete([9]), Delete([0])]
    applied = apply(fake, stream)
    assert fake.bulks == [(Delete, [1, 2, 3]), (Insert, [8, 9, 10]), (Replace, [8]), (Delete, [9, 0])]
    assert applied == Applied(7, 4, 3, 5, 1, 0, 0, applied.seconds)
    assert fake.rows == {4: 4, 5: 5, 8: 7, 10: 10}


def test_a_bulk_has_at_most_so_many_records_and_a_larger_request_goes_alone():
    fake = Fake(20)
    apply(fake, [Delete([0]), Delete([1, 2]), Delete([3]), Delete([4, 5, 6, 7, 8]), Delete([9])], bulk=3)
    assert [names for _, names in fake.bulks] == [[0, 1, 2], [3], [4, 5, 6, 7, 8], [9]]


def test_the_stream_is_read_as_it_is_served():
    fake, read = Fake(100), []

    def stream():
        for j in range(100):
            read.append(j)
            assert len(read) - sum(len(names) for _, names in fake.bulks) <= 8
            yield Delete([j])

    apply(fake, stream(), bulk=7)
    assert len(read) == 100
    empty = Fake()
    apply(empty, itertools.islice(itertools.repeat(Delete([])), 10), bulk=3)  # even those do not pile up
    assert len(empty.bulks) == 4


def test_with_a_clock_bulks_end_where_its_windows_do():
    fake = Fake(20)
    times = [0, 9.9, 10, 10.5, -0.1, 25, 29, np.float64(31), 30]
    apply(fake, [Delete([j], at=at) for j, at in enumerate(times)], every=10)
    assert [names for _, names in fake.bulks] == [[0, 1], [2, 3], [4], [5, 6], [7, 8]]


@pytest.mark.parametrize("at", [None, "now", math.nan, math.inf, np.datetime64("2024-01-01")], ids=str)
def test_with_a_clock_every_request_needs_its_time(at):
    fake = Fake(4)
    with pytest.raises(RequestFailed, match=r"^request 1 \(Delete\): at=.*with every=10 each request needs") as caught:
        apply(fake, [Delete([0], at=1), Delete([1], at=at), Delete([2], at=2)], every=10)
    assert caught.value.number == caught.value.done == 1
    assert set(fake.rows) == {1, 2, 3}
    assert apply(fake, [Delete([1], at=at)]).deleted == 1  # without one it does not matter


def test_only_requests_of_one_form_are_merged():
    model = fitted(12, ids=[f"r{j}" for j in range(12)], subjects=np.arange(12) // 2, records_per_subject=4)
    rows = [X[j : j + 1] for j in range(20, 40)]
    targets = [Y[j : j + 1] for j in range(20, 40)]
    outcomes = []
    stream = [
        Delete(["r0"]), Delete(subjects=[1]), Delete(subjects=[2]), Delete(["r1"], missing="ignore"),
        Insert((rows[0], targets[0]), ["a"], [50]), Insert((rows[1], targets[1]), ["b"], [50]),
        Insert((sparse.csr_array(rows[2]), targets[2]), ["c"], [51]),
        Insert((sparse.csc_matrix(rows[3]), targets[3]), ["d"], [51]),
        Replace((rows[4], targets[4]), ["a"]), Replace((rows[5], targets[5]), ["b"]),
        Replace((rows[6], targets[6]), ["a"]), Replace((rows[7], targets[7]), subjects=[52]),
    ]  # fmt: skip
    stream.insert(8, Insert((rows[8], targets[8]), ["e"], [52]))
    applied = apply(model, stream, watch=outcomes.append)
    assert [(one.removed, one.added) for one in outcomes] == [
        (1, 0), (4, 0), (1, 0), (0, 5), (2, 2), (1, 1), (1, 1),
    ]  # fmt: skip
    assert (applied.deleted, applied.inserted, applied.replaced, applied.bulks) == (6, 5, 4, 7)
    have = contents(model)
    assert [have[name] for name in "abcde"] == [tuple(rows[j][0]) for j in (6, 5, 2, 3, 7)]
    assert_sound(model)


def test_sparse_requests_are_merged():
    model = LinearSVC(rho=0.5, classes=[0, 1], solver="dual_averaging").fit(sparse.csr_array(X[:20]), Y[:20])
    forms = (sparse.csr_array, sparse.csc_array, sparse.csr_matrix)
    stream = [Insert((forms[j % 3](X[j : j + 2]), Y[j : j + 2])) for j in range(20, 40, 2)]
    assert apply(model, stream).bulks == 1
    there = {j: np.asarray(model._records.batch_at(place)[0][[slot]].todense()).ravel()
             for place in range(len(model._records.places))
             for slot, j in enumerate(model._records.ids_at(place).tolist())}  # fmt: skip
    for j in range(40):
        np.testing.assert_array_equal(there[j], X[j])
    assert_sound(model)


def test_ids_of_another_type_are_never_joined():
    model = fitted(2, classes=[0, 1])
    with pytest.warns(UserWarning, match="every record"):
        model.unlearn([0, 1])
    with pytest.raises(RequestFailed, match=r"^request 1 \(Insert\): ids: this model's ids are integers"):
        apply(model, [Insert((X[:1], Y[:1]), [1]), Insert((X[:1], Y[:1]), ["a"])])
    assert contents(model) == {1: tuple(X[0])}


def test_missing_holds_for_all_deletions_if_it_is_given():
    fake = Fake(4)
    assert apply(fake, [Delete([0]), Delete([0]), Delete([9])], missing="ignore").deleted == 1
    with pytest.raises(RequestFailed, match="request 0"):
        apply(fake, [Delete([0], missing="ignore")], missing="error")
    assert apply(fake, [Delete([0], missing="ignore"), Delete([1])]).deleted == 1


def test_a_bulk_that_replays_is_counted_and_outcomes_are_watched():
    model, outcomes = fitted(rho=1.0), []
    applied = apply(model, [Delete([1]), Delete([2]), Insert((X[30:31], Y[30:31]))], watch=outcomes.append)
    assert applied.replays == sum(not one.kept for one in outcomes) == 2
    assert applied.evaluations == sum(one.evaluations for one in outcomes) > 0
    assert applied.seconds > 0


def test_an_empty_stream_does_nothing():
    applied = apply(Fake(), iter(()))
    assert applied == Applied(0, 0, 0, 0, 0, 0, 0, applied.seconds)


@pytest.mark.parametrize(
    ("given", "match"),
    [({"bulk": 0}, "^bulk=0"), ({"bulk": 1.5}, "^bulk=1.5"), ({"bulk": None}, "^bulk=None"), ({"bulk": -3}, "^bulk"),
     ({"every": 0}, "^every=0"), ({"every": -1.0}, "^every"), ({"every": math.inf}, "^every"), ({"every": "1h"}, "^ev"),
     ({"missing": "no"}, "^missing='no': give 'error' or 'ignore'")],
    ids=str,
)  # fmt: skip
def test_bad_arguments_are_refused_by_name(given, match):
    fake = Fake(3)
    with pytest.raises(BadPlan, match=match):
        apply(fake, [Delete([0])], **given)
    assert len(fake.rows) == 3


def test_progress_is_shown(capsys):
    apply(Fake(5), [Delete([j]) for j in range(5)], bulk=2, progress=True)
    assert "5/5" in capsys.readouterr().err
    apply(Fake(5), (Delete([j]) for j in range(5)), bulk=2, progress=True)
    assert "5/?" in capsys.readouterr().err


def test_progress_without_rich_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    fake = Fake(5)
    with pytest.raises(BadPlan, match=r"pip install 'expunge\[progress\]'"):
        apply(fake, [Delete([1])], progress=True)
    assert len(fake.rows) == 5


# --- streams: what fails --------------------------------------------------------------------------------


def some_deletes(*ids):
    return [Delete([one]) for one in ids]


@pytest.mark.parametrize("bulk", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("stream", "number", "cause", "match", "left"),
    [
        (some_deletes(0, 1, 77, 3), 2, UnknownId, "id not found: 77", 18),
        (some_deletes(0, 1, 2, 1, 3), 3, UnknownId, "id not found: 1;", 17),
        (some_deletes(99, 1), 0, UnknownId, "Nothing was done", 20),
        ([Delete([0]), Delete([1, 1])], 1, DuplicateId, "request before it is done", 19),
        ([Delete([0]), Insert((X[:1, :2], Y[:1])), Delete([1])], 1, ValueError, "2 features", 19),
        ([Insert((X[:1], Y[:1]), [50]), Insert((X[:1], Y[:1]), [50])], 1, DuplicateId, "50 is in the model", 21),
        ([Insert((X[:1], Y[:1])), Insert((X[:1], [9])), Delete([0])], 1, BadRecords, "9 is not one of", 21),
        ([Replace((X[:1], Y[:1]), [3]), Replace((X[:1], Y[:1]), [44])], 1, UnknownId, "not found: 44", 20),
        ([Delete([0]), "Delete"], 1, BadRecords, r"\(str\): expected an Insert, a Delete or a Replace", 19),
    ],
    ids=lambda part: str(part)[:12],
)  # fmt: skip
def test_a_request_that_fails_leaves_the_model_as_after_those_before_it(bulk, stream, number, cause, match, left):
    model = fitted()
    with pytest.raises(RequestFailed, match=match) as caught:
        apply(model, stream, bulk=bulk)
    error = caught.value
    assert (error.number, error.done, error.request) == (number, number, stream[number])
    assert str(error).startswith(f"request {number} (")
    assert isinstance(error.__cause__, cause)
    assert isinstance(error, (ExpungeError, ValueError))
    assert model.n_records_ == left
    assert_sound(model)
    other = fitted()
    apply(other, stream[:number], bulk=bulk)
    assert contents(model) == contents(other)


def test_the_error_can_be_sent_elsewhere():
    with pytest.raises(RequestFailed) as caught:
        apply(fitted(), some_deletes(1, 99))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.number, again.done, again.request.ids) == (str(caught.value), 1, 1, [99])


def test_too_many_records_of_a_subject_are_the_fault_of_the_request_that_brings_them():
    model = fitted(4, subjects=[0, 1, 2, 3], records_per_subject=3)
    stream = [Insert((X[j : j + 1], Y[j : j + 1]), subjects=[j % 2]) for j in range(10, 20)]
    with pytest.raises(RequestFailed, match="subjects: 0 would have 4 records") as caught:
        apply(model, stream)
    assert caught.value.number == 4
    assert model.n_records_ == 8
    assert_sound(model)


def test_a_stream_that_fails_comes_to_its_error_with_all_before_it_done():
    def stream():
        yield from some_deletes(0, 1, 2)
        raise OSError("no more")

    model = fitted()
    with pytest.raises(OSError, match="no more") as caught:
        apply(model, stream())
    assert caught.value.done == 3
    assert caught.value.__notes__ == [
        "expunge: 3 requests of the stream are done, or will be at the next call to the model."
    ]
    assert model.n_records_ == 17


def test_ctrl_c_in_the_stream_stops_at_once():
    def stream():
        yield from some_deletes(0, 1, 2)
        raise KeyboardInterrupt

    model = fitted()
    with pytest.raises(KeyboardInterrupt) as caught:
        apply(model, stream(), bulk=2)
    assert caught.value.done == 2
    assert model.n_records_ == 18


def test_an_error_of_the_watcher_is_its_own_even_if_it_is_a_refusal():
    model = fitted()
    with pytest.raises(UnknownId) as caught:
        apply(model, some_deletes(0, 1, 2, 3), bulk=2, watch=lambda outcome: model.unlearn(99))
    assert caught.value.done == 2
    assert model.n_records_ == 18


def test_the_last_record_may_go_and_others_come_after_it():
    model = fitted(3, classes=[0, 1])
    stream = [*some_deletes(0, 1, 2), Insert((X[:2], Y[:2])), Delete([3])]
    with pytest.warns(UserWarning, match="every record has been deleted"):
        applied = apply(model, stream)
    assert (applied.deleted, applied.inserted, model.n_records_) == (4, 2, 1)
    with pytest.raises(UserWarning, match="every record") as caught:  # warnings are errors here
        apply(model, [Delete([4]), Insert((X[:1], Y[:1]))])
    assert (caught.value.done, model.n_records_) == (1, 0)
    assert_sound(model)


def test_an_error_that_is_no_refusal_does_not_lead_to_other_coins(monkeypatch):
    """Whatever happens after the first coin: the bulk is not asked for again, and the next call finishes it."""
    forward, failing = expunge.engine.changing.forward, []

    def fails(*given):
        if failing:
            raise failing[0]
        return forward(*given)

    monkeypatch.setattr(expunge.engine.changing, "forward", fails)
    for failure in (MemoryError(), BadContribution("step 3"), BadRecords("strange"), KeyboardInterrupt(), OSError()):
        model = fitted(rho=1.0)
        failing.append(failure)
        with pytest.raises(type(failure)) as caught:
            apply(model, [*some_deletes(0, 1, 2), Insert((X[:1], Y[:1]))])
        assert caught.value is failure
        assert failure.done == 3
        assert model.n_records_ == 20
        failing.clear()
        pending, _ = model._owner._pending
        assert pending.ids.tolist() == [0, 1, 2]
        apply(model, [Insert((X[:1], Y[:1]))])
        assert set(contents(model)) == {*range(3, 20), 20}
        assert_sound(model)


def test_no_memory_to_prepare_a_request_is_not_its_fault(monkeypatch):
    model = fitted()

    def fails(*given, **more):
        raise MemoryError

    monkeypatch.setattr("expunge.models.supervised.validate_data", fails)
    with pytest.raises(MemoryError) as caught:
        apply(model, [*some_deletes(0, 1, 2), Insert((X[:1].tolist(), Y[:1]))], bulk=2)
    assert caught.value.done == 2
    assert model.n_records_ == 18


def how_far(error):
    """What an error, or the one that was on its way, says is done."""
    while error is not None and not hasattr(error, "done"):
        error = error.__context__
    return 0 if error is None else error.done


@pytest.mark.parametrize("schedule", ["scattered", "shuffled"])
def test_ctrl_c_at_any_line_loses_no_request_and_serves_none_twice(schedule):
    """Every request is such that to serve it twice, or never, would be an error or show in the end."""
    base = fitted(8, rho=1.0, schedule=schedule, steps=None, batch=4)
    one = [(X[j : j + 1], Y[j : j + 1]) for j in range(30, 36)]
    stream = [Delete([1]), Delete([2]), Insert(one[0]), Insert(one[1]), Replace(one[2], [8]), Delete([8])]
    whole = copy.deepcopy(base)
    apply(whole, stream)
    expected, seen = contents(whole), set()
    for line in itertools.count(0 if schedule == "scattered" else 1, 13):  # every line takes a minute
        model, errors = copy.deepcopy(base), []

        def act(model=model, errors=errors):
            try:
                apply(model, stream, bulk=2)
            except KeyboardInterrupt as error:
                errors.append(error)
                raise

        if interrupted(act, line):
            assert not errors
            break
        done = how_far(errors.pop())
        seen.add(done)
        apply(model, stream[done:])
        if line % 7 == 0:
            assert_sound(model)
        else:
            model.unlearn([])  # which finishes what was begun
        assert contents(model) == expected
    assert seen == {0, 2, 4, 5, 6}
    assert line > 500


def test_ctrl_c_while_the_one_at_fault_is_looked_for_loses_nothing():
    base = fitted(8, rho=1.0, steps=2)
    stream = some_deletes(1, 2, 99, 3)
    for line in itertools.count(step=3):
        model, errors = copy.deepcopy(base), []

        def act(model=model, errors=errors):
            try:
                apply(model, stream)
            except BaseException as error:
                errors.append(error)
                if not isinstance(error, RequestFailed):
                    raise

        if interrupted(act, line):
            break
        done = how_far(errors[0])
        with pytest.raises(RequestFailed) as caught:
            apply(model, stream[done:])
        assert caught.value.number == 2 - done
        assert set(contents(model)) == {0, 3, 4, 5, 6, 7}
    assert errors[0].number == 2
    assert line > 300


def test_what_was_done_is_not_kept():
    model = fitted()
    model.unlearn([3])
    apply(model, some_deletes(4, 5))
    assert len(model._owner._done) == 0
    assert "_done" not in model._owner.__getstate__()


# --- streams: any of them -------------------------------------------------------------------------------

IDS = st.lists(st.integers(0, 12), min_size=1, max_size=3, unique=True)
KINDS = st.sampled_from("dir")
STREAMS = st.lists(st.tuples(KINDS, IDS, st.integers(0, 30), st.booleans()), max_size=14)


def as_requests(drawn):
    stream = []
    for number, (kind, ids, at, ignore) in enumerate(drawn):
        rows = np.array([[number, one, 1.0] for one in ids]) / 100
        columns = rows, np.array([one % 2 for one in ids])
        if kind == "d":
            stream.append(Delete(ids, missing="ignore" if ignore else "error", at=at))
        else:
            stream.append((Insert if kind == "i" else Replace)(columns, ids, at=at))
    return stream


def simulate(rows, stream):
    """Do what a stream says to a dict; return it, and which request fails."""
    for number, request in enumerate(stream):
        ids = request.ids
        if isinstance(request, Delete):
            if request.missing == "error" and not set(ids) <= set(rows):
                return rows, number
            rows = {one: row for one, row in rows.items() if one not in ids}
            continue
        if any((one in rows) == isinstance(request, Insert) for one in ids):
            return rows, number
        rows = {**rows, **dict(zip(ids, map(tuple, request.columns[0].tolist()), strict=True))}
    return rows, None


@pytest.mark.filterwarnings("ignore:every record has been deleted")
@settings(max_examples=40, deadline=None)
@given(STREAMS, st.integers(1, 8), st.sampled_from([None, 0.5, 7, 100]), st.sampled_from(["scattered", "arrival"]))
def test_any_stream_in_any_bulks_does_what_it_does_one_by_one(drawn, bulk, every, schedule):
    stream = as_requests(drawn)
    start = {j: tuple(X[j]) for j in range(6)}
    model = LogisticRegression(
        rho=0.6, solver=DualAveraging(steps=None, batch=2, schedule=schedule), classes=[0, 1], expected_records=8
    )
    model.fit(X[:6], Y[:6], ids=np.arange(6))
    expected, failing = simulate(start, stream)
    if failing is None:
        assert apply(model, iter(stream), bulk=bulk, every=every).requests == len(stream)
    else:
        with pytest.raises(RequestFailed) as caught:
            apply(model, iter(stream), bulk=bulk, every=every)
        assert caught.value.number == failing
    assert contents(model) == expected
    assert_sound(model)


@settings(max_examples=200, deadline=None)
@given(STREAMS, st.integers(1, 8), st.sampled_from([None, 3, 100]))
def test_bulks_end_by_the_requests_alone(drawn, bulk, every):
    """The same stream is cut alike whatever becomes of the requests: here, whether what they delete is there."""
    sizes = []
    for count in (0, 13):
        fake = Fake(count)
        stream = [Delete(ids, missing="ignore", at=at) for _, ids, at, _ in drawn]
        apply(fake, stream, bulk=bulk, every=every)
        sizes.append([names for _, names in fake.bulks])
    assert sizes[0] == sizes[1]
    cut, held, window = [], [], None
    for request in stream:  # the rule, said once more
        here = None if every is None else request.at // every
        if held and (here != window or len(held) + len(request.ids) > bulk):
            cut.append(held)
            held = []
        held, window = held + request.ids, here
        if len(held) >= bulk:
            cut.append(held)
            held = []
    assert sizes[0] == [*cut, *([held] if held else [])]


def test_records_can_be_asked_without_an_estimator():
    records = MemoryRecords((np.eye(3),), ids=["ann", "bob", "cy"], subjects=[1, 1, 2])
    learn(toy(query=Wide()), records, np.random.default_rng(0))
    assert sorted(records.ids_of([1, 5, 1], missing="ignore").tolist()) == ["ann", "bob"]
    assert records.ids_of([5], missing="ignore").tolist() == []


class Wide:
    size, bound = 2, 2.0

    def contributions(self, step, path, batch):
        return batch[0][:, :2]


# --- going on where it stopped ----------------------------------------------------------------------------------


def test_what_was_read_and_not_done_is_handed_back():
    stream = (Delete([one]) for one in (0, 1, 99, 2, 3, 4))
    model = fitted()
    with pytest.raises(RequestFailed) as caught:
        apply(model, stream, bulk=5)
    assert (caught.value.number, caught.value.done) == (2, 2)
    assert [request.ids for request in caught.value.waiting] == [[2], [3]]
    assert apply(model, itertools.chain(caught.value.waiting, stream)).deleted == 3
    assert not {0, 1, 2, 3, 4} & set(model._records.all_ids().tolist())


def test_requests_that_wait_when_the_service_is_stopped_are_handed_back():
    def queue():
        yield Delete([0])
        yield Delete([1])
        raise KeyboardInterrupt

    model = fitted()
    with pytest.raises(KeyboardInterrupt) as caught:
        apply(model, queue())
    assert caught.value.done == 0
    assert [request.ids for request in caught.value.waiting] == [[0], [1]]
    assert apply(model, caught.value.waiting).deleted == 2


def test_requests_that_were_begun_are_not_handed_back():
    stopped = []
    for number in range(0, 1500, 45):
        model, stream = fitted(), some_deletes(*range(6))

        def act(model=model, stream=stream):
            try:
                apply(model, stream, bulk=3)
            except KeyboardInterrupt as error:
                stopped.append((stream, error))

        interrupted(act, number)
    told = [(stream, error) for stream, error in stopped if hasattr(error, "done")]
    assert len(told) > 10
    for stream, error in told:
        assert list(error.waiting) == stream[error.done : error.done + len(error.waiting)]
    assert {error.done for _, error in told} >= {0, 3}


def test_a_none_ends_the_bulk():
    model = fitted()
    outcomes = []
    applied = apply(model, [Delete([0]), None, Delete([1]), Delete([2]), None, None], watch=outcomes.append)
    assert [outcome.removed for outcome in outcomes] == [1, 2]
    assert (applied.requests, applied.bulks) == (3, 2)


def test_one_that_is_at_fault_costs_a_few_bulks_and_not_all_singly():
    model = fitted(60)
    model.unlearn([59])
    with pytest.raises(RequestFailed) as caught:
        apply(model, [Delete([one]) for one in (*range(16), 59)], watch=(served := []).append)
    assert caught.value.number == 16
    assert sum(outcome.removed for outcome in served) == 16
    assert len(served) <= 6


def test_corrections_of_deleted_records_can_be_passed_over():
    model = fitted()
    model.unlearn([3])
    stream = [Replace((X[:1], Y[:1]), ids=[3]), Replace((X[1:3], Y[1:3]), ids=[4, 5])]
    with pytest.raises(RequestFailed, match="not found: 3"):
        apply(model, stream)
    assert apply(model, stream, missing="ignore").replaced == 2
    assert model.replace(X[:2], Y[:2], ids=[3, 6], missing="ignore").added == 1
    assert model.replace(X[:1], Y[:1], ids=[3], missing="ignore").kept
    with pytest.raises(UnknownId, match="ids are integers"):
        model.replace(X[:1], Y[:1], ids=["three"], missing="ignore")
    assert model.verify().ok


def test_corrections_by_subject_can_be_passed_over():
    model = LogisticRegression(random_state=0, solver="dual_averaging").fit(
        X[:9], Y[:9], subjects=[f"s{n}" for n in range(9)]
    )
    model.unlearn(subjects=["s3"])
    assert model.replace(X[:2], Y[:2], subjects=["s3", "s4"], missing="ignore").added == 1
    with pytest.raises(UnknownId, match="s3"):
        model.replace(X[:2], Y[:2], subjects=["s3", "s4"])
    assert model.verify().ok


@pytest.mark.parametrize("kind", [Insert, Replace])
def test_columns_are_a_tuple(kind):
    with pytest.raises(BadRecords, match=r"columns: give a tuple of columns, such as \(X, y\)"):
        kind(X[:1], Y[:1])


def test_an_id_that_is_there_is_told_before_a_crowd():
    model = LogisticRegression(random_state=0, solver=DualAveraging(records_per_subject=2), classes=[0, 1])
    model.fit(X[:4], Y[:4], ids=["a", "b", "c", "d"], subjects=["s", "s", "t", "t"])
    with pytest.raises(DuplicateId, match="'a' is in the model already"):
        model.insert(X[:1], Y[:1], ids=["a"], subjects=["s"])
    with pytest.raises(BadRecords, match="would have 3 records"):
        model.insert(X[:1], Y[:1], ids=["e"], subjects=["s"])


def test_a_source_may_use_its_arrays_again():
    def stream():
        row, target, name = np.empty((1, 3)), np.empty(1, dtype=int), np.array(["a99"])
        for one in range(30, 34):
            row[:], target[:], name[:] = X[one], Y[one], f"a{one}"
            yield Insert((row, target), ids=name)

    model = fitted(20, ids=[f"a{n}" for n in range(20)])
    assert apply(model, stream()).bulks == 1
    for one in range(30, 34):
        place, slot = (part.item(0) for part in model._records.locate(np.array([f"a{one}"])))
        np.testing.assert_allclose(model._records.batch_at(place)[0][slot], X[one])
