"""Models that follow from exact sums over everyone: what each record adds, and how the model is solved from them."""

from __future__ import annotations

from typing import Protocol

from expunge.base.types import Array, Batch
from expunge.engine.structures import Parts


class ExactSum(Protocol):
    """What each record adds to a table of sums, and the model that follows from the sums alone.

    What a record adds is a function of the record by itself, with the same bits in whatever batch it comes, in whole
    multiples of powers of two: sums of up to ``exact_to`` records are exact in any order. So a deletion takes a record
    out as if it had never been there, and the model is solved when it is next read.
    """

    @property
    def rows(self) -> int:
        """How many rows the table has."""

    @property
    def width(self) -> int:
        """How many numbers a row has."""

    @property
    def rows_each(self) -> int:
        """To how many rows a record adds, at most."""

    @property
    def bound(self) -> float:
        """The largest number that a record may have."""

    @property
    def exact_to(self) -> int:
        """Up to how many records sums are exact."""

    def admit(self, batch: Batch) -> None:
        """Raise `BadRecords` if records cannot be summed exactly, before anything is done with them."""

    def total(self, batch: Batch) -> Array:
        """Return what some records add, all of them: rows × width."""

    def parts(self, batch: Batch) -> Parts:
        """Return what each record adds: few rows."""

    def model(self, sums: Array) -> Array:
        """Solve for the model, as numbers."""
