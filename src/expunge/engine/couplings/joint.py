"""The joint coupling: at every touched step one coin, which looks at all rows from there on.

One step replays as seldom as any coupling can. Not in the paper: Ullah & Arora (2023) decide row by row (`sequential`),
which with a tree of L levels replays about √L times as often. Proof: docs/guarantee.md#joint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from expunge.base.grid import LOST
from expunge.base.types import Array, Ints
from expunge.engine.couplings.common import KEPT, OldPass, Toss, Verdict, keep_or_jump, replay_probability
from expunge.engine.mechanisms.protocol import Mechanism, Tables


class _Coins:
    """The coins of the joint coupling: each looks at all rows from its step to the horizon."""

    def __init__(self, old: OldPass) -> None:
        self.old = old
        self.many = len(old.touched) > 1 and old.mechanism.prefix
        self.sight: _Tabled | _Whitened | None = None
        if not self.many:
            return
        self.noise = old.noise(old.horizon)
        tables = old.mechanism.tables(old.horizon)
        if tables is not None:
            self.sight = _Tabled(tables, self.noise, len(old.touched))
        elif isinstance(old.mechanism.column(0, old.horizon).rows, slice):
            self.sight = _Whitened(old.mechanism, self.noise)
        else:
            self.xi = old.mechanism.whiten(self.noise)
        self.waiting = old.touched
        self.group: _Group | None = None

    def toss(self, step: int, shift: Array) -> tuple[Toss, float]:
        """Decide about one step; return the toss, and how likely it was to say replay."""
        old, sigma = self.old, self.old.sigma
        if not self.many:
            return self._toss_alone(step, shift)
        if self.sight is not None:
            group = self._group(self.sight)
            norm = group.norms[group.made]
        else:
            column = old.mechanism.column(step, old.horizon)
            norm = column.norm
        distance = math.sqrt(shift.dot(shift)) * norm / sigma
        toss = KEPT
        if distance > 0.0:
            if self.sight is not None:
                along = float(group.seen().dot(shift))
            else:
                along = float(column.probe @ self.xi[column.rows] @ shift)
            toss = keep_or_jump(distance, along / (sigma**2 * distance), old.coins)
        if self.sight is not None:
            group.move(toss.moved(shift))
        else:
            self.xi[column.rows] -= column.weights[:, None] * toss.moved(shift)
        return toss, replay_probability(distance)

    def _toss_alone(self, step: int, shift: Array) -> tuple[Toss, float]:
        """Decide about the only step that is touched, or one that no other row sees: its coin looks at stored noise.

        What it sees is Σ_t C[t,τ] ⟨ξ_t, δ⟩ / scale_t².
        """
        old, horizon = self.old, self.old.horizon
        distance = math.sqrt(shift.dot(shift)) * old.mechanism.column(step, horizon).norm / old.sigma
        if distance == 0.0:
            return KEPT, replay_probability(distance)
        if old.mechanism.prefix:
            pull = old.mechanism.pull(step, horizon)
            sums, answers = old.sums[:horizon], old.answers[:horizon]
            running = (old.grid.met(sums) @ shift).cumsum()
            exact = old.lost(shift, running) <= LOST
            along = float(pull @ (answers @ shift - running if exact else old.noise(horizon) @ shift))
        else:
            along = float((old.answers[step] - old.grid.met(old.sums[step])) @ shift)
        toss = keep_or_jump(distance, along / (old.sigma**2 * distance), old.coins)
        return toss, replay_probability(distance)

    def _group(self, sight: _Tabled | _Whitened) -> _Group:
        """Return the group of the next touched step."""
        if self.group is None or self.group.made == len(self.group.moves):
            if self.group is not None:
                sight.take(self.group)
            steps, self.waiting = self.waiting[: _Group.SIZE], self.waiting[_Group.SIZE :]
            self.group = sight.look(np.array(steps))
        return self.group


class _Group:
    """Some touched steps in a row, for which what their coins see is worked out at once."""

    SIZE = 64

    def __init__(self, steps: Ints, views: Array, overlaps: Array, norms: list[float]) -> None:
        self.steps = steps
        self.views = views
        """What each coin sees, Σ_t C[t,τ] ξ_t, but for the moves of the group's steps before it."""
        self.overlaps = overlaps
        self.norms = norms
        self.moves = np.zeros_like(views)
        self.made = 0

    def seen(self) -> Array:
        made = self.made
        return np.asarray(self.views[made] - self.overlaps[made, :made].dot(self.moves[:made]))

    def move(self, move: Array) -> None:
        self.moves[self.made] = move
        self.made += 1


class _Tabled:
    """What coins see, by tables: nothing is worked out that no coin looks at."""

    def __init__(self, tables: Tables, noise: Array, touched: int) -> None:
        self.tables = tables
        self.horizon = len(noise)
        self.backwards = np.ascontiguousarray(noise[::-1])
        self.steps = np.zeros(touched, dtype=np.int64)
        self.moves = np.zeros((touched, noise.shape[1]))
        self.made = 0

    def look(self, steps: Ints) -> _Group:
        tables, horizon, made = self.tables, self.horizon, self.made
        views = tables.pulls(steps, horizon) @ self.backwards
        if made:
            views -= tables.overlaps(steps, self.steps[:made], horizon) @ self.moves[:made]
        norms = tables.column_norms(horizon)[steps].tolist()
        return _Group(steps, views, tables.overlaps(steps, steps, horizon), norms)

    def take(self, group: _Group) -> None:
        part = slice(self.made, self.made + len(group.steps))
        self.steps[part], self.moves[part] = group.steps, group.moves
        self.made = part.stop


class _Whitened:
    """What coins see, where there are too many steps for tables: ξ is worked out, and moved after each group."""

    def __init__(self, mechanism: Mechanism, noise: Array) -> None:
        self.mechanism = mechanism
        self.xi = mechanism.whiten(noise)
        self.columns = np.zeros((0, 0))

    def look(self, steps: Ints) -> _Group:
        first, horizon = steps.item(0), len(self.xi)
        columns = [self.mechanism.column(step, horizon) for step in steps.tolist()]
        self.columns = np.zeros((len(steps), horizon - first))
        for row, step, column in zip(self.columns, steps.tolist(), columns, strict=True):
            row[step - first :] = column.weights
        norms = [column.norm for column in columns]
        return _Group(steps, self.columns @ self.xi[first:], self.columns @ self.columns.T, norms)

    def take(self, group: _Group) -> None:
        self.xi[group.steps.item(0) :] -= self.columns.T @ group.moves


def joint(old: OldPass) -> Verdict:
    """Keep the whole remaining path, or let all of it jump: a coin at every touched step. (docs/guarantee.md#joint)"""
    verdict = Verdict()
    coins = _Coins(old)
    moved: Array | None = None  # how far the noise has moved on the rows from here on
    for position, step in enumerate(old.touched):
        new, shift = old.changed(step)
        toss, probability = coins.toss(step, shift)
        verdict.probabilities.append(probability)
        move = toss.moved(shift)
        moved = move if moved is None or not old.mechanism.prefix else moved + move
        if not toss.kept:
            later = old.touched[position + 1 :]
            noise = coins.noise if coins.many else old.noise(old.horizon)
            return verdict.replay(step, _JointNoise(coins, noise, moved, step, frozenset(later)), new)
        verdict.sums[step] = new
    return verdict


@dataclass
class _JointNoise:
    """The noise of a joint replay: coins go on at every later touched step, along the new path."""

    coins: _Coins
    noise: Array
    moved: Array
    first: int
    later: frozenset[int]

    def wants_shift(self, step: int) -> bool:
        return step in self.later

    def row(self, step: int, shift: Array | None) -> Array:
        prefix = self.coins.old.mechanism.prefix
        if shift is not None:
            move = self.coins.toss(step, shift)[0].moved(shift)
            self.moved = self.moved + move if prefix else move
        elif not prefix and step > self.first:
            return self.noise[step]
        return self.noise[step] - self.moved
