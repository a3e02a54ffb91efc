"""Values and arrays come back to the last bit; whatever else is read leads to a named error, soon, and runs nothing."""

import ast
import json
import math
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import expunge
from cases.patching import patched_everywhere
from expunge.base.errors import BadPlan, CorruptStore
from expunge.solvers import losses
from expunge.solvers.extents import Extent
from expunge.solvers.plans.linear import Plan
from expunge.store.codec import Registry, pack, unpack
from expunge.store.state import KNOWN, Description, State

SOURCE = Path(expunge.__file__).parent
quick = settings(max_examples=80, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Point:
    x: object
    y: object = None


class Plain:
    pass


POINTS = Registry([Point, Plain])


def alike(one, two):
    """Whether two values are the same to the last bit, types included."""
    if type(one) is not type(two):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype == object:
            return one.shape == two.shape and alike(one.tolist(), two.tolist())
        return (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(alike, one, two))
    if isinstance(one, dict):
        return alike([*one.items()], [*two.items()])
    if isinstance(one, Point):
        return alike(one.x, two.x) and alike(one.y, two.y)
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", two) or (math.isnan(one) and math.isnan(two))
    return one == two


any_text = st.text(st.characters(codec=None), max_size=5)
kinds = st.sampled_from(["f8", "f4", "f2", "i8", "i1", "u8", "u2", "b1", "U3"])
some_shapes = arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
letters = st.text(st.characters(exclude_characters="\0", codec=None), max_size=3)


@st.composite
def any_array(draw):
    kind = draw(kinds)
    shape = draw(some_shapes)
    if kind == "U3":
        return draw(arrays_of.arrays(kind, shape, elements=letters))
    elements = {"allow_nan": False} if kind[0] == "f" else None
    return draw(arrays_of.arrays(kind, shape, elements=elements))


hashable = st.none() | st.booleans() | st.integers() | any_text | st.tuples(st.integers(), any_text)
any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text | any_array(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=8,
)


@quick
@given(any_value)
def test_values_come_back(value):
    text = POINTS.write(value)
    assert text.isascii()
    assert alike(POINTS.read(text), value)


def test_single_numbers_of_numpy_become_pythons():
    assert alike(
        POINTS.read(POINTS.write([np.float64(0.1), np.int8(3), np.bool_(True), np.str_("ä")])), [0.1, 3, True, "ä"]
    )


def test_arrays_of_objects_come_back():
    names = np.array(["a", "much longer", 5, None], dtype=object)
    assert alike(POINTS.read(POINTS.write(names)), names)


def test_arrays_come_back_in_this_machines_byte_order():
    found = POINTS.read(POINTS.write(np.array([1, 2], dtype=">i4")))
    assert alike(found, np.array([1, 2], dtype="<i4"))


def test_an_object_of_an_unknown_class_must_be_handed_in():
    mine = Plain()
    text = Registry([Point]).write({"loss": mine, "also": Point(mine)})
    found = Registry([Point]).read(text, {"Plain": mine})
    assert found["loss"] is found["also"].x is mine
    with pytest.raises(BadPlan, match=r"loss: this model has a custom loss, Plain; give it: open\(path, loss=Plain"):
        Registry([Point]).read(text)


def test_a_class_of_the_same_name_is_a_stranger():
    @dataclass(frozen=True)
    class Huber:
        width: float

    assert json.loads(KNOWN.write(Huber(1.0))) == {"stranger": "Huber"}


def test_what_a_store_holds_can_be_read():
    for value in (
        losses.Huber(0.3),
        losses.Weighted(losses.Multinomial(3), (1.0, 2.0, 0.1)),
        Extent(np.ones(2), 2.0, np.array([1.0, 0.5])),
    ):
        assert KNOWN.read(KNOWN.write(value)) == value


# --- hostile texts --------------------------------------------------------------------------------------

names = st.sampled_from(["tuple", "dict", "objects", "array", "is", "with", "stranger", *KNOWN.classes, "eval", "os"])
hostile_kinds = st.sampled_from(
    ["<f8", "|O", "<O8", "|V4", "<M8[s]", "<U5", "<U99999999", "|S3", "<c16", "<f8,<i4", "<i0"]
)
hostile = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | names | hostile_kinds,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=120, deadline=1000, derandomize=True)
@given(hostile)
def test_hostile_values_are_read_or_refused(value):
    with suppress(CorruptStore, BadPlan):
        KNOWN.read(json.dumps(value))


@settings(max_examples=80, deadline=1000, derandomize=True)
@given(st.sampled_from([*KNOWN.classes]), st.data())
def test_known_classes_with_hostile_parts_are_made_or_refused(name, data):
    fields = list(KNOWN.classes[name].__dataclass_fields__)
    parts = data.draw(st.dictionaries(st.sampled_from([*fields, "more", "__class__"]), hostile))
    with suppress(CorruptStore, BadPlan):
        KNOWN.read(json.dumps({"is": name, "with": parts}))


BROKEN = [
    "", "{", "nul", "[" * 100_000, '{"tuple":[' * 50_000 + "]}" * 50_000, '{"a":1}', "{}", '{"is":"Path","with":{}}',
    '{"is":"Plan"}', '{"is":["Plan"],"with":{}}', '{"is":"Huber","with":5}', '{"is":"Huber","with":{"widths":1}}',
    '{"tuple":5}', '{"dict":[[1]]}', '{"dict":[[[1],2]]}', '{"dict":5}', '{"array":["<f8",[2],[1]]}',
    '{"array":["<f8",[-1],[1,2]]}extra', '{"array":["<f8",[-2],[1,2]]}', '{"array":["<f8",["a"],[1]]}',
    '{"array":["<f8",[1e9],[1]]}', '{"array":["|O",[1],[{}]]}', '{"array":["|V8",[1],["a"]]}', '{"array":["O",[0],[]]}',
    '{"array":[5,[1],[1]]}', '{"array":["<f8",[1],["a"]]}', '{"array":["<f8",[1]]}', '{"array":["<i1",[1],[300]]}',
    '{"array":["<U99999999",[1],["a"]]}', '{"array":["<f8",[1000000000000],[]]}',
    '{"array":["<i8",[1],[1000000000000000000000000000000]]}', '{"array":["<f8\\u0000",[1],[1]]}', "9" * 5000,
    '{"array":["<f3",[1],[1]]}', '{"objects":5}', '{"stranger":[]}',
    '{"stranger":{"dict":[]}}', '{"array":["<i8",[9223372036854775807,9223372036854775807],[]]}',
]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:40])
def test_broken_texts_are_refused_at_once(text):
    began = time.perf_counter()
    with pytest.raises((CorruptStore, BadPlan)):
        KNOWN.read(text)
    assert time.perf_counter() - began < 1.0


SWELLING = {
    "lists": "[" + "[]," * 3_000_000 + "[]]",
    "dicts": "[" + "{}," * 3_000_000 + "{}]",
    "values": "[" + "1," * 9_000_000 + "1]",
    "keys": '{"dict":[' + ",".join(f"[{number},0]" for number in range(5000)) + "]}",
    "same hash": '{"dict":[' + ",".join(f"[{number * (2**61 - 1)},0]" for number in range(4000)) + "]}",
    "same hash in tuples": '{"dict":[' + ",".join(
        f'[{{"tuple":[0,{number * (2**61 - 1)}]}},0]' for number in range(4000)
    ) + "]}",
}  # fmt: skip


@pytest.mark.parametrize("text", SWELLING.values(), ids=SWELLING.keys())
def test_texts_that_would_take_long_or_swell_are_refused_at_once(text):
    began = time.process_time()
    with pytest.raises(CorruptStore, match=r"more than [\d,]+ |of the same hash"):
        KNOWN.read(text)
    assert time.process_time() - began < 1.0


def test_what_could_not_be_read_again_is_not_written():
    with pytest.raises(BadPlan, match="more than 4,096 keys that are no texts"):
        KNOWN.write(dict.fromkeys(range(5000), 1.0))
    with pytest.raises(BadPlan, match="17 keys of the same hash"):
        KNOWN.write({number * (2**61 - 1): 1.0 for number in range(17)})
    with patched_everywhere("expunge.store.codec.LISTS", 3), patched_everywhere("expunge.store.codec.VALUES", 5):
        with pytest.raises(BadPlan, match=r"description has more than 3 lists; train it with fewer"):
            KNOWN.write([[], [], []])
        with pytest.raises(BadPlan, match=r"description has more than 5 values; train it with fewer"):
            KNOWN.write([1, 2, 3, 4, 5, 6])
        assert KNOWN.read(KNOWN.write([1, 2, 3, 4, 5])) == [1, 2, 3, 4, 5]


def test_large_dicts_of_texts_and_wide_lists_come_back():
    weights, names = {f"class {number}": number for number in range(20_000)}, [f"x{n}" for n in range(10**5)]
    assert KNOWN.read(KNOWN.write([weights, names])) == [weights, names]


@pytest.mark.parametrize("read", [KNOWN.read, lambda text: unpack(text.encode())], ids=["text", "bytes"])
def test_what_is_read_is_never_run(read, tmp_path):
    trap = tmp_path / "run"
    for text in (f"__import__('pathlib').Path('{trap}').touch()", f"cos\nsystem\n(S'touch {trap}'\ntR."):
        with pytest.raises(CorruptStore):
            read(text)
    assert not trap.exists()


# --- packed arrays --------------------------------------------------------------------------------------


@quick
@given(any_text, st.dictionaries(any_text, any_array(), max_size=4))
def test_packed_arrays_come_back(info, arrays):
    said, found = unpack(pack(info, arrays))
    assert said == info
    assert alike(found, arrays)
    assert all(array.flags.writeable for array in found.values())


def test_packed_bytes_say_how_long_they_are():
    packed = pack("ä", {"a": np.arange(5.0), "b": np.array(["x"])})
    for broken in (packed[:-1], packed + b"\0", packed[:7], packed[:20], b"", packed[8:], b"\xff" * 8 + packed[8:]):
        with pytest.raises(CorruptStore, match="packed arrays"):
            unpack(broken)


def test_other_arrays_cannot_be_packed():
    for array in (
        np.array([None]),
        np.array([1j]),
        np.array([b"a"]),
        np.array(["2020"], "M8[Y]"),
        np.zeros(2, "i4,f8"),
    ):
        with pytest.raises(BadPlan, match=r"arrays of .* cannot be stored"):
            pack("", {"a": array})
        if array.dtype != object:
            with pytest.raises(BadPlan, match=r"arrays of .* cannot be stored"):
                POINTS.write(array)


def packed_by_hand(head, body=b""):
    text = json.dumps(head).encode() if not isinstance(head, bytes) else head
    return struct.pack("<Q", len(text)) + text + body


HEADS = [
    b"", b"{", b"\xff", b"5", b"[1]", b"[1,2]", b"[1,[2]]", b"[" * 100_000, b'["",' + b"[" * 100_000,
    ["", [["a", "|O", [1]]]], ["", [["a", "|V8", [1]]]],
    ["", [["a", "<f8", [-1]]]], ["", [["a", "<f8", [-1, -1]]]], ["", [["a", "<f8", [1.0]]]],
    ["", [["a", "<f8", 1]]], ["", [["a", "<f8", [2**70]]]], ["", [["a", "<f8", [10**12]]]], ["", [["a", "<f8", ["a"]]]],
    ["", [["a", "<f8", [0, 2**70]]]], ["", [["a", "<U0", [10**12]]]], ["", [["a", "<U99999999", [1]]]],
    ["", [["a", "<U0", [10**6, 10**6, 0]]]], ["", [["a", "<i8", [True, True]]]], ["", [["a", "<f3", [1]]]],
    ["", [["a", "<f8", [1] * 65]]], ["", [["a", "<f8,<f8", [1]]]], ["", [["a", "<i", [1]]]],
    ["", [[["a"], "<f8", [1, 2]]]],
    ["", [["a", None, [1]]]], ["", [["a", "<f8", None]]], ["", {"a": 1}], ["", None], ["", "abc"],
]  # fmt: skip


@pytest.mark.parametrize("head", HEADS, ids=lambda head: repr(head)[:40])
def test_hostile_heads_are_refused_at_once(head):
    began = time.perf_counter()
    for body in (b"", b"\x01" * 8):
        with suppress(CorruptStore):
            _, arrays = unpack(packed_by_hand(head, body))
            assert sum(array.nbytes for array in arrays.values()) <= 100
    assert time.perf_counter() - began < 1.0


@settings(max_examples=120, deadline=1000, derandomize=True)
@given(hostile, st.binary(max_size=40), st.booleans())
def test_hostile_bytes_are_unpacked_or_refused(head, body, framed):
    with suppress(CorruptStore):
        unpack(packed_by_hand(head if not framed else ["", [["a", *head]] if isinstance(head, list) else head], body))


@settings(max_examples=100, deadline=1000, derandomize=True)
@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_is_unpacked_or_refused(at, change):
    packed = bytearray(pack("about", {"a": np.arange(5.0), "b": np.array(["x", "yz"])}))
    packed[at % len(packed)] ^= change
    with suppress(CorruptStore):
        unpack(bytes(packed))


# --- nothing that could run what it reads ----------------------------------------------------------------

FORBIDDEN = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "importlib", "runpy",
    "__import__", "eval", "exec", "compile", "copyreg", "yaml", "imp",
}  # fmt: skip


def words_of(tree):
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=imported):
                yield from (alias.name.partition(".")[0] for alias in imported)
            case ast.ImportFrom(module=module, names=imported):
                yield (module or "").partition(".")[0]
                yield from (alias.name for alias in imported)
            case ast.Name(id=name):
                yield name
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=False)):
                pass
            case ast.keyword(arg="allow_pickle"):
                yield "pickle"
            case ast.Attribute(attr=name) if name in FORBIDDEN - {"compile"}:
                yield name


def test_the_guard_against_pickle_works():
    for text in ("import pickle", "from pickle import loads", "np.load(f, allow_pickle=True)", "eval('1')", "a.pickle"):
        assert FORBIDDEN & set(words_of(ast.parse(text))), text
    assert not FORBIDDEN & set(words_of(ast.parse("re.compile('a'); np.load(f, allow_pickle=False)")))


@pytest.mark.parametrize(
    "path", [*sorted((SOURCE / "store").rglob("*.py")), SOURCE / "models" / "opening.py"], ids=lambda path: path.name
)
def test_nothing_in_a_store_is_ever_unpickled_or_run(path):
    assert not FORBIDDEN & set(words_of(ast.parse(path.read_text())))


def test_the_known_classes_are_plain_data():
    for kind in KNOWN.classes.values():
        assert kind.__module__.startswith("expunge."), kind
        assert kind.__dataclass_params__.frozen
    assert {Description, State, Plan} < set(KNOWN.classes.values())
