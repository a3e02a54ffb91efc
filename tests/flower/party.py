"""Clients for tests of the strategy: what each answers is chosen by the test, and all that they are asked is noted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from expunge.federated import ForgettingFedAvg, identified
from flower.in_memory_grid import InMemoryGrid

Arrays = dict[str, np.ndarray]
Train = Callable[[Arrays, int], RecordDict]
"""What a client does with a model, in a round."""
START = {"w": np.array([0.2, -0.1])}
WANTS = {"ann": 1.0, "bob": -1.0, "cy": 0.5, "dee": -0.25}


def record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def reply(arrays: Arrays, **metrics: float) -> RecordDict:
    return RecordDict({"arrays": record(arrays), "metrics": MetricRecord({"num-examples": 1, **metrics})})


def towards(want: float) -> Train:
    """Go half the way to a number; for each round a little more."""
    return lambda arrays, number: reply(
        {name: array + (0.5 + 0.01 * number) * (want - array).astype(array.dtype) for name, array in arrays.items()}
    )


def numbers_of(arrays: ArrayRecord) -> Arrays:
    return {name: array.numpy() for name, array in arrays.items()}


class Party:
    """Some clients, and a grid that they are connected to."""

    def __init__(self, *names: str, first_node: int = 11, **more: object) -> None:
        self.grid = InMemoryGrid(**more)
        self.asked: list[tuple[str, int]] = []
        """Who was asked for which round."""
        self.models: dict[tuple[str, int], Arrays] = {}
        self.configs: list[dict[str, object]] = []
        self.train: dict[str, Train] = {name: towards(want) for name, want in WANTS.items()}
        self.nodes: dict[str, int] = {}
        self._next = first_node
        self.come(*names)

    def come(self, *names: str) -> None:
        for name in names:
            self.nodes[name] = self.connect(name)

    def connect(self, name: str, app: ClientApp | None = None) -> int:
        node, self._next = self._next, self._next + 1
        self.grid.join(node, app or identified(self._app(name)), {"client-id": name})
        return node

    def go(self, *names: str) -> None:
        for name in names:
            self.grid.leave(self.nodes.pop(name))

    def _app(self, name: str) -> ClientApp:
        app = ClientApp()

        @app.train()
        def train(message: Message, context: Context) -> Message:
            config = message.content.config_records["config"]
            number = int(config["server-round"])
            self.asked.append((name, number))
            self.configs.append(dict(config))
            arrays = numbers_of(message.content.array_records["arrays"])
            self.models[name, number] = arrays
            return Message(self.train[name](arrays, number), reply_to=message)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            [first, *_] = numbers_of(message.content.array_records["arrays"]).values()
            told = MetricRecord({"loss": float(np.abs(first - WANTS[name]).max()), "num-examples": 2})
            return Message(RecordDict({"metrics": told}), reply_to=message)

        return app

    def fault(self, name: str, fault: Callable[..., object], kind: str = "train", rounds: range = range(100)) -> None:
        """Let something become of the messages of one kind to one client, in some rounds."""
        before = self.grid.fault_for

        def fault_for(message: Message):
            met = message.metadata
            wanted = met.dst_node_id == self.nodes.get(name) and met.message_type.startswith(kind)
            return fault if wanted and (not met.group_id or int(met.group_id) in rounds) else before(message)

        self.grid.fault_for = fault_for

    def mend(self) -> None:
        self.grid.fault_for = InMemoryGrid().fault_for

    def asked_since(self, since: int) -> list[tuple[str, int]]:
        return sorted(self.asked[since:])


def strategy_of(store: object = None, **more: object) -> ForgettingFedAvg:
    """A strategy of three rounds, with noise unless told otherwise."""
    given = {"rounds": 3, "clip": 1.0, "rho": 0.8, "finish": None}
    if store is None and "rng" not in more:
        given["rng"] = np.random.default_rng(0)
    return ForgettingFedAvg(store, **{**given, **more})
