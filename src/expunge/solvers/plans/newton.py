"""The plan of Newton's method with noise after the solve: everything that is fixed before the records take part.

How many rounds there are, how much noise each has, where it starts and which part of the records rounds see is a public
rule of the number of records (as a power of two), of columns, and of ρ. (docs/newton.md)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from expunge.base.checking import check_positive, check_rho
from expunge.base.errors import BadPlan
from expunge.base.types import Array
from expunge.engine.accounting import rho_for, rounding_error, sigma_for
from expunge.engine.learner import Learner
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.schedules import PartThenEveryone
from expunge.solvers.exact_products import EXACT_TO
from expunge.solvers.losses import CurvedLoss, Squared
from expunge.solvers.newton import FIRST, Expansion, Newton
from expunge.solvers.plans.lines import loss_in_words
from expunge.solvers.plans.protocol import Drawing, Line, Size, SmallProblem
from expunge.solvers.plans.sized import Sized, rounded_up, size_class_of
from expunge.solvers.plans.small import RECORDS, WIDE
from expunge.solvers.robust_losses import ScaledHuber
from expunge.solvers.scaled_newton import ScaledExpansion, ScaledNewton

AnySolver = Literal["newton", "dual_averaging", "frank_wolfe", "gradient_descent"]
FEWEST_COLUMNS = 50
"""Noise is made as if there were at least so many columns: for fewer it costs nothing."""
HARMLESS = 14.14
"""The distance A of two draws, times records over columns, at which noise adds 0.01 to the variance of scores."""
IN_ROUNDS = 200
"""How many records a column rounds see, if there are as many."""
ROUNDS = ((4.5, 3), (0.45, 2))
"""From which A·n/d on there are three rounds, and two; below that none."""
ROUNDS_WITH_SCALE = ((9.0, 5), (4.5, 3), (2.5, 2), (1.4, 1))
"""The same where a scale is learned as well: outliers need more rounds, and bear less noise."""
GROWTH = 1.5
"""How much more of the budget each round has than the one before: later ones matter more."""
START = 0.1
"""The share of the budget that the start has."""
UNTIL_SETTLED = 30
"""How many rounds there are without noise, at most; they end when nothing changes any more."""
FEW_DIGITS, MANY_DIGITS, DIGITS_OF_COUNTS = 17, 28, 22
"""How many binary digits of a column count, below its size: with noise, and without; fewer where means multiply it."""
DEAR = 0.5
"""Where ρ would be above this, there is no noise."""
LEAST_RHO = 1e-7
"""Below this ρ lattices would count for more than records do."""


def automatic_share(records: int, columns: int) -> float:
    """Return the share of deletions that replay if noise is to cost nothing that can be measured.

    >>> automatic_share(500_000, 55) < 0.001, automatic_share(500, 20)
    (True, 1.0)
    """
    distance = HARMLESS * max(columns, FEWEST_COLUMNS) / expected_records(rounded_up(records))
    share = max(rho_for(1.0, distance), LEAST_RHO)
    return 1.0 if share > DEAR else share


def expected_records(records: int) -> float:
    """Return the middle of those numbers that are rounded up to a power of two."""
    return records / math.sqrt(2.0)


@dataclass(frozen=True)
class NewtonPlan(Sized):
    """Everything that is fixed before the records are seen.

    ``records`` is the number that was planned for, a power of two; ``rho`` the planned share of deletions that replay,
    over records deleted at random; ``rounds`` how many draws there are before the finish, and ``rate`` which part of
    the records these see.
    """

    NOTHING: ClassVar[str] = "zeros"
    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ("rounds",)
    projected: ClassVar[bool] = False
    feature_norm: ClassVar[float] = math.inf
    """Rows are taken as they are."""

    loss: CurvedLoss
    features: int
    records: int
    rho: float
    rounds: int
    rate: float
    C: float
    standardize: bool
    fit_intercept: bool

    @cached_property
    def columns(self) -> int:
        """How many parameters there are."""
        return self.features + self.fit_intercept + self.scaled

    @property
    def scaled(self) -> bool:
        """Whether a scale is learned with the weights."""
        return isinstance(self.loss, ScaledHuber)

    @cached_property
    def expected(self) -> float:
        """The number of records that noise is made for."""
        return expected_records(self.records)

    @property
    def noisy(self) -> bool:
        """Whether draws have noise."""
        return 0.0 < self.rho < 1.0

    @cached_property
    def _query(self) -> Expansion:
        without = DIGITS_OF_COUNTS if hasattr(self.loss, "saturated") else MANY_DIGITS
        digits = FEW_DIGITS if self.noisy else without
        if isinstance(self.loss, ScaledHuber):
            return ScaledExpansion(self.loss, self.features, self.rounds, digits)
        return Expansion(self.loss, self.features, self.rounds, digits)

    @cached_property
    def newton(self) -> Newton:
        """The laws of the rounds."""
        query = self._query
        spreads, start = (0.0,) * self.rounds, 0.0
        if self.noisy and self.rounds:
            width = 1.0 / sigma_for(self.rho)
            begins = START if self.fit_intercept and hasattr(self.loss, "guess") else 0.0
            shares = GROWTH ** np.arange(self.rounds)
            shares *= (1.0 - begins) / shares.sum()
            spreads = tuple((self.rate * self.columns / self.expected / 2.0 / (width * shares) ** 2).tolist())
            start = 2.0 / (self.expected * width * START) if begins else 0.0
        rest = self.expected, self.rate, spreads, start, self.C, self.standardize, self.fit_intercept
        return ScaledNewton(query, *rest) if isinstance(query, ScaledExpansion) else Newton(query, *rest)

    @cached_property
    def learner(self) -> Learner:
        """What the engine runs."""
        schedule = PartThenEveryone(FIRST + self.rounds + 1, self.rate)
        newton = self.newton
        return Learner(schedule, newton.query, newton, Identity(), 0.0, "likelihood", "last", newton)

    def flaw(self) -> str | None:
        """Say what makes it no plan, though each of its numbers could be one's."""
        least = 0.0 if self.rounds else -1.0  # where nothing is drawn, ρ may be 0
        if not (least < self.rho <= 1.0 and 0.0 < self.rate <= 1.0 and self.C > 0.0):
            return "rho, rate or C is out of range"
        return None

    @property
    def numbers(self) -> int:
        """How many numbers a sum has."""
        return self._query.size

    @property
    def rounding_error(self) -> float:
        """By how much, at most, arithmetic changes the law of what is stored, in total variation, at a request."""
        return rounding_error(self.rounds, self.columns) if self.noisy else 0.0

    @property
    def sigma(self) -> float:
        """The noise of the last round, in the metric of the model: it enters the model squared."""
        return math.sqrt(self.newton.spreads[-1]) if self.rounds else 0.0

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many records the plan is good for."""
        return size_class_of(self.records)

    @property
    def largest(self) -> int:
        """Up to how many records all of it holds."""
        return self.size_class[1]

    @property
    def horizon(self) -> int:
        """Up to how many records ρ holds."""
        return self.largest

    @property
    def records_per_subject(self) -> int:
        """How many records a subject may have: as many as it likes."""
        return EXACT_TO

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""
        return 1.0 + self.rate * (FIRST + self.rounds)

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""
        return self.newton.query.bound

    @property
    def epochs(self) -> int:
        """How often a fit goes through the records, apart from rounds."""
        return 1

    @property
    def outputs(self) -> int:
        """How many parameters a feature has."""
        return 1

    @property
    def everyone(self) -> bool:
        """Whether every record takes part in every round: in the finish they do."""
        return True

    @property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        return EXACT_TO

    @property
    def plans_share(self) -> bool:
        """ρ is the planned share of deletions that replay."""
        return True

    @property
    def never_replays(self) -> bool:
        """Without rounds, only exact sums are left."""
        return self.rounds == 0

    @property
    def keeps_products(self) -> bool:
        """Products of columns are summed."""
        return True

    def size_for(self, records: int) -> Size:
        """Return the size of a problem."""
        return Size(records, 1)

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to replay: nothing bounds what an outlier moves."""
        return 1.0 if self.rounds else 0.0

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of sums and draws."""
        return 8 * (FIRST + self.rounds + 1) * (self.numbers + features + 2)

    def row_bytes(self, features: int, bits: int) -> int:
        """Return the size of a record: its features, its target, a key, and a number as id."""
        return features * bits // 8 + 24

    def small_parameters(self, size: Size, columns: int, epochs: int, rho: float) -> dict[str, Any]:
        """Return the parameters in which the model of a small problem differs."""
        return {"rho": rho, "expected_records": size.records, "random_state": None}

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up records, and a learner with the plan's own settings for them."""
        features = min(self.features, WIDE)
        rows = rng.normal(size=(RECORDS, features))
        columns = rows, np.where(rows[:, 0] + rng.normal(size=RECORDS) > 0.0, 1.0, -1.0)
        rounds = min(self.rounds, 2)
        rho = max(self.rho, 0.2) if rounds else self.rho
        rate = max(self.rate, 0.7)
        small = replace(self, features=features, records=RECORDS, rounds=rounds, rho=rho, rate=rate)
        says = f"{RECORDS} made-up records, {features} feature{'s' * (features > 1)}, one record deleted"
        named = ("features", "rounds", "rho", "rate")
        parts = tuple((name, getattr(self, name), getattr(small, name)) for name in named)
        return SmallProblem(small.learner, columns, says, ("loss", "C", "standardize"), parts)

    def lines(self) -> list[Line]:
        """Return the plan line by line."""
        share = "planned share of deletions that replay, over records deleted at random"
        rounding = f"at most {self.rounding_error:.1g} a request" if self.rounding_error else "none"
        return [
            Line("ρ", f"{self.rho:.3g}", share),
            Line("noise σ", f"{self.sigma:.4g}", "of the last draw; the finish has none"),
            Line("rounding", rounding, "by how much arithmetic changes probabilities"),
            Line("loss", loss_in_words(self.loss), "what training minimises"),
            Line("solver", "newton", "draws near the solution, and an exact last step"),
            Line("rounds", f"{self.rounds:,}", "draws before the last step"),
            Line("part", f"{self.rate:.3g}", "the share of the records that rounds see"),
            Line("C", f"{self.C:g}", "weight of the loss beside the penalty"),
            Line("standardize", "yes" if self.standardize else "no", "whether the penalty is that of scaled columns"),
            Line("intercept", "yes" if self.fit_intercept else "no", "whether there is one"),
            Line("good for", f"{self.size_class[0]:,} to {self.largest:,} records", "beyond that, replan()"),
        ]

    def drawing(self) -> Drawing:
        """Return what a drawing of the plan needs to know."""
        return Drawing(
            "rounds", "everyone", "identity", FIRST + self.rounds + 1, 1, self.records, self.rate, self.noisy
        )

    def advice(self) -> tuple[str, ...]:
        """Return what is to be noticed of the plan by itself."""
        if self.rounds or self.rho == 0.0:
            return ()
        enough = automatic_share(self.records, self.columns)
        return (
            f"rho={self.rho:.3g} is far below what {self.records:,} records with {self.columns:,} parameters allow: "
            f"the model is exact least squares on the targets. For its own loss give about {enough:.2g}, or 'auto'.",
        )

    def coefficients(self, model: Array) -> tuple[Array, Array]:
        """Return (weights, one row for each output; intercepts) of a model's parameters."""
        return model[None, : self.features], model[self.features : self.features + 1]

    def scale(self, model: Array) -> float | None:
        """Return the scale that was learned with the weights, if there is one."""
        return float(model[-1]) if self.scaled else None


def make_newton_plan(
    loss: Any,
    features: int,
    records: int,
    *,
    rho: float | Literal["auto"] = "auto",
    C: float = 1.0,
    standardize: bool = True,
    fit_intercept: bool = True,
    rounds: int | None = None,
    rate: float | None = None,
) -> NewtonPlan:
    """Fill in what is not given, by the public rule.

    >>> from expunge.solvers.losses import Logistic
    >>> plan = make_newton_plan(Logistic(), features=54, records=500_000)
    >>> plan.records, plan.rounds, round(plan.rate, 3), round(plan.rho, 4)
    (524288, 3, 0.03, 0.0008)
    """
    if not hasattr(getattr(loss, "loss", loss), "expansion") or loss.outputs != 1:  # of a weighted loss, its own
        raise BadPlan(
            f"solver='newton' needs a loss of one score with a second derivative (expansion), not {loss!r}. "
            "Use solver='dual_averaging'."
        )
    least_squares = isinstance(loss, Squared)
    if not least_squares or math.inf > C:  # least squares may be without a penalty
        check_positive("C", C)
    for name, given in (("standardize", standardize), ("fit_intercept", fit_intercept)):
        if not isinstance(given, (bool, np.bool_)):
            raise BadPlan(f"{name}={given!r}: give True or False.")
    scaled = isinstance(loss, ScaledHuber)
    n, columns = rounded_up(records), features + bool(fit_intercept) + scaled
    share = automatic_share(records, columns) if rho == "auto" else rho
    check_rho(share)
    if least_squares:  # exact sums are all it needs
        if rho != "auto":
            raise BadPlan(f"rho={rho!r}: least squares has no noise and never replays. Leave it out.")
        share, rounds = 0.0, 0
    elif share < LEAST_RHO:
        raise BadPlan(f"rho={rho!r}: give at least {LEAST_RHO:g}; below that rounding would count more than records.")
    support = math.inf if share in (0.0, 1.0) else expected_records(n) / columns / sigma_for(share)
    if rounds is None:
        steps = ROUNDS_WITH_SCALE if scaled else ROUNDS
        rounds = UNTIL_SETTLED if share == 1.0 else next((number for least, number in steps if support >= least), 0)
    if rate is None:
        rate = 1.0 if share == 1.0 else min(1.0, IN_ROUNDS * max(columns, FEWEST_COLUMNS) / expected_records(n))
    return NewtonPlan(
        loss, features, n, float(share), rounds, float(rate), float(C), bool(standardize), bool(fit_intercept)
    )
