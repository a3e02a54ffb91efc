"""The plan of boosted trees from a keyed sample: all that is fixed before the records take part."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from expunge.base.checking import check_positive, check_rho
from expunge.base.errors import BadPlan
from expunge.base.types import AnyArray
from expunge.solvers.plans.protocol import Line, SmallProblem
from expunge.solvers.plans.sampled import SampledPlan
from expunge.solvers.plans.sized import rounded_up
from expunge.solvers.plans.small import RECORDS
from expunge.solvers.sampled_trees import SampledTrees, TreeSettings

TREES, TREES_OF_MANY = 80, 30
"""How many trees each output has, if the user does not say: with up to three classes, and with more."""
LEAVES, MORE_LEAVES, MANY_RECORDS = 15, 31, 2**18
"""How many leaves a tree has; and how many from so many planned records on."""
AUTO = 6
"""How many records the sample has for each leaf of an output's trees, if the user does not say."""
SMOOTHING = 120.0
"""As how many records values from the sample count, if the user does not say."""
MOST_IN_A_LEAF = 2**30
"""No sample has more records."""
ROOM = 2**26
"""How many numbers the sums may have."""


@dataclass(frozen=True)
class BoostingPlan(SampledPlan):
    """Everything that is fixed before the records are seen.

    ``records`` is the number that was planned for, a power of two; ``rho`` the planned share of records in the sample,
    which is that of deletions that fit anew. There are ``trees`` of up to ``leaves`` for each output: for each of more
    than two ``classes``, which are 0 where targets are amounts.
    """

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ("classes",)

    classes: int
    features: int
    records: int
    rho: float
    trees: int
    leaves: int
    learning_rate: float
    least: int
    smoothing: float

    @cached_property
    def settings(self) -> TreeSettings:
        """What the sample and its trees are made by."""
        check_rho(self.rho)
        for name, number in (("max_iter", self.trees), ("min_samples_leaf", self.least)):
            check_positive(name, number, whole=True)
        check_positive("max_leaf_nodes", self.leaves, whole=True)
        if self.leaves < 2:
            raise BadPlan(f"max_leaf_nodes={self.leaves!r}: give a whole number of at least 2.")
        for name, what, most in (("learning_rate", self.learning_rate, 10.0), ("smoothing", self.smoothing, 1e9)):
            if not 1e-9 <= what <= most:
                raise BadPlan(f"{name}={what!r}: give a number from 1e-9 to {most:g}.")
        if self.least > MOST_IN_A_LEAF:
            raise BadPlan(f"min_samples_leaf={self.least}: give at most {MOST_IN_A_LEAF:,}.")
        outputs = self.classes if self.classes > 2 else 1
        numbers = outputs * (self.trees * self.leaves) ** 2
        if numbers > ROOM:
            raise BadPlan(
                f"max_iter={self.trees}, max_leaf_nodes={self.leaves}: sums would have {numbers:,} numbers, for "
                f"{outputs} output{'s' * (outputs > 1)}. Use fewer trees, or fewer leaves: up to {ROOM:,}."
            )
        return TreeSettings(
            self.classes, self.features, self.rho, self.trees, self.leaves, self.learning_rate, self.least,
            self.smoothing,
        )  # fmt: skip

    @cached_property
    def structure(self) -> SampledTrees:
        """What is found in the sample, and what everyone adds."""
        return SampledTrees(self.settings)

    @property
    def outputs(self) -> int:
        """How many scores a record has."""
        return self.settings.outputs

    @property
    def bound(self) -> float:
        """The largest number that a record may have."""
        return self.structure.bound

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to fit anew: all are alike."""
        return self.rho

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of the trees, and of the sums by leaf and by pairs of leaves."""
        structure = self.structure
        return 8 * (structure.packed + structure.most_rows * structure.width)

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up records, and a learner with the plan's own settings for them."""
        classes, rho = min(self.classes, 3), max(self.rho, 0.5)
        small = replace(self, classes=classes, features=1, records=8, rho=rho, trees=2, leaves=3, least=1)
        X = rng.permutation(np.linspace(-1.0, 1.0, RECORDS))
        y: AnyArray = X + 0.1 * rng.normal(size=RECORDS)
        if classes:
            y = np.sign(X) if classes == 2 else np.arange(RECORDS) % classes
        says = f"{RECORDS} made-up records, 1 feature, one record deleted"
        named = ("classes", "features", "rho", "trees", "leaves", "least")
        parts = tuple((name, getattr(self, name), getattr(small, name)) for name in named)
        return SmallProblem(small.learner, (X[:, None], y), says, ("sample", "trees", "values of leaves"), parts)

    def lines(self) -> list[Line]:
        """Return the plan line by line."""
        low, high = self.size_class
        return [
            Line("ρ", f"{self.rho:.3g}", "planned share of records in the sample, whose deletion fits it anew"),
            Line("solver", "keyed_sample", "trees from a secret sample, their values from exact sums of everyone"),
            Line("trees", f"{self.trees:,}", "for each output" if self.outputs > 1 else "how many there are"),
            Line("leaves", f"{self.leaves:,}", "how many a tree has at most"),
            Line("learning rate", f"{self.learning_rate:.3g}", "the share of each tree's values that is taken"),
            Line("records a leaf", f"{self.least:,}", "how many records of the sample a leaf has at least"),
            Line("smoothing", f"{self.smoothing:.4g}", "as how many records the values from the sample count"),
            Line("noise", "none", "who is in the sample follows from secret keys"),
            Line("planned for", f"{self.records:,} records", "rounded up to a power of two"),
            Line("good for", f"{low:,} to {high:,} records", "beyond that, replan()"),
        ]


def make_boosting_plan(
    classes: int,
    features: int,
    records: int,
    *,
    rho: float | Literal["auto"] = "auto",
    trees: int | Literal["auto"] = "auto",
    leaves: int | Literal["auto"] = "auto",
    learning_rate: float = 0.1,
    least: int = 20,
    smoothing: float = SMOOTHING,
) -> BoostingPlan:
    """Fill in every default and check that the choices go together.

    >>> plan = make_boosting_plan(2, 10, 500_000)
    >>> plan.records, plan.trees, plan.leaves, round(plan.rho, 4)
    (524288, 80, 31, 0.0284)
    """
    n = rounded_up(records)
    many = (MORE_LEAVES if n >= MANY_RECORDS else LEAVES) if leaves == "auto" else leaves
    check_positive("max_leaf_nodes", many, whole=True)
    if trees == "auto":
        room = math.isqrt(ROOM // max(classes, 1)) // int(many)
        trees = max(1, min(TREES if classes <= 3 else TREES_OF_MANY, room))
    check_positive("max_iter", trees, whole=True)
    check_rho(rho)
    share = min(1.0, AUTO * int(trees) * int(many) / n) if rho == "auto" else float(rho)
    for name, number in (("learning_rate", learning_rate), ("smoothing", smoothing)):
        check_positive(name, number)
    check_positive("min_samples_leaf", least, whole=True)
    plan = BoostingPlan(
        classes, features, n, share, int(trees), int(many), float(learning_rate), int(least), float(smoothing)
    )
    _ = plan.settings  # which checks the rest
    return plan
