"""Gradients of any convex loss, given as a function, and clients' updates given likewise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.base.errors import BadContribution
from expunge.base.types import Array, Batch
from expunge.engine.transcript import Path
from expunge.solvers.averaging import ClientUpdate


@dataclass(frozen=True)
class LossGradient:
    """The gradient of a loss at the newest iterate: ``gradient(w, *columns)`` returns a row for each record.

    ``bound`` is the largest norm of such a row, the loss's Lipschitz constant G.

    >>> query = LossGradient(lambda w, z: w - z, size=2, bound=4.0)
    >>> query.contributions(0, Path(np.ones(2), None, 0), (np.eye(2),)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    gradient: Callable[..., Any]
    size: int
    bound: float

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return the gradient of each record's loss."""
        return self._at(path[-1], batch)

    def _at(self, w: Array, batch: Batch) -> Array:
        rows = np.asarray(self.gradient(w, *batch), dtype=float)
        if rows.shape != (len(batch[0]), self.size):
            raise BadContribution(
                f"gradient: expected {self.size} numbers for each of {len(batch[0])} records, got shape {rows.shape}."
            )
        return rows


@dataclass(frozen=True)
class HybridLossGradient(LossGradient):
    """The variance-reduced gradient of any loss: (t+1)∇ℓ(w_t) - t∇ℓ(w_{t-1}), and 2∇ℓ(w₁) at first.

    As `HybridGradient`, which is for linear models. ``bound`` is max(2G, HD + G) for a loss that is G-Lipschitz and
    H-smooth on a domain of diameter D. (docs/guarantee.md#frank-wolfe)
    """

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return what each record adds to the estimate."""
        newest = self._at(path[-1], batch)
        if step == 0:
            return 2.0 * newest
        return (step + 2) * newest - (step + 1) * self._at(path[-2], batch)


@dataclass(frozen=True)
class UpdateOf:
    """What clients contribute to a round of federated averaging, from a function of the model and their records.

    ``update(w, *columns)`` returns a row for each client: how it would change the model. Rows are clipped and counted
    as `ClientUpdate` says.
    """

    update: Callable[..., Any]
    form: ClientUpdate

    @property
    def size(self) -> int:
        """One number for each parameter, and the count."""
        return self.form.size

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""
        return self.form.bound

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return each client's update, clipped, and its count."""
        updates = np.asarray(self.update(path[-1], *batch), dtype=float)
        if updates.shape != (len(batch[0]), self.size - 1):
            raise BadContribution(
                f"update: expected {self.size - 1} numbers for each of {len(batch[0])} clients, got {updates.shape}."
            )
        return np.asarray(self.form.fit(updates).numbers * self.form.unit)
