"""Negative controls: each plausible mistake, made in the real engine, must be caught with p < 1e-6.

Its twin, the same problem without the mistake and with as many runs, must pass: so it is the mistake that is caught.
The level of a pass is 0.01, shared among all twins.
"""

import pytest

from cases.mistakes import controls
from expunge.engine.checks import check_exact

pytestmark = pytest.mark.long

CONTROLS = controls()
name = lambda control: control.name  # noqa: E731


@pytest.mark.parametrize("control", CONTROLS, ids=name)
def test_the_mistake_is_caught(control):
    case = control.wrong
    with control.mistake():
        report = check_exact(case.learner, case.columns, case.requests, runs=control.runs, serve=control.serve)
    assert report.p_value < 1e-6, report


@pytest.mark.parametrize("control", CONTROLS, ids=name)
def test_without_the_mistake_the_same_problem_passes(control):
    case = control.case
    level = 0.01 / len(CONTROLS)
    report = check_exact(case.learner, case.columns, case.requests, runs=control.runs, level=level)
    assert report.passed, report
