"""Leaving and joining through the strategy has the law of fresh training; taking rounds without the absent has not.

benchmarks/federated/flower_exactness.py does the same with all stories and many more runs.
"""

import pytest

from flower.stories import cases, controls

LEVEL = 0.001


@pytest.mark.parametrize(
    "name",
    [
        "leave",
        "join",
        "two leave in turn, exact at last",
        "join, exact at last",
        "away when rounds are repeated",
        "a late reply after a cut",
    ],
)
def test_stories_have_the_law_of_fresh_training(name: str):
    [case] = [case for case in cases() if case.name == name]
    report = case.check(400, seed=1)
    assert report.p_value >= LEVEL, str(report)


def test_leaving_out_who_is_absent_is_caught():
    [case] = [case for case in controls() if case.name == "who is absent is left out"]
    assert case.check(150, seed=1).p_value < 1e-6


def test_names_of_controls_and_stories_differ():
    names = [case.name for case in cases() + controls()]
    assert len(set(names)) == len(names) == 11
