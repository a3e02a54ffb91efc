"""An index in a store does what one in memory does, and its bytes depend on who is in it only."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.stores import PAGE_SIZES, new_file
from expunge.base.errors import CorruptStore
from expunge.engine.records.index import HashIndex
from expunge.engine.records.lookup import hashes
from expunge.store.file import StoreFile
from expunge.store.rows import StoredIndex, buckets_for

some = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# few hashes, at the ends and in the middle, and values of which many are alike
POOL = np.array([0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, *hashes(np.arange(40)).tolist()], dtype=np.uint64)
entry = st.tuples(st.sampled_from(range(len(POOL))), st.integers(0, 3))
step = st.tuples(st.sampled_from(["add", "remove", "move", "remove_one", "move_one"]), st.lists(entry, max_size=30))


@pytest.fixture
def file(tmp_path):
    opened = new_file(tmp_path / "store")
    opened.begin()
    yield opened
    opened.rollback()
    opened.close()


def as_arrays(entries):
    return POOL[[which for which, _ in entries]], np.array([value for _, value in entries], dtype=np.int64)


def there(wanted, have):
    """Those of the wanted entries that are there, each as often as it is."""
    left, found = list(have), []
    for one in wanted:
        if one in left:
            left.remove(one)
            found.append(one)
    return found, left


def content(file):
    return [(number, bytes(held)) for number, held in file.all("ids")]


@some
@given(st.lists(entry, max_size=100), st.lists(step, max_size=8), st.integers(1, 7))
def test_over_any_history_it_is_what_an_index_in_memory_is(file, first, history, buckets):
    file.drop("ids", 0)
    have = list(first)
    stored, memory = StoredIndex.store(file, "ids", *as_arrays(have)), HashIndex(*as_arrays(have))
    assert stored.buckets == buckets_for(len(have), 512)
    file.drop("ids", 0)
    stored = StoredIndex(file, "ids", buckets)
    stored.add(*as_arrays(have))
    for kind, entries in history:
        if kind == "add":
            have += entries
            for index in (stored, memory):
                index.add(*as_arrays(entries))
        else:
            entries = entries[:1] if kind.endswith("one") else entries
            going, have = there(entries, have)
            hashed, values = as_arrays(going)
            new = (values + 1) % 5 if kind.startswith("move") else values[:0]
            if kind.startswith("move"):
                have += [(which, int(value)) for (which, _), value in zip(going, new, strict=True)]
            ask = {
                "remove": lambda index, h=hashed, v=values: index.remove(h, v),
                "move": lambda index, h=hashed, v=values, n=new: index.move(h, v, n),
                "remove_one": lambda index, h=hashed, v=values: [index.remove_one(h.item(0), v.item(0)) for _ in h],
                "move_one": lambda index, h=hashed, v=values, n=new: [
                    index.move_one(h.item(0), v.item(0), n.item(0)) for _ in h
                ],
            }[kind]
            for index in (stored, memory):
                ask(index)
        assert stored.same_as(memory)
    everyone = np.concatenate([POOL, hashes(np.arange(1000, 1010))])
    assert stored.first(everyone).tolist() == memory.first(everyone).tolist()
    assert [stored.find(one) for one in everyone.tolist()] == [memory.find(one) for one in everyone.tolist()]
    before = content(file)
    file.drop("ids", 0)
    StoredIndex(file, "ids", buckets).add(*as_arrays(have))
    assert content(file) == before


def test_many_entries_of_one_hash(file):
    values = np.arange(500)
    hashed = np.full(500, 12345, dtype=np.uint64)
    index = StoredIndex.store(file, "subjects", hashed, values[::-1])
    assert index.find(12345) == values.tolist()
    assert index.first(hashed[:2]).tolist() == [0, 0]
    index.remove(hashed[:100], values[::5])
    assert len(index.find(12345)) == 400
    index.move(hashed[:1], np.array([499]), np.array([0]))
    assert index.find(12345)[:2] == [0, 1]
    index.add(hashed[:3], np.array([7, 7, 7]))
    assert index.find(12345).count(7) == 4
    index.remove(hashed[:2], np.array([7, 7]))
    assert index.find(12345).count(7) == 2


@pytest.mark.parametrize("page", PAGE_SIZES)
def test_buckets_are_about_a_page_and_hold_equal_shares(tmp_path, page):
    file = new_file(tmp_path / "store", page)
    ids = np.arange(20_000)
    with file.transaction():
        index = StoredIndex.store(file, "ids", hashes(ids), ids)
    sizes = [len(held) for _, held in file.all("ids")]
    assert sum(sizes) == 16 * len(ids)
    assert len(sizes) == index.buckets == buckets_for(len(ids), page)
    assert np.mean(np.array(sizes) + 8 <= page - 12) > 0.8
    assert index.first(hashes(ids)).tolist() == ids.tolist()
    file.close()


def test_one_request_writes_few_buckets(file):
    ids = np.arange(5000)
    index = StoredIndex.store(file, "ids", hashes(ids), ids)
    before = dict(content(file))
    index.remove(hashes(ids[7:8]), ids[7:8])
    assert len([number for number, held in content(file) if before[number] != held]) == 1


def test_an_empty_bucket_takes_no_room(file):
    ids = np.arange(50)
    index = StoredIndex.store(file, "ids", hashes(ids), ids)
    index.remove(hashes(ids), ids)
    assert content(file) == []
    assert index.find(7) == []
    assert index.first(hashes(ids)).tolist() == [-1] * 50
    assert index.entries()[0].dtype == np.uint64


def test_an_entry_that_is_not_there_is_named(file):
    index = StoredIndex.store(file, "ids", hashes(np.arange(5)), np.arange(5))
    for hashed, value in ((hashes(np.array([3])), 4), (hashes(np.array([9])), 3), (np.array([0], dtype=np.uint64), 1)):
        with pytest.raises(CorruptStore, match=r"store: ids, row 0 lacks a record; restore a backup"):
            index.remove(hashed, np.array([value]))
    with pytest.raises(CorruptStore, match="lacks a record"):
        index.remove(hashes(np.array([3, 3])), np.array([3, 3]))


def test_a_bucket_that_is_cut_off_is_named(file):
    index = StoredIndex.store(file, "ids", hashes(np.arange(5)), np.arange(5))
    file.put("ids", 0, b"x" * 79)
    with pytest.raises(CorruptStore, match=r"store: ids, row 0 is not whole; restore a backup"):
        index.find(5)
    with pytest.raises(CorruptStore, match=r"store: ids.* not whole; restore a backup"):
        index.entries()


def test_it_is_there_for_who_opens_the_file_later(tmp_path):
    file = new_file(tmp_path / "store")
    with file.transaction():
        buckets = StoredIndex.store(file, "ids", hashes(np.arange(300)), np.arange(300)).buckets
    file.close()
    file = StoreFile(tmp_path / "store", read_only=True)
    assert StoredIndex(file, "ids", buckets).first(hashes(np.arange(299, 301))).tolist() == [299, -1]
    file.close()
