"""Receipts: what they say and cannot say, and that no tampering goes unnoticed."""

import copy
import inspect
import itertools
import json
import random
import sys
import time
from dataclasses import FrozenInstanceError, fields, replace
from hashlib import blake2b, sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.base.errors import BadPlan, BadRecords, CorruptStore, ExpungeError, StoreError
from expunge.store import receipts as module
from expunge.store.chain import ReceiptsCheck, check_receipts, export, find
from expunge.store.keys import Signer, make_signing_key
from expunge.store.receipts import Receipt, are_named, digest_names, genesis, write_receipt

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
KEY = bytes(range(32))
STORE = "5" * 32
GENESIS = genesis(STORE)
SIGNER = Signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)))
OTHER = Signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32))


def said(**given):
    """What a receipt of a deletion says."""
    return {
        "request": "1" * 32, "kind": "delete", "named_by": "ids", "digests": ("d" * 32,), "removed": 1, "added": 0,
        "day": "2026-11-15", "version": 3, "plan": "a" * 64, "previous": GENESIS, **given,
    }  # fmt: skip


def chain(count=5, signer=SIGNER):
    """A chain of receipts of all kinds, whose versions skip numbers."""
    written, previous = [], GENESIS
    for number in range(count):
        kind = ("delete", "insert", "replace")[number % 3]
        named_by = {"delete": "ids", "insert": None, "replace": "subjects"}[kind]
        digests = () if named_by is None else digest_names(KEY, named_by, np.array([number, 100 + number]))
        receipt = write_receipt(
            request=f"{number:032x}", kind=kind, named_by=named_by, digests=digests,
            removed=0 if kind == "insert" else 2, added=0 if kind == "delete" else 2, day=f"2026-11-{number + 1:02}",
            version=2 * number + 1, plan="a" * 64, previous=previous, signer=signer,
        )  # fmt: skip
        written.append(receipt)
        previous = receipt.hash
    return written


def exported(receipts, **given):
    head = receipts[-1].hash if receipts else GENESIS
    version = receipts[-1].version if receipts else 0
    signed = any(receipt.signature for receipt in receipts)
    signer = SIGNER if signed else None
    return export(receipts, **{"store": STORE, "head": head, "version": version, "signer": signer, **given})


# --- one receipt ----------------------------------------------------------------------------------------

hexadecimal = lambda digits: st.text("0123456789abcdef", min_size=digits, max_size=digits)  # noqa: E731
whole = st.integers(0, 2**63 - 1)


@st.composite
def any_receipt(draw):
    kind = draw(st.sampled_from(["delete", "insert", "replace"]))
    named_by = None if kind == "insert" else draw(st.sampled_from(["ids", "subjects"]))
    digests = () if kind == "insert" else draw(st.lists(hexadecimal(32), max_size=3))
    return Receipt(
        draw(hexadecimal(32)), kind, named_by, tuple(digests), draw(whole), draw(whole), draw(st.dates()).isoformat(),
        draw(whole), draw(hexadecimal(64)), draw(hexadecimal(64)), draw(st.none() | hexadecimal(128)),
    )  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_receipt())
def test_a_receipt_comes_back_from_its_json(receipt):
    text = receipt.to_json()
    assert Receipt.from_json(text) == receipt
    assert Receipt.from_json(text).hash == receipt.hash
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text
    assert text.isascii()


def test_the_hash_is_that_of_all_fields_but_the_signature():
    receipt = Receipt(**said())
    assert replace(receipt, signature="e" * 128).hash == receipt.hash
    changes = {
        "request": "2" * 32, "kind": "replace", "named_by": "subjects", "digests": ("c" * 32,), "removed": 2,
        "added": 1, "day": "2026-11-16", "version": 4, "plan": "b" * 64, "previous": "c" * 64,
    }  # fmt: skip
    assert set(changes) | {"signature"} == {field.name for field in fields(Receipt)}
    for name, value in changes.items():
        assert replace(receipt, **{name: value}).hash != receipt.hash, name


def test_the_hash_is_one_that_others_can_compute():
    text = (
        '{"added":0,"day":"2026-11-15","digests":["dddddddddddddddddddddddddddddddd"],"kind":"delete",'
        f'"named_by":"ids","plan":"{"a" * 64}","previous":"{GENESIS}","removed":1,"request":"{"1" * 32}","version":3}}'
    )
    assert Receipt(**said()).hash == sha256(text.encode()).hexdigest()


def test_a_receipt_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Receipt(**said()).removed = 2


def test_counts_may_be_numpy_integers():
    receipt = Receipt(**said(removed=np.int64(1), added=np.uint8(0), version=np.int32(3)))
    assert receipt == Receipt(**said())
    assert receipt.to_json() == Receipt(**said()).to_json()
    document = export([receipt], store=STORE, head=receipt.hash, version=np.int64(3))
    assert check_receipts(json.dumps(document))


def test_digests_may_be_any_iterable():
    assert write_receipt(**said(digests=iter(["d" * 32]))) == Receipt(**said())


WRONG = [
    ("request", None), ("request", "1" * 31), ("request", "G" * 32), ("request", "A" * 32),
    ("request", "1" * 31 + "\n"), ("request", "١" * 32), ("kind", "learn"), ("kind", None), ("kind", []),
    ("named_by", None), ("named_by", "names"), ("named_by", {}), ("digests", ["d" * 31]),
    ("digests", ["d" * 31 + "g"]), ("digests", [5]), ("digests", [["d"] * 32]), ("removed", -1), ("removed", True),
    ("removed", 1.0), ("removed", "1"), ("removed", 2**63), ("added", None), ("added", 10**5000),
    ("day", "2026-02-30"), ("day", "20261115"), ("day", "2026-W46-7"), ("day", "2026-11-15T10:00"), ("day", 20261115),
    ("day", "٢٠٢٦-11-15"), ("version", -1), ("version", [1]), ("plan", "a" * 63), ("plan", 0), ("previous", ""),
    ("previous", GENESIS + "0"), ("signature", ""), ("signature", "e" * 127), ("signature", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda value: repr(value)[:20] if value != 10**5000 else "big")
def test_a_field_of_the_wrong_shape_is_named(name, value):
    with pytest.raises(BadPlan, match=f"^{name}: "):
        Receipt(**said(**{name: value}))
    with pytest.raises(CorruptStore, match=f"^{name}: "):
        module._from_dict({**Receipt(**said()).to_dict(), name: value})
    if value != 10**5000:
        with pytest.raises(CorruptStore, match=f"^receipt: {name}: "):
            Receipt.from_json(json.dumps({**Receipt(**said()).to_dict(), name: value}))


@pytest.mark.parametrize("value", ["d" * 32, {"d" * 32: 1}, None, 5], ids=str)
def test_digests_must_be_a_list(value):
    with pytest.raises(BadPlan, match="digests"):
        Receipt(**said(digests=value))
    with pytest.raises(CorruptStore, match="receipt: digests: "):
        Receipt.from_json(json.dumps({**Receipt(**said()).to_dict(), "digests": value}))


def test_an_insertion_names_nobody():
    assert Receipt(**said(kind="insert", named_by=None, digests=())).digests == ()
    with pytest.raises(BadPlan, match="named_by"):
        Receipt(**said(kind="insert", digests=()))
    with pytest.raises(BadPlan, match="digests"):
        Receipt(**said(kind="insert", named_by=None))


@pytest.mark.parametrize("name", [field.name for field in fields(Receipt)] + ["hash"])
def test_a_missing_field_is_named(name):
    document = Receipt(**said()).to_dict()
    del document[name]
    with pytest.raises(CorruptStore, match=f"receipt: {name}: missing"):
        Receipt.from_json(json.dumps(document))


def test_a_field_too_many_is_named():
    document = {**Receipt(**said()).to_dict(), "seconds": 0.5}
    with pytest.raises(CorruptStore, match="'seconds': a receipt has no such field"):
        Receipt.from_json(json.dumps(document))
    with pytest.raises(CorruptStore, match="no such field"):
        module._from_dict({**Receipt(**said()).to_dict(), 10**5000: 1})


@pytest.mark.parametrize("value", ["b" * 64, "b" * 63, None, 7], ids=str)
def test_a_hash_that_does_not_fit_is_named(value):
    with pytest.raises(CorruptStore, match="receipt: hash: "):
        Receipt.from_json(json.dumps({**Receipt(**said()).to_dict(), "hash": value}))


BROKEN = ["", "{", "null", "[]", "5", '"text"', "NaN", "[" * 100_000, '{"a":' * 100_000, "9" * 5000, "{}{}", "\ud800"]


@pytest.mark.parametrize("text", [*BROKEN, None, 5, b"\xff\xfe\x00"], ids=lambda text: repr(text)[:20])
def test_what_is_no_receipt_is_refused(text):
    with pytest.raises(CorruptStore, match=r"^receipt: "):
        Receipt.from_json(text)


def test_a_field_may_not_stand_twice():
    text = Receipt(**said()).to_json()
    with pytest.raises(CorruptStore, match="duplicate name"):
        Receipt.from_json(text.replace('"removed":1', '"removed":9,"removed":1'))


# --- that, never how ------------------------------------------------------------------------------------


def test_there_is_no_way_to_say_how_a_request_went():
    allowed = {
        "request", "kind", "named_by", "digests", "removed", "added", "day", "version", "plan", "previous", "signature",
    }  # fmt: skip
    assert {field.name for field in fields(Receipt)} == allowed
    assert set(json.loads(Receipt(**said()).to_json())) == allowed | {"hash"}
    assert set(inspect.signature(write_receipt).parameters) == (allowed - {"signature"}) | {"signer"}
    with pytest.raises(TypeError):
        write_receipt(**said(), outcome=None)


def test_a_receipt_depends_on_its_arguments_only(monkeypatch):
    first = write_receipt(**said(), signer=SIGNER).to_json()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    random.seed(1)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    assert write_receipt(**said(), signer=SIGNER).to_json() == first
    document = exported(chain())
    assert exported(chain()) == document


def test_the_export_says_what_it_proves_and_what_not():
    document = exported(chain(1))
    assert list(document) == ["format", "says", "store", "version", "head", "public_key", "signature", "receipts"]
    assert document["format"] == "expunge receipts 1"
    assert "recorded" in document["says"]
    assert "They do not show that the model really is free of a record: only verify" in document["says"]


# --- names ----------------------------------------------------------------------------------------------


def test_a_name_has_one_digest_whatever_array_it_stands_in():
    wide = np.array(["ann", "a much longer name"])
    assert digest_names(KEY, "ids", wide)[:1] == digest_names(KEY, "ids", np.array(["ann"]))
    numbers = np.arange(10)
    assert digest_names(KEY, "ids", numbers)[4:] == digest_names(KEY, "ids", numbers[4:])
    assert digest_names(KEY, "ids", numbers[::-2]) == digest_names(KEY, "ids", numbers)[::-2]
    for same in (numbers.astype(">i8"), numbers.astype(np.uint8), numbers.tolist(), np.array([*numbers], dtype=">i4")):
        assert digest_names(KEY, "ids", same) == digest_names(KEY, "ids", numbers)


def test_digests_stay_what_they_are():
    expected = blake2b((17).to_bytes(8, "little"), key=KEY, digest_size=16, person=b"ids int64").hexdigest()
    assert digest_names(KEY, "ids", np.array([17])) == (expected,)
    expected = blake2b("Zoë".encode(), key=KEY, digest_size=16, person=b"subjects text").hexdigest()
    assert digest_names(KEY, "subjects", np.array(["Zoë"])) == (expected,)


def test_no_two_names_share_a_digest():
    numbers = np.array([0, 1, -1, 17, 2**56, 256, 2**63 - 1, -(2**63)])
    odd = np.array(["", "0", "-1", "17", "é", "e\u0301", "\ud800", "\udfff", "\U0010ffff", "a\0b", "a", " a", "\n"])
    digests = [
        digest
        for key, named_by, names in itertools.product([KEY, bytes(32)], ["ids", "subjects"], [numbers, odd])
        for digest in digest_names(key, named_by, names)
    ]
    assert len(set(digests)) == len(digests) == 4 * (len(numbers) + len(odd))
    assert {len(digest) for digest in digests} == {32}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=4), unique=True, min_size=1, max_size=6))
def test_any_text_can_be_a_name(names):
    digests = digest_names(KEY, "subjects", np.array(names))
    assert len(set(digests)) == len(names)
    receipt = write_receipt(**said(named_by="subjects", digests=digests))
    assert find([receipt], KEY, subjects=names[-1:]) == [receipt]


def test_no_names_have_no_digests():
    assert digest_names(KEY, "ids", np.array([])) == ()
    assert digest_names(KEY, "ids", np.array([], dtype=np.str_)) == ()
    assert are_named(KEY, "ids", np.array([]), ["d" * 32]).shape == (0,)


@pytest.mark.parametrize("names", [np.array([1.5]), np.array([True]), np.array(5), "ann", [b"a"], [2**64]], ids=repr)
def test_what_cannot_be_a_name_is_refused(names):
    with pytest.raises(BadRecords, match="ids"):
        digest_names(KEY, "ids", names)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), "k" * 32, None], ids=repr)
def test_a_key_must_be_whole(key):
    with pytest.raises(BadPlan, match="key: expected 32 bytes"):
        digest_names(key, "ids", np.array([1]))


def test_named_by_must_be_known():
    with pytest.raises(BadPlan, match="named_by"):
        digest_names(KEY, "names", np.array([1]))


@pytest.mark.parametrize("at_once", [1, 3, 2**16])
def test_many_names_are_told_apart_from_those_in_receipts(monkeypatch, at_once):
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    named = digest_names(KEY, "ids", np.array([2, 5, 99]))
    assert np.flatnonzero(are_named(KEY, "ids", np.arange(10), named)).tolist() == [2, 5]
    assert not are_named(KEY, "subjects", np.arange(10), named).any()
    texts = np.arange(10).astype(str)
    assert not are_named(KEY, "ids", texts, named).any()
    assert are_named(KEY, "ids", texts, set(digest_names(KEY, "ids", texts[3:4]))).nonzero()[0].tolist() == [3]


def test_people_are_found_by_the_name_their_request_had():
    receipts = chain(6)  # deleted by id: 0, 100; 3, 103. Replaced by subject: 2, 102; 5, 105
    assert find(receipts, KEY, ids=[0]) == [receipts[0]]
    assert find(receipts, KEY, ids=np.array([103, 0, 7], dtype=np.int32)) == [receipts[0], receipts[3]]
    assert find(iter(receipts), KEY, subjects=(5,)) == [receipts[5]]
    assert find(receipts, KEY, ids=[3], subjects=[2]) == [receipts[2], receipts[3]]
    assert find(receipts, KEY, ids=[2]) == find(receipts, KEY, subjects=[0]) == find(receipts, KEY, ids=["0"]) == []
    assert find(receipts, bytes(32), ids=[0]) == find(receipts, KEY, ids=[]) == []
    with pytest.raises(BadPlan, match="ids or subjects"):
        find(receipts, KEY)
    with pytest.raises(BadRecords, match="subjects"):
        find(receipts, KEY, subjects="ann")


# --- signatures ---------------------------------------------------------------------------------------


def test_a_signing_key_comes_back_from_its_files(tmp_path):
    path = tmp_path / "signing.pem"
    assert make_signing_key(path) is None
    signer = Signer(path)
    receipts = chain(signer=signer)
    document = exported(receipts, signer=signer)
    for public_key in (tmp_path / "signing.pem.pub", f"{path}.pub", signer.public_key, signer.public_key.upper()):
        assert check_receipts(document, public_key=public_key) == ReceiptsCheck((), 5, 5, framed=True)
    assert Signer(str(path)).sign(GENESIS) == signer.sign(GENESIS)


def test_the_signature_is_one_that_others_can_check():
    receipt = write_receipt(**said(), signer=SIGNER)
    public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(SIGNER.public_key))
    public.verify(bytes.fromhex(receipt.signature), b"expunge receipt " + receipt.hash.encode())


def test_public_keys_that_cannot_be_used_are_named(tmp_path):
    make_signing_key(tmp_path / "pem")
    document = exported(chain())
    with pytest.raises(BadPlan, match="pem: not a public key in PEM"):
        check_receipts(document, public_key=tmp_path / "pem")
    with pytest.raises(StoreError, match="No such file"):
        check_receipts(document, public_key="ab" * 31)
    with pytest.raises(BadPlan, match="public_key: expected an Ed25519 public key"):
        check_receipts(document, public_key=5)


def test_without_cryptography_only_signatures_are_refused(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    document = exported(chain(signer=None))
    assert check_receipts(document)
    for ask in (
        lambda: Signer(tmp_path / "pem"),
        lambda: make_signing_key(tmp_path / "pem"),
        lambda: check_receipts(document, public_key="ab" * 32),
    ):
        with pytest.raises(BadPlan, match=r"pip install 'expunge\[sign\]'"):
            ask()
    assert list(tmp_path.iterdir()) == []


# --- tampering ------------------------------------------------------------------------------------------


def check(document, **given):
    return check_receipts(document, public_key=SIGNER.public_key, **given)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_what_was_exported_is_sound(tmp_path, count):
    document = exported(chain(count))
    path = tmp_path / "receipts.json"
    path.write_text(json.dumps(document, indent=2))
    for given_as in (document, json.dumps(document), "\n" + json.dumps(document), path, str(path)):
        result = check(given_as, noted=document["head"])
        assert result == ReceiptsCheck((), count, count, framed=count > 0)
        assert result
        assert result.ok
    path.write_text(json.dumps(document), encoding="utf-16")
    assert check(path)


def test_without_a_public_key_signatures_are_counted_only():
    document = exported(chain())
    document["receipts"][1]["signature"] = None
    document["receipts"][2]["signature"] = "0" * 128
    assert check_receipts(document) == ReceiptsCheck((), 5, 4)
    assert check(document).signed == 3


MISSING = "signatures: {} receipts have none: they were written without the key, or their signatures were removed."


def test_with_a_public_key_every_receipt_must_be_signed():
    document = exported(chain(2, signer=None))
    assert check_receipts(document) == ReceiptsCheck((), 2, 0)
    assert check(document) == ReceiptsCheck((MISSING.format("2 of 2"),), 2, 0, 2)


def test_some_that_are_not_signed_are_said_to_be_not_signed_and_nothing_else():
    document = exported(chain())
    for number in (1, 3):
        document["receipts"][number]["signature"] = None
    assert check(document) == ReceiptsCheck((MISSING.format("2 of 5"),), 5, 3, 2, framed=True)


TAMPERED = {
    "request": "f" * 32, "kind": "insert", "named_by": None, "digests": [], "removed": 7, "added": 7,
    "day": "2020-01-01", "version": 100, "plan": "b" * 64, "previous": "c" * 64, "signature": "0" * 128,
    "hash": "d" * 64,
}  # fmt: skip


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("name", TAMPERED)
def test_a_changed_field_is_noticed_where_it_stands(name, number):
    document = exported(chain())
    assert set(document["receipts"][number]) == set(TAMPERED)
    original = document["receipts"][number][name]
    document["receipts"][number][name] = TAMPERED[name] if original != TAMPERED[name] else "replace"
    result = check(document)
    assert not result
    assert not result.ok
    assert result.problems[0].startswith(f"receipts[{number}]: ")
    assert len(result.problems) == 1


FORGED = [
    {"request": "f" * 32}, {"kind": "replace"}, {"named_by": "subjects"}, {"digests": ()}, {"removed": 7}, {"added": 7},
    {"day": "2020-01-01"}, {"version": 2}, {"plan": "b" * 64}, {"previous": "c" * 64},
]  # fmt: skip


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: next(iter(forged)))
def test_a_changed_field_is_noticed_though_its_hash_was_made_anew(forged, number):
    receipts = chain(4, signer=None)
    document = exported(receipts)
    document["receipts"][number] = replace(receipts[number], **forged).to_dict()
    after = "receipts[1]: previous: " if number == 0 else "head: "
    assert any(problem.startswith(after) for problem in check_receipts(document).problems)


def rechained(receipts):
    """The receipts with new hashes all along, as a forger without the private key would make them."""
    previous, forged = GENESIS, []
    for receipt in receipts:
        forged.append(replace(receipt, previous=previous))
        previous = forged[-1].hash
    return forged


def test_a_chain_made_anew_is_noticed_by_its_signatures_or_by_the_noted_head():
    receipts = chain()
    forged = exported(rechained([replace(receipts[0], removed=9), *receipts[1:]]))
    assert check_receipts(forged)
    assert len(check(forged).problems) == 5
    assert check(forged).signed == 0
    for noted in (receipts[0].hash, receipts[-1].hash):
        assert check_receipts(forged, noted=noted).problems[0].startswith("noted: ")
    for noted in (None, GENESIS, receipts[0].hash, receipts[3].hash, receipts[-1].hash):
        assert check(exported(receipts), noted=noted)


@pytest.mark.parametrize("number", range(5))
def test_a_dropped_receipt_is_noticed(number):
    document = exported(chain())
    del document["receipts"][number]
    (problem,) = check(document).problems
    where = f"receipts[{number}]: previous" if number < 4 else "head: "
    assert problem.startswith(where)


def test_dropping_the_last_with_the_head_shows_by_the_noted_head_only():
    receipts = chain()
    cut = exported(receipts[:-1])
    assert check(cut)
    assert not check(cut, noted=receipts[-1].hash)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_chain_cannot_be_passed_off_as_another_stores(count):
    document = exported(chain(count), store="6" * 32)
    (problem,) = check(document).problems
    assert problem.startswith(
        "receipts[0]: previous: not where the receipts of this store begin" if count else "head: "
    )
    assert any(problem.startswith("noted: ") for problem in check(document, noted=GENESIS).problems)


def test_a_chain_begins_with_the_stores_id():
    assert genesis(STORE) == sha256(f"expunge receipts of store {STORE}".encode()).hexdigest() != genesis("6" * 32)
    with pytest.raises(BadPlan, match="store: expected 32"):
        genesis("a store")


def test_dropping_all_is_noticed():
    document = exported(chain())
    document["receipts"] = []
    assert check(document).problems == (
        "head: not the hash of the last receipt; receipts were taken out or put in at the end.",
    )


@pytest.mark.parametrize("order", [order for order in itertools.permutations(range(4)) if order != (0, 1, 2, 3)])
def test_another_order_is_noticed(order):
    document = exported(chain(4))
    document["receipts"] = [document["receipts"][number] for number in order]
    assert not check(document)
    assert not check_receipts(document)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("at", range(5))
def test_a_receipt_put_in_twice_is_noticed(number, at):
    document = exported(chain(4))
    document["receipts"].insert(at, copy.deepcopy(document["receipts"][number]))
    problems = check(document).problems
    assert any("has a receipt already" in problem for problem in problems)
    assert any("previous" in problem for problem in problems)


@pytest.mark.parametrize(("one", "two"), [*itertools.combinations(range(5), 2)])
def test_swapped_signatures_are_noticed(one, two):
    document = exported(chain())
    rows = document["receipts"]
    rows[one]["signature"], rows[two]["signature"] = rows[two]["signature"], rows[one]["signature"]
    result = check(document)
    assert [problem.partition(":")[0] for problem in result.problems] == [f"receipts[{one}]", f"receipts[{two}]"]
    assert result.signed == 3


def test_another_key_is_noticed():
    document = exported(chain(2, signer=OTHER), signer=OTHER)
    assert check_receipts(document, public_key=OTHER.public_key)
    problems = check(document).problems
    assert [problem.partition(": ")[0] for problem in problems] == ["receipts[0]", "receipts[1]", "public_key"]
    passed_off = exported(chain(2), signer=OTHER)
    assert check(passed_off).problems == ("public_key: not the one that was given.",)


@pytest.mark.parametrize("versions", [(1, 1), (2, 1), (1, 5, 5), (1, 5, 4), (1, 9, 3, 4)], ids=str)
def test_versions_must_ascend(versions):
    receipts = rechained([Receipt(**said(request=f"{n:032x}", version=v)) for n, v in enumerate(versions)])
    problems = check_receipts(exported(receipts, version=99)).problems
    late = [number for number, version in enumerate(versions) if version <= max(versions[:number], default=-1)]
    assert [problem.partition(": version: ")[0] for problem in problems] == [f"receipts[{number}]" for number in late]
    assert all("does not come after" in problem for problem in problems)


def test_versions_may_skip():
    receipts = rechained([Receipt(**said(request=f"{n:032x}", version=v)) for n, v in enumerate((0, 1, 7, 2**40))])
    assert check_receipts(exported(receipts))
    assert check_receipts(exported(receipts, version=2**41))


def test_a_request_has_one_receipt():
    receipts = rechained([Receipt(**said(version=version)) for version in range(2)])
    assert check_receipts(exported(receipts)).problems == (f"receipts[1]: request: {'1' * 32} has a receipt already.",)


FRAMES = [
    ("format", "expunge receipts 2"), ("format", None), ("store", 5), ("store", None), ("store", "5" * 31),
    ("version", 8), ("version", "9"), ("version", None), ("version", True), ("version", 10**5000), ("head", GENESIS),
    ("head", None), ("head", ["a"]), ("public_key", "k"), ("public_key", 5), ("public_key", {}), ("receipts", None),
    ("receipts", {}), ("receipts", "all"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), FRAMES, ids=lambda value: repr(value)[:20] if value != 10**5000 else "big")
def test_what_stands_around_the_receipts_is_checked(name, value):
    document = {**exported(chain()), name: value}
    (problem,) = check(document).problems
    assert problem.startswith(f"{name}: ")
    del document[name]
    assert not check(document)


@pytest.mark.parametrize(("name", "value"), [("version", 10), ("version", 2**62), ("public_key", None)])
def test_what_was_altered_around_the_receipts_is_caught_with_the_public_key(name, value):
    document = {**exported(chain()), name: value}
    assert check_receipts(document).ok  # nobody can tell without the key
    assert check(document).problems == (
        "signature: not made for this export; its version, public_key, head or receipts were altered.",
    )
    assert not check(document).framed


def test_a_signature_of_one_export_does_not_fit_another():
    receipts = chain()
    document, earlier = exported(receipts), exported(receipts[:-1])
    assert check(document).framed
    assert check({**document, "signature": earlier["signature"]}).problems[0].startswith("signature: not made for")
    assert check({**document, "signature": receipts[-1].signature}).problems[0].startswith("signature: not made for")


def test_an_export_of_an_earlier_version_can_be_read_but_names_a_key_for_nothing():
    document = exported(chain())
    del document["signature"]
    assert check_receipts(document).ok
    assert check(document).problems[0].startswith("signature: missing, although the export names a key")


def test_an_export_without_a_key_is_not_signed_as_a_whole_and_says_so():
    found = check(exported(chain(), signer=None))
    assert (found.ok, found.signed, found.framed) == (True, 5, False)


def test_problems_are_cut_short():
    problems = check_receipts({**exported([]), "receipts": [None] * 1000}).problems
    assert len(problems) == 21
    assert problems[-1] == "… and 980 more."


def deep(levels):
    nested = []
    for _ in range(levels):
        nested = [nested]
    return nested


ODD = [None, True, 1.5, float("nan"), -1, 2**70, 10**5000, "", "\ud800", "x" * 10**6, [], {}, deep(100_000), {1: 2}]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_nothing_odd_does_more_than_make_a_problem(value):
    document = exported(chain(2))
    for name in document:
        if name != "says":
            assert not check({**document, name: value})
    for name in TAMPERED:
        receipts = copy.deepcopy(document["receipts"])
        receipts[0][name] = value
        assert not check({**document, "receipts": receipts})
    assert not check({**document, "receipts": [value]})
    assert not check({**document, "receipts": [*document["receipts"], value]})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(GENESIS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TAMPERED]), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(["store", "version", "head", "public_key", "receipts"]), anything), anything)
def test_hostile_documents_lead_to_problems(frame, receipt):
    document = {**exported(chain(1)), "receipts": [receipt], **frame}
    assert not check_receipts(document) or document["receipts"] == []
    assert not check_receipts(json.dumps(document)) or document["receipts"] == []


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text)[:20])
def test_hostile_files_lead_to_problems(tmp_path, text):
    path = tmp_path / "receipts.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    result = check_receipts(path)
    assert len(result.problems) == 1
    assert (result.count, result.signed) == (0, 0)


@pytest.mark.parametrize("text", ["{", '{"a":' * 100_000, '{"format":1,"format":2}'], ids=lambda text: text[:9])
def test_hostile_text_leads_to_problems(text):
    assert len(check_receipts(text).problems) == 1


@pytest.mark.parametrize("path", ["", "absent", "\0", "\ud800", "x" * 100_000, "[" * 100_000], ids=range(6))
def test_a_file_that_cannot_be_read_is_named(path):
    with pytest.raises(StoreError, match="give what was exported"):
        check_receipts(path)


@pytest.mark.parametrize("given_as", [None, 5, [], b"{}"], ids=repr)
def test_what_is_no_export_is_a_problem(given_as):
    assert check_receipts(given_as).problems[0].startswith("format: ")


@pytest.mark.parametrize("noted", ["", "a" * 63, 5, "A" * 64], ids=repr)
def test_a_noted_head_must_be_a_hash(noted):
    with pytest.raises(ExpungeError, match="noted: "):
        check_receipts(exported(chain()), noted=noted)
