"""The learners of Table 1's rows 3 and 4, linear models with and without a random projection, and their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.paper.measuring import cost_of_deletions
from benchmarks.paper.methods import (
    ROOT,
    Measured,
    Setting,
    dual_averaging_bound,
    frank_wolfe_bound,
    root_noise,
    spread_of,
    steps_of,
)
from benchmarks.paper.problems_with_optima import (
    ABSOLUTE,
    LOGISTIC,
    LOGISTIC_LENGTH,
    LOOSE,
    LinearModel,
    gaussian_logistic,
    gaussian_logistic_excess,
    turned,
)
from expunge import (
    Ball,
    DualAveragingRule,
    FrankWolfeRule,
    Gradient,
    HybridGradient,
    Learner,
    MemoryRecords,
    Scattered,
    learn,
    paper,
)
from expunge.engine.accounting import worst_case_rho
from expunge.engine.learner import Transcript
from expunge.models.preprocessing import bound_rows
from expunge.solvers.plans.defaults import automatic_components
from expunge.solvers.projection import Projection, stretch

Plan = Callable[[int], Learner]
"""The learner for so many features."""


def projected_norm(at: Setting, k: int) -> float:
    """Return to which norm rows are clipped once they are projected, as the library does."""
    return LOOSE * stretch(k, at.n, at.rho) if k < at.d else LOOSE


def run_linear(
    model: LinearModel, at: Setting, k: int, clip: float, plan: Plan, rng: np.random.Generator, deletions: int = 0
) -> Measured:
    """Draw, project, clip, learn, and measure in the space of the records; then delete records one at a time."""
    features, targets, phi = model.draw(at.n, at.d, k, rng)
    learner = plan(features.shape[1])
    records = MemoryRecords((bound_rows(features, clip), targets))
    transcript = learn(learner, records, rng)
    w = transcript.model(learner)[None]
    found: Measured = {"model": model.excess(w if phi is None else w @ phi)}
    if phi is None:
        found["iterates"] = model.excess(steps_of(transcript)).mean(keepdims=True)
    if deletions:
        found |= delete_some(learner, records, transcript, deletions, rng)
    return found


def most_evaluations(learner: Learner, at: Setting) -> float:
    """Return n times the probability that the least favourable deletion replays: no deletion takes more on average."""
    return at.n * worst_case_rho(
        learner.sigma, learner.schedule, learner.mechanism,
        bound=learner.query.bound, coupling=learner.coupling, records=at.n,
    )  # fmt: skip


def delete_some(
    learner: Learner, records: MemoryRecords, transcript: Transcript, deletions: int, rng: np.random.Generator
) -> Measured:
    """Delete one random record, take it back, and so on: what a deletion costs, on average."""
    cost = cost_of_deletions(learner, records, transcript, records.count, deletions, rng)
    return {"evaluations": np.array([cost.complexity * records.count]), "replays": np.array([cost.replays])}


@dataclass(frozen=True)
class ProjectedFrankWolfe:
    """Row 3: one record a step, (nρ)^(2/3) random projections, a ball of 1.5 times the optimum's length.

    Schedule and noise are this library's own: with the tree's, at such n hardly anything is learned.
    """

    name: str = "JL + VR-FW"
    problem: str = LOGISTIC.name
    deletions: int = 0
    radius: float = 1.5 * LOGISTIC_LENGTH

    def components(self, at: Setting) -> int:
        return automatic_components(at.n, at.rho, at.d)

    def learner(self, at: Setting, size: int = 1) -> Learner:
        norm = projected_norm(at, self.components(at))
        query = HybridGradient(LOGISTIC.loss, size, norm, diameter=2.0 * self.radius)
        rule = FrankWolfeRule(np.zeros(size), Ball(self.radius))
        return Learner(Scattered(at.n), query, rule, ROOT, root_noise(at.rho, at.n, query.bound)[0], selector="last")

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        k = self.components(at)
        norm = projected_norm(at, k)
        return run_linear(LOGISTIC, at, k, norm, lambda size: self.learner(at, size), rng, self.deletions)

    def bound(self, at: Setting) -> float:
        k, bound = self.components(at), self.learner(at).query.bound
        smoothness = LOGISTIC.loss.smoothness * projected_norm(at, k) ** 2
        spread = root_noise(at.rho, at.n, bound)[1]
        start = float(LOGISTIC.excess(np.zeros((1, 2)))[0])
        learned = frank_wolfe_bound(at.n, at.n, k, spread, 2.0 * self.radius, bound, smoothness, start)
        return learned + (0.5 * LOGISTIC.loss.smoothness * 1.5 * LOGISTIC_LENGTH**2 / k if k < at.d else 0.0)


@dataclass(frozen=True)
class WorstDimension:
    """Row 3 by name: `paper.frank_wolfe`, Gaussian features of the worst dimension, projected where d > (nρ)^(2/3)."""

    name: str = "JL + VR-FW, worst d"
    problem: str = "logistic loss, Gaussian features"
    dimensions: tuple[int, ...] = (32, 64, 128, 256, 512)
    radius: float = 1.5 * LOGISTIC_LENGTH

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        return {"model": np.array([self._excess(at._replace(d=d), rng) for d in self.dimensions])}

    def _excess(self, at: Setting, rng: np.random.Generator) -> float:
        features, targets = gaussian_logistic(at.n, at.d, rng)
        k = automatic_components(at.n, at.rho, at.d)
        phi = turned(Projection(rng.bytes(32), at.d, k, LOOSE).back(np.eye(k))) if k < at.d else np.eye(at.d)
        rows = bound_rows(bound_rows(features, LOOSE) @ phi.T, projected_norm(at, k))
        learner = _frank_wolfe(at, k, self.radius)
        return gaussian_logistic_excess(learn(learner, MemoryRecords((rows, targets)), rng).model(learner) @ phi)

    def bound(self, at: Setting) -> float:
        return max(self._bound(at._replace(d=d)) for d in self.dimensions)

    def _bound(self, at: Setting) -> float:
        k = automatic_components(at.n, at.rho, at.d)
        learner = _frank_wolfe(at, k, self.radius)
        smoothness, start = LOGISTIC.loss.smoothness, gaussian_logistic_excess(np.zeros(at.d))
        wide = spread_of(learner, at.n), 2.0 * self.radius, learner.query.bound
        learned = frank_wolfe_bound(at.n, at.n, k, *wide, smoothness * projected_norm(at, k) ** 2, start)
        return learned + (0.5 * smoothness * 1.5 * LOGISTIC_LENGTH**2 / k if k < at.d else 0.0)


def _frank_wolfe(at: Setting, size: int, radius: float) -> Learner:
    lipschitz = projected_norm(at, size) * LOGISTIC.loss.lipschitz
    return paper.frank_wolfe(LOGISTIC.loss, rho=at.rho, n=at.n, d=size, D=2.0 * radius, G=lipschitz)


@dataclass(frozen=True)
class ProjectedDualAveraging:
    """Row 4: one record a step, (nρ)^(2/3) random projections, this library's own schedule and noise.

    ``free`` takes the step size of a linear model, in which the number of projections does not appear.
    """

    name: str = "JL + DA"
    problem: str = ABSOLUTE.name
    printed: bool = False
    """Whether to have (nρ)^(1/2) projections, as the paper prints."""
    free: bool = False

    def components(self, at: Setting) -> int:
        if self.printed:
            return min(at.d, math.ceil(math.sqrt(at.n * at.rho)))
        return automatic_components(at.n, at.rho, at.d)

    def _balance(self, at: Setting) -> tuple[float, float]:
        norm = projected_norm(at, self.components(at))
        sigma, spread = root_noise(at.rho, at.n, norm)
        felt = math.sqrt(2.0 / math.pi if self.free else self.components(at))
        return sigma, 2.0 * norm**2 + 2.0 * felt * norm * spread

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        sigma, square = self._balance(at)
        norm = projected_norm(at, self.components(at))

        def plan(size: int) -> Learner:
            rule = DualAveragingRule(np.zeros(size), 1.0 / math.sqrt(at.n * square))
            query = Gradient(ABSOLUTE.loss, size, norm)
            return Learner(Scattered(at.n), query, rule, ROOT, sigma, selector="average")

        return run_linear(ABSOLUTE, at, self.components(at), norm, plan, rng)

    def bound(self, at: Setting) -> float:
        k = self.components(at)
        return math.sqrt(self._balance(at)[1] / at.n) + (math.sqrt(1.5 / k) if k < at.d else 0.0)


@dataclass(frozen=True)
class LinearDualAveraging:
    """`paper.dual_averaging` of the absolute loss on a ball half as wide again as needed, not projected."""

    name: str = "DA, k = d"
    problem: str = ABSOLUTE.name
    diameter: float = 3.0 * ABSOLUTE.length

    def _learner(self, at: Setting) -> Learner:
        return paper.dual_averaging(ABSOLUTE.loss, rho=at.rho, n=at.n, d=at.d, D=self.diameter, G=LOOSE)

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        return run_linear(ABSOLUTE, at, at.d, LOOSE, lambda size: self._learner(at), rng)

    def bound(self, at: Setting) -> float:
        learner = self._learner(at)
        return dual_averaging_bound(learner, at, spread_of(learner, at.n), radius=self.diameter / 2.0)


# --- without a projection, and without a constraint: noise acts through ⟨x, N⟩ only, so d appears nowhere ---


@dataclass(frozen=True)
class PlainLipschitz:
    """Dual averaging of the absolute loss, this library's own schedule and noise."""

    name: str = "DA, unprojected"
    problem: str = ABSOLUTE.name

    def _balance(self, at: Setting) -> tuple[float, float]:
        sigma, spread = root_noise(at.rho, at.n, LOOSE)
        return sigma, 2.0 * LOOSE**2 + 2.0 * math.sqrt(2.0 / math.pi) * LOOSE * spread

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        sigma, square = self._balance(at)

        def plan(size: int) -> Learner:
            rule = DualAveragingRule(np.zeros(size), 1.0 / math.sqrt(at.n * square))
            return Learner(Scattered(at.n), Gradient(ABSOLUTE.loss, size, LOOSE), rule, ROOT, sigma, selector="average")

        return run_linear(ABSOLUTE, at, at.d, LOOSE, plan, rng)

    def bound(self, at: Setting) -> float:
        return math.sqrt(self._balance(at)[1] / at.n)


@cache
def _tree_sigma(rho: float, n: int) -> float:
    """Return σ of `paper.prefix_sums` for contributions of norm at most 1."""
    query = Gradient(LOGISTIC.loss, 1)
    return paper.prefix_sums(query, DualAveragingRule(np.zeros(1), 1.0), rho=rho, n=n).sigma


@dataclass(frozen=True)
class PlainSmooth:
    """`paper.prefix_sums` with dual averaging of the logistic loss, unconstrained."""

    name: str = "DA, unprojected"
    problem: str = LOGISTIC.name
    deletions: int = 0

    def _plan(self, at: Setting) -> tuple[float, float]:
        """Return σ_eff and the step size."""
        spread = LOOSE * _tree_sigma(at.rho, at.n) * math.sqrt(at.n.bit_length())
        smoothness = LOGISTIC.loss.smoothness * LOOSE**2
        choices = [LOGISTIC_LENGTH / (LOOSE * math.sqrt(at.n)), 1.0 / (4.0 * smoothness)]
        if spread:
            choices.append((LOGISTIC_LENGTH**2 / (8.0 * smoothness * spread**2 * at.n)) ** (1.0 / 3.0))
        return spread, min(choices)

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        return run_linear(LOGISTIC, at, at.d, LOOSE, lambda size: self.learner(at, size), rng, self.deletions)

    def learner(self, at: Setting, size: int = 1) -> Learner:
        query, rule = Gradient(LOGISTIC.loss, size, LOOSE), DualAveragingRule(np.zeros(size), self._plan(at)[1])
        return paper.prefix_sums(query, rule, rho=at.rho, n=at.n, selector="average")

    def bound(self, at: Setting) -> float:
        spread, eta = self._plan(at)
        smoothness = LOGISTIC.loss.smoothness * LOOSE**2
        return LOGISTIC_LENGTH**2 / (eta * at.n) + eta * LOOSE**2 + 4.0 * smoothness * (eta * spread) ** 2
