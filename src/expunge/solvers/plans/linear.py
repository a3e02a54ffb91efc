"""The plan: every hyper-parameter of a linear model, frozen before the records take part.

Defaults come from the number of records (rounded up to a power of two), the number of features, ρ and declared
bounds only. Nothing else about the records is read: what is, could not be forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from expunge.base.types import Array
from expunge.engine.accounting import least_rho, noise_for, worst_case_rho
from expunge.engine.learner import Learner
from expunge.solvers.dual_averaging import DualAveragingRule
from expunge.solvers.frank_wolfe import FrankWolfeRule
from expunge.solvers.gradient_descent import GradientDescentRule
from expunge.solvers.losses import Loss
from expunge.solvers.objects import BY_NAME
from expunge.solvers.plans.building import make_domain, make_grid_gradient, make_mechanism, make_query, make_schedule
from expunge.solvers.plans.compatible import (
    Coupling,
    Noise,
    Region,
    Selected,
    Solver,
    When,
    check_each,
    check_loss,
    check_together,
)
from expunge.solvers.plans.defaults import (
    MOMENTUM,
    Choices,
    dual_step_size,
    of_solver,
    planned_horizon,
    planned_norm,
    planned_radius,
    planned_rho,
    planned_step_size,
    planned_steps,
    projection,
    steady_steps,
)
from expunge.solvers.plans.lines import (
    COUPLINGS,
    MECHANISMS,
    SCHEDULES,
    SELECTORS,
    SOLVERS,
    loss_in_words,
    noise_lines,
)
from expunge.solvers.plans.protocol import Drawing, Line, Size, SmallProblem
from expunge.solvers.plans.sized import Sized, rounded_up, size_class_of
from expunge.solvers.plans.small import small_steps
from expunge.solvers.projection import stretch

INTERCEPT = 0.2
"""The intercept's constant, in units of feature_norm: it adds 2 % to the bound."""


@dataclass(frozen=True)
class Plan(Sized):
    """Everything that is fixed before the records are seen.

    ``records`` is the number that was planned for, a power of two; ``features`` the number of columns that take part
    (after the random projection, if ``projected``); ``steps`` and ``batch`` how many steps an epoch has, and how many
    records a step is expected to have (gradient descent: rounds, and ``rate`` of all records); ``feature_norm`` the
    largest norm of a row as it takes part (after the random projection, if ``projected``); ``bound`` the largest
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

    @property
    def numbers(self) -> int:
        """How many numbers a sum has."""
        return self.parameters

    @cached_property
    def learner(self) -> Learner:
        """What the engine runs."""
        size, domain = self.parameters, make_domain(self.domain, self.radius)
        penalty = None
        if self.alpha:
            penalty = np.full(size, self.alpha * self.batch)
            penalty[self.features * self.loss.outputs :] = 0.0  # the intercept's
        rule: FrankWolfeRule | DualAveragingRule | GradientDescentRule
        if self.solver == "frank_wolfe":
            rule = FrankWolfeRule(np.zeros(size), domain, penalty)
        elif self.solver == "gradient_descent":
            rule = GradientDescentRule(np.zeros(size), self.step_size, domain, penalty, MOMENTUM)
        else:
            anytime = self.steps * self.epochs if self.anytime else None
            rule = DualAveragingRule(np.zeros(size), self.step_size, domain, penalty, anytime)
        return Learner(
            make_schedule(self.schedule, self.steps, self.batch, self.epochs, self.rate),
            make_query(
                self.solver, self.loss, size, self.feature_norm, self.intercept, self.clip, domain, self.records
            ),
            rule, make_mechanism(self.mechanism), self.sigma, self.coupling, self.selector,
        )  # fmt: skip

    @property
    def outputs(self) -> int:
        """How many parameters a feature has."""
        return self.loss.outputs

    @property
    def everyone(self) -> bool:
        """Whether every record takes part in every round."""
        return self.schedule == "everyone"

    @property
    def ordered(self) -> bool:
        """Whether records are in an order that is cut into steps, so that their number determines that of steps."""
        return self.schedule in ("shuffled", "arrival")

    @property
    def exact_to(self) -> int | None:
        """How many records can be summed exactly; None where sums are not made exactly."""
        if self.solver != "gradient_descent":
            return None
        return make_grid_gradient(
            self.loss, self.parameters, self.feature_norm, self.intercept, self.clip, self.records
        ).exact_to

    def size_for(self, records: int) -> Size:
        """Return the size of a problem as planned; the epochs of one place count as one step."""
        return Size(records, -(-records // self.batch) if self.ordered else self.steps)

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to replay."""
        return worst_case_rho(
            self.sigma, make_schedule(self.schedule, self.steps, self.batch, self.epochs, self.rate),
            make_mechanism(self.mechanism), bound=self.bound, coupling=self.coupling, records=self.horizon,
            records_per_subject=self.records_per_subject, size=self.parameters,
        )  # fmt: skip

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of sums, answers and iterates; answers are sums where there is no noise and no prefix."""
        tables = 1 if self.everyone and self.sigma == 0.0 else 2
        return 8 * self.size_for(records).steps * self.epochs * self.parameters * (tables + 1)

    def row_bytes(self, features: int, bits: int) -> int:
        """Return the size of a record: its features, projected if they are, its target, and a number as id."""
        if self.projected:
            features, bits = self.features, 64
        return features * bits // 8 + 16

    def small_parameters(self, size: Size, columns: int, epochs: int, rho: float) -> dict[str, Any]:
        """Return the parameters in which the model of a small problem differs."""
        own = {
            "records_per_subject": 1, "horizon": None, "epochs": epochs, "steps": None if self.ordered else size.steps,
            "batch": size.batch if self.ordered else None,
            "n_components": min(self.features, columns) if self.projected else None,
        }  # fmt: skip
        understood = BY_NAME[self.solver].parameters()
        inner = {f"solver__{name}": value for name, value in own.items() if name in understood}
        return {"rho": rho, "expected_records": size.records, "random_state": None, **inner}

    def bounded(self, rows: Array) -> Array:
        """Return rows in units of the norm that rows have before they are projected."""
        longer = stretch(self.features, self.records, self.rho) if self.projected else 1.0
        return rows * (self.feature_norm / longer)

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up records, and a learner with the plan's own settings for them."""
        return small_steps(self, rng)

    def lines(self) -> list[Line]:
        """Return the plan line by line."""
        name, planned = ("rounds", "as planned") if self.everyone else ("steps", "in one pass, as planned")
        rate = Line("rate", f"{self.rate:g}", "the probability that a record joins a round")
        epochs = Line("epochs", f"{self.epochs:,}", "how often each record is used")
        once = ", once projected," if self.projected else ""
        return [
            *noise_lines(self),
            Line("loss", loss_in_words(self.loss), "what training minimises"),
            Line("solver", self.solver, SOLVERS[self.solver]),
            Line("schedule", self.schedule, SCHEDULES[self.schedule]),
            Line("mechanism", self.mechanism, MECHANISMS[self.mechanism]),
            Line("coupling", self.coupling, COUPLINGS[self.coupling]),
            Line("selector", self.selector, SELECTORS[self.selector]),
            Line(name, f"{self.steps:,}", planned),
            Line("records in a step", f"{self.batch:,}", "about so many"),
            rate if self.everyone else epochs,
            Line("feature_norm", f"{self.feature_norm:g}", f"longer rows{once} are scaled down to this"),
            Line("clip", "none" if self.clip is None else f"{self.clip:g}", "longer slopes are scaled down to this"),
            Line("bound", f"{self.bound:.4g}", "the largest norm of one record's contribution"),
            Line("domain", self.domain, "the region of the parameters"),
            Line("alpha", f"{self.alpha:g}", "weight of the penalty"),
            Line(
                "projection",
                f"to {self.features:,} columns" if self.projected else "none",
                "by a matrix of random signs",
            ),
        ]

    def drawing(self) -> Drawing:
        """Return what a drawing of the plan needs to know."""
        return Drawing(
            "rounds" if self.everyone else "steps", self.schedule, self.mechanism, self.steps, self.epochs, self.batch,
            self.rate, self.sigma > 0.0,
        )  # fmt: skip

    def coefficients(self, model: Array) -> tuple[Array, Array]:
        """Return (weights, one row for each output; intercepts) of a model's parameters."""
        table = model.reshape(-1, self.loss.outputs)
        if self.intercept == 0.0:
            return table.T, np.zeros(self.loss.outputs)
        return table[:-1].T, np.asarray(self.intercept * table[-1])


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
    step_size: float | Literal["theorem", "paper", "anytime"] | None = None,
    selector: Selected = "tail",
    records_per_subject: int = 1,
    horizon: int | None = None,
    rate: float = 1.0,
    projected_norm: float | None = None,
) -> Plan:
    """Fill in every default and check that the choices go together.

    ``radius`` is about how far from 0 the best parameters may lie: steps are made for it, and it bounds the domain
    if there is one. By default it lets scores become about as large as ``scores``. ``horizon`` says up to how many
    records ρ must hold where their number decides that of the steps; by default up to the end of the size class, or,
    with anytime noise, for any number. ``rate`` is the share of the records that join a round of gradient descent,
    whose ``steps`` are its rounds. ``projected_norm`` is the norm to which projected rows have been shortened, if
    there are any; by default it follows from ``feature_norm``.

    >>> from expunge.solvers.losses import Logistic
    >>> plan = make_plan(Logistic(), features=54, records=500_000, rho=0.03)
    >>> plan.records, plan.steps, plan.batch, round(plan.sigma, 1)
    (524288, 1024, 512, 24.5)
    """
    given = dict(locals())
    check_loss(loss)
    check_each(given)
    check_together(given)
    return _filled_in(Choices(**given))


def _filled_in(chosen: Choices) -> Plan:
    """Return the plan: what was chosen, and defaults for all else."""
    n, automatic, chosen = rounded_up(chosen.records), chosen.rho == "auto", of_solver(chosen)
    features, projected = projection(chosen, n)
    size = chosen.loss.outputs * (features + chosen.fit_intercept)
    rho = planned_rho(chosen, n, size)
    steps, batch, epochs = planned_steps(chosen, n, size, rho)
    radius, horizon = planned_radius(chosen), planned_horizon(chosen, n)
    query = make_query(
        chosen.solver, chosen.loss, size, planned_norm(chosen, features, projected, n, rho),
        INTERCEPT * chosen.feature_norm if chosen.fit_intercept else 0.0, chosen.clip,
        make_domain(chosen.domain, radius), n,
    )  # fmt: skip
    if rho == 1.0 and chosen.steps_are_free:
        steps = steady_steps(steps, n, query, dual_step_size(n, epochs, query, radius))
        batch = max(1, math.ceil(n / steps))
    schedule = make_schedule(chosen.schedule, steps, batch, epochs, chosen.rate)
    mechanism = make_mechanism(chosen.mechanism)
    if automatic:
        rho = max(rho, least_rho(schedule, mechanism, size=size, coupling=chosen.coupling, records=horizon))
    sigma = noise_for(
        rho, schedule, mechanism, bound=query.bound, coupling=chosen.coupling, records=horizon,
        records_per_subject=chosen.records_per_subject, size=size,
    )  # fmt: skip
    spread = sigma * mechanism.widest(schedule.steps(n))
    step_size = planned_step_size(chosen, n, query, steps, batch, epochs, rho, sigma, spread, radius)
    return Plan(
        chosen.loss, features, projected, n, rho, sigma, query.bound, chosen.solver, chosen.schedule, chosen.mechanism,
        chosen.coupling, chosen.selector, steps, batch, epochs, step_size, radius, chosen.domain,
        query.feature_norm, query.intercept, None if chosen.clip is None else float(chosen.clip),
        float(chosen.alpha), chosen.records_per_subject, horizon, chosen.anytime, float(chosen.rate),
    )  # fmt: skip
