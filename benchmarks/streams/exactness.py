"""Exactness of streams, through the real engine and the estimators; all negative controls must be caught.

    python benchmarks/streams/exactness.py [--runs 20000] [--seed 1] [--only TEXT] [--resume]

About two hours on two cores (extrapolated). Writes out/streams_exactness.json; results are kept case by case, with the
commit they were made at, and --resume skips those that are there. Controls take 4,000 to 8,000 runs, and so do their
twins without the mistake, which must pass. The level of a pass is 0.01, shared among all problems that must pass.
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

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from expunge.checks import Exactness, check_exact
from paper.cases import Case
from streams.cases import cases
from streams.controls import controls, not_mistakes
from streams.estimator_streams import estimator_streams

OUT = Path("out")
FOR_CONTROLS = 4_000, 8_000
CAUGHT = 1e-6
LEVEL = 0.01


def names() -> list[tuple[str, str]]:
    """Return all problems, as kind and name."""
    found = [("stream", case.name) for case in cases()]
    found += [("estimator", one.name) for one in estimator_streams() if not one.mistake]
    found += [("harmless", one.name) for one in not_mistakes()]
    for control in controls():
        found += [("control", control.name), ("twin", control.name)]
    return found + [("estimator control", one.name) for one in estimator_streams() if one.mistake]


def check(case: Case, runs: int, seed: int, **more: Any) -> Exactness:
    return check_exact(
        case.learner, case.columns, case.requests, subjects=case.subjects, runs=runs, seed=seed, **more
    )  # fmt: skip


def examine(kind: str, name: str, runs: int, seed: int) -> Exactness:
    """Run one problem."""
    if kind == "stream":
        return check(next(case for case in cases() if case.name == name), runs, seed)
    if kind.startswith("estimator"):
        return next(one for one in estimator_streams() if one.name == name).check(runs, seed)
    control = next(one for one in controls() + not_mistakes() if one.name == name)
    if kind == "twin":
        return check(control.case, runs, seed)
    with control.mistake():
        return check(control.wrong, runs, seed, serve=control.serve)


def run_one(job: tuple[str, str, int, int]) -> dict[str, Any]:
    kind, name, runs, seed = job
    began = time.perf_counter()
    report = examine(kind, name, runs, seed)
    to_pass = sum(not kind.endswith("control") for kind, _ in names())
    good = report.p_value < CAUGHT if kind.endswith("control") else report.p_value >= LEVEL / to_pass
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
    parser.add_argument("--runs", type=int, default=20_000, help="runs a side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only problems whose kind and name contain this")
    parser.add_argument("--resume", action="store_true", help="keep the results that are there")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    out = OUT / "streams_exactness.json"
    results: list[dict[str, Any]] = []
    if options.resume and out.exists():
        results = json.loads(out.read_text())
    done = {(result["kind"], result["name"]) for result in results}
    jobs = []
    for kind, name in names():
        if options.only in f"{kind}: {name}" and (kind, name) not in done:
            short = kind.endswith(("control", "twin"))
            jobs.append(
                (kind, name, int(np.clip(options.runs, *FOR_CONTROLS)) if short else options.runs, options.seed)
            )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with Progress() as progress, multiprocessing.Pool(options.workers) as pool:
        task = progress.add_task("streams", total=len(jobs))
        for result in pool.imap_unordered(run_one, jobs):
            results.append({**result, "commit": commit})
            out.write_text(json.dumps(results, indent=1))
            if not result["as_it_should_be"]:
                progress.console.print(f"BAD {result['kind']}: {result['name']}: p = {result['p_value']:.3g}")
            progress.advance(task)
    order = names()
    results.sort(key=lambda result: order.index((result["kind"], result["name"])))
    out.write_text(json.dumps(results, indent=1))
    show(results)
    bad = [result["name"] for result in results if not result["as_it_should_be"]]
    print(f"{len(results) - len(bad)} of {len(results)} as they should be; see {out}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
