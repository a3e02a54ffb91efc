"""The estimators keep scikit-learn's contract: its own checks, and what users do with any estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from expunge.estimators import HuberRegressor, LinearRegression, LinearSVC, LogisticRegression

RANGE = (-4.0, 4.0)
CHECKED = [
    LogisticRegression(),
    LogisticRegression(solver="frank_wolfe"),
    LogisticRegression(n_components=2),
    LogisticRegression(n_components="auto"),
    LogisticRegression(schedule="shuffled", mechanism="tree", coupling="sequential"),
    LogisticRegression(epochs=3, rho=0.9, selector="last"),
    LinearSVC(),
    LinearSVC(solver="frank_wolfe", domain="l1"),
    LinearRegression(target_range=RANGE),
    LinearRegression(target_range=RANGE, solver="frank_wolfe"),
    LinearRegression(target_range=RANGE, n_components="auto", fit_intercept=False),
    HuberRegressor(target_range=RANGE),
    HuberRegressor(target_range=RANGE, schedule="shuffled", alpha=0.1),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)
