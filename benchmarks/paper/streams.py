"""Dynamic streams: excess risk against |S_i| with a known optimum, weak and exact, beside a single fit; and replays.

    python benchmarks/paper/streams.py [--quick] [--draw]

Streams start from one record; three in four requests insert a record, the others delete one at random. No request
looks at a model or an outcome. They go through `paper.weak_stream` and `paper.exact_stream`. Whenever there are 128,
256, … records for the first time, the model's excess risk is computed exactly. Beside it: fresh fits to as many
records, by the same learner and by one that is planned for that n. Writes out/paper/streams.json and .png.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.paper.chapters import Chapter, Result, Table, Verdict, main
from benchmarks.paper.fitting import Point, fitted, together
from benchmarks.paper.measuring import Slope, at_most
from benchmarks.paper.methods import DistanceGradient, TiltedGradient, excess_of_points, points_around, tilted_excess
from benchmarks.paper.problems_with_optima import sphere
from expunge import Ball, DualAveragingRule, FrankWolfeRule, Learner, MemoryRecords, insert, learn, paper, unlearn
from expunge.base.types import Array
from expunge.engine.accounting import FOREVER, worst_case_rho
from expunge.engine.mechanisms.binary_tree import BinaryTree
from expunge.solvers.any_loss import HybridLossGradient, LossGradient
from expunge.solvers.dual_averaging import theorem_step_size

RHO, D, TILT = 0.5, 4, 0.5
INSERTIONS = 0.75
LEAST = 128
LARGEST, QUICK_LARGEST = 1024, 512
STREAMS, QUICK_STREAMS = 16, 6
FITS, QUICK_FITS = 60, 24
LEVEL, WIDE = 0.01, 0.3
"""The level of all comparisons together; and how wide an interval of a ratio may be for it to decide."""


@dataclass(frozen=True)
class Task:
    """A problem with known optimum, and the learners of streams and of single fits."""

    name: str
    draw: Callable[[int, np.random.Generator], Array]
    excess: Callable[[Array], float]
    stream: Callable[[str], Learner]
    planned: Callable[[int], Learner]


def _frank_wolfe_stream(kind: str) -> Learner:
    query = HybridLossGradient(TiltedGradient(TILT), D, 3.0)  # max(2G, HD + G) for G = 1.5, H = 0.5, diameter 2
    return _maker(kind)(query, FrankWolfeRule(np.zeros(D), Ball(1.0)), rho=RHO)


def _dual_averaging_stream(kind: str) -> Learner:
    """Steps η/√(1+t), whatever the number of records; η balances the bound for the noise of 1,000 steps."""
    query, ball = LossGradient(DistanceGradient(), D, 1.0), Ball(1.5)
    noisy = _maker(kind)(query, DualAveragingRule(np.zeros(D), 1.0, ball), rho=RHO).sigma * BinaryTree(
        "anytime"
    ).widest(1000)
    eta = theorem_step_size(1, D, bound=1.0, radius=1.5, spread=noisy)
    return _maker(kind)(query, DualAveragingRule(np.zeros(D), eta, ball, anytime=1.0), rho=RHO, selector="average")


def _maker(kind: str) -> Callable[..., Learner]:
    return paper.weak_stream if kind == "weak" else paper.exact_stream


TASKS = (
    Task(
        "VR-FW, tilted",
        lambda n, rng: sphere(n, D, rng),
        lambda w: tilted_excess(w, TILT),
        _frank_wolfe_stream,
        lambda n: paper.frank_wolfe(TiltedGradient(TILT), rho=RHO, n=n, d=D, D=2.0, G=1.5, H=0.5),
    ),
    Task(
        "DA, distance to a point",
        lambda n, rng: points_around(n, D, rng),
        lambda w: float(excess_of_points(w[None])[0]),
        _dual_averaging_stream,
        lambda n: paper.dual_averaging(DistanceGradient(), rho=RHO, n=n, d=D, D=3.0, G=1.0),
    ),
)
KINDS = ("weak", "exact")


def serve(task: Task, kind: str, largest: int, rng: np.random.Generator) -> dict[str, Any]:
    """Serve one stream until there are ``largest`` records."""
    learner = task.stream(kind)
    points = task.draw(2 * largest + 200, rng)  # half of all requests raise the number by one
    records = MemoryRecords((points[:1],))
    transcript = learn(learner, records, rng)
    alive, arrived, wanted = [0], 1, LEAST
    excess: list[float] = []
    counts = {"insertions": 0, "deletions": 0, "replayed insertions": 0, "replayed deletions": 0}
    while wanted <= largest:
        if len(alive) < 2 or rng.random() < INSERTIONS:
            outcome = insert(learner, records, transcript, (points[arrived : arrived + 1],), ids=[arrived], rng=rng)
            alive.append(arrived)
            arrived += 1
            what = "insertions"
        else:
            place = int(rng.integers(len(alive)))
            alive[place], alive[-1] = alive[-1], alive[place]
            outcome = unlearn(learner, records, transcript, [alive.pop()], rng=rng)
            what = "deletions"
        counts[what] += 1
        counts[f"replayed {what}"] += not outcome.kept
        if len(alive) == wanted:
            excess.append(task.excess(transcript.model(learner)))
            wanted *= 2
    return {"excess": excess, **counts}


def fit(task: Task, learner: Learner, n: int, rng: np.random.Generator) -> float:
    return task.excess(learn(learner, MemoryRecords((task.draw(n, rng),)), rng).model(learner))


def summary(values: Any) -> dict[str, Any]:
    each = np.asarray(values, dtype=float)
    return {"mean": float(each.mean()), "error": float(each.std(ddof=1) / math.sqrt(len(each))), "runs": len(each)}


def measure(quick: bool, watch: Callable[[float], None]) -> Result:
    largest, streams, fits = (QUICK_LARGEST, QUICK_STREAMS, QUICK_FITS) if quick else (LARGEST, STREAMS, FITS)
    sizes = [LEAST * 2**k for k in range(int(math.log2(largest // LEAST)) + 1)]
    found, done, total = [], 0, len(TASKS) * len(KINDS) * (streams + 1)
    for task_number, task in enumerate(TASKS):
        for kind_number, kind in enumerate(KINDS):
            served = []
            for number in range(streams):
                rng = np.random.default_rng([13, task_number, kind_number, number])
                served.append(serve(task, kind, largest, rng))
                done += 1
                watch(done / total)
            rng = np.random.default_rng([17, task_number, kind_number])
            learner = task.stream(kind)
            excess = np.array([one["excess"] for one in served])
            found.append({
                "task": task.name, "kind": kind,
                "stream": [summary(column) for column in excess.T],
                "fresh": [summary([fit(task, learner, n, rng) for _ in range(fits)]) for n in sizes],
                "planned": [summary([fit(task, task.planned(n), n, rng) for _ in range(fits)]) for n in sizes],
                **{key: [one[key] for one in served] for key in served[0] if key != "excess"},
                "row by row": _most(learner),
            })  # fmt: skip
            done += 1
            watch(done / total)
    return {"rho": RHO, "sizes": sizes, "results": found}


def _most(learner: Learner) -> float:
    """Return the probability that the least favourable request replays, row by row, however many records there are."""
    return worst_case_rho(
        learner.sigma, learner.schedule, learner.mechanism,
        bound=learner.query.bound, coupling=learner.coupling, records=FOREVER,
    )  # fmt: skip


# --- verdicts -------------------------------------------------------------------------------------------


def ratio(one: dict[str, Any], other: dict[str, Any], level: float) -> tuple[float, float, float]:
    """Return the ratio of two means, and an interval."""
    value = one["mean"] / other["mean"]
    error = value * math.hypot(one["error"] / one["mean"], other["error"] / other["mean"])
    half = float(stats.t.ppf(1.0 - level / 2.0, min(one["runs"], other["runs"]) - 1)) * error
    return value, value - half, value + half


def replays(r: dict[str, Any], rho: float) -> tuple[float, float, float]:
    """Return replays over ρV (weak) or ρR (exact), and its interval over the streams."""
    counted = np.array(r["replayed deletions"]) + np.array(r["replayed insertions"])
    allowed = rho * (np.array(r["deletions"]) + (np.array(r["insertions"]) if r["kind"] == "exact" else 0))
    value = float(counted.sum() / allowed.sum())
    spread = math.sqrt(len(counted) / (len(counted) - 1) * np.sum((counted - value * allowed) ** 2)) / allowed.sum()
    half = float(stats.t.ppf(0.975, len(counted) - 1) * spread)
    return value, value - half, value + half


def exponent(result: Result, points: list[dict[str, Any]]) -> Slope:
    return fitted(
        [Point(n, p["mean"], p["error"], p["runs"], 0.0) for n, p in zip(result["sizes"], points, strict=True)]
    )


def judge(result: Result) -> list[Verdict]:
    verdicts = []
    tests = len(result["results"]) * len(result["sizes"])
    for kind in KINDS:
        mine = [r for r in result["results"] if r["kind"] == kind]
        pairs = [(s, f) for r in mine for s, f in zip(r["stream"], r["fresh"], strict=True)]
        ratios = [ratio(s, f, LEVEL / tests) for s, f in pairs]
        differ = sum(not low <= 1.0 <= high for _, low, high in ratios)
        widest = max(high - value for value, _, high in (ratio(s, f, 0.05) for s, f in pairs))
        verdicts.append(Verdict(
            f"{kind}: at every |S_i| the excess is that of a single fit to as many records, by the same learner",
            False if differ else (True if widest <= WIDE else None),
            f"{min(r[0] for r in ratios):.2f} to {max(r[0] for r in ratios):.2f} times it, 95 % intervals up to "
            f"± {widest:.2f}; {differ} of {len(ratios)} differ for certain (level {LEVEL} over all)",
        ))  # fmt: skip
        found = [replays(r, result["rho"]) for r in mine]
        what = "ρV of the V deletions" if kind == "weak" else "ρR of all R requests"
        verdicts.append(Verdict(
            f"{kind}: at most about {what} replay",
            together([at_most(r["row by row"] / result["rho"], *f[1:]) for r, f in zip(mine, found, strict=True)]),
            ", ".join(f"{value:.2f} times" for value, *_ in found)
            + f" that (row by row up to {mine[0]['row by row'] / result['rho']:.2f} times is allowed)",
        ))  # fmt: skip
    entered = sum(sum(r["replayed insertions"]) for r in result["results"] if r["kind"] == "weak")
    verdicts.append(Verdict("weak: no insertion replays", entered == 0, f"{entered} did"))
    return verdicts


def tables(result: Result) -> list[Table]:
    head = ["learner", "stream", "|S_i|", "excess of the stream", "of a fresh fit", "of a fit planned for n"]
    rows = [
        [r["task"], r["kind"], str(n), *(f"{r[key][k]['mean']:.3g} ± {_half(r[key][k]):.1g}" for key in SHOWN)]
        for r in result["results"]
        for k, n in enumerate(result["sizes"])
    ]
    slopes = [
        [
            r["task"], r["kind"], *(str(exponent(result, r[key])) for key in SHOWN), f"{sum(r['deletions']):,}",
            f"{sum(r['insertions']):,}", str(sum(r["replayed deletions"])), str(sum(r["replayed insertions"])),
            f"{replays(r, result['rho'])[0]:.2f}",
        ]
        for r in result["results"]
    ]  # fmt: skip
    of_slopes = ["learner", "stream", "exponent of |S_i|", "of a fresh fit", "of a planned fit", "deletions",
                 "insertions", "deletions replayed", "insertions replayed", "/ ρV or ρR"]  # fmt: skip
    return [Table(head, rows), Table(of_slopes, slopes)]


SHOWN = ("stream", "fresh", "planned")


def _half(point: dict[str, Any]) -> float:
    return float(stats.t.ppf(0.975, point["runs"] - 1) * point["error"])


def draw(result: Result) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots(1, len(TASKS))
    for axis, task in zip(axes, TASKS, strict=True):
        for kind_number, kind in enumerate(KINDS):
            r = next(r for r in result["results"] if (r["task"], r["kind"]) == (task.name, kind))
            for key, style in zip(SHOWN, ("o-", "s--", "^:"), strict=True):
                mean, half = [p["mean"] for p in r[key]], [_half(p) for p in r[key]]
                axis.errorbar(
                    result["sizes"], mean, half, fmt=style, color=f"C{kind_number}", markersize=4, linewidth=1,
                    label=f"{kind}: {'stream' if key == 'stream' else key + ' fit'}",
                )  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("|S_i|")
        axis.set_ylabel("excess risk")
        axis.set_title(f"{task.name}, ρ = {result['rho']:g}")
        axis.legend(fontsize=8)
    return figure


CHAPTER = Chapter(
    "streams",
    "Dynamic streams: accuracy and replays",
    "At every time of a stream of insertions and deletions the excess risk is that of a single fit to the records that "
    "are there, with weak and with exact unlearning. Of V deletions about ρV replay (weak: and no insertion), of R "
    "requests about ρR (exact).",
    measure, draw, judge, tables,
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(CHAPTER))
