"""Asking the clients of a federation by Flower's messages, until all that is needed has been answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import NamedTuple, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from expunge.errors import BadRecords, DuplicateId, Unfinished
from expunge.federated.federation import Federation, Received, Task
from expunge.federated.messages import Roll, answers_to, arrays_in, as_record, exchange, message_to
from expunge.types import Array

ROLL_CALL = 60.0
"""How many seconds nodes have to say who they are."""
AGAIN, LONGEST_AGAIN = 1.0, 10.0
"""How many seconds to wait before those who did not answer are asked again: at first, and at most."""

T = TypeVar("T")
Lacking = Callable[[], list[Task]]


class Asked(NamedTuple):
    """What a client is asked for, and the model as it is sent: its arrays may have fewer digits."""

    task: Task
    model: Array


Sent = Sequence[tuple[Message, Asked]]


def call_roll(roll: Roll, grid: Grid, late: float, *, anew: bool, matter: Iterable[str] | None = None) -> None:
    """Find out who is where; raise if two nodes say that they are one that matters (by default all do)."""
    roll.call(grid, min(late, time.monotonic() + ROLL_CALL), anew=anew)
    for name in sorted(roll.twice if matter is None else set(matter) & set(roll.twice)):
        one, other, *_ = roll.twice[name]
        raise DuplicateId(f"client {name!r}: nodes {one} and {other} both say that they are; stop one.")


@dataclass(frozen=True)
class Inquiry:
    """Asks clients for what a federation needs of them. Other threads may change the federation meanwhile."""

    federation: Federation
    grid: Grid
    roll: Roll
    config: ConfigRecord

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

    def take(self, sent: Sent, replies: Iterable[Message], received: list[Received]) -> list[str]:
        """Take the answers among some replies; errors are no answers. Return what is wrong with others."""
        answers, wrong = list[tuple[Task, Array]](), list[str]()
        for reply, asked in answers_to(sent, replies):
            if reply.has_error():
                continue
            try:
                after = self.federation.plan.vector_of(arrays_in(reply))
            except BadRecords as error:
                wrong.append(f"client {asked.task.client!r}: {error}")
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                answers.append((asked.task, after - asked.model))
        if answers:
            received.append(self.federation.receive(answers))
            if unfit := len(received[-1].unfit):
                log(WARNING, "%d answers with NaN or infinity count for nothing in their round", unfit)
        return wrong

    def gather(self, timeout: float, received: list[Received], lacking: Lacking, finish: Callable[[], T]) -> T:
        """Ask for what is lacking until nothing is, and then finish; ``received`` gets what became of the answers."""
        path, late, pause = object(), 0.0, AGAIN
        while True:
            with self.federation.lock:
                tasks = lacking()
                if not tasks:
                    return finish()
            if tasks[0].path is not path:  # the first, or the pass was cut off, and what was answered does not count
                path, late, pause = tasks[0].path, time.monotonic() + timeout, AGAIN
                received.clear()
            self._ask(tasks, late, received, lacking)
            still = lacking()
            if not still or not _keys(still) <= _keys(tasks):
                continue
            if time.monotonic() >= late:
                raise Unfinished(_who_waits(still))
            time.sleep(min(pause, max(late - time.monotonic(), 0.0)))
            pause = min(2 * pause, LONGEST_AGAIN)

    def _ask(self, tasks: list[Task], late: float, received: list[Received], lacking: Lacking) -> None:
        """Ask clients once, until all have answered, it is too late, or nobody needs their answers any more."""
        sent, wrong = self.messages(tasks, late), list[str]()
        for replies in exchange(self.grid, [message for message, _ in sent], late):
            wrong += self.take(sent, replies, received)
            if _keys(tasks).isdisjoint(_keys(lacking())):
                break
        refuse(wrong)


def refuse(wrong: list[str]) -> None:
    """Raise if something is wrong with what clients answered."""
    if wrong:
        raise BadRecords(f"{wrong[0]} What others answered is kept; repair the client and start again.")


def _keys(tasks: Iterable[Task]) -> set[tuple[str, int, int]]:
    return {(task.client, task.step, id(task.path)) for task in tasks}


def _who_waits(tasks: list[Task]) -> str:
    names = sorted({task.client for task in tasks})
    return (
        f"{len(names)} clients have not answered: {', '.join(map(repr, names[:5]))}. Nothing is lost: start (or join) "
        "again when they are back, and only they are asked. One that will not come back must leave (forget), whatever "
        "it is that waits."
    )
