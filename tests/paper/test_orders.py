"""The orders of the paper's streams and permutations, and queries that are said to be linear."""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from cases.learners import EACH, ONE, PEOPLE, TREE, learner
from cases.printed import NINE, PASSES, of_the_paper, start, trained
from expunge import Arrival, Delete, Everyone, Insert, Learner, MemoryRecords, PerRecord, change, learn, verify
from expunge.engine.checks import check_exact
from expunge.engine.randomness import Randomness


@dataclass
class Dice:
    """A generator that draws a given order, and then a given position."""

    order: tuple[int, ...]
    position: int

    def permutation(self, count):
        return np.array(self.order)

    def integers(self, high):
        assert high.tolist() == [len(self.order) + 1]
        return np.array([self.position])


class Loaded(Randomness):
    """Randomness by which records lie as dice have it."""

    def __init__(self, dice):
        super().__init__(bytes(32))
        self.dice = dice

    @property
    def layout(self):
        return self.dice


def test_a_newcomer_among_the_existing_leaves_is_not_uniform():
    """Enumerate every draw: n! orders of the old records times the newcomer's position."""
    old = list(itertools.permutations(range(3)))
    printed = [(*order[:k], 3, *order[k + 1 :], order[k]) for order in old for k in range(3)]
    assert sorted(printed) != sorted(itertools.permutations(range(4)))
    assert sum(order[-1] == 3 for order in printed) == 0
    ours = []
    for order, position in itertools.product(old, range(4)):
        plan, records, dice = of_the_paper(0.0), MemoryRecords((NINE[:3],)), Loaded(Dice(order, position))
        transcript = learn(plan, records, dice)
        change(plan, records, transcript, Insert((NINE[3:4],)), dice).commit()
        ours.append(tuple(records.ids_at(place).item() for place in range(4)))
    assert sorted(ours) == sorted(itertools.permutations(range(4)))


def test_the_permutation_lemma_has_a_factor_of_n_not_of_one_over_n_plus_1():
    """Enumerate every order of n records, and delete one: each order of the rest comes about n times."""
    n = 4
    left = []
    for order in itertools.permutations(range(n)):
        plan, records, dice = of_the_paper(0.0), MemoryRecords((NINE[:n],)), Loaded(Dice(order, -1))
        transcript = learn(plan, records, dice)
        change(plan, records, transcript, Delete([n - 1]), dice).commit()
        left.append(tuple(records.ids_at(place).item() for place in range(n - 1)))
    one_before, one_after = Fraction(1, math.factorial(n)), Fraction(1, math.factorial(n - 1))
    assert Counter(left) == dict.fromkeys(itertools.permutations(range(n - 1)), n)
    assert n * one_before == one_after
    assert one_before / (n + 1) != one_after


def test_weak_unlearning_holds_in_the_stored_order_only():
    """Without permuting, unlearning fills the hole with the last record, and training afresh does not."""
    plan = replace(of_the_paper(0.0), schedule=Arrival(1))
    records, transcript, rng = trained(plan, NINE[:5])
    change(plan, records, transcript, Delete([1]), rng).commit()
    arrival, stored = (trained(plan, NINE[order])[1] for order in ([0, 2, 3, 4], [0, 4, 2, 3]))
    assert np.array_equal(transcript.iterates[:], stored.iterates[:])
    assert not np.allclose(transcript.model(plan), arrival.model(plan), atol=0.01)
    noisy = learner(Arrival(1), TREE, "sequential", sigma=1.2)
    assert check_exact(noisy, (PEOPLE,), ONE, runs=1500, seed=5).p_value > PASSES


@dataclass(frozen=True)
class NoisyMean:
    """Noisy sum over noisy count."""

    start: np.ndarray

    def step(self, step, path, answer):
        return answer[:1] / max(answer[1], 1.0)


def test_means_are_not_linear_queries_but_sums_and_counts_are():
    """Lloyd's means, FedAvg's 1/C: a mean without one record's share is not the mean of the rest."""
    records = [Fraction(z) for z in (1, 2, 6)]

    def mean(rows):
        return sum(rows) / Fraction(len(rows))

    def moments(rows):
        return sum(rows), len(rows)

    assert mean(records) - records[2] / 3 != mean(records[:2])
    # q(S) - q(S∖a) - q(S∖b) + q(S∖ab) = 0 for a linear query
    assert mean(records) - mean(records[1:]) - mean(records[::2]) + mean(records[2:]) != 0
    parts = zip(*(moments(s) for s in (records, records[1:], records[::2], records[2:])), strict=True)
    assert [whole - a - b + both for whole, a, b, both in parts] == [0, 0]
    query = PerRecord(lambda step, path, x: [x[0], 1.0], size=2, bound=3.0)
    plan = Learner(Everyone(3), query, NoisyMean(start()), EACH, sigma=2.0, coupling="sequential")
    assert check_exact(plan, (NINE[:5],), (Delete([1]),), runs=1500, seed=7).p_value > PASSES
    state, transcript, rng = trained(plan, NINE[:5])
    change(plan, state, transcript, Delete([1]), rng).commit()
    assert verify(plan, state, transcript).ok
