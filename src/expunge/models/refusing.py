"""Tables that no model can take: said in the words of the user's table, before anything is done with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from expunge.base.errors import BadRecords
from expunge.base.types import Array

ENCODE = "Encode it as numbers, such as 0/1 columns, or leave it out (a schema does it: docs/cli.md)"
MOST = 1e150
"""Scores must be below this: then their squares and differences are finite."""
FILL = "fill it in, or leave out the record"


def refuse_unfit(X: Any, y: Any = None) -> None:
    """Raise if rows or targets are masked or missing, or if a column of a data frame is not all numbers.

    NaN in arrays is looked for by `in_plain_words`, once scikit-learn has found some.
    """
    for name, values in (("X", X), ("y", y)):
        if np.ma.is_masked(values):
            raise BadRecords(f"{name}: some values are masked; fill them in, or leave out the records.")
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        _refuse_columns(X)
    if y is not None:
        targets = np.asarray(y)
        missing = [row for row, value in enumerate(targets.ravel()) if value is None] if targets.dtype == object else []
        if missing:
            raise BadRecords(f"y: row {missing[0]} has no value; {FILL}.")


@contextmanager
def in_plain_words(X: Any, y: Any = None) -> Iterator[None]:
    """Let scikit-learn look at rows and targets; where it finds NaN, say where."""
    refuse_unfit(X, y)
    try:
        yield
    except ValueError:
        for name, values in (("X", X), ("y", y)):
            refuse_nan(name, values)
        raise


def refuse_nan(name: str, rows: Any) -> None:
    """Name the first row of an array with NaN or infinity; anything but an array is checked later."""
    if type(rows) is np.ndarray and rows.dtype.kind == "f" and not np.isfinite(rows).all():
        row = int(np.argwhere(~np.isfinite(rows))[0][0])
        raise BadRecords(f"{name}: row {row} has NaN or infinity; {FILL}.")


def finite(scores: Array) -> Array:
    """Return scores; raise if numbers of a row are so large that it has none."""
    if not (np.abs(scores) < MOST).all():  # also if one is NaN
        row = int(np.argwhere(~(np.abs(scores) < MOST))[0][0])
        raise BadRecords(f"X: row {row} has numbers so large that nothing can be predicted. Check them.")
    return scores


def _refuse_columns(X: Any) -> None:
    """Raise if two columns of a data frame have one name, or if one is no number, or has no value somewhere."""
    twice = [name for name, number in Counter(X.columns).items() if number > 1]
    if twice:
        raise BadRecords(f"X: two columns are called {twice[0]!r}; give each a name of its own.")
    for name in X.columns:
        column = np.asarray(X[name])
        if column.dtype.kind in "mM":
            raise BadRecords(f"X: column {name!r} has dates or times. {ENCODE}.")
        numbers = _numbers(name, column)
        if not np.isfinite(numbers).all():
            row = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise BadRecords(f"X: column {name!r}, row {row} has NaN or infinity; {FILL}.")


def _numbers(name: Any, column: Any) -> Array:
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadRecords(f"X: column {name!r} has values that are no numbers. {ENCODE}.") from None
