"""Rows in memory name a flipped bit; a path shows the iterates so far."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.engine.transcript import ArrayRows, Path


def _rows(seed=0, shape=(9, 5)):
    return ArrayRows(np.random.default_rng(seed).normal(size=shape))


@given(st.integers(0, 8), st.integers(0, 4), st.integers(0, 63))
def test_any_single_flipped_bit_is_named(row, column, bit):
    rows = _rows()
    rows.array.view(np.uint64)[row, column] ^= np.uint64(1) << np.uint64(bit)
    assert rows.damage() == f"row {row}, column {column}: bit {bit} is flipped"


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), max_size=8), st.integers(0, 12))
def test_whatever_is_written_or_resized_is_no_damage(writes, steps):
    rows, rng = _rows(), np.random.default_rng(1)
    for start, length in writes:
        rows.write(start, rng.normal(size=(min(length, 9 - start), 5)))
    rows.resize(steps)
    assert rows.damage() is None
    assert rows.shape == (steps, 5)


@pytest.mark.parametrize("shape", [(9, 5), (40, 9000)])  # weights of the second are not all kept ready
def test_scattered_rows_are_written_as_one_by_one(shape):
    rows, twin, rng = _rows(shape=shape), _rows(shape=shape), np.random.default_rng(1)
    for _ in range(5):
        numbers = rng.permutation(shape[0])[:4]
        block = rows.array[numbers]
        block[:, rng.integers(shape[1], size=3)] = rng.normal(size=3)
        rows.write_rows(numbers, block)
        for number, row in zip(numbers.tolist(), block, strict=True):
            twin.write(number, row[None])
        assert rows.array.tobytes() == twin.array.tobytes()
        assert rows.damage() is None
    assert rows.__getstate__()[1] == twin.__getstate__()[1]


def test_two_flipped_bits_are_damage_too():
    rows = _rows()
    rows.array.view(np.uint64)[[1, 2], 0] ^= np.uint64(5)
    assert rows.damage() == "more than one bit has changed"


def test_dropped_rows_are_overwritten():
    rows = _rows()
    kept = rows.array
    rows.resize(4)
    assert not kept[4:].any()


def test_rows_read_like_an_array():
    rows = _rows()
    assert np.array_equal(np.asarray(rows), rows.array)
    assert rows[2:4].shape == (2, 5)
    assert rows.nbytes == 9 * 5 * 8


def test_a_path_shows_stored_and_staged_iterates():
    stored = ArrayRows(np.array([[1.0], [2.0], [3.0]]))
    staged = np.array([[20.0], [30.0]])
    path = Path(np.zeros(1), stored, 1, staged)
    assert len(path) == 2
    assert path[-1] == 1.0
    path.append(staged[0])
    path.append(staged[1])
    assert [path[i].item() for i in range(4)] == [0.0, 1.0, 20.0, 30.0]
    assert [path[-i].item() for i in range(1, 5)] == [30.0, 20.0, 1.0, 0.0]
    with pytest.raises(IndexError, match="4 iterates"):
        path[4]
