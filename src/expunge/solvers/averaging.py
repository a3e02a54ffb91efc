"""Federated averaging: clients' clipped updates, and the rule that adds their noisy mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from expunge.base.grid import grid_unit
from expunge.base.types import Array, Batch, Mask
from expunge.engine.transcript import Path


@dataclass(frozen=True, eq=False)
class FederatedAverage:
    """w ← w + noisy sum / noisy count, where the count is the last number of the answer, in units of ``weight``.

    No average of clipped updates is longer than ``clip``, so that a longer one is shortened; and a count below one
    is taken for one. Both look at noisy answers only.

    >>> rule = FederatedAverage(np.zeros(2), weight=0.5, clip=1.0)
    >>> rule.step(0, Path(np.zeros(2), None, 0), np.array([3.0, 1.0, 2.5])).tolist()
    [0.6, 0.2]
    """

    start: Array
    weight: float
    clip: float

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        mean = answer[:-1] / max(float(answer[-1]) / self.weight, 1.0)
        length = math.sqrt(mean @ mean)
        return np.asarray(path[-1] + (mean if length <= self.clip else mean * (self.clip / length)))


Numbers = NDArray[np.int32]

BITS = 30
"""How many binary digits below its bound a contribution has: as many as fit into 32 bits with their sign."""


class Fitted(NamedTuple):
    """Updates in the form in which they are summed, one a row, and which of them had to be changed."""

    numbers: Numbers
    clipped: Mask
    """Those that were longer than the clip."""
    unfit: Mask
    """Those with NaN or infinity: they count for nothing, and their clients are not counted."""


@dataclass(frozen=True)
class ClientUpdate:
    """What a client contributes to a round: how it would change the model, clipped, and ``weight`` to count it by.

    Records are clients; their one column has what each has contributed to the rounds so far, in units of the grid.

    >>> query = ClientUpdate(parameters=2, clip=1.0, weight=0.5)
    >>> query.fit(np.array([[3.0, 4.0], [0.25, np.nan]])).numbers * query.unit
    array([[0.6, 0.8, 0.5],
           [0. , 0. , 0. ]])
    """

    parameters: int
    clip: float
    weight: float
    bits: int = BITS

    @property
    def size(self) -> int:
        """One number for each parameter, and the count."""
        return self.parameters + 1

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""
        return math.hypot(self.clip, self.weight)

    @cached_property
    def unit(self) -> float:
        """The grid that contributions lie on."""
        return grid_unit(self.bound, self.bits)

    def fit(self, updates: Array) -> Fitted:
        """Clip updates, one a row, and round them to the grid. What comes of one does not depend on the others."""
        unfit: Mask = ~np.asarray(np.isfinite(updates).all(axis=1))
        if unfit.any():
            updates = np.where(unfit[:, None], 0.0, updates)
        largest = np.abs(updates).max(axis=1, initial=0.0)
        rough = np.minimum(1.0, self.clip / np.maximum(largest, self.clip))  # so that no square overflows
        updates = updates * rough[:, None]
        length = np.sqrt(np.einsum("ij,ij->i", updates, updates))
        clipped = (length > self.clip) | (rough < 1.0)
        updates = updates * np.minimum(1.0, self.clip / np.maximum(length, self.clip))[:, None]
        numbers = np.empty((len(updates), self.size), dtype=np.int32)
        numbers[:, :-1] = np.trunc(updates / self.unit)
        numbers[:, -1] = np.where(unfit, 0.0, np.trunc(self.weight / self.unit))
        return Fitted(numbers, clipped, unfit)

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return what each client has contributed to a round."""
        return np.asarray(batch[0][:, step] * self.unit)
