"""Requests whose process dies when it likes the outcome least, again and again: no bias, against fresh fits.

    python benchmarks/store/retries.py [--runs 3000] [--seed 1] [--only TEXT] [--workers 2]

Models are fitted, saved, opened, changed and, after every death, opened again; then everything that they keep and
publish is compared with fresh fits on the records left, by two-sample tests. The level of a pass is 0.01, shared among
all problems. Three mistakes (new coins on retry, a new place on retry, a fresh fit when a replay was interrupted) must
be caught with p < 1e-6. About twelve minutes on two cores. Writes out/store_retries.json; exits with 1 if anything is
not as it should be. crash.py has real kills.
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

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from store.dying import CONTROLS, cases, check_control

OUT = Path("out")
LEVEL = 0.01
CAUGHT = 1e-6


def run_one(job: tuple[str, str, int, int]) -> dict[str, Any]:
    kind, name, runs, seed = job
    began = time.perf_counter()
    if kind == "control":
        report = check_control(name, runs, seed)
        good = report.p_value < CAUGHT
    else:
        report = next(case for case in cases() if case.name == name).check(runs, seed)
        good = report.p_value >= LEVEL / len(cases())
    return {
        "kind": kind, "name": name, "as_it_should_be": bool(good), "p_value": report.p_value, "runs": runs,
        "seed": seed, "comparisons": len(report.names), "worst": report.worst(1)[0][0],
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def show(results: list[dict[str, Any]]) -> None:
    table = Table("", "problem", "kind", "runs", "corrected p", "where")
    for result in results:
        verdict = "ok" if result["as_it_should_be"] else "[red]BAD[/]"
        p = f"{result['p_value']:.3g}"
        table.add_row(verdict, result["name"], result["kind"], f"{result['runs']:,}", p, result["worst"])
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3_000, help="runs a side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only problems whose kind and name contain this")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    names = [("retry", case.name) for case in cases()] + [("control", name) for name in CONTROLS]
    jobs = [
        (kind, name, given.runs, 1_000 * given.seed + number)  # of their own: with the same, deaths change nothing
        for number, (kind, name) in enumerate(names)
        if given.only in f"{kind}: {name}"
    ]
    results: list[dict[str, Any]] = []
    with Progress() as progress, multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        task = progress.add_task("retries", total=len(jobs))
        for result in pool.imap(run_one, jobs):
            results.append(result)
            progress.advance(task)
    show(results)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    OUT.mkdir(exist_ok=True)
    (OUT / "store_retries.json").write_text(json.dumps({"commit": commit, "results": results}, indent=1))
    bad = [result["name"] for result in results if not result["as_it_should_be"]]
    print(f"{len(results) - len(bad)} of {len(results)} as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
