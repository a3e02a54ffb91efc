"""A Flower grid without a network: clients are functions, called at once, and what goes wrong is chosen by the test."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from flwr.app import Context, Error, Message, Metadata, RecordDict, UserConfig
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.constant import SYSTEM_MESSAGE_TYPE
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

Client = Callable[[Message, Context], Message]
Ask = Callable[[], Message]
Fault = Callable[[Message, Ask], Sequence[tuple[int, Message]]]
"""What becomes of a message: gets it and a function that has its client answer it, and gives the replies that arrive,
each with the number of calls of the grid it comes late."""


def fine(message: Message, ask: Ask) -> Sequence[tuple[int, Message]]:
    """The reply arrives."""
    return [(0, ask())]


def unheard(message: Message, ask: Ask) -> Sequence[tuple[int, Message]]:
    """The client never sees the message, and nothing comes back within the time limit."""
    return []


def lost(message: Message, ask: Ask) -> Sequence[tuple[int, Message]]:
    """The client does its work, and its reply does not come back within the time limit."""
    ask()
    return []


def offline(message: Message, ask: Ask) -> Sequence[tuple[int, Message]]:
    """The client's node stopped reporting: Flower itself answers, under its own node id, with an error."""
    return [(0, from_superlink(message, ErrorCode.NODE_UNAVAILABLE))]


def expired(message: Message, ask: Ask) -> Sequence[tuple[int, Message]]:
    """The message outlived its time to live: Flower itself answers, under its own node id, with an error."""
    return [(0, from_superlink(message, ErrorCode.MESSAGE_UNAVAILABLE))]


def crashed(message: Message, ask: Ask) -> Sequence[tuple[int, Message]]:
    """The client's process died at its work."""
    return [(0, Message(Error(ErrorCode.CLIENT_APP_CRASHED, "crashed"), reply_to=message))]


def twice(message: Message, ask: Ask) -> Sequence[tuple[int, Message]]:
    """The same reply arrives twice."""
    reply = ask()
    return [(0, reply), (0, reply)]


def late(calls: int) -> Fault:
    """The reply arrives `calls` calls of the grid later (Flower's own grids show it to `pull_messages` only)."""
    return lambda message, ask: [(calls, ask())]


def garbled(change: Callable[[Message], Message]) -> Fault:
    """The reply arrives changed."""
    return lambda message, ask: [(0, change(ask()))]


def from_superlink(message: Message, code: int) -> Message:
    """An error with which Flower itself answers a message: it names the message but not the node that it was for."""
    sent = message.metadata
    known = code != ErrorCode.MESSAGE_UNAVAILABLE
    metadata = Metadata(
        run_id=sent.run_id,
        message_id="",
        src_node_id=SUPERLINK_NODE_ID,
        dst_node_id=SUPERLINK_NODE_ID,
        reply_to_message_id=sent.message_id,
        group_id=sent.group_id if known else "",
        created_at=sent.created_at,
        ttl=sent.ttl if known else 0,
        message_type=sent.message_type if known else SYSTEM_MESSAGE_TYPE,
    )
    return make_message(metadata, error=Error(code, "unavailable"))


class InMemoryGrid(Grid):
    """A grid whose clients are functions of this process.

    `fault_for` is asked for every message what becomes of it; `shuffle` mixes the order of replies, which Flower does
    not promise either.
    """

    def __init__(
        self,
        *,
        run_id: int = 1,
        run_config: UserConfig | None = None,
        fault_for: Callable[[Message], Fault] = lambda message: fine,
        shuffle: random.Random | None = None,
    ) -> None:
        self.fault_for = fault_for
        self.sent = 0
        self._shuffle = shuffle
        self._run = Run.create_empty(run_id)
        self._run_config = run_config or {}
        self._clients: dict[int, tuple[Client, Context]] = {}
        self._replies: dict[str, list[Message]] = {}
        self._late: list[tuple[int, Message]] = []
        self._calls = 0
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = run_id, 1, SUPERLINK_NODE_ID

    def join(self, node_id: int, client: Client, node_config: UserConfig | None = None) -> None:
        """Add a node; one that is there already is put up anew, without its state."""
        context = Context(self._run.run_id, node_id, node_config or {}, RecordDict(), self._run_config)
        self._clients[node_id] = (client, context)

    def leave(self, node_id: int) -> None:
        """Remove a node: messages to it are not even sent."""
        del self._clients[node_id]

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        return list(self._clients)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(message) for message in messages if message.metadata.dst_node_id in self._clients]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = [reply for message_id in message_ids for reply in self._replies.pop(message_id, ())]
        if self._late:
            replies += [reply for due, reply in self._late if due <= self._calls]
            self._late = [(due, reply) for due, reply in self._late if due > self._calls]
        self._calls += 1
        if self._shuffle is not None:
            self._shuffle.shuffle(replies)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message: Message) -> str:
        self.sent += 1
        message_id = f"message-{self.sent}"
        message.metadata.__dict__["_message_id"] = message_id
        arriving = self.fault_for(message)(message, lambda: self._answer(message))
        self._replies[message_id] = [reply for calls, reply in arriving if not calls]
        self._late += [(self._calls + calls, reply) for calls, reply in arriving if calls]
        return message_id

    def _answer(self, message: Message) -> Message:
        client, context = self._clients[message.metadata.dst_node_id]
        try:
            reply = client(message, context)
        except Exception as error:
            reason = f"{type(error)}:<'{error}'>"
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
        reply.metadata.__dict__["_message_id"] = f"reply-{self.sent}"
        return reply
