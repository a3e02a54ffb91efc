"""The four rows of Table 1 as problems with learners: the paper's configuration, and ours with the same ρ."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from benchmarks.paper.problems_with_optima import (
    ABSOLUTE,
    LOGISTIC,
    PROJECTED,
    LinearModel,
    Tilted,
    distance_excess,
    sphere,
    sphere_across,
)
from expunge import Ball, DualAveraging, FrankWolfe, Learner, MemoryRecords, Scattered, SquareRoot, paper
from expunge.base.types import AnyArray, Array
from expunge.engine.accounting import noise_for
from expunge.models.preprocessing import bound_rows
from expunge.solvers.dual_averaging import theorem_step_size
from expunge.solvers.plans.defaults import automatic_components

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


def ours(learner: Learner, rho: float, n: int, **more: Any) -> Learner:
    """Return the same learner as this library makes it: steps that nobody moves into, less noise, fewer replays."""
    sigma = noise_for(rho, Scattered(n), ROOT, bound=learner.query.bound)
    return replace(learner, schedule=Scattered(n), mechanism=ROOT, sigma=sigma, coupling="joint", **more)


def averaging(who: str, loss: Any, rho: float, n: int, d: int, D: float, G: float) -> Learner:
    """Return dual averaging with the step size that balances its bound."""
    learner = paper.dual_averaging(loss, rho=rho, n=n, d=d, D=D, G=G)
    if who == PAPER:
        return learner
    mine = ours(learner, rho, n)
    spread = mine.sigma * float(ROOT.column_norms(n)[0])
    step = theorem_step_size(n, d, bound=mine.query.bound, radius=D / 2.0, spread=spread, batch=2.0)
    return replace(mine, rule=DualAveraging(np.zeros(d), step, Ball(D / 2.0)))


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
        learner = paper.prefix_sums(query, FrankWolfe(np.zeros(self.d), Ball(query.radius)), rho=rho, n=n)
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
        learner = averaging(who, _from_the_point, rho, n, self.d, D=3.0, G=1.0)

        def excess(w: Array) -> float:
            return float(distance_excess(np.array([np.linalg.norm(w - best)]), self.d)[0])

        return Problem((points,), learner, excess)


@dataclass(frozen=True)
class Linear:
    """Rows 3 and 4: linear models on (nρ)^(2/3) random projections, in a ball of 1.5 times the optimum's length."""

    model: LinearModel
    name: str
    exponent: float
    d: int = 1024
    family: tuple[float, ...] = (1.0,)

    @property
    def diameter(self) -> float:
        return 3.0 * self.model.length

    def unlearned(self, member: float) -> float:
        return float(self.model.excess(np.zeros((1, 2)))[0])

    def problem(self, who: str, n: int, rho: float, member: float, rng: np.random.Generator) -> Problem:
        components = automatic_components(n, rho, self.d)
        features, targets, phi = self.model.draw(n, self.d, components, rng)
        learner = self._learner(who, rho, n, components)

        def excess(w: Array) -> float:
            return float(self.model.excess((w if phi is None else w @ phi)[None])[0])

        return Problem((bound_rows(features, PROJECTED), targets), learner, excess)

    def _learner(self, who: str, rho: float, n: int, k: int) -> Learner:
        loss = self.model.loss
        if not math.isfinite(loss.smoothness):
            return averaging(who, loss, rho, n, k, self.diameter, PROJECTED)
        learner = paper.frank_wolfe(loss, rho=rho, n=n, d=k, D=self.diameter, G=PROJECTED * loss.lipschitz)
        return learner if who == PAPER else ours(learner, rho, n)


ROWS: tuple[Row, ...] = (
    Smooth(),
    Lipschitz(),
    Linear(LOGISTIC, "3: smooth, linear model, JL + VR-FW", -2.0 / 3.0),
    Linear(ABSOLUTE, "4: Lipschitz, linear model, JL + DA", -1.0 / 3.0),
)
