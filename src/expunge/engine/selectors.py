"""Which model is released: a function of the iterates, hence free of charge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from expunge.base.types import Array
from expunge.engine.transcript import Path

Selector = Callable[[Path], Array]


class Running:
    """A selected model, kept up to date at a cost of the iterates that have changed, however many there are.

    For the averages it keeps the running sums of the iterates. They follow from the iterates to the last bit.

    >>> path = Path(np.zeros(1), None, 0, np.array([[1.0], [2.0], [3.0]]))
    >>> path.first, path.made = 0, 3
    >>> running = Running("average")
    >>> running.model(path).tolist(), tail_average(path).tolist()
    ([1.5], [2.5])
    """

    __slots__ = ("_made", "_sums", "_used", "selector")

    def __init__(self, selector: str | Selector) -> None:
        self.selector = selector
        self._sums: Array = np.zeros((0, 0))
        self._made = 0  # how many rows of it are right
        self._used = 0  # how many are not blank

    def cut(self, iterates: int) -> None:
        """Forget what came after the first ``iterates`` (the start is one of them): they are about to change."""
        self._made = min(self._made, iterates)
        self._sums[self._made : self._used] = 0.0
        self._used = self._made

    def model(self, path: Path) -> Array:
        """Return the model of a path; all that has changed since the last call must have been `cut` off."""
        if self.selector not in _AVERAGED:
            return select(self.selector, path)
        have, length = self._made, len(path)
        self._reserve(length, path.start.size)
        if have < length:
            self._used = length
            self._sums[have:length] = running_sums(path, have, length, self._sums[have - 1] if have else None)
            self._made = length
        first = _AVERAGED[self.selector](length)
        return _mean(self._sums[length - 1], self._sums[first - 1] if first else None, length - first)

    def _reserve(self, length: int, width: int) -> None:
        room = len(self._sums)
        if length > room or 2 * length + 64 < room:
            sums = np.zeros((length + length // 4 if length > room else length, width))
            if self._made:
                sums[: self._made] = self._sums[: self._made]
            self._sums = sums


def running_sums(path: Path, first: int, stop: int, before: Array | None) -> Array:
    """Return the sums of the iterates up to each from ``first`` to ``stop``; ``before`` is the sum up to there."""
    rows = path.rows(first, stop)
    if before is None:
        return np.cumsum(rows, axis=0)
    return np.cumsum(np.concatenate([before[None], rows]), axis=0)[1:]


CHUNK = 2**18
"""How many numbers are summed at once."""


def _sum(path: Path, first: int, stop: int, before: Array | None = None) -> Array:
    """Return the last of the running sums, with little memory."""
    at_once = max(1, CHUNK // max(1, path.start.size))
    for begin in range(first, stop, at_once):
        before = running_sums(path, begin, min(begin + at_once, stop), before)[-1]
    assert before is not None
    return before


def _mean(total: Array, before: Array | None, number: int) -> Array:
    return np.asarray((total if before is None else total - before) / number)


def tail_average(path: Path) -> Array:
    """Return the mean of the last half of the iterates."""
    half = len(path) // 2
    before = _sum(path, 0, half) if half else None
    return _mean(_sum(path, half, len(path), before), before, len(path) - half)


def average(path: Path) -> Array:
    """Return the mean of all iterates."""
    return _mean(_sum(path, 0, len(path)), None, len(path))


def last(path: Path) -> Array:
    """Return the last iterate."""
    return path[-1].copy()


_AVERAGED: dict[object, Callable[[int], int]] = {"tail": lambda length: length // 2, "average": lambda length: 0}
"""Where averages begin, by the number of iterates."""

SELECTORS: dict[str, Selector] = {"tail": tail_average, "average": average, "last": last}


def select(selector: str | Selector, path: Path) -> Array:
    """Return the model that a selector, or a name of one, makes of a path."""
    return SELECTORS[selector](path) if isinstance(selector, str) else selector(path)
