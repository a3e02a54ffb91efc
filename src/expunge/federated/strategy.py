"""A Flower strategy: federated averaging from which clients leave exactly."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from logging import INFO, WARNING
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from expunge.base.checking import check_one_of, check_positive
from expunge.base.errors import BadPlan, DuplicateId, Unfinished, UnknownId
from expunge.engine.outcome import Outcome
from expunge.engine.verifying import Verification
from expunge.federated.asking import (
    AGAIN,
    LONGEST_AGAIN,
    ROLL_CALL,
    Inquiry,
    Patience,
    Sent,
    call_roll,
    note_absent,
    refuse,
)
from expunge.federated.federation import Federation, Received, as_names
from expunge.federated.files import create
from expunge.federated.messages import Roll, as_arrays, as_record, form_of
from expunge.federated.sealing import as_seal_key
from expunge.federated.stored import StoredFederation, open
from expunge.solvers.plans.federated import FederatedSelector, Finish, array_types, as_config, plan_federation
from expunge.store.keys import as_signer
from expunge.store.saving import as_path, check_new

LEAST_WORTH = 4.0
"""Below which ρ·clients/√parameters noise costs much (docs/federated.md)."""
LONG = 3600.0
"""How many seconds clients have to answer."""
EXAMPLES = "num-examples"

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class ForgettingFedAvg(Strategy):
    """Federated averaging from which clients leave exactly, and which others join.

    ``store`` is the file of the federation: the first `start` makes it, and later ones continue it. Without a file
    everything is in memory, for trials. ``rounds``, ``clip``, ``rho``, ``rate``, ``selector`` and ``finish`` are as in
    `expunge.federated.plan_federation`; they are fixed when the file is made, and need not be given afterwards.
    ``finish="auto"`` is what the file says, and "exact" in a new one.
    ``min_clients`` is how many clients there must be to begin. ``seal`` and ``sign_with`` are as in
    `expunge.federated.open`. With ``evaluate_clients`` the members evaluate the model after each round.

    Clients are ordinary Flower clients that are `identified`, keep no state from round to round, and answer with their
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
        finish: Finish | Literal["auto"] | None = "auto",
        min_clients: int = 2,
        seal: Any = None,
        sign_with: Any = None,
        wait: float = 10.0,
        evaluate_clients: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_positive("min_clients", min_clients, whole=True)
        chosen: dict[str, Any] = {"rounds": rounds, "clip": clip, "rho": rho, "rate": rate, "selector": selector}
        self._chosen = {name: value for name, value in chosen.items() if value is not None}
        self._chosen |= {} if finish == "auto" else {"finish": finish}
        self._store = None if store is None else Path(store)
        self._min_clients = min_clients
        self._seal, self._sign_with, self._wait = seal, sign_with, wait
        self._evaluate_clients = evaluate_clients
        self._rng = rng
        self._roll = Roll()
        self._joining = threading.Lock()
        self._asking: tuple[Inquiry, Sent] | None = None
        self._received: list[Received] = []
        self._federation: Federation | None = None
        if rng is not None and store is not None:
            raise BadPlan("rng: only for a federation in memory; one in a file draws its own randomness.")
        if self._store is not None and self._store.exists():
            self._open()
        else:
            self._check_new()

    def _check_new(self) -> None:
        """Raise now if what is given will not do for a new federation: to gather clients takes long."""
        for name in ("rounds", "clip"):
            if name not in self._chosen:
                raise BadPlan(f"{name}: give it, because there is no federation in {self._store or 'memory'} yet.")
        plan_federation(array_types({"": np.zeros(1)}), clients=self._min_clients, **self._chosen)
        if self._store is not None:
            check_new(as_path(self._store))
            as_signer(self._sign_with)
            to_be_made = isinstance(self._seal, (str, PathLike)) and not Path(self._seal).exists()
            if self._seal is not None and not to_be_made:
                as_seal_key(self._seal, self._store, new=False)

    def _open(self) -> None:
        assert self._store is not None
        federation = open(self._store, seal=self._seal, sign_with=self._sign_with, wait=self._wait)
        for name, value in self._chosen.items():
            planned = getattr(federation.plan, name)
            if value != planned and (name, value) != ("rho", "auto"):
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

        No client is contacted, and none needs to be connected. Call it whenever a client wishes to leave, also while
        rounds are being made, but never because of how a round or an earlier departure turned out.
        """
        return self.federation.forget(clients)

    @property
    def finished(self) -> bool:
        """Whether all rounds have been made."""
        return self._federation is not None and self._federation.finished

    def join(self, grid: Grid, clients: str | Iterable[str], *, timeout: float = LONG, again: bool = False) -> Outcome:
        """Let clients that are connected join: they are asked what they would have contributed to the rounds made.

        A client that has left before is admitted only with ``again``. Until this is done nobody else can join or leave.
        """
        check_positive("timeout", timeout, zero=True)
        names, federation = as_names(clients), self.federation
        if isinstance(federation, StoredFederation) and not again:
            for name in sorted(set(names) - set(federation.candidates)):
                if (day := federation.was_forgotten(name)) is not None:
                    raise DuplicateId(f"client {name!r} left on {day}; if it wishes to come back, give again=True.")
        call_roll(self._roll, grid, time.monotonic() + timeout, anew=True, matter=names)
        if absent := [name for name in names if name not in self._roll.nodes]:
            raise UnknownId(f"clients: {absent[0]!r} is not connected; start it, or check its name.")
        with self._joining:
            federation.invite(names)
            return self._admit(grid, names, timeout)

    def _admit(self, grid: Grid, names: list[str], timeout: float) -> Outcome:
        """Ask candidates for their part in all rounds made, and let them in."""
        federation = self.federation
        return self._inquiry(grid).gather(timeout, [], federation.tasks_of_candidates, lambda: federation.admit(names))

    def roll_call(self, grid: Grid, *, timeout: float = ROLL_CALL) -> dict[str, bool]:
        """Say of each member, and of each other client that is connected, whether it is connected.

        Removing members because they are absent is right if this is done on a schedule. To do it because a replay waits
        for them is a bias, since other absent members would not have been noticed.
        """
        check_positive("timeout", timeout, zero=True)
        self._roll.call(grid, time.monotonic() + timeout, anew=True)
        connected = {*self._roll.nodes, *self._roll.twice}
        members = [] if self._federation is None else self._federation.members
        return {name: name in connected for name in sorted({*members, *connected})}

    def verify(self) -> Verification:
        """Re-derive sums and models from what is held of the members, and compare them bit for bit."""
        return self.federation.verify()

    # --- beginning ---

    def begin(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        *,
        members: str | Iterable[str] | None = None,
        train_config: ConfigRecord | None = None,
        timeout: float = LONG,
    ) -> None:
        """Let clients be the first members, by default all that are connected; `start` makes the rounds."""
        if self._federation is not None:
            raise BadPlan("begin: the federation has begun already; let others join, and start() it.")
        check_positive("timeout", timeout, zero=True)
        given, late = as_arrays(initial_arrays), time.monotonic() + timeout
        types, config = array_types(given), dict(as_config(train_config or {}))
        wanted, patience, pause = None if members is None else as_names(members), Patience(), AGAIN
        while True:
            call_roll(self._roll, grid, late, anew=False, matter=wanted)
            names = [name for name in sorted(self._roll.nodes) if wanted is None or name in wanted]
            enough = self._min_clients if wanted is None else len(wanted)
            if len(names) >= enough:
                break
            nameless = len(self._roll.nameless)
            if time.monotonic() >= late or (not names and nameless >= enough):
                what = f"min_clients={self._min_clients}" if wanted is None else f"members: {enough} are named"
                more = f", and {nameless} nodes do not say who they are: wrap their ClientApp with identified(app)"
                found = f"{len(names)} of them are connected{more if nameless else ''}"
                raise Unfinished(f"{what}: {found}. Start more, and start again.")
            patience.say(f"clients: {len(names)} of at least {enough} are connected")
            time.sleep(min(pause, max(late - time.monotonic(), 0.0)))
            pause = min(2 * pause, LONGEST_AGAIN)
        plan = plan_federation(types, clients=len(names), config=config, **self._chosen)
        start = plan.vector_of(given)
        if plan.worth < LEAST_WORTH:
            log(
                WARNING,
                "The noise may be too large for the model: rho * clients / sqrt(parameters) is %.1f, and below %g it "
                "costs much accuracy. Give a larger rho, or 'auto'",
                plan.worth,
                LEAST_WORTH,
            )
        if self._store is None:
            self._federation = Federation(plan, start, self._rng)
            self._federation.join(names)
        else:
            create(self._store, plan, start, names, seal=self._seal)
            self._open()

    def _check_start(
        self, arrays: ArrayRecord | None, num_rounds: int | None, config: ConfigRecord | None
    ) -> None:  # fmt: skip
        """Raise before anything is done if what is given does not go with the plan."""
        if self._federation is None and arrays is None:
            raise BadPlan("initial_arrays: give the first model, since the federation has not begun.")
        if self._federation is not None and arrays is not None:
            self._federation.plan.vector_of(as_arrays(arrays))
        rounds = self._chosen["rounds"] if self._federation is None else self._federation.plan.rounds
        if num_rounds not in (None, rounds):
            raise BadPlan(f"num_rounds={num_rounds}: the plan has {rounds} rounds; leave it out.")
        if self._federation is not None and config is not None:
            self._check_config(config)

    def _check_config(self, config: ConfigRecord) -> None:
        if as_config(config) != self.federation.plan.config:
            raise BadPlan(
                "train_config: clients were told something else in earlier rounds, and repeating some of them would "
                "mix the two. Leave it out, or begin another federation."
            )

    def _inquiry(self, grid: Grid) -> Inquiry:
        return Inquiry(self.federation, grid, self._roll, ConfigRecord(dict(self.federation.plan.config)))

    # --- Flower's interface ---

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages to the members that the next round needs and that have not answered yet."""
        late = time.monotonic() + LONG
        if self._federation is None:
            self.begin(grid, arrays, train_config=config, timeout=LONG)
        if config:  # Flower's loop gives an empty one where none was given
            self._check_config(config)
        federation, self._asking = self.federation, None
        if server_round <= federation.made:
            return []
        if server_round > federation.plan.rounds:
            raise BadPlan(
                f"round {server_round}: the plan has {federation.plan.rounds} rounds; give that as num_rounds."
            )
        if server_round > federation.made + 1:
            raise Unfinished(
                f"round {server_round}: an earlier round waits for clients. Use start(), which waits for them too."
            )
        plan = federation.plan
        if not np.array_equal(plan.vector_of(as_arrays(arrays)), plan.vector_of(plan.arrays_of(federation.newest))):
            raise BadPlan(
                "arrays: this is not the federation's current model. It must not be changed between rounds: use the "
                "strategy without a wrapper, and later starts with start()."
            )
        self._received.clear()
        inquiry = self._inquiry(grid)
        self._asking = inquiry, inquiry.messages(federation.tasks(), late)
        return [message for message, _ in self._asking[1]]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take answers; once all are there, make the round. Until then there are no arrays to return."""
        federation = self.federation
        if server_round <= federation.made:
            return as_record(federation.plan, federation.newest), None
        if self._asking is not None:
            inquiry, sent = self._asking
            refuse(inquiry.take(sent, replies, self._received).values())
        with federation.lock:
            made = None if federation.tasks() else self._advance(self._received)
        return (None, None) if made is None else (made[1], made[2])

    def _advance(self, received: list[Received]) -> tuple[int, ArrayRecord, MetricRecord] | None:
        """Make a round, unless all are made; return its number, the model, and what there is to tell."""
        federation = self.federation
        if federation.finished:
            return None
        metrics: dict[str, int | float | list[int] | list[float]] = {
            "clients": federation.advance(),
            "clipped": sum(len(one.clipped) for one in received),
            "unfit": sum(len(one.unfit) for one in received),
        }
        return federation.made, as_record(federation.plan, federation.newest), MetricRecord(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages to all members that are connected, if members are to evaluate."""
        if not self._evaluate_clients:
            return []
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "server-round": server_round})})
        nodes = [self._roll.nodes[name] for name in self.federation.members if name in self._roll.nodes]
        return [Message(content, node, MessageType.EVALUATE, group_id=str(server_round)) for node in nodes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average what members report, weighted by their ``num-examples``. It changes nothing.

        Members that report other metrics than most are left out.
        """
        forms = [(form_of(reply, EXAMPLES), reply.content) for reply in replies if not reply.has_error()]
        common = Counter(form for form, _ in forms if form is not None).most_common(1)
        if not common:
            return None
        return aggregate_metricrecords([content for form, content in forms if form == common[0][0]], EXAMPLES)

    def summary(self) -> None:
        """Log what is planned."""
        if self._federation is not None:  # how many rounds are made would tell how a departure went
            plan, members = self._federation.plan, len(self._federation.members)
            log(INFO, "\t├── Federation: %s", self._store or "in memory")
            log(INFO, "\t├── Rounds: %d", plan.rounds)
            log(INFO, "\t├── Members: %d, each takes part with probability %g", members, plan.schedule.rate)
            log(INFO, "\t└── Clip %g, rho %g, noise %g", plan.clip, plan.rho, plan.sigma)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = LONG,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
        *,
        absent: Literal["wait", "leave"] = "wait",
    ) -> Result:
        """Make all rounds that are still to be made, and return the model.

        ``initial_arrays`` is where the first start begins; later ones continue from the file. ``timeout`` is how many
        seconds the clients of one round have to answer. If some do not, all that was answered is kept, and the next
        start asks only them. ``train_config`` is sent to the clients; like the plan it is fixed by the first start.

        With ``absent="leave"``, members that are not connected at the beginning, or do not answer to their names within
        the ``timeout``, leave, exactly, whether there is anything to do or not. Give a longer timeout than a client
        needs for a round: one that is still computing for an earlier start answers when it is done. And call start on a
        schedule and after every departure, not only if it has rounds to make: who is absent must not depend on how a
        departure went.
        """
        check_one_of("absent", absent, Literal["wait", "leave"])
        check_positive("timeout", timeout, zero=True)
        self._check_start(initial_arrays, num_rounds, train_config)
        if self._federation is None:
            assert initial_arrays is not None
            self.begin(grid, initial_arrays, train_config=train_config, timeout=timeout)
        federation, result = self.federation, Result()
        log(INFO, "Starting %s strategy:", type(self).__name__)
        self.summary()
        needed = [*federation.members, *federation.candidates]
        leave = absent == "leave"
        call_roll(self._roll, grid, time.monotonic() + timeout, anew=True, matter=needed, patient=leave)
        missing = set(needed) - set(self._roll.nodes)  # now: how long it takes to let others in depends on the pass
        self._go_on_joining(grid, timeout, missing, leave=leave)
        note_absent(self.federation, missing, leave=leave)
        if evaluate_fn is not None and federation.made == 0:
            _keep(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, as_record(federation.plan, federation.newest)))
        inquiry, received = self._inquiry(grid), list[Received]()
        while not self._is_done(result):
            made = inquiry.gather(timeout, received, federation.tasks, lambda: self._advance(received))
            if made is not None:
                number, arrays, metrics = made
                result.train_metrics_clientapp[number] = metrics
                self._evaluate(grid, number, arrays, evaluate_config or ConfigRecord(), evaluate_fn, timeout, result)
        return result

    def _go_on_joining(self, grid: Grid, timeout: float, missing: set[str], *, leave: bool) -> None:
        """Let those in whose joining was interrupted, unless they are absent, or another thread is at it."""
        federation = self.federation
        if not self._joining.acquire(blocking=False):
            return
        try:
            absent = [name for name in federation.candidates if name in missing]
            if absent and leave:
                federation.forget(absent)
            elif absent:
                log(WARNING, "%d clients that were joining are not connected", len(absent))
                return
            if names := federation.candidates:
                self._admit(grid, names, timeout)
        finally:
            self._joining.release()

    def _is_done(self, result: Result) -> bool:
        """Put the model into the result once all rounds are made."""
        federation = self.federation
        with federation.lock:
            if federation.finished:
                result.arrays = as_record(federation.plan, federation.model())
            return federation.finished

    def _evaluate(
        self, grid: Grid, number: int, arrays: ArrayRecord, config: ConfigRecord, evaluate_fn: Evaluate | None,
        timeout: float, result: Result,
    ) -> None:  # fmt: skip
        messages = list(self.configure_evaluate(number, arrays, config, grid))
        if messages:
            reported = self.aggregate_evaluate(number, grid.send_and_receive(messages, timeout=timeout))
            _keep(result.evaluate_metrics_clientapp, number, reported)
        if evaluate_fn is not None:
            _keep(result.evaluate_metrics_serverapp, number, evaluate_fn(number, arrays))


def _keep(into: dict[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        into[number] = metrics
