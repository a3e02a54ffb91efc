"""Sparse columns: the same records as dense ones after any history, canonical, and deleted means gone."""

import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import expunge.base.columns
from cases.toys import check_buffers, interrupted, toy
from expunge import (
    Arrival,
    Delete,
    DualAveragingRule,
    Everyone,
    Gradient,
    Identity,
    Insert,
    Learner,
    MemoryRecords,
    PerRecord,
    Replace,
    Scattered,
    Shuffled,
    SquareRoot,
    change,
    insert,
    learn,
    replace,
    unlearn,
    verify,
)
from expunge.base.errors import BadRecords
from expunge.engine.checks import check_exact
from expunge.engine.randomness import Randomness
from expunge.engine.records.places import Places
from expunge.engine.records.sparse import SparseColumn
from expunge.engine.transcript import Path
from expunge.solvers.losses import Logistic

WIDTH = 6
SCHEDULES = [Scattered(3), Scattered(2, epochs=2), Shuffled(2), Arrival(3), Everyone(2), Everyone(2, 0.5)]


class Look:
    """A query that does the same with dense and sparse rows, to the last bit."""

    size, bound = 2, 2**0.5

    def contributions(self, step, path, batch):
        x = batch[0].toarray() if sparse.issparse(batch[0]) else batch[0]
        return np.tanh(1.5 * x[:, :2] + x[:, 2:4] * x[:, 4:] - path[-1][::-1] + batch[1][:, None])


def rows(rng, number, filled=0.4):
    """Rows in which most numbers are zero; some are zero altogether, some are full."""
    shares = rng.choice([0.0, filled, filled, 1.0], size=(number, 1))
    return np.where(rng.random((number, WIDTH)) < shares, rng.normal(size=(number, WIDTH)), 0.0)


def looking(schedule, sigma=1.5):
    return toy(schedule, Identity() if schedule.touches_everyone else None, sigma=sigma, query=Look())


def content(records):
    """Everything that the records are, as bytes; rows of sparse columns must be canonical."""
    found = [records.count, records.places.lengths.tolist()]
    for place in range(len(records.places)):
        for column in records.places.block(place):
            if sparse.issparse(column):
                check_canonical(column)
                column = column.toarray()
            found.append((column.shape, column.tobytes()))
    return found


def check_canonical(column):
    fresh = sparse.csr_array((column.data.copy(), column.indices.copy(), column.indptr.copy()), shape=column.shape)
    assert isinstance(column, sparse.csr_array)
    assert column.dtype == np.float64
    assert column.indices.dtype == column.indptr.dtype == np.int32
    assert fresh.has_canonical_format
    assert column.data.all()


def check_blank(by_place):
    """Outside of the live rows, everything is zero."""
    for column in by_place.columns:
        if not isinstance(column, SparseColumn):
            continue
        nnz = [column.block(place, length).nnz for place, length in enumerate(by_place.lengths.tolist())]
        assert column.filled.tolist() == nnz
        check_buffers(column, column.filled)
        check_buffers(column.counts, by_place.lengths)


def same_tables(one, other):
    pairs = ((one.sums, other.sums), (one.answers, other.answers), (one.iterates, other.iterates))
    return all(np.array_equal(a[:], b[:]) for a, b in pairs)


# --- the same as dense records ---


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(SCHEDULES),
    st.integers(0, 12),
    st.lists(st.tuples(st.sampled_from("ddirx"), st.integers(1, 7), st.integers(0, 10**6), st.booleans()), max_size=14),
    st.booleans(),
)
def test_after_any_history_sparse_records_are_the_dense_ones(schedule, count, history, grouped):
    draw = np.random.default_rng(0)
    learner = looking(schedule, sigma=2.0)
    x, y = rows(draw, count), draw.normal(size=count)
    subjects = np.arange(count) % 4 if grouped else None
    both = [MemoryRecords((x, y), subjects=subjects), MemoryRecords((sparse.csr_array(x), y), subjects=subjects)]
    rngs = [np.random.default_rng(1), np.random.default_rng(1)]
    tables = [learn(learner, records, rng) for records, rng in zip(both, rngs, strict=True)]
    known = both[0].all_ids().tolist()
    next_id = count
    for kind, number, salt, undone in history:
        chosen = list(dict.fromkeys(known[(salt + 5 * k) % len(known)] for k in range(number))) if known else []
        if kind == "i":
            new, at, ids = rows(draw, number), draw.normal(size=number), list(range(next_id, next_id + number))
            owners = [(salt + k) % 6 for k in range(number)] if grouped else None
            requests = [Insert((kind_(new), at), ids, owners) for kind_ in (np.array, sparse.csc_array)]
        elif kind == "r":
            new, at = rows(draw, len(chosen)), draw.normal(size=len(chosen))
            requests = [Replace((kind_(new), at), chosen) for kind_ in (np.array, np.array)]
        else:
            chosen = chosen[:1] if kind == "x" else chosen
            requests = [Delete(chosen)] * 2
        before = content(both[1])
        changes = [change(learner, *four) for four in zip(both, tables, requests, rngs, strict=True)]
        for one in changes:
            one.rollback() if undone else one.commit()
        if undone:
            assert content(both[1]) == before
        elif kind == "i":
            known, next_id = known + ids, next_id + number
        elif kind != "r":
            known = [one for one in known if one not in chosen]
        assert content(both[1]) == content(both[0])
        assert same_tables(*tables)
        assert both[1].audit() == []
        check_blank(both[1].places)
    assert verify(learner, both[1], tables[1])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_verify_is_bitwise_after_a_history_and_after_pickling(schedule):
    rng = np.random.default_rng(2)
    width, mechanism = 40, Identity() if schedule.touches_everyone else SquareRoot()
    x = sparse.random_array((60, width), density=0.1, format="csr", rng=rng)
    y = np.sign(rng.normal(size=60))
    query = Gradient(Logistic(), width, feature_norm=8.0)
    learner = Learner(schedule, query, toy(schedule, mechanism).rule.__class__(np.zeros(width), 0.1), mechanism, 4.0)
    records = MemoryRecords((x, y))
    transcript = learn(learner, records, rng)
    for turn in range(6):
        unlearn(learner, records, transcript, rng.choice(records.all_ids(), 1 + turn, replace=False), rng=rng)
        new = sparse.random_array((3, width), density=0.3, format="coo", rng=rng)
        insert(learner, records, transcript, (new, np.ones(3)), rng=rng)
        replace(learner, records, transcript, (new, -np.ones(3)), records.all_ids()[:3], rng=rng)
        assert verify(learner, records, transcript)
    again = pickle.loads(pickle.dumps((learner, records, transcript)))
    assert verify(*again)
    assert content(again[1]) == content(records)
    for column in again[1].places.columns:
        assert all(buffer.ctypes.data % 64 == 0 for buffer in column.buffers())
    some = records.all_ids()[:2]
    for one, tables in ((records, transcript), again[1:]):
        unlearn(learner, one, tables, some, rng=np.random.default_rng(3))
    assert content(again[1]) == content(records)
    assert same_tables(again[2], transcript)
    assert verify(*again)


def test_a_query_gets_a_csr_array_on_views_of_the_place_in_its_order():
    rng = np.random.default_rng(4)
    x, seen = rows(rng, 30), []

    class Spy(Look):
        def contributions(self, step, path, batch):
            seen.append(batch[0])
            return super().contributions(step, path, batch)

    learner = toy(Scattered(3), query=Spy())
    records = MemoryRecords((sparse.csr_matrix(x), np.ones(30)))
    transcript = learn(learner, records, rng)
    records.locate([3])
    unlearn(learner, records, transcript, [3, 5], rng=rng)
    assert all(isinstance(column, sparse.csr_array) for column in seen)
    stored = records.places.columns[0]
    for place in range(3):
        column = records.batch_at(place)[0]
        assert np.array_equal(column.toarray(), x[records.ids_at(place)])
        data, indices = stored.at(place)[0]
        assert np.shares_memory(column.data, data)
        assert np.shares_memory(column.indices, indices)


def test_plain_functions_and_gradients_take_sparse_rows():
    rng = np.random.default_rng(5)
    x, y, path = rows(rng, 9), np.sign(rng.normal(size=9)), Path(rng.normal(size=WIDTH), None, 0)
    batch = (sparse.csr_array(x), y)
    plain = PerRecord(lambda step, path, one, other: other * one - path[-1], size=WIDTH, bound=9.0)
    gradient = Gradient(Logistic(), WIDTH, feature_norm=9.0)
    assert np.array_equal(plain.contributions(0, path, batch), plain.contributions(0, path, (x, y)))
    one, other = (gradient.contributions(0, path, given_) for given_ in (batch, (x, y)))
    np.testing.assert_allclose(one, other, atol=1e-12)
    np.testing.assert_allclose(gradient.total(0, path, batch)[0], gradient.total(0, path, (x, y))[0], atol=1e-12)
    gradient.admit(batch)
    with pytest.raises(BadRecords, match="feature_norm"):
        Gradient(Logistic(), WIDTH, feature_norm=1e-3).admit(batch)
    with pytest.raises(BadRecords, match="3 columns"):
        Gradient(Logistic(), 3).admit(batch)


# --- exactness ---


class Slope:
    """A bounded gradient, by products of sparse arrays."""

    size, bound = 2, 3.0

    def contributions(self, step, path, batch):
        x, y = batch
        return np.tanh(x @ path[-1] - y)[:, None] * x.toarray()


SMALL = sparse.csr_array(np.array([[1.0, 0.0], [0.0, -1.5], [0.0, 0.0], [0.7, 1.2], [0.0, 0.4]]))
SMALL_Y = np.array([0.5, -1.0, 0.3, 0.2, -2.0])
NEW = sparse.csr_array(np.array([[0.0, 2.0]]))
SMALL_REQUESTS = [Delete([0]), Insert((NEW, [1.0]), [9]), Replace((NEW, [0.1]), [2])]


@pytest.mark.long
@pytest.mark.parametrize(
    ("schedule", "requests", "runs"),
    [(Scattered(2), SMALL_REQUESTS, 2_000), (Shuffled(2), SMALL_REQUESTS[:2], 1_000)],
    ids=["scattered", "shuffled"],
)
def test_the_state_after_changes_of_sparse_records_has_the_law_of_fresh_learning(schedule, requests, runs):
    learner = toy(schedule, query=Slope(), sigma=1.0)
    report = check_exact(learner, (SMALL, SMALL_Y), requests, runs=runs, seed=6)
    assert report.passed, report


def test_control_a_sparse_row_that_stays_behind_is_caught(monkeypatch):
    real = SparseColumn.rewrite

    def lazy(self, place, slots, rows, after, kept):
        real(self, place, slots[:0], None, after, kept)

    monkeypatch.setattr(SparseColumn, "rewrite", lazy)
    learner = toy(Scattered(1), query=Slope(), sigma=1.0)
    report = check_exact(learner, (SMALL, SMALL_Y), [Delete([0])], runs=1_000, seed=7)
    assert report.p_value < 1e-6, report


# --- deleted means gone ---


@pytest.mark.parametrize("schedule", [Scattered(2), Shuffled(3), Everyone(2, 0.5)], ids=str)
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_no_byte_of_a_deleted_sparse_record_stays_in_memory(schedule, how):
    rng = np.random.default_rng(8)
    width, marked, where = 50_000_000, 123.456789, 0x02ABCDEF

    def light(number, each):
        at = rng.integers(1000, size=(number, each)).ravel()
        return sparse.csr_array((np.ones(number * each), at, np.arange(0, number * each + 1, each)), (number, width))

    x = sparse.vstack([light(2, 2), sparse.csr_array(([marked, 1.0], [where, 7], [0, 2]), (1, width)), light(2, 3)])

    class Count:
        size, bound = 2, 9.0

        def contributions(self, step, path, batch):
            return np.diff(batch[0].indptr)[:, None] * np.ones(2)

    learner = toy(schedule, Identity() if schedule.touches_everyone else None, query=Count())
    records = MemoryRecords((x,), ids=["a", "b", "someone", "d", "e"])
    transcript = learn(learner, records, rng)
    records.locate(["b", "d"])
    insert(learner, records, transcript, (light(30, 9),), [f"new {k}" for k in range(30)], rng=rng)  # regions move
    patterns = (np.float64(marked).tobytes(), np.int32(where).tobytes())
    assert all(pattern in pickle.dumps(records) for pattern in patterns)
    change(learner, records, transcript, Delete(["someone"]), rng).rollback()
    assert all(pattern in pickle.dumps(records) for pattern in patterns)
    if how == "deleted":
        unlearn(learner, records, transcript, ["someone"], rng=rng)
    else:
        replace(learner, records, transcript, (light(1, 1),), ["someone"], rng=rng)
    assert not any(pattern in pickle.dumps(records) for pattern in patterns)
    check_blank(records.places)


def put(by_place, place, slots, new, more):
    at, places, none = np.full(len(new), place), np.array([place]), np.zeros(0, dtype=np.int64)
    rows = (sparse.csr_array(new),)
    by_place.make_room(at, slots, rows)
    after = by_place.lengths[places] + more
    by_place.rewrite(places, after, by_place.keep(places), at, slots, rows, none, none)


def test_old_buffers_are_blanked_when_regions_move():
    rng = np.random.default_rng(9)
    by_place = Places((sparse.csr_array(rows(rng, 12)),), np.arange(12), np.array([4, 0, 8]))
    column = by_place.columns[0]
    truth = [by_place.block(place)[0].toarray() for place in range(3)]
    for turn in range(40):
        place, old = turn % 3, list(column.buffers())
        new = rows(rng, 1 + turn % 5, 0.9)
        put(by_place, place, by_place.lengths.item(place) + np.arange(len(new)), new, len(new))
        truth[place] = np.concatenate([truth[place], new])
        live = {buffer.ctypes.data for buffer in column.buffers()}
        assert not any(buffer.any() for buffer in old if buffer.ctypes.data not in live)
        for at in range(3):
            assert np.array_equal(by_place.block(at)[0].toarray(), truth[at])
        check_blank(by_place)


@pytest.mark.parametrize("schedule", [Shuffled(1), Shuffled(3), Arrival(4), Scattered(5), Everyone(2)], ids=str)
def test_memory_does_not_grow_with_the_number_of_requests_on_sparse_records(schedule):
    rng = np.random.default_rng(10)
    learner = looking(schedule, sigma=3.0)
    records = MemoryRecords((sparse.csr_array(rows(rng, 30)), np.ones(30)))
    transcript = learn(learner, records, rng)
    for turn in range(150):
        unlearn(learner, records, transcript, [turn], rng=rng)
        insert(learner, records, transcript, (rows(rng, 1), [1.0]), rng=rng)
    assert records.nbytes()["columns"] < 30 * 16 * 12 * 8
    check_blank(records.places)
    assert verify(learner, records, transcript)


@pytest.mark.parametrize("request_", [Delete([1]), Delete([1, 4, 5]), Insert((np.ones((9, WIDTH)), np.ones(9)))])
@pytest.mark.parametrize("way", ["rollback", "commit"])
def test_an_interruption_at_any_line_can_be_undone_or_made_good(request_, way):
    learner = looking(Scattered(2), sigma=0.3)
    after = None
    for number in range(0, 10_000, 4):
        rng = np.random.default_rng(11)
        records = MemoryRecords((sparse.csr_array(rows(rng, 9)), np.ones(9)))
        learn(learner, records, rng)
        records.locate([3])
        before = content(records)
        records.stage(records.edit(learner.schedule, request_, Randomness.of(np.random.default_rng(12))))
        done = interrupted(records._staging.finish, number)
        if way == "rollback":
            records.rollback()
            assert content(records) == before
        else:
            records.commit()
            assert records.audit() == []
            after = after or content(records)
            assert content(records) == after
        check_blank(records.places)
        if done:
            break
    assert number > 40


def test_an_interruption_at_any_line_of_laying_out_anew_loses_nothing():
    x, y = rows(np.random.default_rng(20), 12), np.arange(12.0)
    for number in range(500):
        by_place = Places((sparse.csr_array(x), y), np.arange(12), np.array([7, 5]))
        thin, flat = by_place.columns
        ends = [
            interrupted(partial(flat.reserve, 0, 20), number),
            interrupted(partial(flat.change_type, np.dtype(np.float32), by_place.lengths), number),
            interrupted(partial(thin.reserve, 0, 50), number),
        ]
        settled = interrupted(partial(by_place.fit_rooms, np.arange(2)), number // 2)
        for place, part in ((0, slice(7)), (1, slice(7, 12))):
            block = by_place.block(place)
            assert np.array_equal(block[0].toarray(), x[part])
            assert np.array_equal(block[1], y[part])
        by_place.fit_rooms(np.arange(2))
        ends.append(settled)
        for place, part in ((0, slice(7)), (1, slice(7, 12))):
            block = by_place.block(place)
            assert np.array_equal(block[0].toarray(), x[part])
            assert np.array_equal(block[1], y[part])
        check_blank(by_place)
        if all(ends):
            break
    assert 10 < number < 499


# --- places ---


def test_rows_are_gathered_in_the_order_asked_for():
    rng = np.random.default_rng(13)
    x = rows(rng, 20)
    order, lengths = rng.permutation(20), np.array([5, 0, 12, 3])
    by_place = Places((sparse.csr_array(x),), order, lengths)
    places, slots = np.array([2, 0, 3, 2, 2, 0]), np.array([11, 4, 0, 0, 5, 0])
    starts = np.cumsum(lengths) - lengths
    found = by_place.gather(places, slots)[0]
    check_canonical(found)
    assert np.array_equal(found.toarray(), x[order[starts[places] + slots]])
    assert by_place.gather(places[:0], slots[:0])[0].shape == (0, WIDTH)


def test_a_large_column_is_laid_out_in_parts(monkeypatch):
    monkeypatch.setattr("expunge.engine.records.sparse.CHUNK", 16)
    rng = np.random.default_rng(14)
    x = rows(rng, 50)
    order, lengths = rng.permutation(50), np.array([0, 20, 1, 0, 29, 0])
    by_place = Places((sparse.csr_array(x),), order, lengths)
    laid = np.concatenate([by_place.block(place)[0].toarray() for place in range(6)])
    assert np.array_equal(laid, x[order])
    check_blank(by_place)


def test_many_columns_or_many_numbers_take_64_bit_indices(monkeypatch):
    rng = np.random.default_rng(15)
    wide = sparse.csr_array((np.ones(3), [5, 2**31 + 1, 2**31 + 3], [0, 1, 3]), shape=(2, 2**31 + 4))
    assert MemoryRecords((wide,))._waiting[0].indices.dtype == np.int64
    by_place = Places((wide,), np.arange(2), np.array([2]))
    assert by_place.block(0)[0].indices.tolist() == wide.indices.tolist()
    monkeypatch.setattr(expunge.base.columns, "LARGEST", 50)
    x = rows(rng, 60, 0.9)
    by_place = Places((sparse.csr_array(x),), np.arange(60), np.array([55, 5]))
    assert by_place.columns[0].dtypes[1] == np.int32
    for place, part in enumerate((x[:55], x[55:])):
        column = by_place.block(place)[0]
        assert column.indices.dtype == column.indptr.dtype == (np.int64, np.int32)[place]
        assert np.array_equal(column.toarray(), part)
    put(by_place, 0, np.array([3]), x[57:58], -1)
    assert np.array_equal(by_place.block(0)[0].toarray(), np.concatenate([x[:3], x[57:58], x[4:54]]))
    check_blank(by_place)


# --- what comes in ---


def same_as(x, given_):
    column = MemoryRecords((given_,))._waiting[0]
    check_canonical(column)
    assert np.array_equal(column.toarray(), x)


def test_every_format_and_type_comes_in_canonical_and_the_caller_keeps_his():
    x = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 1.0]])
    for kind in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.csc_matrix, sparse.coo_array):
        same_as(x, kind(x))
        for dtype in (np.float32, np.int64, np.uint8, np.longdouble):
            same_as(x, kind(x.astype(dtype)))
    same_as(x != 0, sparse.csr_array(x != 0))
    long = sparse.csr_array(x)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    same_as(x, long)
    messy = sparse.csr_array(([2.0, 0.5, 0.0, 0.5, 1.0, 3.0], [2, 0, 1, 0, 2, 1], [0, 4, 4, 6]), shape=(3, 3))
    same_as(x, messy)
    assert messy.indices.tolist() == [2, 0, 1, 0, 2, 1]
    assert messy.data.tolist() == [2.0, 0.5, 0.0, 0.5, 1.0, 3.0]


def _csr(data, indices=(0, 1), ends=(0, 1, 2), shape=(2, 3)):
    column = sparse.csr_array(shape)
    column.data, column.indices, column.indptr = np.array(data), np.array(indices), np.array(ends)
    return column


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ((_csr([1.0, np.nan]),), r"columns\[0\]: row 1 has NaN"),
        ((np.ones(2), _csr([np.inf, 1.0])), r"columns\[1\]: row 0 has NaN or inf"),
        ((_csr([1.0, np.inf], ends=(0, 0, 0, 2), shape=(3, 3)),), "row 2 has"),
        ((_csr([1.0 + 1j, 2.0]),), r"columns\[0\]: expected numbers, got sparse complex128"),
        ((_csr(np.array([1.0, "a"], dtype=object)),), "got sparse object"),
        ((_csr([1.0, 2.0], indices=(0, 3)),), r"columns\[0\]: not a valid sparse matrix"),
        ((_csr([1.0, 2.0], indices=(0, -1)),), "not a valid"),
        ((_csr([1.0, 2.0], ends=(0, 2, 1)),), "not a valid"),
        ((_csr([1.0, 2.0]), np.ones(3)), r"columns\[1\] has 3 rows, columns\[0\] has 2"),
    ],
)
def test_bad_sparse_columns_are_named(columns, match):
    with pytest.raises(BadRecords, match=match):
        MemoryRecords(columns)


def test_a_flat_sparse_array_is_refused():
    with pytest.raises(BadRecords, match=r"one row for each record, got shape \(3,\)"):
        MemoryRecords((sparse.coo_array([1.0, 0.0, 2.0]),))


def test_new_rows_must_fit_the_sparse_column():
    rng = np.random.default_rng(16)
    learner = looking(Scattered(2))
    records = MemoryRecords((sparse.csr_array(rows(rng, 5)), np.ones(5)))
    transcript = learn(learner, records, rng)
    before = content(records)
    for column, match in (
        (sparse.csr_array((1, WIDTH + 1)), rf"columns\[0\]: rows of shape \({WIDTH + 1},\)"),
        (np.ones((1, WIDTH + 1)), "rows of shape"),
        (np.ones(1), "rows of shape"),
        (np.full((1, WIDTH), np.nan), "row 0 has NaN"),
        (np.full((1, WIDTH), "x", dtype=object), "expected numbers"),
    ):
        for request in (Insert((column, [1.0])), Replace((column, [1.0]), [2])):
            with pytest.raises(BadRecords, match=match):
                change(learner, records, transcript, request, rng)
    assert content(records) == before
    dense = MemoryRecords((rows(rng, 5), np.ones(5)))
    transcript = learn(learner, dense, rng)
    with pytest.raises(BadRecords, match=r"columns\[0\]: sparse, the model's records are dense; pass its toarray"):
        insert(learner, dense, transcript, (sparse.csr_array((1, WIDTH)), [1.0]), rng=rng)


def test_all_can_be_deleted_and_others_come():
    rng = np.random.default_rng(17)
    for schedule in SCHEDULES:
        learner = looking(schedule)
        records = MemoryRecords((sparse.csr_array(rows(rng, 5)), np.ones(5)))
        transcript = learn(learner, records, rng)
        unlearn(learner, records, transcript, range(5), rng=rng)
        check_blank(records.places)
        insert(learner, records, transcript, (sparse.csr_array(rows(rng, 4)), np.ones(4)), list("abcd"), rng=rng)
        assert records.count == 4
        assert verify(learner, records, transcript)


def test_dual_averaging_learns_from_sparse_rows_what_it_learns_from_dense():
    rng = np.random.default_rng(18)
    x = sparse.random_array((400, 20), density=0.2, format="csc", rng=rng)
    y = np.sign(x @ rng.normal(size=20) + 1e-9)
    rule = DualAveragingRule(np.zeros(20), 0.1)
    learner = Learner(Scattered(20), Gradient(Logistic(), 20, feature_norm=5.0), rule, SquareRoot(), 0.5)
    models = []
    for column in (x, x.toarray()):
        transcript = learn(learner, MemoryRecords((column, y)), np.random.default_rng(19))
        models.append(transcript.model(learner))
    np.testing.assert_allclose(*models, atol=1e-9)
