"""What may lie around a store: traps beside a file that others have sent, links, pipes, what the dead have left."""

import json
import os
import sqlite3
import stat
import struct
import subprocess
import sys
import warnings

import numpy as np
import pytest

import expunge
import expunge.store
from cases.stored_federations import NAMES, NUMBERS, planned
from expunge import federated
from expunge.audit import audit
from expunge.base.errors import BusyStore, NotAStore, StoreError, StoreWarning
from expunge.store import failpoints, scan, surroundings
from expunge.store.file import StoreFile
from expunge.store.keys import load_key
from expunge.store.locks import WriterLock
from expunge.store.surroundings import beside, reset_log

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, pipes and permissions are those of POSIX")
rng = np.random.default_rng(15)
N = 120
X = rng.normal(size=(N, 3)) / 3
Y = X[:, 0] > 0
IDS = np.array([f"person number {number:05d}" for number in range(N)])


@pytest.fixture
def path(tmp_path):
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y, ids=IDS).save(tmp_path / "model")
    return tmp_path / "model"


# --- a journal that names a file to remove ---------------------------------------------------------------


@pytest.fixture
def victim(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "victim").write_text("years of work")
    return tmp_path / "elsewhere" / "victim"


def trap(path, victim):
    """Put a journal beside a SQLite file, of a transaction over several files, of which the victim is the list."""
    page = int.from_bytes(path.read_bytes()[16:18]) if path.exists() and path.stat().st_size else 4096
    name = str(victim).encode()
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 0, 0, 0, 512, page)
    ends = struct.pack(">I", 0x40000000 // page + 1) + name
    ends += struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    beside(path, "-journal").write_bytes(header.ljust(512, b"\0") + ends)


def test_the_trap_works_on_those_who_step_into_it(path, victim):
    trap(path, victim)
    with sqlite3.connect(path) as connection:
        connection.execute("SELECT * FROM sqlite_schema").fetchall()
    connection.close()
    assert not victim.exists()


def federation(tmp_path):
    federated.create(tmp_path / "federation", planned(), np.zeros(NUMBERS), NAMES)
    return tmp_path / "federation"


WAYS = {
    "open": lambda path: expunge.open(path),
    "read only": lambda path: expunge.open(path, read_only=True),
    "backup": lambda path: expunge.store.backup(path, path.with_name("copy")),
    "restore from": lambda path: expunge.store.restore(path, path.with_name("other")),
    "restore to": lambda path: expunge.store.restore(path.with_name("backup"), path),
    "restore to, with receipts": lambda path: expunge.store.restore(
        path.with_name("backup"), path, receipts=path.with_name("receipts")
    ),
    "save over what is gone": lambda path: (
        path.unlink(), expunge.LogisticRegression(solver="dual_averaging").fit(X, Y).save(path)
    ),
    "audit": lambda path: audit(path, runs=100),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_journal_is_refused_before_sqlite_sees_it(way, path, victim):
    expunge.store.backup(path, path.with_name("backup"))
    with expunge.open(path) as model:
        path.with_name("receipts").write_text(json.dumps(model.export_receipts()))
        model.save(path.with_name("other"))
    trap(path, victim)
    content = path.read_bytes()
    with pytest.raises(StoreError, match=r"model-journal: this is a journal of SQLite, .* remove it"):
        WAYS[way](path)
    assert victim.read_text() == "years of work"
    assert not path.exists() or path.read_bytes() == content
    assert not list(path.parent.glob("*-new*"))


@pytest.mark.parametrize("ending", ["-lock", "-new"])
def test_a_journal_of_another_file_of_the_store_is_never_seen(ending, path, victim):
    for file in (beside(path, ending), beside(path.with_name("copy"), ending)):
        file.write_bytes(path.read_bytes())
        trap(file, victim)
    with expunge.open(path) as model:
        model.unlearn(IDS[5])
        model.compact()
    expunge.store.backup(path, path.with_name("copy"))
    expunge.store.restore(path.with_name("copy"), path)
    assert victim.exists()


@pytest.mark.parametrize("way", [federated.open, federated.load])
def test_the_journal_of_a_federation_is_refused(way, tmp_path, victim):
    path = federation(tmp_path)
    trap(path, victim)
    with pytest.raises(StoreError, match="federation-journal: this is a journal"):
        way(path)
    assert victim.exists()


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_log_that_is_a_link_leads_nowhere(ending, path, victim):
    before = victim.stat().st_mtime_ns
    beside(path, ending).symlink_to(victim)
    for way in ("open", "read only", "backup"):
        with pytest.raises(StoreError, match=f"model{ending}: this is not a file of the store, .*; remove it"):
            WAYS[way](path)
    beside(path, ending).unlink()
    os.link(victim, beside(path, ending))
    with pytest.raises(StoreError, match=f"model{ending}: this is not a file of the store"):
        expunge.open(path)
    assert victim.read_text() == "years of work"
    assert victim.stat().st_mtime_ns == before


def test_nothing_is_saved_beside_the_log_of_another(path):
    with expunge.open(path) as model:
        model.unlearn(IDS[5])
        log = beside(path, "-wal")
        path.with_name("other-wal").write_bytes(b"log of another")
        assert log.exists()
    with pytest.raises(StoreError, match="other-wal: this is the log of another store"):
        expunge.LogisticRegression(solver="dual_averaging").fit(X, Y).save(path.with_name("other"))


def test_no_store_is_born_with_a_journal(path, tmp_path):
    """Whoever opened it first would switch its log on with one, and if killed then leave it."""
    expunge.store.backup(path, tmp_path / "copy")
    for file in (path, tmp_path / "copy", federation(tmp_path)):
        assert file.read_bytes()[18:20] == b"\2\2"  # SQLite's mark of a log


# --- several names, links, pipes --------------------------------------------------------------------------


def test_a_store_with_two_names_is_refused(path, tmp_path):
    with expunge.open(path) as model:
        os.link(path, tmp_path / "second")
        for ask in (
            lambda: expunge.open(path),
            lambda: expunge.open(tmp_path / "second"),
            lambda: expunge.open(tmp_path / "second", read_only=True),
            lambda: model.unlearn(IDS[5]),
        ):
            with pytest.raises(StoreError, match=r"2 names \(hard links\)\. .* Remove the other names"):
                ask()
        (tmp_path / "second").unlink()
        assert model.unlearn(IDS[5]).removed == 1


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
@pytest.mark.parametrize("again", [False, True])
def test_a_log_that_is_taken_away_is_noticed_before_anything_is_recorded(ending, again, path):
    with expunge.open(path) as model:
        model.unlearn(IDS[4])
        beside(path, ending).unlink()
        if again:
            beside(path, ending).touch()
        with pytest.raises(StoreError, match=f"model{ending}: was removed or replaced .* open it again") as caught:
            model.unlearn(IDS[5])
        assert caught.value.refused
    with expunge.open(path) as model:
        assert model.verify().ok
        assert model.n_records_ == N - 1
        assert model.unlearn(IDS[5]).removed == 1


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link", "two names"])
def test_a_lock_that_is_no_file_is_refused_and_nothing_is_made_elsewhere(kind, path, tmp_path):
    lock, target = beside(path, "-lock"), tmp_path / "target"
    match kind:
        case "pipe":
            os.mkfifo(lock)
        case "folder":
            lock.mkdir()
        case "device":
            lock.symlink_to("/dev/null")
        case "link":
            lock.symlink_to(target)
        case _:
            target.touch(0o644)
            os.link(target, lock)
    for ask in (lambda: expunge.open(path), lambda: expunge.store.restore(path, path)):
        with pytest.raises(StoreError, match=r"model-lock: this should be an empty file, .* Remove it"):
            ask()
    assert target.exists() == (kind == "two names")
    assert kind != "two names" or stat.S_IMODE(target.stat().st_mode) == 0o644


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_a_key_that_is_no_file_is_refused_at_once(kind, path):
    key = beside(path, "-key")
    key.unlink()
    match kind:
        case "pipe":
            os.mkfifo(key, 0o600)
        case "folder":
            key.mkdir()
        case _:
            key.symlink_to("/dev/zero")
    for ask in (lambda: expunge.open(path), lambda: load_key(key), lambda: WAYS["save over what is gone"](path)):
        with pytest.raises(
            StoreError, match=r"model-key: this is not a file, but a folder, a pipe or a device; take it from a backup"
        ):
            ask()


def test_a_store_that_became_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotAStore, match="this is not a file"):
        StoreFile(tmp_path / "pipe")


def test_nobody_else_can_lock_a_store(path):
    before = os.umask(0)
    try:
        beside(path, "-lock").touch(0o666)  # as earlier versions left it
        with expunge.open(path) as model:
            model.unlearn(IDS[5])
            assert stat.S_IMODE(beside(path, "-lock").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_lock_that_is_another_users_is_refused_if_everybody_can_take_it(path, monkeypatch):
    beside(path, "-lock").touch()
    beside(path, "-lock").chmod(0o666)

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(StoreError, match="belongs to another user, and everybody could lock it"):
        expunge.open(path)


# --- a log without a frame, and memory in its index -------------------------------------------------------

ERASER = """
import sys, expunge
from pathlib import Path
path, names = Path(sys.argv[1]), sys.argv[2:]
with expunge.open(path) as model:
    model.unlearn(names)
log = Path(f"{path}-wal")
for turn in range(20):
    held = [name * 40 for name in names for _ in range(200)]
    raw = [one.encode() for one in held]
    del held, raw
    log.write_bytes(Path(f"{path}-torn").read_bytes())
    with expunge.open(path) as model:
        left = Path(f"{path}-shm").read_bytes()
        assert not any(name.encode() in left for name in names), "an id lies in the index"
        assert left[136:].strip(b"\\0") == b"", "memory lies in the index"
"""


@pytest.mark.parametrize("torn", ["a header", "a part of a frame", "a frame with another sum"])
def test_no_memory_comes_into_the_index_of_a_log_that_has_no_whole_frame(torn, path):
    logs = []
    failpoints.hook = lambda name: name == "request: recorded" and logs.append(beside(path, "-wal").read_bytes())
    with expunge.open(path) as model:
        model.unlearn(IDS[7])
    page = int.from_bytes(path.read_bytes()[16:18])
    log = bytearray(logs[0][: {"a header": 33, "a part of a frame": 200}.get(torn, 32 + 24 + page)])
    log[-1] ^= 255
    beside(path, "-torn").write_bytes(log)
    subprocess.run([sys.executable, "-c", ERASER, str(path), *IDS[20:24]], check=True)


def test_a_log_with_a_whole_frame_is_left_alone(path):
    logs = []
    failpoints.hook = lambda name: name == "request: recorded" and logs.append(beside(path, "-wal").read_bytes())
    with expunge.open(path) as model:
        model.unlearn(IDS[8])
    failpoints.hook = None
    beside(path, "-wal").write_bytes(logs[0])
    reset_log(path)
    assert beside(path, "-wal").read_bytes() == logs[0]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_log_of_a_store_that_is_open_is_left_alone(path):
    """Another process may be about to write its first frame."""
    ready, tell = os.pipe()
    done, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            file = StoreFile(path)
            beside(path, "-wal").write_bytes(b"half a header")
            os.write(tell, b"x")
            os.read(done, 1)
            file.close()
        finally:
            os._exit(0)
    os.read(ready, 1)
    reset_log(path)
    assert beside(path, "-wal").read_bytes() == b"half a header"
    os.write(end, b"x")
    os.waitpid(child, 0)


# --- durable ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of open files")
def test_the_log_is_synced_after_it_is_emptied(path, monkeypatch):
    with expunge.open(path) as model:
        synced = []

        def fsync(file):
            synced.append((os.readlink(f"/proc/self/fd/{file}"), os.fstat(file).st_size))

        monkeypatch.setattr(os, "fsync", fsync)
        model.unlearn(IDS[5])
        assert synced[-1] == (str(beside(path, "-wal")), 0)


def test_what_is_removed_stays_removed(path, monkeypatch):
    synced = []
    monkeypatch.setattr(expunge.store.saving, "sync_folder", lambda folder: synced.append(folder))
    with expunge.open(path) as model:
        beside(path, "-new").write_bytes(b"everybody")
        model.unlearn(IDS[5])
    assert synced == [path.parent]


# --- what the dead leave ------------------------------------------------------------------------------------


def killed_at(point, path, to):
    """Let a process be killed while it makes a backup."""
    code = """
import os, signal, sys, expunge.store
from expunge.store import failpoints
failpoints.hook = lambda name: name == sys.argv[1] and os.kill(os.getpid(), signal.SIGKILL)
expunge.store.backup(sys.argv[2], sys.argv[3])
"""
    assert subprocess.run([sys.executable, "-c", code, point, str(path), str(to)]).returncode == -9


def test_what_a_killed_backup_left_beside_the_store_is_gone_with_the_next_request(path, tmp_path):
    killed_at("backup: copied", path, tmp_path / "monday")
    assert {finding.file.name for finding in scan(path, [IDS[5]])} == {"model", "model-new"}
    with expunge.open(path) as model:
        model.unlearn(IDS[5])
    assert scan(path, [IDS[5]]) == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model", "model-key", "model-lock"]


def test_what_a_killed_backup_left_in_another_folder_is_gone_with_the_next_one_to_go_there(path, tmp_path):
    backups = tmp_path / "backups"
    backups.mkdir()
    killed_at("backup: copied", path, backups / "monday")
    assert (backups / "model-new").exists()
    with expunge.open(path) as model:
        model.unlearn(IDS[5])
    expunge.store.backup(path, backups / "tuesday")
    assert sorted(one.name for one in backups.iterdir()) == ["tuesday", "tuesday-key"]
    assert scan(backups / "tuesday", [IDS[5]]) == []


def test_a_backup_beside_another_store_of_the_same_name_waits_for_it(path, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(tmp_path / "other" / "model")
    monkeypatch.setattr(expunge.store.copies, "WAIT", 0.05)
    lock = WriterLock(tmp_path / "other" / "model", 1)
    lock.acquire()
    with pytest.raises(BusyStore):
        expunge.store.backup(path, tmp_path / "other" / "monday")
    lock.close()
    expunge.store.backup(path, tmp_path / "other" / "monday")
    with expunge.open(tmp_path / "other" / "model") as model:
        assert model.verify().ok


def test_what_a_killed_save_left_is_named(tmp_path):
    beside(tmp_path / "model", "-new").write_bytes(b"everybody")
    with pytest.raises(NotAStore, match=r"model-new, with all records in it: repeat it, or remove that"):
        expunge.open(tmp_path / "model")


# --- other machines' disks ----------------------------------------------------------------------------------

MOUNTS = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /home rw,relatime - nfs4 server:/home rw
31 30 8:2 / /home/local\\040disk rw - xfs /dev/sdb1 rw
32 22 0:32 / /mnt/box rw - fuse.sshfs me@box: rw
no mount at all
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [("/x", "ext4"), ("/home/me/x", "nfs4"), ("/home/local disk/x", "xfs"), ("/homes/x", "ext4"),
     ("/mnt/box/x", "fuse.sshfs")],
)  # fmt: skip
def test_the_file_system_is_that_of_the_nearest_mount(place, kind, tmp_path, monkeypatch):
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(surroundings, "MOUNTS", str(tmp_path / "mountinfo"))
    assert surroundings.file_system_of(expunge.store.saving.Path(place)) == kind
    monkeypatch.setattr(surroundings, "MOUNTS", str(tmp_path / "nothing"))
    assert surroundings.file_system_of(expunge.store.saving.Path(place)) == ""


def test_a_store_on_another_machine_gets_one_warning(tmp_path, monkeypatch):
    (tmp_path / "mountinfo").write_text(f"30 22 0:30 / {tmp_path} rw - nfs4 server:/home rw\n")
    monkeypatch.setattr(surroundings, "MOUNTS", str(tmp_path / "mountinfo"))
    monkeypatch.setattr(surroundings, "_warned", set())
    path = tmp_path / "model"
    with pytest.warns(StoreWarning, match=r"network file system \(nfs4\).* Keep the store on a local disk"):
        expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expunge.open(path).close()
    monkeypatch.setattr(surroundings, "_warned", set())
    with pytest.warns(StoreWarning, match="nfs4"):
        expunge.open(path).close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_what_has_the_name_of_a_spool_is_removed_unread(tmp_path):
    path = tmp_path / "model"
    expunge.LogisticRegression(rho=0.5, solver="dual_averaging").fit(X, Y).save(path)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    spool = tmp_path / "model-spool"
    os.mkfifo(spool)
    expunge.open(path).close()
    assert not os.path.lexists(spool)
    spool.symlink_to(precious)
    expunge.open(path).close()
    assert not os.path.lexists(spool)
    assert (precious / "file").read_text() == "kept"
