"""How often deletions replay: measured against 2Φ(A/2) - 1, the predicted factor of sequential, and the paper.

    python benchmarks/paper/replays.py [--trials 4000]

Every decision goes through the engine's own reconciliation. The deleted record contributes its full bound at the
least favourable step. About 12 minutes. Writes out/replays.json and out/replays.png.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.progress import track
from scipy import stats

from benchmarks.smoke import OUT, parser_of, sized
from expunge import (
    BinaryTree,
    Delete,
    Everyone,
    GradientDescent,
    Identity,
    Learner,
    MemoryRecords,
    Scattered,
    SquareRoot,
    Transcript,
)
from expunge.base.types import Array, Batch, Ints
from expunge.engine.accounting import noise_for, worst_case_rho
from expunge.engine.changing import decide
from expunge.engine.mechanisms.noise import draw_noise
from expunge.engine.schedules import Assignment
from expunge.engine.transcript import ArrayRows
from expunge.engine.transcript import Path as Iterates


@dataclass(frozen=True)
class Full:
    """A query whose contributions are always at the bound, whatever the path."""

    size: int = 1
    bound: float = 1.0

    def contributions(self, step: int, path: Iterates, batch: Batch) -> Array:
        return np.asarray(batch[0])


@dataclass(frozen=True)
class AtPlaceZero(Scattered):
    """All records lie at the first place, whose column of C is the longest."""

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        lengths = np.zeros(self.places, dtype=np.int64)
        lengths[0] = count
        return Assignment(np.arange(count), lengths, None)


def share_of_replays(learner: Learner, trials: int, rng: np.random.Generator) -> int:
    """Draw transcripts of one record and count how many a deletion would replay."""
    records = MemoryRecords((np.ones((1, 1)),))
    records.arrange(learner.schedule, rng)
    steps = learner.schedule.steps(1)
    sums = np.zeros((steps, 1))
    visits = range(steps) if learner.schedule.touches_everyone else range(1)
    sums[list(visits)] = 1.0
    clean = np.cumsum(sums, axis=0) if learner.mechanism.prefix else sums
    iterates = ArrayRows(np.zeros((steps, 1)))
    kept_sums = ArrayRows(sums)
    count = 0
    for _ in range(trials):
        answers = ArrayRows(clean + draw_noise(learner.mechanism, steps, 1, learner.sigma, learner.grid.unit, rng))
        transcript = Transcript(kept_sums, answers, iterates, np.zeros(1), records)
        count += decide(learner, records, transcript, Delete([0]), rng).first is not None
    return count


def measure(setting: dict[str, Any], learner: Learner, trials: int, seed: int) -> dict[str, Any]:
    predicted = worst_case_rho(learner.sigma, learner.schedule, learner.mechanism, bound=1.0, coupling=learner.coupling)
    count = share_of_replays(learner, trials, np.random.default_rng(seed))
    interval = stats.binomtest(count, trials).proportion_ci(0.999)
    return {
        **setting, "coupling": learner.coupling, "mechanism": type(learner.mechanism).__name__,
        "predicted": predicted, "measured": count / trials, "low": interval.low, "high": interval.high,
        "within_error": bool(interval.low <= predicted <= interval.high), "trials": trials,
    }  # fmt: skip


def jobs() -> list[tuple[dict[str, Any], Learner]]:
    found: list[tuple[dict[str, Any], Learner]] = []
    rule = GradientDescent(np.zeros(1), 0.0)
    sweep = [(t, 0.1) for t in (16, 64, 256, 1024, 4096, 16384, 65536)]
    sweep += [(1024, rho) for rho in (0.01, 0.03, 0.3, 0.5)]
    for steps, rho in sweep:
        for mechanism in (BinaryTree(), SquareRoot()):
            sigma = noise_for(rho, Scattered(steps), mechanism, bound=1.0)
            bound = rho * math.log2(steps)
            setting = {"queries": "prefix sums", "steps": steps, "rho": rho, "paper": bound}
            for coupling in ("joint", "sequential"):
                if coupling == "joint" or mechanism.row_by_row:
                    found.append((setting, Learner(AtPlaceZero(steps), Full(), rule, mechanism, sigma, coupling)))
    for rounds, rho in [
        (4, 0.1),
        (16, 0.1),
        (64, 0.1),
        (256, 0.1),
        (64, 0.01),
        (64, 0.03),
        (64, 0.3),
        (64, 0.5),
    ]:
        sigma = noise_for(rho, Everyone(rounds), Identity(), bound=1.0, coupling="adaptive")
        setting = {"queries": "linear", "steps": rounds, "rho": rho, "paper": rho * math.sqrt(rounds)}
        for coupling in ("joint", "sequential", "adaptive"):
            found.append((setting, Learner(Everyone(rounds), Full(), rule, Identity(), sigma, coupling)))
    return found


def draw(results: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, queries in zip(figure.subplots(1, 2), ("prefix sums", "linear"), strict=True):
        mine = [r for r in results if r["queries"] == queries and r["rho"] == 0.1]
        ways = sorted({(r["mechanism"], r["coupling"]) for r in mine})
        for color, way in enumerate(ways):
            rows = [r for r in mine if (r["mechanism"], r["coupling"]) == way]
            steps = [r["steps"] for r in rows]
            error = [[r["measured"] - r["low"] for r in rows], [r["high"] - r["measured"] for r in rows]]
            axes.errorbar(steps, [r["measured"] for r in rows], error, fmt="o", color=f"C{color}", label=", ".join(way))
            axes.plot(steps, [r["predicted"] for r in rows], color=f"C{color}", linewidth=1)
        steps = sorted({r["steps"] for r in mine})
        paper = {r["steps"]: r["paper"] for r in mine}
        axes.plot(steps, [min(1.0, paper[t]) for t in steps], "k--", linewidth=1, label="the paper's bound")
        axes.set_xscale("log", base=2)
        axes.set_xlabel("steps")
        axes.set_ylabel("probability that a deletion replays")
        axes.set_title(f"{queries}, ρ = 0.1 (lines: predicted)")
        axes.legend(fontsize=8)
    figure.savefig(OUT / "replays.png", dpi=120)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--trials", type=int, default=sized(4000, 20))
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    results = []
    wanted = [job for job in jobs() if job[0]["steps"] <= sized(2**20, 64)]
    for number, (setting, learner) in enumerate(track(wanted, "measuring")):
        trials = options.trials if setting["steps"] <= 16384 else max(options.trials // 4, 500)
        results.append(measure(setting, learner, trials, number))
    (OUT / "replays.json").write_text(json.dumps(results, indent=1))
    draw(results)
    outside = [r for r in results if not r["within_error"]]
    for r in results:
        print(
            f"{r['queries']:11} T={r['steps']:<6} rho={r['rho']:<5} {r['mechanism']:10} {r['coupling']:10} "
            f"measured {r['measured']:.4f} predicted {r['predicted']:.4f} paper {min(1.0, r['paper']):.3f}"
        )
    print(f"{len(results) - len(outside)} of {len(results)} within the 99.9 % interval")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
