"""The plan of k-means from a keyed sample: all that is fixed before the records take part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from expunge.base.checking import check_positive, check_rho, is_number
from expunge.base.errors import BadPlan
from expunge.base.types import Array
from expunge.base.wording import are, counted
from expunge.solvers.keyed_sample import BOUND, CAP, GROUPS, MOST, SHARES, KeyedClusters, keyed_clusters
from expunge.solvers.plans.protocol import Line, SmallProblem
from expunge.solvers.plans.sampled import SampledPlan
from expunge.solvers.plans.sized import Remark, Standing, rounded_up
from expunge.solvers.plans.small import CLUSTERS, RECORDS
from expunge.solvers.sampled_clusters import SampledClusters


@dataclass(frozen=True)
class KeyedClusterPlan(SampledPlan):
    """Everything that is fixed before the records are seen.

    ``records`` is the number that was planned for, a power of two; ``rho`` the planned share of records in the sample,
    which is that of deletions that fit anew; ``seeds`` how many seeds there are at most; ``bound`` the largest number
    that a record may have; ``seed`` decides where k-means starts.
    """

    clusters: int
    features: int
    records: int
    rho: float
    seeds: int
    bound: float
    seed: int

    @cached_property
    def settings(self) -> KeyedClusters:
        """What the sample and its cells are made by."""
        return KeyedClusters(self.clusters, self.features, self.rho, self.seeds, self.bound, self.seed)

    @cached_property
    def structure(self) -> SampledClusters:
        """What is found in the sample, and what everyone adds."""
        return SampledClusters(self.settings)

    @property
    def outputs(self) -> int:
        """How many parameters a feature has: one for each centre."""
        return self.clusters

    def worst_case(self) -> float:
        """Return how likely the least favourable deletion is to fit anew: a far outlier's."""
        stays = 1.0 - min(MOST, self.rho * SHARES[0])
        for share in SHARES[1:]:
            stays *= 1.0 - min(MOST, self.rho * share * CAP)
        return 1.0 - stays

    def transcript_bytes(self, features: int, records: int) -> int:
        """Return the size of the structure, and of the sums of as many cells as may have members."""
        structure = self.structure
        cells = min(structure.most_rows, 2 * self.clusters * max(1, round(2 * self.rho * records)))
        return 8 * (structure.packed + cells * structure.width)

    def small_problem(self, rng: np.random.Generator) -> SmallProblem:
        """Return a few made-up points, and a learner with the plan's own settings for them."""
        clusters, rho = min(self.clusters, CLUSTERS), max(self.rho, 0.8)
        small = replace(self, clusters=clusters, features=1, records=8, rho=rho, seeds=min(self.seeds, 3))
        points = rng.permutation(np.linspace(-1.0, 1.0, RECORDS)) * rng.uniform(0.9, 1.0, RECORDS)
        points *= min(1.0, self.bound)
        says = f"{RECORDS} made-up points, {clusters} cluster{'s' * (clusters > 1)}, 1 feature, one point deleted"
        named = ("features", "clusters", "rho", "seeds")
        parts = tuple((name, getattr(self, name), getattr(small, name)) for name in named)
        return SmallProblem(small.learner, (points[:, None],), says, ("sample", "cells", "seed"), parts)

    def lines(self) -> list[Line]:
        """Return the plan line by line."""
        low, high = self.size_class
        return [
            Line("ρ", f"{self.rho:.3g}", "planned share of records in the sample, whose deletion fits it anew"),
            Line("clusters", f"{self.clusters:,}", "how many centres the model has"),
            Line("solver", "keyed_sample", "cells from a secret sample, exact sums of everyone in them"),
            Line("seeds", f"{self.seeds:,}", "how many seeds cells have at most"),
            Line("noise", "none", "who is in the sample follows from secret keys"),
            Line("bound", f"{self.bound:.4g}", "the largest number that a record may have"),
            Line("planned for", f"{self.records:,} records", "rounded up to a power of two"),
            Line("good for", f"{low:,} to {high:,} records", "beyond that, replan()"),
        ]

    # --- what the estimator asks ---

    @property
    def encoding(self) -> None:
        """Records are kept as they are."""

    @property
    def origin(self) -> float:
        """Where the records' coordinates are counted from."""
        return 0.0

    def doubts(self) -> Iterator[Remark]:
        """Give what to warn of before a fit: nothing."""
        yield from ()

    def clipped(self, X: Array) -> str | None:
        """Say if points do not count as they are: they all do, or are refused."""
        return None

    def clusters_of(self, model: Array) -> Array:
        """Return the centres of a model, one a row."""
        return model.reshape(self.clusters, self.features)

    @cached_property
    def untroubled(self) -> range:
        """With which numbers of records there is nothing to remark: enough for the clusters, too."""
        return range(max(self.clusters, self.size_class[0]), self.largest + 1)

    def remarks(self, before: Standing, now: Standing, deleted: int) -> Iterator[Remark]:
        """Give what to warn of after a request: also if too few records are left."""
        yield from super().remarks(before, now, deleted)
        yield from few_left(self.clusters, now.records, deleted)


def few_left(clusters: int, records: int, deleted: int) -> Iterator[Remark]:
    """Give what to say when too few records are left for the clusters."""
    if deleted and 0 < records < clusters <= records + deleted:
        yield (
            f"there {are(records)} now {counted(records, 'record')}, fewer than n_clusters={clusters}; some clusters "
            "are empty.",
            UserWarning,
        )


def make_keyed_cluster_plan(
    clusters: int,
    features: int,
    records: int,
    *,
    rho: float | Literal["auto"] = "auto",
    bound: float = BOUND,
    seeds: int = GROUPS,
    seed: int = 0,
) -> KeyedClusterPlan:
    """Fill in every default and check that the choices go together.

    >>> plan = make_keyed_cluster_plan(8, 10, 50_000)
    >>> plan.records, plan.rho, plan.seeds
    (65536, 0.015625, 256)
    """
    check_positive("n_clusters", clusters, whole=True)
    check_positive("seeds", seeds, whole=True)
    check_rho(rho)
    if not is_number(bound):
        raise BadPlan(f"bound={bound!r}: give the largest number that a record may have.")
    settings = keyed_clusters(int(clusters), features, records, rho, bound=float(bound), seed=seed)
    if seeds < settings.seeds:
        settings = replace(settings, seeds=int(seeds))
    if seeds > GROUPS:
        raise BadPlan(f"seeds={seeds}: give at most {GROUPS}.")
    return KeyedClusterPlan(
        settings.clusters, features, rounded_up(records), settings.rho, settings.seeds, settings.bound, seed
    )
