"""Whatever holds records can be read by its owner only, from the moment at which it is made."""

import os

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.store import failpoints
from expunge.store.sorting import Spool

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
rng = np.random.default_rng(5)
N = 300
X = rng.normal(size=(N, 3)) / 3
Y = X[:, 0] > 0


@pytest.fixture(autouse=True)
def _everybody_may_read_new_files():
    before = os.umask(0)
    yield
    os.umask(before)


class Seen(set):
    """What was seen."""


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Names of files and folders that were there at some moment, all for their owner only; locks are not named."""
    seen = Seen()

    def look(*_):
        for path in tmp_path.rglob("*"):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
            if path.name.endswith("-lock"):
                assert path.stat().st_size == 0
            else:
                seen.add(path.relative_to(tmp_path).as_posix())

    run = expunge.store.file.StoreFile._run

    def run_and_look(*given):
        result = run(*given)
        look()
        return result

    monkeypatch.setattr(expunge.store.file.StoreFile, "_run", run_and_look)  # after every statement of SQL
    failpoints.hook = seen.look = look
    return seen


def test_what_is_saved(tmp_path, seen):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    assert seen == {"model-new", "model-key", "model"}


def test_what_is_ingested(tmp_path, seen, monkeypatch):
    monkeypatch.setattr(Spool.by_place, "__kwdefaults__", {"memory": 1000, "convert": None})  # so that it takes buckets

    def blocks():
        for start in range(0, N, 100):
            seen.look()
            yield X[start : start + 100], Y[start : start + 100]
        seen.look()

    wanted = expunge.LogisticRegression(classes=[False, True], rho=0.5, solver="dual_averaging")
    with expunge.ingest(wanted, blocks(), tmp_path / "model") as model:
        model.unlearn([5])
    assert {"model-spool", "model-spool/column-0", "model-new", "model", "model-wal", "model-shm"} <= seen
    assert any("/buckets-" in name and name.endswith("/0") for name in seen)


def test_what_is_changed_compacted_backed_up_and_restored(tmp_path, seen):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    expunge.store.backup(tmp_path / "model", tmp_path / "backup")
    with expunge.open(tmp_path / "model") as model:
        model.unlearn([5])
        model.compact()
        model.replan()
    expunge.store.restore(tmp_path / "backup", tmp_path / "model")
    assert {"backup-key", "backup", "model-wal", "model-new", "model-new-wal", "model-new-shm"} <= seen


def test_copies_of_a_store_that_others_may_read(tmp_path):
    path, modes = tmp_path / "model", {}
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(path)
    path.chmod(0o644)

    def hook(name):
        modes.update({each.name: each.stat().st_mode & 0o777 for each in tmp_path.glob("*-new")})

    failpoints.hook = hook
    with expunge.open(path) as model:
        model.compact()
    assert path.stat().st_mode & 0o777 == 0o644
    expunge.store.backup(path, tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    assert modes == {"model-new": 0o600}
