"""Somebody removes the lock of a store while others write: whatever they say is done is done, and nothing twice."""

import os
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest

import expunge
from cases.stored_federations import ANN, BOB, make_rounds, new
from expunge import federated
from expunge.base.errors import BusyStore, LogNotEmptied, StoreError
from expunge.store import failpoints
from expunge.store.locks import WriterLock
from expunge.store.state import Pending
from expunge.store.surroundings import beside

rng = np.random.default_rng(16)
N = 120
X = rng.normal(size=(N, 3)) / 3
Y = X[:, 0] > 0
POINTS = ("request: recording", "request: recorded")


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    return tmp_path / "model"


def without_lock(path, other):
    """Remove the lock; another, who had not opened it yet, takes a new one."""
    beside(path, "-lock").unlink()
    other._owner.lock.file.close()


def meanwhile(point, work):
    """Do some work when somebody comes to a point, once."""

    def hook(name):
        if name == point:
            failpoints.hook = None
            work()

    failpoints.hook = hook


def assert_sound(path, gone):
    with expunge.open(path) as model:
        assert model.verify().ok
        assert model.verify_receipts().ok
        assert set(range(N)) - set(model.ids_.tolist()) == set(gone)
        for one in gone:
            assert len(model.export_receipts(ids=[one])["receipts"]) == 1


def test_a_lock_that_was_removed_is_made_again_and_held(path):
    with expunge.open(path) as model, expunge.open(path, wait=0.05) as other:
        model.unlearn([1])
        beside(path, "-lock").unlink()
        with model._owner.lock, pytest.raises(BusyStore):
            other.unlearn([2])
        other.unlearn([2])
    assert_sound(path, {1, 2})


@pytest.mark.parametrize("point", POINTS)
def test_two_who_write_at_once_are_told_apart(point, path):
    """The second finds what the first has recorded, and finishes it; or the first finds what the second has done."""
    with expunge.open(path) as first, expunge.open(path) as second:
        meanwhile(point, lambda: (without_lock(path, second), second.unlearn([2])))
        request = first.prepare_request(expunge.Delete([1]))
        with pytest.raises(BusyStore, match="another process is writing, although this one has the lock") as caught:
            first.serve_request(request)
        assert caught.value.refused == (point == "request: recording")
        assert first.has_begun(request) == (point == "request: recorded")
        assert ("do not repeat it" in str(caught.value)) == (point == "request: recorded")
    assert_sound(path, {2} if point == "request: recording" else {1, 2})


@pytest.mark.parametrize("work", ["insert", "replan", "compact"])
def test_whatever_the_other_does(work, path):
    def ask(model):
        return {
            "insert": lambda: model.insert(X[:1], Y[:1], ids=[N + 5]),
            "replan": model.replan,
            "compact": model.compact,
        }[work]()

    with expunge.open(path) as first, expunge.open(path) as second:
        meanwhile("request: recorded", lambda: (without_lock(path, second), ask(second)))
        with pytest.raises(BusyStore):
            first.unlearn([1])
        second.unlearn([2])
        first.unlearn([3])
        assert first.n_records_ == N - 3 + (work == "insert")
        assert first.verify().ok
        assert first.verify_receipts().ok


def test_a_copy_that_is_out_of_date_does_not_take_the_place_of_what_was_done(path):
    with expunge.open(path) as first, expunge.open(path) as second:
        meanwhile("compact: replacing", lambda: (without_lock(path, second), second.unlearn([2])))
        with pytest.raises(BusyStore, match="another process is writing"):
            first.compact()
        first.unlearn([3])
        first.compact()
    assert_sound(path, {2, 3})


def test_a_model_that_is_planned_anew_does_not_take_the_place_of_what_was_done(path):
    with expunge.open(path) as first, expunge.open(path) as second:
        begin = first._owner.file.begin

        def late(**how):
            first._owner.file.begin = begin
            without_lock(path, second)
            second.unlearn([2])
            begin(**how)

        first._owner.file.begin = late
        with pytest.raises(BusyStore):
            first.replan()
    assert_sound(path, {2})


def test_what_waits_and_is_done_by_another_meanwhile_is_not_looked_for(path, monkeypatch):
    with expunge.open(path) as first, expunge.open(path) as second:
        owner = first._owner
        with owner.lock:
            request = first.prepare_request(expunge.Delete([2]))
            owner._record(Pending(request, "0" * 32, owner.state.version, bytes(32), "2020-02-29"))
        waiting = owner._waiting

        def late():
            found = waiting()
            monkeypatch.undo()
            without_lock(path, second)
            second.predict(X[:1])
            second._owner.catch_up(second._publish)
            return found

        monkeypatch.setattr(owner, "_waiting", late)
        with pytest.raises(BusyStore, match="another process is writing"):
            first.unlearn([3])
    assert_sound(path, {2})


def test_a_file_that_is_taken_away_in_the_midst_of_a_request_is_noticed(path):
    with expunge.open(path) as model:
        meanwhile("request: committed", lambda: path.rename(path.with_name("elsewhere")))
        with pytest.raises(StoreError, match=r"moved, removed or replaced.* look there before you repeat it"):
            model.unlearn([1])


OPEN = "import sys, expunge; expunge.open(sys.argv[1], wait=0.05)"


@pytest.mark.parametrize("removed", [("-wal",), ("-shm",), ("-wal", "-shm")])
def test_nobody_opens_a_store_whose_log_was_taken_from_others(removed, path):
    with expunge.open(path):
        for ending in removed:
            beside(path, ending).unlink()
        with pytest.raises(StoreError, match=rf"{removed[0]}: was removed while another process has the store open"):
            expunge.open(path, wait=0.05)
        other = subprocess.run([sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True, check=False)
        assert f"{removed[0]}: was removed while another process has the store open" in other.stderr
    assert_sound(path, ())


@pytest.mark.parametrize("point", ["request: recording", "request: recorded", "request: decided", "request: committed"])
def test_a_request_whose_log_is_taken_away_is_not_said_to_be_durable(point, path):
    """A reader keeps the log from being emptied: all that was done would be in a file without a name."""
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM receipts").fetchall()

    def take():
        for ending in ("-wal", "-shm"):
            beside(path, ending).unlink()

    with expunge.open(path) as model:
        meanwhile(point, take)
        with pytest.raises(StoreError, match="was removed or replaced") as error:
            model.unlearn([17])
        assert not isinstance(error.value, LogNotEmptied)
        with pytest.raises(StoreError, match="was removed while another process has the store open"):
            expunge.open(path, wait=0.05)
        reader.close()
    with expunge.open(path) as model:
        gone = set(range(N)) - set(model.ids_.tolist())
    assert_sound(path, gone)
    assert gone <= {17}


def test_the_lock_of_a_federation(tmp_path):
    path = tmp_path / "federation"
    with new(path) as first:
        make_rounds(first)
        beside(path, "-lock").unlink()
        with pytest.raises(StoreError, match="-lock: was removed while the federation was open"):
            first.forget(ANN)
        with federated.open(path) as second:
            second.forget(BOB)
            assert second.verify_receipts().ok


def test_two_federations_at_once(tmp_path):
    path = tmp_path / "federation"
    with new(path) as first:
        make_rounds(first)
        others = []

        def ask():
            beside(path, "-lock").unlink()
            others.append(federated.open(path))

        meanwhile("federation: recorded", ask)  # which finishes what the first has recorded
        with pytest.raises(BusyStore, match="another process is writing, although this one has the lock"):
            first.forget(ANN)
        failpoints.hook = None
        assert [len(other.export_receipts(names=[ANN])["receipts"]) for other in others] == [1]
        assert others[0].verify_receipts().ok
        others[0].close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_does_not_keep_the_lock_of_its_parent(tmp_path):
    """Else a process that forks and dies would leave the store locked for as long as its child lives."""
    ready, tell = os.pipe()
    done, end = os.pipe()
    parent = os.fork()
    if parent == 0:
        lock = WriterLock(tmp_path / "store", 1)
        lock.acquire()
        if os.fork() == 0:
            os.write(tell, b"x")
            os.read(done, 1)
        os._exit(0)
    os.read(ready, 1)
    os.waitpid(parent, 0)
    lock = WriterLock(tmp_path / "store", 1)
    lock.acquire()
    lock.close()
    os.write(end, b"x")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_closes_what_it_inherited_leaves_the_parent_its_lock(tmp_path):
    lock = WriterLock(tmp_path / "store", 1)
    lock.acquire()
    child = os.fork()
    if child == 0:
        lock.release()
        lock.close()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(BusyStore):
        WriterLock(tmp_path / "store", 0.02).acquire()
    lock.close()


def test_of_many_threads_one_has_the_lock(path):
    having, most = [0], [0]
    guard = threading.Lock()

    def work():
        lock = WriterLock(path, 30)
        for _ in range(40):
            lock.acquire()
            with guard:
                having[0] += 1
                most[0] = max(most[0], having[0])
            with guard:
                having[0] -= 1
            lock.release()
        lock.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
