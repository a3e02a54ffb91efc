"""Exactness of federations in which clients come and leave; all negative controls must be caught.

    python benchmarks/federated/exactness.py [--runs 20000] [--seed 1] [--only TEXT] [--resume]

About 40 minutes on two cores. Writes out/federated_exactness.json; results are kept case by case, with the commit
they were made at, and --resume skips those that are there. Controls take 4,000 to 10,000 runs, and so do their twins
without the mistake, which must pass. The level of a pass is 0.01, shared among all problems that must pass. Every
problem has a seed of its own.
"""

from __future__ import annotations

from benchmarks.problems import Job, Result, arguments, judged, run_all
from benchmarks.smoke import sized
from cases import federated_mistakes, federated_stories
from cases.federated_finish import exact_cases, exact_controls
from cases.federated_mistakes import Control, not_mistakes
from cases.federated_stories import Case
from expunge.engine.checks import Exactness


def cases() -> list[Case]:
    """Return all stories, with noise and with an exact last round."""
    return federated_stories.cases() + exact_cases()


def controls() -> list[Control]:
    """Return all mistakes."""
    return federated_mistakes.controls() + exact_controls()


def names() -> list[tuple[str, str]]:
    """Return all problems, as kind and name."""
    found = [("story", case.name) for case in cases()]
    found += [("harmless", case.name) for case in not_mistakes()]
    for control in controls():
        found += [("control", control.name), ("twin", control.name)]
    return found


def examine(kind: str, name: str, runs: int, seed: int) -> Exactness:
    """Run one problem."""
    if kind in ("story", "harmless"):
        return next(case for case in cases() + not_mistakes() if case.name == name).check(runs, seed)
    control = next(one for one in controls() if one.name == name)
    if kind == "twin":
        return control.right.check(runs, seed)
    with control.mistake():
        return control.wrong.check(runs, seed)


def run_one(job: Job) -> Result:
    return judged(job, examine, names())


def main() -> int:
    options = arguments(__doc__ or "")
    most = {control.name: control.runs for control in controls()}
    every = names()
    jobs = [
        (kind, name, sized(most.get(name, options.runs), options.runs), options.seed * len(every) + number)
        for number, (kind, name) in enumerate(every)
    ]
    return run_all(run_one, jobs, "federated", options)


if __name__ == "__main__":
    raise SystemExit(main())
