"""The SQLite file of a store: numbered blobs with checksums, whole transactions, and nothing left of what is gone.

SQLite keeps the first few hundred bytes of a long blob in a page of a B-tree, where balancing may leave stale copies
behind, and the rest in pages of its own, which it blanks when they are freed. So every blob begins with blanks: no
byte of a record ever lies in a B-tree. Blobs fill their pages to the end, and one that is overwritten by another of
the same size dirties the pages that differ only.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from expunge.base.errors import BusyStore, CorruptStore, NewerStore, NotAStore, ReadOnlyStore, StoreError
from expunge.store import surroundings
from expunge.store.sqlite import FAILURES, FULL, NORMAL, OFF, WAIT, insist, named_error, named_errors

_HEAD = struct.Struct("<II")


@cache
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


FORMAT = 1
"""The version of the layout that this library writes."""
APPLICATION = 0x45585047
"""What marks a SQLite file as a store ("EXPG")."""

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
MIGRATIONS: dict[int, Any] = {}
"""For each older format, a function that brings a connection's file to the next one."""


class StoreFile:
    """One connection to the file of a store."""

    def __init__(self, path: Path, *, read_only: bool = False, wait: float = WAIT, building: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._building = building
        self.wait = wait
        self._level: int | None = None
        surroundings.check_file(path)
        surroundings.check_neighbours(path)
        self._log = surroundings.beside(path, "-wal")
        self._held: Any = surroundings.hold_open(path)
        self._name = os.fspath(path)  # looked up several times a request, where a Path takes as long as the look
        self._beside: list[tuple[str, Any]] = []
        """The log and its index, and what tells each from another of the same name."""
        try:
            with named_errors(path):
                self._connection = self._connect()
                self._greet()
            if not building:
                files = [f"{path}{ending}" for ending in ("-wal", "-shm")]
                self._beside = [(file, surroundings.inode_of(file)) for file in files if os.path.exists(file)]
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path, page: int) -> StoreFile:
        """Make an empty store, in which nothing is durable: the caller syncs and renames it when it is whole."""
        surroundings.make_private(path)
        surroundings.check_neighbours(path)
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

    def finish(self) -> None:
        """Turn the log of a new store on, when it is whole: whoever opened it first would do so with a journal."""
        self._run("PRAGMA journal_mode=WAL")

    def check_place(self) -> None:
        """Raise if the file was taken away, or another was put in its place: what is written would be lost.

        Without its log and the index of it, others would write beside this one.
        """
        status = surroundings.status_of(self._held, self._name)
        if status is None:
            raise StoreError(f"{self.path}: the file was moved, removed or replaced; open the model again.")
        if status.st_nlink > 1:
            surroundings.check_links(self.path, status.st_nlink)
        for file, inode in self._beside:
            if not surroundings.is_at(inode, file):
                raise StoreError(
                    f"{file}: was removed or replaced while the store was open, and belongs to it. Close the store in "
                    "all processes, and open it again."
                )

    def _connect(self) -> sqlite3.Connection:
        path = self.path
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        if not self.read_only and not writable:
            raise ReadOnlyStore(
                f"{path}: the file or its folder may not be written to; change the permissions, or open it with "
                "read_only=True."
            )
        mode = "ro" if self.read_only else "rw"
        if self.read_only and not writable and not self._log.exists():
            mode += "&immutable=1"  # nobody can write, and there is no log to read
        if "immutable" not in mode:
            surroundings.check_one_log(path, self.wait)
        surroundings.reset_log(path)
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
            pages, log = self._pragma("page_count"), self._log
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

    @property
    def size(self) -> int:
        """How many bytes the file has, or will have when the log is in it."""
        with named_errors(self.path):
            return self._pragma("page_count") * self.page

    def close(self) -> None:
        """Close the connection."""
        with suppress(sqlite3.Error, AttributeError):  # which it lacks if connecting failed
            self._connection.close()
        held, self._held = self._held, None
        if held is not None:
            surroundings.release_open(held)

    # --- rows ---

    def _run(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement, values)
        except FAILURES as error:
            raise named_error(self.path, error) from error

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
        try:
            row = self._connection.execute(f"SELECT content FROM {table} WHERE number=?", (number,)).fetchone()
        except FAILURES as error:
            raise named_error(self.path, error) from error
        return None if row is None else self._opened(table, number, row[0])

    def need(self, table: Table, number: int) -> memoryview:
        """Return the content of a row that must be there."""
        content = self.get(table, number)
        if content is None:
            raise CorruptStore(f"{self.path}: {table}, row {number} is missing; {_REMEDY}")
        return content

    def all(self, table: Table) -> Iterator[tuple[int, memoryview]]:
        """Return the contents of all rows, by number."""
        left = self.size
        with named_errors(self.path):
            for number, blob in self._connection.execute(f"SELECT number, content FROM {table} ORDER BY number"):
                content = self._opened(table, number, blob)
                left -= len(blob)
                if left < 0:  # rows share pages, to look like more than there is
                    raise CorruptStore(f"{self.path}: {table}: more bytes than the file has; {_REMEDY}")
                yield number, content

    @cached_property
    def longest(self) -> int:
        """How many bytes a row can have: what SQLite was built for (as a rule 10⁹), less what surrounds them."""
        return self._connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) - 2 * self.page

    def put(self, table: Table, number: int, content: bytes | bytearray | memoryview) -> None:
        """Write a row."""
        size, least = len(content), least_local(self.page)
        if size > self.longest:
            raise StoreError(
                f"{self.path}: {table}, row {number} would have {size:,} bytes, but SQLite takes at most "
                f"{self.longest:,}; do it in smaller portions."
            )
        blob = bytearray(blob_size(self.page, size))
        _HEAD.pack_into(blob, least, checksum(table, number, content), size)
        blob[least + _HEAD.size : least + _HEAD.size + size] = content
        if self._run(f"UPDATE {table} SET content=? WHERE number=?", (blob, number)).rowcount == 0:
            self._run(f"INSERT INTO {table} VALUES (?, ?)", (number, blob))

    def drop(self, table: Table, first: int, stop: int | None = None) -> None:
        """Delete the rows from a number on, up to (without) another."""
        stop = 2**63 - 1 if stop is None else stop
        self._run(f"DELETE FROM {table} WHERE number>=? AND number<?", (first, stop))

    def numbers(self, table: Table) -> list[int]:
        """Return the numbers of all rows."""
        return [row[0] for row in self._run(f"SELECT number FROM {table} ORDER BY number")]

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

    def begin(self, *, synced: bool = True) -> None:
        """Begin to write; others go on reading what there was. If not ``synced``, `truncate_log` makes it durable."""
        self.rollback()  # something may have been interrupted
        self._sync_commits(FULL if synced else NORMAL)
        self._run("BEGIN IMMEDIATE")

    def _sync_commits(self, level: int) -> None:
        if self._level is None:
            self._level = self._pragma("synchronous")
        if self._level not in (OFF, level):
            self._run(f"PRAGMA synchronous={level:d}")
            self._level = level

    def sync_log(self) -> None:
        """Make durable what was committed and not ``synced``, where the log cannot be emptied."""
        with suppress(OSError):
            surroundings.sync_file(self._log)  # on which SQLite has no locks that closing would drop

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
        """Bring everything from the log into the file, and leave nothing in the log, also if the power fails then."""
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
        try:
            surroundings.sync_file(self._log)  # SQLite syncs before it empties the log, and not afterwards
        except OSError as error:
            raise StoreError(f"{self.path}: {failed} ({error.strerror}); the next call does it.") from error

    def copy_to(self, path: Path) -> None:
        """Write what there is, in canonical order, into a new file."""
        surroundings.make_private(path)
        surroundings.check_neighbours(path)
        self._run("VACUUM INTO CAST(? AS TEXT)", (os.fsencode(path),))  # names need not be UTF-8

    def replace_by(self, other: StoreFile, check: Callable[[], None]) -> None:
        """Become a copy of another file, to the last page, at once; ``check`` is called once nobody else can write."""
        checked = False

        def progress(*_: int) -> None:
            nonlocal checked
            if not checked:
                check()
            checked = True

        with named_errors(self.path):
            other._connection.backup(self._connection, pages=1, progress=progress)

    @property
    def changes(self) -> int:
        """A number that changes when another connection has written."""
        return int(self._run("PRAGMA data_version").fetchone()[0])

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
