"""TreeLearn and TreeUnlearn as a program of their own: numbers instead of vectors, with the paper's errors as switches.

Without errors the state after a request has the law of fresh learning, like the engine's. With any one of them, as it
is printed, it has not. Sums and noise are multiples of a unit, so that the last digits have the same law as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from expunge.base.types import Array

UNIT = 2.0**-20
SIGMA, RATE = 1.2, 0.6
POINTS = (-1.5, -0.6, 0.3, 1.1, 2.0)
"""The records, which deletions and insertions are made of."""

ERRORS: dict[str, str] = {
    "ratio": "a response is kept with probability φ_u(r)/φ_u'(r): the ratio is inverted",
    "reflection": "Reflect(u, u', r) = u - u' + r: a translation",
    "leaf": "a rejection at a leaf stores the iterate at that leaf, and training goes on from the old one",
    "inner node": "a rejection at an inner node computes no iterate, and training goes on from the old one",
    "response": "a leaf's response is overwritten by the prefix sum, and its coin looks at that",
    "no noise": "dual averaging steps along the sums without their noise",
}
OF_INSERTION: dict[str, str] = {"newcomer": "a newcomer takes one of the existing leaves, never the new one"}
OF_STREAMS: dict[str, str] = {
    "arrival": "without permuting, the law is said to be that of training in order of arrival"
}


def lowbit(t: int) -> int:
    return t & -t


@dataclass
class Tree:
    """Records by leaf, and for every node its sum, its response, and the iterate at its leaf; all numbered from 1."""

    rng: np.random.Generator
    errors: frozenset[str] = frozenset()
    names: list[int] = field(default_factory=list)
    g: dict[int, float] = field(default_factory=dict)
    """What the record of a leaf contributes."""
    r: dict[int, float] = field(default_factory=dict)
    w: dict[int, float] = field(default_factory=lambda: {1: 0.0})

    # --- learning ---

    def sum_at(self, node: int) -> float:
        return sum(self.g[t] for t in range(node - lowbit(node) + 1, node + 1))

    def answer(self, t: int) -> float:
        """Return the noisy prefix sum: the responses of the nodes that make it up."""
        total = 0.0
        while t:
            total += self.r[t]
            t -= lowbit(t)
        return total

    def after(self, t: int) -> float:
        """Return the iterate after step t."""
        exact = sum(self.g[k] for k in range(1, t + 1))
        return -RATE * (exact if "no noise" in self.errors else self.answer(t))

    def contribution(self, name: int, t: int) -> float:
        return round(math.tanh(POINTS[name] - self.w[t]) / UNIT) * UNIT

    def learn(self, first: int) -> None:
        """Take the steps from ``first`` on."""
        for t in range(first, len(self.names) + 1):
            self.g[t] = self.contribution(self.names[t - 1], t)
            self.r[t] = self.sum_at(t) + round(SIGMA * self.rng.standard_normal() / UNIT) * UNIT
            self.w[t + 1] = self.after(t)

    # --- unlearning ---

    def forget_last(self) -> None:
        last = len(self.names)
        del self.g[last], self.r[last], self.w[last + 1]
        self.names.pop()

    def delete(self, name: int) -> None:
        """Let the record of the last leaf take the place of the one that leaves."""
        j, moved = self.names.index(name) + 1, self.names[-1]
        self.forget_last()
        if j <= len(self.names):
            self.put(j, moved)

    def insert(self, name: int) -> None:
        """Let a newcomer take a random leaf, and the record there the new one."""
        n = len(self.names)
        k = int(self.rng.integers(n if "newcomer" in self.errors else n + 1)) + 1
        if k <= n:
            displaced = self.names[k - 1]
            replayed = self.put(k, name, then=displaced)
            if replayed:
                return
            name = displaced
        self.names.append(name)
        self.learn(n + 1)

    def put(self, j: int, name: int, then: int | None = None) -> bool:
        """Put another record at leaf j: keep or replay, node by node; ``then`` is a record to append if it replays."""
        self.names[j - 1] = name
        node, steps = j, len(self.names)
        before = {b: self.sum_at(b) for b in self._path(j, steps)}
        self.g[j] = self.contribution(name, j)
        while node <= steps:
            if not self._keeps(node, before[node], self.sum_at(node), leaf=node == j):
                if then is not None:
                    self.names.append(then)
                self._go_on(node, leaf=node == j)
                return True
            node += lowbit(node)
        return False

    def _path(self, j: int, steps: int) -> list[int]:
        nodes = []
        while j <= steps:
            nodes.append(j)
            j += lowbit(j)
        return nodes

    def _keeps(self, node: int, u: float, new: float, *, leaf: bool) -> bool:
        """Toss the coin of a node; if it says no, reflect its response."""
        r = self.answer(node) if leaf and "response" in self.errors else self.r[node]
        log_ratio = ((r - u) ** 2 - (r - new) ** 2) / (2.0 * SIGMA**2)
        if "ratio" in self.errors:
            log_ratio = -log_ratio
        if self.rng.standard_exponential() >= -log_ratio:
            return True
        self.r[node] = u - new + r if "reflection" in self.errors else u + new - r
        return False

    def _go_on(self, node: int, *, leaf: bool) -> None:
        """Train from the step after a node on."""
        wrong = "leaf" if leaf else "inner node"
        if wrong not in self.errors:
            self.w[node + 1] = self.after(node)
        elif leaf:
            self.w[node] = self.after(node)
        self.learn(node + 1)

    # --- the state ---

    def state(self) -> Array:
        """Return all that is kept, as one row: places of the records by name, noise, sums, iterates."""
        steps = range(1, len(self.names) + 1)
        places = [self.names.index(name) for name in sorted(self.names)]
        noise = [self.r[t] - self.sum_at(t) for t in steps]
        return np.array([*places, *noise, *(self.g[t] for t in steps), *(self.w[t + 1] for t in steps)])


def state_names(count: int) -> list[str]:
    return [f"@place({k})" for k in range(count)] + [
        f"{table}[{t},0]" for table in ("noise", "sum", "w") for t in range(count)
    ]


def learned(names: list[int], rng: np.random.Generator, errors: frozenset[str], *, shuffled: bool = True) -> Tree:
    tree = Tree(rng, errors, names=rng.permutation(names).tolist() if shuffled else list(names))
    tree.learn(1)
    return tree


def deleted(rng: np.random.Generator, errors: frozenset[str] = frozenset()) -> Array:
    """Learn from five records and delete one."""
    tree = learned([0, 1, 2, 3, 4], rng, errors)
    tree.delete(2)
    return tree.state()


def without(rng: np.random.Generator, errors: frozenset[str] = frozenset()) -> Array:
    """Learn from the other four."""
    return learned([0, 1, 3, 4], rng, errors).state()


def entered(rng: np.random.Generator, errors: frozenset[str] = frozenset()) -> Array:
    """Learn from four records and insert another."""
    tree = learned([0, 1, 2, 3], rng, errors)
    tree.insert(4)
    return tree.state()


def with_all(rng: np.random.Generator, errors: frozenset[str] = frozenset()) -> Array:
    """Learn from all five."""
    return learned([0, 1, 2, 3, 4], rng, errors).state()


def deleted_from_stream(rng: np.random.Generator, errors: frozenset[str] = frozenset()) -> Array:
    """Learn in order of arrival, and delete one: the last record takes its place."""
    tree = learned([0, 1, 2, 3, 4], rng, errors, shuffled=False)
    tree.delete(1)
    return tree.state()


def in_order(rng: np.random.Generator, errors: frozenset[str] = frozenset()) -> Array:
    """Learn in the order that is stored then; with the error, in order of arrival."""
    order = [0, 2, 3, 4] if "arrival" in errors else [0, 4, 2, 3]
    return learned(order, rng, errors, shuffled=False).state()


STORIES = {
    "a deletion": (deleted, without, 4, ERRORS),
    "an insertion": (entered, with_all, 5, OF_INSERTION),
    "a deletion from a stream": (deleted_from_stream, in_order, 4, OF_STREAMS),
}
"""What happens, what it must be like, how many records are left, and the errors that show there."""
