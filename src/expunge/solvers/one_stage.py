"""A keyed sample of one stage, those whose key is below ρ: who joins, and in which order they are looked at."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array, Batch, Keys, Mask

EXACT_TO = 2**30
"""So many records can be summed without rounding."""
LARGEST = 1e100
"""Amounts must be no larger than this: then no sum of squares overflows, whoever is in the sample."""
BELOW = 2.0**64
"""Keys are below this."""


class OneStageSettings(Protocol):
    """What is fixed before records take part: who joins, and what targets are."""

    @property
    def classes(self) -> int:
        """How many classes there are; 0 where targets are amounts."""

    @property
    def rho(self) -> float:
        """The share of records in the sample."""


class OneStage:
    """A structure from such a sample of records with features and a target. Subclasses say what is found in it."""

    settings: OneStageSettings

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return 1

    @property
    def bound(self) -> float:
        """The largest target that a record may have."""
        return LARGEST

    @property
    def exact_to(self) -> int:
        """Up to how many records sums are exact."""
        return EXACT_TO

    def admit(self, batch: Batch) -> None:
        """Raise if records cannot be taken."""
        for name, column in zip(("X", "y"), batch, strict=True):
            if not np.isfinite(column).all():
                raise BadRecords(f"{name}: it has NaN or infinity. Replace it, or leave the record out.")
        if not self.settings.classes and np.abs(batch[1]).max(initial=0.0) > LARGEST:
            raise BadRecords(
                f"y: it has {np.abs(batch[1]).max():g}; targets must be at most {LARGEST:g}. Use other units."
            )

    def joins(self, stage: None, keys: Keys, batch: Batch) -> Mask:
        """Say who joins: those whose key is below ρ."""
        if self.settings.rho >= 1.0:
            return np.ones(len(keys), dtype=bool)
        return np.asarray(keys < np.uint64(self.settings.rho * BELOW))

    def sampled(self, found: tuple[Any, ...], keys: Keys, batch: Batch) -> Mask:
        """Say who has joined."""
        return self.joins(None, keys, batch)

    def chance(self, found: tuple[Any, ...], batch: Batch) -> Array:
        """Return how likely each record is to join: everyone alike."""
        return np.full(len(batch[0]), self.settings.rho)


def in_order(keys: Keys, X: Array, y: AnyArray) -> tuple[Array, AnyArray]:
    """Return copies of a sample's rows and targets, in an order that follows from keys and contents alone."""
    order = np.argsort(keys)
    if (np.diff(keys[order]) == 0).any():  # of one subject
        order = np.lexsort((*X.T[::-1], y, keys))
    return X[order] + 0.0, y[order]  # -0 becomes 0
