"""Streams of the worst kind: how many requests replay, against ρV (weak) and ρR (exact).

A count is compared with the binomial law whose mean is the bound, at a level of 1e-6. Requests of one stream meet the
same noise, so that counts spread more than that law; the bound holds for their mean. Hence fixed seeds, and controls
that add up several streams.
"""

import numpy as np
import pytest
from scipy import stats

from cases.drawn_streams import draw_stream, learner_of, serve
from expunge import Arrival, BinaryTree, Scattered, Shuffled, SquareRoot

LEVEL = 1e-6
RHO = 0.2
TREE, ANYTIME = BinaryTree(), BinaryTree("anytime")
WAYS = [(TREE, "joint"), (TREE, "sequential"), (ANYTIME, "joint"), (ANYTIME, "sequential"), (SquareRoot(), "joint")]


def served(kind, schedule, mechanism, coupling, noise_of=None, streams=1, requests=400):
    """Return the counts of some independent streams."""
    each = []
    for rng in np.random.default_rng(0).spawn(streams):
        stream = draw_stream(kind, 200, requests, rng)
        learner = learner_of(kind, schedule, mechanism, RHO, coupling, noise_of or coupling, stream.largest)
        each.append(serve(learner, stream, rng))
    return each


def chance_of_so_many(replays, requests):
    """Return how likely at least so many replays are, if each request had one with probability ρ."""
    return stats.binom.sf(replays - 1, requests, RHO)


@pytest.mark.parametrize(("mechanism", "coupling"), WAYS)
def test_in_weak_streams_no_insertion_replays_and_at_most_rho_of_the_deletions(mechanism, coupling):
    [counts] = served("aimed", Arrival(3), mechanism, coupling)
    assert counts.insertion_replays == 0
    assert counts.most_by_insertion <= 3
    assert counts.deletion_replays > 0
    assert chance_of_so_many(counts.deletion_replays, counts.deletions) > LEVEL


@pytest.mark.parametrize("schedule", [Shuffled(3), Scattered(64)])
@pytest.mark.parametrize(("mechanism", "coupling"), WAYS)
def test_in_exact_streams_at_most_rho_of_all_requests_replay(schedule, mechanism, coupling):
    [counts] = served("worst", schedule, mechanism, coupling)
    assert counts.insertion_replays > 0
    assert chance_of_so_many(counts.replays, counts.requests) > LEVEL


def test_an_aimed_stream_comes_close_to_the_bound():
    """So that the first test is not passed by being far from it."""
    [counts] = served("aimed", Arrival(3), TREE, "joint")
    assert 0.9 * RHO * counts.deletions < counts.expected <= RHO * counts.deletions


@pytest.mark.parametrize(("kind", "schedule"), [("aimed", Arrival(3)), ("worst", Scattered(64))])
def test_control_the_sequential_coupling_with_the_noise_of_the_joint_one_exceeds_the_bound(kind, schedule):
    each = served(kind, schedule, TREE, "sequential", noise_of="joint", streams=4, requests=600)
    requests = sum(counts.deletions if kind == "aimed" else counts.requests for counts in each)
    assert chance_of_so_many(sum(counts.replays for counts in each), requests) < LEVEL
