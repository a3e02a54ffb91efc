"""What a record contributes at a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.columns import dense, each, squared_norms
from expunge.errors import BadRecords
from expunge.losses import Loss
from expunge.rows import Path
from expunge.types import Array, Batch


@dataclass(frozen=True)
class PerRecord:
    """A query from a plain function of one record: ``function(step, path, *fields) -> size numbers``.

    Slower than a query that takes whole batches, but easy to write. Rows of sparse columns come as plain arrays.

    >>> mean = PerRecord(lambda step, path, x: x - path[-1], size=2, bound=4.0)
    >>> mean.contributions(0, Path(np.zeros(2), None, 0), (np.eye(2),)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    function: Callable[..., Any]
    size: int
    bound: float

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Call the function for every record."""
        records = zip(*map(each, batch), strict=True)
        rows = [np.asarray(self.function(step, path, *fields), dtype=float) for fields in records]
        return np.stack(rows) if rows else np.zeros((0, self.size))


@dataclass(frozen=True)
class Gradient:
    """The gradient of a linear model's loss; records are (features, target) with features of bounded norm.

    Features may be sparse. The gradients are dense: where a step visits everyone, they are all made at once.
    """

    loss: Loss
    size: int
    feature_norm: float = 1.0

    @property
    def bound(self) -> float:
        """Return the largest norm that a gradient can have."""
        return self.loss.lipschitz * self.feature_norm

    def admit(self, batch: Batch) -> None:
        """Refuse features of the wrong width or longer than declared."""
        features = batch[0]
        if len(batch) != 2 or features.ndim != 2 or features.shape[1] != self.size:
            raise BadRecords(f"records: expected features of {self.size} columns and a target, got {features.shape}.")
        longest = np.sqrt(squared_norms(features).max(initial=0.0))
        if longest > self.feature_norm * (1 + 1e-9):
            raise BadRecords(
                f"features: a row has norm {longest:.6g}, above feature_norm={self.feature_norm:g}. "
                "Scale rows down to it, or declare a larger one (more noise for the same ρ)."
            )

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return the gradient of each record's loss, the same to the last bit in whatever batch it comes."""
        features, targets = dense(batch[0]), batch[1]
        scores = (features * path[-1]).sum(axis=1)  # a product by BLAS would round by the size of the batch
        return np.asarray(self.loss.derivative(scores, targets)[:, None] * features)

    def total(self, step: int, path: Path, batch: Batch) -> tuple[Array, int]:
        """Return the sum of the gradients, by two products; none can be above the bound."""
        features, targets = batch
        return features.T @ self.loss.derivative(features @ path[-1], targets), 0
