"""The steps themselves, each with noise of its own: for linear queries (Ullah & Arora 2023, appendix B).

Proof: docs/guarantee.md#mechanisms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expunge.base.types import Array
from expunge.engine.mechanisms.protocol import Column


@dataclass(frozen=True)
class Identity:
    """Independent noise on every step: R = B = C = I, for linear queries."""

    prefix = False
    row_by_row = True
    whole = True
    first_sees_most = True
    smallest_scale = 1.0

    def widest(self, steps: int) -> float:
        """Return 1."""
        return 1.0

    def scales(self, steps: int) -> Array:
        """Return ones."""
        return np.ones(steps)

    def scale_of(self, step: int) -> float:
        """Return 1."""
        return 1.0

    def column(self, step: int, steps: int) -> Column:
        """Return the unit column."""
        one = np.ones(1)
        return Column(slice(step, step + 1), one, one, 1.0)

    def weight(self, row: int, step: int) -> float:
        """Return 1 on the diagonal."""
        return float(row == step)

    def column_norms(self, steps: int) -> Array:
        """Return ones."""
        return np.ones(steps)

    def largest_norm(self, steps: int) -> float:
        """Return 1."""
        return 1.0 if steps else 0.0

    def color(self, xi: Array) -> Array:
        """Return ξ."""
        return xi.copy()

    def whiten(self, noise: Array) -> Array:
        """Return N."""
        return noise.copy()

    def pull(self, step: int, steps: int) -> Array:
        """Return the unit vector."""
        pulled = np.zeros(steps)
        pulled[step] = 1.0
        return pulled

    def tables(self, steps: int) -> None:
        """Return None: a coin looks at one row."""

    def continues(self, step: int) -> int:
        """Return the row before: nothing of it is taken."""
        return step - 1

    def carry(self, noise: Array, step: int, first: int = 0) -> Array:
        """Return zero: no row depends on earlier ones."""
        return np.zeros(noise.shape[1:])
