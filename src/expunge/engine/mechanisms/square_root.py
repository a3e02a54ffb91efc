"""The square root of the prefix-sum matrix: B = C, a Toeplitz matrix.

Fichtenberger, Henzinger & Upadhyay (2023), "Constant matters"; Henzinger, Upadhyay & Upadhyay (2023).
Proof: docs/guarantee.md#mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from expunge.base.types import Array, Ints
from expunge.engine.mechanisms.protocol import Column

TABLE_LIMIT = 2048  # a table of steps² numbers, 32 megabytes at most
EXACT_LIMIT = 2**16  # up to here κ of the square root is summed up, beyond it its expansion is exact to 1e-11
DENSE_LIMIT = 128  # below this many steps a product with the matrix beats an FFT


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
    from scipy.linalg import toeplitz

    return np.asarray(toeplitz(_root(steps, fall), np.zeros(steps)), dtype=float)


_matrix = lru_cache(maxsize=16)(_toeplitz)


@lru_cache(maxsize=4)
def _spectrum(steps: int, fall: float) -> tuple[int, npt.NDArray[np.complex128]]:
    import scipy.fft

    length = int(scipy.fft.next_fast_len(2 * steps - 1, real=True))
    return length, scipy.fft.rfft(_root(steps, fall), length)


def _convolve(fall: float, x: Array) -> Array:
    """Multiply by the lower triangular Toeplitz matrix of the coefficients."""
    steps = len(x)
    if steps <= DENSE_LIMIT:
        return _matrix(steps, fall) @ x if steps else x.copy()
    import scipy.fft

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

    >>> from expunge import BinaryTree
    >>> round(float(SquareRoot().column_norms(1024)[0]), 2), round(float(BinaryTree().column_norms(1024)[0]), 2)
    (1.81, 3.32)
    """

    prefix = True
    row_by_row = False
    whole = False
    first_sees_most = True
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

    def tables(self, steps: int) -> SquareRoot | None:
        """Return itself up to `TABLE_LIMIT` steps."""
        return self if steps <= TABLE_LIMIT else None

    def pulls(self, steps: Ints, horizon: int) -> Array:
        """Return `pull` for several steps, by the table, each read backwards: from the last row to the first."""
        return _PULLS.of(horizon)[horizon - 1 - steps, :horizon]

    def overlaps(self, steps: Ints, others: Ints, horizon: int) -> Array:
        """Return the products of columns of C with others, cut off after ``horizon`` rows, by a table."""
        later = np.maximum(steps[:, None], others)
        apart = np.abs(steps[:, None] - others)
        return _OVERLAPS.of(horizon)[horizon - 1 - later, apart]

    def continues(self, step: int) -> int:
        """Return -1: every row takes all earlier ones."""
        return -1

    def carry(self, noise: Array, step: int, first: int = 0) -> Array:
        """Return -Σ_{s < t} b_{t-s} N_s with b the coefficients of B⁻¹."""
        coefficients = _root(step + 1, 1.5)[1:]
        return np.asarray(-(coefficients[::-1] @ noise[:step]))
