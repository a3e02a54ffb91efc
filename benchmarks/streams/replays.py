"""How often requests of a stream replay, against the paper's bounds: ρV in weak streams, ρR in exact ones.

    python benchmarks/streams/replays.py [--streams 4] [--requests 2000] [--docs]

Streams of single requests, 70 % insertions and 30 % deletions, start from nothing or from 300 records. In weak
streams (`Arrival`) at most ρV of V deletions may replay, and no insertion; in exact ones (`Shuffled`, `Scattered`) at
most ρR of R requests. A record contributes

    typical   the gradient of a logistic regression, and a uniformly chosen record is deleted;
    worst     plus or minus one, the bound, whatever the path is: to replace a record often moves a sum by twice that;
    aimed     the same, but it is always an early record that is deleted, of the other sign than the one which takes
              its place: what an adversary does who knows the order of arrival (so only there).

Every mechanism has noise for the same ρ. The sequential coupling is run with the noise that it needs for that ρ, and
with the noise that the joint one needs, under which it owes nothing. The bounds are for the mean: requests of
one stream meet the same noise, so that counts spread more than independent coins. Intervals are therefore Student's
over the streams. Exit code 1 if an interval lies above the bound, or an arrival replays.

About 6 minutes on two cores. Writes out/streams_replays.json and .png (--docs: also docs/images/).
"""

from __future__ import annotations

import json
import math
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy import stats

from benchmarks.smoke import IMAGES, OUT, SMOKE, parser_of, sized
from cases.drawn_streams import BATCH, Counts, Stream, draw_stream, learner_of, serve
from expunge import (
    Arrival,
    BinaryTree,
    Scattered,
    Shuffled,
    SquareRoot,
)
from expunge.engine.mechanisms.protocol import Mechanism
from expunge.engine.schedules import Schedule

PLACES = 256
STARTS = (0, sized(300, 20))
RHOS = (0.05, 0.2)
SCHEDULES: dict[str, Schedule] = {
    "arrival": Arrival(BATCH),
    "shuffled": Shuffled(BATCH),
    "scattered": Scattered(PLACES),
}
MECHANISMS: dict[str, Mechanism] = {
    "tree": BinaryTree(),
    "anytime": BinaryTree("anytime"),
    "halving": BinaryTree("halving"),
    "sqrt": SquareRoot(),
}
WAYS = (("joint", "joint"), ("sequential", "sequential"), ("sequential", "joint"))
"""A coupling, and the coupling that the noise is made for."""
KINDS = ("typical", "worst", "aimed")


# --- measurements -------------------------------------------------------------------------------------


def summary(setting: dict[str, Any], each: list[Counts]) -> dict[str, Any]:
    """Add up the streams, and compare with the bound."""
    weak = setting["schedule"] == "arrival"
    replays = np.array([counts.replays for counts in each])
    allowed = setting["rho"] * np.array([counts.deletions if weak else counts.requests for counts in each])
    ratio = float(replays.sum() / allowed.sum())
    error = math.sqrt(len(each) / (len(each) - 1) * np.sum((replays - ratio * allowed) ** 2)) / allowed.sum()
    wide = float(stats.t.ppf(0.975, len(each) - 1) * error)
    joint = setting["coupling"] == "joint"
    return {
        **setting, "requests": sum(c.requests for c in each), "deletions": sum(c.deletions for c in each),
        "insertion_replays": sum(c.insertion_replays for c in each),
        "deletion_replays": sum(c.deletion_replays for c in each),
        "expected": sum(c.expected for c in each) if joint else None,
        "bound": float(allowed.sum()), "ratio": ratio, "low": max(0.0, ratio - wide), "high": ratio + wide,
        "cost": float(np.mean([c.evaluations / c.requests / c.records for c in each])),
        "most_by_insertion": max(c.most_by_insertion for c in each),
        "replays_of_streams": replays.tolist(),
    }  # fmt: skip


def complaint(row: dict[str, Any]) -> str | None:
    """Say what is wrong with a result, if anything."""
    if row["schedule"] == "arrival":
        if row["insertion_replays"]:
            return f"{row['insertion_replays']} arrivals replayed"
        if row["most_by_insertion"] > BATCH:
            return f"an arrival took {row['most_by_insertion']} evaluations, more than the {BATCH} of a step"
    if row["noise_of"] == row["coupling"] and row["low"] > 1.0:
        return f"{row['ratio']:.2f} times the bound"
    return None


def settings() -> Iterator[dict[str, Any]]:
    for kind in KINDS:
        for schedule in SCHEDULES:
            for rho in RHOS:
                for mechanism, noise in MECHANISMS.items():
                    for coupling, noise_of in WAYS:
                        if (coupling == "joint" or noise.row_by_row) and (kind != "aimed" or schedule == "arrival"):
                            yield {
                                "kind": kind, "schedule": schedule, "rho": rho, "mechanism": mechanism,
                                "coupling": coupling, "noise_of": noise_of,
                            }  # fmt: skip


class Job(NamedTuple):
    setting: dict[str, Any]
    streams: list[Stream]
    seed: np.random.SeedSequence


def measure(job: Job) -> dict[str, Any]:
    """Serve some streams by one learner."""
    named = dict(job.setting)
    schedule, mechanism = SCHEDULES[named.pop("schedule")], MECHANISMS[named.pop("mechanism")]
    largest = max(stream.largest for stream in job.streams)
    learner = learner_of(schedule=schedule, mechanism=mechanism, largest=largest, **named)
    rngs = np.random.default_rng(job.seed).spawn(len(job.streams))
    each = [serve(learner, stream, rng) for stream, rng in zip(job.streams, rngs, strict=True)]
    return summary({**job.setting, "sigma": learner.sigma, "largest": largest}, each)


def jobs(number: int, requests: int, seed: int) -> list[Job]:
    """Return one job for each learner; those of a kind serve the same streams."""
    rng = np.random.default_rng(seed)
    streams = {kind: [draw_stream(kind, STARTS[j % 2], requests, rng) for j in range(number)] for kind in KINDS}
    wanted = list(settings())
    seeds = np.random.SeedSequence(seed).spawn(len(wanted))
    return [Job(setting, streams[setting["kind"]], own) for setting, own in zip(wanted, seeds, strict=True)]


# --- results ------------------------------------------------------------------------------------------


def print_table(results: list[dict[str, Any]]) -> None:
    table = Table(title="replays of streams, against ρV (arrival) and ρR (shuffled, scattered)")
    for name in ("stream", "schedule", "ρ", "mechanism", "coupling", "noise of"):
        table.add_column(name, no_wrap=True)
    for name in ("σ", "requests", "deletions", "insertions\nreplayed", "deletions\nreplayed", "expected", "bound",
                 "ratio", "95 %", "evaluations of\na request /\nlearning", "most by an\ninsertion"):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for r in results:
        table.add_row(
            r["kind"], r["schedule"], str(r["rho"]), r["mechanism"], r["coupling"], r["noise_of"],
            f"{r['sigma']:.1f}", str(r["requests"]), str(r["deletions"]), str(r["insertion_replays"]),
            str(r["deletion_replays"]), "" if r["expected"] is None else f"{r['expected']:.0f}", f"{r['bound']:.0f}",
            f"{r['ratio']:.2f}", f"{r['low']:.2f}–{r['high']:.2f}", f"{100 * r['cost']:.2f} %",
            str(r["most_by_insertion"]) if r["schedule"] == "arrival" else "",
            style="red" if complaint(r) else None,
        )  # fmt: skip
    Console(width=230).print(table)


def draw(results: list[dict[str, Any]], files: list[Path]) -> None:
    from matplotlib.figure import Figure

    panels = [("aimed", "arrival"), ("worst", "arrival"), ("worst", "shuffled"), ("worst", "scattered")]
    titles = ["weak (Arrival), aimed deletions", "weak (Arrival)", "exact (Shuffled)", "exact (Scattered)"]
    figure = Figure(figsize=(13, 6), layout="constrained")
    axes = figure.subplots(len(RHOS), len(panels), sharex=True, sharey=True)
    for line, rho in enumerate(RHOS):
        for axis, (kind, schedule), title in zip(axes[line], panels, titles, strict=True):
            for color, way in enumerate(WAYS):
                for shown in (kind, "typical"):
                    rows = [
                        r for r in results
                        if (r["kind"], r["schedule"], r["rho"]) == (shown, schedule, rho)
                        and (r["coupling"], r["noise_of"]) == way
                    ]  # fmt: skip
                    at = [list(MECHANISMS).index(r["mechanism"]) + 0.27 * (color - 1) for r in rows]
                    height = [r["ratio"] for r in rows]
                    if shown == kind:
                        error = [[r["ratio"] - r["low"] for r in rows], [r["high"] - r["ratio"] for r in rows]]
                        name = way[0] + (", noise of joint" if way[0] != way[1] else "")
                        axis.bar(at, height, 0.25, yerr=error, color=f"C{color}", label=name, error_kw={"lw": 1})
                    elif kind != "aimed":
                        axis.plot(at, height, "kD", markersize=4, label="logistic gradients" if color == 0 else None)
            axis.axhline(1.0, color="k", linewidth=1)
            axis.set_title(f"{title}, ρ = {rho}", fontsize=9)
            axis.set_xticks(range(len(MECHANISMS)), list(MECHANISMS))
        axes[line][0].set_ylabel("replays / bound")
    axes[0][0].set_ylim(0.0, 3.0)
    axes[0][1].legend(fontsize=8)
    for file in files:
        figure.savefig(file, dpi=80)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--streams", type=int, default=sized(4, 2), help="independent streams of each kind, at least 2")
    parser.add_argument("--requests", type=int, default=sized(2000, 10), help="requests of a stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=sized(2, 1))
    parser.add_argument("--docs", action="store_true", help="also write the picture of the documentation")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    wanted = jobs(options.streams, options.requests, options.seed)
    results = []
    with Progress() as progress, multiprocessing.Pool(options.workers) as pool:
        for row in progress.track(pool.imap(measure, wanted), len(wanted), description="serving"):
            results.append(row)
            (OUT / "streams_replays.json").write_text(json.dumps(results, indent=1))
    print_table(results)
    draw(results, [OUT / "streams_replays.png", *([IMAGES / "streams_replays.png"] if options.docs else [])])
    wrong = [(row, found) for row in results if (found := complaint(row))]
    for row, found in wrong:
        print(*(row[name] for name in ("kind", "schedule", "rho", "mechanism", "coupling")), found, sep=", ")
    owed = [row for row in results if row["noise_of"] == row["coupling"]]
    print(f"{len(owed)} learners with noise of their own: the largest ratio is {max(r['ratio'] for r in owed):.2f}")
    return 1 if wrong and not SMOKE else 0


if __name__ == "__main__":
    raise SystemExit(main())
