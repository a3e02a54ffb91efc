"""The plan of k-means: every hyper-parameter, frozen before the records take part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from expunge.accounting import FOREVER, least_rho, noise_for
from expunge.errors import BadPlan
from expunge.extents import Extent, declared_extent
from expunge.learner import Learner
from expunge.mechanisms import Identity
from expunge.planning import Sized, automatic_rho, check_one_of, check_positive, check_rho, rounded_up, size_class_of
from expunge.queries import ClusterMoments
from expunge.rules import Lloyd
from expunge.schedules import Everyone
from expunge.types import Array

ClusterCoupling = Literal["adaptive", "sequential"]

ROUNDS = 6
"""How many rounds there are, if the user does not say."""
EXPLORE = 3
"""How many of them explore, if there are as many after them."""
WEIGHT = 0.5
"""What stands beside a point to count it, as a share of the radius."""


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

    @cached_property
    def query(self) -> ClusterMoments:
        """What a record contributes."""
        return ClusterMoments(self.extent, self.centers, self.weight)

    @cached_property
    def learner(self) -> Learner:
        """What the engine runs."""
        query = self.query
        seeds = self.extent.draw(query.most_centers, np.random.default_rng(self.seed))
        rule = Lloyd(query.prepare((seeds,))[0], query, self.clusters, self.explore, self.sigma, self.seed)
        return Learner(Everyone(self.rounds), query, rule, Identity(), self.sigma, self.coupling, "last")

    def clusters_of(self, model: Array) -> Array:
        """Return the centres of a model, one a row, relative to the extent's."""
        return model.reshape(-1, len(self.extent.center))[: self.clusters]


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
