"""The SQLite file of a store: numbered blobs with checksums, whole transactions, and nothing left of what is gone.

SQLite keeps the first few hundred bytes of a long blob in a page of a B-tree, where balancing may leave stale copies
behind, and the rest in pages of its own, which it blanks when they are freed. So every blob begins with blanks: no
byte of a record ever lies in a B-tree. Blobs fill their pages to the end, and one that is overwritten by another of
the same size dirties the pages that differ only.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from expunge.errors import (
    BadPlan,
    BusyStore,
    CorruptStore,
    FullStore,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    StoreError,
)  # fmt: skip
from expunge.store import descriptors

FORMAT = 1
"""The version of the layout that this library writes."""
APPLICATION = 0x45585047
"""What marks a SQLite file as a store ("EXPG")."""
ENDINGS = ("-wal", "-shm", "-journal", "-lock", "-key", "-seal", "-new", "-spool")
"""What the names of files that belong to a store end in."""
WAIT = 10.0
"""How many seconds to wait for another writer, if the user does not say."""
LONGEST_WAIT = 2.0**31 / 1000 - 1
"""How many SQLite can wait, which counts milliseconds."""

PAUSE = 0.001
"""How many seconds to wait before trying again."""

Table = Literal["blocks", "places", "sums", "answers", "iterates", "ids", "subjects", "arrays", "pending"]
TABLES: tuple[Table, ...] = ("arrays", "pending", "places", "sums", "answers", "iterates", "ids", "subjects", "blocks")
_TEXTS = ("about", "receipts")
SCHEMA: dict[str, str] = {
    **{table: f"CREATE TABLE {table} (number INTEGER PRIMARY KEY, content BLOB NOT NULL)" for table in TABLES},
    **{
        name: f"CREATE TABLE {name} (number INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum INTEGER NOT NULL)"
        for name in _TEXTS
    },
}
"""How each table is made."""
_HEAD = struct.Struct("<II")
_SYMPTOMS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (FullStore, "there is no room on the disk; make some and call again"),
    sqlite3.SQLITE_BUSY: (BusyStore, "another process is writing; wait for it, or give a longer wait="),
    sqlite3.SQLITE_LOCKED: (BusyStore, "another process is writing; wait for it, or give a longer wait="),
    sqlite3.SQLITE_READONLY: (ReadOnlyStore, "it may not be written to; change its permissions or open it read_only"),
    sqlite3.SQLITE_CORRUPT: (CorruptStore, "it is damaged; restore a backup"),
    sqlite3.SQLITE_NOTADB: (NotAStore, "it is not a store; give the path of a file that save() has written"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "it cannot be opened; check the path and its permissions"),
    sqlite3.SQLITE_IOERR: (StoreError, "the disk failed; check it, and its free room, and call again"),
    sqlite3.SQLITE_PERM: (ReadOnlyStore, "it may not be read or written; change its permissions"),
}
MIGRATIONS: dict[int, Any] = {}
"""For each older format, a function that brings a connection's file to the next one."""


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
    except UnicodeDecodeError as error:  # SQLite quotes what it cannot read
        raise CorruptStore(f"{path}: it is damaged; restore a backup ({error.reason}).") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind, remedy = _SYMPTOMS.get(code, (StoreError, "check the file, or restore a backup"))
        raise kind(f"{path}: {remedy} ({error}).") from error


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


def least_local(page: int) -> int:
    """Return how many bytes of a long blob SQLite keeps in the B-tree, where blobs fill their pages."""
    return (page - 12) * 32 // 255 - 23


def _header(length: int) -> int:
    """Return the size of the header of SQLite's row with such a blob."""
    code, size = 2 * length + 12, 1
    while code >= 128:
        code, size = code >> 7, size + 1
    return size + 2


def blob_size(page: int, content: int) -> int:
    """Return the length of the blob for so many bytes: its pages are full."""
    least, step = least_local(page), page - 4
    pages = max(1, -(-(content + _HEAD.size) // step))
    size = least + pages * step
    size -= _header(size)
    return size if size - least >= content + _HEAD.size else size + step


def checksum(table: str, number: int, content: Any) -> int:
    """Return the checksum of a row, which tells it from any other row."""
    return zlib.crc32(content, zlib.crc32(f"{table} {number}".encode()))


class StoreFile:
    """One connection to the file of a store."""

    def __init__(self, path: Path, *, read_only: bool = False, wait: float = WAIT, building: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._building = building
        self.wait = wait
        self._check_path()
        self._held: Any = descriptors.hold(path)
        try:
            with named_errors(path):
                self._connection = self._connect()
                self._greet()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path, page: int) -> StoreFile:
        """Make an empty store, in which nothing is durable: the caller syncs and renames it when it is whole."""
        make_private(path)
        with named_errors(path):
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous=OFF")
                connection.execute("PRAGMA journal_mode=OFF")
                connection.execute(f"PRAGMA page_size={page:d}")
                connection.execute(f"PRAGMA application_id={APPLICATION:d}")
                connection.execute(f"PRAGMA user_version={FORMAT:d}")
                for statement in SCHEMA.values():
                    connection.execute(statement)
            finally:
                connection.close()
        return cls(path, building=True)

    def _check_path(self) -> None:
        path = self.path
        try:
            status = os.stat(path)  # to open the file and close it would drop the locks of other connections
        except (FileNotFoundError, NotADirectoryError):
            left = beside(path, "-spool")
            more = f" An ingest was interrupted and left {left}: do it again, or remove that." if left.exists() else ""
            raise NotAStore(f"{path}: there is no such file; write one with model.save(path).{more}") from None
        except PermissionError as error:
            raise ReadOnlyStore(f"{path}: it may not be read ({error.strerror}); change its permissions.") from None
        if stat.S_ISDIR(status.st_mode):
            raise NotAStore(f"{path}: this is a folder; give the path of a file that save() has written.")
        if not os.access(path, os.R_OK):
            raise ReadOnlyStore(f"{path}: it may not be read; change its permissions.")

    def check_place(self) -> None:
        """Raise if the file was taken away, or another was put in its place: what is written would be lost."""
        if not descriptors.is_at(self._held, self.path):
            raise StoreError(f"{self.path}: the file was moved, removed or replaced; open the model again.")

    def _connect(self) -> sqlite3.Connection:
        path, log = self.path, beside(self.path, "-wal")
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        if not self.read_only and not writable:
            raise ReadOnlyStore(
                f"{path}: the file or its folder may not be written to; change the permissions, or open it with "
                "read_only=True."
            )
        mode = "ro" if self.read_only else "rw"
        if self.read_only and not writable and not log.exists():
            mode += "&immutable=1"  # nobody can write, and there is no log to read
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=self.wait,
            check_same_thread=False,
        )  # fmt: skip
        connection.text_factory = lambda raw: str(raw, "utf-8", "replace")  # the checksum tells that it is damaged
        return connection

    def _greet(self) -> None:
        """Check that the file is a store of a version that can be read, and set the connection up."""
        if self._pragma("application_id") != APPLICATION:
            raise NotAStore(f"{self.path}: this is not a store; give the path of a file that save() has written.")
        version = self._pragma("user_version")
        if version > FORMAT:
            raise NewerStore(
                f"{self.path}: written by a later version of Expunge (format {version}; this one reads up to "
                f"{FORMAT}). Upgrade with pip install -U expunge."
            )
        for name, value in (
            ("secure_delete", "ON"), ("synchronous", "FULL"), ("fullfsync", "ON"), ("checkpoint_fullfsync", "ON"),
            ("temp_store", "MEMORY"), ("wal_autocheckpoint", "0"), ("trusted_schema", "OFF"), ("cell_size_check", "ON"),
        ):  # fmt: skip
            self._connection.execute(f"PRAGMA {name}={value}")
        self.page = self._pragma("page_size")
        self._check_end()
        if self._building:
            self._connection.execute("PRAGMA journal_mode=OFF")
            self._connection.execute("PRAGMA synchronous=OFF")
        elif not self.read_only:
            insist(self._connection, "PRAGMA journal_mode=WAL", time.monotonic() + self.wait)
        if version < FORMAT:
            self._migrate()
        tables = self._connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()
        if len(tables) != len(SCHEMA) or dict(tables) != SCHEMA:
            raise CorruptStore(f"{self.path}: it has other tables than a store; {_REMEDY}")

    def _check_end(self) -> None:
        """Raise if the file is shorter than it says; what is missing may be in the log."""
        with self.reading():  # so that nobody shortens it meanwhile
            pages, log = self._pragma("page_count"), beside(self.path, "-wal")
            if not (log.exists() and log.stat().st_size):
                size = self.path.stat().st_size
                if size < pages * self.page:
                    raise CorruptStore(f"{self.path}: the end of the file is missing ({size:,} bytes); {_REMEDY}")

    def _migrate(self) -> None:
        if self.read_only:
            raise ReadOnlyStore(f"{self.path}: of an older format; open it once without read_only, which updates it.")
        with self.transaction():
            for step in range(self._pragma("user_version"), FORMAT):  # another process may have been quicker
                if step not in MIGRATIONS:
                    raise NotAStore(f"{self.path}: format {step} was never released; restore a backup.")
                MIGRATIONS[step](self._connection)
            self._connection.execute(f"PRAGMA user_version={FORMAT:d}")
        self.truncate_log()

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        with suppress(sqlite3.Error, AttributeError):  # which it lacks if connecting failed
            self._connection.close()
        held, self._held = self._held, None
        if held is not None:
            descriptors.release(held)

    # --- rows ---

    def _run(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        with named_errors(self.path):
            return self._connection.execute(statement, values)

    def _opened(self, table: str, number: int, blob: Any) -> memoryview:
        """Return what a blob holds, once its checksum is found right."""
        least = least_local(self.page)
        if isinstance(blob, bytes) and len(blob) >= least + _HEAD.size:
            found, length = _HEAD.unpack_from(blob, least)
            content = memoryview(blob)[least + _HEAD.size :][:length]
            if len(content) == length and checksum(table, number, content) == found:
                return content
        raise CorruptStore(f"{self.path}: {table}, row {number}: the bytes are not those that were written; {_REMEDY}")

    def get(self, table: Table, number: int) -> memoryview | None:
        """Return the content of a row, or None if there is none."""
        with named_errors(self.path):
            row = self._connection.execute(f"SELECT content FROM {table} WHERE number=?", (number,)).fetchone()
        return None if row is None else self._opened(table, number, row[0])

    def need(self, table: Table, number: int) -> memoryview:
        """Return the content of a row that must be there."""
        content = self.get(table, number)
        if content is None:
            raise CorruptStore(f"{self.path}: {table}, row {number} is missing; {_REMEDY}")
        return content

    def all(self, table: Table) -> Iterator[tuple[int, memoryview]]:
        """Return the contents of all rows, by number."""
        with named_errors(self.path):
            for number, blob in self._connection.execute(f"SELECT number, content FROM {table} ORDER BY number"):
                yield number, self._opened(table, number, blob)

    def put(self, table: Table, number: int, content: bytes | bytearray | memoryview) -> None:
        """Write a row."""
        blob = bytearray(blob_size(self.page, len(content)))
        least = least_local(self.page)
        _HEAD.pack_into(blob, least, checksum(table, number, content), len(content))
        blob[least + _HEAD.size : least + _HEAD.size + len(content)] = content
        if self._run(f"UPDATE {table} SET content=? WHERE number=?", (blob, number)).rowcount == 0:
            self._run(f"INSERT INTO {table} VALUES (?, ?)", (number, blob))

    def drop(self, table: Table, first: int, stop: int | None = None) -> None:
        """Delete the rows from a number on, up to (without) another."""
        stop = 2**63 - 1 if stop is None else stop
        self._run(f"DELETE FROM {table} WHERE number>=? AND number<?", (first, stop))

    def numbers(self, table: Table) -> list[int]:
        """Return the numbers of all rows."""
        return [row[0] for row in self._run(f"SELECT number FROM {table} ORDER BY number")]

    def last(self, table: Table) -> int | None:
        """Return the largest number of a row."""
        found: int | None = self._run(f"SELECT max(number) FROM {table}").fetchone()[0]
        return found

    def text(self, table: Literal["about", "receipts"], number: int) -> str | None:
        """Return a text, or None if there is none."""
        row = self._run(f"SELECT content, checksum FROM {table} WHERE number=?", (number,)).fetchone()
        return None if row is None else self._read_text(table, number, *row)

    def texts(self, table: Literal["about", "receipts"], first: int = 0) -> Iterator[str]:
        """Return all texts from a number on."""
        with named_errors(self.path):
            rows = self._connection.execute(
                f"SELECT number, content, checksum FROM {table} WHERE number>=? ORDER BY number", (first,)
            )
            for number, content, found in rows:
                yield self._read_text(table, number, content, found)

    def _read_text(self, table: str, number: int, content: Any, found: Any) -> str:
        if not isinstance(content, str) or checksum(table, number, content.encode()) != found:
            raise CorruptStore(
                f"{self.path}: {table}, row {number}: the bytes are not those that were written; {_REMEDY}"
            )
        return content

    def put_text(self, table: Literal["about", "receipts"], number: int, content: str) -> None:
        """Write a text."""
        row = (number, content, checksum(table, number, content.encode()))
        self._run(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", row)

    # --- transactions ---

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do everything or nothing, and make it durable."""
        try:
            self.begin()
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def begin(self) -> None:
        """Begin to write; others go on reading what there was."""
        self.rollback()  # something may have been interrupted
        self._run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make durable what was written."""
        self._run("COMMIT")

    def rollback(self) -> None:
        """Undo what was written since `begin`, if anything."""
        if self._connection.in_transaction:
            self._run("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read one whole state; be quick, for the log cannot be truncated meanwhile."""
        self.rollback()  # something may have been interrupted
        try:
            self._run("BEGIN")
            yield
        finally:
            self.rollback()

    def truncate_log(self) -> None:
        """Bring everything from the log into the file, and leave nothing in the log."""
        failed = "its log, which may have deleted bytes, cannot be emptied"
        try:
            busy = self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except StoreError as error:
            raise type(error)(f"{self.path}: {failed} ({error}) The next call does it.") from error
        if busy:
            raise BusyStore(
                f"{self.path}: {failed}, since another program is writing, or keeps reading an old state. End its "
                "transaction; the next call empties the log."
            )

    def copy_to(self, path: Path) -> None:
        """Write what there is, in canonical order, into a new file."""
        make_private(path)
        self._run("VACUUM INTO ?", (str(path),))

    def replace_by(self, other: StoreFile) -> None:
        """Become a copy of another file, to the last page, at once."""
        with named_errors(self.path):
            other._connection.backup(self._connection)

    @property
    def changes(self) -> int:
        """A number that changes when another connection has written."""
        with named_errors(self.path):
            return self._pragma("data_version")

    def damage(self) -> list[str]:
        """Read every row and name those that are not as they were written."""
        problems = []
        try:
            with named_errors(self.path):
                found = [row[0] for row in self._connection.execute("PRAGMA quick_check(20)")]
            problems += [f"{self.path.name}: {line}" for line in found if line != "ok"]
            for table in TABLES:
                problems += self._damaged_rows(table, f"SELECT number, content FROM {table}", self._opened)
            for name in _TEXTS:
                problems += self._damaged_rows(name, f"SELECT number, content, checksum FROM {name}", self._read_text)
        except StoreError as error:
            problems.append(str(error))
        return problems

    def _damaged_rows(self, table: str, statement: str, read: Any) -> list[str]:
        problems = []
        with named_errors(self.path):
            for number, *row in self._connection.execute(statement):
                try:
                    read(table, number, *row)
                except CorruptStore:
                    problems.append(f"{table}: row {number} is not as it was written")
        return problems


_REMEDY = "restore a backup."


class WriterLock:
    """At most one process writes at a time. The operating system frees the lock of a process that dies."""

    def __init__(self, path: Path, wait: float) -> None:
        self.path = path
        self.wait = wait
        self._connection: sqlite3.Connection | None = None

    def acquire(self) -> None:
        """Wait until nobody else writes, or say who should."""
        name, late = beside(self.path, "-lock"), time.monotonic() + self.wait
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(name, isolation_level=None, timeout=0, check_same_thread=False)
            if not self._connection.in_transaction:  # as it may be after an interruption
                for statement in ("PRAGMA journal_mode=OFF", "BEGIN EXCLUSIVE"):  # nothing is ever written there
                    insist(self._connection, statement, late)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                raise BusyStore(
                    f"{self.path}: others have been writing for {self.wait:g} s. Nothing was done: try again, or give "
                    "a longer wait= when opening."
                ) from error
            raise ReadOnlyStore(f"{name}: cannot be locked ({error}); check the folder's permissions.") from error

    def release(self) -> None:
        """Let others write."""
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
