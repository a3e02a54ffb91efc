"""The parts of a linear model's learner, by the words that a plan has for them."""

from __future__ import annotations

from expunge.engine.mechanisms.binary_tree import BinaryTree
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.mechanisms.square_root import SquareRoot
from expunge.engine.schedules import Arrival, Everyone, Scattered, Schedule, Shuffled
from expunge.solvers.domains import Ball, Domain, Everywhere, L1Ball
from expunge.solvers.frank_wolfe import HybridGradient
from expunge.solvers.gradient import Gradient
from expunge.solvers.gradient_descent import GridGradient
from expunge.solvers.losses import Loss
from expunge.solvers.plans.compatible import Noise, Region, Solver, When
from expunge.solvers.plans.defaults import grid_bits
from expunge.solvers.plans.sized import SIZE_CLASS


def make_domain(region: Region, radius: float) -> Domain:
    """Return the domain of the parameters."""
    match region:
        case "l2":
            return Ball(radius)
        case "l1":
            return L1Ball(radius)
        case _:
            return Everywhere()


def make_schedule(when: When, steps: int, batch: int, epochs: int, rate: float) -> Schedule:
    """Return who takes part in which step."""
    match when:
        case "everyone":
            return Everyone(steps, rate)
        case "shuffled":
            return Shuffled(batch)
        case "arrival":
            return Arrival(batch)
        case _:
            return Scattered(steps, epochs)


def make_mechanism(noise: Noise) -> Mechanism:
    """Return how noise is added."""
    match noise:
        case "sqrt":
            return SquareRoot()
        case "identity":
            return Identity()
        case "tree":
            return BinaryTree()
        case _:
            return BinaryTree(noise)


def make_query(
    solver: Solver, loss: Loss, size: int, feature_norm: float, intercept: float, clip: float | None, domain: Domain,
    records: int,
) -> Gradient:  # fmt: skip
    """Return what a record contributes."""
    if solver == "frank_wolfe":
        return HybridGradient(loss, size, feature_norm, intercept, clip, True, domain.diameter(size))
    if solver == "gradient_descent":
        return make_grid_gradient(loss, size, feature_norm, intercept, clip, records)
    return Gradient(loss, size, feature_norm, intercept, clip, True)


def make_grid_gradient(
    loss: Loss, size: int, feature_norm: float, intercept: float, clip: float | None, records: int
) -> GridGradient:
    """Return what a record contributes to a round of gradient descent."""
    return GridGradient(loss, size, feature_norm, intercept, clip, bits=grid_bits(SIZE_CLASS * records))
