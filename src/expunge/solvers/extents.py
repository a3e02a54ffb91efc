"""The region of the points, as publicly known: a ball around 0, or a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.norms import row_norms, shortened
from expunge.base.types import Array, Ints

NARROW = 2**12
"""A column that is narrower than others by more than this factor has no visible effect."""


@dataclass(frozen=True, eq=False, repr=False)
class Extent:
    """A ball around ``center``, or a box that reaches ``half_widths`` from it; ``radius`` is how far either reaches."""

    center: Array
    radius: float
    half_widths: Array | None = None

    def inside(self, points: Array) -> Array:
        """Return points, relative to the centre, those outside moved to the nearest point of the extent."""
        if self.half_widths is None:
            moved: Array = shortened(points, self.radius)
            return moved
        return np.clip(points, -self.half_widths, self.half_widths)

    def outside(self, X: Array) -> int:
        """Return how many points are outside, by more than a rounding error."""
        apart = X - self.center
        if self.half_widths is None:
            return int(np.count_nonzero(row_norms(apart) > self.radius * (1 + 1e-12)))
        return int(np.count_nonzero((np.abs(apart) > self.half_widths + 1e-12 * self.radius).any(axis=1)))

    def narrow(self) -> Ints:
        """Return the columns that are too narrow, compared with the widest, to have an effect."""
        if self.half_widths is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self.half_widths * NARROW < self.half_widths.max())

    def draw(self, number: int, rng: np.random.Generator) -> Array:
        """Draw points of the extent, relative to the centre, uniformly."""
        features = len(self.center)
        if self.half_widths is not None:
            return rng.uniform(-self.half_widths, self.half_widths, size=(number, features))
        directions = rng.standard_normal((number, features))
        lengths = self.radius * rng.random((number, 1)) ** (1.0 / features)
        return np.asarray(directions * (lengths / np.linalg.norm(directions, axis=1, keepdims=True)))

    def _bits(self) -> tuple[Any, ...]:
        return self.radius, self.center.tobytes(), None if self.half_widths is None else self.half_widths.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self._bits() == other._bits()

    def __hash__(self) -> int:
        return hash(self._bits())

    def __repr__(self) -> str:
        if self.half_widths is None:
            return f"radius={self.radius:g}"
        return f"low={_brief(self.center - self.half_widths)} and high={_brief(self.center + self.half_widths)}"


def _brief(bounds: Array) -> str:
    if (bounds == bounds[0]).all():
        return f"{bounds[0]:g}"
    return f"[{', '.join(f'{one:g}' for one in bounds[:8])}{', …' if len(bounds) > 8 else ''}]"


def declared_extent(features: int, radius: Any, low: Any, high: Any) -> Extent:
    """Return the extent that a user declares by a radius, or by bounds: a number, or one for each column.

    >>> str(declared_extent(2, None, 0, [1, 2]))
    'low=0 and high=[1, 2]'
    """
    if radius is not None and not (low is None and high is None):
        raise BadPlan("radius, low, high: give radius, or low and high, but not both.")
    if radius is None and (low is None or high is None):
        raise BadPlan(
            "radius, low, high: declare the region of the points from public knowledge: radius= (around 0), or low= "
            "and high=. A region taken from the records would reveal the outermost of them."
        )
    if radius is not None:
        if isinstance(radius, bool) or not isinstance(radius, (int, float, np.integer, np.floating)):
            raise BadPlan(f"radius={radius!r}: give a number.")
        if not 1e-100 < radius < 1e100:
            raise BadPlan(f"radius={radius!r}: give a number above 0, from 1e-100 to 1e100.")
        return Extent(np.zeros(features), float(radius))
    lower, upper = _bounds("low", low, features), _bounds("high", high, features)
    if not (lower < upper).all():
        column = int(np.argmin(upper - lower))
        raise BadPlan(
            f"low, high: column {column} has low={lower[column]:g}, high={upper[column]:g}; low must be lower."
        )
    half_widths = (upper - lower) / 2.0
    reach = math.sqrt(half_widths @ half_widths)
    if reach < 1e-100:
        raise BadPlan("low, high: too close to each other for floating-point numbers; give them in another unit.")
    return Extent((lower + upper) / 2.0, reach, half_widths)


def _bounds(name: str, given: Any, features: int) -> Array:
    try:
        bounds = np.broadcast_to(np.asarray(given, dtype=float), (features,)).copy()
    except (TypeError, ValueError):
        bounds = np.full(1, np.nan)
    if not (np.abs(bounds) < 1e100).all():
        raise BadPlan(f"{name}={given!r}: give a finite number, or one for each of the {features} columns.")
    return bounds
