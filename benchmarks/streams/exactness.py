"""Exactness of streams, through the real engine and the estimators; all negative controls must be caught.

    python benchmarks/streams/exactness.py [--runs 20000] [--seed 1] [--only TEXT] [--resume]

About two hours on two cores (extrapolated). Writes out/streams_exactness.json; results are kept case by case, with the
commit they were made at, and --resume skips those that are there. Controls take 4,000 to 8,000 runs, and so do their
twins without the mistake, which must pass. The level of a pass is 0.01, shared among all problems that must pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.problems import FEWEST_RUNS, Job, Result, arguments, judged, run_all
from benchmarks.smoke import sized
from cases.estimator_streams import estimator_streams
from cases.learners import Case
from cases.stream_mistakes import controls, not_mistakes
from cases.streams import cases
from expunge.engine.checks import Exactness, check_exact

FOR_CONTROLS = sized((4_000, 8_000), (FEWEST_RUNS, FEWEST_RUNS))


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


def run_one(job: Job) -> Result:
    return judged(job, examine, names())


def main() -> int:
    options = arguments(__doc__ or "")
    jobs = []
    for kind, name in names():
        short = kind.endswith(("control", "twin"))
        runs = int(np.clip(options.runs, *FOR_CONTROLS)) if short else options.runs
        jobs.append((kind, name, runs, options.seed))
    return run_all(run_one, jobs, "streams", options)


if __name__ == "__main__":
    raise SystemExit(main())
