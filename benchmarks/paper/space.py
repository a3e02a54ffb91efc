"""How much is kept beside the records: bytes of the transcript against n, for the paper's learner and for ours.

    python benchmarks/paper/space.py [--quick] [--draw]

Writes out/paper/space.json and .png.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.paper.chapters import Chapter, Result, Table, Verdict, main
from benchmarks.paper.methods import DistanceGradient, points_around
from expunge import DualAveragingRule, Learner, MemoryRecords, Scattered, SquareRoot, Transcript, learn, paper
from expunge.engine.accounting import noise_for
from expunge.solvers.any_loss import LossGradient
from expunge.solvers.plans.defaults import automatic_steps

D, RHO = 16, 0.2
POWERS, QUICK_POWERS = range(8, 17), range(8, 13)
PAPER, OURS = "the paper's: Shuffled(1), tree", "ours: Scattered(2√n), square root"
EXPONENTS = {PAPER: 1.0, OURS: 0.5}


def learner_of(name: str, n: int) -> Learner:
    query, rule = LossGradient(DistanceGradient(), D, 1.0), DualAveragingRule(np.zeros(D), 0.01)
    if name == PAPER:
        return paper.prefix_sums(query, rule, rho=RHO, n=n)
    schedule, mechanism = Scattered(automatic_steps(n, D)), SquareRoot()
    return Learner(schedule, query, rule, mechanism, noise_for(RHO, schedule, mechanism, bound=1.0))


def bytes_kept(transcript: Transcript, records: MemoryRecords) -> dict[str, int]:
    """Return the bytes of the transcript's three tables, of the records' own columns, and of their places."""
    tables: tuple[Any, ...] = transcript.sums, transcript.answers, transcript.iterates
    sizes = records.nbytes()
    return {
        "transcript": sum(table.nbytes for table in tables),
        "records": sizes["columns"],
        "places": sum(sizes.values()) - sizes["columns"],
    }


def measure(quick: bool, watch: Callable[[float], None]) -> Result:
    sizes = [2**power for power in (QUICK_POWERS if quick else POWERS)]
    points: list[dict[str, Any]] = []
    for number, n in enumerate(sizes):
        rng = np.random.default_rng([11, n])
        columns = (points_around(n, D, rng),)
        for name in EXPONENTS:
            learner, records = learner_of(name, n), MemoryRecords(columns)
            transcript = learn(learner, records, rng)
            points.append({"learner": name, "n": n, "steps": transcript.steps, **bytes_kept(transcript, records)})
        watch((number + 1) / len(sizes))
    return {"d": D, "points": points}


def curve(result: Result, name: str) -> tuple[list[int], list[int]]:
    mine = [point for point in result["points"] if point["learner"] == name]
    return [point["n"] for point in mine], [point["transcript"] for point in mine]


def exponent(result: Result, name: str) -> float:
    n, kept = curve(result, name)
    return float(np.polyfit(np.log(n), np.log(kept), 1)[0])


def judge(result: Result) -> list[Verdict]:
    n, kept = curve(result, PAPER)
    ratios = [size / (8.0 * result["d"] * many) for many, size in zip(n, kept, strict=True)]
    _, small = curve(result, OURS)
    share = [size / (8.0 * result["d"] * many) for many, size in zip(n, small, strict=True)]
    ours = exponent(result, OURS)
    return [
        Verdict(
            "the paper's learner keeps a tree of size n·d: three numbers for each of a step",
            max(abs(ratio - 3.0) for ratio in ratios) < 0.01,
            f"{min(ratios):.2f} to {max(ratios):.2f} times 8nd bytes, exponent {exponent(result, PAPER):.2f}",
        ),
        Verdict(
            "with 2√n steps it is √n·d",
            0.4 <= ours <= 0.6,
            f"exponent {ours:.2f}; {share[0]:.2f} times 8nd bytes at n = {n[0]}, {share[-1]:.3f} at {n[-1]}",
        ),
    ]  # fmt: skip


def tables(result: Result) -> list[Table]:
    head = ["learner", "n", "steps", "transcript, bytes", "/ 8nd", "records, bytes", "their places, bytes"]
    rows = [
        [
            p["learner"], str(p["n"]), str(p["steps"]), f"{p['transcript']:,}",
            f"{p['transcript'] / (8 * result['d'] * p['n']):.3f}", f"{p['records']:,}", f"{p['places']:,}",
        ]
        for p in sorted(result["points"], key=lambda p: list(EXPONENTS).index(p["learner"]))
    ]  # fmt: skip
    return [Table(head, rows)]


def draw(result: Result) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(EXPONENTS):
        n, kept = curve(result, name)
        axes.plot(n, kept, "o-", color=f"C{number}", label=f"{name}: n^{exponent(result, name):.2f}")
    mine = [point for point in result["points"] if point["learner"] == PAPER]
    axes.plot([p["n"] for p in mine], [p["records"] for p in mine], "k:", label="the records themselves")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("n")
    axes.set_ylabel("bytes of the transcript")
    axes.set_title(f"What is kept beside the records, d = {result['d']}")
    axes.legend()
    return figure


CHAPTER = Chapter(
    "space",
    "Space: bytes against n",
    "The paper's unlearning keeps the tree, O(nd) numbers. Measured: the bytes of the transcript for the paper's "
    "learner and for one with 2√n steps, this library's default.",
    measure, draw, judge, tables,
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(CHAPTER))
