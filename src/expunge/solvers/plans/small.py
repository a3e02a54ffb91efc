"""Small problems with a plan's own settings, on which exactness can be put to the test in seconds.

Only sizes are scaled down: numbers of records, steps, features and classes, and with them step size and noise, which is
made about as large as a contribution. Records are made up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from expunge.base.types import AnyArray, Array
from expunge.engine.accounting import noise_for
from expunge.engine.transcript import Path
from expunge.solvers.losses import Loss, MulticlassHinge, Multinomial, Weighted
from expunge.solvers.plans.protocol import SmallProblem

if TYPE_CHECKING:
    from expunge.solvers.plans.linear import Plan

NOISE = 0.6
"""The largest noise, relative to the contribution of the deleted record: more would hide mistakes."""
GONE = 0
"""Who is deleted."""
RECORDS, STEPS, CLASSES, CLUSTERS = 6, 3, 3, 2
"""How many of each there are at most."""
FEATURES = 3
"""How many features there are at most; more have more pairs, and more pairs need more runs."""
WIDE = 8
"""How many there are at most where sums are compared to the last bit."""
STRIDE = 0.5
"""How far one record moves a score of another at most in a step: farther, and answers are all certain."""
LIVELY = 6.0
"""By how much less noise k-means expects than there is: else it would take clusters of so few points for empty."""

POINTS = np.array([0.9, -0.7, 0.8, -0.3, -0.9, 0.1])
"""The deleted record is an outlier."""
_SIGNS = np.array([1.0, -1.0, -1.0, 1.0, -1.0, -1.0])
_CODES = np.array([0, 1, 2, 1, 2, 1])
_NUMBERS = np.array([0.9, -0.8, -0.4, 0.6, -0.9, -0.2])


def small_steps(plan: Plan, rng: np.random.Generator) -> SmallProblem:
    """Return a small problem for the plan of a linear model."""
    small = _scaled_down(plan)
    loss, features = small.loss, small.features
    columns = _rows(features, rng) * plan.feature_norm, _targets(loss, rng)
    if plan.sigma:
        small = replace(small, sigma=min(_own_noise(small), _clear_noise(small, columns)))
    steps, name = small.learner.schedule.steps(RECORDS), "rounds" if plan.everyone else "steps"
    parts = (
        ("records", plan.records, RECORDS),
        ("features", plan.features, features),
        ("classes", _classes(plan.loss), _classes(loss)),
        (name, plan.steps, steps // small.epochs),
        ("epochs", plan.epochs, small.epochs),
        ("records in a step", plan.batch, small.batch),
        ("probability to join a round", plan.rate, small.rate),
        ("step size", plan.step_size, small.step_size),
        ("radius of the domain", plan.radius, plan.radius if plan.domain == "everywhere" else small.radius),
        ("noise σ, in contributions of a record", plan.sigma / plan.bound, small.sigma / small.bound),
    )
    says = (
        f"{RECORDS} made-up records, {features} feature{'s' * (features > 1)}, "
        f"{steps} {name}{' of two' if plan.ordered else ''}, one record deleted"
    )
    own = "loss", "solver", "schedule", "mechanism", "coupling", "selector", "domain", "feature_norm", "clip", "alpha"
    return SmallProblem(small.learner, columns, says, own, parts)


def _scaled_down(plan: Plan) -> Plan:
    """Return the same plan with fewer and smaller steps, for fewer features and classes; noise as it was."""
    loss = fewer_classes(plan.loss)
    epochs, rate = min(plan.epochs, 2), max(plan.rate, 0.5)
    batch = max(1, round(RECORDS * rate)) if plan.everyone else 2
    longest_row = float(np.hypot(plan.feature_norm, plan.intercept))
    small = replace(
        plan, loss=loss, features=min(plan.features, FEATURES if loss.outputs == 1 else 1),
        steps=min(plan.steps, STEPS if epochs == 1 else 2), batch=batch, epochs=epochs, rate=rate,
        radius=min(plan.radius, 2.0 / longest_row),
    )  # fmt: skip
    bound = small.learner.query.bound
    stride = min(plan.step_size * plan.batch / batch, STRIDE / (longest_row * bound))
    return replace(small, bound=bound, step_size=stride)


def _rows(features: int, rng: np.random.Generator) -> Array:
    """Make up rows of at most norm 1, which point about the same way: one that is gone shows in one number."""
    rows = 0.4 * rng.normal(size=(RECORDS, features))
    rows[:, 0] = 1.0
    lengths = rng.uniform(0.7, 1.0, RECORDS)
    return np.asarray(rows * (lengths / np.linalg.norm(rows, axis=1))[:, None])


def _own_noise(plan: Plan) -> float:
    """Return the noise that the plan's ρ needs."""
    learner = plan.learner
    return noise_for(
        plan.rho, learner.schedule, learner.mechanism, bound=learner.query.bound, coupling=learner.coupling,
        records=RECORDS, records_per_subject=plan.records_per_subject, size=learner.query.size,
    )  # fmt: skip


def _clear_noise(plan: Plan, columns: tuple[AnyArray, ...]) -> float:
    """Return the noise in which the record that is deleted shows clearly."""
    query = plan.learner.query
    if plan.coupling == "adaptive":
        return query.bound * (1.0 if plan.rate == 1.0 else 0.5)
    first = query.contributions(0, Path(np.zeros(query.size), None, 0), columns)[GONE]
    return NOISE * (float(np.linalg.norm(first)) or query.bound)


def fewer_classes(loss: Loss) -> Loss:
    """Return the same loss for at most three classes."""
    match loss:
        case Weighted():
            few: Any = fewer_classes(loss.loss)
            return Weighted(few, loss.weights[: few.classes])
        case Multinomial():
            return Multinomial(min(loss.classes, CLASSES))
        case MulticlassHinge():
            return replace(loss, classes=min(loss.classes, CLASSES))
        case _:
            return loss


def _classes(loss: Loss) -> int:
    return int(getattr(loss, "classes", None) or 0)


def _targets(loss: Loss, rng: np.random.Generator) -> AnyArray:
    classes = _classes(loss)
    if loss.outputs > 1:
        return np.asarray(rng.permutation(_CODES) % (classes or loss.outputs))
    return rng.permutation(_SIGNS if classes else _NUMBERS)
