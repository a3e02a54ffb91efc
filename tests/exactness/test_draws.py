"""Learners whose rounds are draws: the complete state after requests has the law of fresh learning.

Controls, each a plausible mistake in the real engine, must be caught with p < 1e-6; their twins must pass.
"""

import numpy as np
import pytest

from cases.draws import LAST, ROWS, TARGETS, Downdated, cases, controls, newton, with_laws
from expunge import Delete, MemoryRecords, learn
from expunge.engine.changing import change
from expunge.engine.checks import check_exact

CASES, CONTROLS = cases(), controls()
name = lambda one: one.name  # noqa: E731


SOON = ("newton, two rounds", "newton, a stream", "newton, three classes, a stream of a part")
"""The cases that are looked at without the long tests, with fewer runs."""


@pytest.mark.parametrize("case", [case for case in CASES if case.name in SOON], ids=name)
def test_the_state_has_the_law_of_fresh_learning(case):
    report = check_exact(case.learner, case.columns, case.requests, runs=400, level=0.001)
    assert report.passed, report


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=name)
def test_every_case_has_the_law_of_fresh_learning(case):
    report = check_exact(case.learner, case.columns, case.requests, runs=2_000, level=0.01 / len(CASES))
    assert report.passed, report


@pytest.mark.long
@pytest.mark.parametrize("control", CONTROLS, ids=name)
def test_the_mistake_is_caught(control):
    case = control.wrong
    with control.mistake():
        report = check_exact(case.learner, case.columns, case.requests, runs=control.runs, serve=control.serve)
    assert report.p_value < 1e-6, report


@pytest.mark.long
@pytest.mark.parametrize("control", CONTROLS, ids=name)
def test_without_the_mistake_the_same_problem_passes(control):
    case, level = control.case, 0.01 / len(CONTROLS)
    report = check_exact(case.learner, case.columns, case.requests, runs=control.runs, level=level)
    assert report.passed, report


def test_the_model_is_a_function_of_sums_and_draws_to_the_last_bit():
    for learner, is_one in ((newton(rho=0.05), True), (with_laws(newton(rho=0.05), Downdated), False)):
        records = MemoryRecords((ROWS, TARGETS))
        transcript = learn(learner, records, np.random.default_rng(1))
        equal = []
        for one in range(12):
            transcript.model(learner)
            change(learner, records, transcript, Delete([one]), np.random.default_rng(one)).commit()
            after = transcript.model(learner)
            Downdated.forget()
            equal.append(np.array_equal(after, transcript.model(learner)))
        assert all(equal) is is_one


@pytest.mark.parametrize("rounds", [20, 30], ids=["careful", "plain"])
def test_without_noise_a_deletion_leaves_the_bits_of_a_fresh_fit(rounds):
    learner = newton(rho=1.0, rounds=rounds)
    records = MemoryRecords((ROWS, TARGETS))
    transcript = learn(learner, records, np.random.default_rng(1))
    change(learner, records, transcript, LAST[0], np.random.default_rng(2)).commit()
    fresh = learn(learner, MemoryRecords((ROWS[:-1], TARGETS[:-1])), np.random.default_rng(3))
    assert np.array_equal(transcript.sums[:], fresh.sums[:])
    assert np.array_equal(transcript.iterates[:], fresh.iterates[:])
    assert np.array_equal(transcript.model(learner), fresh.model(learner))
