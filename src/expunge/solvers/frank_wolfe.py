"""Variance-reduced Frank-Wolfe: the hybrid gradient, and the rule that steps to a corner of the domain.

Ullah & Arora (2023); its estimator with the first term corrected (docs/paper.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.types import AnyArray, Array
from expunge.engine.transcript import Path
from expunge.solvers.domains import Domain
from expunge.solvers.gradient import Gradient


@dataclass(frozen=True, eq=False)
class FrankWolfeRule:
    """w ← w + (v - w)/(t+1), where v minimises ⟨a, v⟩ over the domain: mixes of corners, never a projection.

    Its steps do not depend on how many there will be.

    ``penalty`` as in `DualAveragingRule`; its gradient is added to the answer.
    """

    start: Array
    domain: Domain
    penalty: float | Array | None = None

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        w = path[-1]
        if self.penalty is not None:
            answer = answer + (step + 2) * self.penalty * w
        return np.asarray(w + (self.domain.lmo(answer) - w) / (step + 2))


@dataclass(frozen=True)
class HybridGradient(Gradient):
    """The variance-reduced gradient of Frank-Wolfe (SARAH): (t+1)∇ℓ(w_t) - t∇ℓ(w_{t-1}), and 2∇ℓ(w₁) at first.

    The sum over t steps estimates (t+1) times the gradient at w_t. Contributions stay within max(2G, HD + G)
    because the rule moves by at most D/t to reach w_t; ``diameter`` is D. (docs/guarantee.md#frank-wolfe)
    """

    diameter: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.steepest):
            raise BadPlan(
                "HybridGradient needs a smooth loss and a bounded domain: smooth the hinge (SmoothedHinge), "
                "and give the diameter of the domain."
            )

    @property
    def steepest(self) -> float:
        """The largest norm of a record's slopes, before clipping."""
        lipschitz = self.loss.lipschitz
        return max(2.0 * lipschitz, self.loss.smoothness * self.longest_row * self.diameter + lipschitz)

    def _slopes(
        self, step: int, path: Path, features: Any, targets: AnyArray, product: Callable[[Any, Array], Array]
    ) -> Array:
        newest = self._slopes_at(path[-1], features, targets, product)
        if step == 0:
            return self._clipped(2.0 * newest)
        before = self._slopes_at(path[-2], features, targets, product)
        return self._clipped((step + 2) * newest - (step + 1) * before)
