"""Rounds that are draws: the law of what is drawn, given exact sums, and the two kinds of law that there are.

A pass can be made of draws instead of noisy sums. Each step has exact sums P and draws the next iterate from a law
q(· | P) that is known; the last step, the *finish*, only sums, and the model is solved from it when it is read.
(docs/guarantee.md#draws)
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from expunge.base.grid import FINENESS
from expunge.base.types import Array, Draws
from expunge.engine.transcript import Path

COARSE = 8
"""Units of lattices are powers of 2⁸ below the spread: so they seldom change when a record leaves."""


class Law(Protocol):
    """A law on a lattice. Where two laws have the same lattice, their densities can be compared."""

    @property
    def lattice(self) -> Hashable:
        """Which lattice it is on."""

    def log_density(self, drawn: Array) -> Any:
        """Return the logarithm of its density, up to a constant of the lattice, of a vector or of each row."""

    def draw(self, draws: Draws, number: int = 1) -> Array:
        """Draw from it so many times: one a row."""

    def whitened(self, drawn: Array) -> Array:
        """Return independent standard normal numbers, if this was drawn from it; none if nothing is random."""

    def holds(self, drawn: Array, tolerance: float = 0.0) -> bool:
        """Say whether it could have drawn this; with a tolerance, on a machine that rounds differently."""


class Laws(Protocol):
    """The laws of all steps of a pass, and the model at its end."""

    def law(self, step: int, path: Path, sums: Array) -> Law | None:
        """Return the law of what a step draws, given the sums up to its own; None for the finish.

        It is a function of earlier draws, these sums and the plan, to the last bit the same wherever it is asked for.
        """

    def model(self, path: Path, sums: Array) -> Array:
        """Solve for the model, from all draws and sums."""


@dataclass(frozen=True)
class Point:
    """The law of something that is not random."""

    value: Array

    @cached_property
    def lattice(self) -> Hashable:
        """The value itself: any other has nothing in common with it."""
        return "point", self.value.tobytes()

    def log_density(self, drawn: Array) -> Any:
        """Return 0."""
        return np.zeros(drawn.shape[:-1])[()]

    def draw(self, draws: Draws, number: int = 1) -> Array:
        """Return the value, so many times."""
        return np.tile(self.value, (number, 1))

    def whitened(self, drawn: Array) -> Array:
        """Return nothing."""
        return np.zeros(0)

    def holds(self, drawn: Array, tolerance: float = 0.0) -> bool:
        """Say whether this is the value."""
        return np.allclose(drawn, self.value, rtol=tolerance, atol=tolerance)


class Gaussian:
    """N(m, s²(LLᵀ)⁻¹) on a lattice, in the coordinates from ``first`` on of a vector whose others are 0.

    ``factor`` is L, lower triangular with a positive diagonal. A draw is rounded coordinate by coordinate, the last one
    first, inside the back substitution: each is rounded given those that are rounded already, so that what is stored
    has the density of the law, whatever the angles between coordinates. (docs/guarantee.md#draws)

    >>> law = Gaussian(np.array([1.0, 2.0]), np.array([[2.0, 0.0], [1.0, 1.0]]), 0.5)
    >>> float(law.log_density(np.array([1.0, 2.0]))) == math.log(2.0) - 2 * math.log(0.5)
    True
    """

    __slots__ = ("_constant", "_units", "factor", "first", "lattice", "mean", "scale", "size")

    def __init__(self, mean: Array, factor: Array, scale: float, size: int | None = None, first: int = 0) -> None:
        self.mean, self.factor, self.scale, self.first = mean, factor, scale, first
        self.size = len(mean) if size is None else size
        diagonal = factor.diagonal()
        exponents = COARSE * np.floor(np.log2(scale / diagonal) / COARSE).astype(np.int64) - FINENESS
        self._units = np.ldexp(1.0, exponents)
        self.lattice: Hashable = ("gaussian", exponents.tobytes())
        self._constant = float(np.log(diagonal).sum()) - len(mean) * math.log(scale)

    def whitened(self, drawn: Array) -> Array:
        """Return Lᵀ(w - m)/s: independent standard normal numbers, if this was drawn from the law."""
        off = drawn[..., self.first : self.first + len(self.mean)] - self.mean
        return np.asarray(off @ self.factor) / self.scale

    def holds(self, drawn: Array, tolerance: float = 0.0) -> bool:
        """Say whether this is on the lattice; with a tolerance, whether it is of the right kind."""
        rest, stop = drawn.copy(), self.first + len(self.mean)
        rest[self.first : stop] = 0.0 if tolerance else np.fmod(drawn[self.first : stop], self._units)
        return not rest.any()

    def log_density(self, drawn: Array) -> Any:
        """Return the logarithm of the density."""
        normal = self.whitened(drawn)
        return self._constant - 0.5 * np.einsum("...j,...j->...", normal, normal)

    def draw(self, draws: Draws, number: int = 1) -> Array:
        """Draw from it, on the lattice."""
        mean, factor, units, width = self.mean, self.factor, self._units, len(self.mean)
        normal, dither = draws.standard_normal((width, number)), draws.random((width, number))
        drawn, off = np.zeros((self.size, number)), np.zeros((width, number))
        for j in range(width - 1, -1, -1):
            along = self.scale * normal[j] - factor[j + 1 :, j] @ off[j + 1 :]
            row = np.floor((mean[j] + along / factor[j, j]) / units[j] + dither[j]) * units[j]
            drawn[self.first + j], off[j] = row, row - mean[j]
        return np.ascontiguousarray(drawn.T)
