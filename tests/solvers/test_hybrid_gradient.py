"""Frank-Wolfe's variance-reduced gradient: bounded, telescoping; and the plain gradient of several outputs."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from expunge import (
    Ball,
    BinaryTree,
    DualAveragingRule,
    Everyone,
    Everywhere,
    Gradient,
    Learner,
    MemoryRecords,
    Scattered,
    SquareRoot,
    learn,
)
from expunge.base.errors import BadPlan
from expunge.engine.transcript import Path
from expunge.solvers.domains import L1Ball
from expunge.solvers.frank_wolfe import FrankWolfeRule, HybridGradient
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

RADIUS = 3.0
REACH = math.hypot(1.0, 0.5)  # rows of norm 1 and an intercept's constant of one half
SMOOTH = {
    "logistic": Logistic(),
    "smoothed hinge": SmoothedHinge(0.3),
    "multinomial": Multinomial(3),
    "three-class hinge": MulticlassHinge(3, 0.5),
    "huber": Huber(0.4),
    "squared": Squared(RADIUS * REACH + 1.0),
    "weighted": Weighted(Logistic(), (0.5, 4.0)),
    "weighted multinomial": Weighted(Multinomial(3), (0.5, 4.0, 1.0)),
}
LOSSES = {**SMOOTH, "hinge": Hinge(), "three-class kink": MulticlassHinge(3)}
DOMAINS = {"l2": Ball(RADIUS), "l1": L1Ball(RADIUS)}
each_smooth_loss = pytest.mark.parametrize("name", SMOOTH)


def targets_of(loss, number, rng):
    if not hasattr(loss, "classes"):
        return rng.uniform(-1.0, 1.0, size=number)
    return rng.choice([-1.0, 1.0], size=number) if loss.outputs == 1 else rng.integers(loss.classes, size=number)


def records_for(loss, rng, number=10, features=3):
    """Rows of norm 1: the longest allowed."""
    rows = rng.normal(size=(number, features))
    return rows / np.linalg.norm(rows, axis=1)[:, None] * (1 - 1e-12), targets_of(loss, number, rng)


def query_for(loss, domain, features=3, intercept=0.5, clip=None):
    size = loss.outputs * (features + (intercept != 0))
    return HybridGradient(loss, size, 1.0, intercept, clip, diameter=domain.diameter(size))


def walk(query, domain, batch, rng, steps=12, sigma=1.0, schedule=None, mechanism=None):
    """Return the transcript of Frank-Wolfe."""
    rule = FrankWolfeRule(np.zeros(query.size), domain)
    learner = Learner(schedule or Scattered(steps), query, rule, mechanism or SquareRoot(), sigma)
    return learn(learner, MemoryRecords(batch), rng)


def seen_at(transcript, step):
    return Path(transcript.start, transcript.iterates, step)


# --- the bound --------------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(sorted(SMOOTH)), region=st.sampled_from(sorted(DOMAINS)), seed=st.integers(0, 2**32 - 1),
    sigma=st.sampled_from([0.0, 0.3, 30.0]), intercept=st.sampled_from([0.0, 0.5]), clip=st.sampled_from([None, 0.7]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_no_contribution_along_a_path_of_frank_wolfe_is_above_the_bound(name, region, seed, sigma, intercept, clip):
    rng = np.random.default_rng(seed)
    loss, domain = SMOOTH[name], DOMAINS[region]
    query, batch = query_for(loss, domain, intercept=intercept, clip=clip), records_for(loss, rng)
    transcript = walk(query, domain, batch, rng, sigma=sigma)
    strangers = records_for(loss, rng, 20)
    for step in range(transcript.steps):
        for some in (batch, strangers):
            each = query.contributions(step, seen_at(transcript, step), some)
            assert np.linalg.norm(each, axis=1).max() <= query.bound * (1 + 1e-9)


@each_smooth_loss
def test_the_bound_is_that_of_the_proof(name):
    loss = SMOOTH[name]
    for domain in DOMAINS.values():
        slope = max(2 * loss.lipschitz, loss.smoothness * REACH * 2 * RADIUS + loss.lipschitz)
        assert query_for(loss, domain).bound == pytest.approx(REACH * slope)
        assert query_for(loss, domain, clip=0.25).bound == pytest.approx(REACH * 0.25)
        assert query_for(loss, domain, clip=1e6).bound == pytest.approx(REACH * slope)


def test_the_bound_is_nearly_reached():
    """The first step of a sure and wrong start has slope 2L; a smaller bound would be wrong."""
    loss, start = Huber(0.4), np.array([5.0, 0.0])
    query = HybridGradient(loss, 2, 1.0, diameter=0.1)
    largest = query.contributions(0, Path(start, None, 0), (np.array([[1.0, 0.0]]), np.zeros(1)))
    assert np.linalg.norm(largest) == pytest.approx(2 * loss.lipschitz) == pytest.approx(query.bound)


@each_smooth_loss
def test_clipping_limits_every_contribution_and_leaves_the_short_ones_alone(name):
    rng = np.random.default_rng(1)
    loss, domain = SMOOTH[name], DOMAINS["l2"]
    free = query_for(loss, domain)
    transcript, batch = walk(free, domain, records_for(loss, rng), rng, sigma=5.0), records_for(loss, rng, 40)
    for step in (0, 1, 5):
        path = seen_at(transcript, step)
        before = free.contributions(step, path, batch)
        lengths = np.linalg.norm(before, axis=1)
        limit = 0.5 * float(lengths.max()) / REACH
        after = query_for(loss, domain, clip=limit).contributions(step, path, batch)
        scale = limit * REACH / np.maximum(lengths, limit * REACH)
        np.testing.assert_allclose(after, before * scale[:, None], rtol=1e-9, atol=1e-12)


# --- the telescope ----------------------------------------------------------------------------------------


def gradient_at(query, parameters, batch):
    """The sum of the plain gradients of some records."""
    plain = Gradient(query.loss, query.size, query.feature_norm, query.intercept)
    return plain.contributions(0, Path(parameters, None, 0), batch).sum(axis=0)


@each_smooth_loss
@pytest.mark.parametrize("region", DOMAINS)
def test_after_t_steps_the_sum_is_t_plus_1_times_the_gradient_where_we_are(name, region):
    rng = np.random.default_rng(2)
    loss, domain = SMOOTH[name], DOMAINS[region]
    query, one = query_for(loss, domain), records_for(loss, rng, 1)
    transcript = walk(query, domain, one, rng, sigma=2.0)
    total = np.zeros(query.size)
    for step in range(transcript.steps):
        path = seen_at(transcript, step)
        total += query.contributions(step, path, one)[0]
        np.testing.assert_allclose(total, (step + 2) * gradient_at(query, path[-1], one), rtol=1e-9, atol=1e-9)


def test_with_everyone_in_every_step_the_noiseless_answers_are_full_gradients():
    rng = np.random.default_rng(3)
    loss, domain = Logistic(), Ball(RADIUS)
    query, batch = query_for(loss, domain), records_for(loss, rng)
    transcript = walk(query, domain, batch, rng, sigma=0.0, schedule=Everyone(9), mechanism=BinaryTree())
    for step in range(9):
        full = (step + 2) * gradient_at(query, seen_at(transcript, step)[-1], batch)
        np.testing.assert_allclose(transcript.answers[step], full, rtol=1e-5, atol=1e-5)  # on a grid


@dataclasses.dataclass(frozen=True)
class AsPrinted(HybridGradient):
    """The paper's first step: 2∇ℓ(w₁) - ∇ℓ(w₀), with w₀ = w₁ the start."""

    def _slopes(self, step, path, features, targets, product):
        slopes = super()._slopes(step, path, features, targets, product)
        return slopes / 2.0 if step == 0 else slopes


def test_the_papers_first_step_leaves_a_bias_that_never_goes_away():
    rng = np.random.default_rng(4)
    query, one = query_for(Logistic(), Ball(RADIUS)), records_for(Logistic(), rng, 1)
    printed = AsPrinted(**{field.name: getattr(query, field.name) for field in dataclasses.fields(query)})
    transcript = walk(printed, Ball(RADIUS), one, rng, sigma=2.0)
    left_over = gradient_at(query, transcript.start, one)
    assert np.linalg.norm(left_over) > 0.4
    total = np.zeros(query.size)
    for step in range(transcript.steps):
        path = seen_at(transcript, step)
        total += printed.contributions(step, path, one)[0]
        bias = total - (step + 2) * gradient_at(query, path[-1], one)
        np.testing.assert_allclose(bias, -left_over, rtol=1e-9, atol=1e-9)


# --- the rule ---------------------------------------------------------------------------------------------


def test_frank_wolfe_stays_in_the_domain_and_moves_by_at_most_a_diameter_over_t():
    rng = np.random.default_rng(5)
    for region, domain in DOMAINS.items():
        query = query_for(Logistic(), domain)
        iterates = walk(query, domain, records_for(Logistic(), rng), rng, sigma=10.0).iterates[:]
        norms = np.linalg.norm(iterates, ord=int(region[1]), axis=1)
        assert norms.max() <= RADIUS * (1 + 1e-12)
        moves = np.linalg.norm(np.diff(iterates, axis=0, prepend=0.0), axis=1)
        assert (moves <= 2 * RADIUS / np.arange(2, 14) * (1 + 1e-12)).all()


def test_on_the_l1_ball_every_step_touches_one_parameter():
    rng = np.random.default_rng(6)
    domain = DOMAINS["l1"]
    query = query_for(Logistic(), domain, features=60)
    batch = records_for(Logistic(), rng, features=60)
    iterates = walk(query, domain, batch, rng, sigma=1.0).iterates[:]
    for step, iterate in enumerate(iterates):
        assert 1 <= np.count_nonzero(iterate) <= step + 1
    round_one = walk(query_for(Logistic(), Ball(RADIUS), 60), Ball(RADIUS), batch, rng).iterates[0]
    assert np.count_nonzero(round_one) == 61


def test_the_penalty_pulls_towards_the_origin():
    answer, path = np.array([1.0, 0.0]), Path(np.array([2.0, 2.0]), None, 0)
    assert FrankWolfeRule(np.zeros(2), Ball(1.0)).step(0, path, answer).tolist() == [0.5, 1.0]
    pulled = FrankWolfeRule(np.zeros(2), Ball(1.0), np.array([0.0, 100.0])).step(0, path, answer)
    np.testing.assert_allclose(pulled, [1.0, 0.5], atol=0.01)
    shrunk = DualAveragingRule(np.zeros(2), 1.0, penalty=3.0).step(0, path, answer)
    assert shrunk.tolist() == [-0.25, 0.0]


@pytest.mark.parametrize("loss", [Hinge(), MulticlassHinge(3), Weighted(Hinge(), (1.0, 2.0))], ids=str)
def test_a_loss_with_a_kink_is_refused(loss):
    with pytest.raises(BadPlan, match="smooth loss"):
        query_for(loss, Ball(1.0))


def test_a_domain_without_end_is_refused():
    with pytest.raises(BadPlan, match="bounded domain"):
        query_for(Logistic(), Everywhere())


# --- contributions and totals, of either query ------------------------------------------------------------


def either_query(loss, hybrid, features, intercept, clip):
    if hybrid:
        return query_for(loss, Ball(RADIUS), features, intercept, clip)
    return Gradient(loss, loss.outputs * (features + (intercept != 0)), 1.0, intercept, clip)


def paths(query, rng):
    """Some iterates, as step 3 of a path sees them."""
    stored = rng.normal(size=(3, query.size))
    return Path(np.zeros(query.size), stored, 3)


KINDS = [(name, hybrid) for name in LOSSES for hybrid in (False, True) if name in SMOOTH or not hybrid]
each_kind = pytest.mark.parametrize(("name", "hybrid"), KINDS)


@each_kind
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_the_total_is_the_sum_of_the_contributions(name, hybrid, intercept, clip):
    rng = np.random.default_rng(7)
    loss = LOSSES[name]
    query, batch = either_query(loss, hybrid, 5, intercept, clip), records_for(loss, rng, 30, 5)
    path = paths(query, rng)
    summed, above = query.total(3, path, batch)
    each = query.contributions(3, path, batch)
    assert each.shape == (30, query.size)
    assert above == 0
    np.testing.assert_allclose(summed, each.sum(axis=0), rtol=1e-9, atol=1e-9)
    by_rows = (sparse.csr_array(batch[0]), batch[1])
    np.testing.assert_allclose(query.total(3, path, by_rows)[0], summed, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(query.contributions(3, path, by_rows), each, rtol=1e-9, atol=1e-12)


@each_kind
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_a_contribution_is_the_same_to_the_last_bit_in_every_batch(name, hybrid, form):
    rng = np.random.default_rng(8)
    loss = LOSSES[name]
    query, (rows, targets) = either_query(loss, hybrid, 300, 0.5, 0.3), records_for(loss, rng, 37, 300)
    path = paths(query, rng)
    each = query.contributions(3, path, (form(rows), targets))
    for number in range(37):
        alone = query.contributions(3, path, (form(rows[number : number + 1]), targets[number : number + 1]))
        assert np.array_equal(alone[0], each[number])
    some = rng.permutation(37)[:20]
    assert np.array_equal(query.contributions(3, path, (form(rows[some]), targets[some])), each[some])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_the_gradient_is_the_derivative_of_the_mean_loss(name, intercept):
    rng = np.random.default_rng(9)
    loss = LOSSES[name]
    query, (rows, targets) = either_query(loss, False, 4, intercept, None), records_for(loss, rng, 25, 4)
    at = rng.normal(size=query.size)
    wide = rows if intercept == 0 else np.column_stack([rows, np.full(25, intercept)])

    def mean_loss(parameters):
        scores = wide @ parameters.reshape(-1, loss.outputs)
        return loss.value(scores[:, 0] if loss.outputs == 1 else scores, targets).mean()

    step = 1e-6 * np.eye(query.size)
    numeric = [(mean_loss(at + one) - mean_loss(at - one)) / 2e-6 for one in step]
    mine = query.total(0, Path(at, None, 0), (rows, targets))[0] / 25
    np.testing.assert_allclose(mine, numeric, atol=1e-7)
    assert np.linalg.norm(query.contributions(0, Path(at, None, 0), (rows, targets)), axis=1).max() <= query.bound
