"""The grid without a network tells what Flower's own grids tell."""

import random

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp.strategy import FedAvg

from flower.in_memory_grid import (
    Fault,
    InMemoryGrid,
    crashed,
    expired,
    fine,
    garbled,
    late,
    lost,
    offline,
    twice,
    unheard,
)


class Echo:
    """A client that answers with what it was sent and its name."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, message: Message, context: Context) -> Message:
        self.asked += 1
        name = ConfigRecord({"name": context.node_config["name"], "said": message.content["config"]["say"]})
        return Message(RecordDict({"config": name}), reply_to=message)


def grid_of(fault: Fault, faulty: int = 12) -> tuple[InMemoryGrid, dict[int, Echo]]:
    """A grid with nodes 11, 12 and 13, one of them faulty."""
    grid = InMemoryGrid(fault_for=lambda message: fault if message.metadata.dst_node_id == faulty else fine)
    clients = {node_id: Echo() for node_id in (11, 12, 13)}
    for node_id, client in clients.items():
        grid.join(node_id, client, {"name": f"client-{node_id}"})
    return grid, clients


def messages(*node_ids: int, say: int = 0) -> list[Message]:
    return [Message(RecordDict({"config": ConfigRecord({"say": say})}), node_id, "query") for node_id in node_ids]


def names(replies: list[Message]) -> list[object]:
    return [reply.content["config"]["name"] for reply in replies]


def test_replies_name_their_nodes_and_messages():
    grid, _ = grid_of(fine)
    sent = messages(13, 11)
    replies = grid.send_and_receive(sent)
    assert names(replies) == ["client-13", "client-11"]
    assert [reply.metadata.src_node_id for reply in replies] == [13, 11]
    assert [reply.metadata.dst_node_id for reply in replies] == [SUPERLINK_NODE_ID] * 2
    assert [reply.metadata.reply_to_message_id for reply in replies] == [one.metadata.message_id for one in sent]
    assert len({one.metadata.message_id for one in [*sent, *replies]}) == 4


@pytest.mark.parametrize(("fault", "asked"), [(lost, 1), (unheard, 0)])
def test_no_reply(fault: Fault, asked: int):
    grid, clients = grid_of(fault)
    assert names(grid.send_and_receive(messages(11, 12, 13))) == ["client-11", "client-13"]
    assert clients[12].asked == asked


@pytest.mark.parametrize(
    ("fault", "code", "source"),
    [
        (offline, ErrorCode.NODE_UNAVAILABLE, SUPERLINK_NODE_ID),
        (expired, ErrorCode.MESSAGE_UNAVAILABLE, SUPERLINK_NODE_ID),
        (crashed, ErrorCode.CLIENT_APP_CRASHED, 12),
    ],
)
def test_errors(fault: Fault, code: int, source: int):
    grid, clients = grid_of(fault)
    sent = messages(11, 12)
    reply = grid.send_and_receive(sent)[1]
    assert (reply.error.code, reply.metadata.src_node_id, clients[12].asked) == (code, source, 0)
    assert reply.metadata.reply_to_message_id == sent[1].metadata.message_id


def test_what_a_client_raises_is_an_error_of_its_node():
    grid, _ = grid_of(fine)
    wrong = Message(RecordDict(), 12, "query")
    [reply] = grid.send_and_receive([wrong])
    assert (reply.error.code, reply.metadata.src_node_id) == (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, 12)


def test_a_reply_comes_twice():
    grid, clients = grid_of(twice)
    assert names(grid.send_and_receive(messages(11, 12))) == ["client-11", "client-12", "client-12"]
    assert clients[12].asked == 1


def test_a_late_reply_is_the_old_one():
    grid, _ = grid_of(late(2))
    assert names(grid.send_and_receive(messages(12, say=1))) == []
    assert names(grid.send_and_receive(messages(11, say=2))) == ["client-11"]
    replies = grid.send_and_receive(messages(13, say=3))
    assert [reply.content["config"]["said"] for reply in replies] == [3, 1]
    assert grid.send_and_receive([]) == []


def test_a_garbled_reply():
    def nan(reply: Message) -> Message:
        reply.content["metrics"] = MetricRecord({"loss": float("nan")})
        return reply

    grid, _ = grid_of(garbled(nan))
    plain, changed = grid.send_and_receive(messages(11, 12))
    assert "metrics" not in plain.content
    assert np.isnan(changed.content["metrics"]["loss"])


def test_pushing_and_pulling():
    grid, _ = grid_of(fine)
    first, second = grid.push_messages(messages(11, 12))
    assert names(grid.pull_messages([second])) == ["client-12"]
    assert names(grid.pull_messages([first, second])) == ["client-11"]


def test_a_node_that_left_gets_nothing():
    grid, clients = grid_of(fine)
    grid.leave(12)
    assert grid.get_node_ids() == [11, 13]
    assert names(grid.send_and_receive(messages(11, 12))) == ["client-11"]
    assert clients[12].asked == 0


def test_replies_in_any_order():
    grid = InMemoryGrid(shuffle=random.Random(0))
    for node_id in range(10, 30):
        grid.join(node_id, Echo(), {"name": node_id})
    order = names(grid.send_and_receive(messages(*range(10, 30))))
    assert order != sorted(order)
    assert sorted(order) == list(range(10, 30))


def test_flowers_own_strategy_and_client_app_run_on_it():
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord([message.content["arrays"]["0"].numpy() + context.node_config["step"]])
        return Message(
            RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": context.node_config["size"]})}),
            reply_to=message,
        )

    grid = InMemoryGrid()
    grid.join(11, app, {"step": 1.0, "size": 1})
    grid.join(12, app, {"step": 4.0, "size": 2})
    result = FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord([np.zeros(2)]), num_rounds=2)
    assert result.arrays["0"].numpy() == pytest.approx([6.0, 6.0])
    assert grid.sent == 4
