"""A small engine in plain float64, written from the mathematics alone: what happens where answers lie on no grid.

It learns a linear model by noisy sums, and deletes a record by keeping or reflecting. In real numbers that is exact. In
float64 it is not: the digits of kept answers are those of the sums that they were made from. So this is the control
that every look at digits must catch, whatever the real engine does. It takes no part of that engine. With
``rounding="always"`` it is the control's twin, which must pass: sums and noise lie on a grid, and noise jumps along it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.special import expit

from expunge.base.types import Array, Ints
from expunge.engine.checks import Exactness, check_same_law

Noise = Literal["root", "tree", "identity"]
Rounding = Literal["never", "learning", "always"]
"""``learning``: sums and noise are rounded to a grid when learning, and nothing is when a record is deleted."""
FINE = 24
"""The grid lies so many binary digits below the noise."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Records, labelled -1 or 1, and how to learn from them.

    With prefix sums (``root``, ``tree``) every record has one step, drawn at random; with ``identity`` all take part
    in every step.
    """

    rows: Array
    labels: Array
    steps: int
    noise: Noise
    sigma: float
    step_size: float
    rounding: Rounding = "never"

    @property
    def prefix(self) -> bool:
        """Whether answers are noisy sums of all steps so far."""
        return self.noise != "identity"

    @property
    def unit(self) -> float:
        """The unit of the grid, where there is one."""
        return float(2.0 ** (math.floor(math.log2(self.sigma)) - FINE))

    @cached_property
    def summing(self) -> Array:
        """R: how sums of steps enter answers."""
        return np.tri(self.steps) if self.prefix else np.eye(self.steps)

    @cached_property
    def coloring(self) -> Array:
        """B: how independent noise enters answers."""
        if self.noise == "identity":
            return np.eye(self.steps)
        b = np.zeros((self.steps, self.steps))
        if self.noise == "tree":
            for row in range(1, self.steps + 1):
                node = row
                while node:
                    b[row - 1, node - 1] = 1.0
                    node -= node & -node
            return b
        root = np.cumprod(np.array([1.0, *(1.0 - 0.5 / k for k in range(1, self.steps))]))
        for row in range(self.steps):
            b[row, : row + 1] = root[row::-1]
        return b

    @cached_property
    def whitening(self) -> Array:
        """The inverse of B."""
        return np.asarray(np.linalg.inv(self.coloring), dtype=float)

    @cached_property
    def seeing(self) -> Array:
        """C = B⁻¹R: how sums show in independent noise."""
        return np.asarray(self.whitening @ self.summing)

    def total(self, people: Ints, w: Array) -> Array:
        """Return the sum of some records' gradients of the logistic loss, always in the order of their numbers."""
        x, y = self.rows[people], self.labels[people]
        total = np.asarray(x.T @ (-y * expit(-y * (x @ w))))
        return self.rounded(total) if self.rounding == "always" else total

    def rounded(self, numbers: Array, up: Array | float = 0.5) -> Array:
        """Return multiples of the unit: the nearest, or, if ``up`` is drawn evenly from 0 to 1, one or the other."""
        return np.asarray(self.unit * np.floor(numbers / self.unit + up))

    def next(self, step: int, iterates: Array, answer: Array) -> Array:
        """Return the next iterate: by dual averaging, or by gradient descent."""
        if self.prefix or step == 0:
            return -self.step_size * answer
        return np.asarray(iterates[step - 1] - self.step_size * answer)


@dataclass
class State:
    """All that is kept: who is there, each at a place (of no meaning where all take part in all steps), and tables."""

    people: Ints
    places: Ints
    sums: Array
    answers: Array
    iterates: Array

    def at(self, problem: Problem, step: int) -> Ints:
        """Return who takes part in a step."""
        return self.people[self.places == step] if problem.prefix else self.people

    def before(self, step: int) -> Array:
        """Return the iterate that a step begins with."""
        return self.iterates[step - 1] if step else np.zeros(self.iterates.shape[1])

    def noise(self, problem: Problem) -> Array:
        """Return the noise on the answers, as anyone computes it who has the state."""
        return np.asarray(self.answers - (np.cumsum(self.sums, axis=0) if problem.prefix else self.sums))


def learn(problem: Problem, people: Ints, rng: np.random.Generator) -> State:
    """Draw places and noise, and take all steps."""
    shape = problem.steps, problem.rows.shape[1]
    state = State(people, rng.integers(problem.steps, size=len(people)), *(np.zeros(shape) for _ in range(3)))
    noise = problem.coloring @ (problem.sigma * rng.standard_normal(shape))
    if problem.rounding != "never":
        noise = problem.rounded(noise, rng.random(shape))
    for step in range(problem.steps):
        total = problem.total(state.at(problem, step), state.before(step))
        state.sums[step] = problem.rounded(total) if problem.rounding == "learning" else total
        _answer(problem, state, step, noise[step])
    return state


def _answer(problem: Problem, state: State, step: int, noise: Array) -> None:
    running = state.sums[: step + 1].cumsum(axis=0)[-1] if problem.prefix else state.sums[step]
    state.answers[step] = running + noise
    state.iterates[step] = problem.next(step, state.iterates, state.answers[step])


def delete(problem: Problem, state: State, who: int, rng: np.random.Generator) -> tuple[State, bool]:
    """Delete a record, with a coin at each of its steps; return the new state, and whether nothing was replayed."""
    stays = state.people != who
    tables = state.sums.copy(), state.answers.copy(), state.iterates.copy()
    after = State(state.people[stays], state.places[stays], *tables)
    noise, sigma, kept = state.noise(problem), problem.sigma, True
    for step in range(problem.steps):
        w, column = after.before(step), problem.seeing[:, step]
        total = problem.total(after.at(problem, step), w)
        if who in state.at(problem, step):
            shift = total - (state.sums[step] if kept else problem.total(state.at(problem, step), w))
            distance = math.sqrt(shift @ shift * (column @ column)) / sigma
            along = float(column @ (problem.whitening @ noise) @ shift) / (sigma**2 * distance) if distance else 0.0
            stay = distance == 0.0 or math.log(1.0 - rng.random()) <= distance * along - 0.5 * distance**2
            move = 1.0 if stay else _move(problem, distance, along, rng)
            noise = noise - np.outer(problem.summing[:, step], move * shift)
            kept = kept and stay
            after.sums[step] = total
        if not kept:
            after.sums[step] = total
            _answer(problem, after, step, noise[step])
    return after, kept


def _move(problem: Problem, distance: float, along: float, rng: np.random.Generator) -> float:
    """Return by how many shifts noise moves that is not kept: it is reflected, or, on a grid, jumps."""
    if problem.rounding != "always":
        return 2.0 * along / distance
    mode = math.ceil(-along / distance - 0.5)
    far = math.sqrt((distance * mode + along) ** 2 + 2.0 * rng.standard_exponential())
    return -float(math.floor((far - along) / distance))


# --- two-sample tests ----------------------------------------------------------------------------------------


def numbers_of(problem: Problem, state: State) -> Array:
    """Return all that is kept, as one row of numbers."""
    noise = state.noise(problem)
    tables = [problem.whitening @ noise, noise, state.sums, state.answers, state.iterates]
    return np.concatenate([state.places * problem.prefix, *(table.ravel() for table in tables)], dtype=float)


def names_of(problem: Problem, people: Ints) -> list[str]:
    """Return a name for each of `numbers_of`."""
    names = [f"@place({one})" for one in people.tolist()]
    for table in ("noise", "#N", "sum", "answer", "w"):
        names += [f"{table}[{step},{j}]" for step in range(problem.steps) for j in range(problem.rows.shape[1])]
    return names


def check(problem: Problem, who: int, runs: int, seed: int) -> Exactness:
    """Compare the state after a deletion with that of learning without the record, by values and by digits."""
    everyone = np.arange(len(problem.rows))
    left = everyone[everyone != who]

    def deleted(rng: np.random.Generator) -> Array:
        return numbers_of(problem, delete(problem, learn(problem, everyone, rng), who, rng)[0])

    def fresh(rng: np.random.Generator) -> Array:
        return numbers_of(problem, learn(problem, left, rng))

    return check_same_law(deleted, fresh, names_of(problem, left), runs=runs, seed=seed)


def dense_problem(noise: Noise, rounding: Rounding = "never") -> Problem:
    """Return a problem of six records with two numbers each."""
    rows = np.random.default_rng(7).normal(size=(6, 2))
    labels = np.array([1.0, -1.0, -1.0, 1.0, -1.0, 1.0])
    return Problem(rows, labels, 3, noise, 1.5, 0.6, rounding)


def sparse_problem(noise: Noise, rounding: Rounding = "never") -> Problem:
    """Return a problem of six records of which the third alone has the last two numbers."""
    dense = dense_problem(noise)
    rows = np.column_stack([dense.rows, np.zeros((6, 2))])
    rows[2] = 0.4, -0.9, 0.8, -1.1
    return Problem(rows, dense.labels, 3, noise, 1.5, 0.6, rounding)
