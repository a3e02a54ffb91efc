"""A linear model on randomly projected rows: its query, and its model in terms of the original features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from expunge.base.errors import BadRecords
from expunge.base.norms import shortened
from expunge.base.types import Array, Batch
from expunge.engine.selectors import select
from expunge.engine.transcript import Path
from expunge.solvers.gradient import Gradient
from expunge.solvers.projection import Projection


@dataclass(frozen=True)
class ProjectedGradient:
    """The query of a linear model on projected rows, shortened to its ``feature_norm`` where they became too long.

    Records have their original features, and are projected whenever they are evaluated; or they have been projected
    before, by `project`, and have as many columns as there are components. That is faster, and the same to the last
    bit.
    """

    of: Gradient
    projection: Projection

    @property
    def size(self) -> int:
        """One number for each component."""
        return self.of.size

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""
        return self.of.bound

    def project(self, rows: Any) -> Array:
        """Return rows as they take part."""
        projected: Array = shortened(self.projection.apply(rows), self.of.feature_norm)
        return projected

    def admit(self, batch: Batch) -> None:
        """Refuse rows of another width, and classes that do not exist."""
        features = batch[0]
        widths = self.projection.features, self.size
        if len(batch) != 2 or features.ndim != 2 or features.shape[1] not in widths:
            raise BadRecords(
                f"records: expected features of {widths[0]} columns (or, projected, {widths[1]}) and a target, "
                f"got {features.shape}."
            )
        self.of.admit(self._projected(batch))

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return the gradient of each record's loss in the weights of the components."""
        return self.of.contributions(step, path, self._projected(batch))

    def total(self, step: int, path: Path, batch: Batch) -> tuple[Array, int]:
        """Return the sum of the gradients."""
        return self.of.total(step, path, self._projected(batch))

    def _projected(self, batch: Batch) -> Batch:
        if batch[0].shape[1] == self.size:
            return batch
        return self.project(batch[0]), *batch[1:]


@dataclass(frozen=True)
class BackToFeatures:
    """A selector: the model Φᵀw in terms of the original features."""

    selector: str | Callable[[Path], Array]
    projection: Projection

    def __call__(self, path: Path) -> Array:
        """Return the weights of the features."""
        return self.projection.back(select(self.selector, path)[None])[0]
