"""Flower's messages: sent and answered, by whom, and the arrays in them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from logging import WARNING
from typing import TypeVar

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array
from expunge.federated.client import ACTION, NAME, RECORD
from expunge.federated.federation import LONGEST_NAME
from expunge.solvers.plans.federated import FederatedPlan

_FIRST_LOOK, _LONGEST_LOOK = 0.01, 1.0
_SHORTEST_TTL = 60.0
"""For how many seconds a message lives at least: replies to one that has expired are errors in Flower's log."""

T = TypeVar("T")


def message_to(node: int, kind: str, content: RecordDict, late: float, group: str = "") -> Message:
    """Return a message that nobody needs to answer any more when it is late."""
    return Message(content, node, kind, ttl=max(late - time.monotonic(), _SHORTEST_TTL), group_id=group)


class Mail:
    """Messages that were sent, and replies to them as they come."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.waiting: set[str] = set()
        """The numbers of messages that were not replied to."""
        self._look = _FIRST_LOOK

    def send(self, messages: list[Message]) -> None:
        """Send messages, all at once."""
        if messages:
            self.waiting |= {number for number in self._grid.push_messages(messages) if number}
            self._look = _FIRST_LOOK

    def pull(self) -> list[Message]:
        """Return replies that have come meanwhile, to messages that were not replied to."""
        replies = list(self._grid.pull_messages(sorted(self.waiting))) if self.waiting else []
        self.waiting -= {reply.metadata.reply_to_message_id for reply in replies}
        if replies:
            self._look = _FIRST_LOOK
        return replies

    def rest(self, late: float) -> None:
        """Wait a little before the next look, each time longer."""
        time.sleep(min(self._look, max(late - time.monotonic(), 0.0)))
        self._look = min(2 * self._look, _LONGEST_LOOK)


def exchange(grid: Grid, messages: list[Message], late: float) -> Iterator[Message]:
    """Send messages and return replies as they come, until all are there or it is too late."""
    mail = Mail(grid)
    mail.send(messages)
    while mail.waiting:
        replies = mail.pull()
        yield from replies
        if not replies:
            if time.monotonic() >= late:
                return
            mail.rest(late)


def answers_to(sent: Iterable[tuple[Message, T]], replies: Iterable[Message]) -> Iterator[tuple[Message, T]]:
    """Return replies with what their messages were about; those to other messages or from other nodes are left out."""
    asked = {message.metadata.message_id: (message.metadata.dst_node_id, what) for message, what in sent}
    for reply in replies:
        number = reply.metadata.reply_to_message_id
        if number and number in asked and asked[number][0] == reply.metadata.src_node_id:
            yield reply, asked[number][1]


class Roll:
    """Which client is at which node. Nodes are asked, since they change while clients stay the same."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.twice: dict[str, list[int]] = {}
        """Clients that several nodes say they are."""
        self.silent: set[int] = set()
        """Nodes that have not answered at all."""
        self.nameless: set[int] = set()
        """Nodes that answered without saying who they are."""
        self._names: dict[int, str] = {}

    def doubt(self, clients: Iterable[str]) -> None:
        """Forget at which nodes clients are, so that the next call asks those nodes again."""
        gone = {self.nodes.pop(name) for name in clients if name in self.nodes}
        self._names = {node: name for node, name in self._names.items() if node not in gone}

    def call(self, grid: Grid, late: float, *, anew: bool) -> None:
        """Ask nodes who they are: all of them again, or those that have not said it yet."""
        present = set(grid.get_node_ids())
        names = {} if anew else {node: name for node, name in self._names.items() if node in present}
        kind = f"{MessageType.QUERY}.{ACTION}"
        sent = [(message_to(node, kind, RecordDict(), late), node) for node in sorted(present - set(names))]
        nameless = set()
        for reply, node in answers_to(sent, list(exchange(grid, [message for message, _ in sent], late))):
            if (name := _name_in(reply)) is None:
                nameless.add(node)
            else:
                names[node] = name
        if nameless - self.nameless:
            log(
                WARNING,
                "%d nodes do not say who they are: wrap their ClientApp with identified(app), and give each a name of "
                "1 to %d letters",
                len(nameless),
                LONGEST_NAME,
            )
        self.nameless = nameless
        self.silent = present - set(names) - nameless
        nodes: dict[str, list[int]] = {}
        for node, name in sorted(names.items()):
            nodes.setdefault(name, []).append(node)
        self._names = names
        self.nodes = {name: found[0] for name, found in nodes.items() if len(found) == 1}
        self.twice = {name: found for name, found in nodes.items() if len(found) > 1}
        if self.twice and not anew:  # one may have been started again, and the old node not be gone yet
            self.call(grid, late, anew=True)


def _name_in(reply: Message) -> str | None:
    """Return the name that a client says it has, if it does."""
    if reply.has_error() or RECORD not in reply.content.config_records:
        return None
    name = reply.content.config_records[RECORD].get(NAME)
    return name if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable() else None


def arrays_in(reply: Message) -> dict[str, AnyArray]:
    """Return the arrays that a client answers with."""
    records = list(reply.content.array_records.values())
    if len(records) != 1:
        raise BadRecords(f"arrays: expected one ArrayRecord, got {len(records)}.")
    return as_arrays(records[0])


def as_arrays(record: ArrayRecord) -> dict[str, AnyArray]:
    """Return the arrays of a record, by name."""
    return {name: _numbers(name, array) for name, array in record.items()}


def _numbers(name: str, array: FlowerArray) -> AnyArray:
    try:
        found = array.numpy()
    except Exception as error:  # these bytes come from outside
        raise BadRecords(f"arrays: {name!r} cannot be read ({type(error).__name__}).") from error
    if not isinstance(found, np.ndarray):
        raise BadRecords(f"arrays: {name!r} is not an array.")
    return found


def as_record(plan: FederatedPlan, vector: Array) -> ArrayRecord:
    """Return a model as Flower sends it."""
    return ArrayRecord({name: FlowerArray(array) for name, array in plan.arrays_of(vector).items()})


def form_of(reply: Message, counted: str) -> tuple[tuple[str, int], ...] | None:
    """Return what a member reports: names, and how many numbers; None if it does not say how many are ``counted``."""
    records = list(reply.content.metric_records.values())
    if len(records) != 1:
        return None
    examples = records[0].get(counted)
    if not isinstance(examples, (int, float)) or not math.isfinite(examples) or examples <= 0:
        return None
    return tuple(sorted((name, len(value) if isinstance(value, list) else -1) for name, value in records[0].items()))
