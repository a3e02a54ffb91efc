"""Files that are no stores, damaged stores, full disks: errors by name, and what was good stays as it is."""

import os
import re
import shutil
import sqlite3
from contextlib import contextmanager

import numpy as np
import pytest

import expunge
from expunge import Delete, Insert, LogisticRegression
from expunge.base.errors import (
    CorruptStore,
    ExpungeError,
    FullStore,
    LogNotEmptied,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    StoreError,
)
from expunge.models.file import open_file
from expunge.models.projecting import unpacked
from expunge.solvers import DualAveraging, Lloyd
from expunge.solvers.losses import Logistic
from expunge.solvers.plans.linear import make_plan
from expunge.solvers.projection import Projection
from expunge.store import failpoints
from expunge.store import file as module
from expunge.store.codec import pack
from expunge.store.file import SCHEMA, TABLES, StoreFile
from expunge.store.parameters import write_vector
from expunge.store.state import DESCRIPTION, STATE
from expunge.store.surroundings import beside

resource = pytest.importorskip("resource")
RNG = np.random.default_rng(9)
X = RNG.normal(size=(60, 3)) / 3
Y = np.where(X[:, 0] > 0, "yes", "no")
IDS = np.array([f"person {n}" for n in range(60)])
SUBJECTS = np.array([f"family {n // 2}" for n in range(60)])


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store with a receipt, in a folder of its own."""
    path = tmp_path_factory.mktemp("template") / "model"
    # noise, so that sums and answers are kept apart; several steps, so that there are several blocks
    model = LogisticRegression(rho=0.5, solver=DualAveraging(steps=4, records_per_subject=2)).fit(
        X[:50], Y[:50], IDS[:50], SUBJECTS[:50]
    )
    model.save(path)
    with expunge.open(path) as model:
        model.unlearn("person 3")
    return path


@pytest.fixture
def path(template, tmp_path):
    for ending in ("", "-key"):
        shutil.copy(beside(template, ending), beside(tmp_path / "model", ending))
    return tmp_path / "model"


def rows_of(path):
    """All rows of all tables, as they lie in the file."""
    connection = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    connection.text_factory = bytes
    found = {
        (table, row[0]): row[1:]
        for table in SCHEMA
        for row in connection.execute(f"SELECT * FROM {table}")
    }  # fmt: skip
    connection.close()
    return found


def leftovers(folder):
    return {each.name for each in folder.iterdir()} - {"model", "model-key", "model-lock"}


# --- no store at all ------------------------------------------------------------------------------------


def foreign(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()


NO_STORES = {
    "missing": (lambda path: None, r"no such file; write one with model\.save"),
    "folder": (lambda path: path.mkdir(), "this is a folder"),
    "empty": (lambda path: path.touch(), "this is not a store"),
    "text": (lambda path: path.write_text("hello " * 100), "not a store"),
    "begins alike": (lambda path: path.write_bytes(b"SQLite format 3\0"), "not a store"),
    "zeros": (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(5000)), "not a store"),
    "foreign": (foreign, "this is not a store"),
}


@pytest.mark.parametrize(("make", "match"), NO_STORES.values(), ids=NO_STORES)
@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_store_is_refused_and_left_alone(tmp_path, make, match, read_only):
    path = tmp_path / "model"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(NotAStore, match=match) as caught:
        expunge.open(path, read_only=read_only)
    assert str(path) in str(caught.value)
    assert before == (path.read_bytes() if path.is_file() else None)
    assert leftovers(tmp_path) == set()


@pytest.mark.parametrize("where", ["nowhere/model", "file/model", "x" * 300, "nul\0", "\ud800"], ids=ascii)
def test_paths_that_cannot_be_are_refused(tmp_path, where):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"(model|path): "):
        expunge.open(tmp_path / where)
    with pytest.raises(StoreError, match=r"(model|path): "):
        fitted().save(tmp_path / where)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("path", [None, 5, b"model", ["model"]], ids=repr)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(NotAStore, match="path: expected the path of a file"):
        expunge.open(path)


def fitted():
    return LogisticRegression(rho=0.5, solver=DualAveraging(steps=4)).fit(X[:50], Y[:50], IDS[:50])


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.write_text("precious")])
def test_nothing_is_written_over(tmp_path, make):
    path = tmp_path / "model"
    make(path)
    with pytest.raises(StoreError, match=r"model: (exists already; give another path|this is a folder; give the path)"):
        fitted().save(path)
    assert path.is_dir() or path.read_text() == "precious"
    assert leftovers(tmp_path) == set()


def test_a_store_is_not_written_over(path):
    raw = path.read_bytes()
    with pytest.raises(StoreError, match="exists already"):
        fitted().save(path)
    with expunge.open(path) as model, pytest.raises(StoreError, match="exists already"):
        model.save(path)
    assert path.read_bytes() == raw


# --- other versions -------------------------------------------------------------------------------------


def set_version(path, version):
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()


def version_of(path):
    return int.from_bytes(path.read_bytes()[60:64])


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_file_is_refused_by_name(path, read_only):
    set_version(path, 7)
    raw = path.read_bytes()
    with pytest.raises(NewerStore, match=r"model: .*\(format 7; this one reads up to 1\)\. Upgrade with pip"):
        expunge.open(path, read_only=read_only)
    assert path.read_bytes() == raw


def test_an_older_file_is_brought_up_to_date_once(path, monkeypatch):
    done = []

    def add_nothing(connection):
        done.append(connection.execute("SELECT count(*) FROM receipts").fetchone())

    monkeypatch.setattr(module, "FORMAT", 3)
    monkeypatch.setattr(module, "MIGRATIONS", {1: add_nothing, 2: add_nothing})
    with pytest.raises(ReadOnlyStore, match="of an older format; open it once without read_only"):
        expunge.open(path, read_only=True)
    for _ in range(2):
        with expunge.open(path) as model:
            assert model.verify().ok
    assert done == [(1,), (1,)]
    assert version_of(path) == 3
    with expunge.open(path, read_only=True) as model:
        assert model.n_records_ == 49


def test_a_migration_that_fails_changes_nothing(path, monkeypatch):
    raw = path.read_bytes()

    def fail(connection):
        connection.execute("DELETE FROM receipts")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "FORMAT", 2)
    monkeypatch.setattr(module, "MIGRATIONS", {1: fail})
    with pytest.raises(KeyboardInterrupt):
        expunge.open(path)
    monkeypatch.setattr(module, "MIGRATIONS", {})
    with pytest.raises(NotAStore, match="format 1 was never released"):
        expunge.open(path)
    assert path.read_bytes() == raw


def test_two_that_migrate_do_it_once(path, monkeypatch):
    done = []

    def migrate(connection):
        done.append(1)

    monkeypatch.setattr(module, "FORMAT", 2)
    monkeypatch.setattr(module, "MIGRATIONS", {1: migrate})
    migrate_one = StoreFile._migrate

    def late(file):
        monkeypatch.setattr(StoreFile, "_migrate", migrate_one)
        StoreFile(file.path).close()  # another process is quicker
        file._migrate()

    monkeypatch.setattr(StoreFile, "_migrate", late)
    with expunge.open(path) as model:
        assert model.verify().ok
    assert done == [1]


# --- damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_file_whose_end_is_missing_is_refused(path, share):
    raw = path.read_bytes()
    cut = raw[: int(share * len(raw))]
    path.write_bytes(cut)
    for read_only in (False, True):
        with pytest.raises((CorruptStore, NotAStore), match="model: "):
            expunge.open(path, read_only=read_only)
    assert path.read_bytes() == cut


@pytest.mark.parametrize("pages", [1, 2, 7])
def test_a_file_whose_last_pages_are_missing_is_refused(path, pages):
    raw = path.read_bytes()
    path.write_bytes(raw[: -512 * pages])
    with pytest.raises(CorruptStore, match=r"model: (the end of the file is missing|it is damaged)"):
        expunge.open(path)


def interrupt(path):
    """Leave a request that was recorded and not done."""

    def hook(name):
        if name == "request: recorded":
            failpoints.hook = None
            raise KeyboardInterrupt

    with expunge.open(path) as model:
        failpoints.hook = hook
        with pytest.raises(KeyboardInterrupt):
            model.unlearn("person 7")


def flip(path, table, number, share=0.5):
    """Flip a bit of a row's content, where it lies in the file."""
    raw = bytearray(path.read_bytes())
    row = rows_of(path)[table, number]
    content = row[0] if len(row) == 2 else StoreFile(path, read_only=True).need(table, number).tobytes()
    middle = int(share * (len(content) - 1))
    for length in range(4, 200):
        around = content[max(0, middle - length) : middle + length]
        if raw.count(around) == 1:
            raw[raw.index(around) + min(middle, length)] ^= 4
            path.write_bytes(raw)
            return
        if raw.count(around) == 0:
            middle = middle // 2  # it lies on two pages
    raise AssertionError("there is no such row")


def all_rows(path):
    return sorted(rows_of(path))


@pytest.mark.parametrize("table", [*TABLES, "about", "receipts"])
def test_a_damaged_row_is_named_and_the_others_stay(path, table):
    if table == "pending":
        interrupt(path)
    first = [number for name, number in all_rows(path) if name == table][-1]
    flip(path, table, first)
    raw, rows = path.read_bytes(), rows_of(path)
    named = rf"{table}(, row|: row) {first}\b"
    said = []
    try:
        with expunge.open(path, read_only=True) as model:  # which does not even empty the log
            model.predict(X)
            said += model.verify().problems
    except CorruptStore as error:
        said.append(str(error))
    assert [line for line in said if re.search(named, line)], said
    assert path.read_bytes() == raw
    with pytest.raises(CorruptStore, match=named):
        ask_everything(path)
    now = rows_of(path)
    now.pop(("pending", 0), None)
    rows.pop(("pending", 0), None)
    assert now == rows


@pytest.mark.parametrize("table", ["blocks", "iterates"])  # the others are read before
def test_verify_names_what_is_damaged_and_raises_nothing(path, table):
    first = min(number for name, number in all_rows(path) if name == table)
    flip(path, table, first)
    with expunge.open(path) as model:
        found = model.verify()
    assert not found.ok
    assert any(re.search(rf"{table}: row {first}\b", line) for line in found.problems), found


@pytest.mark.parametrize("model", [expunge.Ridge(), expunge.KMeans(2, solver=Lloyd(radius=3.0))])
def test_a_file_without_an_estimator_refuses_a_model_of_another_length_as_damaged(model, tmp_path):
    given = (X, X[:, 0]) if isinstance(model, expunge.Ridge) else (X,)
    model.fit(*given).save(tmp_path / "short")
    file = StoreFile(tmp_path / "short")
    with file.transaction():
        write_vector(file, np.zeros(1))
    file.close()
    with pytest.raises(CorruptStore, match="restore a backup"), open_file(tmp_path / "short") as opened:
        opened.verify()


def test_a_request_to_a_file_that_was_closed_is_refused(path):
    with open_file(path) as model:
        request = model.prepare_request(expunge.Delete([1]))
    with pytest.raises(StoreError) as caught:
        model.serve_request(request)
    assert caught.value.refused


def ask_everything(path):
    """Make a request that touches every row, and read the rest."""
    with expunge.open(path) as model:
        model.export_receipts()
        model.unlearn(model.ids_.tolist())


@pytest.mark.parametrize("number", [DESCRIPTION, STATE])
def test_a_damaged_description_is_named(path, number):
    flip(path, "about", number)
    for read_only in (False, True):
        with pytest.raises(
            CorruptStore, match=f"model: about, row {number}: the bytes are not those that were written"
        ):
            expunge.open(path, read_only=read_only)


def test_a_missing_row_is_named(path):
    for table, number in all_rows(path):
        if table in ("pending", "receipts", "ids", "subjects", "sums", "answers", "iterates", "places"):
            continue
        copy = path.with_name("copy")
        shutil.copy(path, copy)
        shutil.copy(beside(path, "-key"), beside(copy, "-key"))
        connection = sqlite3.connect(copy)
        connection.execute(f"DELETE FROM {table} WHERE number={number}")
        connection.commit()
        connection.close()
        with pytest.raises(CorruptStore, match=f"{table}, row {number} is missing"):
            ask_everything(copy)
        remove_all(copy)


def remove_all(path):
    for ending in ("", "-wal", "-shm", "-lock", "-key"):
        beside(path, ending).unlink(missing_ok=True)


@pytest.mark.parametrize("table", ["receipts", "ids", "subjects", "sums", "answers", "iterates", "places"])
def test_a_missing_row_of_a_table_is_found_by_verify(path, table):
    connection = sqlite3.connect(path)
    connection.execute(f"DELETE FROM {table} WHERE number=(SELECT max(number) FROM {table})")
    connection.commit()
    connection.close()
    said = []
    try:
        with expunge.open(path, read_only=True) as model:
            said += [*model.verify_receipts().problems, *model.verify().problems]
    except CorruptStore as error:
        said.append(str(error))
    words = {"receipts": "receipts were taken out", "ids": "which the index does not know", "subjects": "of subjects"}
    assert words.get(table, f" {table}: ") in said[0]


@pytest.mark.parametrize("part", range(4))
def test_a_flipped_byte_anywhere_does_no_harm(template, tmp_path, part):
    raw = template.read_bytes()
    with expunge.open(template, read_only=True) as model:
        predicted = model.decision_function(X).tobytes()
    shutil.copy(beside(template, "-key"), tmp_path / "model-key")
    path = tmp_path / "model"
    draw = np.random.default_rng(part)
    places = draw.integers(0, len(raw), size=50)
    places[:8] = draw.integers(0, 512, size=8)  # the header and the names of the tables
    kinds = set()
    for at in places.tolist():
        damaged = bytearray(raw)
        damaged[at] ^= int(draw.integers(1, 256))
        path.write_bytes(damaged)
        try:
            with expunge.open(path, wait=0.1) as model:
                found = model.decision_function(X).tobytes()
                sound = model.verify().ok
                kinds.add(("verified", sound))
                assert not sound or found == predicted, at
                assert model.n_records_ == 49 or not sound
                model.unlearn(["person 5", "person 44"])
                assert not sound or model.verify().ok
        except ExpungeError as error:
            kinds.add(type(error))
        for ending in ("", "-wal", "-shm", "-lock", "-new"):
            beside(path, ending).unlink(missing_ok=True)
    assert ("verified", True) in kinds
    assert CorruptStore in kinds


# --- not to be written to -------------------------------------------------------------------------------


@pytest.fixture
def nothing_may_be_written(monkeypatch):
    """As it is for a user who has no right to write. (Root always has.)"""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))


def test_a_file_that_may_not_be_written_to_can_be_read(path, nothing_may_be_written):
    raw = path.read_bytes()
    with pytest.raises(ReadOnlyStore, match=r"model: the file or its folder may not be written to; .*read_only=True"):
        expunge.open(path)
    with expunge.open(path, read_only=True) as model:
        model.predict(X)
        assert model.verify().ok
        with pytest.raises(ReadOnlyStore, match="opened with read_only; open it without"):
            model.unlearn("person 5")
    assert path.read_bytes() == raw
    assert leftovers(path.parent) == set()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_that_may_not_be_written_to(path):
    path.parent.chmod(0o500)
    try:
        with pytest.raises(ReadOnlyStore):
            expunge.open(path)
        with pytest.raises(StoreError):
            fitted().save(path.with_name("other"))
        with expunge.open(path, read_only=True) as model:
            assert model.verify().ok
    finally:
        path.parent.chmod(0o700)


def test_a_connection_that_may_not_write(path):
    with expunge.open(path) as model:
        model._owner.file._connection.execute("PRAGMA query_only=ON")
        request = model.prepare_request(Delete(["person 5"]))
        with pytest.raises(ReadOnlyStore, match="may not be written to") as caught:
            model.serve_request(request)
        assert caught.value.refused
        assert not model.has_begun(request)
        model._owner.file._connection.execute("PRAGMA query_only=OFF")
        assert model.verify().ok
        model.unlearn("person 5")
        assert model.n_records_ == 48


# --- no room --------------------------------------------------------------------------------------------


@contextmanager
def files_of_at_most(size):
    """No file may become longer: to write beyond fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def limit_pages(model, more=0):
    """Let the file have so many more pages than now."""
    connection = model._owner.file._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + more}")


def logical(model):
    """All that a model has, in a form that can be compared."""
    kept = model.transcript_
    tables = [np.asarray(table).tobytes() for table in (kept.sums, kept.answers, kept.iterates)]
    return tables, model.ids_.tolist(), model.coef_.tobytes(), model.export_receipts()


@pytest.mark.parametrize("size", [0, 4096, 9000])
def test_no_room_to_save(tmp_path, size):
    with files_of_at_most(size), pytest.raises(StoreError, match=r"model.*space"):
        fitted().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    fitted().save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        assert model.verify().ok


def test_a_full_disk_when_saving(tmp_path, monkeypatch):
    create = StoreFile.create.__func__

    def small(cls, path, page):
        file = create(cls, path, page)
        file._connection.execute("PRAGMA max_page_count=30")
        return file

    with monkeypatch.context() as patch:
        patch.setattr(StoreFile, "create", classmethod(small))
        with pytest.raises(FullStore, match="the disk is full"):
            fitted().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def many():
    """A request that needs many pages."""
    names = [f"new {n}" for n in range(300)]
    return Insert((np.repeat(X, 5, axis=0), np.repeat(Y, 5)), names, names)


@pytest.mark.filterwarnings("ignore::expunge.SizeWarning")
def test_a_full_disk_when_a_request_is_recorded(path):
    with expunge.open(path) as model:
        before = logical(model)
        limit_pages(model)
        request = model.prepare_request(many())
        with pytest.raises(FullStore, match="the disk is full; free some space and call again") as caught:
            model.serve_request(request)
        assert caught.value.refused
        assert not model.has_begun(request)
        assert logical(model) == before
        assert model.verify().ok
        limit_pages(model, 1000)
        model.serve_request(request)
        assert model.n_records_ == 49 + 300
        assert model.verify().ok


@pytest.mark.filterwarnings("ignore::expunge.SizeWarning")
def test_a_full_disk_when_a_request_is_done(path):
    def hook(name):
        if name == "request: recorded":
            failpoints.hook = None
            limit_pages(model)

    with expunge.open(path) as model:
        request = model.prepare_request(many())
        predicted = model.decision_function(X)
        failpoints.hook = hook
        with pytest.raises(FullStore) as caught:
            model.serve_request(request)
        assert not caught.value.refused
        assert np.array_equal(model.decision_function(X), predicted)
        assert model.n_records_ == 49
        with pytest.raises(FullStore):  # there still is no room
            model.verify()
        limit_pages(model, 10_000)
        assert model.has_begun(request)
        assert model.verify().ok
        assert model.n_records_ == 49 + 300
        assert model.verify_receipts().count == 2


def test_a_full_disk_when_the_log_is_emptied(path):
    with expunge.open(path) as model:

        def hook(name):
            if name == "request: committed":
                failpoints.hook = None
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))

        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        request = model.prepare_request(Delete(["person 5", "person 6"]))
        failpoints.hook = hook
        try:
            with pytest.raises(LogNotEmptied, match=r"deleted bytes, cannot be emptied.*space.*completed and saved"):
                model.serve_request(request)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert model.has_begun(request)
        assert model.n_records_ == 47
        assert model.verify().ok
        assert beside(path, "-wal").stat().st_size == 0
    with expunge.open(path) as model:
        assert model.n_records_ == 47


@pytest.mark.parametrize("point", [None, "compact: copied", "compact: replacing"])
def test_a_full_disk_when_compacting(path, point):
    with expunge.open(path) as model:
        model.unlearn([f"person {n}" for n in range(10, 30)])
        before, limit = logical(model), resource.getrlimit(resource.RLIMIT_FSIZE)

        def hook(name):
            if name == point:
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))

        failpoints.hook = hook
        try:
            if point is None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
            with pytest.raises(StoreError, match="model"):
                model.compact()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            failpoints.hook = None
        assert model.verify().ok
        assert logical(model) == before
        model.compact()
        assert logical(model) == before
        assert model.verify().ok
    assert leftovers(path.parent) == set()


# --- keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"ab" * 31, b"ab" * 33, b"hello"], ids=repr)
def test_a_key_that_is_missing_or_wrong_is_named(path, content):
    key = beside(path, "-key")
    good, raw = key.read_bytes(), path.read_bytes()
    key.unlink() if content is None else key.write_bytes(content)
    with pytest.raises(StoreError, match=r"model-key: .* backup"):
        expunge.open(path)
    with expunge.open(path, read_only=True) as model:
        model.predict(X)
        assert model.verify().ok
        assert model.verify_receipts().ok
        with pytest.raises(StoreError, match="model-key: "):
            model.export_receipts(ids=["person 3"])
    assert path.read_bytes() == raw
    key.write_bytes(good)
    key.chmod(0o600)
    with expunge.open(path) as model:
        model.unlearn("person 5")


def test_a_key_that_others_can_read_is_refused(path):
    beside(path, "-key").chmod(0o644)
    with pytest.raises(StoreError, match="model-key: other users can read or change this key"):
        expunge.open(path)


# --- what was written on purpose ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"data": np.array(["a", "b"])}, {"indices": np.array([0, 99])}, {"indptr": np.array([0, 5, -5, 2])},
        {"indptr": np.zeros(0, dtype=np.int64)}, {"data": np.ones((2, 2))}, {"data": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_matrix_of_an_earlier_version_that_is_none_is_refused(changes):
    plan = make_plan(Logistic(), 4, 60, n_components=3)
    sound = {"data": np.ones(2), "indices": np.array([0, 2]), "indptr": np.array([0, 1, 1, 2])}
    assert unpacked(pack("4", sound), plan, 4).matrix.shape == (3, 4)
    arrays = {name: array for name, array in {**sound, **changes}.items() if array is not None}
    with pytest.raises(CorruptStore, match="arrays, row 1 is not a projection"):
        unpacked(pack("4", arrays), plan, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"key": np.zeros(31, dtype=np.uint8)}, {"key": None}, {"shape": np.array([3, 5])}, {"shape": np.array([2, 4])},
        {"shape": np.array([3, 2**60])}, {"shape": np.array([0, 4])}, {"shape": np.array([3.0, 4.0])},
        {"shape": np.array([3])}, {"norm": np.array([np.nan])}, {"norm": np.array([-1.0])}, {"norm": np.zeros(0)},
        {"norm": np.array(["a"])},
    ],
    ids=str,
)  # fmt: skip
def test_a_projection_that_is_none_is_refused(changes):
    plan = make_plan(Logistic(), 4, 60, n_components=3)
    sound = {"key": np.arange(32, dtype=np.uint8), "shape": np.array([3, 4]), "norm": np.array([2.0])}
    assert unpacked(pack("signs", sound), plan, 4) == Projection(bytes(range(32)), 4, 3, 2.0)
    arrays = {name: array for name, array in {**sound, **changes}.items() if array is not None}
    with pytest.raises(CorruptStore, match="arrays, row 1 is not a projection"):
        unpacked(pack("signs", arrays), plan, 4)
    with pytest.raises(CorruptStore, match="arrays, row 1 is not a projection"):
        unpacked(pack("signs", sound), plan, 5)
