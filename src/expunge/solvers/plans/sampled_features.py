"""The plan of a user's own structure from a keyed sample: all that is fixed before the records take part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from expunge.base.checking import check_one_of, check_positive, check_rho
from expunge.base.errors import BadPlan
from expunge.base.types import AnyArray
from expunge.solvers.heads import HeadName, head_of
from expunge.solvers.plans.protocol import Line, SmallProblem
from expunge.solvers.plans.sampled import SampledPlan
from expunge.solvers.plans.sized import rounded_up
from expunge.solvers.plans.small import RECORDS
from expunge.solvers.sampled_features import FeatureSettings, SampledFeatures
from expunge.solvers.transforming import automatic_columns, check_transformer

AUTO = 20
"""How many records the sample has for each feature, if the user does not say."""
MOST_COLUMNS = 2**13
"""More features have more products than a sum has room for."""
ROOM = 2**26
"""How many numbers the sums may have."""


@dataclass(frozen=True)
class SampledFeaturesPlan(SampledPlan):
    """Everything that is fixed before the records are seen.

    ``records`` is the number that was planned for, a power of two; ``rho`` the planned share of records in the sample,
    which is that of deletions that fit anew. The ``transformer`` is as the user gave it, not fitted; it makes at most
    so many ``columns`` that the head takes. There are no ``classes``, 0, where targets are amounts.
    """

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ("classes",)

    head: HeadName
    classes: int
    features: int
    records: int
    rho: float
    columns: int
    C: float
    seed: int
    transformer: Any

    @cached_property
    def settings(self) -> FeatureSettings:
        """What the sample and its features are made by."""
        check_rho(self.rho)
        check_one_of("head", self.head, HeadName)
        if (self.classes == 0) != (self.head == "ridge") or self.classes == 1:
            raise BadPlan(f"head={self.head!r}: it does not go with {self.classes} classes.")
        check_positive("columns", self.columns, whole=True)
        if not 1e-9 <= self.C <= 1e9:
            raise BadPlan(f"C={self.C!r}: give a number from 1e-9 to 1e9.")
        if self.seed < 0:
            raise BadPlan(f"seed={self.seed!r}: give a whole number of at least 0.")
        check_transformer(self.transformer)
        head = head_of(self.head, self.classes, min(self.columns, MOST_COLUMNS), self.C)
        numbers = head.rows * 3 * (head.width * (head.width + 1) // 2)
        if numbers > ROOM or self.columns > MOST_COLUMNS:
            raise BadPlan(
                f"columns={self.columns}: sums would have {numbers:,} numbers or more, for {head.outputs} "
                f"output{'s' * (head.outputs > 1)}. Use a structure with fewer features: up to {ROOM:,} numbers."
            )
        return FeatureSettings(self.transformer, self.features, self.rho, self.seed, head)

    @cached_property
    def structure(self) -> SampledFeatures:
        """What is found in the sample, and what everyone adds."""
        return SampledFeatures(self.settings)

    @property
    def outputs(self) -> int:
        """How many scores a record has."""
        return self.settings.head.outputs

    @property
    def bound(self) -> float:
        """The largest number that a record may have."""
        return self.structure.bound

    @property
    def strangers(self) -> dict[str, Any]:
        """Return the transformer by its name."""
        return {type(self.transformer).__name__: self.transformer}

    @property
    def keeps_products(self) -> bool:
        """Products of features are summed."""
        return True

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to fit anew: all are alike."""
        return self.rho

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of the fingerprint, and of the sums."""
        structure = self.structure
        return 8 * (structure.packed + structure.most_rows * structure.width)

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up records, and a learner with the plan's own head for features that are scaled only."""
        from sklearn.preprocessing import StandardScaler

        classes, rho = min(self.classes, 3), max(self.rho, 0.5)
        small = replace(
            self, classes=classes, features=1, records=8, rho=rho, columns=1, transformer=StandardScaler()
        )  # fmt: skip
        X = rng.permutation(np.linspace(-1.0, 1.0, RECORDS))
        y: AnyArray = X + 0.1 * rng.normal(size=RECORDS)
        if classes:
            y = np.sign(X) if classes == 2 else np.arange(RECORDS) % classes
        says = f"{RECORDS} made-up records, 1 feature that is scaled, one record deleted"
        parts = tuple((name, getattr(self, name), getattr(small, name)) for name in ("classes", "columns", "rho"))
        return SmallProblem(small.learner, (X[:, None], y), says, ("sample", "head", "C"), parts)

    def lines(self) -> list[Line]:
        """Return the plan line by line."""
        low, high = self.size_class
        return [
            Line("ρ", f"{self.rho:.3g}", "planned share of records in the sample, whose deletion fits it anew"),
            Line("solver", "keyed_sample", "features from a secret sample, their weights from exact sums of everyone"),
            Line("structure", type(self.transformer).__name__, "what is fitted on the sample alone"),
            Line("columns", f"{self.columns:,}", "how many features it makes at most"),
            Line("head", self.head, "the model of the features"),
            Line("C", f"{self.C:.4g}", "the weight of the loss beside a penalty on weights"),
            Line("noise", "none", "who is in the sample follows from secret keys"),
            Line("planned for", f"{self.records:,} records", "rounded up to a power of two"),
            Line("good for", f"{low:,} to {high:,} records", "beyond that, replan()"),
        ]


def make_sampled_features_plan(
    transformer: Any,
    classes: int,
    features: int,
    records: int,
    *,
    head: str = "newton",
    rho: float | Literal["auto"] = "auto",
    C: float = 1.0,
    columns: int | Literal["auto"] = "auto",
    seed: int = 0,
) -> SampledFeaturesPlan:
    """Fill in every default and check that the choices go together.

    >>> from sklearn.preprocessing import StandardScaler
    >>> plan = make_sampled_features_plan(StandardScaler(), 2, 10, 5_000)
    >>> plan.records, plan.columns, round(plan.rho, 4)
    (8192, 10, 0.0244)
    """
    if head not in get_args(HeadName):
        check_one_of("head", head, HeadName)
    check_rho(rho)
    check_positive("C", C)
    check_transformer(transformer)
    if not (isinstance(columns, str) and columns == "auto"):
        check_positive("columns", columns, whole=True)
    from sklearn.base import clone

    given, n = clone(transformer), rounded_up(records)
    number = automatic_columns(given, features, classes) if columns == "auto" else int(columns)
    share = min(1.0, AUTO * number / n) if rho == "auto" else float(rho)
    name: Any = head
    plan = SampledFeaturesPlan(name, classes, features, n, share, number, float(C), seed, given)
    _ = plan.settings  # which checks the rest
    return plan
