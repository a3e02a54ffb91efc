"""How often deletions from linear queries replay, and what they cost: sequential against √T·ρ, adaptive against ρ.

    python benchmarks/linear/replays.py [--models 200]

k-means and gradient descent with 5, 20 and 100 rounds, on records that contribute their full bound (the worst case)
and on ordinary ones. σ is that of ρ with the adaptive coupling, for both couplings; a third line has the sequential one
with the noise that it needs for ρ itself. Deletions are real: evaluations are counted, and given as a share of those
that learning takes (the paper's relative unlearning complexity). About ten minutes. Writes out/linear_replays.json
and docs/images/linear-replays.png.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.progress import track
from scipy import stats

from benchmarks.smoke import IMAGES, OUT, parser_of, sized
from expunge import Delete, Everyone, GradientDescentRule, Identity, Learner, MemoryRecords
from expunge.base.types import Array
from expunge.engine.accounting import noise_for, worst_case_rho
from expunge.engine.changing import chance_of_replay, change
from expunge.engine.learning import learn_with_outcome
from expunge.solvers.gradient_descent import GridGradient
from expunge.solvers.losses import Hinge
from expunge.solvers.plans.clusters import make_cluster_plan

RHO, RECORDS, FEATURES = 0.1, sized(500, 40), 5
ROUNDS: tuple[int, ...] = sized((5, 20, 100), (5, 20))


def sphere(rng: np.random.Generator) -> Array:
    points = rng.normal(size=(RECORDS, FEATURES))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def kmeans(rounds: int, coupling: str, sigma: float | None) -> Learner:
    plan = make_cluster_plan(3, FEATURES, RECORDS, radius=1.0, rho=RHO, rounds=rounds, seeds=6)
    return replace(plan.learner, coupling=coupling, sigma=plan.sigma if sigma is None else sigma)


def descent(rounds: int, coupling: str, sigma: float | None) -> Learner:
    query = GridGradient(Hinge(), FEATURES)
    if sigma is None:
        sigma = noise_for(RHO, Everyone(rounds), Identity(), bound=query.bound, coupling="adaptive")
    rule = GradientDescentRule(np.zeros(FEATURES), 0.1 / RECORDS)
    return Learner(Everyone(rounds), query, rule, Identity(), sigma, coupling)


LEARNERS = {"k-means": kmeans, "gradient descent": descent}


def columns(name: str, worst: bool, rng: np.random.Generator) -> tuple[Array, ...]:
    """Return records; at worst all contribute as much as they can (of the hinge, those that are always wrong)."""
    points = sphere(rng) * (1.0 if worst else rng.random((RECORDS, 1)))
    if name == "k-means":
        return (points,)
    labels = np.sign(points[:, 0] + 0.3 * rng.normal(size=RECORDS))
    return points, rng.choice([-1.0, 1.0], size=RECORDS) if worst else labels


def measure(name: str, worst: bool, rounds: int, coupling: str, own: bool, models: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, rounds, worst, own, coupling == "adaptive"])
    learner = LEARNERS[name](rounds, coupling, None)
    if own:
        sigma = noise_for(RHO, learner.schedule, learner.mechanism, bound=learner.query.bound, coupling=coupling)
        learner = LEARNERS[name](rounds, coupling, sigma)
    replays, shares, expected, learned = [], [], [], 0
    for _ in range(models):
        records = MemoryRecords(columns(name, worst, rng))
        transcript, outcome = learn_with_outcome(learner, records, rng)
        learned = outcome.evaluations
        victims = rng.permutation(RECORDS)[:25]
        expected.append(chance_of_replay(learner, records, transcript, Delete(victims[:1])))
        mine = [change(learner, records, transcript, Delete([victim]), rng).commit() for victim in victims]
        replays.append(float(np.mean([not one.kept for one in mine])))
        shares.append(float(np.mean([one.evaluations for one in mine])))
    mean, error = float(np.mean(replays)), float(np.std(replays, ddof=1) / math.sqrt(models))
    half = float(stats.t.ppf(0.9995, models - 1)) * error
    return {
        "learner": name, "records": "at the bound" if worst else "ordinary", "rounds": rounds,
        "coupling": coupling + (", own noise" if own else ""), "replays": mean, "low": mean - half, "high": mean + half,
        "expected": float(np.mean(expected)),
        "bound": worst_case_rho(
            learner.sigma, learner.schedule, learner.mechanism, bound=learner.query.bound, coupling=coupling
        ),
        "reference": RHO if coupling == "adaptive" or own else math.sqrt(rounds) * RHO,
        "relative evaluations": float(np.mean(shares)) / learned, "sigma": learner.sigma,
    }  # fmt: skip


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = (("replays", "share of deletions that replay"), ("relative evaluations", "evaluations / learning's"))
    for axes, (name, label) in zip(figure.subplots(1, 2), panels, strict=True):
        for learner, marker in zip(LEARNERS, "os", strict=True):
            for coupling, colour in (("adaptive", "C0"), ("sequential", "C3")):
                mine = [
                    row
                    for row in rows
                    if (row["learner"], row["coupling"], row["records"]) == (learner, coupling, "at the bound")
                ]
                axes.plot(
                    [row["rounds"] for row in mine], [row[name] for row in mine], marker, color=colour, linestyle="-",
                    label=f"{coupling}, {learner}",
                )  # fmt: skip
        across = np.geomspace(ROUNDS[0], ROUNDS[-1], 50)
        if name == "replays":
            axes.plot(across, np.minimum(1.0, np.sqrt(across) * RHO), ":", color="C3", label="√T·ρ")
            axes.axhline(RHO, linestyle=":", color="C0", label="ρ")
        axes.set_xscale("log")
        axes.set_xticks(ROUNDS, [str(rounds) for rounds in ROUNDS])
        axes.minorticks_off()
        axes.set_ylim(0, 1)
        axes.set_xlabel("rounds T")
        axes.set_ylabel(label)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--models", type=int, default=sized(200, 2), help="models of each kind, 25 deletions from each")
    models = parser.parse_args().models
    OUT.mkdir(parents=True, exist_ok=True)
    jobs = [
        (name, worst, rounds, coupling, own)
        for name in LEARNERS
        for worst in (True, False)
        for rounds in ROUNDS
        for coupling, own in (("adaptive", False), ("sequential", False), ("sequential", True))
    ]
    rows = [measure(*job, models, 1) for job in track(jobs, "settings")]
    (OUT / "linear_replays.json").write_text(json.dumps(rows, indent=1))
    plot(rows, IMAGES / "linear-replays.png")
    print("| learner | records | T | coupling | σ | replays (99.9 %) | bound | ρ or √T·ρ | evaluations / learning's |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['learner']} | {row['records']} | {row['rounds']} | {row['coupling']} | {row['sigma']:.1f} | "
            f"{row['replays']:.3f} ({row['low']:.3f}–{row['high']:.3f}) | {row['bound']:.3f} | "
            f"{row['reference']:.2f} | {row['relative evaluations']:.3f} |"
        )
    above = [row for row in rows if row["low"] > row["bound"]]
    print(f"{len(above)} of {len(rows)} settings replay more often than their bound")


if __name__ == "__main__":
    main()
