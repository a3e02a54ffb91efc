"""How far a request walks through the code: calls, functions, files, and how often the next call is in another file.

``python tools/walk.py`` prints a line each for a fit in memory, for a deletion in memory and in a store whose model is
kept, and for ``expunge unlearn`` with opening and closing. Only files of the package count. ``--pairs`` also prints
between which files a deletion goes to and fro.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import expunge

PACKAGE = str(Path(expunge.__file__).parent)
RECORDS, FEATURES, RHO = 20_000, 5, 0.05
KEPT = 101
"""Of how many kept deletions the median is taken."""
HEADS = ("calls", "functions", "files", "changes of file", "with returns", "depth")


class Walk:
    """What was called, in order, and where the way went."""

    def __init__(self) -> None:
        self.calls = self.depth = self.deepest = self.changes = self.with_returns = 0
        self.functions: set[tuple[str, str, int]] = set()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self._called = self._at = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count one call or return; `sys.setprofile` asks for it."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        file = code.co_filename[len(PACKAGE) + 1 :]
        if event == "return":
            self.depth -= 1
            back = frame.f_back
            while back is not None and not back.f_code.co_filename.startswith(PACKAGE):
                back = back.f_back
            if back is not None:
                self._go(back.f_code.co_filename[len(PACKAGE) + 1 :])
            return
        self.calls += 1
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        self.functions.add((file, code.co_name, code.co_firstlineno))
        self.changes += file != self._called and self._called != ""
        self._called = file
        self._go(file)

    def _go(self, file: str) -> None:
        if self._at not in ("", file):
            self.with_returns += 1
            first, second = sorted([self._at, file])
            self.pairs[first, second] += 1
        self._at = file

    @property
    def files(self) -> set[str]:
        """Where the functions that were called stand."""
        return {file for file, *_ in self.functions}

    def numbers(self) -> list[int]:
        """Return what is printed of it."""
        return [self.calls, len(self.functions), len(self.files), self.changes, self.with_returns, self.deepest]


def walked(do: Callable[[], Any]) -> tuple[Walk, Any]:
    """Do something, and return how far it went with what came of it."""
    walk = Walk()
    sys.setprofile(walk)
    try:
        result = do()
    finally:
        sys.setprofile(None)
    return walk, result


def kept_deletion(unlearn: Callable[[int], Any]) -> Walk:
    """Delete records, one a request, until some are kept; return the walk of the median. The first is not looked at.

    They differ a little: a record may be the last of its place, or its place need less room without it.
    """
    unlearn(0)
    kept: list[Walk] = []
    for record in range(1, RECORDS):
        walk, outcome = walked(partial(unlearn, record))
        if outcome.kept:
            kept.append(walk)
        if len(kept) == KEPT:
            return sorted(kept, key=lambda one: one.changes)[KEPT // 2]
    raise AssertionError("too few deletions were kept")


def at_the_prompt(path: str, record: int) -> None:
    """Do what ``expunge unlearn`` does, its imports done before."""
    from expunge.cli.app import app

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        app(["unlearn", path, "--id", str(record), "--json"])


def all_walks(folder: str) -> dict[str, Walk]:
    """Walk all ways."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(RECORDS, FEATURES)) / 4
    y = (X @ rng.normal(size=FEATURES) + rng.normal(size=RECORDS) > 0).astype(int)
    model = expunge.LogisticRegression(rho=RHO, solver="dual_averaging")
    fit = walked(lambda: model.fit(X, y))[0]
    memory = kept_deletion(lambda record: model.unlearn([record]))
    path = str(Path(folder) / "model.expunge")
    model.save(path)
    with expunge.open(path) as stored:
        in_store = kept_deletion(lambda record: stored.unlearn([RECORDS - 1 - record]))
    at_the_prompt(path, RECORDS // 2)
    prompt = walked(lambda: at_the_prompt(path, RECORDS // 2 + 1))[0]
    return {"fit": fit, "unlearn in memory": memory, "unlearn stored": in_store, "expunge unlearn": prompt}


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pairs", action="store_true", help="also print between which files deletions go")
    options.add_argument("--files", action="store_true", help="also print in which files deletions are")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        walks = all_walks(folder)
    print(f"{'':18}" + "".join([f"{head:>17}" for head in HEADS]))
    for name, walk in walks.items():
        print(f"{name:18}" + "".join([f"{number:17,}" for number in walk.numbers()]))
    for name in ("unlearn in memory", "unlearn stored"):
        if given.pairs:
            print(f"\n{name}, with returns:")
            print("\n".join([f"{number:6} {a} <-> {b}" for (a, b), number in walks[name].pairs.most_common()]))
        if given.files:
            print(f"\n{name}:\n  " + "\n  ".join(sorted(walks[name].files)))


if __name__ == "__main__":
    main()
