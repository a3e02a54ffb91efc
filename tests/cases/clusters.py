"""Small instances of k-means for `check_exact`, and mistakes that it must catch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cases.learners import Case
from cases.mistakes import Control, fresh_fit
from expunge import MemoryRecords, Transcript
from expunge.base.intake import Delete, Insert, Replace, Request
from expunge.base.types import Array
from expunge.engine.changing import change
from expunge.engine.contributions import Totals
from expunge.engine.couplings.common import OldPass
from expunge.engine.learner import Learner
from expunge.models import KMeans
from expunge.solvers import Lloyd
from expunge.solvers.lloyd import ClusterMoments, LloydRule
from expunge.solvers.plans.clusters import ClusterCoupling, make_cluster_plan

POINTS = np.array(
    [[0.9, 0.3], [-0.7, 0.6], [0.8, -0.5], [-0.3, -0.4], [-0.9, 0.2], [0.1, 0.2], [0.6, 0.7], [-0.2, -0.9]]
)
"""Six that are there and two that come; their norms differ by a factor of four."""
COUPLINGS: tuple[ClusterCoupling, ...] = ("adaptive", "sequential")


@dataclass(frozen=True, eq=False)
class Lively(LloydRule):
    """Lloyd's algorithm that takes few counts for 0: of so few points the path then depends on every answer."""

    DEAD: ClassVar[float] = 0.5


def learner(
    coupling: ClusterCoupling, rho: float = 0.8, features: int = 2, rounds: int = 4, seeds: int = 3, box: bool = False
) -> Learner:
    """Return a learner of 2 clusters: in 4 rounds it explores, merges, refines and averages."""
    region = {"low": [-1.0, -0.8][:features], "high": [0.9, 1.0][:features]} if box else {"radius": 1.0}
    plan = make_cluster_plan(
        2, features, 8, **region, rho=rho, rounds=rounds, seeds=seeds, coupling=coupling, seed=2
    )  # fmt: skip
    rule = plan.learner.rule
    assert isinstance(rule, LloydRule)
    lively = Lively(rule.seeds, rule.query, rule.clusters, rule.explore, rule.sigma, rule.seed)
    return replace(plan.learner, rule=lively)


OF_LLOYD = ("radius", "low", "high", "n_rounds", "n_seeds", "coupling", "records_per_subject")
"""The parameters that belong to the solver."""


def lloyd(n_clusters: int = 8, kind: type[KMeans] = KMeans, **given: Any) -> KMeans:
    """Return noisy k-means; parameters may be those of the model or of its solver."""
    own = {name: given.pop(name) for name in OF_LLOYD if name in given}
    return kind(n_clusters, **given, solver=Lloyd(**own))


def nested(**given: Any) -> dict[str, Any]:
    """Return parameters as `set_params` has them."""
    return {f"solver__{name}" if name in OF_LLOYD else name: value for name, value in given.items()}


REQUESTS: dict[str, tuple[Request, ...]] = {
    "deletion": (Delete([0]),),
    "bulk": (Delete([0, 2, 3]),),
    "insertion": (Insert((POINTS[6:7],)),),
    "replacement": (Replace((POINTS[6:7],), [4]),),
    "stream": (
        Delete([1]), Insert((POINTS[6:],)), Replace((POINTS[:1],), [3]), Delete([0, 6]), Insert((POINTS[1:2],)),
        Delete([5]),
    ),
}  # fmt: skip


def cluster_cases() -> list[Case]:
    """Return all problems."""
    found = []
    for coupling in COUPLINGS:
        for name, requests in REQUESTS.items():
            small, tested = learner(coupling, box=name == "insertion"), coupling == "adaptive" or name == "bulk"
            found.append(Case(f"k-means, {coupling}, {name}", small, requests, None, tested, (POINTS[:6],)))
    return found


# --- mistakes -------------------------------------------------------------------------------------------


def _count_stays(
    plan: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> tuple[MemoryRecords, Transcript]:
    """The point is taken out of the sums, but not out of the counts."""
    assert isinstance(request, Delete)
    assert isinstance(plan.query, ClusterMoments)
    gone = POINTS[request.ids, : plan.query.features]
    change(plan, records, transcript, request, rng).commit()
    sums, query, path = transcript.sums[:].copy(), plan.query, transcript.path
    for step in range(transcript.steps):
        seen = type(path)(transcript.start, transcript.iterates, step)
        for label in query.nearest(step, seen, query.prepare((gone,))[0]).tolist():
            sums[step].reshape(-1, query.features + 1)[label, -1] += query.weight
    transcript.sums.write(0, sums)
    return records, transcript


def _half(old: OldPass, shifts: Totals) -> Array:
    """A budget from half the norms."""
    assert shifts.norm_limit is not None
    return np.asarray((0.5 * shifts.norm_limit / old.sigma) ** 2)


def cluster_controls() -> list[Control]:
    """Return all mistakes."""
    smaller = [learner(coupling, 0.6, features=1, rounds=2, seeds=2) for coupling in COUPLINGS]
    one, by_row = (Case("one", each, REQUESTS["deletion"], columns=(POINTS[:6, :1],)) for each in smaller)
    return [
        Control("k-means, adaptive, a fresh fit when a replay fails", one, serve=fresh_fit, runs=3_000),
        Control("k-means, sequential, a fresh fit when a replay fails", by_row, serve=fresh_fit, runs=3_000),
        Control("k-means, the count of a deleted point stays", one, serve=_count_stays, runs=300),
        Control("k-means, a budget from half the norms", one, {"allowances": _half}, runs=300),
    ]
