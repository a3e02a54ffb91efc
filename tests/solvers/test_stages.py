"""Rounds with stages: where little noise damps a step, or none, far from the solution another curvature does."""

from dataclasses import replace

import numpy as np
import pytest
import sklearn.linear_model
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from cases.draws import FAR, ROWS, TARGETS, careful, newton
from expunge import LogisticRegression, MemoryRecords, learn
from expunge.solvers.losses import Logistic, SquaredHinge, Weighted
from expunge.solvers.newton import FIRST, SAYS_NEAR
from expunge.solvers.plans.newton import make_newton_plan
from expunge.solvers.stages import Stage, expanded

pytestmark = pytest.mark.filterwarnings("ignore:.*noise and step sizes no longer fit:expunge.SizeWarning")
SCORES = 30.0 * np.linspace(-1.0, 1.0, 101)


def sparse(number=6_000, columns=60):
    """Return 0/1 columns that few records have, and a rare class which they and a hidden trait decide."""
    rng = np.random.default_rng(0)
    shares = 10.0 ** rng.uniform(-3.3, -0.7, columns)
    rows = (rng.random((2 * number, columns)) < shares).astype(float)
    scores = rows @ rng.normal(size=columns) * 3.0 + 2.0 * rng.normal(size=2 * number)
    labels = np.where(scores > np.quantile(scores, 0.97), 1.0, -1.0)
    return rows[:number], labels[:number], rows[number:], labels[number:]


def separable(number=3_000):
    """Return a class of one in a hundred that one straight line tells apart."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(number, 10))
    scores = rows @ rng.normal(size=10)
    return rows, np.where(scores > np.quantile(scores, 0.99), 1.0, -1.0)


def expected(rows, labels):
    model = sklearn.linear_model.LogisticRegression(solver="newton-cholesky", tol=1e-10, max_iter=1_000)
    return make_pipeline(StandardScaler(), model).fit(rows, labels)


def objective(model, rows, labels):
    scores = model.decision_function(rows)
    weights = model[-1].coef_ if hasattr(model, "steps") else model.coef_ * rows.std(axis=0)
    return np.logaddexp(0.0, -labels * scores).sum() + 0.5 * np.square(weights).sum()


@pytest.mark.parametrize("table", [sparse, separable])
def test_without_noise_it_reaches_scikit_learns_objective_and_stays_there(table):
    rows, labels = table()[:2]
    model = LogisticRegression(solver="newton", rho=1.0).fit(rows, labels)
    best = objective(expected(rows, labels), rows, labels)
    assert objective(model, rows, labels) == pytest.approx(best, rel=1e-6)
    draws = model.transcript_.iterates[FIRST:-1]
    assert np.array_equal(draws[-2], draws[-1])  # settled before there were no more rounds


def test_with_the_plain_curvature_it_would_not():
    rows, labels = sparse()[:2]
    plan = replace(make_newton_plan(Logistic(), rows.shape[1], len(rows), rho=1.0), rounds=30)
    assert not plan.careful
    draws = learn(plan.learner, MemoryRecords((rows, labels)), np.random.default_rng(0)).iterates[FIRST:-1]
    assert np.abs(draws[-1] - draws[-2]).max() > 0.01


def test_with_little_noise_it_ranks_as_well_as_scikit_learn():
    rows, labels, test, truth = sparse()
    best = roc_auc_score(truth, expected(rows, labels).decision_function(test))
    for seed in range(3):
        model = LogisticRegression(solver="newton", rho=0.3, random_state=seed).fit(rows, labels)
        assert model.plan_.careful
        assert roc_auc_score(truth, model.decision_function(test)) > best - 0.003


@pytest.mark.parametrize("loss", [Logistic(), Weighted(Logistic(), (0.5, 2.0))])
def test_slopes_are_those_of_the_loss_and_no_step_is_too_long_by_more_than_a_half(loss):
    for target in (-1.0, 1.0):
        targets = np.full(len(SCORES), target)
        slopes, plain = loss.expansion(SCORES, targets)
        far_slopes, far = expanded(loss, Stage.FAR, SCORES, targets)
        near_slopes, near = expanded(loss, Stage.NEAR, SCORES, targets)
        assert np.allclose(far_slopes, slopes, rtol=1e-12)
        assert np.allclose(near_slopes, slopes, rtol=1e-12)
        assert (near <= plain).all()
        assert (1.5 * far >= near * (1.0 - 1e-12)).all()
        assert (np.abs(slopes) <= 3.0 * far).all()


def test_on_average_the_curvature_is_the_same_where_the_model_is_right():
    scores, ones = np.linspace(-5.0, 5.0, 11), np.ones(11)
    p = 1.0 / (1.0 + np.exp(-scores))
    mean = p * expanded(Logistic(), Stage.FAR, scores, ones)[1]
    mean += (1.0 - p) * expanded(Logistic(), Stage.FAR, scores, -ones)[1]
    assert np.allclose(mean, p * (1.0 - p))


@pytest.mark.parametrize("rows", [ROWS, FAR], ids=["plain", "far"])
@pytest.mark.parametrize("learner", [careful(newton(rounds=4)), newton(rho=1.0, rounds=None)], ids=["noise", "none"])
def test_contributions_have_the_same_bits_in_every_batch(learner, rows):
    path = learn(learner, MemoryRecords((rows, TARGETS)), np.random.default_rng(0)).path
    normal = learner.abilities.normal
    for step in range(len(path) - 1):
        until = path.upto(step)
        each = learner.query.contributions(step, until, (rows, TARGETS))
        whole, _ = learner.query.total(step, until, (np.asfortranarray(rows), TARGETS))
        turned, _ = learner.query.total(step, until, (rows[::-1], TARGETS[::-1]))
        assert np.array_equal(normal(each.sum(axis=0)), normal(whole))
        assert np.array_equal(normal(turned), normal(whole))


def test_a_round_says_that_it_is_near_and_the_finish_is_always_plain():
    rows, labels = separable()
    plan = make_newton_plan(Logistic(), 10, len(rows), rho=1.0)
    transcript = learn(plan.learner, MemoryRecords((rows, labels)), np.random.default_rng(0))
    said = transcript.iterates[FIRST:-1, SAYS_NEAR]
    assert (np.diff(said) >= 0.0).all()
    assert (said[0], said[-1]) == (0.0, 1.0)
    query, path = plan.learner.query, transcript.path
    assert query._stage(FIRST, path) is Stage.FAR
    assert query._stage(FIRST + plan.rounds - 1, path) is Stage.NEAR
    assert query._stage(FIRST + plan.rounds, path) is Stage.PLAIN


@pytest.mark.parametrize("rho", [0.7, 1.0])
def test_after_a_history_the_state_verifies(rho, tmp_path):
    rows, labels = (part[:2_100] for part in sparse(2_100, 4)[:2])
    model = LogisticRegression(solver="newton", rho=rho).fit(rows, labels, ids=np.arange(2_100))
    assert model.plan_.careful
    model.save(tmp_path / "m.expunge")
    with expunge.open(tmp_path / "m.expunge") as stored:
        for one in (model, stored):
            for number in range(0, 20, 2):
                one.unlearn([number, number + 1])
            one.insert(rows[:3], labels[:3], ids=[9_000, 9_001, 9_002])
            one.replace(rows[5:6], labels[5:6], ids=[30])
            found = one.verify()
            assert found.ok, found.problems


def test_what_was_planned_before_and_what_has_more_noise_has_no_stages():
    def plan(loss=None, **more):
        return make_newton_plan(Logistic() if loss is None else loss, 60, 40_000, **more)

    assert [plan(rho=rho).careful for rho in ("auto", 0.01, 0.3, 1.0)] == [False, False, True, True]
    assert [plan(rho=rho).rounds for rho in ("auto", 0.01, 0.3, 1.0)] == [3, 3, 5, 20]
    assert not plan(rho=1.0, rounds=30).careful  # as plans were that files of earlier versions have
    assert not plan(rho=0.3, rounds=3).careful
    assert [plan(SquaredHinge(), rho=rho).careful for rho in ("auto", 0.3, 1.0)] == [False, False, True]
    assert not plan(SquaredHinge(), rho=1.0, rounds=30).careful
    assert plan(Weighted(Logistic(), (1.0, 2.0)), rho=1.0).careful
