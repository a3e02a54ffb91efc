"""Who may write: one at a time, of all threads and processes, whichever way they die."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path

from expunge.base.errors import BusyStore, ReadOnlyStore, StoreError
from expunge.store.sqlite import PAUSE
from expunge.store.surroundings import beside, is_at

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        _give(descriptor)  # what one has cannot be taken again
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _give(descriptor: int) -> None:
        with suppress(OSError):  # it may not be held
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _give(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """At most one writes at a time. The operating system frees the lock of a process that dies.

    The lock is on a file of its own, which nobody but its owner can open: who cannot open it cannot lock it either, so
    that others cannot keep the owner from deleting. It belongs to what was opened here, not to the process as SQLite's
    locks do: two in one process exclude each other, and to close a file elsewhere frees nothing.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self.path = path
        self.wait = wait
        self._name = beside(path, "-lock")
        self._found_by = str(self._name)
        self._descriptor: int | None = None
        _locks.add(self)

    def acquire(self) -> None:
        """Wait until nobody else writes, or say who should; to have it already is fine, as after an interruption."""
        late = time.monotonic() + self.wait
        try:
            while not self._try():
                if time.monotonic() >= late:
                    raise BusyStore(
                        f"{self.path}: other processes have been writing for {self.wait:g} s. Nothing was done: try "
                        "again, or give a longer wait= when opening."
                    )
                time.sleep(PAUSE)
        except BaseException:
            self.release()
            raise

    def _try(self) -> bool:
        """Take the lock, if it is free, and if it is still the one that others will find."""
        while True:
            if self._descriptor is None:
                self._descriptor = _open(self._name)
            try:
                _take(self._descriptor)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                    return False
                raise ReadOnlyStore(f"{self._name}: cannot be locked ({error.strerror}).") from error
            if self.is_in_place():
                return True
            self.close()  # somebody has removed it: others would lock another

    def is_in_place(self) -> bool:
        """Say whether others who want to write find the very file that is locked here."""
        if self._descriptor is None:
            return False
        status = os.fstat(self._descriptor)
        return is_at((status.st_dev, status.st_ino), self._found_by)

    def release(self) -> None:
        """Let others write."""
        if self._descriptor is not None:
            _give(self._descriptor)

    def remove(self) -> None:
        """Remove the file, while it is locked: whoever waits for it notices that, and makes another."""
        if self.is_in_place():
            self._name.unlink()

    def close(self) -> None:
        """Let others write, and close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = close


def _open(name: Path) -> int:
    """Open a file to lock, that only its owner can open."""
    flags = os.O_RDWR | os.O_CREAT
    for flag in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"):  # no links; not for other programs; no waiting for a pipe
        flags |= getattr(os, flag, 0)
    try:
        descriptor = os.open(name, flags, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EMLINK):
            raise StoreError(f"{name}: {_NO_LOCK}") from error
        remedy = "it belongs to another user; remove it" if name.exists() else "check the folder's permissions"
        raise ReadOnlyStore(f"{name}: cannot be locked ({error.strerror}); {remedy}.") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise StoreError(f"{name}: {_NO_LOCK}")
        if os.name == "posix" and status.st_mode & 0o077:
            _make_private(name, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


_NO_LOCK = "this should be an empty file, but is a link, a folder or a device. Remove it; it will be made again."


def _make_private(name: Path, descriptor: int) -> None:
    """Keep others from locking it, as they could what earlier versions made."""
    try:
        os.fchmod(descriptor, 0o600)
    except OSError as error:
        raise StoreError(
            f"{name}: it belongs to another user, and everybody could lock it. Remove it; it will be made again."
        ) from error


def _forget() -> None:
    """Close what a process that was forked has inherited: else its parent's lock would outlive the parent."""
    for lock in list(_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
