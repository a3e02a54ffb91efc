"""A Flower strategy: federated averaging from which clients leave exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from logging import INFO, WARNING
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from expunge.averaging import FederatedPlan, FederatedSelector, array_types, plan_federation
from expunge.engine import Outcome, Verification
from expunge.errors import BadPlan, BadRecords, DuplicateId, Unfinished, UnknownId
from expunge.federated.client import ACTION, NAME, RECORD
from expunge.federated.durable import StoredFederation, create, open
from expunge.federated.federation import Federation, Received, Task
from expunge.planning import check_one_of
from expunge.types import AnyArray, Array

ROLL_CALL = 60.0
"""How many seconds nodes have to say who they are."""
AGAIN = 1.0
"""How many seconds to wait before those who did not answer are asked again."""
_FIRST_LOOK, _LONGEST_LOOK = 0.01, 1.0


class ForgettingFedAvg(Strategy):
    """Federated averaging with noise, from which clients leave exactly, and which others join.

    ``store`` is the file that the federation lives in: it is made by the first `start`, and gone on with by later ones.
    Without one everything is in memory, for trials. ``rounds``, ``clip``, ``rho``, ``rate`` and ``selector`` are as in
    `expunge.federated.plan_federation`; they are fixed when the file is made, and need not be given afterwards.
    ``min_clients`` is how many clients there must be to begin. ``seal`` and ``sign_with`` are as in
    `expunge.federated.open`. With ``evaluate_clients`` the members evaluate the model after each round.

    Clients are Flower's own, but that they are `identified`, keep no state from round to round, and answer with their
    arrays after training. Every member that a round needs must answer before it is made; see docs/federated.md.
    """

    def __init__(
        self,
        store: str | PathLike[str] | None,
        *,
        rounds: int | None = None,
        clip: float | None = None,
        rho: float | Literal["auto"] | None = None,
        rate: float | None = None,
        selector: FederatedSelector | None = None,
        min_clients: int = 2,
        seal: Any = None,
        sign_with: Any = None,
        wait: float = 10.0,
        evaluate_clients: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        chosen = {"rounds": rounds, "clip": clip, "rho": rho, "rate": rate, "selector": selector}
        self._chosen = {name: value for name, value in chosen.items() if value is not None}
        self._store = None if store is None else Path(store)
        self._min_clients = min_clients
        self._seal, self._sign_with, self._wait = seal, sign_with, wait
        self._evaluate_clients = evaluate_clients
        self._rng = rng
        self._nodes: dict[str, int] = {}
        self._named: dict[int, str] = {}
        self._asked: list[tuple[Message, Task]] = []
        self._tally = {"clients": 0, "clipped": 0, "unfit": 0}
        self._federation: Federation | None = None
        if rng is not None and store is not None:
            raise BadPlan("rng: only for a federation in memory; one in a file draws its own randomness.")
        if self._store is not None and self._store.exists():
            self._open()
        else:
            for name in ("rounds", "clip"):
                if name not in self._chosen:
                    raise BadPlan(f"{name}: give it, since there is no federation in {store} yet.")

    def _open(self) -> None:
        assert self._store is not None
        federation = open(self._store, seal=self._seal, sign_with=self._sign_with, wait=self._wait)
        for name, value in self._chosen.items():
            planned = getattr(federation.plan, name)
            if value != planned and value != "auto":
                federation.close()
                raise BadPlan(
                    f"{name}={value!r}: the federation in {self._store} was planned with {planned!r}. Leave it out, or "
                    "begin another federation in another file."
                )
        self._federation = federation

    @property
    def federation(self) -> Federation:
        """The federation itself, once it has begun."""
        if self._federation is None:
            raise Unfinished("the federation has not begun; start() it first.")
        return self._federation

    def close(self) -> None:
        """Close the federation's file."""
        if isinstance(self._federation, StoredFederation):
            self._federation.close()

    # --- coming and leaving ---

    def forget(self, clients: str | Iterable[str]) -> Outcome:
        """Let clients leave, exactly. If ``finished`` is False afterwards, `start` makes the rounds that are missing.

        No client is asked anything, and none needs to be connected. Ask for it whenever a client wishes to leave, also
        while rounds are being made, but never because of what a round or an earlier departure brought about.
        """
        return self.federation.forget(clients)

    @property
    def finished(self) -> bool:
        """Whether all rounds have been made."""
        return self._federation is not None and self._federation.finished

    def join(self, grid: Grid, clients: str | Iterable[str], *, timeout: float = 3600, again: bool = False) -> Outcome:
        """Let clients that are connected join: they are asked what they would have contributed to the rounds made.

        One that has left before is let in only with ``again``.
        """
        names = [clients] if isinstance(clients, str) else list(clients)
        federation, late = self.federation, time.monotonic() + timeout
        if isinstance(federation, StoredFederation) and not again:
            for name in names:
                if (day := federation.was_forgotten(name)) is not None:
                    raise DuplicateId(f"client {name!r} left on {day}; if it wishes to come back, say again=True.")
        self._call_roll(grid, late)
        if absent := [name for name in names if name not in self._nodes]:
            raise UnknownId(f"clients: {absent[0]!r} is not connected; start it, or check its name.")
        federation.invite(names)
        self._ask_candidates(grid, names, late)
        return federation.admit(names)

    def roll_call(self, grid: Grid, *, timeout: float = ROLL_CALL) -> dict[str, bool]:
        """Say of each member, and of each other client that is connected, whether it is connected.

        To let members leave because they are absent is right if this is done by the clock; to do it because a replay
        waits for them is a bias, since others who are absent would not have been noticed.
        """
        self._call_roll(grid, time.monotonic() + timeout)
        members = [] if self._federation is None else self._federation.members
        return {name: name in self._nodes for name in sorted({*members, *self._nodes})}

    def verify(self) -> Verification:
        """Re-derive sums and models from what is held of the members, and compare them bit for bit."""
        return self.federation.verify()

    # --- who is who ---

    def _call_roll(self, grid: Grid, late: float) -> None:
        """Ask nodes that have not said it yet who they are."""
        present = set(grid.get_node_ids())
        self._named = {node: name for node, name in self._named.items() if node in present}
        unknown = sorted(present - set(self._named))
        late = min(late, time.monotonic() + ROLL_CALL)
        messages = [self._message(RecordDict(), f"{MessageType.QUERY}.{ACTION}", node, "", late) for node in unknown]
        nameless = 0
        for replies in _exchange(grid, messages, late):
            for reply in replies:
                name = _name_in(reply)
                if name is None:
                    nameless += 1
                else:
                    self._named[reply.metadata.src_node_id] = name
        if nameless:
            log(WARNING, "%d nodes do not say who they are; wrap their ClientApp with identified(app)", nameless)
        nodes: dict[str, int] = {}
        for node, name in self._named.items():
            if name in nodes:
                raise DuplicateId(f"client {name!r}: nodes {nodes[name]} and {node} both say that they are; stop one.")
            nodes[name] = node
        self._nodes = nodes

    def _begin(self, grid: Grid, arrays: ArrayRecord, late: float) -> None:
        """Let all clients that are connected be the first members."""
        given = _as_arrays(arrays)
        types = array_types(given)
        while True:
            self._call_roll(grid, late)
            names = sorted(self._nodes)
            if len(names) >= self._min_clients:
                break
            if time.monotonic() + AGAIN > late:
                raise Unfinished(
                    f"min_clients={self._min_clients}: {len(names)} clients are connected. Start more, and start again."
                )
            time.sleep(AGAIN)
        plan = plan_federation(types, clients=len(names), **self._chosen)  # type: ignore[arg-type]
        start = plan.vector_of(given)
        if self._store is None:
            self._federation = Federation(plan, start, self._rng or np.random.default_rng())
            if names:
                self._federation.join(names)
        else:
            create(self._store, plan, start, names, seal=self._seal)
            self._open()

    # --- messages ---

    def _message(self, content: RecordDict, kind: str, node: int, group: str, late: float) -> Message:
        return Message(content, node, kind, ttl=max(late - time.monotonic(), 1.0), group_id=group)

    def _messages(self, tasks: list[Task], config: ConfigRecord, late: float) -> list[Message]:
        """Return a message for each task whose client is connected."""
        found, records = list[tuple[Message, Task]](), dict[int, ArrayRecord]()
        plan = self.federation.plan
        for task in tasks:
            node = self._nodes.get(task.client)
            if node is None:
                continue
            if id(task.model) not in records:
                records[id(task.model)] = _as_record(plan, task.model)
            said = ConfigRecord({**config, "server-round": task.step + 1})
            content = RecordDict({"arrays": records[id(task.model)], "config": said})
            found.append((self._message(content, MessageType.TRAIN, node, str(task.step + 1), late), task))
        self._asked = found  # replies to any other message come too late
        return [message for message, _ in found]

    def _take(self, replies: Iterable[Message]) -> None:
        """Take the answers among some replies; errors are no answers. Raise if arrays are of the wrong shape."""
        plan, answers, wrong = self.federation.plan, list[tuple[Task, Array]](), list[str]()
        asked = {message.metadata.message_id: (message.metadata.dst_node_id, task) for message, task in self._asked}
        for reply in replies:
            node, task = asked.get(reply.metadata.reply_to_message_id or "-", (None, None))
            if task is None or reply.has_error() or reply.metadata.src_node_id != node:
                continue
            try:
                after = plan.vector_of(_as_arrays(_only_arrays(reply)))
            except BadRecords as error:
                wrong.append(f"client {task.client!r}, round {task.step + 1}: {error}")
                continue
            answers.append((task, after - plan.vector_of(plan.arrays_of(task.model))))
        self._count(self.federation.receive(answers))
        if wrong:
            raise BadRecords(f"{wrong[0]} What others answered is kept; repair the client and start again.")

    def _count(self, received: Received) -> None:
        self._tally["clients"] += received.taken
        self._tally["clipped"] += len(received.clipped)
        self._tally["unfit"] += len(received.unfit)
        if received.unfit:
            log(WARNING, "%d answers with NaN or infinity count for nothing in this round", len(received.unfit))

    def _ask_candidates(self, grid: Grid, names: list[str], late: float) -> None:
        """Ask candidates for their part in all rounds made, until they have answered or it is too late."""
        while tasks := [task for task in self.federation.tasks_of_candidates() if task.client in names]:
            for replies in _exchange(grid, self._messages(tasks, ConfigRecord(), late), late):
                self._take(replies)
            if not self.federation.tasks_of_candidates():
                return
            if time.monotonic() + AGAIN > late:
                raise Unfinished(
                    f"client {tasks[0].client!r} has not answered for all rounds. It stays a candidate: call join() or "
                    "start() again when it is connected, or forget() it."
                )
            time.sleep(AGAIN)
            self._call_roll(grid, late)

    # --- Flower's interface ---

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages to the members that the next round needs and that have not answered yet."""
        return self._configure(server_round, config, grid, time.monotonic() + 3600)

    def _configure(self, server_round: int, config: ConfigRecord, grid: Grid, late: float) -> list[Message]:
        federation = self.federation
        if server_round <= federation.made:
            return []
        tasks = federation.tasks()
        if server_round > federation.made + 1:
            raise Unfinished(
                f"round {server_round}: round {federation.made + 1} waits for {len(tasks)} clients. Use start(), which "
                "waits for them."
            )
        if any(task.client not in self._nodes for task in tasks):
            self._call_roll(grid, late)
        return self._messages(tasks, config, late)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take answers; once all are there, make the round. Until then there are no arrays to return."""
        federation = self.federation
        if server_round > federation.made:
            self._take(replies)
            if federation.tasks():
                return None, None
            federation.advance()
            metrics, self._tally = MetricRecord(dict(self._tally)), dict.fromkeys(self._tally, 0)
            return _as_record(federation.plan, federation.newest), metrics
        return _as_record(federation.plan, federation.newest), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages to all members that are connected, if members are to evaluate."""
        if not self._evaluate_clients:
            return []
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "server-round": server_round})})
        nodes = [self._nodes[name] for name in self.federation.members if name in self._nodes]
        return [Message(content, node, MessageType.EVALUATE, group_id=str(server_round)) for node in nodes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average what members report, weighted by their ``num-examples``. It changes nothing."""
        good = [reply.content for reply in replies if not reply.has_error()]
        good = [content for content in good if any("num-examples" in one for one in content.metric_records.values())]
        return aggregate_metricrecords(good, "num-examples") if good else None

    def summary(self) -> None:
        """Log what is planned."""
        if self._federation is not None:
            plan, members = self._federation.plan, len(self._federation.members)
            log(INFO, "\t├── Rounds: %d of %d are made", self._federation.made, plan.rounds)
            log(INFO, "\t├── Members: %d, each takes part with probability %g", members, plan.rate)
            log(INFO, "\t└── Clip %g, rho %g, noise %g", plan.clip, plan.rho, plan.sigma)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        *,
        absent: Literal["wait", "leave"] = "wait",
    ) -> Result:
        """Make all rounds that are still to be made, and return the model.

        ``initial_arrays`` is where the first start begins; later ones go on from the file. ``timeout`` is how many
        seconds the clients of one round have to answer. If some do not, all that was answered is kept, and the next
        start asks only them. With ``absent="leave"``, members that do not answer to their names at the beginning leave,
        exactly, whether there is anything to do or not. So call start by the clock and after every departure, not only
        where it has rounds to make: who is absent must not depend on how a departure went.
        """
        check_one_of("absent", absent, Literal["wait", "leave"])
        if self._federation is None:
            if initial_arrays is None:
                raise BadPlan("initial_arrays: give the first model, since the federation has not begun.")
            self._begin(grid, initial_arrays, time.monotonic() + timeout)
        federation = self.federation
        if num_rounds not in (None, federation.plan.rounds):
            raise BadPlan(f"num_rounds={num_rounds}: the plan has {federation.plan.rounds} rounds; leave it out.")
        log(INFO, "Starting %s strategy:", type(self).__name__)
        self.summary()
        result = Result()
        self._call_roll(grid, time.monotonic() + timeout)
        if missing := [name for name in federation.members if name not in self._nodes]:
            log(WARNING, "%d members are not connected", len(missing))
            if absent == "leave":
                federation.forget(missing)
        self._welcome(grid, timeout)
        if evaluate_fn is not None and federation.made == 0:
            metrics = evaluate_fn(0, _as_record(federation.plan, federation.newest))
            if metrics is not None:
                result.evaluate_metrics_serverapp[0] = metrics
        while not federation.finished:
            number = federation.made + 1
            log(INFO, "[ROUND %d/%d]", number, federation.plan.rounds)
            arrays, metrics = self._round(grid, number, train_config or ConfigRecord(), time.monotonic() + timeout)
            result.train_metrics_clientapp[number] = metrics
            self._evaluate(grid, number, arrays, evaluate_config or ConfigRecord(), evaluate_fn, timeout, result)
        result.arrays = _as_record(federation.plan, federation.model())
        return result

    def _welcome(self, grid: Grid, timeout: float) -> None:
        """Let candidates in whose answers were interrupted, if they are connected; others stay candidates."""
        names = [name for name in self.federation.candidates if name in self._nodes]
        if names:
            self._ask_candidates(grid, names, time.monotonic() + timeout)
            self.federation.admit(names)

    def _round(self, grid: Grid, number: int, config: ConfigRecord, late: float) -> tuple[ArrayRecord, MetricRecord]:
        """Make one round, asking again whoever does not answer, until it is too late."""
        while True:
            messages = self._configure(number, config, grid, late)
            for replies in [[]] if not messages else _exchange(grid, messages, late):
                arrays, metrics = self.aggregate_train(number, replies)
                if arrays is not None:
                    return arrays, metrics or MetricRecord()
            lacking = self.federation.tasks()
            if time.monotonic() + AGAIN > late:
                names = ", ".join(repr(task.client) for task in lacking[:5])
                raise Unfinished(
                    f"round {number} waits for {len(lacking)} clients: {names}. Nothing is lost: start again when they "
                    "are back. One that will not come back must leave (forget), whatever this round is."
                )
            time.sleep(AGAIN)

    def _evaluate(
        self, grid: Grid, number: int, arrays: ArrayRecord, config: ConfigRecord,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None, timeout: float, result: Result,
    ) -> None:  # fmt: skip
        messages = list(self.configure_evaluate(number, arrays, config, grid))
        if messages:
            reported = self.aggregate_evaluate(number, grid.send_and_receive(messages, timeout=timeout))
            if reported is not None:
                result.evaluate_metrics_clientapp[number] = reported
        if evaluate_fn is not None and (metrics := evaluate_fn(number, arrays)) is not None:
            result.evaluate_metrics_serverapp[number] = metrics


def _exchange(grid: Grid, messages: list[Message], late: float) -> Iterator[list[Message]]:
    """Send messages and return replies as they come, until all are there or it is too late."""
    if not messages:
        return
    list(grid.push_messages(messages))
    waiting = {message.metadata.message_id for message in messages if message.metadata.message_id}
    look = _FIRST_LOOK
    while waiting:
        replies = list(grid.pull_messages(sorted(waiting)))
        if replies:
            look = _FIRST_LOOK
            waiting -= {reply.metadata.reply_to_message_id for reply in replies}
            yield replies
        elif time.monotonic() >= late:
            return
        else:
            time.sleep(min(look, max(late - time.monotonic(), 0.0)))
            look = min(2 * look, _LONGEST_LOOK)


def _name_in(reply: Message) -> str | None:
    """Return the name that a client says it has, if it does."""
    if reply.has_error() or RECORD not in reply.content.config_records:
        return None
    name = reply.content.config_records[RECORD].get(NAME)
    return name if isinstance(name, str) and name else None


def _only_arrays(reply: Message) -> ArrayRecord:
    records = list(reply.content.array_records.values())
    if len(records) != 1:
        raise BadRecords(f"arrays: expected one ArrayRecord, got {len(records)}.")
    return records[0]


def _as_arrays(record: ArrayRecord) -> dict[str, AnyArray]:
    return {name: array.numpy() for name, array in record.items()}


def _as_record(plan: FederatedPlan, vector: Array) -> ArrayRecord:
    return ArrayRecord({name: FlowerArray(array) for name, array in plan.arrays_of(vector).items()})
