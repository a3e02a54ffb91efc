"""What may happen around a store: others that die, links, files that are put in its place, settings that change."""

import os
import sqlite3
import threading
import warnings

import numpy as np
import pytest

import expunge
import expunge.store
from expunge.base.errors import (
    BadPlan,
    BusyStore,
    ClippedWarning,
    CorruptStore,
    FullStore,
    NoiseWarning,
    NotAStore,
    StoreError,
    UnknownId,
)
from expunge.solvers import DualAveraging, Lloyd
from expunge.store import failpoints, scan
from expunge.store.file import StoreFile
from expunge.store.keys import make_key
from expunge.store.owner import StoredOwner
from expunge.store.surroundings import beside

rng = np.random.default_rng(12)
N = 120
X = rng.normal(size=(N, 3)) / 3
Y = X[:, 0] > 0


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_copy_that_another_process_left_when_it_died_is_gone_when_a_deletion_is_acknowledged(path):
    with expunge.open(path) as model:
        model._owner.file.copy_to(beside(path, "-new"))  # as by a process that dies in compact
        model.unlearn([5])
        assert scan(path, [X[5]]) == []
        assert len(scan(path, [X[6]])) == 1


def test_a_number_for_a_seed_is_refused_where_requests_are_not_counted(path):
    """It would give every request the same coins."""
    memory = expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y)
    with expunge.open(path) as stored:
        for model in (memory, stored):
            model.set_params(random_state=7)
            for ask in (lambda: model.unlearn([5]), model.replan):  # noqa: B023
                why = "same coins" if model is memory else "is stored in a file"
                with pytest.raises(BadPlan, match=f"random_state=7: .* {why}") as caught:
                    ask()
                assert caught.value.refused
            assert model.n_records_ == N
            model.set_params(random_state=np.random.default_rng(7) if model is memory else None)
            model.unlearn([5])
            assert model.verify().ok


def test_a_link_to_a_store_has_its_lock_and_key(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    with expunge.open(path) as model, expunge.open(tmp_path / "link", wait=0.01) as linked:
        with model._owner.lock, pytest.raises(BusyStore):
            linked.unlearn([5])
        linked.unlearn([5])
        assert model.n_records_ == N - 1
        assert scan(tmp_path / "link", [X[5]]) == []
    assert {each.name for each in tmp_path.iterdir()} == {"model", "model-key", "model-lock", "link"}


def test_a_store_stays_where_it_is_when_the_process_goes_elsewhere(path, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with expunge.open("model") as model, expunge.open("model", read_only=True) as reader:
        monkeypatch.chdir(tmp_path / "elsewhere")
        model.unlearn([5])
        assert reader.verify().ok
        assert len(reader.export_receipts(ids=[5])["receipts"]) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("where", ["", ".", "/", "loop", "pipe"])
def test_what_is_no_file_is_refused_by_name_and_nothing_hangs(where, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    before = set(tmp_path.parent.rglob("*"))
    model = expunge.LogisticRegression(classes=[False, True], solver="dual_averaging")
    for ask in (
        lambda: expunge.open(where),
        lambda: expunge.open(where, read_only=True),
        lambda: expunge.ingest(model, [(X, Y)], where),
        lambda: expunge.store.scan(where, ["person 17"]),
        lambda: expunge.store.backup(path, where),
        lambda: expunge.store.restore(path, where),
        lambda: expunge.store.restore(where, path),
    ):
        with pytest.raises(NotAStore):
            ask()
    assert set(tmp_path.parent.rglob("*")) - before <= {beside(path, "-lock")}


def test_nothing_is_written_into_a_file_that_was_put_aside(path, tmp_path):
    expunge.store.backup(path, tmp_path / "backup")
    with expunge.open(path) as model:
        expunge.store.restore(tmp_path / "backup", path)
        with pytest.raises(StoreError, match="moved, removed or replaced; open the model again"):
            model.unlearn([5])
    with expunge.open(path) as model:
        model.unlearn([5])
        path.unlink()
        with pytest.raises(StoreError, match="moved, removed or replaced"):
            model.unlearn([6])


def test_of_a_request_that_found_no_room_nothing_stays_in_the_log(path):
    ids = rng.integers(2**60, size=5000)
    with expunge.open(path) as model:
        file = model._owner.file
        file._connection.execute("PRAGMA cache_size=10")  # so that it is written before all is known
        file._connection.execute(f"PRAGMA max_page_count={file._pragma('page_count') + 100}")
        with pytest.raises(FullStore) as caught:
            model.insert(np.tile(X[:50], (100, 1)), np.tile(Y[:50], 100), ids=ids)
        assert caught.value.refused
        assert scan(path, ids[:1000].tolist()) == []
        assert beside(path, "-wal").stat().st_size == 0


def test_the_log_is_emptied_though_the_new_state_cannot_be_shown(path, monkeypatch):
    with expunge.open(path) as model:
        monkeypatch.setattr(model, "_publish", lambda: 1 / 0)
        monkeypatch.setattr(StoredOwner, "_show", lambda owner, *new: new[-1]())
        with pytest.raises(ZeroDivisionError):
            model.unlearn([5])
        assert scan(path, [X[5]]) == []


def test_to_close_waits_for_a_request_of_another_thread(path):
    model, begun, outcomes = expunge.open(path), threading.Event(), []

    def hook(name):
        if name == "request: decided":
            begun.set()
            threading.Event().wait(0.05)

    failpoints.hook = hook
    thread = threading.Thread(target=lambda: outcomes.append(model.unlearn([5])))
    thread.start()
    begun.wait()
    model.close()
    thread.join()
    assert outcomes[0].removed == 1


def test_parameters_that_a_new_plan_was_made_with_are_kept(path):
    with expunge.open(path) as model:
        model.set_params(rho=0.9).replan()
    with expunge.open(path) as model:
        assert model.rho == model.plan_.rho == 0.9
        model.replan()
        assert model.plan_.rho == 0.9


def test_what_is_saved_is_one_whole_state_though_others_write(path, tmp_path, monkeypatch):
    with expunge.open(path) as model, expunge.open(path) as other:

        def write(_):
            other.set_params(rho=0.9).replan()

        with monkeypatch.context() as patch:
            patch.setattr(expunge.LogisticRegression, "_refuse_seed", write)  # after save() has looked
            model.save(tmp_path / "saved")
    with expunge.open(tmp_path / "saved") as saved:
        assert saved.plan_.rho == 0.9
        assert saved.verify().ok


def test_a_backup_is_not_brought_up_to_date_by_a_key_of_another_store(path, tmp_path):
    expunge.store.backup(path, tmp_path / "backup")
    with expunge.open(path) as model:
        model.unlearn([5])
        receipts = model.export_receipts()
    for file in (path, beside(path, "-key")):
        file.unlink()
    make_key(beside(path, "-key"))
    with pytest.raises(StoreError, match=r"model-key: this is the key of another store"):
        expunge.store.restore(tmp_path / "backup", path, receipts=receipts)
    beside(path, "-key").unlink()
    assert expunge.store.restore(tmp_path / "backup", path, receipts=receipts).erased == 1


def test_a_trigger_that_has_the_name_of_a_table_is_noticed(path):
    trigger = "CREATE TRIGGER receipts AFTER DELETE ON pending BEGIN INSERT INTO arrays VALUES (9, old.content); END"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema=ON")
    (table,) = connection.execute("SELECT * FROM sqlite_schema WHERE name='receipts'").fetchall()
    connection.execute("DELETE FROM sqlite_schema WHERE name='receipts'")
    connection.execute("INSERT INTO sqlite_schema VALUES ('trigger', 'receipts', 'pending', 0, ?)", (trigger,))
    connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", table)
    connection.close()
    with pytest.raises(CorruptStore, match="other tables"):
        expunge.open(path)


@pytest.mark.parametrize("wait", ["long", None, -1, float("nan"), True])
def test_a_wait_that_is_none_is_refused_at_once(wait, path, tmp_path):
    for ask in (
        lambda: expunge.open(path, wait=wait),
        lambda: expunge.store.backup(path, tmp_path / "other", wait=wait),
        lambda: expunge.store.restore(path, path, wait=wait),
        lambda: expunge.ingest(
            expunge.LogisticRegression(classes=[False, True], solver="dual_averaging"),
            [(X, Y)],
            tmp_path / "a",
            wait=wait,
        ),
    ):
        with pytest.raises(BadPlan, match="wait="):
            ask()


def test_one_may_wait_for_ever(path):
    with expunge.open(path, wait=float("inf")) as model:
        assert model._owner.file._pragma("busy_timeout") > 10**9


def test_a_warning_that_is_an_error_leaves_no_store_behind(tmp_path):
    wanted = expunge.KMeans(2, solver=Lloyd(radius=0.001))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClippedWarning)
        warnings.simplefilter("ignore", NoiseWarning)
        with pytest.raises(ClippedWarning):
            expunge.ingest(wanted, [(X,)], tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("receipts", ["nowhere.json", "{not JSON", b"bytes", 17, "model"])
def test_receipts_that_are_none_are_refused_by_name(receipts, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expunge.store.backup(path, tmp_path / "backup")
    with pytest.raises(StoreError):
        expunge.store.restore(tmp_path / "backup", path, receipts=receipts)
    assert not beside(path, "-new").exists()


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_copies_of_a_store_are_for_nobody_who_may_not_read_it(path, tmp_path):
    path.chmod(0o600)
    modes = []

    def hook(name):
        if name in ("compact: copied", "backup: copied", "restore: prepared"):
            modes.extend(each.stat().st_mode & 0o777 for each in tmp_path.glob("*-new"))

    failpoints.hook = hook
    with expunge.open(path) as model:
        model.compact()
    expunge.store.backup(path, tmp_path / "backup")
    expunge.store.restore(tmp_path / "backup", path)
    assert modes == [0o600] * 3
    assert path.stat().st_mode & 0o777 == (tmp_path / "backup").stat().st_mode & 0o777 == 0o600


def interrupt_at(point):
    def hook(name):
        if name == point:
            failpoints.hook = None
            raise KeyboardInterrupt

    failpoints.hook = hook
    return pytest.raises(KeyboardInterrupt)


def what_waits(path):
    file = StoreFile(path)
    waiting = bytes(file.get("pending", 0))
    file.close()
    return waiting


@pytest.mark.parametrize("kind", ["delete", "insert"])
def test_a_request_that_waits_keeps_its_coins_if_the_backup_is_of_the_same_state(kind, path, tmp_path):
    expunge.store.backup(path, tmp_path / "backup")
    with expunge.open(path) as model, interrupt_at("request: recorded"):
        model.unlearn([5]) if kind == "delete" else model.insert(X[:1], Y[:1], ids=[999])
    before = what_waits(path)
    with interrupt_at("restore: renamed"):
        expunge.store.restore(tmp_path / "backup", path)
    assert what_waits(path) == before
    with expunge.open(path) as model:
        assert (5 not in model.ids_) if kind == "delete" else (999 in model.ids_)
        assert model.verify().ok


@pytest.mark.parametrize("ending", ["-new", "-spool", "-key", "-wal"])
def test_a_name_that_would_be_taken_for_a_part_of_another_store_is_refused(ending, path, tmp_path):
    other = beside(path, ending)
    before = sorted(tmp_path.iterdir())
    for ask in (
        lambda: expunge.LogisticRegression(solver="dual_averaging").fit(X, Y).save(other),
        lambda: expunge.ingest(
            expunge.LogisticRegression(classes=[False, True], solver="dual_averaging"), [(X, Y)], other
        ),
        lambda: expunge.store.backup(path, other),
    ):
        with pytest.raises(StoreError, match=f"names in {ending} are for files that belong to a store|exists already"):
            ask()
    assert [one for one in sorted(tmp_path.iterdir()) if one.name != "model-lock"] == before


def test_a_store_is_not_scanned_for_what_another_has(path):
    expunge.LogisticRegression(solver="dual_averaging").fit(X / 2, Y).save(beside(path, "-of-monday"))
    assert scan(path, [X[5] / 2]) == []
    assert len(scan(beside(path, "-of-monday"), [X[5] / 2])) == 1


def test_the_key_of_another_store_is_refused(path, tmp_path):
    expunge.LogisticRegression(solver="dual_averaging").fit(X, Y).save(tmp_path / "other")
    beside(path, "-key").write_bytes((tmp_path / "other-key").read_bytes())
    with pytest.raises(StoreError, match=r"model-key: this is the key of another store; copy the right one"):
        expunge.open(path)
    with expunge.open(path, read_only=True) as model:  # from here it can be saved anew
        assert model.n_records_ == N
        model.save(tmp_path / "anew")
    with expunge.open(tmp_path / "anew") as model:
        assert model.unlearn([5]).removed == 1


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_only_the_owner_can_read_a_store(path, tmp_path):
    with expunge.open(path) as model:
        model.compact()
    expunge.store.backup(path, tmp_path / "copy")
    expunge.store.restore(tmp_path / "copy", path)
    for file in (path, tmp_path / "copy"):
        assert file.stat().st_mode & 0o777 == 0o600


def test_what_an_interrupted_ingest_left_is_named(tmp_path):
    (tmp_path / "model-spool").mkdir()
    with pytest.raises(NotAStore, match=r"An ingest was interrupted and left .*model-spool"):
        expunge.open(tmp_path / "model")


def test_who_tries_often_gets_a_turn_beside_one_who_writes_all_the_time(path):
    with expunge.open(path) as busy, expunge.open(path, wait=20) as other:
        ended = threading.Event()

        def write():  # the same record out and in, so that there is always something left to write
            while not ended.is_set():
                busy.unlearn([3])
                busy.insert(X[3:4], Y[3:4], ids=[3])

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert len(other.ids_) >= N - 1
            assert other.verify().ok
        finally:
            ended.set()
            thread.join()


def test_receipts_can_be_read_while_a_request_is_under_way(path):
    with expunge.open(path) as model, expunge.open(path, read_only=True, wait=0.05) as reader:
        seen = []
        failpoints.hook = lambda name: seen.append(reader.verify_receipts().ok)
        model.unlearn([3])
        failpoints.hook = None
        assert seen
        assert all(seen)
        assert len(reader.export_receipts()["receipts"]) == 1


def test_a_table_of_pandas_in_chunks_can_be_ingested(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"who": [f"p{k}" for k in range(N)], "a": X[:, 0], "b": X[:, 1], "y": Y})
    both = pandas.concat([table[:50], table[50:]])
    wanted = expunge.LogisticRegression(classes=[False, True], solver="dual_averaging")
    with expunge.ingest(wanted, both, tmp_path / "model", target="y", id="who") as model:
        assert model.n_records_ == N


def test_a_refusal_says_so_wherever_it_is_noticed(path):
    with expunge.open(path) as model:
        with pytest.raises(expunge.BadRecords) as caught:
            model.insert(X[:1], Y[:1], ids=[1000, 1001])
        assert caught.value.refused
    with expunge.open(path, read_only=True) as reader:
        for ask in (reader.compact, reader.replan, lambda: reader.unlearn([1])):
            with pytest.raises(expunge.ReadOnlyStore, match="opened with read_only"):
                ask()
    with pytest.raises(expunge.BadRecords, match="patterns: give a list"):
        scan(path, "abcdefgh")


def test_several_that_are_not_there_are_all_named_up_to_a_few(tmp_path):
    names = np.array([f"p{number // 2}" for number in range(N)])
    memory = expunge.LogisticRegression(rho=0.5, solver=DualAveraging(records_per_subject=2)).fit(X, Y, subjects=names)
    memory.save(tmp_path / "model")
    gone = "they may have been deleted already"
    with expunge.open(tmp_path / "model") as stored:
        for model in (memory, stored):
            for said, asked in (
                ("ids: id not found: 900; it may have been deleted already.", {"ids": [3, 900]}),
                (f"ids: ids not found: 900 and 901; {gone}.", {"ids": [900, 3, 901]}),
                (f"ids: ids not found: 902, 901, 900, 903, 904 and 1,001 more; {gone}.",
                 {"ids": [902, 901, 3, 900, *range(903, 1906)]}),
                ("subjects: subject not found: 'q'.", {"subjects": ["p3", "q"]}),
                (f"subjects: subjects not found: 'q', 'r' and 's'; {gone}.",
                 {"subjects": ["q", "p3", "r", "s"]}),
            ):  # fmt: skip
                with pytest.raises(UnknownId) as caught:
                    model.unlearn(**asked)
                assert str(caught.value) == said
                assert caught.value.refused
            assert model.n_records_ == N
            assert model.unlearn(subjects=["q", "p3", "r"], missing="ignore").removed == 2
