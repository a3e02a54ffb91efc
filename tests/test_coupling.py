"""Couplings: the new noise is standard normal, and it is kept as often as the analytic law says."""

import numpy as np
import pytest
from scipy import stats

from expunge.coupling import Bridge, pooled_projection, reflect, replay_probability


@pytest.mark.parametrize("shift", [0.1, 0.7, 2.0, 5.0])
def test_a_reflection_keeps_as_often_as_any_coupling_can_and_leaves_a_standard_normal(shift):
    rng = np.random.default_rng(3)
    runs = 60_000
    old = rng.standard_normal(runs)
    decisions = [reflect(shift, x, rng) for x in old.tolist()]
    new = old - np.array([d.move for d in decisions]) * shift
    replayed = sum(not d.kept for d in decisions)
    assert stats.binomtest(replayed, runs, replay_probability(shift)).pvalue > 1e-3
    assert stats.kstest(new, "norm").pvalue > 1e-3
    total_variation = 2 * stats.norm.cdf(shift / 2) - 1
    assert replay_probability(shift) == pytest.approx(total_variation)


def test_a_translation_in_place_of_the_reflection_does_not_leave_a_standard_normal():
    rng = np.random.default_rng(4)
    old = rng.standard_normal(60_000)
    decisions = [reflect(0.7, x, rng) for x in old.tolist()]
    wrong = old - np.array([1.0 if d.kept else 2.0 for d in decisions]) * 0.7
    assert stats.kstest(wrong, "norm").pvalue < 1e-6


def test_no_shift_is_always_kept_without_a_coin():
    rng = np.random.default_rng(5)
    before = rng.bit_generator.state
    assert reflect(0.0, 3.0, rng).kept
    assert rng.bit_generator.state == before


def _adaptive(budget, rng, fair=True):
    """Two rows; the second shift depends on the noise of the first. Returns the new noise of both, and whether kept."""

    def second(x):  # within the budget on every path
        return 0.9 if x > 0 else 0.1

    a = [0.5, 0.0]
    x = rng.standard_normal(2)
    a[1] = second(x[0])
    total = budget if fair else a[0] ** 2 + a[1] ** 2
    pooled = pooled_projection(a, x, total, rng)
    decision = reflect(total**0.5, pooled, rng)
    if decision.kept:
        return x[0] - a[0], x[1] - a[1], True
    bridge = Bridge(-(total**0.5) * pooled, total)
    first, bridge = bridge.cross(a[0], rng)
    last, bridge = bridge.cross(second(first + a[0]), rng)  # along the new path: the answer moves with the mean
    return first, last, False


@pytest.mark.parametrize("fair", [True, False])
def test_the_adaptive_coupling_is_exact_only_if_its_budget_was_fixed_beforehand(fair):
    rng = np.random.default_rng(6)
    rows = np.array([_adaptive(0.5**2 + 0.9**2, rng, fair) for _ in range(60_000)])
    if not fair:
        worst = min(stats.kstest(rows[:, 0], "norm").pvalue, stats.kstest(rows[:, 1], "norm").pvalue)
        assert worst < 1e-6
        return
    replayed = int((rows[:, 2] == 0).sum())
    assert stats.binomtest(replayed, len(rows), replay_probability((0.25 + 0.81) ** 0.5)).pvalue > 1e-3
    assert stats.kstest(rows[:, 0], "norm").pvalue > 1e-3
    assert stats.kstest(rows[:, 1], "norm").pvalue > 1e-3
    assert abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 4 / len(rows) ** 0.5


def test_a_bridge_ends_where_it_is_due():
    rng = np.random.default_rng(7)
    shifts = [0.3, 0.4, 1.2]
    bridge = Bridge(2.5, sum(a * a for a in shifts))
    total = 0.0
    for a in shifts:
        x, bridge = bridge.cross(a, rng)
        total += a * x
    assert total == pytest.approx(2.5)
    assert np.isfinite(bridge.cross(0.0, rng)[0])
