"""Accounting: exact formulas, against dp-accounting, against simulation, and the figures of the paper."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from expunge.base.errors import BadPlan
from expunge.engine.accounting import (
    anytime_shares,
    expected_replays,
    lemma_sigma,
    noise_for,
    paper_anytime_shares,
    paper_sigma,
    rho_for,
    sensitivity,
    sigma_for,
    total_variation_from_renyi,
    worst_case_rho,
)
from expunge.engine.couplings.common import replay_probability
from expunge.engine.mechanisms.binary_tree import BinaryTree, lowbit
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.mechanisms.square_root import SquareRoot
from expunge.engine.schedules import Arrival, Everyone, Scattered, Shuffled

TREE, ROOT, EACH = BinaryTree(), SquareRoot(), Identity()


@pytest.mark.parametrize("rho", [0.01, 0.1, 0.5, 0.9])
def test_dp_accounting_agrees_that_delta_at_epsilon_zero_is_rho(rho):
    sigma = sigma_for(rho, 1.0)
    loss = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
    assert loss.get_delta_for_epsilon(0.0) == pytest.approx(rho, rel=1e-3)
    assert rho_for(sigma, 1.0) == pytest.approx(rho)


def test_dp_accounting_agrees_on_a_record_seen_by_several_independent_rounds():
    sigma = noise_for(0.2, Everyone(8), EACH, bound=1.0, coupling="adaptive")
    loss = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4).self_compose(8)
    assert loss.get_delta_for_epsilon(0.0) == pytest.approx(0.2, rel=1e-2)


def test_the_figures_of_the_design():
    n = 2**17
    assert paper_sigma(0.1, n, 2.0) == pytest.approx(1885, abs=1)
    assert lemma_sigma(0.1, 18**0.5, 2.0) == pytest.approx(60, abs=0.5)
    assert noise_for(0.1, Shuffled(1), TREE, bound=1.0, records=n) == pytest.approx(34, abs=0.5)
    assert noise_for(0.1, Scattered(n), TREE, bound=1.0) == pytest.approx(16.9, abs=0.05)
    assert noise_for(0.1, Scattered(n), ROOT, bound=1.0) == pytest.approx(8.7, abs=0.05)


@pytest.mark.parametrize(
    ("schedule", "mechanism", "coupling"),
    [
        (Scattered(16), ROOT, "joint"),
        (Scattered(16), TREE, "sequential"),
        (Scattered(5, epochs=3), ROOT, "joint"),
        (Scattered(5, epochs=3), TREE, "sequential"),
        (Scattered(16), BinaryTree("anytime"), "sequential"),
        (Shuffled(2), TREE, "joint"),
        (Shuffled(2), TREE, "sequential"),
        (Arrival(3), ROOT, "joint"),
        (Everyone(6), EACH, "joint"),
        (Everyone(6), EACH, "sequential"),
        (Everyone(6), EACH, "adaptive"),
        (Everyone(6, rate=0.4), EACH, "adaptive"),
        (Everyone(6, rate=0.4), EACH, "sequential"),
    ],
    ids=str,
)
def test_sigma_and_rho_are_inverse_to_each_other_for_every_schedule(schedule, mechanism, coupling):
    for rho in (0.02, 0.3):
        for records_per_subject in (1, 3):
            given = {
                "bound": 0.7,
                "coupling": coupling,
                "records": 20,
                "records_per_subject": records_per_subject,
            }
            sigma = noise_for(rho, schedule, mechanism, **given)
            assert worst_case_rho(sigma, schedule, mechanism, **given) == pytest.approx(rho, rel=1e-6)


def test_rho_one_means_no_noise_and_no_noise_means_rho_one():
    assert noise_for(1.0, Scattered(4), ROOT, bound=1.0) == 0.0
    assert worst_case_rho(0.0, Scattered(4), ROOT, bound=1.0) == 1.0
    assert worst_case_rho(1.0, Shuffled(1), ROOT, bound=1.0, records=0) == 0.0


def test_a_replaced_record_counts_twice_and_a_subjects_records_add_up():
    assert sensitivity(Scattered(4), 1.5) == 1.5
    assert sensitivity(Everyone(4), 1.5, 2) == 3.0
    assert sensitivity(Shuffled(4), 1.5, 2) == 6.0


def test_one_step_is_the_formula_and_several_are_its_sum_or_product():
    sigma = 2.0
    assert worst_case_rho(sigma, Scattered(9), ROOT, bound=1.0) == pytest.approx(
        replay_probability(ROOT.column_norms(9)[0] / sigma)
    )
    norms = ROOT.column_norms(4)
    two_epochs = max(sum(replay_probability(norms[t + e] / sigma) for e in (0, 2)) for t in (0, 1))
    assert worst_case_rho(sigma, Scattered(2, epochs=2), ROOT, bound=1.0) == pytest.approx(two_epochs)
    once = replay_probability(1 / sigma)
    assert worst_case_rho(sigma, Everyone(5), EACH, bound=1.0, coupling="sequential") == pytest.approx(
        1 - (1 - once) ** 5
    )
    assert worst_case_rho(sigma, Everyone(5), EACH, bound=1.0, coupling="adaptive") == pytest.approx(
        replay_probability(5**0.5 / sigma)
    )


def test_sampling_amplifies_as_the_expectation_over_rounds_joined():
    sigma, rate, rounds = 3.0, 0.3, 6
    rng = np.random.default_rng(0)
    joined = rng.binomial(rounds, rate, size=200_000)
    adaptive = np.mean([replay_probability(j**0.5 / sigma) for j in joined])
    schedule = Everyone(rounds, rate)
    assert worst_case_rho(sigma, schedule, EACH, bound=1.0, coupling="adaptive") == pytest.approx(adaptive, rel=0.02)
    sequential = np.mean(1 - (1 - replay_probability(1 / sigma)) ** joined)
    assert worst_case_rho(sigma, schedule, EACH, bound=1.0, coupling="sequential") == pytest.approx(
        sequential, rel=0.02
    )


def test_expected_replays_average_over_contributions_and_steps():
    expected = expected_replays([0.5, 0.0], [0, 3], ROOT, 4, 1.0)
    once = replay_probability(0.5 * ROOT.column_norms(4)[0])
    assert expected.replay_probability == pytest.approx(once / 2)
    assert expected.replayed_fraction == pytest.approx(once / 2)
    assert expected_replays([0.5, 0.0], [0, 3], ROOT, 4, 0.0).replay_probability == 0.5


def test_the_papers_lemma_is_an_upper_bound_that_the_exact_formula_beats():
    for distance in (0.01, 0.3, 2.0):
        assert replay_probability(distance) < total_variation_from_renyi(distance**2 / 2)


def test_anytime_shares_sum_to_at_most_one_and_the_papers_drown_the_top():
    assert anytime_shares(60).sum() < 1.0
    assert anytime_shares(10_000).sum() == pytest.approx(1.0, abs=1e-3)
    tops = [sigma_for(float(paper_anytime_shares(h, 0.1)[-1])) for h in (5, 10, 15)]
    assert tops[2] / tops[1] == pytest.approx(32, rel=0.01)
    assert math.sqrt(anytime_shares(5)[-1] / anytime_shares(15)[-1]) == pytest.approx(3.0)


@pytest.mark.parametrize("rho", [0.0, -0.1, 1.1, float("nan")])
def test_an_impossible_rho_is_refused(rho):
    with pytest.raises(BadPlan, match="rho"):
        noise_for(rho, Scattered(4), ROOT, bound=1.0)


@pytest.mark.parametrize("sigma", [-1.0, float("nan"), float("inf")])
def test_an_impossible_sigma_is_refused(sigma):
    with pytest.raises(BadPlan, match="sigma"):
        worst_case_rho(sigma, Scattered(4), ROOT, bound=1.0)


@pytest.mark.parametrize("schedule", [Everyone(8), Scattered(1, epochs=8)], ids=str)
def test_a_tree_row_sees_all_touched_steps_that_it_covers_added_up(schedule):
    sigma = 4.0
    counts = [lowbit(t) for t in range(1, 9)]  # every step is touched: node t covers lowbit(t) of them
    exact = 1 - math.prod(1 - replay_probability(count / sigma) for count in counts)
    assert worst_case_rho(sigma, schedule, TREE, bound=1.0, coupling="sequential") == pytest.approx(exact)


def test_records_of_one_subject_in_one_step_of_an_order_add_up():
    together = replay_probability(4 * 2.0 / 8.0)
    assert worst_case_rho(8.0, Arrival(4), EACH, bound=1.0, records=8, records_per_subject=4) == pytest.approx(together)


def test_a_rho_that_sampling_alone_keeps_needs_no_noise():
    schedule = Everyone(2, rate=0.1)
    for coupling in ("joint", "sequential", "adaptive"):
        assert noise_for(0.5, schedule, EACH, bound=1.0, coupling=coupling) == 0.0
    assert worst_case_rho(0.0, schedule, EACH, bound=1.0) == pytest.approx(0.1)


@pytest.mark.parametrize("shares", ["uniform", "anytime", "halving"])
@pytest.mark.parametrize("steps", [1, 2, 7, 8, 13, 64])
def test_the_first_step_of_a_tree_is_the_least_favourable(shares, steps):
    tree, sigma = BinaryTree(shares), 3.0
    scales = tree.scales(steps)
    each = [
        1 - math.prod(1 - replay_probability(1 / (sigma * scales[row])) for row in tree.column(step, steps).rows)
        for step in range(steps)
    ]
    found = worst_case_rho(sigma, Scattered(steps), tree, bound=1.0, coupling="sequential")
    assert found == pytest.approx(max(each))
