"""Exactness of Newton's method and of keyed samples: every case of `tests/cases/draws.py`, k-means and boosting.

    python benchmarks/exactness/newton.py [--runs 100000] [NAME ...]

Of every case the complete state after requests is compared with that of fresh learning, `--runs` times a side; every
mistake must be caught, and needs fewer runs. out/exactness_newton.json is written after each. A run that was
interrupted goes on behind the last one, as long as the package and its cases are the same. In one process.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.smoke import OUT, SMOKE, parser_of, sized
from cases import draws, sampled, sampled_trees
from cases.draws import controls
from cases.learners import Case
from expunge.engine.checks import Exactness, check_exact

RUNS = sized(100_000, 100)
LEVEL, CAUGHT = 0.01, 1e-6
"""The level over all that must pass; and how small a p-value must be for a mistake."""
SEED = 6
ROOT = Path(__file__).resolve().parents[2]
MEASURED = ("src", "tests/cases")
"""What a result depends on."""


class Job(NamedTuple):
    """One comparison."""

    kind: str
    """``exact`` (must pass) or ``mistake`` (must be caught)."""
    name: str
    runs: int


def cases() -> list[Case]:
    """Return all problems that must pass."""
    return [*draws.cases(), *sampled.cases(), *sampled_trees.cases()]


def jobs(names: list[str], runs: int) -> list[Job]:
    """Return the comparisons of these names, or all: mistakes first, which take a minute or two each."""
    found = [Job("mistake", one.name, sized(one.runs, runs)) for one in controls()]
    found += [Job("exact", one.name, runs) for one in cases()]
    if SMOKE:
        return [found[0], *[job for job in found if job.kind == "exact"][:2]]
    return [job for job in found if not names or job.name in names]


def examine(job: Job) -> Exactness:
    """Compare changed and fresh states."""
    if job.kind == "exact":
        case = next(one for one in cases() if one.name == job.name)
        return check_exact(case.learner, case.columns, case.requests, runs=job.runs, seed=SEED)
    control = next(one for one in controls() if one.name == job.name)
    case = control.wrong
    with control.mistake():
        return check_exact(case.learner, case.columns, case.requests, runs=job.runs, seed=SEED, serve=control.serve)


def tree() -> str:
    """Return what is measured: the trees of the package and its cases in git, or "changed" if they are not there."""
    git = ["git", "-C", str(ROOT)]
    asked = [["status", "--porcelain", *MEASURED], ["rev-parse", *(f"HEAD:{name}" for name in MEASURED)]]
    changed, at = (subprocess.run([*git, *one], capture_output=True, text=True, check=False) for one in asked)
    known = changed.returncode == at.returncode == 0 and not changed.stdout
    return "-".join(one[:9] for one in at.stdout.split()) if known else "changed"


def found_before(file: Path, at: str) -> list[dict[str, Any]]:
    """Return what an interrupted run of the same tree had found."""
    if at == "changed" or not file.exists():
        return []
    earlier = json.loads(file.read_text())
    return earlier["comparisons"] if earlier["tree"] == at else []


def run(job: Job) -> dict[str, Any]:
    """Make one comparison."""
    began = time.perf_counter()
    report = examine(job)
    return {
        **job._asdict(), "p_value": report.p_value, "comparisons": len(report.names), "worst": report.worst(1)[0][0],
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def judge(found: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each kind, and whether all is as it should be."""
    exact, mistakes = ([one for one in found if one["kind"] == kind] for kind in ("exact", "mistake"))
    differing = [one["name"] for one in exact if one["p_value"] < LEVEL / len(exact)]
    missed = [one["name"] for one in mistakes if one["p_value"] >= CAUGHT]
    lines = [
        f"exact, at level {LEVEL} over all: {len(exact) - len(differing)} of {len(exact)} {', '.join(differing)}",
        f"mistakes caught, p below {CAUGHT:g}: {len(mistakes) - len(missed)} of {len(mistakes)} {', '.join(missed)}",
    ]
    return lines, not differing and not missed


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", help="cases and mistakes (default: all)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs a side of each case")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    file, at = OUT / "exactness_newton.json", tree()
    wanted = jobs(given.names, given.runs)
    found = {Job(one["kind"], one["name"], one["runs"]): one for one in found_before(file, at)}
    for job in wanted:
        if job not in found:
            found[job] = run(job)
            file.write_text(json.dumps({"tree": at, "comparisons": list(found.values())}, indent=1))
        one = found[job]
        print(
            f"{one['kind']:8}{one['name']:40}{one['runs']:>8,} runs a side, {one['comparisons']:,} comparisons, "
            f"corrected p = {one['p_value']:.3g} ({one['worst']}), {one['seconds']:,.0f} s",
            flush=True,
        )
    lines, right = judge([found[job] for job in wanted])
    print("\n".join(lines))
    return 0 if right or SMOKE else 1


if __name__ == "__main__":
    raise SystemExit(main())
