"""Lloyd's algorithm as a rule: centres from noisy sums and counts, and from nothing else."""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from sklearn.cluster import KMeans

from expunge.base.grid import on_grid
from expunge.engine.transcript import Path
from expunge.solvers.extents import Extent
from expunge.solvers.lloyd import ClusterMoments, LloydRule
from expunge.solvers.plans.clusters import make_cluster_plan


def rule(seeds, clusters=2, rounds=4, explore=2, sigma=0.0, extent=None):
    """A rule on the line from -1 to 1, if nothing else is said."""
    seeds = np.atleast_2d(np.asarray(seeds, dtype=float).T).T
    extent = extent or Extent(np.zeros(seeds.shape[1]), 1.0)
    query = ClusterMoments(extent, (len(seeds),) * explore + (clusters,) * (rounds - explore), weight=0.5)
    return LloydRule(query.prepare((seeds,))[0], query, clusters, explore, sigma, seed=3)


def path(rule, centers=None):
    start = rule.start if centers is None else filled(rule, centers)
    return Path(start, None, 0)


def filled(rule, centers):
    """An iterate with these centres first."""
    iterate = np.zeros_like(rule.seeds)
    iterate[: len(centers)] = np.reshape(centers, (len(centers), -1))
    return rule.query.prepare((iterate,))[0].ravel()


def answer(rule, sums, counts):
    """Sums and counts as they are answered, without noise."""
    table = np.zeros((len(rule.seeds), rule.query.features + 1))
    table[: len(counts), :-1] = np.reshape(sums, (len(counts), -1))
    table[: len(counts), -1] = rule.query.weight * np.asarray(counts)
    return table.ravel()


def step(rule, number, answered, before=None):
    return rule.step(number, path(rule, before), answered).reshape(rule.seeds.shape)


# --- explore --------------------------------------------------------------------------------------------


def test_a_live_centre_moves_to_the_mean_of_its_points():
    one = rule([-0.5, 0.5])
    found = step(one, 0, answer(one, [-7.5, 2.5], [10, 10]))
    np.testing.assert_allclose(np.sort(found[:2, 0]), [-0.75, 0.25], atol=1e-6)


def test_dead_centres_split_those_with_the_most_points():
    one = rule([-0.9, -0.5, 0.0, 0.5, 0.9], clusters=1)
    found = step(one, 0, answer(one, [0.0, -50.0, 0.0, 2.0, 0.0], [0, 100, 0, 4, 0]))
    near = np.abs(found[:, 0] + 0.5) <= one.APART + 1e-6
    assert np.count_nonzero(near) == 4
    assert np.abs(found[~near, 0] - 0.5) < 1e-6
    assert set(np.sign(found[near, 0] + 0.5)) == {-1.0, 1.0}  # they lie on both sides


def test_a_centre_is_not_split_into_parts_that_noise_would_hide():
    one = rule([-0.9, -0.5, 0.0, 0.5], clusters=1, sigma=4.0)  # a part must have 4/0.1 points, or half of all
    few = step(one, 0, answer(one, [0.0, -30.0, 0.0, 30.0], [0, 60, 0, 60]))
    assert len(np.unique(few)) == 2
    many = step(one, 0, answer(one, [0.0, -90.0, 0.0, 90.0], [0, 180, 0, 180]))
    assert len(np.unique(many)) == 4


def test_a_count_within_the_noise_is_taken_for_zero():
    one = rule([-0.5, 0.5], sigma=1.0)  # counts have a standard deviation of 2
    found = step(one, 0, answer(one, [-0.9 * 100, 0.9 * 5.9], [100, 5.9]))
    assert not (found > 0).any()
    found = step(one, 0, answer(one, [-0.9 * 100, 0.9 * 6.1], [100, 6.1]))
    assert np.abs(found - 0.9).min() < 1e-6


def test_if_no_count_stands_out_the_centres_stay():
    for number in range(4):
        one = rule([-0.5, 0.1, 0.5], sigma=1.0)
        assert np.array_equal(step(one, number, answer(one, [9.0, 9.0, 9.0], [-7, 0, 5]))[:2], one.seeds[:2])


# --- merge ----------------------------------------------------------------------------------------------


def test_live_centres_are_merged_by_their_counts():
    one = rule([-0.9, -0.8, 0.0, 0.8, 0.9])
    counts = np.array([10, 30, 0, 30, 30])
    found = step(one, 1, answer(one, counts * one.seeds[:, 0], counts))
    np.testing.assert_allclose(np.sort(found[:2, 0]), [-0.825, 0.85], atol=1e-6)


def test_if_fewer_are_live_than_there_are_clusters_the_largest_is_split():
    one = rule([-0.9, -0.8, 0.0, 0.8, 0.9], clusters=3)
    found = step(one, 1, answer(one, [-20.0, 0, 0, 0, 9.0], [25, 0, 0, 0, 10]))
    assert np.count_nonzero(np.abs(found[:3, 0] + 0.8) < 2 * one.APART) == 2
    assert len(np.unique(found[:3])) == 3


def test_means_that_coincide_are_merged_without_a_word():
    one = rule(np.linspace(-1, 1, 6), clusters=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = step(one, 1, answer(one, [1e9, -1e9] * 3, [50] * 6))
    np.testing.assert_allclose(np.abs(found), 1.0, atol=1e-6)
    assert {-1.0, 1.0} == set(np.sign(found[:3, 0]))


def test_merging_costs_hardly_more_than_scikit_learns_best():
    rng = np.random.default_rng(4)
    truth = rng.uniform(-0.5, 0.5, size=(5, 3))
    one = rule(truth[rng.integers(5, size=80)] + 0.05 * rng.normal(size=(80, 3)), clusters=5)
    counts = rng.uniform(1, 100, size=80)
    found = step(one, 1, answer(one, one.seeds * counts[:, None], counts))[:5]
    theirs = KMeans(5, n_init=10, random_state=0).fit(one.seeds, sample_weight=counts)
    apart = np.linalg.norm(one.seeds[:, None] - found, axis=2).min(axis=1)
    assert counts @ apart**2 < 1.05 * theirs.inertia_


# --- refine ---------------------------------------------------------------------------------------------


def test_the_first_refinement_takes_the_means_as_they_are():
    one = rule([-0.5, 0.5], sigma=100.0)
    found = step(one, 2, answer(one, [-750.0, 750.0], [1000, 1000]), [-0.5, 0.5])
    np.testing.assert_allclose(found[:2, 0], [-0.75, 0.75], atol=1e-6)


def test_a_later_one_averages_where_noise_explains_the_move_and_only_there():
    one = rule([-0.5, 0.5], sigma=10.0, rounds=5)  # the mean of 1,000 points is off by 0.01
    found = step(one, 3, answer(one, [-512.0, 600.0], [1000, 1000]), [-0.5, 0.5])
    np.testing.assert_allclose(found[:2, 0], [-0.506, 0.6], atol=1e-6)
    found = step(one, 4, answer(one, [-512.0, 600.0], [1000, 1000]), [-0.5, 0.5])
    np.testing.assert_allclose(found[:2, 0], [-0.504, 0.6], atol=1e-6)


def test_without_noise_nothing_is_averaged():
    one = rule([-0.5, 0.5])
    found = step(one, 3, answer(one, [-501.0, 500.0], [1000, 1000]), [-0.5, 0.5])
    np.testing.assert_allclose(found[:2, 0], [-0.501, 0.5], atol=1e-6)


def test_a_centre_that_has_lost_its_points_stays_where_it_was():
    one = rule([-0.5, 0.5])
    for number in (2, 3):
        found = step(one, number, answer(one, [0.0, 60.0], [0, 100]), [-0.5, 0.5])
        np.testing.assert_allclose(found[:2, 0], [-0.5, 0.6], atol=1e-6)


# --- whatever the answers are -----------------------------------------------------------------------------

numbers = st.floats(-1e100, 1e100) | st.floats(-100, 100) | st.sampled_from([0.0, -0.0, 1e-300, -1e-300])
BOX = {"low": [-1.0, 3.0], "high": [2.0, 3.5]}


@settings(max_examples=80, deadline=None)
@given(data=st.data(), region=st.sampled_from([{"radius": 2.0}, {"radius": 1e-30}, BOX]),
       clusters=st.integers(1, 4), rounds=st.integers(2, 5), rho=st.sampled_from([1.0, 0.3]))  # fmt: skip
def test_centres_are_numbers_of_the_grid_inside_the_region_whatever_the_answers(data, region, clusters, rounds, rho):
    plan = make_cluster_plan(clusters, 2, 100, **region, rho=rho, rounds=rounds, seeds=clusters + 3)
    rule, query = plan.learner.rule, plan.query
    seen = [rule.start]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(rounds):
            answered = data.draw(some.arrays(float, query.size, elements=numbers))
            earlier = Path(seen[0], np.array(seen[1:]).reshape(number, rule.start.size), number)
            iterate = rule.step(number, earlier, answered)
            assert iterate.shape == rule.start.shape
            assert np.isfinite(iterate).all()
            assert np.array_equal(on_grid(iterate, query.unit), iterate)
            centers = iterate.reshape(-1, 2)
            np.testing.assert_allclose(plan.extent.inside(centers), centers, rtol=1e-12)
            assert rule.step(number, earlier, answered.copy()).tobytes() == iterate.tobytes()
            seen.append(iterate)


def test_the_next_centres_follow_from_answers_and_centres_alone():
    """A rule that was made anew, in another process say, takes the same steps."""
    rng = np.random.default_rng(0)
    for number in range(6):
        made = [make_cluster_plan(5, 3, 1000, radius=1.0, rho=0.4, seed=7).learner.rule for _ in range(2)]
        answered = rng.normal(100, 200, size=made[0].query.size)
        one, other = (rule.step(number, path(rule), answered) for rule in made)
        assert one.tobytes() == other.tobytes()
    elsewhere = make_cluster_plan(5, 3, 1000, radius=1.0, rho=0.4, seed=8).learner.rule
    assert not np.array_equal(elsewhere.start, made[0].start)


def test_rows_beyond_the_centres_found_are_copies_of_the_first_and_get_no_points():
    one = rule([-0.9, -0.5, 0.0, 0.5, 0.9])
    found = step(one, 1, answer(one, [-9.0, 0, 0, 0, 9.0], [10, 0, 0, 0, 10]))
    assert (found[2:] == found[0]).all()
    points = np.linspace(-1, 1, 50)[:, None]
    assert one.query.nearest(1, Path(found.ravel(), None, 0), points).max() <= 1
