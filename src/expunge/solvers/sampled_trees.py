"""Boosted trees as a structure from a keyed sample, and exact sums over everyone that give the values of their leaves.

    stage       everyone whose key is below ρ joins
    structure   trees, boosted on the sample alone: where they split, and values that are good enough to begin with
    sums        everyone's slopes and curvatures of the loss at these scores, by leaf, and by pairs of leaves
    model       the same trees; the values of all leaves by one step of Newton's method, solved when it is read

(docs/sampled.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from expunge.base.types import AnyArray, Array, Batch, Ints, Keys
from expunge.engine.structures import Parts
from expunge.solvers.boosting import Grown, grown
from expunge.solvers.class_slopes import class_slopes
from expunge.solvers.one_stage import OneStage
from expunge.solvers.slices import SLICES, Slices, joined
from expunge.solvers.solving import solved
from expunge.solvers.trees import Trees, on_grid_of_largest

FAR = 2.0**40
"""How many times the spread of the sample's targets a slope may be; beyond, it counts as that large."""


@dataclass(frozen=True)
class TreeSettings:
    """All that is fixed before records take part."""

    classes: int
    """How many there are; 0 where targets are amounts."""
    features: int
    rho: float
    trees: int
    """How many each output has."""
    leaves: int
    """How many a tree has at most."""
    learning_rate: float
    least: int
    """How many records of the sample a leaf has at least."""
    smoothing: float
    """As how many records the values from the sample count in the step."""

    @property
    def outputs(self) -> int:
        """How many scores a record has: one for amounts and for two classes, else one for each class."""
        return self.classes if self.classes > 2 else 1


class Slopes(NamedTuple):
    """What records say of the scores, rounded so that sums are exact: outputs × records."""

    pulls: Array
    """Minus the derivatives of the loss, in slices: slices × outputs × records."""
    weights: Array
    """Its curvatures, or more."""


Found = tuple[Any, ...]
"""Nothing (who joins follows from the key alone), and what has `Grown`."""


@dataclass(frozen=True)
class SampledTrees(OneStage):
    """What boosting finds in a keyed sample, and what everyone adds to its leaves."""

    settings: TreeSettings

    @cached_property
    def packed(self) -> int:
        """How many numbers the trees have, and the spread of targets."""
        chosen = self.settings
        return 1 + Trees.packed_size(chosen.outputs, chosen.trees, chosen.leaves)

    @property
    def _slices(self) -> int:
        return 1 if self.settings.classes else SLICES

    @property
    def _of_an_output(self) -> int:
        """How many leaves an output has, over all of its trees."""
        return self.settings.trees * self.settings.leaves

    @cached_property
    def width(self) -> int:
        """How many numbers a leaf has: its slopes, and curvatures together with each leaf of the same output."""
        return self._slices + self._of_an_output

    @property
    def most_rows(self) -> int:
        """How many leaves there are at most."""
        return self.settings.outputs * self._of_an_output

    @property
    def rows_each(self) -> int:
        """To how many rows a record adds."""
        return self.settings.outputs * self.settings.trees

    # --- the sample ---

    def find(self, found: Found, keys: Keys, batch: Batch) -> Grown | None:
        """Return nothing for the stage, and then what boosting finds in those who have joined."""
        return grown(self.settings, keys, *batch) if found else None

    # --- as numbers ---

    def pack(self, found: Found) -> Array:
        """Return spread and trees as numbers."""
        self.__dict__.pop("_remembered", None)  # what it held may be of somebody who leaves
        one: Grown = found[1]
        return np.append(one.spread, one.trees.pack())

    def unpack(self, numbers: Array) -> Found:
        """Return what was found; what was asked for last is remembered."""
        known: tuple[Array, Found] | None = self.__dict__.get("_remembered")
        if known is None or not np.array_equal(known[0], numbers):
            known = self.__dict__["_remembered"] = numbers.copy(), self._unpacked(numbers)
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: what is remembered is nobody's state."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def _unpacked(self, numbers: Array) -> Found:
        if not numbers[0] > 0.0:
            raise ValueError(f"a spread of {numbers[0]}")
        return None, Grown(self.trees(numbers[1:]), numbers.item(0))

    def trees(self, numbers: Array) -> Trees:
        """Return the trees that numbers stand for; raise `ValueError` if they stand for none."""
        chosen = self.settings
        return Trees.unpack(numbers, chosen.outputs, chosen.trees, chosen.leaves, chosen.features)

    # --- everyone ---

    def rows(self, found: Found) -> int:
        """Return how many leaves there are."""
        return self.most_rows

    def slopes(self, one: Grown, scores: Array, targets: AnyArray) -> Slopes:
        """Return slopes and curvatures at some scores (outputs × records): of each record by itself."""
        if not self.settings.classes:
            far = FAR * one.spread
            pulls = np.clip(targets - scores, -far, far)
            return Slopes(Slices(far).cut(pulls).reshape(SLICES, 1, -1), np.ones_like(scores))
        pulls, weights = class_slopes(scores, targets)
        return Slopes(pulls[None], weights)

    def total(self, found: Found, batch: Batch) -> Array:
        """Return the sums over some records."""
        one: Grown = found[1]
        pulls = np.zeros((self.settings.outputs, self._of_an_output, self._slices))
        pairs = np.zeros((self.settings.outputs, self._of_an_output, self._of_an_output))
        for part, leaves in one.trees.parts(batch[0]):
            found_here = self.slopes(one, one.trees.scores_of(leaves), batch[1][part])
            for output, codes in self._codes(leaves):
                weights = np.tile(found_here.weights[output], self.settings.trees)
                _add_pairs(pairs[output], codes, weights, self.settings.leaves)
                for number, its in enumerate(found_here.pulls[:, output]):
                    again = np.tile(its, self.settings.trees)
                    pulls[output, :, number] += np.bincount(codes.ravel(), again, self._of_an_output)
        for matrix in pairs:
            _mirror(matrix, self.settings.leaves)
        return np.concatenate([pulls, pairs], axis=2).reshape(self.most_rows, self.width)

    def _codes(self, leaves: Ints) -> Iterator[tuple[int, Ints]]:
        """Give for each output the leaves of its trees (trees × records), numbered over all of its trees."""
        begins = np.arange(self.settings.trees)[:, None] * self.settings.leaves
        yield from enumerate(leaves + begins)

    def parts(self, found: Found, batch: Batch) -> Parts:
        """Return each record's leaves, and what it adds to each of them."""
        one: Grown = found[1]
        leaves, number = one.trees.leaves(batch[0]), len(batch[0])
        at = self.slopes(one, one.trees.scores_of(leaves), batch[1])
        rows = np.empty((number, self.settings.outputs, self.settings.trees), dtype=np.int64)
        values = np.zeros((*rows.shape, self.width))
        for output, codes in self._codes(leaves):
            rows[:, output] = codes.T + output * self._of_an_output
            for record in range(number):
                row = np.zeros(self.width)
                row[: self._slices] = at.pulls[:, output, record]
                row[self._slices + codes[:, record]] = at.weights[output, record]
                values[record, output] = row
        return Parts(rows.ravel(), values.reshape(-1, self.width))

    def normal(self, row: Array) -> Array:
        """Return a row as it is: its sums have one form."""
        return row

    def model(self, found: Found, sums: Array) -> Array:
        """Return the trees with the values that one step of Newton's method from the sample's gives, as numbers."""
        trees: Trees = found[1].trees
        largest = 0.25 if self.settings.classes else 1.0
        values = trees.values.copy()
        by_output = sums.reshape(self.settings.outputs, self._of_an_output, self.width)
        for output, its in enumerate(by_output):
            slices, curvature = its[:, : self._slices], its[:, self._slices :].copy()
            pull = slices[:, 0] if self._slices == 1 else joined(*slices.T)
            curvature.reshape(-1)[:: len(pull) + 1] += largest * self.settings.smoothing
            values[output] += solved(curvature, pull).reshape(values[output].shape)
        return trees.with_values(on_grid_of_largest(values)).pack()


def _add_pairs(pairs: Array, codes: Ints, weights: Array, leaves: int) -> None:
    """Add the weights of records to all pairs of their leaves, in place: of each two trees the first one's rows."""
    trees = len(codes)
    for tree, own in enumerate(codes):
        first = tree * leaves
        wide = (trees - tree) * leaves
        both = codes[tree:] + ((own - first) * wide - first)
        counted = np.bincount(both.ravel(), weights[: both.size], leaves * wide)
        pairs[first : first + leaves, first:] += counted.reshape(leaves, wide)


def _mirror(pairs: Array, leaves: int) -> None:
    """Fill in the other half of a symmetric matrix; a tree's own block is diagonal."""
    for first in range(0, len(pairs), leaves):
        last = first + leaves
        pairs[last:, first:last] = pairs[first:last, last:].T
