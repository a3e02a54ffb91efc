"""Several processes on one store: they are served one after the other, and none is turned away before its time."""

import os
import sqlite3
import threading
import time
import traceback

import numpy as np
import pytest

import expunge
from expunge.base.errors import BusyStore
from expunge.store.file import StoreFile
from expunge.store.locks import WriterLock

rng = np.random.default_rng(3)
N = 200
X = rng.normal(size=(N, 3)) / 3
Y = X[:, 0] > 0
LONG = 30.0


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    return tmp_path / "model"


def test_the_first_to_ask_for_the_lock_waits_as_others_do(tmp_path):
    """To connect to a lock that is held is refused by SQLite, without any waiting."""
    one, two = WriterLock(tmp_path / "store", LONG), WriterLock(tmp_path / "store", LONG)
    one.acquire()
    timer = threading.Timer(0.1, one.release)
    timer.start()
    two.acquire()
    timer.join()
    for lock in (one, two):
        lock.close()
    impatient, began = WriterLock(tmp_path / "store", 0.2), time.monotonic()
    one.acquire()
    with pytest.raises(BusyStore, match=r"other processes have been writing for 0\.2 s"):
        impatient.acquire()
    assert 0.15 < time.monotonic() - began < LONG / 3
    for lock in (one, impatient):
        lock.close()


def test_a_new_file_can_be_opened_by_several_at_once(path):
    """The first to open it turns its log on, for which SQLite does not wait."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # as another that turns it on at the same moment
    timer = threading.Timer(0.1, lambda: other.execute("ROLLBACK"))
    timer.start()
    StoreFile(path, wait=LONG).close()
    timer.join()
    other.close()
    with expunge.open(path) as model:
        assert model.verify().ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_processes_are_served_one_after_the_other(path):
    began, children, times = time.monotonic(), [], 4
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                for time_ in range(times):
                    with expunge.open(path, wait=LONG) as model:  # anew, as at the prompt
                        model.unlearn([10 * number + time_])
                        assert number or model.verify().ok
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert time.monotonic() - began < LONG / 2
    with expunge.open(path) as model:
        receipts = model.export_receipts()["receipts"]
        assert [receipt["version"] for receipt in receipts] == list(range(1, 4 * times + 1))
        assert model.verify_receipts().ok
        assert model.verify().ok
        assert set(range(N)) - set(model.ids_.tolist()) == {10 * k + j for k in range(4) for j in range(times)}
