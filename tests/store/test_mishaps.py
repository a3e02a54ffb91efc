"""What may happen around a store: others that die, links, files that are put in its place, settings that change."""

import os

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.errors import BadPlan, BusyStore, NotAStore
from expunge.store import scan
from expunge.store.file import beside

rng = np.random.default_rng(12)
N = 120
X = rng.normal(size=(N, 3)) / 3
Y = X[:, 0] > 0


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5).fit(X, Y).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_copy_that_another_process_left_when_it_died_is_gone_when_a_deletion_is_acknowledged(path):
    with expunge.open(path) as model:
        model._keeper.file.copy_to(beside(path, "-new"))  # as by a process that dies in compact
        model.unlearn([5])
        assert scan(path, [X[5]]) == []
        assert len(scan(path, [X[6]])) == 1


def test_a_number_for_a_seed_is_refused_where_requests_are_not_counted(path):
    """It would give every request the same coins."""
    memory = expunge.LogisticRegression(rho=0.5).fit(X, Y)
    with expunge.open(path) as stored:
        for model in (memory, stored):
            model.set_params(random_state=7)
            for ask in (lambda: model.unlearn([5]), model.replan):  # noqa: B023
                with pytest.raises(BadPlan, match=r"random_state=7: .* same coins") as caught:
                    ask()
                assert caught.value.refused
            assert model.n_records_ == N
            model.set_params(random_state=np.random.default_rng(7))
            model.unlearn([5])
            assert model.verify().ok


def test_a_link_to_a_store_has_its_lock_and_key(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    with expunge.open(path) as model, expunge.open(tmp_path / "link", wait=0.01) as linked:
        with model._keeper.lock, pytest.raises(BusyStore):
            linked.unlearn([5])
        linked.unlearn([5])
        assert model.n_records_ == N - 1
        assert scan(tmp_path / "link", [X[5]]) == []
    assert {each.name for each in tmp_path.iterdir()} == {"model", "model-key", "model-lock", "link"}


def test_a_store_stays_where_it_is_when_the_process_goes_elsewhere(path, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with expunge.open("model") as model, expunge.open("model", read_only=True) as reader:
        monkeypatch.chdir(tmp_path / "elsewhere")
        model.unlearn([5])
        assert reader.verify().ok
        assert len(reader.export_receipts(ids=[5])["receipts"]) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("where", ["", ".", "/", "loop", "pipe"])
def test_what_is_no_file_is_refused_by_name_and_nothing_hangs(where, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    before = set(tmp_path.parent.rglob("*"))
    model = expunge.LogisticRegression(classes=[False, True])
    for ask in (
        lambda: expunge.open(where),
        lambda: expunge.open(where, read_only=True),
        lambda: expunge.ingest(model, [(X, Y)], where),
        lambda: expunge.store.scan(where, ["person 17"]),
        lambda: expunge.store.backup(path, where),
        lambda: expunge.store.restore(path, where),
        lambda: expunge.store.restore(where, path),
    ):
        with pytest.raises(NotAStore):
            ask()
    assert set(tmp_path.parent.rglob("*")) - before <= {beside(path, "-lock")}
