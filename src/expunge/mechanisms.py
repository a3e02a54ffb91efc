"""Noise for running sums: how ξ, independent from step to step, becomes the noise N on the answers.

A mechanism is a factorization ``B C = R`` of what is released (``R``: prefix sums, or the steps
themselves). The noise on the answers is ``N = B ξ``, and a change of step τ by δ moves ξ by
``C[:, τ] δ``. See docs/guarantee.md, "Mechanisms".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.fft
from numpy.lib.stride_tricks import sliding_window_view
from scipy.linalg import toeplitz

from expunge.errors import BadPlan
from expunge.grid import dithered
from expunge.types import Array, Draws, Ints

TABLE_LIMIT = 2048  # a table of steps² numbers, 32 megabytes at most
EXACT_LIMIT = 2**16  # up to here κ of the square root is summed up, beyond it its expansion is exact to 1e-11
DENSE_LIMIT = 128  # below this many steps a product with the matrix beats an FFT


class Column(NamedTuple):
    """The non-zero part of a column of C, and what a decision needs of it."""

    rows: slice | Ints
    weights: Array
    probe: Array
    """weights / scales²: its product with ξ is what the coin looks at."""
    norm: float
    """|weights / scales|: how far the column moves the noise, in units of σ."""


class Mechanism(Protocol):
    """What the engine asks of a mechanism; rows are numbered from 0."""

    @property
    def prefix(self) -> bool:
        """Whether the answers are prefix sums (R lower triangular of ones) or the steps themselves (R = I)."""

    @property
    def row_by_row(self) -> bool:
        """Whether the sequential coupling may be used: few rows of C see any one step."""

    @property
    def whole(self) -> bool:
        """Whether B and C have whole numbers only, so that ξ is on the grid wherever N is."""

    @property
    def smallest_scale(self) -> float:
        """The smallest standard deviation that a row of ξ can have, in units of σ."""

    def widest(self, steps: int) -> float:
        """Return the largest standard deviation that a row of N has, in units of σ."""

    def scales(self, steps: int) -> Array:
        """Return the standard deviation of each row of ξ, in units of σ."""

    def scale_of(self, step: int) -> float:
        """Return that of one row."""

    def column(self, step: int, steps: int) -> Column:
        """Return column ``step`` of C, cut off after ``steps`` rows."""

    def weight(self, row: int, step: int) -> float:
        """Return C[row, step]: how much of a step a row sees."""

    def column_norms(self, steps: int) -> Array:
        """Return |column / scales| for every column of C."""

    def largest_norm(self, steps: int) -> float:
        """Return κ, the largest of them, at a cost that does not grow with the steps."""

    def color(self, xi: Array) -> Array:
        """Return N = B ξ."""

    def whiten(self, noise: Array) -> Array:
        """Return ξ = B⁻¹ N."""

    def pull(self, step: int, steps: int) -> Array:
        """Return B⁻ᵀ probe of column ``step``: its product with N is what the coin of that step looks at."""

    def reach(self, step: int) -> int:
        """Return the earliest row of N that row ``step`` continues; -1 if it takes all of them, or starts anew.

        With a reach of at least 0, N[step] - N[reach] does not depend on rows before that one.
        """

    def carry(self, noise: Array, step: int, first: int = 0) -> Array:
        """Return what the rows before ``step`` contribute to row ``step`` of N: N[step] = carry + ξ[step].

        ``noise`` holds the rows from ``first`` on; that must not lie behind the row's reach.
        """


def longest_pull(mechanism: Mechanism, steps: int) -> float:
    """Return a bound on the sum of |pull| of any step: a node on each height of a tree counts twice.

    (Of the square root it grows by 0.44 with each doubling of the steps.)
    """
    return 2.0 * steps.bit_length() / mechanism.smallest_scale**2


def draw_noise(mechanism: Mechanism, steps: int, size: int, sigma: float, unit: float, draws: Draws) -> Array:
    """Draw the noise N of a whole run, on the grid of ``unit``."""
    xi = draws.standard_normal((steps, size))
    xi *= (sigma * mechanism.scales(steps))[:, None]
    return dithered(mechanism.color(xi), unit, draws)


# --- the paper's binary tree --------------------------------------------------------------------


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
        return float(self.reach(row) < step <= row)

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

    def reach(self, step: int) -> int:
        """Return the node t - lowbit(t), or -1 if there is none."""
        return step - lowbit(step + 1)

    def carry(self, noise: Array, step: int, first: int = 0) -> Array:
        """Return N_{t - lowbit(t)}."""
        before = self.reach(step)
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


# --- the square root ----------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _longest_root(length: int, fall: float) -> Array:
    k = np.arange(1, length)
    coefficients = np.concatenate([[1.0], np.cumprod(1.0 - fall / k)])
    coefficients.setflags(write=False)
    return coefficients


def _root(length: int, fall: float) -> Array:
    """Return 1, (1 - fall), (1 - fall)(1 - fall/2), …: the coefficients of (1 - x)^(fall - 1)."""
    return _longest_root(1 << length.bit_length(), fall)[:length]  # few lengths, for a number of steps that grows


@lru_cache(maxsize=16)
def _longest_root_norms(length: int) -> Array:
    return np.sqrt(np.cumsum(_longest_root(length, 0.5) ** 2))


def _root_norms(length: int) -> Array:
    return _longest_root_norms(1 << length.bit_length())[:length]


def _toeplitz(steps: int, fall: float) -> Array:
    return np.asarray(toeplitz(_root(steps, fall), np.zeros(steps)), dtype=float)


_matrix = lru_cache(maxsize=16)(_toeplitz)


@lru_cache(maxsize=4)
def _spectrum(steps: int, fall: float) -> tuple[int, npt.NDArray[np.complex128]]:
    length = int(scipy.fft.next_fast_len(2 * steps - 1, real=True))
    return length, scipy.fft.rfft(_root(steps, fall), length)


def _convolve(fall: float, x: Array) -> Array:
    """Multiply by the lower triangular Toeplitz matrix of the coefficients."""
    steps = len(x)
    if steps <= DENSE_LIMIT:
        return _matrix(steps, fall) @ x if steps else x.copy()
    length, spectrum = _spectrum(steps, fall)
    if x.ndim == 1:
        return np.asarray(scipy.fft.irfft(scipy.fft.rfft(x, length) * spectrum, length)[:steps])
    columns = scipy.fft.rfft(np.ascontiguousarray(x.T), length)
    columns *= spectrum
    return np.ascontiguousarray(scipy.fft.irfft(columns, length)[:, :steps].T)


def _pulled(columns: Array) -> Array:
    """Return B⁻ᵀ times the columns: the transpose of a Toeplitz matrix, read backwards."""
    return np.ascontiguousarray(_convolve(1.5, np.ascontiguousarray(columns[::-1]))[::-1])


class _Table:
    """A table for so many steps as were ever asked for; a larger one serves fewer steps as well."""

    def __init__(self, build: Callable[[int], Array]) -> None:
        self.build = build
        self.array = np.zeros((0, 0))

    def of(self, steps: int) -> Array:
        array = self.array
        if len(array) < steps:
            array = self.array = self.build(1 << (steps - 1).bit_length())
        return array


def _pulls(steps: int) -> Array:
    """Return B⁻ᵀ C e_τ for all τ at once, so that what is remembered does not tell which steps were looked at.

    Rows and columns count from the last step. So seen, they are the same for however many steps there are.
    """
    return np.ascontiguousarray(_pulled(_toeplitz(steps, 0.5)).T[::-1, ::-1])


def _overlaps(steps: int) -> Array:
    """Return Σ_{i<n} c_i c_{i+d} in row n - 1, column d: the product of two columns, d steps apart, over n rows."""
    root = _root(2 * steps, 0.5)
    table = sliding_window_view(root[:-1], steps) * root[:steps, None]
    return np.cumsum(table, axis=0, out=table)


_PULLS, _OVERLAPS = _Table(_pulls), _Table(_overlaps)


@dataclass(frozen=True)
class SquareRoot:
    """The square root of the prefix-sum matrix, B = C: about half the noise of the tree.

    >>> round(float(SquareRoot().column_norms(1024)[0]), 2), round(float(BinaryTree().column_norms(1024)[0]), 2)
    (1.81, 3.32)
    """

    prefix = True
    row_by_row = False
    whole = False
    smallest_scale = 1.0

    def widest(self, steps: int) -> float:
        """Return the norm of the last row of B, which is that of its first column."""
        return self.largest_norm(steps)

    def scales(self, steps: int) -> Array:
        """Return ones: every row of ξ has standard deviation σ."""
        return np.ones(steps)

    def scale_of(self, step: int) -> float:
        """Return 1."""
        return 1.0

    def column(self, step: int, steps: int) -> Column:
        """Return column ``step`` of C: the coefficients from the diagonal down."""
        weights = _root(steps, 0.5)[: steps - step]
        return Column(slice(step, steps), weights, weights, _root_norms(steps).item(steps - step - 1))

    def weight(self, row: int, step: int) -> float:
        """Return the coefficient of their distance."""
        return _root(row - step + 1, 0.5).item(row - step) if step <= row else 0.0

    def column_norms(self, steps: int) -> Array:
        """Return |column| for every step."""
        return _root_norms(steps)[::-1].copy() if steps else np.zeros(0)

    def largest_norm(self, steps: int) -> float:
        """Return the norm of the first column, which is the longest.

        >>> [round(SquareRoot().largest_norm(2**k), 2) for k in (10, 20)]
        [1.81, 2.34]
        """
        square = _root_norms(min(steps, EXACT_LIMIT)).item(-1) ** 2 if steps else 0.0
        if steps > EXACT_LIMIT:  # c_k² = (1 - 1/4k + O(1/k²)) / πk
            square += (math.log(steps / EXACT_LIMIT) + (1 / EXACT_LIMIT - 1 / steps) / 4.0) / math.pi
        return math.sqrt(square)

    def color(self, xi: Array) -> Array:
        """Return N = B ξ, by one product or FFT."""
        return _convolve(0.5, xi)

    def whiten(self, noise: Array) -> Array:
        """Return ξ = B⁻¹ N, by one product or FFT."""
        return _convolve(1.5, noise)

    def pull(self, step: int, steps: int) -> Array:
        """Return B⁻ᵀ C e_τ; up to `TABLE_LIMIT` steps there is a table of them."""
        if steps <= TABLE_LIMIT:
            return _PULLS.of(steps)[steps - 1 - step, :steps][::-1]
        column = np.zeros(steps)
        column[step:] = _root(steps, 0.5)[: steps - step]
        return _pulled(column)

    def pulls(self, steps: Ints, horizon: int) -> Array:
        """Return `pull` for several steps, by the table, each read backwards: from the last row to the first."""
        return _PULLS.of(horizon)[horizon - 1 - steps, :horizon]

    def overlaps(self, steps: Ints, others: Ints, horizon: int) -> Array:
        """Return the products of columns of C with others, cut off after ``horizon`` rows, by a table."""
        later = np.maximum(steps[:, None], others)
        apart = np.abs(steps[:, None] - others)
        return _OVERLAPS.of(horizon)[horizon - 1 - later, apart]

    def reach(self, step: int) -> int:
        """Return -1: every row takes all earlier ones."""
        return -1

    def carry(self, noise: Array, step: int, first: int = 0) -> Array:
        """Return -Σ_{s < t} b_{t-s} N_s with b the coefficients of B⁻¹."""
        coefficients = _root(step + 1, 1.5)[1:]
        return np.asarray(-(coefficients[::-1] @ noise[:step]))


# --- linear queries -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """Independent noise on every step: R = B = C = I, for linear queries."""

    prefix = False
    row_by_row = True
    whole = True
    smallest_scale = 1.0

    def widest(self, steps: int) -> float:
        """Return 1."""
        return 1.0

    def scales(self, steps: int) -> Array:
        """Return ones."""
        return np.ones(steps)

    def scale_of(self, step: int) -> float:
        """Return 1."""
        return 1.0

    def column(self, step: int, steps: int) -> Column:
        """Return the unit column."""
        one = np.ones(1)
        return Column(slice(step, step + 1), one, one, 1.0)

    def weight(self, row: int, step: int) -> float:
        """Return 1 on the diagonal."""
        return float(row == step)

    def column_norms(self, steps: int) -> Array:
        """Return ones."""
        return np.ones(steps)

    def largest_norm(self, steps: int) -> float:
        """Return 1."""
        return 1.0 if steps else 0.0

    def color(self, xi: Array) -> Array:
        """Return ξ."""
        return xi.copy()

    def whiten(self, noise: Array) -> Array:
        """Return N."""
        return noise.copy()

    def pull(self, step: int, steps: int) -> Array:
        """Return the unit vector."""
        pulled = np.zeros(steps)
        pulled[step] = 1.0
        return pulled

    def reach(self, step: int) -> int:
        """Return the row before: nothing of it is taken."""
        return step - 1

    def carry(self, noise: Array, step: int, first: int = 0) -> Array:
        """Return zero: no row depends on earlier ones."""
        return np.zeros(noise.shape[1:])


def matrices(mechanism: Mechanism, steps: int) -> tuple[Array, Array]:
    """Return B and C as full matrices, for tests and drawings; the engine never builds them."""
    b = mechanism.color(np.eye(steps))
    c = np.zeros((steps, steps))
    for step in range(steps):
        column = mechanism.column(step, steps)
        c[column.rows, step] = column.weights
    return b, c
