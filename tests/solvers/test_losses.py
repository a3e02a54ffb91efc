"""Losses: derivatives, convexity, and constants that hold and are attained, the same to the last bit in any batch."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from expunge.base.errors import BadPlan
from expunge.solvers.losses import (
    Hinge,
    Huber,
    Logistic,
    MulticlassHinge,
    Multinomial,
    SmoothedHinge,
    Squared,
    Weighted,
)

LOSSES = [
    Logistic(), Hinge(), SmoothedHinge(), SmoothedHinge(0.3), Multinomial(2), Multinomial(5), Multinomial(40),
    MulticlassHinge(2), MulticlassHinge(4), MulticlassHinge(4, 0.5), MulticlassHinge(11, 3.0), Squared(3e4), Huber(),
    Huber(0.2), Weighted(Logistic(), (0.5, 3.0)), Weighted(SmoothedHinge(0.5), (2.0, 0.1)),
    Weighted(Multinomial(3), (1.0, 0.2, 4.0)), Weighted(MulticlassHinge(3), (5, 1, 2)),
]  # fmt: skip
SMOOTH = [loss for loss in LOSSES if math.isfinite(loss.smoothness)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=str)
seeds = given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 10.0, 1e4]))
few = settings(max_examples=12, deadline=None)


def _scores(loss, rng, scale, n=64):
    scores = rng.uniform(-scale, scale, size=n if loss.outputs == 1 else (n, loss.outputs))
    scores[: n // 4] = np.round(scores[: n // 4])  # many lie on kinks
    return scores


def _targets(loss, rng, n=64):
    if not hasattr(loss, "classes"):
        return rng.normal(size=n)
    return rng.choice([-1.0, 1.0], size=n) if loss.outputs == 1 else rng.integers(loss.classes, size=n)


def _per_record(products):
    return products if products.ndim == 1 else products.sum(axis=1)


def _norms(rows):
    return np.sqrt(_per_record(np.square(rows)))


def _along_each_output(scores, step):
    for output in range(1 if scores.ndim == 1 else scores.shape[1]):
        move = np.zeros_like(scores)
        move.reshape(len(scores), -1)[:, output] = step
        yield move


@every_loss
@few
@seeds
def test_the_derivative_is_that_of_the_value_away_from_kinks(loss, seed, scale):
    rng, step = np.random.default_rng(seed), 1e-5 * max(1.0, scale / 10)
    scores, targets = _scores(loss, rng, scale), _targets(loss, rng)
    smooth, slope = math.isfinite(loss.smoothness), loss.derivative(scores, targets)
    rounding = 1e-15 * (np.abs(loss.value(scores, targets)).max() + scale * loss.outputs) / step
    for move in _along_each_output(scores, step):
        numeric = (loss.value(scores + move, targets) - loss.value(scores - move, targets)) / (2 * step)
        jump = loss.derivative(scores + move, targets) - loss.derivative(scores - move, targets)
        settled = np.full(len(scores), True) if smooth else _norms(jump) == 0
        mine = _per_record(slope * (move > 0))
        np.testing.assert_allclose(
            mine[settled], numeric[settled], atol=rounding + (loss.smoothness * step if smooth else 0.0)
        )
        assert settled.mean() > 0.5


@every_loss
@few
@seeds
def test_every_loss_is_convex_and_above_its_tangents(loss, seed, scale):
    rng = np.random.default_rng(seed)
    a, b, targets, share = _scores(loss, rng, scale), _scores(loss, rng, scale), _targets(loss, rng), rng.random()
    at_a, at_b = loss.value(a, targets), loss.value(b, targets)
    slack = 1e-12 * (1 + np.abs(at_a) + np.abs(at_b) + scale * loss.lipschitz)
    assert (loss.value(share * a + (1 - share) * b, targets) <= share * at_a + (1 - share) * at_b + slack).all()
    assert (at_b >= at_a + _per_record(loss.derivative(a, targets) * (b - a)) - slack).all()


@every_loss
@few
@seeds
def test_no_derivative_is_above_the_lipschitz_constant(loss, seed, scale):
    rng = np.random.default_rng(seed)
    slopes = loss.derivative(_scores(loss, rng, scale), _targets(loss, rng))
    assert _norms(slopes).max() <= loss.lipschitz * (1 + 1e-12)


@every_smooth_loss
@few
@seeds
def test_no_derivative_changes_faster_than_the_smoothness(loss, seed, scale):
    rng = np.random.default_rng(seed)
    a, targets = _scores(loss, rng, scale), _targets(loss, rng)
    for distance in (1e-3, 0.1, 1.0):
        b = a + distance * rng.normal(size=a.shape)
        change = _norms(loss.derivative(a, targets) - loss.derivative(b, targets))
        assert (change <= loss.smoothness * _norms(a - b) * (1 + 1e-9) + 1e-11).all()


def _attained(loss, scores, direction, target):
    """Return the curvature from a small step along the direction."""
    step, targets = 1e-5, np.array([target])
    scores, move = np.asarray(scores, dtype=float), step * np.asarray(direction) / np.linalg.norm(direction)
    change = loss.derivative(scores + move, targets) - loss.derivative(scores - move, targets)
    return np.linalg.norm(change) / (2 * step)


@pytest.mark.parametrize(
    ("loss", "scores", "direction", "target"),
    [
        (Logistic(), [0.0], [1.0], 1),
        (SmoothedHinge(0.3), [0.9], [1.0], 1),
        (Multinomial(3), [[0.0, 0.0, -99.0]], [[1.0, -1.0, 0.0]], 2),
        (MulticlassHinge(3, 0.5), [[0.0, 0.0, -99.0]], [[1.0, -1.0, 0.0]], 2),
        (MulticlassHinge(2, 3.0), [[1.0, 0.0]], [[1.0, -1.0]], 0),
        (Squared(9.0), [2.0], [1.0], 0.0),
        (Huber(), [0.5], [1.0], 0.0),
        (Weighted(Multinomial(2), (1.0, 7.0)), [[0.0, 0.0]], [[1.0, -1.0]], 1),
    ],
    ids=str,
)
def test_the_smoothness_is_attained_so_it_could_not_be_smaller(loss, scores, direction, target):
    assert _attained(loss, scores, direction, target) == pytest.approx(loss.smoothness, rel=1e-6)


@every_loss
def test_the_lipschitz_constant_is_attained_so_it_could_not_be_smaller(loss):
    scores = np.full(4, 3e4) if loss.outputs == 1 else 1e4 * np.eye(loss.outputs)
    targets = np.zeros(4) if not hasattr(loss, "classes") else [1, -1] * 2 if loss.outputs == 1 else range(loss.outputs)
    slopes = [loss.derivative(sign * scores, np.roll(targets, turn)) for turn in (0, 1) for sign in (-1, 1)]
    assert max(_norms(slope).max() for slope in slopes) == pytest.approx(loss.lipschitz)


@every_loss
def test_a_record_gives_the_same_bits_in_whatever_batch_it_comes(loss):
    rng = np.random.default_rng(2)
    scores, targets = _scores(loss, rng, 8.0, 257), _targets(loss, rng, 257)
    for function in (loss.value, loss.derivative):
        whole = function(scores, targets)
        alone = np.concatenate([function(scores[i : i + 1], targets[i : i + 1]) for i in range(257)])
        assert whole.tobytes() == alone.tobytes()
        order = rng.permutation(257)
        assert function(scores[order], targets[order]).tobytes() == whole[order].tobytes()
        assert function(np.asfortranarray(scores), targets).tobytes() == whole.tobytes()
        assert function(scores[::3], targets[::3]).tobytes() == whole[::3].tobytes()
        assert function(scores[5:18], targets[5:18]).tobytes() == whole[5:18].tobytes()
        assert function(scores[:0], targets[:0]).shape == whole[:0].shape


@every_loss
def test_extreme_scores_give_finite_results(loss):
    rng = np.random.default_rng(3)
    for scale in (0.0, 1e-300, 1e4):
        scores = rng.choice([-scale, 0.0, scale], size=(500, loss.outputs))
        scores, targets = scores[:, 0] if loss.outputs == 1 else scores, _targets(loss, rng, 500)
        assert np.isfinite(loss.value(scores, targets)).all()
        assert np.isfinite(loss.derivative(scores, targets)).all()


def test_a_small_loss_keeps_its_digits():
    tiny, scores, code = math.exp(-50.0), np.array([[50.0, 0.0]]), np.array([0])
    assert Multinomial(2).value(scores, code)[0] == pytest.approx(tiny, rel=1e-12)
    np.testing.assert_allclose(Multinomial(2).derivative(scores, code), [[-tiny, tiny]], rtol=1e-12)
    assert Logistic().value(scores[:, 0], np.ones(1))[0] == pytest.approx(tiny, rel=1e-12)
    assert Multinomial(2).value(np.array([[1e4, 0.0]]), np.array([1])).tolist() == [1e4]


def test_the_multinomial_loss_is_minus_the_log_of_the_softmax_and_the_logistic_one_for_two_classes():
    rng = np.random.default_rng(4)
    scores, codes = rng.normal(size=(50, 6)) * 4, rng.integers(6, size=50)
    np.testing.assert_allclose(
        Multinomial(6).value(scores, codes), -log_softmax(scores, axis=1)[np.arange(50), codes], rtol=1e-12
    )
    two, sign = np.stack([np.zeros(50), scores[:, 0]], axis=1), np.where(codes % 2, 1.0, -1.0)
    np.testing.assert_allclose(Multinomial(2).value(two, codes % 2), Logistic().value(scores[:, 0], sign), rtol=1e-12)


@pytest.mark.parametrize(
    "loss", [Multinomial(3), MulticlassHinge(3, 0.5), Weighted(Multinomial(3), (1, 2, 3))], ids=str
)
def test_codes_may_come_as_floats(loss):
    scores, codes = np.random.default_rng(5).normal(size=(30, 3)), np.arange(30) % 3
    assert loss.value(scores, codes * 1.0).tobytes() == loss.value(scores, codes).tobytes()
    assert loss.derivative(scores, codes * 1.0).tobytes() == loss.derivative(scores, codes).tobytes()


def test_ties_of_the_multiclass_hinge_go_to_the_true_class_and_then_to_the_lowest_code():
    loss = MulticlassHinge(4)
    assert loss.derivative(np.array([[0.0, 0.0, 1.0, 0.0]]), np.array([2])).tolist() == [[0.0, 0.0, 0.0, 0.0]]
    assert loss.derivative(np.array([[0.0, 3.0, 0.0, 3.0]]), np.array([2])).tolist() == [[0.0, 1.0, -1.0, 0.0]]
    assert Hinge().derivative(np.ones(1), np.ones(1)).tolist() == [0.0]


@pytest.mark.parametrize("width", [1e-3, 1e-9])
def test_a_narrow_smoothing_is_nearly_the_hinge(width):
    rng = np.random.default_rng(6)
    scores, codes, signs = rng.normal(size=(80, 5)) * 3, rng.integers(5, size=80), rng.choice([-1.0, 1.0], size=80)
    gap = MulticlassHinge(5, width).value(scores, codes) - MulticlassHinge(5).value(scores, codes)
    assert gap.min() >= -1e-12
    assert gap.max() <= width * math.log(5) + 1e-12
    gap = Hinge().value(scores[:, 0], signs) - SmoothedHinge(width).value(scores[:, 0], signs)
    assert gap.min() >= -1e-12
    assert gap.max() <= width / 2 + 1e-12


@pytest.mark.parametrize(
    ("loss", "targets"), [(Logistic(), [-1, 1, 1]), (Hinge(), [1.0, -1.0, 1.0]), (Multinomial(2), [0, 1, 1])], ids=str
)
def test_weights_multiply_the_records_of_their_class(loss, targets):
    rng, targets = np.random.default_rng(7), np.array(targets)
    scores, weighted = rng.normal(size=(3, 2)) if loss.outputs > 1 else rng.normal(size=3), Weighted(loss, (2.0, 0.25))
    each = np.where(targets == targets.max(), 0.25, 2.0)
    assert weighted.value(scores, targets).tolist() == (each * loss.value(scores, targets)).tolist()
    wanted = (each * loss.derivative(scores, targets).T).T
    assert weighted.derivative(scores, targets).tolist() == wanted.tolist()
    assert (weighted.lipschitz, weighted.smoothness) == (2 * loss.lipschitz, 2 * loss.smoothness)
    assert (weighted.outputs, weighted.classes) == (loss.outputs, 2)


def test_weighted_losses_can_be_compared_hashed_and_nested():
    assert Weighted(Logistic(), [1.0, 2.0]) == Weighted(Logistic(), (1.0, 2.0))
    assert len({Weighted(Logistic(), (1.0, 2.0)), Weighted(Logistic(), (1.0, 2.0))}) == 1
    assert Weighted(Weighted(Logistic(), (1.0, 2.0)), (3.0, 3.0)).value(np.zeros(1), np.ones(1))[0] == 6 * math.log(2)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "wide", None])
@pytest.mark.parametrize(("make", "name"), [(SmoothedHinge, "width"), (Huber, "width"), (Squared, "reach")])
def test_bad_widths_are_refused_by_name(make, name, bad):
    with pytest.raises(BadPlan, match=rf"{name}=.*finite number above 0"):
        make(bad)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "wide"])
def test_the_multiclass_hinge_refuses_bad_widths(bad):
    with pytest.raises(BadPlan, match=r"width=.*at least 0"):
        MulticlassHinge(3, bad)


@pytest.mark.parametrize("bad", [1, 0, -3, 2.0, True, "3"])
@pytest.mark.parametrize("make", [Multinomial, MulticlassHinge])
def test_fewer_than_two_classes_are_refused(make, bad):
    with pytest.raises(BadPlan, match=r"classes=.*at least 2"):
        make(bad)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_weights_are_refused_by_place(bad):
    with pytest.raises(BadPlan, match=r"weights\[1\]=.*above 0"):
        Weighted(Logistic(), (1.0, bad))


def test_weights_must_be_one_per_class_of_a_loss_that_has_classes():
    with pytest.raises(BadPlan, match="each of the 3 classes"):
        Weighted(Multinomial(3), (1.0, 2.0))
    with pytest.raises(BadPlan, match=r"loss=.*no classes"):
        Weighted(Huber(), (1.0, 2.0))
