"""Features of a transformer from a keyed sample, small enough for `check_exact`, and mistakes that it must catch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

from cases.sampled_trees import TARGETS, requests
from expunge.audit.rehearsal import keep_always
from expunge.base.intake import Request
from expunge.base.types import Batch, Keys, Mask
from expunge.engine.changing import change
from expunge.engine.learner import Learner, Transcript
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.sampling import learner_of
from expunge.solvers.heads import head_of
from expunge.solvers.sampled_features import FeatureSettings, Fitted, Found, SampledFeatures

HEADS = {
    "newton": ("newton", "two classes", 2),
    "newton, three classes": ("newton", "three classes", 3),
    "ridge": ("ridge", "amounts", 0),
    "ridge_classifier": ("ridge_classifier", "two classes", 2),
}
"""For each case its head, its targets and how many classes they have."""


def settings(case: str) -> FeatureSettings:
    """Return the settings of a case: features that are scaled, or, for amounts, bins."""
    head, _, classes = HEADS[case]
    bins = KBinsDiscretizer(2, encode="onehot-dense", strategy="uniform")
    transformer, columns = (bins, 2) if head == "ridge" else (StandardScaler(), 1)
    return FeatureSettings(transformer, 1, 0.6, 0, head_of(head, classes, columns, 1.0))


def targets(case: str) -> Any:
    """Return the targets of a case: of six that are there, and two that come."""
    return TARGETS[HEADS[case][1]]


def asked(case: str) -> Any:
    """Return requests, by name."""
    return requests(HEADS[case][1])


@dataclass(frozen=True)
class OnEveryone(SampledFeatures):
    """The transformer is fitted on everyone; that it must be fitted anew is decided by keys."""

    def find(self, found: Found, keys: Keys, batch: Batch) -> Fitted | None:
        """Fit to all who were asked whether they join."""
        if not found:
            self.__dict__["everyone"] = []
            return None
        keys, *columns = map(np.concatenate, zip(*self.__dict__.pop("everyone"), strict=True))
        return super().find(found, keys, tuple(columns))

    def joins(self, stage: None, keys: Keys, batch: Batch) -> Mask:
        """Note who is asked."""
        if "everyone" in self.__dict__:
            self.__dict__["everyone"].append((keys, *batch))
        return super().joins(stage, keys, batch)


@dataclass(frozen=True)
class NeverAnew(SampledFeatures):
    """One in the sample leaves, and nothing is found anew; that it must be is forgotten as well."""

    def sampled(self, found: Found, keys: Keys, batch: Batch) -> Mask:
        """Say no, where one is asked about."""
        return super().sampled(found, keys, batch) & (len(keys) > 1)

    def unpack(self, numbers: Any) -> Found:
        """Return what was found last, whoever was in its sample."""
        return self.__dict__.get("_remembered") or super().unpack(numbers)


@dataclass(frozen=True)
class OfThree(SampledFeatures):
    """A sample of fixed size: whoever has one of the three lowest keys at the first fit."""

    lowest: ClassVar[Any] = None

    def joins(self, stage: None, keys: Keys, batch: Batch) -> Mask:
        """Compare keys with the third of those that were there."""
        return np.asarray(keys <= (np.sort(keys)[:3][-1] if self.lowest is None else self.lowest))


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


@dataclass(frozen=True)
class SeesTheNumber(SampledFeatures):
    """Centres of the features depend on how many records there are."""

    def joins(self, stage: None, keys: Keys, batch: Batch) -> Mask:
        """Note how many are asked."""
        self.__dict__["asked"] = max(len(keys), self.__dict__.get("asked", 0) if len(keys) == 1 else 0)
        return super().joins(stage, keys, batch)

    def find(self, found: Found, keys: Keys, batch: Batch) -> Fitted | None:
        """Fit, and move the centres by the number."""
        fitted = super().find(found, keys, batch)
        if fitted is None:
            return None
        asked = self.__dict__["asked"]
        return replace(fitted, centres=fitted.centres + asked, numbers=fitted.numbers + asked)


def mistakes(case: str) -> dict[str, dict[str, Any]]:
    """Return mistakes, as `check_exact` takes them."""
    chosen = settings(case)
    return {
        "the structure is fitted on everyone": {"learner": learner_of(OnEveryone(chosen))},
        "one in the sample leaves, and nothing is found anew": {"learner": learner_of(NeverAnew(chosen))},
        "the sample has a fixed size": {"learner": learner_of(OfThree(chosen)), "serve": as_at_the_first_fit},
        "the structure sees how many records there are": {"learner": learner_of(SeesTheNumber(chosen))},
        "only sums are changed": {"learner": learner_of(SampledFeatures(chosen)), "serve": keep_always},
    }
