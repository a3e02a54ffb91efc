"""Exactness of streams: after ten requests of all kinds the complete state has the law of fresh learning.

Level 0.01 after Bonferroni within a problem, fixed seeds; a difference of about 0.3 standard deviations would
be noticed. Mistakes must be caught with p < 1e-6; their twins, without the mistake, must pass, at a level of 0.01 that
is shared among all of them. `benchmarks/streams/exactness.py` has all problems, with more runs.
"""

import pytest

from cases.estimator_streams import estimator_streams
from cases.stream_mistakes import controls
from cases.streams import cases
from expunge.engine.checks import check_exact

pytestmark = pytest.mark.long

TESTED = [case for case in cases() if case.in_tests]
MISTAKES = controls()
ESTIMATORS = [stream for stream in estimator_streams() if stream.in_tests]
name = lambda one: one.name  # noqa: E731
SUBTLE = ("bulks cut", "the last row keeps its answer, shuffled", "a fit anew")


@pytest.mark.parametrize("case", TESTED, ids=name)
def test_the_state_after_a_stream_has_the_law_of_fresh_learning(case):
    report = check_exact(case.learner, case.columns, case.requests, subjects=case.subjects, runs=450, seed=5)
    assert report.passed, report


def runs_of(control):
    return 2_400 if control.name.startswith(SUBTLE) else 800


@pytest.mark.parametrize("control", MISTAKES, ids=name)
def test_the_mistake_is_caught(control):
    case = control.wrong
    with control.mistake():
        report = check_exact(case.learner, case.columns, case.requests, runs=runs_of(control), serve=control.serve)
    assert report.p_value < 1e-6, report


@pytest.mark.parametrize("control", MISTAKES, ids=name)
def test_without_the_mistake_the_same_stream_passes(control):
    case = control.case
    level = 0.01 / len(MISTAKES)
    report = check_exact(case.learner, case.columns, case.requests, runs=runs_of(control), level=level)
    assert report.passed, report


@pytest.mark.parametrize("stream", ESTIMATORS, ids=name)
def test_a_stream_through_an_estimator_ends_in_the_law_of_a_fit(stream):
    report = stream.check(runs=350, seed=5)
    assert report.passed, report


def test_a_new_plan_because_a_deletion_replayed_is_caught():
    mistake = next(stream for stream in estimator_streams() if stream.mistake)
    report = mistake.check(runs=1_500, seed=5)
    assert report.p_value < 1e-6, report
    twin = next(stream for stream in estimator_streams() if stream.name == mistake.name.replace("a new", "no new"))
    assert twin.given == mistake.given
    report = twin.check(runs=1_500, seed=5)
    assert report.passed, report
