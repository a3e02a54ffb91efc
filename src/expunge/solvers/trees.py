"""Regression trees as arrays: which leaf of each tree a record comes to, and their sums of leaf values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.types import Array, Ints

AT_ONCE = 2**13
"""How many records go down the trees together: they stay in the processor's cache."""
FINENESS = 40
"""Values are whole multiples of 2⁻⁴⁰ of the largest: sums of them are exact, whatever their order."""


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees for one or more outputs; all arrays begin with outputs × trees.

    A node has a feature and a threshold: records above it go on to its right child, others to its left one. A leaf is
    its own child, and has a number among the leaves of its tree.

    >>> stump = Trees.of(1, 2, [[[Node(0, 0.5, 1, 2), Node(value=-1.0), Node(value=2.0)]]], [0.25])
    >>> stump.leaves(np.array([[0.5], [0.6]])).tolist(), stump.scores(np.array([[0.5], [0.6]])).tolist()
    ([[[0, 1]]], [[-0.75, 2.25]])
    """

    features: Ints
    thresholds: Array
    children: Ints
    """For each node its left and its right child."""
    leaf: Ints
    """For each node its number among the leaves, if it is one; else 0."""
    values: Array
    """For each leaf."""
    base: Array
    """For each output."""

    @classmethod
    def of(cls, outputs: int, leaves: int, trees: Sequence[Sequence[Sequence[Node]]], base: Any) -> Trees:
        """Return trees of at most so many leaves each, by output."""
        number, nodes = len(trees[0]) if len(trees) else 0, 2 * leaves - 1
        shape = outputs, number, nodes
        features, leaf = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        thresholds, values = np.zeros(shape), np.zeros((outputs, number, leaves))
        children = np.repeat(np.arange(nodes), 2).reshape(nodes, 2) + np.zeros((*shape, 1), dtype=np.int64)
        for output, its in enumerate(trees):
            for place, tree in enumerate(its):
                seen = 0
                for at, node in enumerate(tree):
                    features[output, place, at], thresholds[output, place, at] = node.feature, node.threshold
                    if node.left == node.right:
                        leaf[output, place, at], values[output, place, seen] = seen, node.value
                        seen += 1
                    else:
                        children[output, place, at] = node.left, node.right
        return cls(features, thresholds, children, leaf, on_grid_of_largest(values), np.array(base, dtype=np.float64))

    def __eq__(self, other: object) -> bool:
        """Say whether other trees are these, to the last bit."""
        return isinstance(other, Trees) and np.array_equal(self.pack(), other.pack())

    __hash__ = None  # type: ignore[assignment]

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return int(self.features.shape[0])

    @property
    def number(self) -> int:
        """How many trees an output has."""
        return int(self.features.shape[1])

    @property
    def most_leaves(self) -> int:
        """How many leaves a tree has at most."""
        return int(self.values.shape[2])

    @cached_property
    def _flat(self) -> tuple[Ints, Array, Ints, Ints]:
        """All trees' nodes in one row, and where each tree begins."""
        nodes = self.features.shape[2]
        begins = np.arange(self.outputs * self.number) * nodes
        children = self.children.reshape(-1, nodes, 2) + begins[:, None, None]
        return self.features.ravel(), self.thresholds.ravel(), children.ravel(), begins

    @cached_property
    def depths(self) -> list[int]:
        """How many steps it takes to every tree's deepest leaf."""
        found = []
        for children in self.children.reshape(-1, *self.children.shape[2:]):
            level, depth = np.zeros(1, dtype=np.int64), 0
            while True:
                below = np.unique(children[level])
                if np.array_equal(below, level):
                    break
                level, depth = below, depth + 1
            found.append(depth)
        return found

    def leaves(self, rows: Array) -> Ints:
        """Return the number of each record's leaf: outputs × trees × records."""
        found = np.empty((self.outputs * self.number, len(rows)), dtype=np.int64)
        if len(rows) == 1:
            self._descend_alone(rows[0], found)
        else:
            for first in range(0, len(rows), AT_ONCE):
                self._descend(rows[first : first + AT_ONCE], found[:, first : first + AT_ONCE])
        return found.reshape(self.outputs, self.number, len(rows))

    def _descend(self, rows: Array, found: Ints) -> None:
        numbers, begins = np.ascontiguousarray(rows).ravel(), np.arange(len(rows)) * rows.shape[1]
        shape = self.features.shape[2]
        each = zip(
            self.features.reshape(-1, shape), self.thresholds.reshape(-1, shape),
            self.children.reshape(-1, 2 * shape), self.leaf.reshape(-1, shape), self.depths, found, strict=True,
        )  # fmt: skip
        for features, thresholds, children, leaf, depth, out in each:
            at = np.zeros(len(rows), dtype=np.int64)
            for _ in range(depth):
                right = numbers.take(begins + features.take(at)) > thresholds.take(at)
                at *= 2
                at += right
                at = children.take(at)
            out[:] = leaf.take(at)

    def _descend_alone(self, row: Array, found: Ints) -> None:
        """Let one record go down all trees at once."""
        features, thresholds, children, begins = self._flat
        at = begins.copy()
        for _ in range(max(self.depths, default=0)):
            at = children.take(2 * at + (row.take(features.take(at)) > thresholds.take(at)))
        found[:, 0] = self.leaf.ravel().take(at)

    def scores(self, rows: Array, values: Array | None = None) -> Array:
        """Return the sum of the values of each record's leaves, and the base: outputs × records."""
        total = np.empty((self.outputs, len(rows)))
        for part, leaves in self.parts(rows):
            total[:, part] = self.scores_of(leaves, values)
        return total

    def parts(self, rows: Array) -> Iterator[tuple[slice, Ints]]:
        """Give the leaves of some records at a time."""
        for first in range(0, max(len(rows), 1), AT_ONCE):
            part = slice(first, min(first + AT_ONCE, len(rows)))
            yield part, self.leaves(rows[part])

    def scores_of(self, leaves: Ints, values: Array | None = None) -> Array:
        """Return the same for records of which the leaves are known. Sums are exact, so that order does not matter."""
        chosen = np.take_along_axis(self.values if values is None else values, leaves, axis=2)
        return np.add.reduce(chosen, axis=1) + self.base[:, None]

    def with_values(self, values: Array) -> Trees:
        """Return the same trees with other values of leaves."""
        return Trees(self.features, self.thresholds, self.children, self.leaf, values, self.base)

    # --- as numbers ---

    @staticmethod
    def packed_size(outputs: int, number: int, leaves: int) -> int:
        """Return how many numbers so many trees are packed in."""
        nodes = 2 * leaves - 1
        return outputs * (1 + number * (5 * nodes + leaves))

    def pack(self) -> Array:
        """Return all of it as numbers."""
        parts = self.base, self.features, self.thresholds, self.children, self.leaf, self.values
        return np.concatenate([part.ravel().astype(np.float64) for part in parts])

    @classmethod
    def unpack(cls, numbers: Array, outputs: int, number: int, leaves: int, columns: int) -> Trees:
        """Return what `pack` has packed; raise `ValueError` if it cannot be."""
        nodes, at = 2 * leaves - 1, 0
        shape = outputs, number, nodes
        found = []
        for size in ((outputs,), shape, shape, (*shape, 2), shape, (outputs, number, leaves)):
            length = int(np.prod(size))
            found.append(numbers[at : at + length].reshape(size))
            at += length
        base, features, thresholds, children, leaf, values = found
        for name, one, limit in (("feature", features, columns), ("child", children, nodes), ("leaf", leaf, leaves)):
            if not ((one >= 0) & (one < limit) & (one == np.floor(one))).all():
                raise ValueError(f"a {name} is not one of {limit}")
        if not np.isfinite(numbers).all():
            raise ValueError("a number is not finite")
        if (children < np.arange(nodes)[:, None]).any():
            raise ValueError("a child comes before its parent")
        whole = [one.astype(np.int64) for one in (features, children, leaf)]
        return cls(whole[0], thresholds.copy(), whole[1], whole[2], values.copy(), base.copy())


@dataclass(frozen=True)
class Node:
    """A node of a tree; one without children is a leaf."""

    feature: int = 0
    threshold: float = 0.0
    left: int = 0
    right: int = 0
    value: float = 0.0


def on_grid_of_largest(values: Array) -> Array:
    """Round values to whole multiples of 2⁻⁴⁰ of the largest one."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return np.zeros_like(values)
    unit = np.ldexp(1.0, max(int(np.frexp(largest)[1]) - FINENESS, -1000))
    return np.asarray(np.rint(values / unit) * unit + 0.0)
