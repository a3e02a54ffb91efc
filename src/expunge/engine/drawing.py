"""A pass whose rounds are draws: sum each step exactly, and draw the next iterate from its law. (docs/guarantee.md)"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from expunge.base.types import Array
from expunge.engine.couplings.common import Sums
from expunge.engine.forward import Staged
from expunge.engine.laws import Laws
from expunge.engine.randomness import Randomness
from expunge.engine.transcript import Path


def draw_steps(
    laws: Laws, sums: Sums, path: Path, steps: int, earlier: Array, randomness: Randomness,
    watch: Callable[[int], None] | None = None, known: Array | None = None, drawn: Array | None = None,
) -> Staged:  # fmt: skip
    """Make the rows from the end of ``path`` to ``steps``; ``earlier`` are the sums of the rows before.

    ``known`` and ``drawn`` are the sum and the draw of the first of them, where a coupling has made them. The finish
    draws nothing: its row is blank.
    """
    first = path.made
    kept = np.concatenate([earlier, np.empty((steps - first, earlier.shape[1]))])
    path.staged = iterates = np.zeros((steps - first, len(path.start)))
    for step in range(first, steps):
        kept[step] = sums.total(step, path) if known is None else known
        if drawn is None:
            law = laws.law(step, path, kept[: step + 1])
            drawn = path.start * 0.0 if law is None else law.draw(randomness.noise)[0]
        iterates[step - first] = drawn
        path.append(iterates[step - first])
        known = drawn = None
        if watch is not None:
            watch(step + 1)
    return Staged(first, kept[first:], iterates, iterates)
