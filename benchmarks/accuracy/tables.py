"""Tables as people have them: the shared sets with numbers as in their files, and tables that are generated.

    from benchmarks.accuracy.tables import CLASSES, AMOUNTS, COUNTS

Numbers are not scaled, clipped or transformed; categories are 0/1 columns, one for each value; a missing number is 0,
with a 0/1 column that says so. Splits are the given ones or fixed permutations, generated tables have as many test
records as others. Each entry is a function that returns (X, y, test X, test y).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification, make_friedman1

from benchmarks.accuracy.datasets import ADULT_CATEGORIES, SOURCES, data_folder, numbers, one_hot, split
from benchmarks.smoke import sized
from expunge.base.types import Array

Table = tuple[Any, Any, Any, Any]
GENERATED = sized(40_000, 400)
"""How many records a generated table has."""
LATE = 15.0
"""From how many minutes on a flight is late."""
DIGIT = 8


# --- shared ---------------------------------------------------------------------------------------------


def _hot(values: Sequence[Any]) -> Array:
    return one_hot(values, sorted(set(values)))


def _covtype(folder: Path) -> Table:
    table = np.loadtxt(folder / "covtype.csv.gz", delimiter=",", skiprows=1, dtype=np.int32)
    y = np.where(table[:, 54] == 2, 1.0, -1.0)
    return split(table[:, :54].astype(np.float64), y, sized(501_012, 240), sized(80_000, 60))


def _as_encoded(name: str) -> Callable[[Path], Table]:
    """Return the reader of a table that is encoded as it is in its file."""
    return SOURCES[name].read


def _adult(folder: Path) -> Table:
    def read(path: Path, header: int) -> tuple[Array, Array]:
        with gzip.open(path, "rt") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row][header:]
        hots = [one_hot([row[column] for row in rows], names.split()) for column, names in ADULT_CATEGORIES.items()]
        y = np.array([{"<=50K": -1.0, ">50K": 1.0}[row[14].rstrip(".")] for row in rows])
        return np.column_stack([*(numbers(rows, column) for column in (0, 2, 4, 10, 11, 12)), *hots]), y

    return *read(folder / "adult.data.gz", 0), *read(folder / "adult.test.gz", 1)


def _california(folder: Path) -> Table:
    with gzip.open(folder / "housing.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    found = np.column_stack([numbers(rows, column) for column in range(8)])
    missing = np.isnan(found).any(axis=1)
    X: Array = np.column_stack([np.nan_to_num(found), missing, _hot([row[9] for row in rows])])
    return split(X, numbers(rows, 8), sized(16_512, 240), sized(4_128, 60))


def _flights(folder: Path) -> Table:
    with gzip.open(folder / "flights.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["arr_delay"] not in ("", "NA")]
    weekdays = [date(int(row["year"]), int(row["month"]), int(row["day"])).weekday() for row in rows]
    hots = [_hot([row[name] for row in rows]) for name in ("month", "hour", "carrier", "origin", "dest")]
    given = [np.array([float(row[name]) for row in rows]) for name in ("dep_delay", "distance")]
    X = np.column_stack([*given, _hot(weekdays), *hots])
    y = np.array([float(row["arr_delay"]) for row in rows])
    return split(X, y, sized(261_876, 240), sized(65_470, 60))


def _mnist(folder: Path) -> Table:
    def read(part: str) -> tuple[Array, Array]:
        images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
        X = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784).astype(np.float64)
        return X, np.where(np.frombuffer(labels, np.uint8, offset=8) == DIGIT, 1.0, -1.0)

    return *read("train"), *read("t10k")


def _above(table: Callable[[Path], Table], limit: Callable[[Array], float]) -> Callable[[Path], Table]:
    """Make two classes of amounts: above a limit and not."""

    def classes(folder: Path) -> Table:
        X, y, test, truth = table(folder)
        least = limit(y)
        return X, np.where(y > least, 1.0, -1.0), test, np.where(truth > least, 1.0, -1.0)

    return classes


def _shared(name: str, read: Callable[[Path], Table]) -> Callable[[], Table]:
    return lambda: read(data_folder(name))


# --- generated ------------------------------------------------------------------------------------------


def _generated(
    make: Callable[[np.random.Generator, int], tuple[Any, Any]], counts: bool = False
) -> Callable[[], Table]:
    """Return a table of what a function makes: columns and scores, which classes or counts follow."""

    def table() -> Table:
        rng = np.random.default_rng(1)
        X, score = make(rng, 2 * GENERATED)
        y = (
            rng.poisson(np.exp(score)).astype(float)
            if counts
            else np.where(rng.logistic(size=len(X)) < score, 1.0, -1.0)
        )
        return X[:GENERATED], y[:GENERATED], X[GENERATED:], y[GENERATED:]

    return table


def _of_scikit_learn(make: Callable[[int], tuple[Any, Any]]) -> Callable[[], Table]:
    def table() -> Table:
        X, y = make(2 * GENERATED)
        return X[:GENERATED], y[:GENERATED], X[GENERATED:], y[GENERATED:]

    return table


def _skewed(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = np.exp(1.5 * rng.normal(size=(number, 15)))
    return X, np.log(X) @ np.linspace(-0.5, 0.5, 15)


def _unscaled(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 20))
    return X * np.where(np.arange(20) % 2, 1e6, 1e-6), X @ np.linspace(-0.7, 0.7, 20)


def _correlated(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 5)) @ rng.normal(size=(5, 25)) + 0.05 * rng.normal(size=(number, 25))
    return X + 1000.0, X @ rng.normal(size=25) / 5.0


def _imbalanced(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 20))
    return X, X @ np.linspace(-0.4, 0.4, 20) - 5.2


def _duplicated(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 10))
    return np.hstack([X, X, 3.0 * X]), X @ np.linspace(-1.0, 1.0, 10)


def _constant(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 10))
    return np.hstack([X, np.full((number, 1), 7.0), np.zeros((number, 1))]), X @ np.linspace(-1.0, 1.0, 10)


def _five_classes() -> Table:
    rng, number = np.random.default_rng(1), sized(20_000, 400)
    X = rng.normal(size=(2 * number, 20))
    y = (X @ rng.normal(size=(20, 5)) / 2.0 + rng.gumbel(size=(2 * number, 5))).argmax(axis=1)
    X *= 10.0 ** rng.integers(-3, 7, size=20)
    return X[:number], y[:number], X[number:], y[number:]


def _digits() -> Table:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [sized(1_300, 400)])
    few = sized(64, 20)
    return X[train, :few], y[train], X[test, :few], y[test]


def _cover_types(folder: Path) -> Table:
    """Return the seven cover types of 100,000 records."""
    table = np.loadtxt(folder / "covtype.csv.gz", delimiter=",", skiprows=1, dtype=np.int32)
    table = table[np.random.default_rng(0).permutation(len(table))[: sized(180_000, 300)]]
    X, y, number = table[:, :54].astype(np.float64), table[:, 54], sized(100_000, 240)
    return X[:number], y[:number], X[number:], y[number:]


def _counts(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 12)) * 10.0 ** np.linspace(-3, 3, 12)
    return X, 0.5 + X / 10.0 ** np.linspace(-3, 3, 12) @ np.linspace(-0.3, 0.3, 12)


def _rare_counts(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 12))
    return X, -3.0 + X @ np.linspace(-0.4, 0.4, 12)


def _skewed_counts(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = np.exp(rng.normal(size=(number, 12)))
    return X, -2.5 + np.log(X) @ np.linspace(-0.4, 0.4, 12)


SHARED: dict[str, str] = {
    "covtype": "covtype", "a9a": "a9a", "adult": "adult", "w8a": "w8a", "california": "california_housing",
    "flights late": "nycflights13", "mnist 8": "mnist", "california value": "california_housing",
    "flights delay": "nycflights13", "cover types": "covtype",
}  # fmt: skip
"""Which data set a table is made of."""
CLASSES: dict[str, Callable[[], Table]] = {
    "covtype": _shared("covtype", _covtype),
    "a9a": _shared("a9a", _as_encoded("a9a")),
    "adult": _shared("adult", _adult),
    "w8a": _shared("w8a", _as_encoded("w8a")),
    "california": _shared("california_housing", _above(_california, lambda y: float(np.median(y)))),
    "flights late": _shared("nycflights13", _above(_flights, lambda y: LATE)),
    "skewed": _generated(_skewed),
    "unscaled": _generated(_unscaled),
    "correlated": _generated(_correlated),
    "imbalanced": _generated(_imbalanced),
    "duplicated": _generated(_duplicated),
    "constant": _generated(_constant),
    "make_classification": _of_scikit_learn(
        lambda number: make_classification(number, 20, n_informative=8, n_redundant=6, flip_y=0.05, random_state=0)
    ),
    "mnist 8": _shared("mnist", _mnist),
}
"""Two classes."""
SEVERAL: dict[str, Callable[[], Table]] = {
    "five classes": _five_classes,
    "digits": _digits,
    "cover types": _shared("covtype", _cover_types),
}
"""More than two classes."""
AMOUNTS: dict[str, Callable[[], Table]] = {
    "california value": _shared("california_housing", _california),
    "flights delay": _shared("nycflights13", _flights),
    "make_friedman1": _of_scikit_learn(lambda number: make_friedman1(number, 10, noise=1.0, random_state=0)),
}
"""Amounts, for least squares."""
COUNTS: dict[str, Callable[[], Table]] = {
    "counts": _generated(_counts, counts=True),
    "rare counts": _generated(_rare_counts, counts=True),
    "skewed counts": _generated(_skewed_counts, counts=True),
}
