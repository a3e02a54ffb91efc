"""The random projection of a model: drawn at its fit, and kept in its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.base.columns import csr, is_sparse
from expunge.base.errors import BadPlan, CorruptStore
from expunge.base.types import AnyArray, Array
from expunge.engine.randomness import KEY_BYTES
from expunge.models.preprocessing import bound_rows
from expunge.solvers.plans.linear import Plan
from expunge.solvers.projection import Projection
from expunge.store.codec import UNREADABLE, pack, unpack
from expunge.store.state import PROJECTION

SIGNS = "signs"
"""What the file of a `Projection` says it is; earlier versions wrote the number of columns there."""


@dataclass(frozen=True, eq=False)
class EarlierProjection:
    """A sparse matrix, as earlier versions drew it: models that they have written keep it.

    Many of its columns are zero, and rows of few features may vanish. A new fit draws a `Projection`.
    """

    matrix: Any
    norm: float

    @property
    def components(self) -> int:
        """How many numbers a projected row has."""
        return int(self.matrix.shape[0])

    @property
    def features(self) -> int:
        """How many numbers a row has."""
        return int(self.matrix.shape[1])

    def apply(self, rows: Any) -> Array:
        """Return the projections of rows."""
        projected = bound_rows(rows, self.norm) @ self.matrix.T
        return projected.toarray() if is_sparse(projected) else np.ascontiguousarray(projected)

    def back(self, weights: Array) -> Array:
        """Return the weights of the features, from those of the components."""
        return np.asarray(weights @ self.matrix)


AnyProjection = Projection | EarlierProjection


def drawn(plan: Plan, features: int, norm: float, rng: np.random.Generator) -> Projection | None:
    """Draw the projection that a plan wants: it knows the shape of the records, and the norm of their rows, only."""
    return Projection(rng.bytes(KEY_BYTES), features, plan.features, norm) if plan.projected else None


def packed(projection: AnyProjection | None) -> bytes | None:
    """Return a projection as a file keeps it."""
    if projection is None:
        return None
    if isinstance(projection, EarlierProjection):  # of a model that was opened, and is saved to another file
        matrix = projection.matrix
        arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        return pack(str(projection.features), arrays)
    shape = np.array([projection.components, projection.features])
    key = np.frombuffer(projection.key, dtype=np.uint8)
    return pack(SIGNS, {"key": key, "shape": shape, "norm": np.array([projection.norm])})


def unpacked(content: bytes, plan: Plan, features: Any) -> AnyProjection:
    """Return the projection that a file keeps, of a model with this plan and so many features."""
    text, arrays = unpack(content)
    try:
        found = _signs(arrays) if text == SIGNS else EarlierProjection(_matrix(text, arrays), plan.feature_norm)
        if (found.components, found.features) != (plan.features, features):
            raise ValueError(f"of {found.features} features to {found.components}")
    except (BadPlan, *UNREADABLE) as error:
        raise CorruptStore(f"arrays, row {PROJECTION} is not a projection ({error}); restore a backup.") from error
    return found


def _signs(arrays: dict[str, AnyArray]) -> Projection:
    components, features = arrays["shape"].tolist()
    (norm,) = arrays["norm"].tolist()
    return Projection(arrays["key"].tobytes(), features, components, norm)


def _matrix(text: str, arrays: dict[str, AnyArray]) -> Any:
    matrix = csr(arrays["data"].astype(np.float64), arrays["indices"], arrays["indptr"], int(text))
    matrix.check_format(full_check=True)
    return matrix
