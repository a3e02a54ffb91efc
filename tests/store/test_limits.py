"""What SQLite cannot hold in one row is refused before it is recorded: recorded, it could never be finished."""

import sqlite3

import numpy as np
import pytest
from scipy.sparse import csr_array

import expunge
from cases.stored_federations import NUMBERS, planned
from expunge import federated
from expunge.base.errors import BadRecords, StoreError
from expunge.store.file import StoreFile

rng = np.random.default_rng(8)
N = 20_000
X = rng.normal(size=(N, 3)) / 9
Y = X[:, 0] > 0
LIMIT = 300_000
"""Enough for every row of such a store."""


@pytest.fixture(autouse=True)
def _rows_are_short(monkeypatch):
    greet = StoreFile._greet

    def greet_meanly(file):
        greet(file)
        file._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LIMIT)

    monkeypatch.setattr(StoreFile, "_greet", greet_meanly)


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5, expected_records=N, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_deletion_whose_receipt_would_be_too_long_is_refused_and_in_portions_it_is_done(path):
    with expunge.open(path) as model:
        with pytest.raises(BadRecords, match=r"10,000 records or names at once: .* has room for 8,\d\d\d") as caught:
            model.unlearn(np.arange(10_000))
        assert caught.value.refused
        assert model.n_records_ == N
        most = int(str(caught.value).split("room for ")[1].split(" like")[0].replace(",", ""))
        model.unlearn(np.arange(most))
        assert model.n_records_ == N - most
        with pytest.raises(BadRecords, match="room for"):
            model.unlearn(np.arange(most, 2 * most + 1))
        model.unlearn(np.arange(most, 10_000))
        assert model.verify().ok
    with expunge.open(path) as model:
        assert model.n_records_ == N - 10_000


def test_an_insertion_or_replacement_that_is_too_long_is_refused_and_says_how_many_are_possible(path):
    with expunge.open(path) as model:
        with pytest.raises(BadRecords, match=r"9,500 records or names at once: .* several requests"):
            model.insert(X[:9_500], Y[:9_500])
        with pytest.raises(BadRecords, match=r"8,000 records or names at once: .* has room for 7,\d\d\d like these"):
            model.replace(X[:8_000], Y[:8_000], ids=np.arange(8_000))
        model.insert(X[:7_000], Y[:7_000])
        assert model.n_records_ == N + 7_000
        assert model.verify().ok


def test_a_sparse_record_that_would_fill_its_part_is_refused_when_it_comes_and_when_it_is_saved(tmp_path):
    rows = csr_array(np.eye(50, 200) / 2)
    model = expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(rows, np.arange(50) % 2)
    model.save(tmp_path / "model")
    full = csr_array(np.full((1, 200), 0.01))
    with expunge.open(tmp_path / "model") as stored:
        with pytest.raises(BadRecords, match=r"a record has 200 numbers that are not 0; in a file, one can have \d\d"):
            stored.insert(full, [1])
        stored.unlearn([3])
        assert stored.verify().ok
    model.insert(full, [1])
    with pytest.raises(BadRecords, match="a record has 200 numbers"):
        model.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_row_that_is_too_long_all_the_same_says_so(path):
    file = StoreFile(path)
    with pytest.raises(StoreError, match=r"arrays, row 7 would have 400,000 bytes, but SQLite takes at most 29"):
        file.put("arrays", 7, bytes(400_000))
    with pytest.raises(StoreError, match="a row would be longer than SQLite allows; do it in smaller portions"):
        file.put_text("about", 7, "a" * 400_000)
    file.close()


def test_a_request_of_too_many_clients_is_refused(tmp_path):
    names = [f"{'c' * 190}{k}" for k in range(100)]
    federated.create(tmp_path / "federation", planned(), np.zeros(NUMBERS), names)
    with federated.open(tmp_path / "federation") as federation:
        federation._file._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 18_000)
        with pytest.raises(BadRecords, match=r"100 clients at once: a file has room for \d\d in one request"):
            federation.forget(names)
        federation.forget(names[:10])
        assert len(federation.members) == 90
