"""A crowd on one store: several processes ask, some are killed -9, somebody keeps removing the file of the lock.

    python benchmarks/store/crowd.py [--seconds 60] [--processes 4] [--unchecked] [--seed 1]

Every process writes down, in a ledger outside of the store, what it asks for and what was acknowledged. At the end
everything acknowledged must be done, with one receipt each; nothing may be done twice; and `verify` must be clean. With
``--unchecked`` the store does not look, once nobody else can write, whether it is still as it was read: then it must
fail. Writes out/store_crowd.json; exits with 1 if anything is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import expunge
from benchmarks.smoke import OUT, parser_of, sized
from expunge.base.errors import ExpungeError, StoreError
from expunge.store import scan
from expunge.store.owner import StoredOwner
from expunge.store.receipts import digest_names
from expunge.store.surroundings import beside

PEOPLE, FEATURES, TURNS = sized(20_000, 500), 4, 3
"""How many there are, of how many numbers each, and how many are erased before the store is opened anew."""


def name(number: int) -> str:
    """Return the id of somebody."""
    return f"person {number:06d}"


def work(path: Path, ledger: Path, numbers: list[int], checked: bool) -> None:
    """Erase people, a few each time that the store is opened, and write down how it goes."""
    if not checked:
        StoredOwner._check_unchanged = lambda *given: None  # type: ignore[method-assign]
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    waiting = iter(numbers)
    while True:
        try:
            with expunge.open(path, wait=30) as model:
                for number in islice(waiting, TURNS):
                    os.write(file, f"asked {number}\n".encode())
                    try:
                        model.unlearn([name(number)])
                        os.write(file, f"done {number}\n".encode())
                    except ExpungeError as error:
                        os.write(file, f"failed {number} {type(error).__name__} {error}\n".encode())
        except StoreError as error:  # of opening
            os.write(file, f"failed - {type(error).__name__} {error}\n".encode())
            time.sleep(0.01)


def said(ledgers: list[Path], word: str) -> list[int]:
    """Return who was asked for, or done."""
    lines = [line.split() for ledger in ledgers if ledger.exists() for line in ledger.read_text().splitlines()]
    return [int(line[1]) for line in lines if line[0] == word]


def crowd(path: Path, folder: Path, given: argparse.Namespace) -> Counter[str]:
    """Let processes work for a while, kill some and start others in their place, and remove the lock."""
    rng, context = np.random.default_rng(given.seed), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["expunge.models.opening"])
    counts: Counter[str] = Counter()

    def start(place: int) -> Any:
        ledger = folder / f"ledger {place}"
        numbers = list(range(place, PEOPLE, given.processes))[len(said([ledger], "asked")) :]
        process = context.Process(target=work, args=(path, ledger, numbers, not given.unchecked), daemon=True)
        process.start()
        return process

    processes = [start(place) for place in range(given.processes)]
    late = time.monotonic() + given.seconds
    while time.monotonic() < late:
        time.sleep(float(rng.uniform(0.0, 0.05)))
        beside(path, "-lock").unlink(missing_ok=True)
        counts["locks removed"] += 1
        if rng.random() < 0.02:
            place = int(rng.integers(given.processes))
            processes[place].kill()
            processes[place].join()
            processes[place] = start(place)
            counts["processes killed"] += 1
    for process in processes:
        process.kill()
        process.join()
    return counts


def problems(path: Path, ledgers: list[Path]) -> list[str]:
    """Open the store, and compare it with the ledgers."""
    asked, done = set(said(ledgers, "asked")), said(ledgers, "done")
    found = []
    try:
        with expunge.open(path) as model:
            there = set(model.ids_.tolist())
            gone = {number for number in range(PEOPLE) if name(number) not in there}
            receipts = model.export_receipts()["receipts"]
            people = sorted(gone | asked)
            digests = digest_names(model._owner.session.key, "ids", np.array([name(who) for who in people]))
            times_of = Counter(digest for receipt in receipts for digest in receipt["digests"])
            named = {who: times_of[digest] for who, digest in zip(people, digests, strict=True)}
            found += [f"{name(number)} was acknowledged and is there" for number in done if number not in gone]
            found += [f"{name(number)} has {times} receipts" for number, times in named.items()
                      if times != (number in gone)]  # fmt: skip
            found += [f"{name(number)} is gone, and nobody asked" for number in gone - asked]
            found += [f"{len(receipts)} receipts for {len(gone)}"] if len(receipts) != len(gone) else []
            found += [*model.verify().problems, *model.verify_receipts().problems]
    except StoreError as error:
        return [*found, f"{type(error).__name__}: {error}"]
    found += [] if done else ["nobody was acknowledged: this shows nothing"]
    left = scan(path, [name(number) for number in done])
    return found + [f"{finding.file.name}: a name of the acknowledged is found" for finding in left]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=sized(60.0, 3.0))
    parser.add_argument("--processes", type=int, default=sized(4, 2))
    parser.add_argument("--unchecked", action="store_true", help="do not look again once nobody else can write")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    X = rng.normal(size=(PEOPLE, FEATURES)) / FEATURES
    with tempfile.TemporaryDirectory() as home:
        folder, path = Path(home), Path(home) / "model"
        ids = np.array([name(number) for number in range(PEOPLE)])
        expunge.LogisticRegression(rho=0.1, solver="dual_averaging").fit(X, X[:, 0] > 0, ids=ids).save(path)
        counts = crowd(path, folder, given)
        ledgers = [folder / f"ledger {place}" for place in range(given.processes)]
        lines = [line.split()[2] for ledger in ledgers for line in ledger.read_text().splitlines() if line[0] == "f"]
        counts["asked"], counts["acknowledged"] = (len(said(ledgers, word)) for word in ("asked", "done"))
        counts.update({f"refused or unsure: {kind}": times for kind, times in Counter(lines).items()})
        found = problems(path, ledgers)
    for what, times in counts.items():
        print(f"{times:>7,} {what}")
    print(f"{len(found):,} problems" + "".join(f"\n  {one}" for one in found[:10]))
    OUT.mkdir(parents=True, exist_ok=True)
    result = {**counts, "problems": found, "unchecked": given.unchecked, "seed": given.seed}
    (OUT / "store_crowd.json").write_text(json.dumps(result, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
