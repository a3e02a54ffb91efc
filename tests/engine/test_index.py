"""The index finds every record, and its content depends on who is in it, not on what happened."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.base.types import Keys
from expunge.engine.records.index import HashIndex
from expunge.engine.records.lookup import hashes


def _table(index: HashIndex) -> tuple[Keys, ...]:
    return index.entries()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(0, 60), min_size=1, max_size=40, unique=True)),
        max_size=30,
    )
)
def test_after_any_history_the_index_equals_one_built_afresh(history):
    index = HashIndex(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))
    truth: dict[int, int] = {}
    for entering, ids in history:
        names = [i for i in ids if (i in truth) != entering]
        if not names:
            continue
        hashed = hashes(np.array(names))
        if entering:
            values = np.array([7 * i for i in names])
            index.add(hashed, values)
            truth |= dict(zip(names, values.tolist(), strict=True))
        else:
            index.remove(hashed, np.array([truth.pop(i) for i in names]))
        fresh = HashIndex(hashes(np.array(list(truth), dtype=np.int64)), np.array(list(truth.values()), dtype=np.int64))
        for mine, theirs in zip(_table(index), _table(fresh), strict=True):
            assert np.array_equal(mine, theirs)
        everyone = np.arange(61)
        assert index.first(hashes(everyone)).tolist() == [truth.get(i, -1) for i in range(61)]
        assert index.count == len(truth)


def test_entries_move_and_single_ones_leave():
    ids = np.arange(500)
    index = HashIndex(hashes(ids), ids * 10)
    index.move(hashes(ids[100:200]), ids[100:200] * 10, ids[100:200] * 10 + 1)
    index.move_one(hashes(ids[7:8]).item(0), 70, 71)
    index.remove_one(hashes(ids[8:9]).item(0), 80)
    wanted = np.where((ids >= 100) & (ids < 200), ids * 10 + 1, ids * 10)
    wanted[7], wanted[8] = 71, -1
    assert index.first(hashes(ids)).tolist() == wanted.tolist()
    assert index.count == 499


def test_entries_of_one_hash_are_told_apart():
    same = np.full(5, 12345, dtype=np.uint64)
    index = HashIndex(same, np.array([4, 2, 9, 1, 7]))
    assert index.find(12345) == [1, 2, 4, 7, 9]
    index.remove(same[:2], np.array([2, 7]))
    assert index.find(12345) == [1, 4, 9]
    index.move(same[:1], np.array([9]), np.array([3]))
    index.move_one(12345, 1, 8)
    assert index.find(12345) == [3, 4, 8]
    assert index.find(54321) == []


def test_strings_hash_alike_whatever_the_width_of_their_array():
    short, long = np.array(["ann", "bo"]), np.array(["ann", "bo", "a much longer name"])
    assert hashes(short).tolist() == hashes(long).tolist()[:2]
    assert len(set(hashes(np.array([f"user-{i}" for i in range(10_000)])).tolist())) == 10_000
    assert hashes(np.array([], dtype=np.str_)).size == 0


def test_negative_ids_are_ids_too():
    ids = np.array([-5, 5, np.iinfo(np.int64).min])
    index = HashIndex(hashes(ids), np.array([1, 2, 3]))
    assert [index.find(hashes(ids[j : j + 1]).item(0)) for j in range(3)] == [[1], [2], [3]]


def test_clusters_of_many_records_of_one_subject_lose_the_right_ones():
    for seed in range(15):
        rng = np.random.default_rng(seed)
        subjects = np.concatenate([np.zeros(600, dtype=np.int64), np.repeat(np.arange(1, 301), 2)])
        places = rng.integers(5, size=len(subjects))
        index = HashIndex(hashes(subjects), places)
        gone = rng.permutation(len(subjects))[:81]
        index.remove(hashes(subjects[gone]), places[gone])
        left = np.delete(np.arange(len(subjects)), gone)
        assert index.same_as(HashIndex(hashes(subjects[left]), places[left]))
        index.remove(hashes(subjects[left]), places[left])
        assert index.count == len(index.entries()[0]) == 0


def test_a_table_shrinks_when_entries_leave_one_by_one_and_is_that_of_a_fresh_one():
    ids = np.arange(4000)
    index = HashIndex(hashes(ids), ids)
    large = index.nbytes
    for one in range(3900):
        index.remove(hashes(ids[one : one + 1]), ids[one : one + 1])
    assert index.nbytes < large / 15
    assert index.same_as(HashIndex(hashes(ids[3900:]), ids[3900:]))
    assert index.first(hashes(ids[3950:3951])).tolist() == [3950]
    assert index.first(hashes(ids[:1])).tolist() == [-1]


def test_a_table_whose_last_entries_are_gone_has_the_length_of_a_fresh_one():
    high = np.full(30, 2**64 - 1, dtype=np.uint64)
    low = hashes(np.arange(100))
    index = HashIndex(np.concatenate([low, high]), np.arange(130))
    assert len(index._values) > len(HashIndex(low, np.arange(100))._values)
    index.remove(high[:20], np.arange(100, 120))
    for value in range(120, 130):
        index.remove_one(2**64 - 1, value)
    fresh = HashIndex(low, np.arange(100))
    assert index.same_as(fresh)
    assert len(index._values) == len(index._hashes) == len(fresh._values)
