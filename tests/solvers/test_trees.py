"""Trees as arrays: where records come to, and what they add up to, are scikit-learn's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from expunge.solvers import boosting
from expunge.solvers.sampled_trees import TreeSettings
from expunge.solvers.trees import Node, Trees, on_grid_of_largest

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 4))
KEYS = RNG.integers(2**64, size=600, dtype=np.uint64)
CODES = np.digitize(X[:, 0] * X[:, 1], [-0.3, 0.3])


def grown(classes, y, rows=X, trees=5, leaves=6, least=5):
    settings = TreeSettings(classes, rows.shape[1], 0.5, trees, leaves, 0.3, least, 10.0)
    return boosting.grown(settings, KEYS[: len(rows)], rows, y)


def test_scores_of_amounts_are_those_of_scikit_learn(monkeypatch):
    monkeypatch.setattr(boosting, "CALM", 1.0)
    y = 7.0 + 100.0 * np.sin(X[:, 0])
    found = grown(0, y)
    order = np.lexsort((*X.T[::-1], y, KEYS))
    model = HistGradientBoostingRegressor(
        max_iter=5, max_leaf_nodes=6, learning_rate=0.3, min_samples_leaf=5, early_stopping=False
    ).fit(X[order], y[order])
    assert found.spread == 128.0
    assert np.allclose(found.trees.scores(X)[0], model.predict(X), rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_classes_are_those_of_scikit_learn(classes, monkeypatch):
    monkeypatch.setattr(boosting, "CALM", 1.0)
    codes = np.minimum(CODES, classes - 1)
    y = 2.0 * codes - 1.0 if classes == 2 else codes
    order = np.lexsort((*X.T[::-1], y, KEYS))
    model = HistGradientBoostingClassifier(
        max_iter=5, max_leaf_nodes=6, learning_rate=0.3, min_samples_leaf=5, early_stopping=False
    ).fit(X[order], codes[order])
    scores = grown(classes, y).trees.scores(X)
    assert np.allclose(scores[0] if classes == 2 else scores.T, model.decision_function(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_a_record_has_the_same_leaves_and_scores_in_any_batch(classes):
    y = X[:, 0] if not classes else 2.0 * (X[:, 0] > 0) - 1.0 if classes == 2 else CODES
    trees = grown(classes, y).trees
    leaves, scores = trees.leaves(X), trees.scores(X)
    for some in ([5], [7, 3], range(100)):
        rows = X[list(some)]
        assert trees.leaves(rows).tobytes() == leaves[:, :, list(some)].tobytes()
        assert trees.scores(rows).tobytes() == np.ascontiguousarray(scores[:, list(some)]).tobytes()
    assert trees.leaves(X[:0]).shape == (trees.outputs, 5, 0)
    assert trees.scores(X[:0]).shape == (trees.outputs, 0)


def test_the_order_of_the_sample_does_not_matter():
    y = X[:, 0] + X[:, 1] ** 2
    order = RNG.permutation(600)
    settings = TreeSettings(0, 4, 0.5, 5, 6, 0.3, 5, 10.0)
    one, other = boosting.grown(settings, KEYS, X, y), boosting.grown(settings, KEYS[order], X[order], y[order])
    assert one.spread == other.spread
    assert one.trees == other.trees


def test_packed_and_unpacked():
    trees = grown(3, CODES).trees
    numbers = trees.pack()
    assert len(numbers) == Trees.packed_size(3, 5, 6)
    assert Trees.unpack(numbers, 3, 5, 6, 4) == trees


@settings(max_examples=50, deadline=None)
@given(at=st.integers(0, 10_000), value=st.sampled_from([-1.0, 0.5, 99.0, np.nan, np.inf]))
def test_nonsense_is_refused_or_harmless(at, value):
    numbers = grown(2, 2.0 * (X[:, 0] > 0) - 1.0).trees.pack()
    numbers[at % len(numbers)] = value
    try:
        trees = Trees.unpack(numbers, 1, 5, 6, 4)
    except ValueError:
        return
    assert trees.leaves(X[:50]).max() < 6


def test_a_child_never_comes_before_its_parent():
    trees = Trees.of(
        1, 3, [[[Node(0, 0.0, 1, 2), Node(value=1.0), Node(0, 1.0, 3, 4), Node(value=2.0), Node(value=3.0)]]], [0.0]
    )
    numbers = trees.pack()
    assert trees.scores(np.array([[-1.0], [0.5], [2.0]])).tolist() == [[1.0, 2.0, 3.0]]
    place = int(np.flatnonzero(numbers == 3.0)[0])
    numbers[place] = 0.0
    with pytest.raises(ValueError, match="before its parent"):
        Trees.unpack(numbers, 1, 1, 3, 1)


def test_a_class_that_the_sample_lacks_is_unlikely_and_has_no_splits():
    two = CODES != 1
    trees = grown(3, CODES[two], X[two]).trees
    scores = trees.scores(X)
    assert (scores[1] < np.maximum(scores[0], scores[2])).all()
    assert (trees.depths[5:10] == np.zeros(5)).all()
    better = np.where(scores[2] > scores[0], 2, 0)
    assert (better[two] == CODES[two]).mean() > 0.8


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_too_few_records_give_leaves_alone(classes, rows):
    y = np.ones(rows) if classes != 3 else np.ones(rows, dtype=int)
    trees = grown(classes, y, X[:rows]).trees
    assert max(trees.depths) == 0
    assert np.isfinite(trees.scores(X)).all()


def test_numbers_of_any_size_split():
    rows = X * 1e300
    found = grown(2, 2.0 * (X[:, 0] > 0) - 1.0, rows)
    assert np.isfinite(found.trees.pack()).all()
    assert ((found.trees.scores(rows)[0] > 0) == (X[:, 0] > 0)).mean() > 0.95


def test_values_on_the_grid_add_up_exactly():
    values = on_grid_of_largest(RNG.normal(size=1000))
    total = values.sum()
    assert all(RNG.permutation(values).cumsum()[-1] == total for _ in range(20))
    assert on_grid_of_largest(np.zeros(3)).tolist() == [0.0] * 3
