"""Problems whose optimum is known, so that excess risks are computed exactly: those of the paper's Table 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from expunge.base.types import AnyArray, Array, Batch
from expunge.engine.transcript import Path as Iterates
from expunge.solvers.losses import Logistic, Loss
from expunge.solvers.projection import Projection

GLM_AXIS = GLM_REST = math.sqrt(0.5)
"""A record of a linear model is ±e₁/√2 plus a Gaussian of length about 1/√2 across it."""
LOOSE = 1.25
PROJECTED = 1.5
"""Rows are clipped to these norms, without and with a projection; few are longer."""


def sphere(number: int, d: int, rng: np.random.Generator) -> Array:
    u = rng.standard_normal((number, d))
    u /= np.sqrt(np.einsum("ij,ij->i", u, u))[:, None]
    return u


# --- row 1: smooth losses ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tilted:
    """ℓ(w; z) = ⟨w, z⟩ + (H/2) w₂² with z = μ e₁ + (1 - μ) u: the variance-reduced gradient; a record is u, |u| = 1.

    With ``across``, u is across e₁ and z = μ e₁ + √(1 - μ²) u, of length 1 whatever μ is.
    """

    size: int
    mean: float
    curvature: float = 0.5
    radius: float = 1.0
    across: bool = False

    @property
    def scatter(self) -> float:
        """How long the random part of z is."""
        return math.sqrt(1.0 - self.mean**2) if self.across else 1.0 - self.mean

    @property
    def bound(self) -> float:
        steepest = 1.0 + self.curvature * self.radius
        return max(2.0 * steepest, 2.0 * self.curvature * self.radius + steepest)

    def contributions(self, step: int, path: Iterates, batch: Batch) -> Array:
        rows = self.scatter * batch[0]
        rows[:, :2] += self._common(step, path)
        return np.asarray(rows if step else 2.0 * rows)

    def total(self, step: int, path: Iterates, batch: Batch) -> tuple[Array, int]:
        summed = self.scatter * np.add.reduce(batch[0], axis=0)
        summed[:2] += len(batch[0]) * self._common(step, path)
        return np.asarray(summed if step else 2.0 * summed), 0

    def _common(self, step: int, path: Iterates) -> Array:
        newest = path[-1][1]
        curve = newest if step == 0 else (step + 2) * newest - (step + 1) * path[-2][1]
        return np.array([self.mean, self.curvature * curve])


def sphere_across(number: int, d: int, rng: np.random.Generator) -> Array:
    """Return points of the sphere that are across e₁."""
    return np.column_stack([np.zeros(number), sphere(number, d - 1, rng)])


# --- row 2: Lipschitz losses ----------------------------------------------------------------------------


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


# --- rows 3 and 4: linear models ------------------------------------------------------------------------


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


def turned(phi: Array) -> Array:
    """Return Φ for records that are turned so that e₁ becomes (1, …, 1)/√d: signs keep the length of e₁ exactly.

    It is a reflection. Done twice, it gives Φ again.
    """
    d = phi.shape[1]
    across = np.full(d, -1.0 / math.sqrt(d))
    across[0] += 1.0
    across /= np.linalg.norm(across)
    return np.asarray(phi - 2.0 * np.outer(phi @ across, across))


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

    def draw(
        self, n: int, d: int, k: int, rng: np.random.Generator, phi: Array | None = None
    ) -> tuple[Array, Array, Array | None]:
        """Return features, targets and, if k < d, the library's projection Φ of k rows (drawn, if not given).

        Given Φ, the features Φx are drawn from their exact law, without an n×d table; hardly an x is above `LOOSE`.
        """
        signs = rng.choice([-1.0, 1.0], size=n)
        targets = self.targets(GLM_AXIS * self.length * signs, rng)
        if k >= d:
            features = np.empty((n, d))
            features[:, 0] = GLM_AXIS * signs
            features[:, 1:] = GLM_REST / math.sqrt(d - 1) * rng.standard_normal((n, d - 1))
            return features, targets, None
        if phi is None:
            phi = turned(Projection(rng.bytes(32), d, k, LOOSE).back(np.eye(k)))
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


# --- row 3, the worst dimension: what makes the term n^(-1/2) show ----------------------------------------


def gaussian_logistic(n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return x ~ N(0, I/d) and classes by the logistic model with w* = R e₁.

    A fixed problem of a linear model is learned at d/n. With about R√n/8 dimensions that is R n^(-1/2)/8.
    """
    features = rng.standard_normal((n, d)) / math.sqrt(d)
    right = special.expit(LOGISTIC_LENGTH * features[:, 0])
    return features, np.where(rng.random(n) < right, 1.0, -1.0)


def gaussian_logistic_excess(w: Array) -> float:
    """Return the exact excess risk, by quadrature over the best score and what the model adds across it."""
    best = LOGISTIC_LENGTH / math.sqrt(len(w)) * _NODES
    across = float(np.linalg.norm(w[1:])) / math.sqrt(len(w))
    scores = (w[0] / LOGISTIC_LENGTH) * best[:, None] + across * _NODES
    weights, right = _WEIGHTS / _WEIGHTS.sum(), special.expit(best)[:, None]

    def risk(s: Array) -> Array:
        return np.asarray(right * np.logaddexp(0.0, -s) + (1.0 - right) * np.logaddexp(0.0, s))

    return float(weights @ (risk(scores) @ weights - risk(best[:, None])[:, 0]))
