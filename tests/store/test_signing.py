"""A chain of receipts that are signed stays so, unless somebody says that it shall not."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.base.errors import BadPlan, CorruptStore
from expunge.base.intake import Delete
from expunge.store import failpoints
from expunge.store.chain import export
from expunge.store.keys import Signer
from expunge.store.receipts import Receipt, genesis

pytest.importorskip("cryptography")
rng = np.random.default_rng(6)
N = 120
X = rng.normal(size=(N, 3)) / 9
Y = X[:, 0] > 0
ASK = (
    lambda model: model.unlearn([9]),
    lambda model: model.insert(X[:1], Y[:1]),
    lambda model: model.replace(X[:1], Y[:1], ids=[9]),
    lambda model: expunge.engine.streams.apply(model, [Delete([9])]),
)


@pytest.fixture
def key(tmp_path):
    expunge.store.make_signing_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


@pytest.fixture
def path(tmp_path, key):
    """A store with a backup, and with one receipt, signed."""
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    expunge.store.backup(tmp_path / "model", tmp_path / "backup")
    with expunge.open(tmp_path / "model", sign_with=key) as model:
        model.unlearn([5])
    return tmp_path / "model"


def signatures(path):
    with expunge.open(path, read_only=True) as model:
        return [receipt["signature"] is not None for receipt in model.export_receipts()["receipts"]]


def die(name):
    if name == "request: recorded":
        failpoints.hook = None
        raise KeyboardInterrupt


@pytest.mark.parametrize("ask", ASK)
def test_who_forgets_the_key_is_refused_before_anything_is_recorded(path, ask):
    with expunge.open(path) as model:
        with pytest.raises((BadPlan, expunge.RequestFailed), match="are signed; give the key, or sign_with=F"):
            ask(model)
        request = model.prepare_request(Delete([9]))
        with pytest.raises(BadPlan, match=r"sign_with=False to leave receipts unsigned") as caught:
            model.serve_request(request)
        assert caught.value.refused
        assert not model.has_begun(request)
        assert model.n_records_ == N - 1
    assert signatures(path) == [True]


def test_receipts_can_be_left_unsigned_deliberately(path, key):
    with expunge.open(path, sign_with=False) as model:
        model.unlearn([6])
        assert model.verify_receipts().ok
        found = model.verify_receipts(public_key=f"{key}.pub")
        assert (found.ok, found.signed, found.unsigned, len(found.problems)) == (False, 1, 1, 1)
    with expunge.open(path) as model, pytest.raises(BadPlan, match="are signed"):  # the first still is
        model.unlearn([7])
    with expunge.open(path, sign_with=key) as model:
        model.unlearn([7])
    assert signatures(path) == [True, False, True]


def test_where_signing_began_later_the_last_receipt_decides(path, tmp_path, key):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "other")
    with expunge.open(tmp_path / "other") as model:
        model.unlearn([5])
    with expunge.open(tmp_path / "other", sign_with=key) as model:
        model.unlearn([6])
    with expunge.open(tmp_path / "other") as model, pytest.raises(BadPlan, match="are signed"):
        model.unlearn([7])


def test_what_needs_no_receipt_needs_no_key(path, tmp_path):
    with expunge.open(path) as model:
        model.replan()
        model.compact()
        assert model.verify().ok
    expunge.store.backup(path, tmp_path / "copy")
    assert expunge.store.restore(tmp_path / "copy", path).erased == 0
    assert signatures(path) == [True]


@pytest.mark.parametrize("has_key", [True, False])
def test_what_waits_is_finished_by_whoever_comes_signed_if_it_has_the_key(path, key, has_key):
    with expunge.open(path, sign_with=key) as model:
        failpoints.hook = die
        with pytest.raises(KeyboardInterrupt):
            model.unlearn([6])
    with expunge.open(path, sign_with=key if has_key else None) as model:
        assert model.n_records_ == N - 2
    assert signatures(path) == [True, has_key]
    with expunge.open(path) as model, pytest.raises(BadPlan, match="are signed"):
        model.unlearn([7])


def test_a_restored_store_goes_on_with_signed_receipts(path, tmp_path, key):
    with pytest.raises(BadPlan, match="sign_with: the receipts of this store are signed"):
        expunge.store.restore(tmp_path / "backup", path)
    assert signatures(path) == [True]
    assert expunge.store.restore(tmp_path / "backup", path, sign_with=key).erased == 1
    assert signatures(path) == [True, True]
    with expunge.open(path) as model:
        assert 5 not in model.ids_
        assert model.verify_receipts(public_key=f"{key}.pub").ok


def test_a_store_can_be_restored_unsigned_deliberately(path, tmp_path):
    assert expunge.store.restore(tmp_path / "backup", path, sign_with=False).erased == 1
    assert signatures(path) == [True, False]


def test_a_key_that_is_none_is_refused_before_anything_is_restored(path, tmp_path):
    with pytest.raises(BadPlan, match="not a private key"):
        expunge.store.restore(tmp_path / "backup", path, sign_with=tmp_path / "key.pem.pub")
    assert signatures(path) == [True]


# --- receipts that were made up -------------------------------------------------------------------------


@pytest.fixture
def erased(path, key):
    """The store after a second erasure, with all its receipts exported and signed."""
    with expunge.open(path, sign_with=key) as model:
        model.unlearn([6])
        return model.export_receipts()


def forged(document, keep, signer=None):
    """Some of the receipts, chained again, by somebody who has not the key, or another."""
    made, previous = [], genesis(document["store"])
    for one in document["receipts"]:
        if keep(one):
            said = {name: value for name, value in one.items() if name != "hash"}
            receipt = Receipt(**{**said, "previous": previous, "signature": None})
            made.append(receipt if signer is None else replace(receipt, signature=signer.sign(receipt.hash)))
            previous = receipt.hash
    return export(made, store=document["store"], head=previous, version=document["version"], signer=signer)


def first(document):
    number = document["receipts"][0]["request"]
    return lambda one: one["request"] != number


def test_receipts_that_were_chained_again_without_the_key_bring_nobody_back(path, tmp_path, key, erased):
    made_up, before = forged(erased, first(erased)), path.read_bytes()
    assert expunge.store.check_receipts(made_up).ok
    for given in (
        {"sign_with": key}, {"public_key": f"{key}.pub"}, {"public_key": f"{key}.pub", "sign_with": key},
    ):  # fmt: skip
        with pytest.raises(CorruptStore, match="receipts: the last one is not signed, although this store signs"):
            expunge.store.restore(tmp_path / "backup", path, receipts=made_up, **given)
        assert path.read_bytes() == before
    assert expunge.store.restore(tmp_path / "backup", path, receipts=erased, sign_with=key).erased == 2


def test_receipts_that_another_key_has_signed_are_refused(path, tmp_path, key, erased):
    expunge.store.make_signing_key(tmp_path / "other.pem")
    made_up = forged(erased, first(erased), Signer(tmp_path / "other.pem"))
    for given in ({"sign_with": key}, {"public_key": f"{key}.pub", "sign_with": False}):
        with pytest.raises(CorruptStore, match="receipts: the last one is not signed by the known key"):
            expunge.store.restore(tmp_path / "backup", path, receipts=made_up, **given)
    with pytest.raises(BadPlan, match="public_key: the receipts of this store are signed, but the key is not known"):
        expunge.store.restore(tmp_path / "backup", path, receipts=made_up)


def test_a_backup_that_was_signed_knows_by_whom(path, tmp_path, erased):
    expunge.store.backup(path, tmp_path / "later")
    with expunge.open(path, sign_with=tmp_path / "key.pem") as model:
        model.unlearn([7])
        model.unlearn([8])
        document = model.export_receipts()
    with pytest.raises(CorruptStore, match="the last one is not signed, although this store signs"):
        expunge.store.restore(tmp_path / "later", path, receipts=forged_end(document, 2))
    assert (
        expunge.store.restore(tmp_path / "later", path, receipts=document, sign_with=tmp_path / "key.pem").erased == 2
    )


def forged_end(document, first):
    """The receipts, of which those from a number on were left out but for the last, which was chained again."""
    made = copy.deepcopy(document)
    last = {name: value for name, value in made["receipts"][-1].items() if name != "hash"}
    before = made["receipts"][first - 1]["hash"]
    receipt = Receipt(**{**last, "previous": before, "signature": None})
    made["receipts"][first:] = [receipt.to_dict()]
    return {**made, "head": receipt.hash, "signature": None, "public_key": None}


def test_a_store_whose_own_receipts_were_made_up_is_refused_too(path, tmp_path, key, erased):
    made_up = forged(erased, first(erased))
    with expunge.open(path) as model:
        file, state = model._owner.file, model._owner.state
        with file.transaction():
            file._connection.execute("DELETE FROM receipts")
            for number, one in enumerate(made_up["receipts"], 1):
                file.put_text("receipts", number, Receipt(**{k: v for k, v in one.items() if k != "hash"}).to_json())
            file.put_text("about", 1, expunge.store.state.KNOWN.write(replace(state, receipts=1, head=made_up["head"])))
        file.truncate_log()
    for given in ({}, {"sign_with": key}):
        with pytest.raises(CorruptStore, match="the last one is not signed, although this store signs"):
            expunge.store.restore(tmp_path / "backup", path, **given)


def test_what_a_signed_export_says_of_its_version_must_be_signed(path, tmp_path, key, erased):
    for changes in ({"version": 2**63 - 1}, {"version": 5}):
        with pytest.raises(CorruptStore, match="receipts: signature: not made for this export"):
            expunge.store.restore(tmp_path / "backup", path, receipts={**erased, **changes}, sign_with=key)
    stripped = {**erased, "version": 2**63 - 1, "signature": None, "public_key": None}
    expunge.store.restore(tmp_path / "backup", path, receipts=stripped, sign_with=key)
    with expunge.open(path, sign_with=key) as model:  # the version was not believed
        model.unlearn([9])
        assert model.export_receipts()["version"] == 4


def test_receipts_that_were_cut_off_show_by_a_noted_head_only(path, tmp_path, key, erased):
    with expunge.open(path, sign_with=key) as model:
        whole = model.export_receipts()
    document = {**whole, "receipts": whole["receipts"][:1], "head": whole["receipts"][0]["hash"], "signature": None}
    with pytest.raises(CorruptStore, match="noted: no receipt has this hash"):
        expunge.store.restore(tmp_path / "backup", path, receipts=document, sign_with=key, noted=whole["head"])
    with pytest.raises(CorruptStore, match="noted: no receipt has this hash"):
        expunge.store.restore(tmp_path / "backup", path, sign_with=key, noted="0" * 64)
    assert expunge.store.restore(tmp_path / "backup", path, sign_with=key, noted=whole["head"]).erased == 2


def test_unsigned_receipts_before_a_signed_one_and_a_change_of_keys_are_no_forgery(path, tmp_path, key):
    expunge.store.make_signing_key(tmp_path / "new.pem")
    with expunge.open(path, sign_with=False) as model:
        model.unlearn([6])
    expunge.store.backup(path, tmp_path / "later")
    with expunge.open(path, sign_with=tmp_path / "new.pem") as model:
        model.unlearn([7])
    with pytest.raises(CorruptStore, match="if the key was changed since, give public_key"):
        expunge.store.restore(tmp_path / "later", path, sign_with=key)
    assert expunge.store.restore(tmp_path / "later", path, sign_with=tmp_path / "new.pem").erased == 1
    given = {"sign_with": key, "public_key": f"{tmp_path / 'new.pem'}.pub"}
    assert expunge.store.restore(tmp_path / "backup", path, **given).erased == 3
    with expunge.open(path) as model:
        assert {5, 6, 7}.isdisjoint(model.ids_.tolist())


def test_a_store_that_never_signed_needs_no_key(tmp_path, key):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    expunge.store.backup(tmp_path / "model", tmp_path / "backup")
    with expunge.open(tmp_path / "model") as model:
        model.unlearn([5])
    with pytest.raises(CorruptStore, match="the last one is not signed"):  # for all that is known they were signed
        expunge.store.restore(tmp_path / "backup", tmp_path / "model", sign_with=key)
    assert expunge.store.restore(tmp_path / "backup", tmp_path / "model").erased == 1


def test_a_version_that_leaves_none_is_refused(tmp_path):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    expunge.store.backup(tmp_path / "model", tmp_path / "backup")
    with expunge.open(tmp_path / "model") as model:
        model.unlearn([5])
        document = model.export_receipts()
    last = {name: value for name, value in document["receipts"][0].items() if name != "hash"}
    made_up = Receipt(**{**last, "version": 2**63 - 1})
    document = export([made_up], store=document["store"], head=made_up.hash, version=2**63 - 1)
    with pytest.raises(CorruptStore, match="leaves none for later requests"):
        expunge.store.restore(tmp_path / "backup", tmp_path / "model", receipts=document)


def test_a_signer_that_is_none_is_named(path, tmp_path, key):
    with expunge.open(path) as model:
        with model._owner.file.transaction():
            model._owner.file.put_text("about", 2, "nobody")
        model._owner.file.truncate_log()
    with pytest.raises(expunge.StoreError, match="about, row 2 is not a public key"):
        expunge.store.restore(tmp_path / "backup", path, sign_with=key)


def test_a_key_that_was_given_up_is_not_trusted_beside_the_one_that_is_given(path, tmp_path, key):
    expunge.store.backup(path, tmp_path / "noted")  # which has noted the first key
    second = tmp_path / "second.pem"
    expunge.store.make_signing_key(second)
    with expunge.open(path, sign_with=second) as model:
        model.unlearn([6])
        model.unlearn([7])
        said = model.export_receipts()
    path.unlink()
    dropped = said["receipts"][1]["request"]
    made_up = forged(said, lambda one: one["request"] != dropped, Signer(key))
    made_up["receipts"][0] = said["receipts"][0]
    with pytest.raises(CorruptStore, match="not signed by the known key"):
        expunge.store.restore(tmp_path / "noted", path, receipts=made_up, sign_with=second)
    assert expunge.store.restore(tmp_path / "noted", path, receipts=said, sign_with=second).erased == 2
