"""Domains: projections are nearest, linear minimisers are least, and what is inside stays as it is."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.base.errors import BadPlan
from expunge.solvers.domains import Ball, Box, Everywhere, L1Ball, Simplex

BOUNDED = [
    Ball(1.0), Ball(25.0), Ball(1e-6), L1Ball(1.0), L1Ball(30.0), L1Ball(1e-6), Simplex(), Simplex(40.0), Simplex(1e-6),
    Box(-1.0, 2.0), Box(0.0, 1e-6), Box(3.0, 50.0),
]  # fmt: skip
every_domain = pytest.mark.parametrize("domain", BOUNDED, ids=str)
few = settings(max_examples=15, deadline=None)
points = given(
    st.integers(0, 2**32 - 1), st.integers(1, 12) | st.just(400), st.sampled_from([1e-7, 0.1, 1.0, 10.0, 1e9, 1e200])
)


def _point(rng, size, scale):
    point = rng.normal(size=size) * scale
    return np.round(point, 1) if rng.random() < 0.3 else point  # ties


def _members(domain, rng, size, count=30):
    """Return points of the set, corners and the like among them."""
    spread = rng.dirichlet(np.full(size, 0.3), size=count)
    match domain:
        case Ball():
            rows = rng.normal(size=(count, size))
            rows *= domain.radius * rng.choice([0.3, 1.0], size=(count, 1)) / np.linalg.norm(rows, axis=1)[:, None]
        case L1Ball():
            rows = domain.radius * rng.choice([0.3, 1.0], size=(count, 1)) * spread * rng.choice([-1, 1], size=size)
        case Simplex():
            rows = domain.total * spread
        case Box():
            rows = rng.uniform(domain.low, domain.high, size=(count, size))
            rows[: count // 2] = rng.choice([domain.low, domain.high], size=(count // 2, size))
    return rows


def _extent(domain):
    match domain:
        case Ball() | L1Ball():
            return domain.radius
        case Simplex():
            return domain.total
    return max(abs(domain.low), abs(domain.high))


def _outside(domain, point):
    """Return how far the point breaks the set's definition, in units of the set's extent."""
    match domain:
        case Ball():
            excess = math.hypot(*point) - domain.radius
        case L1Ball():
            excess = math.fsum(np.abs(point)) - domain.radius
        case Simplex():
            excess = max(abs(math.fsum(point) - domain.total), -point.min())
        case Box():
            excess = max(domain.low - point.min(), point.max() - domain.high)
    return excess / _extent(domain)


@every_domain
@few
@points
def test_a_projection_is_inside_nearest_and_changes_nothing_the_second_time(domain, seed, size, scale):
    rng = np.random.default_rng(seed)
    point = _point(rng, size, scale)
    before = point.tobytes()
    nearest = domain.project(point)
    assert point.tobytes() == before
    assert nearest.shape == point.shape
    assert _outside(domain, nearest) <= 1e-14
    assert domain.project(nearest).tobytes() == nearest.tobytes()
    away, towards = point - nearest, _members(domain, rng, size) - nearest
    largest = np.abs(away).max() + 1e-300
    slack = 1e-13 * size * _extent(domain)
    assert ((away / largest * towards).sum(axis=1) <= slack).all()  # at most a right angle between them


@every_domain
@few
@points
def test_points_inside_come_back_with_the_same_bits(domain, seed, size, scale):
    for member in _members(domain, np.random.default_rng(seed), size):
        assert domain.project(member).tobytes() == member.tobytes()


def test_the_sign_of_zero_is_kept_inside():
    point = np.array([-0.0, 0.25])
    for domain in (Box(0.0, 1.0), L1Ball(1.0), Ball(1.0), Everywhere()):
        assert domain.project(point) is point


@every_domain
@few
@points
def test_the_linear_minimiser_is_inside_and_no_member_does_better(domain, seed, size, scale):
    rng = np.random.default_rng(seed)
    direction = _point(rng, size, scale)
    least = domain.lmo(direction)
    assert least.shape == direction.shape
    assert _outside(domain, least) <= 1e-14
    assert least.tobytes() == domain.lmo(direction.copy()).tobytes()
    scaled = direction / (np.abs(direction).max() or 1.0)
    gaps = ((_members(domain, rng, size) - least) * scaled).sum(axis=1)
    assert gaps.min() >= -1e-13 * size * _extent(domain)


@every_domain
@pytest.mark.parametrize("size", [1, 5])
def test_no_direction_gives_a_point_of_the_set(domain, size):
    assert _outside(domain, domain.lmo(np.zeros(size))) <= 1e-14
    assert _outside(domain, domain.lmo(np.full(size, 5e-324))) <= 1e-14


def test_ties_of_directions_go_to_the_first():
    assert L1Ball(2.0).lmo(np.array([0.0, -3.0, 3.0])).tolist() == [0.0, 2.0, 0.0]
    assert L1Ball(2.0).lmo(np.array([1.0, 3.0, -3.0])).tolist() == [0.0, -2.0, 0.0]
    assert Simplex(2.0).lmo(np.array([5.0, 1.0, 1.0])).tolist() == [0.0, 2.0, 0.0]
    assert Box(-1.0, 2.0).lmo(np.array([0.0, 1.0, -1.0])).tolist() == [-1.0, -1.0, 2.0]


@every_domain
@pytest.mark.parametrize("size", [1, 2, 9])
def test_no_two_members_are_further_apart_than_the_diameter_and_two_are_as_far(domain, size):
    rng = np.random.default_rng(1)
    members = _members(domain, rng, size, 100)
    apart = np.linalg.norm(members[:, None] - members[None], axis=2).max()
    assert apart <= domain.diameter(size) + 1e-14 * _extent(domain)
    ways = [np.eye(size)[0], np.eye(size)[-1] - np.eye(size)[0], np.ones(size)]
    ends = [np.linalg.norm(domain.lmo(way) - domain.lmo(-way)) for way in ways]
    assert max(ends) == pytest.approx(domain.diameter(size))


def test_all_of_space_has_no_end():
    assert Everywhere().diameter(3) == math.inf
    with pytest.raises(BadPlan, match="use a bounded one"):
        Everywhere().lmo(np.ones(2))


@every_domain
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_nan_for_the_engine_to_refuse(domain, bad):
    assert np.isnan(domain.project(np.array([0.1, bad, 0.2]))).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "far", None])
@pytest.mark.parametrize(("make", "name"), [(Ball, "radius"), (L1Ball, "radius"), (Simplex, "total")])
def test_bad_sizes_are_refused_by_name(make, name, bad):
    with pytest.raises(BadPlan, match=f"{name}=.*above 0"):
        make(bad)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 0.0, "low=1.0.*below high=0.0"),
        (1.0, 1.0, "below high"),
        (-math.inf, 0.0, "low=-inf.*finite"),
        (0.0, math.nan, "high=nan.*finite"),
        (None, 1.0, "low=None.*finite"),
    ],
)
def test_bad_boxes_are_refused_by_name(low, high, message):
    with pytest.raises(BadPlan, match=message):
        Box(low, high)
