"""The learners of Table 1's rows 1 and 2, by their names in `expunge.paper`, each with a problem and its bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from benchmarks.paper.problems_with_optima import Distance, Tilted, distance_excess, sphere
from expunge import Ball, DualAveragingRule, FrankWolfeRule, Learner, MemoryRecords, Scattered, SquareRoot, learn, paper
from expunge.base.types import Array
from expunge.engine.accounting import noise_for
from expunge.engine.learner import Transcript
from expunge.solvers.plans.defaults import paper_step_size

ROOT = SquareRoot()


class Setting(NamedTuple):
    """How many records, how stable a transcript (the paper's ρ), how many dimensions."""

    n: int
    rho: float
    d: int


Measured = dict[str, Array]
"""Excess risks: of the "model", and where asked for the mean over "iterates"; one for each problem of a family.

Where records are deleted too, the mean of "evaluations" of a deletion, and the share of "replays".
"""


class Method(Protocol):
    """A learner and its problem."""

    @property
    def name(self) -> str:
        """What runs."""

    @property
    def problem(self) -> str:
        """On what."""

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        """Draw records, learn, and return the exact excess risk."""

    def bound(self, at: Setting) -> float:
        """Return what the proof, its constants worked out, promises."""


@cache
def _unit_noise(rho: float, steps: int) -> float:
    return noise_for(rho, Scattered(steps), ROOT, bound=1.0)


def root_noise(rho: float, steps: int, bound: float) -> tuple[float, float]:
    """Return σ of this library's own mechanism, and the standard deviation of its last answer's coordinates."""
    sigma = bound * _unit_noise(rho, steps)
    return sigma, sigma * float(ROOT.column_norms(steps)[0])


def spread_of(learner: Learner, n: int) -> float:
    """Return the largest standard deviation of a coordinate of an answer."""
    return learner.sigma * learner.mechanism.widest(n)


def steps_of(transcript: Transcript) -> Array:
    """Return w_1..w_T, the iterates at which gradients were taken: what the analysis bounds is their mean excess."""
    return np.vstack([transcript.start, transcript.iterates[:-1]])


# --- row 1: smooth losses, variance-reduced Frank-Wolfe -----------------------------------------------


@dataclass(frozen=True)
class TiltedGradient:
    """The gradient of ⟨w, z⟩ + (H/2) w₂² with z = μ e₁ + (1 - μ) u, the problem of `Tilted`; a record is u."""

    mean: float
    curvature: float = 0.5

    def __call__(self, w: Array, u: Array) -> Array:
        rows = (1.0 - self.mean) * u
        rows[:, 0] += self.mean
        rows[:, 1] += self.curvature * w[1]
        return np.asarray(rows)


def tilted_excess(w: Array, mean: float, curvature: float = 0.5, radius: float = 1.0) -> float:
    return float(mean * (w[0] + radius) + 0.5 * curvature * w[1] ** 2)


def frank_wolfe_bound(
    n: int, steps: int, size: int, spread: float, diameter: float, bound: float, smoothness: float, at_start: float
) -> float:
    """Return 2DB/√n + D√m σ_eff ln(T+1)/n + (ε₁ + ½HD² ln(T+1))/(T+1)."""
    log = math.log(steps + 1)
    wander = (2.0 * bound * math.sqrt(n) + math.sqrt(size) * spread * log) * diameter / n
    return wander + (at_start + 0.5 * smoothness * diameter**2 * log) / (steps + 1)


@dataclass(frozen=True)
class FrankWolfeByName:
    """`paper.frank_wolfe` with the library's own hybrid gradient; the worst of a family of tilts μ.

    A theorem speaks of the worst problem, and any fixed tilt is learned faster.
    """

    name: str = "VR-FW"
    problem: str = "linear + one curved direction, ball"
    tilts: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    largest: float = 0.9

    def learner(self, at: Setting, mean: float) -> Learner:
        return paper.frank_wolfe(TiltedGradient(mean), rho=at.rho, n=at.n, d=at.d, D=2.0, G=1.5, H=0.5)

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        typical = self.learner(at, 0.0)
        unit = at.n**-0.5 + math.sqrt(at.d) * spread_of(typical, at.n) / at.n / 2.0
        records = MemoryRecords((sphere(at.n, at.d, rng),))
        excess = []
        for number, tilt in enumerate(self.tilts):
            mean = min(self.largest, tilt * unit)
            learner = self.learner(at, mean)
            w = learn(learner, records, rng, arranged=number > 0).model(learner)
            excess.append(tilted_excess(w, mean))
        return {"model": np.array(excess)}

    def bound(self, at: Setting) -> float:
        learner = self.learner(at, 0.0)
        return frank_wolfe_bound(
            at.n, at.n, at.d, spread_of(learner, at.n), 2.0, learner.query.bound, 0.5, self.largest
        )  # fmt: skip


@dataclass(frozen=True)
class FrankWolfeInSteps:
    """The same problem in 512 steps of this library's own schedule and noise, whose size then does not grow with n.

    So the exponents show without the logarithms. 512 steps leave (T+1)⁻¹ of the excess at the start, which noise hides.
    """

    name: str = "VR-FW, 512 steps"
    problem: str = "linear + one curved direction, ball"
    steps: int = 512
    tilts: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    largest: float = 0.9

    def _noise(self, at: Setting) -> tuple[float, float]:
        return root_noise(at.rho, self.steps, Tilted(at.d, 0.0).bound)

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        sigma, spread = self._noise(at)
        unit = at.n**-0.5 + math.sqrt(at.d) * spread / at.n
        records = MemoryRecords((sphere(at.n, at.d, rng),))
        excess = []
        for number, tilt in enumerate(self.tilts):
            query = Tilted(at.d, min(self.largest, tilt * unit))
            rule = FrankWolfeRule(np.zeros(at.d), Ball(query.radius))
            learner = Learner(Scattered(self.steps), query, rule, ROOT, sigma, selector="last")
            w = learn(learner, records, rng, arranged=number > 0).model(learner)
            excess.append(tilted_excess(w, query.mean))
        return {"model": np.array(excess)}

    def bound(self, at: Setting) -> float:
        spread = self._noise(at)[1]
        return frank_wolfe_bound(at.n, self.steps, at.d, spread, 2.0, Tilted(at.d, 0.0).bound, 0.5, self.largest)


# --- row 2: Lipschitz losses, dual averaging ----------------------------------------------------------


@dataclass(frozen=True)
class DistanceGradient:
    """The gradient of |w - z|."""

    def __call__(self, w: Array, z: Array) -> Array:
        difference = w - z
        lengths = np.sqrt(np.einsum("ij,ij->i", difference, difference))
        return np.asarray(difference / np.where(lengths > 0.0, lengths, 1.0)[:, None])


def points_around(n: int, d: int, rng: np.random.Generator) -> Array:
    """Return points of which half lie at the optimum e₁, the others all around it at distance 1."""
    points = sphere(n, d, rng) * rng.integers(2, size=n)[:, None]
    points[:, 0] += 1.0
    return points


def excess_of_points(models: Array) -> Array:
    off = models.copy()
    off[:, 0] -= 1.0
    return distance_excess(np.linalg.norm(off, axis=1), models.shape[1])


@dataclass(frozen=True)
class DualAveragingByName:
    """`paper.dual_averaging` of the distance to a point, on a ball around 0 half as wide again as needed."""

    name: str = "DA, ball"
    problem: str = "distance to a point"
    printed: bool = False
    """Whether to step as far as the paper prints, the wrong way round in ρ and d."""
    diameter: float = 3.0

    def learner(self, at: Setting) -> Learner:
        learner = paper.dual_averaging(DistanceGradient(), rho=at.rho, n=at.n, d=at.d, D=self.diameter, G=1.0)
        if self.printed:
            eta = paper_step_size(at.n, at.rho, at.d, bound=1.0, radius=self.diameter)
            return _stepping(learner, eta)
        return learner

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        learner = self.learner(at)
        transcript = learn(learner, MemoryRecords((points_around(at.n, at.d, rng),)), rng)
        return {
            "model": excess_of_points(transcript.model(learner)[None]),
            "iterates": excess_of_points(steps_of(transcript)).mean(keepdims=True),
        }

    def bound(self, at: Setting) -> float:
        learner = self.learner(at)
        return dual_averaging_bound(learner, at, spread_of(learner, at.n), radius=self.diameter / 2.0)


def _stepping(learner: Learner, eta: float) -> Learner:
    rule: Any = learner.rule
    return replace(learner, rule=replace(rule, step_size=eta))


def dual_averaging_bound(learner: Learner, at: Setting, spread: float, radius: float, batch: float = 1.0) -> float:
    """Return R²/2ηn + η(bG² + 2√m Gσ_eff)/2."""
    rule: Any = learner.rule
    square = batch * learner.query.bound**2 + 2.0 * math.sqrt(at.d) * learner.query.bound * spread
    return float(radius**2 / (2.0 * rule.step_size * at.n) + 0.5 * rule.step_size * square)


@dataclass(frozen=True)
class DualAveragingAnywhere:
    """The same without a constraint, with this library's own schedule (`Scattered`) and noise (`SquareRoot`)."""

    name: str = "DA, unconstrained, root"
    problem: str = "distance to a point"

    def _learner(self, at: Setting) -> tuple[Learner, float]:
        sigma, spread = root_noise(at.rho, at.n, 1.0)
        eta = 1.0 / math.sqrt(at.n * (2.0 + 2.0 * math.sqrt(at.d) * spread))
        rule = DualAveragingRule(np.zeros(at.d), eta)
        return Learner(Scattered(at.n), Distance(at.d), rule, ROOT, sigma, selector="average"), spread

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        learner, _ = self._learner(at)
        transcript = learn(learner, MemoryRecords((points_around(at.n, at.d, rng),)), rng)
        return {
            "model": excess_of_points(transcript.model(learner)[None]),
            "iterates": excess_of_points(steps_of(transcript)).mean(keepdims=True),
        }

    def bound(self, at: Setting) -> float:
        learner, spread = self._learner(at)
        return dual_averaging_bound(learner, at, spread, radius=1.0, batch=2.0)
