"""What a request costs does not grow with the requests before it."""

from dataclasses import replace

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.store.file import StoreFile
from expunge.store.receipts import Receipt
from expunge.store.state import read_state, write_state

rng = np.random.default_rng(8)
N = 120
X = rng.normal(size=(N, 3)) / 9
Y = X[:, 0] > 0


@pytest.fixture
def path(tmp_path):
    """A store with three receipts, of which the first and the last are large."""
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        for ids in (np.arange(10, 40), [40], np.arange(50, 80)):
            model.unlearn(ids)
    return tmp_path / "model"


@pytest.fixture
def parsed(monkeypatch):
    """How many names each receipt has that is read."""
    found, read = [], Receipt.from_json.__func__

    def from_json(cls, text):
        receipt = read(cls, text)
        found.append(len(receipt.digests))
        return receipt

    monkeypatch.setattr(Receipt, "from_json", classmethod(from_json))
    return found


def test_a_request_reads_no_receipt(path, parsed):
    with expunge.open(path) as model:
        for one in range(3):
            model.unlearn([one])
    assert parsed == []


def test_a_store_of_an_earlier_version_has_its_receipts_read_once(path, parsed, tmp_path):
    pytest.importorskip("cryptography")
    expunge.store.make_signing_key(tmp_path / "key.pem")
    with expunge.open(path, sign_with=tmp_path / "key.pem") as model:
        model.unlearn([1])
    forget_signatures(path)
    with expunge.open(path) as model, pytest.raises(expunge.BadPlan, match="are signed; give the key"):
        model.unlearn([2])
    with expunge.open(path, sign_with=False) as model:
        model.unlearn([2])
        parsed.clear()
        model.unlearn([3])
        assert parsed == []
    with expunge.open(path) as model, pytest.raises(expunge.BadPlan, match="are signed; give the key"):
        model.unlearn([4])  # neither the first nor the last is signed, but a key was noted


def forget_signatures(path):
    """Write the state as earlier versions did."""
    file = StoreFile(path)
    with file.transaction():
        write_state(file, replace(read_state(file), signed=None))
        text = file.text("about", 1)
        assert ',"signed":null' in text
        file.put_text("about", 1, text.replace(',"signed":null', ""))
    file.close()
