"""Requests whose process dies when it likes the outcome least, again and again: no bias, against fresh fits.

    python benchmarks/store/retries.py [--runs 3000] [--seed 1] [--only TEXT] [--resume] [--workers 2]

Models are fitted, saved, opened, changed and, after every death, opened again; then everything that they keep and
publish is compared with fresh fits on the records left, by two-sample tests. The level of a pass is 0.01, shared among
all problems. Three mistakes (new coins on retry, a new place on retry, a fresh fit when a replay was interrupted) must
be caught with p < 1e-6. About twelve minutes on two cores. Writes out/retries_exactness.json; exits with 1 if anything
is not as it should be. crash.py has real kills.
"""

from __future__ import annotations

from benchmarks.problems import Job, Result, arguments, judged, run_all
from cases.dying import CONTROLS, cases, check_control
from expunge.engine.checks import Exactness


def names() -> list[tuple[str, str]]:
    """Return all problems, as kind and name."""
    return [("retry", case.name) for case in cases()] + [("control", name) for name in CONTROLS]


def examine(kind: str, name: str, runs: int, seed: int) -> Exactness:
    """Run one problem."""
    if kind == "control":
        return check_control(name, runs, seed)
    return next(case for case in cases() if case.name == name).check(runs, seed)


def run_one(job: Job) -> Result:
    return judged(job, examine, names())


def main() -> int:
    options = arguments(__doc__ or "", runs=3_000)
    jobs = [
        (kind, name, options.runs, 1_000 * options.seed + number)  # of their own: with the same, deaths change nothing
        for number, (kind, name) in enumerate(names())
    ]
    return run_all(run_one, jobs, "retries", options)


if __name__ == "__main__":
    raise SystemExit(main())
