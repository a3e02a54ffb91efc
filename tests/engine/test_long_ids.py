"""Ids have a length that they may have, and hashes that nobody can foresee."""

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import expunge
from expunge.base.errors import BadRecords
from expunge.base.intake import LONGEST, as_ids
from expunge.engine.records.lookup import fresh_hash_key, hash_one, hashes
from expunge.engine.records.memory import MemoryRecords
from expunge.store.file import StoreFile
from expunge.store.records import StoredRecords, index_records
from expunge.store.state import read_description, read_state, write_state

rng = np.random.default_rng(3)
N = 80
X = rng.normal(size=(N, 3)) / 9
Y = X[:, 0] > 0
KINDS = {"numbers": np.arange(N) * 7, "names": np.array([f"né-{k}" for k in range(N)])}
LONG = "x" * 2_000_000


@pytest.mark.parametrize("given", [
    ["a"] * 5_000 + [LONG], tuple(["a"] * 5_000 + [LONG]), [1] * 5_000 + [LONG],
    np.array(["a"] * 5_000 + [LONG], dtype=object), np.array([LONG]),
], ids=["list", "tuple", "mixed", "objects", "array"])  # fmt: skip
def test_a_name_that_is_too_long_is_refused_before_all_get_its_room(given):
    tracemalloc.start()
    with pytest.raises(
        BadRecords, match=rf"who: number {len(given) - 1} has 2,000,000 letters; give who of at most 1,000"
    ):
        as_ids("who", given)
    assert tracemalloc.get_traced_memory()[1] < 30_000_000  # and not 40 GB
    tracemalloc.stop()


def test_a_name_of_the_most_letters_is_taken_and_wide_arrays_are_narrowed():
    longest = "y" * LONGEST
    assert as_ids("ids", [longest, "z"]).tolist() == [longest, "z"]
    wide = as_ids("ids", np.array(["a", "b"], dtype=f"U{50 * LONGEST}"))
    assert (wide.tolist(), wide.dtype.itemsize) == (["a", "b"], 4 * LONGEST)


@pytest.mark.parametrize("ask", [
    lambda model: model.unlearn([LONG]), lambda model: model.unlearn(subjects=[LONG]),
    lambda model: model.insert(X[:1], Y[:1], ids=[LONG], subjects=["s"]),
    lambda model: model.insert(X[:1], Y[:1], ids=["i"], subjects=[LONG]),
    lambda model: model.replace(X[:1], Y[:1], ids=[LONG]),
])  # fmt: skip
def test_every_request_refuses_it(tmp_path, ask):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(
        X, Y, ids=KINDS["names"], subjects=KINDS["names"]
    ).save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        with pytest.raises(BadRecords, match="2,000,000 letters"):
            ask(model)
        assert model.n_records_ == N


@pytest.mark.parametrize("kind", KINDS)
def test_hashes_depend_on_the_key(kind):
    ids, keys = KINDS[kind], [fresh_hash_key() for _ in range(3)]
    found = [hashes(ids, key).tolist() for key in (b"", *keys)]
    assert len({value for one in found for value in one}) == 4 * N
    assert found[1] == hashes(ids, keys[0]).tolist() == [hash_one(ids[j : j + 1], keys[0]) for j in range(N)]
    if kind == "names":
        assert hashes(ids.astype("U99"), keys[0]).tolist() == found[1]
    assert hashes(ids[:0], keys[0]).tolist() == []


def test_ids_chosen_for_one_table_are_spread_over_another():
    """Numbers whose hashes without a key have the same first bits, as one who knows the function would choose them."""
    numbers = np.arange(2_000_000)
    chosen = numbers[hashes(numbers) >> np.uint64(53) == 0]
    assert len(chosen) > 500
    spread = np.bincount((hashes(chosen, fresh_hash_key()) >> np.uint64(53)).astype(np.int64))
    assert spread.max() < 20


def test_no_two_models_have_the_same_key_and_a_pickle_has_none(tmp_path):
    records = MemoryRecords((X,), ids=KINDS["names"])
    again = pickle.loads(pickle.dumps(records))
    assert len({records.hash_key, again.hash_key, MemoryRecords((X,)).hash_key}) == 3
    assert records.hash_key not in pickle.dumps(records)
    keys = set()
    for name in "ab":
        expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / name)
        with expunge.open(tmp_path / name) as stored:
            keys.add(stored._owner.state.inventory.hash_key)
            stored.compact()
            keys.add(stored._owner.state.inventory.hash_key)
            assert stored.verify().ok
    assert {len(key) for key in keys} == {32}
    assert len(keys) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_of_an_earlier_version_works_and_gets_a_key_when_it_is_compacted(tmp_path, kind):
    path, ids = tmp_path / "model", KINDS[kind]
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y, ids=ids, subjects=ids).save(path)
    forget_key(path)
    with expunge.open(path) as model:
        model.unlearn(ids[:3])
        model.unlearn(subjects=ids[3:4])
        model.insert(X[:2], Y[:2], ids=ids[:2], subjects=ids[:2])
        assert model.verify().ok
        assert model._owner.state.inventory.hash_key == ""
    with expunge.open(path, read_only=True) as model:
        assert model.n_records_ == N - 2
    with expunge.open(path) as model:
        model.compact()
        assert model._owner.state.inventory.hash_key
        model.unlearn(ids[4:6])
        assert model.verify().ok


def forget_key(path):
    """Index a store as earlier versions did."""
    file = StoreFile(path)
    state, schedule = read_state(file), read_description(file).plan.learner.schedule
    records = StoredRecords(file, state.inventory, schedule)
    names = [hashes(records.all_ids())], [hashes(records.subjects)]
    with file.transaction():
        index_records(file, *names, records.places.lengths)
        write_state(file, replace(state, inventory=replace(state.inventory, hash_key="")))
        text = file.text("about", 1)
        assert ',"hash_key":""' in text
        file.put_text("about", 1, text.replace(',"hash_key":""', ""))
    file.close()


def test_a_key_that_is_none_is_damage(tmp_path):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    file = StoreFile(tmp_path / "model")
    state = read_state(file)
    with file.transaction():
        write_state(file, replace(state, inventory=replace(state.inventory, hash_key="zz")))
    file.close()
    with pytest.raises(expunge.CorruptStore, match="key of the index"):
        expunge.open(tmp_path / "model")
