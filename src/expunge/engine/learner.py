"""What is fixed before the records are seen (the learner), and what is kept beside them (the transcript)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.grid import CAPACITY, grid_unit
from expunge.base.types import Array
from expunge.engine.accounting import FOREVER, rounding_error
from expunge.engine.contributions import Abilities, Contributors, KeyedRecords, Participation, Query, Rule
from expunge.engine.couplings.common import COUPLINGS, NoiseGrid
from expunge.engine.finding import recall
from expunge.engine.laws import Laws
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.mechanisms.square_root import SquareRoot
from expunge.engine.schedules import Schedule
from expunge.engine.selectors import SELECTORS, select
from expunge.engine.structures import Keyed, Structure
from expunge.engine.transcript import Path, Rows


@dataclass(frozen=True)
class Learner:
    """Everything that is fixed before the records are seen: the frozen plan of one learner.

    ``sigma`` is the standard deviation of the noise; `expunge.engine.accounting` gives it for a wanted ρ.
    """

    schedule: Schedule
    query: Query
    rule: Rule
    mechanism: Mechanism = field(default_factory=SquareRoot)
    sigma: float = 0.0
    coupling: str = "joint"
    selector: str | Callable[[Path], Array] = "tail"
    laws: Laws | None = None
    """Where rounds are draws, their laws; then sums have no noise, and the coupling is that of likelihoods."""
    structure: Structure | None = None
    """Where a keyed sample gives the structure, how; then there is no noise and no coin: the coupling is by keys."""

    def __post_init__(self) -> None:
        if not (isinstance(self.sigma, (int, float)) and math.isfinite(self.sigma) and self.sigma >= 0):
            raise BadPlan(f"sigma={self.sigma!r}: give a finite number of at least 0 (0 means no noise).")
        if self.sigma and not 1e-100 < self.sigma < 1e100:
            raise BadPlan(f"sigma={self.sigma!r}: squares of such numbers overflow or vanish; use another unit.")
        if self.coupling not in COUPLINGS:
            raise BadPlan(f"coupling={self.coupling!r}: use one of {', '.join(COUPLINGS)}.")
        if (self.coupling == "likelihood") != (self.laws is not None):
            raise BadPlan("coupling='likelihood' goes with laws, the laws of rounds that are draws; give both or none.")
        if self.laws is not None and (self.sigma or self.mechanism.prefix or not self.schedule.touches_everyone):
            raise BadPlan("laws: rounds that are draws need exact sums over everyone: Everyone, Identity and sigma=0.")
        if (self.coupling == "keys") != (self.structure is not None):
            raise BadPlan("coupling='keys' goes with a structure from a keyed sample; give both or none.")
        if self.structure is not None and not (isinstance(self.schedule, Keyed) and self.silent):
            raise BadPlan("structure: a keyed sample needs exact sums over everyone: Keyed, Identity and sigma=0.")
        if self.coupling == "sequential" and not self.mechanism.row_by_row:
            raise BadPlan(
                "coupling='sequential' with SquareRoot: every row sees every earlier step, so nearly every deletion "
                "would replay (20 times as many at 1,024 steps). Use coupling='joint', or BinaryTree."
            )
        if self.coupling == "adaptive" and self.mechanism.prefix:
            raise BadPlan(
                "coupling='adaptive' needs Identity: its budget counts rows that see a record independently. "
                "Use coupling='joint' for prefix sums."
            )
        if self.coupling == "adaptive" and self.schedule.ordered:
            raise BadPlan("coupling='adaptive' needs a fixed number of steps: use Everyone or Scattered.")
        if isinstance(self.selector, str) and self.selector not in SELECTORS:
            raise BadPlan(f"selector={self.selector!r}: use one of {', '.join(SELECTORS)}, or a function of the path.")
        if np.ndim(self.rule.start) != 1:
            raise BadPlan(f"rule.start has {np.ndim(self.rule.start)} dimensions: flatten iterates to one.")
        if not (math.isfinite(self.query.bound) and self.query.bound > 0):
            raise BadPlan(f"query.bound={self.query.bound!r}: declare a positive, finite bound.")

    @cached_property
    def participation(self) -> Participation:
        """How a step takes its records."""
        bits = self.schedule.bits
        unit = None if bits is None else grid_unit(self.query.bound, bits)
        clip, schedule = self.sigma > 0.0 and self.coupling == "adaptive", self.schedule
        return Participation(schedule.rate, unit, self.abilities, clip, schedule.finish, schedule.same_part)

    @cached_property
    def abilities(self) -> Abilities:
        """What the query can do beside what every query must."""
        return Abilities(**{one.name: getattr(self.query, one.name, None) for one in fields(Abilities)})

    @cached_property
    def grid(self) -> NoiseGrid:
        """Where sums and noise meet."""
        return NoiseGrid.of(self.sigma * self.mechanism.smallest_scale, self.participation.unit is not None)

    @cached_property
    def most_records(self) -> int:
        """How many records it can have, and how many may change at once; `why_too_many` says why not more."""
        return bisect_left(range(FOREVER), True, key=lambda count: self.why_too_many(count) is not None) - 1

    def why_too_many(self, count: int) -> str | None:
        """Say why there cannot be so many records, if there cannot: fewer are never too many where these are not."""
        unit, exact_to = self.participation.unit, self.abilities.exact_to
        if unit is not None and exact_to is not None:
            if count > exact_to:
                return (
                    f"{count} records at once: this learner can sum {exact_to} exactly. Plan for more (an estimator: "
                    "replan(), or expected_records at its first fit; your own query: fewer bits per number), or, "
                    "for a replacement, make several requests."
                )
        elif unit is not None and count * self.query.bound >= unit * 2.0**53:
            return (
                f"{count} records with bound {self.query.bound:g} cannot be summed exactly on a grid of {unit:g}. "
                "Use Everyone with fewer bits."
            )
        if self.sigma > 0.0 and count * self.largest_share >= self.capacity:
            return (
                f"{count} records with bound {self.query.bound:g}: their sums are too large compared with noise of "
                f"{self.sigma:g} to be added without error. Use a smaller rho, or rho=1, which means no noise."
            )
        steps = self.schedule.steps(count)
        if self.sigma > 0.0 and 16.0 * self.sigma * self.mechanism.widest(steps) >= self.capacity:
            # 16 times its standard deviation noise does not come
            return f"mechanism: the noise of {steps} steps is too uneven for one grid; give scales that differ less."
        return None

    @property
    def capacity(self) -> float:
        """How large sums may be, and how large noise: their sum is then exact."""
        return CAPACITY * self.grid.unit

    def rounding_error(self, count: int) -> float:
        """Return by how much, at most, arithmetic changes the law of what is stored at a request (total variation)."""
        return rounding_error(self.schedule.steps(count), self.query.size) if self.sigma > 0.0 else 0.0

    @cached_property
    def largest_share(self) -> float:
        """How much of a sum that answers are made of one record can be: it counts in all steps that visit its place."""
        visits = self.schedule.visits(np.zeros(1, dtype=np.int64), self.schedule.steps(1))
        return self.query.bound * (len(visits) if self.mechanism.prefix else 1)

    @property
    def solves_late(self) -> bool:
        """Whether the model is solved when it is read, and not by requests."""
        return self.laws is not None or self.structure is not None

    @property
    def silent(self) -> bool:
        """Whether answers are the sums themselves: there is no noise, and nothing is summed over steps."""
        return self.sigma == 0.0 and not self.mechanism.prefix and self.laws is None


TableName = Literal["sums", "answers", "iterates"]


@dataclass(frozen=True)
class Transcript:
    """The state beside the records: for each step a row of sums P, of answers a, and the iterate after it.

    Of a learner with a structure from a sample the only iterate is the structure, and sums have rows of its own.
    """

    sums: Rows
    answers: Rows
    """Of a learner whose answers are the sums (`Learner.silent`) the same table; so are draws and iterates one."""
    iterates: Rows
    start: Array
    """The iterate before the first step."""
    assignment: Contributors
    """Which records lie at which place: ``assignment.ids_at(place)``. It is kept with the records themselves."""

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return self.iterates.shape[0]

    @property
    def tables(self) -> dict[TableName, Rows]:
        """The tables that there are, by name."""
        tables: dict[TableName, Rows] = {"sums": self.sums, "answers": self.answers, "iterates": self.iterates}
        if self.answers is self.sums or self.answers is self.iterates:
            del tables["answers"]
        return tables

    @property
    def path(self) -> Path:
        """All iterates."""
        return Path(self.start, self.iterates, self.steps)

    def on_grid(self, learner: Learner) -> bool:
        """Say whether the last answer is on the grid; in files that were written before there was one, it is not."""
        unit, rows = learner.grid.unit, self.answers.shape[0]
        return unit == 0.0 or rows == 0 or not np.fmod(self.answers[rows - 1], unit).any()

    def model(self, learner: Learner) -> Array:
        """Return the model that the selector makes of the iterates, or that the laws solve from draws and finish."""
        if learner.laws is not None:
            return learner.laws.model(self.path, self.sums[:])
        if learner.structure is not None:
            return learner.structure.model(self.found(learner.structure), self.sums[:])
        return select(learner.selector, self.path)

    def found(self, structure: Structure) -> tuple[Any, ...]:
        """Return what a structure has found in its sample; no edit of the records may be staged."""
        return recall(structure, self.iterates[0], cast(KeyedRecords, self.assignment))
