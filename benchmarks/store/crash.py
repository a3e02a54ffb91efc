"""Kill -9 while a store is written to: at every failpoint of every operation, and at random instants.

    python benchmarks/store/crash.py [--instants 50] [--only TEXT] [--seed 1]

After every kill the store is opened again. Then every request that was acknowledged must be done, and the one under
way wholly or not at all; none twice, by receipts, records and versions; `verify` must be clean to the last bit; a scan
of all files must find nothing of those who are not there, and everything of those who are; and nothing may be left half
written. Where a request was recorded, further processes are killed while they finish it, and it must come out as if the
first had. A few minutes on one core. Writes out/store_crash.json and docs/images/crashes.png; exits with 1 if anything
is not as it must be, and keeps files in which the scan found something in out/store_crash_evidence.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.smoke import IMAGES, OUT, parser_of, sized
from cases.killing import EVIDENCE, LATER, Crash, crash, rehearse
from cases.store_stories import MODELS, OPERATIONS, story
from expunge.store.failpoints import NAMES

PATIENCE = 6
"""How many times as many kills are tried as should land in an operation."""
SLACK = 1.02
"""Instants are drawn from this much more than the time that a story takes."""


def kinds_for(operation: str) -> tuple[str, ...]:
    """Return the models that an operation is tried with; for replays, one without noise, where every deletion does."""
    return ("replaying",) if operation == "replay" else tuple(MODELS)[: sized(None, 1)]


def crashes(operation: str, instants: int, folder: Path, rng: np.random.Generator) -> Iterator[Crash]:
    """Kill at every failpoint that an operation reaches, with every model, and then at random instants."""
    number, taken = count(), {}
    for kind in kinds_for(operation):
        told = story(kind, operation)
        taken[kind], reached = rehearse(folder / f"{kind}-rehearsal", kind, told, times=sized(3, 1))
        for name, times in sorted(reached.items()):
            yield crash(folder / str(next(number)) / "model", kind, told, (name, int(rng.integers(1, times + 1))))
        if "request: recorded" in reached:
            deadly = "request: recorded", int(rng.integers(1, reached["request: recorded"] + 1))
            yield crash(folder / str(next(number)) / "model", kind, told, deadly, again=LATER)
    landed = 0
    for attempt in range(PATIENCE * instants):
        kind = kinds_for(operation)[attempt % len(taken)]
        delay = float(rng.uniform(0.0, SLACK * taken[kind]))
        one = crash(folder / str(next(number)) / "model", kind, story(kind, operation), delay=delay)
        yield one
        landed += one.operation == operation
        if landed == instants:
            return
    raise RuntimeError(f"{operation}: only {landed} of {instants} kills landed in it; the machine is too busy")


def show(found: list[Crash]) -> None:
    table = Table("under way", "failpoints", "instants", "nothing yet", "midway", "done, not said", "problems")
    for operation in OPERATIONS:
        those = [one for one in found if one.operation == operation]
        at = [one for one in those if one.at == "an instant"]
        landings = Counter(one.where for one in those)
        cells = [
            len(those) - len(at), len(at), landings["nothing yet"], landings["midway"],
            landings["done, not acknowledged"], sum(bool(one.problems) for one in those),
        ]  # fmt: skip
        table.add_row(operation, *(str(cell) for cell in cells))
    over = [one for one in found if one.operation is None]
    table.add_row("(over before)", "0", str(len(over)), "", "", "", str(sum(bool(one.problems) for one in over)))
    Console().print(table)


def draw(found: list[Crash], file: Path) -> None:
    """Draw where kills landed."""
    colours = {"nothing yet": "#bdbdbd", "midway": "#e08214", "done, not acknowledged": "#5e9c76"}
    said = {
        "nothing yet": "before it was recorded: as if never asked",
        "midway": "recorded, not done: finished when opened, with the same coins",
        "done, not acknowledged": "done, but the caller was not told",
    }
    operations = [name for name in OPERATIONS if any(one.operation == name for one in found)][::-1]
    figure = Figure(figsize=(8, 0.42 * len(operations) + 1.6), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(operations))
    for where, colour in colours.items():
        numbers = [sum(one.operation == name and one.where == where for one in found) for name in operations]
        axes.barh(operations, numbers, left=left, color=colour, label=said[where])
        left += numbers
    bad = sum(bool(one.problems) for one in found)
    killed = sum(one.operation is not None for one in found)  # the others were over before
    axes.set_title(f"{killed:,} processes killed with kill -9: {bad or 'no'} problems after reopening", loc="left")
    axes.set_xlabel("kills")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower left", frameon=False, fontsize=9)
    figure.savefig(file, dpi=120)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--instants", type=int, default=sized(50, 1), help="random instants in each operation")
    parser.add_argument("--only", default=sized("", "compact"), help="only operations whose name contains this")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    chosen = [operation for operation in OPERATIONS if given.only in operation]
    found: list[Crash] = []
    with Progress() as progress, tempfile.TemporaryDirectory() as folder:
        task = progress.add_task("kills", total=None)
        for number, operation in enumerate(chosen):
            progress.update(task, description=operation)
            for one in crashes(operation, given.instants, Path(folder) / str(number), rng):
                found.append(one)
                progress.advance(task)
                if one.problems:
                    progress.console.print(
                        f"BAD {one.kind}, {one.operation}, {one.at}, {one.where}: {one.problems[:5]}"
                    )
            for evidence in (Path(folder) / str(number)).rglob(EVIDENCE):
                shutil.copytree(evidence, OUT / "store_crash_evidence" / operation / evidence.parent.name)
            shutil.rmtree(Path(folder) / str(number))
    show(found)
    OUT.mkdir(parents=True, exist_ok=True)
    draw(found, OUT / "store_crash.png" if given.only else IMAGES / "crashes.png")
    missed = set(NAMES) - {one.at for one in found}
    bad = sum(bool(one.problems) for one in found)
    replays = sum(one.replays for one in found)
    print(f"{len(found)} kills, {bad} with problems; {replays:,} acknowledged requests replayed on the way")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    result: dict[str, Any] = {"commit": commit, "seed": given.seed, "kills": [asdict(one) for one in found]}
    (OUT / "store_crash.json").write_text(json.dumps(result, indent=1))
    if missed and not given.only:
        print(f"never killed at {sorted(missed)}")
    return 1 if bad or (missed and not given.only) else 0


if __name__ == "__main__":
    raise SystemExit(main())
