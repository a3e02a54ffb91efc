"""A model in a file does what the one in memory does: with the same coins, bit for bit. Others see whole states."""

import copy
import os
import pickle
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import expunge
from cases.in_solver import in_solver
from expunge import (
    Delete,
    HuberRegressor,
    Insert,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    Replace,
    Ridge,
)
from expunge.base.errors import BadPlan, BusyStore, NotAvailable, ReadOnlyStore, StoreError
from expunge.engine import randomness
from expunge.engine.streams import apply
from expunge.models import LinearRegressor
from expunge.solvers import DualAveraging, Lloyd, losses
from expunge.store import failpoints, owner

RNG = np.random.default_rng(5)
N, NEW = 80, 20
X = RNG.normal(size=(N + NEW, 6)) / 3
SPARSE = sparse.csr_array(np.where(RNG.random(X.shape) < 0.4, X, 0.0))
TARGETS = {
    "binary": np.where(X[:, 0] > 0, "yes", "no"),
    "several": np.array([3, 7, 11])[np.digitize(X[:, 0], [-0.2, 0.2])],
    "numbers": X[:, 0] * 3 + X[:, 1],
    "counts": RNG.poisson(np.exp(X[:, 0])),
    "nothing": None,
}
IDS = {
    "none": None,
    "integers": np.arange(N + NEW) * 7 - 50,
    "strings": np.array([f"person {n} é\u0301👩" for n in range(N + NEW)]),
    "uuids": [UUID(int=2**100 + n) for n in range(N + NEW)],
}
SUBJECTS = np.array([f"s{n // 2}" for n in range(N + NEW)])


@dataclass(frozen=True)
class Case:
    """A model, and what it is fitted to."""

    model: Any
    targets: str = "binary"
    rows: Any = field(default_factory=lambda: X)
    ids: str = "integers"
    subjects: bool = False

    def columns(self, first, stop):
        y = TARGETS[self.targets]
        return (self.rows[first:stop],) if y is None else (self.rows[first:stop], y[first:stop])

    def names(self, first, stop):
        ids = IDS[self.ids]
        return {
            "ids": None if ids is None else ids[first:stop],
            "subjects": SUBJECTS[first:stop] if self.subjects else None,
        }

    def id_of(self, *numbers):
        ids = IDS[self.ids]
        return [number if ids is None else ids[number] for number in numbers]

    def fitted(self):
        return _clone(self.model).fit(*self.columns(0, N), **self.names(0, N))


def _clone(model):
    return type(model)(**model.get_params(deep=False))


def logistic(**more):
    return LogisticRegression(**in_solver(**{"rho": 0.6, **more}))


CASES = {
    "binary": Case(logistic()),
    "no ids": Case(logistic(), ids="none"),
    "strings": Case(logistic(), ids="strings"),
    "uuids": Case(logistic(), ids="uuids"),
    "subjects": Case(logistic(records_per_subject=2), ids="strings", subjects=True),
    "subjects, no ids": Case(logistic(records_per_subject=2), ids="none", subjects=True),
    "no noise": Case(logistic(rho=1.0)),
    "sparse": Case(logistic(), rows=SPARSE),
    "multinomial": Case(logistic(), "several"),
    "weighted": Case(logistic(class_weight={3: 1.0, 7: 2.0, 11: 0.5}), "several"),
    "declared classes": Case(logistic(classes=["maybe", "no", "yes"])),
    "projected": Case(logistic(n_components=3)),
    "projected, sparse": Case(logistic(n_components=3), rows=SPARSE),
    "shuffled": Case(logistic(schedule="shuffled"), ids="strings"),
    "shuffled, batch": Case(logistic(schedule="shuffled", batch=7, mechanism="tree")),
    "arrival": Case(logistic(schedule="arrival", batch=9, mechanism="anytime"), ids="none"),
    "arrival, halving": Case(logistic(schedule="arrival", mechanism="halving"), rows=SPARSE),
    "tree": Case(logistic(mechanism="tree", epochs=2)),
    "tree, sequential": Case(logistic(mechanism="tree", coupling="sequential"), "several"),
    "everyone": Case(logistic(solver="gradient_descent", steps=12)),
    "everyone, sequential": Case(logistic(solver="gradient_descent", steps=12, coupling="sequential"), ids="strings"),
    "everyone, some": Case(
        logistic(solver="gradient_descent", steps=12, rate=0.5, records_per_subject=2), rows=SPARSE, subjects=True
    ),
    "Frank-Wolfe": Case(logistic(solver="frank_wolfe", domain="l1")),
    "ball": Case(logistic(domain="l2", radius=2.0, alpha=0.1, selector="last")),
    "hinge": Case(LinearSVC(rho=0.6, solver="dual_averaging")),
    "hinge, several": Case(LinearSVC(rho=0.6, solver="dual_averaging"), "several", ids="strings"),
    "least squares": Case(LinearRegression(rho=0.6, solver=DualAveraging(target_range=(-3, 3))), "numbers"),
    "Huber": Case(HuberRegressor(rho=0.6, solver=DualAveraging(target_range=(-3, 3))), "numbers", SPARSE),
    "least squares, Newton": Case(LinearRegression(solver="newton"), "numbers", SPARSE, subjects=True),
    "Huber, Newton": Case(HuberRegressor(solver="newton", rho=0.6), "numbers", SPARSE, subjects=True),
    "counts": Case(PoissonRegressor(rho=0.6), "counts", ids="strings"),
    "Ridge": Case(Ridge(), "numbers"),
    "Ridge, sparse": Case(Ridge(0.5, feature_bound=[9.0] * 6), "numbers", SPARSE, ids="uuids", subjects=True),
    "KMeans": Case(KMeans(3, rho=0.9, solver=Lloyd(radius=2.0, n_rounds=2)), "nothing", ids="strings"),
    "KMeans, sequential": Case(
        KMeans(3, solver=Lloyd(low=-2.0, high=[2.0] * 6, coupling="sequential", records_per_subject=2)), "nothing",
        subjects=True,
    ),
    "KMeans, sampled": Case(KMeans(3, rho=0.3), "nothing", subjects=True),
}  # fmt: skip
SIMPLE = ("no ids", "strings", "no noise", "projected", "shuffled", "everyone", "hinge", "Ridge", "subjects, no ids")
"""Cases of which others have all; single tests use them."""
each_case = pytest.mark.parametrize(
    "case", [CASES[name] for name in CASES if name not in SIMPLE], ids=[name for name in CASES if name not in SIMPLE]
)


@pytest.fixture
def coins(monkeypatch):
    """Lets two models toss the same coins: coins(seed) says which are tossed next."""
    box = [0]

    monkeypatch.setattr(randomness, "fresh_key", lambda: np.random.default_rng(box[0]).bytes(randomness.KEY_BYTES))
    return lambda seed: box.__setitem__(0, seed)


def everything(model):
    """All that a model has, in a form that can be compared."""
    ids, kept = model.ids_.tolist(), model.transcript_
    tables = [np.asarray(table).tobytes() for table in (kept.sums, kept.answers, kept.iterates)]
    published = [np.asarray(part).tobytes() for part in model._published]
    with model._owner.lock:
        by_place, blocks = model._records.places, []
        for place in np.flatnonzero(by_place.lengths).tolist():
            for column in by_place.block(place):
                if sparse.issparse(column):
                    blocks += [part.tobytes() for part in (column.data, column.indices, column.indptr)]
                else:
                    blocks.append(column.tolist())
        return published, model.n_records_, ids, by_place.lengths.tolist(), blocks, tables


def assert_sound(model):
    report = model.verify()
    assert report.ok, report.problems


def assert_same(one, two):
    for mine, theirs in zip(everything(one), everything(two), strict=True):
        assert mine == theirs


def requests(case):
    """What is asked of a model, one after the other."""
    yield lambda model: model.unlearn(case.id_of(3))
    yield lambda model: model.unlearn(case.id_of(4, 17, 30, 31, 60))
    if case.subjects:
        yield lambda model: model.unlearn(subjects=["s20", "s21"])
        yield lambda model: model.replace(*case.columns(90, 91), subjects=["s1"])  # of whom one record is left
    yield lambda model: model.insert(*case.columns(N, N + 6), **case.names(N, N + 6))
    yield lambda model: model.replace(*case.columns(20, 22), ids=case.id_of(8, 12))
    yield lambda model: model.unlearn(case.id_of(3, 9, 9), missing="ignore")
    yield lambda model: apply(
        model,
        [
            Delete(case.id_of(10)), Delete(case.id_of(11, 3), missing="ignore"),
            Insert(case.columns(N + 6, N + 8), **case.names(N + 6, N + 8)), Replace(case.columns(1, 2), case.id_of(14)),
            Delete(case.id_of(15)),
        ],
        missing="ignore",
    )  # fmt: skip
    yield lambda model: model.partial_fit(*case.columns(N + 8, N + 10), **case.names(N + 8, N + 10))
    yield lambda model: model.replan(expected_records=100)
    yield lambda model: model.unlearn(case.id_of(16))


def uses(model, case):
    """What a model is good for, in comparable form."""
    rows = case.rows[:9]
    found = [model.predict(rows)]
    for name in ("predict_proba", "decision_function", "transform"):
        if hasattr(model, name):
            found.append(getattr(model, name)(rows))
    found += [model.to_sklearn().predict(rows), model.replay_probability(case.id_of(1, 70))]
    found += [getattr(model, name) for name in ("labels_", "inertia_", "rank_", "classes_") if hasattr(model, name)]
    if case.subjects:
        found.append(model.replay_probability(subjects=["s0", "s35"]))
    return [np.asarray(part).tolist() for part in found]


def said(model):
    """The parameters of a model but for the seed, which is not kept."""
    return repr({**model.get_params(), "random_state": None})


@each_case
def test_a_model_in_a_file_does_what_the_one_in_memory_does(tmp_path, coins, case):
    coins(1)
    memory = case.fitted()
    memory.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        assert type(model) is type(memory)
        assert said(model) == said(memory) == said(clone(model))
        assert not hasattr(clone(model), "plan_")
        assert_same(memory, model)
        assert uses(memory, case) == uses(model, case)
        for seed, ask in enumerate(requests(case), start=10):
            for each in (memory, model):
                coins(seed)
                ask(each)
            assert_same(memory, model)
        assert uses(memory, case) == uses(model, case)
        assert_sound(model)
        assert model.verify_receipts().ok
    with expunge.open(tmp_path / "model", read_only=True) as again:
        assert_same(memory, again)
        assert uses(memory, case) == uses(again, case)


# --- few records, or none -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["binary", "shuffled", "arrival", "everyone", "subjects", "Ridge", "KMeans"])
@pytest.mark.filterwarnings("ignore:every record has been deleted", "ignore::expunge.SizeWarning")
@pytest.mark.filterwarnings("ignore:there (are|is) now", "ignore::expunge.RankWarning")
def test_the_last_record_can_go_and_others_come(tmp_path, coins, name):
    case = CASES[name]
    coins(1)
    memory = case.fitted()
    memory.save(tmp_path / "model")
    others = [f"another {n}" for n in range(3)]
    steps = [
        lambda model: model.unlearn(model.ids_[1:]),
        lambda model: model.replace(*case.columns(5, 6), ids=model.ids_),
        lambda model: model.unlearn(model.ids_),
        lambda model: model.insert(*case.columns(2, 3), **case.names(2, 3)),
        lambda model: model.unlearn(model.ids_),
        lambda model: model.insert(*case.columns(2, 5), **{**case.names(2, 5), "ids": others}),
        lambda model: model.unlearn(others[1:]),
    ]
    counts = []
    with expunge.open(tmp_path / "model") as model:
        for seed, ask in enumerate(steps):
            for each in (memory, model):
                coins(seed)
                ask(each)
            assert_same(memory, model)
            counts.append(model.n_records_)
            assert_sound(model)
        with expunge.open(tmp_path / "model", read_only=True) as again:
            assert_same(memory, again)
    assert counts == [1, 1, 0, 1, 0, 3, 1]


def test_one_record_can_be_saved(tmp_path):
    memory = LogisticRegression(classes=["no", "yes"], solver="dual_averaging").fit(X[:1], ["yes"], ids=["only"])
    memory.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        assert_same(memory, model)
        assert_sound(model)


@pytest.mark.filterwarnings("ignore:every record has been deleted", "ignore::expunge.SizeWarning")
def test_none_can_be_saved(tmp_path):
    memory = CASES["strings"].fitted()
    memory.unlearn(memory.ids_)
    memory.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        assert_same(memory, model)
        model.insert(X[:3], TARGETS["binary"][:3], ids=[7, 8, 9])
        assert model.ids_.tolist() == [7, 8, 9]
        assert_sound(model)


@pytest.mark.filterwarnings("ignore::expunge.SizeWarning")
@pytest.mark.parametrize("schedule", ["scattered", "shuffled"])
def test_odd_ids_and_subjects_are_told_apart(tmp_path, schedule):
    odd = [
        "e\u0301", "é", "👩‍👩‍👧", "👩", "\u202eabc", "שלום", "\ud800", "\udfff", "a\0b", "ab", "\0x", "x", " x", "",
        "\U0010ffff", "x" * 60, "x" * 61,
    ]  # fmt: skip
    n = len(odd)
    model = LogisticRegression(solver=DualAveraging(schedule=schedule)).fit(
        X[:n], TARGETS["binary"][:n], ids=odd, subjects=odd[::-1]
    )
    model.save(tmp_path / "model")
    left = set(odd)
    with expunge.open(tmp_path / "model") as model:
        for number, name in enumerate(odd[:-1]):
            if name in left:
                model.unlearn(name) if number % 2 else model.unlearn(subjects=odd[::-1][number])
                left.remove(name)
                assert set(model.ids_.tolist()) == left
        assert_sound(model)


# --- what it is -----------------------------------------------------------------------------------------


def test_a_seed_that_was_not_used_is_not_in_the_file(tmp_path):
    seed = 7_263_544_912_345_678_901
    memory = logistic().fit(X[:N], TARGETS["binary"][:N]).set_params(random_state=seed)
    memory.save(tmp_path / "model")
    for path in tmp_path.iterdir():
        raw = path.read_bytes()
        for trace in (seed.to_bytes(8, "little"), seed.to_bytes(8, "big"), str(seed).encode(), f"{seed:x}".encode()):
            assert trace not in raw
    with expunge.open(tmp_path / "model") as model:
        assert model.random_state is None
        model.unlearn(3)
        assert_sound(model)


@pytest.mark.parametrize("name", ["binary", "subjects", "no noise", "shuffled", "everyone", "KMeans", "Ridge"])
def test_the_key_of_a_fit_or_a_request_is_not_in_the_file(tmp_path, monkeypatch, name):
    keys = []

    def recorded():
        keys.append(os.urandom(randomness.KEY_BYTES))
        return keys[-1]

    monkeypatch.setattr(randomness, "fresh_key", recorded)
    case = CASES[name]
    case.fitted().save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        seen = []
        monkeypatch.setattr(failpoints, "hook", lambda point: seen.append((tmp_path / "model-wal").read_bytes()))
        model.unlearn(case.id_of(3))
        monkeypatch.setattr(failpoints, "hook", None)
        assert any(keys[-1].hex().encode() in raw for raw in seen)  # while it was being served
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert len(keys) >= 2
        for key in keys:
            assert key not in raw
            assert key.hex().encode() not in raw


def test_names_of_columns_are_kept(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X[:N], columns=[f"ä{n}" for n in range(6)])
    logistic().fit(table, TARGETS["binary"][:N]).save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        assert model.feature_names_in_.tolist() == list(table.columns)
        model.predict(table)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(table.rename(columns={"ä0": "other"}))


@dataclass(frozen=True)
class Pinball:
    """A loss of the user's own."""

    quantile: float
    outputs = 1
    lipschitz = 1.0
    smoothness = np.inf

    def value(self, scores, targets):
        return np.maximum(self.quantile * (targets - scores), (1 - self.quantile) * (scores - targets))

    def derivative(self, scores, targets):
        return np.where(scores < targets, -self.quantile, 1 - self.quantile)


class QuantileRegressor(LinearRegressor):
    """A model of the user's own."""

    quantile = 0.9

    def make_loss(self):
        return Pinball(self.quantile)


def test_a_loss_of_ones_own_must_be_handed_in(tmp_path, coins):
    memory = QuantileRegressor(rho=0.6, solver=DualAveraging(target_range=(-3, 3))).fit(X[:N], TARGETS["numbers"][:N])
    memory.save(tmp_path / "model")
    for wrong in ({}, {"loss": losses.Squared(1.0)}, {"read_only": True}):
        with pytest.raises(BadPlan, match=r"loss: this model has a custom loss, Pinball; .*open\(path, loss=Pinball"):
            expunge.open(tmp_path / "model", **wrong)
    with expunge.open(tmp_path / "model", loss=Pinball(0.9)) as model:
        assert type(model) is LinearRegressor
        for seed, ask in enumerate((lambda m: m.unlearn([3, 4]), lambda m: m.replan(), lambda m: m.unlearn(5))):
            for each in (memory, model):
                coins(seed)
                ask(each)
            assert_same(memory, model)
    with expunge.open(tmp_path / "model", loss=Pinball(0.5)) as model:
        assert not model.verify().ok
    with expunge.open(tmp_path / "model", loss=Pinball(0.9)) as model:
        assert_same(memory, model)
        assert_sound(model)


class Branded(LogisticRegression):
    """A user's class with a parameter of its own, and without most others."""

    def __init__(self, brand="none", rho=0.6, seed=None):
        super().__init__(rho=rho, random_state=seed)
        self.brand, self.seed = brand, seed


def test_a_users_own_class_is_opened_as_the_one_it_comes_from(tmp_path):
    memory = Branded("acme").fit(X[:N], TARGETS["binary"][:N])
    memory.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        assert type(model) is LogisticRegression
        assert model.rho == 0.6
        assert_same(memory, model)
        assert repr(model.get_params()) == repr(LogisticRegression(rho=0.6).get_params())
        model.unlearn(5)
        model.replan()
        assert_sound(model)


def test_a_seed_that_a_users_own_class_hides_is_noticed_too(tmp_path):
    with pytest.raises(BadPlan, match="random_state"):
        Branded(seed=1_234_567_890_123).fit(X[:N], TARGETS["binary"][:N]).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_a_file_cannot_hold_is_named_before_it_is_written(tmp_path):
    memory = CASES["binary"].fitted()
    memory.note_ = ["a plain list", {"of": (1, 2.0)}]
    memory.save(tmp_path / "plain")
    memory.friend_ = {"who": [Branded()]}
    with pytest.raises(BadPlan, match="friend_: a file cannot hold a Branded; remove it from the model"):
        memory.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with expunge.open(tmp_path / "plain") as model:
        assert model.note_ == memory.note_


# --- what it refuses ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::expunge.NoiseWarning")
@pytest.mark.parametrize("name", ["binary", "Ridge", "KMeans", "least squares"])
def test_fit_is_refused_and_changes_nothing(tmp_path, name):
    case = CASES[name]
    case.fitted().save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        before, attributes = everything(model), dict(model.__dict__)
        with pytest.raises(StoreError, match=r"^fit: this model is stored in .*model, with its records\. Use insert"):
            model.fit(*case.columns(0, 50))
        with pytest.raises(StoreError, match=r"^fit: "):
            model.fit(case.rows[:50, :3], *case.columns(0, 50)[1:])
        assert model.__dict__.keys() == attributes.keys()
        assert all(model.__dict__[key] is value for key, value in attributes.items() if key != "_derived")
        assert everything(model) == before
        assert_sound(model)
        model.unlearn(case.id_of(5))


def test_it_can_be_neither_pickled_nor_copied(tmp_path):
    CASES["binary"].fitted().save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        for take in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(
                StoreError, match=r"model: a model in a store can be neither pickled nor copied; .*save"
            ):
                take(model)
        assert_sound(model)
        model.save(tmp_path / "other")
        with expunge.open(tmp_path / "other") as other:
            assert_same(model, other)
            other.unlearn(CASES["binary"].id_of(5))
            assert other.n_records_ == model.n_records_ - 1


def test_a_closed_model_says_so(tmp_path):
    CASES["binary"].fitted().save(tmp_path / "model")
    model = expunge.open(tmp_path / "model")
    model.close()
    model.close()
    for ask in (
        lambda: model.predict(X),
        lambda: model.unlearn(-50), lambda: model.insert(X[:1], ["no"], ids=[5]), model.verify, model.replan,
        model.compact, model.export_receipts, model.to_sklearn,
    ):  # fmt: skip
        with pytest.raises(StoreError, match="model: this model was closed; open it again"):
            ask()
    for name in ("n_records_", "ids_"):  # which hasattr must be able to ask for
        with pytest.raises(NotAvailable, match="model: this model was closed; open it again"):
            getattr(model, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model-key", "model-lock"]


def test_a_model_in_memory_has_no_file():
    memory = CASES["binary"].fitted()
    memory.close()
    for ask in (memory.compact, memory.export_receipts, memory.verify_receipts):
        with pytest.raises(StoreError, match=r"in memory only; save\(path\) it, and use expunge.open"):
            ask()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_cannot_use_what_its_parent_has_open(tmp_path):
    CASES["binary"].fitted().save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        report, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                said = []
                for ask in (lambda: model.predict(X), lambda: model.unlearn(-50), model.verify, lambda: model.ids_):
                    try:
                        ask()
                    except (StoreError, NotAvailable) as error:
                        said.append(str("opened by another process; open it in this one" in str(error)))
                try:  # a new connection would believe that it has its parent's locks
                    expunge.open(tmp_path / "model", read_only=True)
                except StoreError as error:
                    said.append(str("forked while its parent had the file open" in str(error)))
                os.write(write, " ".join(said).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        assert os.read(report, 1000) == b"True True True True True"
        model.unlearn(-43)
        assert_sound(model)
    child = os.fork()  # the parent has closed it
    if child == 0:
        try:
            with expunge.open(tmp_path / "model") as own:
                own.unlearn(-50)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    with expunge.open(tmp_path / "model") as model:
        assert model.n_records_ == N - 2
        assert_sound(model)


def locked(path, first, length):
    """Whether this process has a lock on some bytes of a file that another process notices."""
    fcntl = pytest.importorskip("fcntl")
    child = os.fork()
    if child == 0:
        try:
            with open(path, "r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, first)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def is_held(path):
    """Whether other processes know that this one has the store open: by SQLite's locks on file and index of the log."""
    return locked(path, 0x40000002, 510) and locked(f"{path}-shm", 128, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_nothing_that_is_done_meanwhile_gives_up_the_locks(tmp_path):
    path = tmp_path / "model"
    CASES["strings"].fitted().save(path)
    with expunge.open(path) as model:
        assert is_held(path)
        expunge.open(path).close()
        assert is_held(path)
        expunge.open(path, read_only=True).close()
        assert is_held(path)
        assert expunge.store.scan(path, [IDS["strings"][7]])
        assert is_held(path)
        model.unlearn(IDS["strings"][7])
        assert not expunge.store.scan(path, [IDS["strings"][7]])
        expunge.store.backup(path, tmp_path / "backup")
        model.save(tmp_path / "other")
        model.compact()
        model.verify()
        assert is_held(path)
        model.predict(X)
        model.replan()
        assert is_held(path)
    assert not locked(path, 0x40000002, 510)


def test_a_model_to_read_predicts_and_refuses_requests(tmp_path):
    case = CASES["binary"]
    memory = case.fitted()
    memory.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        model.unlearn(case.id_of(5))
    raw = (tmp_path / "model").read_bytes()
    with expunge.open(tmp_path / "model", read_only=True) as model:
        for ask in (
            lambda: model.unlearn(case.id_of(6)), lambda: model.insert(X[:1], ["no"], ids=[5]), model.replan,
            lambda: model.replace(X[:1], ["no"], ids=case.id_of(6)), model.compact,
            lambda: model.partial_fit(X[:1], ["no"], ids=[5]),
        ):  # fmt: skip
            with pytest.raises(ReadOnlyStore):
                ask()
        assert model.predict(X).shape == (N + NEW,)
        assert len(model.export_receipts(ids=case.id_of(5))["receipts"]) == 1
        assert model.verify_receipts().ok
        assert_sound(model)
    assert (tmp_path / "model").read_bytes() == raw


# --- interruptions --------------------------------------------------------------------------------------

POINTS = [name for name in failpoints.NAMES if name.startswith("request: ")]


def stop_at(name, error=KeyboardInterrupt):
    """Interrupt the work when it comes to a point, once."""

    def hook(reached):
        if reached == name:
            failpoints.hook = None
            raise error

    failpoints.hook = hook


@pytest.mark.parametrize(("name", "reopened"), [("shuffled", False), ("subjects", True)], ids=["goes on", "reopened"])
@pytest.mark.parametrize("point", POINTS)
def test_what_was_interrupted_is_finished_with_the_same_coins(tmp_path, coins, point, name, reopened):
    case = CASES[name]
    coins(1)
    memory = case.fitted()
    memory.save(tmp_path / "model")
    model = expunge.open(tmp_path / "model")
    columns, names = case.columns(N, N + 5), case.names(N, N + 5)
    request = model.prepare_request(Insert(columns, **names))  # where its records go is drawn
    stop_at(point)
    coins(2)
    with pytest.raises(KeyboardInterrupt):
        model.serve_request(request)
    begun = point != "request: recording"
    assert model.has_begun(request) == begun
    if reopened:
        model.close()
        model = expunge.open(tmp_path / "model")
    coins(2 if begun else 3)
    memory.insert(*columns, **names)
    coins(3)
    if not begun:
        model.insert(*columns, **names)
    assert_same(memory, model)
    for each in (memory, model):
        coins(4)
        each.unlearn(case.id_of(3, 20))
    assert_same(memory, model)
    assert_sound(model)
    assert len(model.export_receipts()["receipts"]) == 2
    assert model.verify_receipts().ok
    model.close()


def test_a_request_that_was_begun_need_not_be_asked_for_again(tmp_path):
    CASES["binary"].fitted().save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model, expunge.open(tmp_path / "model") as other:
        request, never = model.prepare_request(Delete([-50])), model.prepare_request(Delete([-43]))
        stop_at("request: decided")
        with pytest.raises(KeyboardInterrupt):
            model.serve_request(request)
        assert not model.has_begun(never)
        other.unlearn(-36)  # finishes it first
        assert model.n_records_ == N - 2
        assert model.has_begun(request)
        assert not other.has_begun(request)
        assert len(other.export_receipts()["receipts"]) == 2


# --- several at once ------------------------------------------------------------------------------------


def test_others_see_whole_states_at_every_moment(tmp_path):
    case = CASES["no noise"]
    case.fitted().save(tmp_path / "model")
    with (
        expunge.open(tmp_path / "model") as model,
        expunge.open(tmp_path / "model", read_only=True) as reader,
        expunge.open(tmp_path / "model", wait=0.01) as other,
    ):
        before, seen = model.coef_.tobytes(), []

        def look(name):
            for each in (reader, other):
                each.predict(X[:3])
                seen.append((name, each.coef_.tobytes(), each.n_records_))

        failpoints.hook = look
        model.unlearn(case.id_of(7, 8))
        failpoints.hook = None
        after = model.coef_.tobytes()
        assert before != after
        early = POINTS[: POINTS.index("request: committed")]
        for name, coefficients, count in seen:
            assert (coefficients, count) == ((before, N) if name in early else (after, N - 2)), name
        assert {name for name, *_ in seen} == set(POINTS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_reader_sees_what_another_process_has_done(tmp_path):
    path = tmp_path / "model"
    CASES["no noise"].fitted().save(path)
    ready, tell = os.pipe()
    child = os.fork()  # before anything is opened here
    if child == 0:
        try:
            os.read(ready, 1)
            with expunge.open(path) as other:
                other.unlearn([-50, -43])
                other.replan()
        finally:
            os._exit(0)
    with expunge.open(path, read_only=True) as reader, expunge.open(path) as writer:
        before = reader.coef_.copy()
        os.write(tell, b"x")
        os.waitpid(child, 0)
        for model in (reader, writer):
            assert model.n_records_ == N - 2
            assert not np.array_equal(model.coef_, before)
            assert_sound(model)
        writer.unlearn(-36)
        assert reader.n_records_ == N - 3
        assert np.array_equal(reader.coef_, writer.coef_)


def test_a_second_writer_waits_and_gives_up_by_name(tmp_path):
    CASES["binary"].fitted().save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model, expunge.open(tmp_path / "model", wait=0.07) as other:
        waited = []

        def meanwhile(name):
            if name == "request: decided":
                failpoints.hook = None
                request = other.prepare_request(Delete([-43]))
                began = time.monotonic()
                with pytest.raises(BusyStore, match=r"other processes have been writing for 0\.07 s.*wait="):
                    other.serve_request(request)
                waited.append(time.monotonic() - began)
                assert not other.has_begun(request)
                with pytest.raises(BusyStore):
                    expunge.open(tmp_path / "model", wait=0.01)

        failpoints.hook = meanwhile
        model.unlearn(-50)
        assert 0.05 < waited[0] < 2.0
        other.unlearn(-43)
        for each in (model, other):
            assert each.n_records_ == N - 2
            assert_sound(each)


@pytest.mark.parametrize("name", ["shuffled", "arrival", "everyone", "subjects"])
def test_two_that_take_turns_are_always_right(tmp_path, coins, name):
    case = CASES[name]
    memory = case.fitted()
    memory.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as one, expunge.open(tmp_path / "model") as two:
        for seed, ask in enumerate(requests(case)):
            for each in (memory, (one, two)[seed % 2]):
                coins(seed)
                ask(each)
            for each in (one, two):
                assert np.array_equal(each.predict(case.rows), memory.predict(case.rows))
                assert_same(memory, each)
                assert_sound(each)


def test_threads_may_share_a_model(tmp_path):
    case = CASES["no noise"]
    case.fitted().save(tmp_path / "model")
    errors = []

    def work(first):
        try:
            for number in range(first, first + 5):
                model.unlearn(case.id_of(number))
                model.predict(X[:5])
        except BaseException as error:
            errors.append(error)

    with expunge.open(tmp_path / "model") as model:
        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 10, 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert model.n_records_ == N - 15
        assert_sound(model)
        assert model.verify_receipts().count == 15


# --- compacting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["binary", "arrival", "subjects, no ids", "everyone, some", "Ridge"])
def test_compacting_changes_nothing_but_the_file(tmp_path, coins, name):
    case = CASES[name]
    memory = case.fitted()
    memory.save(tmp_path / "model")
    gone = case.id_of(*range(10, 50))
    with expunge.open(tmp_path / "model") as model, expunge.open(tmp_path / "model") as other:
        for each in (memory, model):
            coins(3)
            each.unlearn(gone)
        size = (tmp_path / "model").stat().st_size
        model.compact()
        assert (tmp_path / "model").stat().st_size < size
        for each in (model, other):
            assert_same(memory, each)
            assert_sound(each)
        first = (tmp_path / "model").read_bytes()
        other.compact()
        assert len((tmp_path / "model").read_bytes()) == len(first)
        for each in (memory, other):
            coins(4)
            each.unlearn(case.id_of(5))
        for each in (model, other):
            assert_same(memory, each)
        assert model.verify_receipts().ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model-key", "model-lock"]


# --- the day of a request --------------------------------------------------------------------------------


def test_a_receipt_has_the_day_on_which_the_request_was_recorded(tmp_path, monkeypatch):
    """A day that was taken after the replay could tell how long that took."""
    CASES["binary"].fitted().save(tmp_path / "model")
    days = ["2031-12-31"]
    monkeypatch.setattr(owner, "today", lambda: days[-1])

    def at_midnight(point):
        if point == "request: recorded":
            days.append("2032-01-01")

    def dies(point):
        at_midnight(point)
        if point == "request: decided":
            raise KeyboardInterrupt

    with expunge.open(tmp_path / "model") as model:
        monkeypatch.setattr(failpoints, "hook", at_midnight)
        model.unlearn(CASES["binary"].id_of(3))
        days.append("2033-12-31")
        monkeypatch.setattr(failpoints, "hook", dies)
        with pytest.raises(KeyboardInterrupt):
            model.unlearn(CASES["binary"].id_of(4))
    monkeypatch.setattr(failpoints, "hook", None)
    with expunge.open(tmp_path / "model") as model:
        days.append("2035-01-01")
        model.unlearn(CASES["binary"].id_of(5))
        receipts = model.export_receipts()["receipts"]
    assert [one["day"] for one in receipts] == ["2031-12-31", "2033-12-31", "2035-01-01"]
