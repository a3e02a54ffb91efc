"""Made-up data sets in the formats of the real ones that benchmarks measure with, as small as ``--smoke`` has them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 300
NEWSGROUPS = ("alt.atheism", "comp.graphics", "sci.space")


def write_tiny_data(folder: Path) -> None:
    """Write all eight data sets, each into a folder of its name."""
    rng = np.random.default_rng(0)
    for name, write in WRITERS.items():
        (folder / name).mkdir(parents=True)
        write(folder / name, rng)


def _pack(path: Path, content: str | bytes) -> None:
    path.write_bytes(gzip.compress(content.encode() if isinstance(content, str) else content))


def _csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return "\n".join(",".join(map(str, row)) for row in [*([header] if header else []), *rows]) + "\n"


def _covtype(folder: Path, rng: np.random.Generator) -> None:
    numbers = rng.integers(1800, 3900, size=(ROWS, 1)), rng.integers(0, 60, size=(ROWS, 9))
    table = np.hstack([*numbers, rng.integers(2, size=(ROWS, 44)), rng.integers(1, 8, size=(ROWS, 1))])
    _pack(folder / "covtype.csv.gz", _csv([f"c{number}" for number in range(55)], table.tolist()))


def _svmlight(rng: np.random.Generator, columns: int) -> str:
    lines = []
    for number in range(ROWS):
        ones = np.flatnonzero(rng.random(columns) < 0.1) + 1
        lines.append(" ".join([f"{2 * (number % 2) - 1:+d}", *(f"{one}:1" for one in ones)]))
    return "\n".join(lines) + "\n"


def _a9a(folder: Path, rng: np.random.Generator) -> None:
    for name in ("a9a.gz", "a9a.t.gz"):
        _pack(folder / name, _svmlight(rng, 123))


def _w8a(folder: Path, rng: np.random.Generator) -> None:
    _pack(folder / "w8a.gz", _svmlight(rng, 300))


def _adult(folder: Path, rng: np.random.Generator) -> None:
    for name, header in (("adult.data.gz", []), ("adult.test.gz", [f"c{number}" for number in range(15)])):
        rows = [
            [
                rng.integers(17, 90), "Private", rng.integers(10**4, 10**6), "Masters", rng.integers(1, 17), "Divorced",
                "Sales", "Wife", "White", "Female", 0, 0, 40, "?", (">50K", "<=50K")[number % 2],
            ]
            for number in range(ROWS)
        ]  # fmt: skip
        _pack(folder / name, _csv(header, rows))


def _mnist(folder: Path, rng: np.random.Generator) -> None:
    for part in ("train", "t10k"):
        images, labels = rng.integers(256, size=(ROWS, 784), dtype=np.uint8), np.arange(ROWS, dtype=np.uint8) % 10
        _pack(folder / f"{part}-images-idx3-ubyte.gz", bytes(16) + images.tobytes())
        _pack(folder / f"{part}-labels-idx1-ubyte.gz", bytes(8) + labels.tobytes())


def _newsgroups(folder: Path, rng: np.random.Generator) -> None:
    words = [f"word{number}" for number in range(200)]
    for part in ("train", "test"):
        rows = [{"label": NEWSGROUPS[number % 3], "text": " ".join(rng.choice(words, 12))} for number in range(ROWS)]
        _pack(folder / f"{part}.jsonl.gz", "\n".join(map(json.dumps, rows)) + "\n")


def _housing(folder: Path, rng: np.random.Generator) -> None:
    rows = [
        [
            -120.5, 37.25, 30, rng.integers(100, 5000), rng.integers(50, 900) if number % 9 else "",
            rng.integers(100, 3000), rng.integers(50, 800), 3.5, rng.integers(50_000, 500_000), "INLAND",
        ]
        for number in range(ROWS)
    ]  # fmt: skip
    _pack(folder / "housing.csv.gz", _csv([f"c{number}" for number in range(10)], rows))


def _flights(folder: Path, rng: np.random.Generator) -> None:
    header = ["year", "month", "day", "dep_delay", "arr_delay", "carrier", "origin", "dest", "distance", "hour"]
    rows = [
        [
            2013, 1 + number // 100, 1 + number // 25 % 4, rng.integers(-10, 90), rng.integers(-30, 120), "UA", "JFK",
            ("BOS", "ORD", "LAX")[number % 3], rng.integers(200, 2500), number % 24,
        ]
        for number in range(ROWS)
    ]  # fmt: skip
    cancelled = [2013, 1, 1, "NA", "NA", "UA", "JFK", "BOS", 200, 5]
    _pack(folder / "flights.csv.gz", _csv(header, [*rows, cancelled]))


WRITERS = {
    "covtype": _covtype,
    "a9a": _a9a,
    "adult": _adult,
    "mnist": _mnist,
    "w8a": _w8a,
    "20newsgroups": _newsgroups,
    "california_housing": _housing,
    "nycflights13": _flights,
}
