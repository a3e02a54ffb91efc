"""The plan: every hyper-parameter of a linear model, frozen before the records take part.

Defaults come from the number of records (rounded up to a power of two), the number of features, ρ and declared
bounds only. Nothing else about the records is read: what is, could not be forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from expunge.accounting import FOREVER, least_rho, noise_for
from expunge.domains import Ball, Domain, Everywhere, L1Ball
from expunge.errors import BadPlan
from expunge.learner import Learner
from expunge.losses import Loss
from expunge.mechanisms import BinaryTree, Identity, Mechanism, SquareRoot
from expunge.preprocessing import NORMS
from expunge.queries import Gradient, GridGradient, HybridGradient
from expunge.rules import DualAveraging, FrankWolfe, GradientDescent
from expunge.schedules import Arrival, Everyone, Scattered, Schedule, Shuffled
from expunge.types import Array

Solver = Literal["dual_averaging", "frank_wolfe", "gradient_descent"]
Region = Literal["everywhere", "l2", "l1"]
When = Literal["scattered", "shuffled", "arrival", "everyone"]
Noise = Literal["sqrt", "tree", "anytime", "halving", "identity"]
Coupling = Literal["joint", "sequential", "adaptive"]
Selected = Literal["tail", "average", "last"]

INTERCEPT = 0.2
"""The intercept's constant, in units of feature_norm: it adds 2 % to the bound."""
WORTH = 2**14
"""How many replayed records' worth of noise, n·ρ, leaves the accuracy as it is (for few parameters)."""
FEW_PARAMETERS = 2**13
MOST_NUMBERS = 2**20
"""A table of the transcript is kept below this size, if that leaves `LEAST_STEPS`."""
LEAST_STEPS = 64
MOST_EPOCHS = 8
ROUNDS = 100
"""How many rounds gradient descent has, if the user does not say."""
MOMENTUM = 0.9
"""Which part of its last move gradient descent makes again: with it, a tenth of the rounds goes as far."""
STEADY = 8.0
"""Step size × smoothness × records of a step: above this the steps of a smooth loss swing."""
SIZE_CLASS = 4
"""A plan is for numbers of records up to this factor above and below the one that was planned for."""


def size_class_of(records: int) -> tuple[int, int]:
    """Return from how few to how many records a plan for this number is good for.

    >>> size_class_of(1024)
    (256, 4096)
    """
    return -(-records // SIZE_CLASS), records * SIZE_CLASS


class Sized:
    """A plan that is good for some numbers of records."""

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many records the plan is good for."""
        raise NotImplementedError

    @property
    def largest(self) -> int:
        """Up to how many records all of it holds."""
        raise NotImplementedError

    @property
    def learner(self) -> Learner:
        """What the engine runs."""
        raise NotImplementedError

    @property
    def rounding_error(self) -> float:
        """By how much, at most, arithmetic changes the law of what is stored, in total variation, at a request."""
        return self.learner.rounding_error(self.largest)

    def covers(self, records: int) -> bool:
        """Say whether the plan is good for a number of records."""
        return self.size_class[0] <= records <= self.largest


@dataclass(frozen=True)
class Plan(Sized):
    """Everything that is fixed before the records are seen.

    ``records`` is the number that was planned for, a power of two; ``features`` the number of columns that take part
    (after the random projection, if ``projected``); ``steps`` and ``batch`` how many steps an epoch has, and how many
    records a step is expected to have (gradient descent: rounds, and ``rate`` of all records); ``bound`` the largest
    norm of a contribution; ``sigma`` the standard deviation of the noise; ``horizon`` up to how many records ρ holds
    with it. With ``anytime``, ``step_size`` falls with the number of steps: after those planned, epochs included, by
    √2, and on like its square root.
    """

    loss: Loss
    features: int
    projected: bool
    records: int
    rho: float
    sigma: float
    bound: float
    solver: Solver
    schedule: When
    mechanism: Noise
    coupling: Coupling
    selector: Selected
    steps: int
    batch: int
    epochs: int
    step_size: float
    radius: float
    domain: Region
    feature_norm: float
    intercept: float
    clip: float | None
    alpha: float
    records_per_subject: int
    horizon: int
    anytime: bool
    rate: float

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many records the plan is good for: a quarter of those planned for, and four times."""
        return size_class_of(self.records)

    @property
    def largest(self) -> int:
        """Up to how many records all of it holds: step sizes, noise and ρ."""
        return min(self.size_class[1], self.horizon)

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""
        return self.steps * self.rate if self.solver == "gradient_descent" else self.epochs

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        return self.loss.outputs * (self.features + (self.intercept != 0.0))

    @cached_property
    def learner(self) -> Learner:
        """What the engine runs."""
        size, domain = self.parameters, _domain(self.domain, self.radius)
        penalty = None
        if self.alpha:
            penalty = np.full(size, self.alpha * self.batch)
            penalty[self.features * self.loss.outputs :] = 0.0  # the intercept's
        rule: FrankWolfe | DualAveraging | GradientDescent
        if self.solver == "frank_wolfe":
            rule = FrankWolfe(np.zeros(size), domain, penalty)
        elif self.solver == "gradient_descent":
            rule = GradientDescent(np.zeros(size), self.step_size, domain, penalty, MOMENTUM)
        else:
            anytime = self.steps * self.epochs if self.anytime else None
            rule = DualAveraging(np.zeros(size), self.step_size, domain, penalty, anytime)
        return Learner(
            _schedule(self.schedule, self.steps, self.batch, self.epochs, self.rate),
            _query(self.solver, self.loss, size, self.feature_norm, self.intercept, self.clip, domain, self.records),
            rule, _mechanism(self.mechanism), self.sigma, self.coupling, self.selector,
        )  # fmt: skip

    def coefficients(self, model: Array) -> tuple[Array, Array]:
        """Return (weights, one row for each output; intercepts) of a model's parameters."""
        table = model.reshape(-1, self.loss.outputs)
        if self.intercept == 0.0:
            return table.T, np.zeros(self.loss.outputs)
        return table[:-1].T, np.asarray(self.intercept * table[-1])


def _domain(region: Region, radius: float) -> Domain:
    match region:
        case "l2":
            return Ball(radius)
        case "l1":
            return L1Ball(radius)
        case _:
            return Everywhere()


def _schedule(when: When, steps: int, batch: int, epochs: int, rate: float) -> Schedule:
    match when:
        case "everyone":
            return Everyone(steps, rate)
        case "shuffled":
            return Shuffled(batch)
        case "arrival":
            return Arrival(batch)
        case _:
            return Scattered(steps, epochs)


def _mechanism(noise: Noise) -> Mechanism:
    match noise:
        case "sqrt":
            return SquareRoot()
        case "identity":
            return Identity()
        case "tree":
            return BinaryTree()
        case _:
            return BinaryTree(noise)


def _query(
    solver: Solver, loss: Loss, size: int, feature_norm: float, intercept: float, clip: float | None, domain: Domain,
    records: int,
) -> Gradient:  # fmt: skip
    if solver == "frank_wolfe":
        return HybridGradient(loss, size, feature_norm, intercept, clip, True, domain.diameter(size))
    if solver == "gradient_descent":
        return GridGradient(loss, size, feature_norm, intercept, clip, bits=grid_bits(SIZE_CLASS * records))
    return Gradient(loss, size, feature_norm, intercept, clip, True)


# --- defaults -----------------------------------------------------------------------------------------


def rounded_up(records: int) -> int:
    """Return the next power of two: the plan does not tell one record more or less.

    >>> [rounded_up(n) for n in (0, 1, 3, 1024, 1025)]
    [1, 1, 4, 1024, 2048]
    """
    return 1 << max(0, records - 1).bit_length()


def automatic_rho(records: int, parameters: int, records_per_subject: int = 1) -> float:
    """Return the ρ whose noise hardly costs accuracy: about WORTH/n, more for very many parameters; at most 1.

    Noise is for whole subjects, so that it counts in proportion how many records one may have.

    >>> automatic_rho(10_000, 100), automatic_rho(500_000, 100)
    (1.0, 0.03125)
    """
    worth = WORTH * records_per_subject * max(1.0, parameters / FEW_PARAMETERS)
    return min(1.0, worth / rounded_up(records))


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

    >>> round(paper_step_size(2**16, 0.1, 81, bound=1.0, radius=1.0) / (3 * (2**16 * 0.1 / math.log(2**16)) ** -0.5), 6)
    1.0
    """
    return radius * parameters**0.25 * math.sqrt(math.log(max(2, records))) / (bound * math.sqrt(records * rho))


def descent_step_size(query: Gradient, joining: float, rate: float, rounds: int, sigma: float, radius: float) -> float:
    """Return a step size for gradient descent where ``joining`` records are expected in a round.

    It is as long as a smooth loss allows (for one with kinks, as brings the model no further than ``radius``), unless
    the noise, or the chance who joins, would then add up to too much.

    >>> from expunge.losses import Logistic
    >>> query = Gradient(Logistic(), size=3)
    >>> descent_step_size(query, 1000, rate=1.0, rounds=100, sigma=0.0, radius=20.0)
    0.008
    >>> round(descent_step_size(query, 1000, rate=1.0, rounds=100, sigma=25.0, radius=20.0), 6)
    0.0008
    """
    moved = (1.0 - MOMENTUM) * radius
    curvature = query.loss.smoothness * joining * query.reach**2
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


# --- checks -------------------------------------------------------------------------------------------


def check_one_of(name: str, value: object, allowed: Any) -> None:
    """Raise unless a choice is one of a `Literal`'s words."""
    names = get_args(allowed)
    if value not in names:
        raise BadPlan(f"{name}={value!r}: use one of {', '.join(map(repr, names))}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def check_positive(name: str, value: Any, *, whole: bool = False, zero: bool = False) -> None:
    """Raise unless a choice is a number above 0 (or 0, if that is allowed)."""
    good = _is_number(value) and math.isfinite(value) and (not whole or isinstance(value, (int, np.integer)))
    if not (good and (value >= 0 if zero else value > 0)):
        what = "a whole number" if whole else "a finite number"
        raise BadPlan(f"{name}={value!r}: give {what} {'of at least' if zero else 'above'} 0.")


def check_rho(rho: Any) -> None:
    """Raise unless a choice is a probability, or 'auto'."""
    if not (isinstance(rho, str) and rho == "auto") and not (_is_number(rho) and 0.0 < rho <= 1.0):
        raise BadPlan(f"rho={rho!r}: give a probability above 0 and at most 1 (1 means no noise), or 'auto'.")


def _check_loss(loss: Any) -> None:
    lacking = [n for n in ("outputs", "lipschitz", "smoothness", "value", "derivative") if not hasattr(loss, n)]
    if lacking:
        raise BadPlan(
            f"loss: {type(loss).__name__} has no {', '.join(lacking)}; see docs/estimators.md for a loss of your own."
        )


def _check_each(given: dict[str, Any]) -> None:
    """Raise if a choice makes no sense by itself."""
    for name, allowed in (
        ("solver", Solver), ("schedule", When), ("mechanism", Noise), ("coupling", Coupling), ("selector", Selected),
        ("domain", Region),
    ):  # fmt: skip
        if not (given[name] is None and name in ("coupling", "domain")):
            check_one_of(name, given[name], allowed)
    check_positive("records_per_subject", given["records_per_subject"], whole=True)
    check_positive("feature_norm", given["feature_norm"])
    if not NORMS[0] <= given["feature_norm"] <= NORMS[1]:
        raise BadPlan(f"feature_norm={given['feature_norm']!r}: give a number from {NORMS[0]:g} to {NORMS[1]:g}.")
    if not isinstance(given["fit_intercept"], (bool, np.bool_)):
        raise BadPlan(f"fit_intercept={given['fit_intercept']!r}: give True or False.")
    check_positive("alpha", given["alpha"], zero=True)
    for name, whole in (("steps", True), ("batch", True), ("epochs", True), ("horizon", True), ("radius", False)):
        if given[name] is not None:
            check_positive(name, given[name], whole=whole)
    if given["step_size"] not in (None, "paper", "anytime"):
        check_positive("step_size", given["step_size"])
    rate = given["rate"]
    if not (_is_number(rate) and 0.0 < rate <= 1.0):
        raise BadPlan(f"rate={rate!r}: give a probability above 0 and at most 1.")
    if given["clip"] is not None:
        check_positive("clip", given["clip"])
    check_rho(given["rho"])


def _check_together(given: dict[str, Any]) -> None:
    """Raise if two choices do not go together."""
    steps, batch, epochs = given["steps"], given["batch"], given["epochs"]
    if steps is not None and batch is not None:
        raise BadPlan(f"steps={steps} and batch={batch}: give one of them; the other follows.")
    if epochs is not None and epochs > 1 and given["schedule"] != "scattered":
        raise BadPlan(f"epochs={epochs} needs schedule='scattered': there a record has one place in all epochs.")
    if given["horizon"] is not None and given["schedule"] in ("scattered", "everyone"):
        raise BadPlan(
            f"horizon={given['horizon']} with schedule={given['schedule']!r}: there the number of steps is fixed, "
            "and ρ holds for any number of records. Leave horizon out."
        )
    if given["coupling"] == "sequential" and given["mechanism"] == "sqrt" and given["solver"] != "gradient_descent":
        raise BadPlan("coupling='sequential' needs mechanism='tree': with 'sqrt' nearly every deletion would replay.")
    if given["solver"] == "frank_wolfe" and given["domain"] == "everywhere":
        raise BadPlan("solver='frank_wolfe' needs a bounded domain: use domain='l2' or 'l1'.")
    _check_descent(given)
    if given["n_components"] is not None and given["schedule"] == "arrival":
        raise BadPlan(
            "n_components with schedule='arrival': the number of projections follows the number of records, which a "
            "stream changes. Use schedule='scattered', or leave n_components out."
        )


def _check_descent(given: dict[str, Any]) -> None:
    """Raise if choices do not go together with gradient descent, or need it."""
    descent = given["solver"] == "gradient_descent"
    for name, needs in (("schedule", "everyone"), ("mechanism", "identity"), ("coupling", "adaptive")):
        if given[name] == needs and not descent:
            raise BadPlan(f"{name}={needs!r} needs solver='gradient_descent'.")
    if not descent:
        if given["rate"] != 1.0:
            raise BadPlan(f"rate={given['rate']!r} needs solver='gradient_descent': only its rounds visit everyone.")
        return
    for name, goes in (("schedule", ("scattered", "everyone")), ("mechanism", ("sqrt", "identity"))):
        if given[name] not in goes:
            raise BadPlan(
                f"{name}={given[name]!r} with solver='gradient_descent', which has its own, {goes[1]!r}: leave it out."
            )
    if given["coupling"] == "joint":
        raise BadPlan("coupling='joint' with solver='gradient_descent': use 'adaptive' or 'sequential'.")
    if given["batch"] is not None:
        raise BadPlan("batch with solver='gradient_descent': say by rate how many of the records join a round.")
    if given["epochs"] not in (None, 1):
        raise BadPlan("epochs with solver='gradient_descent': say by steps how many rounds there are.")
    if given["step_size"] in ("paper", "anytime"):
        raise BadPlan(f"step_size={given['step_size']!r} is dual averaging's: give a number, or leave it out.")


def _components(wanted: Any, records: int, rho: float, features: int) -> int | None:
    """Return the number of random projections; None if there are to be none."""
    if wanted is None:
        return None
    if wanted == "auto":
        fitting = automatic_components(records, rho, features)
        return fitting if fitting < features else None  # as many as features would only lose something
    if not isinstance(wanted, (int, np.integer)) or isinstance(wanted, bool) or not 1 <= wanted <= features:
        raise BadPlan(f"n_components={wanted!r}: give None, 'auto', or a whole number from 1 to {features}.")
    return int(wanted)


def make_plan(
    loss: Loss,
    features: int,
    records: int,
    *,
    scores: float = 40.0,
    radius: float | None = None,
    n_components: int | Literal["auto"] | None = None,
    rho: float | Literal["auto"] = "auto",
    solver: Solver = "dual_averaging",
    schedule: When = "scattered",
    mechanism: Noise = "sqrt",
    coupling: Coupling | None = None,
    steps: int | None = None,
    batch: int | None = None,
    epochs: int | None = None,
    clip: float | None = None,
    alpha: float = 0.0,
    domain: Region | None = None,
    feature_norm: float = 1.0,
    fit_intercept: bool = True,
    step_size: float | Literal["paper", "anytime"] | None = None,
    selector: Selected = "tail",
    records_per_subject: int = 1,
    horizon: int | None = None,
    rate: float = 1.0,
) -> Plan:
    """Fill in every default and check that the choices go together.

    ``radius`` is about how far from 0 the best parameters may lie: steps are made for it, and it bounds the domain
    if there is one. By default it lets scores become about as large as ``scores``. ``horizon`` says up to how many
    records ρ must hold where their number decides that of the steps; by default up to the end of the size class, or,
    with anytime noise, for any number. ``rate`` is the share of the records that join a round of gradient descent,
    whose ``steps`` are its rounds.

    >>> from expunge.losses import Logistic
    >>> plan = make_plan(Logistic(), features=54, records=500_000, rho=0.03)
    >>> plan.records, plan.steps, plan.batch, round(plan.sigma, 1)
    (524288, 1024, 512, 24.5)
    """
    given = dict(locals())
    _check_loss(loss)
    _check_each(given)
    _check_together(given)
    n = rounded_up(records)
    planned = automatic_rho(n, loss.outputs * features, records_per_subject) if rho == "auto" else rho
    components = _components(n_components, n, planned, features)
    projected, features = components is not None, components or features
    intercept = INTERCEPT * feature_norm if fit_intercept else 0.0
    size = loss.outputs * (features + fit_intercept)
    if rho == "auto":
        rho = automatic_rho(n, size, records_per_subject)
    wanted = float(rho)
    descent = solver == "gradient_descent"
    if descent:
        schedule, mechanism, coupling, epochs = "everyone", "identity", coupling or "adaptive", 1
        steps, batch = steps or ROUNDS, max(1, math.ceil(n * rate))
    if epochs is None:
        free = steps is None and batch is None and schedule == "scattered" and rho == 1.0
        epochs = automatic_epochs(n, size) if free else 1
    if batch is None:
        steps = steps or automatic_steps(n, size)
        batch = max(1, math.ceil(n / steps))
    elif not descent:
        steps = max(1, math.ceil(n / batch))
    assert steps is not None
    radius = scores / feature_norm if radius is None else float(radius)
    domain = domain or ("l2" if solver == "frank_wolfe" else "everywhere")

    if horizon is None:
        fixed = schedule in ("scattered", "everyone")
        horizon = FOREVER if fixed or mechanism in ("anytime", "halving") else SIZE_CLASS * n
    elif horizon < n:
        raise BadPlan(f"horizon={horizon}: give at least the number of records that is planned for, {n}.")
    drawn = _schedule(schedule, steps, batch, epochs, rate)
    noise = _mechanism(mechanism)
    query = _query(solver, loss, size, feature_norm, intercept, clip, _domain(domain, radius), n)
    if given["rho"] == "auto":
        wanted = max(wanted, least_rho(drawn, noise, size=size, coupling=coupling or "joint", records=horizon))
    sigma = noise_for(
        wanted, drawn, noise, bound=query.bound, coupling=coupling or "joint", records=horizon,
        records_per_subject=records_per_subject, size=size,
    )  # fmt: skip
    anytime = step_size == "anytime" or (step_size is None and schedule == "arrival")
    if descent and step_size is None:
        step_size = descent_step_size(query, n * rate, rate, steps, sigma, radius)
    elif anytime or step_size is None:
        step_size = radius / (query.bound * math.sqrt(n * epochs))
        if schedule == "arrival" and math.isfinite(loss.smoothness):
            step_size = min(step_size, STEADY / (loss.smoothness * batch * query.reach**2))
    elif step_size == "paper":
        step_size = paper_step_size(n, wanted, size, query.bound, radius)
    return Plan(
        loss, features, projected, n, wanted, sigma, query.bound, solver, schedule, mechanism,
        coupling or "joint", selector, steps, batch, epochs, float(step_size), radius, domain, float(feature_norm),
        query.intercept, None if clip is None else float(clip), float(alpha), records_per_subject, horizon, anytime,
        float(rate),
    )  # fmt: skip
