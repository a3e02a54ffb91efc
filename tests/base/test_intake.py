"""Ids of all the types that people have, and none that becomes another on the way."""

import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import expunge
from expunge import MemoryRecords
from expunge.base.errors import BadRecords, UnknownId
from expunge.base.intake import as_columns, as_ids

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow")

UUIDS = [uuid.UUID(int=n) for n in (7, 2**128 - 1)]
ODD = [
    "e\u0301", "é", "👩‍👩‍👧", "👩", "\u202eabc", "שלום", "مرحبا", "\ud800", "\udfff", "a\0b", "ab", "a\0\0b", "\0x",
    "x", " x", "x ", "\n", "", "\U0010ffff", "ﬁ", "fi", "x" * 999, "x" * 1000,
]  # fmt: skip

X = np.random.default_rng(1).normal(size=(20, 2))
Y = X[:, 0] > 0


def fitted(ids=None):
    return expunge.LogisticRegression(solver="dual_averaging").fit(X, Y, ids=ids)


INTEGERS = {
    "list": [3, 1], "tuple": (3, 1), "range": range(3, 0, -2), "objects": np.array([3, 1], dtype=object),
    **{str(kind): np.array([3, 1], dtype=kind) for kind in "bhilqBHILQ"}, "other byte order": np.array([3, 1], ">i4"),
    "mixed objects": [np.int8(3), 1], "Series": pandas.Series([3, 1]), "Index": pandas.Index([3, 1]),
    "nullable": pandas.Series([3, 1], dtype="Int64"), "arrow": pandas.Series([3, 1], dtype="int64[pyarrow]"),
    "polars": polars.Series([3, 1]), "polars u8": polars.Series([3, 1], dtype=polars.UInt8),
    "pyarrow": arrow.array([3, 1]),
}  # fmt: skip
STRINGS = {
    "list": ["b", "äx"], "tuple": ("b", "äx"), "array": np.array(["b", "äx"]), "wide": np.array(["b", "äx"], "U9"),
    "objects": np.array(["b", "äx"], dtype=object), "other byte order": np.array(["b", "äx"], ">U2"),
    "numpy": [np.str_("b"), "äx"], "StringDType": np.array(["b", "äx"], dtype=np.dtypes.StringDType()),
    "Series": pandas.Series(["b", "äx"]), "Index": pandas.Index(["b", "äx"]),
    "object Series": pandas.Series(["b", "äx"], dtype=object),
    "nullable": pandas.Series(["b", "äx"], dtype="string"), "category": pandas.Series(["b", "äx"], dtype="category"),
    "polars": polars.Series(["b", "äx"]), "categorical": polars.Series(["b", "äx"], dtype=polars.Categorical),
    "pyarrow": arrow.array(["b", "äx"]), "chunked": arrow.chunked_array([["b"], ["äx"]]),
}  # fmt: skip


@pytest.mark.parametrize("ids", INTEGERS.values(), ids=INTEGERS)
def test_integers_of_any_kind_are_understood(ids):
    found = as_ids("ids", ids)
    assert found.dtype == np.int64
    assert found.tolist() == [3, 1]


@pytest.mark.parametrize("ids", STRINGS.values(), ids=STRINGS)
def test_strings_of_any_kind_are_understood(ids):
    found = as_ids("ids", ids)
    assert found.dtype.kind == "U"
    assert found.dtype.isnative
    assert found.tolist() == ["b", "äx"]


@pytest.mark.parametrize(
    "ids", [UUIDS, tuple(UUIDS), np.array(UUIDS), pandas.Series(UUIDS)], ids=lambda a: str(type(a))
)
def test_uuids_become_strings(ids):
    assert as_ids("ids", ids).tolist() == [str(one) for one in UUIDS]


def test_none_at_all_have_any_type():
    for ids in ([], (), np.array([]), np.array([], dtype=object), pandas.Series([], dtype="string"), polars.Series([])):
        assert as_ids("ids", ids).shape == (0,)


@pytest.mark.parametrize("turn", [list, np.array, lambda ids: np.array(ids, dtype=object)], ids=["list", "U", "O"])
def test_odd_strings_stay_what_they_are(turn):
    assert as_ids("ids", turn(ODD)).tolist() == ODD


def test_odd_strings_are_told_apart_by_records():
    records = MemoryRecords((np.arange(len(ODD)),), ids=ODD)
    records.arrange(expunge.Scattered(4), np.random.default_rng(0))
    records.keep_layout()
    for number, one in enumerate(ODD):
        (place,), (slot,) = records.locate([one])
        assert records.batch_at(place)[0][slot] == number
    for other in ("\0", "e", "x" * 4999, "a\0c", "\U0010fffe"):
        with pytest.raises((UnknownId, BadRecords)):
            records.locate([other])


ENDINGS = {
    "list": lambda ids: ids, "tuple": tuple, "objects": lambda ids: np.array(ids, dtype=object),
    "StringDType": lambda ids: np.array(ids, dtype=np.dtypes.StringDType()), "Series": pandas.Series,
    "nullable": lambda ids: pandas.Series(ids, dtype="string"), "polars": polars.Series, "arrow": arrow.array,
}  # fmt: skip


@pytest.mark.parametrize("turn", ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("bad", ["a\0", "\0", "a\0\0"], ids=repr)
def test_a_nul_at_the_end_is_refused_as_numpy_would_drop_it(turn, bad):
    with pytest.raises(BadRecords, match=r"^subjects: number 1, '.*\\x00', ends with NUL.*strip it"):
        as_ids("subjects", turn(["a", bad, "c"]))


def test_a_request_with_such_an_id_does_not_reach_another_record():
    model = fitted(ids=[f"p{n}" for n in range(20)])
    for ids in ("p1\0", ["p1\0"], ("p2", "p1\0"), {"p1\0"}):
        for ask in (model.unlearn, model.replay_probability):
            with pytest.raises(BadRecords, match=r"^ids: .*ends with NUL"):
                ask(ids)
    with pytest.raises(BadRecords, match=r"^ids: .*ends with NUL"):
        model.insert(X[:1], Y[:1], ids=["p1\0"])
    assert model.n_records_ == 20


def test_one_uuid_or_a_set_of_them_can_be_asked_for():
    ids = [uuid.UUID(int=n) for n in range(20)]
    model = fitted(ids=ids)
    assert model.replay_probability(set(ids[:3])).shape == (3,)
    model.unlearn(ids[3])
    model.unlearn({ids[5], ids[4]})
    model.unlearn(dict.fromkeys(ids[6:8]).keys())
    model.replace(X[:1], Y[:1], ids=ids[9])
    model.insert(X[:1], Y[:1], ids=ids[3:4])
    assert model.ids_.tolist() == [str(one) for one in [*ids[:4], *ids[8:]]]
    with pytest.raises(UnknownId, match="are strings, got int64"):
        model.unlearn(8)


MIXED = [
    ["a", 1], ["a", float("nan")], ["a", None], ["a", b"b"], [1, None], ["a", uuid.UUID(int=1)], [uuid.UUID(int=1), 7],
    np.array(["a", 1], dtype=object), np.array([1, True], dtype=object), pandas.Series(["a", None]),
    pandas.Series(["a", None], dtype="string"), polars.Series(["a", None]), [(1, 2), None], [b"a"], [1.5], [1j],
    polars.Series([1, None]), pandas.Series([1, None], dtype="Int64"), {1: 2}, np.array(["2020-01-01"], "M8[D]"),
]  # fmt: skip


@pytest.mark.parametrize("ids", MIXED, ids=lambda ids: repr(ids)[:30])
def test_what_is_no_id_or_of_several_kinds_is_refused(ids):
    with pytest.raises(BadRecords, match=r"^ids: (ids must be integers or strings|expected a flat sequence)"):
        as_ids("ids", ids)


def test_a_set_of_several_kinds_is_refused():
    model = fitted()
    with pytest.raises(BadRecords, match=r"^ids: ids must be integers or strings, all of one kind"):
        model.unlearn({1, "a"})


@pytest.mark.parametrize("ids", [[2**64], [2**200, -1], np.array([2**63], dtype=object), [2**63]], ids=repr)
def test_integers_that_are_too_large_are_refused(ids):
    with pytest.raises(BadRecords, match=r"^ids: .*pass them as strings"):
        as_ids("ids", ids)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.text(st.characters(codec=None), max_size=5), min_size=1, max_size=5))
def test_any_list_of_strings_comes_back_or_is_refused(ids):
    if any(one.endswith("\0") for one in ids):
        with pytest.raises(BadRecords, match="NUL"):
            as_ids("ids", ids)
    else:
        assert as_ids("ids", ids).tolist() == ids


@pytest.mark.parametrize("order", ["C", "F"])
def test_one_nan_among_many_numbers_is_found(order):
    table = np.ones((70_000, 2), order=order)
    as_columns((table, np.ones((70_000, 0)), np.ones((70_000, 2, 3))))
    table[69_999, 1] = np.nan
    with pytest.raises(BadRecords, match="row 69999 has NaN"):
        as_columns((table,))
