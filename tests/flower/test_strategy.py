"""The Flower strategy: plain runs, whatever clients and servers do wrong, clients that come and leave."""

import re
import threading
from itertools import count
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, Strategy

from expunge.base.errors import BadPlan, BadRecords, DuplicateId, StoreError, Unfinished, UnknownId
from expunge.engine.couplings.common import Toss
from expunge.federated import ForgettingFedAvg, asking, identified
from expunge.federated.state import state_of
from flower.in_memory_grid import crashed, expired, fine, garbled, late, lost, offline, twice, unheard
from flower.party import START, WANTS, Party, numbers_of, record, reply, strategy_of, towards

THREE = ("ann", "bob", "cy")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asking, "AGAIN", 0.01)
    monkeypatch.setattr("expunge.federated.strategy.AGAIN", 0.01)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "federation"


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch):
    """Let federations in files draw the same keys again from here on, each time that it is called."""

    def again(seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        monkeypatch.setattr("expunge.engine.randomness.fresh_key", lambda: rng.bytes(32))

    again()
    return again


def by_hand(party: Party, start: dict[str, np.ndarray], names: tuple[str, ...], rounds: int, strategy):
    """Average clipped updates, all clients counting alike, as a person would write it."""
    unit, clip, model = strategy.federation.plan.query.unit, strategy.federation.plan.clip, None
    model = np.concatenate([array.astype(float).ravel() for array in start.values()])

    def cut(vector):
        ends = np.cumsum([array.size for array in start.values()])[:-1]
        parts = zip(start.items(), np.split(vector, ends), strict=True)
        return {name: part.reshape(array.shape).astype(array.dtype) for (name, array), part in parts}

    def flat(arrays):
        return np.concatenate([np.asarray(arrays[name], dtype=float).ravel() for name in start])

    for number in range(1, rounds + 1):
        total = np.zeros(len(model))
        for name in names:
            sent = cut(model)
            answer = numbers_of(party.train[name](sent, number).array_records["arrays"])
            update = flat(answer) - flat(sent)
            length = np.sqrt(update @ update)
            total += np.trunc(update * min(1.0, clip / length) / unit) * unit
        model = model + total / len(names)
    return cut(model)


# --- plain runs ---


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_plain_run_is_federated_averaging_of_clipped_updates(dtype: str):
    rng = np.random.default_rng(1)
    shapes = {"layer.0/weight": (2, 3), "bias": (4,), "scale": (), "deep": (2, 1, 2)}
    start = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    start = {name: np.asarray(array) for name, array in start.items()}
    party, strategy = Party(*THREE), strategy_of(rho=1)
    result = strategy.start(party.grid, record(start))
    model = numbers_of(result.arrays)
    assert [(name, array.shape, array.dtype) for name, array in model.items()] == [
        (name, array.shape, array.dtype) for name, array in start.items()
    ]
    wanted = by_hand(party, start, THREE, 3, strategy)
    assert all(np.array_equal(model[name], wanted[name]) for name in start)
    assert result.train_metrics_clientapp[1] == MetricRecord({"clients": 3, "clipped": 3, "unfit": 0})
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]
    assert result.evaluate_metrics_clientapp == result.evaluate_metrics_serverapp == {}
    assert party.asked_since(0) == [(name, number) for name in THREE for number in (1, 2, 3)]
    assert strategy.finished
    assert strategy.verify().ok


def test_clients_get_the_config_and_number_of_the_round():
    party = Party(*THREE)
    strategy_of(rounds=2).start(
        party.grid, record(START), train_config=ConfigRecord({"lr": 0.5, "server-round": 9}), num_rounds=2
    )
    assert party.configs == [{"lr": 0.5, "server-round": 1}] * 3 + [{"lr": 0.5, "server-round": 2}] * 3


TOLD = {"lr": 0.5, "layers": [3, 4], "how": "fast", "deep": True}


@pytest.mark.parametrize("again", ["by start", "by Flower's own loop", "by both"])
def test_what_clients_are_told_is_fixed_by_the_first_start(again: str, store: Path):
    party, strategy = Party(*THREE), strategy_of(store, rounds=4)
    party.fault("bob", unheard, rounds=range(2, 5))
    with pytest.raises(Unfinished):
        strategy.start(party.grid, record(START), train_config=ConfigRecord(dict(TOLD)), timeout=0)
    strategy.close()
    party.mend()
    party.come("dee")
    strategy = ForgettingFedAvg(store)
    for other in ({**TOLD, "lr": 0.25}, {"lr": 0.5}, {**TOLD, "more": 1}):
        sent = party.grid.sent
        with pytest.raises(BadPlan, match="train_config: clients were told something else"):
            strategy.start(party.grid, train_config=ConfigRecord(other))
        with pytest.raises(BadPlan, match="train_config"):
            Strategy.start(strategy, party.grid, record(START), num_rounds=4, train_config=ConfigRecord(other))
        assert party.grid.sent == sent
    with pytest.raises(BadPlan, match="train_config"):
        strategy.start(party.grid, train_config=ConfigRecord())
    if again == "by Flower's own loop":  # which gives an empty one where none is given
        Strategy.start(strategy, party.grid, record(START), num_rounds=4)
    strategy.join(party.grid, "dee")
    backwards = ConfigRecord(dict(reversed(TOLD.items())))
    strategy.start(party.grid, train_config=backwards if again == "by both" else None)
    assert strategy.finished
    assert {name for name, _ in party.asked} == {*THREE, "dee"}
    assert all(config == {**TOLD, "server-round": config["server-round"]} for config in party.configs)
    strategy.close()


def test_what_cannot_be_kept_is_not_told_and_is_refused_before_anything_is_done(store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    for start in (strategy.start, strategy.begin):
        for wrong in (b"bytes", [b"bytes"], float("nan")):
            with pytest.raises(BadPlan, match="config: 'x' is not a number, a text or a list of them"):
                start(party.grid, record(START), train_config=ConfigRecord({"x": wrong}))
    assert not store.exists()
    assert party.grid.sent == 0


@pytest.mark.parametrize("stored", [True, False])
def test_a_federation_begins_with_those_who_are_named(stored: bool, store: Path):
    party, strategy = Party(*THREE, "dee"), strategy_of(store if stored else None, min_clients=4)
    party.connect("dee")  # one that does not matter
    with pytest.raises(Unfinished, match="members: 2 are named: 1 of them are connected"):
        strategy.begin(party.grid, record(START), members=["ann", "zoe"], timeout=0.05)
    for wrong, error in ((["ann", "ann"], DuplicateId), (["ann", ""], BadRecords), (["ann", "dee"], DuplicateId)):
        with pytest.raises(error):
            strategy.begin(party.grid, record(START), members=wrong, timeout=0.05)
    assert not store.exists()
    names = (name for name in ("cy", "ann"))
    strategy.begin(party.grid, record(START), members=names, train_config=ConfigRecord({"lr": 0.5}))
    assert strategy.federation.members == ["ann", "cy"]
    assert strategy.federation.plan.clients == 2
    assert strategy.federation.made == len(party.asked) == 0
    with pytest.raises(BadPlan, match="has begun already"):
        strategy.begin(party.grid, record(START))
    strategy.start(party.grid)
    assert party.asked_since(0) == [(name, number) for name in ("ann", "cy") for number in (1, 2, 3)]
    assert party.configs[-1] == {"lr": 0.5, "server-round": 3}
    assert strategy.verify().ok
    strategy.close()


def test_a_federation_begins_with_one_who_is_named_or_with_all_who_are_connected():
    party = Party(*THREE)
    for members, wanted in (("bob", ["bob"]), (None, list(THREE))):
        strategy = strategy_of()
        strategy.begin(party.grid, record(START), members=members)
        assert strategy.federation.members == wanted


def test_members_who_are_named_are_waited_for():
    party, strategy = Party("ann"), strategy_of()
    look, more = party.grid.get_node_ids, iter(["dee", "bob", "cy"])

    def later() -> list[int]:
        found = look()
        party.come(*[name for name in [next(more, None)] if name])
        return found

    party.grid.get_node_ids = later
    strategy.begin(party.grid, record(START), members=["ann", "cy"], timeout=5)
    assert strategy.federation.members == ["ann", "cy"]


@pytest.mark.parametrize(
    ("array", "words"),
    [(np.array([1, 2]), "'n' is of type int64"), (np.array([True]), "only floating"), (np.array([np.nan]), "NaN")],
)
def test_models_that_cannot_be_averaged_are_refused_before_anything_is_done(array: np.ndarray, words: str, store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    with pytest.raises(BadPlan, match=words):
        strategy.start(party.grid, record({**START, "n": array}))
    assert not store.exists()
    assert party.grid.sent == 0


def test_what_is_given_wrongly_is_refused_before_anything_is_done(store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    for wrong, words in (
        ({"num_rounds": 7}, "num_rounds=7: the plan has 3"),
        ({"absent": "stay"}, "absent"),
        ({"initial_arrays": None}, "initial_arrays"),
    ):
        with pytest.raises(BadPlan, match=words):
            strategy.start(party.grid, **{"initial_arrays": record(START), **wrong})
    assert not store.exists()
    for action in (lambda: strategy.forget("ann"), lambda: strategy.join(party.grid, "dee"), strategy.verify):
        with pytest.raises(Unfinished, match="has not begun"):
            action()
    assert not strategy.finished
    assert strategy.roll_call(party.grid) == dict.fromkeys(THREE, True)
    with pytest.raises(BadPlan, match="clip: give it"):
        ForgettingFedAvg(store, rounds=3)
    with pytest.raises(BadPlan, match="rng"):
        strategy_of(store, rng=np.random.default_rng())
    with pytest.raises(BadPlan, match="min_clients=0"):
        strategy_of(store, min_clients=0)


@pytest.mark.parametrize("timeout", [None, float("nan"), -1, "long"])
def test_a_timeout_that_is_none_is_refused_before_anything_is_done(timeout: object):
    party, strategy = Party(*THREE), strategy_of()
    for action in (
        lambda: strategy.start(party.grid, record(START), timeout=timeout),
        lambda: strategy.begin(party.grid, record(START), timeout=timeout),
        lambda: strategy.roll_call(party.grid, timeout=timeout),
    ):
        with pytest.raises(BadPlan, match="timeout="):
            action()
    assert party.grid.sent == 0
    strategy.start(party.grid, record(START))
    with pytest.raises(BadPlan, match="timeout="):
        strategy.join(party.grid, "dee", timeout=timeout)
    with pytest.raises(BadRecords, match="clients: give names"):
        strategy.join(party.grid, [["dee"]])


def test_parameters_that_disagree_with_the_file_are_refused(store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    strategy.start(party.grid, record(START))
    with pytest.raises(StoreError, match="another process"):
        ForgettingFedAvg(store, wait=0)
    strategy.close()
    for name, value in {"rounds": 4, "clip": 2.0, "rho": 0.5, "rate": 0.5, "selector": "tail"}.items():
        with pytest.raises(BadPlan, match=f"{name}={value!r}.*was planned with"):
            ForgettingFedAvg(store, **{name: value})
    ForgettingFedAvg(store, rounds=3, clip=1, rho="auto").close()
    again = ForgettingFedAvg(store)
    with pytest.raises(BadPlan, match="num_rounds=9"):
        again.start(party.grid, num_rounds=9)
    with pytest.raises(BadRecords, match="expected 'w' of shape"):
        again.start(party.grid, record({"w": np.zeros(3)}))
    again.start(party.grid, record(START))
    again.close()
    with pytest.raises(StoreError, match="closed"):
        again.forget("ann")


def test_evaluation_by_server_and_members():
    seen = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        seen.append(number)
        return None if number == 2 else MetricRecord({"first": float(numbers_of(arrays)["w"][0])})

    party = Party(*THREE)
    party.fault("bob", crashed, "evaluate")
    result = strategy_of(evaluate_clients=True).start(party.grid, record(START), evaluate_fn=evaluate)
    assert seen == [0, 1, 2, 3]
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 3]
    last = numbers_of(result.arrays)["w"]
    assert result.evaluate_metrics_serverapp[3]["first"] == last[0]
    losses = [float(np.abs(last - WANTS[name]).max()) for name in ("ann", "cy")]
    assert dict(result.evaluate_metrics_clientapp[3]) == {"loss": pytest.approx(np.mean(losses))}


@pytest.mark.parametrize(
    "told",
    [
        {"metrics": MetricRecord({"loss": 1.0})},
        {"metrics": MetricRecord({"loss": 1.0, "num-examples": 0})},
        {"metrics": MetricRecord({"loss": 1.0, "num-examples": float("nan")})},
        {"metrics": MetricRecord({"loss": 1.0, "num-examples": [1, 2]})},
        {"metrics": MetricRecord({"loss": [1.0, 2.0], "num-examples": 1})},
        {"metrics": MetricRecord({"num-examples": 1})},
        {"metrics": MetricRecord({"loss": 1.0, "num-examples": 1}), "more": MetricRecord({"num-examples": 1})},
        {},
    ],
)
def test_a_member_that_reports_nonsense_does_not_spoil_the_evaluation(told: dict[str, MetricRecord]):
    party = Party(*THREE)
    wrong = garbled(lambda reply: (reply.content.clear(), reply.content.update(told), reply)[-1])
    party.fault("bob", wrong, "evaluate")
    result = strategy_of(rounds=1, evaluate_clients=True).start(party.grid, record(START))
    assert sorted(result.evaluate_metrics_clientapp[1]) == ["loss"]


def test_others_go_on_where_one_stopped_whatever_their_node_ids(store: Path, seeded):
    party, strategy = Party(*THREE), strategy_of(store)
    party.fault("bob", unheard, rounds=range(2, 3))
    with pytest.raises(Unfinished):
        strategy.start(party.grid, record(START), timeout=0)
    strategy.close()
    others = Party("cy", "dee", "bob", "ann", first_node=12)
    strategy = ForgettingFedAvg(store)
    result = strategy.start(others.grid)
    assert others.asked_since(0) == sorted([("bob", 2)] + [(name, 3) for name in THREE])
    assert sorted(result.train_metrics_clientapp) == [2, 3]
    assert result.train_metrics_clientapp[2]["clients"] == 3
    assert strategy.roll_call(others.grid) == {"ann": True, "bob": True, "cy": True, "dee": True}

    seeded()
    plain = strategy_of(store.with_name("plain"))
    whole = plain.start(Party(*THREE).grid, record(START))
    assert np.array_equal(numbers_of(whole.arrays)["w"], numbers_of(result.arrays)["w"])
    for one in (strategy, plain):
        one.close()


def test_a_finished_federation_has_nothing_to_do(store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    first = strategy.start(party.grid, record(START))
    strategy.close()
    strategy, before = ForgettingFedAvg(store), len(party.asked)
    again = strategy.start(party.grid, evaluate_fn=lambda number, arrays: pytest.fail("nothing to evaluate"))
    assert np.array_equal(numbers_of(again.arrays)["w"], numbers_of(first.arrays)["w"])
    assert again.train_metrics_clientapp == {}
    assert len(party.asked) == before
    strategy.close()


def test_an_update_above_the_clip_is_shortened_and_counted():
    party, strategy = Party(*THREE), strategy_of(rho=1, clip=0.1, rounds=1)
    party.train["bob"] = lambda arrays, number: reply({"w": arrays["w"] + [0.03, 0.04]})
    result = strategy.start(party.grid, record(START))
    assert result.train_metrics_clientapp[1] == MetricRecord({"clients": 3, "clipped": 2, "unfit": 0})
    wanted = by_hand(party, START, THREE, 1, strategy)
    assert np.array_equal(numbers_of(result.arrays)["w"], wanted["w"])


# --- clients that do something wrong ---


@pytest.mark.parametrize("bad", [[np.nan, 0.0], [np.inf, 0.0], [0.0, -np.inf]])
def test_nan_counts_for_nothing_and_is_logged_without_a_name(bad: list[float], caplog: pytest.LogCaptureFixture):
    party, strategy = Party(*THREE), strategy_of(rho=1, rounds=1)
    party.train["bob"] = lambda arrays, number: reply({"w": np.array(bad)})
    result = strategy.start(party.grid, record(START))
    assert result.train_metrics_clientapp[1]["unfit"] == 1
    wanted = by_hand(party, START, ("ann", "cy"), 1, strategy)
    assert np.array_equal(numbers_of(result.arrays)["w"], wanted["w"])
    assert "1 answers with NaN" in caplog.text
    assert "bob" not in caplog.text


def test_updates_too_long_for_a_number_count_for_nothing():
    party, strategy = Party(*THREE), strategy_of(rho=1, rounds=1)
    party.train["bob"] = lambda arrays, number: reply({"w": np.array([-1.7e308, 0.0])})
    result = strategy.start(party.grid, record({"w": np.array([1e308, 0.0])}))
    assert result.train_metrics_clientapp[1] == MetricRecord({"clients": 3, "clipped": 2, "unfit": 1})


WRONG_ARRAYS = {
    "another shape": lambda: reply({"w": np.zeros(3)}),
    "one number too deep": lambda: reply({"w": np.zeros((2, 1))}),
    "no array": lambda: reply({}),
    "another name": lambda: reply({"v": np.zeros(2)}),
    "one more": lambda: reply({"w": np.zeros(2), "v": np.zeros(2)}),
    "whole numbers": lambda: reply({"w": np.zeros(2, dtype=int)}),
    "complex numbers": lambda: reply({"w": np.zeros(2, dtype=complex)}),
    "two records": lambda: RecordDict({"a": record({"w": np.zeros(2)}), "b": record({"w": np.zeros(2)})}),
    "no record": lambda: RecordDict({"metrics": MetricRecord({"num-examples": 1})}),
    "bytes that are no array": lambda: RecordDict(
        {"a": ArrayRecord({"w": Array("float64", (2,), "numpy.ndarray", b"\x93NUMPYxyz")})}
    ),
    "bytes of an archive": lambda: RecordDict(
        {"a": ArrayRecord({"w": Array("float64", (2,), "numpy.ndarray", b"PK\x03\x04xyz")})}
    ),
    "another format": lambda: RecordDict({"a": ArrayRecord({"w": Array("float64", (2,), "pickle", b"x")})}),
}


@pytest.mark.parametrize("wrong", WRONG_ARRAYS.values(), ids=list(WRONG_ARRAYS))
def test_wrong_arrays_are_an_error_that_costs_no_answer(wrong, store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    party.train["bob"] = lambda arrays, number: wrong()
    with pytest.raises(BadRecords, match=r"client 'bob': arrays: .*Answers of other clients are kept; fix the client"):
        strategy.start(party.grid, record(START))
    party.train["bob"], before = towards(-1.0), len(party.asked)
    strategy.close()
    strategy = ForgettingFedAvg(store)
    strategy.start(party.grid)
    assert party.asked_since(before) == sorted([("bob", 1)] + [(name, n) for name in THREE for n in (2, 3)])
    assert strategy.verify().ok
    strategy.close()


def test_after_wrong_arrays_the_answers_still_on_their_way_are_waited_for():
    party, strategy = Party(*THREE), strategy_of()
    party.train["ann"] = lambda arrays, number: reply({"w": np.zeros(3)})
    party.fault("cy", late(2))
    with pytest.raises(BadRecords, match="'ann'"):
        strategy.start(party.grid, record(START), timeout=5)
    assert [task.client for task in strategy.federation.tasks()] == ["ann"]


def test_of_two_answers_the_first_counts():
    party, strategy = Party(*THREE), strategy_of(rho=1)
    numbers = count()
    party.train["bob"] = lambda arrays, number: reply({"w": np.array([0.1 * number, 1e3 * next(numbers)])})

    def again(message: Message, ask):
        first, second = ask(), ask()
        first.content["arrays"]["w"] = Array(np.array([0.0, 0.0]))
        return [(0, first), (0, second)]

    party.fault("bob", again)
    result = strategy.start(party.grid, record(START))
    party.train["bob"] = lambda arrays, number: reply({"w": np.zeros(2)})
    wanted = by_hand(party, START, THREE, 3, strategy)
    assert np.array_equal(numbers_of(result.arrays)["w"], wanted["w"])
    assert result.train_metrics_clientapp[2]["clients"] == 3


def test_the_same_reply_twice_is_one():
    models = []
    for fault in (None, twice):
        party, strategy = Party(*THREE), strategy_of()
        if fault is not None:
            party.fault("bob", fault)
            party.fault("cy", fault, "query")
        models.append(numbers_of(strategy.start(party.grid, record(START)).arrays)["w"])
    assert np.array_equal(*models)


@pytest.mark.parametrize("fault", [unheard, lost, offline, expired, crashed])
def test_one_that_does_not_answer_is_waited_for_and_only_it_is_asked_again(fault, store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    party.fault("bob", fault, rounds=range(2, 3))
    with pytest.raises(Unfinished, match=r"1 clients have not answered: 'bob'\. Nothing is lost"):
        strategy.start(party.grid, record(START), timeout=0.05)
    assert party.asked.count(("ann", 2)) == party.asked.count(("cy", 2)) == 1
    assert not strategy.finished
    party.mend()
    before = len(party.asked)
    result = strategy.start(party.grid)
    assert party.asked_since(before) == sorted([("bob", 2)] + [(name, 3) for name in THREE])
    assert sorted(result.train_metrics_clientapp) == [2, 3]
    assert strategy.verify().ok
    strategy.close()


def test_one_that_fails_is_asked_again_while_others_compute():
    party, strategy = Party(*THREE), strategy_of()
    party.fault("bob", late(12), rounds=range(1, 2))

    def fail_at_first(arrays, number):
        if party.asked.count(("cy", 1)) < 3:
            raise ValueError
        return towards(0.5)(arrays, number)

    party.train["cy"] = fail_at_first
    strategy.start(party.grid, record(START), timeout=5)
    assert [party.asked.count((name, 1)) for name in THREE] == [1, 1, 3]
    assert strategy.verify().ok


def test_a_client_that_starts_again_under_another_node_id_is_found():
    party, strategy = Party(*THREE), strategy_of()

    def restart(message: Message, ask):
        party.mend()
        party.go("bob")
        party.come("bob")
        return offline(message, ask)

    party.fault("bob", restart, rounds=range(2, 3))
    strategy.start(party.grid, record(START), timeout=1)
    assert party.asked.count(("bob", 2)) == 1


def test_the_old_node_of_a_client_that_started_again_is_not_in_the_way():
    party, strategy = Party(*THREE), strategy_of()
    old = party.nodes["bob"]

    def restart(message: Message, ask):
        party.mend()
        party.come("bob")  # while Flower still lists the old node
        party.grid.fault_for = lambda message: offline if message.metadata.dst_node_id == old else fine
        return offline(message, ask)

    party.fault("bob", restart, rounds=range(2, 3))
    strategy.start(party.grid, record(START), timeout=5)
    assert [party.asked.count(("bob", number)) for number in (1, 2, 3)] == [1, 1, 1]


def test_a_reply_to_an_old_message_is_not_taken_after_the_pass_was_cut_off():
    for seed in range(100):
        party, strategy = Party(*THREE), strategy_of(rng=np.random.default_rng(seed))
        party.fault("cy", late(10), rounds=range(3, 4))
        with pytest.raises(Unfinished):
            strategy.start(party.grid, record(START), timeout=0)
        old = party.models["cy", 3]["w"]
        strategy.forget("bob")
        if strategy.federation.made < 2:
            break
    party.mend()
    answered = party.grid._late
    party.grid._late = [(0, reply) for _, reply in answered]  # it arrives with the very next replies
    calls = party.grid._calls
    strategy.start(party.grid)
    assert party.grid._late == []
    assert party.grid._calls > calls
    assert not np.array_equal(party.models["cy", 3]["w"], old)
    assert strategy.verify().ok
    slot = strategy.federation.clients.members["cy"].slot
    held = strategy.federation.clients.held.history(slot, [2])[0] * strategy.federation.plan.query.unit
    assert np.allclose(held[:2], (0.5 + 0.03) * (0.5 - party.models["cy", 3]["w"]), atol=1e-6)


def test_a_reply_to_an_old_message_is_not_taken_in_the_next_round_either():
    party, strategy = Party(*THREE), strategy_of()
    party.fault("cy", late(4), rounds=range(1, 2))
    wrong, right = (lambda arrays, number: reply({"w": np.array([9.0, 9.0])})), towards(0.5)
    party.train["cy"] = lambda arrays, number: (wrong if len(party.asked) < 4 else right)(arrays, number)
    with pytest.raises(Unfinished):
        strategy.start(party.grid, record(START), timeout=0)
    party.mend()
    result = strategy.start(party.grid)
    assert result.train_metrics_clientapp[1]["clipped"] == 0
    assert party.asked.count(("cy", 1)) == 2


def test_an_answer_under_the_id_of_another_node_is_none():
    party, strategy = Party(*THREE), strategy_of()

    def impostor(reply: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] = party.nodes["ann"]
        return reply

    party.fault("bob", garbled(impostor))
    with pytest.raises(Unfinished, match="'bob'"):
        strategy.start(party.grid, record(START), timeout=0)
    party.mend()
    party.fault("cy", garbled(impostor), "query")
    assert strategy.roll_call(party.grid) == {"ann": True, "bob": True, "cy": False}


def test_too_few_clients_to_begin_are_waited_for(store: Path):
    party, strategy = Party("ann"), strategy_of(store, min_clients=3)
    with pytest.raises(Unfinished, match="min_clients=3: 1 of them are connected"):
        strategy.start(party.grid, record(START), timeout=0.05)
    assert not store.exists()
    look, more = party.grid.get_node_ids, iter(["bob", "cy"])

    def later() -> list[int]:
        found = look()
        party.come(*[name for name in [next(more, None)] if name])
        return found

    party.grid.get_node_ids = later
    strategy.start(party.grid, record(START), timeout=5)
    assert strategy.federation.members == list(THREE)
    strategy.close()


def test_two_nodes_with_one_name(store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    second = party.connect("bob")
    with pytest.raises(DuplicateId, match="client 'bob': nodes 12 and 14 both have"):
        strategy.start(party.grid, record(START))
    assert not store.exists()
    party.grid.leave(second)
    strategy.start(party.grid, record(START))
    party.connect("zoe")
    party.connect("zoe")  # strangers are in nobody's way
    strategy.start(party.grid)
    with pytest.raises(DuplicateId, match="zoe"):
        strategy.join(party.grid, "zoe")
    assert strategy.roll_call(party.grid)["zoe"]
    party.connect("ann")
    with pytest.raises(DuplicateId, match="ann"):
        strategy.start(party.grid, absent="leave")
    strategy.close()


def test_nodes_without_a_proper_name_do_not_take_part(caplog: pytest.LogCaptureFixture):
    party, strategy = Party(*THREE), strategy_of()
    party.connect("plain", ClientApp())
    for name in ("", "x" * 201, 7, "bob\0", "a\nb", None, b"bytes"):
        party.connect("odd", identified(ClientApp(), lambda context, name=name: name))
    party.connect("odd", identified(ClientApp(), lambda context: 1 / 0))
    party.come("x" * 200)
    party.train["x" * 200] = towards(0.0)
    strategy.start(party.grid, record(START))
    strategy.start(party.grid)
    assert strategy.federation.members == [*THREE, "x" * 200]
    assert caplog.text.count("9 nodes do not say who they are: wrap their ClientApp with identified(app)") == 1
    with pytest.raises(BadRecords, match="names of 1 to 200"):
        strategy.forget("")


def test_a_node_without_a_configured_name_says_what_to_do():
    Party()  # without a grid there are no messages
    context = Context(1, 5, {}, RecordDict(), {})
    message = Message(RecordDict(), 5, "query.expunge")
    with pytest.raises(ValueError, match="--node-config"):
        identified(ClientApp())(message, context)
    context.node_config["partition-id"] = 3
    said = identified(ClientApp())(message, context)
    assert said.content.config_records["expunge"]["client"] == "client-3"


# --- coming and leaving ---


def test_one_that_left_and_is_still_connected_is_not_asked_for_anything(store: Path):
    party, strategy = Party(*THREE), strategy_of(store, evaluate_clients=True)
    strategy.start(party.grid, record(START))
    strategy.forget("bob")
    before = len(party.asked)
    kinds = set()
    node = party.nodes["bob"]
    party.grid.fault_for = lambda message: (
        kinds.add(message.metadata.message_type) if message.metadata.dst_node_id == node else None,
        lambda message, ask: [(0, ask())],
    )[1]
    strategy.start(party.grid)
    assert kinds <= {"query.expunge"}
    assert "bob" not in {name for name, _ in party.asked_since(before)}
    assert strategy.federation.members == ["ann", "cy"]
    assert strategy.federation.candidates == []
    with pytest.raises(UnknownId, match="may have left already"):
        strategy.forget("bob")
    with pytest.raises(DuplicateId, match=r"client 'bob' left on .*again=True"):
        strategy.join(party.grid, "bob")
    assert strategy.federation.candidates == []
    strategy.join(party.grid, "bob", again=True)
    strategy.start(party.grid)
    assert strategy.federation.members == list(THREE)
    strategy.close()
    assert b"bob" not in b"".join(path.read_bytes() for path in store.parent.iterdir() if "key" in path.name)


def test_when_all_have_left_rounds_are_noise_and_nobody_is_asked():
    party, strategy = Party(*THREE), strategy_of(rounds=6)
    party.fault("bob", unheard, rounds=range(4, 5))
    with pytest.raises(Unfinished):
        strategy.start(party.grid, record(START), timeout=0)
    strategy.forget(THREE)
    assert not strategy.finished
    before, sent = len(party.asked), party.grid.sent
    result = strategy.start(party.grid, absent="leave")
    assert len(party.asked) == before
    assert party.grid.sent == sent + 3  # they were asked for their names
    assert result.train_metrics_clientapp[6]["clients"] == 0
    assert strategy.verify().ok


def test_a_newcomer_is_asked_for_its_own_rounds_with_the_model_of_each():
    party = Party(*THREE)
    strategy = strategy_of(rounds=12, rate=0.5)
    seen = {}
    strategy.start(
        party.grid,
        record(START),
        train_config=ConfigRecord({"lr": 0.5}),
        evaluate_fn=lambda number, arrays: seen.update({number: numbers_of(arrays)["w"]}),
    )
    party.come("dee")
    before, configs = len(party.asked), len(party.configs)
    joining = []
    admit = strategy.federation.admit

    def watch(names):
        client = strategy.federation.clients.candidates["dee"]
        joining.extend(step + 1 for step in strategy.federation.clients.rounds_of(client, range(12)))
        return admit(names)

    strategy.federation.admit = watch
    strategy.join(party.grid, "dee")
    assert party.asked_since(before) == [("dee", number) for number in joining]
    assert 0 < len(joining) < 12
    assert all(np.array_equal(party.models["dee", number]["w"], seen[number - 1]) for number in joining)
    assert party.configs[configs:] == [{"lr": 0.5, "server-round": number} for number in joining]
    strategy.start(party.grid)
    assert strategy.federation.members == ["ann", "bob", "cy", "dee"]
    assert strategy.verify().ok


def test_what_join_refuses(store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    strategy.start(party.grid, record(START))
    for names, error, words in (
        ("ann", DuplicateId, "is a member already"),
        ("dee", UnknownId, "'dee' is not connected"),
        (["ann", "ann"], DuplicateId, "duplicate name"),
    ):
        with pytest.raises(error, match=words):
            strategy.join(party.grid, names)
    assert strategy.federation.candidates == []
    assert strategy.finished
    strategy.close()


@pytest.mark.parametrize("by", ["join", "start", "forget"])
def test_a_join_that_was_interrupted_is_finished_or_withdrawn(by: str, store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    strategy.start(party.grid, record(START))
    party.come("dee")
    party.fault("dee", unheard, rounds=range(2, 3))
    before = len(party.asked)
    with pytest.raises(Unfinished, match="'dee'"):
        strategy.join(party.grid, "dee", timeout=0)
    assert party.asked_since(before) == [("dee", 1), ("dee", 3)]
    strategy.close()
    strategy, before = ForgettingFedAvg(store), len(party.asked)
    assert strategy.federation.candidates == ["dee"]
    party.mend()
    if by == "forget":
        strategy.forget("dee")
    elif by == "join":
        strategy.join(party.grid, "dee")
        assert party.asked_since(before) == [("dee", 2)]
    strategy.start(party.grid)
    assert party.asked[before : before + 1] == ([] if by == "forget" else [("dee", 2)])
    assert strategy.federation.members == [*THREE, *([] if by == "forget" else ["dee"])]
    assert strategy.federation.candidates == []
    assert strategy.verify().ok
    strategy.close()


def joining(*absent: str, store: Path | None = None, made: int = 3) -> tuple[Party, ForgettingFedAvg]:
    """Two clients whose joining was interrupted; some of them are not connected any more."""
    party, strategy = Party("ann", "bob"), strategy_of(store)
    party.fault("bob", unheard, rounds=range(made + 1, 4))
    if made < 3:
        with pytest.raises(Unfinished, match="'bob'"):
            strategy.start(party.grid, record(START), timeout=0)
    else:
        strategy.start(party.grid, record(START))
    party.come("cy", "dee")
    party.fault("cy", unheard, rounds=range(2, 3))
    with pytest.raises(Unfinished, match="'cy'"):
        strategy.join(party.grid, ["cy", "dee"], timeout=0)
    party.mend()
    party.go(*absent)
    return party, strategy


def test_one_who_is_joining_holds_up_others_who_come_or_leave_but_no_rounds():
    party, strategy = joining("cy")
    party.come("zoe")
    party.train["zoe"] = towards(0.0)
    before = len(party.asked)
    for action in (
        lambda: strategy.join(party.grid, "zoe"),
        lambda: strategy.join(party.grid, "dee"),
        lambda: strategy.join(party.grid, ["zoe", "dee"]),
        lambda: strategy.forget("ann"),
        lambda: strategy.forget(["ann", "dee"]),
    ):
        with pytest.raises(Unfinished, match="joining, and requests are served one by one"):
            action()
    assert len(party.asked) == before
    assert (strategy.federation.members, strategy.federation.candidates) == (["ann", "bob"], ["cy", "dee"])
    strategy.forget("cy")
    strategy.join(party.grid, "dee")
    strategy.join(party.grid, "zoe")
    strategy.forget("ann")
    strategy.start(party.grid)
    assert strategy.federation.members == ["bob", "dee", "zoe"]
    assert strategy.verify().ok


@pytest.mark.parametrize("made", [2, 3])
def test_start_only_warns_of_candidates_that_are_absent(made: int, caplog: pytest.LogCaptureFixture):
    party, strategy = joining("cy", made=made)
    before = len(party.asked)
    strategy.start(party.grid, timeout=1)
    assert "1 clients that were joining are not connected" in caplog.text
    assert not re.search(r"\b(cy|dee)\b", caplog.text)
    assert strategy.finished
    assert (strategy.federation.members, strategy.federation.candidates) == (["ann", "bob"], ["cy", "dee"])
    assert "dee" not in {name for name, _ in party.asked_since(before)}  # nobody is let in without the other
    party.come("cy")
    strategy.start(party.grid)
    assert strategy.federation.members == ["ann", "bob", "cy", "dee"]
    assert strategy.verify().ok


@pytest.mark.parametrize("absent", [("cy",), ("cy", "dee"), ("cy", "bob"), ("bob",)], ids=str)
def test_candidates_that_are_absent_are_withdrawn_where_absent_members_leave(absent: tuple[str, ...], store: Path):
    party, strategy = joining(*absent, store=store)
    strategy.start(party.grid, absent="leave")
    assert strategy.federation.members == sorted({"ann", "bob", "cy", "dee"} - set(absent))
    assert strategy.federation.candidates == []
    assert all(strategy.federation.was_forgotten(name) for name in absent)
    assert strategy.verify().ok
    if "cy" in absent:
        party.come("cy")
        strategy.join(party.grid, "cy", again=True)
        assert "cy" in strategy.federation.members
    strategy.close()


def test_start_lets_candidates_in_before_it_makes_rounds():
    party, strategy = joining(made=2)
    before = len(party.asked)
    result = strategy.start(party.grid)
    asked = party.asked[before:]
    assert asked[0] == ("cy", 2)
    assert strategy.federation.members == ["ann", "bob", "cy", "dee"]
    assert result.train_metrics_clientapp[3]["clients"] == 4
    assert strategy.verify().ok


@pytest.mark.parametrize("stored", [True, False])
def test_members_leave_with_all_who_are_joining(stored: bool, store: Path):
    party, strategy = joining("cy", store=store if stored else None)
    strategy.forget(["bob", "cy", "dee"])
    before = len(party.asked)
    strategy.start(party.grid)
    assert {name for name, _ in party.asked_since(before)} <= {"ann"}
    assert (strategy.federation.members, strategy.federation.candidates) == (["ann"], [])
    assert strategy.verify().ok
    strategy.close()


def test_one_that_left_and_came_back_is_asked_though_its_old_answer_is_still_waited_for():
    """And that answer is not taken, should it come after all."""
    for seed in range(30):
        party, strategy = Party(*THREE), strategy_of(rounds=2, rho=0.3, rng=np.random.default_rng(seed))
        asked, silent, failed = threading.Event(), iter([unheard]), list[BaseException]()

        def at_first(message: Message, ask, asked=asked, silent=silent):
            replies = next(silent, fine)(message, ask)
            asked.set()
            return replies

        party.fault("bob", at_first, rounds=range(2, 3))
        thread = threading.Thread(target=run_caught, args=(failed, strategy, party))
        thread.start()
        assert asked.wait(10)
        path = strategy.federation.tasks()[0].path
        with strategy.federation.lock:
            strategy.forget("bob")
            strategy.join(party.grid, "bob")
            kept = strategy.federation.tasks()[0].path is path
        thread.join(5)  # and not 20
        assert not thread.is_alive()
        assert not failed
        assert strategy.federation.members == list(THREE)
        assert strategy.verify().ok
        if kept:
            return
    pytest.fail("the path was never kept")


def test_answers_of_newcomers_are_not_counted_as_those_of_members():
    party, strategy = Party(*THREE), strategy_of()
    party.fault("bob", unheard, rounds=range(3, 4))
    with pytest.raises(Unfinished):
        strategy.start(party.grid, record(START), timeout=0)
    party.come("dee")
    party.train["dee"] = lambda arrays, number: reply({"w": np.array([np.nan, 0.0])})
    strategy.join(party.grid, "dee")
    party.train["dee"] = towards(0.0)
    party.mend()
    result = strategy.start(party.grid)
    assert result.train_metrics_clientapp[3]["clients"] == 4
    assert result.train_metrics_clientapp[3]["unfit"] == 0


def test_what_newcomers_answered_is_cut_with_the_pass():
    for seed in range(100):
        party, strategy = Party(*THREE), strategy_of(rng=np.random.default_rng(seed))
        strategy.start(party.grid, record(START))
        party.come("dee")
        strategy.join(party.grid, "dee")
        if strategy.federation.made == 1:
            break
    before = len(party.asked)
    strategy.start(party.grid)
    assert party.asked_since(before) == [(name, number) for name in (*THREE, "dee") for number in (2, 3)]
    assert strategy.verify().ok


def test_what_those_who_were_joining_answered_is_no_use_after_they_left_with_a_member():
    for seed in range(100):
        party, strategy = Party(*THREE), strategy_of(rng=np.random.default_rng(seed))
        strategy.start(party.grid, record(START))
        party.come("dee")
        party.fault("dee", unheard, rounds=range(1, 2))
        with pytest.raises(Unfinished):
            strategy.join(party.grid, "dee", timeout=0)
        strategy.forget(["bob", "dee"])
        if strategy.federation.made == 1:
            break
    party.mend()
    before = len(party.asked)
    strategy.join(party.grid, "dee")
    strategy.start(party.grid)
    asked = party.asked_since(before)
    assert ("dee", 1) in asked
    assert {("dee", 2), ("dee", 3), ("ann", 3), ("cy", 3)} <= set(asked)
    assert strategy.verify().ok


def test_a_join_while_rounds_are_under_way():
    party, strategy = Party("ann", "bob"), strategy_of(rounds=4)

    def evaluate(number: int, arrays: ArrayRecord) -> None:
        if number == 2 and "dee" not in strategy.federation.members:
            party.come("dee")
            strategy.join(party.grid, "dee")

    strategy.start(party.grid, record(START), evaluate_fn=evaluate)
    assert strategy.federation.members == ["ann", "bob", "dee"]
    assert strategy.verify().ok


def test_one_that_is_still_computing_does_not_pass_for_absent(monkeypatch: pytest.MonkeyPatch):
    party, strategy = Party(*THREE), strategy_of()
    strategy.start(party.grid, record(START))
    silent = iter([unheard, unheard])  # a node does one thing at a time
    party.fault("cy", lambda message, ask: next(silent, fine)(message, ask), "query")
    monkeypatch.setattr(asking, "ROLL_CALL", 0.02)
    strategy.start(party.grid, absent="leave", timeout=10)
    assert strategy.federation.members == [*THREE]


def test_absent_members_leave_once_and_with_a_receipt(store: Path, monkeypatch: pytest.MonkeyPatch):
    party, strategy = Party(*THREE, "dee"), strategy_of(store)
    strategy.start(party.grid, record(START))
    party.go("dee")
    strategy.start(party.grid, absent="wait")
    assert strategy.federation.members == [*THREE, "dee"]
    receipts = [len(strategy.federation.export_receipts()["receipts"])]
    strategy.start(party.grid, absent="leave")  # all rounds are made, yet it leaves
    strategy.start(party.grid)
    party.fault("cy", unheard, "query")
    monkeypatch.setattr(asking, "ROLL_CALL", 0.05)
    strategy.start(party.grid, absent="leave", timeout=0.05)
    assert strategy.federation.members == ["ann", "bob"]
    strategy.start(party.grid, absent="leave")
    receipts.append(len(strategy.federation.export_receipts()["receipts"]))
    assert receipts == [0, 2]
    assert [strategy.federation.was_forgotten(name) is None for name in (*THREE, "dee")] == [True, True, False, False]
    party.go("ann", "bob")
    with pytest.raises(Unfinished, match="no member is connected"):
        strategy.start(party.grid, absent="leave", timeout=0.05)
    assert strategy.federation.members == ["ann", "bob"]
    strategy.close()


def test_absent_members_that_are_needed_are_waited_for_or_leave(store: Path):
    party, strategy = Party(*THREE), strategy_of(store)
    party.fault("bob", unheard)
    with pytest.raises(Unfinished):
        strategy.start(party.grid, record(START), timeout=0)
    party.go("bob")
    with pytest.raises(Unfinished, match="'bob'"):
        strategy.start(party.grid, timeout=0.05)
    strategy.start(party.grid, absent="leave")
    assert strategy.federation.members == ["ann", "cy"]
    assert strategy.verify().ok
    strategy.close()


@pytest.mark.parametrize("change", ["goes", "comes"])
def test_who_is_absent_is_who_did_not_answer_the_roll_call_however_long_it_takes_to_let_others_in(change: str):
    party, strategy = Party("ann", "bob"), strategy_of()
    strategy.start(party.grid, record(START))
    party.come("cy")
    party.fault("cy", unheard)
    with pytest.raises(Unfinished):
        strategy.join(party.grid, "cy", timeout=0)
    party.mend()
    if change == "comes":
        party.go("bob")
    hits = count()

    def meanwhile(message: Message, ask):
        if next(hits):
            return fine(message, ask)
        if change == "goes":
            party.go("bob")
        else:
            party.come("bob")
        return crashed(message, ask)  # so that nodes are looked at again

    party.fault("cy", meanwhile)
    strategy.start(party.grid, absent="leave")
    assert strategy.federation.members == (["ann", "bob", "cy"] if change == "goes" else ["ann", "cy"])


# --- the server dies, or is used by several threads ---


class Died(Exception):
    """The server is gone."""


@pytest.mark.parametrize("when", [4, 9, 13])
def test_a_server_that_dies_within_a_round_goes_on_as_if_it_had_not(when: int, store: Path, seeded):
    party, strategy = Party(*THREE), strategy_of(store)
    for turn, name in enumerate(THREE):  # one answer at a time
        party.fault(name, late(turn + 1))
    take, pulls = party.grid.pull_messages, count()

    def pull(numbers):
        if next(pulls) == when:
            raise Died
        return take(numbers)

    party.grid.pull_messages = pull
    with pytest.raises(Died):
        strategy.start(party.grid, record(START), timeout=5)
    missing = {(task.client, task.step + 1) for task in strategy.federation.tasks()}
    left = {(name, number) for name in THREE for number in range(strategy.federation.made + 2, 4)} | missing
    assert 0 < len(missing) < 3
    strategy.close()
    party, strategy = Party(*reversed(THREE), first_node=50), ForgettingFedAvg(store)
    strategy.start(party.grid)
    assert set(party.asked) == left
    assert len(party.asked) == len(left)
    state = state_of(strategy.federation)
    strategy.close()

    seeded()
    plain = strategy_of(store.with_name("plain"))
    plain.start(Party(*THREE).grid, record(START))
    assert np.array_equal(state, state_of(plain.federation))
    plain.close()


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("leaves", ["bob", "cy"])
def test_clients_leave_while_others_compute(stored: bool, leaves: str, store: Path, seeded):
    cuts = set()
    for seed in range(10 if stored else 30):
        seeded(seed)
        party = Party(*THREE)
        where = store.with_name(f"{seed}") if stored else None
        strategy = strategy_of(where, **({} if stored else {"rng": np.random.default_rng(seed)}))
        computing, go_on = threading.Event(), threading.Event()

        def block(arrays, number, computing=computing, go_on=go_on):
            if number == 3 and not go_on.is_set():
                computing.set()
                assert go_on.wait(10)
                return reply({"w": np.array([50.0, 50.0])})  # no use if the pass was cut off
            return towards(0.5)(arrays, number)

        party.train["cy"] = block
        failed = []
        thread = threading.Thread(target=run_caught, args=(failed, strategy, party))
        thread.start()
        assert computing.wait(10)
        path = strategy.federation.tasks()[0].path
        strategy.forget(leaves)
        cut = strategy.federation.tasks()[0].path is not path
        cuts.add(cut)
        go_on.set()
        thread.join(20)
        assert not thread.is_alive()
        assert not failed
        assert strategy.finished
        assert strategy.federation.members == [name for name in THREE if name != leaves]
        assert strategy.verify().ok
        assert party.asked.count(("cy", 3)) == (1 if leaves == "cy" else 1 + cut)
        strategy.close()
    assert cuts == {True, False}


def run_caught(failed: list[BaseException], strategy: ForgettingFedAvg, party: Party) -> None:
    try:
        strategy.start(party.grid, record(START), timeout=20)
    except BaseException as error:
        failed.append(error)


def test_one_that_never_answers_is_not_waited_for_once_it_has_left():
    party, strategy = Party(*THREE), strategy_of()
    failed, asked = [], threading.Event()
    party.fault("bob", lambda message, ask: (asked.set(), [])[1])
    thread = threading.Thread(target=run_caught, args=(failed, strategy, party))
    thread.start()
    assert asked.wait(10)
    strategy.forget("bob")
    thread.join(5)  # and not 20
    assert not thread.is_alive()
    assert not failed
    assert strategy.federation.members == ["ann", "cy"]


def test_after_a_cut_nobody_waits_for_answers_to_the_old_question():
    cut = False
    for seed in range(30):
        party, strategy = Party(*THREE), strategy_of(rng=np.random.default_rng(seed))
        failed, asked, silent = [], threading.Event(), iter([unheard])

        def at_first(message: Message, ask, asked=asked, silent=silent):
            asked.set()
            return next(silent, fine)(message, ask)

        party.fault("cy", at_first, rounds=range(3, 4))
        thread = threading.Thread(target=run_caught, args=(failed, strategy, party))
        thread.start()
        assert asked.wait(10)
        path = strategy.federation.tasks()[0].path
        strategy.forget("bob")
        tasks = strategy.federation.tasks()
        cut = tasks[0].path is not path and strategy.federation.made == 2
        if not cut:
            strategy.forget("cy")
        thread.join(5)  # and not 20
        assert not thread.is_alive()
        assert not failed
        if cut:
            break
    assert cut


def test_replies_that_are_of_no_use_any_more_are_fetched_all_the_same():
    party, strategy = Party(*THREE), strategy_of()
    pull, pulled, cut = party.grid.pull_messages, [], []

    def at_first(message: Message, ask):
        if cut:
            return fine(message, ask)
        with mock.patch("expunge.engine.couplings.sequential.keep_or_jump", return_value=Toss(False, -2.0)):
            strategy.forget("ann")
        cut.append(f"message-{party.grid.sent}")
        return []

    party.grid.pull_messages = lambda numbers: pulled.append(list(numbers)) or pull(pulled[-1])
    party.fault("bob", at_first, rounds=range(3, 4))
    strategy.start(party.grid, record(START))
    assert strategy.federation.members == ["bob", "cy"]
    assert cut[0] in pulled[-1]


def test_one_joins_from_another_thread_while_others_compute():
    party, strategy = Party(*THREE), strategy_of(rounds=4)
    waiting, here = threading.Event(), threading.Event()

    def block(arrays, number):
        if number == 3 and not here.is_set():
            waiting.set()
            assert here.wait(10)
        return towards(1.0)(arrays, number)

    party.train["ann"] = block
    failed = []
    thread = threading.Thread(target=run_caught, args=(failed, strategy, party))
    thread.start()
    assert waiting.wait(10)
    party.come("dee")
    strategy.join(party.grid, "dee")
    here.set()
    thread.join(10)
    assert not thread.is_alive()
    assert not failed
    assert strategy.federation.members == [*THREE, "dee"]
    assert strategy.verify().ok


def test_who_is_joining_from_another_thread_is_not_let_in_by_start():
    party, strategy = Party("ann", "bob"), strategy_of()
    strategy.start(party.grid, record(START))
    party.come("cy")
    waiting, here, done = threading.Event(), threading.Event(), []

    def block(arrays, number):
        waiting.set()
        assert here.wait(10)
        return towards(1.0)(arrays, number)

    party.train["cy"] = block
    thread = threading.Thread(target=lambda: done.append(strategy.join(party.grid, "cy")))
    thread.start()
    assert waiting.wait(10)
    strategy.start(party.grid, timeout=0)
    assert strategy.federation.candidates == ["cy"]
    here.set()
    thread.join(10)
    assert [outcome.added for outcome in done] == [1]
    assert strategy.federation.members == ["ann", "bob", "cy"]


# --- Flower's own loop ---


def test_flowers_own_loop_makes_a_plain_run_and_goes_on_with_one(store: Path, seeded):
    party, strategy = Party(*THREE), strategy_of(store)
    strategy.start(party.grid, record(START))
    wanted = state_of(strategy.federation)
    strategy.close()
    seeded()
    other = store.with_name("other")
    strategy = strategy_of(other)
    Strategy.start(strategy, party.grid, record(START), num_rounds=2)
    assert not strategy.finished
    strategy.close()
    strategy, before = ForgettingFedAvg(other), len(party.asked)
    result = Strategy.start(strategy, party.grid, record(START), num_rounds=3)
    assert party.asked_since(before) == [(name, 3) for name in THREE]
    assert np.array_equal(state_of(strategy.federation), wanted)
    assert np.array_equal(numbers_of(result.arrays)["w"], strategy.federation.model())
    with pytest.raises(BadPlan, match="round 4: the plan has 3 rounds"):
        Strategy.start(strategy, party.grid, record(START), num_rounds=4)
    assert np.array_equal(state_of(strategy.federation), wanted)
    strategy.close()


def test_flowers_own_loop_says_that_it_cannot_wait():
    party, strategy = Party(*THREE), strategy_of()
    party.fault("bob", unheard, rounds=range(2, 3))
    with pytest.raises(Unfinished, match=r"round 3: an earlier round waits.*Use start\(\)"):
        Strategy.start(strategy, party.grid, record(START), num_rounds=3)
    party.mend()
    strategy.start(party.grid)
    assert strategy.verify().ok


def test_a_wrapper_that_changes_the_model_is_refused():
    party, strategy = Party(*THREE), strategy_of()
    wrapped = DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 1.0, 3)
    with pytest.raises(BadPlan, match="this is not the federation's current model"):
        wrapped.start(party.grid, record(START), num_rounds=3)


# --- what is told to nobody ---


def test_the_log_tells_neither_names_nor_how_a_departure_went(store: Path, caplog: pytest.LogCaptureFixture, seeded):
    logs, made = set(), set()
    for seed in range(7):
        seeded(seed)
        party, strategy = Party(*THREE), strategy_of(store.with_name(f"{seed}"))
        strategy.start(party.grid, record(START))
        caplog.clear()
        strategy.forget("bob")
        made.add(strategy.federation.made)
        strategy.start(party.grid)
        logs.add(caplog.text.replace(str(store.with_name(f"{seed}")), "the file"))
        strategy.close()
    assert len(made) > 2
    [told] = logs
    assert "Starting" in told
    assert not any(re.search(rf"\b{name}\b", told) for name in THREE)


def test_errors_of_clients_are_not_told(caplog: pytest.LogCaptureFixture):
    def fail(arrays, number):
        raise ValueError("the patient's name")

    party, strategy = Party(*THREE), strategy_of()
    party.train["cy"] = fail
    with pytest.raises(Unfinished) as caught:
        strategy.start(party.grid, record(START), timeout=0.05)
    assert "patient" not in f"{caught.value}{caplog.text}"
    assert "'cy' (its app raises an exception: see its log)" in str(caught.value)


def test_files_that_two_departures_leave_differ_in_no_count(store: Path, seeded):
    sizes = set()
    for seed in range(5):
        seeded(seed)
        where = store.with_name(f"{seed}")
        party, strategy = Party(*THREE), strategy_of(where)
        strategy.start(party.grid, record(START))
        strategy.forget("bob")
        strategy.start(party.grid)
        [receipt] = strategy.federation.export_receipts()["receipts"]
        sizes.add((where.stat().st_size, *sorted(receipt), receipt["removed"], receipt["version"]))
        strategy.close()
    assert len(sizes) == 1


# --- said before it is too late, and while one waits -----------------------------------------------------


def test_nodes_that_never_say_who_they_are_are_not_waited_for(store: Path):
    party, strategy = Party(), strategy_of(store, min_clients=2)
    for _ in range(2):
        party.connect("nobody", ClientApp())
    with pytest.raises(Unfinished, match=r"2 nodes do not say who they are: wrap their ClientApp with identified"):
        strategy.start(party.grid, record(START), timeout=3600)
    assert not store.exists()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rounds": 0}, "rounds"), ({"clip": -1.0}, "clip"), ({"rho": 2.0}, "rho"), ({"rate": 0.0}, "rate"),
        ({"selector": "first"}, "selector"), ({"seal": b"short"}, "seal"), ({"seal": 5}, "seal"),
        ({"sign_with": "/nowhere/key"}, "/nowhere"),
    ],
    ids=lambda given: str(given),
)  # fmt: skip
def test_what_cannot_be_is_refused_before_clients_are_gathered(store: Path, given, named):
    with pytest.raises((BadPlan, StoreError), match=named):
        ForgettingFedAvg(store, **{"rounds": 3, "clip": 1.0, **given})
    with pytest.raises(StoreError, match="no such folder"):
        ForgettingFedAvg(store / "deeper" / "down", rounds=3, clip=1.0)
    assert not store.exists()


def test_a_seal_that_is_to_be_made_is_made(store: Path):
    party, seal = Party(*THREE), store.with_name("seal-elsewhere")
    strategy = strategy_of(store, seal=seal)
    strategy.start(party.grid, record(START))
    strategy.close()
    assert seal.exists()
    assert not store.with_name(store.name + "-seal").exists()


def test_noise_that_drowns_the_model_is_warned_of(caplog: pytest.LogCaptureFixture):
    party = Party(*THREE)
    ForgettingFedAvg(None, rounds=3, clip=1.0, rho=0.1, finish=None).start(party.grid, record(START))
    assert "The noise may be too large for the model: rho * clients / sqrt(parameters) is 0.3" in caplog.text
    caplog.clear()
    ForgettingFedAvg(None, rounds=3, clip=1.0).start(party.grid, record(START))
    assert "drown" not in caplog.text


def test_the_log_says_what_is_waited_for(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    def fail(arrays, number):
        raise ValueError

    monkeypatch.setattr(asking, "FIRST_WORD", 0.01)
    party, strategy = Party(*THREE), strategy_of(min_clients=4)
    with pytest.raises(Unfinished):
        strategy.start(party.grid, record(START), timeout=0.1)
    assert "Waiting for clients: 3 of at least 4 are connected" in caplog.text
    party, strategy = Party(*THREE), strategy_of()
    party.train["cy"] = fail
    with pytest.raises(Unfinished):
        strategy.start(party.grid, record(START), timeout=0.1)
    assert "Waiting for 1 clients, of which 1 raise exceptions" in caplog.text


@pytest.mark.parametrize("clients", [5, None])
def test_names_are_texts(clients):
    party, strategy = Party(*THREE), strategy_of()
    strategy.start(party.grid, record(START))
    with pytest.raises(BadRecords, match="clients: give a name"):
        strategy.forget(clients)
