"""Processes that are killed while they change a store, and what must be true of it afterwards."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

import expunge
from cases.store_stories import (
    Acknowledged,
    Expected,
    Operation,
    copy_path,
    live,
    people,
    perform,
    states,
    write_store,
)
from expunge.base.types import Array
from expunge.engine.records.lookup import hashes
from expunge.store import scan
from expunge.store.file import StoreFile
from expunge.store.state import read_state
from expunge.store.surroundings import beside

Landing = Literal["nothing yet", "midway", "done, not acknowledged"]
"""Where a kill found an operation. Midway: a request was recorded, or the file of a copy was begun."""

PATIENCE = 30.0
"""After how many seconds a process that is not killed is given up."""
LATER = ("request: decided", "request: written", "request: committed")
"""Where those that finish a request are killed, one after the other."""
FOUND_AGAIN = 12
"""How many of the live are looked for by the scan."""
EVIDENCE = "evidence"
"""The folder for the files of a store in which the scan found what should be gone: closing it would remove some."""


# --- killing ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Death:
    """What is known of a process when it is over."""

    acknowledged: tuple[Acknowledged, ...]
    killed: bool


def run(
    path: Path, kind: str, operations: Sequence[Operation], deadly: tuple[str, int] | None = None,
    delay: float | None = None,
) -> Death:  # fmt: skip
    """Let a process live a story until it is over, or reaches a failpoint, or some seconds have passed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["expunge.models.opening", "expunge.store.scanning"])  # else that takes longest
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=live, args=(path, kind, tuple(operations), deadly, sending), daemon=True)
    process.start()
    sending.close()
    acknowledged: list[Acknowledged] = []
    try:
        receiving.recv()
        if delay is not None:
            time.sleep(delay)
            process.kill()
        while receiving.poll(PATIENCE):
            acknowledged.append(receiving.recv())
    except EOFError:
        pass
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise RuntimeError(f"{kind}, {operations}: the process did not end")
    if process.exitcode not in (0, -9):
        raise RuntimeError(f"{kind}, {operations}: the process failed, with {process.exitcode}")
    return Death(tuple(acknowledged), process.exitcode == -9)


def rehearse(folder: Path, kind: str, told: tuple[Operation, ...], times: int = 3) -> tuple[float, Counter[str]]:
    """Live a story without a kill; return how long it took and how often each failpoint was reached."""
    seconds = []
    for turn in range(times):
        path = folder / str(turn) / "model"
        (path.parent / "copies").mkdir(parents=True)
        write_store(kind, path)
        last = run(path, kind, told).acknowledged[-1]
        seconds.append(last.seconds)
    return float(np.median(seconds)), last.reached


# --- a crash, and what came of it ---------------------------------------------------------------------


@dataclass(frozen=True)
class Crash:
    """What came of a process that was meant to be killed."""

    kind: str
    operation: str | None
    """The one that was under way; None if all were done before the kill."""
    where: Landing | None
    at: str
    """The failpoint, or "an instant"."""
    replays: int
    """How many acknowledged requests replayed."""
    problems: tuple[str, ...]


def crash(
    path: Path, kind: str, operations: Sequence[Operation], deadly: tuple[str, int] | None = None,
    delay: float | None = None, again: Sequence[str] = (),
) -> Crash:  # fmt: skip
    """Write a store, kill a process that works on it, and look at what is left.

    ``again`` are failpoints at which those that open the store to finish the request are killed, one after the other.
    """
    path.parent.mkdir(parents=True)
    (path.parent / "copies").mkdir()
    write_store(kind, path)
    death = run(path, kind, operations, deadly, delay)
    if deadly is not None and not death.killed:
        raise RuntimeError(f"{kind}: {deadly} was never reached")
    number, told = len(death.acknowledged), states(kind, operations)
    flying = operations[number] if number < len(operations) else None
    where = None if flying is None else landing(path, flying, told[number])
    recorded = where == "midway" and told[number + 1].version != told[number].version
    twin = _finished_elsewhere(path) if recorded else None
    for name in again:
        if not run(path, kind, (), (name, 1)).killed:
            raise RuntimeError(f"{kind}: {name} was never reached while opening")
    found = problems(path, kind, operations, number, where)
    if twin is not None:
        with expunge.open(path) as model:
            if not np.array_equal(twin, everything(model)):
                found.append("the request was finished in another way than in a copy of the store")
    at = "an instant" if deadly is None else deadly[0]
    replays = sum(one.kept is False for one in death.acknowledged)
    return Crash(kind, None if flying is None else flying.name, where, at, replays, tuple(found))


def everything(model: Any) -> Array:
    """Return all numbers that a model keeps."""
    kept, positions = model.transcript_, model._records.positions()
    return np.concatenate([np.ravel(part) for part in (kept.sums, kept.answers, kept.iterates, *positions)])


def _finished_elsewhere(path: Path) -> Array:
    """Return what a copy of the store has, when the request that waits is finished there."""
    with tempfile.TemporaryDirectory() as folder, expunge.open(_copied(path, Path(folder))) as model:
        return everything(model)


# --- where it was killed ------------------------------------------------------------------------------


def _copied(path: Path, to: Path) -> Path:
    """Copy the files of a store, so that looking at them leaves them alone."""
    for file in path.parent.glob(path.name + "*"):
        shutil.copy(file, to / file.name)
    return to / path.name


def landing(path: Path, one: Operation, before: Expected) -> Landing:
    """Say how far an operation had come, before the store is opened again."""
    if one.name in ("backup", "save"):
        copy = copy_path(path, one)
        new = beside(copy if one.name == "save" else copy.with_name(path.name), "-new")
        return "done, not acknowledged" if copy.exists() else "midway" if new.exists() else "nothing yet"
    if one.name == "compact":
        return "midway" if beside(path, "-new").exists() else "nothing yet"
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        file = StoreFile(_copied(path, Path(folder)))
        try:
            if file.get("pending", 0):
                return "midway"
            return "nothing yet" if read_state(file).version == before.version else "done, not acknowledged"
        finally:
            file.close()


# --- what must be true --------------------------------------------------------------------------------


def problems(
    path: Path, kind: str, operations: Sequence[Operation], acknowledged: int, where: Landing | None
) -> list[str]:  # fmt: skip
    """Open a store whose process was killed, and name everything that is not as it must be."""
    told = states(kind, operations)
    flying = operations[acknowledged] if acknowledged < len(operations) else None
    before, after = told[acknowledged], told[min(acknowledged + 1, len(operations))]
    expected, found = before, []
    with expunge.open(path) as model:
        if flying is not None and after.version != before.version:
            done = model._owner.state.version == after.version
            if done != (where != "nothing yet"):
                found.append(f"{flying.name}: {where} when it was killed, and {'' if done else 'not '}done afterwards")
            expected = after if done else before
        if flying is not None and flying.name in ("backup", "save"):
            if not copy_path(path, flying).exists():
                perform(model, path, kind, flying)
            expected = after
        found += _wrong_state(model, expected) + _wrong_bytes(path, expected)
    for one in operations:
        if one.name in ("backup", "save") and one.file in expected.copies:
            found += _wrong_copy(copy_path(path, one), expected.copies[one.file])
    found += [f"{file.name}: was left behind" for file in path.parent.rglob("*-new*") if EVIDENCE not in file.parts]
    return found


def _wrong_copy(path: Path, expected: Expected) -> list[str]:
    if not path.exists():
        return [f"{path.name}: is not there"]
    with expunge.open(path) as model:
        found = _wrong_state(model, expected) + _wrong_bytes(path, expected)
    return [f"{path.name}: {problem}" for problem in found]


def _wrong_state(model: Any, expected: Expected) -> list[str]:
    """Compare records and receipts with what they must be, and re-derive everything else."""
    found = list(model.verify().problems) + list(model.verify_receipts().problems)
    owner, those = model._owner, people(expected.kind)
    if owner._waiting() is not None:
        found.append("pending: there is a request")
    exported = model.export_receipts()["receipts"]
    said = [(one.kind, one.version, one.removed, one.added, one.by, len(one.named)) for one in expected.receipts]
    kept = [
        (one["kind"], one["version"], one["removed"], one["added"], one["named_by"], len(one["digests"]))
        for one in exported
    ]
    if kept != said:
        found.append(f"receipts: {kept} instead of {said}")
    if len({one["request"] for one in exported}) != len(exported):
        found.append("receipts: a request was done twice")
    if owner.state.version != expected.version:
        found.append(f"state: version {owner.state.version} instead of {expected.version}")
    for one in expected.receipts:
        if one.by is not None:
            names = getattr(those, one.by)[list(one.named)]
            number = len(model.export_receipts(**{one.by: names[:1]})["receipts"])
            if number != sum(other.by == one.by and one.named[0] in other.named for other in expected.receipts):
                found.append(f"receipts: {names[0]} is named in {number}")
    return found + _wrong_records(model._records, expected)


def _wrong_records(records: Any, expected: Expected) -> list[str]:
    """Compare records with what they must be, to the last bit."""
    those, who = people(expected.kind), np.array(list(expected.live), dtype=int)
    whose = np.array(list(expected.live.values()), dtype=int)
    wanted = [column[whose] for column in those.columns] + [those.ids[who]]
    if those.subjects is not None:
        wanted.append(those.subjects[who])
    there = records.places.gather(*records.positions())[: len(wanted)]
    if records.count != len(who) or len(there[0]) != len(who):
        return [f"records: {records.count} instead of {len(who)}"]
    place, order = len(those.columns), np.argsort(those.ids[who])
    other = np.argsort(there[place])
    return [
        f"records: column {number} is not what it must be"
        for number, (one, two) in enumerate(zip(wanted, there, strict=True))
        if not np.array_equal(one[order], two[other])
    ]


def _wrong_bytes(path: Path, expected: Expected) -> list[str]:
    """Scan a store: nothing of those who are not there may be found, and everything of those who are."""
    those, key = people(expected.kind), _hash_key(path)
    everybody = range(len(those.ids))
    subjects = {those.subject_of(who) for who in expected.live}
    gone = _patterns(
        expected.kind,
        key,
        [who for who in everybody if who not in expected.live],
        sorted(set(everybody) - set(expected.live.values())),
        [who for who in everybody if those.subject_of(who) not in subjects],
    )
    some = list(expected.live)[:: max(1, len(expected.live) // FOUND_AGAIN)]
    there = _patterns(expected.kind, key, some, [expected.live[who] for who in some], some)
    findings = scan(path, [pattern for _, pattern in gone + there])
    found = [f"{one.file.name}: {gone[one.pattern][0]} at {one.offset}" for one in findings if one.pattern < len(gone)]
    if found:
        (path.parent / EVIDENCE).mkdir(exist_ok=True)
        _copied(path, path.parent / EVIDENCE)
    again = {one.pattern - len(gone) for one in findings}
    return found + [f"{name}, who is there, is not found" for k, (name, _) in enumerate(there) if k not in again]


def _hash_key(path: Path) -> bytes:
    """Return what a store hashes ids with."""
    file = StoreFile(path, read_only=True)
    try:
        return bytes.fromhex(read_state(file).inventory.hash_key)
    finally:
        file.close()


def _patterns(
    kind: str, key: bytes, who: Sequence[int], whose: Sequence[int], subjects: Sequence[int]
) -> list[tuple[str, Any]]:
    """Return names and patterns of ids (and their hashes), of rows and single numbers, and of subjects."""
    those, found = people(kind), list[tuple[str, Any]]()
    for one in who:
        found.append((f"the id of {one}", those.ids[one].item()))
        found.append((f"the hashed id of {one}", hashes(those.ids[one : one + 1], key).tobytes()))
    for one in whose:
        found.append((f"the features of {one}", those.columns[0][one]))
        if kind != "noisy k-means":  # it keeps so few digits that two may be alike
            numbers = [number for column in those.columns for number in np.ravel(column[one])]
            found += [(f"a number of {one}", number) for number in numbers]
    if those.subjects is not None:
        for one in subjects:
            found.append((f"the subject of {one}", those.subjects[one].item()))
            found.append((f"the hashed subject of {one}", hashes(those.subjects[one : one + 1], key).tobytes()))
    return found
