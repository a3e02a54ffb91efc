"""The paper's listings of learning and unlearning, as they are printed, and what the engine does instead."""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest

from cases.patching import patched_everywhere
from cases.printed import (
    NINE,
    PULL,
    PrintedTree,
    end,
    has_noise,
    leaf,
    of_the_paper,
    path_to_root,
    printed_tree,
    pull,
    start,
    trained,
    unlearned,
)
from expunge import (
    Arrival,
    BinaryTree,
    Delete,
    DualAveragingRule,
    Everyone,
    GradientDescentRule,
    Identity,
    Learner,
    MemoryRecords,
    PerRecord,
    change,
    learn_with_outcome,
    verify,
)
from expunge.engine.couplings.common import KEPT, Toss


def test_subtracting_g_prime_along_the_path_of_the_last_leaf_leaves_wrong_sums():
    tree = printed_tree()
    tree.tree_unlearn(1)
    for b in path_to_root(leaf(8))[1:]:
        below = [leaf(k) for k in range(1, 8) if leaf(k).startswith(b)]
        right = sum(math.tanh(tree.z[k] - tree.w[k]) for k in below)
        assert abs(tree.u[b] - right) > 0.1
    plan, records, transcript, _, _ = unlearned(0, [True] * 3)
    along = [math.tanh(records.batch_at(t)[0].item() - transcript.path[t].item()) for t in range(8)]
    np.testing.assert_allclose(transcript.sums[:, 0], plan.grid.kept(np.array(along)), rtol=1e-15)
    assert verify(plan, records, transcript).ok


def test_the_texts_new_sum_has_the_signs_of_the_listings_exchanged():
    """Text: u' = u - g' + g. Listing: u' = u - g + g'. The leaf holds u = g, and should hold g'."""
    old = printed_tree()
    u, w, z_new = old.u[leaf(3)], old.w[leaf(3)], old.z[leaf(8)]
    g, g_new = math.tanh(old.z[leaf(3)] - w), math.tanh(z_new - w)
    assert u == g
    assert abs((u - g_new + g) - g_new) > 0.1
    assert u - g + g_new == pytest.approx(g_new)
    plan, records, transcript, *_ = unlearned(2, [True] * 3)
    there = math.tanh(records.batch_at(2)[0].item() - transcript.path[2].item())
    assert transcript.sums[2].item() == pytest.approx(there, abs=plan.grid.unit)


def test_few_queries_are_made_when_the_output_stays_and_not_when_it_changes():
    """Section 3: "when it does change the output, it makes a small number of queries"."""
    for step in range(7):
        kept, replayed = (unlearned(step, coins)[3] for coins in ([True] * 4, [False]))
        assert kept.kept
        assert kept.evaluations == 2  # the proof's two: g and g'
        assert replayed.replayed_from == step
        assert replayed.evaluations == 8 - step  # all rows from there on


def test_the_printed_rejection_stores_the_iterate_at_the_wrong_leaf():
    tree = printed_tree()
    assert tree.stale() == []
    tree.tree_unlearn(3, rejected=leaf(3))
    assert tree.stale() == [3, 4]  # leaf 3 holds the iterate after it, and training went on from the old one
    plan, records, transcript, outcome, _ = unlearned(2, [False])
    assert outcome.replayed_from == 2
    assert verify(plan, records, transcript).ok


def test_the_printed_rejection_at_an_inner_node_recomputes_no_iterate():
    tree = printed_tree()
    tree.tree_unlearn(1, rejected="00")
    assert tree.stale() == [3]  # training went on from the old iterate after leaf 2
    plan, records, transcript, outcome, _ = unlearned(0, [True, False])
    assert outcome.replayed_from == 1
    assert verify(plan, records, transcript).ok


def printed_resumes(j):
    """For each node on the way up, the leaf at which training would go on after a rejection there."""
    ct = Fraction(1)
    for b in path_to_root(leaf(j)):
        yield b, j + ct
        if b.endswith("0"):
            ct += Fraction(2) ** (3 - len(b) - 1)


def test_the_printed_count_does_not_say_where_to_go_on():
    assert [float(t) for _, t in printed_resumes(1)] == [2.0, 2.5, 3.5, 5.5]  # not 2, 3, 5, 9
    for j in range(1, 9):
        for b, t in printed_resumes(j):
            assert (t == end(b) + 1) is ("0" not in leaf(j)[len(b) :])  # right until a left node was passed
    for step in range(7):
        nodes = BinaryTree().path(step, 7)
        assert [t + 1 for t in nodes] == [end(b) for b in path_to_root(leaf(step + 1))[:-1] if has_noise(b)]
        for position, node in enumerate(nodes):
            assert unlearned(step, [True] * position + [False])[3].replayed_from == node


def test_the_printed_loop_tosses_coins_at_nodes_without_noise():
    tree = printed_tree()
    idle = [b for t in range(1, 9) for b in path_to_root(leaf(t)) if b not in tree.r]
    assert len(idle) == 12  # half of the leaves, and the right children above them: no response to test
    for step in range(7):
        noisy = [b for b in path_to_root(leaf(step + 1))[:-1] if b in tree.r]
        *_, coins = unlearned(step, [True] * 4)
        assert coins == len(noisy) == len(BinaryTree().path(step, 7))


def test_tree_learn_overwrites_the_response_of_a_leaf_with_the_prefix_sum():
    """Line 8, Set(leaf(t), (u_t, r_t, w_t, z_t)): the leaf's coin would see the noise of other nodes."""
    transcript = trained(of_the_paper(1.0), NINE)[1]
    answers, own = transcript.answers[:, 0], transcript.sums[:, 0]
    noise = BinaryTree().whiten(answers - np.cumsum(own))
    odd = np.arange(0, 9, 2)  # the leaves that are nodes with noise
    printed, ours = answers[odd], answers[odd] - np.append(0.0, answers)[odd]
    assert np.abs(printed - own[odd] - noise[odd])[1:].min() > 0.01
    np.testing.assert_allclose(ours - own[odd], noise[odd], atol=1e-12)


def test_loops_to_one_less_than_the_size_never_use_the_last_record():
    tree = PrintedTree(NINE[:8, 0].tolist(), np.random.default_rng(0), last=7)  # for t = t₀ to |S| - 1
    tree.tree_learn(1)
    assert leaf(8) not in tree.u
    with pytest.raises(KeyError):
        tree.prefix_sum(8)
    records = MemoryRecords((NINE[:8],))
    transcript, outcome = learn_with_outcome(of_the_paper(0.0), records, np.random.default_rng(0))
    assert transcript.steps == outcome.evaluations == 8
    assert transcript.sums[7] == pull(7, [transcript.path[7]], records.batch_at(7)[0][0])


def test_the_dual_averaging_listing_ignores_the_noise():
    """w_{t+1} = Π(w₀ - η p_t): a model without noise is not stable at all, whatever σ is."""

    def printed(rng):
        iterates, responses = [0.0], []
        for z in NINE[:4, 0].tolist():
            p_t = math.tanh(z - iterates[-1])
            responses.append(p_t + rng.normal(scale=100.0))
            iterates.append(0.0 - 0.6 * p_t)
        return iterates, responses

    (one, one_noise), (other, other_noise) = (printed(np.random.default_rng(seed)) for seed in (1, 2))
    assert one_noise != other_noise
    assert one == other
    plan = replace(of_the_paper(100.0), schedule=Arrival(1))
    ours = [trained(plan, NINE, seed)[1] for seed in (1, 2)]
    assert np.all(ours[0].iterates[:] != ours[1].iterates[:])
    assert np.array_equal(ours[0].iterates[:], -0.6 * ours[0].answers[:])


def test_the_federated_listing_reads_an_iterate_that_does_not_exist():
    iterates = {1: start()}  # "Initialize model w₁"
    with pytest.raises(KeyError):
        iterates[1 - 1]  # "ClientUpdate(c, w_{t-1}, P)" for t = 1
    seen = []
    query = PerRecord(lambda step, path, x: seen.append((step, len(path))) or x, size=1, bound=3.0)
    trained(Learner(Everyone(3), query, GradientDescentRule(start(), 0.1), Identity()), NINE[:1])
    assert seen == [(0, 1), (1, 2), (2, 3)]  # round t reads w_t


def printed_dual_averaging(t0, iterates, seen):
    """The listing's loop, which is Frank-Wolfe's too: "if t₀ = 1: w_{t₀} = 0", then "for t = 1 to T - 1"."""
    if t0 == 1:
        iterates[1] = 0.0
    answer = 0.0
    for t in range(1, 9):
        seen.append(t)
        answer += math.tanh(NINE[t - 1, 0] - iterates[t])
        iterates[t + 1] = -0.6 * answer


def test_the_listings_of_applications_start_over_whatever_t0_is():
    iterates, seen = {}, []
    printed_dual_averaging(1, iterates, seen)
    seen.clear()
    printed_dual_averaging(5, iterates, seen)  # "continue retraining" from leaf 5
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8]
    with pytest.raises(KeyError):
        printed_dual_averaging(5, {5: 0.3}, [])  # or, if only w₅ was loaded: there is no w₁
    steps = []
    query = PerRecord(lambda step, path, x: steps.append(step) or pull(step, path, x), size=1, bound=1.0)
    plan, records, transcript, outcome, _ = unlearned(4, [False], query=query)
    assert outcome.replayed_from == 4
    first = max(place for place, step in enumerate(steps) if step == 0) + 9  # learning has steps 0 to 8
    assert min(steps[first:]) == 4
    assert verify(plan, records, transcript).ok


@dataclass
class PrintedLinear:
    """LearnLinearQueries and its unlearning, line by line: sums over everyone, and w_{t+1} = w₁ - 0.6 Σ r."""

    data: dict[str, float]
    rng: np.random.Generator
    rounds: int = 4
    u: dict[int, float] = field(default_factory=dict)
    r: dict[int, float] = field(default_factory=dict)
    w: dict[int, float] = field(default_factory=dict)

    def after(self, t):
        return self.w[1] - 0.6 * sum(self.r[i] for i in range(1, t + 1))

    def learn(self, t0):
        self.w[1] = self.rng.normal()  # line 1: "Initialize model w₁", whatever t₀ is
        for t in range(t0, self.rounds + 1):
            self.u[t] = sum(math.tanh(z - self.w[t]) for z in self.data.values())
            self.r[t] = self.u[t] + self.rng.normal()
            self.w[t + 1] = self.after(t)

    def unlearn(self, name, rejected):
        for t in range(1, self.rounds + 1):
            u, self.u[t] = self.u[t], self.u[t] - math.tanh(self.data[name] - self.w[t])
            if t == rejected:
                self.r[t] = u + self.u[t] - self.r[t]
                self.w[t + 1] = self.after(t)
                self.learn(t + 1)
                break


def printed_linear():
    printed = PrintedLinear(dict(zip("abcde", NINE[:5, 0].tolist(), strict=True)), np.random.default_rng(1))
    printed.learn(1)
    printed.unlearn("c", rejected=2)
    return printed


def linear_unlearned():
    """The engine's deletion of a record from four rounds over everyone, where the second coin says no."""
    plan = Learner(Everyone(4), PULL, DualAveragingRule(np.array([0.7]), 0.6), Identity(), 1.0, "sequential")
    records, transcript, rng = trained(plan, NINE[:5])
    coins = mock.Mock(side_effect=[KEPT, Toss(False, 2.0)])
    with patched_everywhere("keep_or_jump", coins):
        outcome = change(plan, records, transcript, Delete([2]), rng).commit()
    assert outcome.replayed_from == 1
    return plan, records, transcript


def test_linear_learning_that_goes_on_starts_from_another_first_model():
    printed = printed_linear()
    stale = [t for t in range(1, 5) if printed.w[t + 1] != printed.after(t)]
    assert stale == [1, 2]  # w₂ and w₃ were made from a w₁ that is gone
    plan, records, transcript = linear_unlearned()
    assert transcript.path[0].item() == 0.7
    assert verify(plan, records, transcript).ok


def test_linear_unlearning_goes_on_with_the_deleted_record():
    """No line of the listing takes z_j out of S before training goes on."""
    printed = printed_linear()
    gone = printed.data.pop("c")
    for t in (3, 4):
        rest = sum(math.tanh(z - printed.w[t]) for z in printed.data.values())
        assert printed.u[t] == pytest.approx(rest + math.tanh(gone - printed.w[t]))
    _, records, transcript = linear_unlearned()
    for t in range(4):
        rest = sum(math.tanh(z.item() - transcript.path[t].item()) for z in records.batch_at(0)[0])
        assert transcript.sums[t].item() == pytest.approx(rest, abs=1e-6)
