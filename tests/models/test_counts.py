"""PoissonRegressor where a step of Newton's method would go much too far: rare columns, long tails, large scores."""

import numpy as np
import pytest
import sklearn.linear_model
from sklearn.metrics import d2_tweedie_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import PoissonRegressor
from expunge.solvers.count_losses import LARGEST_SCORE


def houses(rng, records=4_000):
    """Return values in thousands, with columns in raw units and one that five records have."""
    plain = rng.normal(size=(records, 4)) * [1.0, 100.0, 1e4, 1e-3]
    near = (rng.random(records) < 0.3).astype(float)
    island = np.zeros(records)
    island[rng.choice(records, 5, replace=False)] = 1.0
    logs = 5.2 + 0.3 * plain[:, 0] - 0.002 * plain[:, 1] + 0.4 * near + 0.7 * island
    values = np.exp(logs + 0.45 * rng.normal(size=records)).clip(10.0, 500.0)
    return np.column_stack([plain, near, 1.0 - near, island]), values


def delays(rng, records=40_000):
    """Return minutes that grow as a long-tailed column does, not as its exponential."""
    late = np.exp(1.25 * rng.normal(size=records) + 2.2).clip(0.0, 1500.0) * (rng.random(records) < 0.5)
    return np.column_stack([late, rng.uniform(100.0, 2500.0, size=records)]), 85.0 + late.round()


def lost(table, rho, seed):
    """Return by how much D² is below that of scikit-learn, on the same records."""
    X, y = table(np.random.default_rng(seed))
    other = sklearn.linear_model.PoissonRegressor(alpha=1.0 / len(y), solver="newton-cholesky", tol=1e-8)
    expected = make_pipeline(StandardScaler(), other).fit(X, y).predict(X)
    found = PoissonRegressor(rho=rho, random_state=seed).fit(X, y).predict(X)
    return d2_tweedie_score(y, expected, power=1) - d2_tweedie_score(y, found, power=1)


@pytest.mark.parametrize("seed", range(5))
def test_a_column_of_five_records_costs_nothing_though_draws_of_it_are_far_off(seed):
    assert lost(houses, 0.01, seed) < 0.002


@pytest.mark.parametrize("seed", range(5))
def test_a_long_tail_is_reached_in_three_rounds(seed):
    assert lost(delays, 0.01, seed) < 0.01


@pytest.mark.filterwarnings("ignore:.*far below:expunge.PlanWarning")
@pytest.mark.parametrize("seed", range(5))
def test_far_below_auto_it_is_worse_but_no_garbage(seed):
    assert lost(houses, 0.001, seed) < 0.1


@pytest.mark.filterwarnings("ignore:.*far below:expunge.PlanWarning")
@pytest.mark.parametrize(("rho", "finish"), [(0.01, None), (1e-3, None), (1e-3, "auto"), (1e-4, "auto")])
def test_means_are_finite_and_above_0_at_every_rho(rho, finish):
    X, y = houses(np.random.default_rng(0))
    model = PoissonRegressor(rho=rho, finish=finish, random_state=0).fit(X, y)
    means = model.predict(X)
    assert np.isfinite(means).all()
    assert (means > 0.0).all()
    assert np.isfinite(model.score(X, y))


def test_a_row_far_outside_the_table_has_a_finite_mean_above_0():
    X, y = houses(np.random.default_rng(0))
    model = PoissonRegressor(random_state=0).fit(X, y)
    far = np.outer([1e9, -1e9], np.sign(model.coef_))
    assert model.predict(far).tolist() == [np.exp(LARGEST_SCORE), np.exp(-LARGEST_SCORE)]
    assert np.isfinite(model.score(far, [1.0, 2.0]))
