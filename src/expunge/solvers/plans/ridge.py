"""The plan of ridge regression: everything that is fixed before the records take part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from expunge.base.errors import RankWarning
from expunge.base.types import Array
from expunge.engine.learner import Learner
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.schedules import Everyone
from expunge.solvers.exact_moments import EXACT_TO, Moments
from expunge.solvers.normal_equations import Gram, NormalEquations
from expunge.solvers.plans.exact import SumsEveryone
from expunge.solvers.plans.protocol import Drawing, Line, Size, SmallProblem
from expunge.solvers.plans.sized import Remark, Standing
from expunge.solvers.plans.small import RECORDS, WIDE


@dataclass(frozen=True)
class RidgePlan(SumsEveryone):
    """Everything that is fixed before the records are read: the penalty, and the bounds of numbers."""

    NOTHING: ClassVar[str] = "zeros"

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

    @property
    def numbers(self) -> int:
        """How many numbers a sum has."""
        return self.moments.size

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

    def rank_of(self, model: Array) -> int:
        """Return how many directions of the coefficients the records and the penalty determine."""
        return int(model.item(-1))

    def remarks(self, before: Standing, now: Standing, deleted: int) -> Iterator[Remark]:
        """Give what to warn of after a request: also if the rank falls short thereby."""
        yield from super().remarks(before, now, deleted)
        if now.records and before.rank is not None and now.rank is not None and now.rank < before.rank:
            yield self.rank_remark(now.rank, now.records)

    def rank_remark(self, rank: int, records: int) -> Remark:
        """Return what to say of a rank that falls short."""
        return (
            f"rank {rank} of {self.features}: {records:,} records with alpha={self.alpha:g} do not determine all "
            "coefficients, so the solution of least norm was taken. Give a larger alpha, remove columns that follow "
            "from others, or declare a smaller feature_bound for columns of tiny numbers.",
            RankWarning,
        )

    @property
    def rho(self) -> float:
        """How often a deletion replays: never."""
        return 0.0

    @property
    def sigma(self) -> float:
        """The noise on sums: none."""
        return 0.0

    @property
    def bound(self) -> float:
        """The largest norm of a contribution."""
        return Gram(self.moments).bound

    @property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        return self.largest

    @property
    def never_replays(self) -> bool:
        """Sums are exact without noise."""
        return True

    @property
    def keeps_products(self) -> bool:
        """Products of columns are summed."""
        return True

    @property
    def per_column(self) -> tuple[str, ...]:
        """Which parameters of the model may be given column by column."""
        return ("feature_bound",)

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to replay."""
        return 0.0

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of the sums and the solution."""
        return 8 * (self.moments.size + features + 2)

    def small_parameters(self, size: Size, columns: int, epochs: int, rho: float) -> dict[str, Any]:
        """Return the parameters in which the model of a small problem differs, apart from those of columns."""
        return {}

    def bounded(self, rows: Array) -> Array:
        """Return rows within the bounds."""
        return np.asarray(np.clip(rows, -1.0, 1.0) * np.minimum(self.feature_bounds[: rows.shape[1]], 1.0))

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up records, and a learner for them."""
        bounds = self.feature_bounds[:WIDE]
        rows = rng.uniform(-1, 1, (RECORDS, len(bounds))) * np.array(bounds)
        columns = rows, rng.uniform(-1, 1, len(rows)) * self.target_bound
        says = f"{RECORDS} made-up records, {len(bounds)} feature{'s' * (len(bounds) > 1)}, one record deleted"
        own = "alpha", "intercept", "feature_bound", "target_bound"
        parts = (("features", len(self.feature_bounds), len(bounds)),)
        return SmallProblem(replace(self, feature_bounds=bounds).learner, columns, says, own, parts)

    def lines(self) -> list[Line]:
        """Return the plan line by line."""
        bounds = sorted(set(self.feature_bounds))
        shown = f"{bounds[0]:g}" if len(bounds) == 1 else f"{bounds[0]:g} to {bounds[-1]:g}"
        exact = "sums are exact: a record is subtracted without a trace, and no deletion trains anything again"
        return [
            Line("noise σ", "0", exact),
            Line("alpha", f"{self.alpha:g}", "weight of the penalty"),
            Line("intercept", "yes" if self.fit_intercept else "no", "whether there is one"),
            Line("feature_bound", shown, "the largest absolute value of a column"),
            Line("target_bound", f"{self.target_bound:g}", "the largest absolute value of a target"),
            Line("good for", f"up to {self.largest:,} records", "more could not be summed exactly"),
        ]

    def drawing(self) -> Drawing:
        """Return what a drawing of the plan needs to know."""
        return Drawing("sums", "everyone", "identity", 1, 1, 0, 1.0, noise=False)
