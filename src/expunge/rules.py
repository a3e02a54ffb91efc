"""How the next iterate follows from the noisy answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from expunge.domains import Domain, Everywhere
from expunge.rows import Path
from expunge.types import Array


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


@dataclass(frozen=True, eq=False)
class FrankWolfe:
    """w ← w + (v - w)/(t+1), where v minimises ⟨a, v⟩ over the domain: mixes of corners, never a projection.

    Its steps do not depend on how many there will be.

    ``penalty`` as in `DualAveraging`; its gradient is added to the answer.
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


@dataclass(frozen=True, eq=False)
class GradientDescent:
    """w ← Π((w - η a)/(1 + ηλ)): steps along the noisy gradient of the round (for `Identity`).

    ``penalty`` is λ, the weight of an L2 penalty |w|²/2 in a round, a number or one for each parameter.
    """

    start: Array
    step_size: float
    domain: Domain = field(default_factory=Everywhere)
    penalty: float | Array | None = None

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the next iterate."""
        moved = np.asarray(path[-1] - self.step_size * answer)
        if self.penalty is not None:
            moved = moved / (1.0 + self.step_size * self.penalty)
        return self.domain.project(moved)
