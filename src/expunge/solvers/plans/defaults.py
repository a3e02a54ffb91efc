"""What is chosen where the user says nothing: steps, epochs, step sizes, components, digits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from expunge.base.errors import BadPlan
from expunge.engine.accounting import FOREVER
from expunge.solvers.dual_averaging import theorem_step_size
from expunge.solvers.gradient import Gradient
from expunge.solvers.losses import Loss
from expunge.solvers.plans.compatible import Selected, Solver, When
from expunge.solvers.plans.sized import MOST_NUMBERS, SIZE_CLASS, WORTH, automatic_rho, rounded_up
from expunge.solvers.projection import stretch

LEAST_STEPS = 64
MOST_EPOCHS = 8
ROUNDS = 100
"""How many rounds gradient descent has, if the user does not say."""
MOMENTUM = 0.9
"""Which part of its last move gradient descent makes again: with it, a tenth of the rounds goes as far."""
STEADY = 8.0
"""Step size × smoothness × records of a step: above this the steps of a smooth loss swing."""


def automatic_steps(records: int, parameters: int) -> int:
    """Return 2√n rounded down to a power of two, or as many steps as keep the transcript small.

    >>> automatic_steps(500_000, parameters=55), automatic_steps(60_000, parameters=7850)
    (1024, 128)
    """
    n = rounded_up(records)
    steps = 1 << (n.bit_length() - 1) // 2 + 1
    most = max(LEAST_STEPS, 1 << max(0, int(math.log2(MOST_NUMBERS / parameters))))
    return min(n, steps, most)


def automatic_epochs(records: int, parameters: int) -> int:
    """Return how often to go through a table without noise: several times if it and the transcript are small.

    >>> automatic_epochs(1_000, parameters=10), automatic_epochs(100_000, parameters=10)
    (8, 1)
    """
    if rounded_up(records) > WORTH:
        return 1
    return max(1, min(MOST_EPOCHS, MOST_NUMBERS // (automatic_steps(records, parameters) * parameters)))


def automatic_components(records: int, rho: float, features: int) -> int:
    """Return the paper's number of random projections, (nρ)^(2/3), which its proof needs for either kind of loss.

    >>> automatic_components(2**15, 0.125, features=10_000)
    256
    """
    n = rounded_up(records)
    wanted = max(math.ceil((n * rho) ** (2.0 / 3.0) - 1e-9), math.ceil(4.0 * math.log(n + 1)))
    return min(features, wanted)


def paper_step_size(records: int, rho: float, parameters: int, bound: float, radius: float) -> float:
    """Return dual averaging's step size as the paper prints it; it grows with the noise, the wrong way round.

    `theorem_step_size` is the right one.

    >>> round(paper_step_size(2**16, 0.1, 81, bound=1.0, radius=1.0) / (3 * (2**16 * 0.1 / math.log(2**16)) ** -0.5), 6)
    1.0
    """
    return radius * parameters**0.25 * math.sqrt(math.log(max(2, records))) / (bound * math.sqrt(records * rho))


def dual_step_size(records: int, epochs: int, query: Gradient, radius: float) -> float:
    """Return dual averaging's step size: so long that gradients of any sign bring the model as far as ``radius``."""
    return radius / (query.bound * math.sqrt(records * epochs))


def steady_steps(steps: int, records: int, query: Gradient, step_size: float) -> int:
    """Return as many steps, or more, so that those of a smooth loss do not swing, if that keeps the transcript small.

    Each would need its noise, so this is for plans without.

    >>> from expunge.solvers.losses import Huber, Logistic
    >>> steady_steps(256, 2**15, Gradient(Huber(0.2), size=9), step_size=0.13)
    1024
    >>> steady_steps(256, 2**15, Gradient(Logistic(), size=9), step_size=0.13)
    256
    """
    curvature = query.loss.smoothness * query.longest_row**2
    while (
        math.isfinite(curvature)
        and step_size * curvature * math.ceil(records / steps) > STEADY
        and 2 * steps * query.size <= MOST_NUMBERS
        and 2 * steps <= records
    ):
        steps *= 2
    return steps


def descent_step_size(query: Gradient, joining: float, rate: float, rounds: int, sigma: float, radius: float) -> float:
    """Return a step size for gradient descent where ``joining`` records are expected in a round.

    It is as long as a smooth loss allows (for one with kinks, as brings the model no further than ``radius``), unless
    the noise, or the chance who joins, would then add up to too much.

    >>> from expunge.solvers.losses import Logistic
    >>> query = Gradient(Logistic(), size=3)
    >>> descent_step_size(query, 1000, rate=1.0, rounds=100, sigma=0.0, radius=20.0)
    0.008
    >>> round(descent_step_size(query, 1000, rate=1.0, rounds=100, sigma=25.0, radius=20.0), 6)
    0.0008
    """
    moved = (1.0 - MOMENTUM) * radius
    curvature = query.loss.smoothness * joining * query.longest_row**2
    step_size = 2.0 / curvature if 0.0 < curvature < math.inf else moved / (joining * query.bound)
    if rate < 1.0:
        step_size = min(step_size, moved / (query.bound * math.sqrt(rounds * joining * (1.0 - rate))))
    if sigma > 0.0:
        step_size = min(step_size, moved / (10.0 * math.sqrt(rounds) * sigma))
    return step_size


def grid_bits(records: int) -> int:
    """Return to how many binary digits features and slopes are rounded, so that this many records are summed exactly.

    >>> grid_bits(2**15), grid_bits(2**21)
    (18, 15)
    """
    return min(20, (52 - math.ceil(math.log2(records))) // 2)


@dataclass(frozen=True)
class Choices:
    """What a user has said of a linear model's plan; None or a word where it is to be chosen."""

    loss: Loss
    features: int
    records: int
    scores: float
    radius: float | None
    n_components: Any
    rho: float | Literal["auto"]
    solver: Solver
    schedule: When
    mechanism: Any
    coupling: Any
    steps: int | None
    batch: int | None
    epochs: int | None
    clip: float | None
    alpha: float
    domain: Any
    feature_norm: float
    fit_intercept: bool
    step_size: float | Literal["theorem", "paper", "anytime"] | None
    selector: Selected
    records_per_subject: int
    horizon: int | None
    rate: float
    projected_norm: float | None

    @property
    def anytime(self) -> bool:
        """Whether step sizes fall with the number of steps."""
        return self.step_size == "anytime" or (self.step_size is None and self.schedule == "arrival")

    @property
    def steps_are_free(self) -> bool:
        """Whether nothing was said of the steps of dual averaging, and their number is not that of the records'."""
        said = self.steps is not None or self.batch is not None or self.step_size is not None
        return self.solver == "dual_averaging" and self.schedule == "scattered" and not said


def of_solver(chosen: Choices) -> Choices:
    """Return the same choices with the schedule, noise, coupling and domain that a solver has by itself."""
    if chosen.solver == "gradient_descent":
        own = replace(chosen, schedule="everyone", mechanism="identity", coupling=chosen.coupling or "adaptive")
    else:
        own = replace(chosen, coupling=chosen.coupling or "joint")
    return replace(own, domain=chosen.domain or ("l2" if chosen.solver == "frank_wolfe" else "everywhere"))


def projection(chosen: Choices, records: int) -> tuple[int, bool]:
    """Return how many columns records have once they are projected, and whether they are."""
    wanted, features = chosen.n_components, chosen.features
    if wanted is None:
        return features, False
    if wanted == "auto":
        rho = planned_rho(chosen, records, chosen.loss.outputs * features)
        fitting = automatic_components(records, rho, features)
        return fitting, fitting < features  # as many as features would only lose something
    if not isinstance(wanted, (int, np.integer)) or isinstance(wanted, bool) or not 1 <= wanted <= features:
        raise BadPlan(f"n_components={wanted!r}: give None, 'auto', or a whole number from 1 to {features}.")
    return int(wanted), True


def planned_norm(chosen: Choices, components: int, projected: bool, records: int, rho: float) -> float:
    """Return to which norm rows are shortened as they take part: projected ones may be longer than they were.

    Those that are kept already were shortened to ``projected_norm``.
    """
    if not projected:
        return float(chosen.feature_norm)
    if chosen.projected_norm is not None:
        return chosen.projected_norm
    return float(chosen.feature_norm) * stretch(components, records, rho)


def planned_rho(chosen: Choices, records: int, size: int) -> float:
    """Return ρ, or the one whose noise hardly costs accuracy."""
    return float(automatic_rho(records, size, chosen.records_per_subject) if chosen.rho == "auto" else chosen.rho)


def planned_steps(chosen: Choices, records: int, size: int, rho: float) -> tuple[int, int, int]:
    """Return how many steps there are, of how many records, and how many epochs."""
    if chosen.solver == "gradient_descent":
        return chosen.steps or ROUNDS, max(1, math.ceil(records * chosen.rate)), 1
    epochs = chosen.epochs
    if epochs is None:
        free = chosen.steps is None and chosen.batch is None and chosen.schedule == "scattered" and rho == 1.0
        epochs = automatic_epochs(records, size) if free else 1
    if chosen.batch is not None:
        return max(1, math.ceil(records / chosen.batch)), chosen.batch, epochs
    steps = chosen.steps or automatic_steps(records, size)
    return steps, max(1, math.ceil(records / steps)), epochs


def planned_radius(chosen: Choices) -> float:
    """Return how far from 0 the best parameters may lie."""
    return chosen.scores / chosen.feature_norm if chosen.radius is None else float(chosen.radius)


def planned_horizon(chosen: Choices, records: int) -> int:
    """Return up to how many records ρ must hold."""
    if chosen.horizon is None:
        fixed = chosen.schedule in ("scattered", "everyone") or chosen.mechanism in ("anytime", "halving")
        return FOREVER if fixed else SIZE_CLASS * records
    if chosen.horizon < records:
        raise BadPlan(f"horizon={chosen.horizon}: give at least the number of records that is planned for, {records}.")
    return chosen.horizon


def planned_step_size(
    chosen: Choices, records: int, query: Gradient, steps: int, batch: int, epochs: int, rho: float, sigma: float,
    spread: float, radius: float,
) -> float:  # fmt: skip
    """Return how long steps are; ``spread`` is the largest standard deviation of noise in an answer."""
    given = chosen.step_size
    if chosen.solver == "gradient_descent" and given is None:
        return float(descent_step_size(query, records * chosen.rate, chosen.rate, steps, sigma, radius))
    if given == "theorem":
        uneven = 1 if chosen.schedule == "scattered" else 0  # the square of a drawn number of records is larger
        return theorem_step_size(
            records * epochs, query.size, bound=query.bound, radius=radius, spread=spread, batch=batch + uneven
        )
    if given == "paper":
        return float(paper_step_size(records, rho, query.size, query.bound, radius))
    if given is not None and given != "anytime":
        return float(given)
    step_size = dual_step_size(records, epochs, query, radius)
    if chosen.schedule == "arrival" and math.isfinite(chosen.loss.smoothness):
        step_size = min(step_size, STEADY / (chosen.loss.smoothness * batch * query.longest_row**2))
    return float(step_size)
