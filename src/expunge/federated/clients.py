"""The clients of a federation, and what each has contributed to every round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array, Batch, Mask
from expunge.engine.contributions import AT_ONCE, Participation, Query, Total, Totals
from expunge.engine.schedules import Edit, joins_each
from expunge.engine.transcript import Path, Rows
from expunge.solvers.averaging import ClientUpdate, Numbers

SLOTS = 2**40
"""How many numbers there are under which contributions can be held."""


class Client(NamedTuple):
    """One who takes part: a name that lasts, where its contributions are held, and what decides in which rounds."""

    name: str
    slot: int
    """A random number: it says nothing of who else is or was there."""
    key: int


class Contributions(Protocol):
    """What clients have contributed, by slot and round."""

    def read(self, slots: Sequence[int], step: int) -> Numbers:
        """Return what some clients have contributed to a round, one a row."""

    def history(self, slot: int, steps: Sequence[int]) -> Numbers:
        """Return what one client has contributed to some rounds, one a row."""

    def has(self, slot: int, step: int) -> bool:
        """Say whether a client has contributed to a round."""

    def write(self, slots: Sequence[int], step: int, numbers: Numbers) -> None:
        """Hold what some clients contribute to a round."""

    def erase(self, slot: int) -> None:
        """Forget all that a client has contributed."""

    def cut(self, slots: Sequence[int], first: int) -> None:
        """Forget what clients have contributed to the rounds from ``first`` on."""


class MemoryContributions:
    """Contributions in memory."""

    def __init__(self, rounds: int, size: int) -> None:
        self._rounds = rounds
        self._size = size
        self._numbers: dict[int, Numbers] = {}
        self._there: dict[int, Mask] = {}

    def read(self, slots: Sequence[int], step: int) -> Numbers:
        """Return what some clients have contributed to a round, one a row."""
        numbers = np.zeros((len(slots), self._size), dtype=np.int32)
        for row, slot in zip(numbers, slots, strict=True):
            if slot in self._numbers:
                row[:] = self._numbers[slot][step]
        return numbers

    def history(self, slot: int, steps: Sequence[int]) -> Numbers:
        """Return what one client has contributed to some rounds, one a row."""
        nothing = np.zeros((self._rounds, self._size), dtype=np.int32)
        return self._numbers.get(slot, nothing)[list(steps)]

    def has(self, slot: int, step: int) -> bool:
        """Say whether a client has contributed to a round."""
        return slot in self._there and bool(self._there[slot][step])

    def write(self, slots: Sequence[int], step: int, numbers: Numbers) -> None:
        """Hold what some clients contribute to a round."""
        for slot, row in zip(slots, numbers, strict=True):
            if slot not in self._numbers:
                self._there[slot] = np.zeros(self._rounds, dtype=bool)
                self._numbers[slot] = np.zeros((self._rounds, self._size), dtype=np.int32)
            self._numbers[slot][step] = row
            self._there[slot][step] = True

    def erase(self, slot: int) -> None:
        """Forget all that a client has contributed."""
        if slot in self._numbers:
            self._numbers[slot][...] = 0
            self._there[slot][...] = False
            del self._numbers[slot], self._there[slot]

    def cut(self, slots: Sequence[int], first: int) -> None:
        """Forget what clients have contributed to the rounds from ``first`` on."""
        for slot in slots:
            if slot in self._numbers:
                self._numbers[slot][first:] = 0
                self._there[slot][first:] = False


class Clients:
    """Members, whose contributions count, and candidates, whose contributions are still being gathered.

    To the engine members are the records (`expunge.engine.contributions.Contributors`): all at one place, and what one
    contributes to a step is what is held of it. Deleting and inserting are edits of slots.
    """

    def __init__(self, query: ClientUpdate, participation: Participation, held: Contributions, sums: Rows) -> None:
        self._query = query
        self._sums = sums
        self._participation = participation
        self.held = held
        self.members: dict[str, Client] = {}
        self.candidates: dict[str, Client] = {}
        self.staged: Edit | None = None
        self._moving: tuple[list[Client], list[Client]] = ([], [])
        """Who leaves and who enters by the staged edit."""
        self.cut_from: int | None = None
        """From which round on contributions are forgotten with the staged edit: they belong to another path."""

    @property
    def made(self) -> int:
        """How many rounds have been made."""
        return self._sums.shape[0]

    @property
    def count(self) -> int:
        """How many members there are."""
        return len(self.members)

    def takes_part(self, clients: Iterable[Client], step: int) -> list[Client]:
        """Return those who take part in a round."""
        each = list(clients)
        joined = self._participation.joined(np.array([client.key for client in each], dtype=np.uint64), step)
        return (
            each if joined is None else [client for client, is_in in zip(each, joined.tolist(), strict=True) if is_in]
        )

    def rounds_of(self, client: Client, steps: Sequence[int]) -> list[int]:
        """Return in which of some rounds a client takes part."""
        rate, finish = self._participation.rate, self._participation.finish
        if rate == 1.0 or not steps:
            return list(steps)
        key = np.array([client.key], dtype=np.uint64)
        if finish is None:
            joined = joins_each(key, list(steps), rate)[:, 0]
            return [step for step, takes_part in zip(steps, joined.tolist(), strict=True) if takes_part]
        sampled = self._participation.joined(key, -1)
        return [step for step in steps if step == finish or sampled is None or sampled.item()]

    def missing(self, clients: Iterable[Client], step: int) -> list[Client]:
        """Return those who take part in a round and have not contributed yet."""
        return [client for client in self.takes_part(clients, step) if not self.held.has(client.slot, step)]

    # --- sums ---

    def _edited(self, edit: Edit) -> tuple[list[Client], list[Client]]:
        """Return who leaves and who enters by an edit."""
        leaving, entering = set(edit.leave_slots.tolist()), set(edit.put_slots.tolist())
        return (
            [client for client in self.members.values() if client.slot in leaving],
            [client for client in self.candidates.values() if client.slot in entering],
        )

    def total(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what members have contributed to a round."""
        present = dict(self.members)
        if self.staged is not None:
            leaving, entering = self._moving
            for client in leaving:
                del present[client.name]
            present.update({client.name: client for client in entering})
        return self._sum(present.values(), step)

    def before(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what members have contributed to a round, without the staged edit."""
        return self._sum(self.members.values(), step)

    def _sum(self, clients: Iterable[Client], step: int) -> Total:
        taking, units = self.takes_part(clients, step), np.zeros(self._query.size, dtype=np.int64)
        for _, numbers in self._contributions(taking, step):
            units += numbers.sum(axis=0, dtype=np.int64)
        return Total(np.asarray(units * self._query.unit), len(taking), 0)

    def _contributions(self, clients: list[Client], step: int) -> Iterator[tuple[list[Client], Numbers]]:
        """Return what clients have contributed to a round, some clients at a time: all may not fit into memory."""
        at_once = max(1, AT_ONCE // self._query.size)
        for first in range(0, len(clients), at_once):
            some = clients[first : first + at_once]
            yield some, self.held.read([client.slot for client in some], step)

    def shifts(self, place: int, steps: list[int], path: Path, query: Query, participation: Participation) -> Totals:
        """Return by how much the staged edit changes the sums of some rounds: nobody is asked anything for it."""
        assert self.staged is not None
        leaving, entering = self._moving
        moved = np.zeros((len(steps), self._query.size), dtype=np.int64)
        for sign, clients in ((-1, leaving), (1, entering)):
            for client in clients:
                joined = self.rounds_of(client, steps)
                if joined:
                    rows = np.searchsorted(steps, joined)
                    moved[rows] += sign * self.held.history(client.slot, joined).astype(np.int64)
        nobody = np.zeros(len(steps), dtype=np.int64)
        return Totals(np.asarray(moved * self._query.unit), nobody, nobody, None)

    def shift(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Return by how much the staged edit changes the sum of a round."""
        return Total(self.shifts(place, [step], path, query, participation).sums[0], 0, 0)

    def changed(
        self, place: int, step: int, path: Path, query: Query, participation: Participation, stored: Array
    ) -> Total:
        """Return the sum of a round as the staged edit changes it."""
        shift = self.shift(place, step, path, query, participation)
        return shift._replace(sum=np.asarray(stored + shift.sum))

    # --- changes ---

    def leave(self, clients: Sequence[Client]) -> Edit:
        """Return the edit by which members leave."""
        slots = np.array([client.slot for client in clients], dtype=np.int64)
        return Edit(leave_places=np.zeros_like(slots), leave_slots=slots, removed=len(slots))

    def enter(self, clients: Sequence[Client]) -> Edit:
        """Return the edit by which candidates become members."""
        slots = np.array([client.slot for client in clients], dtype=np.int64)
        return Edit(
            put_places=np.zeros_like(slots), put_slots=slots, put_sources=np.arange(len(slots)),
            put_enters=np.ones(len(slots), dtype=bool), added=len(slots),
        )  # fmt: skip

    def stage(self, edit: Edit) -> None:
        """Hold an edit ready."""
        if self.staged is not None:
            raise BadRecords("clients: another change is under way; commit it or roll it back first.")
        self.staged, self.cut_from, self._moving = edit, None, self._edited(edit)

    def commit(self) -> None:
        """Make the staged edit final; all that is held of those who leave is deleted."""
        assert self.staged is not None
        leaving, entering = self._edited(self.staged)  # again: some may have moved already
        if self.cut_from is not None:
            self.held.cut(
                [client.slot for client in (*self.members.values(), *self.candidates.values())], self.cut_from
            )
        for client in leaving:
            self.held.erase(client.slot)
            del self.members[client.name]
        for client in entering:
            self.members[client.name] = client
            del self.candidates[client.name]
        self.staged = None

    def rollback(self) -> None:
        """Forget the staged edit."""
        self.staged = None

    # --- for those who verify ---

    def ids_at(self, place: int) -> AnyArray:
        """Return the members' names."""
        return np.array(list(self.members), dtype=str)

    def batch_at(self, place: int) -> Batch:
        """Return all that members have contributed; 0 for rounds that they did not take part in."""
        numbers = np.zeros((self.count, self.made, self._query.size), dtype=np.int32)
        for row, client in zip(numbers, self.members.values(), strict=True):
            row[:] = self._whole(client)
        return (numbers,)

    def _whole(self, client: Client) -> Numbers:
        numbers = np.zeros((self.made, self._query.size), dtype=np.int32)
        steps = self.rounds_of(client, range(self.made))
        if steps:
            numbers[steps] = self.held.history(client.slot, steps)
        return numbers

    def audit(self) -> list[str]:
        """Name members whose contributions are missing, longer than the clip or wrongly counted."""
        problems = []
        count = int(np.trunc(self._query.weight / self._query.unit))
        for step in range(self.made):
            present = self.takes_part(self.members.values(), step)
            if lacking := [client.name for client in present if not self.held.has(client.slot, step)]:
                problems.append(f"contributions: round {step} has none of {lacking[0]!r}")
                continue
            for some, numbers in self._contributions(present, step):
                lengths = np.sqrt(np.einsum("ij,ij->i", *[numbers[:, :-1].astype(float)] * 2)) * self._query.unit
                counted = np.isin(numbers[:, -1], (0, count)) & ((numbers[:, -1] > 0) | ~numbers.any(axis=1))
                for client, length, right in zip(some, lengths.tolist(), counted.tolist(), strict=True):
                    if length > self._query.clip * (1 + 1e-9) or not right:
                        problems.append(
                            f"contributions: round {step}, client {client.name!r}: above the clip or miscounted"
                        )
        return problems
