"""Negative controls: each plausible mistake, made in the real engine, must be caught with p < 1e-6."""

import pytest

from cases.mistakes import controls
from expunge.engine.checks import check_exact

pytestmark = pytest.mark.long


@pytest.mark.parametrize("control", controls(), ids=lambda control: control.name)
def test_the_mistake_is_caught(control):
    case = control.case
    with control.mistake():
        report = check_exact(case.learner, case.columns, case.requests, runs=control.runs, serve=control.serve)
    assert report.p_value < 1e-6, report


@pytest.mark.parametrize("control", controls()[-4:-1], ids=lambda control: control.name)
def test_without_the_mistake_the_same_problem_passes(control):
    case = control.case
    assert check_exact(case.learner, case.columns, case.requests, runs=2_400).passed
