"""Exactness of gradient descent: exact products, budgets from each record's own norm, rounds that some records join.

Level 0.01 after Bonferroni, fixed seeds; with so few runs a difference of about 0.3 standard deviations would be
noticed. `benchmarks/paper/exactness.py --only descent` does the same with many more; the mistakes that must be caught
are among those of test_controls.py.
"""

import pytest

from expunge.checks import check_exact
from paper.cases import descent_cases

TESTED = [case for case in descent_cases() if case.in_tests]


@pytest.mark.parametrize("case", TESTED, ids=lambda case: case.name)
def test_the_state_after_changes_has_the_law_of_fresh_learning(case):
    report = check_exact(case.learner, case.columns, case.requests, runs=400, seed=2)
    assert report.passed, report
