"""Parts of places come back as they were written, whatever they hold."""

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from scipy import sparse

from expunge.base.columns import canonical, is_sparse
from expunge.base.errors import CorruptStore
from expunge.store.layout import PART, SPARSE_ROWS, ColumnType, Layout
from expunge.store.places import Part, as_served, written

quick = settings(max_examples=80, deadline=None, derandomize=True)
ODD = [
    "e\u0301",
    "é",
    "👩‍👩‍👧",
    "\u202eabc",
    "שלום",
    "\ud800",
    "\udfff",
    "a\0b",
    "\0x",
    "",
    " ",
    "\U0010ffff",
    "x" * 300,
]


def same(one, two):
    if is_sparse(one):
        parts = ("data", "indices", "indptr")
        return one.shape == two.shape and all(np.array_equal(getattr(one, each), getattr(two, each)) for each in parts)
    if one.dtype.kind == "U":
        return one.tolist() == two.tolist()
    return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()


def back(layout, columns):
    """The columns, written and read again."""
    return Part(layout, memoryview(written(layout, columns)), "blocks, row 1").columns


numbers = st.floats(allow_nan=False, allow_infinity=False)
letters = st.text(st.characters(exclude_characters="\0", codec=None), max_size=6)


@st.composite
def any_column(draw, rows):
    kind = draw(st.sampled_from(["dense", "vector", "cube", "i8", "u8", "b1", "f4", "U", "sparse"]))
    match kind:
        case "dense":
            return draw(arrays_of.arrays("f8", (rows, draw(st.integers(0, 4))), elements=numbers))
        case "vector":
            return draw(arrays_of.arrays("f8", rows, elements=numbers))
        case "cube":
            return draw(arrays_of.arrays("f8", (rows, 2, 2), elements=numbers))
        case "U":
            return np.array(draw(st.lists(letters, min_size=rows, max_size=rows)), dtype=np.str_)
        case "sparse":
            dense = draw(arrays_of.arrays("f8", (rows, 5), elements=st.just(0.0) | numbers))
            return canonical(sparse.csr_array(dense))
        case _:
            return draw(arrays_of.arrays(kind, rows))


@quick
@given(st.integers(0, 6), st.data())
def test_a_part_comes_back(rows, data):
    columns = tuple([data.draw(any_column(rows)) for _ in range(data.draw(st.integers(1, 4)))])
    layout = Layout.of(columns, 1)
    found = back(layout, columns)
    assert all(map(same, columns, found))
    assert all(as_served(kind, column).dtype.isnative for kind, column in zip(layout.columns, found, strict=True))


@pytest.mark.parametrize("texts", [[one] for one in ODD] + [ODD, ["a"], ["ä", "b"], ["Ā", ""], []], ids=ascii)
def test_strings_of_any_kind_come_back(texts):
    ids = np.array(texts, dtype=np.str_)
    (found,) = back(Layout.of((ids,), 0), (ids,))
    assert found.tolist() == texts


@pytest.mark.parametrize(("letter", "size"), [("a", 1), ("ÿ", 1), ("Ā", 2), ("\uffff", 2), ("\U00010000", 4)])
def test_strings_take_no_more_room_than_their_letters_need(letter, size):
    wide = np.array([letter * 3, "b"], dtype="U50")
    assert len(written(Layout.of((wide,), 0), (wide,))) == 2 * 8 + 2 * 3 * size


def test_keys_come_back():
    keys = np.array([0, 2**64 - 1, 2**63], dtype=np.uint64)
    (found,) = back(Layout.of((keys,), 0), (keys,))
    assert found.tolist() == keys.tolist()
    assert found.dtype == np.uint64


@quick
@given(arrays_of.arrays("f8", (4, 3), elements=st.floats(-1e30, 1e30) | st.floats(-1e-40, 1e-40)))
def test_short_floats_are_never_longer_than_given_and_come_back(rows):
    layout = Layout.of((rows,), 1, "f4")
    narrowed = layout.columns[0].narrowed(rows)
    assert narrowed.dtype == np.float64
    assert (np.abs(narrowed) <= np.abs(rows)).all()
    assert (np.abs(narrowed) >= np.abs(np.nextafter(rows.astype("f4"), np.float32(0)))).all()
    assert np.array_equal(layout.columns[0].narrowed(narrowed), narrowed)
    (found,) = back(layout, (narrowed,))
    assert found.dtype == np.float32
    assert np.array_equal(as_served(layout.columns[0], found), narrowed)


def test_short_floats_take_half_the_room():
    rows = np.ones((100, 8))
    short, long = Layout.of((rows,), 1, "f4"), Layout.of((rows,), 1)
    assert len(written(short, (rows,))) - 16 == (len(written(long, (rows,))) - 16) / 2
    assert short.rows == 2 * long.rows == PART // 32


def test_parts_are_about_as_large_as_they_should_be():
    assert Layout.of((np.ones((2, 100_000)),), 1).rows == 1
    assert Layout.of((np.ones((2, 0)),), 1).rows == PART // 16
    assert Layout.of((sparse.csr_array((2, 10**9)),), 1).rows == SPARSE_ROWS


def test_a_column_without_records_has_its_type():
    for kind, expected in (
        (ColumnType("f8", (3,)), (np.float64, np.float64)),
        (ColumnType("f8", (3,), kept="f4"), (np.float64, np.float32)),
        (ColumnType("i8"), (np.int64, np.int64)), (ColumnType("U"), (np.dtype("U1"), np.dtype("U1"))),
    ):  # fmt: skip
        assert (kind.empty().dtype, kind.none().dtype) == expected
        assert kind.empty().shape == kind.none().shape == (0, *kind.tail)
    assert ColumnType("f8", (7,), True).empty().shape == (0, 7)


# --- what cannot be a part ------------------------------------------------------------------------------

ROWS = np.arange(6.0).reshape(3, 2)
COLUMNS = (ROWS, canonical(sparse.csr_array(ROWS)), np.array(["a", "ä", "abc"]), np.array([1, 2, 3]))
LAYOUT = Layout.of(COLUMNS, 2)
CONTENT = written(LAYOUT, COLUMNS)


@pytest.mark.parametrize("length", [0, 7, 39, 40, len(CONTENT) - 1])
def test_a_part_that_is_cut_off_is_refused(length):
    with pytest.raises(CorruptStore, match=r"^blocks, row 5 cannot be read \(.*\); restore a backup"):
        Part(LAYOUT, memoryview(CONTENT[:length]), "blocks, row 5")
    with pytest.raises(CorruptStore):
        Part(LAYOUT, memoryview(CONTENT + b"\0"), "blocks, row 5")


def test_a_part_with_too_many_records_is_refused():
    small = Layout(LAYOUT.columns, 2, 2)
    with pytest.raises(CorruptStore, match="3 records"):
        Part(small, memoryview(CONTENT), "blocks, row 5")


def changed(**heads):
    """The content with other heads: of count, dense, sparse, texts, ids."""
    found = list(struct.unpack_from("<5Q", CONTENT))
    for position, name in enumerate(("count", "dense", "sparse", "texts", "ids")):
        found[position] = heads.get(name, found[position])
    return struct.pack("<5Q", *found) + CONTENT[40:]


@pytest.mark.parametrize(
    "heads",
    [
        {"texts": 0}, {"texts": 3 * 8 + 3}, {"texts": 1 * 8 + 3}, {"texts": 9 * 8}, {"texts": 1 * 8 + 5, "count": 3},
        {"texts": 2**63}, {"count": 2**63}, {"count": 0}, {"sparse": 0}, {"sparse": 2**60}, {"sparse": 4},
        {"sparse": 2**64 - 1}, {"texts": 2**64 - 1},
    ],
    ids=str,
)  # fmt: skip
def test_heads_that_do_not_fit_are_refused(heads):
    with pytest.raises(CorruptStore):
        _ = Part(LAYOUT, memoryview(changed(**heads)), "blocks, row 5").columns


@pytest.mark.parametrize("size", [0, 3, 5, 6, 7])
def test_letters_of_an_odd_size_are_refused(size):
    ids = np.array(["abcdefg"])
    layout = Layout.of((ids,), 0)
    content = struct.pack("<2Q", 1, 7 * 8 + size) + b"a" * 7 * size
    with pytest.raises(CorruptStore):
        _ = Part(layout, memoryview(content), "blocks, row 5").columns


def test_letters_that_are_none_are_refused():
    layout = Layout.of((np.array(["a"]),), 0)
    with pytest.raises(CorruptStore):
        _ = Part(layout, memoryview(struct.pack("<2QI", 1, 1 * 8 + 4, 0x110000)), "blocks, row 5").columns


@pytest.mark.parametrize("counts", [(2, 2, 0), (5, -1, -1), (2**31 - 1, 4 - 2**31, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("indices", [(0, 1, 0), (0, 1, -1), (0, 1, 2), (0, 1, 2**30)], ids=str)
def test_sparse_rows_that_are_not_sound_are_refused(counts, indices):
    layout = Layout.of(COLUMNS[1:2], 1)
    sound = written(layout, (canonical(sparse.csr_array([[0.0, 1.0], [2.0, 0.0], [3.0, 0.0]])),))
    if counts == (2, 2, 0) and indices == (0, 1, 0):
        counts = (1, 1, 1)
        assert Part(layout, memoryview(sound), "").columns
    body = struct.pack("<2Q3i3d3i", 3, 3, *counts, 1.0, 2.0, 3.0, *indices)
    assert len(body) == len(sound)
    if (counts, indices) != ((1, 1, 1), (0, 1, 0)):
        with pytest.raises(CorruptStore):
            _ = Part(layout, memoryview(body), "blocks, row 5").columns


@settings(max_examples=300, deadline=1000, derandomize=True)
@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_a_changed_byte_makes_another_part_or_none(at, change):
    content = bytearray(CONTENT)
    content[at] ^= change
    with suppress(CorruptStore):
        part = Part(LAYOUT, memoryview(bytes(content)), "blocks, row 5")
        assert isinstance(part, Part)
        assert [column.shape[0] for column in part.columns] == [part.count] * 4
        part.column(1).toarray()
        part.column(2).tolist()
