"""The forward pass, as a generator that asks for sums and goes on: whoever holds the records answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from expunge.errors import BadIterate
from expunge.grid import NoiseGrid
from expunge.records import Total, Totals
from expunge.rows import Path
from expunge.types import Array


class Rule(Protocol):
    """How the next iterate follows from the noisy answers: deterministic, so that it costs no privacy."""

    @property
    def start(self) -> Array:
        """The first iterate."""

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the iterate after ``step``."""


class Ask(NamedTuple):
    """What a pass asks of the records: sums of a step along a path.

    ``total`` is the new sum, ``before`` the one without the edit, ``shift`` what the edit changes of it. With
    ``steps``, all of one place, it asks only what the edit changes of each of them, along a path that is known.
    """

    step: int
    path: Path
    total: bool = False
    shift: bool = False
    before: bool = False
    steps: list[int] | None = None


class Reply(NamedTuple):
    """The answer."""

    total: Total | None = None
    shift: Total | None = None
    before: Total | None = None
    shifts: Totals | None = None


class Staged(NamedTuple):
    """New rows from step ``first`` on."""

    first: int
    sums: Array
    answers: Array
    iterates: Array


Forward = Generator[Ask, Reply, Staged]


class NoiseSource(Protocol):
    """Where a forward pass gets the noise on its answers."""

    def wants_shift(self, step: int) -> bool:
        """Whether the noise of a step depends on what the edit changes there."""

    def row(self, step: int, shift: Array | None) -> Array | float:
        """Return the noise on the answer of a step, given by how much it moves the sums that answers are made of.

        It is asked once for each step, in order.
        """


class NoNoise:
    """No noise at all."""

    def wants_shift(self, step: int) -> bool:
        """Return False: there is none."""
        return False

    def row(self, step: int, shift: Array | None) -> float:
        """Return 0."""
        return 0.0


@dataclass
class GivenNoise:
    """Noise that is already there."""

    noise: Array

    def wants_shift(self, step: int) -> bool:
        """Return False: it depends on nothing."""
        return False

    def row(self, step: int, shift: Array | None) -> Array:
        """Return the row."""
        return self.noise[step]


@dataclass
class SameNoise:
    """The noise of the only row that is computed."""

    noise: Array

    def wants_shift(self, step: int) -> bool:
        """Return False: it depends on nothing."""
        return False

    def row(self, step: int, shift: Array | None) -> Array:
        """Return it."""
        return self.noise


def forward(
    rule: Rule, prefix: bool, grid: NoiseGrid, path: Path, steps: int, size: int, running: Array, noise: NoiseSource,
    watch: Callable[[int], None] | None = None, known: Array | None = None,
) -> Forward:  # fmt: skip
    """Compute the rows from the end of ``path`` to ``steps``; ``running`` is the sum of the earlier ones.

    ``known`` is the first row's own sum, if it need not be asked for. If answers are the sums, they are one array.
    """
    first = path.made
    start = rule.start
    silent = isinstance(noise, NoNoise) and not prefix
    sums = known[None] if known is not None and steps - first == 1 else np.empty((steps - first, size))
    answers = sums if silent else np.empty((steps - first, size))
    iterates = np.empty((steps - first, *start.shape))
    path.staged = iterates
    for step in range(first, steps):
        wanted = noise.wants_shift(step)
        reply = yield Ask(step, path, known is None, wanted and grid.exact, wanted and not grid.exact)
        row = step - first
        if known is None:
            assert reply.total is not None
            sums[row] = reply.total.sum
        else:
            if sums.base is not known:
                sums[row] = known
            known = None
        if not silent:
            met = grid.met(sums[row])
            running = running + met if prefix else met
            answers[row] = running + noise.row(step, _shift(grid, sums[row], met, reply) if wanted else None)
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
    return Staged(first, sums, answers, iterates)


def _shift(grid: NoiseGrid, new: Array, met: Array, reply: Reply) -> Array:
    """Return by how much the edit changes a sum, on this path, as it meets the noise."""
    if reply.before is not None:
        return np.asarray(met - reply.before.sum)
    assert reply.shift is not None
    return np.asarray(met - grid.met(new - reply.shift.sum))
