"""The plan of k-means: every hyper-parameter, frozen before the records take part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from expunge.base.checking import check_one_of, check_positive, check_rho
from expunge.base.errors import BadPlan, NoiseWarning
from expunge.base.types import Array
from expunge.engine.accounting import FOREVER, least_rho, noise_for, worst_case_rho
from expunge.engine.learner import Learner
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.schedules import Everyone
from expunge.solvers.extents import NARROW, Extent, declared_extent
from expunge.solvers.lloyd import ClusterMoments, LloydRule
from expunge.solvers.plans.keyed_clusters import few_left
from expunge.solvers.plans.lines import COUPLINGS, MECHANISMS, SCHEDULES, noise_lines
from expunge.solvers.plans.protocol import Drawing, Line, Size, SmallProblem
from expunge.solvers.plans.sized import Remark, Sized, Standing, automatic_rho, rounded_up, size_class_of
from expunge.solvers.plans.small import CLUSTERS, LIVELY, POINTS, RECORDS, STEPS

ClusterCoupling = Literal["adaptive", "sequential"]

ROUNDS = 6
"""How many rounds there are, if the user does not say."""
EXPLORE = 3
"""How many of them explore, if there are as many after them."""
WEIGHT = 0.5
"""The number that is added to a point to count it, as a share of the radius."""
HOPELESS = 0.03
"""How far off noise may put a centre, as a share of the region's radius, before a fit warns of it."""


@dataclass(frozen=True, eq=False)
class ClusterPlan(Sized):
    """Everything that is fixed before the records are seen.

    ``records`` is the number that was planned for, a power of two; ``centers`` how many centres each round has;
    ``explore`` how many rounds there are before centres are merged; ``weight`` what stands beside a point to count it;
    ``bound`` the largest norm of a contribution; ``sigma`` the standard deviation of the noise; ``seed`` decides where
    the first centres lie.
    """

    clusters: int
    extent: Extent
    records: int
    rho: float
    sigma: float
    bound: float
    centers: tuple[int, ...]
    explore: int
    weight: float
    coupling: ClusterCoupling
    records_per_subject: int
    seed: int

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.centers)

    @property
    def parameters(self) -> int:
        """How many numbers a round's sums have."""
        return max(self.centers) * (len(self.extent.center) + 1)

    @property
    def numbers(self) -> int:
        """How many numbers a sum has."""
        return self.parameters

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""
        return self.rounds

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many records the plan is good for: a quarter of those planned for, and four times."""
        return size_class_of(self.records)

    @property
    def largest(self) -> int:
        """Up to how many records all of it holds."""
        return self.size_class[1]

    @property
    def horizon(self) -> int:
        """Up to how many records ρ holds: any number."""
        return FOREVER

    @property
    def error(self) -> float:
        """How far off noise puts a centre in the last round, if all clusters are equally large."""
        return self.sigma * math.sqrt(len(self.extent.center)) * self.clusters / self.records

    @property
    def hopeless(self) -> bool:
        """Whether that is so far that little will come of it."""
        return self.error > HOPELESS * self.extent.radius

    @property
    def epochs(self) -> int:
        """How often a fit goes through the records, apart from rounds."""
        return 1

    @property
    def outputs(self) -> int:
        """How many parameters a feature has: one for each centre."""
        return max(self.centers)

    @property
    def everyone(self) -> bool:
        """Whether every record takes part in every round: yes."""
        return True

    @property
    def exact_to(self) -> int:
        """How many records can be summed exactly."""
        return self.query.exact_to

    @property
    def steps_alike(self) -> bool:
        """Whether one round is like another: some explore, others refine."""
        return False

    @property
    def per_column(self) -> tuple[str, ...]:
        """Which parameters of the model may be given column by column."""
        return "solver__low", "solver__high"

    def flaw(self) -> str | None:
        """Say if there is nothing to begin with."""
        return None if self.centers and self.extent.center.ndim == 1 else "it has no centers"

    def size_for(self, records: int) -> Size:
        """Return the size of a problem as planned."""
        return Size(records, self.rounds)

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to replay."""
        return worst_case_rho(
            self.sigma, Everyone(self.rounds), Identity(), bound=self.bound, coupling=self.coupling,
            records=self.horizon, records_per_subject=self.records_per_subject, size=self.parameters,
        )  # fmt: skip

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of sums, answers (if there is noise) and centres."""
        tables = 1 if self.sigma == 0.0 else 2
        return 8 * self.rounds * max(self.centers) * (tables * (features + 1) + features)

    def row_bytes(self, features: int, bits: int) -> int:
        """Return the size of a record: its features, and a number as id."""
        return features * bits // 8 + 8

    def small_parameters(self, size: Size, columns: int, epochs: int, rho: float) -> dict[str, Any]:
        """Return the parameters in which the model of a small problem differs, apart from those of columns."""
        return {
            "rho": rho, "expected_records": size.records, "solver__records_per_subject": 1,
            "solver__n_rounds": size.steps,
            "random_state": None,
        }  # fmt: skip

    def region(self, columns: int) -> Extent:
        """Return where the first columns of a point lie."""
        widths = self.extent.half_widths
        return replace(
            self.extent, center=self.extent.center[:columns], half_widths=None if widths is None else widths[:columns]
        )

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up points, and a learner with the plan's own settings for them."""
        return _small_clusters(self, rng)

    def lines(self) -> list[Line]:
        """Return the plan line by line."""
        return [
            *noise_lines(self),
            Line("clusters", f"{self.clusters:,}", "how many centres the model has"),
            Line("rounds", f"{self.rounds:,}", f"of which {self.explore:,} explore, before centres are merged"),
            Line("schedule", "everyone", SCHEDULES["everyone"]),
            Line("mechanism", "identity", MECHANISMS["identity"]),
            Line("coupling", self.coupling, COUPLINGS[self.coupling]),
            Line("region", str(self.extent), "the region of the points, as declared"),
            Line("bound", f"{self.bound:.4g}", "the largest norm of one point's contribution"),
        ]

    def drawing(self) -> Drawing:
        """Return what a drawing of the plan needs to know."""
        return Drawing("rounds", "everyone", "identity", self.rounds, 1, self.records, 1.0, self.sigma > 0.0)

    def advice(self) -> tuple[str, ...]:
        """Say if noise puts centres far off."""
        if not self.hopeless:
            return ()
        return (
            f"Noise shifts a centre by about {self.error / self.extent.radius:.0%} of the region's radius: declare a "
            "smaller region, or use a larger rho or fewer clusters.",
        )

    @cached_property
    def query(self) -> ClusterMoments:
        """What a record contributes."""
        return ClusterMoments(self.extent, self.centers, self.weight)

    @cached_property
    def learner(self) -> Learner:
        """What the engine runs."""
        return Learner(Everyone(self.rounds), self.query, self.rule, Identity(), self.sigma, self.coupling, "last")

    @cached_property
    def rule(self) -> LloydRule:
        """How answers become centres."""
        query = self.query
        seeds = self.extent.draw(query.most_centers, np.random.default_rng(self.seed))
        return LloydRule(query.prepare((seeds,))[0], query, self.clusters, self.explore, self.sigma, self.seed)

    def clusters_of(self, model: Array) -> Array:
        """Return the centres of a model, one a row, relative to the extent's."""
        return model.reshape(-1, len(self.extent.center))[: self.clusters]

    @cached_property
    def untroubled(self) -> range:
        """With which numbers of records there is nothing to remark: enough for the clusters, too."""
        return range(max(self.clusters, self.size_class[0]), self.largest + 1)

    def remarks(self, before: Standing, now: Standing, deleted: int) -> Iterator[Remark]:
        """Give what to warn of after a request: also if too few records are left."""
        yield from super().remarks(before, now, deleted)
        yield from few_left(self.clusters, now.records, deleted)

    # --- what the estimator asks ---

    @property
    def encoding(self) -> Extent:
        """What the records' coordinates were made by."""
        return self.extent

    @property
    def origin(self) -> Array:
        """Where the records' coordinates are counted from."""
        return self.extent.center

    def doubts(self) -> Iterator[Remark]:
        """Give what to warn of before a fit: if, from what was declared, little will come of it."""
        if self.hopeless:
            yield (
                f"noise shifts a centre by about {self.error:.3g} if clusters are equally large, "
                f"{self.error / self.extent.radius:.0%} of the region's radius. Declare a smaller region, or use a "
                "larger rho, fewer n_rounds or n_clusters, or more records.",
                NoiseWarning,
            )
        narrow = self.extent.narrow()
        if len(narrow):
            yield (
                f"low, high: column {narrow[0]} has hardly any effect, since others are more than {NARROW} times as "
                "wide. Scale columns to similar ranges.",
                UserWarning,
            )

    def clipped(self, X: Array) -> str | None:
        """Say if points do not count as they are, since they are outside the region."""
        outside = self.extent.outside(X)
        if not outside:
            return None
        return (
            f"X: {outside:,} of {len(X):,} points are outside {self.extent}; they count as the nearest point inside. "
            "Declare a larger region if it is known to be larger, but not because of these records."
        )


def automatic_seeds(clusters: int) -> int:
    """Return with how many centres to explore: several for each cluster, but merging must not take too long.

    >>> automatic_seeds(8), automatic_seeds(1000)
    (48, 1400)
    """
    return clusters + min(3 * clusters + 16, 400)


def make_cluster_plan(
    clusters: int,
    features: int,
    records: int,
    radius: Any = None,
    low: Any = None,
    high: Any = None,
    *,
    rho: float | Literal["auto"] = "auto",
    rounds: int | None = None,
    seeds: int | None = None,
    coupling: ClusterCoupling = "adaptive",
    records_per_subject: int = 1,
    seed: int = 0,
) -> ClusterPlan:
    """Fill in every default and check that the choices go together.

    >>> plan = make_cluster_plan(8, 10, 50_000, radius=1.0, rho=0.05)
    >>> plan.records, plan.rounds, plan.centers[0], plan.centers[-1], round(plan.sigma, 1)
    (65536, 6, 48, 8, 21.8)
    """
    check_positive("n_clusters", clusters, whole=True)
    check_positive("records_per_subject", records_per_subject, whole=True)
    check_rho(rho)
    check_one_of("coupling", coupling, ClusterCoupling)
    extent = declared_extent(features, radius, low, high)
    if rounds is None:
        rounds = ROUNDS
    check_positive("n_rounds", rounds, whole=True)
    if rounds < 2:
        raise BadPlan(f"n_rounds={rounds}: give at least 2, one to explore and one to refine.")
    if seeds is None:
        seeds = automatic_seeds(clusters)
    check_positive("n_seeds", seeds, whole=True)
    if seeds < clusters:
        raise BadPlan(f"n_seeds={seeds}: give at least n_clusters={clusters}, better several times as many.")
    explore = min(EXPLORE, (rounds + 1) // 2)
    centers = (int(seeds),) * explore + (int(clusters),) * (rounds - explore)
    n = rounded_up(records)
    query = ClusterMoments(extent, centers, WEIGHT * extent.radius)
    if rho == "auto":
        least = least_rho(Everyone(rounds), Identity(), size=query.size, coupling=coupling)
        rho = max(least, automatic_rho(n, query.size, records_per_subject))
    wanted = float(rho)
    sigma = noise_for(
        wanted, Everyone(rounds), Identity(), bound=query.bound, coupling=coupling,
        records_per_subject=records_per_subject, size=query.size,
    )  # fmt: skip
    return ClusterPlan(
        int(clusters), extent, n, wanted, sigma, query.bound, centers, explore, query.weight, coupling,
        records_per_subject, seed,
    )  # fmt: skip


def _small_clusters(plan: ClusterPlan, rng: np.random.Generator) -> SmallProblem:
    """Return a small problem for the plan of k-means."""
    extent = plan.extent
    region: dict[str, Any] = {"radius": extent.radius}
    farthest = extent.radius
    if extent.half_widths is not None:
        farthest = float(extent.half_widths[0])
        region = {"low": -farthest, "high": farthest}
    small = make_cluster_plan(
        min(plan.clusters, CLUSTERS), 1, 8, **region, rho=plan.rho, rounds=min(plan.rounds, STEPS), seeds=CLUSTERS,
        coupling=plan.coupling, seed=plan.seed,
    )  # fmt: skip
    sigma = min(small.sigma, small.bound)
    rule = replace(small.rule, sigma=sigma / LIVELY)
    parts = (
        ("records", plan.records, RECORDS),
        ("features", len(extent.center), 1),
        ("clusters", plan.clusters, small.clusters),
        ("centres to explore with", max(plan.centers), max(small.centers)),
        ("rounds", plan.rounds, small.rounds),
        ("noise σ, in contributions of a record", plan.sigma / plan.bound, sigma / small.bound),
    )
    says = (
        f"{RECORDS} made-up points, {small.clusters} cluster{'s' * (small.clusters > 1)}, 1 feature, "
        f"{small.rounds} rounds, one point deleted"
    )
    points = rng.choice([-1.0, 1.0]) * POINTS * rng.uniform(0.9, 1.0, RECORDS)
    own = "schedule", "mechanism", "coupling", "seed", "region"
    learner = replace(small.learner, sigma=sigma, rule=rule)
    return SmallProblem(learner, (farthest * points[:, None],), says, own, parts)
