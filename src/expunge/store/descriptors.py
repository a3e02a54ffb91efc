"""Which files this process has open, and how to read one of these without giving up SQLite's locks on it.

On POSIX systems locks belong to a process, and to close a file, by whatever descriptor, gives up all that the process
has on it. Then another process could take the log away. And a process that is forked inherits what SQLite knows of its
locks, but not the locks.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

from expunge.errors import StoreError

_Inode = tuple[int, int]
_open: Counter[_Inode] = Counter()
_kept: dict[_Inode, dict[_Inode, int]] = {}
_inherited: set[_Inode] = set()
_lock = threading.Lock()


def _inode_of(path: Path) -> _Inode:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def hold(path: Path) -> _Inode:
    """Say that a connection to a store is being opened; return what to `release` when it is closed."""
    inode = _inode_of(path)
    if inode in _inherited:
        raise StoreError(
            f"{path}: this process was forked while its parent had the file open, and has no locks on it that work. "
            "Open it in the parent after the fork only, or start processes by 'spawn'."
        )
    with _lock:
        _open[inode] += 1
    return inode


def is_at(inode: _Inode, path: Path) -> bool:
    """Say whether a file that is held still has its name."""
    try:
        return _inode_of(path) == inode
    except OSError:
        return False


def release(inode: _Inode) -> None:
    """Say that a connection was closed."""
    with _lock:
        _open[inode] -= 1
        if _open[inode] <= 0:
            del _open[inode]
            for descriptor in _kept.pop(inode, {}).values():
                os.close(descriptor)


def read(path: Path, store: Path) -> bytearray | None:
    """Return the bytes of a file that belongs to a store, if this process has that open; else None."""
    held, inode = _inode_of(store), _inode_of(path)
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
