"""Whatever stands in a request's way, its error says what is true: nothing was done, it waits, or it is done."""

import sqlite3
from contextlib import contextmanager

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.base.errors import BusyStore, FullStore, LogNotEmptied, ReadOnlyStore, StoreError
from expunge.base.intake import Delete
from expunge.engine.streams import apply
from expunge.store import failpoints, scan
from expunge.store.file import StoreFile
from expunge.store.surroundings import beside

rng = np.random.default_rng(4)
N = 120
X = rng.normal(size=(N, 3)) / 9
Y = X[:, 0] > 0
NOTHING, WAITS, DONE = (
    "nothing was done",
    "recorded; the next use of the store finishes it",
    "has been completed and saved",
)


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    with expunge.open(tmp_path / "model"):  # from now on it has a log
        pass
    return tmp_path / "model"


@contextmanager
def another(path, *statements):
    """Another program, which has begun something."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for statement in statements:
        connection.execute(statement).fetchall()
    try:
        yield connection
    finally:
        connection.close()


def writing(path):
    return another(path, "BEGIN IMMEDIATE")


def reading(path):
    return another(path, "BEGIN", "SELECT * FROM about")


def at(point, act):
    """Do something when a point is first reached."""

    def hook(name):
        if name == point:
            failpoints.hook = None
            act()

    failpoints.hook = hook


def sentences(error):
    """Which of the three an error says."""
    return [one for one in (NOTHING, WAITS, DONE) if one in str(error).lower()]


def ask(model, number):
    """Ask for a deletion that fails; return the error, and whether it was begun."""
    request = model.prepare_request(Delete([number]))
    with pytest.raises(StoreError) as caught:
        model.serve_request(request)
    return caught.value, model.has_begun(request)


def receipts(model):
    return len(model.export_receipts()["receipts"])


def test_a_store_that_another_program_writes_to_is_not_opened(path):
    with writing(path), pytest.raises(BusyStore, match="cannot be emptied, since another program is") as caught:
        expunge.open(path, wait=0.05)
    assert sentences(caught.value) == []


def test_while_another_program_writes_nothing_is_done(path):
    with expunge.open(path, wait=0.05) as model:
        with writing(path):
            error, begun = ask(model, 5)
        assert isinstance(error, BusyStore)
        assert (error.refused, begun, sentences(error)) == (True, False, [NOTHING])
        assert (receipts(model), model.n_records_) == (0, N)
        assert model.unlearn([5]).removed == 1


def test_while_another_process_has_the_lock_nothing_is_done(path):
    with expunge.open(path) as other, expunge.open(path, wait=0.05) as model:
        with other._owner.lock:
            error, begun = ask(model, 5)
        assert isinstance(error, BusyStore)
        assert (error.refused, begun, sentences(error)) == (True, False, [NOTHING])
        assert model.unlearn([5]).removed == 1


def test_a_model_to_read_does_nothing(path):
    with expunge.open(path, read_only=True) as model:
        with pytest.raises(ReadOnlyStore) as caught:
            model.unlearn([5])
        assert caught.value.refused


def test_what_is_recorded_and_cannot_be_done_waits(path):
    with expunge.open(path, wait=0.05) as model, another(path) as other:
        at("request: recorded", lambda: other.execute("BEGIN IMMEDIATE"))
        error, begun = ask(model, 5)
        assert isinstance(error, BusyStore)
        assert (error.refused, begun, sentences(error)) == (False, True, [WAITS])
        error, begun = ask(model, 6)  # before it, the first would have to be finished
        assert (error.refused, begun, sentences(error)) == (True, False, [NOTHING, WAITS])
        other.execute("ROLLBACK")
        assert model.unlearn([6]).removed == 1
        assert (receipts(model), model.n_records_) == (2, N - 2)
        assert scan(path, [X[5], X[6]]) == []


def test_what_is_recorded_and_finds_no_room_waits(path):
    with expunge.open(path) as model:
        at("request: recorded", lambda: model._owner.file._connection.execute("PRAGMA query_only=ON"))
        error, begun = ask(model, 5)
        assert (error.refused, begun, sentences(error)) == (False, True, [WAITS])
        assert not isinstance(error, FullStore | LogNotEmptied)
        model._owner.file._connection.execute("PRAGMA query_only=OFF")
        assert model.n_records_ == N
        assert model.verify().ok
        assert model.n_records_ == N - 1


def test_what_is_done_is_said_to_be_done_though_the_log_cannot_be_emptied(path):
    with expunge.open(path, wait=0.05) as model:
        with reading(path):
            error, begun = ask(model, 5)
            assert isinstance(error, LogNotEmptied)
            assert not isinstance(error, BusyStore)
            assert (error.refused, begun, sentences(error)) == (False, True, [DONE])
            assert error.outcome.removed == 1
            assert (receipts(model), model.n_records_) == (1, N - 1)
            assert scan(path, [X[5]]) != []
            error, begun = ask(model, 6)  # before it, the log would have to be emptied
            assert isinstance(error, BusyStore)
            assert (error.refused, begun, sentences(error)) == (True, False, [NOTHING])
            with pytest.raises(BusyStore, match="cannot be emptied"):
                expunge.open(path, wait=0.05)
        assert model.unlearn([6]).removed == 1
        assert beside(path, "-wal").stat().st_size == 0
        assert scan(path, [X[5], X[6]]) == []


def test_what_another_left_is_finished_though_the_log_cannot_be_emptied(path):
    with expunge.open(path, wait=0.05) as model:
        at("request: recorded", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.unlearn([5])
        with reading(path):
            error, begun = ask(model, 6)
            assert (type(error), error.refused, begun, sentences(error)) == (BusyStore, True, False, [NOTHING])
            assert (receipts(model), model.n_records_) == (1, N - 1)


def test_what_is_done_and_cannot_be_shown_is_said_to_be_done(path, monkeypatch):
    with expunge.open(path) as model:

        def fail(*_):
            raise StoreError("the disk failed.")

        monkeypatch.setattr(type(model._owner), "_show", fail)
        error, begun = ask(model, 5)
        assert (error.refused, begun, sentences(error)) == (False, True, [DONE])
        assert scan(path, [X[5]]) == []


def test_a_new_plan_is_said_to_be_made_though_the_log_cannot_be_emptied(path):
    with expunge.open(path, wait=0.05) as model:
        with reading(path), pytest.raises(LogNotEmptied, match=DONE):
            model.set_params(rho=0.9).replan()
        assert model.verify().ok
        assert model.plan_.rho == 0.9


def test_whether_a_request_was_begun_is_known_though_others_write(path):
    with expunge.open(path) as other, expunge.open(path, wait=0.05) as model:
        request = model.prepare_request(Delete([5]))
        with other._owner.lock:
            assert not model.has_begun(request)
        model.serve_request(request)
        with other._owner.lock:
            assert model.has_begun(request)


def test_a_stream_stops_where_the_store_is_busy_and_blames_no_request(path):
    stream = [Delete([5]), Delete([6]), Delete([7])]
    with expunge.open(path, wait=0.05) as model:
        with writing(path), pytest.raises(BusyStore) as caught:
            apply(model, stream)
        assert (caught.value.done, caught.value.waiting) == (0, stream)
        with reading(path), pytest.raises(LogNotEmptied) as caught:
            apply(model, stream, bulk=2)
        assert (caught.value.done, caught.value.waiting) == (2, [])
        assert apply(model, stream[caught.value.done :]).deleted == 1
        assert model.n_records_ == N - 3


def test_a_restored_store_is_said_to_be_restored_though_it_cannot_be_finished(path, tmp_path):
    expunge.store.backup(path, tmp_path / "backup")
    with expunge.open(path) as model:
        model.unlearn([5])
    held = []

    def write():
        held.append(StoreFile(path))
        held[0].begin()

    at("restore: renamed", write)
    with pytest.raises(
        StoreError, match=r"the backup is restored, but .* The next process that opens it finishes it"
    ) as caught:
        expunge.store.restore(tmp_path / "backup", path, wait=0.05)
    assert not isinstance(caught.value, BusyStore)
    held[0].close()
    with expunge.open(path) as model:
        assert 5 not in model.ids_
