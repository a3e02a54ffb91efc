"""Domains of models: convex sets, with their projections and linear minimisers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Protocol

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.types import Array

ROUNDING = 1.0 + 64 * np.finfo(float).eps
"""A point this near counts as inside, so that projecting twice changes no bit."""


class Domain(Protocol):
    """A convex set. A point with NaN or infinity is projected to NaN, which the engine refuses."""

    def project(self, point: Array) -> Array:
        """Return the nearest point of the set; a point inside comes back as it is."""

    def lmo(self, direction: Array) -> Array:
        """Return the point v of the set with the least ⟨direction, v⟩, always the same one if there are several."""

    def diameter(self, size: int) -> float:
        """Return the largest Euclidean distance of two points of the set, in a space of this dimension."""


def _positive(name: str, value: float) -> None:
    if not (isinstance(value, Real) and math.isfinite(value) and value > 0):
        raise BadPlan(f"{name}={value!r}: give a finite number above 0.")


@dataclass(frozen=True)
class Everywhere:
    """All of space.

    >>> Everywhere().project(np.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """

    def project(self, point: Array) -> Array:
        """Return the point itself."""
        return point

    def lmo(self, direction: Array) -> Array:
        """Refuse: there is no least."""
        raise BadPlan("domain=Everywhere(): has no linear minimiser; use a bounded one, such as Ball(radius).")

    def diameter(self, size: int) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True)
class Ball:
    """The Euclidean ball around the origin.

    >>> Ball(2.5).project(np.array([3.0, 4.0])).tolist()
    [1.5, 2.0]
    """

    radius: float

    def __post_init__(self) -> None:
        _positive("radius", self.radius)

    def project(self, point: Array) -> Array:
        """Scale the point down to the radius."""
        largest = _largest(point)
        length = largest * _length(point / largest) if largest else 0.0
        return point if length <= self.radius * ROUNDING else point * (self.radius / length)

    def lmo(self, direction: Array) -> Array:
        """Go against the direction up to the radius; stay at the centre if there is none."""
        largest = _largest(direction)
        if largest == 0.0:
            return np.zeros_like(direction)
        scaled = direction / largest
        return scaled * (-self.radius / _length(scaled))

    def diameter(self, size: int) -> float:
        """Return twice the radius."""
        return 2.0 * self.radius


@dataclass(frozen=True)
class L1Ball:
    """The points whose absolute values sum to at most the radius: sparse corners.

    >>> L1Ball(1.0).project(np.array([3.0, -2.5, 1.0])).tolist()
    [0.75, -0.25, 0.0]
    >>> L1Ball(1.0).lmo(np.array([1.0, -2.0])).tolist()
    [0.0, 1.0]
    """

    radius: float

    def __post_init__(self) -> None:
        _positive("radius", self.radius)

    def project(self, point: Array) -> Array:
        """Shrink all coordinates by the same amount, down to 0."""
        sizes = np.abs(point)
        if _largest(point) <= self.radius * ROUNDING and sizes.sum() <= self.radius * ROUNDING:
            return point
        return np.copysign(_onto_simplex(sizes, self.radius), point)

    def lmo(self, direction: Array) -> Array:
        """Return the corner against the largest coordinate, the first of equals."""
        first = int(np.abs(direction).argmax())
        return _corner(direction, first, -self.radius if direction[first] > 0 else self.radius)

    def diameter(self, size: int) -> float:
        """Return twice the radius."""
        return 2.0 * self.radius


@dataclass(frozen=True)
class Simplex:
    """The points without negative coordinates that sum to the total.

    >>> Simplex().project(np.array([0.75, 0.75, 0.0])).tolist()
    [0.5, 0.5, 0.0]
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        _positive("total", self.total)

    def project(self, point: Array) -> Array:
        """Move all coordinates by the same amount, down to 0."""
        inside = point.min() >= 0.0 and point.max() <= self.total * ROUNDING
        if inside and abs(point.sum() - self.total) <= self.total * (ROUNDING - 1.0):
            return point
        return _onto_simplex(point, self.total)

    def lmo(self, direction: Array) -> Array:
        """Return the corner of the least coordinate, the first of equals."""
        return _corner(direction, int(direction.argmin()), self.total)

    def diameter(self, size: int) -> float:
        """Return the distance of two corners; one alone has none."""
        return math.sqrt(2.0) * self.total if size > 1 else 0.0


@dataclass(frozen=True)
class Box:
    """The points whose coordinates all lie between two numbers.

    >>> Box(0.0, 1.0).project(np.array([-3.0, 0.5, 2.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            if not (isinstance(value, Real) and math.isfinite(value)):
                raise BadPlan(f"{name}={value!r}: give a finite number.")
        if not self.low < self.high:
            raise BadPlan(f"low={self.low!r}: give a number below high={self.high!r}.")

    def project(self, point: Array) -> Array:
        """Clip every coordinate."""
        if not np.isfinite(point).all():
            return np.full_like(point, np.nan)
        inside = self.low <= point.min() and point.max() <= self.high  # clipping might turn -0 into 0
        return point if inside else np.clip(point, self.low, self.high)

    def lmo(self, direction: Array) -> Array:
        """Go high where the direction is negative, else low."""
        return np.where(direction < 0, float(self.high), float(self.low))

    def diameter(self, size: int) -> float:
        """Return the length of the diagonal."""
        return (self.high - self.low) * math.sqrt(size)


def _largest(point: Array) -> float:
    """Return the largest absolute coordinate, NaN if any is not finite."""
    largest = float(np.abs(point).max(initial=0.0))
    return largest if largest < math.inf else math.nan


def _length(scaled: Array) -> float:
    """Return the norm of a point whose largest coordinate is 1; not by BLAS, which rounds by the number of threads."""
    return math.sqrt(float(np.square(scaled).sum()))


def _corner(like: Array, place: int, height: float) -> Array:
    corner = np.zeros_like(like)
    corner[place] = height
    return corner


def _onto_simplex(point: Array, total: float) -> Array:
    """Return the nearest point of the simplex, by sorting.

    Adding a constant to all coordinates does not move the projection. So the largest is first brought to the total:
    then coordinates of 0 or less end at 0, and far points lose no digits.
    """
    if math.isnan(_largest(point)):
        return np.full_like(point, np.nan)
    near = (point - point.max()) + total
    falling = np.sort(near[near > 0.0])[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    reduced = np.maximum(near - excess[falling > excess][-1], 0.0)
    return reduced * (total / reduced.sum())
