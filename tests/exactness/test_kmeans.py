"""Exactness of k-means from a keyed sample: the complete state, keys included, against that of a fresh fit.

Level 0.01 after Bonferroni, fixed seeds. Mistakes must be caught with p < 1e-6.
"""

import pytest

from cases.sampled import MISTAKES, POINTS, REQUESTS, SETTINGS
from cases.toys import long_but
from expunge.engine.checks import check_exact
from expunge.engine.sampling import learner_of
from expunge.solvers.sampled_clusters import SampledClusters


@pytest.mark.parametrize("name", long_but(["deletion", "stream"], REQUESTS))
def test_the_state_after_requests_has_the_law_of_fresh_learning(name):
    learner = learner_of(SampledClusters(SETTINGS))
    runs = 150 if name == "stream" else 250
    report = check_exact(learner, (POINTS[:6],), REQUESTS[name], runs=runs, seed=3)
    assert report.passed, report
    assert any(name.startswith("key(") for name in report.names)
    assert any(name.startswith("found[") for name in report.names)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_caught(name):
    report = check_exact(columns=(POINTS[:6],), requests=REQUESTS["deletion"], runs=300, seed=3, **MISTAKES[name])
    assert report.p_value < 1e-6, report
