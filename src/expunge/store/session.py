"""A file that is open: what a model and a federation that live in one do alike.

A request waits in the file, as bytes, before anything is decided (`Session.record`). All that it changes, its receipt
and the end of its record are one transaction (`Session.transaction`, `Session.acknowledge`). Nothing is said to be done
before the log is empty (`Session.tidy`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from expunge.base.errors import BusyStore, ExpungeError, LogNotEmptied, ReadOnlyStore, StoreError
from expunge.base.intake import Kind, NamedBy
from expunge.base.types import AnyArray
from expunge.engine.verifying import Verification
from expunge.store.chain import ReceiptsCheck, check_receipts, export, find
from expunge.store.file import StoreFile
from expunge.store.keys import Signer, load_key
from expunge.store.locks import WriterLock
from expunge.store.receipts import Receipt, digest_names, write_receipt
from expunge.store.saving import SIDE_FILES, remove, remove_spool
from expunge.store.sqlite import as_wait
from expunge.store.state import FederationState, Kept, State, check_key, signatures
from expunge.store.surroundings import beside, warn_if_remote

REQUEST = 0
"""The number of what is pending under which a request waits."""
LEFTOVERS = ("-spool", *(f"-new{ending}" for ending in SIDE_FILES))
"""What the names end in of all that a process that died may leave beside a store."""
DONE = "The request has been completed and saved. Do not repeat it."
NOTHING_DONE = "For this request, nothing was done."


@dataclass(frozen=True)
class Words:
    """What errors call that which lives in a file."""

    what: str
    """As whoever uses it next knows it."""
    closed: str
    forked: str
    """What is said if it was closed, or belongs to another process."""

    @property
    def recorded(self) -> str:
        """What is said of a request that could not be finished."""
        return f"A request is recorded; the next use of the {self.what} finishes it, so do not repeat it."


class Session:
    """A file that this process has open: its key, its signer, its log, and the lock of who writes to it.

    Who may write is asked for each request (`Turns`), or once and kept (`keep_lock`). With ``looks``, the newest state
    can be read beside a request that is under way.
    """

    def __init__(
        self,
        path: Path,
        words: Words,
        *,
        wait: float,
        signer: Signer | Literal[False] | None,
        read_only: bool = False,
        looks: bool = False,
    ) -> None:
        self.path = path
        self.words = words
        self.read_only = read_only
        self.signer = signer or None
        self.given_signer = signer
        """False if receipts are unsigned deliberately."""
        self._process = os.getpid()
        self.threads = threading.RLock()
        """For who changes something."""
        self.looking = threading.RLock()
        """For who reads by `reader`."""
        warn_if_remote(path)
        wait = as_wait(wait)
        self.file = StoreFile(path, read_only=read_only, wait=wait)
        self.reader = StoreFile(path, read_only=True, wait=wait) if looks else self.file
        self.lock = WriterLock(path, wait)
        readers = (self.reader,) if looks else ()
        self._finalizer = weakref.finalize(  # who can write is closed after who reads, and tidies up
            self, _close, self._process, *readers, self.file, self.lock
        )
        self._keeps_lock = False
        self._key = b""
        self._leftovers = [f"{path}{ending}" for ending in LEFTOVERS]
        self.stale = True
        """Whether what is in memory may be other than what is in the file: then it is read again."""
        self.known: int | None = None
        """The file's `changes` when it was last read."""
        self.logged = not read_only
        """Whether what is gone may still be in the log, or in what a process that died was writing."""

    # --- whose it is ---

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""
        return self._finalizer.alive

    def check_open(self) -> None:
        """Raise if the file was closed, belongs to another process, or is no longer there."""
        if not self._finalizer.alive:
            raise StoreError(f"{self.path}: {self.words.closed}")
        if os.getpid() != self._process:
            raise StoreError(f"{self.path}: {self.words.forked}")
        self.file.check_place()
        if self._keeps_lock and not self.lock.is_in_place():
            raise StoreError(
                f"{beside(self.path, '-lock')}: was removed while the {self.words.what} was open, so others could "
                "write too. Close it, and open it again."
            )

    def keep_lock(self, taken: str) -> None:
        """Be the only one who writes, until the file is closed; ``taken`` is what is said if another is."""
        try:
            self.lock.acquire()
        except BusyStore as error:
            raise BusyStore(f"{self.path}: {taken}") from error
        self._keeps_lock = True

    def refuse_read_only(self) -> None:
        """Raise if the file can only be looked at."""
        if self.read_only:
            error = ReadOnlyStore(f"{self.path}: opened with read_only; open it without, to change the model.")
            error.refused = True
            raise error

    def close(self) -> None:
        """Close the file, once no other thread is using it."""
        if os.getpid() == self._process:
            with self.threads, self.looking:
                self._finalizer()

    # --- keys ---

    def load_key(self, *remedy: str) -> None:
        """Read what names are digested with."""
        self._key = load_key(beside(self.path, "-key"), *remedy)

    @property
    def key(self) -> bytes:
        """What names are digested with."""
        return self._key or load_key(beside(self.path, "-key"))

    def check_key(self, state: State | FederationState) -> None:
        """Raise if the key that was read is not that of the store."""
        check_key(beside(self.path, "-key"), self._key, state)

    # --- requests ---

    @contextmanager
    def transaction(self, unchanged: Callable[[], None], *, synced: bool = True) -> Iterator[None]:
        """Do everything or nothing. From here on what is in memory is stale, until it is said to be as the file is.

        ``unchanged`` is asked, and raises, if another process has written since the file was read. The lock sees to
        that, unless somebody removes its file; but SQLite itself lets one write at a time.
        """
        try:
            self.file.begin(synced=synced)
            changes = self.file.changes
            if changes != self.known:
                unchanged()
                self.known = changes
            self.stale = True  # also if this is interrupted
            yield
            self.file.check_place()
            self.file.commit()
        except BaseException:
            with suppress(StoreError):
                self.file.rollback()
            raise

    def record(
        self,
        content: bytes,
        unchanged: Callable[[], None],
        note: Callable[[], None] | None = None,
        *,
        row: int = REQUEST,
    ) -> None:
        """Make what will be done durable, with the key of its randomness; ``note`` does so in memory."""
        self.logged = True
        try:
            with self.transaction(unchanged):
                self.file.put("pending", row, content)
                if note is not None:
                    note()
        except BusyStore:
            raise
        except StoreError:
            with suppress(StoreError):
                self.empty_log()  # a part of it may be there
            raise
        self.stale = False

    def acknowledge(
        self,
        state: Kept,
        *,
        request: str,
        kind: Kind,
        named_by: NamedBy | None,
        names: AnyArray | None,
        removed: int,
        added: int,
        day: str,
        plan: str,
    ) -> Kept:
        """Write the receipt of a request that was served in a state; return the next state, which says so."""
        digests = () if named_by is None or names is None else digest_names(self.key, named_by, names)
        receipt = write_receipt(
            request=request, kind=kind, named_by=named_by, digests=digests, removed=removed, added=added, day=day,
            version=state.version + 1, plan=plan, previous=state.head, signer=self.signer,
        )  # fmt: skip
        text, is_signed = receipt.to_json(), receipt.signature is not None
        signed = (*signatures(self.file, state)[:1], is_signed) if state.receipts else (is_signed, is_signed)
        self.file.put_text("receipts", state.receipts + 1, text)
        return replace(
            state, version=receipt.version, receipts=state.receipts + 1, head=receipt.hash, signed=signed
        )  # fmt: skip

    def empty_log(self) -> None:
        """Leave nothing in the log, nor in what a process that died was writing."""
        if any(map(os.path.lexists, self._leftovers)):
            remove(beside(self.path, "-new"))
            remove_spool(beside(self.path, "-spool"))
        self.file.truncate_log()
        self.logged = False

    def tidy(self, outcome: Any) -> None:
        """Empty the log after something that is done."""
        try:
            self.empty_log()
        except StoreError as error:
            self.file.sync_log()
            self.check_still_there()
            raise LogNotEmptied(f"{error} {DONE}", outcome) from error

    def check_still_there(self) -> None:
        """Raise if the file was taken away in the midst of a request: what was done may be lost with it."""
        try:
            self.file.check_place()
        except StoreError as error:
            error.add("This request was done in the file that was open: look there before you repeat it.")
            raise

    # --- looking ---

    @contextmanager
    def reading(self) -> Iterator[StoreFile]:
        """Give the file as it is now, all of one state; requests under way do not hold this up."""
        self.check_open()
        with self.looking, self.reader.reading():
            yield self.reader

    def receipts(self) -> list[Receipt]:
        """Return all receipts."""
        return [Receipt.from_json(text) for text in self.reader.texts("receipts")]

    def export(
        self, state: State | FederationState, receipts: list[Receipt], *, ids: Any = None, subjects: Any = None
    ) -> dict[str, Any]:
        """Return receipts of a state, as can be written to JSON and filed; or those that name certain people."""
        if ids is not None or subjects is not None:
            receipts = find(receipts, self.key, ids=ids, subjects=subjects)
        return export(receipts, store=state.store, head=state.head, version=state.version, signer=self.signer)

    def verify(self, records: int, derive: Callable[[], Verification]) -> Verification:
        """Read every byte of the file; if all are as written, ``derive`` reads again and compares the rest."""
        if problems := self.file.damage():
            return Verification(tuple(problems), None, 0, records)
        self.stale = True
        return derive()


def _close(process: int, *files: StoreFile | WriterLock) -> None:
    if os.getpid() == process:  # the files of a process that was forked are its parent's
        for file in files:
            file.close()


class Turns:
    """A lock between threads and between processes, taken for each request; who gets it sees the newest state."""

    def __init__(self, session: Session, refresh: weakref.WeakMethod[Callable[[], None]]) -> None:
        self._session = session
        self._refresh = refresh
        self.threads, self.file = session.threads, session.lock
        self._depth = 0

    def __enter__(self) -> None:
        self.threads.acquire()
        try:
            if self._depth == 0:
                self._session.check_open()
                self._enter()
            self._depth += 1
        except BaseException as error:
            self.threads.release()
            if isinstance(error, ExpungeError):
                error.refused = True
            raise

    def _enter(self) -> None:
        try:
            self.file.acquire()
        except ReadOnlyStore:
            if not self._session.read_only:
                raise
        try:
            if (refresh := self._refresh()) is not None:
                refresh()
        except BaseException:
            self.file.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._depth -= 1
            if self._depth == 0:
                self.file.release()
        finally:
            self.threads.release()


class Filed:
    """What lives in a file, has receipts, and is closed when it is not needed any more."""

    def close(self) -> None:
        """Close the file."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def export_receipts(self) -> dict[str, Any]:
        """Return all receipts, as can be written to JSON and filed."""
        raise NotImplementedError

    def verify_receipts(self, public_key: Any = None) -> ReceiptsCheck:
        """Check that no receipt was altered, taken out or put in; with a ``public_key``, their signatures too."""
        return check_receipts(self.export_receipts(), public_key=public_key)
