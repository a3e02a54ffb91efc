"""Exactness of gradient descent: exact products, budgets from each record's own norm, rounds that some records join.

Level 0.01 after Bonferroni, fixed seeds; with so few runs a difference of about 0.3 standard deviations would be
noticed. `benchmarks/paper/exactness.py --only descent` does the same with many more; the mistakes that must be caught
are among those of test_controls.py.
"""

import pytest

from cases.learners import descent_cases
from cases.toys import long_but
from expunge.engine.checks import check_exact

TESTED = [case for case in descent_cases() if case.in_tests]
QUICK = (
    "descent, rate 1, adaptive, bulk of long and short ones", "descent, rate 1, sequential, stream",
    "descent, rate 0.5, adaptive, deletion", "descent, rate 0.5, adaptive, insertion",
)  # fmt: skip


@pytest.mark.parametrize("case", long_but(QUICK, TESTED))
def test_the_state_after_changes_has_the_law_of_fresh_learning(case):
    report = check_exact(case.learner, case.columns, case.requests, runs=400, seed=2)
    assert report.passed, report
