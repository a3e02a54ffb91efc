"""How much columns that few records have are damped in the rounds of Newton's method."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from expunge.base.types import Array
from expunge.solvers.solving import power_near

DAMPING = 4.0
"""How much columns that few records have are damped, in units of the error of a draw."""


class Columns(NamedTuple):
    """What is known of the columns: how much each varies, and the share of the records that have it at all."""

    variances: Array
    shares: Array


def damping_of(columns: Columns, spread: float, rate: float) -> Array:
    """Return how much each column is damped: the fewer records have it, the more, in proportion to the error of a draw.

    A draw lies about the solution of the part that rounds see, with a covariance of ``spread`` times the inverse of
    that part's curvature. The part is a sample: its solution lies about everyone's with 1 - ``rate`` times the same.
    """
    if spread == 0.0:
        return np.zeros(len(columns.variances))
    return DAMPING * (spread + 1.0 - rate) * power_near(columns.variances / columns.shares)
