"""What cryptographic noise costs: a fit with it, against the same fit with NumPy's PCG64 in its place.

    python benchmarks/speed/randomness.py

Processor time of one thread, the least of alternating fits, which others have disturbed least; generated data. About
three minutes.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.smoke import parser_of, sized
from expunge import LogisticRegression
from expunge.engine.randomness import Randomness

FULL = {
    "20,000 × 20": (20_000, 20, 2, 15),
    "501,012 × 54": (501_012, 54, 2, 9),
    "60,000 × 784, ten classes": (60_000, 784, 10, 7),
}
CASES = sized(FULL, {"200 × 20": (200, 20, 2, 2)})
"""Records, columns, classes, and how often each is fitted."""


@contextmanager
def noise_from_pcg64() -> Iterator[None]:
    """Draw noise from NumPy's generator, which is not for secrets."""
    secret = Randomness.noise
    generator = np.random.default_rng()
    Randomness.noise = property(lambda _: generator)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Randomness.noise = secret  # type: ignore[method-assign]


def table(records: int, columns: int, classes: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(records, columns))
    X /= np.linalg.norm(X, axis=1)[:, None]
    return X, (X @ draw.normal(size=(columns, classes))).argmax(axis=1)


def seconds(X: Any, y: Any, classes: int) -> float:
    model = LogisticRegression(rho=0.1, classes=range(classes), solver="dual_averaging")
    began = time.process_time()
    model.fit(X, y)
    return time.process_time() - began


def main() -> None:
    parser_of(__doc__).parse_args()
    for name, (records, columns, classes, repeats) in CASES.items():
        X, y = table(records, columns, classes)
        seconds(X, y, classes)
        secret, plain = [], []
        for _ in range(repeats):
            secret.append(seconds(X, y, classes))
            with noise_from_pcg64():
                plain.append(seconds(X, y, classes))
        ours, theirs = min(secret), min(plain)
        print(f"{name}: {ours:.3f} s, with PCG64 {theirs:.3f} s: {100 * (ours / theirs - 1):+.1f} %")


if __name__ == "__main__":
    main()
