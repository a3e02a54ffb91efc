"""Streams that are drawn before any request is served, and how often their requests replay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from expunge import (
    BinaryTree,
    DualAveragingRule,
    Gradient,
    Learner,
    MemoryRecords,
    insert,
    learn,
    unlearn,
)
from expunge.base.types import Array, Batch
from expunge.engine.accounting import FOREVER, noise_for
from expunge.engine.contributions import Query
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.schedules import Schedule
from expunge.engine.transcript import Path
from expunge.solvers.losses import Logistic

BATCH, FEATURES = 4, 10
INSERTIONS = 0.7
HORIZON = 2**20
"""How many steps the square root's noise is made for, where their number grows."""


# --- streams ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signs:
    """A query whose contributions are always at the bound, whatever the path: each record is its own."""

    size: int = 1
    bound: float = 1.0

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        return np.asarray(batch[0])


class Stream(NamedTuple):
    """Requests, drawn before any of them is served."""

    columns: Batch
    """All records that ever take part, in order of arrival; a record's id is its number."""
    start: int
    """How many of them are there at first."""
    requests: list[int | None]
    """The id to delete, or None to insert the next record."""

    @property
    def largest(self) -> int:
        """The largest number of records at any time."""
        moves = [1 if leaving is None else -1 for leaving in self.requests]
        return int(self.start + np.cumsum([0, *moves]).max())


def draw_stream(kind: str, start: int, requests: int, rng: np.random.Generator) -> Stream:
    """Draw a stream of one kind. It does not look at what becomes of its requests."""
    number = start + requests
    columns = _classes(number, rng) if kind == "typical" else (rng.choice([-1.0, 1.0], (number, 1)),)
    order, arrived = list(range(start)), start  # as they lie in order of arrival: the last fills the hole
    leaving: list[int | None] = []
    for _ in range(requests):
        if not order or rng.random() < INSERTIONS:
            order.append(arrived)
            arrived += 1
            leaving.append(None)
            continue
        at = _aim(columns[0][order, 0]) if kind == "aimed" else int(rng.integers(len(order)))
        leaving.append(order[at])
        order[at] = order[-1]
        order.pop()
    return Stream(columns, start, leaving)


def _aim(signs: Array) -> int:
    """Return the first position whose record differs from the last one."""
    return int(np.argmax(signs != signs[-1]))


def _classes(number: int, rng: np.random.Generator) -> Batch:
    """Return features of norm at most 1 and classes that a linear model can tell apart."""
    features = rng.normal(size=(number, FEATURES)) / math.sqrt(FEATURES)
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    best = np.full(FEATURES, 20.0 / math.sqrt(FEATURES))
    return features, np.where(rng.random(number) < special.expit(features @ best), 1.0, -1.0)


# --- learners -----------------------------------------------------------------------------------------


def learner_of(
    kind: str, schedule: Schedule, mechanism: Mechanism, rho: float, coupling: str, noise_of: str, largest: int
) -> Learner:
    """Return a learner with the noise that the coupling ``noise_of`` needs for ρ.

    The uniform tree's is for the largest number of records, that of the anytime shares for any, the square root's for
    `HORIZON` steps. (`Scattered` has a fixed number of steps, and noise for these.)
    """
    match mechanism:
        case BinaryTree(shares="uniform"):
            records = largest
        case BinaryTree():
            records = FOREVER
        case _:
            records = HORIZON * BATCH
    query: Query = Gradient(Logistic(), FEATURES) if kind == "typical" else Signs()
    sigma = noise_for(rho, schedule, mechanism, bound=query.bound, coupling=noise_of, records=records)
    rule = DualAveragingRule(np.zeros(query.size), 1.0 / math.sqrt(BATCH), anytime=1)
    return Learner(schedule, query, rule, mechanism, sigma, coupling)


# --- measurements -------------------------------------------------------------------------------------


@dataclass
class Counts:
    """What became of a stream's requests."""

    insertions: int = 0
    deletions: int = 0
    insertion_replays: int = 0
    deletion_replays: int = 0
    evaluations: int = 0
    most_by_insertion: int = 0
    """The largest number of evaluations that an insertion took."""
    expected: float = 0.0
    """The sum of the probabilities to replay; of the joint coupling only."""
    records: int = 0
    """How many there are in the end."""

    @property
    def requests(self) -> int:
        return self.insertions + self.deletions

    @property
    def replays(self) -> int:
        return self.insertion_replays + self.deletion_replays


def serve(learner: Learner, stream: Stream, rng: np.random.Generator) -> Counts:
    """Serve a stream's requests one by one."""
    records = MemoryRecords(tuple(column[: stream.start] for column in stream.columns))
    transcript = learn(learner, records, rng)
    counts, arrived = Counts(), stream.start
    for leaving in stream.requests:
        if leaving is None:
            entering = tuple(column[arrived : arrived + 1] for column in stream.columns)
            outcome = insert(learner, records, transcript, entering, rng=rng)
            arrived += 1
            counts.insertions += 1
            counts.insertion_replays += not outcome.kept
            counts.most_by_insertion = max(counts.most_by_insertion, outcome.evaluations)
        else:
            outcome = unlearn(learner, records, transcript, [leaving], rng=rng)
            counts.deletions += 1
            counts.deletion_replays += not outcome.kept
        counts.evaluations += outcome.evaluations
        counts.expected += outcome.replay_probability
    counts.records = records.count
    return counts
