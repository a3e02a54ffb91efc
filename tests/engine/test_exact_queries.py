"""Queries whose sums are exact by matrix products: the same to the last bit, in whatever batch and order."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.intake import Insert
from expunge.engine.contributions import Abilities, Participation
from expunge.engine.learner import Learner
from expunge.engine.learning import learn
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.randomness import Randomness
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.records.staging import evaluate
from expunge.engine.schedules import Everyone
from expunge.engine.transcript import ArrayRows, Path
from expunge.solvers.extents import Extent
from expunge.solvers.gradient import Gradient
from expunge.solvers.gradient_descent import GradientDescentRule, GridGradient
from expunge.solvers.lloyd import ClusterMoments
from expunge.solvers.losses import Hinge, Huber, Logistic, Multinomial

N, D = 300, 6


def same_bits(one, other):
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


def gradient(loss, **more):
    return GridGradient(loss, size=loss.outputs * (D + 1), intercept=0.2, **more)


def labelled(loss, rng, dense=True):
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.6)
    classes = getattr(loss, "classes", None)
    y = rng.normal(size=N) if classes is None else rng.integers(classes, size=N)
    if classes == 2:
        y = 2.0 * y - 1.0
    return (X if dense else sparse.csr_array(X)), y


LOSSES = [Logistic(), Multinomial(4), Hinge(), Huber(0.2)]


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_the_sum_of_gradients_is_exact_in_whatever_batch_and_order(loss, dense):
    rng = np.random.default_rng(1)
    query = gradient(loss)
    batch = query.prepare(labelled(loss, rng, dense))
    for scale in (0.0, 1e-3, 1.0, 70.0):
        path = Path(scale * rng.normal(size=query.size), None, 0)
        total = query.total(0, path, batch)[0] + 0.0
        each = query.contributions(0, path, batch)
        exact = [float(sum(map(Fraction, column))) for column in each.T.tolist()]
        assert same_bits(total, exact)
        order = rng.permutation(N)
        parts = [tuple(column[part] for column in batch) for part in np.array_split(order, 17)]
        assert same_bits(sum(query.total(0, path, part)[0] for part in parts) + 0.0, total)
        for row in range(5):
            alone = tuple(column[row : row + 1] for column in batch)
            assert same_bits(query.total(0, path, alone)[0] + 0.0, each[row] + 0.0)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_gradient_is_at_most_as_long_as_said_and_close_to_the_true_one(loss):
    rng = np.random.default_rng(2)
    query = gradient(loss, feature_norm=2.0, clip=0.9)
    batch = query.prepare(labelled(loss, rng))
    assert np.linalg.norm(batch[0], axis=1).max() <= 2.0
    said = query.norms(batch)
    assert said.max() <= query.bound
    for scale in (0.1, 3.0, 50.0):
        path = Path(scale * rng.normal(size=query.size), None, 0)
        each = query.contributions(0, path, batch)
        assert (np.linalg.norm(each, axis=1) <= said * (1 + 1e-12)).all()
        plain = super(GridGradient, query).contributions  # the same features, slopes as they are
        assert np.abs(each - plain(0, path, batch)).max() <= query._slope_unit * 2.0


def test_as_many_records_as_said_can_be_summed_exactly():
    query = gradient(Logistic(), bits=20)
    longest = np.zeros((1, D))
    longest[0, 0] = 1.0
    batch = query.prepare((longest, np.array([-1.0])))
    path = Path(np.full(query.size, 50.0), None, 0)
    one = query.total(0, path, batch)[0]
    unit = query._feature_unit * query._slope_unit
    assert np.array_equal(one / unit, np.rint(one / unit))
    assert query.exact_to * np.abs(one).max() / unit <= 2.0**53
    few = GridGradient(Logistic(), size=2, bits=20, feature_norm=1.0)
    learner = Learner(Everyone(1), few, GradientDescentRule(np.zeros(2), 0.1), Identity())
    assert few.exact_to < 2**13
    X = np.full((few.exact_to + 1, 2), 0.5)
    with pytest.raises(BadPlan, match=f"can sum {few.exact_to} exactly"):
        learn(learner, MemoryRecords((X, np.ones(len(X)))), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"bits": 0}, "bits=0"),
        ({"bits": 21}, "bits=21"),
        ({"clip": -1.0}, "clip=-1.0"),
        ({"feature_norm": 0.0}, "above"),
    ],
)
def test_bad_grids_are_refused(given, match):
    with pytest.raises(BadPlan, match=match):
        GridGradient(Logistic(), size=3, **given)


# --- clusters ---------------------------------------------------------------------------------------------------


def moments(**more):
    return ClusterMoments(**{"extent": Extent(np.zeros(3), 2.0), "centers": (5, 5, 2), "weight": 0.7, **more})


def centers(query, rng):
    drawn = rng.uniform(-1, 1, size=(query.most_centers, query.features))
    return Path(query.prepare((drawn,))[0].ravel(), None, 0)


def test_sums_of_clusters_are_exact_in_whatever_batch_and_order():
    rng = np.random.default_rng(3)
    query = moments()
    points = query.prepare((rng.normal(size=(5_000, 3)),))[0]
    for step in range(3):
        path = centers(query, rng)
        total = query.total(step, path, (points,))[0]
        each = query.contributions(step, path, (points,))
        assert same_bits(total + 0.0, [float(sum(map(Fraction, column))) for column in each.T.tolist()])
        parts = [points[part] for part in np.array_split(rng.permutation(len(points)), 40)]
        assert same_bits(sum(query.total(step, path, (part,))[0] for part in parts), total)
        counts = each.reshape(len(points), 5, 4)[:, :, 3]
        assert np.array_equal(np.count_nonzero(counts, axis=1), np.ones(len(points)))
        assert not counts[:, query.centers[step] :].any()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-6, 1e-2, 1.0, 1e3]), features=st.integers(1, 40))
def test_the_nearest_centre_is_that_of_exact_arithmetic(seed, scale, features):
    rng = np.random.default_rng(seed)
    query = ClusterMoments(Extent(np.zeros(features), scale), centers=(4,), weight=scale / 2)
    points = query.prepare((scale * rng.normal(size=(6, features)),))[0]
    path = Path(query.prepare((scale * rng.normal(size=(4, features)),))[0].ravel(), None, 0)
    found = query.nearest(0, path, points)
    for point, label in zip(points.tolist(), found.tolist(), strict=True):
        apart = [
            sum((Fraction(x) - Fraction(c)) ** 2 for x, c in zip(point, center, strict=True))
            for center in path[-1].reshape(4, features).tolist()
        ]
        assert apart.index(min(apart)) == label


def test_between_two_centres_at_the_same_distance_the_first_is_the_nearest():
    query = moments(centers=(5,))
    path = Path(np.zeros(15), None, 0)
    assert query.nearest(0, path, np.ones((3, 3))).tolist() == [0, 0, 0]


@pytest.mark.parametrize("half_widths", [None, np.array([0.5, 1.0, 0.25])])
def test_the_norm_of_a_point_is_the_same_in_every_cluster(half_widths):
    rng = np.random.default_rng(4)
    query = moments(extent=Extent(np.zeros(3), 2.0, half_widths))
    points = query.prepare((3 * rng.normal(size=(200, 3)),))[0]
    said = query.norms((points,))
    assert said.max() <= query.bound * (1 + 1e-15)
    for _ in range(5):
        each = query.contributions(0, centers(query, rng), (points,))
        assert np.abs(np.linalg.norm(each, axis=1) - said).max() < 1e-14
    if half_widths is not None:
        assert (np.abs(points) <= half_widths).all()
    again = query.prepare((points,))[0]
    assert same_bits(again, points)


def test_points_of_another_dimension_are_refused():
    with pytest.raises(BadRecords, match="expected points of 3 features"):
        moments().admit((np.zeros((2, 4)),))
    for bad in (0.0, -1.0, np.inf):
        with pytest.raises(BadPlan, match=r"weight=.*give a finite number above 0"):
            moments(weight=bad)


def test_where_everyone_takes_part_other_queries_are_rounded_and_summed_a_part_at_a_time(monkeypatch):
    from expunge.solvers.per_record import PerRecord

    monkeypatch.setattr("expunge.engine.records.staging.AT_ONCE", 14)
    query = PerRecord(lambda step, path, x: x, size=2, bound=4.0)
    X = np.random.default_rng(5).normal(size=(101, 2))
    total = evaluate(query, 0, Path(np.zeros(2), None, 0), (X,), Participation(1.0, 2.0**-20, Abilities()))
    exact = [float(sum(Fraction(int(x * 2**20), 2**20) for x in column)) for column in X.T.tolist()]
    assert same_bits(total.sum, exact)
    assert total.evaluations == 101


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("dense", [True, False])
def test_gradients_of_several_steps_at_once_are_those_of_each(loss, dense):
    rng = np.random.default_rng(6)
    query = gradient(loss)
    batch = query.prepare(labelled(loss, rng, dense))
    iterates = ArrayRows(rng.normal(size=(7, query.size)) * rng.choice([0.0, 1e-4, 1.0, 30.0], size=(7, 1)))
    _check_along(query, Path(np.zeros(query.size), iterates, 7), batch, rng)


def test_moments_of_several_steps_at_once_are_those_of_each():
    rng = np.random.default_rng(7)
    query = moments(centers=(5, 5, 4, 2, 2, 2))
    points = query.prepare((rng.normal(size=(N, 3)),))
    iterates = query.prepare((rng.normal(size=(6 * 5, 3)),))[0].reshape(6, 15)
    _check_along(query, Path(iterates[0], ArrayRows(iterates), 6), points, rng)


def _check_along(query, path, batch, rng):
    weights = rng.choice([-1.0, 0.0, 1.0], size=(3, N))
    steps = [0, 2, 5]
    found = query.along(steps, path, batch, weights) + 0.0
    for row, step, shares in zip(found, steps, weights, strict=True):
        came, left = (
            query.total(step, path.upto(step), tuple(column[shares == sign] for column in batch))[0] for sign in (1, -1)
        )
        assert same_bits(row, came - left + 0.0)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_record_contributes_the_same_bits_in_whatever_memory_order_it_is_given(order):
    """What enters is summed by itself, and later with the others: its scores must round alike."""
    rng = np.random.default_rng(8)
    learner = Learner(
        Everyone(2), Gradient(Logistic(), 33), GradientDescentRule(np.zeros(33), 0.3), Identity(), 5.0, "sequential"
    )
    rows, labels = rng.normal(size=(60, 33)) / 20, np.where(rng.random(60) < 0.5, 1.0, -1.0)
    records = MemoryRecords((rows[:40].copy(order), labels[:40]))
    transcript = learn(learner, records, rng)
    edit = records.edit(learner.schedule, Insert((rows[40:].copy(order), labels[40:])), Randomness.of(rng))
    at = transcript.path.upto(1)
    for batch in (edit.entering[:2], records.batch_at(0)):
        alone = [
            learner.query.contributions(1, at, (batch[0][j : j + 1].copy(), batch[1][j : j + 1])) for j in range(20)
        ]
        assert np.concatenate(alone).tobytes() == learner.query.contributions(1, at, batch)[:20].tobytes()
