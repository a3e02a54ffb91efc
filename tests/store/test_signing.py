"""A chain of receipts that are signed stays so, unless somebody says that it shall not."""

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.errors import BadPlan
from expunge.requests import Delete
from expunge.store import failpoints

pytest.importorskip("cryptography")
rng = np.random.default_rng(6)
N = 120
X = rng.normal(size=(N, 3)) / 9
Y = X[:, 0] > 0
ASK = (
    lambda model: model.unlearn([9]),
    lambda model: model.insert(X[:1], Y[:1]),
    lambda model: model.replace(X[:1], Y[:1], ids=[9]),
    lambda model: expunge.requests.apply(model, [Delete([9])]),
)


@pytest.fixture
def key(tmp_path):
    expunge.store.make_signing_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


@pytest.fixture
def path(tmp_path, key):
    """A store with a backup, and with one receipt, signed."""
    expunge.LogisticRegression(rho=0.5).fit(X, Y).save(tmp_path / "model")
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
        with pytest.raises((BadPlan, expunge.errors.RequestFailed), match="are signed; give the key, or sign_with=F"):
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
    expunge.LogisticRegression(rho=0.5).fit(X, Y).save(tmp_path / "other")
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
