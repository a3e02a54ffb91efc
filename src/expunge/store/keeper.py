"""Requests to a model that lives in a store: recorded with their randomness, then done, each exactly once.

First the request, the key of its randomness, its day and the version of the state are committed. Then everything
that it changes, its receipt and the end of its record are committed together. Whatever happens between the two, the
file has all that is needed to do the same again; and nothing is acknowledged before the log is empty.
"""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any, Literal, NoReturn

from expunge.edits import Edit
from expunge.engine import Change, Outcome, Verification, decide_on, propose, verify
from expunge.errors import BusyStore, CorruptStore, ExpungeError, LogNotEmptied, ReadOnlyStore, StoreError
from expunge.index import hashes
from expunge.intake import as_ids
from expunge.keeper import Keeper
from expunge.learner import Transcript
from expunge.memory import MemoryRecords
from expunge.randomness import Randomness
from expunge.records import Insert, Request
from expunge.selectors import Running
from expunge.store import failpoints
from expunge.store.file import WAIT, StoreFile, WriterLock, as_wait, beside
from expunge.store.keys import Signer, load_key
from expunge.store.receipts import Receipt, check_signer, digest_names
from expunge.store.records import StoredRecords, index_records, store_records
from expunge.store.saving import remove
from expunge.store.state import (
    DESCRIPTION,
    KNOWN,
    STATE,
    Description,
    Pending,
    State,
    advanced,
    check_key,
    next_receipt,
    plan_digest,
    read_description,
    read_pending,
    read_state,
    read_vector,
    store_transcript,
    stored_transcript,
    today,
    write_state,
    write_vector,
)
from expunge.types import Array

OFF_GRID = (
    "this model was saved by an earlier version, whose answers are not on a grid: their last digits can tell of "
    "records that were deleted. Make it anew, from its own records, with replan() (at the prompt: expunge replan)."
)
_DONE = "But what was asked is done and durable: do not repeat it."


class _Exclusive:
    """A lock between threads and between processes; who gets it sees the newest state."""

    def __init__(self, keeper: DurableKeeper) -> None:
        self._keeper = weakref.proxy(keeper)
        self.threads = threading.RLock()
        self.file = WriterLock(keeper.path, keeper.wait)
        self._depth = 0

    def __enter__(self) -> None:
        self.threads.acquire()
        try:
            if self._depth == 0:
                self._keeper.check_open()
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
            if not self._keeper.read_only:
                raise
        try:
            self._keeper.refresh()
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


class DurableKeeper(Keeper):
    """Owns a store, and changes it by whole requests only; safe to share between threads, and with other processes."""

    def __init__(
        self,
        path: Path,
        *,
        loss: Any = None,
        read_only: bool = False,
        wait: float = WAIT,
        signer: Signer | Literal[False] | None = None,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.wait = wait = as_wait(wait)
        self.signer = signer or None
        self._given_signer = signer
        self._strangers = {} if loss is None else {type(loss).__name__: loss}
        self._process = os.getpid()
        self.begun, self.seeded = None, False
        self._asked: weakref.WeakKeyDictionary[Request, tuple[str, int]] = weakref.WeakKeyDictionary()
        self._file = StoreFile(path, read_only=read_only, wait=wait)
        self._reader = StoreFile(path, read_only=True, wait=wait)
        self.lock: Any = _Exclusive(self)
        self._finalizer = weakref.finalize(  # who can write is closed after who reads, and tidies up
            self, _close, self._process, self._reader, self._file, self.lock.file
        )
        self._looking = threading.RLock()
        self._key = b"" if read_only else load_key(beside(path, "-key"))
        self._state: State | None = None
        self.off_grid = False
        """Whether it is from before there was a grid, and has to be made anew; as of `state`."""
        self._known: int | None = None
        self._seen: int | None = None
        self._shown: str | None = None  # the state that is published
        self._text: str | None = None  # the description that was read
        self._log = not read_only
        with self._looking:
            self._look(lambda: None)

    def __getstate__(self) -> NoReturn:
        raise StoreError(
            f"{self.path}: a model in a store can be neither pickled nor copied; make another file of it with save(), "
            "or open it again."
        )

    # --- the newest state ---

    def check_open(self) -> None:
        """Raise if the store was closed, belongs to another process, or is no longer there."""
        if not self._finalizer.alive:
            raise StoreError(f"{self.path}: this model was closed; open it again.")
        if os.getpid() != self._process:
            raise StoreError(f"{self.path}: this model was opened by another process; open it in this one.")
        self._file.check_place()

    def look(self, publish: Callable[[], None]) -> None:
        """Publish the newest state, if another process has written one; requests under way do not hold this up."""
        self.check_open()
        with self._looking:
            if self._finalizer.alive and self._reader.changes != self._seen:
                self._look(publish)

    def _look(self, publish: Callable[[], None]) -> None:
        """Read the newest state, and publish it if it is new; if this is interrupted, the next look does it again."""
        changes = self._reader.changes
        with self._reader.reading():
            now = self._reader.text("about", STATE)
            new = now is None or now != self._shown
            if new:
                state = read_state(self._reader)
                check_key(beside(self.path, "-key"), self._key, state)
                self._count = state.inventory.count
                text = self._reader.text("about", DESCRIPTION)
                if self._text is None or text != self._text:
                    self.description = read_description(self._reader, self._strangers)
                self._text, self._vector = text, read_vector(self._reader)
        if new:
            publish()
        self._shown, self._seen = now, changes

    def refresh(self) -> None:
        """Make ready for a request: read what others have changed, or what was rolled back."""
        changes = self._file.changes
        if self._state is not None and changes == self._known:
            return
        with self._file.reading():
            state = read_state(self._file)
            if self._state is None or state != self._state:
                plan = read_description(self._file, self._strangers).plan
                self._plan, self.learner = plan_digest(plan), plan.learner
                self._stored = StoredRecords(self._file, state.inventory, self.learner.schedule)
                self._tables = stored_transcript(self._file, self.learner, self._stored)
                self._running = Running(self.learner.selector) if self.learner.schedule.ordered else None
                self.off_grid = not self._tables.on_grid(self.learner)
        self._state, self._known = state, changes

    @property
    def state(self) -> State:
        """The state as it was last read."""
        self._need_state()
        assert self._state is not None
        return self._state

    def _need_state(self) -> None:
        if self._state is None:
            with self.lock:  # whoever gets it has the newest
                self.refresh()

    @property
    def records(self) -> MemoryRecords:  # type: ignore[override]
        """The records, as of `state`."""
        self._need_state()
        return self._stored

    @property
    def transcript(self) -> Transcript:  # type: ignore[override]
        """What is kept beside them."""
        self._need_state()
        return self._tables

    @property
    def count(self) -> int:
        """How many records there are, in the state that is published."""
        return self._count

    # --- requests ---

    def has_begun(self, request: Request) -> bool:
        """Say whether this very request was recorded: then it is done, or will be finished by whatever comes next."""
        asked = self._asked.get(request)
        if asked is None:
            return False
        number, position = asked
        self.check_open()
        with self._looking, self._reader.reading():  # so that nobody who writes can hold the answer up
            waiting = read_pending(self._reader)
            if waiting is not None and waiting.number == number:
                return True
            receipt = self._reader.text("receipts", position)
            return receipt is not None and Receipt.from_json(receipt).request == number

    def serve(self, request: Request, randomness: Randomness, publish: Callable[[], None]) -> Outcome:
        """Serve a request; it is durable when this returns."""
        self.refuse_read_only()
        with self.lock:
            try:
                self.catch_up(publish)
                self._refuse_off_grid()
                self._check_signer()
                edit = propose(self.learner, self.records, request, randomness)  # until here a request can be refused
                pending = Pending(request, uuid.uuid4().hex, self.state.version, randomness.key, today())
                self._record(pending)
            except ExpungeError as error:
                error.refused = True
                if isinstance(error, StoreError):
                    error.add("Of what was asked now, nothing was done.")
                raise
            return self._complete(pending, edit, randomness, publish)

    def refuse_read_only(self) -> None:
        """Raise if the model can only be looked at."""
        if self.read_only:
            error = ReadOnlyStore(f"{self.path}: opened with read_only; open it without, to change the model.")
            error.refused = True
            raise error

    def _refuse_off_grid(self) -> None:
        """Raise if the model is from before there was a grid: coins would read digits that are not noise."""
        if self.off_grid:
            raise StoreError(f"{self.path}: {OFF_GRID} Requests can be served after that.")

    def _check_signer(self) -> None:
        """Raise if the receipt would be unsigned by mistake: the first or the last that there is, is signed."""
        texts = [self._file.text("receipts", number) for number in (1, self.state.receipts)]
        check_signer(self._given_signer, [Receipt.from_json(text).signature for text in texts if text is not None])

    def _record(self, pending: Pending) -> None:
        """Make a request durable, with the key of its randomness."""
        self._asked[pending.request] = pending.number, self.state.receipts + 1
        failpoints.reach("request: recording")
        self._log = True
        try:
            with self._file.transaction():
                self._file.put("pending", 0, pending.to_bytes())
        except BusyStore:
            raise
        except StoreError:
            with suppress(StoreError):
                self.empty_log()  # a part of it may be there
            raise
        failpoints.reach("request: recorded")

    def _waiting(self) -> Pending | None:
        return read_pending(self._file)

    def catch_up(self, publish: Callable[[], None]) -> None:
        """Finish what was recorded and interrupted, with the randomness that was recorded with it."""
        with self.lock:
            self.look(publish)
            waiting = None if self.read_only else self._waiting()
            if waiting is not None:
                if waiting.version != self.state.version:
                    raise CorruptStore(f"{self.path}: pending, row 0 is of another state; restore a backup.")
                if self.off_grid:
                    raise StoreError(
                        f"{self.path}: an earlier version of Expunge has recorded a request here and not finished it. "
                        "Open the file once with that version."
                    )
                with Randomness(waiting.key) as randomness, suppress(LogNotEmptied):  # this is said below
                    edit = propose(self.learner, self.records, waiting.request, randomness)
                    self._complete(waiting, edit, randomness, publish)
            if self._log:
                self.empty_log()

    def _complete(self, pending: Pending, edit: Edit, randomness: Randomness, publish: Callable[[], None]) -> Outcome:
        """Do a request that is recorded. If this fails, all of it is undone, and done again later."""
        before = self.state
        self._log = True
        try:
            self._file.begin()
            self._state = None  # until all is done, whenever it is interrupted: then it is read anew
            change = decide_on(self.learner, self._stored, self._tables, edit, randomness)
            failpoints.reach("request: decided")
            vector = self._commit(change)
            state = self._acknowledge(before, pending, change.outcome)
            self._file.drop("pending", 0)
            failpoints.reach("request: written")
            self._file.commit()
        except BaseException as error:
            with suppress(StoreError):
                self._file.rollback()
            if isinstance(error, StoreError):
                error.add("A request is recorded; the next to use the store finishes it, so do not repeat it.")
            raise
        self._state = state
        failpoints.reach("request: committed")
        try:
            self._show(state, vector, publish)
        except StoreError as error:
            error.add(_DONE)
            raise
        finally:
            self._erase(change.outcome)
        failpoints.reach("request: done")
        return change.outcome

    def _show(self, state: State, vector: Array | None, publish: Callable[[], None]) -> None:
        """Publish what this process has just committed."""
        with self._looking:
            self._count = state.inventory.count
            if vector is not None:
                self._vector = vector
                publish()
            self._shown, self._seen = self._file.text("about", STATE), self._reader.changes

    def _commit(self, change: Change) -> Array | None:
        """Write what a change changes; return the new model, if the path is another now."""
        moved = change.staged is not None or change.steps != self._tables.steps
        first = change.steps if change.staged is None else change.staged.first
        if self._running is not None:
            self._running.cut(min(first, change.steps) + 1)
        change.commit()
        if not moved:
            return None
        model = self._tables.model(self.learner) if self._running is None else self._running.model(self._tables.path)
        write_vector(self._file, model)
        return model

    def _acknowledge(self, before: State, pending: Pending, outcome: Outcome) -> State:
        """Write the receipt and the new state."""
        request = pending.request
        named_by, names = None, None
        if not isinstance(request, Insert):
            named_by = "subjects" if request.ids is None else "ids"
            names = as_ids(named_by, request.subjects if request.ids is None else request.ids)
        receipt = next_receipt(
            before,
            request=pending.number,
            kind=type(request).__name__.lower(),  # type: ignore[arg-type]
            named_by=named_by,  # type: ignore[arg-type]
            digests=() if names is None else digest_names(self._key, named_by, names),  # type: ignore[arg-type]
            removed=outcome.removed,
            added=outcome.added,
            day=pending.day,
            plan=self._plan,
            signer=self.signer,
        )
        state = advanced(before, self._stored.inventory, receipt.hash)
        self._file.put_text("receipts", state.receipts, receipt.to_json())
        write_state(self._file, state)
        return state

    def empty_log(self) -> None:
        """Leave nothing in the log, nor in what a process that died was writing."""
        remove(beside(self.path, "-new"))
        rmtree(beside(self.path, "-spool"), ignore_errors=True)
        self._file.truncate_log()
        self._log = False

    def _erase(self, outcome: Outcome | None) -> None:
        """Empty the log after something that is done."""
        try:
            self.empty_log()
        except StoreError as error:
            raise LogNotEmptied(f"{error} {_DONE}", outcome) from error

    def rewrite(self, description: Description, records: MemoryRecords, transcript: Transcript, model: Array) -> None:
        """Put a fresh fit in the place of everything, at once."""
        self.refuse_read_only()
        with self.lock:
            before, self._state, self._log = self.state, None, True
            with self._file.transaction():
                self._file.put_text("about", DESCRIPTION, KNOWN.write(description))
                self._file.drop("blocks", 0)
                inventory = store_records(self._file, records)
                for table in ("sums", "answers", "iterates"):
                    self._file.drop(table, 0)
                store_transcript(self._file, transcript)
                write_vector(self._file, model)
                write_state(self._file, advanced(before, inventory))
            self.refresh()
            self._erase(None)

    def reindex(self) -> None:
        """Write the indexes anew, for the number of records that there are."""
        with self.lock:
            before, records, names = self.state, self._stored, self._stored.subjects
            ids, subjects = [hashes(records.all_ids())], None if names is None else [hashes(names)]
            self._state, self._log = None, True
            with self._file.transaction():
                buckets = index_records(self._file, ids, subjects, records.shelves.lengths)
                inventory = replace(before.inventory, buckets=buckets[0], subject_buckets=buckets[1])
                write_state(self._file, replace(before, inventory=inventory))
            self.refresh()

    # --- looking ---

    def model(self) -> Array:
        """Return the model that the learner's selector made of the iterates."""
        return self._vector

    def verify(self, publish: Callable[[], None], tolerance: float) -> Verification:
        """Read every byte of the file, and re-derive what can be."""
        with self.lock:
            self.catch_up(publish)
            if problems := self._file.damage():
                return Verification(tuple(problems), None, 0, self.state.inventory.count)
            self._state = None
            self.refresh()
            return verify(self.learner, self.records, self.transcript, tolerance=tolerance)

    def receipts(self) -> tuple[State, list[Receipt]]:
        """Return the state and its receipts; requests under way do not hold this up."""
        self.check_open()
        with self._looking, self._reader.reading():
            return read_state(self._reader), [Receipt.from_json(text) for text in self._reader.texts("receipts")]

    def array(self, number: int) -> bytes:
        """Return an array that never changes."""
        with self._looking:
            return bytes(self._reader.need("arrays", number))

    @property
    def file(self) -> StoreFile:
        """The file, for those who hold the lock."""
        return self._file

    @property
    def key(self) -> bytes:
        """What names are digested with."""
        return self._key or load_key(beside(self.path, "-key"))

    def close(self) -> None:
        """Close the file, once no other thread is using it."""
        if os.getpid() == self._process:
            with self.lock.threads, self._looking:
                self._finalizer()


def _close(process: int, *files: StoreFile | WriterLock) -> None:
    if os.getpid() == process:  # the files of a process that was forked are its parent's
        for file in files:
            file.close()
