"""The formulas of docs/newton-theory.md, each against numbers: by simulation, or from the plan and its laws."""

import math

import numpy as np
import pytest
from scipy.special import expit, ndtr, ndtri

from benchmarks.speed.size import predicted
from expunge import LogisticRegression
from expunge.engine.couplings.likelihood import kept_share
from expunge.engine.laws import COARSE, Gaussian
from expunge.solvers.losses import Logistic
from expunge.solvers.plans.newton import automatic_share, make_newton_plan

N, D = 4_000, 8


@pytest.fixture(scope="module")
def problem():
    """Rows, labels (0 or 1), the optimum, the curvature there of each record, and of all together."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(N, D - 1)), np.ones(N)])
    y = (rng.logistic(size=N) < X @ np.linspace(-1.0, 1.0, D)).astype(float)
    w = np.zeros(D)
    for _ in range(20):
        w = newton_step(X, y, w)
    h = expit(X @ w) * expit(-X @ w)
    return X, y, w, h, (X * h[:, None]).T @ X


def newton_step(X, y, w):
    p = expit(X @ w)
    return w + np.linalg.solve((X * (p * (1.0 - p))[:, None]).T @ X, X.T @ (y - p))


def mean_loss(X, y, w):
    return np.mean(np.logaddexp(0.0, X @ w) - y * (X @ w))


def kept(one, other, draws=400_000):
    """Return how likely a draw is to be kept: the mean, over draws, of `kept_share`."""
    drawn = one.draw(np.random.default_rng(1), draws)
    chances = np.exp(np.minimum(0.0, other.log_density(drawn) - one.log_density(drawn)))
    assert chances[0] == pytest.approx(kept_share(one, other, drawn[0]))
    return chances.mean()


def test_leverages_add_up_to_the_number_of_parameters(problem):
    X, _, _, h, H = problem
    assert (h * np.einsum("ij,ij->i", X, np.linalg.solve(H, X.T).T)).sum() == pytest.approx(D)


def test_one_record_moves_the_solution_by_its_residual_and_leverage(problem):
    X, y, w, h, H = problem
    residual = (y - expit(X @ w)) / np.sqrt(h)
    leverage = h * np.einsum("ij,ij->i", X, np.linalg.solve(H, X.T).T)
    for z in range(5):
        x = X[z] * math.sqrt(h[z])
        without = H - np.outer(x, x)
        moved = np.linalg.solve(without, x * residual[z])  # of the weighted least squares at the optimum
        length = math.sqrt(moved @ H @ moved)
        assert length == pytest.approx(math.sqrt(leverage[z]) * abs(residual[z]) / (1.0 - leverage[z]))


def test_a_draw_is_replaced_as_often_as_two_normal_laws_differ():
    factor = np.eye(2)
    for distance in (0.1, 1.0):
        one, other = (Gaussian(np.array([mean, 0.0]), factor, 1.0) for mean in (0.0, distance))
        exact = 2.0 * ndtr(distance / 2.0) - 1.0
        assert 1.0 - kept(one, other) == pytest.approx(exact, rel=0.03)
    assert 2.0 * ndtr(0.05) - 1.0 == pytest.approx(0.1 / math.sqrt(2.0 * math.pi), rel=1e-3)


def test_a_curvature_that_loses_a_leverage_moves_the_law_by_a_quarter_of_it():
    leverage = 0.01
    one, other = (Gaussian(np.zeros(1), np.array([[root]]), 1.0) for root in (1.0, math.sqrt(1.0 - leverage)))
    assert 1.0 - kept(one, other) == pytest.approx(0.242 * leverage, rel=0.03)


def test_the_lattice_moves_as_often_as_nine_hundredths_of_a_leverage():
    leverage, spreads = 0.05, np.exp2(np.random.default_rng(2).uniform(0.0, COARSE, 200_000))
    exponents = [np.floor(np.log2(spreads / math.sqrt(square)) / COARSE) for square in (1.0, 1.0 - leverage)]
    assert np.mean(exponents[0] != exponents[1]) == pytest.approx(leverage / (2 * COARSE * math.log(2.0)), rel=0.05)
    assert 1.0 / (2 * COARSE * math.log(2.0)) == pytest.approx(0.09, abs=0.001)


@pytest.mark.parametrize(("rho", "features"), [(0.05, 7), (0.05, 40)])
def test_replays_are_on_average_no_more_than_the_bound(rho, features):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, features))
    y = rng.logistic(size=N) < X @ np.linspace(-1.0, 1.0, features) / math.sqrt(features)
    model = LogisticRegression(solver="newton", rho=rho).fit(X, y, ids=np.arange(N))
    plan, d = model.plan_, features + 1
    distances = [math.sqrt(plan.rate * d / (N * spread)) for spread in plan.newton.spreads]
    bound = (sum(distances) + 0.1 * 2 * ndtri((1 + rho) / 2)) / math.sqrt(2 * math.pi) + plan.rounds * 0.33 * d / N
    seen = model.replay_probability(np.arange(40)).mean()
    assert 0.5 * rho < seen < bound < 2.0 * rho


def test_a_draw_misses_margins_by_v(problem):
    X, _, w, h, H = problem
    sigma = 0.7
    drawn = Gaussian(w, np.linalg.cholesky(H), sigma).draw(np.random.default_rng(4), 300)
    missed = (h * ((drawn - w) @ X.T) ** 2).mean()
    assert missed == pytest.approx(sigma**2 * D / N, rel=0.1)


def test_automatic_noise_is_a_hundredth_and_a_bit():
    for records, columns in ((2**15, 54), (2**20, 100)):
        plan = make_newton_plan(Logistic(), columns - 1, records)
        v = plan.newton.spreads[-1] * columns / (plan.expected * plan.rate)
        assert v == pytest.approx(0.0137, abs=0.0003)
        assert plan.rho == automatic_share(records, columns) == pytest.approx(5.64 * columns / plan.expected, rel=0.01)


def test_the_finish_squares_what_noise_costs(problem):
    X, y, w, h, H = problem
    rng, least, root = np.random.default_rng(5), mean_loss(X, y, w), np.linalg.cholesky(H)
    costs = []
    for v in (0.01, 0.04):
        drawn = w + math.sqrt(v * N / D) * np.linalg.solve(root.T, rng.normal(size=(D, 100))).T
        before = np.mean([mean_loss(X, y, one) for one in drawn]) - least
        after = np.mean([mean_loss(X, y, newton_step(X, y, one)) for one in drawn]) - least
        assert before == pytest.approx(v / 2.0, rel=0.15)
        assert after < 0.375 * v**2 / h.mean()
        costs.append(after)
    assert costs[1] / costs[0] == pytest.approx(16.0, rel=0.5)


def test_evaluations_follow_the_columns_and_not_the_records():
    for columns in (50, 200, 500):
        found = [predicted(make_newton_plan(Logistic(), columns - 1, n), n / math.sqrt(2.0)) for n in (2**20, 2**24)]
        assert found[0] == pytest.approx(found[1], rel=0.15)
        assert 5.0 < found[1] / columns < 6.5
