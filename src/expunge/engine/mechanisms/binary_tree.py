"""The binary tree, kept as a Fenwick tree: at most ⌊log₂T⌋ + 1 rows see any one step.

Chan, Shi & Song (2011), "Private and continual release of statistics"; Ullah & Arora (2023), appendix.
Proof that these are the paper's nodes: docs/guarantee.md#mechanisms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.types import Array, Ints
from expunge.engine.mechanisms.protocol import Column


def lowbit(t: int) -> int:
    """Return the largest power of two that divides t.

    >>> [lowbit(t) for t in range(1, 9)]
    [1, 2, 1, 4, 1, 2, 1, 8]
    """
    return t & -t


@lru_cache(maxsize=64)
def _levels(steps: int) -> tuple[tuple[slice, slice], ...]:
    """Return, from the highest node down, (rows of one height, the rows their sums continue)."""
    pairs: list[tuple[slice, slice]] = []
    size = 1
    while size <= steps:
        # nodes of this height end at t = size, 3 size, 5 size, … (1-based); all but the first continue t - size
        pairs.append((slice(3 * size - 1, steps, 2 * size), slice(2 * size - 1, steps - size, 2 * size)))
        size *= 2
    return tuple(reversed(pairs))


@lru_cache(maxsize=4)
def _heights(steps: int) -> Ints:
    t = np.arange(1, steps + 1, dtype=np.int64)
    return np.log2(t & -t).astype(np.int64)


class Node(NamedTuple):
    """One noisy node of the paper's tree: the sum of the leaves it covers, and that sum with noise."""

    total: Array
    response: Array


@dataclass
class TreeNodes:
    """The nodes of one tree, numbered by the time they are complete; filled by `BinaryTree.append`."""

    size: int
    totals: list[Array] = field(default_factory=list)
    responses: list[Array] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.totals)


@dataclass(frozen=True)
class BinaryTree:
    """The paper's binary tree as a Fenwick tree: node t covers the steps (t - lowbit(t), t].

    ``shares`` says how much noise a node of height h carries, in units of σ: ``"uniform"`` 1;
    ``"anytime"`` h + 1, so that κ ≤ π/√6 however long the tree grows; ``"halving"`` 2^h, the paper's
    proposal for streams, kept for comparison; or a tuple of scales, the last of which repeats.

    >>> BinaryTree().column(4, 8).rows.tolist()  # step 5 is covered by the nodes 5, 6 and 8
    [4, 5, 7]
    """

    shares: str | tuple[float, ...] = "uniform"
    prefix = True
    row_by_row = True
    whole = True
    first_sees_most = True  # its path has a node of every height, any other some

    def __post_init__(self) -> None:
        if isinstance(self.shares, str):
            if self.shares not in ("uniform", "anytime", "halving"):
                raise BadPlan(f"shares={self.shares!r}: use 'uniform', 'anytime', 'halving' or a tuple of scales.")
        elif not self.shares or not all(np.isfinite(s) and s > 0 for s in self.shares):
            raise BadPlan(f"shares={self.shares!r}: give at least one scale, all positive and finite.")

    @property
    def smallest_scale(self) -> float:
        """The noise of the node that has the least, in units of σ."""
        return 1.0 if isinstance(self.shares, str) else float(min(self.shares))

    def widest(self, steps: int) -> float:
        """Return that of a row with a node of every height."""
        return math.sqrt(math.fsum(self.scale(height) ** 2 for height in range(steps.bit_length())))

    def scale(self, height: int) -> float:
        """Return the noise of a node of this height, in units of σ."""
        match self.shares:
            case "uniform":
                return 1.0
            case "anytime":
                return height + 1.0
            case "halving":
                return 2.0**height
            case _:
                return float(self.shares[min(height, len(self.shares) - 1)])

    def scales(self, steps: int) -> Array:
        """Return the noise of every node, in units of σ."""
        if self.shares == "uniform":
            return np.ones(steps)
        by_height = np.array([self.scale(h) for h in range(max(steps, 1).bit_length())])
        return by_height[_heights(1 << steps.bit_length())[:steps]]  # few lengths, for a number of steps that grows

    def scale_of(self, step: int) -> float:
        """Return the noise of the node that is complete after ``step``, in units of σ."""
        return self.scale(lowbit(step + 1).bit_length() - 1)

    def path(self, step: int, steps: int) -> list[int]:
        """Return the nodes that cover ``step``, in order of completion; at most ⌊log₂ steps⌋ + 1 of them."""
        nodes = []
        t = step + 1
        while t <= steps:
            nodes.append(t - 1)
            t += lowbit(t)
        return nodes

    def column(self, step: int, steps: int) -> Column:
        """Return column ``step`` of C: ones on the path."""
        rows = self.path(step, steps)
        weights = np.ones(len(rows))
        if self.shares == "uniform":
            return Column(np.array(rows, dtype=np.int64), weights, weights, len(rows) ** 0.5)
        inverse = np.array([self.scale_of(r) for r in rows]) ** -1.0
        return Column(
            np.array(rows, dtype=np.int64),
            weights,
            inverse**2,
            float(np.sqrt(np.sum(inverse**2, dtype=float))),
        )

    def weight(self, row: int, step: int) -> float:
        """Return 1 if the node that is complete after ``row`` covers the step."""
        return float(self.continues(row) < step <= row)

    def column_norms(self, steps: int) -> Array:
        """Return |column / scales| for every step."""
        squares = np.zeros(steps)
        node = self.scales(steps) ** -2.0
        for end in range(steps, 0, -1):  # the path of t is t and the path of t + lowbit(t)
            above = end + lowbit(end)
            squares[end - 1] = node[end - 1] + (squares[above - 1] if above <= steps else 0.0)
        return np.sqrt(squares)

    def largest_norm(self, steps: int) -> float:
        """Return the norm of the first column: its path has a node of every height, any other some of them.

        >>> round(BinaryTree("anytime").largest_norm(2**60), 3), round((np.pi**2 / 6) ** 0.5, 3)
        (1.276, 1.283)
        """
        return math.sqrt(math.fsum(self.scale(h) ** -2.0 for h in range(steps.bit_length())))

    def color(self, xi: Array) -> Array:
        """Return N, row by row N_t = N_{t - lowbit(t)} + ξ_t, one vector operation a height."""
        noise = xi.copy()
        for rows, earlier in _levels(len(xi)):
            noise[rows] += noise[earlier]
        return noise

    def whiten(self, noise: Array) -> Array:
        """Return ξ_t = N_t - N_{t - lowbit(t)}."""
        xi = noise.copy()
        for rows, earlier in _levels(len(noise)):
            xi[rows] -= noise[earlier]
        return xi

    def pull(self, step: int, steps: int) -> Array:
        """Return the weights of N: each node on the path, minus the one that it continues."""
        column = self.column(step, steps)
        pulled = np.zeros(steps)
        pulled[column.rows] += column.probe
        ends = np.asarray(column.rows) + 1
        before = ends - (ends & -ends)
        np.subtract.at(pulled, before[before > 0] - 1, column.probe[before > 0])
        return pulled

    def tables(self, steps: int) -> None:
        """Return None: paths are short enough."""

    def continues(self, step: int) -> int:
        """Return the node t - lowbit(t), or -1 if there is none."""
        return step - lowbit(step + 1)

    def carry(self, noise: Array, step: int, first: int = 0) -> Array:
        """Return N_{t - lowbit(t)}."""
        before = self.continues(step)
        return noise[before - first] if before >= 0 else np.zeros(noise.shape[1:])

    # The operations of the paper's appendix, on the nodes themselves.

    def append(self, nodes: TreeNodes, value: Array, noise: Array) -> None:
        """Append a leaf; the node that it completes gets its sum and ``noise`` (the paper's Append)."""
        t = len(nodes) + 1
        total = np.array(value, dtype=float)
        child = 1
        while child < lowbit(t):  # the children of node t end at t - 1, t - 2, t - 4, …
            total = nodes.totals[t - child - 1] + total
            child *= 2
        nodes.totals.append(total)
        nodes.responses.append(total + noise)

    def prefix_sum(self, nodes: TreeNodes, count: int) -> Array:
        """Return the noisy sum of the first ``count`` leaves (the paper's GetPrefixSum)."""
        answer = np.zeros(nodes.size)
        while count:
            answer = answer + nodes.responses[count - 1]
            count -= lowbit(count)
        return answer

    def get(self, nodes: TreeNodes, step: int) -> Node:
        """Return the node that is complete after ``step`` (the paper's Get)."""
        return Node(nodes.totals[step], nodes.responses[step])

    def set(self, nodes: TreeNodes, step: int, node: Node) -> None:
        """Overwrite the node that is complete after ``step`` (the paper's Set)."""
        nodes.totals[step], nodes.responses[step] = node
