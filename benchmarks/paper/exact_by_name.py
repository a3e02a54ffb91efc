"""Exactness of every learner of `expunge.paper`, by `check_exact`; and what the paper prints, caught by the same test.

    python benchmarks/paper/exact_by_name.py [--quick] [--draw]

Of every learner the complete state after requests is compared with that of fresh learning, 20,000 runs a side. The
printed coin and reflection are patched into the engine. The other errors of the listings are switched on in a small
program of TreeLearn and TreeUnlearn (`cases.printed_tree`), which passes without them. In two processes. Writes
out/paper/exact_by_name.json and .png. What an interrupted run had found lies in exact_by_name.found; the next run
of the same commit goes on from there.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.paper.chapters import Chapter, Result, Table, Verdict, commit, folder_of, main
from cases.paper_learners import LEARNERS, PULL, REQUESTS, N, X, named_cases
from cases.patching import patched_everywhere
from cases.printed import printed_ratio, printed_reflect
from cases.printed_tree import STORIES, state_names
from expunge import DualAveragingRule, paper
from expunge.engine.checks import Exactness, check_exact, check_same_law

RUNS, QUICK_RUNS = 20_000, 500
PATCHED_RUNS, QUICK_PATCHED_RUNS = 10_000, 1_000
PROGRAM_RUNS, QUICK_PROGRAM_RUNS = 100_000, 10_000
LEVEL, CAUGHT = 0.01, 1e-6
"""The level over all that must pass; and how small a p-value must be for what is printed."""
SEED, WORKERS = 5, 2
PATCHES: dict[str, Any] = {"inverted ratio": printed_ratio, "translation for reflection": printed_reflect}
PATCHED = {
    "prefix_sums": paper.prefix_sums(PULL, DualAveragingRule(np.zeros(2), 0.3), rho=0.9, n=N),
    "linear_queries": LEARNERS["linear_queries"][0],
}
"""Learners in which the printed coin is tossed; with more replays than the others, so that it shows soon."""


class Job(NamedTuple):
    """A problem of law, by its name."""

    kind: str
    """``named`` or ``program`` (must pass), ``patched`` or ``printed`` (must be caught)."""
    name: str
    runs: int


def jobs(quick: bool) -> list[Job]:
    runs = QUICK_RUNS if quick else RUNS
    patched, program = (QUICK_PATCHED_RUNS, QUICK_PROGRAM_RUNS) if quick else (PATCHED_RUNS, PROGRAM_RUNS)
    found = [Job("named", name, runs) for name in named_cases()]
    found += [Job("patched", f"{name}, {error}", patched) for name in PATCHED for error in PATCHES]
    for story, (*_, errors) in STORIES.items():
        found.append(Job("program", story, program))
        found += [Job("printed", f"{story}, {error}", program) for error in errors]
    return found


def examine(job: Job) -> Exactness:
    """Compare changed and fresh states."""
    match job.kind:
        case "named":
            name, requests = named_cases()[job.name]
            return check_exact(*LEARNERS[name], requests, runs=job.runs, seed=SEED)
        case "patched":
            name, error = job.name.split(", ", 1)
            with patched_everywhere("keep_or_jump", PATCHES[error]):
                return check_exact(PATCHED[name], (X,), REQUESTS["a deletion"], runs=job.runs, seed=SEED)
        case _:
            story, _, error = job.name.partition(", ")
            changed, fresh, count, _ = STORIES[story]
            wrong = frozenset([error] if error else [])
            one, other = partial(changed, errors=wrong), partial(fresh, errors=wrong)
            return check_same_law(one, other, state_names(count), runs=job.runs, seed=SEED)


def run_job(job: Job) -> dict[str, Any]:
    began = time.perf_counter()
    report = examine(job)
    return {
        "kind": job.kind, "name": job.name, "runs": job.runs, "p_value": report.p_value,
        "comparisons": len(report.names), "worst": report.worst(1)[0][0],
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


@contextmanager
def workers(number: int) -> Iterator[Callable[[list[Job]], Iterator[dict[str, Any]]]]:
    if number == 1:
        yield lambda wanted: map(run_job, wanted)
        return
    with multiprocessing.get_context("spawn").Pool(number) as pool:
        yield lambda wanted: pool.imap_unordered(run_job, wanted)


def found_before(file: Path, at: str) -> list[dict[str, Any]]:
    """Return what an interrupted run of this commit had found: a line for each problem, behind one with the commit."""
    lines = file.read_text().splitlines() if file.exists() else []
    if not lines or lines[0] != at or at.endswith(("-dirty", "unknown")):
        return []
    return [json.loads(line) for line in lines[1:] if line.endswith("}")]  # the last one may be cut off


def measure_jobs(wanted: list[Job], watch: Callable[[float], None], file: Path, number: int = WORKERS) -> Result:
    """Examine problems; each is written to a file as soon as it is done, so that an interruption loses little."""
    at = commit()
    work = {(job.kind, job.name, job.runs): job.runs for job in wanted}
    found = {key: one for one in found_before(file, at) if (key := (one["kind"], one["name"], one["runs"])) in work}
    with workers(number) as run, file.open("w") as lines:
        print(at, *map(json.dumps, found.values()), sep="\n", file=lines, flush=True)
        for one in run([job for job in wanted if tuple(job) not in found]):
            found[one["kind"], one["name"], one["runs"]] = one
            print(json.dumps(one), file=lines, flush=True)
            watch(sum(work[key] for key in found) / sum(work.values()))
    file.unlink()
    return {"cases": [found[key] for key in work]}


def measure(quick: bool, watch: Callable[[float], None]) -> Result:
    return measure_jobs(jobs(quick), watch, folder_of(quick) / "exact_by_name.found")


# --- verdicts -------------------------------------------------------------------------------------------


def must_pass(case: dict[str, Any]) -> bool:
    return case["kind"] in ("named", "program")


def judge(result: Result) -> list[Verdict]:
    cases = result["cases"]
    named, program = ([c for c in cases if c["kind"] == kind] for kind in ("named", "program"))
    printed = [c for c in cases if not must_pass(c)]
    level = LEVEL / (len(named) + len(program))
    enough = all(c["runs"] >= RUNS for c in named)
    differing = [c["name"] for c in named if c["p_value"] < level]
    missed = [c["name"] for c in printed if c["p_value"] >= CAUGHT]
    wrong = [c["name"] for c in program if c["p_value"] < level]
    least = min(named, key=lambda c: c["p_value"])
    return [
        Verdict(
            f"every learner by name is exact ({len(named)} problems, level {LEVEL} over all)",
            False if differing else (True if enough else None),
            f"differ: {', '.join(differing)}" if differing
            else f"no difference with {least['runs']:,} runs a side; least corrected p {least['p_value']:.2g}, "
            f"{least['name']}",
        ),
        Verdict(
            "the small program of both listings, corrected, is exact",
            False if wrong else (True if enough else None),
            f"differ: {', '.join(wrong)}" if wrong
            else "p " + ", ".join(f"{c['p_value']:.2g} ({c['name']})" for c in program),
        ),
        Verdict(
            f"everything that is printed and can be run is caught (p below {CAUGHT:g})",
            True if not missed else (False if enough else None),
            f"{len(printed) - len(missed)} of {len(printed)}" + (f"; not {', '.join(missed)}" if missed else
            f"; largest p {max(c['p_value'] for c in printed):.1g}"),
        ),
    ]  # fmt: skip


def tables(result: Result) -> list[Table]:
    words = {"named": "exact", "program": "exact", "patched": "printed, in the engine", "printed": "printed"}
    return [
        Table(
            ["problem", "should be", "runs a side", "comparisons", "corrected p", "where", "seconds"],
            [
                [
                    c["name"], words[c["kind"]], f"{c['runs']:,}", f"{c['comparisons']:,}", f"{c['p_value']:.2g}",
                    c["worst"], f"{c['seconds']:.0f}",
                ]
                for c in result["cases"]
            ],
        )
    ]  # fmt: skip


def draw(result: Result) -> Any:
    from matplotlib.figure import Figure

    cases = result["cases"][::-1]
    figure = Figure(figsize=(8, 0.22 * len(cases) + 1.2), layout="constrained")
    axes = figure.subplots()
    for row, case in enumerate(cases):
        axes.plot(-np.log10(max(case["p_value"], 1e-60)), row, "o", color="C0" if must_pass(case) else "C3")
    axes.set_yticks(range(len(cases)), [case["name"] for case in cases], fontsize=7)
    level = LEVEL / sum(map(must_pass, cases))
    axes.axvline(-np.log10(level), color="grey", linewidth=1, label=f"level {LEVEL} over all")
    axes.axvline(-np.log10(CAUGHT), color="C3", linewidth=1, linestyle=":", label="printed ones must be beyond 1e-6")
    axes.set_xlabel("−log10 of the corrected p-value (cut off at 60)")
    axes.set_title("The paper's learners (blue), and what it prints (red)")
    axes.legend(loc="lower right")
    return figure


CHAPTER = Chapter(
    "exact_by_name",
    "Exactness of every learner by name",
    "After requests the complete state has the law of fresh learning: for every learner of expunge.paper, 20,000 runs "
    "a side. The same test catches every error of the listings that can be run.",
    measure, draw, judge, tables,
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(CHAPTER))
