"""Laws of draws, and the likelihood coupling between two of them, with plain arrays."""

import numpy as np
import pytest
from scipy import stats

from cases.draws import RoundedAtTheEnd, WithoutDeterminant
from cases.patching import patched_everywhere
from expunge.engine.couplings.likelihood import due, kept_share
from expunge.engine.laws import Gaussian, Point
from expunge.engine.randomness import Randomness

MEAN, OTHER_MEAN = np.array([1.0, -2.0, 30.0]), np.array([1.2, -2.1, 30.5])
FACTOR = np.linalg.cholesky(np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 0.01 + 0.25]]))
OTHER_FACTOR = np.linalg.cholesky(np.array([[3.5, 1.0, 0.5], [1.0, 2.0, 0.2], [0.5, 0.2, 0.2]]))
RUNS = 20_000


def randomness(seed=0):
    return Randomness(np.random.default_rng(seed).bytes(32))


def smallest_p(numbers):
    """Compare each column, its square, and all products of two with independent standard normal numbers."""
    width = numbers.shape[1]
    found = [stats.kstest(numbers[:, j], "norm").pvalue for j in range(width)]
    for i in range(width):
        for j in range(i):
            product = numbers[:, i] * numbers[:, j]
            found.append(2 * stats.norm.sf(abs(product.mean()) * np.sqrt(len(product))))
    return min(found) * len(found)


def coupled(kind=Gaussian, draw_due=due, seed=1):
    """Return draws from one law, kept or made good for another, as that other law sees them."""
    one, other = kind(MEAN, FACTOR, 0.6), kind(OTHER_MEAN, OTHER_FACTOR, 0.6)
    given = randomness(seed)
    result = one.draw(given.noise, RUNS)
    coins = given.coins.random(RUNS)
    kept = coins < [kept_share(one, other, drawn) for drawn in result]
    for row in np.flatnonzero(~kept):
        result[row] = draw_due(one, other, given)
    return Gaussian(OTHER_MEAN, OTHER_FACTOR, 0.6).whitened(result), kept


def test_draws_have_their_law_and_lie_on_its_lattice():
    law = Gaussian(MEAN, FACTOR, 0.7, 5, 1)
    drawn = law.draw(randomness().noise, RUNS)
    assert smallest_p(law.whitened(drawn)) > 0.01
    assert not drawn[:, [0, 4]].any()
    assert all(law.holds(row) for row in drawn[:100])
    assert not law.holds(drawn[0] + 2.0**-60)
    assert not law.holds(drawn[0] + np.eye(5)[0])


def test_log_densities_are_those_of_scipy_up_to_a_constant():
    one, other = Gaussian(MEAN, FACTOR, 0.7), Gaussian(OTHER_MEAN, OTHER_FACTOR, 0.6)
    points = MEAN + np.random.default_rng(0).normal(size=(5, 3))
    expected = stats.multivariate_normal(OTHER_MEAN, 0.36 * np.linalg.inv(OTHER_FACTOR @ OTHER_FACTOR.T)).logpdf(points)
    expected -= stats.multivariate_normal(MEAN, 0.49 * np.linalg.inv(FACTOR @ FACTOR.T)).logpdf(points)
    assert np.allclose(other.log_density(points) - one.log_density(points), expected)


def test_the_coupling_turns_draws_of_one_law_into_draws_of_the_other():
    assert smallest_p(coupled()[0]) > 0.01


def test_the_coupling_keeps_as_many_as_any_could():
    one, other = Gaussian(MEAN, FACTOR, 0.6), Gaussian(OTHER_MEAN, OTHER_FACTOR, 0.6)
    drawn = other.draw(randomness(5).noise, RUNS)
    common = np.exp(np.minimum(0.0, one.log_density(drawn) - other.log_density(drawn))).mean()
    assert coupled()[1].mean() == pytest.approx(common, abs=0.015)


def test_a_ratio_without_the_determinant_is_caught():
    assert smallest_p(coupled(WithoutDeterminant)[0]) < 1e-6


def test_a_fresh_draw_instead_of_what_is_due_is_caught():
    assert smallest_p(coupled(draw_due=lambda one, other, given: other.draw(given.noise)[0])[0]) < 1e-6


@pytest.mark.parametrize(("kind", "caught"), [(Gaussian, False), (RoundedAtTheEnd, True)])
def test_rounding_the_finished_vector_beside_equal_columns_is_caught(kind, caught):
    """Coordinates that nearly cancel: each is known to 2⁻¹² of its own spread, their sum must be known far better."""
    nearly = np.linalg.cholesky(np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-36]]))
    with patched_everywhere("expunge.base.grid.FINENESS", 12):
        law = kind(np.array([3.0, -3.0]), nearly, 0.5)
        p = smallest_p(law.whitened(law.draw(randomness().noise, RUNS)))
    assert p < 1e-6 if caught else p > 0.01


def test_points_are_kept_only_where_they_are_the_same():
    one, same, other = (Point(np.array(value)) for value in ([1.0, 2.0], [1.0, 2.0], [1.0, 2.5]))
    assert kept_share(one, same, one.value) == 1.0
    assert kept_share(one, other, one.value) == 0.0
    assert np.array_equal(due(one, other, randomness()), other.value)
    assert other.holds(other.value)
    assert not other.holds(one.value)


def test_another_lattice_takes_the_first_draw():
    one, coarse = Gaussian(MEAN, FACTOR, 0.7), Gaussian(MEAN, FACTOR, 0.7 * 2.0**8)
    assert kept_share(one, coarse, MEAN) == 0.0
    assert np.array_equal(due(one, coarse, randomness()), coarse.draw(randomness().noise)[0])
