"""Structures from a keyed sample, small enough for `check_exact`, and mistakes that it must catch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cases.learners import Case
from expunge import MemoryRecords, Transcript
from expunge.audit.rehearsal import keep_always
from expunge.base.intake import Delete, Insert, Replace, Request
from expunge.base.types import Array, Batch, Keys, Mask
from expunge.engine.changing import change
from expunge.engine.learner import Learner
from expunge.engine.sampling import learner_of
from expunge.solvers.keyed_sample import KeyedClusters, Stage
from expunge.solvers.sampled_clusters import Found, SampledClusters

POINTS: Array = np.array([[0.9], [-0.7], [0.8], [-0.3], [-1.9], [0.1], [0.6], [-0.2]])
"""Six that are there and two that come."""
SETTINGS = KeyedClusters(2, 1, 0.8, 3)
REQUESTS: dict[str, tuple[Request, ...]] = {
    "deletion": (Delete([0]),),
    "bulk": (Delete([0, 2, 3]),),
    "insertion": (Insert((POINTS[6:7],)),),
    "replacement": (Replace((POINTS[6:7],), [4]),),
    "stream": (Delete([1]), Insert((POINTS[6:],)), Replace((POINTS[:1],), [3]), Delete([0, 6]), Delete([5])),
}


def cases() -> list[Case]:
    """Return k-means and these requests, as problems of one list."""
    learner = learner_of(SampledClusters(SETTINGS))
    return [Case(f"k-means, {name}", learner, each, columns=(POINTS[:6],)) for name, each in REQUESTS.items()]


@dataclass(frozen=True)
class OnEveryone(SampledClusters):
    """The structure is fitted on everyone; that it must be fitted anew is decided by keys."""

    def joins(self, stage: Stage, keys: Keys, batch: Batch) -> Mask:
        """Say yes to all."""
        return np.ones(len(keys), dtype=bool)


@dataclass(frozen=True)
class NeverAnew(SampledClusters):
    """One in the sample leaves, and it is not fitted anew."""

    def sampled(self, found: Found, keys: Keys, batch: Batch) -> Mask:
        """Say no, where one is asked about."""
        return super().sampled(found, keys, batch) & (len(keys) > 1)


@dataclass(frozen=True)
class OfThree(SampledClusters):
    """A sample of fixed size: whoever has one of the three lowest keys at the first fit."""

    lowest: ClassVar[Any] = None

    def joins(self, stage: Stage, keys: Keys, batch: Batch) -> Mask:
        """Compare keys with the third of those that were there."""
        return np.asarray(keys <= (np.sort(keys)[:3][-1] if self.lowest is None else self.lowest))

    def sampled(self, found: Found, keys: Keys, batch: Batch) -> Mask:
        """Compare keys with the third of those that were there."""
        return self.joins(found[0], keys, batch)


def as_at_the_first_fit(
    learner: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> tuple[MemoryRecords, Transcript]:
    """Serve a request; nobody fills the gap in a sample of fixed size."""
    OfThree.lowest = np.sort(records.keys_at(0))[2]
    try:
        change(learner, records, transcript, request, rng).commit()
    finally:
        OfThree.lowest = None
    return records, transcript


MISTAKES: dict[str, dict[str, Any]] = {
    "the structure is fitted on everyone": {"learner": learner_of(OnEveryone(SETTINGS))},
    "one in the sample leaves, and nothing is fitted anew": {"learner": learner_of(NeverAnew(SETTINGS))},
    "a sample of fixed size": {"learner": learner_of(OfThree(SETTINGS)), "serve": as_at_the_first_fit},
    "only sums are changed": {"learner": learner_of(SampledClusters(SETTINGS)), "serve": keep_always},
}
