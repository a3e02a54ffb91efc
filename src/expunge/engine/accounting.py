"""How much noise, how many replays: exact formulas, and the paper's bounds beside them.

ρ has three meanings. They must be told apart.

- *Worst-case probability of a replay*: ``rho`` of every plan, `worst_case_rho`, `noise_for`.
- *Total-variation stability*, the paper's ρ: how far all that is kept can differ between records with one subject and
  without it, given the schedule. `stability`. No coupling replays less often.
- *Relative unlearning complexity*: the evaluations that a deletion needs on average, as a share of those of learning.
  `relative_complexity` predicts it, `Outcome.evaluations` measures it.

The first two are equal for the joint coupling if a record is in one step, and for the adaptive one. For the sequential
coupling the first is larger: about √log₂ T times with a tree, √T times with rounds over everyone. The third is below
the first, since a replay begins where the record lies, and most records contribute less than the bound; but a deletion
that is kept costs something too. Proofs: docs/guarantee.md, "Accounting".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.grid import FINENESS, LOST
from expunge.base.types import Array, Ints
from expunge.engine.contributions import Query
from expunge.engine.couplings.common import COUPLINGS, replay_probability
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.schedules import Schedule

MUCH = 1e150
"""More noise than any."""
FOREVER = 2**60
"""More records than there will be: noise of the anytime tree that is planned for so many is planned for any number."""


def sigma_for(rho: float, distance: float = 1.0) -> float:
    """Return the σ at which a shift of norm ``distance`` replays with probability ρ.

    >>> round(sigma_for(0.1, 1.0), 3)
    3.979
    """
    _check_rho(rho)
    if rho == 1.0:
        return 0.0
    from scipy import stats

    return float(distance / (2.0 * stats.norm.ppf((1.0 + rho) / 2.0)))


def rho_for(sigma: float, distance: float = 1.0) -> float:
    """Return the probability 2Φ(distance / 2σ) - 1 that a shift of norm ``distance`` replays.

    >>> round(rho_for(3.979, 1.0), 3)
    0.1
    """
    if sigma == 0.0:
        return 1.0
    return replay_probability(distance / sigma)


def _check_rho(rho: float) -> None:
    if not 0.0 < rho <= 1.0:
        raise BadPlan(f"rho={rho!r}: give a probability above 0 and at most 1 (1 means no noise).")


def sensitivity(schedule: Schedule, bound: float, records_per_subject: int = 1) -> float:
    """Return Δ: how far one subject can move the sums of its steps.

    Where an order is kept, a deleted record is replaced by another, which counts twice.
    """
    return bound * records_per_subject * (2.0 if schedule.ordered else 1.0)


def worst_case_rho(
    sigma: float,
    schedule: Schedule,
    mechanism: Mechanism,
    *,
    bound: float,
    coupling: str = "joint",
    records: int = 1,
    records_per_subject: int = 1,
    size: int = 0,
) -> float:
    """Return ρ for a learner: the probability that the least favourable deletion of one subject replays.

    ``size`` is how many numbers a contribution has: rounding to the grid of the noise may add that many halves of it
    to a sum. It hardly matters, and 0 leaves it out.

    ``records`` is needed where the number of steps follows it (`Shuffled`, `Arrival`): give the largest number there
    will be, or `FOREVER` with the tree's anytime shares. A subject with several records there touches that many
    steps, and each counts.
    """
    if coupling not in COUPLINGS:
        raise BadPlan(f"coupling={coupling!r}: use one of {', '.join(COUPLINGS)}.")
    if not (sigma >= 0.0 and math.isfinite(sigma)):
        raise BadPlan(f"sigma={sigma!r}: give a finite number of at least 0.")
    steps = schedule.steps(records)
    if steps == 0:
        return 0.0
    once = _visited_once(schedule, steps)
    rounds = 1 if once else _visits(schedule, steps).shape[1]
    if sigma == 0.0:
        if schedule.touches_everyone:  # to change the last sum is to add to it: nothing is replayed
            rounds -= 1
        return 1.0 - (1.0 - schedule.rate) ** rounds
    several = records_per_subject if schedule.ordered else 1
    per_visit = sensitivity(schedule, bound, records_per_subject if several == 1 else 1) / sigma
    per_visit += math.sqrt(size) * mechanism.smallest_scale * 2.0**-FINENESS
    if coupling == "adaptive":
        return _over_rounds(schedule.rate, rounds, lambda joined: replay_probability(per_visit * joined**0.5))
    if not mechanism.prefix:  # independent rows: the coins are independent too, and records of one step add up
        row = replay_probability(per_visit * several)
        return 1.0 - (1.0 - schedule.rate * row) ** rounds
    if coupling == "sequential":
        first_only = once and mechanism.first_sees_most
        visits = np.zeros((1, 1), dtype=np.int64) if first_only else _visits(schedule, steps)
        return max(_row_by_row(mechanism, place, steps, per_visit, schedule.rate, several) for place in visits)
    if once:
        return min(1.0, several * schedule.rate * replay_probability(mechanism.largest_norm(steps) * per_visit))
    norms = mechanism.column_norms(steps)[_visits(schedule, steps)]
    total = schedule.rate * _erf_of(norms * per_visit).sum(axis=1)
    return min(1.0, several * float(total.max()))


def noise_for(
    rho: float,
    schedule: Schedule,
    mechanism: Mechanism,
    *,
    bound: float,
    coupling: str = "joint",
    records: int = 1,
    records_per_subject: int = 1,
    size: int = 0,
) -> float:
    """Return the σ for a wanted ρ: the inverse of `worst_case_rho`. ρ = 1 means no noise.

    >>> from expunge.engine.mechanisms.binary_tree import BinaryTree
    >>> from expunge.engine.mechanisms.square_root import SquareRoot
    >>> from expunge.engine.schedules import Scattered
    >>> [round(noise_for(0.1, Scattered(1024), m, bound=1.0), 1) for m in (BinaryTree(), SquareRoot())]
    [13.2, 7.2]
    """
    _check_rho(rho)
    given: dict[str, Any] = {
        "bound": bound,
        "coupling": coupling,
        "records": records,
        "records_per_subject": records_per_subject,
        "size": size,
    }
    if rho >= worst_case_rho(0.0, schedule, mechanism, **given):  # even without noise no more deletions replay
        return 0.0

    def excess(log_sigma: float) -> float:
        return rho - worst_case_rho(math.exp(log_sigma), schedule, mechanism, **given)

    least = least_rho(schedule, mechanism, size=size, coupling=coupling, records=records)
    if rho < least:
        raise BadPlan(f"rho={rho!r}: with {size} numbers per contribution, give at least {least:.1e}.")
    guess = math.log(sigma_for(rho, sensitivity(schedule, bound, records_per_subject)))
    low, high = guess, guess
    while excess(low) > 0.0:
        low -= 1.0
    while excess(high) < 0.0:
        high += 1.0
    from scipy import optimize

    return math.exp(optimize.brentq(excess, low, high, xtol=1e-12))


def least_rho(schedule: Schedule, mechanism: Mechanism, *, size: int, coupling: str, records: int = 1) -> float:
    """Return the smallest ρ to plan with: below it, rounding to the grid would count for more than records do.

    >>> from expunge.engine.mechanisms.square_root import SquareRoot
    >>> from expunge.engine.schedules import Scattered
    >>> f"{least_rho(Scattered(1024), SquareRoot(), size=55, coupling='joint'):.0e}"
    '6e-07'
    """
    return 2.0 * worst_case_rho(
        MUCH, schedule, mechanism, bound=1.0, coupling=coupling, records=records, size=size
    )  # fmt: skip


def rounding_error(steps: int, size: int) -> float:
    """Return by how much, at most, arithmetic changes the law of what is stored, in total variation, at a request.

    The noise is drawn in floating point and rounded to its grid: that counts twice, once for what was learned and once
    for what is compared with it. The rest is what a coin's own arithmetic loses. (docs/guarantee.md#what-is-rounded)

    >>> rounding_error(1024, 55) < 1e-9
    True
    """
    return 2.0 * 0.17 * math.sqrt(steps * size) * 4.0**-FINENESS + LOST


def _visited_once(schedule: Schedule, steps: int) -> bool:
    """Say whether every place has a step of its own, and only one."""
    return not schedule.touches_everyone and schedule.place(steps - 1) == steps - 1


def _visits(schedule: Schedule, steps: int) -> Ints:
    """Return, place by place, the steps that visit it."""
    if schedule.touches_everyone:
        return np.arange(steps)[None, :]
    places = len({schedule.place(step) for step in range(steps)})
    return np.arange(steps).reshape(-1, places).T


def _erf_of(distances: Array) -> Array:
    from scipy import special

    return special.erf(distances / math.sqrt(8.0))


def _row_by_row(mechanism: Mechanism, touched: Ints, steps: int, per_visit: float, rate: float, several: int) -> float:
    """Return the probability that a row rejects, where each row sees the touched steps that it covers added up."""

    def rejects(row: int, count: int) -> float:
        per_step = per_visit / mechanism.scale_of(row)
        return _over_rounds(rate, count, lambda joined: replay_probability(per_step * joined))

    each = [rejects(row, count) for row, count in _rows_that_see(mechanism, touched, steps).items()]
    if several == 1:  # exact without sampling; with it a bound, since to join more rounds lets no row keep more often
        return 1.0 - math.prod([1.0 - p for p in each])
    return min(1.0, several * sum(each))  # ρ(cA) ≤ cρ(A): a bound for any mixture


def _rows_that_see(mechanism: Mechanism, touched: Ints, steps: int) -> dict[int, int]:
    """Return the rows that see any of the touched steps, and how many of them each sees."""
    seen: dict[int, int] = {}
    for step in touched.tolist():
        rows = mechanism.column(step, steps).rows
        for row in range(steps)[rows] if isinstance(rows, slice) else rows.tolist():
            seen[row] = seen.get(row, 0) + 1
    return seen


def _over_rounds(rate: float, rounds: int, of: Callable[[float], float]) -> float:
    if rate == 1.0:
        return float(of(rounds))
    from scipy import stats

    weights = stats.binom.pmf(np.arange(rounds + 1), rounds, rate)
    return math.fsum(weight * of(joined) for joined, weight in enumerate(weights.tolist()))


# --- stability and complexity, as the paper means them ----------------------------------------------------


class _Learner(Protocol):
    """What a learner says of itself."""

    @property
    def schedule(self) -> Schedule: ...
    @property
    def mechanism(self) -> Mechanism: ...
    @property
    def sigma(self) -> float: ...
    @property
    def coupling(self) -> str: ...
    @property
    def query(self) -> Query: ...


class _Plan(Protocol):
    """What a plan says of its learner."""

    @property
    def learner(self) -> _Learner: ...
    @property
    def horizon(self) -> int: ...
    @property
    def records_per_subject(self) -> int: ...


def stability(of: _Learner | _Plan, records: int | None = None) -> float:
    """Return the paper's ρ of a learner or a plan: the total variation between the transcripts with and without one.

    It is given the schedule, and of everything that is kept; that of the model alone is at most as large. ``records``
    is needed where the number of steps follows it; a plan knows up to how many it holds.

    >>> from expunge import BinaryTree, DualAveragingRule, Gradient, Learner, Logistic, Shuffled
    >>> learner = Learner(Shuffled(1), Gradient(Logistic(), 2), DualAveragingRule(np.zeros(2), 0.1), BinaryTree(), 25.0)
    >>> round(stability(learner, records=1024), 3)
    0.106
    """
    several = 1
    if hasattr(of, "learner"):
        plan = cast(_Plan, of)
        learner, records, several = plan.learner, records or plan.horizon, plan.records_per_subject
    else:
        learner = of
    schedule, mechanism, sigma = learner.schedule, learner.mechanism, learner.sigma
    steps = _steps(schedule, records)
    if steps == 0:
        return 0.0
    if sigma == 0.0:
        return 1.0
    per_visit = sensitivity(schedule, learner.query.bound, several) / sigma
    if _visited_once(schedule, steps):
        return replay_probability(mechanism.largest_norm(steps) * per_visit)
    visits = _visits(schedule, steps)
    if not mechanism.prefix:
        joined = visits.shape[1]
        return _over_rounds(schedule.rate, joined, lambda number: replay_probability(per_visit * number**0.5))
    return replay_probability(max(_norm_of_all(mechanism, place, steps) for place in visits) * per_visit)


def _norm_of_all(mechanism: Mechanism, touched: Ints, steps: int) -> float:
    """Return |Σ column / scales| over several steps: how far they move the noise together if all point one way."""
    moved = np.zeros(steps)
    for step in touched.tolist():
        column = mechanism.column(step, steps)
        moved[column.rows] += column.weights
    return float(np.linalg.norm(moved / mechanism.scales(steps)))


def relative_complexity(learner: _Learner, records: int, *, norm: float | None = None) -> float:
    """Return the relative unlearning complexity to expect: evaluations of a deletion over those of learning.

    It is the mean over records deleted at random, in a learner of so many, whose contributions have length ``norm``:
    by default the bound, which gives an upper bound. (Ullah & Arora, 2023, "Relative Unlearning Complexity")

    >>> from expunge import BinaryTree, DualAveragingRule, Gradient, Learner, Logistic, Shuffled
    >>> learner = Learner(Shuffled(1), Gradient(Logistic(), 2), DualAveragingRule(np.zeros(2), 0.1), BinaryTree(), 25.0)
    >>> round(relative_complexity(learner, 1024), 3)
    0.042
    """
    schedule, rate = learner.schedule, learner.schedule.rate
    steps = _steps(schedule, records)
    if steps == 0:
        return 0.0
    distance = (learner.query.bound if norm is None else norm) * (2.0 if schedule.ordered else 1.0)
    per_visit = math.inf if learner.sigma == 0.0 else distance / learner.sigma
    visits = _visits(schedule, steps)
    replayed = float(np.mean([_replayed_share(learner, place, steps, per_visit) for place in visits]))
    kept = visits.shape[1] * rate  # what is summed again to decide
    if not schedule.touches_everyone:
        kept *= records / len(visits) * (2.0 if schedule.ordered else 1.0)
    return min(1.0, replayed + kept / (records * rate * visits.shape[1]))


def _replayed_share(learner: _Learner, touched: Ints, steps: int, per_visit: float) -> float:
    """Return the share of all steps that deleting a record of these steps takes again, on average."""
    mechanism, rate = learner.mechanism, learner.schedule.rate
    if not mechanism.prefix and learner.coupling == "adaptive":
        chance = _over_rounds(rate, len(touched), lambda joined: replay_probability(per_visit * joined**0.5))
        return chance * (steps - int(touched[0]) - 1) / steps
    if mechanism.prefix and learner.coupling == "sequential":
        rows = _rows_that_see(mechanism, touched, steps)
        coins = {row: replay_probability(per_visit * seen / mechanism.scale_of(row)) for row, seen in rows.items()}
    elif mechanism.prefix:
        coins = {row: replay_probability(per_visit * mechanism.column(row, steps).norm) for row in touched.tolist()}
    else:
        coins = dict.fromkeys(touched.tolist(), replay_probability(per_visit))
    share, kept = 0.0, 1.0
    for row in sorted(coins):
        share += kept * rate * coins[row] * (steps - row - 1) / steps
        kept *= 1.0 - rate * coins[row]
    return share


def _steps(schedule: Schedule, records: int | None) -> int:
    if records is None and schedule.ordered:
        raise BadPlan("records: say how many there are; the number of steps follows it.")
    return schedule.steps(records or 1)


# --- what actually happens ----------------------------------------------------------------------------


class Expected(NamedTuple):
    """What deletions cost on average."""

    replay_probability: float
    replayed_fraction: float
    """The expected share of all steps that is taken again."""


def expected_replays(
    norms: Sequence[float] | Array,
    steps_of: Sequence[int] | Array,
    mechanism: Mechanism,
    steps: int,
    sigma: float,
) -> Expected:
    """Average over deletions whose contributions have these norms, at these steps (joint coupling, one step each)."""
    if sigma == 0.0:
        probability = (np.asarray(norms, dtype=float) > 0).astype(float)
    else:
        probability = _erf_of(np.asarray(norms, dtype=float) * mechanism.column_norms(steps)[steps_of] / sigma)
    fraction = probability * (steps - np.asarray(steps_of)) / steps
    return Expected(float(probability.mean()), float(fraction.mean()))


# --- the paper's bounds, for comparison ------------------------------------------------------------------


def paper_sigma(rho: float, records: int, bound: float) -> float:
    """Return the paper's σ = 8 B ln(n) / ρ, as its proofs have it (its theorem prints 1/ρ under the square).

    >>> round(paper_sigma(0.1, 2**17, 2.0))
    1885
    """
    return 8.0 * bound * math.log(records) / rho


def total_variation_from_renyi(divergence: float) -> float:
    """Return √(1 - exp(-KL)), the Bretagnolle–Huber bound that the paper uses."""
    return math.sqrt(-math.expm1(-divergence))


def lemma_sigma(rho: float, column_norm: float, distance: float) -> float:
    """Return the σ that the paper's own lemma gives when applied tightly: KL = (κΔ)²/2σ² = -ln(1 - ρ²).

    >>> round(lemma_sigma(0.1, 18**0.5, 2.0))
    60
    """
    return column_norm * distance / math.sqrt(-2.0 * math.log1p(-rho * rho))


def anytime_shares(heights: int) -> Array:
    """Return each height's share of the squared budget, ∝ 1/(h+1)²: no height is drowned in noise."""
    shares = 1.0 / np.arange(1, heights + 1) ** 2
    return np.asarray(shares / (math.pi**2 / 6.0))


def paper_anytime_shares(heights: int, rho: float) -> Array:
    """Return the paper's shares ρ/2^(h+1), under which the noise at the top grows like n."""
    return np.asarray(rho / 2.0 ** np.arange(1, heights + 1))
