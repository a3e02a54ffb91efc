"""Exactness through the real engine: the complete state after changes against fresh learning.

Level 0.01 after Bonferroni, fixed seeds; with this many runs a difference of about 0.11 standard deviations in
any number or product would be noticed. `benchmarks/paper/exactness.py` does the same with 100,000 runs a side.
"""

import pytest

from cases.learners import cases
from cases.toys import long_but
from expunge.engine.checks import check_exact

TESTED = [case for case in cases() if case.in_tests and not case.name.startswith("descent")]
QUICK = (
    "scattered, root, joint",
    "shuffled, tree, sequential",
    "sampled, identity, adaptive",
    "shuffled, root, no noise",
)


@pytest.mark.parametrize("case", long_but(QUICK, TESTED))
def test_the_state_after_changes_has_the_law_of_fresh_learning(case):
    runs = 1_200 if "ten" in case.name else 2_400
    report = check_exact(case.learner, case.columns, case.requests, subjects=case.subjects, runs=runs, seed=3)
    assert report.passed, report
