"""A long life: a million mixed requests to one model, which ends in a bitwise `verify` and holds no more than it must.

    python benchmarks/streams/soak.py   # a million requests to each of two models, 12 minutes
    python benchmarks/streams/soak.py --requests 20000 --schedules scattered shuffled arrival

70 % of the requests insert a record, 30 % delete some. While the model grows a deletion takes one record, while it
shrinks about five, so that its size wanders between 1,000 and 200,000 (or a fifth of the requests) and back. Whenever
the model says that it has left the size that its plan was made for, it gets a new plan. Ids of deleted records come
back now and then. Sizes of all buffers are compared with what the live records need; the process's memory is drawn
beside them. Writes out/soak.json and out/soak.png.
"""

from __future__ import annotations

import gc
import json
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.smoke import OUT, parser_of, sized
from cases.soaking import LEAST, MOST, Life, Soak, soak


def draw(found: list[Soak]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.8 * len(found)), layout="constrained")
    for axes, one in zip(figure.subplots(len(found), squeeze=False)[:, 0], found, strict=True):
        requests = np.arange(1, len(one.sizes) + 1) * one.requests / len(one.sizes)
        axes.fill_between(requests, np.array(one.needed_bytes) / 1e6, color="C0", alpha=0.3, label="live records need")
        axes.plot(requests, np.array(one.kept_bytes) / 1e6, color="C0", label="the model holds")
        if one.process_bytes[0]:
            grown = np.array(one.process_bytes) - min(one.process_bytes)
            axes.plot(requests, grown / 1e6, color="grey", linewidth=1, label="the process, above its least")
        axes.set_ylabel("megabytes")
        axes.set_title(f"{one.schedule}: {one.requests:,} requests, {one.plans} plans, {one.replays:,} replays")
        axes.legend(loc="upper left")
    axes.set_xlabel("requests")
    return figure


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--requests", type=int, default=sized(1_000_000, 400))
    parser.add_argument("--bulk", type=int, default=100, help="at most so many records are served as one bulk")
    parser.add_argument("--schedules", nargs="+", default=["scattered", "arrival"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rho", type=float, default=0.1)
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    found = []
    for schedule in given.schedules:
        one, model = soak(
            schedule, given.requests, bulk=given.bulk, seed=given.seed, rho=given.rho,
            most=min(MOST, given.requests // 5), progress=True,
        )  # fmt: skip
        score = model.score(*Life(given.seed, LEAST, MOST).rows(5_000))
        del model
        gc.collect()
        print(
            f"  {one.inserted:,} inserted, {one.deleted:,} deleted in {one.bulks:,} bulks; {one.smallest:,} to "
            f"{one.largest:,} records, {one.plans} plans; {one.replays:,} replays ({one.insertion_replays:,} of "
            f"insertions)\n  {one.seconds:,.0f} s, {1e6 * one.seconds / one.requests:,.0f} µs a request; at most "
            f"{one.largest_share:.2f} × the bytes that are needed; accuracy {score:.3f}; "
            + ("verified to the last bit" if not one.problems else f"PROBLEMS: {one.problems}")
        )
        found.append(one)
    (OUT / "soak.json").write_text(json.dumps([asdict(one) for one in found]))
    draw(found).savefig(OUT / "soak.png", dpi=110)
    if any(one.problems for one in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
