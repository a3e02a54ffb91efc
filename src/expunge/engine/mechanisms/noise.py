"""Where a forward pass gets its noise: drawn on the grid, given, or none. (docs/guarantee.md#the-grid)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from expunge.base.grid import dithered
from expunge.base.types import Array, Draws
from expunge.engine.mechanisms.protocol import Mechanism


class NoiseSource(Protocol):
    """Where a forward pass gets the noise on its answers."""

    def wants_shift(self, step: int) -> bool:
        """Whether the noise of a step depends on what the edit changes there."""

    def row(self, step: int, shift: Array | None) -> Array | float:
        """Return the noise on the answer of a step, given by how much it moves the sums that answers are made of.

        It is asked once for each step, in order.
        """


class NoNoise:
    """No noise at all."""

    def wants_shift(self, step: int) -> bool:
        """Return False: there is none."""
        return False

    def row(self, step: int, shift: Array | None) -> float:
        """Return 0."""
        return 0.0


@dataclass
class GivenNoise:
    """Noise that is already there."""

    noise: Array

    def wants_shift(self, step: int) -> bool:
        """Return False: it depends on nothing."""
        return False

    def row(self, step: int, shift: Array | None) -> Array:
        """Return the row."""
        return self.noise[step]


@dataclass
class SameNoise:
    """The noise of the only row that is computed."""

    noise: Array

    def wants_shift(self, step: int) -> bool:
        """Return False: it depends on nothing."""
        return False

    def row(self, step: int, shift: Array | None) -> Array:
        """Return it."""
        return self.noise


def draw_noise(mechanism: Mechanism, steps: int, size: int, sigma: float, unit: float, draws: Draws) -> Array:
    """Draw the noise N of a whole run, on the grid of ``unit``."""
    xi = draws.standard_normal((steps, size))
    xi *= (sigma * mechanism.scales(steps))[:, None]
    return dithered(mechanism.color(xi), unit, draws)
