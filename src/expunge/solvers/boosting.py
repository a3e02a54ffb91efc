"""Trees boosted on a sample by scikit-learn's histogram gradient boosting, as arrays."""

from __future__ import annotations

import math
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from expunge.base.types import AnyArray, Array, Keys
from expunge.solvers.one_stage import in_order
from expunge.solvers.trees import Node, Trees

if TYPE_CHECKING:
    from expunge.solvers.sampled_trees import TreeSettings

FEW_NUMBERS = 2**20
"""With no more numbers than this, threads wait for each other longer than they work: one is faster."""
FINEST = 2.0**-30
"""The least spread, in units of the largest target: below it are roundings."""
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
    X, y = in_order(keys, X, y)
    if not settings.classes:
        return _of_amounts(settings, X, y)
    codes = (y > 0).astype(np.int64) if settings.outputs == 1 else y.astype(np.int64)
    return Grown(_of_classes(settings, X, codes), 1.0)


def _of_amounts(settings: TreeSettings, X: Array, y: Array) -> Grown:
    if not len(y) or y.max() == y.min():
        return Grown(_leaves_only(settings, y[:1].tolist() or [0.0]), power_above(y))
    largest = float(np.abs(y).max())
    middle, spread = float(np.mean(y)), largest * float(np.std(y / largest))
    power = power_above(np.array([max(spread, largest * FINEST)]))
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(**_parameters(settings))
    with _threads(X):
        model.fit(X, (y - middle) / power)
    trees = [[_nodes(each[0], CALM * power) for each in model._predictors]]
    base = middle + power * float(np.ravel(model._baseline_prediction)[0])
    return Grown(Trees.of(1, settings.leaves, _filled(settings, trees), [base]), power)


def power_above(numbers: Array) -> float:
    """Return a power of two above the largest of some numbers; 1 if they are all 0.

    >>> power_above(np.array([3.0, -5.0])), power_above(np.zeros(2)), power_above(np.zeros(0))
    (8.0, 1.0, 1.0)
    """
    largest = float(np.abs(numbers).max(initial=0.0))
    return math.ldexp(1.0, max(math.frexp(largest)[1], -900)) if largest else 1.0


def _of_classes(settings: TreeSettings, X: Array, codes: AnyArray) -> Trees:
    classes = settings.classes
    counts = np.bincount(codes, minlength=classes)
    there = np.flatnonzero(counts)
    logs = np.log((counts + 0.5) / (len(codes) + 0.5 * classes))
    if len(there) < 2:
        return _leaves_only(settings, logs if settings.outputs > 1 else [logs[1] - logs[0]])
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(**_parameters(settings))
    with _threads(X), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that so many classes may be amounts
        model.fit(X, codes)
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


def _threads(X: Array) -> AbstractContextManager[Any]:
    """Have scikit-learn use one thread, where there is little to do. The trees are the same."""
    return _libraries().limit(limits=1, user_api="openmp") if X.size <= FEW_NUMBERS else nullcontext()


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


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
