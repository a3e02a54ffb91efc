"""Tables in a store are what tables in memory are, and what the file says after each transaction."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.stores import new_file
from expunge.base.errors import CorruptStore
from expunge.engine.transcript import ArrayRows
from expunge.store import rows as module
from expunge.store.rows import StoredNumbers, StoredRows

some = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
fraction = st.floats(0, 1)
steps = st.lists(st.tuples(st.booleans(), fraction, fraction), max_size=10)


@pytest.fixture
def file(tmp_path):
    opened = new_file(tmp_path / "store")
    yield opened
    opened.close()


@some
@given(st.integers(0, 40), st.integers(1, 9), st.sampled_from([8, 100, 400, 2**15]), steps)
def test_rows_are_what_rows_in_memory_are(file, length, width, piece, history):
    rng = np.random.default_rng(length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", piece)
        start = rng.normal(size=(length, width))
        memory = ArrayRows(start.copy())
        with file.transaction():
            stored = StoredRows.store(file, "sums", start.copy())
        for write, first, second in history:
            have = memory.shape[0]
            with file.transaction():
                if write:
                    begin, stop = sorted((round(first * have), round(second * have)))
                    block = rng.normal(size=(stop - begin, width))
                    memory.write(begin, block)
                    stored.write(begin, block)
                else:
                    memory.resize(round(first * 60))
                    stored.resize(round(first * 60))
            again = StoredRows(file, "sums", width)
            for found in (stored, again):
                assert found.shape == memory.shape
                assert np.asarray(found[:]).tobytes() == np.asarray(memory[:]).tobytes()
            assert stored.damage() is None
        pieces = -(-memory.shape[0] // max(1, piece // (8 * width)))
        assert [number for number, _ in file.all("sums")] == list(range(pieces))


def test_what_changed_in_memory_is_noticed(file):
    with file.transaction():
        rows = StoredRows.store(file, "sums", np.zeros((4, 3)))
    rows[1:2][0, 2] = 5.0
    assert rows.damage() == "more than one bit has changed"
    assert StoredRows(file, "sums", 3).damage() is None
    assert np.array(rows).tolist() == np.asarray(rows).tolist()


def test_a_table_that_is_cut_off_is_named(file):
    with file.transaction():
        file.put("answers", 0, bytes(8 * 7))
    with pytest.raises(CorruptStore, match=r"store: answers: a row is not whole; restore a backup"):
        _ = StoredRows(file, "answers", 2).shape
    with file.transaction():
        file.put("answers", 0, bytes(5))
    with pytest.raises(CorruptStore, match=r"store: answers.* not whole; restore a backup"):
        _ = StoredRows(file, "answers", 2).shape


def test_a_small_change_writes_one_piece(file, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 160)
    with file.transaction():
        rows = StoredRows.store(file, "sums", np.zeros((100, 2)))
    written = []
    monkeypatch.setattr(file, "put", lambda table, number, content: written.append(number))
    rows.write(35, np.ones((1, 2)))
    rows.write(9, np.ones((2, 2)))
    rows.write(50, np.ones((0, 2)))
    assert written == [3, 0, 1]


@some
@given(st.integers(0, 60), st.lists(st.integers(0, 60), max_size=8), st.sampled_from([8, 64, 2**15]))
def test_numbers_come_back(file, length, lengths, piece):
    rng = np.random.default_rng(length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", piece)
        with file.transaction():
            file.drop("places", 0)
            stored = StoredNumbers(file, "places")
            numbers = rng.integers(-(2**62), 2**62, size=length)
            stored.resize(numbers, 0)
        for longer in lengths:
            have = len(numbers)
            numbers = np.concatenate([numbers, np.zeros(max(0, longer - have), dtype=np.int64)])[:longer]
            with file.transaction():
                stored.resize(numbers, have)
            assert stored.read().tolist() == numbers.tolist()
            if longer:
                at = rng.integers(0, longer, size=3)
                numbers[at] += 1
                with file.transaction():
                    stored.write(numbers, at)
            assert StoredNumbers(file, "places").read().tolist() == numbers.tolist()


def test_numbers_that_are_cut_off_are_named(file):
    with file.transaction():
        file.put("places", 0, bytes(9))
    with pytest.raises(CorruptStore, match=r"store: places.* not whole; restore a backup"):
        StoredNumbers(file, "places").read()
