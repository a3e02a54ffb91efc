"""What a change costs: fits and kept deletions on covtype, with this tree and with another, in one run.

    python benchmarks/speed/against.py --other ../parent/src

The two trees take turns, each in a process of its own, so that what else the machine does hits both alike. Prints the
ratios of medians and of lower quartiles (CPU time), this tree's to the other's: on a busy machine the quartiles say
more. About three minutes; writes out/speed_against.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.smoke import OUT, parser_of, sized

RHO, AT_ONCE = sized(0.03, 0.5), sized(100, 5)
HERE = Path(__file__).resolve().parents[2] / "src"


def work() -> None:
    """Do what the lines of standard input say, and answer each with how long it took."""
    import time

    import expunge

    X, y = np.load(OUT / "against_X.npy"), np.load(OUT / "against_y.npy")
    model, rng = expunge.LogisticRegression(rho=RHO, solver="dual_averaging"), np.random.default_rng(1)
    left: list[int] = []
    for line in sys.stdin:
        began = time.process_time()
        if line.strip() == "fit":
            model = expunge.LogisticRegression(rho=RHO, solver="dual_averaging").fit(X, y)
            costs = [time.process_time() - began]
            model.unlearn([0])  # builds the index
            left = rng.permutation(np.arange(1, len(y))).tolist()
        else:
            costs = []
            for _ in range(AT_ONCE):
                began = time.process_time()
                outcome = model.unlearn([left.pop()])
                if outcome.kept:
                    costs.append(time.process_time() - began)
        print(json.dumps(costs), flush=True)


class Worker:
    """A process that runs one tree."""

    def __init__(self, source: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--work", *sized([], ["--smoke"])]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, what: str) -> list[float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        found: list[float] = json.loads(self.process.stdout.readline())
        return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--other", type=Path, help="the src folder of the other tree")
    parser.add_argument("--fits", type=int, default=sized(15, 2))
    parser.add_argument("--bulks", type=int, default=sized(40, 2), help=f"how often {AT_ONCE} deletions are made")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work()
        return
    if given.other is None:
        parser.error("give --other, the src folder of the tree to compare with")
    from benchmarks.accuracy.datasets import load, needed

    needed(["covtype"])
    OUT.mkdir(parents=True, exist_ok=True)
    data = load("covtype")
    np.save(OUT / "against_X.npy", data.X_train)
    np.save(OUT / "against_y.npy", data.y_train)
    workers = {"this": Worker(HERE), "other": Worker(given.other)}
    costs: dict[str, dict[str, list[float]]] = {name: {"fit": [], "unlearn": []} for name in workers}
    for what, times in (("fit", 1 + given.fits), ("unlearn", given.bulks)):
        for turn in track(range(times), what):
            for name in sorted(workers, reverse=bool(turn % 2)):
                found = workers[name].do(what)
                if turn or what == "unlearn":  # the first fit gets its memory from the system
                    costs[name][what] += found
    result: dict[str, Any] = {}
    for what, title in (("fit", "fit"), ("unlearn", "kept deletion")):
        for share, word in ((0.5, "median"), (0.25, "quartile")):
            this, other = (float(np.quantile(costs[name][what], share)) for name in ("this", "other"))
            result |= {
                f"{title}, {word}": this,
                f"{title}, {word}, other": other,
                f"{title}, {word}, ratio": this / other,
            }
    (OUT / "speed_against.json").write_text(json.dumps(result, indent=1))
    for name, value in result.items():
        print(f"{name}: {value:.6g}")


if __name__ == "__main__":
    main()
