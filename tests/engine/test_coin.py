"""Couplings: the new noise is standard normal, and it is kept as often as the analytic law says."""

import numpy as np
import pytest
from scipy import stats

from expunge.engine.couplings.common import Bridge, keep_or_jump, keeps, pooled_projection, replay_probability


@pytest.mark.parametrize("shift", [0.1, 0.7, 2.0, 5.0])
def test_a_jump_keeps_as_often_as_any_coupling_can_and_leaves_a_standard_normal(shift):
    rng = np.random.default_rng(3)
    runs = 60_000
    old = rng.standard_normal(runs)
    decisions = [keep_or_jump(shift, x, rng) for x in old.tolist()]
    new = old - np.array([d.move for d in decisions]) * shift
    replayed = sum(not d.kept for d in decisions)
    assert stats.binomtest(replayed, runs, replay_probability(shift)).pvalue > 1e-3
    assert stats.kstest(new, "norm").pvalue > 1e-3
    total_variation = 2 * stats.norm.cdf(shift / 2) - 1
    assert replay_probability(shift) == pytest.approx(total_variation)


def test_a_translation_in_place_of_the_jump_does_not_leave_a_standard_normal():
    rng = np.random.default_rng(4)
    old = rng.standard_normal(60_000)
    decisions = [keep_or_jump(0.7, x, rng) for x in old.tolist()]
    wrong = old - np.array([1.0 if d.kept else 2.0 for d in decisions]) * 0.7
    assert stats.kstest(wrong, "norm").pvalue < 1e-6


def line(shift, offset):
    """The lattice law on a line, whose points lie ``shift`` apart and beside 0 by ``offset`` of that."""
    k = np.arange(-4000, 4001)
    weights = np.exp(-0.5 * (shift * (k + offset)) ** 2)
    return shift * (k + offset), weights / weights.sum()


def after_the_rule(points, weights, shift):
    """The law after keeping or jumping, by summing over all points: no draw, no float in the decision."""
    after, kept = np.zeros_like(weights), 0.0
    for here in np.flatnonzero(weights > 1e-25).tolist():
        keep = min(1.0, np.exp(shift * points[here] - 0.5 * shift * shift))
        after[here - 1] += weights[here] * keep
        kept += weights[here] * keep
        mode = int(np.ceil(-points[here] / shift - 0.5))
        far = np.arange(mode, min(mode + 3000, len(points) - 1 - here))
        tail = np.exp(0.5 * ((points[here + mode]) ** 2 - points[here + far] ** 2))
        np.add.at(after, here + far[:-1], weights[here] * (1.0 - keep) * (tail[:-1] - tail[1:]))
    return after, kept


@pytest.mark.parametrize("offset", [0.0, 0.318, 0.5])
@pytest.mark.parametrize("shift", [0.05, 0.4, 1.7])
def test_on_a_grid_of_any_width_the_law_stays_the_same_and_no_rule_keeps_more(shift, offset):
    points, weights = line(shift, offset)
    after, kept = after_the_rule(points, weights, shift)
    assert 0.5 * np.abs(after - weights).sum() < 1e-14
    assert 1.0 - kept == pytest.approx(0.5 * np.abs(weights[1:] - weights[:-1]).sum(), abs=1e-14)


@pytest.mark.parametrize("shift", [0.37, 1.7])
@pytest.mark.parametrize("right", [True, False])
def test_jumps_are_drawn_from_what_is_due_and_a_rounded_reflection_is_noticed(shift, right):
    rng, runs = np.random.default_rng(8), 60_000
    points, weights = line(shift, 0.318)
    old = rng.choice(points, size=runs, p=weights)
    moves = np.array([keep_or_jump(shift, s, rng).move for s in old.tolist()])
    if not right:
        moves = np.where(moves == 1.0, 1.0, np.rint(2.0 * old / shift))
    seen = np.bincount(np.rint((old - moves * shift) / shift - 0.318).astype(int) + 4000, minlength=8001)
    often = weights * runs > 5.0
    p = stats.chisquare(seen[often], weights[often] * seen[often].sum() / weights[often].sum()).pvalue
    assert p > 1e-3 if right else p < 1e-6


def law_in_the_plane(sigma, size):
    """The law of two rows, the second of which continues half of the first, on the grid of whole numbers."""
    numbers = np.arange(-size, size + 1)
    points = np.stack(np.meshgrid(numbers, numbers, indexing="ij"), axis=-1)
    xi = points @ np.linalg.inv([[1.0, 0.0], [0.5, 1.0]]).T
    weights = np.exp(-0.5 * (xi**2).sum(axis=-1) / sigma**2)
    return xi / sigma, weights / weights.sum()


@pytest.mark.parametrize("jumps", [True, False])
def test_in_the_plane_a_jump_leaves_the_law_as_it_is_and_a_rounded_reflection_does_not(jumps):
    """All points are summed over. A rounded reflection reaches some points of the grid twice and some never."""
    sigma, shift, size = 4.0, np.array([3, 3]), 90
    xi, weights = law_in_the_plane(sigma, size)
    along = np.linalg.inv([[1.0, 0.0], [0.5, 1.0]]) @ shift / sigma
    distance = float(np.sqrt(along @ along))
    after = np.zeros_like(weights)
    for place in np.argwhere(weights > 1e-17):
        weight, projection = weights[tuple(place)], float(xi[tuple(place)] @ along) / distance
        keep = min(1.0, np.exp(distance * projection - 0.5 * distance**2))
        after[tuple(place - shift)] += weight * keep
        if not jumps:
            after[tuple(np.rint(place - 2.0 * projection / distance * shift).astype(int))] += weight * (1.0 - keep)
            continue
        mode = int(np.ceil(-projection / distance - 0.5))
        times = np.arange(mode, mode + 25)
        tail = np.exp(0.5 * ((distance * mode + projection) ** 2 - (distance * times + projection) ** 2))
        for time, due in zip(times[:-1].tolist(), (tail[:-1] - tail[1:]).tolist(), strict=True):
            if due > 1e-18:
                after[tuple(place + time * shift)] += weight * (1.0 - keep) * due
    moved = 0.5 * np.abs(after - weights).sum()
    assert moved < 1e-12 if jumps else moved > 0.01


def test_no_shift_is_always_kept_without_a_coin():
    rng = np.random.default_rng(5)
    before = rng.bit_generator.state
    assert keep_or_jump(0.0, 3.0, rng).kept
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
    if keeps(total**0.5, pooled, rng):
        return x[0] - a[0], x[1] - a[1], True
    bridge = Bridge(-(total**0.5) * pooled, total)
    first = bridge.draw(a[0], rng)
    shift = second(first + a[0])  # along the new path: the answer moves with the mean
    return first, bridge.beyond(a[0], first).draw(shift, rng), False


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
        x = bridge.draw(a, rng)
        bridge = bridge.beyond(a, x)
        total += a * x
    assert total == pytest.approx(2.5)
    assert np.isfinite(bridge.draw(0.0, rng))
