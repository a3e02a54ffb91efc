"""On a grid as coarse as the noise divided by eight the law stays the same, too; wrong rounding is caught.

The rule preserves the law on any grid. Only the draw of the noise comes from further away on a coarse one: by at most
0.17·√(Tm)/64 in total variation, too little to be seen with so many runs. (A reflection that is rounded to the grid:
tests/engine/test_coin.py.)
"""

from dataclasses import replace

import pytest

from cases.learners import ALIGNED, BULK, ONE, PEOPLE, STREAM, learner
from cases.patching import patched_everywhere
from cases.toys import long_but
from expunge import Arrival, BinaryTree, Delete, Everyone, Identity, Insert, Scattered, Shuffled, SquareRoot
from expunge.engine.checks import check_exact
from expunge.engine.couplings import common

COARSE = 3
CASES = {
    "square root": (learner(Scattered(2), SquareRoot()), ONE),
    "square root, bulk": (learner(Scattered(3), SquareRoot()), BULK),
    "tree": (learner(Scattered(3), BinaryTree()), ONE),
    "tree, row by row": (learner(Shuffled(1), BinaryTree(), "sequential"), ONE),
    "epochs": (learner(Scattered(2, epochs=2), SquareRoot()), ONE),
    "order, a stream": (learner(Shuffled(2), SquareRoot()), STREAM),
    "arrivals": (
        learner(Arrival(2), BinaryTree("anytime")),
        (Insert((PEOPLE[:1],)), Delete([1]), Insert((PEOPLE[:2],))),
    ),
    "everyone": (learner(Everyone(3), Identity(), "sequential"), ONE),
    "everyone, adaptive": (learner(Everyone(3), Identity(), "adaptive"), ONE),
    "everyone, prefix sums": (learner(Everyone(2), SquareRoot()), ONE),
}


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    monkeypatch.setattr(common, "FINENESS", COARSE)


def anew(plan):
    """The learner, which has its grid from the number of digits that holds now."""
    plan = replace(plan)
    assert plan.grid.unit >= plan.sigma * plan.mechanism.smallest_scale / 16.0
    return plan


@pytest.mark.parametrize("name", long_but(["square root, bulk", "tree, row by row", "everyone, adaptive"], CASES))
def test_the_state_after_changes_has_the_law_of_fresh_learning(name):
    plan, requests = CASES[name]
    report = check_exact(anew(plan), (PEOPLE,), requests, runs=1_500, seed=5)
    assert report.p_value > 1e-3, report


def test_a_shift_that_is_not_the_change_of_what_was_rounded_is_caught():
    """The leaving record's own contribution, in floating point, in the place of the change of the rounded sum."""
    plan = anew(learner(Everyone(2), Identity(), "sequential", sigma=1.0))

    right = common.changes

    def changes(old):
        found = right(old)
        return found._replace(shifts=found.parts.sums)

    with patched_everywhere("changes", changes):
        report = check_exact(plan, (ALIGNED,), (Delete([0]),), runs=2_000, seed=5)
    assert report.p_value < 1e-6, report
    twin = check_exact(plan, (ALIGNED,), (Delete([0]),), runs=2_000, seed=5)
    assert twin.p_value > 1e-3, twin
