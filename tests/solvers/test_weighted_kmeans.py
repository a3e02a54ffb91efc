"""k-means of weighted points: distances and labels have the same bits in any company, and the result is a good one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from cases.patching import patched_everywhere
from expunge.solvers import weighted_kmeans
from expunge.solvers.weighted_kmeans import (
    best,
    clustered,
    distances,
    grouped,
    inertias,
    nearest,
    nearest_each,
    settled,
    spread,
    to_own,
    uniforms,
)  # fmt: skip


def points(count, columns, seed, close=False):
    """Points of many sizes; if ``close``, on a lattice far from 0, where many centres are equally near."""
    rng = np.random.default_rng(seed)
    if close:
        return rng.integers(-2, 3, size=(count, columns)) * 0.1 + 1e6
    return rng.normal(size=(count, columns)) * 10.0 ** rng.integers(-3, 4, size=(count, columns))


def by_hand(row, centers):
    """Squared distances, one number after the other."""
    found = []
    for center in centers.tolist():
        total = 0.0
        for x, c in zip(row.tolist(), center, strict=True):
            total += (x - c) * (x - c)
        found.append(total)
    return found


CASES = (st.integers(1, 60), st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32), st.booleans())


@settings(max_examples=60, deadline=None)
@given(*CASES)
def test_distances_are_sums_over_columns_one_after_the_other(count, number, columns, seed, close):
    X, C = points(count, columns, seed, close), points(number, columns, seed + 1, close)
    found = distances(X, C)
    assert found.tolist() == [by_hand(row, C) for row in X]
    assert found.tobytes() == distances(np.asfortranarray(X), np.asfortranarray(C)).tobytes()
    labels = nearest(X, C)
    assert labels.tolist() == found.argmin(axis=1).tolist()
    assert to_own(X, C, labels).tobytes() == found.min(axis=1).tobytes()
    table = np.ascontiguousarray(np.concatenate([C, C[:1]]).T) - X[0][:, None]  # as `Cells.one` sums: two or more
    assert np.add.reduce(table * table, axis=0)[:-1].tolist() == found[0].tolist()


@settings(max_examples=40, deadline=None)
@given(*CASES, st.integers(1, 5))
def test_labels_do_not_depend_on_the_batch_nor_on_other_groups(count, number, columns, seed, close, groups):
    X = points(count, columns, seed, close)
    C = np.stack([points(number, columns, seed + 1 + group, close) for group in range(groups)])
    found = nearest_each(X, C)
    for group in range(groups):
        assert found[group].tolist() == distances(X, C[group]).argmin(axis=1).tolist()
        assert [nearest(X[i : i + 1], C[group])[0] for i in range(count)] == found[group].tolist()


def test_products_alone_would_not_do():
    """Without a second look at doubtful cases labels differ from those by distances, which these tests see."""
    X, C = points(500, 6, 0, close=True), points(40, 6, 1, close=True)
    with patched_everywhere("_by_distances", lambda points, groups, group: np.zeros_like(group)):
        assert nearest(X, C).tolist() != distances(X, C).argmin(axis=1).tolist()


@pytest.mark.parametrize("size", [1e-200, 1e-160, 1e-150, 1e-30, 1e30])
def test_tiny_and_huge_numbers_are_compared_by_distances_too(size):
    X, C = points(300, 3, 0) * size, points(20, 3, 1) * size
    assert nearest(X, C).tolist() == distances(X, C).argmin(axis=1).tolist()


@pytest.mark.parametrize("rows", [1, 2**10])
def test_the_size_of_blocks_makes_no_difference(rows, monkeypatch):
    X, weights = points(400, 3, 0), np.random.default_rng(0).uniform(1, 9, size=400)
    whole = clustered(X, weights, 5, (1,), None)
    monkeypatch.setattr(weighted_kmeans, "AT_ONCE", rows)
    assert clustered(X, weights, 5, (1,), None).tobytes() == whole.tobytes()


def test_numbers_look_uniform_and_depend_on_all_that_they_are_made_of():
    draws = uniforms((0, 0), (100_000,))
    assert abs(draws.mean() - 0.5) < 0.004  # four standard deviations
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.013
    streams = [uniforms(numbers, (50,)) for numbers in ((0, 0), (0, 1), (1, 0), (1, 1), (0,), (2**63, 0))]
    assert len(np.unique(np.concatenate(streams))) == 50 * len(streams)


def test_starts_are_apart():
    X = np.repeat(np.arange(6.0)[:, None] * 100, 50, axis=0) + uniforms((4,), (300, 1))
    chosen = spread(X, np.ones(300), 6, (5,), 4, 3)
    assert [sorted(row) for row in (chosen // 50).tolist()] == [list(range(6))] * 4


def test_inertia_is_as_good_as_that_of_scikit_learn():
    rng = np.random.default_rng(8)
    for clusters, columns in ((3, 2), (8, 5)):
        X = rng.normal(size=(300, columns)) + 3.0 * rng.integers(3, size=(300, columns))
        weights = rng.uniform(0.1, 5.0, size=300)
        theirs = KMeans(clusters, n_init=10, random_state=0).fit(X, sample_weight=weights).inertia_
        ours = inertias(X, weights, clustered(X, weights, clusters, (3,), None)[None])[0]
        assert ours <= 1.03 * theirs


def test_a_given_start_is_among_those_that_are_tried():
    X, weights = points(200, 3, 1), np.ones(200)
    good = settled(X, weights, X[None, :4] * 1.0)
    assert inertias(X, weights, clustered(X, weights, 4, (1,), good[0])[None])[0] <= inertias(X, weights, good)[0]


def test_an_empty_cluster_stays_where_it_is():
    X = np.array([[0.0], [1.0]])
    assert settled(X, np.ones(2), np.array([[[0.5], [100.0]]])).tolist() == [[[0.5], [100.0]]]


def test_best_is_in_order_and_groups_are_points_where_these_are_few():
    X = np.array([[3.0, 1.0], [1.0, 2.0], [1.0, 0.0]])
    assert best(X, np.ones(3), X[None]).tolist() == [[1.0, 0.0], [1.0, 2.0], [3.0, 1.0]]
    assert grouped(X, np.ones(3), 3, (0,)) is X
    assert grouped(np.repeat(X, 5, axis=0), np.ones(15), 3, (0,)).shape == (3, 2)
