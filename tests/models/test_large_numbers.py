"""Newton's method and least squares where some numbers, or weights, are far larger than the others."""

import contextlib

import numpy as np
import pytest
import sklearn.linear_model
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import BadPlan, LinearRegression, LinearSVC, LogisticRegression, PlanWarning, PoissonRegressor

RNG = np.random.default_rng(0)
TAILS = {
    "one record far out": np.append(1e5, RNG.uniform(1.1, 1.9, 999)),
    "one record very far out": np.append(1e12, RNG.uniform(1.1, 1.9, 999)),
    "log-normal": np.exp(5.0 * RNG.normal(size=1000)),
}
NOISE = RNG.normal(size=1000)
PLAIN = RNG.normal(size=(1500, 3))
CODES = np.digitize(PLAIN[:, 0] + RNG.logistic(size=1500), [-1.0, 1.0])


@pytest.mark.parametrize("tail", TAILS)
def test_least_squares_counts_the_largest_number_fully(tail):
    X, y = TAILS[tail][:, None], 3.0 * TAILS[tail] + NOISE
    model, other = LinearRegression().fit(X, y, ids=np.arange(1000)), sklearn.linear_model.LinearRegression().fit(X, y)
    assert model.coef_ == pytest.approx(other.coef_, rel=1e-5)
    for one in ([5], [0], [1, 2]):
        model.unlearn(one)
        assert model.verify().ok
    other.fit(X[np.r_[3:5, 6:1000]], y[np.r_[3:5, 6:1000]])
    assert model.coef_ == pytest.approx(other.coef_, rel=1e-3 if "out" in tail else 1e-5)


def test_a_target_far_out_counts_fully():
    y = np.append(1e9, NOISE[1:])
    model, other = LinearRegression().fit(PLAIN[:1000], y), sklearn.linear_model.LinearRegression().fit(PLAIN[:1000], y)
    assert model.intercept_ == pytest.approx(other.intercept_, rel=1e-5)


def test_a_record_far_out_is_classified_as_scikit_learn_does():
    X = PLAIN[:600].copy()
    X[0] = [1e6, 0.0, 0.0]
    y = np.where(PLAIN[:600, 0] + 0.1 * NOISE[:600] > 0.0, "yes", "no")
    other = make_pipeline(StandardScaler(), sklearn.linear_model.LogisticRegression(tol=1e-10)).fit(X, y)
    assert np.allclose(LogisticRegression(rho=1).fit(X, y).predict_proba(X), other.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("weight", [1e-9, 1e4, 1e6, 1e12, 1e200])
@pytest.mark.parametrize("classes", [2, 3])
def test_weights_of_classes_may_be_in_any_unit(weight, classes):
    y = np.minimum(CODES, classes - 1)
    weights = dict.fromkeys(range(classes), weight)
    one = LogisticRegression(rho=1, C=1e5, class_weight=dict.fromkeys(range(classes), 1.0)).fit(PLAIN, y)
    other = LogisticRegression(rho=1, C=1e5 / weight, class_weight=weights).fit(PLAIN, y)
    assert np.allclose(one.predict_proba(PLAIN), other.predict_proba(PLAIN), atol=1e-5)


@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_weights_that_are_too_far_apart_are_refused(kind):
    with pytest.raises(BadPlan, match=r"class_weight: .*Use closer weights"):
        kind(class_weight={0: 1.0, 1: 1e9}).fit(PLAIN, CODES > 1)


@pytest.mark.parametrize(("apart", "times"), [(65_536.0, 1.0 + 1e-6), (1e6, 1.0 + 1e-4)])
def test_weights_that_are_far_apart_cost_little(apart, times):
    """Half of the records count next to nothing, and yet the objective is within a hair of its least."""
    y = CODES > 1
    weights = {0: 1.0, 1: apart}
    with pytest.warns(PlanWarning, match="class_weight") if apart > 65_536.0 else contextlib.nullcontext():
        model = LogisticRegression(rho=1, class_weight=weights).fit(PLAIN, y)
    pipeline = make_pipeline(StandardScaler(), sklearn.linear_model.LogisticRegression(tol=1e-12, class_weight=weights))
    pipeline.fit(PLAIN, y)

    def objective(fitted, coef):
        chosen = fitted.predict_log_proba(PLAIN)[np.arange(len(y)), y.astype(int)]
        return -np.where(y, apart, 1.0) @ chosen + 0.5 * coef @ coef

    own = objective(model, model.coef_[0] * PLAIN.std(axis=0))
    assert own <= times * objective(pipeline, pipeline[-1].coef_[0])


def test_the_logarithms_of_probabilities_are_finite():
    model = LogisticRegression().fit(PLAIN, CODES)
    far = np.array([[1e5, 0.0, 0.0]])
    assert np.isfinite(model.predict_log_proba(far)).all()
    assert np.isfinite(LogisticRegression().fit(PLAIN, CODES > 1).predict_log_proba(far)).all()


@pytest.mark.parametrize("count", [0, 2])
def test_counts_that_are_all_the_same_have_a_score(count):
    model = PoissonRegressor().fit(PLAIN, np.full(1500, count))
    assert model.score(PLAIN, np.full(1500, count)) in (0.0, 1.0)
