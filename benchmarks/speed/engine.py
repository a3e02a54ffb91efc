"""Speed and memory of the engine on 500,000 × 55 numbers in 1,024 steps, as ratios to one bare pass.

    python benchmarks/speed/engine.py

Warm memory, one run, about a minute. Writes out/speed.json and out/speed.png.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.linear_model import LogisticRegression

from benchmarks.smoke import OUT, parser_of, sized
from expunge import (
    DualAveragingRule,
    Gradient,
    Learner,
    MemoryRecords,
    Scattered,
    SquareRoot,
    insert,
    learn,
    learn_with_outcome,
    unlearn,
    verify,
)
from expunge.engine.accounting import noise_for
from expunge.solvers.losses import Logistic

RECORDS, FEATURES, STEPS, RHO = sized(500_000, 2_000), 55, sized(1024, 16), 0.03
SINGLY, BULK, SMALL_BULK, TINY = sized(5_000, 50), sized(10_000, 100), sized(1_000, 10), sized(500, 5)
"""How many are deleted and inserted one by one, and at once; how often six records are learned from."""


def timed(function: Callable[[], Any], repeats: int) -> float:
    """Return the median of some repetitions."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def main() -> None:
    parser_of(__doc__).parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    features = rng.random((RECORDS, FEATURES))
    features /= np.linalg.norm(features, axis=1)[:, None]
    scores = 6.0 * (features - features.mean(axis=0)) @ rng.normal(size=FEATURES)
    labels = np.where(rng.random(RECORDS) < 1.0 / (1.0 + np.exp(-scores)), 1.0, -1.0)
    block = RECORDS // STEPS

    def bare_pass() -> None:
        w = np.zeros(FEATURES)
        for first in range(0, RECORDS, block):
            x = features[first : first + block]
            c = x @ w
            w = x.T @ c

    sigma = noise_for(RHO, Scattered(STEPS), SquareRoot(), bound=1.0)
    learner = Learner(
        Scattered(STEPS),
        Gradient(Logistic(), FEATURES),
        DualAveragingRule(np.zeros(FEATURES), 0.03),
        SquareRoot(),
        sigma,
    )
    bare_pass()
    bare = timed(bare_pass, 9)
    with_layout = timed(lambda: learn(learner, MemoryRecords((features, labels)), rng), 5)
    records = MemoryRecords((features, labels))
    transcript, learned = learn_with_outcome(learner, records, rng)
    laid_out = timed(lambda: learn(learner, records, rng, arranged=True), 9)
    _ = records.index

    peer = timed(lambda: LogisticRegression(C=100.0, fit_intercept=False).fit(features, labels), 1)
    small = replace(learner, schedule=Scattered(4))
    tiny = timed(lambda: learn(small, MemoryRecords((features[:6], labels[:6])), rng), TINY)

    ids = rng.permutation(RECORDS)
    kept: list[float] = []
    replayed: list[float] = []
    evaluations: list[float] = []
    for one in track(ids[:SINGLY].tolist(), "single deletions"):
        began = time.perf_counter()
        outcome = unlearn(learner, records, transcript, [one], rng=rng)
        (kept if outcome.kept else replayed).append(time.perf_counter() - began)
        evaluations.append(outcome.evaluations / learned.evaluations)
    bulks = []
    for first in range(SINGLY, SINGLY + 3 * BULK, BULK):
        began = time.perf_counter()
        unlearn(learner, records, transcript, ids[first : first + BULK], rng=rng)
        bulks.append(time.perf_counter() - began)
    thousands = []
    for first in range(SINGLY + 3 * BULK, SINGLY + 3 * BULK + 9 * SMALL_BULK, SMALL_BULK):
        began = time.perf_counter()
        unlearn(learner, records, transcript, ids[first : first + SMALL_BULK], rng=rng)
        thousands.append(time.perf_counter() - began)
    insertions = []
    for one in track(range(SINGLY), "single insertions"):
        began = time.perf_counter()
        insert(learner, records, transcript, (features[one : one + 1], labels[one : one + 1]), rng=rng)
        insertions.append(time.perf_counter() - began)
    report = verify(learner, records, transcript)
    assert report.ok, report.problems

    sizes = records.nbytes()
    tables = sum(np.asarray(table[:]).nbytes for table in (transcript.sums, transcript.answers, transcript.iterates))
    live = records.count * (FEATURES + 1) * 8
    results = {
        "bare pass, seconds": bare,
        "learn of 6 records in 4 steps, milliseconds (at most 0.5)": 1e3 * tiny,
        "laid-out learn / bare pass (at most 3)": laid_out / bare,
        "learn with layout / bare pass (at most 12)": with_layout / bare,
        "laid-out learn / kept deletion, median (at least 400)": laid_out / float(np.median(kept)),
        "kept deletion, median microseconds": 1e6 * float(np.median(kept)),
        f"bulk of {BULK:,} / laid-out learn (at most 1.5)": float(np.median(bulks)) / laid_out,
        f"bulk of {SMALL_BULK:,} / laid-out learn (at most 1.5)": float(np.median(thousands)) / laid_out,
        "insertion, median milliseconds (at most 1)": 1e3 * float(np.median(insertions)),
        "insertion, mean milliseconds, replays and one new layout included": 1e3 * float(np.mean(insertions)),
        f"replays of {SINGLY:,} deletions": len(replayed),
        "mean replay / laid-out learn": float(np.mean(replayed)) / laid_out if replayed else None,
        "mean deletion, evaluations / those of learning": float(np.mean(evaluations)),
        "mean deletion / laid-out learn": float(np.mean(kept + replayed)) / laid_out,
        "scikit-learn's LogisticRegression / learn with layout": peer / with_layout,
        "scikit-learn's LogisticRegression / mean deletion": peer / float(np.mean(kept + replayed)),
        "transcript numbers / (3 T m) (at most 1)": tables / 8 / (3 * STEPS * FEATURES),
        "record buffers / live records, bytes (at most 2)": sizes["columns"] / live,
        "id index, bytes a record": sizes["index"] / RECORDS,
        "live records, megabytes": live / 1e6,
    }
    (OUT / "speed.json").write_text(json.dumps(results, indent=1))
    for name, value in results.items():
        print(f"{name:56} {value if value is None else format(value, '.4g')}")
    draw(bare, laid_out, with_layout, float(np.median(kept)), float(np.median(bulks)))


def draw(bare: float, laid_out: float, with_layout: float, kept: float, bulk: float) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    names = ["one kept deletion", "one bare pass", "learn, laid out", f"bulk of {BULK:,}", "learn with layout"]
    values = [1e3 * seconds for seconds in (kept, bare, laid_out, bulk, with_layout)]
    bars = axes.barh(names, values, color=["C2", "grey", "C0", "C2", "C0"])
    axes.bar_label(bars, [f" {value:.3g} ms" for value in values])
    axes.set_xscale("log")
    axes.set_xlim(right=4 * max(values))
    axes.set_title(f"{RECORDS:,} × {FEATURES} numbers, {STEPS:,} steps")
    figure.savefig(OUT / "speed.png", dpi=120)


if __name__ == "__main__":
    main()
