"""What plans have in common by which a keyed sample gives the structure, and everyone adds exact numbers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from expunge.base.errors import BadPlan, SizeWarning
from expunge.base.wording import are, counted
from expunge.engine.learner import Learner
from expunge.engine.sampling import learner_of
from expunge.engine.structures import Structure
from expunge.solvers.plans.exact import SumsEveryone
from expunge.solvers.plans.protocol import Drawing
from expunge.solvers.plans.sized import Remark


class SampledPlan(SumsEveryone):
    """A plan with a structure from a keyed sample. Subclasses say which."""

    records: int
    rho: float
    """The planned share of records in the sample, which is that of deletions that fit anew."""

    @property
    def settings(self) -> Any:
        """What the sample and its structure are made by; raises `BadPlan` if there can be none."""
        raise NotImplementedError

    @property
    def structure(self) -> Structure:
        """What is found in the sample, and what everyone adds."""
        raise NotImplementedError

    @cached_property
    def learner(self) -> Learner:
        """What the engine runs."""
        return learner_of(self.structure)

    def flaw(self) -> str | None:
        """Say what makes it no plan, though each of its numbers could be one's."""
        try:
            _ = self.settings
        except BadPlan as error:
            return str(error)
        return None

    @property
    def numbers(self) -> int:
        """How many numbers what is found in the sample has: a file has at least as many."""
        return self.structure.packed

    @property
    def rounding_error(self) -> float:
        """Return 0: nothing is rounded but the numbers of a record, each by itself."""
        return 0.0

    @property
    def sigma(self) -> float:
        """Return 0: there is no noise."""
        return 0.0

    @property
    def horizon(self) -> int:
        """Up to how many records ρ is the share that fits anew."""
        return self.exact_to

    @property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        return self.structure.exact_to

    @property
    def plans_share(self) -> bool:
        """ρ is the planned share of deletions that fit anew."""
        return True

    @property
    def samples(self) -> bool:
        """A keyed sample gives the structure."""
        return True

    @property
    def steps_alike(self) -> bool:
        """Whether one step is like another: there is only one."""
        return False

    def drawing(self) -> Drawing:
        """Return what a drawing of the plan needs to know."""
        return Drawing("sums", "everyone", "identity", 1, 1, self.records, self.rho, False)

    def outgrown(self, records: int) -> Remark:
        """Return what to say of a number of records that the plan is not for."""
        low, high = self.size_class
        return (
            f"there {are(records)} now {counted(records, 'record')}, and the plan is for {low:,} to {high:,}. "
            "replan() makes a new plan; it is a fresh fit. With replan(expected_records=...) the new plan lasts "
            "longer.",
            SizeWarning,
        )
