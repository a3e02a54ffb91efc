"""The loss of counts: derivatives, convexity, how far steps go, and that nothing overflows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge import Poisson
from expunge.solvers.count_losses import FAR_ABOVE, LEAST_MEAN, means_of

COUNTS = np.array([0.0, 1.0, 2.5, 1000.0])
counts = st.one_of(st.integers(0, 2**30).map(float), st.integers(0, 5).map(float), st.floats(0.0, 2.0**30))
scores = st.one_of(st.floats(-25.0, 25.0), st.floats(-1e4, 1e4))


def expanded(score, count):
    slopes, curvatures = Poisson().expansion(np.array([score]), np.array([count]))
    return float(slopes[0]), float(curvatures[0])


@pytest.mark.parametrize("score", [-45.0, -30.0, -3.0, 0.0, 2.0, 10.0])
def test_the_derivative_is_that_of_the_value(score):
    step = 1e-6
    after, before = (Poisson().value(np.full(4, score + move), COUNTS) for move in (step, -step))
    slope = Poisson().derivative(np.full(4, score), COUNTS)
    assert np.allclose((after - before) / (2.0 * step), slope, rtol=1e-6, atol=1e-3)


def test_it_is_convex_and_finite_for_all_scores():
    scores = np.linspace(-1e4, 1e4, 100_001)
    slopes = Poisson().derivative(scores, np.zeros(len(scores)))
    assert (np.diff(slopes) >= 0.0).all()
    assert np.isfinite(Poisson().value(scores, np.ones(len(scores)))).all()


@given(scores, counts)
def test_the_expansion_has_the_derivative_and_a_finite_curvature_above_0(score, count):
    slope, curvature = expanded(score, count)
    assert slope == Poisson().derivative(np.array([score]), np.array([count]))[0]
    assert LEAST_MEAN <= curvature <= max(means_of(np.array([score]))[0], count, LEAST_MEAN)


@given(st.floats(-25.0, 25.0), counts)
def test_the_curvature_is_the_mean_from_the_count_to_some_times_the_count_and_1(score, count):
    mean = float(np.exp(score))
    if count <= mean <= FAR_ABOVE * (count + 1.0):
        assert expanded(score, count)[1] == max(mean, LEAST_MEAN)


@given(scores, counts.filter(lambda count: count > 0.01))
def test_no_step_from_below_goes_beyond_the_records_own_best_score(score, count):
    best = np.log(count)
    if score < best:
        slope, curvature = expanded(score, count)
        assert score - slope / curvature <= best + 1e-9 * (1.0 + abs(score))


@given(st.floats(-20.0, 20.0), counts.filter(lambda count: count > 0.01), st.floats(0.0, 1.0))
def test_the_quadratic_is_nowhere_below_the_loss_up_to_the_best_score(score, count, part):
    best = np.log(count)
    if score < best:
        slope, curvature = expanded(score, count)
        for other in (score + part * (best - score), score - 5.0 * part):
            rise, fall = Poisson().value(np.array([other, score]), np.full(2, count))
            above = rise - fall - (slope + curvature * (other - score) / 2.0) * (other - score)
            assert above <= 1e-9 * (1.0 + abs(rise) + abs(fall))


@given(st.floats(0.0, 25.0), counts)
def test_a_step_from_far_above_comes_down_to_where_the_mean_is_believed(score, count):
    believed = np.log(FAR_ABOVE * (count + 1.0))
    if score > believed:
        slope, curvature = expanded(score, count)
        assert score - slope / curvature <= max(believed, score - 1.0) + 1e-9
        assert score - slope / curvature >= believed - 1.0 - 1e-9 * score


@given(counts.filter(lambda count: count > 0.01), st.floats(1e-12, 1e-3))
def test_near_the_best_score_it_is_newtons(count, away):
    assert expanded(np.log(count) - away, count)[1] == pytest.approx(count, rel=away + 1e-9)


def test_a_record_has_the_same_bits_in_every_batch():
    rng = np.random.default_rng(0)
    some, targets = rng.normal(0.0, 12.0, size=101), rng.poisson(np.exp(rng.normal(0.0, 3.0, size=101))).astype(float)
    together = np.array(Poisson().expansion(some, targets))
    for size in (1, 2, 3, 7, 16, 50):
        parts = [np.array(Poisson().expansion(some[i : i + size], targets[i : i + size])) for i in range(0, 101, size)]
        assert np.array_equal(np.concatenate(parts, axis=1), together)
    assert np.array_equal(np.array(Poisson().expansion(some[::-3], targets[::-3])), together[:, ::-3])


def test_constants_and_saturated_scores_are_near_the_best():
    assert Poisson().guess(1000.0, 2500.0) == pytest.approx(np.log(2.5), abs=1e-3)
    assert np.allclose(np.exp(Poisson().saturated(COUNTS)), COUNTS + 0.5)


@given(scores)
def test_means_are_above_0_and_finite(score):
    assert 0.0 < means_of(np.array([score]))[0] < 2e13
