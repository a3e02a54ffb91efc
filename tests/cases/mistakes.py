"""Plausible mistakes, each in the real engine: `check_exact` must catch every one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cases.learners import ALIGNED, ONE, ROOT, TREE, Case, Switch, descent, learner
from cases.patching import patched_everywhere
from expunge import Everyone, GradientDescentRule, Identity, MemoryRecords, Scattered, Shuffled, Transcript, learn
from expunge.base.intake import Delete, Request
from expunge.base.types import Array, Batch, Draws, Ints
from expunge.engine.changing import change
from expunge.engine.checks import Serve, serve_and_commit
from expunge.engine.contributions import Totals
from expunge.engine.couplings import adaptive, joint
from expunge.engine.couplings.common import KEPT, OldPass, Toss, keep_or_jump, keeps, replay_probability
from expunge.engine.learner import Learner
from expunge.engine.schedules import Assignment
from expunge.solvers.gradient_descent import GridGradient
from expunge.solvers.losses import Hinge


@dataclass(frozen=True)
class Control:
    """A mistake, and a problem on which it shows; without the mistake that is its twin, which must pass."""

    name: str
    case: Case
    patches: dict[str, Any] = field(default_factory=dict)
    serve: Serve = serve_and_commit
    runs: int = 2_000
    """How many runs, in a test, show it for certain."""
    mistaken: Learner | None = None
    """The learner with the mistake, where that is part of the learner."""

    @property
    def wrong(self) -> Case:
        """The problem, with the mistake."""
        return self.case if self.mistaken is None else replace(self.case, learner=self.mistaken)

    @contextmanager
    def mistake(self) -> Iterator[None]:
        """Make the mistake for a while."""
        with ExitStack() as stack:
            for name, wrong in self.patches.items():
                stack.enter_context(patched_everywhere(name, wrong))
            yield


def always_keep(shift: float, projection: float, coins: Draws) -> Toss:
    return KEPT


def _inverted(shift: float, projection: float, coins: Draws) -> Toss:
    if shift == 0.0 or keeps(shift, shift - projection, coins):
        return KEPT
    return Toss(False, float(round(2.0 * projection / shift)))


def _translated(shift: float, projection: float, coins: Draws) -> Toss:
    return KEPT if shift == 0.0 or keeps(shift, projection, coins) else Toss(False, 2.0)


def _retry(
    plan: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> tuple[MemoryRecords, Transcript]:
    """A replay crashes once; the request is tried again with new coins."""
    decided = change(plan, records, transcript, request, rng)
    if not decided.outcome.kept:
        decided.rollback()
        decided = change(plan, records, transcript, request, rng)
    decided.commit()
    return records, transcript


def fresh_fit(
    plan: Learner, records: MemoryRecords, transcript: Transcript, request: Request, rng: np.random.Generator
) -> tuple[MemoryRecords, Transcript]:
    """A replay fails; the model is fitted afresh to the records that are left, where they lie."""
    decided = change(plan, records, transcript, request, rng)
    kept = decided.outcome.kept
    decided.commit()
    return records, transcript if kept else learn(plan, records, rng, arranged=True)


class _OneCoin(joint._JointNoise):
    """No more coins once a replay has begun."""

    def wants_shift(self, step: int) -> bool:
        return False


class _Peeking(joint._Coins):
    """Coins that look at the last row of an ordered schedule, whose noise then stays as it is."""

    def toss(self, step: int, shift: Array) -> tuple[Toss, float]:
        old = self.old
        column = old.mechanism.column(step, old.horizon + 1)
        distance = math.sqrt(shift @ shift) * column.norm / old.sigma
        if distance == 0.0:
            return KEPT, 0.0
        seen = old.mechanism.pull(step, old.horizon + 1) @ old.noise(old.horizon + 1)
        decision = keep_or_jump(distance, float(seen @ shift) / (old.sigma**2 * distance), old.coins)
        return decision, replay_probability(distance)


def _observed(old: OldPass, shifts: Totals) -> Array:
    """A budget chosen from the shifts that were seen."""
    return np.asarray(np.einsum("ij,ij->i", shifts.sums, shifts.sums) / old.sigma**2)


class _Half(GridGradient):
    """Norms of half the true size: the rows take up more than the budget."""

    def norms(self, batch: Batch) -> Array:
        return 0.5 * super().norms(batch)


class _BeforeRounding(GridGradient):
    """Norms of the slopes before they are rounded, which may make them longer."""

    @property
    def _longest_slopes(self) -> float:
        return self._steepest_kept


class _Unbridged(adaptive._BridgedNoise):
    """After an adaptive replay all rows are drawn afresh, whatever was due."""

    def row(self, step: int, shift: Array | None) -> Array:
        return super().row(step, None)


@dataclass(frozen=True)
class _Remembering(Scattered):
    """Records lie in order of arrival at first, and holes are filled from the end: the order tells who left."""

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        places = rng.integers(self.places, size=count)
        return Assignment(np.argsort(places, kind="stable"), np.bincount(places, minlength=self.places), None)


def controls() -> list[Control]:
    """Return all mistakes."""
    scattered = Case("scattered", learner(Scattered(2), ROOT, sigma=1.0), ONE, columns=(ALIGNED,))
    bulk = Case("bulk", learner(Scattered(2), TREE, sigma=1.2), (Delete([0, 1, 2, 3]),), columns=(ALIGNED,))
    epochs = Case("epochs", learner(Scattered(1, epochs=2), TREE, sigma=1.5), (Delete([0, 1]),), columns=(ALIGNED,))
    five = learner(Shuffled(1), TREE, sigma=1.0)  # the fourth row, the last after a deletion, sees all steps
    shuffled = Case("shuffled", five, (Delete([4]),), columns=(ALIGNED[:5],))
    rule = GradientDescentRule(np.zeros(2), 0.5)
    switched = Learner(Everyone(4), Switch(), rule, Identity(), 1.0, "adaptive")
    everyone = Case("everyone", switched, (Delete([0]),), columns=(ALIGNED,))
    columns = ALIGNED / 2.0, np.array([1.0, 1.0, 1.0, 1.0, -1.0, -1.0])
    asked = (Delete([0, 3]),)
    kinked: dict[str, Any] = {"loss": Hinge()}
    descending = Case("descent", descent(1.0, "adaptive", 4, 1.0), asked, columns=columns)
    bridged = Case("bridged", descent(1.0, "adaptive", 2, 1.2, **kinked), asked, columns=columns)
    halved = descent(1.0, "adaptive", 2, 1.2, query=_Half(**kinked, size=2))
    rough: dict[str, Any] = {**kinked, "bits": 1, "clip": 0.76}
    rounded = Case("rounded", descent(1.0, "adaptive", 2, 1.0, **rough), asked, columns=columns)
    unrounded = descent(1.0, "adaptive", 2, 1.0, query=_BeforeRounding(**rough, size=2))
    order = Case("order", learner(Scattered(2), ROOT), (Delete([0, 1]),))
    return [
        Control("no coupling", scattered, {"keep_or_jump": always_keep}),
        Control("inverted ratio", scattered, {"keep_or_jump": _inverted}),
        Control("a translation instead of a jump", scattered, {"keep_or_jump": _translated}),
        Control("coins redrawn on retry", scattered, serve=_retry, runs=8_000),
        Control("a fresh fit when a replay fails", scattered, serve=fresh_fit, runs=4_000),
        Control("a budget from the observed shifts of a descent", descending, {"allowances": _observed}, runs=2_500),
        Control("norms of half the size", bridged, mistaken=halved, runs=2_500),
        Control("norms taken before rounding", rounded, mistaken=unrounded, runs=2_500),
        Control("an adaptive replay without the bridge", bridged, {"_BridgedNoise": _Unbridged}, runs=2_500),
        Control("no more coins after the first replay of a bulk", bulk, {"_JointNoise": _OneCoin}, runs=4_000),
        Control("no more coins after the first replay of an epoch", epochs, {"_JointNoise": _OneCoin}),
        Control("a coin that looks at the last row and leaves its noise", shuffled, {"_Coins": _Peeking}, runs=8_000),
        Control("a coupling chosen from the observed shift", everyone, {"allowances": _observed}),
        Control("a schedule that remembers the order of deletion", order, mistaken=learner(_Remembering(2), ROOT)),
    ]
