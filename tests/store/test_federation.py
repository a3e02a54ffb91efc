"""A federation in a file: the same as in memory, to the last bit; what is gone is gone; errors by name."""

import json
import os
import signal
import sqlite3
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import expunge
import expunge.federated as federated
from cases.stored_federations import (
    ANN,
    BOB,
    CECIL,
    DORA,
    EVE,
    FINN,
    NAMES,
    NUMBERS,
    all_bytes,
    answer,
    copied,
    draw,
    key_of,
    let_in,
    make_rounds,
    new,
    planned,
    sealed_of,
    whole,
)  # fmt: skip
from expunge.base.errors import (
    BadPlan,
    BadRecords,
    BusyStore,
    CorruptStore,
    ExpungeError,
    FullStore,
    LogNotEmptied,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    StoreError,
    Unfinished,
    UnknownId,
)
from expunge.engine import randomness
from expunge.engine.randomness import KEY_BYTES, Randomness
from expunge.federated import Federation, Task, sealing, stored
from expunge.federated import federation as module
from expunge.federated.sealing import Seal
from expunge.store import check_receipts, failpoints, make_signing_key
from expunge.store.file import StoreFile
from expunge.store.keys import make_key
from expunge.store.state import DESCRIPTION, KNOWN, today
from expunge.store.surroundings import beside


@pytest.fixture
def path(tmp_path):
    return tmp_path / "federation"


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """A pass under way, and the same with one who is joining."""
    folder = tmp_path_factory.mktemp("templates")
    (folder / "settled").mkdir()
    path = folder / "settled" / "federation"
    with pytest.MonkeyPatch.context() as patches:
        draw(patches, 200)
        with new(path) as federation:
            make_rounds(federation, 2)
            federation.forget(DORA)
            make_rounds(federation, 3)
            answer(federation, federation.tasks()[:1])
        with federated.open(copied(path, folder / "joining")) as federation:
            federation.invite(EVE)
            answer(federation, federation.tasks_of_candidates()[:2])
    return folder


@pytest.fixture
def settled(templates, tmp_path):
    """Three rounds of four are made, one client has left, and one has answered for the fourth."""
    return copied(templates / "settled" / "federation", tmp_path)


@pytest.fixture
def under_way(templates, tmp_path):
    """The same, and one is a candidate, who has answered for two rounds."""
    return copied(templates / "joining" / "federation", tmp_path)


# --- the same as in memory ------------------------------------------------------------------------------


def some(tasks):
    return sorted(tasks, key=lambda task: (task.step, task.client))[: len(tasks) // 2 + 1]


HISTORY = [
    lambda federation: answer(federation, some(federation.tasks())),
    lambda federation: make_rounds(federation, 2),
    lambda federation: federation.invite([EVE, FINN]),
    lambda federation: answer(federation, some(federation.tasks_of_candidates())),
    lambda federation: answer(federation, some(federation.tasks())),
    lambda federation: make_rounds(federation, 3),
    lambda federation: federation.forget(FINN),
    lambda federation: answer(federation, federation.tasks_of_candidates()),
    lambda federation: federation.admit(EVE),
    lambda federation: make_rounds(federation, 3),
    lambda federation: answer(federation, some(federation.tasks())),
    lambda federation: federation.forget(ANN),
    lambda federation: make_rounds(federation),
    lambda federation: federation.invite([ANN, FINN]),
    lambda federation: answer(federation, some(federation.tasks_of_candidates())),
    lambda federation: federation.forget([BOB, FINN, ANN]),
    lambda federation: make_rounds(federation),
    lambda federation: federation.forget(CECIL),
    lambda federation: make_rounds(federation),
    lambda federation: federation.forget(federation.members),
    lambda federation: make_rounds(federation),
    lambda federation: let_in(federation, [ANN]),
    lambda federation: make_rounds(federation),
]


@pytest.mark.parametrize(
    "given",
    [{"rho": 0.7}, {"rho": 0.7, "rate": 0.6}, {"rho": 1.0}, {"rho": 1.0, "rate": 0.6}, {"rho": 0.5, "finish": "exact"}],
    ids=str,
)
def test_at_every_point_of_a_history_the_file_has_the_state_that_a_federation_in_memory_has(given, path, monkeypatch):
    first, second = np.random.default_rng(5), np.random.default_rng(5)
    draw(monkeypatch, 304)
    stored = new(path, **given, selector="tail")
    memory = Federation(stored.plan, stored.transcript.start, first)
    memory.clients.members.update(stored.clients.members)
    monkeypatch.setattr(randomness, "fresh_key", lambda: second.bytes(KEY_BYTES))
    cuts = 0
    for act in HISTORY:
        made = stored.made
        act(memory)
        act(stored)
        cuts += stored.made < made
        before = whole(stored)
        stored.close()
        stored = federated.open(path)
        assert whole(stored) == before
        for part in set(before) - {"requests"}:
            assert whole(memory)[part] == before[part], part
        assert stored.verify().ok
        assert stored.verify_receipts().ok
    assert cuts
    noisy = given["rho"] < 1.0 and "finish" not in given
    assert stored.finished if noisy else stored.transcript.answers is stored.transcript.sums
    assert np.array_equal(stored.model(), memory.model())
    stored.close()


@pytest.mark.parametrize("names", [[], [ANN], ANN, np.array([ANN, BOB]), (name for name in (ANN, BOB))])
def test_however_many_are_there_at_the_beginning(names, path):
    expected = [ANN, BOB] if not isinstance(names, (list, str)) else [ANN] * bool(len(names))
    with new(path, names) as federation:
        assert federation.members == expected
        make_rounds(federation)
        assert federation.verify().ok
        assert federation.verify().records == len(expected)


def test_names_of_all_kinds_are_kept_and_forgotten(path):
    names = ["ünï", "名前", "a'b\"c\\d\n", "\ud800", "x" * 200, " ", "17"]
    with new(path, names) as federation:
        make_rounds(federation, 1)
    with federated.open(path) as federation:
        assert federation.members == sorted(names)
        federation.forget(names)
        assert federation.members == []
        assert all(federation.was_forgotten(name) for name in names)
        assert federation.was_forgotten("somebody") is None
        assert federation.verify_receipts().ok


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0", "a\0b", 5, None])
def test_names_that_are_none_are_refused(name, path):
    with pytest.raises(BadRecords, match="clients: give names of 1 to 200 letters"):
        federated.create(path, planned(), np.zeros(NUMBERS), [name])
    assert not path.exists()


def test_answers_to_what_nobody_asked_are_ignored(under_way):
    with federated.open(under_way) as federation:
        before, task = whole(federation), federation.tasks()[0]
        slots = {client.name: client.slot for client in before["members"] + before["candidates"]}
        for client, step in [(EVE, 3), (EVE, 2**21), (EVE, -1), (ANN, 2**21), (BOB, 2), ("nobody", 3)]:
            asked = Task(client, step, task.model, task.path, slots.get(client, task.slot))
            assert answer(federation, [asked]).ignored == (client,)
        for wrong in ({*slots.values()} - {task.slot}) | {task.slot + 1}:
            assert answer(federation, [task._replace(slot=wrong)]).ignored == (task.client,)
        assert whole(federation) == before
        make_rounds(federation)
        last = Task(BOB, federation.made, task.model, task.path, slots[BOB])
        assert answer(federation, [last]).ignored == (BOB,)


def test_an_answer_that_a_client_computed_before_it_left_is_not_taken_when_it_has_come_back(path, monkeypatch):
    draw(monkeypatch, 300)
    with new(path, rho=0.01) as federation:
        make_rounds(federation, 2)
        late = [task for task in federation.tasks() if task.client == BOB]
        assert federation.forget(BOB).kept
        let_in(federation, [BOB])
        assert federation.tasks()[0].path is late[0].path
        assert answer(federation, late).ignored == (BOB,)
        assert BOB in [task.client for task in federation.tasks()]


def test_what_clients_are_told_is_kept_with_the_plan(path):
    config = {"rate": 0.1, "rates": [1, 2.5], "words": ["a", "ü"], "deep": True, "none": []}
    with new(path, config=config) as federation:
        plan = federation.plan
    with federated.open(path) as federation:
        assert federation.plan == plan
        assert dict(federation.plan.config) == config


# --- gone -----------------------------------------------------------------------------------------------


def varint(number):
    """A number of a row, as SQLite writes it."""
    long = number >= 2**56
    parts, number = ([number & 0xFF], number >> 8) if long else ([number & 0x7F], number >> 7)
    while number or (long and len(parts) < 9):
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(reversed(parts))


@pytest.mark.parametrize("seed", [300, 340, 380])
def test_of_who_left_and_of_what_was_cut_off_no_byte_is_left(seed, path, monkeypatch):
    draw(monkeypatch, seed)
    federation = new(path)
    make_rounds(federation)
    sealed, client = sealed_of(federation), federation.clients.members[ANN]
    held = {key: federation.clients.held.history(federation.clients.members[key[0]].slot, [key[1]]) for key in sealed}
    plain = {key: numbers.tobytes() for key, numbers in held.items()}
    exact = {key: (numbers[0, :-1] * federation.plan.query.unit).tobytes() for key, numbers in held.items()}
    federation.close()
    content = all_bytes(path)
    assert ANN.encode() in content
    for key in sealed:
        assert sealed[key] in content  # so small a blob lies in one page
        assert plain[key] not in content
        assert exact[key] not in content
    with federated.open(path) as federation:
        federation.forget(ANN)
        made = federation.made
        kept = sealed_of(federation)
        assert expunge.store.scan(path, [ANN, sealed[ANN, 0]]) == []
        assert beside(path, "-wal").stat().st_size == 0
    content = all_bytes(path)
    for part in (ANN.encode(), str(client.key).encode(), client.key.to_bytes(8)):
        assert part not in content
    for (name, step), blob in sealed.items():
        gone = name == ANN or step >= made
        assert ((name, step) in kept) != gone
        for part in (blob[:12], blob[12:40], blob[-16:]):
            assert (part in content) != gone


def test_in_these_tests_passes_are_cut_off_and_not(path, monkeypatch):
    """Those above mean something only if both occur."""
    made = []
    for seed in (300, 340, 380):
        draw(monkeypatch, seed)
        with new(path.with_name(f"{seed}")) as federation:
            make_rounds(federation)
            federation.forget(ANN)
            made.append(federation.made)
    assert min(made) < 4
    assert max(made) == 4


def test_keys_are_gone_once_they_are_used(path, monkeypatch):
    drawn, seen = [], []

    def recorded():
        drawn.append(os.urandom(KEY_BYTES))
        return drawn[-1]

    def look(_):
        content = all_bytes(path)
        seen.extend(key for key in drawn if key in content or key.hex().encode() in content)

    monkeypatch.setattr(randomness, "fresh_key", recorded)
    federation = new(path)
    monkeypatch.setattr(failpoints, "hook", look)
    make_rounds(federation)
    federation.forget(ANN)
    federation.forget(BOB)
    monkeypatch.setattr(failpoints, "hook", None)
    assert (federation._round_key, federation._pending) == (None, None)
    federation.close()
    assert len(drawn) == 2 + 4 + 2  # to create and to join, for rounds, and for requests
    assert set(seen) == set(drawn[2:])  # while they were used
    seen.clear()
    look("")
    assert seen == []


def telling_keys(contents, rest, scale, contributed):
    """Keys of noise that lie anywhere in some bytes and that, taken from what is left, give a contribution."""
    keys = {content[at : at + KEY_BYTES] for content in contents for at in range(len(content) - KEY_BYTES + 1)}
    noises = ((key, scale * Randomness(key).noise.standard_normal(len(rest))) for key in keys)
    return [key for key, noise in noises if np.abs(rest - noise - contributed).max() < 2e-4]


def test_a_snapshot_from_before_a_client_joined_does_not_tell_what_it_contributed(path, monkeypatch):
    """Not with all that is kept later: the client has left, and answers stayed as they were."""
    draw(monkeypatch, 1)
    snapshots = {}
    federation = new(path, rho=0.3)
    make_rounds(federation, 2)
    federation.close()
    snapshots["before it joined"] = all_bytes(path)
    federation = federated.open(path)
    let_in(federation, [EVE])
    assert federation.made == 2
    monkeypatch.setattr(failpoints, "hook", lambda point: snapshots.setdefault(point, all_bytes(path)))
    make_rounds(federation, 3)
    monkeypatch.setattr(failpoints, "hook", None)
    snapshots["before it left"] = all_bytes(path)
    numbers = federation.clients.held.history(federation.clients.members[EVE].slot, [2])[0]
    federation.forget(EVE)
    assert federation.made == 3
    kept, scale = federation.transcript, federation.plan.sigma * federation.learner.mechanism.scale_of(2)
    rest, contributed = kept.answers[2] - kept.sums[2], numbers * federation.plan.query.unit
    keys = telling_keys(snapshots.values(), rest, scale, contributed)
    telling = {point for point, content in snapshots.items() if any(key in content for key in keys)}
    assert telling == {
        "federation: round recorded",
        "federation: round written",
        "federation: round made",
    }  # while the round is made
    federation.close()


def test_the_seed_of_the_next_round_that_an_earlier_version_kept_is_dropped(under_way):
    seed = os.urandom(16)
    file = StoreFile(under_way)
    with file.transaction():
        file.put("pending", stored.OLD_SEED, seed)
    file.close()
    assert seed in all_bytes(under_way)
    with federated.open(under_way) as federation:
        assert seed not in all_bytes(under_way)
        answer(federation, federation.tasks())
        federation.advance()
        assert federation.verify().ok
    assert seed not in all_bytes(under_way)


def test_a_request_that_an_earlier_version_recorded_is_finished(under_way, monkeypatch):
    """It recorded a seed, and no day."""
    with federated.open(under_way) as federation:
        federation.forget(EVE)
    rewritten(
        under_way, "pending", stored.REQUEST, json.dumps({"kind": "delete", "names": [ANN], "seed": "7"}).encode()
    )
    with federated.open(under_way) as federation:
        assert ANN not in federation.members
        assert federation.was_forgotten(ANN) == today()


def test_a_receipt_has_the_day_on_which_the_request_was_recorded(settled, monkeypatch):
    with federated.open(settled) as federation:
        monkeypatch.setattr(module, "today", lambda: "2031-12-31")
        failpoints.hook = dying_at("federation: recorded", KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            federation.forget(ANN)
        failpoints.hook = None
    monkeypatch.setattr(module, "today", lambda: "2032-01-01")
    with federated.open(settled) as federation:
        federation.forget(BOB)
        assert (federation.was_forgotten(ANN), federation.was_forgotten(BOB)) == ("2031-12-31", "2032-01-01")


def test_a_request_that_could_not_be_recorded_leaves_no_coins(path, monkeypatch):
    with new(path) as federation:
        make_rounds(federation)
        draw(monkeypatch, 7)
        monkeypatch.setattr(StoreFile, "commit", full)
        with pytest.raises(FullStore, match="nothing was done") as caught:
            federation.forget(ANN)
        assert "recorded" not in str(caught.value)
        monkeypatch.undo()
        assert federation.members == sorted(NAMES)
        assert beside(path, "-wal").stat().st_size == 0
        federation.close()
        for raw in (key_of(7), key_of(7).hex().encode()):
            assert raw not in all_bytes(path)


def full(*_):
    raise FullStore("federation: the disk is full; free some space and call again.")


# --- receipts -------------------------------------------------------------------------------------------


def test_receipts_name_who_left_and_are_signed(path, tmp_path):
    make_signing_key(tmp_path / "pem")
    public = tmp_path / "pem.pub"
    new(path).close()
    with federated.open(path, sign_with=tmp_path / "pem") as federation:
        make_rounds(federation, 2)
        let_in(federation, [EVE])
        federation.forget([ANN, EVE])
        assert federation.was_forgotten(ANN) == federation.export_receipts()["receipts"][-1]["day"]
        assert federation.was_forgotten(BOB) is None
        assert len(federation.export_receipts(names=EVE)["receipts"]) == 1
        assert len(federation.export_receipts(names=[BOB])["receipts"]) == 0
        exported = federation.export_receipts()
        assert [(one["kind"], one["removed"], one["added"]) for one in exported["receipts"]] == [
            ("insert", 0, 1), ("delete", 2, 0),
        ]  # fmt: skip
        assert federation.verify_receipts(public).signed == 2
        assert check_receipts(json.loads(json.dumps(exported)), public_key=public).ok
    with federated.open(path) as federation:
        for ask in (
            lambda: federation.forget(BOB), lambda: let_in(federation, [FINN]), lambda: federation.forget(FINN)
        ):  # fmt: skip
            with pytest.raises(BadPlan, match="sign_with: the receipts of this store are signed"):
                ask()
        assert federation._pending is None
        assert federation.members == [BOB, CECIL, DORA]
        assert federation.candidates == [FINN]
    with federated.open(path, sign_with=False) as federation:
        federation.forget([BOB, FINN])
        assert federation.verify_receipts().ok
        assert federation.verify_receipts(public).unsigned == 1


def test_what_was_recorded_is_not_held_up_for_want_of_a_key_to_sign_with(path, tmp_path):
    make_signing_key(tmp_path / "pem")
    new(path).close()
    with federated.open(path, sign_with=tmp_path / "pem") as federation:
        federation.forget(ANN)
        failpoints.hook = dying_at("federation: recorded")
        with pytest.raises(Died):
            federation.forget(BOB)
        failpoints.hook = None
    with federated.open(path) as federation:
        assert federation.members == [CECIL, DORA]
        assert federation.verify_receipts(tmp_path / "pem.pub").unsigned == 1


def test_nothing_that_is_counted_depends_on_rounds(path):
    with new(path) as federation:
        make_rounds(federation)
        assert whole(federation)["requests"] == (0, 0)
        for number, name in enumerate(NAMES, start=1):
            federation.forget(name)
            make_rounds(federation)
            assert whole(federation)["requests"] == (number, number)


# --- interruptions in one process -----------------------------------------------------------------------


class Died(BaseException):
    """What nothing catches."""


def dying_at(point, error=Died):
    def reach(name):
        if name == point:
            raise error

    return reach


ASKED = {
    "receive": lambda federation: answer(federation, federation.tasks() + federation.tasks_of_candidates()),
    "advance": lambda federation: federation.advance(),
    "invite": lambda federation: federation.invite([EVE, FINN]),
    "leave": lambda federation: federation.forget(ANN),
    "withdraw": lambda federation: federation.forget(EVE),
    "forget": lambda federation: federation.forget([ANN, EVE]),
    "admit": lambda federation: federation.admit(EVE),
}
ALONE = ("invite", "leave")
"""What is asked while nobody is joining."""
REQUESTS = ("leave", "withdraw", "forget", "admit")


def ready(federation, ask):
    """Make a federation ready for something."""
    if ask == "advance":
        answer(federation, federation.tasks())
    if ask == "admit":
        answer(federation, federation.tasks_of_candidates())


@pytest.mark.parametrize("error", [KeyboardInterrupt, FullStore])
@pytest.mark.parametrize("ask", ASKED)
@pytest.mark.parametrize("method", ["put", "drop", "put_text", "begin", "commit", "truncate_log"])
def test_interrupted_whenever_it_may_be_the_same_process_goes_on_from_what_the_file_has(
    method, ask, error, settled, templates, monkeypatch
):
    """At each call of a method of the file in turn, before it or after it."""
    work, under_way = getattr(StoreFile, method), settled
    if ask not in ALONE:
        under_way = copied(templates / "joining" / "federation", settled.parent)
    for number in range(100):
        for late in (False, True) if method in ("commit", "truncate_log") else (False,):
            path = copied(under_way, under_way.parent / "copy")
            draw(monkeypatch, 1000 * number)
            with federated.open(path) as federation:
                ready(federation, ask)
                before, calls = whole(federation), 0

                def failing(file, *given, **how):
                    nonlocal calls
                    calls += 1
                    if calls == number + 1 and not late:  # noqa: B023
                        raise error
                    work(file, *given, **how)
                    if calls == number + 1:  # noqa: B023
                        raise error

                with monkeypatch.context() as patches:
                    patches.setattr(StoreFile, method, failing)
                    with suppress(KeyboardInterrupt, StoreError):
                        ASKED[ask](federation)
                if calls <= number:
                    return
                shown, begun = federation.made, federation._round_key is not None
                assert federation.verify().ok
                now = whole(federation)
                done = now["requests"] != before["requests"] if ask in REQUESTS else now != before
                assert shown == federation.made or (done and (begun or ask in REQUESTS))
                assert beside(path, "-wal").stat().st_size == 0 or not done or ask in ("receive", "invite")
            with federated.open(path) as federation:
                assert whole(federation) == now
                if not done:
                    assert now == before
                    ASKED[ask](federation)
                assert federation.verify().ok
                assert federation.verify_receipts().ok
                assert whole(federation)["requests"][1] == before["requests"][1] + (ask in REQUESTS)
                make_rounds(federation)
                assert federation.verify().ok


def test_a_request_that_was_recorded_is_done_by_the_next_call_in_the_same_process(settled):
    """Also if it was interrupted before the federation in memory knew of it."""
    with federated.open(settled) as federation:
        for name, point in (
            (ANN, "federation: recorded"),
            (BOB, "federation: written"),
            (CECIL, "federation: committed"),
        ):
            failpoints.hook = dying_at(point, KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                federation.forget(name)
            failpoints.hook = None
            federation.tasks()
            assert name not in federation.members
            assert beside(settled, "-wal").stat().st_size == 0
        assert len(federation.export_receipts()["receipts"]) == 4


def test_a_failed_round_is_not_shown_as_made(under_way, monkeypatch):
    with federated.open(under_way) as federation:
        answer(federation, federation.tasks())
        with monkeypatch.context() as patches:
            patches.setattr(StoreFile, "commit", full)
            with pytest.raises(FullStore):
                federation.advance()
        assert (federation.made, federation.finished, federation._round_key) == (3, False, None)
        federation.advance()
        assert federation.finished
        assert federation.verify().ok


def test_verify_that_is_interrupted_leaves_no_half_of_the_members(under_way, monkeypatch):
    with federated.open(under_way) as federation:
        answer(federation, federation.tasks())
        with monkeypatch.context() as patches:
            patches.setattr(stored, "_client_from", interrupted)
            with pytest.raises(KeyboardInterrupt):
                federation.verify()
        assert federation.advance() == 3
        assert federation.verify().ok


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("ask", ["forget", "advance"])
def test_a_log_that_another_program_keeps_from_being_emptied(ask, under_way):
    with federated.open(under_way, wait=0.05) as federation:
        ready(federation, ask)
        other = sqlite3.connect(under_way, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM ids").fetchone()
        with pytest.raises(LogNotEmptied, match="has been completed and saved") as caught:
            ASKED[ask](federation)
        assert caught.value.outcome == 3 if ask == "advance" else caught.value.outcome.removed == 1
        with pytest.raises(BusyStore) as refused:  # which is not said to be done
            federation.forget(BOB)
        assert "durable" not in str(refused.value)
        other.execute("ROLLBACK")
        assert BOB in federation.members
        federation.tasks()
        assert beside(under_way, "-wal").stat().st_size == 0
        other.close()


def test_several_threads_share_a_federation(path):
    errors, stop = [], threading.Event()

    def look(federation):
        try:
            while not stop.is_set():
                answer(federation, federation.tasks())
                federation.was_forgotten(ANN)
                assert federation.verify().ok
        except BaseException as error:
            errors.append(error)

    with new(path, rounds=12) as federation:
        threads = [threading.Thread(target=look, args=(federation,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for name in (ANN, None, BOB, None):
            for _ in range(3):
                try:
                    answer(federation, federation.tasks())
                    federation.advance()
                except Unfinished:
                    pass
            if name is not None:
                federation.forget(name)
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        make_rounds(federation)
        assert federation.verify().ok


# --- who may open it ------------------------------------------------------------------------------------


def test_the_seal_may_be_given_as_bytes_or_lie_elsewhere(path, tmp_path):
    (tmp_path / "keys").mkdir()
    for number, seal in enumerate((bytes(range(32)), tmp_path / "keys" / "one", str(tmp_path / "keys" / "two"))):
        store = tmp_path / f"store {number}"
        with new(store, seal=seal) as federation:
            make_rounds(federation, 1)
        assert not beside(store, "-seal").exists()
        with federated.open(store, seal=seal) as federation:
            assert federation.verify().ok
        with pytest.raises(StoreError, match=r"-seal: .* the key that contributions are encrypted with"):
            federated.open(store)
    assert (tmp_path / "keys" / "one").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("seal", "error", "says"),
    [
        (bytes(31), BadPlan, "seal: expected 32 bytes"),
        (bytearray(32), BadPlan, "seal: expected 32 bytes or the path of a file, got bytearray"),
        (7, BadPlan, "seal: expected 32 bytes or the path of a file, got int"),
        (bytes(32), StoreError, "seal: this is the key of another federation"),
        ("missing", StoreError, "missing: .*give seal="),
        (".", StoreError, "give seal="),
    ],
)
def test_a_wrong_seal_is_refused(seal, error, says, under_way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        federated.open(under_way, seal=seal)
    federated.open(under_way).close()


def test_a_seal_that_is_missing_broken_foreign_or_open_to_others_is_refused(under_way, tmp_path):
    seal, kept = beside(under_way, "-seal"), tmp_path / "kept"
    seal.rename(kept)
    with pytest.raises(StoreError, match=r"-seal: .*put it back, or give seal="):
        federated.open(under_way)
    assert not seal.exists()
    seal.write_bytes(b"no key")
    seal.chmod(0o600)
    with pytest.raises(StoreError, match=r"-seal: expected a key of 64 .* Nobody can read them without it"):
        federated.open(under_way)
    seal.unlink()
    make_key(seal)
    with pytest.raises(StoreError, match="another federation"):
        federated.open(under_way)
    kept.rename(seal)
    seal.chmod(0o644)
    with pytest.raises(StoreError, match="other users can read or change this key"):
        federated.open(under_way)
    seal.chmod(0o600)
    with federated.open(under_way) as federation:
        assert federation.verify().ok


def test_a_key_of_receipts_that_is_missing_or_foreign_is_refused(under_way):
    key = beside(under_way, "-key")
    content = key.read_bytes()
    key.unlink()
    with pytest.raises(StoreError, match=r"-key: .* the key that receipts name clients with") as caught:
        federated.open(under_way)
    assert "save()" not in str(caught.value)
    make_key(key)
    with pytest.raises(StoreError, match="the key of another store"):
        federated.open(under_way)
    key.write_bytes(content)
    federated.open(under_way).close()


@pytest.mark.parametrize("ending", ["", "-key", "-lock", "-wal"])
def test_the_seal_is_no_other_file_of_the_store(ending, path):
    with pytest.raises(BadPlan, match="seal: this is another file of the store"):
        federated.create(path, planned(), np.zeros(NUMBERS), NAMES, seal=beside(path, ending))
    assert list(path.parent.iterdir()) == []


def test_what_is_no_federation_is_refused_by_name(path, tmp_path, under_way):
    with pytest.raises(NotAStore, match=r"no such file; write one with expunge\.federated\.create"):
        federated.open(path.with_name("nothing"))
    assert not list(tmp_path.glob("nothing*"))
    model = tmp_path / "model"
    expunge.LogisticRegression(rho=0.9, solver="dual_averaging").fit(np.eye(20) / 2, np.arange(20) % 2).save(model)
    with pytest.raises(NotAStore, match=r"the file of a model; open it with expunge\.open"):
        federated.open(model)
    with pytest.raises(NotAStore, match=r"the file of a federation; open it with expunge\.federated\.open"):
        expunge.open(under_way)
    with pytest.raises(NotAStore, match="the file of a federation"):
        expunge.store.backup(under_way, tmp_path / "copy")
    (tmp_path / "text").write_text("no store" * 1000)
    for other in (tmp_path / "text", tmp_path):
        with pytest.raises(NotAStore):
            federated.open(other)
    with pytest.raises(NotAStore):
        federated.open(7)


def test_what_cannot_be_created_is_refused_and_leaves_nothing(path, tmp_path):
    for start in (np.zeros(2), np.full(3, np.nan)):
        with pytest.raises(BadRecords, match="start: expected 3 finite numbers"):
            federated.create(path, planned(), start, NAMES)
    with pytest.raises(BadPlan, match="rounds=1048576"):
        federated.create(path, replace(planned(), rounds=2**20), np.zeros(NUMBERS), NAMES)
    with pytest.raises(NotAStore, match="no such folder"):
        federated.create(tmp_path / "folder" / "x", planned(), np.zeros(NUMBERS), NAMES)
    with pytest.raises(StoreError, match="names in -seal"):
        federated.create(tmp_path / "a-seal", planned(), np.zeros(NUMBERS), NAMES)
    assert list(tmp_path.iterdir()) == []
    new(path).close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="exists already"):
        federated.create(path, planned(), np.zeros(NUMBERS), NAMES)
    assert path.read_bytes() == before


def test_a_second_one_who_opens_it_is_refused_at_once(under_way):
    with federated.open(under_way) as federation:
        began = time.monotonic()
        with pytest.raises(BusyStore, match="open already"):
            federated.open(under_way, wait=0)
        assert time.monotonic() - began < 5
        answer(federation, federation.tasks())
        assert federation.verify().ok
    federated.open(under_way, wait=0).close()
    federated.open(under_way, wait=float("inf")).close()
    with pytest.raises(BadPlan, match="wait=-1"):
        federated.open(under_way, wait=-1)


def in_another_process(work):
    """Fork, work there, and return the process; it ends with code 0 if all went well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of processes that have threads, as NumPy may
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return child


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_process_that_is_killed_lets_go_of_the_federation(under_way):
    there, here = os.pipe()

    def hold():
        with federated.open(under_way):
            os.write(here, b"!")
            time.sleep(60)

    child = in_another_process(hold)
    os.read(there, 1)
    try:
        with pytest.raises(BusyStore):
            federated.open(under_way, wait=0)
    finally:
        os.kill(child, signal.SIGKILL)
        assert ended(child) == -signal.SIGKILL
    with federated.open(under_way, wait=0) as federation:
        assert federation.verify().ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_process_that_is_forked_cannot_use_it_and_does_no_harm(settled):
    with federated.open(settled) as federation:

        def use():
            for ask in (federation.tasks, federation.verify, federation.advance, lambda: federation.forget(ANN)):
                with pytest.raises(StoreError, match="opened by another process"):
                    ask()
            federation.close()
            with pytest.raises(StoreError):
                federated.open(settled, wait=0)

        assert ended(in_another_process(use)) == 0
        federation.forget(ANN)
        with pytest.raises(BusyStore):
            federated.open(settled, wait=0)


def test_one_that_was_closed_moved_or_dropped(under_way, tmp_path):
    federation = federated.open(under_way)
    federation.close()
    federation.close()
    for ask in (federation.tasks, federation.verify, federation.export_receipts, federation.compact):
        with pytest.raises(StoreError, match="was closed"):
            ask()
    federation = federated.open(under_way)
    under_way.rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="moved, removed or replaced"):
        federation.forget(ANN)
    federation.close()
    (tmp_path / "moved").rename(under_way)
    federation = federated.open(under_way)
    del federation  # and is closed then
    federated.open(under_way, wait=0).close()


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_file_that_may_not_be_written_to(under_way, monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))  # root may everything
    with pytest.raises(ReadOnlyStore, match="may not be written to"):
        federated.open(under_way)
    monkeypatch.undo()
    federated.open(under_way).close()


def test_a_full_disk(settled):
    """SQLite says so, when it may have no more pages."""
    with federated.open(settled) as federation:
        before = whole(federation)
        pages = federation._file._pragma("page_count") + 1
        federation._file._connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(FullStore):
            federation.invite([f"client {number}" for number in range(50)])
        assert federation.candidates == []
        with pytest.raises(FullStore):
            answer(federation, federation.tasks())
        assert federation.verify().ok
        assert whole(federation) == before
        federation._file._connection.execute("PRAGMA max_page_count=1000000")
        make_rounds(federation)
        assert federation.verify().ok


# --- damage ---------------------------------------------------------------------------------------------


def found_out(path):
    """Say whether opening or verifying a file tells that something is wrong; no other error may come of it."""
    try:
        with federated.open(path, wait=0) as federation:
            return not federation.verify().ok
    except (StoreError, BadPlan):
        return True


def state_in(path):
    with federated.open(path) as federation:
        return whole(federation)


def test_a_flipped_bit_is_found_or_means_nothing(under_way):
    content, before = under_way.read_bytes(), state_in(under_way)
    rng = np.random.default_rng(3)
    found = 0
    for position in [*range(0, 100, 7), *rng.integers(len(content), size=100).tolist()]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(8))
        under_way.write_bytes(damaged)
        if found_out(under_way):
            found += 1
        else:
            assert state_in(under_way) == before
    assert found > 10


def test_a_byte_of_any_row_that_is_altered_is_found(under_way):
    content = under_way.read_bytes()
    with federated.open(under_way) as federation:
        rows = {
            (table, number): bytes(federation._file.need(table, number))
            for table in ("ids", "blocks", "sums", "answers", "iterates", "arrays", "pending")
            for number in federation._file.numbers(table)
        }
    assert len(rows) >= 20
    for row, blob in rows.items():
        at = content.index(blob)
        damaged = bytearray(content)
        damaged[at + len(blob) // 2] ^= 4
        under_way.write_bytes(damaged)
        assert found_out(under_way), row


def test_a_file_that_was_cut_off_is_found(under_way):
    content = under_way.read_bytes()
    for length in [0, 10, 100, 511, 512, *np.linspace(513, len(content) - 1, 15).astype(int).tolist()]:
        under_way.write_bytes(content[:length])
        assert found_out(under_way), length


def rewritten(path, table, number, content):
    """Write a row of a federation that nobody has open, with the right checksum."""
    file = StoreFile(path)
    with file.transaction():
        file.drop(table, number, number + 1)
        if content is not None:
            file.put(table, number, content)
    file.close()


def whole_but_held(federation):
    return federation.tasks()[0][:2], federation.members, federation._pending, federation._state


def test_contributions_that_changed_places_are_found(settled):
    with federated.open(settled) as federation:
        slots = {name: federation.clients.members[name].slot for name in (ANN, BOB)}
        sealed = sealed_of(federation)
    for one, other in (((ANN, 0), (BOB, 0)), ((ANN, 0), (ANN, 1))):
        path = copied(settled, settled.parent / "copy")
        for (name, step), blob in ((one, sealed[other]), (other, sealed[one])):
            rewritten(path, "blocks", slots[name] << sealing.ROUND_BITS | step, blob)
        with federated.open(path) as federation:
            assert "altered, or sealed with another key" in federation.verify().problems[0]
            before = whole_but_held(federation)
            with pytest.raises(CorruptStore):
                federation.forget(ANN)
            assert whole_but_held(federation) == before  # nothing was recorded that cannot be done
            federation.forget(CECIL)


def test_contributions_that_are_missing_are_found_and_nothing_is_recorded_that_cannot_be_done(settled):
    with federated.open(settled) as federation:
        slot = federation.clients.members[ANN].slot
    rewritten(settled, "blocks", slot << sealing.ROUND_BITS | 1, None)
    for _ in range(2):
        with federated.open(settled) as federation:
            assert "is missing" in federation.verify().problems[0]
            before = whole_but_held(federation)
            with pytest.raises(CorruptStore):
                federation.forget(ANN)
            assert whole_but_held(federation) == before
    with federated.open(settled) as federation:
        federation.forget(CECIL)


def test_sums_that_were_altered_are_found_though_nobody_is_left(path):
    with new(path, [ANN]) as federation:
        make_rounds(federation)
        federation.forget(ANN)
        make_rounds(federation)
        assert federation.verify().ok
        number, content = next(iter(federation._file.all("sums")))
        altered = np.frombuffer(bytes(content), "<f8") + federation.plan.query.unit
    rewritten(path, "sums", number, altered.tobytes())
    with federated.open(path) as federation:
        assert "sums: row 0" in federation.verify().problems[0]


def test_what_is_sealed_is_bound_to_its_store_and_number():
    seal = Seal(bytes(32), "store")
    sealed = seal.close(7, b"content")
    assert seal.open(7, sealed) == b"content"
    assert seal.close(7, b"content") != sealed
    for other in (Seal(bytes(31) + b"1", "store"), Seal(bytes(32), "another")):
        with pytest.raises(CorruptStore):
            other.open(7, sealed)
    for number, blob in ((8, sealed), (7, sealed[:-1]), (7, sealed[:5]), (7, b""), (7, bytes(len(sealed)))):
        with pytest.raises(CorruptStore):
            seal.open(number, blob)


@pytest.mark.parametrize(
    "row",
    [
        ("ids", 5, b"{}"), ("ids", 5, b"\xff"), ("ids", 5, b"[]"),
        ("ids", 2**50, b'{"name":"x","key":"1","member":true}'),
        ("ids", 5, b'{"name":"x","key":"18446744073709551616","member":true}'),
        ("ids", 5, b'{"name":7,"key":"1","member":true}'), ("ids", 5, b'{"name":"x","key":"1","member":1}'),
        ("ids", 5, json.dumps({"name": ANN, "key": "1", "member": True}).encode()),
        ("pending", stored.ROUND, b""), ("pending", stored.ROUND, bytes(31)), ("pending", stored.ROUND, bytes(33)),
        ("pending", stored.REQUEST, b'{"kind":"delete","names":[],"key":"00","day":"2020-01-01"}'),
        ("pending", stored.REQUEST, b'{"kind":"delete","names":[],"key":"%s","day":"x"}' % (b"00" * 32)),
        ("pending", stored.REQUEST, b"no"), ("pending", stored.REQUEST, b'{"kind":"delete","names":[1],"seed":"1"}'),
        ("pending", stored.REQUEST, b'{"kind":"erase","names":[],"seed":"1"}'),
        ("pending", stored.REQUEST, b'{"kind":"delete","names":[],"seed":"-1"}'),
        ("arrays", stored.START, None), ("arrays", stored.START, bytes(8)), ("arrays", stored.START, bytes(7)),
        ("sums", 0, bytes(9)), ("sums", 0, bytes(8 * 4 * 5)), ("sums", 0, None), ("answers", 0, bytes(8 * 4)),
        ("iterates", 0, None), ("blocks", 5, b"stray"), ("blocks", 2**62, b"stray"),
    ],
)  # fmt: skip
def test_a_row_that_makes_no_sense_is_found_though_its_checksum_is_right(row, under_way):
    rewritten(under_way, *row)
    assert found_out(under_way)


def test_contributions_of_nobody_or_to_no_round_are_found(under_way):
    with federated.open(under_way) as federation:
        blob = next(iter(sealed_of(federation).values()))
        slot, candidate = federation.clients.members[ANN].slot, federation.clients.candidates[EVE].slot
    for number in ((slot + 1) << sealing.ROUND_BITS, slot << sealing.ROUND_BITS | 7, candidate << 20 | 3):
        path = copied(under_way, under_way.parent / "copy")
        rewritten(path, "blocks", number, blob)
        with federated.open(path) as federation:
            assert "nobody was asked for" in federation.verify().problems[0]


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 2}, {"rounds": "x"}, {"rounds": None}, {"arrays": ()}, {"arrays": 5},
        {"arrays": (("w", (4,), "<f8"),)},
        {"sigma": "x"}, {"rate": 2.0}, {"selector": "none"}, {"clip": 0.0}, {"bits": 99},
    ],
)  # fmt: skip
def test_a_plan_that_makes_no_sense_is_found(change, under_way):
    file = StoreFile(under_way)
    said = KNOWN.read(file.text("about", DESCRIPTION))
    with file.transaction():
        text = KNOWN.write(replace(said, plan=replace(said.plan, **change)))
        file.put_text("about", DESCRIPTION, text)
    file.close()
    assert found_out(under_way)


def test_a_newer_format_is_refused(under_way):
    connection = sqlite3.connect(under_way)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(NewerStore, match="later version"):
        federated.open(under_way)


# --- looking after the file -----------------------------------------------------------------------------


def test_after_compacting_the_file_tells_nothing_of_its_history(path, tmp_path, monkeypatch):
    """Neither free pages nor the order of pages, nor numbers of who left in the index."""
    draw(monkeypatch, 300)
    federation = new(path, [f"client {number}" for number in range(40)], rho=0.6)
    make_rounds(federation)
    slots = {}
    for number in range(20):
        slots[number] = federation.clients.members[f"client {number}"].slot
        federation.forget(f"client {number}")
    before = whole(federation)
    federation.close()
    content = all_bytes(path)
    numbers = [varint(slot) for slot in slots.values()]
    numbers += [varint(slot << sealing.ROUND_BITS | step) for slot in slots.values() for step in range(4)]
    assert any(number in content for number in numbers)  # which is why there is compact()
    with federated.open(path) as federation:
        assert federation._file._pragma("freelist_count") > 0
        federation.compact()
        assert federation._file._pragma("freelist_count") == 0
        assert whole(federation) == before
        assert federation.verify().ok
        make_rounds(federation)
        federation.forget("client 30")
        federation.compact()
    content = all_bytes(path)
    assert not any(number in content for number in numbers)
    layout = raw_layout(path)
    with federated.open(path) as federation:
        federation.compact()
    assert raw_layout(path) == layout
    assert not list(tmp_path.glob("*-new"))


def raw_layout(path):
    """Everything but the header, which counts changes."""
    return path.read_bytes()[100:]


@pytest.mark.parametrize("point", ["compact: copied", "compact: replacing", "compact: replaced"])
def test_a_death_while_compacting_leaves_no_copy_of_who_leaves_later(point, under_way):
    with federated.open(under_way) as federation:
        before = whole(federation)
    child = in_another_process(lambda: dies_compacting(under_way, point))
    assert ended(child) == 9
    with federated.open(under_way) as federation:
        assert not beside(under_way, "-new").exists()
        assert whole(federation) == before
        assert federation.verify().ok


def dies_compacting(path, point):
    failpoints.hook = lambda name: os._exit(9) if name == point else None
    federated.open(path).compact()


def test_a_backup_has_neither_the_seal_nor_any_key(under_way, tmp_path):
    backup = tmp_path / "backup"
    with federated.open(under_way) as federation:
        federation.backup(backup)
        before = whole(federation)
        federation.forget([ANN, EVE])
        with pytest.raises(StoreError, match="exists already"):
            federation.backup(backup)
    assert sorted(file.name for file in tmp_path.glob("backup*")) == ["backup", "backup-key"]
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("backup*")} == {0o600}
    file = StoreFile(backup, read_only=True)
    assert list(file.all("pending")) == []
    file.close()
    with pytest.raises(StoreError, match="-seal"):
        federated.open(backup)
    with federated.open(backup, seal=beside(under_way, "-seal")) as federation:
        assert whole(federation) == before
        assert ANN in federation.members  # and must be forgotten again
        assert federation.candidates == [EVE]
        federation.forget([ANN, EVE])
        make_rounds(federation)
        assert federation.verify().ok
        assert federation.verify_receipts().ok


def test_a_backup_that_fails_leaves_nothing(under_way, tmp_path):
    with federated.open(under_way) as federation:
        failpoints.hook = dying_at("backup: copied", FullStore)
        with pytest.raises(FullStore):
            federation.backup(tmp_path / "backup")
        failpoints.hook = None
        assert not list(tmp_path.glob("backup*"))
        federation.backup(tmp_path / "backup")
        with pytest.raises(ExpungeError):
            federation.backup(under_way)


def test_a_model_of_several_pages_a_client(path):
    """Blobs of all sizes, and of clients whose answers are NaN."""
    plan = federated.plan_federation(
        [federated.ArrayType("w", (3000,), "<f8")], clients=4, rounds=3, clip=1.0, rho=0.5, rate=0.7, finish=None
    )
    federated.create(path, plan, np.zeros(3000), NAMES)
    rng = np.random.default_rng(4)
    updates = {name: rng.normal(size=3000) / 100 for name in NAMES}
    updates[BOB] = np.full(3000, np.nan)
    with federated.open(path) as federation:
        for _ in range(3):
            federation.receive([(task, updates[task.client]) for task in federation.tasks()])
            federation.advance()
        sealed = sealed_of(federation)
        assert federation.verify().ok
        federation.forget([ANN, BOB])
        assert expunge.store.scan(path, [blob for (name, _), blob in sealed.items() if name in (ANN, BOB)]) == []
        assert federation.verify().ok


# --- serving the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["last", "tail"])
def test_the_model_is_read_without_seal_and_lock(path, selector):
    with new(path, selector=selector) as federation:
        with pytest.raises(Unfinished, match="rounds are still to be made"):
            federated.load(path)
        make_rounds(federation)
        beside(path, "-seal").rename(path.with_name("elsewhere"))
        loaded = federated.load(path)  # while it is open
        assert list(loaded) == ["weights", "bias"]
        for name, array in federation.arrays().items():
            assert (loaded[name].dtype, loaded[name].tolist()) == (array.dtype, array.tolist())


def test_who_has_left_already_is_named_with_the_day(path):
    with new(path) as federation:
        federation.forget(BOB)
        day = federation.was_forgotten(BOB)
        with pytest.raises(UnknownId, match=f"'{BOB}' left on {day}"):
            federation.forget(BOB)
        with pytest.raises(UnknownId, match=r"is not a member; it may have left already\.$"):
            federation.forget(EVE)
