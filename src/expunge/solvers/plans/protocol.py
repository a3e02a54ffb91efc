"""What every plan answers, and the plain data in which it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from expunge.base.types import AnyArray, Array
from expunge.engine.learner import Learner
from expunge.solvers.extents import Extent
from expunge.solvers.plans.sized import Remark, Standing


@dataclass(frozen=True)
class Size:
    """How many records a problem has, and in how many steps (rounds, where everyone takes part in all of them)."""

    records: int
    steps: int

    @property
    def batch(self) -> int:
        """How many records a step has."""
        return max(1, round(self.records / self.steps))


@dataclass(frozen=True)
class Drawing:
    """What a drawing of the plan needs to know."""

    kind: Literal["steps", "rounds", "sums"]
    """Records meet in steps, all of them meet in every round, or they are summed up once."""
    schedule: str
    mechanism: str
    steps: int
    epochs: int
    batch: int
    rate: float
    noise: bool


class Line(NamedTuple):
    """A line of a plan in words."""

    name: str
    value: str
    meaning: str


class SmallProblem(NamedTuple):
    """A few made-up records, and a learner for them with a plan's own settings; only sizes are scaled down."""

    learner: Learner
    columns: tuple[AnyArray, ...]
    says: str
    """What it is, in words."""
    own: tuple[str, ...]
    """What is as in the plan."""
    parts: tuple[tuple[str, Any, Any], ...]
    """What may not be: the name of each part, what the plan has, and what is here."""


class AnyPlan(Protocol):
    """What every plan answers: what a store and its receipts need to know."""

    MAY_BE_ZERO: ClassVar[tuple[str, ...]]
    """Which of its whole numbers may be 0."""

    @property
    def rho(self) -> float:
        """How often, at most, a deletion replays; 0 if none ever does."""

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise on sums."""

    @property
    def numbers(self) -> int:
        """How many numbers a sum has; known without making room for them."""

    @property
    def rounding_error(self) -> float:
        """By how much, at most, arithmetic changes the law of what is stored, in total variation, at a request."""

    def flaw(self) -> str | None:
        """Say what makes it no plan, though each of its numbers could be one's."""


class ModelPlan(AnyPlan, Protocol):
    """What the plan of a model answers: how it is trained, for how many records, and at what cost."""

    @property
    def learner(self) -> Learner:
        """What the engine runs."""

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""

    @property
    def records_per_subject(self) -> int:
        """How many records a subject may have, on which the noise was planned."""

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many records it is good for."""

    @property
    def largest(self) -> int:
        """Up to how many records all of it holds."""

    @property
    def horizon(self) -> int:
        """Up to how many records ρ holds."""

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""

    @property
    def epochs(self) -> int:
        """How often a fit goes through the records, apart from rounds."""

    @property
    def outputs(self) -> int:
        """How many parameters a feature has."""

    @property
    def everyone(self) -> bool:
        """Whether every record takes part in every round."""

    @property
    def exact_to(self) -> int | None:
        """How many records can be summed exactly, where that is limited."""

    @property
    def never_replays(self) -> bool:
        """Whether sums are exact without noise, so that no deletion replays."""

    @property
    def plans_share(self) -> bool:
        """Whether ρ is the planned share of deletions that replay, over random records; else it is the worst case."""

    @property
    def samples(self) -> bool:
        """Whether a keyed sample gives the model's structure."""

    @property
    def keeps_products(self) -> bool:
        """Whether products of columns are summed: then costs grow like the square of their number."""

    @property
    def steps_alike(self) -> bool:
        """Whether one step is like another, so that a model may as well have more of them, or fewer."""

    @property
    def per_column(self) -> tuple[str, ...]:
        """Which parameters of the model may be given column by column."""

    def covers(self, records: int) -> bool:
        """Say whether the plan is good for a number of records."""

    @property
    def untroubled(self) -> range:
        """With which numbers of records there is nothing to remark, unless their rank changes."""

    def remarks(self, before: Standing, now: Standing, deleted: int) -> Iterator[Remark]:
        """Give what to warn of after a request; ``deleted`` is how many records it has deleted, if it was to delete."""

    def size_for(self, records: int) -> Size:
        """Return the size of a problem as planned; the epochs of one place count as one step."""

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to replay."""

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of sums, answers and iterates."""

    def row_bytes(self, features: int, bits: int) -> int:
        """Return the size of a record: its features, its target if it has one, and a number as id."""

    def small_parameters(self, size: Size, columns: int, epochs: int, rho: float) -> dict[str, Any]:
        """Return the parameters in which the model of a small problem of the same kind differs."""

    def region(self, columns: int) -> Extent | None:
        """Return where the first columns of a record lie, where that is declared."""

    def bounded(self, rows: Array) -> Array:
        """Return rows of about norm 1 in the units, and within the bounds, of the plan."""

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up records, and a learner with the plan's own settings for them."""

    def lines(self) -> list[Line]:
        """Return the plan line by line."""

    def drawing(self) -> Drawing:
        """Return what a drawing of the plan needs to know."""

    def advice(self) -> tuple[str, ...]:
        """Return what is to be noticed of the plan by itself, in sentences."""
