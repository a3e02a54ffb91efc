"""Models in stores, and stories of what is done to them, for processes that are killed on the way."""

from __future__ import annotations

import os
import signal
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np

import expunge
from cases.in_solver import in_solver
from expunge.base.errors import NoiseWarning
from expunge.base.types import AnyArray, Array
from expunge.solvers import Lloyd
from expunge.store import backup, failpoints, restore

FIRST, SPARE, FEATURES = 160, 24, 5
"""How many people are in a store from the start, how many may enter later, how many numbers each has."""

MODELS: dict[str, Any] = {
    "scattered": lambda: expunge.LinearRegression(**in_solver(rho=0.5, steps=16, **_FOR_TARGETS)),
    "replaying": lambda: expunge.HuberRegressor(**in_solver(rho=1.0, steps=32, **_FOR_TARGETS)),
    "arrival": lambda: expunge.LinearRegression(**in_solver(rho=0.5, schedule="arrival", batch=8, **_FOR_TARGETS)),
    "k-means": lambda: expunge.KMeans(3, rho=0.5, expected_records=256),
    "noisy k-means": lambda: expunge.KMeans(
        3, rho=0.5, expected_records=256, solver=Lloyd(radius=1.0, records_per_subject=2)
    ),
    "ridge": lambda: expunge.Ridge(0.1),
}
"""Every kind of schedule: a place for each, without noise, in order of arrival, and everyone in one."""
_FOR_TARGETS: dict[str, Any] = {"target_range": (-1.0, 1.0), "expected_records": 256, "records_per_subject": 2}
NAMES = {
    "scattered": "texts",
    "replaying": "numbers",
    "arrival": "numbers",
    "k-means": "uuids",
    "noisy k-means": "uuids",
    "ridge": "numbers",
}
SUBJECTS = {"replaying": "texts", "k-means": "texts", "noisy k-means": "texts", "ridge": "numbers"}

LETTERS = "aàáâãäåāăąbcçćčdďđeèéêëēęfgğhiìíîïjkłlmnñńňoòóôõöøpqrřsśšßtťuùúûüvwxyzžабвгджзийклмнопрст"
GRID = 2.0**-20
"""Noisy k-means rounds points to about this; given so, they are kept as they are."""

OPERATIONS = (
    "unlearn",
    "bulk unlearn",
    "insert",
    "replace",
    "replay",
    "replan",
    "compact",
    "backup",
    "save",
    "restore",
)


# --- people -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class People:
    """Everybody who may ever be in a store; two that follow each other are one subject."""

    columns: tuple[Array, ...]
    ids: AnyArray
    subjects: AnyArray | None

    def subject_of(self, who: int) -> int:
        """Return a number for the subject that somebody is."""
        return who if self.subjects is None else who // 2


@cache
def people(kind: str) -> People:
    """Return those of a kind of model. No number, id or subject is like another, or like anything else in a file."""
    rng = np.random.default_rng(list(kind.encode()))
    X = rng.normal(size=(FIRST + SPARE, FEATURES))
    X *= (rng.uniform(0.5, 0.95, size=len(X)) / np.linalg.norm(X, axis=1))[:, None]
    columns = (X,) if "k-means" in kind else (X, rng.uniform(-1.0, 1.0, size=len(X)))
    if kind == "noisy k-means":
        columns = (np.round(X / GRID) * GRID,)
    ids = _names(NAMES[kind], len(X), rng)
    subjects = _names(SUBJECTS[kind], len(X) // 2, rng).repeat(2) if kind in SUBJECTS else None
    return People(columns, ids, subjects)


def _names(kind: str, number: int, rng: np.random.Generator) -> AnyArray:
    match kind:
        case "uuids":
            return np.array([str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(number)])
        case "texts":
            return np.array(["".join(rng.choice(list(LETTERS), size=16)) for _ in range(number)])
        case _:
            return rng.integers(2**61, 2**62, size=number)


def write_store(kind: str, path: Path) -> None:
    """Fit a model of a kind to the first people, and save it."""
    those = people(kind)
    subjects = None if those.subjects is None else those.subjects[:FIRST]
    columns = [column[:FIRST] for column in those.columns]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)  # what it learns does not matter here
        MODELS[kind]().fit(*columns, ids=those.ids[:FIRST], subjects=subjects).save(path)


# --- operations and what they come to -----------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """Something that is done to a store."""

    name: str
    who: tuple[int, ...] = ()
    """Who leaves, comes, or is corrected."""
    numbers_of: tuple[int, ...] = ()
    """Whose numbers they get, where somebody is corrected."""
    by: Literal["ids", "subjects"] = "ids"
    file: str = ""
    """Of a copy."""


@dataclass(frozen=True)
class Said:
    """What a receipt must say."""

    version: int
    kind: str
    removed: int
    added: int
    by: Literal["ids", "subjects"] | None = None
    named: tuple[int, ...] = ()


@dataclass(frozen=True)
class Expected:
    """What must be in a store."""

    kind: str
    live: dict[int, int] = field(default_factory=lambda: {who: who for who in range(FIRST)})
    """Who is there, and whose numbers they have."""
    receipts: tuple[Said, ...] = ()
    version: int = 0
    """How often the state has changed."""
    copies: dict[str, Expected] = field(default_factory=dict)

    def after(self, one: Operation) -> Expected:
        """Return what must be there when an operation is done."""
        version = self.version + 1
        match one.name:
            case "unlearn" | "bulk unlearn" | "replay":
                live = self._without(one.by, one.who)
                said = Said(version, "delete", len(self.live) - len(live), 0, one.by, one.who)
            case "insert":
                live = {**self.live, **{who: who for who in one.who}}
                said = Said(version, "insert", 0, len(one.who))
            case "replace":
                live = {**self.live, **dict(zip(one.who, one.numbers_of, strict=True))}
                said = Said(version, "replace", len(one.who), len(one.who), "ids", one.who)
            case "replan":
                return replace(self, version=version)
            case "backup" | "save":
                return replace(self, copies={**self.copies, one.file: self._copy(one.name)})
            case "restore":
                return self._restored(self.copies[one.file])
            case _:
                return self
        return replace(self, live=live, receipts=(*self.receipts, said), version=version)

    def _without(self, by: str, named: Sequence[int]) -> dict[int, int]:
        if by == "ids":
            return {who: whose for who, whose in self.live.items() if who not in named}
        gone = {people(self.kind).subject_of(who) for who in named}
        return {who: whose for who, whose in self.live.items() if people(self.kind).subject_of(who) not in gone}

    def _copy(self, name: str) -> Expected:
        return replace(self, copies={}) if name == "backup" else Expected(self.kind, self.live)

    def _restored(self, old: Expected) -> Expected:
        """Go back, without those who were erased since."""
        back = old
        for said in self.receipts[len(old.receipts) :]:
            if said.kind == "delete" and said.by is not None:
                back = replace(back, live=back._without(said.by, said.named))
        erased = tuple(who for who in old.live if who not in back.live)
        said = Said(self.version + 1, "delete", len(erased), 0, "ids", erased)
        return replace(self, live=back.live, receipts=(*self.receipts, said), version=said.version)


def states(kind: str, operations: Sequence[Operation]) -> list[Expected]:
    """Return what must be there at first and after each operation."""
    found = [Expected(kind)]
    for one in operations:
        found.append(found[-1].after(one))
    return found


# --- stories ------------------------------------------------------------------------------------------


def story(kind: str, operation: str, seed: int = 0) -> tuple[Operation, ...]:
    """Return a story in which an operation is done a few times, each time to others; of copies, with deletions."""
    length = {"compact": 4, "replan": 4, "backup": 3, "save": 3, "restore": 2}.get(operation, 6)
    rng = np.random.default_rng([seed, *operation.encode()])
    leaving = iter((2 * rng.permutation(FIRST // 2)).tolist())
    entering = iter(rng.permutation(range(FIRST, FIRST + SPARE)).tolist())
    told: list[Operation] = []
    for turn in range(length):
        told += _turn(kind, operation, turn, leaving, entering)
    return tuple(told)


def _turn(kind: str, operation: str, turn: int, leaving: Iterator[int], entering: Iterator[int]) -> list[Operation]:
    by: Literal["ids", "subjects"] = "subjects" if turn % 2 and kind in SUBJECTS else "ids"

    def leave(number: int = 1, name: str = "unlearn") -> Operation:
        return Operation(name, tuple([next(leaving) for _ in range(number)]), by=by)

    def enter(number: int) -> tuple[int, ...]:
        return tuple([next(entering) for _ in range(number)])

    match operation:
        case "unlearn" | "replay":
            return [leave(1, operation)]
        case "bulk unlearn":
            return [leave(8, operation)]
        case "insert":
            return [Operation(operation, enter(1 + turn % 3))]
        case "replace":
            return [Operation(operation, leave(2).who, enter(2))]
        case "compact" | "replan":
            return [leave(), Operation(operation)]
        case "backup" | "save":
            return [leave(), Operation(operation, file=f"{operation}-{turn}")]
        case _:
            kept = Operation("backup", file=f"backup-{turn}")
            return [kept, leave(2), Operation("insert", enter(1)), Operation("restore", file=kept.file)]


# --- a life -------------------------------------------------------------------------------------------


def copy_path(path: Path, one: Operation) -> Path:
    """Return where a copy is written: in a folder of its own, for a store's files are told by their names."""
    return path.parent / "copies" / one.file


def perform(model: Any, path: Path, kind: str, one: Operation) -> Any:
    """Do an operation, and return the model to go on with and, of a request, whether the path was kept."""
    those = people(kind)
    who, numbers_of = list(one.who), list(one.numbers_of)
    kept = None
    match one.name:
        case "unlearn" | "bulk unlearn" | "replay":
            kept = model.unlearn(**{one.by: getattr(those, one.by)[who]}).kept
        case "insert":
            subjects = None if those.subjects is None else those.subjects[who]
            kept = model.insert(*(column[who] for column in those.columns), ids=those.ids[who], subjects=subjects).kept
        case "replace":
            kept = model.replace(*(column[numbers_of] for column in those.columns), ids=those.ids[who]).kept
        case "compact":
            model.compact()
        case "replan":
            model.replan()
        case "backup":
            backup(path, copy_path(path, one))
        case "save":
            model.save(copy_path(path, one))
        case "restore":
            model.close()
            restore(copy_path(path, one), path)
            model = expunge.open(path)
        case other:
            raise ValueError(other)
    return model, kept


@dataclass(frozen=True)
class Acknowledged:
    """What a process says when an operation is done."""

    number: int
    kept: bool | None
    seconds: float
    """Since the store was opened."""
    reached: Counter[str]
    """How often each failpoint was reached until then."""


def live(
    path: Path, kind: str, operations: Sequence[Operation], deadly: tuple[str, int] | None, connection: Connection
) -> None:
    """Open a store and do what a story tells, saying so each time; die where it is said."""
    reached: Counter[str] = Counter()

    def hook(name: str) -> None:
        reached[name] += 1
        if (name, reached[name]) == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    warnings.simplefilter("error")
    failpoints.hook = hook
    model = expunge.open(path)
    began = time.perf_counter()
    connection.send("ready")
    for number, one in enumerate(operations):
        model, kept = perform(model, path, kind, one)
        connection.send(Acknowledged(number, kept, time.perf_counter() - began, reached.copy()))
    model.close()
