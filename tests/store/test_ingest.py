"""Fitting from blocks into a file: what is refused, what is kept, and what is left behind."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse

import expunge
import expunge.store
from cases.in_solver import in_solver
from expunge.base.errors import BadPlan, BadRecords, ClippedWarning, DuplicateId, NotAStore, StoreError
from expunge.solvers import Lloyd

rng = np.random.default_rng(3)
X = rng.normal(size=(400, 3)).astype(np.float32) / 4
Y = X[:, 0] > X[:, 1]
IDS = np.array([f"customer {number:04d}" for number in range(400)])


def model(**more):
    return expunge.LogisticRegression(**in_solver(classes=[False, True], rho=0.4, **more))


def blocks(rows=90, ids=IDS, y=Y, features=X):
    for first in range(0, features.shape[0], rows):
        part = slice(first, first + rows)
        yield features[part], y[part], ids[part]


def test_features_of_32_bits_are_kept_so(tmp_path):
    with expunge.ingest(model(), blocks(), tmp_path / "short") as short:
        assert len(expunge.store.scan(tmp_path / "short", [X[7].astype("<f4").tobytes()])) == 1
        assert short.verify().ok
        short.insert(X[:1] / 3 + 0.1, [True], ids=["new"])  # rounded like the others
        assert short.verify().ok
        short.unlearn(["new", "customer 0007"])
        assert short.verify().ok
        assert expunge.store.scan(tmp_path / "short", [X[7], "customer 0007"]) == []
    with expunge.ingest(model(), blocks(features=X.astype(float)), tmp_path / "long"):
        assert expunge.store.scan(tmp_path / "long", [X[7].astype("<f4").tobytes()]) == []


def test_long_rows_are_scaled_to_the_norm_and_never_beyond_it(tmp_path):
    with expunge.ingest(model(), blocks(features=9 * X), tmp_path / "model") as stored:
        places = range(len(stored._records.places.lengths))
        lengths = [np.sqrt((stored._records.batch_at(place)[0] ** 2).sum(axis=1)) for place in places]
        assert 0.999999 < np.concatenate(lengths).max() <= 1.0 + 1e-15
        assert stored.verify().ok


def test_a_table_with_names(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": X[:, 0], "who": IDS, "b": X[:, 1], "c": X[:, 2], "class": Y})
    file = tmp_path / "table.parquet"
    table.to_parquet(file)
    with expunge.ingest(model(), file, tmp_path / "model", target="class", id="who") as stored:
        assert stored.feature_names_in_.tolist() == ["a", "b", "c"]
        assert stored.score(table[["a", "b", "c"]], Y) > 0.6
        stored.insert(table[["a", "b", "c"]][:1], Y[:1], ids=["again"])
        assert stored.verify().ok


def test_one_model_can_be_fitted_to_several_files(tmp_path):
    wanted = model()
    for name in ("one", "two"):
        expunge.ingest(wanted, blocks(), tmp_path / name).close()
    assert not hasattr(wanted, "plan_")


def test_what_is_refused_leaves_nothing_behind(tmp_path):
    path = tmp_path / "model"
    bad = X.copy()
    bad[200, 1] = np.nan
    twice = IDS.copy()
    twice[399] = twice[5]
    targets = np.where(Y, "yes", "no")
    for source, kind, error, words in (
        (blocks(features=bad), model(), BadRecords, "200"),
        (blocks(ids=twice), model(), DuplicateId, "customer 0005"),
        (blocks(y=targets), model(), BadRecords, "not one of the model's classes"),
        (blocks(), expunge.LogisticRegression(solver="dual_averaging"), BadPlan, "classes: declare"),
        (((X, None),), model(), BadRecords, "target"),
        (iter(()), model(), BadRecords, "no records"),
        (blocks(), "a model", BadPlan, "model: expected"),
        (blocks(), expunge.LinearRegression(solver="dual_averaging"), BadPlan, "target_range"),
        (((X, Y, IDS, np.zeros(400, dtype=int)),), model(), BadRecords, "records_per_subject"),
        ("nowhere.csv", model(), BadRecords, "nowhere.csv"),
    ):
        with pytest.raises(error, match=words):
            expunge.ingest(kind, source, path)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotAStore, match="no such folder"):
        expunge.ingest(model(), blocks(), tmp_path / "missing" / "model")


def test_a_path_that_is_taken_stays_as_it_is(tmp_path):
    path = tmp_path / "model"
    path.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        expunge.ingest(model(), blocks(), path)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_in_the_source_leaves_nothing_behind(tmp_path):
    def failing():
        yield X[:100], Y[:100]
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="network"):
        expunge.ingest(model(), failing(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_warnings_come_once(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wanted = expunge.KMeans(2, solver=Lloyd(radius=0.3))
        expunge.ingest(wanted, ((X[k : k + 50],) for k in range(0, 400, 50)), tmp_path / "model").close()
    kinds = [one.category for one in caught]
    assert kinds.count(ClippedWarning) == 1


def test_a_process_that_dies_leaves_no_store_and_the_next_one_clears_up(tmp_path):
    path = tmp_path / "model"
    code = f"""
import os, signal, numpy as np, expunge
def blocks():
    yield np.full((100, 2), 0.3125), np.arange(100) % 2 == 0
    os.kill(os.getpid(), signal.SIGKILL)
expunge.ingest(expunge.LogisticRegression(classes=[False, True]), blocks(), {str(path)!r})
"""
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == -9
    assert not path.exists()
    expunge.ingest(model(), blocks(), path).close()
    assert {one.name for one in tmp_path.iterdir()} == {"model", "model-key", "model-lock"}


def test_progress_is_shown_if_it_is_asked_for(tmp_path, capsys):
    expunge.ingest(model(), blocks(), tmp_path / "model", progress=True).close()
    shown = capsys.readouterr().err
    assert all(stage in shown for stage in ("reading", "laying out", "training"))


# --- sparse rows ---

WORDS = sparse.random_array((400, 5000), density=0.004, format="csr", rng=np.random.default_rng(4)) / 9


def test_sparse_rows_stay_sparse_and_what_is_erased_is_gone(tmp_path):
    path, dense = tmp_path / "model", tmp_path / "dense"
    expunge.ingest(model(), blocks(features=WORDS.toarray().astype(np.float32)), dense).close()
    with expunge.ingest(model(), blocks(features=WORDS), path) as stored:
        assert path.stat().st_size < dense.stat().st_size - 0.9 * 4 * 400 * 5000
        row = WORDS[[7]].data
        assert len(expunge.store.scan(path, [row])) == 1
        stored.unlearn(["customer 0007"])
        assert expunge.store.scan(path, [row, WORDS[[7]].toarray()[0], "customer 0007"]) == []
        stored.insert(WORDS[[7]], [True], ids=["again"])
        stored.replace(WORDS[[8]].toarray(), [True], ids=["again"])
        assert stored.verify().ok
        assert expunge.store.scan(path, [row]) == []
        stored.compact()
    with expunge.open(path) as stored:
        assert stored.verify().ok
        assert stored.predict(WORDS).tolist() == stored.predict(WORDS.toarray()).tolist()
        stored.replan()
        assert stored.verify().ok
        with pytest.warns(UserWarning, match="every record"):
            stored.unlearn(stored.ids_)
        assert stored.verify().ok
        stored.insert(WORDS[:1], [True], ids=["first"])
        assert stored.verify().ok


def test_one_sparse_record_is_enough(tmp_path):
    empty = sparse.csr_array((1, 5000))
    with expunge.ingest(model(), [(empty, [True], ["only"])], tmp_path / "model") as stored:
        assert stored.verify().ok
        with pytest.warns(UserWarning, match="every record"):
            stored.unlearn(["only"])
        assert stored.verify().ok


def test_sparse_rows_are_refused_where_only_dense_ones_can_be_taken(tmp_path):
    with pytest.raises(BadRecords, match="X: sparse, which KMeans cannot take"):
        expunge.ingest(expunge.KMeans(2, solver=Lloyd(radius=1.0)), [(WORDS,)], tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_amid_sparse_rows_leaves_no_store(tmp_path):
    path = tmp_path / "model"
    code = f"""
import os, signal, numpy as np, expunge
from scipy import sparse
def blocks():
    yield sparse.eye_array(100, 3000, format="csr"), np.arange(100) % 2 == 0
    os.kill(os.getpid(), signal.SIGKILL)
expunge.ingest(expunge.LogisticRegression(classes=[False, True]), blocks(), {str(path)!r})
"""
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == -9
    assert not path.exists()
    expunge.ingest(model(), blocks(features=WORDS), path).close()
    assert {one.name for one in tmp_path.iterdir()} == {"model", "model-key", "model-lock"}
