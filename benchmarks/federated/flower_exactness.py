"""Exactness through the Flower strategy, with Flower's own messages; two mistakes must be caught.

    python benchmarks/federated/flower_exactness.py [--runs 20000] [--seed 1] [--only TEXT] [--resume]

Needs Flower: run it in the environment of make test-federated. With 20,000 runs a side it takes about half an hour on
two cores. Writes out/flower_exactness.json. The level of a pass is 0.01, shared among all stories that must pass.
"""

from __future__ import annotations

from benchmarks.problems import Job, Result, arguments, judged, run_all
from expunge.engine.checks import Exactness
from flower.stories import cases, controls

FOR_CONTROLS = 4_000


def names() -> list[tuple[str, str]]:
    """Return all problems, as kind and name."""
    return [("story", case.name) for case in cases()] + [("control", case.name) for case in controls()]


def examine(kind: str, name: str, runs: int, seed: int) -> Exactness:
    """Run one problem."""
    return next(case for case in cases() + controls() if case.name == name).check(runs, seed)


def run_one(job: Job) -> Result:
    return judged(job, examine, names())


def main() -> int:
    options = arguments(__doc__ or "")
    every = names()
    jobs = [
        (kind, name, min(options.runs, FOR_CONTROLS) if kind == "control" else options.runs,
         options.seed * len(every) + number)
        for number, (kind, name) in enumerate(every)
    ]  # fmt: skip
    return run_all(run_one, jobs, "flower", options)


if __name__ == "__main__":
    raise SystemExit(main())
