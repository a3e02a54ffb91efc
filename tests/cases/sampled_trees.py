"""Boosted trees from a keyed sample, small enough for `check_exact`, and mistakes that it must catch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cases.learners import Case
from expunge.audit.rehearsal import keep_always
from expunge.base.intake import Delete, Insert, Replace, Request
from expunge.base.types import AnyArray, Array, Batch, Keys, Mask
from expunge.engine.sampling import learner_of
from expunge.solvers.boosting import Grown
from expunge.solvers.sampled_trees import Found, SampledTrees, TreeSettings

ROWS: Array = np.array([[0.9], [-0.7], [0.8], [-0.3], [-1.9], [0.1], [0.6], [-0.2]])
"""Six that are there and two that come."""
TARGETS: dict[str, AnyArray] = {
    "two classes": np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0]),
    "three classes": np.array([2, 0, 2, 1, 0, 1, 2, 0]),
    "amounts": np.array([3.0, -1.0, 2.5, 0.5, -4.0, 1.0, 2.0, 0.0]),
}
CLASSES = {"two classes": 2, "three classes": 3, "amounts": 0}


def settings(kind: str) -> TreeSettings:
    """Return the settings for one of these targets."""
    return TreeSettings(CLASSES[kind], 1, 0.6, 2, 3, 0.5, 1, 2.0)


def requests(kind: str) -> dict[str, tuple[Request, ...]]:
    """Return requests for one of these targets."""
    y = TARGETS[kind]
    return {
        "deletion": (Delete([0]),),
        "bulk": (Delete([0, 2, 3]),),
        "insertion": (Insert((ROWS[6:7], y[6:7])),),
        "replacement": (Replace((ROWS[6:7], y[6:7]), [4]),),
        "stream": (
            Delete([1]), Insert((ROWS[6:], y[6:])), Replace((ROWS[:1], y[:1]), [3]), Delete([0, 6]), Delete([5]),
        ),
    }  # fmt: skip


def cases() -> list[Case]:
    """Return boosting of each kind with a stream, as problems of one list."""
    return [
        Case(
            f"boosting, {kind}", learner_of(SampledTrees(settings(kind))), requests(kind)["stream"],
            columns=(ROWS[:6], targets[:6]),
        )
        for kind, targets in TARGETS.items()
    ]  # fmt: skip


@dataclass(frozen=True)
class OnEveryone(SampledTrees):
    """The trees are found in everyone; that they must be found anew is decided by keys."""

    def find(self, found: Found, keys: Keys, batch: Batch) -> Grown | None:
        """Find trees in all who were asked whether they join."""
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
class NeverAnew(SampledTrees):
    """One in the sample leaves, and nothing is found anew."""

    def sampled(self, found: Found, keys: Keys, batch: Batch) -> Mask:
        """Say no, where one is asked about."""
        return super().sampled(found, keys, batch) & (len(keys) > 1)


@dataclass(frozen=True)
class SeesTheNumber(SampledTrees):
    """Values of the trees depend on how many records there are."""

    def joins(self, stage: None, keys: Keys, batch: Batch) -> Mask:
        """Note how many are asked."""
        self.__dict__["asked"] = max(len(keys), self.__dict__.get("asked", 0) if len(keys) == 1 else 0)
        return super().joins(stage, keys, batch)

    def find(self, found: Found, keys: Keys, batch: Batch) -> Grown | None:
        """Find trees, and add the number."""
        grown = super().find(found, keys, batch)
        if grown is None:
            return None
        trees = grown.trees
        return Grown(replace(trees, base=trees.base + self.__dict__["asked"]), grown.spread)


def mistakes(kind: str) -> dict[str, dict[str, Any]]:
    """Return mistakes, as `check_exact` takes them."""
    chosen = settings(kind)
    return {
        "the trees are found in everyone": {"learner": learner_of(OnEveryone(chosen))},
        "one in the sample leaves, and nothing is found anew": {"learner": learner_of(NeverAnew(chosen))},
        "the trees see how many records there are": {"learner": learner_of(SeesTheNumber(chosen))},
        "only sums are changed": {"learner": learner_of(SampledTrees(chosen)), "serve": keep_always},
    }
