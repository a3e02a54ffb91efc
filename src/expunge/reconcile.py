"""Reconciling a stored path with changed records: keep it, or say from where, and with which noise, to replay it.

There is one reconciliation for each coupling, a generator like `expunge.forward.forward`. They walk along the
stored path, ask what the edit changes, and toss the coins. Proofs: docs/guarantee.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from expunge.coupling import KEPT, Decision, keep_or_jump, replay_probability
from expunge.forward import Ask, GivenNoise, NoiseSource, NoNoise, Reply, SameNoise
from expunge.grid import LOST, dithered
from expunge.independent import adaptive, allowances, row_by_row
from expunge.mechanisms import TABLE_LIMIT, Mechanism, SquareRoot
from expunge.records import Total, Totals
from expunge.types import Array, Ints
from expunge.verdicts import Reconciliation, Setting, Verdict


def noiseless(setting: Setting) -> Reconciliation:
    """σ = 0: replay from the first step whose sum changes; no coins. (docs/guarantee.md#no-noise)

    If that is the last step, and its new sum is known, there is nothing to replay: no other record is looked at.
    """
    verdict = Verdict()
    for step in setting.touched:
        new = setting.new_sum(step, (yield setting.ask(step)))
        if not np.array_equal(new, setting.sums[step]):
            verdict.probabilities.append(0.0 if setting.only_adds(step) else 1.0)
            return verdict.replay(step, NoNoise(), new)
        verdict.sums[step] = new
    return verdict


class _Coins:
    """The coins of the joint coupling: each looks at all rows from its step to the horizon."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.many = len(setting.touched) > 1 and setting.mechanism.prefix
        self.sight: _Tabled | _Whitened | None = None
        if not self.many:
            return
        self.noise = setting.noise(setting.horizon)
        if isinstance(setting.mechanism, SquareRoot) and setting.horizon <= TABLE_LIMIT:
            self.sight = _Tabled(setting.mechanism, self.noise, len(setting.touched))
        elif isinstance(setting.mechanism.column(0, setting.horizon).rows, slice):
            self.sight = _Whitened(setting.mechanism, self.noise)
        else:
            self.xi = setting.mechanism.whiten(self.noise)
        self.waiting = setting.touched
        self.group: _Group | None = None

    def toss(self, step: int, shift: Array) -> tuple[Decision, float]:
        """Decide about one step; return the decision and the probability that it would be a replay."""
        setting = self.setting
        if self.sight is not None:
            group = self._group(self.sight)
            norm = group.norms[group.made]
        else:
            column = setting.mechanism.column(step, setting.horizon)
            norm = column.norm
        distance = math.sqrt(shift.dot(shift)) * norm / setting.sigma
        decision = KEPT
        if distance > 0.0:
            if self.sight is not None:
                along = float(group.seen().dot(shift))
            elif self.many:
                along = float(column.probe @ self.xi[column.rows] @ shift)
            else:
                along = self._along(step, shift)
            decision = keep_or_jump(distance, along / (setting.sigma**2 * distance), setting.coins)
        if self.sight is not None:
            group.move(decision.moved(shift))
        elif self.many:
            self.xi[column.rows] -= column.weights[:, None] * decision.moved(shift)
        return decision, replay_probability(distance)

    def _along(self, step: int, shift: Array) -> float:
        """Return Σ_t C[t,τ] ⟨ξ_t, δ⟩ / scale_t² for the stored noise."""
        setting = self.setting
        if not setting.mechanism.prefix:
            return float((setting.answers[step] - setting.grid.met(setting.sums[step])) @ shift)
        pull = setting.mechanism.pull(step, setting.horizon)
        running = (setting.grid.met(setting.sums[: setting.horizon]) @ shift).cumsum()
        if setting.lost(shift, running) > LOST:
            return float(pull @ (setting.noise(setting.horizon) @ shift))
        return float(pull @ (setting.answers[: setting.horizon] @ shift - running))

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
    """What coins see, by tables of the square root: nothing is worked out that no coin looks at."""

    def __init__(self, mechanism: SquareRoot, noise: Array, touched: int) -> None:
        self.mechanism = mechanism
        self.horizon = len(noise)
        self.backwards = np.ascontiguousarray(noise[::-1])
        self.steps = np.zeros(touched, dtype=np.int64)
        self.moves = np.zeros((touched, noise.shape[1]))
        self.made = 0

    def look(self, steps: Ints) -> _Group:
        mechanism, horizon, made = self.mechanism, self.horizon, self.made
        views = mechanism.pulls(steps, horizon) @ self.backwards
        if made:
            views -= mechanism.overlaps(steps, self.steps[:made], horizon) @ self.moves[:made]
        norms = mechanism.column_norms(horizon)[steps].tolist()
        return _Group(steps, views, mechanism.overlaps(steps, steps, horizon), norms)

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


def joint(setting: Setting) -> Reconciliation:
    """Keep the whole remaining path, or let all of it jump: a coin at every touched step. (docs/guarantee.md#joint)"""
    verdict = Verdict()
    coins = _Coins(setting)
    moved: Array | None = None  # how far the noise has moved on the rows from here on
    for position, step in enumerate(setting.touched):
        new = setting.new_sum(step, (yield setting.ask(step)))
        shift = setting.shift(step, new)
        decision, probability = coins.toss(step, shift)
        verdict.probabilities.append(probability)
        move = decision.moved(shift)
        moved = move if moved is None or not setting.mechanism.prefix else moved + move
        if not decision.kept:
            later = setting.touched[position + 1 :]
            noise = coins.noise if coins.many else setting.noise(setting.horizon)
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
        prefix = self.coins.setting.mechanism.prefix
        if shift is not None:
            move = self.coins.toss(step, shift)[0].moved(shift)
            self.moved = self.moved + move if prefix else move
        elif not prefix and step > self.first:
            return self.noise[step]
        return self.noise[step] - self.moved


def sequential(setting: Setting) -> Reconciliation:
    """Keep or jump row by row; after the first jump no more coins. (docs/guarantee.md#sequential)"""
    if not setting.mechanism.prefix:
        return (yield from row_by_row(setting))
    verdict = Verdict()
    mechanism, horizon = setting.mechanism, setting.horizon
    seen_by: dict[int, list[int]] = {}  # row -> the touched steps that it sees
    for step in setting.touched:
        rows = mechanism.column(step, horizon).rows
        for row in range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist():
            seen_by.setdefault(row, []).append(step)
    noise = setting.noise(horizon)
    scales = mechanism.scales(horizon)
    shifts: dict[int, Array] = {}
    moves = np.zeros_like(noise)
    for row in sorted(seen_by):
        new = None
        if row in seen_by[row]:
            new = setting.new_sum(row, (yield setting.ask(row)))
            shifts[row] = setting.shift(row, new)
        shift = sum((shifts[step] for step in seen_by[row]), np.zeros(noise.shape[1]))
        length, scale = math.sqrt(shift @ shift), setting.sigma * scales.item(row)
        decision = KEPT
        if length > 0.0:
            xi = noise[row] - mechanism.carry(noise, row)
            decision = keep_or_jump(length / scale, float(xi @ shift) / (scale * length), setting.coins)
        verdict.probabilities.append(replay_probability(length / scale))
        moves[row] = decision.move * shift
        if not decision.kept:
            return verdict.replay(row, GivenNoise(noise - mechanism.color(moves)), new)
        if new is not None:
            verdict.sums[row] = new
    return verdict


def _parts(setting: Setting) -> Generator[Ask, Reply, Totals]:
    """Ask what enters and leaves every touched step, and look at no other record."""
    touched = setting.touched
    if setting.grid.exact:
        reply = yield Ask(touched[0], setting.path_to(setting.horizon), steps=touched)
        assert reply.shifts is not None
        return reply.shifts
    each: list[Total] = []
    for step in touched:
        reply = yield Ask(step, setting.path_to(step), shift=True)
        assert reply.shift is not None
        each.append(reply.shift)
    return Totals.of(each)


def expectation(setting: Setting, coupling: str) -> Generator[Ask, Reply, float]:
    """Return how likely a replay is, over all noise: exact if one step is touched, else an upper bound."""
    mechanism = setting.mechanism
    if not setting.touched:
        return 0.0
    found = yield from _parts(setting)
    shifts = dict(zip(setting.touched, found.sums, strict=True))
    if setting.sigma == 0.0:
        return float(any(shift.any() for step, shift in shifts.items() if not setting.only_adds(step)))
    if coupling == "adaptive":
        return replay_probability(math.sqrt(allowances(setting, found).sum()))
    distances: list[float] = []
    if coupling == "sequential":
        seen: dict[int, Array] = {}
        for step, shift in shifts.items():
            column = mechanism.column(step, setting.horizon)
            rows = range(setting.horizon)[column.rows] if isinstance(column.rows, slice) else column.rows.tolist()
            for row, weight in zip(rows, column.weights.tolist(), strict=True):
                seen[row] = seen.get(row, 0.0) + weight * shift
        scales = mechanism.scales(setting.horizon)
        distances = [math.sqrt(shift @ shift) / (setting.sigma * scales.item(row)) for row, shift in seen.items()]
        return 1.0 - math.prod(1.0 - replay_probability(distance) for distance in distances)
    for step, shift in shifts.items():
        distances.append(math.sqrt(shift @ shift) * mechanism.column(step, setting.horizon).norm / setting.sigma)
    return min(1.0, sum(replay_probability(distance) for distance in distances))


@dataclass
class Tail:
    """Noise of an ordered schedule: row ``horizon`` stays as it is, or keeps its ξ; other rows get fresh ones.

    (docs/guarantee.md#ordered-schedules)
    """

    setting: Setting
    inner: NoiseSource | None
    first: int
    history: Array
    """The new noise from row ``first`` on; rows below the first recomputed one are filled in."""
    xi_at_horizon: Array | None
    """The ξ of row ``horizon``, where it is on the grid."""
    row_at_horizon: Array | None
    """The noise of that row, where that of the rows before it is what it was."""

    def wants_shift(self, step: int) -> bool:
        """Ask the source of the earlier rows."""
        return self.inner is not None and step < self.setting.horizon and self.inner.wants_shift(step)

    def row(self, step: int, shift: Array | None) -> Array:
        """Return the row, and remember it for the rows that continue it."""
        setting, row = self.setting, step - self.first
        if step < setting.horizon:
            assert self.inner is not None
            self.history[row] = self.inner.row(step, shift)
        elif setting.sigma == 0.0:
            self.history[row] = 0.0
        else:
            self.history[row] = self._at_horizon() if step == setting.horizon else self._fresh(step)
        return self.history[row]

    def _at_horizon(self) -> Array:
        if self.row_at_horizon is not None:
            return self.row_at_horizon
        step = self.setting.horizon
        if self.xi_at_horizon is None:
            return self._fresh(step)
        return self.setting.mechanism.carry(self.history, step, self.first) + self.xi_at_horizon

    def _fresh(self, step: int) -> Array:
        setting = self.setting
        scale = setting.sigma * setting.mechanism.scale_of(step)
        xi = scale * setting.draws.standard_normal(self.history.shape[1])
        carry = setting.mechanism.carry(self.history, step, self.first)
        return dithered(carry + xi, setting.grid.unit, setting.draws)


def with_tail(setting: Setting, verdict: Verdict, before: int, after: int) -> Array:
    """Let the rows from the horizon on be recomputed, whatever was decided about the earlier ones.

    Return the sum up to the first recomputed row. If the earlier ones are kept, only rows that the new ones continue
    are read: an append to a tree costs the same however long it is.
    """
    horizon, mechanism = setting.horizon, setting.mechanism
    one_row = verdict.first is None and setting.sigma > 0.0 and after == horizon + 1 <= before
    if one_row and (mechanism.whole or not verdict.sums):
        return _with_last_row(setting, verdict)
    base = -1
    if verdict.first is None:
        base = horizon - 1 if setting.sigma == 0.0 else min([horizon - 1, *map(mechanism.reach, range(horizon, after))])
    xi = row = None
    if setting.sigma > 0.0 and horizon < min(before, after):
        old = setting.since(base, horizon + 1)[0]
        if verdict.first is None and not verdict.sums:
            row = old[-1]
        elif mechanism.whole:
            xi = old[-1] - mechanism.carry(old, horizon, max(base, 0))
    verdict.first = horizon if verdict.first is None else verdict.first
    known, running = setting.since(base, verdict.first, verdict.sums)
    first = max(base, 0)
    history = np.zeros((after - first, setting.sums.shape[1]))
    history[: len(known)] = known
    verdict.noise = Tail(setting, verdict.noise, first, history, xi, row)
    return running


def _with_last_row(setting: Setting, verdict: Verdict) -> Array:
    """Recompute the row at the horizon alone: answers before it stay, so it moves by what it sees of changed sums."""
    step = setting.horizon
    rest = setting.answers[step] - setting.grid.met(setting.sums[step])
    for touched, row in verdict.sums.items():
        weight = setting.mechanism.weight(step, touched)
        if weight != 0.0:
            rest = rest + weight * setting.shift(touched, row)
    verdict.first, verdict.noise = step, SameNoise(rest)
    return np.zeros_like(rest)


RECONCILIATIONS: dict[str, Callable[[Setting], Reconciliation]] = {
    "joint": joint,
    "sequential": sequential,
    "adaptive": adaptive,
}
