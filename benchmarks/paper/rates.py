"""The paper's Table 1, empirically: excess risk against n, ρ and d, with fitted exponents beside the theorems'.

    python benchmarks/paper/rates.py [--quick] [--repetitions 12]

Every run is the engine's own learning (Scattered, SquareRoot, exact noise) on a problem whose optimum is known, and
its excess risk is computed exactly. Theorems are upper bounds: a faster decay contradicts none. About 15 minutes on
one core; --quick takes one. Writes out/rates.json and docs/images/rates.png (--quick: out/rates-quick.*).
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from rich.progress import Progress
from scipy import special, stats

from benchmarks.smoke import IMAGES, OUT, parser_of, sized
from expunge import (
    Ball,
    DualAveraging,
    FrankWolfe,
    Gradient,
    HybridGradient,
    Learner,
    MemoryRecords,
    Scattered,
    SquareRoot,
    Transcript,
    learn,
)
from expunge.base.types import AnyArray, Array, Batch
from expunge.engine.accounting import noise_for
from expunge.engine.transcript import Path as Iterates
from expunge.models.preprocessing import bound_rows
from expunge.solvers.losses import Logistic, Loss
from expunge.solvers.plans.defaults import automatic_components, paper_step_size

ROOT = SquareRoot()
GLM_AXIS = GLM_REST = math.sqrt(0.5)
"""A record of a linear model is ±e₁/√2 plus a Gaussian of length about 1/√2 across it."""
LOOSE = 1.25
PROJECTED = 1.5
"""Rows are clipped to these norms, without and with a projection; few are longer."""


class Setting(NamedTuple):
    """How many records, how likely a replay, how many dimensions."""

    n: int
    rho: float
    d: int


Measured = dict[str, Array]
"""Excess risks: of the "model", and where asked for the mean over "iterates"; one for each problem of a family."""


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


def noise(rho: float, steps: int, bound: float) -> tuple[float, float]:
    """Return σ, and the standard deviation of an answer's coordinates at the last step."""
    sigma = bound * _unit_noise(rho, steps)
    return sigma, sigma * float(ROOT.column_norms(steps)[0])


def sphere(number: int, d: int, rng: np.random.Generator) -> Array:
    u = rng.standard_normal((number, d))
    u /= np.sqrt(np.einsum("ij,ij->i", u, u))[:, None]
    return u


def steps_of(transcript: Transcript) -> Array:
    """Return w_1..w_T, the iterates at which gradients were taken: what the analysis bounds is their mean excess."""
    return np.vstack([transcript.start, transcript.iterates[:-1]])


# --- row 1: smooth losses, variance-reduced Frank-Wolfe -----------------------------------------------


@dataclass(frozen=True)
class Tilted:
    """ℓ(w; z) = ⟨w, z⟩ + (H/2) w₂² with z = μ e₁ + (1 - μ) u: the variance-reduced gradient; a record is u, |u| = 1."""

    size: int
    mean: float
    curvature: float = 0.5
    radius: float = 1.0

    @property
    def bound(self) -> float:
        steepest = 1.0 + self.curvature * self.radius
        return max(2.0 * steepest, 2.0 * self.curvature * self.radius + steepest)

    def contributions(self, step: int, path: Iterates, batch: Batch) -> Array:
        rows = (1.0 - self.mean) * batch[0]
        rows[:, :2] += self._common(step, path)
        return np.asarray(rows if step else 2.0 * rows)

    def total(self, step: int, path: Iterates, batch: Batch) -> tuple[Array, int]:
        summed = (1.0 - self.mean) * np.add.reduce(batch[0], axis=0)
        summed[:2] += len(batch[0]) * self._common(step, path)
        return np.asarray(summed if step else 2.0 * summed), 0

    def _common(self, step: int, path: Iterates) -> Array:
        newest = path[-1][1]
        curve = newest if step == 0 else (step + 2) * newest - (step + 1) * path[-2][1]
        return np.array([self.mean, self.curvature * curve])


@dataclass(frozen=True)
class VarianceReducedFrankWolfe:
    """The worst of a family of tilts: a theorem speaks of the worst problem, and any fixed tilt is learned faster.

    ``batch`` records a step, or without it 512 steps: enough for the noise to hide what is left of the start, (T+1)⁻¹
    of its excess, which shows in the largest tilt.
    """

    name: str = "VR-FW"
    problem: str = "linear + one curved direction, ball"
    batch: int | None = None
    tilts: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

    largest: float = 0.9

    def _steps(self, at: Setting) -> int:
        return 512 if self.batch is None else at.n // self.batch

    def _noise(self, at: Setting) -> tuple[float, float]:
        return noise(at.rho, self._steps(at), Tilted(at.d, 0.0).bound)

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        sigma, spread = self._noise(at)
        unit = at.n**-0.5 + math.sqrt(at.d) * spread / at.n
        records = MemoryRecords((sphere(at.n, at.d, rng),))
        excess = []
        means = [tilt * unit for tilt in self.tilts if tilt * unit < self.largest]
        for number, mean in enumerate([*means, self.largest]):
            query = Tilted(at.d, mean)
            rule = FrankWolfe(np.zeros(at.d), Ball(query.radius))
            learner = Learner(Scattered(self._steps(at)), query, rule, ROOT, sigma, selector="last")
            w = learn(learner, records, rng, arranged=number > 0).model(learner)
            excess.append(mean * (w[0] + query.radius) + 0.5 * query.curvature * w[1] ** 2)
        return {"model": np.array(excess)}

    def bound(self, at: Setting) -> float:
        query = Tilted(at.d, 0.0)
        return frank_wolfe_bound(
            at.n,
            self._steps(at),
            at.d,
            self._noise(at)[1],
            2.0 * query.radius,
            query.bound,
            query.curvature,
            self.largest,
        )


def frank_wolfe_bound(
    n: int, steps: int, size: int, spread: float, diameter: float, bound: float, smoothness: float, at_start: float
) -> float:
    """Return 2DB/√n + D√m σ_eff ln(T+1)/n + (ε₁ + ½HD² ln(T+1))/(T+1)."""
    log = math.log(steps + 1)
    wander = (2.0 * bound * math.sqrt(n) + math.sqrt(size) * spread * log) * diameter / n
    return wander + (at_start + 0.5 * smoothness * diameter**2 * log) / (steps + 1)


# --- row 2: Lipschitz losses, dual averaging ----------------------------------------------------------


@dataclass(frozen=True)
class Distance:
    """ℓ(w; z) = |w - z|: the unit vector from z to w."""

    size: int
    bound: float = 1.0

    def contributions(self, step: int, path: Iterates, batch: Batch) -> Array:
        difference = path[-1] - batch[0]
        lengths = np.sqrt(np.einsum("ij,ij->i", difference, difference))
        return np.asarray(difference / np.where(lengths > 0.0, lengths, 1.0)[:, None])


@cache
def _angles(d: int) -> tuple[Array, Array]:
    """Return nodes and weights for the cosine between two random directions."""
    nodes, weights = special.roots_jacobi(100, (d - 3) / 2, (d - 3) / 2)
    return nodes, weights / weights.sum()


def distance_excess(r: Array, d: int) -> Array:
    """Return ½r + ½(E|r e - u| - 1), u uniform on the sphere: the excess risk at distance r from the optimum."""
    nodes, weights = _angles(d)
    lengths = np.sqrt(np.maximum(r[:, None] ** 2 - 2.0 * r[:, None] * nodes + 1.0, 0.0))
    return np.asarray(0.5 * r + 0.5 * (lengths @ weights - 1.0))


@dataclass(frozen=True)
class DualAveragingOfDistances:
    """Half of the records lie at the optimum, |w*| = 1, the others all around it at distance 1. One record a step."""

    name: str = "DA"
    printed: bool = False
    problem: str = "distance to a point"

    def _spread(self, at: Setting) -> tuple[float, float, float]:
        """Return σ, σ_eff, and G² + (the square of a step's mean) + 2√m G σ_eff, which the step size balances."""
        sigma, spread = noise(at.rho, at.n, 1.0)
        return sigma, spread, 2.0 + 2.0 * math.sqrt(at.d) * spread

    def _step_size(self, at: Setting) -> float:
        if self.printed:
            return paper_step_size(at.n, at.rho, at.d, bound=1.0, radius=1.0)
        return 1.0 / math.sqrt(at.n * self._spread(at)[2])

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        best = np.zeros(at.d)
        best[0] = 1.0
        points = sphere(at.n, at.d, rng) * rng.integers(2, size=at.n)[:, None] + best
        rule = DualAveraging(np.zeros(at.d), self._step_size(at))
        learner = Learner(Scattered(at.n), Distance(at.d), rule, ROOT, self._spread(at)[0], selector="average")
        transcript = learn(learner, MemoryRecords((points,)), rng)

        def excess(w: Array) -> Array:
            return distance_excess(np.linalg.norm(w - best, axis=1), at.d)

        return {
            "model": excess(transcript.model(learner)[None]),
            "iterates": excess(steps_of(transcript)).mean(keepdims=True),
        }

    def bound(self, at: Setting) -> float:
        eta = self._step_size(at)
        return 0.5 / (eta * at.n) + 0.5 * eta * self._spread(at)[2]


# --- rows 3 and 4: linear models ----------------------------------------------------------------------


@dataclass(frozen=True)
class Absolute:
    """|s - y| for real targets."""

    outputs = 1
    lipschitz = 1.0
    smoothness = math.inf

    def value(self, scores: Array, targets: AnyArray) -> Array:
        return np.abs(scores - targets)

    def derivative(self, scores: Array, targets: AnyArray) -> Array:
        return np.sign(scores - targets)


@dataclass(frozen=True)
class LinearModel:
    """x = s e₁/√2 + g/√2 with s = ±1 and g ~ N(0, I/(d-1)) across e₁; w* = R e₁."""

    loss: Loss
    name: str
    length: float
    """R."""
    targets: Callable[[Array, np.random.Generator], Array]
    """The targets, from the best scores."""
    excess_at: Callable[[Array, Array], Array]
    """The excess risk, from the score along e₁ (at s = 1) and the standard deviation of the score across it."""

    def excess(self, models: Array) -> Array:
        along = GLM_AXIS * models[:, 0]
        across = GLM_REST * np.linalg.norm(models[:, 1:], axis=1) / math.sqrt(models.shape[1] - 1)
        return self.excess_at(along, across)

    def draw(self, n: int, d: int, k: int, rng: np.random.Generator) -> tuple[Array, Array, Array | None]:
        """Return features, targets and, if k < d, the projection Φ of k rows.

        Given Φ, the features Φx are drawn from their exact law, without an n×d table.
        """
        signs = rng.choice([-1.0, 1.0], size=n)
        targets = self.targets(GLM_AXIS * self.length * signs, rng)
        if k >= d:
            features = np.empty((n, d))
            features[:, 0] = GLM_AXIS * signs
            features[:, 1:] = GLM_REST / math.sqrt(d - 1) * rng.standard_normal((n, d - 1))
            return features, targets, None
        phi = rng.standard_normal((k, d)) / math.sqrt(k)
        rest = phi[:, 1:]
        factor = np.linalg.cholesky(rest @ rest.T / (d - 1))
        features = GLM_REST * rng.standard_normal((n, k)) @ factor.T
        features += GLM_AXIS * signs[:, None] * phi[:, 0]
        return features, targets, phi


def _absolute_excess(along: Array, across: Array) -> Array:
    """Return E|m + v g|, the mean of a folded Gaussian."""
    off, v = np.abs(along - GLM_AXIS), across + 1e-12
    density = v * math.sqrt(2.0 / math.pi) * np.exp(-0.5 * (off / v) ** 2)
    return np.asarray(density + off * special.erf(off / v / math.sqrt(2.0)))


LOGISTIC_LENGTH = 4.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def _logistic_excess(along: Array, across: Array) -> Array:
    best = GLM_AXIS * LOGISTIC_LENGTH
    right = special.expit(best)
    scores = along[:, None] + across[:, None] * _NODES

    def risk(s: Array) -> Array:
        return np.asarray(right * np.logaddexp(0.0, -s) + (1.0 - right) * np.logaddexp(0.0, s))

    return np.asarray(risk(scores) @ (_WEIGHTS / _WEIGHTS.sum()) - risk(np.array(best)))


ABSOLUTE = LinearModel(Absolute(), "absolute loss", 1.0, lambda scores, rng: scores, _absolute_excess)
LOGISTIC = LinearModel(
    Logistic(),
    "logistic loss",
    LOGISTIC_LENGTH,
    lambda scores, rng: np.where(rng.random(len(scores)) < special.expit(scores), 1.0, -1.0),
    _logistic_excess,
)


def run_linear(
    model: LinearModel, at: Setting, k: int, clip: float, plan: Callable[[int], Learner], rng: np.random.Generator
) -> Measured:
    """Draw, project, clip, learn, and measure in the space of the records."""
    features, targets, phi = model.draw(at.n, at.d, k, rng)
    learner = plan(features.shape[1])
    transcript = learn(learner, MemoryRecords((bound_rows(features, clip), targets)), rng)

    w = transcript.model(learner)[None]
    if phi is not None:
        return {"model": model.excess(w @ phi)}
    return {"model": model.excess(w), "iterates": model.excess(steps_of(transcript)).mean(keepdims=True)}


@dataclass(frozen=True)
class ProjectedDualAveraging:
    """Row 4: one record a step, (nρ)^(2/3) random projections (or as printed, (nρ)^(1/2)).

    ``free`` takes the step size of a linear model, in which the number of projections does not appear.
    """

    name: str = "JL + DA"
    printed: bool = False
    free: bool = False
    problem: str = ABSOLUTE.name

    def _components(self, at: Setting) -> int:
        if self.printed:
            return min(at.d, math.ceil(math.sqrt(at.n * at.rho)))
        return automatic_components(at.n, at.rho, at.d)

    def _balance(self, at: Setting) -> tuple[float, float]:
        sigma, spread = noise(at.rho, at.n, PROJECTED)
        felt = math.sqrt(2.0 / math.pi if self.free else self._components(at))
        return sigma, 2.0 * PROJECTED**2 + 2.0 * felt * PROJECTED * spread

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        sigma, square = self._balance(at)

        def plan(size: int) -> Learner:
            rule = DualAveraging(np.zeros(size), 1.0 / math.sqrt(at.n * square))
            query = Gradient(ABSOLUTE.loss, size, PROJECTED)
            return Learner(Scattered(at.n), query, rule, ROOT, sigma, selector="average")

        return run_linear(ABSOLUTE, at, self._components(at), PROJECTED, plan, rng)

    def bound(self, at: Setting) -> float:
        k = self._components(at)
        return math.sqrt(self._balance(at)[1] / at.n) + (math.sqrt(1.5 / k) if k < at.d else 0.0)


@dataclass(frozen=True)
class ProjectedFrankWolfe:
    """Row 3: one record a step, (nρ)^(2/3) random projections, a ball of 1.5 times the optimum's length."""

    name: str = "JL + VR-FW"
    problem: str = LOGISTIC.name
    radius: float = 1.5 * LOGISTIC_LENGTH

    def _components(self, at: Setting) -> int:
        return automatic_components(at.n, at.rho, at.d)

    def _query(self, size: int) -> HybridGradient:
        return HybridGradient(LOGISTIC.loss, size, PROJECTED, diameter=2.0 * self.radius)

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        def plan(size: int) -> Learner:
            query = self._query(size)
            rule = FrankWolfe(np.zeros(size), Ball(self.radius))
            return Learner(Scattered(at.n), query, rule, ROOT, noise(at.rho, at.n, query.bound)[0], selector="last")

        return run_linear(LOGISTIC, at, self._components(at), PROJECTED, plan, rng)

    def bound(self, at: Setting) -> float:
        k, query = self._components(at), self._query(1)
        smoothness = LOGISTIC.loss.smoothness * PROJECTED**2
        spread = noise(at.rho, at.n, query.bound)[1]
        start = float(LOGISTIC.excess(np.zeros((1, 2)))[0])
        learned = frank_wolfe_bound(at.n, at.n, k, spread, 2.0 * self.radius, query.bound, smoothness, start)
        return learned + (0.5 * LOGISTIC.loss.smoothness * 1.5 * LOGISTIC_LENGTH**2 / k if k < at.d else 0.0)


@dataclass(frozen=True)
class PlainLipschitz:
    """Dual averaging without a projection: noise acts through ⟨x, N⟩ only, so d appears nowhere."""

    name: str = "DA, unprojected"
    problem: str = ABSOLUTE.name

    def _balance(self, at: Setting) -> tuple[float, float]:
        sigma, spread = noise(at.rho, at.n, LOOSE)
        return sigma, 2.0 * LOOSE**2 + 2.0 * math.sqrt(2.0 / math.pi) * LOOSE * spread

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        sigma, square = self._balance(at)

        def plan(size: int) -> Learner:
            rule = DualAveraging(np.zeros(size), 1.0 / math.sqrt(at.n * square))
            return Learner(Scattered(at.n), Gradient(ABSOLUTE.loss, size, LOOSE), rule, ROOT, sigma, selector="average")

        return run_linear(ABSOLUTE, at, at.d, LOOSE, plan, rng)

    def bound(self, at: Setting) -> float:
        return math.sqrt(self._balance(at)[1] / at.n)


@dataclass(frozen=True)
class PlainSmooth:
    """The same with a smooth loss, about 8 records a step."""

    name: str = "DA, unprojected"
    problem: str = LOGISTIC.name
    batch: int = 8

    def _plan(self, at: Setting) -> tuple[float, float, float]:
        """Return σ, σ_eff and the step size."""
        sigma, spread = noise(at.rho, at.n // self.batch, LOOSE)
        smoothness = LOGISTIC.loss.smoothness * LOOSE**2
        choices = [LOGISTIC_LENGTH / (LOOSE * math.sqrt(at.n)), 1.0 / (4.0 * smoothness * self.batch)]
        if spread:
            choices.append((LOGISTIC_LENGTH**2 / (8.0 * smoothness * spread**2 * at.n)) ** (1.0 / 3.0))
        return sigma, spread, min(choices)

    def measure(self, at: Setting, rng: np.random.Generator) -> Measured:
        sigma, _, eta = self._plan(at)

        def plan(size: int) -> Learner:
            query, rule = Gradient(LOGISTIC.loss, size, LOOSE), DualAveraging(np.zeros(size), eta)
            return Learner(Scattered(at.n // self.batch), query, rule, ROOT, sigma, selector="average")

        return run_linear(LOGISTIC, at, at.d, LOOSE, plan, rng)

    def bound(self, at: Setting) -> float:
        _, spread, eta = self._plan(at)
        smoothness = LOGISTIC.loss.smoothness * LOOSE**2
        return LOGISTIC_LENGTH**2 / (eta * at.n) + eta * LOOSE**2 + 4.0 * smoothness * (eta * spread) ** 2


# --- sweeps and slopes --------------------------------------------------------------------------------

HALF, THIRD, QUARTER = Fraction(1, 2), Fraction(1, 3), Fraction(1, 4)


@dataclass(frozen=True)
class Sweep:
    """One quantity varied, the others held: what the theorem says of the exponent."""

    method: Method
    regime: str
    varied: str
    values: tuple[float, ...]
    fixed: Setting
    theorem: Fraction
    of: str = "model"
    beyond: float = 0.0
    """The slope is fitted to values from here on."""

    def settings(self) -> list[Setting]:
        n, rho, d = self.fixed
        match self.varied:
            case "n":
                return [Setting(round(value), rho, d) for value in self.values]
            case "rho":
                return [Setting(n, value, d) for value in self.values]
            case _:
                return [Setting(n, rho, round(value)) for value in self.values]

    def smaller(self, divisor: int) -> Sweep:
        values = tuple([value / divisor for value in self.values]) if self.varied == "n" else self.values
        return replace(self, values=values, fixed=self.fixed._replace(n=self.fixed.n // divisor))


def powers(first: int, last: int, by: int = 1) -> tuple[float, ...]:
    return tuple([float(2**e) for e in range(first, last + 1, by)])


def sweeps() -> list[Sweep]:
    frank, calm = VarianceReducedFrankWolfe(), VarianceReducedFrankWolfe(batch=32)
    jl_frank, smooth, plain = ProjectedFrankWolfe(), PlainSmooth(), PlainLipschitz()
    da, printed = DualAveragingOfDistances(), DualAveragingOfDistances("DA, η printed", printed=True)
    jl_da, jl_printed = ProjectedDualAveraging(), ProjectedDualAveraging("JL + DA, k printed", printed=True)
    jl_free = ProjectedDualAveraging("JL + DA, free η", free=True)
    rhos, wide = (0.05, 0.1, 0.2, 0.4), (32.0, 128.0, 512.0, 2048.0)
    found = [
        Sweep(frank, "noise", "n", powers(16, 19), Setting(0, 0.005, 64), -2 * HALF),
        Sweep(frank, "noise", "rho", (0.0025, 0.005, 0.01, 0.02), Setting(2**18, 0, 64), -2 * HALF),
        Sweep(frank, "noise", "d", (16, 64, 256), Setting(2**16, 0.005, 0), HALF),
        Sweep(calm, "statistical", "n", powers(14, 18), Setting(0, 1.0, 64), -HALF),
        Sweep(calm, "statistical", "rho", (0.25, 0.5, 0.75, 0.95), Setting(2**18, 0, 64), Fraction(0)),
        Sweep(calm, "statistical", "d", (16, 64, 256), Setting(2**16, 1.0, 0), Fraction(0)),
    ]
    for of in ("model", "iterates"):
        found += [
            Sweep(da, "noise", "n", powers(10, 16, 2), Setting(0, 0.1, 64), -HALF, of),
            Sweep(da, "noise", "rho", (0.025, 0.05, 0.1, 0.2, 0.4), Setting(2**14, 0, 64), -HALF, of),
            Sweep(da, "noise", "d", (4, 16, 64, 256), Setting(2**14, 0.1, 0), QUARTER, of),
            Sweep(da, "statistical", "n", powers(10, 16, 2), Setting(0, 1.0, 64), -HALF, of),
        ]
    for of in ("model", "iterates"):
        found += [
            Sweep(printed, "noise", "n", powers(10, 16, 2), Setting(0, 0.1, 64), -HALF, of),
            Sweep(printed, "noise", "rho", (0.025, 0.05, 0.1, 0.2, 0.4), Setting(2**14, 0, 64), -HALF, of),
        ]
    found += [
        Sweep(jl_frank, "noise", "n", powers(11, 15), Setting(0, 0.1, 4096), -2 * THIRD),
        Sweep(jl_frank, "noise", "rho", rhos, Setting(2**14, 0, 4096), -2 * THIRD),
        Sweep(jl_frank, "noise", "d", (*wide, 8192.0), Setting(2**13, 0.1, 0), Fraction(0), beyond=512),
        Sweep(smooth, "noise", "n", powers(11, 16), Setting(0, 0.1, 256), -2 * THIRD),
        Sweep(smooth, "noise", "n", powers(11, 16), Setting(0, 0.1, 256), -2 * THIRD, "iterates"),
        Sweep(smooth, "noise", "rho", rhos, Setting(2**14, 0, 256), -2 * THIRD),
        Sweep(smooth, "noise", "rho", rhos, Setting(2**14, 0, 256), -2 * THIRD, "iterates"),
        Sweep(smooth, "noise", "d", wide, Setting(2**13, 0.1, 0), Fraction(0)),
        Sweep(jl_da, "noise", "n", powers(11, 15), Setting(0, 0.1, 4096), -THIRD),
        Sweep(jl_da, "noise", "rho", rhos, Setting(2**14, 0, 4096), -THIRD),
        Sweep(jl_da, "noise", "d", (*wide, 8192.0), Setting(2**13, 0.1, 0), Fraction(0), beyond=512),
        Sweep(jl_printed, "noise", "n", powers(11, 15), Setting(0, 0.1, 4096), -THIRD),
        Sweep(jl_free, "noise", "n", powers(11, 15), Setting(0, 0.1, 4096), -THIRD),
        Sweep(jl_free, "noise", "d", (*wide, 8192.0), Setting(2**13, 0.1, 0), Fraction(0), beyond=512),
        Sweep(plain, "noise", "n", powers(11, 15), Setting(0, 0.1, 256), -HALF),
        Sweep(plain, "noise", "n", powers(11, 15), Setting(0, 0.1, 256), -HALF, "iterates"),
        Sweep(plain, "noise", "rho", rhos, Setting(2**14, 0, 256), -HALF),
        Sweep(plain, "noise", "d", wide, Setting(2**13, 0.1, 0), Fraction(0)),
        Sweep(plain, "noise", "d", wide, Setting(2**13, 0.1, 0), Fraction(0), "iterates"),
    ]  # fmt: skip
    return found


def tiny_sweeps() -> list[Sweep]:
    """Return one of each method, with few records and columns: to see that it runs."""
    found = {sweep.method.name: sweep.smaller(32) for sweep in sweeps() if sweep.varied == "rho"}
    return [replace(sweep, fixed=sweep.fixed._replace(d=min(sweep.fixed.d, 64))) for sweep in found.values()]


Runs = dict[tuple[str, str, Setting], list[Measured]]


def seed_of(method: Method, at: Setting, repetition: int) -> list[int]:
    return [zlib.crc32(f"{method.name} {method.problem}".encode()), at.n, round(1e6 * at.rho), at.d, repetition]


def run_all(wanted: list[Sweep], repetitions: int) -> Runs:
    """Measure every setting once for each repetition; sweeps share settings."""
    jobs = {(s.method.name, s.method.problem, at): s.method for s in wanted for at in s.settings()}
    runs: Runs = {}
    with Progress() as progress:
        work = {key: 2.0**10 + min(key[2].n, 2**16) for key in jobs}  # about proportional to the time
        bar = progress.add_task("measuring", total=sum(work.values()) * repetitions)
        for key, method in jobs.items():
            runs[key] = []
            for repetition in range(repetitions):
                rng = np.random.default_rng(seed_of(method, key[2], repetition))
                runs[key].append(method.measure(key[2], rng))
                progress.advance(bar, work[key])
    return runs


class Point(NamedTuple):
    """The worst problem's mean excess, its standard error and how many runs it is from."""

    x: float
    mean: float
    error: float
    runs: int
    bound: float


def point(sweep: Sweep, at: Setting, x: float, runs: Runs) -> Point:
    each = np.stack([measured[sweep.of] for measured in runs[sweep.method.name, sweep.method.problem, at]])
    worst = each[:, each.mean(axis=0).argmax()]
    error = float(worst.std(ddof=1)) / math.sqrt(len(worst))
    return Point(x, float(worst.mean()), error, len(worst), sweep.method.bound(at))


LEAST_ERROR = 0.02
"""Weights treat no point as known better than to 2 %, so that none decides alone."""


def fitted(points: list[Point]) -> tuple[float, float, float]:
    """Return the slope of log mean against log x, and its 95 % interval (t, over the repetitions)."""
    x = np.log([p.x for p in points])
    y = np.log([p.mean for p in points])
    relative = np.array([p.error / p.mean for p in points]) ** 2
    weights = 1.0 / (relative + LEAST_ERROR**2)
    centred = x - np.average(x, weights=weights)
    pull = weights * centred / np.sum(weights * centred**2)
    slope, each = float(pull @ y), pull**2 * relative
    freedom = each.sum() ** 2 / np.sum(each**2 / (np.array([p.runs for p in points]) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(each.sum())
    return slope, slope - half, slope + half


def verdict(low: float, high: float, theorem: Fraction) -> str:
    """Say whether the excess falls faster (in d: grows more slowly) than the theorem's."""
    if high < theorem:
        return "faster"
    return "slower" if low > theorem else "inside"


def evaluate(sweep: Sweep, runs: Runs) -> dict[str, Any]:
    points = [point(sweep, at, x, runs) for at, x in zip(sweep.settings(), sweep.values, strict=True)]
    used = [p for p in points if p.x >= sweep.beyond]
    slope, low, high = fitted(used)
    of_bound = float(np.polyfit(np.log([p.x for p in used]), np.log([p.bound for p in used]), 1)[0])
    return {
        "method": sweep.method.name, "problem": sweep.method.problem, "regime": sweep.regime, "varied": sweep.varied,
        "of": sweep.of, "fixed": {k: v for k, v in sweep.fixed._asdict().items() if k != sweep.varied},
        "theorem": str(sweep.theorem), "ours": isinstance(sweep.method, PlainLipschitz | PlainSmooth),
        "slope": slope, "low": low, "high": high,
        "verdict": verdict(low, high, sweep.theorem), "slope_of_bound": of_bound, "fitted_from": sweep.beyond,
        "of_bound": max(p.mean / p.bound for p in points), "points": [p._asdict() for p in points],
    }  # fmt: skip


# --- the table and the picture ------------------------------------------------------------------------

SYMBOL = {"n": "n", "rho": "ρ", "d": "d"}


def name_of(result: dict[str, Any]) -> str:
    return result["method"] + (", mean over iterates" if result["of"] == "iterates" else "")


def table(results: list[dict[str, Any]]) -> str:
    head = ["method", "problem", "regime", "exponent of", "theorem", "fitted, 95 %", "verdict", "bound's", "of bound"]
    rows = [head, ["---"] * len(head)]
    for r in results:
        low, high = min(r["points"], key=lambda p: p["x"])["x"], max(r["points"], key=lambda p: p["x"])["x"]
        span = f"{SYMBOL[r['varied']]}, {max(low, r['fitted_from']):g}..{high:g}"
        interval = f"{r['slope']:+.2f} [{r['low']:+.2f}, {r['high']:+.2f}]"
        rows.append([
            name_of(r), r["problem"], r["regime"], span, r["theorem"] + " (ours)" * r["ours"], interval, r["verdict"],
            f"{r['slope_of_bound']:+.2f}", f"{r['of_bound']:.2g}",
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


Chosen = Callable[[dict[str, Any]], bool]


def panels() -> list[tuple[str, str, Chosen]]:
    general, linear = ("VR-FW", "DA"), (ABSOLUTE.name, LOGISTIC.name)

    def on(varied: str, glm: bool) -> Chosen:
        def choose(r: dict[str, Any]) -> bool:
            mine = r["problem"] in linear if glm else r["method"] in general
            return bool(mine and r["varied"] == varied and r["of"] == "model")

        return choose

    return [
        (f"{kind}, against {SYMBOL[varied]}", SYMBOL[varied], on(varied, glm))
        for kind, glm in (("any convex loss", False), ("linear models", True))
        for varied in ("n", "rho", "d")
    ]


def draw(results: list[dict[str, Any]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 11), layout="constrained")
    for axes, (title, label, choose) in zip(figure.subplots(2, 3).ravel(), panels(), strict=True):
        for number, r in enumerate(filter(choose, results)):
            x = np.array([p["x"] for p in r["points"]])
            mean = np.array([p["mean"] for p in r["points"]])
            half = [stats.t.ppf(0.975, p["runs"] - 1) * p["error"] for p in r["points"]]
            regime = ", statistical" if r["regime"] == "statistical" else ""
            what = f"{r['method']}, {r['problem']}" if r["problem"] in (ABSOLUTE.name, LOGISTIC.name) else r["method"]
            text = f"{what}{regime}: {r['slope']:+.2f} ({r['theorem']})"
            axes.errorbar(x, mean, half, fmt="o-", color=f"C{number}", markersize=4, linewidth=1, label=text)
            used = x >= r["fitted_from"]
            middle, height = np.exp(np.log(x[used]).mean()), np.exp(np.log(mean[used]).mean())
            axes.plot(x, height * (x / middle) ** float(Fraction(r["theorem"])), ":", color=f"C{number}", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.set_ylabel("excess risk")
        axes.set_title(title)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.suptitle("Excess risk, with 95 % intervals; slope fitted (theorem's, dotted)")
    figure.savefig(file, dpi=110)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--repetitions", type=int, default=sized(12, 2))
    parser.add_argument("--quick", action="store_true", help="an eighth of the records, 4 repetitions")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    wanted = [sweep.smaller(8) for sweep in sweeps()] if options.quick else sized(sweeps(), tiny_sweeps())
    runs = run_all(wanted, 4 if options.quick else options.repetitions)
    results = [evaluate(sweep, runs) for sweep in wanted]
    name = "rates-quick" if options.quick else "rates"
    (OUT / f"{name}.json").write_text(json.dumps(results, indent=1))
    draw(results, OUT / f"{name}.png" if options.quick else IMAGES / "rates.png")
    print(table(results))
    counts = {kind: sum(r["verdict"] == kind for r in results) for kind in ("inside", "faster", "slower")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    above = [r for r in results if r["of_bound"] > 1.0]
    print(f"measured excess within the derived bound: {len(results) - len(above)} of {len(results)} sweeps")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
