"""Huber's loss in units of a scale: its quadratics lie above it; where rounds begin is found from counts."""

import numpy as np
import pytest

from expunge import BadPlan, ScaledHuber
from expunge.solvers.scaled_newton import BINS, bins_of, edges, middle_and_spread

SCORES = np.linspace(-60.0, 60.0, 2401)
ZEROS = np.zeros(len(SCORES))


@pytest.mark.parametrize("epsilon", [1.01, 1.35, 10.0])
def test_the_derivative_is_that_of_the_value(epsilon):
    loss, step = ScaledHuber(epsilon), 1e-6
    differences = loss.value(SCORES + step, ZEROS) - loss.value(SCORES - step, ZEROS)
    assert np.allclose(differences / (2.0 * step), loss.derivative(SCORES, ZEROS), atol=1e-5)


def test_the_quadratic_of_the_expansion_touches_the_loss_and_lies_above_it():
    loss = ScaledHuber()
    slopes, curvatures = loss.expansion(SCORES, ZEROS)
    assert np.array_equal(slopes, loss.derivative(SCORES, ZEROS))
    steps = SCORES[None] - SCORES[:, None]
    above = loss.value(SCORES, ZEROS)[:, None] + slopes[:, None] * steps + 0.5 * curvatures[:, None] * steps**2
    assert (above >= loss.value(SCORES, ZEROS) - 1e-9).all()


def test_the_curvature_falls_beyond_epsilon_and_never_vanishes():
    _, curvatures = ScaledHuber().expansion(np.array([0.5, 1.35, 2.7, 1e9]), np.zeros(4))
    assert curvatures.tolist() == [1.0, 1.0, 0.5, 2.0**-10]


@pytest.mark.parametrize("epsilon", [1.0, 0.0, -2.0, np.inf, np.nan, "wide", None])
def test_a_bad_epsilon_is_named(epsilon):
    with pytest.raises(BadPlan, match="epsilon"):
        ScaledHuber(epsilon)


def test_numbers_lie_between_the_edges_of_their_bins():
    numbers = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.linspace(-6.0, 2.0, 2000)
    found, where = bins_of(numbers), edges()
    assert len(where) == BINS + 1
    assert ((where[found] <= numbers) & (numbers <= where[found + 1])).all()
    assert bins_of(np.array([-1e30, 0.0, 1e30, -0.0])).tolist() == [0, BINS // 2, BINS - 1, BINS // 2]


@pytest.mark.parametrize("outliers", [0, 1000, 2000])
def test_outliers_hardly_move_the_middle_and_the_spread(outliers):
    targets = np.random.default_rng(0).normal(3.0, 2.0, 10_000)
    targets[:outliers] = 1e6
    middle, spread = middle_and_spread(np.bincount(bins_of(targets), minlength=BINS))
    assert abs(middle - 3.0) < 0.3 + outliers / 2500
    assert 1.8 < spread < 2.2 + outliers / 1000


def test_the_spread_of_equal_numbers_and_of_none_is_finite():
    for counts in (np.bincount(bins_of(np.full(10, 5.0)), minlength=BINS), np.zeros(BINS)):
        assert np.isfinite(middle_and_spread(counts)).all()
        assert middle_and_spread(counts)[1] > 0.0
