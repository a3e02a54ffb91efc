"""Newton's method beside scikit-learn behind a StandardScaler: unscaled tables, default parameters, several ρ.

    python benchmarks/accuracy/newton.py [NAME ...] [--rho auto 0.01 ...]

Columns of the shared data sets are multiplied by powers of ten, from 10⁻³ to 10⁶, as units in files would. The other
tables are generated, but for scikit-learn's digits. Of several classes are five_classes, digits and cover_types; their
AUC is the mean of each class's against the rest. Each line of out/newton.jsonl is one fit: differences from
scikit-learn's AUC and accuracy on test
records, the mean probability that the deletion of a record replays, and seconds. The table is out/newton.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.progress import Progress
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from benchmarks.accuracy.datasets import data_folder, load, there
from benchmarks.smoke import OUT, parser_of, sized

SHARED = ("covtype", "a9a", "adult", "w8a")
SEEDS = sized(5, 1)
ASKED = sized(200, 3)
"""Of how many records the probability of a replay is asked."""
Table = tuple[Any, Any, Any, Any]


def shared(name: str) -> Table:
    data = load(name)
    units = 10.0 ** np.random.default_rng(0).integers(-3, 7, size=data.X_train.shape[1])
    return data.X_train * units, data.y_train, data.X_test * units, data.y_test


def generated(make: Callable[[np.random.Generator, int], tuple[Any, Any]]) -> Callable[[], Table]:
    def table() -> Table:
        rng = np.random.default_rng(1)
        number = sized(40_000, 400)
        X, score = make(rng, 2 * number)
        y = np.where(rng.logistic(size=len(X)) < score, 1.0, -1.0)
        return X[:number], y[:number], X[number:], y[number:]

    return table


def skewed(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = np.exp(1.5 * rng.normal(size=(number, 15)))
    return X, np.log(X) @ np.linspace(-0.5, 0.5, 15)


def unscaled(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 20))
    return X * np.where(np.arange(20) % 2, 1e6, 1e-6), X @ np.linspace(-0.7, 0.7, 20)


def correlated(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 5)) @ rng.normal(size=(5, 25)) + 0.05 * rng.normal(size=(number, 25))
    return X + 1000.0, X @ rng.normal(size=25) / 5.0


def imbalanced(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 20))
    return X, X @ np.linspace(-0.4, 0.4, 20) - 5.2


def duplicated(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 10))
    return np.hstack([X, X, 3.0 * X]), X @ np.linspace(-1.0, 1.0, 10)


def constant(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    X = rng.normal(size=(number, 10))
    return np.hstack([X, np.full((number, 1), 7.0), np.zeros((number, 1))]), X @ np.linspace(-1.0, 1.0, 10)


def five_classes() -> Table:
    rng, number = np.random.default_rng(1), sized(20_000, 400)
    X = rng.normal(size=(2 * number, 20))
    y = (X @ rng.normal(size=(20, 5)) / 2.0 + rng.gumbel(size=(2 * number, 5))).argmax(axis=1)
    X *= 10.0 ** rng.integers(-3, 7, size=20)
    return X[:number], y[:number], X[number:], y[number:]


def digits() -> Table:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [sized(1_300, 400)])
    few = sized(64, 20)
    return X[train, :few], y[train], X[test, :few], y[test]


def cover_types() -> Table:
    """The seven cover types of 100,000 records, in the units of the file."""
    table = np.loadtxt(data_folder("covtype") / "covtype.csv.gz", delimiter=",", skiprows=1, dtype=np.int32)
    table = table[np.random.default_rng(0).permutation(len(table))[:180_000]]
    X, y = table[:, :54].astype(np.float64), table[:, 54]
    return X[:100_000], y[:100_000], X[100_000:], y[100_000:]


SEVERAL = {make.__name__: make for make in (five_classes, digits, cover_types)}
GENERATED = {
    make.__name__: generated(make) for make in (skewed, unscaled, correlated, imbalanced, duplicated, constant)
}


def auc_of(model: Any, test: Any, truth: Any) -> float:
    scores = model.decision_function(test) if len(model.classes_) == 2 else model.predict_proba(test)
    return float(roc_auc_score(truth, scores, multi_class="ovr"))


def measure(name: str, rhos: list[Any], watch: Callable[[], None]) -> list[dict[str, Any]]:
    """Fit both, several times ours, and return a row for each."""
    made = GENERATED | SEVERAL
    X, y, test, truth = made[name]() if name in made else shared(name)
    best = {"solver": "newton-cholesky"} if name in SEVERAL else {}
    theirs = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000, tol=1e-6, **best)).fit(X, y)
    auc, accuracy = auc_of(theirs, test, truth), float((theirs.predict(test) == truth).mean())
    rows = []
    for rho in rhos:
        for seed in range(SEEDS):
            began = time.perf_counter()
            model = expunge.LogisticRegression(solver="newton", rho=rho).fit(X, y, ids=np.arange(len(y)))
            seconds = time.perf_counter() - began
            some = np.random.default_rng(seed).choice(len(y), ASKED, replace=False)
            rows.append(
                {
                    "table": name, "records": len(y), "columns": X.shape[1], "asked": rho, "rho": model.plan_.rho,
                    "rounds": model.plan_.rounds, "seed": seed, "seconds": seconds, "auc": auc, "accuracy": accuracy,
                    "auc_difference": auc_of(model, test, truth) - auc,
                    "accuracy_difference": float((model.predict(test) == truth).mean()) - accuracy,
                    "replays": float(model.replay_probability(some).mean()),
                }
            )  # fmt: skip
            watch()
    return rows


def table_of(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| table | n × d | scikit-learn AUC / % | asked ρ | ρ (rounds) | AUC (worst) | points (worst) | replays / ρ |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, asked in dict.fromkeys((row["table"], row["asked"]) for row in rows):
        own = [row for row in rows if (row["table"], row["asked"]) == (name, asked)]
        one = own[0]
        auc, points = (np.array([row[f"{key}_difference"] for row in own]) for key in ("auc", "accuracy"))
        replays = np.mean([row["replays"] for row in own]) / one["rho"]
        lines.append(
            f"| {name} | {one['records']:,} × {one['columns']} | {one['auc']:.4f} / {100 * one['accuracy']:.2f} "
            f"| {asked} | {one['rho']:.2g} ({one['rounds']}) | {auc.mean():+.4f} ({auc.min():+.4f}) | "
            f"{100 * points.mean():+.2f} ({100 * points.min():+.2f}) | {replays:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", help="tables (default: all)")
    parser.add_argument("--rho", nargs="+", default=sized(["auto", "0.01"], ["auto"]), help="ρ to measure")
    given = parser.parse_args()
    rhos = [rho if rho == "auto" else float(rho) for rho in given.rho]
    known = sized(list(SHARED), [])
    made = [*GENERATED, *(name for name in SEVERAL if name != "cover_types" or sized(there(["covtype"]), []))]
    names = given.names or [*known, *made]
    names = [*there([name for name in names if name not in made]), *[name for name in names if name in made]]
    OUT.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        bar = progress.add_task("fits", total=len(names) * len(rhos) * SEEDS)
        for name in names:
            rows += measure(name, rhos, lambda: progress.advance(bar))
            (OUT / "newton.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            (OUT / "newton.md").write_text(table_of(rows))
    print(table_of(rows))


if __name__ == "__main__":
    main()
