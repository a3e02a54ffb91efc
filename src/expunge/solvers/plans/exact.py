"""What plans have in common by which everyone is summed, exactly and without bounds on what a subject adds."""

from __future__ import annotations

from typing import Any

from expunge.solvers.plans.protocol import Size
from expunge.solvers.plans.sized import Sized, size_class_of


class SumsEveryone(Sized):
    """A plan whose sums are exact and over everyone: nothing is clipped, and a subject may have any number of records.

    Subclasses say of how many records sums are exact.
    """

    records: int
    """The number of records that was planned for, if the plan is for one."""

    @property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        raise NotImplementedError

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
        return self.exact_to

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""
        return 1.0

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
        """Whether every record takes part: in the sums they do."""
        return True

    def size_for(self, records: int) -> Size:
        """Return the size of a problem: all records are taken in one step."""
        return Size(records, 1)

    def row_bytes(self, features: int, bits: int) -> int:
        """Return the size of a record: its features, one more number (a target or a key), and a number as id."""
        return features * bits // 8 + 16

    def small_parameters(self, size: Size, columns: int, epochs: int, rho: float) -> dict[str, Any]:
        """Return the parameters in which the model of a small problem differs."""
        return {"rho": rho, "expected_records": size.records, "random_state": None}
