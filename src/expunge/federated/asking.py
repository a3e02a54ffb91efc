"""Asking the clients of a federation by Flower's messages, until all that is needed has been answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from logging import INFO, WARNING
from typing import NamedTuple, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid

from expunge.base.errors import BadRecords, DuplicateId, Unfinished
from expunge.base.types import Array
from expunge.federated.federation import Federation, Received, Task
from expunge.federated.messages import Mail, Roll, answers_to, arrays_in, as_record, message_to

ROLL_CALL = 60.0
"""How many seconds nodes have to say who they are."""
AGAIN, LONGEST_AGAIN = 1.0, 10.0
"""How many seconds to wait before those who did not answer are asked again: at first, and at most."""

FIRST_WORD = 20.0
"""After how many seconds the log says what is waited for; then after twice as many, and so on."""

T = TypeVar("T")
Lacking = Callable[[], list[Task]]


class Asked(NamedTuple):
    """What a client is asked for, and the model as it is sent: its arrays may have fewer digits."""

    task: Task
    model: Array


Sent = Sequence[tuple[Message, Asked]]


class Patience:
    """Says now and then what is waited for, in the log: neither who nor in which round."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = FIRST_WORD

    def say(self, what: str) -> None:
        """Say it, if it is time."""
        waited = time.monotonic() - self._began
        if waited >= self._next:
            self._next = 2 * waited
            log(INFO, "Waiting for %s, for %.0f s so far", what, waited)


def call_roll(
    roll: Roll, grid: Grid, late: float, *, anew: bool, matter: Iterable[str] | None = None, patient: bool = False
) -> None:
    """Find out who is where; raise if two nodes say that they are one that matters (by default all do).

    A node does one thing at a time: one that is computing says who it is when it is done. Whoever is ``patient`` waits
    for that until it is late, if one that matters is missing.
    """
    wanted = None if matter is None else set(matter)
    roll.call(grid, min(late, time.monotonic() + ROLL_CALL), anew=anew)
    while patient and roll.silent and (wanted or set()) - {*roll.nodes, *roll.twice} and time.monotonic() < late:
        roll.call(grid, min(late, time.monotonic() + ROLL_CALL), anew=False)
    for name in sorted(roll.twice if wanted is None else wanted & set(roll.twice)):
        one, other, *_ = roll.twice[name]
        raise DuplicateId(f"client {name!r}: nodes {one} and {other} both have this name; stop one.")


@dataclass(frozen=True)
class Inquiry:
    """Asks clients for what a federation needs of them. Other threads may change the federation meanwhile."""

    federation: Federation
    grid: Grid
    roll: Roll
    config: ConfigRecord

    @cached_property
    def mail(self) -> Mail:
        """What was sent."""
        return Mail(self.grid)

    @cached_property
    def raising(self) -> set[str]:
        """Clients whose apps raised an exception when they were asked last."""
        return set()

    def messages(self, tasks: list[Task], late: float) -> Sent:
        """Return a message for each task whose client is connected."""
        present = set(self.grid.get_node_ids())
        if any(self.roll.nodes.get(task.client) not in present for task in tasks):
            call_roll(self.roll, self.grid, late, anew=False, matter=[task.client for task in tasks])
        plan, found = self.federation.plan, list[tuple[Message, Asked]]()
        models: dict[int, tuple[ArrayRecord, Array]] = {}
        for task in tasks:
            node = self.roll.nodes.get(task.client)
            if node is None:
                continue
            if id(task.model) not in models:
                models[id(task.model)] = as_record(plan, task.model), plan.vector_of(plan.arrays_of(task.model))
            record, model = models[id(task.model)]
            number = task.step + 1
            content = RecordDict({"arrays": record, "config": ConfigRecord({**self.config, "server-round": number})})
            found.append((message_to(node, MessageType.TRAIN, content, late, str(number)), Asked(task, model)))
        return found

    def take(self, sent: Sent, replies: Iterable[Message], received: list[Received]) -> dict[tuple[int, int], str]:
        """Take the answers among some replies; errors are no answers. Return what is wrong with others."""
        answers, wrong = list[tuple[Task, Array]](), dict[tuple[int, int], str]()
        for reply, asked in answers_to(sent, replies):
            if reply.has_error():
                if reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION:  # what it says may be about its data
                    self.raising.add(asked.task.client)
                continue
            self.raising.discard(asked.task.client)
            try:
                after = self.federation.plan.vector_of(arrays_in(reply))
            except BadRecords as error:
                wrong[_key(asked.task)] = f"client {asked.task.client!r}: {error}"
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                answers.append((asked.task, after - asked.model))
        if answers:
            received.append(self.federation.receive(answers))
            if unfit := len(received[-1].unfit):
                log(WARNING, "%d answers with NaN or infinity do not count in their round", unfit)
        return wrong

    def gather(self, timeout: float, received: list[Received], lacking: Lacking, finish: Callable[[], T]) -> T:
        """Ask for what is lacking until nothing is, and then finish; ``received`` gets what became of the answers.

        Who fails is asked again after a while. Where the pass is cut off meanwhile, everything is asked again; replies
        that are of no use any more are fetched all the same, or Flower would keep them.
        """
        asking = _Asking(object(), self.mail, timeout)
        while True:
            with self.federation.lock:
                tasks = lacking()
                if not tasks:
                    return finish()
            if tasks[0].path is not asking.path:
                asking = _Asking(tasks[0].path, self.mail, timeout)
                received.clear()
            if due := asking.due(tasks):
                self.roll.doubt(task.client for task in due if _key(task) in asking.asked)
                asking.send(self.messages(due, asking.late), due)
            if replies := self.mail.pull():
                asking.wrong |= self.take(asking.sent, replies, received)
            else:
                asking.check(tasks, self.raising)
                self.mail.rest(asking.late)


class _Asking:
    """What was asked along one path, until when it can be answered, and when to ask again."""

    def __init__(self, path: object, mail: Mail, timeout: float) -> None:
        self.path = path
        self.late = time.monotonic() + timeout
        self._mail = mail
        self.sent: list[tuple[Message, Asked]] = []
        self.asked: set[tuple[int, int]] = set()
        self.wrong: dict[tuple[int, int], str] = {}
        self._again, self._pause = 0.0, AGAIN
        self._patience = Patience()

    def due(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks that nobody is at, if it is time to ask."""
        if time.monotonic() < self._again:
            return []
        waiting = {_key(asked.task) for _, asked in self._unanswered()}
        return [task for task in tasks if _key(task) not in waiting and _key(task) not in self.wrong]

    def send(self, messages: Sent, tasks: list[Task]) -> None:
        """Send messages for tasks; a client that is not connected has none."""
        self.sent = self._unanswered() + list(messages)
        self._mail.send([message for message, _ in messages])
        self.asked |= {_key(task) for task in tasks}
        self._again, self._pause = time.monotonic() + self._pause, min(2 * self._pause, LONGEST_AGAIN)

    def _unanswered(self) -> list[tuple[Message, Asked]]:
        return [one for one in self.sent if one[0].metadata.message_id in self._mail.waiting]

    def check(self, tasks: list[Task], raising: set[str]) -> None:
        """Raise if it is too late, or if nothing can come but from those who answered wrongly."""
        clients = {task.client for task in tasks}
        self._patience.say(f"{len(clients)} clients, of which {len(clients & raising)} raise exceptions")
        too_late = time.monotonic() >= self.late
        if too_late or (not self._unanswered() and all(_key(task) in self.wrong for task in tasks)):
            refuse(self.wrong.values())
        if too_late:
            raise Unfinished(_who_waits(tasks, raising))


def refuse(wrong: Iterable[str]) -> None:
    """Raise if something is wrong with what clients answered."""
    for first in wrong:
        raise BadRecords(f"{first} Answers of other clients are kept; fix the client and start again.")


def _key(task: Task) -> tuple[int, int]:
    return task.slot, task.step


def _who_waits(tasks: list[Task], raising: set[str]) -> str:
    names = sorted({task.client for task in tasks})
    shown = [
        f"{name!r}{' (its app raises an exception: see its log)' if name in raising else ''}" for name in names[:5]
    ]
    return (
        f"{len(names)} clients have not answered: {', '.join(shown)}. Nothing is lost: start (or join) again when they "
        "are back, and only they are asked. One that will not come back must leave (forget), whether or not a replay "
        "waits for it."
    )


def note_absent(federation: Federation, missing: set[str], *, leave: bool) -> None:
    """Say how many members are missing; let them leave, if they are to, unless that would be all."""
    with federation.lock:
        members = federation.members
        absent = [name for name in members if name in missing]
        if not absent:
            return
        log(WARNING, "%d members are not connected", len(absent))
        if leave and len(absent) == len(members):
            raise Unfinished(
                "absent='leave': no member is connected, so all would leave. Check the network; if they are really "
                "gone, forget() them."
            )
        if leave:
            federation.forget(absent)
