"""k-means from a keyed sample: whoever is outside the sample leaves without a trace, to the last bit."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases.patching import patched_everywhere
from expunge.base.errors import BadPlan, BadRecords
from expunge.solvers.keyed_kmeans import Cells, centers_of, fit
from expunge.solvers.keyed_sample import (
    MOST,
    SHARES,
    KeyedClusters,
    Stage,
    keyed_clusters,
    next_stage,
    structure,
    weighted,
)
from expunge.solvers.slices import EXACT_TO


def problem(count, columns, seed):
    """Points of several kinds in one table: blobs, copies, far ones, columns of other sizes, keys that several have."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, columns)) + 5.0 * rng.integers(3, size=(count, 1))
    X *= 10.0 ** rng.integers(-3, 5, size=columns)
    far = rng.random(count) < 0.02
    X[far] *= 1000.0
    copies = rng.random(count) < 0.2
    X[copies] = X[rng.integers(count, size=int(copies.sum()))]
    X[rng.random(X.shape) < 0.05] = rng.choice([0.0, -0.0])
    keys = rng.integers(2**64, size=count, dtype=np.uint64)
    return X, np.where(rng.random(count) < 0.1, keys[rng.integers(count, size=count)], keys)


def state(found):
    """Everything that is kept beside the records, as bytes; who is sampled, in the records' order, is left to tests."""
    stages = [(stage.number, stage.rate, stage.spread, stage.centers.tobytes()) for stage in found.stages]
    cells = found.cells
    model = centers_of(cells, found.sums)
    return stages, cells.centers.tobytes(), cells.seeds.tobytes(), found.sums.tobytes(), model.tobytes()


def left(found, X, who):
    """The state after these have been taken out of the sums, one by one, and nothing else has been done."""
    sums = found.sums.copy()
    for number in who:
        cell, row = found.cells.one(X[number])
        sums[cell] -= row
    return found._replace(sums=sums)


SIZES = (st.integers(1, 400), st.integers(1, 12), st.integers(1, 7), st.sampled_from([0.02, 0.2, 1.0]))
SEEDS = st.integers(0, 2**32)


@settings(max_examples=60, deadline=None)
@given(*SIZES, SEEDS)
def test_whoever_is_outside_the_sample_leaves_what_a_fresh_fit_without_them_finds(count, columns, clusters, rho, seed):
    X, keys = problem(count, columns, seed)
    plan = keyed_clusters(clusters, columns, count, rho, seed=seed)
    found = fit(plan, keys, X)
    rng = np.random.default_rng(seed)
    outside = np.flatnonzero(~found.sampled)
    gone = rng.permutation(outside)[: rng.integers(len(outside) + 1)]
    fresh = fit(plan, np.delete(keys, gone), np.delete(X, gone, axis=0))
    assert state(left(found, X, gone)) == state(fresh)
    assert (fresh.sampled == np.delete(found.sampled, gone)).all()
    back = left(found, X, gone).sums + found.cells.total(X[gone])  # and come back, in bulk
    assert back.tobytes() == found.sums.tobytes()


@settings(max_examples=40, deadline=None)
@given(*SIZES, SEEDS)
def test_neither_the_order_of_records_nor_their_layout_makes_a_difference(count, columns, clusters, rho, seed):
    X, keys = problem(count, columns, seed)
    plan = keyed_clusters(clusters, columns, count, rho, seed=seed)
    order = np.random.default_rng(seed).permutation(count)
    found, other = fit(plan, keys, X), fit(plan, keys[order], np.asfortranarray(X[order]))
    assert state(found) == state(other)
    assert (found.sampled[order] == other.sampled).all()


@settings(max_examples=40, deadline=None)
@given(*SIZES, SEEDS, st.data())
def test_who_joins_and_what_is_summed_is_the_same_one_by_one_in_parts_and_in_bulk(
    count, columns, clusters, rho, seed, data
):
    X, keys = problem(count, columns, seed)
    found = fit(keyed_clusters(clusters, columns, count, rho, seed=seed), keys, X)
    cells, cut = found.cells, data.draw(st.integers(0, count))
    assert (cells.total(X[:cut]) + cells.total(X[cut:])).tobytes() == found.sums.tobytes()
    each, where = cells.contributions(X), cells.cell(X)
    summed = np.zeros_like(found.sums)
    np.add.at(summed, where, each)
    assert summed.tobytes() == found.sums.tobytes()
    for number in range(min(count, 40)):
        cell, row = cells.one(X[number])
        assert cell == where[number] == cells.cell(X[number : number + 1])[0]
        assert row.tobytes() == each[number].tobytes()
        alone = [stage.joins(keys[[number]], X[[number]]).item() for stage in found.stages]
        assert any(alone) == found.sampled[number]


def test_sums_are_those_of_whole_numbers_at_all_sizes():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 2)) * 2.0 ** rng.integers(-45, 41, size=(3000, 2))
    X[0], X[1] = 2.0**40, -(2.0**40)
    cells = Cells(keyed_clusters(1, 2, 3000, 0.1), np.zeros((1, 2)), np.array([[-1.0, 0.0], [1.0, 0.0]]))
    units = cells._slices.units.ravel()
    each = cells.contributions(X)[:, 1:].reshape(-1, len(units), 2)
    assert (each % units[:, None] == 0).all()
    assert (np.abs(each) <= 2.0**20 * units[:, None]).all()
    assert EXACT_TO * 2**20 <= 2**53
    rounded = [[round(value / units[-1]) for value in row] for row in X.tolist()]  # exact: a power of two
    joined = [[sum(int(value / units[-1]) for value in column) for column in row.T] for row in each]
    assert joined == rounded
    counted = cells.total(X)
    assert counted[:, 0].sum() == 3000


def test_a_large_sample_with_as_many_seeds_as_may_be_and_several_blocks():
    X, keys = problem(70_000, 3, 11)
    plan = keyed_clusters(5, 3, len(X), 0.05)
    found = fit(plan, keys, X)
    assert len(found.cells.seeds) == plan.seeds == 256
    gone = np.flatnonzero(~found.sampled)[::70]
    order = np.random.default_rng(0).permutation(np.delete(np.arange(len(X)), gone))
    assert state(left(found, X, gone)) == state(fit(plan, keys[order], X[order]))


# --- mistakes that these tests must catch ---


def test_sums_in_plain_floating_point_are_caught():
    X, keys = problem(300, 3, 5)
    plan = keyed_clusters(3, 3, 300, 0.1)
    found = fit(plan, keys, X)
    gone = np.flatnonzero(~found.sampled)[:40]

    def plain(rows):
        sums, cells = np.zeros((found.cells.number, 3)), found.cells.cell(rows)
        np.add.at(sums, cells, rows)
        return sums

    sums = plain(X)
    for number in gone:
        sums[found.cells.one(X[number])[0]] -= X[number]
    assert sums.tobytes() != plain(np.delete(X, gone, axis=0)).tobytes()


def test_seeds_from_all_records_are_caught():
    X, keys = problem(600, 3, 5)
    plan = keyed_clusters(3, 3, 600, 0.1)

    def of_everyone(plan, stages, *_):
        centers, seeds = structure(*weighted(stages, keys, X), 3, plan.seeds, (plan.seed, 3))
        return Cells(plan, centers, seeds)

    with patched_everywhere("expunge.solvers.keyed_kmeans.cells_of", of_everyone):
        found = fit(plan, keys, X)
        gone = np.flatnonzero(~found.sampled)[:1]
        keep = np.delete(np.arange(600), gone)
        before, (X, keys) = X, (X[keep], keys[keep])
        assert state(left(found, before, gone)) != state(fit(plan, keys, X))


def test_a_spread_of_all_records_is_caught():
    X, keys = problem(600, 3, 5)
    plan = keyed_clusters(3, 3, 600, 0.1)

    def of_everyone(*given):
        stage = next_stage(*given)
        return Stage(stage.number, stage.rate, stage.centers, float(X.var()))

    with patched_everywhere("expunge.solvers.keyed_sample.next_stage", of_everyone):
        found = fit(plan, keys, X)
        gone = np.flatnonzero(~found.sampled)[:1]
        keep = np.delete(np.arange(600), gone)
        before, (X, keys) = X, (X[keep], keys[keep])
        assert state(left(found, before, gone)) != state(fit(plan, keys, X))


def test_a_sample_in_the_order_of_the_records_is_caught():
    X, keys = problem(600, 3, 5)
    plan = keyed_clusters(3, 3, 600, 0.3)

    def as_they_lie(stages, keys, points):
        missed = np.prod([1.0 - stage.chances(points) for stage in stages], axis=0)
        return points, 1.0 / (1.0 - missed)

    with patched_everywhere("expunge.solvers.keyed_sample.weighted", as_they_lie):
        assert state(fit(plan, keys, X)) != state(fit(plan, keys[::-1], X[::-1]))


# --- how many join ---


def test_about_as_many_join_as_planned_and_far_ones_are_likelier():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40_000, 4)) + 6.0 * rng.integers(5, size=(40_000, 1))
    X[:200] += 1000.0 * rng.normal(size=(200, 4))
    found = fit(keyed_clusters(5, 4, 40_000, 0.02), rng.integers(2**64, size=40_000, dtype=np.uint64), X)
    assert 0.012 < found.sampled[200:].mean() < 0.024
    assert 0.1 < found.sampled[:200].mean() < 0.4


def test_three_numbers_of_a_key_are_independent_and_uniform():
    keys = np.random.default_rng(2).integers(2**64, size=100_000, dtype=np.uint64)
    nowhere = np.zeros((0, 1))
    joined = [Stage(number, 0.3, nowhere, 0.0).joins(keys, np.zeros((100_000, 1))) for number in range(3)]
    for one in range(3):
        assert abs(joined[one].mean() - 0.3) < 0.006  # four standard deviations
        for other in range(one):
            assert abs((joined[one] & joined[other]).mean() - 0.09) < 0.004


def test_no_one_joins_with_more_than_a_half_in_one_stage():
    stage = Stage(1, 0.3, np.zeros((1, 1)), 1.0)
    assert stage.chances(np.array([[1.0], [100.0]])).tolist() == [0.3, MOST]
    assert sum(SHARES) == 1.0


# --- edges ---


KEYS = np.random.default_rng(3).integers(2**64, size=200, dtype=np.uint64)


def whole(plan, X):
    found = fit(plan, KEYS[: len(X)], X)
    centers = centers_of(found.cells, found.sums)
    assert centers.shape == (plan.clusters, plan.features)
    assert np.isfinite(centers).all()
    assert found.sums[:, 0].sum() == len(X)
    return found, centers


@pytest.mark.parametrize("rho", [1e-300, 0.05, 1.0])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_records_or_none(count, rho):
    X = np.arange(2.0 * count).reshape(count, 2)
    _, centers = whole(keyed_clusters(3, 2, 5, rho), X)
    assert (centers >= 0.0).all()
    assert (centers <= max(0.0, X.max(initial=0.0))).all()


def test_one_record_is_the_centre():
    assert (whole(keyed_clusters(3, 2, 1, 0.05), np.array([[3.0, -7.5]]))[1] == [3.0, -7.5]).all()


def test_nobody_in_the_sample_gives_the_mean():
    X = np.random.default_rng(0).integers(9, size=(64, 3)) * 1.0
    found, centers = whole(keyed_clusters(4, 3, 64, 1e-9), X)
    assert not found.sampled.any()
    assert (centers == X.mean(axis=0)).all()


def test_fewer_distinct_points_than_clusters():
    X = np.repeat([[1.0, 2.0], [5.0, -1.0]], 50, axis=0)
    for rho in (0.1, 1.0):
        _, centers = whole(keyed_clusters(6, 2, 100, rho), X)
        assert {tuple(row) for row in centers.tolist()} == {(1.0, 2.0), (5.0, -1.0)}


def test_all_records_deleted_is_a_fit_of_none():
    X, keys = problem(50, 2, 0)
    plan = keyed_clusters(3, 2, 50, 1e-9)
    found = fit(plan, keys, X)
    assert state(left(found, X, range(50))) == state(fit(plan, keys[:0], X[:0]))


def test_cells_may_become_empty():
    X, keys = np.random.default_rng(0).normal(size=(200, 5)), KEYS
    plan = keyed_clusters(6, 5, 200, 0.1)
    found = fit(plan, keys, X)
    outside = np.flatnonzero(~found.sampled)
    after = left(found, X, outside)
    assert ((after.sums[:, 0] == 0) & (found.sums[:, 0] > 0)).any()
    assert state(after) == state(fit(plan, keys[found.sampled], X[found.sampled]))


@pytest.mark.parametrize("bad", [1e300, -1e300, np.inf, -np.inf, np.nan])
def test_numbers_that_cannot_be_summed_exactly_are_refused(bad):
    X = np.zeros((5, 2))
    X[3, 1] = bad
    with pytest.raises(BadRecords, match="a number in column 1 is"):
        fit(keyed_clusters(2, 2, 5, 0.5), KEYS[:5], X)


@pytest.mark.parametrize("size", [1e-300, 1e-50, 1e-9, 1e9, 1e50])
def test_columns_of_any_size_with_a_bound_to_match(size):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(place, 0.1, size=(60, 2)) for place in (-5.0, 0.0, 5.0)]) * size
    bound = min(max(10.0 * size, 2.0**-200), 2.0**200)
    _, centers = whole(keyed_clusters(3, 2, 180, 0.5, bound=bound), X)
    if size >= 1e-50:
        assert np.allclose(np.sort(centers[:, 0]) / size, [-5.0, 0.0, 5.0], atol=0.1)


def test_one_column_a_ten_thousandfold():
    X, keys = problem(500, 4, 3)
    X[:, 1] *= 1e4
    plan = keyed_clusters(4, 4, 500, 0.1)
    found = fit(plan, keys, X)
    gone = np.flatnonzero(~found.sampled)[::7]
    assert state(left(found, X, gone)) == state(fit(plan, np.delete(keys, gone), np.delete(X, gone, axis=0)))


def test_records_of_another_width_are_refused():
    with pytest.raises(BadRecords, match="2 features"):
        fit(keyed_clusters(2, 2, 5, 0.5), KEYS[:5], np.zeros((5, 3)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rho": 0.0}, "rho"), ({"rho": "auto"}, "rho"), ({"rho": 1.5}, "rho"), ({"clusters": 0}, "clusters"),
        ({"features": 0}, "features"), ({"seeds": 257}, "seeds"), ({"seeds": 0}, "seeds"), ({"bound": 0.0}, "bound"),
        ({"bound": np.inf}, "bound"), ({"bound": np.nan}, "bound"),
    ],
)  # fmt: skip
def test_settings_are_checked(changes, said):
    with pytest.raises(BadPlan, match=said):
        KeyedClusters(**{"clusters": 2, "features": 2, "rho": 0.1, **changes})


def test_settings_depend_on_the_number_of_records_by_its_power_of_two_only():
    assert keyed_clusters(3, 2, 1025) == keyed_clusters(3, 2, 2048)
    assert keyed_clusters(3, 2, 1025, 0.1) == keyed_clusters(3, 2, 10**6, 0.1)
    assert {field.name for field in fields(KeyedClusters)} == {
        "clusters", "features", "rho", "seeds", "bound", "seed",
    }  # fmt: skip
