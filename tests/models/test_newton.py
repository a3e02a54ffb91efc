"""Estimators with solver='newton': scikit-learn's models on tables as they are, with exact deletion."""

import pickle
from typing import Any
from unittest import mock

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.svm
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from expunge import (
    BadPlan,
    BadRecords,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    MemoryRecords,
    PoissonRegressor,
)
from expunge.engine.transcript import ArrayRows
from expunge.solvers.newton import Newton

pytestmark = pytest.mark.filterwarnings("ignore:.*noise and step sizes no longer fit:expunge.SizeWarning")


def table(n=600, d=4, seed=0):
    """Return a table with columns of very different units, one of them far from 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ np.linspace(1.0, -1.0, d) + rng.logistic(size=n) > 0.3, "yes", "no")
    return X * 10.0 ** np.arange(-3, d - 3) + np.append(np.zeros(d - 1), 1e4), y


X, Y = table()


def newton(**more):
    return LogisticRegression(solver="newton", **more)


def fitted(**more):
    return newton(**more).fit(X, Y, ids=np.arange(len(Y)))


def close(mine, other):
    return np.allclose(mine.coef_, other.coef_, rtol=2e-6) and np.allclose(mine.intercept_, other.intercept_, rtol=2e-6)


# --- what is learned ----------------------------------------------------------------------------------


def test_a_fit_looks_once_for_the_part_that_its_rounds_see():
    with mock.patch.object(MemoryRecords, "keys_at", autospec=True, side_effect=MemoryRecords.keys_at) as asked:
        model = LogisticRegression(solver=expunge.solvers.Newton(rate=0.5), rho=0.2).fit(X, Y)
    assert asked.call_count == 1
    assert model.verify().ok  # which looks for it at every step


def test_one_number_too_large_among_many_is_refused():
    features = np.ones((70_000, 2))
    features[-1, 1] = -(2.0**64)
    with pytest.raises(BadRecords, match="X: it has"):
        newton().fit(features, np.arange(70_000) % 2)


def test_without_noise_it_is_scikit_learns_behind_a_scaler():
    pipe = make_pipeline(StandardScaler(), sklearn.linear_model.LogisticRegression(C=0.5, tol=1e-12, max_iter=10_000))
    expected = pipe.fit(X, Y).decision_function(X)
    scores = fitted(rho=1.0, C=0.5).decision_function(X)
    assert np.allclose(scores, expected, atol=1e-5)


def test_without_scaling_it_is_scikit_learns_own():
    rows = np.random.default_rng(1).normal(size=(400, 3))
    labels = rows[:, 0] + rows[:, 1] ** 2 > 0.5
    for intercept in (True, False):
        mine = newton(rho=1.0, standardize=False, fit_intercept=intercept).fit(rows, labels)
        other = sklearn.linear_model.LogisticRegression(tol=1e-12, max_iter=10_000, fit_intercept=intercept)
        assert close(mine, other.fit(rows, labels))


def test_weights_of_classes_count_as_in_scikit_learn():
    rows = np.random.default_rng(1).normal(size=(400, 3))
    labels = np.where(rows[:, 0] > 0.8, "rare", "usual")
    weight = {"rare": 3.0, "usual": 1.0}
    mine = newton(rho=1.0, standardize=False, class_weight=weight).fit(rows, labels)
    other = sklearn.linear_model.LogisticRegression(class_weight=weight, tol=1e-12, max_iter=10_000).fit(rows, labels)
    assert close(mine, other)


def test_the_support_vector_machine_is_scikit_learns():
    rows = np.random.default_rng(1).normal(size=(400, 3))
    labels = rows[:, 0] + 0.3 * np.random.default_rng(2).normal(size=400) > 0.1
    mine = LinearSVC(solver="newton", rho=1.0, standardize=False).fit(rows, labels)
    other = sklearn.svm.LinearSVC(dual=False, tol=1e-12, max_iter=100_000, intercept_scaling=1e4).fit(rows, labels)
    assert np.allclose(mine.coef_, 2.0 * 0.5 * other.coef_, rtol=1e-3)


@pytest.mark.parametrize("rho", ["auto", 0.05])
def test_with_noise_it_is_nearly_as_good(rho):
    rows, labels = table(20_000)
    test, truth = table(5_000, seed=1)
    pipe = make_pipeline(StandardScaler(), sklearn.linear_model.LogisticRegression()).fit(rows, labels)
    model = newton(rho=rho, random_state=0).fit(rows, labels)
    assert model.score(test, truth) > pipe.score(test, truth) - 0.004


def test_far_too_little_rho_gives_least_squares_and_never_replays():
    with pytest.warns(expunge.PlanWarning, match="rho"):
        model = fitted(rho=1e-6)
    assert model.plan_.rounds == 0
    assert model.score(X, Y) > 0.7
    assert model.unlearn(np.arange(50)).kept


# --- regressions --------------------------------------------------------------------------------------

COUNTS = np.random.default_rng(3).poisson(np.exp(1.0 + 0.5 * X[:, 0] * 1e3 - 0.3 * X[:, 1] * 1e2))
AMOUNTS = 1e6 + 3e6 * X[:, 0] - 2e3 * X[:, 1] + np.random.default_rng(4).normal(size=len(X))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_counts_without_noise_are_scikit_learns(intercept, scaled):
    rows = np.random.default_rng(1).normal(size=(400, 3)) + 0.2
    counts = np.random.default_rng(2).poisson(np.exp(rows[:, 0]))
    mine = PoissonRegressor(rho=1.0, standardize=scaled, fit_intercept=intercept, C=0.1).fit(rows, counts)
    other = sklearn.linear_model.PoissonRegressor(
        alpha=10.0 / 400, tol=1e-10, solver="newton-cholesky", fit_intercept=intercept
    )
    scaler = StandardScaler(with_mean=intercept) if scaled else "passthrough"
    expected = make_pipeline(scaler, other).fit(rows, counts)
    assert np.allclose(mine.predict(rows), expected.predict(rows), rtol=2e-6)
    assert mine.score(rows, counts) == pytest.approx(expected.score(rows, counts))


@pytest.mark.parametrize("rho", ["auto", 0.02])
def test_counts_with_noise_are_nearly_as_good(rho):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(20_000, 3)) * [1.0, 1e4, 1e-4]
    counts = rng.poisson(np.exp(0.5 + 0.5 * rows[:, 0] + 0.3e-4 * rows[:, 1]))
    model = PoissonRegressor(rho=rho, random_state=0).fit(rows, counts)
    expected = make_pipeline(StandardScaler(), sklearn.linear_model.PoissonRegressor(alpha=1 / 20_000))
    assert model.score(rows, counts) > expected.fit(rows, counts).score(rows, counts) - 0.002


def test_large_and_rare_counts_have_their_own_means():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(2_000, 2))
    for mean in (0.02, 1e7):
        counts = rng.poisson(mean * np.exp(0.3 * rows[:, 0]))
        for rho in (1.0, 0.2):
            model = PoissonRegressor(rho=rho, random_state=0).fit(rows, counts)
            assert model.predict(rows).mean() == pytest.approx(counts.mean(), rel=0.02)


def test_least_squares_is_scikit_learns_and_never_replays():
    model = LinearRegression(solver="newton").fit(X, AMOUNTS)
    expected = sklearn.linear_model.LinearRegression().fit(X, AMOUNTS)
    assert np.allclose(model.predict(X), expected.predict(X), rtol=1e-9)
    assert model.unlearn(np.arange(50)).kept
    expected.fit(X[50:], AMOUNTS[50:])
    assert np.allclose(model.predict(X), expected.predict(X), rtol=1e-9)
    fresh = LinearRegression(solver="newton", expected_records=len(X)).fit(X[50:], AMOUNTS[50:])
    assert np.array_equal(model.coef_, fresh.coef_)
    assert model.verify().ok


@pytest.mark.parametrize(("make", "y"), [(PoissonRegressor, COUNTS), (LinearRegression, AMOUNTS)])
def test_a_regression_serves_requests_of_all_kinds_in_memory_and_in_a_file(make, y, tmp_path):
    model = make(**({} if make is PoissonRegressor else {"solver": "newton"}))
    model.fit(X, y, ids=np.arange(len(y)), subjects=np.arange(len(y)) // 2)
    model.save(tmp_path / "m.expunge")
    with expunge.open(tmp_path / "m.expunge") as stored:
        for one in (model, stored):
            one.unlearn([17, 42])
            one.unlearn(subjects=[3])
            one.insert(X[:2], y[:2], ids=[1000, 1001], subjects=[500, 500])
            one.replace(X[3:4], y[3:4], ids=[1000])
            assert one.verify().ok
            assert one.n_records_ == len(y) - 2
            assert np.allclose(one.to_sklearn().predict(X), one.predict(X))
        stored.replan()
        assert stored.verify().ok


@pytest.mark.parametrize(("make", "y"), [(PoissonRegressor, COUNTS), (LinearRegression, AMOUNTS)])
def test_a_regression_on_one_record_and_on_none(make, y):
    model = make(**({} if make is PoissonRegressor else {"solver": "newton"})).fit(X[:2], y[:2])
    with pytest.warns(UserWarning, match="every record"):
        model.unlearn([0, 1])
    assert np.isfinite(model.predict(X)).all()
    model.insert(X[:1], y[:1], ids=[7])
    assert np.isfinite(model.predict(X)).all()
    assert model.verify().ok


@pytest.mark.parametrize(
    ("model", "y", "named"),
    [
        (PoissonRegressor(), -COUNTS, "y: it has -"),
        (PoissonRegressor(), COUNTS + 2.0**31, "y: it has 2"),
        (PoissonRegressor(rho=2.0), COUNTS, "rho"),
        (PoissonRegressor(C=0.0), COUNTS, "C=0"),
        (LinearRegression(solver="newton", rho=0.1), AMOUNTS, "rho"),
        (LinearRegression(solver="newton", C=2.0), AMOUNTS, "C=2.0: least squares has no penalty"),
    ],
)
def test_a_bad_regression_is_named_before_anything_is_learned(model, y, named):
    with pytest.raises((BadPlan, BadRecords), match=named):
        model.fit(X, y)
    assert not hasattr(model, "n_records_")


# --- requests -----------------------------------------------------------------------------------------


def test_requests_of_all_kinds_leave_a_state_that_verifies():
    model = fitted(rho=0.3)
    model.unlearn([17, 42])
    model.insert(X[:2], Y[:2], ids=[1000, 1001])
    model.replace(X[3:4], Y[3:4], ids=[1000])
    model.partial_fit(X[5:6], Y[5:6], ids=[2000])
    found = model.verify()
    assert found.ok, found.problems
    assert model.n_records_ == len(Y) + 1
    assert (model.replay_probability([1, 2]) <= 1.0).all()


def test_the_model_changes_with_every_deletion_and_is_solved_once_when_it_is_read():
    model = fitted(rho=0.05)
    before = model.coef_.copy()
    solve, calls = Newton.model, []

    def counted(self, path, sums):
        calls.append(1)
        return solve(self, path, sums)

    with mock.patch.object(Newton, "model", counted):
        for one in range(20):
            model.unlearn([one])
        assert not calls
        first, second = model.coef_, model.predict(X)
        assert len(calls) == 1
    assert not np.array_equal(first, before)
    assert len(second) == len(X)


def test_deleting_with_no_noise_is_refitting():
    model = fitted(rho=1.0)
    model.unlearn(np.arange(100))
    fresh = newton(rho=1.0, expected_records=len(Y)).fit(X[100:], Y[100:])
    assert np.array_equal(model.coef_, fresh.coef_)


def test_subjects_leave_with_all_their_records():
    model = newton(rho=0.3).fit(X, Y, subjects=np.arange(len(Y)) // 3)
    model.unlearn(subjects=[4, 7])
    assert model.n_records_ == len(Y) - 6
    assert model.verify().ok


def test_sparse_rows_give_the_same_model():
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.5, 0.0, X)
    dense, thin = (newton(rho=1.0).fit(one, Y) for one in (rows, sparse.csr_array(rows)))
    assert np.array_equal(dense.coef_, thin.coef_)
    thin.unlearn([1])
    assert thin.verify().ok


def test_it_can_be_pickled_and_cloned():
    model = fitted(rho=0.3)
    model.unlearn([3])
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.coef_, model.coef_)
    assert clone(model).get_params() == model.get_params()
    assert again.unlearn([4]).removed == 1


def test_the_serving_copy_is_scikit_learns():
    model = fitted()
    serving = model.to_sklearn()
    assert type(serving) is sklearn.linear_model.LogisticRegression
    assert np.array_equal(serving.predict(X), model.predict(X))
    assert np.allclose(serving.predict_proba(X), model.predict_proba(X))


# --- files --------------------------------------------------------------------------------------------


def test_a_file_serves_requests_and_does_not_hold_the_model(tmp_path):
    model = fitted(rho=0.3)
    model.save(tmp_path / "m.expunge")
    with expunge.open(tmp_path / "m.expunge") as stored, expunge.open(tmp_path / "m.expunge", read_only=True) as reader:
        assert np.array_equal(stored.coef_, model.coef_)
        stored.unlearn([5, 6])
        stored.insert(X[:1], Y[:1], ids=[5000])
        assert np.array_equal(stored.coef_, reader.coef_)
        found = stored.verify()
        assert found.ok, found.problems
        parameters = stored.coef_.tobytes()
        stored.replan()
        assert stored.verify().ok
        assert len(stored.export_receipts()["receipts"]) == 2
    assert parameters not in (tmp_path / "m.expunge").read_bytes()


def test_another_solver_needs_a_new_fit():
    model = fitted()
    model.set_params(solver="dual_averaging")
    with pytest.raises(BadPlan, match="solver"):
        model.replan()


# --- edges --------------------------------------------------------------------------------------------


def test_deleting_every_record_leaves_zeros_and_new_ones_can_come():
    model = fitted(rho=0.3)
    with pytest.warns(UserWarning, match="every record"):
        model.unlearn(np.arange(len(Y)))
    assert not model.coef_.any()
    assert model.verify().ok
    model.insert(X, Y, ids=np.arange(len(Y)))
    assert model.score(X, Y) > 0.6


@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_a_class_that_vanishes_leaves_a_finite_model(rho):
    model = fitted(rho=rho)
    model.unlearn(np.flatnonzero(Y == "yes"))
    assert np.isfinite(model.coef_).all()
    assert (model.predict(X) == "no").mean() > 0.9


@pytest.mark.parametrize("rho", [0.2, 1.0])
def test_separable_data_constant_and_equal_columns_give_finite_models(rho):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 2))
    rows = np.column_stack([rows, rows[:, 0], np.full(500, 7.0), np.zeros(500), 1e9 + rows[:, 1]])
    labels = rows[:, 0] > 0.0
    model = newton(rho=rho).fit(rows, labels)
    assert np.isfinite(model.coef_).all()
    assert model.score(rows, labels) > 0.9
    model.unlearn([0, 1])
    assert model.verify().ok


@pytest.mark.parametrize("unit", [1e-12, 1e6, 1e15])
def test_units_make_no_difference(unit):
    mine = newton(rho=1.0).fit(X * unit, Y)
    assert np.allclose(mine.coef_ * unit, fitted(rho=1.0).coef_, rtol=1e-4)


def test_two_records_and_one():
    model = newton().fit(X[:2], ["no", "yes"])
    model.unlearn([0])
    assert np.isfinite(model.coef_).all()
    assert model.verify().ok


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rho": 0.0}, "rho"), ({"rho": 2.0}, "rho"), ({"rho": 1e-9}, "rho"), ({"C": 0.0}, "C"), ({"C": -1.0}, "C"),
        ({"standardize": "yes"}, "standardize"), ({"class_weight": {"no": 0.0}}, "weight"),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(given, named):
    with pytest.raises(BadPlan, match=named):
        fitted(**given)


def test_parameters_of_newton_need_it():
    with pytest.raises(BadPlan, match=r"^C=2.0: it goes with Newton"):
        LogisticRegression(C=2.0, solver="dual_averaging").fit(X, Y)


def test_numbers_that_no_unit_fits_are_refused():
    rows = X.copy()
    rows[3, 1] = 1e300
    with pytest.raises(BadRecords, match="1e\\+300"):
        newton().fit(rows, Y)
    model = fitted()
    before = model.coef_.copy()
    with pytest.raises(BadRecords, match="1e\\+300"):
        model.insert(rows[3:4], Y[3:4], ids=[9999])
    assert np.array_equal(model.coef_, before)


def test_an_ingested_file_does_not_keep_the_model_of_all_records(tmp_path):
    ids = np.arange(len(Y))
    model = expunge.ingest(newton(rho=0.3, classes=["no", "yes"]), (X, Y, ids), tmp_path / "m.expunge")
    before = model.coef_.copy()
    model.unlearn([7])
    assert model.verify().ok
    model.close()
    content = (tmp_path / "m.expunge").read_bytes()
    assert all(number.tobytes() not in content for number in before.ravel())


def test_a_plan_without_rounds_can_be_saved_and_opened(tmp_path):
    with pytest.warns(expunge.PlanWarning, match="rho"):
        fitted(rho=1e-6).save(tmp_path / "m.expunge")
    with expunge.open(tmp_path / "m.expunge") as model:
        assert model.unlearn([3]).kept
        assert model.verify().ok


def test_a_commit_that_fails_half_way_is_finished_before_the_model_is_read():
    model = fitted(rho=1.0)
    model.unlearn([1])  # so that it has still to be solved for
    expected = newton(rho=1.0, expected_records=len(Y)).fit(X[2:], Y[2:]).coef_
    write, failures = ArrayRows.write, [1]

    def failing(self, start, block):
        if failures and self is model._owner.transcript.iterates:
            failures.pop()
            raise MemoryError
        write(self, start, block)

    with mock.patch.object(ArrayRows, "write", failing), pytest.raises(MemoryError):
        model.unlearn([0])
    assert np.array_equal(model.coef_, expected)


def test_a_model_read_during_a_fit_is_not_kept_for_the_new_one():
    model = fitted(rho=1.0)
    model.unlearn([1])  # so that it has still to be solved for
    solve, refit = Newton.model, [1]

    def meanwhile(self, path, sums):
        found = solve(self, path, sums)
        if refit:
            refit.pop()
            model.fit(X[:300], Y[:300], ids=np.arange(300))
        return found

    with mock.patch.object(Newton, "model", meanwhile):
        assert np.array_equal(model.coef_, newton(rho=1.0).fit(X[:300], Y[:300]).coef_)


def test_with_a_tolerance_another_machine_may_round_differently():
    model = fitted(rho=1.0)
    transcript = model._owner.transcript
    sums = transcript.sums[:].copy()
    sums[4, 0] = (sums[4, 0] + 1.0) % 2.0**33
    transcript.sums.write(0, sums)
    assert not model.verify().ok
    assert model.verify(tolerance=1e-9).ok


def test_an_emptied_model_remembers_no_draw():
    model = fitted(rho=0.3)
    with pytest.warns(UserWarning, match="every record has been deleted"):
        model.unlearn(np.arange(len(Y)))
    assert "_viewed" not in vars(model.plan_.learner.query)


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_without_noise_a_support_vector_machine_finds_the_optimum_though_records_change_sides(C: float) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = LinearSVC(C=C, rho=1).fit(X, y, ids=np.arange(len(y)))
    scaled, signs = StandardScaler().fit_transform(X), 2.0 * y - 1.0

    def objective(parameters: Any) -> tuple[float, Any]:
        weights, missing = parameters[:-1], np.maximum(1.0 - signs * (scaled @ parameters[:-1] + parameters[-1]), 0.0)
        slopes = -2.0 * C * signs * missing
        return C * missing @ missing + 0.5 * weights @ weights, np.append(scaled.T @ slopes + weights, slopes.sum())

    weights = model.coef_[0] * X.std(axis=0)
    mine = np.append(weights, model.intercept_[0] + model.coef_[0] @ X.mean(axis=0))
    best = minimize(objective, mine, jac=True, method="L-BFGS-B", options={"maxiter": 20_000, "ftol": 1e-15})
    assert objective(mine)[0] <= best.fun * (1.0 + 1e-8)
    model.unlearn([17, 42])
    assert model.verify().ok
