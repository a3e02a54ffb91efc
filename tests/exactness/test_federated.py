"""Exactness of federations: after clients came and left the complete state has the law of fresh training.

Level 0.01 after Bonferroni within a story, fixed seeds; a difference of about 0.3 of a standard deviation would
be noticed. Mistakes must be caught with p < 1e-6. `benchmarks/federated/exactness.py` has all stories, with more runs.
"""

import pytest

from cases.federated_finish import exact_cases, exact_controls
from cases.federated_mistakes import controls
from cases.federated_stories import cases
from cases.toys import long_but

TESTED = ("leave, half of the rounds", "join in mid-replay", "join while rounds are made",
          "moody clients, two leave in turn", "join in mid-replay, exact at last", "leave in mid-pass, exact at last",
          "moody clients, two leave in turn, exact at last", "moody clients, join, exact at last")  # fmt: skip
STORIES = [case for case in cases() + exact_cases() if case.name in TESTED]
QUICK = ("new coins until it keeps", "answers along the old path", "a last sum that is not updated")
MISTAKES = [control for control in controls() + exact_controls() if control.in_tests]


@pytest.mark.parametrize(
    "case",
    long_but(
        ["leave, half of the rounds", "join in mid-replay", "moody clients, two leave in turn, exact at last"], STORIES
    ),
)
def test_the_state_after_clients_came_and_left_has_the_law_of_fresh_training(case):
    report = case.check(runs=450, seed=8)
    assert report.passed, report


@pytest.mark.parametrize("control", long_but(QUICK, MISTAKES))
def test_the_mistake_is_caught(control):
    with control.mistake():
        report = control.wrong.check(runs=control.in_tests, seed=8)
    assert report.p_value < 1e-6, report


@pytest.mark.parametrize("control", long_but(QUICK, MISTAKES))
def test_without_the_mistake_the_same_story_passes(control):
    report = control.right.check(runs=control.in_tests, seed=8)
    assert report.passed, report
