"""Whom the attacks on digits are tried on: learners of all kinds, and a reference engine with and without a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from cases import ungridded
from cases.clusters import COUPLINGS, POINTS
from cases.clusters import learner as clusters
from cases.federated_stories import Case as Story
from cases.federated_stories import cases as stories
from cases.learners import ANYTIME, ROOT, TREE
from expunge import Delete, Everyone, Identity, Insert, Learner, MemoryRecords, Replace, Transcript
from expunge.base.intake import Request
from expunge.base.types import Array, Ints
from expunge.engine.changing import change
from expunge.engine.checks import _snapshot
from expunge.engine.learning import learn
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.transcript import ArrayRows, Path
from expunge.solvers.losses import Logistic
from expunge.solvers.plans.linear import make_plan

PEOPLE, COMMON, OWN, STEPS, RHO = 32, 4, 8, 16, 0.3
GONE = 0
"""Who is deleted: the only one with the last `OWN` columns."""


@dataclass(frozen=True)
class Seen:
    """What anyone can see who has the state: sums, answers, the noise that follows, iterates and the model."""

    sums: Array
    answers: Array
    noise: Array
    iterates: Array
    model: Array


@dataclass(frozen=True)
class Subject:
    """Two ways to a state: by learning and serving requests (which also says if all was kept), and by fresh learning.

    ``own`` are columns that are zero for all who are left.
    """

    name: str
    deleted: Callable[[np.random.Generator], tuple[Seen, bool]]
    fresh: Callable[[np.random.Generator], Seen]
    own: tuple[int, ...] = ()


def rows_of(people: int = PEOPLE, seed: int = 5) -> tuple[Array, Array]:
    """Return rows shorter than 1, of which the first alone has columns of its own, and labels."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((people, COMMON + OWN))
    rows[:, :COMMON] = rng.normal(size=(people, COMMON))
    rows[GONE] = rng.normal(size=COMMON + OWN)
    rows *= rng.uniform(0.7, 0.95, size=(people, 1)) / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, np.where(rng.random(people) < 0.5, -1.0, 1.0)


# --- the engine ----------------------------------------------------------------------------------------------


def seen_of(learner: Learner, transcript: Transcript) -> Seen:
    """Return what can be seen of a transcript."""
    sums, answers = transcript.sums[:].copy(), transcript.answers[:].copy()
    noise = answers - (np.cumsum(sums, axis=0) if learner.mechanism.prefix else sums)
    return Seen(sums, answers, noise, transcript.iterates[:].copy(), transcript.model(learner)[None].copy())


@dataclass(frozen=True, eq=False)
class Served:
    """Learning and serving requests, by the engine."""

    learner: Learner
    columns: tuple[Any, ...]
    requests: tuple[Request, ...] = (Delete([GONE]),)

    def _run(self, rng: np.random.Generator) -> tuple[MemoryRecords, Transcript, bool]:
        records = MemoryRecords(self.columns)
        transcript, kept = learn(self.learner, records, rng), True
        for request in self.requests:
            kept &= change(self.learner, records, transcript, request, rng).commit().kept
        return records, transcript, kept

    def deleted(self, rng: np.random.Generator) -> tuple[Seen, bool]:
        """Learn and serve."""
        _, transcript, kept = self._run(rng)
        return seen_of(self.learner, transcript), kept

    @cached_property
    def _left(self) -> Any:
        return _snapshot(self._run(np.random.default_rng(0))[0])

    def fresh(self, rng: np.random.Generator) -> Seen:
        """Learn on what is left."""
        records = MemoryRecords(self._left.columns, self._left.ids)
        return seen_of(self.learner, learn(self.learner, records, rng))

    def contribution(self, step: int, seen: Seen, row: Array, label: float) -> Array:
        """Return what a record would have contributed to a step, along the iterates."""
        path = Path(np.asarray(self.learner.rule.start, dtype=float), ArrayRows(seen.iterates), step)
        return self.learner.query.contributions(step, path, (row[None], np.array([label])))[0]


def planned(**choices: Any) -> Learner:
    """Return the learner of a logistic regression."""
    given: dict[str, Any] = {"rho": RHO, "steps": STEPS, "selector": "last", **choices}
    return make_plan(Logistic(), COMMON + OWN, PEOPLE, fit_intercept=False, **given).learner


def engine(name: str, learner: Learner, requests: tuple[Request, ...] = (Delete([GONE]),)) -> Subject:
    """Return a subject with columns of its own."""
    served = Served(learner, rows_of(), requests)
    return Subject(name, served.deleted, served.fresh, tuple(range(COMMON, COMMON + OWN)))


def _linear() -> list[Subject]:
    found = []
    for schedule in ("scattered", "shuffled", "arrival"):
        for noise, couplings in {
            "sqrt": ["joint"],
            "tree": ["joint", "sequential"],
            "anytime": ["joint", "sequential"],
        }.items():
            for coupling in couplings:
                learner = planned(schedule=schedule, mechanism=noise, coupling=coupling)
                found.append(engine(f"{schedule}, {noise}, {coupling}", learner))
    found.append(engine("scattered, sqrt, two epochs", planned(epochs=2, steps=8)))
    found.append(engine("Frank-Wolfe", planned(solver="frank_wolfe")))
    plain = planned()
    mechanisms: dict[str, Mechanism] = {"sqrt": ROOT, "tree": TREE, "anytime": ANYTIME}
    for noise, mechanism in mechanisms.items():
        found.append(engine(f"everyone, {noise}, joint", replace(plain, schedule=Everyone(4), mechanism=mechanism)))
    return found


def _descents() -> list[Subject]:
    found = []
    for rate in (1.0, 0.5):
        for coupling in ("adaptive", "sequential"):
            learner = planned(solver="gradient_descent", coupling=coupling, rate=rate, steps=4)
            found.append(engine(f"gradient descent, rate {rate:g}, {coupling}", learner))
    plain = planned(solver="gradient_descent", steps=4)
    return [*found, engine("gradient descent, joint", replace(plain, coupling="joint", mechanism=Identity()))]


def _requests() -> list[Subject]:
    rows, labels = rows_of(40, seed=6)
    more = rows[1:3], labels[1:3]
    learner = planned()
    return [
        engine("bulk of four", learner, (Delete([GONE, 3, 4, 9]),)),
        engine("deletion and insertion", learner, (Delete([GONE]), Insert(more))),
        engine("replacement", learner, (Replace((rows[3:4], labels[3:4]), [GONE]),)),
        engine("stream of five", learner, (Delete([GONE]), Insert(more), Delete([5, 6]), Insert(more), Delete([32]))),
    ]


def _clusters() -> list[Subject]:
    found = []
    for coupling in COUPLINGS:
        served = Served(clusters(coupling), (POINTS[:6],))
        found.append(Subject(f"k-means, {coupling}", served.deleted, served.fresh))
    return found


def _federations() -> list[Subject]:
    def subject(story: Story) -> Subject:
        def see(federation: Any) -> Seen:
            return seen_of(federation.learner, federation.transcript)

        return Subject(
            f"federation, {story.name}", lambda rng: (see(story.run(rng)), False), lambda rng: see(story.fresh(rng))
        )

    wanted = ("leave", "leave, half of the rounds", "two leave in turn", "join")
    return [subject(replace(story, rho=0.4)) for story in stories() if story.name in wanted]


# --- the reference ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bare:
    """Learning and deleting, by the reference engine, with or without a grid."""

    problem: ungridded.Problem

    @property
    def _everyone(self) -> Ints:
        return np.arange(len(self.problem.rows))

    def deleted(self, rng: np.random.Generator) -> tuple[Seen, bool]:
        """Learn and delete."""
        state = ungridded.learn(self.problem, self._everyone, rng)
        after, kept = ungridded.delete(self.problem, state, GONE, rng)
        return self._seen(after), kept

    def fresh(self, rng: np.random.Generator) -> Seen:
        """Learn without the record."""
        people = self._everyone
        return self._seen(ungridded.learn(self.problem, people[people != GONE], rng))

    def _seen(self, state: ungridded.State) -> Seen:
        return Seen(state.sums, state.answers, state.noise(self.problem), state.iterates, state.iterates[-1:])

    def contribution(self, step: int, seen: Seen, row: Array, label: float) -> Array:
        """Return what a record would have contributed to a step, along the iterates."""
        w = seen.iterates[step - 1] if step else np.zeros(len(row))
        alone = replace(self.problem, rows=row[None], labels=np.array([label]))
        return alone.total(np.array([0]), w)


def bare(noise: ungridded.Noise, rounding: ungridded.Rounding, columns: tuple[Array, Array] | None = None) -> Bare:
    """Return the problem of the logistic regression for the reference engine."""
    steps = 4 if noise == "identity" else STEPS
    return Bare(ungridded.Problem(*(columns or rows_of()), steps, noise, planned().sigma, 1.0, rounding))


def _bare(rounding: ungridded.Rounding, name: str = "") -> list[Subject]:
    kinds: Sequence[ungridded.Noise] = ("root", "tree", "identity")
    found = []
    for noise in kinds:
        one = bare(noise, rounding)
        found.append(Subject(f"{name}{noise}", one.deleted, one.fresh, tuple(range(COMMON, COMMON + OWN))))
    return found


class Rankable(Protocol):
    """One whose kept deletions are looked at, with candidates for who was deleted."""

    def deleted(self, rng: np.random.Generator) -> tuple[Seen, bool]:
        """Learn and delete."""

    def contribution(self, step: int, seen: Seen, row: Array, label: float) -> Array:
        """Return what a record would have contributed to a step, along the iterates."""


def subjects() -> list[Subject]:
    """Return all learners whose digits must tell nothing."""
    return [
        *_linear(),
        *_descents(),
        *_requests(),
        *_clusters(),
        *_federations(),
        *_bare("always", "reference on a grid, "),
    ]


def controls() -> dict[str, list[Subject]]:
    """Return those whose digits must tell something, by what is wrong with them."""
    return {"without a grid": _bare("never"), "rounds when learning": _bare("learning")}
