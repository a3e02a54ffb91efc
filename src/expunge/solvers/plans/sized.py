"""How many records a plan is made for, and the ρ that this number allows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from expunge.base.errors import SizeWarning
from expunge.base.types import Array
from expunge.base.wording import are, counted
from expunge.engine.learner import Learner
from expunge.solvers.extents import Extent

WORTH = 2**14
"""How many replayed records' worth of noise, n·ρ, leaves the accuracy as it is (for few parameters)."""
FEW_PARAMETERS = 2**13
MOST_NUMBERS = 2**20
"""A table of the transcript is kept below this size, if that leaves `LEAST_STEPS`."""
SIZE_CLASS = 4
"""A plan is for numbers of records up to this factor above and below the one that was planned for."""


def size_class_of(records: int) -> tuple[int, int]:
    """Return from how few to how many records a plan for this number is good for.

    >>> size_class_of(1024)
    (256, 4096)
    """
    return -(-records // SIZE_CLASS), records * SIZE_CLASS


class Standing(NamedTuple):
    """How many records a model has, and, where that counts, how many directions of its coefficients they determine."""

    records: int
    rank: int | None = None


Remark = tuple[str, type[Warning]]
"""A message to the user, and its kind of warning."""


class Sized:
    """A plan that is good for some numbers of records."""

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ()
    """Which of its whole numbers may be 0."""
    NOTHING: ClassVar[str] = "noise only"
    """What training on no records gives."""

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many records the plan is good for."""
        raise NotImplementedError

    @property
    def largest(self) -> int:
        """Up to how many records all of it holds."""
        raise NotImplementedError

    if TYPE_CHECKING:  # a property would be taken for the default of a plan's field

        @property
        def horizon(self) -> int:
            """Up to how many records ρ holds."""

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""
        raise NotImplementedError

    @property
    def learner(self) -> Learner:
        """What the engine runs."""
        raise NotImplementedError

    @property
    def numbers(self) -> int:
        """How many numbers a sum has; known without making room for them."""
        raise NotImplementedError

    @property
    def rounding_error(self) -> float:
        """By how much, at most, arithmetic changes the law of what is stored, in total variation, at a request."""
        return self.learner.rounding_error(self.largest)

    def rank_of(self, model: Array) -> int | None:
        """Return how many directions of a model's coefficients are determined, where that may fall short."""
        return None

    @cached_property
    def untroubled(self) -> range:
        """With which numbers of records there is nothing to remark, unless their rank changes."""
        return range(max(1, self.size_class[0]), self.largest + 1)

    def remarks(self, before: Standing, now: Standing, deleted: int) -> Iterator[Remark]:
        """Give what to warn of after a request; ``deleted`` is how many records it has deleted, if it was to delete."""
        if deleted and now.records == 0:
            yield (
                f"every record has been deleted: the model is now what training on nothing gives ({self.NOTHING}). "
                "Insert records, or refit.",
                UserWarning,
            )
        elif before.records <= self.largest < now.records or now.records < self.size_class[0] <= before.records:
            yield self.outgrown(now.records)

    def outgrown(self, records: int) -> Remark:
        """Return what to say of a number of records that the plan is not for."""
        low, high = self.size_class
        exceeded = " and a deletion may replay more often than rho says" if records > self.horizon else ""
        return (
            f"there {are(records)} now {counted(records, 'record')}, and the plan is for {low:,} to {high:,}: noise "
            f"and step sizes no longer fit{exceeded}. replan() makes a new plan; it is a fresh fit of "
            f"{round(records * self.passes):,} evaluations. With replan(expected_records=...) the new plan lasts "
            "longer.",
            SizeWarning,
        )

    @property
    def strangers(self) -> dict[str, Any]:
        """Return objects of others in it, by the names of their classes: a file holds these names only."""
        return {}

    @property
    def never_replays(self) -> bool:
        """Whether sums are exact without noise, so that no deletion replays."""
        return False

    @property
    def plans_share(self) -> bool:
        """Whether ρ is the planned share of deletions that replay, over random records; else it is the worst case."""
        return False

    @property
    def samples(self) -> bool:
        """Whether a keyed sample gives the model's structure."""
        return False

    @property
    def keeps_products(self) -> bool:
        """Whether products of columns are summed: then costs grow like the square of their number."""
        return False

    @property
    def steps_alike(self) -> bool:
        """Whether one step is like another, so that a model may as well have more of them, or fewer."""
        return True

    @property
    def per_column(self) -> tuple[str, ...]:
        """Which parameters of the model may be given column by column."""
        return ()

    def covers(self, records: int) -> bool:
        """Say whether the plan is good for a number of records."""
        return self.size_class[0] <= records <= self.largest

    def flaw(self) -> str | None:
        """Say what makes it no plan, though each of its numbers could be one's."""
        return None

    def region(self, columns: int) -> Extent | None:
        """Return where the first columns of a record lie, where that is declared."""
        return None

    def bounded(self, rows: Array) -> Array:
        """Return rows of about norm 1 in the units, and within the bounds, of the plan."""
        return rows

    def advice(self) -> tuple[str, ...]:
        """Return what is to be noticed of the plan by itself, in sentences."""
        return ()


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
