"""Dual averaging: the iterate is the projected, scaled sum of all noisy gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from expunge.base.types import Array
from expunge.engine.transcript import Path
from expunge.solvers.domains import Domain, Everywhere


@dataclass(frozen=True, eq=False)
class DualAveraging:
    """w = Π(w₁ - η a): steps along the noisy sum of all gradients so far, from where it started.

    ``penalty`` is what a step adds to the weight of an L2 penalty |w|²/2, a number or one for each parameter: it
    shrinks w, which costs no noise. With ``anytime``, a number of steps, η becomes η/√(1 + t/anytime) after t steps:
    however many there will be, steps are as short as they should, and in the beginning not longer than is good.
    """

    start: Array
    step_size: float
    domain: Domain = field(default_factory=Everywhere)
    penalty: float | Array | None = None
    anytime: float | None = None

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        step_size = self.step_size
        if self.anytime is not None:
            step_size /= math.sqrt(1.0 + (step + 1) / self.anytime)
        moved = step_size * answer
        if self.penalty is not None:
            moved = moved / (1.0 + step_size * (step + 1) * self.penalty)
        return self.domain.project(self.start - moved)
