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

from expunge.base.checking import check_positive, check_rho, is_number
from expunge.base.errors import BadPlan
from expunge.base.types import AnyArray, Array
from expunge.engine.accounting import rho_for, rounding_error, sigma_for
from expunge.engine.learner import Learner
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.parts import Part, PartThenEveryone
from expunge.solvers.exact_products import EXACT_TO
from expunge.solvers.losses import CurvedLoss, Multinomial, Squared
from expunge.solvers.newton import FIRST, Expansion, Newton
from expunge.solvers.newton_classes import ClassExpansion, ClassNewton, takes
from expunge.solvers.plans.class_weights import advice_on_weights, within_reach
from expunge.solvers.plans.exact import SumsEveryone
from expunge.solvers.plans.lines import loss_in_words
from expunge.solvers.plans.protocol import Drawing, Line, SmallProblem
from expunge.solvers.plans.sized import rounded_up
from expunge.solvers.plans.small import RECORDS, WIDE, fewer_classes
from expunge.solvers.robust_losses import ScaledHuber
from expunge.solvers.scaled_newton import ScaledExpansion, ScaledNewton
from expunge.solvers.stages import FEWEST_COLUMNS, rounds_with_stages

HARMLESS = 14.14
"""The distance A of two draws, times records over columns, at which noise adds 0.01 to the variance of scores."""
IN_ROUNDS = 200
"""How many records a column rounds see, if there are as many."""
IN_ROUNDS_OF_COUNTS = 1_000
"""The same for counts: where means explode, few records decide, and a small part may lack them."""
ROUNDS = ((4.5, 3), (0.45, 2))
"""From which A·n/d on there are three rounds, and two; below that none."""
ROUNDS_WITH_SCALE = ((9.0, 5), (4.5, 3), (2.5, 2), (1.4, 1))
"""The same where a scale is learned as well: outliers need more rounds, and bear less noise."""
TOO_NOISY = 1.3
"""Below which A·n/d two rounds leave so much noise that scores have a variance above 1, in the units of the loss."""
MOST_C = 1e100
"""How large C may be, and how small its inverse: with larger numbers weights of the penalty would overflow."""
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
MOST_OF_CLASSES = 1_000
"""How many columns times classes there may be: costs grow with the square of that, and with its cube in a replay."""


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
class NewtonPlan(SumsEveryone):
    """Everything that is fixed before the records are seen.

    ``records`` is the number that was planned for, a power of two; ``rho`` the planned share of deletions that replay,
    over records deleted at random; ``rounds`` how many draws there are before the finish, and ``rate`` which part of
    the records these see. Without ``finish`` the last draw is the model, and nothing is summed after it.
    """

    NOTHING: ClassVar[str] = "zeros"
    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ("rounds",)
    projected: ClassVar[bool] = False
    feature_norm: ClassVar[float] = math.inf
    """Rows are taken as they are."""

    loss: CurvedLoss | Multinomial
    features: int
    records: int
    rho: float
    rounds: int
    rate: float
    C: float
    standardize: bool
    fit_intercept: bool
    finish: bool = True

    @cached_property
    def columns(self) -> int:
        """How many parameters there are."""
        return parameters_of(self.loss, self.features, self.fit_intercept)

    @property
    def scaled(self) -> bool:
        """Whether a scale is learned with the weights."""
        return isinstance(self.loss, ScaledHuber)

    @cached_property
    def expected(self) -> float:
        """The number of records that noise is made for."""
        return expected_records(self.records)

    @property
    def _steps(self) -> int:
        """How many steps a pass has."""
        return FIRST + self.rounds + self.finish

    @property
    def noisy(self) -> bool:
        """Whether draws have noise."""
        return 0.0 < self.rho < 1.0

    @property
    def careful(self) -> bool:
        """Whether rounds have stages. Plans made before there were any have as many rounds as those without."""
        careful = rounds_with_stages(self.loss, support_of(self.records, self.columns, self.rho), self.columns)
        return careful > 0 and ROUNDS[0][1] < self.rounds < UNTIL_SETTLED

    @cached_property
    def _query(self) -> Expansion:
        without = DIGITS_OF_COUNTS if hasattr(self.loss, "saturated") else MANY_DIGITS
        kind: Any = ClassExpansion if self.outputs > 1 else ScaledExpansion if self.scaled else Expansion
        digits = FEW_DIGITS if self.noisy else without
        made: Expansion = kind(self.loss, self.features, self.rounds, digits, self.careful)
        return made

    @cached_property
    def newton(self) -> Newton:
        """The laws of the rounds."""
        query = self._query
        spreads, start = (0.0,) * self.rounds, 0.0
        if self.noisy and self.rounds:
            width = 1.0 / sigma_for(self.rho)
            guesses = self.outputs > 1 or hasattr(self.loss, "guess")
            begins = START if self.fit_intercept and guesses else 0.0
            shares = GROWTH ** np.arange(self.rounds)
            shares *= (1.0 - begins) / shares.sum()
            spreads = tuple((self.rate * self.columns / self.expected / 2.0 / (width * shares) ** 2).tolist())
            start = max(self.outputs, 2) / (self.expected * width * START) if begins else 0.0
        kind: Any = ClassNewton if self.outputs > 1 else ScaledNewton if self.scaled else Newton
        made: Newton = kind(
            query, self.expected, self.rate, spreads, start, self.C, self.standardize, self.fit_intercept
        )
        return made

    @cached_property
    def learner(self) -> Learner:
        """What the engine runs."""
        schedule = PartThenEveryone(self._steps, self.rate) if self.finish else Part(self._steps, self.rate)
        newton = self.newton
        return Learner(schedule, newton.query, newton, Identity(), 0.0, "likelihood", "last", newton)

    def flaw(self) -> str | None:
        """Say what makes it no plan, though each of its numbers could be one's."""
        least = 0.0 if self.rounds else -1.0  # where nothing is drawn, ρ may be 0
        if not (least < self.rho <= 1.0 and 0.0 < self.rate <= 1.0 and self.C > 0.0):
            return "rho, rate or C is out of range"
        if not (self.finish or self.rounds):
            return "it has neither rounds nor a finish"
        return why_not(self.loss, self.features)

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
        """The noise of the last round, in the metric of the model: with a finish it enters the model squared."""
        return math.sqrt(self.newton.spreads[-1]) if self.rounds else 0.0

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""
        return self.finish + self.rate * (FIRST + self.rounds)

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""
        return self.newton.query.bound

    @property
    def outputs(self) -> int:
        """How many parameters a feature has: one for each of several classes."""
        return self.loss.outputs

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

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to replay: nothing bounds what an outlier moves."""
        return 1.0 if self.rounds else 0.0

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of sums and draws."""
        return 8 * self._steps * (self.numbers + (features + 2) * max(self.outputs - 1, 2))

    def row_bytes(self, features: int, bits: int) -> int:
        """Return the size of a record: its features, its target, a key, and a number as id."""
        return features * bits // 8 + 24

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up records, and a learner with the plan's own settings for them."""
        loss: Any = fewer_classes(self.loss)
        features = min(self.features, WIDE if loss.outputs == 1 else 1)
        rows = rng.normal(size=(RECORDS, features))
        columns = rows, _made_up_targets(loss, rows[:, 0], rng)
        rounds = min(self.rounds, 2)
        rho = max(self.rho, 0.5) if rounds else self.rho
        rate = max(self.rate, 0.7)
        small = replace(self, loss=loss, features=features, records=RECORDS, rounds=rounds, rho=rho, rate=rate)
        says = f"{RECORDS} made-up records, {features} feature{'s' * (features > 1)}, one record deleted"
        named = ("features", "rounds", "rho", "rate")
        parts = tuple((name, getattr(self, name), getattr(small, name)) for name in named)
        if self.outputs > 1:
            parts += (("classes", self.outputs, small.outputs),)
        return SmallProblem(small.learner, columns, says, ("loss", "C", "standardize"), parts)

    def lines(self) -> list[Line]:
        """Return the plan line by line."""
        share = "planned share of deletions that replay, over records deleted at random"
        rounding = f"at most {self.rounding_error:.1g} a request" if self.rounding_error else "none"
        return [
            Line("ρ", f"{self.rho:.3g}", share),
            Line("noise σ", f"{self.sigma:.4g}", "of the last draw" + "; the finish has none" * self.finish),
            Line("rounding", rounding, "by how much arithmetic changes probabilities"),
            Line("loss", loss_in_words(self.loss), "what training minimises"),
            Line("solver", "newton", "draws near the solution"),
            Line("finish", *(("exact", "a last step without noise") if self.finish else ("none", "the last draw"))),
            Line("rounds", f"{self.rounds:,}", "how many draws"),
            Line("part", f"{self.rate:.3g}", "the share of the records that rounds see"),
            Line("C", f"{self.C:g}", "weight of the loss beside the penalty"),
            Line("standardize", "yes" if self.standardize else "no", "whether the penalty is that of scaled columns"),
            Line("intercept", "yes" if self.fit_intercept else "no", "whether there is one"),
            Line("good for", f"{self.size_class[0]:,} to {self.largest:,} records", "beyond that, replan()"),
        ]

    def drawing(self) -> Drawing:
        """Return what a drawing of the plan needs to know."""
        return Drawing("rounds", "everyone", "identity", self._steps, 1, self.records, self.rate, self.noisy)

    def advice(self) -> tuple[str, ...]:
        """Return what is to be noticed of the plan by itself."""
        return tuple(filter(None, (self._advice_on_rho(), advice_on_weights(self.loss))))

    def _advice_on_rho(self) -> str:
        support = support_of(self.records, self.columns, self.rho)
        if self.rho == 0.0 or (self.rounds and support >= TOO_NOISY):
            return ""
        enough = automatic_share(self.records, self.columns)
        found = (
            "there is so much noise that one fit differs much from the next, and may be poor"
            if self.rounds
            else "the model is exact least squares on the targets"
        )
        return (
            f"rho={self.rho:.3g} is far below what {self.records:,} records with {self.columns:,} parameters allow: "
            f"{found}. Give about {enough:.2g}, or 'auto'."
        )

    def coefficients(self, model: Array) -> tuple[Array, Array]:
        """Return (weights, one row for each output; intercepts) of a model's parameters."""
        by_output = (model[:-1] if self.scaled else model).reshape(self.outputs, -1)
        return by_output[:, :-1], by_output[:, -1]

    def scale(self, model: Array) -> float | None:
        """Return the scale that was learned with the weights, if there is one."""
        return float(model[-1]) if self.scaled else None


def _made_up_targets(loss: Any, column: Array, rng: np.random.Generator) -> AnyArray:
    """Return targets of the kind that a loss takes, which depend on a column."""
    if loss.outputs > 1:
        return np.asarray((column + rng.normal(size=(loss.outputs, len(column)))).argmax(axis=0))
    if hasattr(loss, "saturated"):
        return rng.poisson(np.exp(column)).astype(np.float64)
    return np.where(column + rng.normal(size=len(column)) > 0.0, 1.0, -1.0)


def parameters_of(loss: Any, features: int, fit_intercept: bool) -> int:
    """Return how many parameters there are: of several classes those of contrasts, and a scale if there is one."""
    return (features + bool(fit_intercept)) * max(loss.outputs - 1, 1) + isinstance(loss, ScaledHuber)


def why_not(loss: Any, features: int) -> str | None:
    """Say why Newton's method is not for a loss on so many features, if it is not; it looks at nothing else.

    >>> from expunge.solvers.losses import Hinge, Multinomial
    >>> why_not(Multinomial(7), 54), why_not(Multinomial(10), 784)
    (None, '784 features and 10 classes are too many: it takes at most 1,000 parameters of several classes')
    >>> why_not(Hinge(), 3)
    'it needs the cross entropy of classes, or a loss of one score with a second derivative (expansion), not Hinge()'
    """
    if takes(loss):
        if (features + 1) * loss.outputs <= MOST_OF_CLASSES:
            return None
        return (
            f"{features:,} features and {loss.outputs:,} classes are too many: it takes at most {MOST_OF_CLASSES:,} "
            "parameters of several classes"
        )
    if hasattr(getattr(loss, "loss", loss), "expansion") and loss.outputs == 1:  # of a weighted loss, its own
        return None
    return (
        "it needs the cross entropy of classes, or a loss of one score with a second derivative (expansion), "
        f"not {loss!r}"
    )


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
    finish: bool = True,
) -> NewtonPlan:
    """Fill in what is not given, by the public rule.

    Without a finish all rounds see everyone by default: the model is the last draw, and no record may be left out.

    >>> from expunge.solvers.losses import Logistic
    >>> plan = make_newton_plan(Logistic(), features=54, records=500_000)
    >>> plan.records, plan.rounds, round(plan.rate, 3), round(plan.rho, 4)
    (524288, 3, 0.03, 0.0008)
    """
    if found := why_not(loss, features):
        raise BadPlan(f"solver: Newton: {found}. Use solver='dual_averaging'.")
    least_squares = isinstance(loss, Squared)
    if not least_squares or math.inf > C:  # least squares may be without a penalty
        check_positive("C", C)
    for name, said in (("standardize", standardize), ("fit_intercept", fit_intercept)):
        if not isinstance(said, (bool, np.bool_)):
            raise BadPlan(f"{name}={said!r}: give True or False.")
    _check_parameters(rounds, rate)
    given, (loss, C) = C, within_reach(loss, C)
    if not (1.0 / MOST_C <= C <= MOST_C or (least_squares and math.inf == C)):
        raise BadPlan(f"C={given!r}: give a number from {1.0 / MOST_C:g} to {MOST_C:g}.")
    n, columns = rounded_up(records), parameters_of(loss, features, fit_intercept)
    share = automatic_share(records, columns) if rho == "auto" else rho
    check_rho(share)
    if least_squares:  # exact sums are all it needs
        if rho != "auto":
            raise BadPlan(f"rho={rho!r}: least squares has no noise and never replays. Leave it out.")
        share, rounds = 0.0, 0
    elif share < LEAST_RHO:
        raise BadPlan(f"rho={rho!r}: give at least {LEAST_RHO:g}; below that rounding would count more than records.")
    support = support_of(n, columns, share)
    if rounds is None:
        rounds = _rounds(loss, support, columns)
    if not (rounds or finish):
        why = (
            "least squares draws nothing"
            if least_squares
            else f"with rho={share:.3g} and {rounds} rounds none is drawn"
        )
        raise BadPlan(f"finish=None: the last draw is the model, and {why}. Use finish='exact' (or a larger rho).")
    if rate is None:
        each = IN_ROUNDS_OF_COUNTS if hasattr(loss, "saturated") else IN_ROUNDS
        part = each * max(columns, FEWEST_COLUMNS) / expected_records(n)
        rate = 1.0 if share == 1.0 or not finish else min(1.0, part)
    return NewtonPlan(
        loss, features, n, float(share), rounds, float(rate), float(C), bool(standardize), bool(fit_intercept), finish
    )


def support_of(records: int, columns: int, rho: float) -> float:
    """Return A·n/d, which decides how many rounds there are; infinite without noise."""
    return math.inf if rho in (0.0, 1.0) else expected_records(records) / columns / sigma_for(rho)


def _rounds(loss: Any, support: float, columns: int) -> int:
    """Return how many rounds there are, by the public rule."""
    if careful := rounds_with_stages(loss, support, columns):
        return careful
    if support == math.inf:
        return UNTIL_SETTLED
    steps = ROUNDS_WITH_SCALE if isinstance(loss, ScaledHuber) else ROUNDS
    return next((number for least, number in steps if support >= least), 0)


def _check_parameters(rounds: Any, rate: Any) -> None:
    """Raise if a parameter of the solver makes no sense."""
    if rounds is not None:
        check_positive("rounds", rounds, whole=True, zero=True)
    if rate is not None and not (is_number(rate) and 0.0 < rate <= 1.0):
        raise BadPlan(f"rate={rate!r}: give a probability above 0 and at most 1.")
