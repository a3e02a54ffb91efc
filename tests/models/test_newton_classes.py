"""LogisticRegression(solver="newton") for several classes: scikit-learn's model, with exact deletion."""

import numpy as np
import pytest
import sklearn.linear_model
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from expunge import BadPlan, LinearSVC, LogisticRegression
from expunge.audit import audit
from expunge.audit.forecast import forecast

pytestmark = pytest.mark.filterwarnings("ignore:.*noise and step sizes no longer fit:expunge.SizeWarning")
NAMES = np.array(["ash", "birch", "cedar"])


def table(n=600, d=4, seed=0):
    """Return a table with columns of very different units, one of them far from 0, and three classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ np.random.default_rng(9).normal(size=(d, 3)) + np.array([0.5, 0.0, -1.0])
    y = NAMES[(scores + rng.gumbel(size=(n, 3))).argmax(axis=1)]
    return X * 10.0 ** np.arange(-3, d - 3) + np.append(np.zeros(d - 1), 1e4), y


X, Y = table()
PLAIN = np.random.default_rng(1).normal(size=(500, 3))
LABELS = NAMES[(PLAIN[:, :1] * [1.0, 0.0, -1.0] + np.random.default_rng(2).gumbel(size=(500, 3))).argmax(axis=1)]


def newton(**more):
    return LogisticRegression(solver="newton", **more)


def fitted(**more):
    return newton(**more).fit(X, Y, ids=np.arange(len(Y)))


def theirs(**more):
    return sklearn.linear_model.LogisticRegression(
        **{"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000, **more}
    )


# --- what is learned ----------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weight", [None, {"ash": 3.0, "cedar": 0.5}])
def test_without_noise_it_is_scikit_learns_own(intercept, weight):
    mine = newton(rho=1.0, standardize=False, fit_intercept=intercept, class_weight=weight, C=0.7).fit(PLAIN, LABELS)
    other = theirs(fit_intercept=intercept, class_weight=weight, C=0.7).fit(PLAIN, LABELS)
    assert np.allclose(mine.coef_, other.coef_, rtol=1e-6)
    assert np.allclose(mine.intercept_, other.intercept_ - np.mean(other.intercept_), rtol=1e-6, atol=1e-9)


def test_without_noise_it_is_scikit_learns_behind_a_scaler():
    pipe = make_pipeline(StandardScaler(), theirs(C=0.5)).fit(X, Y)
    mine = fitted(rho=1.0, C=0.5)
    assert np.allclose(mine.coef_ * pipe[0].scale_, pipe[1].coef_, rtol=1e-6)
    assert np.allclose(mine.predict_proba(X), pipe.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("rho", ["auto", 0.05])
def test_with_noise_it_is_nearly_as_good(rho):
    rows, labels = table(20_000)
    test, truth = table(5_000, seed=1)
    pipe = make_pipeline(StandardScaler(), theirs()).fit(rows, labels)
    model = newton(rho=rho, random_state=0).fit(rows, labels)
    assert model.score(test, truth) > pipe.score(test, truth) - 0.004


def test_ten_classes_that_can_be_told_apart_without_noise_and_with_much():
    rows, labels = load_digits(return_X_y=True)
    pipe = make_pipeline(StandardScaler(), theirs()).fit(rows[:900, :20], labels[:900])
    for rho in (1.0, 0.9):
        model = newton(rho=rho, random_state=0).fit(rows[:900, :20], labels[:900])
        assert model.score(rows[900:, :20], labels[900:]) > pipe.score(rows[900:, :20], labels[900:]) - 0.03


def test_far_too_little_rho_gives_least_squares_and_never_replays():
    with pytest.warns(expunge.PlanWarning, match="rho"):
        model = fitted(rho=1e-6)
    centred = X - X.mean(axis=0)
    codes = np.searchsorted(NAMES, Y)
    ones = np.column_stack([centred / centred.std(axis=0), np.ones(len(Y))])
    expected = (ones @ np.linalg.lstsq(ones, np.eye(3)[codes], rcond=None)[0]).argmax(axis=1)
    assert (model.predict(X) == NAMES[expected]).mean() > 0.98
    assert model.unlearn(np.arange(50)).kept


# --- requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_requests_of_all_kinds_leave_a_state_that_verifies(rho, tmp_path):
    model = newton(rho=rho).fit(X, Y, ids=np.arange(len(Y)), subjects=np.arange(len(Y)) // 2)
    model.save(tmp_path / "m.expunge")
    with expunge.open(tmp_path / "m.expunge") as stored, expunge.open(tmp_path / "m.expunge", read_only=True) as reader:
        assert np.array_equal(stored.coef_, model.coef_)
        assert stored.plan_ == model.plan_
        for one in (model, stored):
            one.unlearn([17, 42])
            one.unlearn(subjects=[3])
            one.insert(X[:2], Y[:2], ids=[1000, 1001], subjects=[500, 500])
            one.replace(X[3:4], Y[3:4], ids=[1000])
            one.partial_fit(X[5:6], Y[5:6], ids=[2000], subjects=[501])
            found = one.verify()
            assert found.ok, found.problems
            assert one.n_records_ == len(Y) - 1
            assert (one.replay_probability([1, 2]) <= 1.0).all()
        assert np.array_equal(stored.coef_, reader.coef_)
        stored.replan()
        assert stored.verify().ok
        assert stored.verify(tolerance=1e-9).ok


def test_deleting_with_no_noise_is_refitting():
    model = fitted(rho=1.0)
    model.unlearn(np.arange(100))
    fresh = newton(rho=1.0, expected_records=len(Y)).fit(X[100:], Y[100:])
    assert np.array_equal(model.coef_, fresh.coef_)


def test_sparse_rows_give_the_same_model():
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.5, 0.0, X)
    dense, thin = (newton(rho=1.0).fit(one, Y) for one in (rows, sparse.csr_array(rows)))
    assert np.array_equal(dense.coef_, thin.coef_)
    thin.unlearn([1])
    assert thin.verify().ok


def test_the_serving_copy_is_scikit_learns_and_gives_the_same_probabilities():
    model = fitted()
    serving = model.to_sklearn()
    assert type(serving) is sklearn.linear_model.LogisticRegression
    assert np.array_equal(serving.predict(X), model.predict(X))
    assert np.allclose(serving.predict_proba(X), model.predict_proba(X))
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.long
def test_an_audit_finds_no_problem(tmp_path):
    model = fitted(rho=0.2)
    model.unlearn([3])
    model.save(tmp_path / "m.expunge")
    found = audit(tmp_path / "m.expunge", ids=[3], rows=X[3:4], test=(X, Y), runs=100, seed=1)
    assert not [check for check in found.checks if check.result == "problem"]


def test_a_forecast_has_the_plan_of_several_classes():
    planned = forecast(newton(rho=0.01, classes=NAMES), records=100_000, features=6, seconds=0.2, progress=False)
    assert planned.plan.columns == 14
    assert planned.typical.replay_probability == 0.01


# --- edges --------------------------------------------------------------------------------------------


def test_deleting_every_record_leaves_zeros_and_new_ones_can_come():
    model = fitted(rho=0.3)
    with pytest.warns(UserWarning, match="every record"):
        model.unlearn(np.arange(len(Y)))
    assert np.isfinite(model.coef_).all()
    assert not model.coef_.any()
    assert model.verify().ok
    model.insert(X, Y, ids=np.arange(len(Y)))
    assert model.score(X, Y) > 0.5


@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_a_class_that_vanishes_leaves_a_finite_model_that_hardly_predicts_it(rho):
    model = fitted(rho=rho)
    rest = Y != "birch"
    model.unlearn(np.flatnonzero(~rest))
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert (model.predict(X[rest]) == "birch").mean() < 0.05
    assert model.verify().ok
    two = newton(rho=1.0).fit(X[rest], Y[rest])
    assert model.score(X[rest], Y[rest]) > two.score(X[rest], Y[rest]) - 0.05


@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_declared_classes_may_have_no_records_yet(rho):
    model = newton(rho=rho, classes=[*NAMES, "yew"]).fit(X, Y, ids=np.arange(len(Y)))
    assert model.coef_.shape == (4, X.shape[1])
    assert (model.predict(X) == "yew").mean() < 0.01
    model.insert(X[:1], ["yew"], ids=[7000])
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.verify().ok


@pytest.mark.parametrize("rho", [0.2, 1.0])
def test_separable_data_constant_and_equal_columns_give_finite_models(rho):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 2))
    rows = np.column_stack([rows, rows[:, 0], np.full(500, 7.0), np.zeros(500), 1e9 + rows[:, 1]])
    labels = np.digitize(rows[:, 0], [-0.5, 0.5])
    model = newton(rho=rho).fit(rows, labels)
    assert np.isfinite(model.coef_).all()
    assert model.score(rows, labels) > 0.9
    model.unlearn([0, 1])
    assert model.verify().ok


@pytest.mark.parametrize("unit", [1e-12, 1e6, 1e15])
def test_units_make_no_difference(unit):
    mine = newton(rho=1.0).fit(X * unit, Y)
    assert np.allclose(mine.coef_ * unit, fitted(rho=1.0).coef_, rtol=1e-4, atol=1e-9)


def test_three_records_and_one():
    model = newton().fit(X[:3], NAMES)
    model.unlearn([0, 1])
    assert np.isfinite(model.coef_).all()
    assert model.verify().ok


@pytest.mark.parametrize(
    ("model", "columns", "named"),
    [
        (newton(), 600, "600 features and 3 classes are too many"),
        (newton(class_weight={"oak": 2.0}), 4, "class_weight"),
        (newton(rho=1e-9), 4, "rho"),
        (LinearSVC(solver="newton"), 4, "second derivative"),
    ],
)
def test_what_does_not_fit_is_named_before_anything_is_learned(model, columns, named):
    with pytest.raises(BadPlan, match=named):
        model.fit(np.ones((3, columns)), NAMES)
    assert not hasattr(model, "n_records_")
