"""Features of any transformer as a structure from a keyed sample, and a linear model of them from exact sums.

    stage       everyone whose key is below ρ joins
    structure   the transformer, fitted on the sample alone; centres and units of its features; where the head begins
    sums        products of everyone's features, as the head wants them
    model       the head's parameters, solved when it is read

A fitted transformer is an object of another library: memory has it, and the transcript its fingerprint.
(docs/sampled.md#your-own-structure)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.types import AnyArray, Array, Batch, Keys
from expunge.engine.structures import Forgotten, Parts
from expunge.solvers.boosting import power_above
from expunge.solvers.exact_products import LARGEST, ExactProducts
from expunge.solvers.heads import FINEST, ONE, Head, codes_of
from expunge.solvers.one_stage import OneStage, in_order
from expunge.solvers.transforming import AT_ONCE, MOST_ROWS, fit, in_any_batch, in_peace, transformed, width_of

WORDS = 4
"""How many numbers a fingerprint has."""
BITS = 52
"""How many bits each of them has: so each is a whole number that a float holds."""

Found = tuple[Any, ...]
"""Nothing (who joins follows from the key alone), and what is `Fitted`."""


@dataclass(frozen=True)
class FeatureSettings:
    """All that is fixed before records take part."""

    transformer: Any
    """As the user gave it, not fitted."""
    features: int
    """How many columns records have."""
    rho: float
    seed: int
    """What seeds of the transformer follow from, which the user has not given."""
    head: Head

    @property
    def classes(self) -> int:
        """How many classes there are; 0 where targets are amounts."""
        return self.head.classes

    @property
    def columns(self) -> int:
        """How many features there are at most."""
        return self.head.columns


@dataclass(frozen=True, eq=False)
class Fitted:
    """A transformer that was fitted on a sample, and what goes with it."""

    transformer: Any
    """None, if it refused the sample: then all features are 0."""
    together: bool
    """Whether rows may be transformed together, and have the same bits."""
    own: int
    """How many features it makes."""
    centres: Array
    units: Array
    """About how far apart the sample's features are, powers of two; these and centres are of those that are taken."""
    variances: Array
    """Those of the sample's features, in these units, and at least about that of one record of it; of all columns."""
    start: Array
    """Where the head begins."""
    numbers: Array
    """The fingerprint."""
    trouble: str = ""
    """Why it says nothing, if so."""
    refused: list[bool] = field(default_factory=list)
    """Not empty once it has refused a record outside of the sample. What it said is not kept: it may repeat the record.
    """

    def __eq__(self, other: object) -> bool:
        """Say whether they have one fingerprint."""
        return isinstance(other, Fitted) and np.array_equal(self.numbers, other.numbers)

    @property
    def taken(self) -> int:
        """How many features are taken."""
        return len(self.centres)

    def grid(self, X: Array, columns: int, kept: bool = True) -> Array:
        """Return the features of rows, each by itself, as whole numbers: columns × records.

        Those that are not ``kept`` in sums, but predicted from, are made together: last digits may depend on the batch.
        """
        made = np.zeros((columns, len(X)))
        if self.transformer is not None:
            features = transformed(self.transformer, self.taken, X, self.together or not kept, kept)
            if kept and features.refused and not self.refused:
                self.refused.append(True)
            made[: self.taken] = on_grid(features.rows, self.centres, self.units)
            made[:, list(features.refused)] = 0.0
        return made


@dataclass(frozen=True)
class SampledFeatures(OneStage):
    """What a transformer finds in a keyed sample, and what everyone adds to the sums of a head on its features."""

    settings: FeatureSettings

    @cached_property
    def products(self) -> ExactProducts:
        """What a row of the sums is."""
        return ExactProducts(self.settings.head.width)

    @property
    def packed(self) -> int:
        """How many numbers a fingerprint has."""
        return WORDS

    @property
    def width(self) -> int:
        """How many numbers a row of the sums has."""
        return self.products.size

    @property
    def most_rows(self) -> int:
        """How many rows the sums have."""
        return self.settings.head.rows

    @property
    def rows_each(self) -> int:
        """To how many rows a record adds: to all."""
        return self.settings.head.rows

    # --- the sample ---

    def find(self, found: Found, keys: Keys, batch: Batch) -> Fitted | None:
        """Return nothing for the stage, and then the transformer, fitted to those who have joined."""
        if not found:
            return None
        X, y = in_order(keys, *batch)
        try:
            return self._fitted(X.astype(np.float64), y)
        except ValueError as error:  # a request that is recorded must not fail
            return self._silent(len(X), y, str(error))

    def _fitted(self, X: Array, y: AnyArray) -> Fitted:
        given, head = self.settings.transformer, self.settings.head
        if not len(X):
            raise ValueError("nobody is in the sample")
        transformer, together = fit(given, self.settings.seed, X, codes_of(y, head.classes)), in_any_batch(given)
        own = width_of(transformer, X)
        if not own:
            raise ValueError("it makes no features")
        features = transformed(transformer, min(own, head.columns), X, together).rows
        centres, units = frame_of(features)
        made = np.zeros((head.columns, len(X)))
        made[: features.shape[1]] = on_grid(features, centres, units)
        variances = np.maximum(np.var(made / ONE, axis=1), 1.0 / (len(X) + 1.0))
        with in_peace():
            start = head.start(made, variances, y)
        numbers = fingerprint(np.array([own]), centres, units, start, made)
        return Fitted(transformer, together, own, centres, units, variances, start, numbers)

    def _silent(self, number: int, y: AnyArray, why: str) -> Fitted:
        """Return what says nothing: no features, so that the head has an intercept only."""
        head, nothing = self.settings.head, np.zeros(0)
        variances = np.full(head.columns, 1.0 / (number + 1.0))
        start = head.start(np.zeros((head.columns, number)), variances, y)
        numbers = fingerprint(np.array([0.0, number]), start)
        return Fitted(None, True, 0, nothing, nothing, variances, start, numbers, why)

    # --- as numbers ---

    def pack(self, found: Found) -> Array:
        """Return the fingerprint; what it is of is remembered, and nothing else."""
        one: Fitted = found[1]
        self.__dict__["_remembered"] = found
        return one.numbers.copy()

    def unpack(self, numbers: Array) -> Found:
        """Return what was packed last, if it has this fingerprint."""
        known: Found | None = self.__dict__.get("_remembered")
        if known is not None and np.array_equal(known[1].numbers, numbers):
            return known
        if not (np.floor(numbers) == numbers).all() or not (0 <= numbers.min() <= numbers.max() < 2**BITS):
            raise ValueError("no fingerprint")
        raise Forgotten("the structure has to be fitted again")

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: what is remembered is nobody's state."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    # --- everyone ---

    def rows(self, found: Found) -> int:
        """Return how many rows the sums have."""
        return self.most_rows

    def _blocks(self, one: Fitted, batch: Batch) -> Iterator[tuple[int, Array]]:
        """Give the columns of some records at a time, with the row of the sums that they belong to."""
        head = self.settings.head
        for part in parts_of(len(batch[0]), head.width):
            rows, targets = np.asarray(batch[0][part], dtype=np.float64), batch[1][part]  # files may have 32 bits
            yield from enumerate(head.blocks(one.start, one.grid(rows, head.columns), targets))

    def total(self, found: Found, batch: Batch) -> Array:
        """Return the sums over some records."""
        summed = np.zeros((self.most_rows, self.width))
        for row, block in self._blocks(found[1], batch):
            self.products.moved(summed[row], [block], True)
        return summed

    def parts(self, found: Found, batch: Batch) -> Parts:
        """Return what each record adds to each row."""
        each = [
            (row, self.products.total(block[:, record : record + 1]))
            for row, block in self._blocks(found[1], batch)
            for record in range(block.shape[1])
        ]
        values = np.array([value for _, value in each]).reshape(-1, self.width)
        return Parts(np.array([row for row, _ in each], dtype=np.int64), values)

    def normal(self, row: Array) -> Array:
        """Bring a row of sums into its one form, in place, and return it."""
        return self.products.normal(row)

    def model(self, found: Found, sums: Array) -> Array:
        """Return the fingerprint of what was found, then the head's parameters: outputs × (columns and intercept)."""
        one, head = found[1], self.settings.head
        matrices = [self.products.matrix(row) / ONE**2 for row in sums]
        return np.append(one.numbers, head.parameters(one.start, one.variances, matrices))


def parts_of(number: int, width: int) -> Iterator[slice]:
    """Give parts of some records with rows of a width, so that one part takes little room."""
    at_once = max(1, min(MOST_ROWS, AT_ONCE // width))
    for first in range(0, number, at_once):
        yield slice(first, first + at_once)


def frame_of(features: Array) -> tuple[Array, Array]:
    """Return centres and units of a sample's features (records × columns), a unit being a power of two."""
    largest = np.abs(features).max(axis=0)
    centres = features.mean(axis=0)
    spreads = np.abs(features - centres).max(axis=0)
    same = spreads <= FINEST * largest
    centres = np.where(same, features[0], centres)
    units = np.array([power_above(np.array([one])) for one in np.where(same, largest, spreads)])
    return np.rint(centres * (ONE / units)) * (units / ONE) + 0.0, units


def on_grid(features: Array, centres: Array, units: Array) -> Array:
    """Return features as whole numbers, columns × records; what is far out counts as less far."""
    with np.errstate(over="ignore"):
        numbers = (features - centres) * (ONE / units)
    return np.ascontiguousarray(np.clip(np.rint(numbers), -LARGEST, LARGEST).T) + 0.0


def fingerprint(*parts: Array) -> Array:
    """Return a few whole numbers that differ wherever the parts do."""
    digest = hashlib.blake2b(digest_size=8 * WORDS)
    for part in parts:
        digest.update(repr(part.shape).encode())
        digest.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
    words = np.frombuffer(digest.digest(), dtype="<u8") >> np.uint64(64 - BITS)
    return words.astype(np.float64)
