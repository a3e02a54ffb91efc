"""Speed of the logistic regression on covtype, beside scikit-learn's on the same data, in one run.

    python benchmarks/speed/estimators.py

About five minutes; keep the machine quiet. Writes out/speed_estimators.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import sklearn.linear_model
from rich.progress import track

import expunge
from benchmarks.accuracy.datasets import load, needed
from benchmarks.smoke import OUT, parser_of, sized

RHO, DELETIONS, REPEATS = sized(0.03, 0.5), sized(5_000, 20), sized(5, 1)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def main() -> None:
    parser_of(__doc__).parse_args()
    needed(["covtype"])
    OUT.mkdir(parents=True, exist_ok=True)
    data = load("covtype")
    X, y, ids = data.X_train, data.y_train, np.arange(len(data.y_train))
    theirs = [timed(lambda: sklearn.linear_model.LogisticRegression(max_iter=1000).fit(X, y)) for _ in range(2)]
    reference = float(np.median([seconds for seconds, _ in theirs]))
    fits = []
    model = expunge.LogisticRegression(rho=RHO, solver="dual_averaging")
    for _ in range(1 + REPEATS):  # the first one gets its memory from the system, which some machines are slow to give
        model = expunge.LogisticRegression(rho=RHO, solver="dual_averaging")  # what the last one had can be used again
        seconds, _ = timed(partial(model.fit, X, y, ids=ids))
        fits.append(seconds)
    fit = float(np.median(fits[1:]))
    score = model.score(data.X_test, data.y_test)
    first, _ = timed(lambda: model.unlearn(ids[:1]))  # builds the index
    victims = np.random.default_rng(1).permutation(ids[1:])[:DELETIONS]
    costs, kept = np.empty(DELETIONS), np.empty(DELETIONS, dtype=bool)
    for number, victim in track(list(enumerate(victims)), "deletions"):
        began = time.perf_counter()
        outcome = model.unlearn([victim])
        costs[number] = time.perf_counter() - began
        kept[number] = outcome.kept
    found = {
        "scikit-learn fit, seconds": reference,
        "scikit-learn accuracy": float(theirs[0][1].score(data.X_test, data.y_test)),
        "our fit, seconds": fit,
        "our first fit, seconds": fits[0],
        "our accuracy": float(score),
        "first deletion, with building the index, seconds": first,
        "fit: times faster": reference / fit,
        "mean deletion, seconds": float(costs.mean()),
        "mean deletion: 1 / this share of scikit-learn's fit": reference / float(costs.mean()),
        "kept deletion (mean), seconds": float(costs[kept].mean()),
        "kept deletion (median), seconds": float(np.median(costs[kept])),
        "kept deletion (mean): 1 / this share of scikit-learn's fit": reference / float(costs[kept].mean()),
        "kept deletion (median): 1 / this share of scikit-learn's fit": reference / float(np.median(costs[kept])),
        "replays": int((~kept).sum()),
        "verified": model.verify().ok,
    }
    (OUT / "speed_estimators.json").write_text(json.dumps(found, indent=1))
    for name, value in found.items():
        print(f"{name}: {value:,.6g}" if isinstance(value, float) else f"{name}: {value}")


if __name__ == "__main__":
    main()
