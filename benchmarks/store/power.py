"""Power cuts: what is on the disk if the power fails at any moment of a series of requests.

    python benchmarks/store/power.py [--every 20] [--subsets 2] [--unsynced] [--seed 1]

A process serves requests while strace (which must be installed) records what it writes, syncs, shortens, renames and
removes. Then the power is cut after every so many of these steps: of what was not synced, nothing is there, all of it,
or some, sector by sector. In each of the folders that come of it nothing may be left of what was acknowledged as
erased, nor the key of an acknowledged request; opened again, everything acknowledged is done, nothing is done twice,
and `verify` is clean. ``--unsynced`` leaves the sync of the emptied log away: then it must fail. A few minutes;
``--every 1 --subsets 4`` takes an hour. Writes out/store_power.json; exits with 1 if anything is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

import expunge
import expunge.store.file
from benchmarks.smoke import OUT, parser_of, sized
from cases.killing import everything
from cases.store_stories import Operation, people, perform, states, story, write_store
from expunge.store import failpoints, scan
from expunge.store.file import StoreFile

SECTOR = 512
CALLS = "write,pwrite64,ftruncate,truncate,fsync,fdatasync,openat,unlink,rename"
KINDS = sized(("scattered", "replaying"), ("scattered",))
STORIES = sized(("unlearn", "insert", "replace", "bulk unlearn"), ("unlearn",))


def told(kind: str) -> tuple[Operation, ...]:
    """Return a few requests of every kind, each about others."""
    found: list[Operation] = []
    for seed, name in enumerate(STORIES):
        live = states(kind, found)[-1].live
        for one in story(kind, name, seed)[:3]:
            fresh = name == "insert" or all(who in live for who in one.who)
            found += [one] * (fresh and not any(set(one.who) & set(other.who + other.numbers_of) for other in found))
    return tuple(found)


# --- the process that is recorded -----------------------------------------------------------------------


def serve(path: Path, kind: str, synced: bool) -> None:
    """Serve requests, and tell the recorder when each begins, with its key, and when it is done."""
    if not synced:
        vars(expunge.store.file)["sync_file"] = lambda path: None
    model = expunge.open(path)

    def hook(name: str) -> None:
        if name == "request: recorded":
            os.write(1, f"key {model._owner._waiting().key.hex()}\n".encode())

    failpoints.hook = hook
    for one in told(kind):
        model, _ = perform(model, path, kind, one)
        os.write(1, b"done\n")
    model.close()


def record(path: Path, kind: str, synced: bool) -> list[tuple[str, str]]:
    """Return the system calls of that process: each its name, and what was given."""
    log = path.parent.with_suffix(".trace")
    command = ["strace", "-y", "-xx", "-s", "10000000", "-e", f"trace={CALLS}", "-o", str(log)]
    command += [sys.executable, __file__, "--serve", str(path), "--kind", kind, *([] if synced else ["--unsynced"])]
    command += sized([], ["--smoke"])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    return re.findall(r"^(\w+)\((.*)\)\s+= \d+", log.read_text(), re.MULTILINE)


def text(given: str) -> bytes:
    """Return the bytes that strace has written in hexadecimal digits."""
    return bytes.fromhex(given.replace("\\x", ""))


# --- the disk -------------------------------------------------------------------------------------------


@dataclass
class File:
    """What is on the disk of a file, and what may or may not be: pieces with their places, or lengths."""

    content: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def after(self, kept: Sequence[bool | Sequence[bool]]) -> bytes:
        """Return its content if some of what is pending has come to the disk; of a piece, some sectors."""
        content = bytearray(self.content)
        for (at, piece), keep in zip(self.pending, kept, strict=True):
            if piece is None:
                if keep:
                    content[at:] = bytes(max(0, at - len(content)))
                continue
            parts = [keep] * sectors(at, piece) if isinstance(keep, bool) else keep
            for number, part in enumerate(parts):
                first = max(at, (at // SECTOR + number) * SECTOR)
                stop = min(at + len(piece), (at // SECTOR + number + 1) * SECTOR)
                if part:
                    content.extend(bytes(max(0, stop - len(content))))
                    content[first:stop] = piece[first - at : stop - at]
        return bytes(content)


def sectors(at: int, piece: bytes) -> int:
    """Return how many sectors a piece touches."""
    return (at + len(piece) - 1) // SECTOR - at // SECTOR + 1


class Disk:
    """The files of a folder, which names they have, and which of that is certain."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.names = {file.name: File(file.read_bytes()) for file in folder.iterdir()}
        self.certain, self.renamings = dict(self.names), list[dict[str, File]]()
        self.done, self.keys = 0, list[str]()
        """How many requests were acknowledged, and the keys of all that were recorded."""

    def _name(self, path: str) -> str | None:
        name = path.removeprefix(self.folder + "/")
        return None if name == path or "/" in name or name.endswith("-shm") else name

    def _rename(self) -> None:
        self.renamings.append(dict(self.names))

    def do(self, call: str, given: str) -> bool:
        """Do what a system call does; say whether anything has changed."""
        paths = [text(one).decode() for one in re.findall(r'["<]((?:\\x[0-9a-f]{2})+)[">]', given.split(", ", 1)[0])]
        strings = [text(one) for one in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', given)]
        if call == "write" and given.startswith("1<"):
            words = strings[0].decode().split()
            self.keys += words[1:]
            self.done += words[0] == "done"
            return True
        if call in ("fsync", "fdatasync") and paths[0] == self.folder:
            self.certain, self.renamings = dict(self.names), []
            return True
        if call in ("openat", "unlink", "rename", "truncate"):
            paths = [one.decode() for one in strings]
        name = self._name(paths[0]) if paths else None
        if name is None:
            return False
        numbers = [int(one) for one in re.findall(r", (\d+)(?=,|$)", given)]
        match call:
            case "openat" if "O_CREAT" in given and name not in self.names:
                self.names[name] = File()
                self._rename()
            case "unlink":
                del self.names[name]
                self._rename()
            case "rename":
                self.names[str(self._name(paths[1]))] = self.names.pop(name)
                self._rename()
            case "pwrite64":
                self.names[name].pending.append((numbers[-1], strings[0]))
            case "ftruncate" | "truncate":
                self.names[name].pending.append((numbers[-1], None))
            case "fsync" | "fdatasync":
                file = self.names[name]
                file.content, file.pending = file.after([True] * len(file.pending)), []
            case "write":
                raise RuntimeError(f"{name}: is written to in a way that is not foreseen here")
            case _:
                return False
        return True

    def cut(self, rng: np.random.Generator | bool) -> dict[str, bytes]:
        """Return what is there after a power cut: all of what is pending, nothing, or some of it."""
        told = [self.certain, *self.renamings]
        names = told[-1 if rng is True else 0 if rng is False else int(rng.integers(len(told)))]
        found = {}
        for name, file in names.items():
            kept: list[Any] = [rng] * len(file.pending)
            if not isinstance(rng, bool):
                kept = [
                    bool(rng.integers(2)) if piece is None else (rng.random(sectors(at, piece)) < rng.random()).tolist()
                    for at, piece in file.pending
                ]
            found[name] = file.after(kept)
        return found


# --- what must be true ------------------------------------------------------------------------------------


def problems(files: dict[str, bytes], folder: Path, kind: str, done: int, keys: Sequence[str]) -> Iterator[str]:
    """Look at what a power cut has left, open it, and name everything that is not as it must be."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    path, those, expected = folder / "model", people(kind), states(kind, told(kind))
    gone = [who for who in expected[0].live if who not in expected[done].live]
    patterns = [those.ids[who].item() for who in gone] + [those.columns[0][who] for who in gone]
    patterns += [bytes.fromhex(key) for key in keys[:done]] + list(keys[:done])
    for finding in scan(path, patterns) if patterns else []:
        what = "a name" if finding.pattern < len(gone) else "a row" if finding.pattern < 2 * len(gone) else "a key"
        yield f"{finding.file.name.removeprefix('model') or 'the store'} has {what} of an acknowledged request"
    with expunge.open(path) as model:
        state = expected[min(model._owner.state.version, len(expected) - 1)]
        if not done <= state.version <= done + 1:
            yield f"{done} requests were acknowledged, and {state.version} are done"
        if sorted(model.ids_.tolist()) != sorted(those.ids[list(state.live)].tolist()):
            yield "records: others than there should be"
        if len(model.export_receipts()["receipts"]) != state.version or not model.verify_receipts().ok:
            yield "receipts: not one for each request"
        if not model.verify().ok or not np.isfinite(everything(model)).all():
            yield "verify finds problems"


def hasten() -> None:
    """Sync nothing in the stores that are opened to be looked at."""
    greet = StoreFile._greet

    def hastily(self: StoreFile) -> None:
        greet(self)
        self._connection.execute("PRAGMA synchronous=OFF")

    vars(os)["fsync"] = lambda file: None
    StoreFile._greet = hastily  # type: ignore[method-assign]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--every", type=int, default=sized(20, 200), help="cut after every so many steps, and after every sync"
    )
    parser.add_argument("--subsets", type=int, default=2, help="how many random subsets for each cut")
    parser.add_argument("--unsynced", action="store_true", help="do not sync the log when it is emptied")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", default=KINDS[0], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve, given.kind, not given.unsynced)
        return 0
    if shutil.which("strace") is None:
        raise SystemExit("power.py: strace is missing, which records what a process asks of the disk; install it.")
    hasten()
    rng, cuts, bad, found = np.random.default_rng(given.seed), 0, 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder, Progress() as progress:
        for kind in KINDS:
            home = Path(folder).resolve() / kind
            home.mkdir()
            write_store(kind, home / "model")
            disk = Disk(home)
            calls = record(home / "model", kind, not given.unsynced)
            task = progress.add_task(kind, total=len(calls))
            for number, (call, what) in enumerate(calls):
                progress.advance(task)
                if not disk.do(call, what) or (number % given.every and call not in ("fsync", "fdatasync", "write")):
                    continue
                some = [disk.cut(False), disk.cut(True), *(disk.cut(rng) for _ in range(given.subsets))]
                for files in some:
                    said = set(problems(files, Path(folder) / "cut", kind, disk.done, disk.keys))
                    found.update(said)
                    bad += bool(said)
                cuts += len(some)
            if disk.done != len(told(kind)):
                raise RuntimeError(f"{kind}: {disk.done} requests were seen to be done, of {len(told(kind))}")
    for problem, times in found.most_common():
        print(f"{times:>6,} × {problem}")
    print(f"{cuts:,} power cuts; something was wrong after {bad:,} of them")
    OUT.mkdir(parents=True, exist_ok=True)
    result = {"cuts": cuts, "bad": bad, "problems": found, "unsynced": given.unsynced, "seed": given.seed}
    (OUT / "store_power.json").write_text(json.dumps(result, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
