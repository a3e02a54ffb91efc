"""The spool: records come back by place bit for bit, and no byte of them stays behind."""

import errno
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from expunge.base.columns import canonical, csr
from expunge.base.errors import BadPlan, BadRecords, FullStore, StoreError
from expunge.engine.schedules import Arrival, Everyone, Scattered, Shuffled
from expunge.store import sorting as module
from expunge.store.sorting import Spool


def people(count, seed=0):
    """Columns of several types; the strings are of different lengths."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(2**32, size=(count, 3), dtype=np.uint32)
    names = tight(np.array(["é" * (7 * number % 10) + str(number) for number in range(count)], dtype=np.str_))
    return bits.view(np.float32), rng.normal(size=count), names, rng.integers(2, size=(count, 2, 1)) > 0


def tight(column):
    """Return strings as narrow as they can be, and anything else as it is."""
    return np.array(column.tolist() or [""])[: len(column)] if column.dtype.kind == "U" else column


def fill(spool, columns, cuts):
    """Add columns in blocks; the strings of each are as narrow as they can be."""
    for first, stop in zip([0, *cuts], [*cuts, len(columns[0])], strict=True):
        spool.add(tuple([tight(column[first:stop]) for column in columns]))


def encode(columns):
    bits, target, names, flags = columns
    return names, np.stack([target, -target], axis=1), bits[:, 1:].view(np.uint32), flags[:, 0, 0].astype(np.int8)


def same(found, expected):
    return all(
        mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
        for mine, theirs in zip(found, expected, strict=True)
    )


@st.composite
def layouts(draw):
    count = draw(st.integers(0, 40))
    borders = sorted(draw(st.lists(st.integers(0, count), max_size=12)))
    lengths = np.diff([0, *borders, count])
    order = np.random.default_rng(draw(st.integers(0, 99))).permutation(count)
    cuts = sorted(draw(st.lists(st.integers(0, count), max_size=6)))
    return count, cuts, order, lengths


@given(layouts(), st.sampled_from([1, 60, 200, 700, 2000, 2**28]), st.sampled_from([1, 100, 500, 2**22]), st.booleans())
@settings(derandomize=True, deadline=None, max_examples=150)
def test_places_are_what_indexing_gives_whatever_the_memory(tmp_path_factory, layout, memory, at_once, converts):
    count, cuts, order, lengths = layout
    columns = people(count)
    laid_out = encode(columns) if converts else columns
    row = sum(column.dtype.itemsize * int(np.prod(column.shape[1:])) for column in laid_out)
    folder = tmp_path_factory.mktemp("spools") / "spool"
    with patch.object(module, "AT_ONCE", at_once), Spool(folder) as spool:
        fill(spool, columns, cuts)
        assert spool.count == count
        found = list(spool.by_place(order, lengths, memory=memory, convert=encode if converts else None))
        assert {path.name for path in folder.iterdir()} <= {f"column-{number}" for number in range(4)}
    assert not folder.exists()

    places = [place for place, _ in found]
    assert places == sorted(places)
    assert set(places) == set(np.flatnonzero(lengths))
    starts = np.cumsum(lengths) - lengths
    for place in set(places):
        parts = [part for where, part in found if where == place]
        whole = [np.concatenate(column) for column in zip(*parts, strict=True)]
        assert same(whole, [column[order[starts[place] :][: lengths[place]]] for column in laid_out])
        assert all(1 <= len(part[0]) <= max(1, memory // row) for part in parts)
        if lengths[place] * row <= memory:
            assert len(parts) == 1


@given(layouts(), st.sampled_from([1, 50, 2**22]))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_a_column_comes_back_in_order(tmp_path_factory, layout, at_once):
    count, cuts, _, _ = layout
    columns = people(count)
    with patch.object(module, "AT_ONCE", at_once), Spool(tmp_path_factory.mktemp("spools") / "spool") as spool:
        fill(spool, columns, cuts)
        for number, column in enumerate(columns):
            parts = list(spool.column(number))
            assert all(len(part) for part in parts)
            assert bool(parts) == bool(count)
            if parts:
                assert same([np.concatenate(parts)], [column])


@pytest.mark.parametrize("schedule", [Scattered(7), Shuffled(1), Shuffled(8), Arrival(5), Everyone(3)], ids=str)
@pytest.mark.parametrize("memory", [500, 2**20])
def test_every_schedule_can_be_laid_out_again_and_again(schedule, memory, tmp_path):
    order, lengths, _ = schedule.assign(100, None, np.random.default_rng(1))
    columns = people(100)
    with Spool(tmp_path / "spool") as spool:
        fill(spool, columns, [30, 31, 90])
        for _ in range(2):
            laid_out = zip(*[part for _, part in spool.by_place(order, lengths, memory=memory)], strict=True)
            assert same([np.concatenate(parts) for parts in laid_out], [column[order] for column in columns])


def test_convert_sees_every_record_once(tmp_path):
    seen = []

    def convert(columns):
        seen.extend(columns[0].tolist())
        return columns

    with Spool(tmp_path / "spool") as spool, patch.object(module, "AT_ONCE", 40):
        spool.add((np.arange(20),))
        list(spool.by_place(np.arange(20)[::-1], np.array([20]), memory=50, convert=convert))
    assert seen == list(range(20))


def test_buckets_are_given_back_as_they_are_read(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        spool.add((np.arange(64.0),))
        sizes = []
        for _ in spool.by_place(np.arange(64), np.full(16, 4), memory=100):
            (bucket,) = (tmp_path / "spool").glob("buckets-*")
            sizes.append(sum(file.stat().st_size for file in bucket.iterdir()))
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] == 64 * 8 - 96
        assert sizes[-1] == 0


def test_records_that_fit_into_memory_are_not_written_again(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        spool.add((np.arange(50),))
        laid_out = spool.by_place(np.arange(50), np.full(10, 5), memory=400)
        next(laid_out)
        assert [path.name for path in (tmp_path / "spool").iterdir()] == ["column-0"]


def begun(spool):
    """Lay out, as far as the first place."""
    laid_out = spool.by_place(np.arange(50), np.full(10, 5), memory=100)
    next(laid_out)
    return laid_out


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_stays_behind_after_an_error(error, tmp_path):
    def fail(columns):
        if 30 in columns[0]:
            raise error
        return columns

    def ingest():
        with Spool(tmp_path / "spool") as spool:
            spool.add((np.arange(50),))
            kept.append(begun(spool))
            list(spool.by_place(np.arange(50), np.array([50]), memory=100, convert=fail))

    kept = []
    with pytest.raises(error):
        ingest()
    assert list(tmp_path.iterdir()) == []
    kept[0].close()


def test_a_layout_that_fails_takes_its_buckets_along(tmp_path):
    def fail(columns):
        return (columns[0] + 1 // (30 - int(columns[0][0])),)

    with Spool(tmp_path / "spool") as spool, patch.object(module, "AT_ONCE", 16):
        spool.add((np.arange(50),))
        with pytest.raises(ZeroDivisionError):
            list(spool.by_place(np.arange(50), np.array([50]), memory=100, convert=fail))
        assert [path.name for path in (tmp_path / "spool").iterdir()] == ["column-0"]


def test_a_layout_that_is_given_up_takes_its_buckets_along(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        spool.add((np.arange(50),))
        laid_out = begun(spool)
        assert len(list((tmp_path / "spool").iterdir())) == 2
        laid_out.close()
        assert len(list((tmp_path / "spool").iterdir())) == 1


def test_a_spool_that_nobody_closes_is_deleted_with_the_object(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.add((np.arange(50),))
    del spool
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_can_look_into_the_folder(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        spool.add((np.arange(50),))
        assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
        laid_out = begun(spool)
        (bucket,) = (tmp_path / "spool").glob("buckets-*")
        assert bucket.stat().st_mode & 0o777 == 0o700
        laid_out.close()
        spool.close()
        spool.close()


def test_a_folder_that_is_there_is_refused_and_left_alone(tmp_path):
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "note").touch()
    with pytest.raises(StoreError, match="exists already"):
        Spool(tmp_path / "spool")
    assert (tmp_path / "spool" / "note").exists()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ((), "give at least one array"),
        ((np.zeros(2),), "columns: 1 given, 2 before"),
        ((np.zeros(2), np.zeros(3, dtype=np.str_)), r"columns\[1\] has 3 rows, columns\[0\] has 2"),
        ((np.zeros(2, dtype=np.float32), np.array(["a", "b"])), r"columns\[0\]: float32 .* float64 .* before"),
        ((np.zeros((2, 2)), np.array(["a", "b"])), r"columns\[0\]: float64 of shape \(2,\) .* shape \(\) before"),
        ((np.zeros(2), np.zeros(2)), r"columns\[1\]: float64 .* <U1 .* before"),
        ((np.zeros(2), np.array(["a", "b"], dtype=object)), r"columns\[1\]: Python objects"),
    ],
)
def test_blocks_of_another_form_are_refused_and_nothing_is_added(columns, says, tmp_path):
    with Spool(tmp_path / "spool") as spool:
        spool.add((np.zeros(2), np.array(["a", "b"])))
        with pytest.raises(BadRecords, match=says):
            spool.add(columns)
        spool.add((np.ones(1), np.array(["long"])))
        assert spool.count == 3
        assert np.concatenate(list(spool.column(0))).tolist() == [0, 0, 1]
        assert np.concatenate(list(spool.column(1))).tolist() == ["a", "b", "long"]


def test_wrong_layouts_are_refused_before_anything_is_read(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        spool.add((np.zeros(3),))
        for order, lengths in (([0, 1], [2]), ([0, 1, 2], [2])):
            with pytest.raises(BadRecords, match="lay out each of them once"):
                spool.by_place(np.array(order), np.array(lengths))
        with pytest.raises(BadRecords, match="record 1 is missing"):
            spool.by_place(np.array([0, 2, 2]), np.array([3]))
        with pytest.raises(BadPlan, match="memory=0"):
            spool.by_place(np.arange(3), np.array([3]), memory=0)


@pytest.mark.parametrize(
    ("convert", "says"),
    [
        (lambda columns: (columns[0][1:],), "convert: gave .* rows for"),
        (lambda columns: (), "convert: gave .* rows for"),
        (lambda columns: (columns[0].astype("f4" if columns[0][0] else "f8"),), "the same types and shapes"),
    ],
)
def test_what_convert_returns_is_checked(convert, says, tmp_path):
    with Spool(tmp_path / "spool") as spool, patch.object(module, "AT_ONCE", 16):
        spool.add((np.arange(10),))
        with pytest.raises(BadRecords, match=says):
            list(spool.by_place(np.arange(10), np.array([10]), memory=40, convert=convert))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_is_called_so(number, tmp_path):
    with Spool(tmp_path / "spool") as spool:
        spool.add((np.arange(10),))
        with patch.object(module, "_bytes", side_effect=OSError(number, "no")):
            with pytest.raises(FullStore if number == errno.ENOSPC else OSError, match="no") as caught:
                spool.add((np.arange(10),))
            assert isinstance(caught.value, FullStore) == (number == errno.ENOSPC)
            with pytest.raises(OSError, match="no"):
                list(spool.by_place(np.arange(10), np.array([10]), memory=40))


# --- sparse columns ---


def words(count, seed=0):
    """A sparse column, of which some rows are empty and one is long, and ids beside it."""
    rng = np.random.default_rng(seed)
    rows = sparse.random_array((count, 50), density=0.1, format="csr", rng=rng).toarray()
    rows[count // 2 : count // 2 + 1] = 7.0
    return canonical(sparse.csr_array(rows)), np.arange(count)


@given(layouts(), st.sampled_from([1, 200, 2000, 2**28]), st.sampled_from([1, 500, 2**22]), st.booleans())
@settings(derandomize=True, deadline=None, max_examples=100)
def test_sparse_columns_come_back_too(tmp_path_factory, layout, memory, at_once, converts):
    count, cuts, order, lengths = layout
    rows, ids = words(count)

    def twice(columns):
        return csr(2 * columns[0].data, columns[0].indices, columns[0].indptr, 50), *columns[1:]

    folder = tmp_path_factory.mktemp("spools") / "spool"
    with patch.object(module, "AT_ONCE", at_once), Spool(folder) as spool:
        for first, stop in zip([0, *cuts], [*cuts, count], strict=True):
            spool.add((rows[first:stop], ids[first:stop]))
        parts = list(spool.by_place(order, lengths, memory=memory, convert=twice if converts else None))
        again = [column.toarray() for column in spool.column(0)]
        assert len(list(folder.iterdir())) <= 4
    starts = np.cumsum(lengths) - lengths
    assert [place for place, _ in parts] == sorted(place for place, _ in parts)
    for place in np.flatnonzero(lengths):
        mine = [part for where, part in parts if where == place]
        chosen = order[starts[place] :][: lengths[place]]
        assert np.concatenate([part[1] for part in mine]).tolist() == chosen.tolist()
        found = np.concatenate([part[0].toarray() for part in mine])
        assert np.array_equal(found, (1 + converts) * rows.toarray()[chosen])
        if memory == 1:
            assert all(part[0].shape[0] == 1 for part in mine)
    if count:
        assert np.array_equal(np.concatenate(again), rows.toarray())


def test_sparse_and_dense_columns_do_not_mix(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        rows, ids = words(5)
        spool.add((rows, ids))
        with pytest.raises(BadRecords, match=r"columns\[0\]: float64 .* sparse float64 .* before"):
            spool.add((rows.toarray(), ids))
        assert spool.count == 5
