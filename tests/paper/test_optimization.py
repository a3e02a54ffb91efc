"""The paper's applications: its estimates, step sizes, projections and proofs, printed and corrected."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from cases.learners import TREE
from cases.printed import trained
from expunge import Ball, DualAveragingRule, Learner, PerRecord, Shuffled
from expunge.engine.accounting import paper_sigma
from expunge.models import LogisticRegression
from expunge.solvers import DualAveraging
from expunge.solvers.frank_wolfe import HybridGradient
from expunge.solvers.losses import Logistic, Squared
from expunge.solvers.projection import stretch


def sarah(first):
    def query(step, path, x):
        newer = (step + 2) * (path[-1] - x)  # ∇ℓ(w; x) = w - x; steps are numbered from 0
        if step == 0:
            return first(newer, path[-1] - x)
        return newer - (step + 1) * (path[-2] - x)

    return PerRecord(query, size=1, bound=10.0)


def test_the_printed_sarah_estimate_is_biased_by_the_first_gradient():
    def errors(query):
        rule = DualAveragingRule(np.array([3.0]), 0.05)
        _, transcript, _ = trained(Learner(Shuffled(1), query, rule, TREE), np.full((20, 1), 0.5))
        estimates = transcript.answers[:, 0] / np.arange(2, 22)
        return estimates - [transcript.path[t].item() - 0.5 for t in range(20)]

    printed = errors(sarah(lambda newer, older: newer - older))  # 2∇ℓ(w₁) - 1·∇ℓ(w₀), with w₀ = w₁
    np.testing.assert_allclose(printed, -2.5 / np.arange(2, 22), rtol=1e-9)
    np.testing.assert_allclose(errors(sarah(lambda newer, older: newer)), 0.0, atol=1e-12)


def excess_risk_bound(eta, n, rho, dim):
    """The form of the bound that the proof cites, G = D = 1: 1/(ηn) + η (1 + σ √d) with σ = 8 ln(n)/ρ."""
    return 1.0 / (eta * n) + eta * (1.0 + paper_sigma(rho, n, 1.0) * math.sqrt(dim))


def test_the_printed_step_of_dual_averaging_grows_as_rho_falls():
    n, dim = 10**8, 100

    def printed(rho):
        return dim**0.25 * math.sqrt(math.log(n)) / math.sqrt(n * rho)

    def ours(rho):
        return math.sqrt(rho) / (dim**0.25 * math.sqrt(8.0 * n * math.log(n)))

    def claimed(rho):
        return math.sqrt(math.log(n)) * (n**-0.5 + math.sqrt(math.sqrt(dim) / (n * rho)))

    for rho in (0.1, 0.01, 0.001):
        assert excess_risk_bound(printed(rho), n, rho, dim) > 50.0 / rho * claimed(rho)
        assert excess_risk_bound(ours(rho), n, rho, dim) < 6.0 * claimed(rho)


def test_the_printed_embedding_dimension_does_not_give_the_claimed_rate():
    """The proof bounds the risk of Lipschitz GLMs by √(√k / nρ) + 1/√k and claims (nρ)^{-1/3}."""

    def over_the_claim(k, n_rho):
        return (math.sqrt(math.sqrt(k) / n_rho) + k**-0.5) * n_rho ** (1 / 3)

    sizes = [10.0**power for power in (3, 6, 9, 12)]
    assert [over_the_claim(size**0.5, size) > 0.99 * size ** (1 / 12) for size in sizes] == [True] * 4
    assert [over_the_claim(size ** (2 / 3), size) for size in sizes] == pytest.approx([2.0] * 4)


def test_projected_rows_are_longer_than_the_analysis_says_unless_they_are_clipped():
    """Paper: Φx takes part as it is, G and H as before. But |Φx| exceeds |x|, so the sensitivity is unbounded."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 300))
    X /= np.linalg.norm(X, axis=1)[:, None]
    model = LogisticRegression(solver=DualAveraging(n_components=20), rho=0.1).fit(X, X[:, 0] > 0)
    projection = model._projection.back(np.eye(20))
    assert projection.shape == (20, 300)  # k × d: it maps rows of d to rows of k
    assert np.linalg.norm(X @ projection.T, axis=1).max() > 1.3
    stored = np.concatenate([model._records.batch_at(place)[0] for place in range(model.plan_.steps)])
    limit = model.plan_.feature_norm
    assert 1.0 < limit == stretch(20, 512, 0.1) <= 2.0  # the paper's is 2, with k = O(log n)
    assert 1.3 < np.linalg.norm(stored, axis=1).max() <= limit + 1e-12
    assert model.replay_probability(range(400)).max() <= 0.1 + 1e-9
    weights = model.plan_.coefficients(model.transcript_.model(model.plan_.learner))[0]
    np.testing.assert_allclose(model.coef_, weights @ projection)  # Φᵀw̃, in the original features


def test_the_last_iterate_of_dual_averaging_breaks_the_bound_of_the_average():
    """ℓ(w) = |w| for every record: regret gives 1/(2ηn)·|w₁|² + η/2, for the average of w₁ … w_n."""
    eta, n = 0.1, 1000
    query = PerRecord(lambda step, path, x: np.where(path[-1] >= 0.0, 1.0, -1.0), size=1, bound=1.0)
    rule = DualAveragingRule(np.array([0.999]), eta)
    bound = 0.999**2 / (2 * eta * n) + eta / 2
    for selector, meets in (("average", True), ("tail", True), ("last", False)):
        plan = Learner(Shuffled(1), query, rule, TREE, selector=selector)
        models = [trained(plan, np.zeros((size, 1)))[1].model(plan).item() for size in (n, n + 1)]
        assert (max(map(abs, models)) <= bound) is meets
        assert meets or max(map(abs, models)) > 1.5 * bound


def test_the_product_of_the_frank_wolfe_proof_is_over_t_not_over_t_minus_1():
    for steps in (2, 5, 40):
        for i in range(1, steps):
            product = math.prod((1 - Fraction(1, t + 1) for t in range(i + 1, steps)), start=Fraction(1))
            assert product == Fraction(i + 1, steps)
            assert product != Fraction(i + 1, steps - 1)


def test_the_frank_wolfe_proof_loses_a_sign_a_step_size_and_the_boundary():
    """Each line on a problem of one number, with the true gradient for d_t."""
    eta, w = 0.1, 1.0
    # L(w) = 5 + w²/2 on [-1, 1], H = 1, from w_t = w* = 0: the lmo of gradient 0 is 0
    assert (1 - eta) * 5.0 - eta * 5.0 + eta**2 * 4.0 / 2 < 5.0  # as printed: below the minimum itself
    assert (1 - eta) * 5.0 + eta * 5.0 + eta**2 * 4.0 / 2 >= 5.0
    # L(w) = w on [-1, 1], H = 0, G = 1, D = 2, from w_t = 1: v_t = -1
    moved = (1 - eta) * w + eta * -1.0
    assert w + 1.0 * (-1.0 - w) < moved  # the second line, without η_t before ⟨d_t, v_t - w_t⟩
    assert w + eta * (-1.0 - w) == pytest.approx(moved)
    # L(w₁) - L(w*) ≤ HD² "from smoothness" needs w* inside; on the boundary it is GD
    assert 1.0 - -1.0 > 0.0 * 2.0**2
    assert 1.0 - -1.0 <= 1.0 * 2.0


def test_rows_twice_as_long_make_a_loss_four_times_as_smooth():
    """The listing passes 2H‖X‖² to the base algorithm; the proofs rely on 4H‖X‖²."""
    loss, target = Squared(10.0), np.array([0.0])

    def smoothness(row):
        def gradient(w):
            return row * loss.derivative(np.array([row @ w]), target)

        one, other = np.zeros(2), 1e-3 * row / np.linalg.norm(row)
        return np.linalg.norm(gradient(other) - gradient(one)) / np.linalg.norm(other - one)

    assert smoothness(np.array([0.6, 0.8])) == pytest.approx(loss.smoothness)
    assert smoothness(2.0 * np.array([0.6, 0.8])) == pytest.approx(4.0 * loss.smoothness)
    shorter, longer = (HybridGradient(Logistic(), 2, norm, diameter=1e6).bound for norm in (1.0, 2.0))
    assert longer == pytest.approx(4.0 * shorter, rel=1e-4)


def test_the_projected_optimum_lies_outside_of_the_ball_nearly_half_of_the_time():
    """Nobody enlarges the ball of radius |w*| in which the base algorithm looks for Φw*."""
    rng, dim, draws = np.random.default_rng(5), 60, 4000
    best = rng.normal(size=dim)
    best /= np.linalg.norm(best)
    for k, least in ((10, 0.40), (40, 0.44)):
        projections = rng.choice([-1.0, 1.0], size=(draws, k, dim)) / math.sqrt(k)
        lengths = np.linalg.norm(projections @ best, axis=1)
        assert least < np.mean(lengths > 1.0) < 0.5
        assert np.mean(lengths > 1.0) == pytest.approx(stats.chi2.sf(k, k), abs=0.03)
        assert np.mean(lengths > 1.5) < 0.02  # a ball half as large again holds it, all but surely
        missed = [np.linalg.norm(Ball(1.0).project(p @ best) - p @ best) for p in projections[:200]]
        assert max(missed) > 0.1
