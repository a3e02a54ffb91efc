"""The learners of Ullah & Arora, "From Adaptive Query Release to Machine Unlearning" (ICML 2023), by name.

Each function takes what the theorem takes and returns a `Learner` with the theorem's noise, step sizes, number of steps
and released model. Where the paper is wrong the corrected version is used; docs/paper.md lists every correction.

``rho`` is the paper's here: the total-variation stability of the transcript. Elsewhere in Expunge it is the worst-case
probability of a replay (see `expunge.engine.accounting`). All learners use the paper's coupling, row by row.
``dataclasses.replace(learner, coupling="joint")`` has the same noise and replays less often.

>>> import numpy as np
>>> from expunge import Delete, Logistic, MemoryRecords, change, learn_with_outcome, paper
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(256, 3)) / 4
>>> X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
>>> y = np.where(X[:, 0] > 0, 1.0, -1.0)
>>> learner = paper.dual_averaging(Logistic(), rho=0.2, n=256, d=3, D=10.0)
>>> records = MemoryRecords((X, y))
>>> transcript, learned = learn_with_outcome(learner, records, rng)
>>> deletion = change(learner, records, transcript, Delete([17]), rng)
>>> outcome = deletion.commit()
>>> learned.evaluations, outcome.evaluations
(256, 2)
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np

from expunge.base.checking import check_one_of, check_positive, is_number
from expunge.base.errors import BadPlan
from expunge.base.grid import grid_unit, on_grid
from expunge.base.types import Array
from expunge.engine.accounting import FOREVER, noise_for
from expunge.engine.contributions import Query, Rule
from expunge.engine.learner import Learner
from expunge.engine.mechanisms.binary_tree import BinaryTree
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.randomness import KEY_BYTES
from expunge.engine.schedules import Arrival, Everyone, Schedule, Shuffled
from expunge.engine.transcript import Path
from expunge.solvers.any_loss import HybridLossGradient, LossGradient, UpdateOf
from expunge.solvers.averaging import BITS, ClientUpdate, FederatedAverage
from expunge.solvers.domains import Ball, Domain
from expunge.solvers.dual_averaging import DualAveragingRule, theorem_step_size
from expunge.solvers.extents import Extent
from expunge.solvers.frank_wolfe import FrankWolfeRule, HybridGradient
from expunge.solvers.gradient import Gradient
from expunge.solvers.gradient_descent import GradientDescentRule
from expunge.solvers.lloyd import ClusterMoments, PlainLloyd
from expunge.solvers.losses import Loss
from expunge.solvers.projected import BackToFeatures, ProjectedGradient
from expunge.solvers.projection import Projection, stretch

GradientOf = Callable[..., Any]
"""``gradient(w, *columns)``: the gradients of a loss at w, a row for each record."""
Selected = Literal["last", "average", "tail"] | Callable[[Path], Array]

__all__ = [
    "dual_averaging", "exact_stream", "federated_averaging", "frank_wolfe", "linear_queries", "lloyd", "prefix_sums",
    "projected", "sgd_2021", "weak_stream",
]  # fmt: skip


# --- query classes ------------------------------------------------------------------------------------


def prefix_sums(query: Query, rule: Rule, *, rho: float, n: int, selector: Selected = "last") -> Learner:
    """Return TreeLearn and TreeUnlearn (Section 4): one record a step in random order, noise by a binary tree."""
    _check_rho(rho)
    check_positive("n", n, whole=True)
    sigma = _noise(rho, Shuffled(1), BinaryTree(), query, n)
    return Learner(Shuffled(1), query, rule, BinaryTree(), sigma, "sequential", selector)


def linear_queries(query: Query, rule: Rule, *, rho: float, rounds: int, selector: Selected = "last") -> Learner:
    """Return LearnLinearQueries and its unlearning (Appendix B): everyone in every round, each with its own noise.

    The paper's queries are means; these are sums, since the number of records must not enter the plan.
    """
    _check_rho(rho)
    check_positive("rounds", rounds, whole=True)
    sigma = _noise(rho, Everyone(rounds), Identity(), query)
    return Learner(Everyone(rounds), query, rule, Identity(), sigma, "sequential", selector)


# --- stochastic convex optimization -----------------------------------------------------------------------


def frank_wolfe(
    loss: Loss | GradientOf, *, rho: float, n: int, d: int, D: float, G: float | None = None, H: float | None = None,
    domain: Domain | None = None,
) -> Learner:  # fmt: skip
    """Return variance-reduced Frank-Wolfe (Section 5.1): excess risk (G + HD)·D·(n^-1/2 + √d/(nρ)) for smooth losses.

    ``loss`` is a loss of `expunge` for linear models, or the gradient of any loss as a function. ``G`` and ``H`` are
    its Lipschitz constant and its smoothness in w; those of a linear model are by default for rows of norm at most 1.
    ``domain`` is a convex set of diameter at most ``D``, by default the ball around 0. The last iterate is released.
    One evaluation is two gradients, at the last two iterates.
    """
    _check_sizes(rho, n, d, D)
    domain = _domain(domain, D, d)
    if callable(loss):
        check_positive("G", G)
        check_positive("H", H)
        bound = max(2.0 * _number(G), _number(H) * D + _number(G))
        query: Query = HybridLossGradient(loss, d, bound)
    else:
        query = HybridGradient(loss, d, _row_norm(loss, G, H), diameter=D)
    return prefix_sums(query, FrankWolfeRule(domain.project(np.zeros(d)), domain), rho=rho, n=n)


def dual_averaging(
    loss: Loss | GradientOf, *, rho: float, n: int, d: int, D: float, G: float | None = None,
    domain: Domain | None = None,
) -> Learner:  # fmt: skip
    """Return dual averaging (Section 5.2): excess risk G·D·(n^-1/2 + (√d/(nρ))^1/2) for Lipschitz losses.

    The parameters are those of `frank_wolfe`. The step size balances the bound, and the average of all iterates is
    released, which is what the theorem is about.
    """
    _check_sizes(rho, n, d, D)
    radius, domain = D if domain else D / 2.0, _domain(domain, D, d)
    query = _gradient(loss, d, G)
    sigma = _noise(rho, Shuffled(1), BinaryTree(), query, n)
    step_size = theorem_step_size(n, d, bound=query.bound, radius=radius, spread=sigma * BinaryTree().widest(n))
    rule = DualAveragingRule(domain.project(np.zeros(d)), step_size, domain)
    return Learner(Shuffled(1), query, rule, BinaryTree(), sigma, "sequential", "average")


def sgd_2021(
    loss: Loss | GradientOf, *, rho: float, n: int, d: int, D: float, G: float | None = None, H: float | None = None,
    domain: Domain | None = None, rounds: int | None = None,
) -> Learner:  # fmt: skip
    """Return noisy mini-batch SGD (Ullah et al., 2021): excess risk n^-1/2 + (√d/(nρ))^2/3 for smooth losses.

    This is what the paper improves on. Each record joins each of T rounds with probability 1/T, so that learning takes
    about n evaluations; T balances HD²/T with the noise. (In 2021 batches have a fixed size. Here a stored key says
    who joins, so that nobody else's batches change with a deletion.) The other parameters are those of `frank_wolfe`.
    """
    _check_sizes(rho, n, d, D)
    radius, domain = D if domain else D / 2.0, _domain(domain, D, d)
    query = _gradient(loss, d, G)
    if callable(loss):
        check_positive("H", H)
    else:
        H = _smoothness(loss, G, H)
    smooth = _number(H)
    if rounds is None:
        rounds = round((smooth * D / query.bound * n * rho / math.sqrt(d)) ** (2.0 / 3.0))
        rounds = max(1, min(n, rounds))
    check_positive("rounds", rounds, whole=True)
    schedule = Everyone(rounds, 1.0 / rounds)
    sigma = _noise(rho, schedule, Identity(), query)
    batch = n / rounds
    variance = query.bound**2 / batch + d * (sigma / batch) ** 2
    step_size = min(1.0 / smooth, radius / math.sqrt(rounds * variance)) / batch
    rule = GradientDescentRule(domain.project(np.zeros(d)), step_size, domain)
    return Learner(schedule, query, rule, Identity(), sigma, "sequential", "average")


def projected(
    loss: Loss, *, base: Literal["frank_wolfe", "dual_averaging"] = "frank_wolfe", rho: float, n: int, d: int,
    radius: float, norm: float = 1.0, components: int | None = None, key: bytes | None = None,
) -> Learner:  # fmt: skip
    """Return the JL method (Section 5.3): a linear model of random projections, at a rate that does not depend on d.

    The excess risk is n^-1/2 + (nρ)^-2/3 with ``base="frank_wolfe"`` for smooth losses, and n^-1/2 + (nρ)^-1/3 with
    ``"dual_averaging"`` for Lipschitz ones. ``radius`` is about the length of the best model, ``norm`` that of the
    longest row; longer ones are shortened. By default there are (nρ)^2/3 ``components``, as the proofs need; where that
    is not below ``d``, nothing is projected. ``key``, 32 random bytes, makes the projection: it is public, and must not
    depend on the records. The model has d numbers again. Rows are projected when they are evaluated, or beforehand by
    ``learner.query.project(rows)``.
    """
    _check_sizes(rho, n, d, radius, "radius")
    check_positive("norm", norm)
    check_one_of("base", base, Literal["frank_wolfe", "dual_averaging"])
    if components is None:
        curved = loss.smoothness * norm * radius
        share = curved / (curved + loss.lipschitz) if base == "frank_wolfe" else 1.0
        components = max(math.ceil((share * n * rho) ** (2.0 / 3.0)), math.ceil(4.0 * math.log(n + 1)))
        components = min(d, components)
    check_positive("components", components, whole=True)
    if components > d:
        raise BadPlan(f"components={components}: give at most d={d}.")
    factor = 1.0 if components == d else stretch(components, n + 1, rho)  # of rows, and of the best model
    make = frank_wolfe if base == "frank_wolfe" else dual_averaging
    learner = make(
        loss, rho=rho, n=n, d=components, D=2.0 * factor * radius, G=loss.lipschitz * factor * norm
    )  # fmt: skip
    query = cast(Gradient, learner.query)
    if components == d:
        return replace(learner, query=replace(query, shorten=True))
    projection = Projection(key or secrets.token_bytes(KEY_BYTES), d, components, norm)
    selector = BackToFeatures(learner.selector, projection)
    return replace(learner, query=ProjectedGradient(query, projection), selector=selector)


# --- applications of linear queries -----------------------------------------------------------------------


def lloyd(centers: Any, *, rho: float, rounds: int, radius: float) -> Learner:
    """Return Lloyd's algorithm for k-means (Appendix B): from given centres, noisy sums over noisy counts.

    Records are points of norm at most ``radius``; longer ones are moved onto that ball. ``centers`` must not be chosen
    by looking at the records. The model is the last centres, one after the other.
    """
    _check_rho(rho)
    check_positive("rounds", rounds, whole=True)
    check_positive("radius", radius)
    given = np.asarray(centers, dtype=float)
    if given.ndim != 2 or not given.size or not np.isfinite(given).all():
        raise BadPlan(f"centers: expected a table of finite numbers, a row for each centre, got shape {given.shape}.")
    extent = Extent(np.zeros(given.shape[1]), radius)
    query = ClusterMoments(extent, (len(given),) * rounds, radius / given.shape[1] ** 0.25)
    return linear_queries(query, PlainLloyd(given, query), rho=rho, rounds=rounds)


def federated_averaging(update: GradientOf, start: Any, *, rho: float, rounds: int, clip: float) -> Learner:
    """Return federated averaging (Appendix B) where a record is a client: noisy sum over noisy count of their updates.

    ``update(w, *columns)`` returns how each client would change the model, a row for each; rows longer than ``clip``
    are shortened to it. `expunge.federated` does the same with real clients.
    """
    _check_rho(rho)
    check_positive("clip", clip)
    first = np.asarray(start, dtype=float)
    if first.ndim != 1 or not first.size or not np.isfinite(first).all():
        raise BadPlan(f"start: expected a flat array of finite numbers, got shape {first.shape}.")
    weight = clip / first.size**0.25
    weight = float(on_grid(np.array(weight), grid_unit(math.hypot(clip, weight), BITS)))
    query = UpdateOf(update, ClientUpdate(first.size, clip, weight))
    return linear_queries(query, FederatedAverage(first, weight, clip), rho=rho, rounds=rounds)


# --- dynamic streams ----------------------------------------------------------------------------------


def weak_stream(query: Query, rule: Rule, *, rho: float, selector: Selected = "last") -> Learner:
    """Return the learner of streams with weak unlearning (Section 6): records in order of arrival, a tree that grows.

    An insertion costs a step, however many records there are. The law of the state is that of training in the stored
    order, which must not be released. Neither noise nor ``rule`` may depend on how many records there will be:
    `FrankWolfeRule` does not, nor does `DualAveragingRule` with ``anytime``.
    """
    return _stream(Arrival(1), query, rule, rho, selector)


def exact_stream(query: Query, rule: Rule, *, rho: float, selector: Selected = "last") -> Learner:
    """Return the learner of streams with exact unlearning (Appendix F): a newcomer takes a random place.

    An insertion is like a deletion: it may replay. ``rule`` as for `weak_stream`.
    """
    return _stream(Shuffled(1), query, rule, rho, selector)


def _stream(schedule: Schedule, query: Query, rule: Rule, rho: float, selector: Selected) -> Learner:
    _check_rho(rho)
    if isinstance(query, ProjectedGradient):
        raise BadPlan(
            "query: a random projection in a stream; the number of components follows that of the records, which a "
            "stream changes. Use the query without a projection."
        )
    mechanism = BinaryTree("anytime")
    sigma = _noise(rho, schedule, mechanism, query, FOREVER)
    return Learner(schedule, query, rule, mechanism, sigma, "sequential", selector)


# --- parts ------------------------------------------------------------------------------------------------


def _noise(rho: float, schedule: Schedule, mechanism: Mechanism, query: Query, records: int = 1) -> float:
    """Return the σ at which the transcript is ρ-stable in total variation."""
    coupling = "joint" if mechanism.prefix else "adaptive"  # with these the two meanings of ρ agree
    return noise_for(
        rho, schedule, mechanism, bound=query.bound, coupling=coupling, records=records, size=query.size
    )  # fmt: skip


def _gradient(loss: Loss | GradientOf, d: int, G: float | None) -> Gradient | LossGradient:
    if callable(loss):
        check_positive("G", G)
        return LossGradient(loss, d, _number(G))
    return Gradient(loss, d, _row_norm(loss, G))


def _row_norm(loss: Loss, G: float | None, H: float | None = None) -> float:
    """Return how long rows may be, so that a linear model's loss is G-Lipschitz and H-smooth."""
    if loss.outputs != 1:
        raise BadPlan(f"loss: {type(loss).__name__} has {loss.outputs} outputs; the paper's linear models have one.")
    if G is None:
        return 1.0
    check_positive("G", G)
    if H is not None:
        _smoothness(loss, G, H)
    return G / loss.lipschitz


def _smoothness(loss: Loss, G: float | None, H: float | None) -> float:
    """Return H, by default that of rows as long as G says."""
    least = loss.smoothness * (1.0 if G is None else G / loss.lipschitz) ** 2
    if not math.isfinite(least):
        raise BadPlan(f"loss: {type(loss).__name__} is not smooth; use dual_averaging, or SmoothedHinge.")
    if H is None:
        return least
    check_positive("H", H)
    if least * (1.0 - 1e-9) > H:
        raise BadPlan(f"H={H:g} contradicts G={G}: {type(loss).__name__} with rows of that length has H = {least:g}.")
    return H


def _domain(domain: Domain | None, D: float, d: int) -> Domain:
    """Return the domain, by default the ball of that diameter."""
    if domain is None:
        return Ball(D / 2.0)
    if not domain.diameter(d) <= D * (1.0 + 1e-9):
        raise BadPlan(f"D={D:g} contradicts domain={domain!r}, whose diameter is {domain.diameter(d):g}.")
    return domain


def _check_sizes(rho: float, n: int, d: int, far: float, name: str = "D") -> None:
    _check_rho(rho)
    check_positive("n", n, whole=True)
    check_positive("d", d, whole=True)
    check_positive(name, far)


def _check_rho(rho: float) -> None:
    if not (is_number(rho) and 0.0 < rho <= 1.0):
        raise BadPlan(f"rho={rho!r}: give a total variation above 0 and at most 1 (1 means no noise).")


def _number(value: float | None) -> float:
    assert value is not None
    return float(value)
