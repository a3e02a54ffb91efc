"""Memory follows the live records whatever the history, at the cost of a few copies a request."""

import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from cases.toys import check_buffers, interrupted, toy
from expunge import (
    Arrival,
    BinaryTree,
    Delete,
    Everyone,
    Identity,
    Insert,
    MemoryRecords,
    Replace,
    Scattered,
    Shuffled,
    change,
    learn,
    verify,
)
from expunge.engine.randomness import Randomness
from expunge.engine.records import pools
from expunge.engine.records.buffers import Buffers, blank
from expunge.engine.records.pools import resized
from expunge.engine.records.sparse import SparseColumn

WIDTH = 5
SCHEDULES = [Scattered(16), Shuffled(1), Shuffled(4), Arrival(3), Everyone(2), Everyone(2, 0.5)]
KINDS = [np.array, sparse.csr_array]
NAMES = ["dense", "sparse"]


class Look:
    """A query that takes dense and sparse rows."""

    size, bound = 2, 2**0.5

    def contributions(self, step, path, batch):
        x = batch[0].toarray() if sparse.issparse(batch[0]) else batch[0]
        return np.tanh(x[:, :2] - path[-1][::-1] + batch[1][:, None])


def looking(schedule):
    mechanism = Identity() if schedule.touches_everyone else BinaryTree()
    return toy(schedule, mechanism, sigma=3.0, query=Look())


def rows(rng, number, kind=np.array):
    x = rng.normal(size=(number, WIDTH)) * (rng.random((number, WIDTH)) < 0.6)
    return kind(x), rng.normal(size=number)


def started(schedule, kind, number=0, seed=0):
    rng = np.random.default_rng(seed)
    records = MemoryRecords(rows(rng, number, kind))
    records.arrange(schedule, rng)
    records.keep_layout()
    return records, rng


def serve(records, schedule, request, rng):
    records.stage(records.edit(schedule, request, Randomness.of(rng)))
    records.commit()


def parts(by_place):
    """All that has buffers."""
    for column in by_place.columns:
        yield column
        if isinstance(column, SparseColumn):
            yield column.counts


def check_memory(records):
    """Buffers are at most twice what the live records take up, and a little for each place."""
    by_place, count = records.places, records.count
    places = len(by_place)
    assert by_place.lengths.sum() == count
    for column in parts(by_place):
        itemsize = sum(dtype.itemsize for dtype in column.dtypes)
        live = column.stored if isinstance(column, SparseColumn) else count * column.width
        a_row = 0 if isinstance(column, SparseColumn) else column.width
        size = sum(buffer.nbytes for buffer in column.buffers())
        assert size <= 2 * live * itemsize + places * (3 * a_row * itemsize + 400) + 64 * itemsize
        for numbers in (column.cells, column.rooms):
            whole = numbers if numbers.base is None else numbers.base
            assert len(whole) <= 4 * places + 64
    if isinstance(by_place.columns[0], SparseColumn):
        nnz = sum(by_place.block(place)[0].nnz for place in range(places))
        assert by_place.columns[0].stored == nnz


def filled_of(column, by_place):
    return column.filled if isinstance(column, SparseColumn) else by_place.lengths * column.width


def check_layout(by_place):
    """Every place has the room that is meant for what lies there, and no more; around it everything is blank."""
    for column in parts(by_place):
        filled = filled_of(column, by_place)
        check_buffers(column, filled)
        assert len(by_place) == 1 or (column.rooms == column.rooms_for(filled)).all()


def content(records):
    found = [records.count, records.places.lengths.tolist()]
    for place in range(len(records.places)):
        for column in records.places.block(place):
            found.append((column.toarray() if sparse.issparse(column) else column).tobytes())
    return found


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_memory_follows_the_live_records_up_and_down(schedule, kind):
    records, rng = started(schedule, kind)
    serve(records, schedule, Insert(rows(rng, 3, kind)), rng)
    for target in (300, 20, 150, 1, 60):
        while records.count != target:
            gap = abs(target - records.count)
            number = min(gap, int(rng.choice([1, 2, 7, 40])))
            falling = records.count > target
            if rng.random() < 0.3 and records.count > 2 * number:  # against the trend
                falling = not falling
            ids = records.all_ids()
            request = Delete(rng.choice(ids, number, replace=False)) if falling else Insert(rows(rng, number, kind))
            serve(records, schedule, request, rng)
            check_memory(records)
        check_layout(records.places)
        assert records.audit() == []
    serve(records, schedule, Delete(records.all_ids()), rng)
    check_memory(records)
    again = pickle.loads(pickle.dumps(records))
    for one in (records, again):
        serve(one, schedule, Insert(rows(np.random.default_rng(1), 30, kind)), np.random.default_rng(2))
        check_memory(one)
        check_layout(one.places)
    assert content(again) == content(records)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SCHEDULES),
    st.sampled_from(KINDS),
    st.integers(0, 40),
    st.lists(st.tuples(st.sampled_from("iiddr"), st.integers(1, 60), st.booleans()), max_size=12),
)
def test_any_history_leaves_sound_regions_exact_sums_and_can_be_undone(schedule, kind, count, history):
    rng = np.random.default_rng(count)
    learner = looking(schedule)
    records = MemoryRecords(rows(rng, count, kind))
    transcript = learn(learner, records, rng)
    for what, number, undone in history:
        ids = records.all_ids()
        number = number if what == "i" else min(number, len(ids))
        chosen = ids[:0] if what == "i" else rng.choice(ids, number, replace=False)
        new = rows(rng, number, kind)
        request = Insert(new) if what == "i" else Delete(chosen) if what == "d" else Replace(new, chosen)
        before = content(records)
        decided = change(learner, records, transcript, request, rng)
        decided.rollback() if undone else decided.commit()
        assert not undone or content(records) == before
        check_memory(records)
        check_layout(records.places)
    assert records.audit() == []
    assert verify(learner, records, transcript)
    assert verify(*pickle.loads(pickle.dumps((learner, records, transcript))))


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_an_eighth_of_a_room_is_to_spare_at_most(kind):
    records, _ = started(Scattered(16), kind, 5000)
    for column in parts(records.places):
        filled = filled_of(column, records.places)
        assert (column.rooms <= filled + np.maximum(filled / 8, column.step)).all()
        assert column.rooms_for(filled).tolist() == [column.room_for(one) for one in filled.tolist()]


@pytest.mark.parametrize("schedule", [Scattered(4), Shuffled(3), Everyone(2)], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_no_buffer_that_was_given_up_holds_anything(schedule, kind, monkeypatch):
    given_out, real = [], pools.aligned

    def watched(elements, dtype):
        given_out.append(real(elements, dtype))
        return given_out[-1]

    monkeypatch.setattr(pools, "aligned", watched)
    records, rng = started(schedule, kind, 20)
    marked = 123.456789
    serve(records, schedule, Insert((kind([[marked] * WIDTH]), [marked]), [999]), rng)
    for number in (1, 40, 1, 300):
        serve(records, schedule, Insert(rows(rng, number, kind), records.all_ids().max() + 1 + np.arange(number)), rng)
    pattern = np.float64(marked).tobytes()
    assert any(pattern in buffer.tobytes() for buffer in given_out)
    serve(records, schedule, Delete([999]), rng)
    assert not any(pattern in buffer.tobytes() for buffer in given_out)
    assert pattern not in pickle.dumps(records)
    serve(records, schedule, Delete(records.all_ids()[5:]), rng)
    live = {id(buffer.base) for column in parts(records.places) for buffer in column.buffers()}
    old = [buffer for buffer in given_out if id(buffer.base) not in live]
    assert len(old) > 6
    assert all((buffer == blank(buffer.dtype)).all() for buffer in old)


REQUESTS = [
    Insert((np.ones((1, WIDTH)), np.ones(1))),
    Insert((np.ones((9, WIDTH)), np.ones(9))),
    Delete([1]),
    Delete(range(2, 22)),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=["in", "many in", "out", "many out"])
@pytest.mark.parametrize("schedule", [Scattered(3), Shuffled(2), Everyone(2)], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_an_interruption_at_any_line_is_survived(request_, schedule, kind):
    """The first insertion lays everything out anew, and so does a deletion of almost all."""
    wanted = None
    for turn in range(10_000):
        number = 7 * turn
        for way in ("rollback", "commit"):
            records, _ = started(schedule, kind, 24)
            records.locate([3])
            before = content(records)
            edit = records.edit(schedule, request_, Randomness.of(np.random.default_rng(1)))
            done = interrupted(partial(records.stage, edit), number)
            if records.staged is None:
                records.stage(edit)
            elif not done:
                interrupted(records.rollback, number // 2)
                records.rollback()
                assert content(records) == before
                records.stage(edit)
            done &= interrupted(records._staging.finish, number)
            if way == "rollback":
                done &= interrupted(records.rollback, number)
                records.rollback()
                assert content(records) == before
            else:
                done &= interrupted(records.commit, number)
                if records.staged is not None:
                    records.commit()
                wanted = wanted or content(records)
                assert content(records) == wanted
            assert records.audit() == []
            check_layout(records.places)
            check_memory(records)
        if done:
            break
    assert number > 30


class Counted:
    """How many elements are copied from region to region."""

    def __init__(self, monkeypatch):
        self.copied = 0
        move = Buffers._move

        def counted_move(buffers, place, room):
            have = buffers.rooms.item(place)
            self.copied += min(have, room)
            self.copied += room if room in buffers.pools else 0  # who makes way
            self.copied += have if have and len(buffers.pools[have].owners) > 1 else 0  # who fills the hole
            move(buffers, place, room)

        monkeypatch.setattr(Buffers, "_move", counted_move)


@pytest.mark.parametrize("schedule", [Scattered(8), Shuffled(4), Arrival(1), Arrival(5), Everyone(2)], ids=str)
def test_what_is_copied_grows_with_the_requests_and_not_with_the_records(schedule, monkeypatch):
    counted = Counted(monkeypatch)
    records, rng = started(schedule, np.array, 10)
    numbers = WIDTH + 2  # of a record: features, target, id
    for _ in range(2):
        counted.copied = 0
        first = records.count
        for _ in range(1500):
            serve(records, schedule, Insert(rows(rng, 1)), rng)
        assert counted.copied < 60 * 1500 * numbers
        counted.copied = 0
        for one in rng.permutation(records.all_ids())[: 1500 + first - 10].tolist():
            serve(records, schedule, Delete([one]), rng)
        assert counted.copied < (4 if schedule == Everyone(2) else 60) * 1500 * numbers


def test_places_are_added_and_dropped_at_little_cost():
    numbers, wholes = np.zeros(0, dtype=np.int64), set()
    for size in [*range(1, 20_000), *range(20_000, -1, -1)]:
        numbers = resized(numbers, size)
        numbers[-1:] = size
        wholes.add(id(numbers.base))
    assert len(wholes) < 120
    numbers = resized(resized(np.arange(1, 9), 3), 6)
    assert numbers.tolist() == [1, 2, 3, 0, 0, 0]
    part = np.arange(10)[2:5]  # of someone else's array
    assert resized(part, 5).tolist() == [2, 3, 4, 0, 0]
    assert len(resized(resized(np.arange(10_000), 10), 12).base) < 100
