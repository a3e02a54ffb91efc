"""Exactness with 100,000 runs a side, through the real engine; all negative controls must be caught.

    python benchmarks/paper/exactness.py [--runs 100000] [--only TEXT] [--resume]
    python benchmarks/paper/exactness.py --estimators --runs 4000

About an hour on two cores. Writes out/exactness.json and out/exactness.png; results are kept case by case, with the
commit they were made at, and --resume skips those that are there. Controls take a tenth of the runs.
With --estimators it is all estimators and solvers with all choices of the engine instead (378 learners), each at a
level that makes one false alarm among all of them a matter of 1 %.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

from benchmarks.paper.estimator_cases import case_of, name_of, product
from benchmarks.problems import FEWEST_RUNS, Job, Result, conclude, parser_of, run_jobs, show
from benchmarks.smoke import OUT
from cases.clusters import cluster_cases, cluster_controls
from cases.learners import Case
from cases.learners import cases as small_cases
from cases.mistakes import Control
from cases.mistakes import controls as small_controls
from expunge.engine.checks import check_exact


def cases() -> list[Case]:
    """Return all exact problems."""
    return small_cases() + cluster_cases()


def controls() -> list[Control]:
    """Return all mistakes."""
    return small_controls() + cluster_controls()


@cache
def estimator_names() -> dict[str, Any]:
    """Return the choices of each estimator's case, by name."""
    return {name_of(chosen): chosen for chosen in product()}


def find(name: str) -> list[Case]:
    """Return the exact case of this name, or nothing: then it is a control."""
    if name in estimator_names():
        return [case_of(estimator_names()[name])]
    return [case for case in cases() if case.name == name]


def run_case(job: Job) -> Result:
    kind, name, runs, seed = job
    began = time.perf_counter()
    found = find(name)
    if found:
        case = found[0]
        report = check_exact(case.learner, case.columns, case.requests, subjects=case.subjects, runs=runs, seed=seed)
        good = report.p_value * (len(estimator_names()) if name in estimator_names() else 1) >= report.level
    else:
        control = next(control for control in controls() if control.name == name)
        case = control.wrong
        with control.mistake():
            report = check_exact(case.learner, case.columns, case.requests, runs=runs, serve=control.serve, seed=seed)
        good = report.p_value < 1e-6
    quantiles = np.quantile(report.p_values, np.linspace(0, 1, 51)).tolist()
    return {
        "kind": kind, "name": name, "as_it_should_be": bool(good), "p_value": report.p_value, "runs": runs,
        "comparisons": len(report.names), "worst": report.worst(1)[0][0], "quantiles": quantiles,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def draw(results: list[Result]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.22 * len(results) + 1.2), layout="constrained")
    axes = figure.subplots()
    for row, result in enumerate(results):
        p = max(result["p_value"], 1e-60)
        axes.plot(-np.log10(p), row, "o", color="C3" if result["kind"] == "control" else "C0")
    axes.set_yticks(range(len(results)), [result["name"] for result in results], fontsize=7)
    axes.axvline(2, color="grey", linewidth=1, label="level 0.01")
    axes.axvline(6, color="C3", linewidth=1, linestyle=":", label="controls must be beyond 1e-6")
    axes.set_xlabel("-log10 of the corrected p-value (cut off at 60)")
    axes.set_title("Exact learners (blue) and negative controls (red)")
    axes.legend(loc="lower right")
    figure.savefig(OUT / "exactness.png", dpi=120)


def main() -> int:
    parser = parser_of(__doc__ or "", runs=100_000)
    parser.add_argument("--estimators", action="store_true", help="all estimators, with all choices")
    options = parser.parse_args()
    fewer = max(options.runs // 10, FEWEST_RUNS)
    mistakes = [("control", control.name, fewer, options.seed) for control in controls()]
    jobs = [("case", case.name, options.runs, options.seed) for case in cases()]
    jobs.sort(key=lambda job: "stream" in job[1])  # the long ones last
    if options.estimators:
        mistakes, jobs = [], [("case", name, options.runs, options.seed) for name in estimator_names()]
    out = OUT / ("exactness_estimators.json" if options.estimators else "exactness.json")
    results = run_jobs(run_case, mistakes + jobs, out, options)
    show(results)
    if not options.estimators:
        draw(results)
    return conclude(results, out)


if __name__ == "__main__":
    raise SystemExit(main())
