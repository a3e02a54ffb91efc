"""The forward pass: sum each step, add its noise, and let the rule make the next iterate. (docs/guarantee.md)"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from expunge.base.errors import BadIterate
from expunge.base.types import Array
from expunge.engine.couplings.common import Sums
from expunge.engine.learner import Learner
from expunge.engine.mechanisms.noise import NoiseSource, NoNoise
from expunge.engine.transcript import Path


class Staged(NamedTuple):
    """New rows from step ``first`` on."""

    first: int
    sums: Array
    answers: Array
    iterates: Array


def forward(
    learner: Learner, sums: Sums, path: Path, steps: int, running: Array, noise: NoiseSource,
    watch: Callable[[int], None] | None = None, known: Array | None = None,
) -> Staged:  # fmt: skip
    """Compute the rows from the end of ``path`` to ``steps``; ``running`` is the sum of the earlier ones.

    ``known`` is the first row's own sum, if it need not be asked for. If answers are the sums, they are one array.
    """
    rule, grid, prefix, size = learner.rule, learner.grid, learner.mechanism.prefix, learner.query.size
    first, start = path.made, rule.start
    silent = isinstance(noise, NoNoise) and not prefix
    kept = known[None] if known is not None and steps - first == 1 else np.empty((steps - first, size))
    answers = kept if silent else np.empty((steps - first, size))
    iterates = np.empty((steps - first, *start.shape))
    path.staged = iterates
    for step in range(first, steps):
        row, wanted = step - first, noise.wants_shift(step)
        change = sums.shift(step, path).sum if wanted and grid.exact else None
        before = sums.before(step, path) if wanted and not grid.exact else None
        if known is None:
            kept[row] = sums.total(step, path)
        else:
            if kept.base is not known:
                kept[row] = known
            known = None
        if not silent:
            met = grid.met(kept[row])
            running = running + met if prefix else met
            if change is not None:
                before = grid.met(kept[row] - change)
            answers[row] = running + noise.row(step, None if before is None else np.asarray(met - before))
        iterate = rule.step(step, path, answers[row])
        if iterate.shape != start.shape or not np.isfinite(iterate).all():
            raise BadIterate(
                f"step {step}: the rule returned an iterate of shape {iterate.shape} (it starts with {start.shape}) "
                "or with NaN or infinity. Take smaller steps, or check the rule."
            )
        iterates[row] = iterate
        path.append(iterates[row])
        if watch is not None:
            watch(step + 1)
    return Staged(first, kept, answers, iterates)
