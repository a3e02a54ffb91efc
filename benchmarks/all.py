"""Every benchmark, one after the other. One that fails, or lacks its data, does not stop the others.

    python benchmarks/all.py            # about nine and a half hours
    python benchmarks/all.py --smoke    # a few minutes, with tiny sizes: do they all still run?

At the end it says what came of each, and exits with 1 if one has failed. What lacks its data says how to provide them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.accuracy.datasets import MISSING
from benchmarks.smoke import parser_of, sized

HERE = Path(__file__).resolve().parent
SCRIPTS: tuple[tuple[str, ...], ...] = (
    ("speed/engine.py",),
    ("speed/estimators.py",),
    ("speed/newton.py",),
    ("linear/ridge.py",),
    ("accuracy/scores.py",),
    ("accuracy/newton.py",),
    ("accuracy/newton_rho.py",),
    ("speed/size.py",),
    ("accuracy/newton_regressions.py",),
    ("linear/descent.py",),
    ("streams/accuracy.py",),
    ("linear/kmeans.py",),
    ("linear/keyed_kmeans.py",),
    ("sampled/boosting.py",),
    ("sampled/structures.py",),
    ("linear/replays.py",),
    ("federated/digits.py",),
    ("paper/reproduce.py",),
    ("streams/replays.py",),
    ("paper/exactness.py",),
    ("paper/exactness.py", "--estimators", *sized(("--runs", "4000"), ())),
    ("streams/exactness.py",),
    ("federated/exactness.py",),
    ("exactness/bits.py",),
    ("exactness/two_models.py",),
    ("streams/throughput.py",),
    ("streams/soak.py",),
    ("store/crash.py",),
    ("store/retries.py",),
    ("store/crowd.py",),
    ("store/hostile.py",),
    ("store/erasures.py",),
    ("store/large.py",),
)
"""Scripts with their arguments, in the order in which they run."""
ONE_THREAD = (
    "speed/newton.py", "sampled/boosting.py", "sampled/structures.py", "linear/keyed_kmeans.py", "linear/ridge.py",
    "exactness/bits.py", "exactness/two_models.py", "store/erasures.py",
)  # fmt: skip
"""Their products are small."""
CHAPTERS = ("complexity", "exact_by_name", "lemma", "rates", "sgd_2021", "space", "streams", "tradeoff")
APART = {
    **{f"paper/{name}.py": "is a part of paper/reproduce.py" for name in CHAPTERS},
    "exactness/newton.py": "takes a day or two",
    "federated/digits_settings.py": "chooses settings for federated/digits.py",
    "federated/flower_exactness.py": "needs the environment of make test-federated",
    "speed/against.py": "needs another tree",
    "speed/randomness.py": "looks at one part of a fit",
    "store/bombs.py": "is a part of store/hostile.py",
    "store/power.py": "needs strace",
    "store/throughput.py": "is a part of store/erasures.py, at another size",
}
"""Scripts that are run by themselves, and why."""


def command(script: tuple[str, ...]) -> list[str]:
    """Return how a script is started."""
    return [sys.executable, str(HERE / script[0]), *script[1:], *sized((), ("--smoke",))]


def run(script: tuple[str, ...]) -> str:
    """Run a script, and say what came of it."""
    print(f"--- {' '.join(script)}", flush=True)
    one_thread = {"OPENBLAS_NUM_THREADS": "1"} if script[0] in ONE_THREAD else {}
    began = time.perf_counter()
    code = subprocess.run(command(script), env={**os.environ, **one_thread}, check=False).returncode
    minutes = (time.perf_counter() - began) / 60.0
    said = {0: "done", MISSING: "its data are missing"}.get(code, f"FAILED, with {code}")
    return f"{said}, in {minutes:.1f} minutes"


def main() -> int:
    parser_of(__doc__).parse_args()
    found = {" ".join(script): run(script) for script in SCRIPTS}
    print()
    for name, said in found.items():
        print(f"{name:44} {said}")
    return 1 if any("FAILED" in said for said in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
