"""Solving for parameters: a positive definite system, and numbers that are coarse so that they seldom change."""

from __future__ import annotations

import numpy as np

from expunge.base.types import Array

RIDGE = 2.0**-40
"""What is added to each diagonal, relative to it and for each column: so that no factorisation fails."""
PHASE = 0.309
"""Where rounding to coarse steps begins: numbers that people like, such as 1000 or a variance of 1, are not there."""


def power_near(numbers: Array) -> Array:
    """Return powers of two nearby: so they seldom change when a record leaves."""
    return np.exp2(np.floor(np.log2(numbers) + PHASE))


def solved(matrix: Array, vector: Array) -> Array:
    """Solve a positive definite system; what is not determined to working precision is kept small."""
    from scipy.linalg import lapack

    diagonal = matrix.diagonal()
    inverse = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    scaled = matrix * inverse * inverse[:, None]
    held = scaled.copy()
    held.reshape(-1)[:: len(vector) + 1] += len(vector) * RIDGE
    held.reshape(-1)[:: len(vector) + 1][diagonal <= 0.0] = 1.0
    factor = lapack.dpotrf(held, lower=1)[0]
    right = vector * inverse
    solution = lapack.dpotrs(factor, right, lower=1)[0]
    for _ in range(2):  # takes off again what was added to the diagonal, where the records determine it
        solution = solution + lapack.dpotrs(factor, right - scaled @ solution, lower=1)[0]
    return np.asarray(solution * inverse)
