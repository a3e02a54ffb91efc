"""The plan of ridge regression: everything that is fixed before the records take part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from expunge.learner import Learner
from expunge.mechanisms import Identity
from expunge.moments import EXACT_TO, Moments
from expunge.planning import Sized
from expunge.queries import Gram
from expunge.rules import NormalEquations
from expunge.schedules import Everyone


@dataclass(frozen=True)
class RidgePlan(Sized):
    """Everything that is fixed before the records are seen: the penalty, and between which bounds numbers lie."""

    alpha: float
    fit_intercept: bool
    feature_bounds: tuple[float, ...]
    target_bound: float

    @property
    def features(self) -> int:
        """How many columns there are."""
        return len(self.feature_bounds)

    @cached_property
    def moments(self) -> Moments:
        """The sums of products that are kept."""
        return Moments((*self.feature_bounds, self.target_bound))

    @cached_property
    def learner(self) -> Learner:
        """What the engine runs."""
        rule = NormalEquations(self.moments, self.alpha, self.fit_intercept)
        return Learner(Everyone(1), Gram(self.moments), rule, Identity(), selector="last")

    @property
    def largest(self) -> int:
        """Up to how many records sums are exact; more are refused."""
        return EXACT_TO

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many records it is good for: all of them, down to none."""
        return 0, self.largest

    @property
    def horizon(self) -> int:
        """Up to how many records no deletion replays."""
        return self.largest

    @property
    def records_per_subject(self) -> int:
        """How many records a subject may have: as many as it likes."""
        return self.largest

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""
        return 1.0
