"""Exactness of boosted trees from a keyed sample: the complete state, keys included, against that of a fresh fit.

Level 0.01 after Bonferroni, fixed seeds. Mistakes must be caught with p < 1e-6.
"""

import pytest

from cases.sampled_trees import CLASSES, ROWS, TARGETS, mistakes, requests, settings
from expunge.engine.checks import check_exact
from expunge.engine.sampling import learner_of
from expunge.solvers.sampled_trees import SampledTrees

CASES = [(kind, name) for kind in CLASSES for name in requests(kind)]
SOON = [("two classes", "stream"), ("amounts", "deletion")]


def columns(kind):
    return ROWS[:6], TARGETS[kind][:6]


@pytest.mark.parametrize(
    ("kind", "name"), [pytest.param(*case, marks=[pytest.mark.long] * (case not in SOON)) for case in CASES]
)
def test_the_state_after_requests_has_the_law_of_fresh_learning(kind, name):
    learner = learner_of(SampledTrees(settings(kind)))
    report = check_exact(
        learner, columns(kind), requests(kind)[name], runs=150 if (kind, name) in SOON else 1_000, seed=3
    )
    assert report.passed, report
    assert any(name.startswith("key(") for name in report.names)
    assert any(name.startswith("found[") for name in report.names)


@pytest.mark.parametrize("name", mistakes("amounts"))
def test_the_mistake_is_caught(name):
    mistake = mistakes("amounts")[name]
    report = check_exact(
        columns=columns("amounts"), requests=requests("amounts")["deletion"], runs=250, seed=3, **mistake
    )
    assert report.p_value < 1e-6, report
