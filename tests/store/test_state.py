"""Requests that wait come back as they were asked, with key and day; what is no such request is refused."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import expunge
from expunge.base.columns import canonical, is_sparse
from expunge.base.errors import CorruptStore
from expunge.base.intake import Delete, Insert, Replace
from expunge.store import state
from expunge.store.codec import pack, unpack
from expunge.store.state import Pending

ROWS = np.random.default_rng(0).normal(size=(3, 2))
ODD = np.array(["é\u0301", "a\0b", "\ud800"])
REQUESTS = {
    "delete": Delete(np.array([5, -3])),
    "delete subjects": Delete(subjects=ODD, missing="ignore"),
    "insert": Insert((ROWS, np.array([1, 0, 1])), ODD, np.array([7, 7, 8])),
    "insert sparse": Insert((canonical(sparse.csr_array(np.where(ROWS > 0, ROWS, 0.0))), np.ones(3)), np.arange(3)),
    "insert without ids": Insert((ROWS,)),
    "replace": Replace((ROWS, np.ones(3)), ODD, missing="ignore"),
    "insert nothing": Insert((ROWS[:0],), np.zeros(0, dtype=np.int64)),
}  # fmt: skip


KEY, DAY = bytes(range(32)), "2024-02-29"


def pending(request):
    return Pending(request, "0" * 32, 4, KEY, DAY)


def same(one, two):
    if one is None or two is None:
        return one is two
    if is_sparse(one):
        return is_sparse(two) and (one != two).nnz == 0 and one.shape == two.shape
    return one.dtype == two.dtype and one.tolist() == two.tolist()


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_waits_comes_back(request_):
    found = Pending.from_bytes(pending(request_).to_bytes())
    assert (found.number, found.version, found.key, found.day) == ("0" * 32, 4, KEY, DAY)
    assert type(found.request) is type(request_)
    assert same(found.request.ids, request_.ids)
    assert same(found.request.subjects, request_.subjects)
    assert getattr(found.request, "missing", None) == getattr(request_, "missing", None)
    columns = getattr(request_, "columns", ())
    assert all(map(same, getattr(found.request, "columns", ()), columns))


@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM"])
def test_what_an_earlier_version_recorded_has_one_key_and_the_day_of_today(bits, monkeypatch):
    """It recorded the state of a generator, and no day."""
    before = np.random.Generator(getattr(np.random, bits)(7))
    before.integers(5, dtype=np.uint32)  # half a number is kept for the next
    monkeypatch.setattr(state, "today", lambda: "1999-12-31")
    old = altered(key="gone", day="gone", coins=before.bit_generator.state)
    found = [Pending.from_bytes(old) for _ in range(2)]
    assert found[0].key == found[1].key == before.bytes(32)
    assert found[0].day == "1999-12-31"


def altered(**changes):
    text, arrays = unpack(pending(REQUESTS["insert sparse"]).to_bytes())
    said = {**json.loads(text), **changes}
    return pack(json.dumps({name: value for name, value in said.items() if value != "gone"}), arrays)


BAD = [
    {"kind": "Erase"}, {"kind": None}, {"kind": "gone"}, {"widths": [None]}, {"widths": [2, None, None]}, {"widths": 5},
    {"widths": [{}]}, {"version": "x"}, {"version": None}, {"version": "gone"}, {"number": "gone"}, {"key": 5},
    {"key": "gone"}, {"key": None}, {"key": "00" * 31}, {"key": "zz" * 32}, {"day": "gone"}, {"day": 5},
    {"day": "yesterday"}, {"kind": "Replace"}, {"kind": "Replace", "missing": "perhaps"}, {"widths": [-2, None]},
]  # fmt: skip
OLD = [
    5, [1], {}, {"bit_generator": "os"}, {"bit_generator": "PCG64"},
    {"bit_generator": ["PCG64"]}, {"bit_generator": "PCG64", "state": {}},
    {"bit_generator": "PCG64", "state": {"state": -1, "inc": 1}, "has_uint32": 0, "uinteger": 0},
    {"bit_generator": "MT19937", "state": {"key": [1], "pos": 3}},
]  # fmt: skip
BAD += [{"key": "gone", "day": "gone", "coins": coins} for coins in OLD]


@pytest.mark.parametrize("changes", BAD, ids=str)
def test_what_is_no_request_is_refused(changes):
    with pytest.raises(CorruptStore, match=r"pending, row 0|packed arrays"):
        Pending.from_bytes(altered(**changes))


@pytest.mark.parametrize("text", ["", "5", "[]", "{", "[" * 100_000])
def test_what_says_nothing_is_refused(text):
    with pytest.raises(CorruptStore, match="pending, row 0"):
        Pending.from_bytes(pack(text, {}))


@settings(max_examples=100, deadline=1000, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_makes_another_request_or_none(at, change):
    content = bytearray(pending(REQUESTS["insert sparse"]).to_bytes())
    content[at % len(content)] ^= change
    with suppress(CorruptStore):
        Pending.from_bytes(bytes(content))


def test_a_request_of_another_state_is_refused(tmp_path):
    X = np.linspace(-1, 1, 40)[:, None]
    expunge.LogisticRegression(solver="dual_averaging").fit(X, X[:, 0] > 0).save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        file = model._owner.file
        with file.transaction():
            file.put("pending", 0, pending(Delete(np.array([5]))).to_bytes())
        with pytest.raises(CorruptStore, match="pending, row 0 is of another state"):
            model.verify()
    with pytest.raises(CorruptStore, match="pending, row 0 is of another state"):
        expunge.open(tmp_path / "model")
