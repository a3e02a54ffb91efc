"""Relative unlearning complexity against ρ, n and T: prefix sums and linear queries, counted and predicted.

python -m benchmarks.paper.complexity [--quick]
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.paper.chapters import Chapter, Result, Table, Verdict, main
from benchmarks.paper.complexity_picture import draw
from benchmarks.paper.measuring import (
    TOLERANCE,
    Mean,
    Slope,
    all_at_most,
    at_least,
    at_most,
    cost_of_deletions,
    enough_deletions,
    has_replays,
    pooled,
    slope_of,
)
from benchmarks.paper.problems_with_optima import sphere
from benchmarks.paper.table_rows import PAPER, ROWS, Problem, ours
from benchmarks.paper.worst_case import measure_setting, settings
from expunge import GradientDescentRule, Learner, Logistic, MemoryRecords, Transcript, learn_with_outcome, paper
from expunge.base.types import Array
from expunge.engine.accounting import relative_complexity
from expunge.engine.transcript import Path
from expunge.solvers.gradient_descent import GridGradient

SEQUENTIAL, JOINT, OURS, ADAPTIVE = "sequential", "joint", "ours", "adaptive"
FEATURES = 8
Plan = Callable[[np.random.Generator], Problem]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n: int
    many: tuple[int, ...]
    """Numbers of records."""
    rows_n: int
    """How many records the four learners of Table 1 have."""
    rounds: tuple[int, ...]
    rhos: tuple[float, ...]
    everyone: int
    """How many records linear queries have."""
    runs: int
    replays: int
    """How many deletions should replay, for every point; ``least`` to ``most`` are tried, but no record twice a run."""
    least: int
    most: int
    trials: int
    longest: int
    """The most steps at which the worst case is measured."""


RHOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
FULL = Sizes(2**12, (2**8, 2**10, 2**12, 2**14), 2**12, (4, 16, 64, 256), RHOS, 400, 8, 120, 800, 12000, 4000, 2**16)
QUICK = Sizes(2**10, (2**8, 2**10, 2**12), 2**10, (4, 16, 64), RHOS, 100, 4, 30, 200, 1200, 400, 2**10)


# --- what is measured -----------------------------------------------------------------------------------


def _rows(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    features = sphere(n, FEATURES, rng)
    return features, np.where(rng.random(n) < expit(3.0 * features[:, 0]), 1.0, -1.0)


def prefix(way: str, n: int, rho: float) -> Plan:
    """Return dual averaging of the logistic loss, one record a step."""
    learner = paper.dual_averaging(Logistic(), rho=rho, n=n, d=FEATURES, D=10.0)
    if way == JOINT:
        learner = replace(learner, coupling="joint")
    elif way == OURS:
        learner = ours(learner, rho, n)
    return lambda rng: Problem(_rows(n, rng), learner, lambda w: math.nan)


def linear(way: str, rounds: int, n: int, rho: float) -> Plan:
    """Return gradient descent of the logistic loss, everyone in every round."""
    query, rule = GridGradient(Logistic(), FEATURES), GradientDescentRule(np.zeros(FEATURES), 2.0 / n)
    learner = replace(paper.linear_queries(query, rule, rho=rho, rounds=rounds), coupling=way)
    return lambda rng: Problem(_rows(n, rng), learner, lambda w: math.nan)


def of_table(number: int, n: int, rho: float) -> Plan:
    """Return a learner of Table 1 on its problem, in the paper's configuration."""
    row = ROWS[number]
    return lambda rng: row.problem(PAPER, n, rho, row.family[0], rng)


Job = tuple[dict[str, Any], Plan]


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Give every point: in which panel it is, of what, where, the paper's bound there, and what to run."""
    for way in (SEQUENTIAL, JOINT, OURS):
        for panel, n, rho in [
            *(("prefix, ρ", sizes.n, rho) for rho in sizes.rhos), *(("prefix, n", n, 0.1) for n in sizes.many)
        ]:  # fmt: skip
            setting = {"panel": panel, "way": way, "n": n, "steps": n, "rho": rho, "paper": rho * math.log2(n)}
            yield setting, prefix(way, n, rho)
    for number, row in enumerate(ROWS):
        for rho in sizes.rhos:
            n = sizes.rows_n
            setting = {"panel": "rows, ρ", "way": row.name, "n": n, "steps": n, "rho": rho, "paper": rho * math.log2(n)}
            yield setting, of_table(number, n, rho)
    middle, n = sizes.rounds[-2], sizes.everyone
    for way in (SEQUENTIAL, ADAPTIVE):
        for panel, rounds, rho in [
            *(("linear, ρ", middle, rho) for rho in sizes.rhos), *(("linear, T", many, 0.1) for many in sizes.rounds)
        ]:  # fmt: skip
            bound = rho * math.sqrt(rounds)
            setting = {"panel": panel, "way": way, "n": n, "steps": rounds, "rho": rho, "paper": bound}
            yield setting, linear(way, rounds, n, rho)


def measure_point(setting: dict[str, Any], plan: Plan, sizes: Sizes) -> dict[str, Any]:
    """Learn several times, delete from each transcript, and predict from how much records contributed."""
    complexity, replays, replayed, lengths = [], [], [], []
    number = 0
    for run in range(sizes.runs):
        rng = np.random.default_rng([zlib.crc32(repr(sorted(setting.items())).encode()), run])
        problem = plan(rng)
        records, learner = problem.records(), problem.learner
        transcript, learned = learn_with_outcome(learner, records, rng)
        if run == 0:
            wanted = enough_deletions(learner, records, transcript, sizes.replays, rng)
            number = min(records.count, math.ceil(min(max(wanted, sizes.least), sizes.most) / sizes.runs))
        cost = cost_of_deletions(learner, records, transcript, learned.evaluations, number, rng)
        complexity.append(cost.complexity)
        replays.append(cost.replays)
        replayed.append(cost.complexity - cost.deciding)
        if learner.coupling != ADAPTIVE:
            lengths.append(_norms(problem, records, transcript, rng))
    norms: list[float | None] = [None]  # the adaptive coupling's coins know only how long contributions may be
    if lengths:
        norms = np.quantile(np.concatenate(lengths), np.arange(0.05, 1.0, 0.1)).tolist()
    predicted = [relative_complexity(learner, setting["n"], norm=norm) for norm in norms]
    return {
        **setting, "complexity": Mean.of(complexity).record(), "replays": Mean.of(replays).record(),
        "replayed": Mean.of(replayed).record(),
        "predicted": float(np.mean(predicted)), "upper": relative_complexity(learner, setting["n"]),
        "deletions": number * sizes.runs,
    }  # fmt: skip


def _norms(problem: Problem, records: MemoryRecords, transcript: Transcript, rng: np.random.Generator) -> Array:
    """Return by how much records change their step's sum; halved where another record takes their place."""
    learner, steps = problem.learner, transcript.steps
    found = []
    last = records.ids_at(steps - 1) if learner.schedule.ordered else None
    for step in rng.choice(steps, min(100, steps), replace=False).tolist():
        here = records.ids_at(learner.schedule.place(step))
        if len(here):
            rows = _contributions(problem, learner, transcript, step, here)
            if last is not None:
                rows = (rows - _contributions(problem, learner, transcript, step, last)) / 2.0
            found.append(np.linalg.norm(rows, axis=1))
    return np.concatenate(found)


def _contributions(problem: Problem, learner: Learner, transcript: Transcript, step: int, ids: Any) -> Array:
    batch = tuple(column[np.asarray(ids)] for column in problem.columns)
    return learner.query.contributions(step, Path(transcript.start, transcript.iterates, step), batch)


def measure_at(sizes: Sizes, watch: Callable[[float], None]) -> Result:
    """Measure random deletions, then the worst ones."""
    asked, worst = list(jobs(sizes)), settings(sizes.longest)
    points, cases = [], []
    for number, (setting, plan) in enumerate(asked):
        points.append(measure_point(setting, plan, sizes))
        watch(0.8 * (number + 1) / len(asked))
    for number, (setting, learner) in enumerate(worst):
        trials = sizes.trials if setting["steps"] <= 16384 else sizes.trials // 4
        cases.append(measure_setting(setting, learner, trials, number))
        watch(0.8 + 0.2 * (number + 1) / len(worst))
    return {"n": sizes.n, "rows_n": sizes.rows_n, "rounds": sizes.rounds[-2], "points": points, "worst": cases}


def measure(quick: bool, watch: Callable[[float], None]) -> Result:
    return measure_at(QUICK if quick else FULL, watch)


# --- what it says ---------------------------------------------------------------------------------------

Points = list[dict[str, Any]]


def _of(result: Result, panel: str, way: str) -> Points:
    return [p for p in result["points"] if p["panel"] == panel and p["way"] == way]


NEARLY = 1.1
"""What is at most a limit may be counted a tenth above it."""


def _below(claim: str, points: Points, limit: Callable[[dict[str, Any]], float]) -> Verdict:
    """Judge whether what replays cost is below a limit, on average over the points and at each of them."""
    shares = [Mean(**p["replayed"]).times(1.0 / min(1.0, limit(p))) for p in points]
    mean, low, high = pooled(shares)
    found = f"on average {mean:.2f} [{low:.2f}, {high:.2f}] of it, at most {max(share.mean for share in shares):.2f}"
    return Verdict(claim, all_at_most(NEARLY, shares), f"{found}, {len(points)} points")


def _few(points: Points) -> Points:
    """Return the points where enough deletions replay, but not so much that it cannot become more."""
    return [p for p in points if has_replays(p) and p["replayed"]["mean"] < 0.3]


def _slope(points: Points, over: str, times: Callable[[dict[str, Any]], float] = lambda p: 1.0) -> Slope | None:
    """Fit what replays cost: to decide costs the same few evaluations at any ρ."""
    used = _few(points)
    if len(used) < 3:
        return None
    return slope_of([float(p[over]) for p in used], [Mean(**p["replayed"]).times(times(p)) for p in used])


def _slope_verdict(
    claim: str, slope: Slope | None, *, least: float | None = None, most: float | None = None
) -> Verdict:
    if slope is None:
        return Verdict(claim, None, "fewer than three points where enough deletions replay")
    held: bool | None = True
    if least is not None:
        held = at_least(least - TOLERANCE, slope.low, slope.high)
    if most is not None:
        held = at_most(most + TOLERANCE, slope.low, slope.high)
    return Verdict(claim, held, f"exponent {slope}")


def _predictions(result: Result) -> Verdict:
    """Judge the accounting's prediction, given how much records contributed."""
    ratios = [Mean(**p["complexity"]).times(1.0 / p["predicted"]) for p in result["points"]]
    mean, low, high = pooled(ratios)
    held = at_least(1.0 / NEARLY, low, high) and at_most(NEARLY, low, high)
    found = f"counted over predicted is on average {mean:.3f} [{low:.3f}, {high:.3f}], {len(ratios)} points"
    return Verdict("`relative_complexity` predicts what is counted, to a tenth", held, found)


def _worst_verdicts(result: Result) -> list[Verdict]:
    cases = result["worst"]
    outside = sum(not case["within_error"] for case in cases)
    printed = [case for case in cases if case["coupling"] == SEQUENTIAL]
    above = [c for c in printed if min(1.0, c["paper"]) < max(c["low"], c["predicted"] * (1.0 - 1e-9))]
    most = max(c["predicted"] / min(1.0, c["paper"]) for c in printed)
    claims = (
        "Worst case: deletions replay as often as `worst_case_rho` says (99.9 % intervals)",
        "Worst case, sequential: they replay at most ρ·log₂T (prefix sums) or ρ·√T (linear) of the time",
    )
    return [
        Verdict(claims[0], outside <= 1, f"{len(cases) - outside} of {len(cases)} settings"),
        Verdict(
            claims[1], not above, f"{len(printed) - len(above)} of {len(printed)} settings, up to {most:.2f} of it"
        ),
    ]


def _both(result: Result, kind: str, way: str) -> Points:
    return _of(result, f"{kind}, ρ", way) + _of(result, f"{kind}, {'n' if kind == 'prefix' else 'T'}", way)


KINDS = {"prefix": "Prefix sums", "linear": "Linear queries"}
WAYS = {"prefix": (SEQUENTIAL, JOINT, OURS), "linear": (SEQUENTIAL, ADAPTIVE)}
BOUND = {"prefix": "ρ·log₂n", "linear": "√T·ρ"}


def _limits(result: Result) -> list[Verdict]:
    found = []
    for kind, ways in WAYS.items():
        for way in ways:
            printed = way == SEQUENTIAL
            claim = f"{KINDS[kind]}, {way}: replays cost at most {BOUND[kind] if printed else 'ρ'} of learning"
            key = "paper" if printed else "rho"
            found.append(_below(claim, _both(result, kind, way), lambda p, key=key: p[key]))  # type: ignore[misc]
    for row in ROWS:
        claim = f"Row {row.name}: replays cost at most ρ·log₂n of learning"
        found.append(_below(claim, _of(result, "rows, ρ", row.name), lambda p: p["paper"]))
    return found


def _in_rho(result: Result) -> list[Verdict]:
    found = []
    for kind, ways in WAYS.items():
        for way in ways:
            slope = _slope(_of(result, f"{kind}, ρ", way), "rho")
            found.append(_slope_verdict(f"{KINDS[kind]}, {way}: cost falls with ρ like ρ", slope, least=1.0))
    for row in ROWS:
        slope = _slope(_of(result, "rows, ρ", row.name), "rho")
        found.append(_slope_verdict(f"Row {row.name}: cost falls with ρ like ρ", slope, least=1.0))
    return found


def _in_size(result: Result) -> list[Verdict]:
    slope = _slope(_of(result, "prefix, n", SEQUENTIAL), "n", lambda p: 1.0 / math.log2(p["n"]))
    found = [_slope_verdict("Prefix sums, sequential: cost over log n does not grow with n", slope, most=0.0)]
    for way in (JOINT, OURS):
        slope = _slope(_of(result, "prefix, n", way), "n")
        found.append(_slope_verdict(f"Prefix sums, {way}: cost does not grow with n", slope, most=0.0))
    slope = _slope(_of(result, "linear, T", SEQUENTIAL), "steps")
    found.append(_slope_verdict("Linear queries, sequential: cost grows like √T or less", slope, most=0.5))
    slope = _slope(_of(result, "linear, T", ADAPTIVE), "steps")
    found.append(_slope_verdict("Linear queries, adaptive: cost does not grow with T", slope, most=0.0))
    return found


def judge(result: Result) -> list[Verdict]:
    return [*_limits(result), *_in_rho(result), *_in_size(result), _predictions(result), *_worst_verdicts(result)]


def tables(result: Result) -> list[Table]:
    head = ["panel", "of", "n", "steps", "ρ", "replays", "complexity", "predicted", "upper bound", "paper's bound"]
    points = [
        [
            p["panel"], p["way"], f"{p['n']:,}", f"{p['steps']:,}", f"{p['rho']:g}", f"{p['replays']['mean']:.2%}",
            str(Mean(**p["complexity"])), f"{p['predicted']:.2g}", f"{p['upper']:.2g}", f"{min(1.0, p['paper']):.2g}",
        ]
        for p in result["points"]
    ]  # fmt: skip
    worst_head = ["queries", "steps", "ρ", "mechanism", "coupling", "replays", "predicted", "paper's bound"]
    worst = [
        [
            c["queries"], f"{c['steps']:,}", f"{c['rho']:g}", c["mechanism"], c["coupling"],
            f"{c['measured']:.4f} [{c['low']:.4f}, {c['high']:.4f}]", f"{c['predicted']:.4f}",
            f"{min(1.0, c['paper']):.3f}",
        ]
        for c in result["worst"]
    ]  # fmt: skip
    return [Table(head, points), Table(worst_head, worst)]


CHAPTER = Chapter(
    "complexity",
    "Relative unlearning complexity",
    "The paper says that a deletion costs Õ(ρ) of learning with prefix sums, and √T·ρ with linear queries in T rounds. "
    "Here evaluations of deletions of random records are counted, and divided by those of learning. The joint and the "
    "adaptive coupling are not the paper's: they remove the log n and the √T. Lines are what `relative_complexity` "
    "predicts, given how much records contributed. The last panels show the worst case: a record that contributes its "
    "full bound at the least favourable step. What is at most a limit may be counted a tenth above it. Exponents are "
    f"told apart if they differ by more than {TOLERANCE:g}.",
    measure,
    draw,
    judge,
    tables,
)

if __name__ == "__main__":
    raise SystemExit(main(CHAPTER))
