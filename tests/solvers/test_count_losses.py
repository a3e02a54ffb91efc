"""The loss of counts: derivatives, convexity, and that nothing overflows."""

import numpy as np
import pytest

from expunge import Poisson
from expunge.solvers.count_losses import LEAST_MEAN

COUNTS = np.array([0.0, 1.0, 2.5, 1000.0])


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


def test_the_expansion_has_the_derivative_and_a_curvature_above_0():
    scores = np.array([-40.0, -1.0, 0.0, 5.0])
    slopes, curvatures = Poisson().expansion(scores, COUNTS)
    assert np.array_equal(slopes, Poisson().derivative(scores, COUNTS))
    assert np.allclose(curvatures, np.maximum(np.exp(scores), LEAST_MEAN))


def test_constants_and_saturated_scores_are_near_the_best():
    assert Poisson().guess(1000.0, 2500.0) == pytest.approx(np.log(2.5), abs=1e-3)
    assert np.allclose(np.exp(Poisson().saturated(COUNTS)), COUNTS + 0.5)
