"""Two of the data sets as streams: records that arrive day by day, and some that ask to be deleted.

    from benchmarks.streams.data import NAMES, ORDERS, load_stream, requests

Rows are encoded as in `accuracy/datasets.py`. A stream is the training part, in the order of the file or in the fixed
permutation that the split comes from; the test part is held out, as elsewhere.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.accuracy.datasets import Task, data_folder, load
from benchmarks.smoke import sized
from expunge.base.types import Array, Ints

Order = Literal["file order", "shuffled"]
NAMES = ("covtype", "nycflights13")
ORDERS: tuple[Order, ...] = ("file order", "shuffled")
COVTYPE_DAY = sized(5_000, 40)
SHARE = 0.05


@dataclass(frozen=True, eq=False)
class Stream:
    """Records in the order of their arrival; those of day d are ``starts[d]`` to ``starts[d + 1]``."""

    name: str
    order: Order
    task: Task
    X: Array
    y: Array
    starts: Ints
    X_test: Array
    y_test: Array
    target_range: tuple[float, float] | None

    @property
    def days(self) -> int:
        return len(self.starts) - 1

    def day(self, number: int) -> slice:
        return slice(int(self.starts[number]), int(self.starts[number + 1]))


def load_stream(name: str, order: Order, every: int = 1) -> Stream:
    """Return one stream; of every so many records it has one.

    covtype has days of 5,000 records. nycflights13 has the 365 days of 2013, also where it is shuffled: there each day
    has as many flights as it had, drawn from the whole year.
    """
    data = load(name)
    place = _places(len(data.y_train), len(data.y_test))
    if name == "nycflights13":
        day = _dates()[place]
        by_time = np.lexsort((place, day))
        day = day[by_time]
    else:
        day = np.arange(len(place)) // COVTYPE_DAY
        by_time = np.argsort(place)
    chosen = slice(None, None, every)
    rows = (by_time if order == "file order" else np.arange(len(place)))[chosen]
    counts = np.unique(day[chosen], return_counts=True)[1]
    starts = np.concatenate([[0], np.cumsum(counts)])
    X: Any = data.X_train
    return Stream(
        name, order, data.task, X[rows], data.y_train[rows], starts, data.X_test, data.y_test, data.target_range
    )


def _places(train: int, test: int) -> Ints:
    """Return where in the file each training record stood: both sets are split by the permutation of seed 0."""
    return np.random.default_rng(0).permutation(train + test)[:train]


def _dates() -> Ints:
    """Return month and day of each flight that arrived, as a number that grows with time.

    The file has its months in the order 1, 10, 11, 12, 2, 3, …; here they are in that of the year.
    """
    with gzip.open(data_folder("nycflights13") / "flights.csv.gz", "rt") as file:
        flown = [row for row in csv.DictReader(file) if row["arr_delay"] not in ("", "NA")]
    return np.array([100 * int(row["month"]) + int(row["day"]) for row in flown])


def requests(stream: Stream, rng: np.random.Generator) -> list[Ints]:
    """Return, for each day, who asks for deletion on it: by chance, whatever the records say.

    Each record does with probability 5 %, on a day drawn from that of its arrival to the last.
    """
    arrived = np.repeat(np.arange(stream.days), np.diff(stream.starts))
    asking = np.flatnonzero(rng.random(len(arrived)) < SHARE)
    asked = rng.integers(arrived[asking], stream.days)
    return [asking[asked == day] for day in range(stream.days)]
