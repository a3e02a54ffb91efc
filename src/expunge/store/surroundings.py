"""What is around a store: files beside it, who has it open, and the disk beneath it.

A file that was sent by others may come with traps, which SQLite must not see. On POSIX systems locks belong to a
process, and to close a file, by whatever descriptor, gives up all that the process has on it. Then another process
could take the log away. And a process that is forked inherits what SQLite knows of its locks, but not the locks.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from expunge.base.errors import NotAStore, ReadOnlyStore, StoreError, StoreWarning, warn_caller

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

CAN_TELL = fcntl is not None
"""Whether it can be told who has a file open."""
SHARED_FIRST, SHARED_BYTES = 0x40000002, 510
"""The bytes that SQLite locks while a file is open."""
Inode = tuple[int, int]
_open: Counter[Inode] = Counter()
_kept: dict[Inode, dict[Inode, int]] = {}
_inherited: set[Inode] = set()
_lock = threading.Lock()


def inode_of(path: Path | str) -> Inode:
    """Return what tells a file from all others, whatever it is called."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def hold_open(path: Path) -> Inode:
    """Say that a connection to a store is being opened; return what to `release_open` when it is closed."""
    inode = inode_of(path)
    if inode in _inherited:
        raise StoreError(
            f"{path}: this process was forked while its parent had the file open, so its locks do not work. Open it in "
            "the parent only after the fork, or start processes by 'spawn'."
        )
    with _lock:
        _open[inode] += 1
    return inode


def status_of(inode: Inode, path: Path | str) -> os.stat_result | None:
    """Return the status of a file, if it is still found by its name."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status if (status.st_dev, status.st_ino) == inode else None


def is_at(inode: Inode, path: Path | str) -> bool:
    """Say whether a file still has its name."""
    return status_of(inode, path) is not None


@contextmanager
def nobody_else(path: Path) -> Iterator[bool]:
    """Say whether nobody but the one who has just said `hold_open` has a store open, and keep it so meanwhile.

    Whoever has one open shares SQLite's lock on some bytes far beyond its end.
    """
    with _lock:
        if fcntl is None or _open[inode_of(path)] > 1:  # to close the file would give up the locks
            yield False
            return
        descriptor = os.open(path, os.O_RDWR)
        try:
            yield _locks_all(descriptor)
        finally:
            os.close(descriptor)


def _locks_all(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
    except OSError:
        return False
    return True


def release_open(inode: Inode) -> None:
    """Say that a connection was closed."""
    with _lock:
        _open[inode] -= 1
        if _open[inode] <= 0:
            del _open[inode]
            for descriptor in _kept.pop(inode, {}).values():
                os.close(descriptor)


def read_open(path: Path, store: Path) -> bytearray | None:
    """Return the bytes of a file that belongs to a store, if this process has that open; else None."""
    held, inode = inode_of(store), inode_of(path)
    with _lock:
        if held not in _open or not hasattr(os, "preadv"):
            return None
        kept = _kept.setdefault(held, {})
        if inode not in kept:
            kept[inode] = os.open(path, os.O_RDONLY)
        content = bytearray(os.fstat(kept[inode]).st_size)
        at = 0
        while at < len(content) and (number := os.preadv(kept[inode], [memoryview(content)[at:]], at)):
            at += number
    return content[:at] if at < len(content) else content


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _inherited.update(_open)
    _open.clear()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


ENDINGS = ("-wal", "-shm", "-journal", "-lock", "-key", "-seal", "-new", "-spool")
"""What the names of files that belong to a store end in."""


def private(path: str, flags: int) -> int:
    """Open a file so that, if it is new, only its owner can read it; what SQLite puts beside it is like it."""
    return os.open(path, flags, 0o600)


def make_private(path: Path) -> None:
    """Make an empty file that only its owner can read."""
    try:
        os.close(private(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); check its folder.") from error


def beside(path: Path, ending: str) -> Path:
    """Return the name of a file that belongs to a store."""
    return path.with_name(path.name + ending)


_MAGIC = (0x377F0682, 0x377F0683)
"""What a log begins with; the second if its checksums are of numbers with the highest byte first."""
_HEADER, _FRAME = 32, 24
"""How many bytes the header of a log has, and that of each of its frames."""
_LARGEST = _HEADER + _FRAME + 65536
_SETTLED, _PAUSE = 2.0, 0.001
"""How many seconds to give who is just opening a store, and to wait before looking again."""


def check_neighbours(path: Path) -> None:
    """Raise if there is anything beside a store that SQLite must not see.

    A journal makes SQLite undo what it says was done last, and then remove whatever file the journal names; a store has
    a log instead, and never a journal. And a log that is a link leads SQLite to write elsewhere.
    """
    journal = path.with_name(f"{path.name}-journal")
    if os.path.lexists(journal):
        raise StoreError(
            f"{journal}: this is a journal of SQLite, which no store has. It may have been put there to make SQLite "
            "remove other files. Nothing was opened: remove it if you trust the store, and find out where it came from."
        )
    for ending in ("-wal", "-shm"):
        file = path.with_name(f"{path.name}{ending}")
        try:
            status = os.lstat(file)
        except OSError:
            continue
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise StoreError(f"{file}: this is not a file of the store, but a link or a device; remove it.")


def check_links(path: Path, links: int) -> None:
    """Raise if a file has several names: by each it would have another log and another lock."""
    if links > 1:
        raise StoreError(
            f"{path}: this file has {links} names (hard links). Each name would have a separate log and lock, and the "
            "store would be destroyed. Remove the other names; to have a copy, make a backup."
        )


def check_file(path: Path) -> None:
    """Raise, saying what to do, if there is no file of a store that may be read."""
    try:
        status = os.stat(path)  # to open the file and close it would drop the locks of other connections
    except (FileNotFoundError, NotADirectoryError):
        left, new = beside(path, "-spool"), beside(path, "-new")
        more = (
            (f" An ingest was interrupted and left {left}: repeat it, or remove that folder.") if left.exists() else ""
        )
        if new.exists():
            more += (
                f" Writing it was interrupted and left {new}, with all records in it: repeat it, or remove that file."
            )
        raise NotAStore(f"{path}: no such file; write one with model.save(path).{more}") from None
    except PermissionError as error:
        raise ReadOnlyStore(f"{path}: it may not be read ({error.strerror}); change its permissions.") from None
    if stat.S_ISDIR(status.st_mode):
        raise NotAStore(f"{path}: this is a folder; give the path of a file that save() has written.")
    if not stat.S_ISREG(status.st_mode):
        raise NotAStore(f"{path}: this is not a file; give the path of a file that save() has written.")
    check_links(path, status.st_nlink)
    if not os.access(path, os.R_OK):
        raise ReadOnlyStore(f"{path}: it may not be read; change its permissions.")


def check_one_log(path: Path, wait: float) -> None:
    """Raise if others have a store open whose log, or its index, was removed.

    They go on with the files that they have, and whoever opens the store now would be given new ones: neither would
    see what the other writes. Who is just opening the store has none of them for a moment.
    """
    late = time.monotonic() + min(wait, _SETTLED)
    while missing := _missing_log(path):
        if time.monotonic() >= late:
            raise StoreError(
                f"{missing}: was removed while another process has the store open, which needs it. Close the store in "
                "all processes, and open it again."
            )
        time.sleep(_PAUSE)


def _missing_log(path: Path) -> Path | None:
    """Return which file is missing, if somebody has the store open."""
    files = [path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-shm")]
    if all(file.exists() for file in files) or not (CAN_TELL and os.access(path, os.W_OK)):
        return None
    with nobody_else(path) as alone:
        if alone:
            return None
    return next((file for file in files if not file.exists()), None)


def reset_log(path: Path) -> None:
    """Empty a log of which not even the first frame is whole, if nobody has the store open.

    There is nothing in it. But SQLite would make an index of it, and put there whatever has lain in its memory.
    """
    log = path.with_name(f"{path.name}-wal")
    if _is_hollow(log) and os.access(log, os.W_OK) and os.access(path, os.W_OK):
        with nobody_else(path) as alone:
            if alone and _is_hollow(log):
                os.truncate(log, 0)


def _is_hollow(log: Path) -> bool:
    """Say whether a log has bytes, and no whole frame."""
    try:
        if not log.stat().st_size:
            return False
        with open(log, "rb") as file:
            content = file.read(_LARGEST)
    except OSError:
        return False
    if len(content) < _HEADER:
        return True
    magic, _, page = struct.unpack_from(">III", content)
    order = ">" if magic == _MAGIC[1] else "<"
    end = _HEADER + _FRAME + page
    if magic not in _MAGIC or not 512 <= page <= 65536 or len(content) < end:
        return True
    sums = _sums(content[:24], order, (0, 0))
    first = _sums(content[_HEADER : _HEADER + 8], order, sums)
    first = _sums(content[_HEADER + _FRAME : end], order, first)
    return (
        sums != struct.unpack_from(">II", content, 24)
        or content[_HEADER + 8 : _HEADER + 16] != content[16:24]
        or first != struct.unpack_from(">II", content, _HEADER + 16)
    )


def _sums(content: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's checksum of some bytes, which goes on from an earlier one."""
    one, two = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) % 2**32
        two = (two + second + one) % 2**32
    return one, two


MOUNTS = "/proc/self/mountinfo"
REMOTE = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "gluster", "glusterfs", "lustre", "davfs"),
    *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph", "fuse.gcsfuse", "fuse.davfs2"),
}
"""File systems of other machines."""
_warned: set[str] = set()


def sync(descriptor: int) -> None:
    """Wait until all that was written to a file is on the disk, and not only in the disk's own memory."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Do that with a file that nobody holds a POSIX lock on: to close it gives these up."""
    descriptor = os.open(path, os.O_RDWR)  # Windows does not sync what is open for reading only
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make it durable which files there are in a folder."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):  # not every system lets folders be synced
            raise


def file_system_of(path: Path) -> str:
    """Return the kind of file system that a path lies on, or nothing where that cannot be told."""
    place, found, best = str(path), "", -1
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:  # as on all systems but Linux
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        root = fields[4]
        for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            root = root.replace(code, sign)
        root = root.rstrip("/")
        if (place == root or place.startswith(f"{root}/")) and len(root) >= best:  # the last one lies on top
            best, found = len(root), after.split()[0]
    return found


def warn_if_remote(path: Path) -> None:
    """Warn, once for each folder, if a store lies on another machine: locks and syncs may not be what they say."""
    folder = str(path.parent)
    if folder in _warned:
        return
    _warned.add(folder)
    kind = file_system_of(path)
    if kind in REMOTE:
        warn_caller(
            f"{path}: this is on a network file system ({kind}), where locks may not hold and a sync may not reach the "
            "disk. Keep the store on a local disk.",
            StoreWarning,
        )
