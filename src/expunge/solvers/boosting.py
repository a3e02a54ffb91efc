"""Trees boosted on a sample by scikit-learn's histogram gradient boosting, as arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from expunge.base.types import AnyArray, Array, Keys
from expunge.solvers.trees import Node, Trees

if TYPE_CHECKING:
    from expunge.solvers.sampled_trees import TreeSettings

CALM = 0.8
"""Scores are this share of those on the sample: where a sample is small, these are too sure of themselves."""


class Grown(NamedTuple):
    """What is found in a sample."""

    trees: Trees
    spread: float
    """About how far apart its targets are, a power of two."""


def grown(settings: TreeSettings, keys: Keys, X: Array, y: AnyArray) -> Grown:
    """Boost trees on records, in an order that follows from their keys and contents.

    If there is nothing to split by, such as records of one class only, trees are leaves, and say nothing.
    """
    order = np.lexsort((*X.T[::-1], y, keys))
    X, y = X[order] + 0.0, y[order]  # -0 becomes 0
    if not settings.classes:
        return _of_amounts(settings, X, y)
    codes = (y > 0).astype(np.int64) if settings.outputs == 1 else y.astype(np.int64)
    return Grown(_of_classes(settings, X, codes), 1.0)


def _of_amounts(settings: TreeSettings, X: Array, y: Array) -> Grown:
    middle = float(np.mean(y)) if len(y) else 0.0
    spread = float(np.std(y)) if len(y) else 0.0
    if spread == 0.0:
        return Grown(_leaves_only(settings, [middle]), 1.0)
    from sklearn.ensemble import HistGradientBoostingRegressor

    power = 2.0 ** math.frexp(spread)[1]
    model = HistGradientBoostingRegressor(**_parameters(settings)).fit(X, (y - middle) / power)
    trees = [[_nodes(each[0], CALM * power) for each in model._predictors]]
    base = middle + power * float(np.ravel(model._baseline_prediction)[0])
    return Grown(Trees.of(1, settings.leaves, _filled(settings, trees), [base]), power)


def _of_classes(settings: TreeSettings, X: Array, codes: AnyArray) -> Trees:
    classes = settings.classes
    counts = np.bincount(codes, minlength=classes)
    there = np.flatnonzero(counts)
    logs = np.log((counts + 0.5) / (len(codes) + 0.5 * classes))
    if len(there) < 2:
        return _leaves_only(settings, logs if settings.outputs > 1 else [logs[1] - logs[0]])
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(**_parameters(settings)).fit(X, codes)
    baseline = np.ravel(model._baseline_prediction)
    if settings.outputs == 1:
        return Trees.of(1, settings.leaves, _filled(settings, [_column(model, 0, CALM)]), baseline)
    by_class: dict[int, Any] = {}
    base = logs.copy()
    for place, code in enumerate(there.tolist()):
        if len(there) == 2:  # one score for both: half of it for the one, half against the other
            by_class[code], base[code] = _column(model, 0, CALM * (place - 0.5)), (place - 0.5) * baseline[0]
        else:
            by_class[code], base[code] = _column(model, place, CALM), baseline[place]
    absent = np.setdiff1d(np.arange(classes), there)
    base[absent] = base[there].min() - math.log(len(codes) + 1.0)
    trees = [by_class.get(code, []) for code in range(classes)]
    return Trees.of(classes, settings.leaves, _filled(settings, trees), base)


def _column(model: Any, place: int, times: float) -> list[list[Node]]:
    return [_nodes(each[place], times) for each in model._predictors]


def _parameters(settings: TreeSettings) -> dict[str, Any]:
    return {
        "max_iter": settings.trees,
        "max_leaf_nodes": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_samples_leaf": settings.least,
        "early_stopping": False,
        "random_state": 0,
    }


def _nodes(predictor: Any, times: float) -> list[Node]:
    """Return the nodes of one of scikit-learn's trees."""
    nodes = predictor.nodes
    thresholds = np.minimum(nodes["num_threshold"], np.finfo(np.float64).max)
    columns = (nodes["feature_idx"], thresholds, nodes["left"], nodes["right"], times * nodes["value"])
    each = zip(nodes["is_leaf"].tolist(), *(column.tolist() for column in columns), strict=True)
    return [
        Node(value=value) if is_leaf else Node(feature, threshold, left, right)
        for is_leaf, feature, threshold, left, right, value in each
    ]


def _filled(settings: TreeSettings, trees: list[list[list[Node]]]) -> list[list[list[Node]]]:
    """Add trees that say nothing where there are too few."""
    return [[*its, *[[Node()]] * (settings.trees - len(its))] for its in trees]


def _leaves_only(settings: TreeSettings, base: Any) -> Trees:
    empty: list[list[list[Node]]] = [[] for _ in range(settings.outputs)]
    return Trees.of(settings.outputs, settings.leaves, _filled(settings, empty), base)
