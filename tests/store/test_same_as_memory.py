"""The same coins do the same, to the last bit, to a model in memory, in a store, and ingested into one."""

import numpy as np
import pytest
from scipy import sparse

import expunge
from cases.keys import keys_from
from expunge.base.intake import Delete, Insert, Replace
from expunge.solvers import DualAveraging, FrankWolfe, GradientDescent, Lloyd
from expunge.store.sorting import Spool

NUMBER, COLUMNS = 240, 4
rng = np.random.default_rng(5)
X = rng.normal(size=(NUMBER + 40, COLUMNS)) / 3
CLASSES = np.where(X[:, 0] > X[:, 1], "yes", "no")
THREE = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.1, 0.1])]
REAL = np.clip(X[:, 0] + 0.1 * rng.normal(size=len(X)), -1, 1)
NAMES = np.array([f"p{number:03d}·é" for number in rng.permutation(len(X))])

MODELS = {
    "noise": (expunge.LogisticRegression(rho=0.4, solver="dual_averaging"), CLASSES),
    "no noise, epochs": (expunge.LogisticRegression(solver=DualAveraging(epochs=3)), CLASSES),
    "three classes": (expunge.LogisticRegression(rho=0.5, solver=DualAveraging(steps=16)), THREE),
    "projected": (expunge.LogisticRegression(rho=0.5, solver=DualAveraging(n_components=3)), CLASSES),
    "shuffled": (
        expunge.LogisticRegression(rho=0.5, solver=DualAveraging(schedule="shuffled", batch=7, mechanism="tree")),
        CLASSES,
    ),
    "arrival": (
        expunge.LinearSVC(rho=0.5, solver=DualAveraging(schedule="arrival", batch=5, mechanism="tree")),
        CLASSES,
    ),
    "frank-wolfe": (expunge.LinearSVC(rho=0.5, solver=FrankWolfe(mechanism="tree", coupling="sequential")), CLASSES),
    "descent": (
        expunge.HuberRegressor(rho=0.5, solver=GradientDescent(target_range=(-1, 1), steps=9, rate=0.5)),
        REAL,
    ),
    "k-means": (expunge.KMeans(3, rho=0.5), None),
    "noisy k-means": (expunge.KMeans(3, rho=0.5, solver=Lloyd(radius=2.0)), None),
    "ridge": (expunge.Ridge(), REAL),
}


def rows_of(y, which):
    return (X[which],) if y is None else (X[which], y[which])


def fitted(name, ids, features=X, subjects=None):
    kind, y = MODELS[name]
    model = type(kind)(**kind.get_params(deep=False))
    which = slice(0, NUMBER)
    args = (features[which],) if y is None else (features[which], y[which])
    with keys_from(np.random.default_rng(11)):
        return model.fit(*args, ids=None if ids is None else ids[which], subjects=subjects)


def assert_same(one, other):
    for table in ("sums", "answers", "iterates"):
        np.testing.assert_array_equal(getattr(one.transcript_, table), getattr(other.transcript_, table))
    for mine, theirs in zip(one._published, other._published, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    places = len(one._records.places.lengths)
    np.testing.assert_array_equal(one._records.places.lengths, other._records.places.lengths)
    for place in range(places):
        np.testing.assert_array_equal(one._records.ids_at(place), other._records.ids_at(place))
        for mine, theirs in zip(one._records.batch_at(place), other._records.batch_at(place), strict=True):
            if sparse.issparse(mine):
                mine, theirs = mine.toarray(), theirs.toarray()
            np.testing.assert_array_equal(mine, theirs)


def serve_both(models, seed, request):
    for model in models:
        with keys_from(np.random.default_rng(seed)):
            model.serve_request(model.prepare_request(request))


@pytest.mark.parametrize("ids", [None, NAMES], ids=["numbers", "strings"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_stored_model_does_what_one_in_memory_does(name, ids, tmp_path):
    _, y = MODELS[name]
    memory = fitted(name, ids)
    memory.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as stored:
        assert_same(memory, stored)
        names = np.arange(NUMBER + 40) if ids is None else ids
        new = slice(NUMBER, NUMBER + 25)
        for seed, request in enumerate(
            [
                Delete(names[3:4]),
                Delete(names[10:70]),
                Insert(rows_of(y, new), ids=None if ids is None else names[new]),
                Replace(rows_of(y, slice(80, 95)), ids=names[100:115]),
                Delete(names[new] if ids is not None else names[NUMBER : NUMBER + 25], missing="ignore"),
                Insert(rows_of(y, slice(0, 1)), ids=None if ids is None else names[3:4]),
            ]
        ):
            serve_both((memory, stored), seed, request)
            assert_same(memory, stored)
        assert stored.verify().ok
    with expunge.open(tmp_path / "model") as again:
        assert_same(memory, again)
        assert again.verify().ok


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sparse_records_and_subjects_too(tmp_path):
    table = sparse.random_array((NUMBER + 40, 30), density=0.15, format="csr", rng=np.random.default_rng(2))
    subjects = np.array([f"s{number // 2}" for number in range(NUMBER + 40)])
    memory = expunge.LogisticRegression(rho=0.4, solver=DualAveraging(records_per_subject=3))
    memory.fit(table[:NUMBER], CLASSES[:NUMBER], ids=NAMES[:NUMBER], subjects=subjects[:NUMBER])
    memory.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as stored:
        new = slice(NUMBER, NUMBER + 10)
        for seed, request in enumerate(
            [
                Delete(subjects=["s7", "s40"]),
                Insert((table[new], CLASSES[new]), NAMES[new], subjects[new]),
                Insert((table[14:15], CLASSES[14:15]), ["anew"], ["s7"]),
                Replace((table[20:21], CLASSES[20:21]), subjects=["s7"]),
                Delete(NAMES[90:130]),
            ]
        ):
            serve_both((memory, stored), seed, request)
            assert_same(memory, stored)
        assert stored.verify().ok


def in_blocks(y, ids, subjects=None, rows=37):
    for first in range(0, NUMBER, rows):
        part = slice(first, min(first + rows, NUMBER))
        target = None if y is None else y[part]
        yield X[part], target, None if ids is None else ids[part], None if subjects is None else subjects[part]


@pytest.mark.parametrize("ids", [None, NAMES], ids=["numbers", "strings"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_ingested_model_is_the_one_that_was_fitted(name, ids, tmp_path):
    kind, y = MODELS[name]
    memory = fitted(name, ids)
    wanted = type(kind)(**kind.get_params(deep=False))
    if hasattr(wanted, "classes"):
        wanted.classes = np.unique(y)
    with keys_from(np.random.default_rng(11)):
        stored = expunge.ingest(wanted, in_blocks(y, ids), tmp_path / "model")
    with stored:
        assert_same(memory, stored)
        assert stored.verify().ok
    assert {path.name for path in tmp_path.iterdir()} == {"model", "model-key", "model-lock"}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_ingested_model_with_subjects_too(tmp_path):
    subjects = np.array([number // 3 for number in range(NUMBER)])
    kind = expunge.LogisticRegression(rho=0.4, solver=DualAveraging(records_per_subject=3), classes=["no", "yes"])
    memory = type(kind)(**kind.get_params(deep=False))
    with keys_from(np.random.default_rng(3)):
        memory.fit(X[:NUMBER], CLASSES[:NUMBER], ids=NAMES[:NUMBER], subjects=subjects)
    with keys_from(np.random.default_rng(3)):
        stored = expunge.ingest(kind, in_blocks(CLASSES, NAMES, subjects), tmp_path / "model")
    with stored:
        assert_same(memory, stored)
        serve_both((memory, stored), 4, Delete(subjects=[5, 6]))
        assert_same(memory, stored)


SPARSE = sparse.random_array((NUMBER + 40, 300), density=0.03, format="csr", rng=np.random.default_rng(2))
LINEAR = [name for name in MODELS if "k-means" not in name]


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("memory", [2**12, 2**28], ids=["in buckets", "at once"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_ingested_model_of_sparse_records_is_the_one_that_was_fitted(name, memory, tmp_path, monkeypatch):
    monkeypatch.setattr(Spool.by_place, "__kwdefaults__", {"memory": memory, "convert": None})
    kind, y = MODELS[name]
    memory = fitted(name, NAMES, SPARSE)
    wanted = type(kind)(**kind.get_params(deep=False))
    if hasattr(wanted, "classes"):
        wanted.classes = np.unique(y)
    parts = [slice(first, min(first + 37, NUMBER)) for first in range(0, NUMBER, 37)]
    with keys_from(np.random.default_rng(11)):
        stored = expunge.ingest(wanted, ((SPARSE[part], y[part], NAMES[part]) for part in parts), tmp_path / "model")
    new = slice(NUMBER, NUMBER + 10)
    with stored:
        assert stored._sparse == memory._sparse == (name != "projected")
        assert_same(memory, stored)
        for seed, request in enumerate(
            [
                Delete(NAMES[10:70]),
                Insert((SPARSE[new], y[new]), NAMES[new]),
                Replace((SPARSE[3:5], y[3:5]), ids=NAMES[100:102]),
                Insert((SPARSE[12:13].toarray(), y[12:13]), NAMES[12:13]),
            ]
        ):
            serve_both((memory, stored), seed, request)
            assert_same(memory, stored)
        assert stored.verify().ok
    assert {path.name for path in tmp_path.iterdir()} == {"model", "model-key", "model-lock"}
