"""How the rounds of Newton's method expand a loss far from the solution, and near it.

With q the probability of the class observed, the loss has the slope 1 - q and the curvature q(1 - q). Where the model
is sure and wrong that curvature vanishes, and a step by it is far too long, first of all in columns that few records
have. So far from the solution (1 - q)(1 + q)/3 takes its place: (p + y)/√3 in place of p, as for several classes. It
has the same mean where the model is right and is large where it is wrong: a record by itself asks for a step between
1.5 and 3. It is at least two thirds of q(1 - q), so that near the solution no step is too long by more than a half.

The squared hinge is flat where a record is right by far. With noise such a record keeps some curvature, so that draws
do not go too far. Without noise that only makes steps short: there is next to none, and steps that go too far are taken
back (`expunge.solvers.stepping_back`).
"""

from __future__ import annotations

import math
from enum import Enum

import numpy as np

from expunge.base.types import AnyArray, Array
from expunge.solvers.losses import CurvedLoss, Logistic, Weighted, logistic_function
from expunge.solvers.stepping_back import is_quadratic

FLATTEST = 2.0**-30
"""The least curvature in such rounds: no column is then beyond what whole numbers hold."""
FEWEST_COLUMNS = 50
"""Noise is made as if there were at least so many columns: for fewer it costs nothing."""
MUCH, CAREFUL_ROUNDS, UNTIL_SETTLED = 50.0, 5, 20
"""From which A·n/d on so little noise damps no step; how many rounds there are then, and without noise at most."""
UNTIL_SIDES_SETTLED = 29
"""How many rounds there are at most, without noise, where records may change sides."""


class Stage(Enum):
    """How a loss is expanded: as it says itself, or as rounds do that begin far from the solution, or are near it."""

    PLAIN = 0
    FAR = 1
    NEAR = 2


def has_stages(loss: object) -> bool:
    """Say whether a loss has expansions of its own for rounds that are far from the solution, and near it.

    >>> from expunge.solvers.losses import SquaredHinge
    >>> has_stages(Weighted(Logistic(), (1.0, 2.0))), has_stages(SquaredHinge())
    (True, False)
    """
    return isinstance(loss.loss if isinstance(loss, Weighted) else loss, Logistic)


def rounds_with_stages(loss: object, support: float, columns: int) -> int:
    """Return how many rounds that have stages a loss needs, by A·n/d (infinite without noise); 0 for none.

    >>> [rounds_with_stages(Logistic(), support, 60) for support in (14.14, 100.0, math.inf)]
    [0, 5, 20]
    """
    if is_quadratic(loss):
        return UNTIL_SIDES_SETTLED if support == math.inf else 0
    if not has_stages(loss) or support * columns / max(columns, FEWEST_COLUMNS) < MUCH:
        return 0
    return UNTIL_SETTLED if support == math.inf else CAREFUL_ROUNDS


def expanded(loss: CurvedLoss, stage: Stage, scores: Array, targets: AnyArray) -> tuple[Array, Array]:
    """Return a loss's derivative in the score, and the curvature of the quadratic that takes its place at a stage."""
    if stage is Stage.PLAIN:
        return loss.expansion(scores, targets)
    if is_quadratic(loss):
        slopes, curved = loss.expansion(scores, targets)
        return slopes, np.where(slopes != 0.0, curved, FLATTEST)
    wrong = logistic_function()(-targets * scores)
    far = stage is Stage.FAR
    curvatures = np.maximum(wrong * ((2.0 - wrong) / 3.0 if far else 1.0 - wrong), FLATTEST)
    if isinstance(loss, Weighted):
        weights = loss.each(targets)
        return -targets * wrong * weights, curvatures * weights
    return -targets * wrong, curvatures
