"""A query made of a plain function of one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.base.columns import each
from expunge.base.types import Array, Batch
from expunge.engine.transcript import Path


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
