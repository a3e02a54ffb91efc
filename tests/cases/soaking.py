"""A long life of a model: mixed requests without end, and what it holds beside what its live records need."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from expunge import LogisticRegression
from expunge.base.errors import SizeWarning
from expunge.base.intake import Delete, Insert, Request
from expunge.engine.outcome import Outcome
from expunge.engine.streams import apply
from expunge.solvers import DualAveraging

FEATURES, INSERTIONS, SHRINKING = 20, 0.7, 5
LEAST, MOST = 1_000, 200_000
SLICE = 2_000
"""How many requests are served between two looks at the memory."""


class Life:
    """Requests without end: who is there, who comes back, and whether the model is to grow or to shrink."""

    def __init__(self, seed: int, least: int, most: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.live: list[int] = []
        self.gone: list[int] = []
        self.next, self.least, self.most = 0, least, most
        self.growing = True
        self.truth = self.rng.normal(size=FEATURES)

    def rows(self, number: int) -> tuple[Any, Any]:
        X = self.rng.normal(size=(number, FEATURES)) / math.sqrt(FEATURES)
        return X, (X @ self.truth + 0.1 * self.rng.normal(size=number) > 0).astype(int)

    def requests(self, number: int) -> Iterator[Request]:
        for _ in range(number):
            self.growing = len(self.live) < self.most if self.growing else len(self.live) <= self.least
            if self.rng.random() < INSERTIONS or not self.live:
                yield Insert(self.rows(1), ids=[self.enter()])
            else:
                yield Delete([self.leave() for _ in range(self.leaving())])

    def enter(self) -> int:
        if self.gone and self.rng.random() < 0.05:
            one = self.gone.pop()
        else:
            one, self.next = self.next, self.next + 1
        self.live.append(one)
        return one

    def leaving(self) -> int:
        wanted = 1 if self.growing else 1 + int(self.rng.integers(2 * SHRINKING - 1))
        return min(wanted, len(self.live))

    def leave(self) -> int:
        position = int(self.rng.integers(len(self.live)))
        one, self.live[position] = self.live[position], self.live[-1]
        self.live.pop()
        self.gone = [*self.gone[-99:], one]
        return one


@dataclass
class Soak:
    """What a long life was like."""

    schedule: str
    requests: int = 0
    inserted: int = 0
    deleted: int = 0
    bulks: int = 0
    replays: int = 0
    insertion_replays: int = 0
    plans: int = 1
    seconds: float = 0.0
    smallest: int = 10**9
    largest: int = 0
    sizes: list[int] = field(default_factory=list)
    kept_bytes: list[int] = field(default_factory=list)
    """All that the model holds: records, what finds them, and the transcript."""
    needed_bytes: list[int] = field(default_factory=list)
    """What the live records and the transcript's numbers take, without any room to spare."""
    process_bytes: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def largest_share(self) -> float:
        """How much more than needed was held at most."""
        return max(kept / needed for kept, needed in zip(self.kept_bytes, self.needed_bytes, strict=True))


def process_memory() -> int:
    """Return the process's resident memory, where the system tells it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def model_memory(model: LogisticRegression) -> tuple[int, int]:
    """Return (bytes held, bytes needed) by records, index and transcript."""
    kept = model.transcript_
    tables = sum(np.asarray(table).nbytes for table in (kept.sums, kept.answers, kept.iterates))
    sizes = model._records.nbytes()
    record = 8 * (FEATURES + 1 + 1) + 2 * 16  # features, target and id; two cells of the index
    return sum(sizes.values()) + tables, model.n_records_ * record + tables


def soak(
    schedule: str, requests: int, *, bulk: int = 100, seed: int = 0, rho: float = 0.1, least: int = LEAST,
    most: int = MOST, progress: bool = False,
) -> tuple[Soak, LogisticRegression]:  # fmt: skip
    """Let a model live through many requests, and verify it at the end."""
    life, found = Life(seed, least, most), Soak(schedule)
    model = LogisticRegression(
        classes=[0, 1], rho=rho, expected_records=8 * least,
        solver=DualAveraging(schedule=schedule),  # type: ignore[arg-type]
    )  # fmt: skip
    X, y = life.rows(least)
    model.partial_fit(X, y, ids=[life.enter() for _ in range(least)])

    def watch(outcome: Outcome) -> None:
        found.replays += not outcome.kept
        found.insertion_replays += bool(outcome.added) and not outcome.kept
        found.smallest = min(found.smallest, model.n_records_)
        found.largest = max(found.largest, model.n_records_)

    began = time.perf_counter()
    while found.requests < requests:
        number = min(SLICE, requests - found.requests)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", SizeWarning)
            applied = apply(model, life.requests(number), bulk=bulk, watch=watch)
        if said and not model.plan_.covers(model.n_records_):  # depends on the number of records only
            model.replan()
            found.plans += 1
        found.requests += applied.requests
        found.inserted += applied.inserted
        found.deleted += applied.deleted
        found.bulks += applied.bulks
        held, needed = model_memory(model)
        found.sizes.append(model.n_records_)
        found.kept_bytes.append(held)
        found.needed_bytes.append(needed)
        found.process_bytes.append(process_memory())
        if progress:
            rate = found.requests / (time.perf_counter() - began)
            print(
                f"\r{schedule}: {found.requests:,} requests, {model.n_records_:,} records, {rate:,.0f} a second ",
                end="", flush=True,
            )  # fmt: skip
    found.seconds = time.perf_counter() - began
    if progress:
        print()
    found.problems = list(model.verify().problems)
    if sorted(model._records.all_ids().tolist()) != sorted(life.live):
        found.problems.append("ids: those that should be there are not those that are")
    return found, model
