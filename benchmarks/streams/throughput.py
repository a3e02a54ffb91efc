"""Insertions and deletions a second on 500,000 × 54 numbers, single and in bulks, with their latencies.

    python benchmarks/streams/throughput.py

Through `LogisticRegression`, so that all checks of a request count, for exact (scattered) and weak (arrival) streams
with ρ = 0.03; and, through the engine alone, a bulk of 1,000 deletions on 500,000 × 55 against learning on records
that are laid out already. Keep the machine quiet. Writes out/throughput.json and out/throughput.png.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.smoke import OUT, parser_of, sized
from expunge import (
    DualAveragingRule,
    Gradient,
    Learner,
    LogisticRegression,
    MemoryRecords,
    Outcome,
    Scattered,
    SquareRoot,
    learn,
    unlearn,
    verify,
)
from expunge.engine.accounting import noise_for
from expunge.solvers import DualAveraging
from expunge.solvers.losses import Logistic

RECORDS, FEATURES, RHO = sized(500_000, 600), 54, 0.03
REQUESTS = sized({1: 2_000, 10: 300, 100: 60, 1_000: 12}, {1: 5, 10: 2})
"""How many requests of each size are timed."""
BULK, STEPS = sized(1_000, 10), sized(1_024, 16)


def table(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.random((number, FEATURES))
    X /= np.linalg.norm(X, axis=1)[:, None]
    scores = 6.0 * (X - X.mean(axis=0)) @ rng.normal(size=FEATURES)
    return X, (rng.random(number) < 1.0 / (1.0 + np.exp(-scores))).astype(int)


def serve(name: str, requests: list[Callable[[], Outcome]], size: int) -> dict[str, Any]:
    """Serve requests one after the other; return rates and latencies of all, and of those that were kept."""
    seconds, kept = np.empty(len(requests)), np.empty(len(requests), dtype=bool)
    for number, request in enumerate(requests):
        began = time.perf_counter()
        outcome = request()
        seconds[number] = time.perf_counter() - began
        kept[number] = outcome.kept
    found: dict[str, Any] = {"request": name, "records": size, "requests": len(requests), "kept": float(kept.mean())}
    for which, part in (("all", seconds), ("kept", seconds[kept])):
        if len(part):
            found |= {
                f"{which}: records a second": size * len(part) / float(part.sum()),
                f"{which}: p50 ms": 1e3 * float(np.quantile(part, 0.5)),
                f"{which}: p99 ms": 1e3 * float(np.quantile(part, 0.99)),
                f"{which}: longest ms": 1e3 * float(part.max()),
            }
    return found


def streams(schedule: Any, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Time insertions and deletions of all sizes on one model."""
    X, y = table(rng, RECORDS)
    more = sum(size * number for size, number in REQUESTS.items())
    new_X, new_y = table(rng, more + 100)
    model = LogisticRegression(solver=DualAveraging(schedule=schedule), rho=RHO, classes=[0, 1]).fit(
        X, y, ids=np.arange(RECORDS)
    )
    model.unlearn([0])  # builds the index
    model.insert(new_X[-100:], new_y[-100:], ids=np.arange(-100, 0))  # makes room
    leaving = rng.permutation(np.arange(1, RECORDS))
    found, entered, left = [], 0, 0
    for size, number in track(list(REQUESTS.items()), schedule):

        def insertion(first: int, size: int = size) -> Callable[[], Outcome]:
            part = slice(first, first + size)
            ids = np.arange(RECORDS + first, RECORDS + first + size)
            return lambda: model.insert(new_X[part], new_y[part], ids=ids)

        def deletion(first: int, size: int = size) -> Callable[[], Outcome]:
            return lambda: model.unlearn(leaving[first : first + size])

        found.append(serve("insertion", [insertion(entered + k * size) for k in range(number)], size))
        found.append(serve("deletion", [deletion(left + k * size) for k in range(number)], size))
        entered, left = entered + size * number, left + size * number
    report = model.verify()
    assert report.ok, report.problems
    return [{"schedule": schedule, **one} for one in found]


def bulk_of_deletions(rng: np.random.Generator, repeats: int = 9) -> dict[str, float]:
    """Time bulks of deletions on as many records × 55 against learning on records that are laid out."""
    features = rng.random((RECORDS, 55))
    features /= np.linalg.norm(features, axis=1)[:, None]
    labels = np.where(rng.random(RECORDS) < 0.5, 1.0, -1.0)
    schedule = Scattered(STEPS)
    sigma = noise_for(RHO, schedule, SquareRoot(), bound=1.0)
    learner = Learner(schedule, Gradient(Logistic(), 55), DualAveragingRule(np.zeros(55), 0.03), SquareRoot(), sigma)
    records = MemoryRecords((features, labels))
    transcript = learn(learner, records, rng)
    _ = records.index
    ids = rng.permutation(RECORDS)
    learning, bulks, replayed = [], [], 0
    for number in range(repeats):
        began = time.perf_counter()
        learn(learner, records, rng, arranged=True)
        learning.append(time.perf_counter() - began)
        began = time.perf_counter()
        outcome = unlearn(learner, records, transcript, ids[BULK * number : BULK * (number + 1)], rng=rng)
        bulks.append(time.perf_counter() - began)
        replayed += not outcome.kept
    assert verify(learner, records, transcript).ok
    return {
        "laid-out learn, ms": 1e3 * float(np.median(learning)),
        f"bulk of {BULK:,}, ms": 1e3 * float(np.median(bulks)),
        f"bulk of {BULK:,} / laid-out learn (at most 1.5)": float(np.median(bulks) / np.median(learning)),
        "of these bulks replayed": replayed / repeats,
    }


def draw(found: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    sizes = list(REQUESTS)
    for axes, request in zip(figure.subplots(1, 2, sharey=True), ("insertion", "deletion"), strict=True):
        for number, schedule in enumerate(dict.fromkeys(one["schedule"] for one in found)):
            rows = [one for one in found if one["schedule"] == schedule and one["request"] == request]
            axes.plot(sizes, [one["all: records a second"] for one in rows], f"C{number}o-", label=schedule)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("records in one request")
        axes.set_title(f"{request}s, replays included")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("records a second")
    figure.axes[0].legend()
    return figure


def main() -> None:
    parser_of(__doc__).parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    bulk = bulk_of_deletions(rng)
    for name, value in bulk.items():
        print(f"{name:46} {value:.4g}")
    found = [one for schedule in ("scattered", "arrival") for one in streams(schedule, rng)]
    heads = f"{'records/s':>11} {'p50 ms':>8} {'p99 ms':>8}"
    print(f"{'schedule':10} {'request':10} {'records':>7} {'kept':>6} {heads}  and of those that were kept:")
    for one in found:
        only = " ".join(
            f"{one.get(f'kept: {name}', float('nan')):9.3g}" for name in ("records a second", "p50 ms", "p99 ms")
        )
        print(
            f"{one['schedule']:10} {one['request']:10} {one['records']:7,} {one['kept']:6.1%} "
            f"{one['all: records a second']:11,.0f} {one['all: p50 ms']:8.3f} {one['all: p99 ms']:8.3f}  {only}"
        )
    (OUT / "throughput.json").write_text(json.dumps({"bulk": bulk, "streams": found}, indent=1))
    draw(found).savefig(OUT / "throughput.png", dpi=110)


if __name__ == "__main__":
    main()
