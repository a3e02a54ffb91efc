"""Queries, losses, rules and domains: small parts, each on its own."""

import numpy as np
import pytest

from expunge import Ball, DualAveragingRule, Everywhere, Gradient, GradientDescentRule, PerRecord
from expunge.base.errors import BadRecords
from expunge.engine.transcript import Path
from expunge.solvers.losses import Logistic

SCORES = np.linspace(-30, 30, 41)


@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_the_derivative_of_the_logistic_loss_is_that_of_its_value(label):
    loss, labels, step = Logistic(), np.full(41, label), 1e-6
    numeric = (loss.value(SCORES + step, labels) - loss.value(SCORES - step, labels)) / (2 * step)
    np.testing.assert_allclose(loss.derivative(SCORES, labels), numeric, atol=1e-8)
    assert np.abs(loss.derivative(SCORES, labels)).max() <= loss.lipschitz


def test_the_total_of_gradients_is_the_sum_of_the_contributions_and_within_the_bound():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 4))
    features *= 2.0 / np.linalg.norm(features, axis=1)[:, None]
    batch = (features, np.where(rng.random(50) < 0.5, 1.0, -1.0))
    query, path = Gradient(Logistic(), 4, feature_norm=2.0), Path(rng.normal(size=4), None, 0)
    each = query.contributions(0, path, batch)
    np.testing.assert_allclose(query.total(0, path, batch)[0], each.sum(axis=0))
    assert np.linalg.norm(each, axis=1).max() <= query.bound == 2.0


def test_features_that_are_too_long_or_of_another_width_are_refused_by_name():
    query = Gradient(Logistic(), 2)
    with pytest.raises(BadRecords, match="feature_norm=1"):
        query.admit((np.full((1, 2), 3.0), np.ones(1)))
    with pytest.raises(BadRecords, match="2 columns"):
        query.admit((np.ones((1, 3)), np.ones(1)))
    query.admit((np.zeros((0, 2)), np.zeros(0)))


def test_a_function_of_one_record_sees_its_fields():
    query = PerRecord(lambda step, path, x, y: [x.sum() * y], size=1, bound=9.0)
    assert query.contributions(0, Path(np.zeros(1), None, 0), (np.eye(2), np.array([2, 3]))).tolist() == [[2.0], [3.0]]
    assert query.contributions(0, Path(np.zeros(1), None, 0), (np.zeros((0, 2)), np.zeros(0))).shape == (0, 1)


def test_dual_averaging_steps_from_the_start_and_descent_from_the_last_iterate():
    start, answer = np.array([1.0, 0.0]), np.array([2.0, -2.0])
    path = Path(np.array([5.0, 5.0]), None, 0)
    assert DualAveragingRule(start, 0.5).step(3, path, answer).tolist() == [0.0, 1.0]
    assert GradientDescentRule(start, 0.5).step(3, path, answer).tolist() == [4.0, 6.0]
    assert np.linalg.norm(GradientDescentRule(start, 0.5, Ball(2.0)).step(3, path, answer)) == pytest.approx(2.0)


def test_a_projection_is_the_nearest_point_of_the_ball():
    point = np.array([3.0, 4.0])
    assert Ball(10.0).project(point).tolist() == [3.0, 4.0]
    np.testing.assert_allclose(Ball(1.0).project(point), [0.6, 0.8])
    assert Everywhere().project(point) is point
