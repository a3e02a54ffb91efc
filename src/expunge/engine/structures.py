"""Structure from a keyed sample, numbers from everyone: what such a learner says of itself, by protocol.

Every record has a secret key, drawn when it enters. By keys records join a *sample*, in a few stages; what a stage
looks at is its own key, its own content, and what was *found* in those who joined before. From the sample alone comes
the structure: cells, splits, features, bins. Then everyone, sampled or not, adds exact numbers to sums that belong to
it, and the model is solved from these when it is read. (docs/guarantee.md#structure-from-a-sample)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from expunge.base.types import Array, Batch, Ints, Keys, Mask
from expunge.engine.randomness import secret_keys
from expunge.engine.schedules import Everyone
from expunge.engine.transcript import Path


@dataclass(frozen=True)
class Keyed(Everyone):
    """Everyone takes part, and has a secret key of its own, or its subject's, by which a sample is drawn."""

    rounds: int = 1

    def _keys(self, number: int, rng: np.random.Generator) -> Keys:
        return secret_keys(rng, number)


class Parts(NamedTuple):
    """What records add to sums, row by row of these: a row may come up several times."""

    rows: Ints
    values: Array


class Forgotten(LookupError):
    """What was found is not in its numbers, and not in memory: it must be found again."""


class Structure(Protocol):
    """What is found in a keyed sample, and what everyone adds to the sums that belong to it.

    It has seeds of its own that look at no record. What is *found* is a tuple: one thing for each stage, which says who
    joins it, and at last the structure proper. All of it is a function of records and keys, whatever their order. It
    may read those who have joined only: never how many others there are, nor anything else of them.

    Sums are exact in any order of up to ``exact_to`` records: sums of whole multiples of powers of two. Where a sum has
    several forms, `normal` brings it into the one that is kept.

    What cannot be kept as numbers, such as an object of another library, may be packed as a fingerprint. Then memory
    holds what was packed last, and only that, and no copy or pickle has it.
    """

    @property
    def stages(self) -> int:
        """How many stages there are."""

    @property
    def packed(self) -> int:
        """How many numbers all that is found has, once it is packed."""

    @property
    def width(self) -> int:
        """How many numbers a row of the sums has."""

    @property
    def most_rows(self) -> int:
        """How many rows the sums have at most."""

    @property
    def rows_each(self) -> int:
        """To how many rows a record adds."""

    @property
    def bound(self) -> float:
        """The largest number that a record may have."""

    @property
    def exact_to(self) -> int:
        """Up to how many records sums are exact."""

    def admit(self, batch: Batch) -> None:
        """Raise if records cannot be summed exactly, before anything is done with them."""

    def find(self, found: tuple[Any, ...], keys: Keys, batch: Batch) -> Any:
        """Return the next thing that is found, from those who have joined so far, in any order."""

    def joins(self, stage: Any, keys: Keys, batch: Batch) -> Mask:
        """Say who joins in a stage: the same for each record, in whatever batch it comes."""

    def sampled(self, found: tuple[Any, ...], keys: Keys, batch: Batch) -> Mask:
        """Say who joins in any stage, given what was found."""

    def chance(self, found: tuple[Any, ...], batch: Batch) -> Array:
        """Return how likely each record is to join, over its own key."""

    def pack(self, found: tuple[Any, ...]) -> Array:
        """Return all that was found as numbers."""

    def unpack(self, numbers: Array) -> tuple[Any, ...]:
        """Return what `pack` has packed; raise `ValueError` if it cannot be, `Forgotten` if it must be found again."""

    def rows(self, found: tuple[Any, ...]) -> int:
        """Return how many rows the sums have."""

    def total(self, found: tuple[Any, ...], batch: Batch) -> Array:
        """Return what some records add to the sums, all of them."""

    def parts(self, found: tuple[Any, ...], batch: Batch) -> Parts:
        """Return what each record adds to the sums: few rows."""

    def normal(self, row: Array) -> Array:
        """Bring a row of sums, or of differences of sums, into its one form, in place, and return it."""

    def model(self, found: tuple[Any, ...], sums: Array) -> Array:
        """Solve for the model."""


@dataclass(frozen=True)
class Additions:
    """What records add to the sums of a structure, as a query: a path that has the structure ends with it."""

    structure: Structure

    @property
    def size(self) -> int:
        """How many numbers a row of the sums has."""
        return self.structure.width

    @property
    def bound(self) -> float:
        """The largest number that a record may have."""
        return self.structure.bound

    @property
    def exact_to(self) -> int:
        """Up to how many records sums are exact."""
        return self.structure.exact_to

    def admit(self, batch: Batch) -> None:
        """Raise if records cannot be summed exactly."""
        self.structure.admit(batch)

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return what each record adds, to whichever row."""
        return self.structure.parts(self.structure.unpack(path[-1]), batch).values


@dataclass(frozen=True)
class FromSample:
    """The rule of a pass without noise, whose only iterate is what was found in the sample."""

    structure: Structure

    @property
    def start(self) -> Array:
        """Nothing is found yet."""
        return np.zeros(self.structure.packed)

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return what was found."""
        return answer
