"""Exactness of a user's own structure from a keyed sample: the complete state, keys included, against a fresh fit's.

Level 0.01 after Bonferroni, fixed seeds. Mistakes must be caught with p < 1e-6.
"""

import pytest

from cases.sampled_features import HEADS, asked, mistakes, settings, targets
from cases.sampled_trees import ROWS
from expunge.engine.checks import check_exact
from expunge.engine.sampling import learner_of
from expunge.solvers.sampled_features import SampledFeatures

CASES = [(case, name) for case in HEADS for name in asked(case)]
SOON = [(case, "stream") for case in HEADS]


def columns(case):
    return ROWS[:6], targets(case)[:6]


@pytest.mark.parametrize(
    ("case", "name"), [pytest.param(*one, marks=[pytest.mark.long] * (one not in SOON)) for one in CASES]
)
def test_the_state_after_requests_has_the_law_of_fresh_learning(case, name):
    learner = learner_of(SampledFeatures(settings(case)))
    report = check_exact(learner, columns(case), asked(case)[name], runs=150 if (case, name) in SOON else 1_000, seed=3)
    assert report.passed, report
    assert any(name.startswith("key(") for name in report.names)
    assert any(name.startswith("found[") for name in report.names)


@pytest.mark.parametrize("name", mistakes("ridge_classifier"))
def test_the_mistake_is_caught(name):
    mistake = mistakes("ridge_classifier")[name]
    report = check_exact(
        columns=columns("ridge_classifier"), requests=asked("ridge_classifier")["deletion"], runs=250, seed=3, **mistake
    )
    assert report.p_value < 1e-6, report
