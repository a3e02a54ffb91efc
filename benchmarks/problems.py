"""Problems of law, run in several processes: those that must pass, and mistakes that must be caught."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import smoke
from benchmarks.smoke import OUT, SMOKE, sized
from expunge.engine.checks import Exactness

Job = tuple[str, str, int, int]
"""Kind and name of a problem, runs a side, and a seed. Mistakes are of a kind that ends in ``control``."""
Result = dict[str, Any]

CAUGHT = 1e-6
FEWEST_RUNS = 100
"""So many runs `check_exact` wants, at least."""
LEVEL = 0.01
"""How likely a false alarm is, among all problems together."""


def parser_of(doc: str, runs: int) -> argparse.ArgumentParser:
    """Return what reads the command line; a benchmark can add to it."""
    parser = smoke.parser_of(doc)
    parser.add_argument("--runs", type=int, default=sized(runs, FEWEST_RUNS), help="runs a side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only problems whose kind and name contain this")
    parser.add_argument("--resume", action="store_true", help="keep the results that are there")
    parser.add_argument("--workers", type=int, default=sized(2, 1))
    return parser


def arguments(doc: str, runs: int = 20_000) -> argparse.Namespace:
    """Read the command line."""
    return parser_of(doc, runs).parse_args()


def judged(job: Job, examine: Callable[[str, str, int, int], Exactness], names: list[tuple[str, str]]) -> Result:
    """Run one problem, and say whether it went as it should; ``names`` are kinds and names of all."""
    kind, name, runs, seed = job
    began = time.perf_counter()
    report = examine(kind, name, runs, seed)
    to_pass = sum(not kind.endswith("control") for kind, _ in names)
    good = report.p_value < CAUGHT if kind.endswith("control") else report.p_value >= LEVEL / to_pass
    return {
        "kind": kind, "name": name, "as_it_should_be": bool(good), "p_value": report.p_value, "runs": runs,
        "seed": seed, "comparisons": len(report.names), "worst": report.worst(1)[0][0],
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def show(results: list[Result]) -> None:
    """Print a table."""
    table = Table("", "problem", "kind", "runs", "corrected p", "where")
    for result in results:
        verdict = "ok" if result["as_it_should_be"] else "[red]BAD[/]"
        p = f"{result['p_value']:.3g}"
        table.add_row(verdict, result["name"], result["kind"], f"{result['runs']:,}", p, result["worst"])
    Console().print(table)


def run_jobs(run_one: Callable[[Job], Result], jobs: list[Job], out: Path, options: argparse.Namespace) -> list[Result]:
    """Run the jobs that are asked for in several processes, and return their results in the order of the jobs.

    Each result is written to ``out`` when it is there, with the commit; with ``--resume`` those found there are kept.
    """
    OUT.mkdir(parents=True, exist_ok=True)
    order = [job[:2] for job in jobs]
    found = json.loads(out.read_text()) if options.resume and out.exists() else []
    results: list[Result] = [result for result in found if (result["kind"], result["name"]) in order]
    done = {(result["kind"], result["name"]) for result in results}
    jobs = [job for job in jobs if options.only in f"{job[0]}: {job[1]}" and job[:2] not in done]
    if SMOKE:
        jobs = list({job[0]: job for job in jobs}.values())  # one of each kind
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with Progress() as progress, multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        task = progress.add_task(out.stem, total=len(jobs))
        for result in pool.imap_unordered(run_one, jobs):
            results.append({**result, "commit": commit})
            results.sort(key=lambda result: order.index((result["kind"], result["name"])))
            out.write_text(json.dumps(results, indent=1))
            if not result.get("as_it_should_be", True):
                progress.console.print(f"BAD {result['kind']}: {result['name']}")
            progress.advance(task)
    return results


def conclude(results: list[Result], out: Path) -> int:
    """Write all results, say how many went as they should, and return 1 if one went wrong.

    With ``--smoke`` there are too few runs to catch a mistake, and it returns 0.
    """
    out.write_text(json.dumps(results, indent=1))
    bad = [result["name"] for result in results if not result["as_it_should_be"]]
    print(f"{len(results) - len(bad)} of {len(results)} as they should be; see {out}")
    return 1 if bad and not SMOKE else 0


def run_all(run_one: Callable[[Job], Result], jobs: list[Job], title: str, options: argparse.Namespace) -> int:
    """Run all problems that are asked for, write out/TITLE_exactness.json, and return 1 if one went wrong."""
    out = OUT / f"{title}_exactness.json"
    results = run_jobs(run_one, jobs, out, options)
    show(results)
    return conclude(results, out)
