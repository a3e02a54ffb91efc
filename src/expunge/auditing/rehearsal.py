"""A deletion rehearsed: a small problem with a model's own plan, on which exactness is put to the test.

Only sizes are shrunk: numbers of records, steps, features and classes, and with them step size and noise, which is made
about as large as a contribution. No record of the model takes part, so that the result tells nothing of any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from expunge.auditing.findings import Rehearsal
from expunge.checks import check_exact
from expunge.clustering import ClusterPlan, make_cluster_plan
from expunge.engine import change, learn
from expunge.learner import Learner, Transcript
from expunge.least_squares import RidgePlan
from expunge.losses import Loss, MulticlassHinge, Multinomial, Weighted
from expunge.memory import MemoryRecords
from expunge.planning import Plan
from expunge.progress import Show
from expunge.records import Delete, Request
from expunge.rows import ArrayRows, Path
from expunge.rules import Lloyd
from expunge.types import AnyArray, Array

LEVEL = 1e-4
"""A corrected p-value below this is a difference. One audit in ten thousand would find one that is not there."""
CAUGHT = 1e-6
"""The mistake must give a p-value below this."""
ENOUGH = 600, 1000
"""So many runs, at least and at most, are made with the mistake."""
NOISE = 0.6
"""How large the noise is beside the contribution of the record that is deleted."""
GONE = 0
"""Who is deleted."""
TABLES = 100
"""On how many random tables sums are compared to the last bit."""
MOST_CLASSES = 3
LIVELY = 6.0
"""By how much less noise k-means expects than there is: else it would take clusters of so few points for empty."""

_ROWS = np.array([[0.9, 0.3], [0.8, -0.5], [0.95, 0.2], [0.7, 0.6], [0.85, -0.3], [0.9, 0.1]])
_SIGNS = np.array([1.0, -1.0, -1.0, 1.0, -1.0, -1.0])
_CODES = np.array([0, 1, 2, 1, 2, 1])
_NUMBERS = np.array([0.9, -0.8, -0.4, 0.6, -0.9, -0.2])
_POINTS = np.array([[0.9], [-0.7], [0.8], [-0.3], [-0.9], [0.1]])


class Problem(NamedTuple):
    """A small problem."""

    learner: Learner
    columns: tuple[AnyArray, ...]
    says: str


def rehearse(plan: Any, *, runs: int, seed: int, show: Show, mistaken: int | None = None) -> Rehearsal:
    """Delete a record of a small problem many times, and compare with training without it; likewise with a mistake.

    That is made ``mistaken`` times: by default often enough to show for certain.
    """
    if isinstance(plan, RidgePlan):
        return _rehearse_sums(plan, seed, show)
    problem = small_clusters(plan) if isinstance(plan, ClusterPlan) else small_steps(plan)
    request = [Delete([GONE])]

    mistaken = mistaken or min(max(runs, ENOUGH[0]), ENOUGH[1])

    def watch(stage: str, runs: int) -> Callable[[int], None]:
        return lambda done: show(stage, done, 2 * runs)

    found = check_exact(
        problem.learner, problem.columns, request, runs=runs, level=LEVEL, seed=seed, watch=watch("exactness", runs)
    )
    control = check_exact(
        problem.learner, problem.columns, request, runs=mistaken, level=CAUGHT, seed=seed, serve=keep_always,
        watch=watch("control", mistaken),
    )  # fmt: skip
    return Rehearsal(
        problem.says, runs, len(found.names), LEVEL, found.p_value, None,
        "the record is taken out of the sums, and the model left as it was", CAUGHT, control.p_value, None,
    )  # fmt: skip


# --- linear models -----------------------------------------------------------------------------------


def small_steps(plan: Plan) -> Problem:
    """Return a small problem for the plan of a linear model."""
    loss = fewer_classes(plan.loss)
    features = 2 if loss.outputs == 1 else 1
    everyone, ordered = plan.schedule == "everyone", plan.schedule in ("shuffled", "arrival")
    epochs = min(plan.epochs, 2)
    rows = _ROWS[:, :features] * plan.feature_norm
    small = replace(plan, loss=loss, features=features, steps=3 if epochs == 1 else 2, batch=2, epochs=epochs)
    reach = float(np.hypot(plan.feature_norm, plan.intercept))
    small = replace(small, radius=2.0 / reach, rate=max(plan.rate, 0.5))
    query = small.learner.query
    small = replace(small, step_size=0.5 / (reach * query.bound))
    columns = rows, _targets(loss)
    if plan.sigma:
        first = small.learner.query.contributions(0, Path(np.zeros(query.size), None, 0), columns)[GONE]
        size = float(np.linalg.norm(first)) or query.bound
        adaptive = query.bound * (1.0 if plan.rate == 1.0 else 0.5)
        small = replace(small, sigma=adaptive if plan.coupling == "adaptive" else NOISE * size)
    steps = small.learner.schedule.steps(len(rows))
    says = (
        f"{len(rows)} made-up records, {features} feature{'s' * (features > 1)}, "
        f"{steps} {'rounds' if everyone else 'steps'}{' of two' if ordered else ''}, one record deleted"
    )
    return Problem(small.learner, columns, says)


def fewer_classes(loss: Loss) -> Loss:
    """Return the same loss for at most three classes."""
    match loss:
        case Weighted():
            few: Any = fewer_classes(loss.loss)
            return Weighted(few, loss.weights[: few.classes])
        case Multinomial():
            return Multinomial(min(loss.classes, MOST_CLASSES))
        case MulticlassHinge():
            return replace(loss, classes=min(loss.classes, MOST_CLASSES))
        case _:
            return loss


def _targets(loss: Loss) -> AnyArray:
    classes: int | None = getattr(loss, "classes", None)
    if classes is None:
        return _NUMBERS if loss.outputs == 1 else _CODES % loss.outputs
    return _SIGNS if loss.outputs == 1 else _CODES % classes


# --- clusters ----------------------------------------------------------------------------------------


def small_clusters(plan: ClusterPlan) -> Problem:
    """Return a small problem for the plan of k-means."""
    extent = plan.extent
    region: dict[str, Any] = {"radius": extent.radius}
    reach = extent.radius
    if extent.half_widths is not None:
        reach = float(extent.half_widths[0])
        region = {"low": -reach, "high": reach}
    small = make_cluster_plan(
        2, 1, 8, **region, rho=1.0 if plan.sigma == 0.0 else 0.5, rounds=3, seeds=2, coupling=plan.coupling,
        seed=plan.seed,
    )  # fmt: skip
    learner, rule = small.learner, small.learner.rule
    assert isinstance(rule, Lloyd)
    sigma = small.bound if plan.sigma else 0.0
    learner = replace(learner, sigma=sigma, rule=replace(rule, sigma=sigma / LIVELY))
    says = f"{len(_POINTS)} made-up points, 2 clusters, 1 feature, {small.rounds} rounds, one point deleted"
    return Problem(learner, (_POINTS * reach,), says)


# --- sums --------------------------------------------------------------------------------------------


def _rehearse_sums(plan: RidgePlan, seed: int, show: Show) -> Rehearsal:
    """Compare, to the last bit, the sums and the solution after a deletion with those of a fit without the record."""
    bounds = plan.feature_bounds[:2]
    learner = replace(plan, feature_bounds=bounds).learner
    rng = np.random.default_rng(seed)
    equal = left_as_it_was = 0
    for table in range(TABLES):
        rows = rng.uniform(-1, 1, (len(_ROWS), len(bounds))) * np.array(bounds)
        columns = rows, rng.uniform(-1, 1, len(rows)) * plan.target_bound
        records = MemoryRecords(columns)
        transcript = learn(learner, records, rng)
        before = _state(transcript)
        change(learner, records, transcript, Delete([GONE]), rng).commit()
        fresh = _state(learn(learner, MemoryRecords([np.delete(column, GONE, axis=0) for column in columns]), rng))
        equal += _state(transcript) == fresh
        left_as_it_was += before == fresh
        show("exactness", table + 1, TABLES)
    says = f"{len(_ROWS)} made-up records, {len(bounds)} feature{'s' * (len(bounds) > 1)}, one record deleted"
    control = "the record is deleted, and the sums and the solution are left as they were"
    return Rehearsal(says, TABLES, 1, LEVEL, None, equal, control, CAUGHT, None, left_as_it_was)


def _state(transcript: Transcript) -> bytes:
    tables: tuple[Any, ...] = (transcript.sums, transcript.answers, transcript.iterates)
    return b"".join(table[:].tobytes() for table in tables)


# --- the mistake -------------------------------------------------------------------------------------


def keep_always(
    learner: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> tuple[MemoryRecords, Transcript]:
    """Serve a deletion as one would who takes the record out, and leaves answers and model as they were."""
    answers, iterates = (np.array(table[:]) for table in (transcript.answers, transcript.iterates))
    change(learner, records, transcript, request, rng).commit()
    steps = transcript.steps
    old = ArrayRows(iterates[:steps])
    sums = ArrayRows(_sums(learner, records, transcript.start, old))
    kept = sums if learner.silent else ArrayRows(answers[:steps])
    return records, Transcript(sums, kept, old, transcript.start, records)


def _sums(learner: Learner, records: MemoryRecords, start: Array, iterates: ArrayRows) -> Array:
    """Return what the records that are left contribute along these iterates."""
    found = np.zeros((len(iterates[:]), learner.query.size))
    for step in range(len(found)):
        found[step] = learner.total(records, step, Path(start, iterates, step)).sum
    return found
