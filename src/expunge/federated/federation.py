"""Federated averaging from which clients leave exactly, with any transport for the messages.

A federation is a pass through rounds. For each it says who must be asked for what (`Federation.tasks`), takes the
answers (`Federation.receive`), and makes the round when all are there (`Federation.advance`). A client can leave at any
time: coins are tossed for the rounds made so far, and the first that says no cuts the pass off there; it continues
without the client. No client is contacted for that. Why this has the law of training without the client, also in the
middle of a pass: docs/guarantee.md#passes-under-way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np

from expunge.base.errors import BadPlan, BadRecords, DuplicateId, Unfinished, UnknownId
from expunge.base.types import AnyArray, Array
from expunge.engine.changing import Change, advance, decide_on
from expunge.engine.learner import Transcript
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import KEY_BYTES, Randomness
from expunge.engine.transcript import ArrayRows, Rows
from expunge.engine.verifying import Verification, verify
from expunge.federated.clients import SLOTS, Client, Clients, Contributions, MemoryContributions
from expunge.solvers.plans.federated import FederatedPlan
from expunge.store.state import today

Kind = Literal["delete", "insert"]

MOST_CLIENTS = 2**22
"""How many clients' contributions can be summed exactly."""
LONGEST_NAME = 200
"""How many letters the name of a client may have."""


class Task(NamedTuple):
    """What a client is asked for: by how much it would change a model in a round."""

    client: str
    step: int
    model: Array
    path: object
    """The path of the model; an answer that comes after it was cut off is ignored."""
    slot: int
    """Which of its stays the client is asked for: one that has left and come back is another."""


class Received(NamedTuple):
    """What became of answers; for the caller only."""

    taken: int
    clipped: tuple[str, ...]
    """Whose updates were longer than the clip, and count as long as it."""
    unfit: tuple[str, ...]
    """Whose updates had NaN or infinity, and count for nothing in this round."""
    ignored: tuple[str, ...]
    """Whose answers were not asked for, or came twice or too late."""


class Pending(NamedTuple):
    """A request that was accepted, with the key of its randomness, and the day: both stay, whenever it is done."""

    kind: Kind
    names: tuple[str, ...]
    key: bytes
    day: str


class Federation:
    """The server's side of a federation, in memory; `expunge.federated.open` opens one in a file.

    ``rng`` is the only source of randomness; without it, all randomness comes from the operating system. A federation
    may be shared between threads.

    >>> from expunge.solvers.plans.federated import ArrayType, plan_federation
    >>> plan = plan_federation([ArrayType("w", (2,), "<f8")], clients=3, rounds=2, clip=1.0, rho=0.5)
    >>> federation = Federation(plan, np.zeros(2), np.random.default_rng(0))
    >>> _ = federation.join(["ann", "bob", "cy"])
    >>> while not federation.finished:
    ...     tasks = federation.tasks()
    ...     _ = federation.receive([(task, np.array([0.3, 0.1]) - task.model) for task in tasks])
    ...     _ = federation.advance()
    >>> outcome = federation.forget("bob")
    >>> federation.members
    ['ann', 'cy']
    """

    _rng: np.random.Generator | None = None
    """What keys are drawn by; without it, they come from the system."""
    _round_key: bytes | None
    """The key of a round that has begun: it is made next, with this noise. Between rounds there is none."""
    _pending: Pending | None

    def __init__(self, plan: FederatedPlan, start: Array, rng: np.random.Generator | None = None) -> None:
        start = np.array(start, dtype=float).ravel()
        if start.shape != (plan.parameters,) or not np.isfinite(start).all():
            raise BadRecords(
                f"start: expected {plan.parameters} finite numbers, one for each of the plan's parameters."
            )
        self._rng = rng
        width = plan.parameters
        sums = ArrayRows(np.zeros((0, width + 1)))
        answers = sums if plan.sigma == 0.0 else ArrayRows(np.zeros((0, width + 1)))
        self.lock = threading.RLock()
        self._take(
            plan, start, MemoryContributions(plan.rounds, width + 1), sums, answers, ArrayRows(np.zeros((0, width)))
        )
        self._round_key = self._pending = None

    def _take(
        self, plan: FederatedPlan, start: Array, held: Contributions, sums: Rows, answers: Rows, iterates: Rows
    ) -> None:
        self.plan = plan
        self.learner = plan.learner(start)
        self.clients = Clients(plan.query, self.learner.participation, held, sums)
        self.transcript = Transcript(sums, answers, iterates, start, self.clients)
        self._path: object = object()
        self._unfinished: tuple[Change, Callable[[], None]] | None = None

    # --- what there is ---

    @property
    def made(self) -> int:
        """How many rounds have been made."""
        return self.transcript.steps

    @property
    def finished(self) -> bool:
        """Whether all rounds have been made."""
        return self.made == self.plan.rounds

    @property
    def members(self) -> list[str]:
        """Who takes part."""
        return sorted(self.clients.members)

    @property
    def candidates(self) -> list[str]:
        """Who was invited and has not answered for all rounds yet."""
        return sorted(self.clients.candidates)

    @property
    def newest(self) -> Array:
        """The model after the last round that was made: what the next round begins with."""
        return np.array(self.transcript.path[-1])

    def model(self) -> Array:
        """Return the model, once all rounds have been made."""
        with self._exclusive():
            if not self.finished:
                raise Unfinished(
                    f"model: {self.made} of {self.plan.rounds} rounds have been made. Make the others first (with "
                    "Flower: start the strategy again)."
                )
            return np.array(self.transcript.model(self.learner))

    def arrays(self) -> dict[str, AnyArray]:
        """Return the model as its arrays, by name, once all rounds have been made."""
        return self.plan.arrays_of(self.model())

    def verify(self, *, tolerance: float = 0.0) -> Verification:
        """Re-derive sums and models from what is held of the members, and compare them bit for bit."""
        with self._exclusive():
            return verify(self.learner, self.clients, self.transcript, tolerance=tolerance, made=self.made)

    # --- rounds ---

    def tasks(self) -> list[Task]:
        """Return what members must still be asked before the next round can be made."""
        with self._exclusive():
            if self.finished:
                return []
            model, step = self.newest, self.made
            lacking = self.clients.missing(self.clients.members.values(), step)
            return [Task(client.name, step, model, self._path, client.slot) for client in lacking]

    def tasks_of_candidates(self) -> list[Task]:
        """Return what candidates must still be asked before they can be members: their part in all rounds made."""
        with self._exclusive():
            path, found = self.transcript.path, []
            for step in range(self.made):
                if lacking := self.clients.missing(self.clients.candidates.values(), step):
                    model = np.array(path[step])
                    found += [Task(client.name, step, model, self._path, client.slot) for client in lacking]
            return found

    def receive(self, answers: Sequence[tuple[Task, Array]]) -> Received:
        """Take what clients answer: by how much each would change the model of its task.

        It is clipped and rounded, and from then on that is what the client has contributed. NaN or infinity count for
        nothing. Of two answers the first counts.
        """
        for task, update in answers:
            if np.shape(update) != (self.plan.parameters,) or np.asarray(update).dtype.kind not in "fiu":
                raise BadRecords(
                    f"client {task.client!r} answered {np.asarray(update).dtype} of shape {np.shape(update)} in round "
                    f"{task.step}, the model has {self.plan.parameters} real numbers. No answer was accepted; fix the "
                    "client and ask again."
                )
        with self._exclusive():
            wanted: dict[int, list[tuple[Client, Array]]] = {}
            ignored, seen = [], set()
            for task, update in answers:
                client = self._who_answers(task)
                if client is None or (client, task.step) in seen:
                    ignored.append(task.client)
                else:
                    seen.add((client, task.step))
                    wanted.setdefault(task.step, []).append((client, update))
            clipped, unfit = [], []
            with self._transaction():
                for step, pairs in wanted.items():
                    fitted = self.plan.query.fit(np.array([update for _, update in pairs], dtype=float))
                    self.clients.held.write([client.slot for client, _ in pairs], step, fitted.numbers)
                    clipped += [
                        client.name for (client, _), was in zip(pairs, fitted.clipped.tolist(), strict=True) if was
                    ]
                    unfit += [client.name for (client, _), was in zip(pairs, fitted.unfit.tolist(), strict=True) if was]
            return Received(len(seen), tuple(clipped), tuple(unfit), tuple(ignored))

    def _who_answers(self, task: Task) -> Client | None:
        """Return the client whose answer to a task is still waited for."""
        if task.path is not self._path:
            return None
        client, asked = self.clients.members.get(task.client), task.step == self.made and not self.finished
        if client is None:
            client, asked = self.clients.candidates.get(task.client), 0 <= task.step < self.made
        if client is None or client.slot != task.slot or not asked:
            return None
        if not self.clients.rounds_of(client, [task.step]):
            return None
        return None if self.clients.held.has(client.slot, task.step) else client

    def advance(self) -> int:
        """Make the next round, once all members who take part in it have answered; return how many took part."""
        with self._exclusive():
            if lacking := self.tasks():
                names = ", ".join(repr(task.client) for task in lacking[:5])
                raise Unfinished(f"round {self.made} waits for {len(lacking)} clients: {names}. Ask them first.")
            if self.finished:
                raise BadPlan(f"all {self.made} rounds have been made.")
            self._begin_round(self._draw_key())
            return self._make_round()

    def _make_round(self) -> int:
        """Make a round that has begun: all answers are there, and from here on it has this noise and no other."""
        assert self._round_key is not None
        with Randomness(self._round_key) as randomness:
            change = advance(self.learner, self.clients, self.transcript, randomness)
        return self._do(change, self._end_round).evaluations

    # --- coming and leaving ---

    def invite(self, names: str | Iterable[str]) -> list[str]:
        """Let clients become candidates: they are asked what they would have contributed to the rounds made so far.

        Until they are admitted, or withdrawn (`forget`), nobody else can join or leave: were requests served when they
        are ready, their order would depend on how earlier ones went, which is a bias.
        """
        with self._exclusive():
            wanted = as_names(names)
            for name in wanted:
                if name in self.clients.members:
                    raise DuplicateId(f"client {name!r} is a member already; it must leave before it can join again.")
            self._refuse_while_joining(wanted)
            new = [name for name in wanted if name not in self.clients.candidates]
            if new and self.clients.candidates:
                raise Unfinished(f"client {new[0]!r}: others are joining; admit or withdraw (forget) them first.")
            if len(self.clients.members) + len(self.clients.candidates) + len(new) > MOST_CLIENTS:
                raise BadPlan(
                    f"clients: sums of more than {MOST_CLIENTS:,} clients are not exact; combine "
                    "several clients into one."
                )
            with Randomness(self._draw_key()) as randomness, self._transaction():
                rng = randomness.layout
                taken = {client.slot for client in self.clients.members.values()}
                for name in new:
                    while (slot := int(rng.integers(SLOTS))) in taken:
                        pass
                    taken.add(slot)
                    self._enter(Client(name, slot, int(rng.integers(2**64, dtype=np.uint64))))
            return new

    def _refuse_while_joining(self, names: Iterable[str]) -> None:
        """Raise if others than these are joining."""
        if others := sorted(set(self.clients.candidates) - set(names)):
            raise Unfinished(
                f"client {others[0]!r} is joining, and requests are served one by one. Ask it and admit it first (with "
                "Flower: join or start again), or withdraw it (forget)."
            )

    def admit(self, names: str | Iterable[str]) -> Outcome:
        """Let all candidates become members, once they have answered for all rounds made; coins are tossed for them.

        (Their names are asked for so that nobody is admitted by mistake.)
        """
        with self._exclusive():
            entering = [self._candidate(name) for name in as_names(names)]
            self._refuse_while_joining([client.name for client in entering])
            for client in entering:
                lacking = [step for step in range(self.made) if self.clients.missing([client], step)]
                if lacking:
                    raise Unfinished(
                        f"client {client.name!r} has not answered for {len(lacking)} of {self.made} rounds; ask it "
                        "(tasks_of_candidates) first."
                    )
            return self._serve("insert", [client.name for client in entering])

    def _candidate(self, name: str) -> Client:
        if name not in self.clients.candidates:
            raise UnknownId(f"client {name!r} is not a candidate; invite it first.")
        return self.clients.candidates[name]

    def join(self, names: str | Iterable[str]) -> Outcome:
        """Let clients become members before the first round."""
        with self._exclusive():
            if self.made:
                raise BadPlan(
                    f"join: {self.made} rounds have been made; invite the clients, ask them what they would have "
                    "contributed (tasks_of_candidates), and admit them."
                )
            wanted = as_names(names)
            self.invite(wanted)
            return self.admit(wanted)

    def forget(self, names: str | Iterable[str]) -> Outcome:
        """Let clients leave: the rest has the law of training without them, and all that is held of them is deleted.

        No client is contacted. Either nothing else changes, or the pass is cut off after a round and must be continued:
        then `finished` is False. The outcome depends on who left: keep it secret.
        """
        with self._exclusive():
            leaving = as_names(names)
            if not leaving:
                raise BadRecords("clients: give at least one that leaves.")
            for name in leaving:
                if name not in self.clients.members and name not in self.clients.candidates:
                    raise UnknownId(f"client {name!r} is not a member; it may have left already.")
            if not set(leaving) <= set(self.clients.candidates):
                self._refuse_while_joining(leaving)
            return self._serve("delete", leaving)

    def _serve(self, kind: Kind, names: Sequence[str]) -> Outcome:
        """Take a request: from here on it is done, with these coins and no others, whatever comes between."""
        pending = Pending(kind, tuple(names), self._draw_key(), today())
        self._record(pending)
        self._pending = pending
        return self._complete(pending)

    def _complete(self, pending: Pending) -> Outcome:
        """Toss the coins for clients that come or leave, and do what they say."""
        deletes = pending.kind == "delete"
        found = self.clients.members if deletes else self.clients.candidates
        moving = [found[name] for name in pending.names if name in found]
        edit = self.clients.leave(moving) if deletes else self.clients.enter(moving)
        with Randomness(pending.key) as randomness:
            change = decide_on(self.learner, self.clients, self.transcript, edit, randomness, pause=True)
        if change.staged is not None:
            self.clients.cut_from = change.steps

        def settle() -> None:
            if change.staged is not None:
                self._path = object()  # what clients are computing now is of no use any more
            if deletes:
                for name in pending.names:
                    self._withdraw(name)
            self._acknowledge(pending, moving)
            self._pending = None

        return self._do(change, settle)

    def _do(self, change: Change, settle: Callable[[], None]) -> Outcome:
        """Commit a change, and do what belongs to it; once that has begun it is finished, whatever comes between."""
        with self._transaction():
            self._unfinished = change, settle
            outcome = change.commit()
            settle()
            self._unfinished = None
        return outcome

    def _withdraw(self, name: str) -> None:
        client = self.clients.candidates.get(name)
        if client is not None:
            self.clients.held.erase(client.slot)
            self.clients.candidates.pop(name, None)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Let no other thread in, and begin with finishing what was interrupted, with the key drawn for it."""
        with self.lock:
            self._catch_up()
            yield

    def _catch_up(self) -> None:
        if self._unfinished is not None and self._unfinished[0].begun:
            self._do(*self._unfinished)
        self._unfinished = None
        self.clients.rollback()
        if self._round_key is not None:
            self._make_round()
        if self._pending is not None:
            self._complete(self._pending)

    # --- what a file adds ---

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make durable what is written within, all of it or nothing."""
        yield

    def _begin_round(self, key: bytes) -> None:
        """Keep the key of a round, durably, before it is used."""
        self._round_key = key

    def _end_round(self) -> None:
        """Forget the key of the round that was made."""
        self._round_key = None

    def _draw_key(self) -> bytes:
        """Return a key that nobody knows."""
        return Randomness.fresh().key if self._rng is None else self._rng.bytes(KEY_BYTES)

    def _enter(self, client: Client) -> None:
        self.clients.candidates[client.name] = client

    def _record(self, pending: Pending) -> None:
        """Make a request durable, with the key of its randomness."""

    def _acknowledge(self, pending: Pending, moved: list[Client]) -> None:
        """Note that a request was done."""


def as_names(names: str | Iterable[str]) -> list[str]:
    """Return the names of clients as a list, or say what is wrong with them."""
    if not isinstance(names, Iterable):
        raise BadRecords(f"clients: give a name, or several, not {type(names).__name__}.")
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or "\0" in name:
            raise BadRecords(f"clients: give names of 1 to {LONGEST_NAME} letters, not {str(name)[:40]!r}.")
    if len(set(found)) < len(found):
        raise DuplicateId("clients: duplicate name; give each once.")
    return found
