"""Rounds that visit everyone: what a deletion costs there, and that short cuts change nothing."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from scipy import stats

from expunge import Delete, Everyone, GradientDescentRule, Identity, Insert, Learner, MemoryRecords, PerRecord, Replace
from expunge.base.errors import ClippedWarning
from expunge.engine.changing import chance_of_replay, change
from expunge.engine.learning import learn, learn_with_outcome
from expunge.engine.owner import Owner
from expunge.engine.randomness import Randomness
from expunge.engine.schedules import Scattered, joins, joins_each
from expunge.engine.transcript import Path
from expunge.engine.verifying import verify
from expunge.solvers.extents import Extent
from expunge.solvers.gradient_descent import GridGradient
from expunge.solvers.lloyd import ClusterMoments, LloydRule
from expunge.solvers.losses import Logistic, Multinomial

N = 40


def bits(transcript):
    return [np.asarray(table[:]).tobytes() for table in (transcript.sums, transcript.answers, transcript.iterates)]


def mean_of(size=2):
    return PerRecord(lambda step, path, x: x - 0.1 * path[-1], size=size, bound=4.0)


def points(rng, count=N):
    return rng.uniform(-1, 1, size=(count, 2))


def learned(learner, columns, seed=0, **more):
    records, rng = MemoryRecords(columns, **more), np.random.default_rng(seed)
    return records, learn(learner, records, rng), rng


def clusters(rounds=4, sigma=1.0, coupling="adaptive"):
    query = ClusterMoments(Extent(np.zeros(2), 1.5), (6,) * 2 + (3,) * (rounds - 2), 0.5)
    seeds = query.prepare((np.random.default_rng(5).uniform(-1, 1, size=(6, 2)),))[0]
    return Learner(
        Everyone(rounds), query, LloydRule(seeds, query, 3, 2, sigma, 7), Identity(), sigma, coupling, "last"
    )


def descent(rounds=4, sigma=1.0, coupling="adaptive", rate=1.0, loss=None, query=GridGradient):
    loss = loss or Logistic()
    gradient = query(loss, size=2 * loss.outputs)
    rule = GradientDescentRule(np.zeros(gradient.size), 0.1)
    return Learner(Everyone(rounds, rate), gradient, rule, Identity(), sigma, coupling)


def test_a_learner_of_one_round_without_noise_never_replays():
    rng = np.random.default_rng(1)
    X = points(rng)
    learner = Learner(Everyone(1), mean_of(), GradientDescentRule(np.zeros(2), 0.1), Identity(), 0.0)
    records, transcript, rng = learned(learner, (X,))
    requests = [Delete([3]), Delete([5, 7, 11]), Insert((X[:2],)), Replace((X[8:9],), ids=[0])]
    for request, moved in zip(requests, (1, 3, 2, 2), strict=True):
        assert chance_of_replay(learner, records, transcript, request) == 0.0
        outcome = change(learner, records, transcript, request, rng).commit()
        assert outcome.kept
        assert outcome.evaluations == moved  # no other record is looked at
        assert outcome.replay_probability == 0.0
        assert verify(learner, records, transcript).ok
        fresh = learn(learner, records.copy(), np.random.default_rng(9))
        assert bits(fresh) == bits(transcript)


def test_without_noise_a_record_that_joins_the_last_round_only_does_not_replay():
    learner = descent(rounds=3, sigma=0.0, rate=0.4)
    rng = np.random.default_rng(2)
    X = points(rng, 200)
    records, transcript, rng = learned(learner, (X, np.where(X[:, 0] > 0, 1.0, -1.0)))
    keys = records.keys_at(0)
    rounds = np.stack([joins(keys, step, 0.4) for step in range(3)], axis=1).tolist()
    ids = records.ids_at(0).copy()
    assert sorted({tuple(row) for row in rounds})[1] == (False, False, True)
    for record, joined in zip(ids.tolist(), rounds, strict=True):
        outcome = change(learner, records, transcript, Delete([record]), rng).commit()
        assert outcome.kept == (not any(joined[:2]))
        if records.count < 150:
            break
    assert verify(learner, records, transcript).ok


@pytest.mark.parametrize("coupling", ["joint", "sequential", "adaptive"])
def test_a_replay_does_not_pass_over_its_first_round_again(coupling):
    learner = Learner(Everyone(5), mean_of(), GradientDescentRule(np.zeros(2), 0.01), Identity(), 0.5, coupling)
    seen = 0
    for seed in range(40):
        records, transcript, rng = learned(learner, (points(np.random.default_rng(seed)),), seed)
        outcome = change(learner, records, transcript, Delete([0]), rng).commit()
        assert verify(learner, records, transcript).ok
        if not outcome.kept:
            seen += 1
            passes = (outcome.evaluations - 5) // (N - 1)
            assert passes == 5 - outcome.replayed_from - 1
    assert seen > 3


REQUESTS = [
    lambda rng, extra: Delete([0]),
    lambda rng, extra: Delete(np.arange(4, 12)),
    lambda rng, extra: Insert(tuple(column[:3] for column in extra)),
    lambda rng, extra: Replace(tuple(column[:2] for column in extra), ids=[20, 21]),
    lambda rng, extra: Delete([]),
]


@pytest.mark.parametrize("coupling", ["sequential", "adaptive"])
@pytest.mark.parametrize("make", [clusters, descent, partial(descent, rate=0.5)], ids=["k-means", "descent", "sampled"])
def test_looking_at_all_rounds_at_once_is_the_same_as_at_one_after_the_other(make, coupling, monkeypatch):
    def served(slowly):
        learner, outcomes = make(sigma=0.8, coupling=coupling), []
        if slowly:
            monkeypatch.delattr(type(learner.query), "along")
        rng = np.random.default_rng(3)
        X = points(rng)
        columns = (X,) if make is clusters else (X, np.where(X[:, 0] > 0, 1.0, -1.0))
        extra = tuple(np.concatenate([column[::-1][:5]]) for column in columns)
        records, transcript, coins = learned(learner, columns, seed=4)
        for request in REQUESTS:
            outcome = change(learner, records, transcript, request(rng, extra), coins).commit()
            outcomes.append((outcome.replayed_from, outcome.evaluations))
            assert verify(learner, records, transcript).ok
        return [table[:] for table in (transcript.sums, transcript.answers, transcript.iterates)], outcomes

    (tables, outcomes), (expected, slow) = served(slowly=False), served(slowly=True)
    assert outcomes == slow
    for one, other in zip(tables, expected, strict=True):  # budgets are added up in another order
        assert np.allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_multinomial_gradient_at_all_rounds_at_once(monkeypatch):
    rng = np.random.default_rng(6)
    X = points(rng)
    y = rng.integers(3, size=N)
    states = []
    for slowly in (False, True):
        learner = descent(loss=Multinomial(3), sigma=0.7)
        if slowly:
            monkeypatch.delattr(GridGradient, "along")
        records, transcript, coins = learned(learner, (X, y), seed=8)
        for ids in ([1], [2, 3, 4], [10]):
            change(learner, records, transcript, Delete(ids), coins).commit()
        states.append(bits(transcript))
    assert states[0] == states[1]


def test_the_keys_of_several_rounds_are_those_of_each():
    keys = np.random.default_rng(7).integers(2**64, size=50, dtype=np.uint64)
    each = joins_each(keys, [0, 3, 99], 0.3)
    assert np.array_equal(each, np.stack([joins(keys, step, 0.3) for step in (0, 3, 99)]))


@pytest.mark.parametrize("rounds", [5, 20])
def test_the_budget_of_the_adaptive_coupling_is_that_of_the_records_own_norms(rounds):
    learner = clusters(rounds, sigma=2.0)
    rng = np.random.default_rng(11)
    records, transcript, coins = learned(learner, (points(rng),))
    own = learner.query.norms(records.batch_at(0))
    for record, norm in list(zip(records.ids_at(0).tolist(), own.tolist(), strict=True))[:5]:
        expected = 2.0 * stats.norm.cdf(math.sqrt(rounds) * norm / 2.0 / 2.0) - 1.0
        assert chance_of_replay(learner, records, transcript, Delete([record])) == pytest.approx(expected)
        outcome = change(learner, records, transcript, Delete([record]), coins)
        assert outcome.outcome.replay_probability == pytest.approx(expected)
        outcome.rollback()


def test_rollback_after_looking_at_all_rounds_leaves_every_bit():
    learner = clusters()
    records, transcript, coins = learned(learner, (points(np.random.default_rng(12)),))
    before = bits(transcript), records.batch_at(0)[0].tobytes(), records.ids_at(0).tobytes()
    for request in (Delete([3, 4]), Insert((np.ones((2, 2)),)), Replace((np.ones((1, 2)),), ids=[9])):
        change(learner, records, transcript, request, coins).rollback()
        assert (bits(transcript), records.batch_at(0)[0].tobytes(), records.ids_at(0).tobytes()) == before


def test_learning_counts_an_evaluation_for_each_record_and_round():
    learner = clusters(5)
    records = MemoryRecords((points(np.random.default_rng(13)),))
    assert learn_with_outcome(learner, records, np.random.default_rng(0))[1].evaluations == 5 * N


@dataclass(frozen=True)
class Loose:
    """A query of one's own: contributions off the grid, norms as they are told."""

    told: float = 1.0
    size: int = 2
    bound: float = 10.0

    def contributions(self, step, path, batch):
        return batch[0] * np.cos(path[-1].sum() + batch[0][:, :1])

    def norms(self, batch):
        return self.told * np.linalg.norm(batch[0], axis=1)

    def along(self, steps, path, batch, weights):
        return np.stack([w @ self.contributions(s, path.upto(s), batch) for s, w in zip(steps, weights, strict=True)])


def test_only_exact_queries_are_looked_at_in_all_rounds_at_once():
    learner = Learner(Everyone(3), Loose(), GradientDescentRule(np.zeros(2), 0.01), Identity(), 5.0, "adaptive")
    records, transcript, coins = learned(learner, (points(np.random.default_rng(14)),))
    change(learner, records, transcript, Delete([3]), coins).commit()
    assert verify(learner, records, transcript).ok


def test_contributions_longer_than_their_norms_count_with_these():
    learner = Learner(Everyone(3), Loose(0.1), GradientDescentRule(np.zeros(2), 0.01), Identity(), 5.0, "adaptive")
    columns = (points(np.random.default_rng(14)),)
    with pytest.warns(ClippedWarning):
        records, transcript, coins = learned(learner, columns)
    assert np.linalg.norm(transcript.sums[:], axis=1).max() <= 0.1 * np.linalg.norm(columns[0], axis=1).sum()
    change(learner, records, transcript, Delete([3]), coins).commit()
    assert verify(learner, records, transcript).ok


@dataclass(frozen=True)
class LoudTotal(PerRecord):
    """A query with a total of its own, whose contributions are above their bound."""

    def total(self, step, path, batch):
        each = self.contributions(step, path, batch)
        return each.sum(axis=0), len(each)


def test_a_total_of_ones_own_is_not_taken_where_contributions_must_be_shortened():
    query = LoudTotal(lambda step, path, x: 5.0 * x / np.linalg.norm(x), size=2, bound=1.0)
    learner = Learner(
        Scattered(1, epochs=3), query, GradientDescentRule(np.zeros(2), 0.01), Identity(), 1.0, "adaptive"
    )
    with pytest.warns(ClippedWarning):
        records, transcript, coins = learned(learner, (points(np.random.default_rng(15), 3),))
    assert np.linalg.norm(transcript.sums[:], axis=1).max() <= 3.0 + 1e-6
    change(learner, records, transcript, Delete([1]), coins).commit()
    assert verify(learner, records, transcript).ok


def test_what_is_shortened_does_not_depend_on_the_others_in_the_batch():
    """One that is longer than the bound by less than the tolerance stays as it is, whoever else is there."""
    lengths = np.array([[1.0 + 3 * 2.0**-44], [5.0], [0.1]])
    query = PerRecord(lambda step, path, x: x, size=1, bound=1.0)
    learner = Learner(Everyone(1, bits=45), query, GradientDescentRule(np.zeros(1), 0.01), Identity(), 2.0, "adaptive")
    with pytest.warns(ClippedWarning):
        records, transcript, coins = learned(learner, (lengths,))
    change(learner, records, transcript, Delete([1]), coins).commit()
    assert verify(learner, records, transcript).ok


def loud_elsewhere(step, path, x):
    """A contribution that is within its bound at first, and far above it where a replay leads to."""
    return x * (1.0 + 50.0 * np.abs(path[-1]).sum())


def test_a_query_that_exceeds_its_bound_on_a_new_path_does_not_stop_requests():
    """It used to raise after the request was begun: then every later call raised as well."""
    query = PerRecord(loud_elsewhere, size=2, bound=1.5)
    learner = Learner(Everyone(3), query, GradientDescentRule(np.zeros(2), 0.01), Identity(), 2.0, "adaptive")
    with pytest.warns(ClippedWarning):
        records, transcript, coins = learned(learner, (points(np.random.default_rng(15)),))
    owner = Owner(learner, records, transcript, counts=False)
    outcomes = [owner.serve(Delete([number]), Randomness.of(coins), lambda: None) for number in range(30)]
    assert any(not outcome.kept and outcome.above_bound for outcome in outcomes)
    assert owner.count == N - 30
    assert owner.verify(lambda: None, 0.0).ok


def test_tiny_parameters_are_rounded_to_zero_and_a_small_intercept_stays_one():
    query = GridGradient(Logistic(), size=4, intercept=0.2, bits=1)
    assert query.columns == 3
    assert query.intercept > 0.0
    path = Path(np.full(4, 1e-318), None, 0)
    batch = query.prepare((np.eye(3), np.array([1.0, -1.0, 1.0])))
    assert np.isfinite(query.total(0, path, batch)[0]).all()
