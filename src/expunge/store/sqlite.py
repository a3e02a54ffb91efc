"""SQLite's errors, waits and levels of syncing, in our words."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from expunge.base.errors import BadPlan, BusyStore, CorruptStore, FullStore, NotAStore, ReadOnlyStore, StoreError

WAIT = 10.0
"""How many seconds to wait for another writer, if the user does not say."""
LONGEST_WAIT = 2.0**31 / 1000 - 1
"""How many SQLite can wait, which counts milliseconds."""

OFF, NORMAL, FULL = 0, 1, 2
"""SQLite's levels of syncing."""
PAUSE = 0.001
"""How many seconds to wait before trying again."""
_SYMPTOMS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (FullStore, "the disk is full; free some space and call again"),
    sqlite3.SQLITE_BUSY: (BusyStore, "another process is writing; wait for it, or give a longer wait="),
    sqlite3.SQLITE_LOCKED: (BusyStore, "another process is writing; wait for it, or give a longer wait="),
    sqlite3.SQLITE_READONLY: (ReadOnlyStore, "it may not be written to; change its permissions or open it read_only"),
    sqlite3.SQLITE_CORRUPT: (CorruptStore, "it is damaged; restore a backup"),
    sqlite3.SQLITE_NOTADB: (NotAStore, "it is not a store; give the path of a file that save() has written"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "it cannot be opened; check the path and its permissions"),
    sqlite3.SQLITE_IOERR: (StoreError, "the disk failed; check it, and its free space, and call again"),
    sqlite3.SQLITE_TOOBIG: (StoreError, "a row would be longer than SQLite allows; do it in smaller portions"),
    sqlite3.SQLITE_PERM: (ReadOnlyStore, "it may not be read or written; change its permissions"),
}


def as_wait(wait: Any) -> float:
    """Return how many seconds to wait, as SQLite can; raise if it is no number of them."""
    if isinstance(wait, bool) or not isinstance(wait, (int, float, np.number)) or not wait >= 0:
        raise BadPlan(f"wait={wait!r}: give a number of seconds, 0 or more.")
    return float(min(wait, LONGEST_WAIT))


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones that name the file and the remedy."""
    try:
        yield
    except FAILURES as error:
        raise named_error(path, error) from error


FAILURES = (sqlite3.Error, UnicodeDecodeError)


def named_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> StoreError:
    """Return an error that names the file and the remedy."""
    if isinstance(error, UnicodeDecodeError):  # SQLite quotes what it cannot read
        return CorruptStore(f"{path}: it is damaged; restore a backup ({error.reason}).")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    kind, remedy = _SYMPTOMS.get(code, (StoreError, "check the file, or restore a backup"))
    return kind(f"{path}: {remedy} ({error}).")


def insist(connection: sqlite3.Connection, statement: str, late: float) -> None:
    """Execute a statement, if need be again and again, until it is too late.

    SQLite does not wait at all for some locks; for others longer and longer, and one who writes all the time leaves
    short gaps only.
    """
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= late:
                raise
        time.sleep(PAUSE)
