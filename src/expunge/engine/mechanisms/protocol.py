"""Noise for running sums: how ξ, independent from step to step, becomes the noise N on the answers.

A mechanism is a factorization ``B C = R`` of what is released (``R``: prefix sums, or the steps
themselves). The noise on the answers is ``N = B ξ``, and a change of step τ by δ moves ξ by
``C[:, τ] δ``. Proofs: docs/guarantee.md#mechanisms.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from expunge.base.types import Array, Ints


class Column(NamedTuple):
    """The non-zero part of a column of C, and what a decision needs of it."""

    rows: slice | Ints
    weights: Array
    probe: Array
    """weights / scales²: its product with ξ is what the coin looks at."""
    norm: float
    """|weights / scales|: how far the column moves the noise, in units of σ."""


class Tables(Protocol):
    """What the coins of many steps look at, by tables: nothing is worked out that no coin looks at."""

    def column_norms(self, steps: int) -> Array:
        """Return |column / scales| for every column of C."""

    def pulls(self, steps: Ints, horizon: int) -> Array:
        """Return `Mechanism.pull` for several steps, each read backwards: from the last row to the first."""

    def overlaps(self, steps: Ints, others: Ints, horizon: int) -> Array:
        """Return the products of columns of C with others, cut off after ``horizon`` rows."""


class Mechanism(Protocol):
    """What the engine asks of a mechanism; rows are numbered from 0."""

    @property
    def prefix(self) -> bool:
        """Whether the answers are prefix sums (R lower triangular of ones) or the steps themselves (R = I)."""

    @property
    def row_by_row(self) -> bool:
        """Whether the sequential coupling may be used: few rows of C see any one step."""

    @property
    def whole(self) -> bool:
        """Whether B and C have whole numbers only, so that ξ is on the grid wherever N is."""

    @property
    def first_sees_most(self) -> bool:
        """Whether no step replays more often than the first, row by row: rows like all that see it see the first."""

    @property
    def smallest_scale(self) -> float:
        """The smallest standard deviation that a row of ξ can have, in units of σ."""

    def widest(self, steps: int) -> float:
        """Return the largest standard deviation that a row of N has, in units of σ."""

    def scales(self, steps: int) -> Array:
        """Return the standard deviation of each row of ξ, in units of σ."""

    def scale_of(self, step: int) -> float:
        """Return that of one row."""

    def column(self, step: int, steps: int) -> Column:
        """Return column ``step`` of C, cut off after ``steps`` rows."""

    def weight(self, row: int, step: int) -> float:
        """Return C[row, step]: how much of a step a row sees."""

    def column_norms(self, steps: int) -> Array:
        """Return |column / scales| for every column of C."""

    def largest_norm(self, steps: int) -> float:
        """Return κ, the largest of them, at a cost that does not grow with the steps."""

    def color(self, xi: Array) -> Array:
        """Return N = B ξ."""

    def whiten(self, noise: Array) -> Array:
        """Return ξ = B⁻¹ N."""

    def pull(self, step: int, steps: int) -> Array:
        """Return B⁻ᵀ probe of column ``step``: its product with N is what the coin of that step looks at."""

    def tables(self, steps: int) -> Tables | None:
        """Return tables for so many steps, or None where there are none."""

    def continues(self, step: int) -> int:
        """Return the earliest row of N that row ``step`` continues; -1 if it takes all of them, or starts again.

        If that is a row, N[step] less that row does not depend on rows before that one.
        """

    def carry(self, noise: Array, step: int, first: int = 0) -> Array:
        """Return what the rows before ``step`` contribute to row ``step`` of N: N[step] = carry + ξ[step].

        ``noise`` holds the rows from ``first`` on; that must not lie behind the row that it continues.
        """


def matrices(mechanism: Mechanism, steps: int) -> tuple[Array, Array]:
    """Return B and C as full matrices, for tests and drawings; the engine never builds them."""
    b = mechanism.color(np.eye(steps))
    c = np.zeros((steps, steps))
    for step in range(steps):
        column = mechanism.column(step, steps)
        c[column.rows, step] = column.weights
    return b, c
