"""Which solver an estimator takes by itself: a public rule of the loss and the shape of the table."""

from __future__ import annotations

from typing import Any

from expunge.solvers.objects import DualAveraging, Newton
from expunge.solvers.plans.newton import why_not

MOST_PARAMETERS = 1_000
"""Newton's method is taken up to so many columns times outputs: its cost grows with their square."""
MOST_SPARSE = 300
"""The same, where rows are sparse: it works on them as dense ones."""


def automatic_solver(loss: Any, features: int, *, sparse: bool = False) -> Newton | DualAveraging:
    """Return the solver that ``solver="auto"`` means for a loss, a number of columns, and sparse or dense rows.

    It is `Newton` if the loss has curvature that Newton's method can take, and columns times outputs (one, or one for
    each of more than two classes) are at most 1,000, or 300 if rows are sparse. Else it is `DualAveraging`. What the
    records contain plays no part.

    >>> from expunge.solvers.losses import Hinge, Logistic
    >>> automatic_solver(Logistic(), 54), automatic_solver(Logistic(), 5_000), automatic_solver(Hinge(), 54)
    (Newton(), DualAveraging(), DualAveraging())
    """
    most = MOST_SPARSE if sparse else MOST_PARAMETERS
    return Newton() if why_not(loss, features) is None and features * loss.outputs <= most else DualAveraging()
