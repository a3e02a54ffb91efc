"""How the next iterate follows from the noisy answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from expunge.domains import Domain, Everywhere
from expunge.rows import Path
from expunge.types import Array


@dataclass(frozen=True, eq=False)
class DualAveraging:
    """w = Π(w₁ - η a): steps along the noisy sum of all gradients so far, from where it started."""

    start: Array
    step_size: float
    domain: Domain = field(default_factory=Everywhere)

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        return self.domain.project(self.start - self.step_size * answer)


@dataclass(frozen=True, eq=False)
class GradientDescent:
    """w ← Π(w - η a): steps along the noisy gradient of the round (for `Identity`)."""

    start: Array
    step_size: float
    domain: Domain = field(default_factory=Everywhere)

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        return self.domain.project(np.asarray(path[-1] - self.step_size * answer))
