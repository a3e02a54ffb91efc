"""Exactness through the Flower strategy, with Flower's own messages; two mistakes must be caught.

    python benchmarks/federated/flower_exactness.py [--runs 20000] [--seed 1] [--only TEXT]

Needs Flower: run it in the environment of make test-federated. With 20,000 runs a side it takes about half an hour on
two cores. Writes out/flower_exactness.json. The level of a pass is 0.01, shared among all stories that must pass.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from rich.console import Console
from rich.table import Table

from federated.flower_toy import cases, controls

OUT = Path("out")
CAUGHT = 1e-6
LEVEL = 0.01
FOR_CONTROLS = 4_000


def run_one(job: tuple[str, int, int]) -> dict[str, Any]:
    """Tell one story many times."""
    name, runs, seed = job
    began = time.perf_counter()
    control = name in {case.name for case in controls()}
    report = next(case for case in cases() + controls() if case.name == name).check(runs, seed)
    good = report.p_value < CAUGHT if control else report.p_value >= LEVEL / len(cases())
    return {
        "kind": "control" if control else "story", "name": name, "as_it_should_be": bool(good),
        "p_value": report.p_value, "runs": runs, "seed": seed, "comparisons": len(report.names),
        "worst": report.worst(1)[0][0], "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def show(results: list[dict[str, Any]]) -> None:
    table = Table("", "story", "kind", "runs", "corrected p", "where")
    for result in results:
        verdict = "ok" if result["as_it_should_be"] else "[red]BAD[/]"
        p = f"{result['p_value']:.3g}"
        table.add_row(verdict, result["name"], result["kind"], f"{result['runs']:,}", p, result["worst"])
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000, help="runs a side; mistakes take at most 4,000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only stories whose name contains this")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    jobs = [(case.name, options.runs, options.seed) for case in cases()]
    jobs += [(case.name, min(options.runs, FOR_CONTROLS), options.seed) for case in controls()]
    jobs = [job for job in jobs if options.only in job[0]]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        results = pool.map(run_one, jobs, chunksize=1)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    OUT.mkdir(exist_ok=True)
    (OUT / "flower_exactness.json").write_text(
        json.dumps([{**result, "commit": commit} for result in results], indent=1)
    )
    show(results)
    return 0 if all(result["as_it_should_be"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
