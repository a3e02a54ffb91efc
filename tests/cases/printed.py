"""What the tests of the paper's errors share: small problems, the tree of its figure, and its two listings.

The printed version of a claim is a few lines, or is patched into the real engine. Where possible its failure is a
counterexample or an exact computation. Two-sample tests have a fixed seed; they must give p < `FAILS` for what is
printed and p > `PASSES` for what the library does. docs/paper.md lists all errors.
"""

import math
from dataclasses import dataclass, field
from unittest import mock

import numpy as np

from cases.patching import patched_everywhere
from expunge import BinaryTree, Delete, DualAveragingRule, Learner, MemoryRecords, PerRecord, Shuffled, change, learn
from expunge.engine.couplings.common import KEPT, Toss, keeps
from expunge.engine.mechanisms.binary_tree import lowbit

FAILS, PASSES = 1e-6, 1e-3


def start(size=1):
    return np.zeros(size)


def pull(step, path, x):
    """What a record contributes in the small problems: it depends on the path, and its norm is at most 1."""
    return np.tanh(x - path[-1])


PULL = PerRecord(pull, size=1, bound=1.0)
NINE = np.linspace(-2.0, 2.5, 9)[:, None]


def of_the_paper(sigma, query=PULL, rule=None):
    """Return the paper's learner of prefix sums, corrected."""
    rule = rule or DualAveragingRule(start(), 0.6)
    return Learner(Shuffled(1), query, rule, BinaryTree(), sigma, "sequential")


def trained(plan, data, seed=0):
    records, rng = MemoryRecords((data,)), np.random.default_rng(seed)
    return records, learn(plan, records, rng), rng


def printed_ratio(shift, projection, coins):
    """Lines 12 and 4: accept on φ_u(r)/φ_u'(r)."""
    kept = keeps(shift, shift - projection, coins)
    return KEPT if kept else Toss(False, float(round(2.0 * projection / shift)))


def printed_reflect(shift, projection, coins):
    """Reflect(u, u', r) = u - u' + r: the noise about u' is that about u, moved by the shift twice."""
    return KEPT if keeps(shift, projection, coins) else Toss(False, 2.0)


def leaf(t, depth=3):
    return format(t - 1, f"0{depth}b")


def end(node, depth=3):
    """The time at which a node is complete: the number of its last leaf."""
    return int(node.ljust(depth, "1"), 2) + 1


def path_to_root(node):
    return [node[:length] for length in range(len(node), -1, -1)]


def has_noise(node):
    return not node.endswith("1")  # the left children, and the root


@dataclass
class PrintedTree:
    """Both listings, line by line, on the tree of the figure with eight leaves and scalar responses."""

    data: list[float]
    rng: np.random.Generator
    last: int = 8
    u: dict[str, float] = field(default_factory=dict)
    r: dict[str, float] = field(default_factory=dict)
    w: dict[str, float] = field(default_factory=dict)
    z: dict[str, float] = field(default_factory=dict)

    def __post_init__(self):
        self.z = {leaf(t): z for t, z in enumerate(self.data, 1)}
        self.w[leaf(1)] = 0.0

    def prefix_sum(self, t):
        return sum(self.r[leaf(k)[: 3 - lowbit(k).bit_length() + 1]] for k in self.dyadic(t))

    def dyadic(self, t):
        while t:
            yield t
            t -= lowbit(t)

    def tree_learn(self, t0):
        w = self.w[leaf(t0)]
        for t in range(t0, self.last + 1):
            self.u[leaf(t)] = math.tanh(self.z[leaf(t)] - w)
            for b in path_to_root(leaf(t)):
                self.u[b] = sum(self.u[leaf(k)] for k in range(1, t + 1) if leaf(k).startswith(b))
                if end(b) == t and has_noise(b):
                    self.r[b] = self.u[b] + self.rng.normal()
            self.w[leaf(t)] = w
            w = -0.6 * self.prefix_sum(t)

    def tree_unlearn(self, j, rejected=None):
        """Lines 1 to 28, with the coin's outcome given; the count of line 26 is mended."""
        s, last = leaf(j), leaf(self.last)
        g, g_new = (math.tanh(z - self.w[s]) for z in (self.z[s], self.z[last]))
        for b in path_to_root(last):
            self.u[b] -= g_new
        self.last -= 1
        for b in path_to_root(s):
            u, self.u[b] = self.u[b], self.u[b] - g + g_new
            if b == s:
                self.z[s] = self.z[last]
            if b == rejected:
                self.r[b] = u + self.u[b] - self.r[b]
                if b == s:
                    self.w[s] = -0.6 * self.prefix_sum(j)
                self.tree_learn(end(b) + 1)
                break

    def stale(self):
        """The leaves whose iterate does not follow from the noisy prefix sum before it."""
        after = [(t + 1, -0.6 * self.prefix_sum(t)) for t in range(1, self.last)]
        return [t for t, w in [(1, 0.0), *after] if self.w[leaf(t)] != w]


def printed_tree():
    tree = PrintedTree(NINE[:8, 0].tolist(), np.random.default_rng(0))
    tree.tree_learn(1)
    return tree


def unlearned(step, coins, sigma=1.0, query=PULL):
    """The engine, made to delete the record of a step with coins that fall as told."""
    plan = of_the_paper(sigma, query)
    records, transcript, rng = trained(plan, NINE)
    forced = mock.Mock(side_effect=[KEPT if kept else Toss(False, 2.0) for kept in coins])
    with patched_everywhere("keep_or_jump", forced):
        outcome = change(plan, records, transcript, Delete(records.ids_at(step)), rng).commit()
    return plan, records, transcript, outcome, forced.call_count
