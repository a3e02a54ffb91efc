"""Sums over leaves and pairs of leaves: exact in any order, whatever batch a record comes in."""

import numpy as np
import pytest

from expunge.base.errors import BadRecords
from expunge.solvers.sampled_trees import FAR, SampledTrees, TreeSettings

RNG = np.random.default_rng(1)
X = RNG.normal(size=(400, 3))
KEYS = RNG.integers(2**64, size=400, dtype=np.uint64)
TARGETS = {
    0: 5.0 + X[:, 0] * X[:, 1] + 0.1 * RNG.normal(size=400),
    2: np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0),
    3: np.digitize(X[:, 0] + 0.3 * RNG.normal(size=400), [-0.4, 0.4]),
    12: RNG.integers(12, size=400),
}


def structure(classes, rho=0.5, trees=4, leaves=5):
    return SampledTrees(TreeSettings(classes, 3, rho, trees, leaves, 0.3, 5, 20.0))


def found_in(one, y, rows=X):
    joined = one.joins(None, KEYS[: len(rows)], (rows, y))
    return None, one.find((None,), KEYS[: len(rows)][joined], (rows[joined], y[joined]))


def whole(one, y):
    found = found_in(one, y)
    return found, one.total(found, (X, y))


@pytest.mark.parametrize("classes", TARGETS)
def test_sums_are_the_same_in_any_order_and_in_any_parts(classes):
    one, y = structure(classes), TARGETS[classes]
    found, total = whole(one, y)
    order = RNG.permutation(400)
    assert one.total(found, (X[order], y[order])).tobytes() == total.tobytes()
    again = np.zeros_like(total)
    for first in range(0, 400, 7):
        part = one.parts(found, (X[first : first + 7], y[first : first + 7]))
        np.add.at(again, part.rows, part.values)
    assert again.tobytes() == total.tobytes()
    for record in range(400):
        part = one.parts(found, (X[record : record + 1], y[record : record + 1]))
        assert len(np.unique(part.rows)) == len(part.rows) == one.rows_each
        again[part.rows] -= part.values
    assert not again.any()


@pytest.mark.parametrize("classes", TARGETS)
def test_sums_are_those_of_slopes_and_curvatures(classes):
    one, y = structure(classes), TARGETS[classes]
    found, total = whole(one, y)
    leaves = found[1].trees.leaves(X)
    ones = np.zeros((one.settings.outputs, 400, 20))
    for output, its in enumerate(leaves):
        for tree, leaf in enumerate(its):
            ones[output, np.arange(400), 5 * tree + leaf] = 1.0
    at = one.slopes(found[1], found[1].trees.scores(X), y)
    by_output = total.reshape(one.settings.outputs, 20, -1)
    for output, design in enumerate(ones):
        wanted = design.T @ (at.weights[output][:, None] * design)
        assert np.array_equal(by_output[output, :, -20:], wanted)
        assert np.array_equal(by_output[output, :, :-20].T, at.pulls[:, output] @ design)


def test_slopes_are_derivatives():
    for classes, y in TARGETS.items():
        one = structure(classes)
        found = found_in(one, y)
        scores, small = found[1].trees.scores(X), 1e-5

        def loss(scores, classes=classes, y=y):
            if not classes:
                return 0.5 * (scores[0] - y) ** 2
            if classes == 2:
                return np.logaddexp(0.0, -y * scores[0])
            return np.logaddexp.reduce(scores, axis=0) - scores[y, np.arange(400)]

        pulls = one.slopes(found[1], scores, y).pulls.sum(axis=0)
        for output in range(len(scores)):
            step = np.zeros_like(scores)
            step[output] = small
            slope = (loss(scores + step) - loss(scores - step)) / (2.0 * small)
            assert np.allclose(-pulls[output], slope, atol=1e-4)


@pytest.mark.parametrize("classes", TARGETS)
def test_the_step_makes_the_loss_smaller(classes):
    one, y = structure(classes), TARGETS[classes]
    found, total = whole(one, y)

    def loss(trees):
        scores = trees.scores(X)
        if not classes:
            return ((scores[0] - y) ** 2).mean()
        if classes == 2:
            return np.logaddexp(0.0, -y * scores[0]).mean()
        return (np.logaddexp.reduce(scores, axis=0) - scores[y, np.arange(400)]).mean()

    assert loss(one.trees(one.model(found, total))) < loss(found[1].trees)


def test_least_squares_is_solved_exactly():
    one, y = structure(0), TARGETS[0]
    found, total = whole(one, y)
    leaves = found[1].trees.leaves(X)[0]
    design = np.zeros((400, 20))
    for tree, leaf in enumerate(leaves):
        design[np.arange(400), 5 * tree + leaf] = 1.0
    residuals = y - found[1].trees.scores(X)[0]
    step = np.linalg.solve(design.T @ design + 20.0 * np.eye(20), design.T @ residuals)
    values = one.trees(one.model(found, total)).values.ravel()
    assert np.allclose(values, found[1].trees.values.ravel() + step, atol=1e-8)


def test_a_target_far_out_counts_as_far_as_sums_hold():
    one, y = structure(0), TARGETS[0].copy()
    found = found_in(one, y)
    y[0] = 1e90
    at = one.slopes(found[1], found[1].trees.scores(X), y)
    assert at.pulls[:, 0, 0].sum() == FAR * found[1].spread
    total = one.total(found, (X, y))
    part = one.parts(found, (X[:1], y[:1]))
    total[part.rows] -= part.values
    assert total.tobytes() == one.total(found, (X[1:], y[1:])).tobytes()


def test_nobody_gives_the_structure_of_nobody():
    for classes in TARGETS:
        one = structure(classes)
        found = None, one.find((None,), KEYS[:0], (X[:0], TARGETS[classes][:0]))
        total = one.total(found, (X[:0], TARGETS[classes][:0]))
        assert total.shape == (one.most_rows, one.width)
        assert not total.any()
        assert np.isfinite(one.trees(one.model(found, total)).scores(X)).all()


def test_the_share_that_joins():
    keys = RNG.integers(2**64, size=100_000, dtype=np.uint64)
    for rho in (0.03, 0.5):
        assert structure(2, rho).joins(None, keys, ()).mean() == pytest.approx(rho, rel=0.1)
    assert structure(2, 1.0).joins(None, np.array([0, 2**64 - 1], dtype=np.uint64), ()).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("column", [0, 1])
def test_records_that_are_not_finite_are_refused(bad, column):
    batch = [X.copy(), TARGETS[0].copy()]
    batch[column][3] = bad
    with pytest.raises(BadRecords, match="Xy"[column]):
        structure(0).admit(tuple(batch))


def test_packed_and_unpacked():
    one = structure(3)
    found = found_in(one, TARGETS[3])
    numbers = one.pack(found)
    assert len(numbers) == one.packed
    assert one.unpack(numbers)[1].trees == found[1].trees
    numbers[0] = -1.0
    with pytest.raises(ValueError, match="spread"):
        one.unpack(numbers)
