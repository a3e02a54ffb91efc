"""Dual averaging: the iterate is the projected, scaled sum of all noisy gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from expunge.base.types import Array
from expunge.engine.transcript import Path
from expunge.solvers.domains import Domain, Everywhere


@dataclass(frozen=True, eq=False)
class DualAveragingRule:
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


def theorem_step_size(
    records: int, parameters: int, *, bound: float, radius: float, spread: float = 0.0, batch: float = 1.0
) -> float:
    """Return the step size that balances the bound on the excess risk of the average of all iterates.

    The bound is R²/2ηn + η(bG² + 2√m·Gσ)/2 for n records, b of them a step, m parameters, gradients of norm at most G
    (``bound``) and a best model within ``radius`` R of the start. ``spread`` is σ, the standard deviation of the noise
    in each coordinate of an answer. Where noise is the larger part, this is √ρ/(m^¼√n) in ρ, m and n. (Ullah & Arora,
    2023, print 1/√ρ and m^¼, the wrong way round; docs/paper.md)

    >>> quiet, noisy = (theorem_step_size(10**6, 16, bound=1.0, radius=1.0, spread=s) for s in (0.0, 1000.0))
    >>> round(quiet, 6), round(noisy, 6)
    (0.001, 1.1e-05)
    """
    return radius / math.sqrt(records * (batch * bound**2 + 2.0 * math.sqrt(parameters) * bound * spread))
