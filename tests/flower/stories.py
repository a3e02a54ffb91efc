"""Stories of federations through the Flower strategy, with Flower's own messages; and ways to get that wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from cases import federated_stories as toy
from cases.federated_finish import exact_cases
from cases.patching import patched_everywhere, patched_method
from expunge.base.errors import Unfinished
from expunge.engine.checks import Exactness, check_same_law
from expunge.engine.outcome import Outcome
from expunge.federated.client import identified
from expunge.federated.federation import Federation, Task
from expunge.federated.state import names_of, state_of
from expunge.federated.strategy import ForgettingFedAvg
from expunge.solvers.plans.federated import Finish
from flower.in_memory_grid import InMemoryGrid, fine, late

NODES = {"ann": 11, "bob": 12, "cy": 13}
METRICS = MetricRecord({"num-examples": 1})
TOLD_BY_FLOWER = ("leave", "two leave at once", "two leave in turn", "join", "leave, half of the rounds",
                  "two leave in turn, exact at last", "join, exact at last")  # fmt: skip
"""Stories of `cases.federated_stories` that are told again."""


def _client(name: str) -> ClientApp:
    app = ClientApp()
    nobody = np.random.default_rng(0)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = message.content.array_records["arrays"]["w"].numpy()
        step = int(message.metadata.group_id) - 1
        trained = model + toy.plain(Task(name, step, model, None, 0), nobody)
        content = RecordDict({"arrays": ArrayRecord({"w": Array(trained)}), "metrics": METRICS})
        return Message(content, reply_to=message)

    return identified(app)


CLIENTS = {name: _client(name) for name in NODES}
FIRST = ArrayRecord({"w": Array(toy.START)})


class FlowerWorld:
    """A strategy, and clients that are connected or not; a story may say when they answer."""

    def __init__(
        self, begin: Iterable[str], rng: np.random.Generator, *, rate: float, rho: float, finish: Finish | None
    ) -> None:
        self.grid = InMemoryGrid()
        self.strategy = ForgettingFedAvg(
            None, rounds=toy.ROUNDS, clip=1.0, rho=rho, rate=rate, selector="tail", finish=finish, min_clients=1,
            rng=rng,
        )  # fmt: skip
        for name in begin:
            self.connect(name)

    def connect(self, name: str) -> None:
        self.grid.join(NODES[name], CLIENTS[name], {"client-id": name})

    def disconnect(self, name: str) -> None:
        self.grid.leave(NODES[name])

    def go(self) -> None:
        """Make all rounds."""
        self.strategy.start(self.grid, FIRST, timeout=0)

    def try_to_go(self) -> None:
        """Make rounds until one is waited for."""
        try:
            self.go()
        except Unfinished:
            return

    def join(self, name: str) -> Outcome:
        self.connect(name)
        return self.strategy.join(self.grid, name, timeout=0)

    def forget(self, *names: str) -> Outcome:
        return self.strategy.forget(names)


@contextmanager
def quiet() -> Iterator[None]:
    """Let Flower's log say nothing."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


Story = Callable[[Any], None]


def _away_after_the_first_pass(world: FlowerWorld) -> None:
    world.go()
    world.disconnect("cy")
    world.forget("bob")
    world.try_to_go()
    world.connect("cy")


def _late_reply_after_a_cut(world: FlowerWorld) -> None:
    def fault_for(message: Message) -> Any:
        asked = message.metadata
        return late(3) if asked.dst_node_id == NODES["cy"] and asked.group_id == str(toy.ROUNDS) else fine

    world.grid.fault_for = fault_for
    world.try_to_go()
    world.grid.fault_for = lambda message: fine
    world.forget("bob")  # and the late reply comes with the first answers of the next start


@dataclass(frozen=True)
class FlowerCase:
    """A story, who is left at its end, and what is done wrong in it."""

    name: str
    story: Story
    left: tuple[str, ...]
    begin: tuple[str, ...] = ("ann", "bob", "cy")
    rate: float = 1.0
    rho: float = 0.8
    finish: Finish | None = None
    mistake: Callable[[], AbstractContextManager[Any]] = nullcontext

    def run(self, rng: np.random.Generator) -> Federation:
        """Tell the story, and finish all rounds."""
        with self.mistake():
            world = self._world(self.begin, rng)
            self.story(world)
            world.go()
        return world.strategy.federation

    def fresh(self, rng: np.random.Generator) -> Federation:
        """Train those who are left."""
        world = self._world(self.left, rng)
        world.go()
        return world.strategy.federation

    def _world(self, begin: Iterable[str], rng: np.random.Generator) -> FlowerWorld:
        return FlowerWorld(begin, rng, rate=self.rate, rho=self.rho, finish=self.finish)

    def check(self, runs: int, seed: int) -> Exactness:
        """Compare the story with fresh training, so many times each."""
        with quiet():
            return check_same_law(
                lambda rng: state_of(self.run(rng)), lambda rng: state_of(self.fresh(rng)),
                names_of(self.fresh(np.random.default_rng(0))), runs=runs, seed=seed,
            )  # fmt: skip


# --- ways to get it wrong ---


@contextmanager
def leaving_out_who_is_absent() -> Iterator[None]:
    """Make rounds with those who answer, as plain federated averaging does."""
    start = ForgettingFedAvg.start

    def hasty(self: ForgettingFedAvg, *args: Any, **more: Any) -> Any:
        while True:
            try:
                return start(self, *args, **more)
            except Unfinished:
                tasks = self.federation.tasks()
                self.federation.receive([(task, np.full(2, np.nan)) for task in tasks])

    with patched_method(ForgettingFedAvg, "start", hasty):
        yield


@contextmanager
def taking_any_reply() -> Iterator[None]:
    """Take what a client replies for its answer, whichever message it replies to; what is oldest comes first."""

    def by_node(sent: Iterable[tuple[Message, Any]], replies: Iterable[Message]) -> Iterator[tuple[Message, Any]]:
        asked = {message.metadata.dst_node_id: what for message, what in sent}
        for reply in sorted(replies, key=lambda reply: int(reply.metadata.message_id.partition("-")[2])):
            if reply.metadata.src_node_id in asked:
                yield reply, asked[reply.metadata.src_node_id]

    with patched_everywhere("answers_to", by_node):
        yield


def cases() -> list[FlowerCase]:
    """Return all stories that must be exact."""
    told = {case.name: case for case in (*toy.cases(), *exact_cases())}
    found = [
        FlowerCase(case.name, case.story, case.left, case.begin, case.rate, case.rho, case.finish)
        for case in (told[name] for name in TOLD_BY_FLOWER)
    ]
    return [
        *found,
        FlowerCase("away when rounds are repeated", _away_after_the_first_pass, ("ann", "cy")),
        FlowerCase("a late reply after a cut", _late_reply_after_a_cut, ("ann", "cy")),
    ]


def controls() -> list[FlowerCase]:
    """Return stories with a mistake, which must be caught."""
    left = ("ann", "cy")
    return [
        FlowerCase("who is absent is left out", _away_after_the_first_pass, left, mistake=leaving_out_who_is_absent),
        FlowerCase("a reply to an old message is taken", _late_reply_after_a_cut, left, mistake=taking_any_reply),
    ]
