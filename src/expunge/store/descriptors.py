"""Which files this process has open, and how to read one of these without giving up SQLite's locks on it.

On POSIX systems locks belong to a process, and to close a file, by whatever descriptor, gives up all that the process
has on it. Then another process could take the log away. And a process that is forked inherits what SQLite knows of its
locks, but not the locks.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from expunge.base.errors import StoreError

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


def hold(path: Path) -> Inode:
    """Say that a connection to a store is being opened; return what to `release` when it is closed."""
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
def alone(path: Path) -> Iterator[bool]:
    """Say whether nobody but the one who has just said `hold` has a store open, and keep it so meanwhile.

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


def release(inode: Inode) -> None:
    """Say that a connection was closed."""
    with _lock:
        _open[inode] -= 1
        if _open[inode] <= 0:
            del _open[inode]
            for descriptor in _kept.pop(inode, {}).values():
                os.close(descriptor)


def read(path: Path, store: Path) -> bytearray | None:
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
