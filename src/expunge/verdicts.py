"""What reconciling a stored path with changed records works on, and what it says in the end."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import numpy as np

from expunge.forward import Ask, NoiseSource, Reply
from expunge.mechanisms import Mechanism
from expunge.randomness import SecretStream
from expunge.records import Total, Totals
from expunge.rows import Path, Rows
from expunge.types import Array


@dataclass(frozen=True)
class Setting:
    """What a reconciliation works on: the stored rows, before the change."""

    mechanism: Mechanism
    sigma: float
    bound: float
    start: Array
    sums: Rows
    answers: Rows
    iterates: Rows
    touched: list[int]
    """The steps whose records change, ascending, below the horizon."""
    horizon: int
    """Coins look at rows below this one only."""
    exact_sums: bool
    """Whether sums lie on a grid, so that a kept sum can be changed by adding."""
    coins: SecretStream
    draws: SecretStream
    """For noise that a replay draws anew."""

    def path_to(self, step: int) -> Path:
        """Return the stored iterates that step ``step`` could see."""
        return Path(self.start, self.iterates, step)

    def noise(self, stop: int) -> Array:
        """Return the stored noise N = a - R P, rows below ``stop``."""
        return self.since(-1, stop)[0]

    def since(self, base: int, stop: int, changed: Mapping[int, Array] | None = None) -> tuple[Array, Array]:
        """Return the noise of the rows from ``base`` on, less that of row ``base``, and the sum of all below ``stop``.

        The sum is counted from the answer of row ``base``, so that nothing before it is read; without noise it is then
        the same to the last bit. A ``base`` of -1 is where all starts: noise and sum themselves. ``changed`` are sums
        that are to take the place of the stored ones.
        """
        first = max(base, 0)
        sums = self.sums[first:stop].copy()
        for step, row in (changed or {}).items():
            if first <= step < stop:
                sums[step - first] = row
        answers = self.answers[first:stop]
        if not self.mechanism.prefix:
            return answers - sums, np.zeros(sums.shape[1])
        if base >= 0:
            sums[0] = answers[0]
        running = np.cumsum(sums, axis=0, out=sums)
        return answers - running, running[-1].copy() if len(running) else np.zeros(sums.shape[1])

    def ask(self, step: int) -> Ask:
        """Ask for what the edit changes of a step along the stored path, and (if it must be) the new sum."""
        return Ask(step, self.path_to(step), not self.exact_sums, True)

    def only_adds(self, step: int) -> bool:
        """Say whether, without noise, all that a change from this step on takes is to add to its sum."""
        return self.sigma == 0.0 and self.exact_sums and step == self.horizon - 1


@dataclass
class Verdict:
    """Which sums change while the path is kept, and from where on (and with which noise) it is replayed."""

    sums: dict[int, Array] = field(default_factory=dict)
    first: int | None = None
    noise: NoiseSource | None = None
    probabilities: list[float] = field(default_factory=list)
    known: Array | None = None
    """The new sum of the first replayed row, where it is known: its path is the old one, and sums lie on a grid."""

    def keep(self, setting: Setting, step: int, reply: Reply) -> None:
        """Take over the new sum of a step."""
        assert reply.shift is not None
        if reply.total is not None:
            self.sums[step] = reply.total.sum
        else:
            self.sums[step] = setting.sums[step] + reply.shift.sum

    def replay(self, setting: Setting, step: int, shift: Array | None, noise: NoiseSource) -> Verdict:
        """Say that rows are replayed from a step on, whose sum changes by ``shift``."""
        self.first, self.noise = step, noise
        if setting.exact_sums and shift is not None:
            self.known = setting.sums[step] + shift
        return self


Reconciliation = Generator[Ask, Reply, Verdict]


def changes(setting: Setting, verdict: Verdict | None = None) -> Generator[Ask, Reply, Totals]:
    """Ask what the edit changes of every touched step along the stored path; a verdict takes over the new sums."""
    touched = setting.touched
    if setting.exact_sums:
        reply = yield Ask(touched[0], setting.path_to(setting.horizon), False, False, touched)
        assert reply.shifts is not None
        if verdict is not None:
            verdict.sums = dict(zip(touched, setting.sums[touched] + reply.shifts.sums, strict=True))
        return reply.shifts
    each: list[Total] = []
    for step in touched:
        reply = yield Ask(step, setting.path_to(step), verdict is not None, True)
        assert reply.shift is not None
        if verdict is not None:
            verdict.keep(setting, step, reply)
        each.append(reply.shift)
    return Totals.of(each)
