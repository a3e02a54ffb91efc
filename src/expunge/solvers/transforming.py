"""A user's transformers: fitted on a sample, and applied to rows so that each gives the same bits in any batch."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.types import AnyArray, Array

AT_ONCE = 2**20
"""So many features are made at a time."""
MOST_ROWS = 2**11
"""So many rows are transformed together."""
FARTHEST = 1e100
"""Features beyond this count as this."""
_ALONE = threading.RLock()
SEED = "random_state"
"""The name of the parameter by which scikit-learn's transformers are seeded."""
MADE_UP, MORE_MADE_UP = 512, 1024
"""How many records made-up tables have, by which widths are found out; and for which the columns are more."""
TO_SPARE = 1.25
"""So many times as many columns as made-up tables lead to, where two of them lead to different numbers."""
ELEMENTWISE = frozenset(
    {
        "Binarizer", "KBinsDiscretizer", "MaxAbsScaler", "MinMaxScaler", "OneHotEncoder", "OrdinalEncoder",
        "PolynomialFeatures", "RandomTreesEmbedding", "RobustScaler", "SimpleImputer", "StandardScaler",
    }
)  # fmt: skip
"""Transformers of scikit-learn that do arithmetic on single numbers, or look them up: nothing is summed over a row."""
TOGETHER = {"Pipeline": "steps", "FeatureUnion": "transformer_list", "ColumnTransformer": "transformers"}
"""Those that are as good as their parts, and the parameter that has them."""
LEFT_AS_IT_IS = ("drop", "passthrough", None)


class Features(NamedTuple):
    """What a transformer makes of rows."""

    rows: Array
    refused: dict[int, str]
    """Which rows it has refused, or made no numbers of, and what it said; their features are 0."""


def check_transformer(given: Any) -> None:
    """Raise unless it is an unfitted transformer that can be cloned, with seeds that are numbers."""
    if isinstance(given, type) or not all(hasattr(given, name) for name in ("fit", "transform", "get_params")):
        raise BadPlan(
            f"structure={_shown(given)}: give a scikit-learn transformer, an object with fit, transform and "
            "get_params, such as StandardScaler() or make_pipeline(PCA(10), KBinsDiscretizer())."
        )
    for name, value in given.get_params(deep=True).items():
        if _is_seed(name) and isinstance(value, (np.random.RandomState, np.random.Generator)):
            raise BadPlan(
                f"structure: {name} is a {type(value).__name__}, which changes as it is used; give a number, or None "
                "for a seed that is drawn at the fit."
            )
        if name.rpartition("__")[2] == "memory" and value is not None:
            raise BadPlan(
                f"structure: {name} would keep what it was fitted on, which no deletion reaches; leave it out."
            )


def _shown(given: Any) -> str:
    return given.__name__ if isinstance(given, type) else f"{type(given).__name__} object"


def _is_seed(name: str) -> bool:
    return name == SEED or name.endswith("__" + SEED)


def fresh(given: Any, seed: int) -> Any:
    """Return an unfitted copy of a transformer; seeds that are not given follow from ``seed``, in order of names."""
    from sklearn.base import clone

    copy = clone(given)
    names = sorted(name for name, value in copy.get_params(deep=True).items() if _is_seed(name) and value is None)
    drawn = np.random.default_rng(seed).integers(2**31, size=len(names)).tolist()
    return copy.set_params(**dict(zip(names, drawn, strict=True))) if names else copy


def in_any_batch(given: Any) -> bool:
    """Say whether a row gives the same bits in any batch, by a list of what is known; else rows go one by one."""
    if given is None or isinstance(given, str):
        return given in LEFT_AS_IT_IS
    name, theirs = type(given).__name__, type(given).__module__.startswith("sklearn.")
    if theirs and name in TOGETHER:
        return all(in_any_batch(part[1]) for part in getattr(given, TOGETHER[name]))
    return theirs and name in ELEMENTWISE


@contextmanager
def in_peace() -> Iterator[None]:
    """Let other libraries work with one thread, so that bits do not depend on how many there are, and without warnings.

    A warning might be an error, and a request that is recorded must not fail. Filters of warnings, and how many threads
    there are, belong to the whole process: one at a time changes them.
    """
    with _ALONE, warnings.catch_warnings(), _libraries(len(sys.modules)).limit(limits=1), _usual_forms():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _usual_forms() -> Iterator[None]:
    """Let scikit-learn return arrays, and NumPy overflow silently, whatever the user has set."""
    from sklearn import config_context

    with np.errstate(all="ignore"), config_context(transform_output="default"):
        yield


@lru_cache(1)
def _libraries(loaded: int) -> Any:
    """Return what sets the numbers of threads; it is made again when more modules were loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def fit(given: Any, seed: int, X: Array, y: AnyArray) -> Any:
    """Return a transformer fitted to records; raise `ValueError` if it refuses them."""
    with in_peace():
        transformer = fresh(given, seed)
        transformer.fit(X.copy(), y)  # it may be told to work in place
        return transformer


def width_of(transformer: Any, X: Array) -> int:
    """Return how many features a transformer makes of rows; raise `ValueError` if it refuses them."""
    with in_peace():
        return int(_made(transformer, 0, X[:1]).shape[1])


def transformed(transformer: Any, width: int, X: Array, together: bool, kept: bool = True) -> Features:
    """Return the features of rows, which have the same bits in any batch if rows go one by one, or if it is known.

    Of more than ``width`` features the first are taken. Those that are not ``kept``, but predicted from, are made with
    all threads, and as many threads as like may make them.
    """
    made, said = np.zeros((len(X), width)), {}
    at_once = max(1, min(MOST_ROWS, AT_ONCE // max(width, X.shape[1], 1))) if together else 1
    with in_peace() if kept else _usual_forms():
        for first in range(0, len(X), at_once):
            rows = X[first : first + at_once]
            try:
                made[first : first + at_once] = _made(transformer, width, rows)
            except ValueError:  # find out which of them
                for row in range(len(rows)):
                    try:
                        made[first + row] = _made(transformer, width, rows[row : row + 1])[0]
                    except ValueError as error:
                        said[first + row] = str(error)
    for row in np.flatnonzero(~np.isfinite(made).all(axis=1)).tolist():
        made[row], said[row] = 0.0, "it makes features that are no finite numbers"
    return Features(np.clip(made, -FARTHEST, FARTHEST), said)


def _made(transformer: Any, width: int, rows: Array) -> Array:
    """Return features as an array; raise `ValueError` if it is no table of numbers, or too narrow."""
    made = transformer.transform(rows.copy())
    table = np.asarray(made.toarray() if hasattr(made, "toarray") else made, dtype=np.float64)
    if table.ndim != 2 or len(table) != len(rows) or table.shape[1] < width:
        raise ValueError(f"transform returned an array of shape {table.shape} for {len(rows)} rows")
    return table[:, :width] if width else table


def automatic_columns(given: Any, features: int, classes: int) -> int:
    """Return how many features a transformer makes of made-up records; no record of the user's is looked at."""
    widths = []
    for number in (MADE_UP, MORE_MADE_UP):
        rng = np.random.default_rng(number)
        X = rng.random((number, features))
        y: AnyArray = rng.integers(classes, size=number) if classes else rng.random(number)
        try:
            widths.append(width_of(fit(given, number, X, y), X))
        except ValueError as error:
            raise BadPlan(
                f"columns='auto': {type(given).__name__} could not be fitted to a made-up table of {features} columns "
                f"({error}). Give columns=, the largest number of features that it makes."
            ) from error
    return max(1, max(widths) if widths[0] == widths[1] else round(TO_SPARE * max(widths)))
