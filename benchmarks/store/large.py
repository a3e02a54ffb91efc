"""Five million records, more than a model in memory should hold: ingested, trained, forgotten, verified.

    python benchmarks/store/large.py [--records 5000000] [--folder out/large]

5,000,000 × 50 float32 records are made block by block and ingested into a store; then come 1,000 single deletions,
a bulk of 50,000, a scan for some of the deleted records, and `verify`. The peak of the process's memory must stay
below 4 GB. About five minutes, and 4 GB of disk while it runs. Writes out/large.json.
"""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import expunge
import expunge.store
from benchmarks.smoke import OUT, parser_of, sized
from expunge.base.types import AnyArray

FEATURES, BLOCK = 50, sized(100_000, 500)
SINGLE, BULK = sized(1_000, 10), sized(50_000, 100)
LIMIT = 4.0


def block(number: int, rows: int) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return (X, y, ids) of a block: the same at every call."""
    rng = np.random.default_rng([7, number])
    X = rng.standard_normal((rows, FEATURES), dtype=np.float32) / np.float32(2 * FEATURES**0.5)
    weights = np.random.default_rng(7).normal(size=FEATURES)
    y = X @ weights + 0.25 * rng.normal(size=rows) > 0
    return X, y, np.arange(number * BLOCK, number * BLOCK + rows)


def blocks(records: int) -> Iterator[tuple[AnyArray, AnyArray, AnyArray]]:
    for number in range(-(-records // BLOCK)):
        yield block(number, min(BLOCK, records - number * BLOCK))


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def run(records: int, folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "model.expunge"
    one_by_one = f"{SINGLE:,} deletions"
    found: dict[str, Any] = {"records": records, "raw": records * (FEATURES * 4 + 8)}

    def stage(name: str, began: float) -> None:
        found[name] = {"seconds": time.perf_counter() - began, "peak": peak()}
        Console(stderr=True).print(f"{name}: {found[name]['seconds']:.1f} s, peak {found[name]['peak']:.2f} GB")

    began = time.perf_counter()
    model = expunge.ingest(
        expunge.LogisticRegression(classes=[False, True], solver="dual_averaging"), blocks(records), path
    )
    stage("ingest and train", began)
    found["file"] = path.stat().st_size
    X, y, _ = block(10**6, BLOCK)
    found["accuracy"] = float(model.score(X, y))
    model.close()
    began = time.perf_counter()
    model = expunge.open(path)
    model.predict(X[:1])
    stage("open and predict", began)
    victims = np.random.default_rng(1).permutation(records)[: SINGLE + BULK]
    costs, replays = [], 0
    began = time.perf_counter()
    for victim in victims[:SINGLE]:
        start = time.perf_counter()
        replays += not model.unlearn([victim]).kept
        costs.append(time.perf_counter() - start)
    stage(one_by_one, began)
    found[one_by_one] |= {"median": float(np.median(costs)), "replays": replays}
    began = time.perf_counter()
    model.unlearn(victims[SINGLE:])
    stage(f"a bulk of {BULK:,}", began)
    began = time.perf_counter()
    rows = [block(int(one) // BLOCK, BLOCK)[0][one % BLOCK] for one in victims[[0, 1, SINGLE, SINGLE + 1]]]
    found["left"] = len(expunge.store.scan(path, rows))
    found["seen"] = len(expunge.store.scan(path, [block(0, BLOCK)[0][min(set(range(1000)) - set(victims.tolist()))]]))
    stage("scan", began)
    began = time.perf_counter()
    verified = model.verify()
    stage("verify", began)
    found["problems"], found["left records"] = list(verified.problems), model.n_records_
    model.close()
    shutil.rmtree(folder)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--records", type=int, default=sized(5_000_000, 2_000))
    parser.add_argument("--folder", type=Path, default=OUT / "large")
    asked = parser.parse_args()
    found = run(asked.records, asked.folder)
    table = Table(title=f"{asked.records:,} × {FEATURES} float32 records in a store")
    for name in ("stage", "seconds", "peak memory"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for name, said in found.items():
        if isinstance(said, dict):
            table.add_row(name, f"{said['seconds']:.2f}", f"{said['peak']:.2f} GB")
    console = Console()
    console.print(table)
    single = found[f"{SINGLE:,} deletions"]
    console.print(f"file {found['file'] / found['raw']:.3f} × raw data; accuracy {found['accuracy']:.4f}")
    console.print(
        f"a single deletion: median {1e3 * single['median']:.2f} ms; {single['replays']} of {SINGLE} replayed"
    )
    console.print(f"deleted records found by the scan: {found['left']}; a live one: {found['seen']}")
    console.print(f"verify: {found['problems'] or 'clean'}; {found['left records']:,} records left")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "large.json").write_text(json.dumps(found, indent=1))
    if found["problems"] or found["left"] or found["verify"]["peak"] > LIMIT:
        raise SystemExit("missed: see above")


if __name__ == "__main__":
    main()
