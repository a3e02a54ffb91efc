"""The four rows of Table 1 as problems with learners: the paper's configuration, and ours with the same ρ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from benchmarks.paper.problems_with_optima import (
    ABSOLUTE,
    LOGISTIC,
    LOOSE,
    LinearModel,
    Tilted,
    distance_excess,
    sphere,
    sphere_across,
    turned,
)
from expunge import Ball, DualAveragingRule, FrankWolfeRule, Learner, MemoryRecords, Scattered, SquareRoot, paper
from expunge.base.types import AnyArray, Array
from expunge.engine.accounting import noise_for
from expunge.models.preprocessing import bound_rows
from expunge.solvers.dual_averaging import theorem_step_size
from expunge.solvers.projected import ProjectedGradient

PAPER, OURS = "paper's", "ours"
ROOT = SquareRoot()


@dataclass(frozen=True)
class Problem:
    """Records of one run, a learner for them, and how far a model is from the optimum."""

    columns: tuple[AnyArray, ...]
    learner: Learner
    excess: Callable[[Array], float]

    def records(self) -> MemoryRecords:
        return MemoryRecords(self.columns)


class Row(Protocol):
    """A row of Table 1."""

    @property
    def name(self) -> str: ...
    @property
    def exponent(self) -> float:
        """How the term with the noise falls with ρ."""

    @property
    def d(self) -> int: ...
    @property
    def family(self) -> tuple[float, ...]:
        """The problems among which the worst one is taken: theorems are about that one."""

    def unlearned(self, member: float) -> float:
        """Return the excess of a model that has learned nothing, and costs nothing to delete from."""

    def problem(self, who: str, n: int, rho: float, member: float, rng: np.random.Generator) -> Problem:
        """Draw records, and plan."""


def ours(learner: Learner, rho: float, n: int) -> Learner:
    """Return the same learner as this library makes it: steps that nobody moves into, less noise, fewer replays.

    Dual averaging gets the step size that balances its bound with the noise that is now there.
    """
    bound, rule = learner.query.bound, learner.rule
    sigma = noise_for(rho, Scattered(n), ROOT, bound=bound)
    if isinstance(rule, DualAveragingRule):
        assert isinstance(rule.domain, Ball)
        spread = sigma * float(ROOT.column_norms(n)[0])
        step = theorem_step_size(
            n, learner.query.size, bound=bound, radius=rule.domain.radius, spread=spread, batch=2.0
        )  # fmt: skip
        rule = replace(rule, step_size=step)
    return replace(learner, schedule=Scattered(n), mechanism=ROOT, sigma=sigma, coupling="joint", rule=rule)


@dataclass(frozen=True)
class Smooth:
    """Row 1: a linear loss with one curved direction on a ball, tilted by one of several means."""

    d: int = 4
    family: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.6)
    name: str = "1: smooth, VR-FW"
    exponent: float = -1.0

    def unlearned(self, member: float) -> float:
        return member

    def problem(self, who: str, n: int, rho: float, member: float, rng: np.random.Generator) -> Problem:
        query = Tilted(self.d, member, across=True)
        learner = paper.prefix_sums(query, FrankWolfeRule(np.zeros(self.d), Ball(query.radius)), rho=rho, n=n)
        if who == OURS:
            learner = ours(learner, rho, n)

        def excess(w: Array) -> float:
            return float(member * (w[0] + query.radius) + 0.5 * query.curvature * w[1] ** 2)

        return Problem((sphere_across(n, self.d, rng),), learner, excess)


def _from_the_point(w: Array, points: Array) -> Array:
    """Return the gradients of |w - z|."""
    away = w - points
    lengths = np.sqrt(np.einsum("ij,ij->i", away, away))
    return np.asarray(away / np.where(lengths > 0.0, lengths, 1.0)[:, None])


@dataclass(frozen=True)
class Lipschitz:
    """Row 2: the distance to a point; half of the records are at the optimum, the others all around it."""

    d: int = 16
    family: tuple[float, ...] = (1.0,)
    name: str = "2: Lipschitz, DA"
    exponent: float = -0.5

    def unlearned(self, member: float) -> float:
        return float(distance_excess(np.ones(1), self.d)[0])

    def problem(self, who: str, n: int, rho: float, member: float, rng: np.random.Generator) -> Problem:
        best = np.zeros(self.d)
        best[0] = 1.0
        points = sphere(n, self.d, rng) * rng.integers(2, size=n)[:, None] + best
        learner = paper.dual_averaging(_from_the_point, rho=rho, n=n, d=self.d, D=3.0, G=1.0)
        if who == OURS:
            learner = ours(learner, rho, n)

        def excess(w: Array) -> float:
            return float(distance_excess(np.array([np.linalg.norm(w - best)]), self.d)[0])

        return Problem((points,), learner, excess)


@dataclass(frozen=True)
class Linear:
    """Rows 3 and 4: linear models on random projections of their features."""

    model: LinearModel
    base: Literal["frank_wolfe", "dual_averaging"]
    name: str
    exponent: float
    d: int = 1024
    family: tuple[float, ...] = (1.0,)

    def unlearned(self, member: float) -> float:
        return float(self.model.excess(np.zeros((1, 2)))[0])

    def problem(self, who: str, n: int, rho: float, member: float, rng: np.random.Generator) -> Problem:
        learner = paper.projected(
            self.model.loss, base=self.base, rho=rho, n=n, d=self.d, radius=self.model.length, norm=LOOSE,
            key=rng.bytes(32),
        )  # fmt: skip
        query, size = learner.query, learner.query.size
        projected = isinstance(query, ProjectedGradient)
        phi = turned(query.projection.back(np.eye(size))) if isinstance(query, ProjectedGradient) else None
        features, targets, _ = self.model.draw(n, self.d, size, rng, phi)
        norm = query.of.feature_norm if isinstance(query, ProjectedGradient) else LOOSE
        if who == OURS:
            learner = ours(learner, rho, n)

        def excess(w: Array) -> float:
            return float(self.model.excess(turned(w[None]) if projected else w[None])[0])

        return Problem((bound_rows(features, norm), targets), learner, excess)


ROWS: tuple[Row, ...] = (
    Smooth(),
    Lipschitz(),
    Linear(LOGISTIC, "frank_wolfe", "3: smooth, linear model, JL + VR-FW", -2.0 / 3.0),
    Linear(ABSOLUTE, "dual_averaging", "4: Lipschitz, linear model, JL + DA", -1.0 / 3.0),
)
