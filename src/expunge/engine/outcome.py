"""How a request went, for the caller only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a request went. For the caller only: it depends on the deleted record, so never store it."""

    removed: int
    added: int
    replayed_from: int | None
    """The first step that was replayed, or None if none was: the path was kept, or (without noise, in a learner of
    one round) its only sum was added to."""
    evaluations: int
    """How often a record's contribution was computed (the paper's count of queries)."""
    above_bound: int
    """How many of these contributions were above the query's bound."""
    seconds: float
    replay_probability: float
    """How likely the coins that were tossed were to say replay (of a row-by-row coupling, those up to the first
    that did). With one touched step and the joint or adaptive coupling this is the probability itself."""

    @property
    def kept(self) -> bool:
        """Whether nothing was replayed."""
        return self.replayed_from is None
