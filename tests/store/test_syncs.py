"""When a request is synced: as it is recorded, and as the log is emptied; its second commit follows from the first."""

import os
import sqlite3

import numpy as np
import pytest

import expunge
from expunge.base.errors import LogNotEmptied
from expunge.store.file import StoreFile
from expunge.store.sqlite import FULL, NORMAL, OFF

rng = np.random.default_rng(4)
X = rng.normal(size=(60, 3)) / 9
Y = X[:, 0] > 0


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    return tmp_path / "model"


def synced(model):
    """Let a model sync as it does outside of tests; return the level of each commit and checkpoint to come."""
    file, levels = model._owner.file, []
    connection, file._level = file._connection, None
    connection.execute(f"PRAGMA synchronous={FULL}")
    run = file._run

    def watched(statement, values=()):
        if statement.startswith(("COMMIT", "PRAGMA wal_checkpoint")):
            levels.append((statement.split("(")[0], connection.execute("PRAGMA synchronous").fetchone()[0]))
        return run(statement, values)

    file._run = watched
    return levels


def test_what_is_recorded_is_synced_and_what_follows_from_it_as_the_log_is_emptied(path):
    with expunge.open(path) as model:
        levels = synced(model)
        for one in range(2):
            model.unlearn([one])
        emptied = ("PRAGMA wal_checkpoint", NORMAL)  # which syncs the log before it writes, and the file after
        assert [each for each in levels if each != emptied] == 2 * [("COMMIT", FULL), ("COMMIT", NORMAL)]
        assert emptied in levels
        levels.clear()
        model.replan()
        assert ("COMMIT", FULL) in levels
        assert ("COMMIT", NORMAL) not in levels


def test_where_the_log_cannot_be_emptied_it_is_synced(path, monkeypatch):
    found = []
    monkeypatch.setattr(os, "fsync", lambda file: found.append(os.fstat(file)))
    reader = sqlite3.connect(path)
    with expunge.open(path, wait=0.1) as model:
        reader.execute("BEGIN").execute("SELECT * FROM about").fetchall()
        with pytest.raises(LogNotEmptied):
            model.unlearn([3])
        assert os.path.samestat(found[-1], os.stat(f"{path}-wal"))
        reader.close()
    with expunge.open(path) as model:
        assert model.n_records_ == 59


def test_a_file_that_is_not_synced_stays_so(path):
    file = StoreFile(path)  # which the tests have set up without
    file.begin(synced=False)
    file.rollback()
    file.begin()
    file.rollback()
    assert file._pragma("synchronous") == OFF
    file.close()
