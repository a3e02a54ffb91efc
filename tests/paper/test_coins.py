"""The paper's coin and its reflection, printed and corrected. See `cases.printed` for the levels."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy import stats

from cases.learners import EACH, ONE, PEOPLE, Swirl, learner
from cases.patching import patched_everywhere
from cases.printed import FAILS, PASSES, of_the_paper, printed_ratio, printed_reflect, start
from expunge import DualAveragingRule, Everyone
from expunge.engine.checks import check_exact
from expunge.engine.couplings.common import keep_or_jump


@dataclass
class Coin:
    """A generator whose next two exponentials are known."""

    values: list[float]

    def standard_exponential(self):
        return self.values.pop(0)


@cache
def distance_from_normal(decide, shift=1.2, grid=300):
    """The largest error of the law of the noise about the new mean: a quadrature over old noise and coin."""
    middles = (np.arange(grid) + 0.5) / grid
    old, first = np.repeat(stats.norm.ppf(middles), grid), np.tile(-np.log(middles), grid)
    second = -np.log((np.arange(grid**2) * (5**0.5 - 1) / 2 + 0.5 / grid) % 1.0)  # another number for each
    coins = map(Coin, np.stack([first, second], axis=1).tolist())
    new = np.sort([s - decide(shift, s, coin).move * shift for s, coin in zip(old.tolist(), coins, strict=True)])
    return np.abs(stats.norm.cdf(new) - (np.arange(grid**2) + 0.5) / grid**2).max()


@cache
def p_value_in_the_engine(plan, decide):
    with patched_everywhere("keep_or_jump", decide):
        return check_exact(plan, (PEOPLE,), ONE, runs=1500, seed=3).p_value


TREE_UNLEARN = of_the_paper(1.2, Swirl(), DualAveragingRule(start(2), 0.6))
LINEAR_UNLEARN = learner(Everyone(3), EACH, "sequential", sigma=1.2)
BOTH = pytest.mark.parametrize(
    "plan",
    [
        pytest.param(TREE_UNLEARN, id="TreeUnlearn", marks=pytest.mark.long),
        pytest.param(LINEAR_UNLEARN, id="linear queries"),
    ],
)


@BOTH
def test_the_printed_acceptance_ratio_is_inverted(plan):
    assert distance_from_normal(printed_ratio) > 0.1
    assert distance_from_normal(keep_or_jump) < 0.005
    assert p_value_in_the_engine(plan, printed_ratio) < FAILS
    assert p_value_in_the_engine(plan, keep_or_jump) > PASSES


@BOTH
def test_the_printed_reflection_is_a_translation(plan):
    assert distance_from_normal(printed_reflect) > 0.1
    assert p_value_in_the_engine(plan, printed_reflect) < FAILS
    assert p_value_in_the_engine(plan, keep_or_jump) > PASSES
