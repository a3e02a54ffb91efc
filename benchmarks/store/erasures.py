"""What durability costs: erasures a second with a full sync each, opening, and the size of the file.

    OPENBLAS_NUM_THREADS=1 python benchmarks/store/erasures.py [--records 500000] [--folder out/erasures]

500,000 records of 55 columns, default parameters, beside the same model in memory and beside bare syncs of the disk.
Single deletions, and bulks of 100 and 1,000; opening; file size with integers and UUIDs as ids. A minute. Writes
out/erasures.json.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import expunge
from benchmarks.smoke import OUT, parser_of, sized
from expunge.base.types import AnyArray, Array

COLUMNS = 55
REQUESTS = sized({1: 1_000, 100: 20, 1_000: 10}, {1: 5, 100: 2})
"""How many requests of each size."""
OPENINGS = sized(20, 2)


def syncs(folder: Path, number: int = 200) -> float:
    """Return the seconds of writing a page to the end of a file and syncing it."""
    file = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY)
    began = time.perf_counter()
    for _ in range(number):
        os.write(file, bytes(4096))
        os.fdatasync(file)
    seconds = (time.perf_counter() - began) / number
    os.close(file)
    os.unlink(folder / "sync")
    return seconds


def deletions(model: Any, victims: AnyArray) -> dict[int, dict[str, float]]:
    """Return mean and median seconds of a request, by its size."""
    found, at = {}, 0
    model.unlearn(victims[-1:])  # builds or reads what is needed from then on
    for size, number in REQUESTS.items():
        costs, replays = [], 0
        for _ in range(number):
            began = time.perf_counter()
            replays += not model.unlearn(victims[at : at + size]).kept
            costs.append(time.perf_counter() - began)
            at += size
        found[size] = {"mean": float(np.mean(costs)), "median": float(np.median(costs)), "replays": replays / number}
    return found


def openings(path: Path, row: Array) -> float:
    """Return the median seconds of opening a store and predicting."""
    costs = []
    for _ in range(OPENINGS):
        began = time.perf_counter()
        with expunge.open(path) as model:
            model.predict(row)
        costs.append(time.perf_counter() - began)
    return float(np.median(costs))


def run(records: int, folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, COLUMNS)) / (2 * COLUMNS**0.5)
    y = X @ rng.normal(size=COLUMNS) + 0.3 * rng.logistic(size=records) > 0
    victims = rng.permutation(records)
    raw = records * (COLUMNS + 1) * 8
    found: dict[str, Any] = {"records": records, "sync": syncs(folder)}
    model = expunge.LogisticRegression()
    began = time.perf_counter()
    model.fit(X, y)
    found["fit"] = time.perf_counter() - began
    path = folder / "integers.expunge"
    began = time.perf_counter()
    model.save(path)
    found["save"] = time.perf_counter() - began
    found["size"] = path.stat().st_size / raw
    found["open"] = openings(path, X[:1])
    with expunge.open(path) as stored:
        found["stored"] = deletions(stored, victims)
        began = time.perf_counter()
        found["problems"] = list(stored.verify().problems)
        found["verify"] = time.perf_counter() - began
    found["memory"] = deletions(model, victims)
    ids = np.array([str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(records)])
    named = folder / "uuids.expunge"
    expunge.LogisticRegression().fit(X, y, ids=ids).save(named)
    found["size with UUIDs"] = named.stat().st_size / raw
    found["open with UUIDs"] = openings(named, X[:1])
    shutil.rmtree(folder)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--records", type=int, default=sized(500_000, 1_000))
    parser.add_argument("--folder", type=Path, default=OUT / "erasures")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", expunge.SizeWarning)
    found = run(asked.records, asked.folder)
    table = Table(title=f"Erasures from {asked.records:,} × {COLUMNS}, default parameters")
    for name in ("at once", "erasures/s, durable", "median", "mean", "in memory: median", "mean", "durable / memory"):
        table.add_column(name, justify="right")
    for size in REQUESTS:
        stored, memory = found["stored"][size], found["memory"][size]
        table.add_row(
            f"{size:,}", f"{size / stored['mean']:,.0f}",
            *(f"{1e3 * one[kind]:.2f} ms" for one in (stored, memory) for kind in ("median", "mean")),
            f"{stored['mean'] / memory['mean']:.1f}",
        )  # fmt: skip
    console = Console()
    console.print(table)
    console.print(
        f"A sync of this disk takes {1e3 * found['sync']:.2f} ms. Fit {found['fit']:.2f} s, save "
        f"{found['save']:.2f} s; open and predict {1e3 * found['open']:.1f} ms, verify {found['verify']:.2f} s "
        f"({found['problems'] or 'clean'})."
    )
    console.print(
        f"File: {found['size']:.3f} × raw data with integers as ids, {found['size with UUIDs']:.3f} × with UUIDs, "
        f"which opens in {1e3 * found['open with UUIDs']:.1f} ms."
    )
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "erasures.json").write_text(json.dumps(found, indent=1))
    if found["problems"] or found["size"] > sized(1.3, 10.0):
        raise SystemExit("missed: see above")


if __name__ == "__main__":
    main()
