"""Gradient boosting from a keyed sample: every state is, bit for bit, that of a fresh fit with the same keys."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV

import expunge
from expunge.base.errors import BadPlan, BadRecords, PlanWarning, SizeWarning, UnknownParameter
from expunge.engine import sampling
from expunge.models import GradientBoostingClassifier, GradientBoostingRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 4))
BINARY = np.where(X[:, 0] * X[:, 1] + 0.2 * RNG.normal(size=3000) > 0, "yes", "no")
THREE = np.digitize(X[:, 0] * X[:, 1], [-0.3, 0.3])
AMOUNTS = 50.0 + 10.0 * np.sin(2.0 * X[:, 0]) + 5.0 * X[:, 1] ** 2 + RNG.normal(size=3000)
TARGETS = {"binary": BINARY, "three": THREE, "amounts": AMOUNTS}
SMALL = {"max_iter": 3, "max_leaf_nodes": 4, "min_samples_leaf": 2}
pytestmark = pytest.mark.filterwarnings("ignore::expunge.PlanWarning")


def boosting(kind, **given):
    if kind == "amounts":
        return GradientBoostingRegressor(**given)
    return GradientBoostingClassifier(**{"classes": ["no", "yes"] if kind == "binary" else [0, 1, 2], **given})


def fitted(kind, records=200, ids=None, subjects=None, **given):
    model = boosting(kind, **{"rho": 0.3, "random_state": 0, **SMALL, **given})
    return model.fit(X[:records], TARGETS[kind][:records], ids=ids, subjects=subjects)


def bits(model):
    """Everything that is kept, in bytes."""
    kept, records = model.transcript_, model._records
    tables = kept.sums, kept.iterates, records.keys_at(0), records.ids_at(0), *records.batch_at(0)
    return [np.ascontiguousarray(table).tobytes() for table in tables]


def assert_sound(model):
    """The whole state is that of a fresh fit of the live records with their keys."""
    report = model.verify()
    assert report.ok, report.problems
    records, structure = model._records, model.plan_.structure
    keys, batch = records.keys_at(0), records.batch_at(0)
    order = np.random.default_rng(1).permutation(len(keys))
    keys, batch = keys[order], tuple(column[order] for column in batch)
    joined = structure.joins(None, keys, batch)
    found = None, structure.find((None,), keys[joined], tuple(column[joined] for column in batch))
    sums = structure.total(found, batch)
    assert model.transcript_.iterates[0].tobytes() == structure.pack(found).tobytes()
    assert model.transcript_.sums.tobytes() == sums.tobytes()
    trees = structure.trees(structure.model(found, sums))
    assert model.leaf_values_.tobytes() == trees.values.tobytes()
    assert np.isfinite(model.leaf_values_).all()


# --- as good as others ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TARGETS)
def test_it_is_nearly_as_good_as_boosting_on_everyone_and_better_than_on_the_sample(kind):
    theirs = (HistGradientBoostingRegressor if kind == "amounts" else HistGradientBoostingClassifier)(
        early_stopping=False
    )
    y, half = TARGETS[kind], 2000
    model = boosting(kind, rho=0.3, random_state=0).fit(X[:half], y[:half])
    chosen = model.plan_.structure.joins(None, model._records.keys_at(0), ())
    rows = model._records.batch_at(0)[0][chosen]
    alone = clone(theirs).fit(rows, [y[np.flatnonzero((row == X).all(axis=1))[0]] for row in rows])
    score = model.score(X[half:], y[half:])
    assert score > alone.score(X[half:], y[half:])
    assert score > theirs.fit(X[:half], y[:half]).score(X[half:], y[half:]) - 0.06


def test_probabilities():
    model = fitted("three", 2000)
    chances = model.predict_proba(X)
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert np.allclose(np.log(chances), model.predict_log_proba(X))
    assert (model.predict(X) == chances.argmax(axis=1)).all()
    two = fitted("binary", 2000)
    assert ((two.predict_proba(X)[:, 1] > 0.5) == (two.predict(X) == "yes")).all()


def test_leaves_of_rows():
    model = fitted("three")
    leaves = model.apply(X[:5])
    assert leaves.shape == (5, 3, 3)
    assert leaves.max() < 4
    assert model.nodes_.shape == (3, 3, 7, 4)


# --- bit for bit a fresh fit ------------------------------------------------------------------------------


def random_request(model, kind, rng):
    """One request of any kind, of one record or many, to whoever is there."""
    alive, number = rng.permutation(model.ids_), int(rng.choice([1, 1, 2, 40]))
    some = rng.integers(3000, size=number)
    rows, targets = X[some], TARGETS[kind][some]
    match int(rng.integers(3)):
        case 0 if len(alive):
            return lambda: model.unlearn(alive[:number])
        case 1 if len(alive):
            return lambda: model.replace(rows[: len(alive)], targets[: len(alive)], ids=alive[:number])
        case _:
            return lambda: model.insert(rows, targets)


def go_on(model, kind, rng, requests):
    for _ in range(requests):
        random_request(model, kind, rng)()
        assert_sound(model)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32), rho=st.sampled_from([1e-9, 0.05, 0.3, 1.0]), kind=st.sampled_from(list(TARGETS)),
    count=st.sampled_from([2, 20, 200]),
)  # fmt: skip
def test_after_any_history_the_state_is_that_of_a_fresh_fit_with_the_same_keys(seed, rho, kind, count):
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        go_on(fitted(kind, count, rho=rho, random_state=rng), kind, rng, 6)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(list(TARGETS)))
def test_the_same_in_a_file(seed, kind, tmp_path_factory):
    path = tmp_path_factory.mktemp("boosting") / "model"
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted(kind, random_state=None).save(path)
        with expunge.open(path) as model:
            go_on(model, kind, rng, 4)
            predicted = model.predict(X)
        with expunge.open(path) as model:
            assert_sound(model)
            assert (model.predict(X) == predicted).all()


@pytest.mark.long
@pytest.mark.parametrize("kind", TARGETS)
def test_a_thousand_requests(kind):
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        go_on(fitted(kind, 300, rho=0.1), kind, rng, 1000)


def test_a_deletion_outside_the_sample_changes_sums_only_and_one_inside_finds_all_anew():
    model, kinds = fitted("binary"), set()
    for one in range(30):
        before, number = model.transcript_.iterates.tobytes(), model.n_records_
        outcome = model.unlearn(one)
        assert (model.transcript_.iterates.tobytes() == before) == outcome.kept
        assert outcome.evaluations == (1 if outcome.kept else number)
        kinds.add(outcome.kept)
    assert kinds == {True, False}


def test_a_bulk_finds_all_anew_once_at_most(monkeypatch):
    model, calls, find = fitted("binary", rho=0.5), [], sampling.find_structure
    monkeypatch.setattr(sampling, "find_structure", lambda *given: calls.append(1) or find(*given))
    assert not model.unlearn(np.arange(100)).kept
    assert len(calls) == 1
    assert_sound(model)


def test_subjects_share_a_key():
    model = fitted("binary", subjects=np.arange(200) // 4)
    keys = model._records.keys_at(0)
    assert len(np.unique(keys)) == 50
    model.insert(X[:4], BINARY[:4], subjects=[0, 0, 77, 77])
    assert len(np.unique(model._records.keys_at(0))) == 51
    assert model.unlearn(subjects=[0, 77]).removed == 8
    assert_sound(model)


@pytest.mark.parametrize("kind", TARGETS)
def test_all_may_leave_and_come_back(kind):
    model = fitted(kind)
    with pytest.warns(UserWarning, match="every record has been deleted"):
        model.unlearn(model.ids_)
    assert_sound(model)
    assert len(set(np.atleast_1d(model.predict(X[:50])).tolist())) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SizeWarning)
        model.insert(X[:200], TARGETS[kind][:200])
    assert_sound(model)


def test_a_class_may_vanish():
    model = fitted("three", rho=0.5)
    model.unlearn(np.flatnonzero(THREE[:200] == 1))
    assert_sound(model)
    assert (model.predict(X[:200]) != 1).mean() > 0.95


def test_nothing_is_left_of_one_in_the_sample():
    model = fitted("amounts", rho=1.0)
    _ = model.leaf_values_
    slot = int(np.flatnonzero(model._records.ids_at(0) == 17)[0])
    key, row = model._records.keys_at(0)[slot].tobytes(), X[17].tobytes()
    assert key in pickle.dumps(model)
    model.unlearn(17)
    assert key not in pickle.dumps(model)
    assert row not in pickle.dumps(model)
    thresholds = {*model.plan_.structure.__dict__.get("_remembered", ((), None))[0]}
    assert not thresholds & {*X[17].tolist()}


def test_copies_and_pickles_go_on_alike():
    model = fitted("binary")
    twin, other = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    for one in (model, twin, other):
        one.unlearn([3, 5])
        assert_sound(one)
    assert bits(model) == bits(twin) == bits(other)


def test_partial_fit_and_replan():
    model = boosting("binary", rho=0.3, expected_records=400, **SMALL)
    for first in range(0, 400, 100):
        model.partial_fit(X[first : first + 100], BINARY[first : first + 100])
    assert model.n_records_ == 400
    assert_sound(model)
    model.set_params(max_iter=5).replan()
    assert model.leaf_values_.shape == (1, 5, 4)
    assert_sound(model)


def test_interrupted_in_the_middle_of_a_fit_it_is_finished_later(monkeypatch):
    model = fitted("binary", rho=1.0)
    find = sampling.find_structure
    monkeypatch.setattr(sampling, "find_structure", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.unlearn(5)
    monkeypatch.setattr(sampling, "find_structure", find)
    assert model.n_records_ in (199, 200)
    model.unlearn(6)
    assert model.n_records_ == 198
    assert_sound(model)


# --- parameters -------------------------------------------------------------------------------------------


def test_the_share_is_the_share():
    model = fitted("binary", 3000, rho=0.2)
    assert model.n_sampled_ == pytest.approx(600, rel=0.15)
    assert np.allclose(model.replay_probability(model.ids_[:10]), 0.2)


def test_a_sample_that_says_nothing_is_warned_of():
    with pytest.warns(PlanWarning, match="nothing to split by"):
        model = fitted("binary", rho=1e-6)
    assert model.n_sampled_ == 0
    assert_sound(model)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rho": 0.0}, "rho"), ({"rho": 1.5}, "rho"), ({"max_iter": 0}, "max_iter"), ({"max_iter": 2.5}, "max_iter"),
        ({"max_leaf_nodes": 1}, "max_leaf_nodes"), ({"learning_rate": -1}, "learning_rate"),
        ({"min_samples_leaf": 0}, "min_samples_leaf"), ({"smoothing": 0}, "smoothing"),
        ({"learning_rate": 1e-320}, "learning_rate"), ({"min_samples_leaf": 2**70}, "min_samples_leaf"),
        ({"max_iter": 1000, "max_leaf_nodes": 31}, "max_iter=1000"), ({"expected_records": -5}, "expected_records"),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(given, named):
    with pytest.raises(BadPlan, match=named):
        boosting("binary", **given).fit(X[:50], BINARY[:50])


def test_habits_from_elsewhere_have_a_hint():
    with pytest.raises(UnknownParameter, match="max_iter"):
        GradientBoostingClassifier(n_estimators=100)
    with pytest.raises(UnknownParameter, match="smoothing"):
        GradientBoostingRegressor().set_params(l2_regularization=1.0)


def test_bad_records_change_nothing():
    model = fitted("binary")
    before = bits(model)
    with pytest.raises(BadRecords, match="not one of the model's classes"):
        model.insert(X[:1], ["maybe"])
    with pytest.raises((BadRecords, ValueError), match="NaN"):
        model.insert([[np.nan, 0, 0, 0]], ["no"])
    with pytest.raises(ValueError, match="features"):
        model.insert(X[:1, :2], ["no"])
    assert bits(model) == before


@pytest.mark.parametrize("rho", [1e-6, 1.0])
def test_targets_that_no_sum_of_squares_holds_are_refused_whoever_is_in_the_sample(rho):
    model = fitted("amounts", rho=rho)
    before = bits(model)
    for bad in ([1.7e308, 1.7e308], [1e101, 0.0]):
        with pytest.raises(BadRecords, match=r"y: .* Use other units"):
            model.insert(X[:2], bad)
    assert bits(model) == before
    model.insert(X[:2], [1e100, -1e100])
    assert_sound(model)
    model.unlearn(model.ids_[-2:])
    assert_sound(model)


@pytest.mark.parametrize("unit", [1e-250, 1e-170, 1e-5, 1e90])
def test_targets_in_any_unit(unit):
    model = fitted("amounts", rho=0.5)
    other = boosting("amounts", rho=0.5, random_state=0, **SMALL).fit(X[:200], unit * AMOUNTS[:200])
    assert np.allclose(other.predict(X) / unit, model.predict(X), rtol=1e-6)
    assert_sound(other)


@pytest.mark.parametrize("common", [0.0, 0.1, 0.5, 1e20])
def test_a_sample_with_one_target_does_not_hold_the_others_back(common):
    y = np.where(np.arange(1000) % 50 == 0, common + 5.0 * max(common, 1.0), common)
    model = GradientBoostingRegressor(rho=0.02, random_state=1, smoothing=1e-3).fit(X[:1000], y)
    sampled = model.plan_.structure.joins(None, model._records.keys_at(0), ())
    assert set(model._records.batch_at(0)[1][sampled].tolist()) == {common}
    assert np.allclose(model.predict(X[:5]), y.mean())


def test_parameters_of_numpy_are_as_good_as_those_of_python(tmp_path):
    numpys = {
        "rho": np.float32(0.5),
        "learning_rate": np.float32(0.1),
        "smoothing": np.float32(50),
        "max_iter": np.int64(3),
    }
    model = GradientBoostingRegressor(**numpys, min_samples_leaf=np.int32(2)).fit(X[:200], AMOUNTS[:200])
    model.save(tmp_path / "m")
    with expunge.open(tmp_path / "m") as stored:
        for one in range(6):
            model.unlearn(one)
            stored.unlearn(one)
        assert bits(stored)[:2] == bits(model)[:2]


def test_hundreds_of_classes_have_fewer_trees():
    y = np.arange(3000) % 500
    model = GradientBoostingClassifier(rho=0.1).fit(X, y)
    assert model.n_iter_ < 30
    assert_sound(model)


def test_what_predicts_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        fitted("binary").leaf_values_[...] = 0.0


def test_grid_search():
    search = GridSearchCV(boosting("binary", max_iter=10), {"rho": [0.3, 1.0]}, cv=2).fit(X[:1000], BINARY[:1000])
    assert search.best_score_ > 0.6
