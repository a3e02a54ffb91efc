"""Where sums and noise meet: multiples of one unit, and nothing that is added is rounded."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cases.toys import people, toy
from expunge import (
    Arrival,
    BinaryTree,
    Delete,
    Everyone,
    Identity,
    Insert,
    PerRecord,
    Replace,
    Scattered,
    Shuffled,
    SquareRoot,
    learn,
    unlearn,
    verify,
)
from expunge.base.errors import BadContribution, BadPlan
from expunge.base.grid import FINENESS, dithered
from expunge.engine.accounting import least_rho, noise_for, rounding_error, worst_case_rho
from expunge.engine.changing import change
from expunge.engine.couplings.common import NoiseGrid, Sums, rounded
from expunge.engine.mechanisms.noise import draw_noise
from expunge.engine.randomness import Randomness

LEARNERS = [
    toy(Scattered(4)),
    toy(Scattered(2, epochs=2), BinaryTree()),
    toy(Shuffled(2)),
    toy(Shuffled(1), BinaryTree("anytime"), "sequential"),
    toy(Arrival(3), BinaryTree((0.3, 2.0))),
    toy(Everyone(3), Identity(), "sequential"),
    toy(Everyone(3, 0.5), Identity(), "adaptive"),
    toy(Everyone(2), SquareRoot()),
    toy(Scattered(3), Identity(), "adaptive"),
]
each_learner = pytest.mark.parametrize(
    "learner", LEARNERS, ids=lambda one: f"{one.schedule} {one.mechanism} {one.coupling}"
)


def is_multiple(numbers, unit):
    return not np.fmod(numbers, unit).any()


@each_learner
def test_answers_are_multiples_of_the_unit_through_any_history(learner):
    rng, records = np.random.default_rng(0), people(12)
    transcript = learn(learner, records, rng)
    requests = [Delete([3]), Insert((rng.normal(size=(5, 2)),)), Replace((np.ones((1, 2)),), [4]), Delete([0, 1, 5])]
    for request in [None, *requests, *(Delete([one]) for one in (6, 7, 8, 9, 10, 11))]:
        if request is not None:
            change(learner, records, transcript, request, rng).commit()
        assert is_multiple(transcript.answers[:], learner.grid.unit)
        assert learner.grid.exact or is_multiple(transcript.sums[:], learner.grid.unit)
        assert verify(learner, records, transcript).ok


@each_learner
def test_the_noise_is_got_back_from_answers_and_sums_without_error(learner):
    records = people(12)
    transcript = learn(learner, records, np.random.default_rng(0))
    sums, answers = learner.grid.met(transcript.sums[:]), transcript.answers[:]
    noise = answers - (np.cumsum(sums, axis=0) if learner.mechanism.prefix else sums)
    exact = np.array([[math.fsum(column) for column in sums[: row + 1].T] for row in range(len(sums))])
    assert np.array_equal((exact if learner.mechanism.prefix else sums) + noise, answers)
    assert is_multiple(noise, learner.grid.unit)


def test_verify_names_an_answer_that_is_off_the_grid():
    learner, records = toy(Scattered(4)), people(12)
    transcript = learn(learner, records, np.random.default_rng(0))
    answers = transcript.answers[:].copy()
    answers[2, 1] += 0.25 * learner.grid.unit
    transcript.answers.write(2, answers[2:3])
    assert any(
        "row 2, column 1 is not on the grid" in problem for problem in verify(learner, records, transcript).problems
    )


@pytest.mark.parametrize(
    "learner", [toy(Scattered(3)), toy(Scattered(2, epochs=2)), toy(Shuffled(2))], ids=lambda one: f"{one.schedule}"
)
@pytest.mark.parametrize(
    "request_", [Delete([2]), Delete([0, 5, 6]), Insert((np.ones((3, 2)),)), Replace((np.ones((1, 2)),), [4])]
)
def test_a_step_can_be_summed_as_it_was_before_the_edit_to_the_last_bit(learner, request_):
    """That is asked for along a new path, after the records have been changed in their places."""
    rng, records = np.random.default_rng(1), people(12)
    transcript = learn(learner, records, rng)
    steps, path = transcript.steps, transcript.path
    before = [Sums(records, learner).total(step, path) for step in range(steps)]
    records.stage(records.edit(learner.schedule, request_, Randomness.of(rng)))
    for started in (False, True):
        after = [
            records.before(learner.schedule.place(s), s, path, learner.query, learner.participation)
            for s in range(steps)
        ]
        assert [learner.grid.kept(total.sum).tobytes() for total in after] == [one.tobytes() for one in before]
        if not started:
            Sums(records, learner).total(0, path)  # from here on the edit is done
    records.rollback()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.integers(-30, 10))
def test_rounding_goes_to_the_nearest_multiple_and_has_one_zero(numbers, exponent):
    unit, given_ = 2.0**exponent, np.array(numbers)
    found = rounded(given_, unit)
    assert is_multiple(found, unit)
    assert (np.abs(found - given_) <= 0.5 * unit).all()
    assert not np.signbit(found[found == 0.0]).any()
    assert np.array_equal(rounded(found, unit), found)


def test_rounding_at_random_keeps_the_mean_and_favours_no_multiple():
    rng = np.random.default_rng(2)
    found = dithered(np.full(100_000, 0.3), 1.0, rng)
    assert set(found.tolist()) == {0.0, 1.0}
    assert stats.binomtest(int(found.sum()), len(found), 0.3).pvalue > 1e-3
    halves = dithered(np.repeat([0.5, 1.5], 50_000), 1.0, rng) % 2  # to the nearest, all of these would become even
    assert stats.binomtest(int(halves.sum()), len(halves), 0.5).pvalue > 1e-3


@pytest.mark.parametrize("mechanism", [SquareRoot(), BinaryTree(), BinaryTree("anytime"), Identity()], ids=str)
def test_the_noise_that_is_drawn_is_as_close_to_its_law_as_the_plan_says(mechanism):
    """The constant in the bound, from the matrix itself; it counts twice in `rounding_error`."""
    steps, size, unit = 512, 3, 2.0**-FINENESS
    whiten = mechanism.whiten(np.eye(steps)) / mechanism.scales(steps)[:, None]
    products = whiten @ whiten.T
    bound = unit**2 / 12 / math.sqrt(2) * math.sqrt(size * (products**2).sum())
    assert 2.0 * bound <= rounding_error(steps, size) - 5e-10


def test_on_a_coarse_grid_the_noise_that_is_drawn_is_off_by_about_as_much_as_the_bound_says():
    """One number, unit σ/2: the law of what is drawn, by integration, against the Gaussian on the grid."""
    unit, k = 0.5, np.arange(-40, 41)
    right = np.exp(-0.5 * (k * unit) ** 2)
    right /= right.sum()
    fine = (np.arange(-2000, 2001) + 0.5) / 2000
    weights = (1 - np.abs(fine)) / (1 - np.abs(fine)).sum()
    drawn = np.array([weights @ np.exp(-0.5 * (unit * (one + fine)) ** 2) for one in k])
    apart = 0.5 * np.abs(drawn / drawn.sum() - right).sum()
    assert 0.5 < apart / (0.059 * unit**2) < 1.0
    seen = draw_noise(Identity(), 1, 100_000, 1.0, unit, np.random.default_rng(3)).ravel()
    counts = np.array([(seen == one * unit).sum() for one in k])
    often = drawn / drawn.sum() * len(seen) > 5
    expected = (drawn / drawn.sum())[often]
    assert stats.chisquare(counts[often], expected * counts[often].sum() / expected.sum()).pvalue > 1e-3


def test_without_noise_there_is_no_grid():
    grid = NoiseGrid.of(0.0, exact=False)
    odd = np.array([1 / 3, -0.1])
    assert grid.unit == 0.0
    assert grid.kept(odd) is odd
    assert toy(sigma=0.0).rounding_error(100) == 0.0
    assert toy(sigma=1.0).rounding_error(100) < 1e-9


def test_sums_too_large_beside_the_noise_are_refused_before_anything_is_done():
    learner, records = toy(sigma=1e-6), people(40)
    with pytest.raises(BadPlan, match="too large compared with noise of 1e-09"):
        learn(toy(sigma=1e-9), people(40), np.random.default_rng(0))
    transcript = learn(learner, records, np.random.default_rng(0))
    with pytest.raises(BadPlan, match="Use a smaller rho, or rho=1"):
        change(learner, records, transcript, Insert((np.ones((400, 2)),)), np.random.default_rng(0))
    assert unlearn(learner, records, transcript, [3], rng=np.random.default_rng(0)).removed == 1


def test_noise_too_uneven_for_one_grid_is_refused():
    learn(toy(Scattered(8), BinaryTree((1.0, 2.0**20))), people(9), np.random.default_rng(0))
    with pytest.raises(BadPlan, match="too uneven for one grid"):
        learn(toy(Scattered(8), BinaryTree((1.0, 2.0**26))), people(9), np.random.default_rng(0))


@pytest.mark.parametrize("sigma", [1e-165, 1e155])
def test_noise_whose_squares_overflow_or_vanish_is_refused(sigma):
    with pytest.raises(BadPlan, match="overflow or vanish"):
        toy(sigma=sigma)


def test_contributions_so_large_that_sums_leave_the_grid_are_refused():
    query = PerRecord(lambda step, path, x: np.full(2, -1.5 * 2.0**27), size=2, bound=1.0)
    with pytest.raises(BadContribution, match=r"far above query\.bound=1"):
        learn(toy(Scattered(1), sigma=1.0, query=query), people(1), np.random.default_rng(0))


def test_rho_cannot_be_so_small_that_rounding_counts_for_more_than_a_record():
    given_ = {"coupling": "joint", "size": 10**6}
    least = least_rho(Scattered(64), SquareRoot(), **given_)
    with pytest.raises(BadPlan, match="with 1000000 numbers per contribution, give at least"):
        noise_for(0.9 * least, Scattered(64), SquareRoot(), bound=1.0, **given_)
    sigma = noise_for(least, Scattered(64), SquareRoot(), bound=1.0, **given_)
    assert worst_case_rho(sigma, Scattered(64), SquareRoot(), bound=1.0, **given_) == pytest.approx(least)
