"""A process that dies while it works on a federation: what was recorded is done, once, with the coins recorded with it.

Processes are forked and end at once (`os._exit`) at every named point, before everything that is written to the file,
and before and after every commit. Every process draws other keys, so that one that is drawn again is noticed.
"""

import os
import tempfile
import warnings
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import expunge.federated as federated
from cases.patching import patched_everywhere, patched_method
from cases.stored_federations import (
    ANN,
    BOB,
    CECIL,
    DORA,
    EVE,
    FINN,
    NUMBERS,
    all_bytes,
    answer,
    copied,
    draw,
    key_of,
    make_rounds,
    new,
    planned,
    sealed_of,
    update_of,
    whole,
)  # fmt: skip
from expunge.engine import randomness
from expunge.engine.checks import check_same_law
from expunge.federated import Federation, stored
from expunge.federated.state import names_of, state_of
from expunge.store import failpoints
from expunge.store.file import StoreFile

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
KILLED = 9
HERE, THERE = 10**6, 10**9
"""From where on keys are drawn in the process that dies, and in the one that opens the file next."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A pass under way, with some answers to its next round; two are joining; it waits for no member; all are ready."""
    folder = tmp_path_factory.mktemp("bases")
    (folder / "settled").mkdir()

    def goes_on(before, name):
        return federated.open(copied(folder / before / "federation", folder / name))

    with pytest.MonkeyPatch.context() as patches:
        draw(patches, 240)
        with new(folder / "settled" / "federation") as federation:
            make_rounds(federation, 3)
            answer(federation, federation.tasks()[:2])
        with goes_on("settled", "joining") as federation:
            federation.invite([EVE, FINN])
            answer(federation, [task for task in federation.tasks_of_candidates() if task.client == EVE])
            answer(federation, federation.tasks_of_candidates()[:2])
        with goes_on("joining", "answered") as federation:
            answer(federation, federation.tasks())
        with goes_on("answered", "ready") as federation:
            federation.advance()
            answer(federation, federation.tasks_of_candidates())
    return folder


class Work(NamedTuple):
    """Something that is asked of a federation."""

    base: str
    ask: object
    cuts: bool | None = None
    """Whether the pass is to be cut off."""

    def path(self, bases):
        return bases / self.base / "federation"


def receive(federation):
    answer(federation, [*federation.tasks(), *federation.tasks_of_candidates()])


WORKS = {
    "receive": Work("joining", receive),
    "advance": Work("answered", lambda federation: federation.advance()),
    "invite": Work("settled", lambda federation: federation.invite([EVE, FINN])),
    "withdraw": Work("joining", lambda federation: federation.forget(FINN), cuts=False),
    "admit, kept": Work("ready", lambda federation: federation.admit([EVE, FINN]), cuts=False),
    "admit, cut": Work("ready", lambda federation: federation.admit([EVE, FINN]), cuts=True),
    "forget, kept": Work("settled", lambda federation: federation.forget(ANN), cuts=False),
    "forget, cut": Work("settled", lambda federation: federation.forget(ANN), cuts=True),
    "forget all who join too, kept": Work(
        "joining", lambda federation: federation.forget([EVE, ANN, FINN]), cuts=False
    ),
    "forget all who join too, cut": Work(
        "ready", lambda federation: federation.forget([ANN, EVE, DORA, FINN]), cuts=True
    ),
}


def observed(reach):
    """Call ``reach`` at all points at which a process may die; return how to end this."""
    written = {name: getattr(StoreFile, name) for name in ("put", "drop", "put_text", "commit")}

    def observing(name, write):
        def observed(file, *given):
            reach(f"before {name}")
            write(file, *given)
            if name == "commit":
                reach("after commit")

        return observed

    for name, write in written.items():
        setattr(StoreFile, name, observing(name, write))
    failpoints.hook = reach

    def end():
        failpoints.hook = None
        for name, write in written.items():
            setattr(StoreFile, name, write)

    return end


def killed(path, ask, number):
    """Ask in another process, which dies at the point of this number; say whether it came so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of processes that have threads, as NumPy may
        child = os.fork()
    if child == 0:
        try:
            reached = 0

            def reach(name):
                nonlocal reached
                reached += 1
                if reached > number:
                    os._exit(KILLED)

            with federated.open(path) as federation:
                observed(reach)
                ask(federation)
            os._exit(0)
        except BaseException:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED)
    return code == KILLED


class Undisturbed(NamedTuple):
    """How it goes if nobody dies."""

    first_seed: int
    points: list
    before: dict
    after: dict
    sealed: dict
    """What was sealed before."""
    gone: dict
    """What is to be gone: what is no more held, names and keys."""
    kept: dict
    """What was sealed before and stays."""


def undisturbed(path, folder, work, monkeypatch):
    """Do the work, with coins that have the effect that is wanted."""
    for seed in range(HERE, HERE + 1000, 10):
        draw(monkeypatch, seed)
        points = []
        with federated.open(copied(path, folder)) as federation:
            before, sealed, made = whole(federation), sealed_of(federation), federation.made
            everyone = {**federation.clients.members, **federation.clients.candidates}
            tables = federation.transcript.iterates[:].tobytes()
            end = observed(points.append)
            work.ask(federation)
            end()
            changed = federation.transcript.iterates[:].tobytes() != tables
            if work.cuts is None or (work.cuts == changed and (not changed or federation.made < made)):
                after, kept = whole(federation), sealed_of(federation)
                break
    else:
        raise AssertionError("no coins have this effect")
    left = {client.name for client in (*after["members"], *after["candidates"])}
    gone = {key: blob for key, blob in sealed.items() if key not in kept}
    for name in sorted(set(everyone) - left):
        gone[name] = name.encode()
        gone[f"key of {name}"] = str(everyone[name].key).encode()
    return Undisturbed(seed, points, before, after, sealed, gone, kept)


def check_death(path, folder, work, told, number, monkeypatch):
    """Check what the next process finds if one died at a point; say if none did, as it was done before."""
    draw(monkeypatch, told.first_seed)
    path = copied(path, folder)
    if not killed(path, work.ask, number):
        return False
    draw(monkeypatch, THERE)
    recorded = "after commit" in told.points[: number + 1]
    with federated.open(path) as federation:
        assert whole(federation) == (told.after if recorded else told.before)
        assert federation.verify().ok
        assert federation.verify_receipts().ok
        assert len(federation.export_receipts()["receipts"]) == whole(federation)["requests"][1]
    content = all_bytes(path)
    for name, blob in told.gone.items():
        for part in (blob[:12], blob[-16:]):
            assert (part in content) != recorded, name
    for name, blob in told.sealed.items():
        assert name in told.gone or blob in content
    assert not [file for file in path.parent.iterdir() if file.name.endswith(("-wal", "-shm", "-new"))]
    if not recorded:
        with federated.open(path) as federation:
            work.ask(federation)
            if work.cuts is None:  # noise that was not recorded has not been used
                same = ("sums", "held")
                assert [whole(federation)[name] for name in same] == [told.after[name] for name in same]
    return True


@pytest.mark.parametrize("name", WORKS)
def test_whenever_a_process_dies_all_or_nothing_is_done_and_with_the_coins_that_were_recorded(
    name, bases, tmp_path, monkeypatch
):
    work = WORKS[name]
    told = undisturbed(work.path(bases), tmp_path, work, monkeypatch)
    assert told.before != told.after
    number = 0
    while check_death(work.path(bases), tmp_path, work, told, number, monkeypatch):
        number += 1
    assert number == len(told.points)
    if work.cuts is not None:
        assert {"federation: recorded", "federation: written", "federation: committed"} <= set(told.points)


def test_every_named_point_is_reached(bases, tmp_path, monkeypatch):
    reached = set()
    for work in WORKS.values():
        with federated.open(copied(work.path(bases), tmp_path)) as federation:
            failpoints.hook = reached.add
            work.ask(federation)
            failpoints.hook = None
    assert reached == set(failpoints.FEDERATION)


def test_the_mistake_of_tossing_the_coins_of_a_request_again_is_caught(bases, tmp_path, monkeypatch):
    """Not every time: other coins may say the same."""
    read, other = stored._pending_from, map(key_of, count())
    work, caught = WORKS["forget, cut"], 0
    told = undisturbed(work.path(bases), tmp_path, work, monkeypatch)
    point = told.points.index("federation: recorded")
    check_death(work.path(bases), tmp_path, work, told, point, monkeypatch)
    with patched_everywhere("_pending_from", lambda content: read(content)._replace(key=next(other))):
        for _ in range(10):
            try:
                check_death(work.path(bases), tmp_path, work, told, point, monkeypatch)
            except AssertionError:
                caught += 1
    assert caught > 3


def test_the_mistake_of_drawing_the_noise_of_a_round_again_is_caught(bases, tmp_path, monkeypatch):
    read = federated.StoredFederation._read

    def redrawing(federation):
        read(federation)
        if federation._round_key is not None:
            federation._round_key = randomness.fresh_key()

    work = WORKS["advance"]
    told = undisturbed(work.path(bases), tmp_path, work, monkeypatch)
    point = told.points.index("federation: round written")
    check_death(work.path(bases), tmp_path, work, told, point, monkeypatch)
    with patched_method(federated.StoredFederation, "_read", redrawing), pytest.raises(AssertionError):
        check_death(work.path(bases), tmp_path, work, told, point, monkeypatch)


@pytest.mark.parametrize("dies", range(20))
def test_a_process_that_dies_while_it_creates_a_federation_leaves_nothing_or_all_of_it(dies, tmp_path):
    path = tmp_path / "federation"

    def killed_in_creation():
        child = os.fork()
        if child == 0:
            reached = 0

            def reach(name):
                nonlocal reached
                reached += 1
                if reached > dies:
                    os._exit(KILLED)

            observed(reach)
            federated.create(path, planned(), np.zeros(NUMBERS), [ANN, BOB])
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        code = killed_in_creation()
    assert code in (0, KILLED)
    seal = tmp_path / "federation-seal"
    left = seal.read_bytes() if seal.exists() else None
    if not path.exists():
        assert code == KILLED
        federated.create(path, planned(), np.zeros(NUMBERS), [ANN, BOB])
    assert left in (None, seal.read_bytes())
    with federated.open(path) as federation:
        assert federation.members == [ANN, BOB]
        assert federation.verify().ok
    assert {file.name.removeprefix("federation") for file in tmp_path.iterdir()} == {"", "-key", "-seal", "-lock"}


# --- the law ------------------------------------------------------------------------------------------


class Died(BaseException):
    """The process is no more."""


LEFT = [BOB, CECIL]


def pulled(name, model):
    """What a client answers: one pulls hard, the others follow where it has led the model."""
    return np.array([3.0, 0.0, 0.0]) if name == ANN else update_of(name, model)


def make(federation, upto):
    while federation.made < upto:
        federation.receive([(task, pulled(task.client, task.model)) for task in federation.tasks()])
        federation.advance()


def lived(folder, plan, rng, monkeypatch, dies):
    """The state after a client left in the middle of a pass, through deaths of the process."""
    path = folder / "federation"
    for file in folder.iterdir():
        file.unlink()
    monkeypatch.setattr(randomness, "fresh_key", lambda: rng.bytes(randomness.KEY_BYTES))
    federated.create(path, plan, np.zeros(NUMBERS), [ANN, *LEFT])
    federation = None

    def reach(name):
        if dies(name):
            raise Died

    end = observed(reach)
    try:
        while True:
            try:
                federation = federated.open(path)
                make(federation, 1)
                if ANN in federation.members:
                    federation.forget(ANN)
                make(federation, plan.rounds)
                return state_of(federation)
            except Died:
                continue
            finally:
                if federation is not None:
                    federation.close()
    finally:
        end()


def fresh(plan, rng):
    federation = Federation(plan, np.zeros(NUMBERS), rng)
    federation.join(LEFT)
    make(federation, plan.rounds)
    return federation


def compared(monkeypatch, plan, dies_of, runs, seed):
    """Compare the two, with processes that die as ``dies_of`` the generator has it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        return check_same_law(
            lambda rng: lived(Path(folder), plan, rng, monkeypatch, dies_of(rng)),
            lambda rng: state_of(fresh(plan, rng)),
            names_of(fresh(plan, np.random.default_rng(0))), runs=runs, seed=seed,
        )  # fmt: skip


@pytest.mark.long
def test_deaths_do_not_bias(monkeypatch):
    def blindly(rng):
        points, chosen = count(), rng.integers(50)
        return lambda name: next(points) == chosen

    report = compared(monkeypatch, planned(rounds=2, rho=0.6), blindly, runs=300, seed=11)
    assert report.passed, report


@pytest.mark.long
def test_the_mistake_of_trying_again_what_would_cut_the_pass_off_is_caught(monkeypatch):
    read, acknowledge, left = stored._pending_from, federated.StoredFederation._acknowledge, 0

    def begin(rng):
        nonlocal left
        left = 12
        return lambda name: False

    def die_if_it_cuts(federation, *given):
        nonlocal left
        left -= 1
        if left > 0 and federation.clients.cut_from is not None:
            raise Died
        acknowledge(federation, *given)

    def with_new_coins(content):
        return read(content)._replace(key=randomness.fresh_key())

    with patched_method(federated.StoredFederation, "_acknowledge", die_if_it_cuts):
        with patched_everywhere("_pending_from", with_new_coins):
            report = compared(monkeypatch, planned(rounds=2, rho=0.6), begin, runs=200, seed=12)
        assert report.p_value < 1e-6, report
        twin = compared(monkeypatch, planned(rounds=2, rho=0.6), begin, runs=200, seed=12)
        assert twin.passed, twin
