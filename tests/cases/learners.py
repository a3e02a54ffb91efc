"""Small problems on which exactness is shown, used by the tests (few runs) and the benchmark (many)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from expunge import (
    Arrival,
    BinaryTree,
    Delete,
    DualAveragingRule,
    Everyone,
    GradientDescentRule,
    Identity,
    Insert,
    Learner,
    Replace,
    Scattered,
    Shuffled,
    SquareRoot,
)
from expunge.base.intake import Request
from expunge.base.types import Array, Batch
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.schedules import Schedule
from expunge.engine.transcript import Path
from expunge.solvers.gradient_descent import GridGradient
from expunge.solvers.losses import Logistic, Loss


@dataclass(frozen=True)
class Swirl:
    """A query that depends on the path through and through, and is far from linear."""

    size: int = 2
    bound: float = 2**0.5

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        return np.tanh(1.5 * batch[0] - path[-1][::-1])


@dataclass(frozen=True)
class Switch:
    """A query whose contributions are switched on and off by the path, so that their size tells of the noise."""

    size: int = 2
    bound: float = 2.0

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        return np.asarray(batch[0] * expit(6.0 * path[-1][0]))


DATA = np.random.default_rng(7).normal(size=(8, 2))
PEOPLE = DATA[:6]
NEWCOMERS = DATA[6:]
ALIGNED = 1.3 * np.array([[1.0, 0.2], [1.0, -0.2], [0.9, 0.0], [1.0, 0.1], [-1.0, 0.1], [-0.9, -0.1]])


@dataclass(frozen=True)
class Case:
    """One problem: a learner, and the requests to serve."""

    name: str
    learner: Learner
    requests: tuple[Request, ...]
    subjects: Any = None
    in_tests: bool = False
    columns: tuple[Array, ...] = field(default=(PEOPLE,))


def learner(
    schedule: Schedule, mechanism: Mechanism, coupling: str = "joint", sigma: float = 1.5, **more: Any
) -> Learner:
    start = np.zeros(2)
    rule = DualAveragingRule(start, 0.6) if mechanism.prefix else GradientDescentRule(start, 0.4)
    return Learner(schedule, Swirl(), rule, mechanism, sigma, coupling, **more)


ONE: tuple[Request, ...] = (Delete([2]),)
BULK: tuple[Request, ...] = (Delete([0, 2, 5]),)
ENTER: tuple[Request, ...] = (Insert((NEWCOMERS[:1],)),)
ENTER_BULK: tuple[Request, ...] = (Insert((NEWCOMERS,)),)
RECTIFY: tuple[Request, ...] = (Replace((NEWCOMERS[:1],), [3]),)
STREAM: tuple[Request, ...] = (
    Delete([2]), Insert((NEWCOMERS[:1],)), Delete([0, 4]), Replace((NEWCOMERS[1:],), [3]), Insert((PEOPLE[:2],)),
    Delete([6]), Insert((NEWCOMERS[1:],)), Delete([1, 7]), Insert((PEOPLE[2:3],)), Delete([9]),
)  # fmt: skip

TREE, ROOT, EACH, ANYTIME = BinaryTree(), SquareRoot(), Identity(), BinaryTree("anytime")
SCHEDULES: dict[str, Schedule] = {
    "scattered": Scattered(3),
    "two epochs": Scattered(2, epochs=2),
    "shuffled": Shuffled(2),
    "arrival": Arrival(2),
    "everyone": Everyone(3),
    "sampled": Everyone(3, rate=0.6),
}


LONG_AND_SHORT = np.array([1.0, 0.1, 0.7, 1.0, 0.3, 0.9, 0.2, 1.0])
"""The norms of the records that gradient descent learns from: some contribute at most a tenth of the bound."""
ROWS = DATA * (LONG_AND_SHORT / np.linalg.norm(DATA, axis=1))[:, None]
LABELS = np.array([1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0])


def descent(
    rate: float, coupling: str, rounds: int = 3, sigma: float = 0.6, loss: Loss | None = None, **more: Any
) -> Learner:
    """Return a learner by gradient descent, with exact sums and norms of its own for each record."""
    query = more.pop("query", None) or GridGradient(loss or Logistic(), size=2, **more)
    rule = GradientDescentRule(np.zeros(2), 0.9, penalty=0.1, momentum=0.5)
    return Learner(Everyone(rounds, rate), query, rule, Identity(), sigma, coupling)


def descent_cases() -> list[Case]:
    """Return the problems of gradient descent: every kind of request, with records of different norms."""
    new = ROWS[6:], LABELS[6:]
    requests: dict[str, tuple[Request, ...]] = {
        "deletion": (Delete([2]),),
        "deletion of a short record": (Delete([1]),),
        "bulk of long and short ones": (Delete([0, 1, 4]),),
        "insertion": (Insert(new),),
        "replacement of a long one by a short one": (Replace((new[0][:1], new[1][:1]), [3]),),
        "stream": (
            Delete([2]), Insert(new), Replace((ROWS[1:2], LABELS[1:2]), [0]), Delete([3, 6]),
            Insert((ROWS[2:4], LABELS[2:4])), Delete([1]),
        ),
    }  # fmt: skip
    return [
        Case(
            f"descent, rate {rate:g}, {coupling}, {name}",
            descent(rate, coupling),
            asked,
            in_tests=coupling == "adaptive" or name.startswith(("bulk", "stream")),
            columns=(ROWS[:6], LABELS[:6]),
        )
        for rate in (1.0, 0.5)
        for coupling in ("adaptive", "sequential")
        for name, asked in requests.items()
    ]


def cases() -> list[Case]:
    """Return all problems."""
    papers = Learner(Shuffled(1), Swirl(), DualAveragingRule(np.zeros(2), 0.6), BinaryTree(), 1.5, "sequential")
    found = [Case("the paper, corrected", papers, ONE)]
    for name, schedule in SCHEDULES.items():
        tested = name in ("scattered", "shuffled")
        found += [
            Case(f"{name}, tree, joint", learner(schedule, TREE), ONE),
            Case(f"{name}, root, joint", learner(schedule, ROOT), ONE, in_tests=tested),
            Case(f"{name}, tree, sequential", learner(schedule, TREE, "sequential"), ONE, in_tests=tested),
        ]
        found += [
            Case(
                f"{name}, root, bulk",
                learner(schedule, ROOT),
                BULK,
                in_tests=name in ("two epochs", "shuffled"),
            ),
        ]
        if name not in ("two epochs", "everyone"):
            found.append(
                Case(f"{name}, root, stream of ten", learner(schedule, ROOT), STREAM, in_tests=name == "scattered")
            )
    for name in ("scattered", "shuffled"):
        found.append(Case(f"{name}, anytime tree, joint", learner(SCHEDULES[name], ANYTIME), ONE))
        found.append(Case(f"{name}, anytime tree, sequential", learner(SCHEDULES[name], ANYTIME, "sequential"), BULK))
        found.append(Case(f"{name}, root, insertion", learner(SCHEDULES[name], ROOT), ENTER, in_tests=True))
        found.append(
            Case(
                f"{name}, tree, sequential, insertions",
                learner(SCHEDULES[name], TREE, "sequential"),
                ENTER_BULK,
            )
        )
        found.append(Case(f"{name}, root, replacement", learner(SCHEDULES[name], ROOT), RECTIFY))
        found.append(
            Case(f"{name}, root, no noise", learner(SCHEDULES[name], ROOT, sigma=0.0), BULK + ENTER, in_tests=True)
        )
    found.append(Case("shuffled one by one, root, joint", learner(Shuffled(1), ROOT), ONE))
    found.append(
        Case(
            "scattered, root, subjects",
            learner(Scattered(3), ROOT),
            (Delete(subjects=[1]),),
            subjects=[0, 1, 1, 2, 1, 3],
        )
    )
    for name in ("everyone", "sampled"):
        for coupling in ("joint", "sequential", "adaptive"):
            each = learner(SCHEDULES[name], EACH, coupling, sigma=2.0)
            found.append(Case(f"{name}, identity, {coupling}", each, ONE, in_tests=name == "sampled"))
        each = learner(SCHEDULES[name], EACH, "adaptive", sigma=3.0)
        found.append(Case(f"{name}, identity, adaptive, bulk and insertion", each, BULK + ENTER))
    each = learner(SCHEDULES["sampled"], EACH, "sequential")
    found.append(Case("sampled, identity, sequential, stream of ten", each, STREAM))
    return found + descent_cases()
