"""How much noise the paper's theorems ask for, and how much is needed."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from cases.learners import EACH, TREE
from cases.printed import NINE, start, trained
from expunge import (
    Arrival,
    BinaryTree,
    Delete,
    DualAveragingRule,
    Everyone,
    GradientDescentRule,
    Learner,
    PerRecord,
    Scattered,
    Shuffled,
    change,
    verify,
)
from expunge.engine.accounting import noise_for, paper_sigma, rho_for, sigma_for, worst_case_rho


@pytest.mark.parametrize("rho", [1e-4, 1e-5, 1e-6])
def test_the_main_theorem_does_not_meet_its_rho(rho):
    """σ² = 64 B² ln²(n) / ρ. A record that moves its step by B moves κ B of noise, whatever the coupling."""
    records = 2**12
    column = BinaryTree().column_norms(records).max()
    printed = math.sqrt(64.0 * math.log(records) ** 2 / rho)
    assert rho_for(printed, column) > 1.5 * rho
    assert rho_for(paper_sigma(rho, records, 1.0), column) < rho  # with 1/ρ², as in the lemma
    ours = noise_for(rho, Scattered(records), BinaryTree(), bound=1.0)
    assert rho_for(ours, column) == pytest.approx(rho, rel=1e-6)


def test_the_theorem_on_linear_queries_lacks_the_number_of_rounds():
    """σ² = 64 B² / (n² ρ²), read kindly: queries are averages, so that one of n records moves them by B/n."""
    n, rho = 1000, 0.1
    printed = 8.0 / (n * rho)
    each = {"mechanism": EACH, "bound": 1 / n, "coupling": "adaptive"}
    one, thousand, million = (worst_case_rho(printed, Everyone(T), **each) for T in (1, 10**3, 10**6))
    assert one < rho < 1.5 * rho < thousand < 0.99 < million
    assert worst_case_rho(printed, Everyone(1), EACH, bound=1.0) > 0.99  # read literally: B, not B/n
    assert noise_for(rho, Everyone(1), **each) == 0.0  # a single sum can be added to, without a replay
    for rounds in (2, 10**3, 10**6):
        ours = noise_for(rho, Everyone(rounds), **each)
        assert worst_case_rho(ours, Everyone(rounds), **each) == pytest.approx(rho)
        assert ours == pytest.approx(math.sqrt(rounds) / n / (2.0 * stats.norm.ppf(0.55)))


def test_averages_over_n_change_in_every_round_when_a_record_leaves():
    """The printed queries (and step and σ) depend on n: one record fewer, other queries. A plan is fixed."""

    def plan(divisor):
        query = PerRecord(lambda step, path, x: np.tanh(x - path[-1]) / divisor, size=1, bound=1.0)
        return Learner(Everyone(4), query, GradientDescentRule(start(), 0.4), EACH, sigma=1e3)

    def wrong_sums(before, after):
        records, transcript, rng = trained(before, NINE[:6])
        outcome = change(before, records, transcript, Delete([2]), rng).commit()
        assert outcome.kept
        return [int(p.split()[2]) for p in verify(after, records, transcript).problems]

    assert wrong_sums(plan(6.0), plan(5.0)) == [0, 1, 2, 3]
    assert wrong_sums(plan(1.0), plan(1.0)) == []


@pytest.mark.parametrize("rho", [0.01, 0.1, 0.5])
def test_the_sensitivities_of_the_theorems_are_of_removal_but_the_last_record_takes_the_place(rho):
    """G in the theorem, 2 G in its proof: the steps change by g' - g."""
    query = PerRecord(lambda step, path, x: x, size=1, bound=1.0)
    printed = noise_for(rho, Scattered(9), TREE, bound=1.0)
    ours = noise_for(rho, Arrival(1), TREE, bound=1.0, records=9)
    assert ours == pytest.approx(2.0 * printed)

    def replay_probability_of_the_worst(sigma):
        plan = Learner(Arrival(1), query, DualAveragingRule(start(), 0.1), TREE, sigma)
        records, transcript, rng = trained(plan, np.array([[1.0]] * 8 + [[-1.0]]))
        return change(plan, records, transcript, Delete([0]), rng).outcome.replay_probability

    assert replay_probability_of_the_worst(printed) > 1.4 * rho
    assert rho / 2 < replay_probability_of_the_worst(ours) <= rho * (1 + 1e-9)


def test_the_shares_of_the_anytime_tree_grow_like_the_number_of_records():
    """ρ/2^{h+1} for height h: noise 2^h. The noise on a mean of n records must vanish, and does not."""
    printed, ours = [], []
    for height in range(4, 17, 4):
        n = 2**height
        for shares, errors in (("halving", printed), ("anytime", ours)):
            tree = BinaryTree(shares)
            sigma = noise_for(0.1, Scattered(n), tree, bound=1.0)
            errors.append(sigma * tree.scales(n)[n - 1] / n)  # node n answers the sum of all n
            assert worst_case_rho(sigma, Scattered(n), tree, bound=1.0) == pytest.approx(0.1)
    assert min(printed) > 3.9
    assert printed == sorted(printed)
    assert ours[-1] < 1e-2
    assert all(later < earlier / 8 for earlier, later in itertools.pairwise(ours))


def test_the_noise_of_lipschitz_linear_models_lacks_the_logarithm_of_n():
    """σ² = O(G²‖X‖²/ρ²), with no tilde: whatever the constant, there is a tree for which it is too little."""
    rho = 0.1
    for constant, depth in ((1.0, 8), (8.0, 400)):
        kappa = BinaryTree().largest_norm(2**depth)
        assert rho_for(constant / rho, 2.0 * kappa) > rho
        ours = sigma_for(rho, 2.0 * kappa)
        assert rho_for(ours, 2.0 * kappa) == pytest.approx(rho)
        assert ours == pytest.approx(math.sqrt(depth + 1) / stats.norm.ppf((1 + rho) / 2))


def test_the_gradient_error_lemma_divides_by_rho_squared_once_too_often():
    """Its proof has dσ²/((t+1)²ρ²), and σ has its 1/ρ already; the lemma itself, with 1/ρ², is right."""
    size, n = 4000, 31
    silent = PerRecord(lambda step, path, x: np.zeros(size), size=size, bound=1.0)

    def errors(rho):
        sigma = paper_sigma(rho, n, 1.0)
        plan = Learner(Shuffled(1), silent, DualAveragingRule(start(size), 0.1), TREE, sigma)
        answers = trained(plan, np.zeros((n, 1)))[1].answers[:]
        over = np.arange(2, n + 2) ** 2.0
        measured = np.square(answers).sum(axis=1) / over
        nodes = np.array([t.bit_count() for t in range(1, n + 1)])
        np.testing.assert_allclose(measured, size * sigma**2 * nodes / over, rtol=0.15)
        return measured, math.log2(n + 1) * size * sigma**2 / over  # noise of at most log n nodes

    (large, bound), (small, lower) = errors(0.05), errors(0.2)
    assert np.all(large <= 1.1 * bound)
    assert np.all(small <= 1.1 * lower)
    np.testing.assert_allclose(large / small, 16.0, rtol=0.2)  # 1/ρ² in all
    np.testing.assert_allclose((bound / 0.05**2) / (lower / 0.2**2), 256.0)  # as printed: 1/ρ⁴
