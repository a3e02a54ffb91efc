"""The estimators keep scikit-learn's contract: its own checks, and what users do with any estimator."""

import pickle

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases.in_solver import in_solver
from expunge.models import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HuberRegressor,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    Sampled,
)
from expunge.models.preprocessing import BoundedScaler
from expunge.solvers import DualAveraging, FrankWolfe, GradientDescent, KeyedSample, Lloyd

RANGE = (-4.0, 4.0)
CHECKED = [
    LogisticRegression(),
    LogisticRegression(finish=None, rho=1.0),
    LinearSVC(),
    LinearRegression(),
    HuberRegressor(),
    LogisticRegression(solver="dual_averaging"),
    LogisticRegression(solver="frank_wolfe"),
    LogisticRegression(solver=DualAveraging(n_components="auto")),
    LogisticRegression(
        solver=DualAveraging(schedule="shuffled", mechanism="tree", coupling="sequential", feature_norm=20.0)
    ),
    LogisticRegression(solver=DualAveraging(epochs=5, selector="last")),
    LogisticRegression(solver="gradient_descent"),
    LinearSVC(solver="dual_averaging"),
    LinearSVC(solver=FrankWolfe(domain="l1", epochs=10)),
    LinearRegression(solver=DualAveraging(target_range=RANGE, feature_norm=4.0)),
    LinearRegression(solver=FrankWolfe(target_range=RANGE, feature_norm=4.0, epochs=5, radius=0.5)),
    LinearRegression(solver=DualAveraging(target_range=RANGE, feature_norm=4.0, n_components="auto")),
    HuberRegressor(solver=DualAveraging(target_range=RANGE, feature_norm=4.0)),
    HuberRegressor(solver=DualAveraging(target_range=RANGE, feature_norm=4.0, schedule="shuffled", alpha=0.001)),
    KMeans(),
    KMeans(solver=KeyedSample(bound=2.0**20, seeds=32)),
    KMeans(solver=Lloyd(radius=300.0)),
    KMeans(3, solver=Lloyd(low=-150, high=150, coupling="sequential")),
    HuberRegressor(solver=GradientDescent(target_range=RANGE, feature_norm=4.0, rate=0.5)),
    PoissonRegressor(),
    PoissonRegressor(rho=1.0, standardize=False),
    GradientBoostingClassifier(max_iter=20),
    GradientBoostingClassifier(max_iter=20, rho=0.5, min_samples_leaf=5),
    GradientBoostingRegressor(max_iter=20),
    Ridge(),
    Ridge(alpha=0.1, fit_intercept=False, feature_bound=2.0**30),
    Sampled(StandardScaler()),
    Sampled(KBinsDiscretizer(3), head="ridge", rho=0.9),
    Sampled(StandardScaler(), head="ridge_classifier", rho=0.9),
]


@pytest.mark.filterwarnings("ignore:class_weight")  # scikit-learn's check has weights ten million times apart
@pytest.mark.filterwarnings("ignore:.*nothing to split by")  # and tables of ten rows
@pytest.mark.filterwarnings("ignore:X. most rows:expunge.ClippedWarning")  # of three classes, for LinearSVC
@pytest.mark.filterwarnings("ignore:.*say nothing of the classes")
@parametrize_with_checks(CHECKED)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


# --- small tables, and one model of each kind -----------------------------------------------------------


def rows(count=90, features=5, seed=0):
    """Rows of norm at most 1."""
    X = np.random.default_rng(seed).normal(size=(count, features))
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]


def classes(X, number=2):
    return (X @ np.arange(1, 1 + X.shape[1]) > 0).astype(int) if number == 2 else X[:, :number].argmax(axis=1)


def values(X):
    return 2.0 + X @ np.arange(X.shape[1])


MODELS = {
    "logistic": (LogisticRegression, {}, classes),
    "multinomial": (LogisticRegression, {}, lambda X: classes(X, 3)),
    "svc": (LinearSVC, {}, classes),
    "three-class svc": (LinearSVC, {}, lambda X: classes(X, 3)),
    "least squares": (LinearRegression, {"target_range": (-5, 9)}, values),
    "huber": (HuberRegressor, {"target_range": (-5, 9)}, values),
    "frank-wolfe": (LogisticRegression, {"solver": "frank_wolfe"}, lambda X: classes(X, 3)),
    "projected": (LogisticRegression, {"n_components": 4}, lambda X: classes(X, 3)),
    "projected regression": (HuberRegressor, {"target_range": (-5, 9), "n_components": 3}, values),
    "without intercept": (LinearSVC, {"fit_intercept": False}, classes),
}
each_model = pytest.mark.parametrize("kind", MODELS)


def make(kind, **more):
    estimator, given, target = MODELS[kind]
    return estimator(**in_solver(**{"random_state": 3, "rho": 0.5, **given, **more})), target


def fitted(kind, X=None, **more):
    X = rows() if X is None else X
    model, target = make(kind, **more)
    return model.fit(X, target(X))


def outputs(model, X):
    """What the model says about rows, by all its methods."""
    names = ("predict", "decision_function", "predict_proba", "predict_log_proba")
    return {name: getattr(model, name)(X) for name in names if hasattr(model, name)}


# --- parameters, copies ---------------------------------------------------------------------------------


@each_model
def test_a_clone_has_the_parameters_and_nothing_of_the_fit(kind):
    model = fitted(kind)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.solver is not model.solver
    assert set(vars(copy)) == set(model.get_params(deep=False))


@each_model
def test_parameters_that_are_set_come_back_the_same(kind):
    model, _ = make(kind)
    for name in model.solver.get_params():
        model.set_params(**{f"solver__{name}": "anything"})
        assert model.get_params()[f"solver__{name}"] == getattr(model.solver, name) == "anything"
    for name in model.get_params(deep=False):
        assert getattr(model.set_params(**{name: "anything"}), name) == "anything"


@each_model
def test_a_pickled_model_goes_on_where_it_was(kind):
    model, X = fitted(kind), rows()
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, copy):
        one.unlearn([4, 7])
    assert copy.verify().ok
    assert np.array_equal(copy.coef_, model.coef_)
    assert np.array_equal(copy.predict(X), model.predict(X))
    assert copy.n_records_ == 88


# --- kinds of input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [lambda X: X.tolist(), np.asfortranarray, lambda X: np.repeat(X, 2, axis=0)[::2]],
    ids=["lists", "by columns", "every other row"],
)  # fmt: skip
@each_model
def test_the_layout_of_the_table_makes_no_difference(kind, given):
    X = rows()
    model = fitted(kind, X)
    (other, target) = make(kind)
    other.fit(given(X), target(X))
    assert np.array_equal(other.coef_, model.coef_)
    np.testing.assert_allclose(other.predict(given(X)), model.predict(X), rtol=1e-12)


@each_model
def test_the_table_is_neither_changed_nor_held_on_to(kind):
    model, target = make(kind)
    X, new = 3.0 * rows(), 3.0 * rows(4, seed=1)
    before = X.copy(), new.copy()
    model.fit(X, target(X)).insert(new, target(X)[:4])
    assert np.array_equal(X, before[0])
    assert np.array_equal(new, before[1])
    X[:], new[:] = 0.0, 0.0
    assert model.verify().ok


@each_model
def test_single_precision_and_integers_are_read_as_the_numbers_they_are(kind):
    whole = np.random.default_rng(1).integers(-3, 4, size=(80, 5))
    models = [fitted(kind, whole.astype(dtype), feature_norm=4.0) for dtype in (np.int8, np.int64, np.float32, float)]
    for model in models[:-1]:
        assert np.array_equal(model.coef_, models[-1].coef_)
        assert model.coef_.dtype == np.float64
        assert model.verify().ok


@each_model
def test_sparse_rows_give_the_model_of_the_dense_ones(kind):
    X = rows()
    X[np.random.default_rng(2).random(X.shape) < 0.6] = 0.0
    dense = fitted(kind, X)
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        model, target = make(kind)
        model.fit(form(X), target(X))
        np.testing.assert_allclose(model.coef_, dense.coef_, rtol=1e-9, atol=1e-12)
        for name, told in outputs(model, form(X)).items():
            np.testing.assert_allclose(told, getattr(dense, name)(X), rtol=1e-9, atol=1e-9, err_msg=name)
        assert model.verify().ok


def test_a_frames_columns_are_known_by_name():
    pandas = pytest.importorskip("pandas")
    X = rows()
    frame = pandas.DataFrame(X, columns=[*"abcde"])
    model = LogisticRegression(random_state=0, solver="dual_averaging").fit(
        frame, pandas.Series(classes(X)), ids=frame.index
    )
    assert model.feature_names_in_.tolist() == [*"abcde"]
    assert np.array_equal(
        model.coef_, LogisticRegression(random_state=0, solver="dual_averaging").fit(X, classes(X)).coef_
    )
    model.unlearn(frame.index[:3])
    model.insert(frame[:3], classes(X)[:3], ids=frame.index[:3])
    with pytest.raises(ValueError, match="feature names"):
        model.insert(frame[[*"bacde"]], classes(X), ids=frame.index)
    assert np.array_equal(model.to_sklearn().predict(frame), model.predict(frame))


def test_frames_of_polars_are_frames_too():
    polars = pytest.importorskip("polars")
    X = rows()
    frame = polars.DataFrame(X, schema=[*"abcde"])
    model = LogisticRegression(random_state=0, solver="dual_averaging").fit(
        frame, polars.Series(classes(X)), ids=np.arange(len(X))
    )
    assert model.feature_names_in_.tolist() == [*"abcde"]
    assert np.array_equal(
        model.coef_, LogisticRegression(random_state=0, solver="dual_averaging").fit(X, classes(X)).coef_
    )
    model.insert(frame[:3], classes(X)[:3], ids=[1001, 1002, 1003])
    assert np.array_equal(model.to_sklearn().predict(frame), model.predict(frame))
    assert model.verify().ok


def test_classes_may_be_strings_booleans_or_any_numbers():
    X = rows()
    codes = classes(X, 3)
    plain = LogisticRegression(random_state=0, rho=0.5, solver="dual_averaging").fit(X, codes)
    for names in (np.array(["a", "bb", "c"]), np.array(["a", "bb", "c"], dtype=object), np.array([-5, 0, 17])):
        model = LogisticRegression(random_state=0, rho=0.5, solver="dual_averaging").fit(X, names[codes])
        assert np.array_equal(model.classes_, names)
        assert np.array_equal(model.coef_, plain.coef_)
        assert np.array_equal(model.predict(X), names[plain.predict(X)])
        model.replace(X[:1], names[:1], ids=3)
        assert model.verify().ok
    yes = LinearSVC(random_state=0, solver="dual_averaging").fit(X, codes == 1)
    assert yes.predict(X).dtype == bool


# --- what the coefficients mean ---------------------------------------------------------------------------


@each_model
def test_coefficients_have_the_shapes_of_scikit_learns(kind):
    X = rows()
    model, target = make(kind)
    model.fit(X, target(X))
    theirs = model._plain().set_params(fit_intercept=model.fit_intercept).fit(X, target(X))
    assert model.coef_.shape == theirs.coef_.shape
    assert np.shape(model.intercept_) in (np.shape(theirs.intercept_), (1,))
    assert model.n_features_in_ == 5


@each_model
def test_scores_are_the_rows_times_the_coefficients_plus_the_intercept(kind):
    model, X = fitted(kind), rows(40, seed=5)
    scores = model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)
    expected = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(scores, expected.reshape(scores.shape), rtol=1e-12, atol=1e-12)


@each_model
def test_a_longer_row_counts_as_one_of_the_declared_norm(kind):
    model = fitted(kind, feature_norm=0.5)
    X = rows(40, seed=5)
    X /= np.linalg.norm(X, axis=1)[:, None]
    for name, told in outputs(model, X).items():
        np.testing.assert_allclose(told, getattr(model, name)(0.5 * X), rtol=1e-12, atol=1e-12, err_msg=name)


@each_model
def test_the_plain_model_says_the_same_about_every_row_however_long(kind):
    model = fitted(kind, feature_norm=0.7)
    X = rows(40, seed=5) * np.geomspace(0.01, 100.0, 40)[:, None]
    plain = model.to_sklearn()
    assert not any("expunge.engine.records.memory" in type(part).__module__ for part in vars(plain[-1]).values())
    for name, told in outputs(model, X).items():
        np.testing.assert_allclose(getattr(plain, name)(X), told, rtol=1e-9, atol=1e-12, err_msg=name)
    copy = pickle.loads(pickle.dumps(plain))
    assert np.array_equal(copy.predict(X), plain.predict(X))


@each_model
def test_the_plain_model_does_not_change_with_the_one_that_forgets(kind):
    model, X = fitted(kind, rho=1.0), rows()
    plain = model.to_sklearn()
    before = plain[-1].coef_.copy()
    model.unlearn(np.arange(50))
    assert not np.array_equal(model.coef_, before)
    assert np.array_equal(plain[-1].coef_, before)
    assert plain.predict(X).shape == (90,)


# --- with the rest of scikit-learn ------------------------------------------------------------------------


def test_ids_and_subjects_reach_the_model_through_a_pipeline():
    X = rows()
    ids, subjects = [f"r{j}" for j in range(90)], np.arange(90) // 2
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression(random_state=0, solver=DualAveraging(records_per_subject=2)).set_fit_request(
            ids=True, subjects=True
        )
        whole = make_pipeline(BoundedScaler(-1, 1), model).fit(X, classes(X), ids=ids, subjects=subjects)
    last = whole[-1]
    assert last.unlearn("r17").removed == 1
    assert last.unlearn(subjects=[3, 4]).removed == 4
    assert last.n_records_ == 85
    assert last.verify().ok
    assert whole.score(X, classes(X)) > 0.8


def test_a_grid_search_and_cross_validation_run():
    X = rows(200)
    found = GridSearchCV(
        LogisticRegression(random_state=0, solver="dual_averaging"),
        {"solver__radius": [1.0, 40.0], "solver__epochs": [1, 3]},
        cv=3,
    )
    assert found.fit(X, classes(X)).best_score_ > 0.8
    assert found.best_estimator_.unlearn(0).removed == 1
    assert cross_val_score(LinearSVC(random_state=0, solver="dual_averaging"), X, classes(X, 3), cv=3).mean() > 0.7
    scores = cross_val_score(
        LinearRegression(solver=DualAveraging(target_range=(-9, 13), epochs=3), random_state=0), X, values(X), cv=3
    )
    assert scores.mean() > 0.8
