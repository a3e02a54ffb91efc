"""Which model is released: a function of the iterates, hence free of charge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from expunge.rows import Path
from expunge.types import Array

Selector = Callable[[Path], Array]


def _mean(path: Path, first: int) -> Array:
    total = np.zeros_like(path[-1], dtype=float)
    for position in range(first, len(path)):
        total += path[position]
    return np.asarray(total / (len(path) - first))


def tail_average(path: Path) -> Array:
    """Return the mean of the last half of the iterates."""
    return _mean(path, len(path) // 2)


def average(path: Path) -> Array:
    """Return the mean of all iterates."""
    return _mean(path, 0)


def last(path: Path) -> Array:
    """Return the last iterate."""
    return path[-1].copy()


SELECTORS: dict[str, Selector] = {"tail": tail_average, "average": average, "last": last}
