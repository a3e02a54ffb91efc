"""How many erasures a second, one at a time, with full sync: beside what the syncs alone would take on this disk.

    OPENBLAS_NUM_THREADS=1 python benchmarks/store/throughput.py [--records 200000] [--folder out/throughput]

200,000 records of 20 columns, with numbers as ids; syncs are measured before and after, on the same disk. Half a
minute. Writes out/store_throughput.json.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import expunge
from benchmarks.smoke import OUT, parser_of, sized
from benchmarks.store.erasures import syncs

COLUMNS, RHO = 20, 0.01
SYNCS = 5
"""How many syncs a request needs: two for the record, two for the checkpoint, one for the log that is emptied."""
QUICK = 1e-4
"""The seconds of a sync on the disk that the goal (600 a second) was set for."""


def erase(model: Any, victims: list[int]) -> tuple[list[float], int, float]:
    """Return the seconds of each erasure, how many were replayed, and the CPU seconds of all."""
    costs, replays = [], 0
    busy = time.process_time()
    for one in victims:
        began = time.perf_counter()
        replays += not model.unlearn([one]).kept
        costs.append(time.perf_counter() - began)
    return costs, replays, time.process_time() - busy


def run(records: int, requests: int, folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, COLUMNS)) / (2 * COLUMNS**0.5)
    y = X @ rng.normal(size=COLUMNS) > 0
    victims = rng.permutation(records)[: requests + 20].tolist()
    path = folder / "model.expunge"
    expunge.LogisticRegression(rho=RHO, solver="dual_averaging").fit(X, y).save(path)
    before = syncs(folder)
    with expunge.open(path) as model:
        erase(model, victims[:20])
        costs, replays, busy = erase(model, victims[20:])
    sync = (before + syncs(folder)) / 2
    shutil.rmtree(folder)
    median, mean = float(np.median(costs)), sum(costs) / requests
    return {
        "records": records, "requests": requests, "replays": replays, "a second": 1 / mean,
        "a second, were a sync 0.1 ms": 1 / (mean - SYNCS * (sync - QUICK)),
        "median": median, "CPU seconds each": busy / requests, "sync": sync,
        "median / syncs alone": median / (SYNCS * sync),
    }  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--records", type=int, default=sized(200_000, 1_000))
    parser.add_argument("--requests", type=int, default=sized(2_000, 10))
    parser.add_argument("--folder", type=Path, default=OUT / "throughput")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", expunge.SizeWarning)
    found = run(asked.records, asked.requests, asked.folder)
    print(
        f"{found['a second']:,.0f} erasures a second from {asked.records:,} × {COLUMNS} (ρ = {RHO:g}), one at a time: "
        f"median {1e3 * found['median']:.2f} ms, CPU {1e3 * found['CPU seconds each']:.2f} ms, "
        f"{found['replays']} of {asked.requests:,} replayed. A sync of this disk takes {1e3 * found['sync']:.3f} ms: "
        f"the median is {found['median / syncs alone']:.1f} times {SYNCS} syncs alone. "
        f"Were it 0.1 ms: {found['a second, were a sync 0.1 ms']:,.0f} a second."
    )
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "store_throughput.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
