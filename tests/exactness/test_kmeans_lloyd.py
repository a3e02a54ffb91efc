"""Exactness of k-means: the complete state after requests against that of a fresh fit.

Level 0.01 after Bonferroni, fixed seeds; a difference of about 0.3 standard deviations would be noticed.
Controls must be caught with p < 1e-6; their twins, without the mistake, must pass, at a level of 0.01 that is shared
among all of them. `benchmarks/paper/exactness.py --only k-means` has all cases, with more runs.
"""

from dataclasses import replace

import numpy as np
import pytest

from cases.clusters import POINTS, cluster_cases, cluster_controls, lloyd
from cases.toys import long_but
from expunge.engine.checks import _state, _state_names, check_exact, compare
from expunge.models import KMeans
from expunge.solvers.lloyd import LloydRule

pytestmark = pytest.mark.filterwarnings("ignore::expunge.NoiseWarning")

LEVEL = 0.01
TESTED = [case for case in cluster_cases() if case.in_tests]
CONTROLS = cluster_controls()
QUICK_CONTROLS = ("k-means, the count of a deleted point stays", "k-means, a budget from half the norms")


@pytest.mark.parametrize("case", long_but(["k-means, adaptive, bulk", "k-means, adaptive, insertion"], TESTED))
def test_the_state_after_requests_has_the_law_of_fresh_learning(case):
    runs = 200 if "stream" in case.name else 350
    report = check_exact(case.learner, case.columns, case.requests, runs=runs, level=LEVEL, seed=3)
    assert report.passed, report


@pytest.mark.parametrize("control", long_but(QUICK_CONTROLS, CONTROLS))
def test_the_mistake_is_caught(control):
    case = control.wrong
    with control.mistake():
        report = check_exact(case.learner, case.columns, case.requests, runs=control.runs, serve=control.serve, seed=3)
    assert report.p_value < 1e-6, report


@pytest.mark.parametrize("control", long_but(QUICK_CONTROLS, CONTROLS))
def test_without_the_mistake_the_same_problem_passes(control):
    case = control.case
    level = LEVEL / len(CONTROLS)
    report = check_exact(case.learner, case.columns, case.requests, runs=control.runs, level=level, seed=3)
    assert report.passed, report


# --- through the estimator --------------------------------------------------------------------------------


def small(rng, estimator=KMeans):
    return lloyd(2, estimator, radius=1.0, rho=0.7, n_rounds=3, n_seeds=3, expected_records=8, random_state=rng)


def unlearn(model):
    model.unlearn([2])


def stream(model):
    model.unlearn([2, 5])
    model.insert(POINTS[6:7], ids=[5])
    model.replace(POINTS[5:6], ids=5)


def whole_state(model):
    """Everything that is kept and published: where the centres began, and the labels, among it."""
    state = _state(model.plan_.learner, model._records, model.transcript_, model.ids_)
    return np.concatenate([state, model.transcript_.start, *model.cluster_centers_, model.labels_, [model.inertia_]])


def compared(requests, estimator=KMeans, runs=400):
    """Compare a model that served requests with one of the records that they leave."""
    kept = np.array([0, 1, 3, 4, 5])

    def served(rng):
        model = small(rng, estimator).fit(POINTS[:6])
        requests(model)
        return model

    def fresh(rng):
        return small(rng, estimator).fit(POINTS[kept], ids=kept)

    model = fresh(np.random.default_rng(0))
    names = _state_names(model.plan_.learner, model._records, model.transcript_, kept)
    names += [f"start[{j}]" for j in range(6)] + [f"center[{j}]" for j in range(4)]
    names += [f"label({j})" for j in kept] + ["inertia"]
    sides = []
    for seed, make in ((1, served), (2, fresh)):
        rng = np.random.default_rng(seed)
        sides.append(np.array([whole_state(make(rng)) for _ in range(runs)]))
    return compare(*sides, names, LEVEL)


@pytest.fixture(autouse=True)
def _lively(monkeypatch):
    """Of so few points every count would be taken for noise."""
    monkeypatch.setattr(LloydRule, "DEAD", 0.5)


@pytest.mark.parametrize("requests", [unlearn, pytest.param(stream, marks=pytest.mark.long)])
def test_everything_published_has_the_law_of_a_fit_without_the_record(requests):
    report = compared(requests)
    assert report.passed, report


class BeginsAtRecords(KMeans):
    """A mistake: the first centres are records."""

    def fit(self, X, y=None, ids=None, subjects=None):
        self._first = X[1:4]
        return super().fit(X, y, ids, subjects)

    def _make_plan(self, records, features, expected):
        plan = super()._make_plan(records, features, expected)
        learner = plan.learner
        plan.__dict__["learner"] = replace(learner, rule=replace(learner.rule, seeds=self._first))
        return plan


def test_first_centres_taken_from_the_records_are_caught():
    """The state itself does not say where it began; but the second of the records has left, and its centre not."""
    report = compared(unlearn, BeginsAtRecords, runs=300)
    assert report.p_value < 1e-6, report
    sums = [name for name, p in zip(report.names, report.p_values, strict=True) if p * len(report.names) < 1e-6]
    assert any(name.startswith("sum[0") for name in sums)
