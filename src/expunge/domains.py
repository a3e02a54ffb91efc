"""Where models may lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from expunge.types import Array


class Domain(Protocol):
    """A convex set."""

    def project(self, point: Array) -> Array:
        """Return the nearest point of the set."""


@dataclass(frozen=True)
class Everywhere:
    """All of space."""

    def project(self, point: Array) -> Array:
        """Return the point itself."""
        return point


@dataclass(frozen=True)
class Ball:
    """The Euclidean ball around the origin."""

    radius: float

    def project(self, point: Array) -> Array:
        """Scale the point down to the radius."""
        length = math.sqrt(float(point.ravel() @ point.ravel()))
        return point if length <= self.radius else point * (self.radius / length)
