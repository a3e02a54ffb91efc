"""Small streams on which exactness is shown, used by the tests (few runs) and the benchmark (many)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from cases.learners import ANYTIME, ROOT, TREE, Case, learner
from expunge import Arrival, Delete, DualAveragingRule, Insert, Learner, Replace, Scattered, Shuffled
from expunge.base.intake import Request
from expunge.base.types import Array
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.schedules import Schedule

ROWS = np.random.default_rng(11).normal(size=(24, 2))
START = ROWS[:5]
NOBODY = np.zeros((0, 2))


def rows_of(ids: Sequence[int], version: int = 0) -> Array:
    """Return the contents of records; when an id comes again they are others."""
    return ROWS[(np.asarray(ids) + 12 * version) % len(ROWS)]


def enter(*ids: int, version: int = 0) -> Insert:
    return Insert((rows_of(ids, version),), ids=list(ids))


def rectify(*ids: int) -> Replace:
    return Replace((rows_of(ids, 1),), list(ids))


STREAM: tuple[Request, ...] = (
    Delete([2]), enter(5), Delete([0, 4]), rectify(3), enter(2, 6, 7, version=1),
    Delete([6]), enter(8), Delete([1, 7, 5]), enter(0, 9, 10, version=1), Delete([3]),
)  # fmt: skip
"""From 5 records to 4, 5, 3, 3, 6, 5, 6, 3, 6, 5: in steps of two, from 3 steps to 2, 3, 2, 2, 3, 3, 3, 2, 3, 3.
The ids 2 and 0 are deleted and come again, with other contents."""

MIXED: tuple[Request, ...] = (
    enter(5, 6), rectify(1, 5), Delete([0]), enter(7), Delete([5, 7]),
    rectify(6), enter(5, version=1), Delete([1, 3]), enter(8), rectify(2, 8),
)  # fmt: skip
"""Corrections in bulk, and of newcomers: 7, 7, 6, 7, 5, 5, 6, 4, 5, 5 records."""

FROM_NOTHING: tuple[Request, ...] = (
    enter(0), enter(1, 2), Delete([0]), enter(3), rectify(1), enter(0, 4, version=1),
    Delete([2, 3]), enter(5), Delete([5]), enter(6),
)  # fmt: skip

THROUGH_NOTHING: tuple[Request, ...] = (
    Delete([1]), enter(5), Delete([0, 2, 3, 4, 5]), enter(6), Delete([6]),
    enter(1, 2, 3, version=1), Delete([2]), rectify(3), enter(7, 8), Delete([1]),
)  # fmt: skip
"""All records leave, one comes back and leaves, and then there are others."""

OWNERS = [0, 1, 1, 2, 0]
SUBJECTS: tuple[Request, ...] = (
    Delete(subjects=[1]), Insert((rows_of([5, 6]),), [5, 6], [0, 3]), Delete([0]), rectify(4),
    Insert((rows_of([7, 8]),), [7, 8], [1, 3]), Delete(subjects=[0, 2]), Insert((rows_of([9, 10]),), [9, 10], [1, 1]),
    Delete([7]), Insert((rows_of([0, 3], 1),), [0, 3], [2, 0]), Delete(subjects=[3]),
)  # fmt: skip

SCHEDULES: dict[str, Schedule] = {
    "scattered": Scattered(3),
    "shuffled by two": Shuffled(2),
    "shuffled one by one": Shuffled(1),
    "arrival by two": Arrival(2),
    "arrival one by one": Arrival(1),
}
NOISE: dict[str, tuple[Mechanism, str]] = {
    "root, joint": (ROOT, "joint"),
    "tree, joint": (TREE, "joint"),
    "tree, sequential": (TREE, "sequential"),
    "anytime tree, joint": (ANYTIME, "joint"),
}
TESTED = {
    ("scattered", "root, joint"),
    ("shuffled by two", "tree, sequential"),
    ("shuffled one by one", "root, joint"),
    ("arrival by two", "tree, joint"),
    ("arrival one by one", "anytime tree, joint"),
}


def anytime(plain: Learner) -> Learner:
    """Return the learner with step sizes that do not know how many steps there will be."""
    return dataclasses.replace(plain, rule=DualAveragingRule(np.zeros(2), 1.0, anytime=2))


def cases() -> list[Case]:
    """Return all streams."""
    found: list[Case] = []
    for name, schedule in SCHEDULES.items():
        for noise, (mechanism, coupling) in NOISE.items():
            plain = learner(schedule, mechanism, coupling)
            tested = (name, noise) in TESTED
            found.append(Case(f"{name}, {noise}, ten", plain, STREAM, in_tests=tested, columns=(START,)))
        root, tree = learner(schedule, ROOT), learner(schedule, TREE)
        forever = anytime(learner(schedule, ANYTIME))
        by_two = name in ("shuffled by two", "arrival by two")
        found += [
            Case(f"{name}, root, mixed", root, MIXED, columns=(START,)),
            Case(f"{name}, anytime tree, anytime steps, ten", forever, STREAM, columns=(START,)),
            Case(f"{name}, root, anytime steps, mixed", anytime(root), MIXED, columns=(START,)),
            Case(f"{name}, root, from nothing", root, FROM_NOTHING, columns=(NOBODY,), in_tests=by_two),
            Case(f"{name}, anytime tree, anytime steps, from nothing", forever, FROM_NOTHING, columns=(NOBODY,)),
            Case(f"{name}, tree, through nothing", tree, THROUGH_NOTHING, columns=(START,), in_tests=by_two),
            Case(f"{name}, root, subjects", root, SUBJECTS, OWNERS, name == "scattered", columns=(START,)),
            Case(f"{name}, root, no noise", learner(schedule, ROOT, sigma=0.0), STREAM, columns=(START,)),
        ]
    epochs = learner(Scattered(2, epochs=2), ROOT)
    found.append(Case("two epochs, root, ten", epochs, STREAM, columns=(START,)))
    return found
