"""Requests to a model that lives in a store: recorded with their randomness, then done, each exactly once.

First the request, the key of its randomness, its day and the version of the state are committed. Then everything
that it changes, its receipt and the end of its record are committed together. Whatever happens between the two, the
file has all that is needed to do the same again; and nothing is acknowledged before the log is empty.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from expunge.base.errors import BusyStore, CorruptStore, ExpungeError, LogNotEmptied, StoreError
from expunge.base.intake import Request
from expunge.base.types import Array
from expunge.engine.changing import Change, decide_on, propose
from expunge.engine.learner import Learner, Transcript
from expunge.engine.outcome import Outcome
from expunge.engine.owner import Owner
from expunge.engine.randomness import Randomness
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.schedules import Edit
from expunge.engine.selectors import Running
from expunge.engine.verifying import Verification, verify
from expunge.store import failpoints
from expunge.store.file import StoreFile
from expunge.store.keys import Signer
from expunge.store.parameters import read_vector, solved, write_vector
from expunge.store.receipts import Receipt, check_signer
from expunge.store.records import StoredRecords
from expunge.store.saving import index_anew, save_anew
from expunge.store.session import DONE, NOTHING_DONE, Session, Turns, Words
from expunge.store.sqlite import WAIT
from expunge.store.state import (
    DESCRIPTION,
    OFF_GRID,
    STATE,
    Pending,
    State,
    check_fits,
    finish_request,
    learner_of,
    plan_digest,
    read_description,
    read_pending,
    read_receipt,
    read_state,
    signs,
    stored_transcript,
    today,
)
from expunge.store.surroundings import beside

_WORDS = Words(
    "store",
    closed="this model was closed; open it again.",
    forked="this model was opened by another process; open it in this one.",
)


class StoredOwner(Owner):
    """Owns a store, and changes it by whole requests only; safe to share between threads, and with other processes."""

    path: Path

    def __init__(
        self,
        path: Path,
        *,
        strangers: Mapping[str, Any] | None = None,
        read_only: bool = False,
        wait: float = WAIT,
        signer: Signer | Literal[False] | None = None,
    ) -> None:
        self.path, self.read_only = path, read_only
        self._strangers = dict(strangers or {})
        self.begun, self.seeded = None, False
        self._asked: weakref.WeakKeyDictionary[Request, tuple[str, int]] = weakref.WeakKeyDictionary()
        self.session = Session(path, _WORDS, wait=wait, signer=signer, read_only=read_only, looks=True)
        self.lock: Any = Turns(self.session, weakref.WeakMethod(self.refresh))
        if not read_only:
            self.session.load_key()
        self._state: State
        self._written: str | None = None  # that state, as it stands in the file
        self.off_grid = False
        """Whether it is from before there was a grid, and has to be made again; as of `state`."""
        self._seen: int | None = None
        self._shown: str | None = None  # the state that is published
        self._text: str | None = None  # the description that was read
        with self.session.looking:
            self._look(lambda: None)

    def __getstate__(self) -> NoReturn:
        raise StoreError(
            f"{self.path}: a model in a store can be neither pickled nor copied; make another file of it with save(), "
            "or open it again."
        )

    def why_no_seed(self, fixed: bool) -> str:
        """Say why no request can have a seed of the user's."""
        return "this model is stored in a file, and draws all its randomness from the operating system"

    # --- the newest state ---

    @property
    def plan(self) -> Any:
        """The plan, in the state that is published."""
        return self.description.plan

    def look(self, publish: Callable[[], None]) -> None:
        """Publish the newest state, if another process has written one; requests under way do not hold this up."""
        session = self.session
        session.check_open()
        with session.looking:
            if session.is_open and session.reader.changes != self._seen:
                self._look(publish)

    def _look(self, publish: Callable[[], None]) -> None:
        """Read the newest state, and publish it if it is new; if this is interrupted, the next look does it again."""
        reader = self.session.reader
        changes = reader.changes
        with reader.reading():
            now = reader.text("about", STATE)
            new = now is None or now != self._shown
            if new:
                state = read_state(reader)
                self.session.check_key(state)
                self._count = state.inventory.count
                text = reader.text("about", DESCRIPTION)
                if self._text is None or text != self._text:
                    self.description = read_description(reader, self._strangers)
                self._text, self._vector = text, None if self.solves_late else read_vector(reader)
        if new:
            publish()
        self._shown, self._seen = now, changes

    def refresh(self) -> None:
        """Make ready for a request: read what others have changed, or what was rolled back."""
        session, file = self.session, self.session.file
        changes = file.changes
        if not session.stale and changes == session.known:
            return
        with file.reading():
            state, written = read_state(file), file.text("about", STATE)
            if session.stale or state != self._state:
                session.stale = True  # until all of it is read
                plan = read_description(file, self._strangers).plan
                self._plan, self.learner = plan_digest(plan), learner_of(file, plan)
                self._stored = StoredRecords(file, state.inventory, self.learner.schedule)
                self._tables = stored_transcript(file, self.learner, self._stored)
                self._running = Running(self.learner.selector) if self.learner.schedule.ordered else None
                self.off_grid = not self._tables.on_grid(self.learner)
        self._state, self._written, session.known = state, written, changes
        session.stale = False

    @property
    def state(self) -> State:
        """The state as it was last read."""
        self._need_state()
        return self._state

    def _need_state(self) -> None:
        if self.session.stale:
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
        with self.session.reading() as reader:  # so that nobody who writes can hold the answer up
            waiting = read_pending(reader)
            return (waiting is not None and waiting.number == asked[0]) or read_receipt(reader, *asked) is not None

    def asked(self, request: Request) -> tuple[str, int] | None:
        """Return the number of a request that this process has recorded, and the position of its receipt."""
        return self._asked.get(request)

    def receipt(self, number: str, position: int) -> Receipt | None:
        """Return the receipt of a request, which has this position if it is done; no other is read."""
        with self.session.reading() as reader:
            return read_receipt(reader, number, position)

    def serve(self, request: Request, randomness: Randomness, publish: Callable[[], None]) -> Outcome:
        """Serve a request; it is durable when this returns."""
        if self.read_only:
            self.session.refuse_read_only()
        with self.lock:
            try:
                self._catch_up(publish)
                before, file = self.state, self.session.file
                self._check_ready(before)
                edit = propose(self.learner, self._stored, request, randomness)
                if self.learner.structure is not None:
                    self._tables.found(self.learner.structure)
                check_fits(file, request)  # until here a request can be refused
                day = today()
                pending = Pending(request, uuid.uuid4().hex, before.version, randomness.key, day)
                self._record(pending)
            except ExpungeError as error:
                error.refused = True
                if isinstance(error, StoreError):
                    error.add(NOTHING_DONE)
                raise
            return self._complete(pending, before, edit, randomness, publish)

    def check_ready(self) -> None:
        """Raise if a request would be refused now, whatever it asks for."""
        self.session.refuse_read_only()
        with self.lock:
            self._check_ready(self.state)

    def _check_ready(self, state: State) -> None:
        """Raise if there was no grid yet, so that coins would read digits, or if a signature would be missing."""
        if self.off_grid:
            raise StoreError(f"{self.path}: {OFF_GRID} Requests can be served after that.")
        check_signer(self.session.given_signer, signs(self.session.file, state))

    def check_unchanged(self) -> None:
        """Raise if another process has written since the state was read; to be asked when nobody else can write."""
        with self.session.looking, self.session.reader.reading():
            self._check_unchanged(self.session.reader, None)

    def _check_unchanged(self, file: StoreFile, waiting: str | None) -> None:
        found = read_pending(file)
        if read_state(file) != self._state or (None if found is None else found.number) != waiting:
            raise BusyStore(
                f"{self.path}: another process is writing, although this one has the lock. Did somebody remove "
                f"{beside(self.path, '-lock')}? Try again."
            )

    def _record(self, pending: Pending) -> None:
        """Make a request durable, with the key of its randomness."""
        self._asked[pending.request] = pending.number, self.state.receipts + 1
        failpoints.pass_point("request: recording")
        self.session.record(pending.to_bytes(), lambda: self._check_unchanged(self.file, None))
        failpoints.pass_point("request: recorded")

    def _waiting(self) -> Pending | None:
        return read_pending(self.session.file)

    def catch_up(self, publish: Callable[[], None]) -> None:
        """Finish what was recorded and interrupted, with the randomness that was recorded with it."""
        with self.lock:
            self._catch_up(publish)

    def _catch_up(self, publish: Callable[[], None]) -> None:
        if self._shown != self._written:
            self.look(publish)
        waiting = None if self.read_only else self._waiting()
        if waiting is not None:
            before = self.state
            if waiting.version != before.version:
                raise CorruptStore(f"{self.path}: pending, row 0 is of another state; restore a backup.")
            if self.off_grid:
                raise StoreError(
                    f"{self.path}: an earlier version of Expunge recorded a request here and did not finish it. "
                    "Open the file once with that version."
                )
            with Randomness(waiting.key) as randomness, suppress(LogNotEmptied):  # this is said below
                edit = self._proposed(waiting, randomness)
                self._complete(waiting, before, edit, randomness, publish)
        if self.session.logged:
            self.session.empty_log()

    def _proposed(self, waiting: Pending, randomness: Randomness) -> Edit:
        """Return the edit of a request that waits; it was possible, unless another process has just done it."""
        try:
            return propose(self.learner, self.records, waiting.request, randomness)
        except ExpungeError:
            self._check_unchanged(self.file, waiting.number)
            raise

    def _complete(
        self, pending: Pending, before: State, edit: Edit, randomness: Randomness, publish: Callable[[], None]
    ) -> Outcome:
        """Do a request that is recorded. If this fails, all of it is undone, and done again later."""
        session = self.session
        session.logged = True
        try:
            with session.transaction(  # not synced: what is recorded is durable, and all of this follows
                lambda: self._check_unchanged(self.file, pending.number), synced=False
            ):
                change = decide_on(self.learner, self._stored, self._tables, edit, randomness)
                failpoints.pass_point("request: decided")
                vector = self._commit(change)
                state, written = self._acknowledge(before, pending, change.outcome)
                failpoints.pass_point("request: written")
        except StoreError as error:
            error.add(session.words.recorded)
            raise
        self._state, self._written = state, written
        session.stale = False
        failpoints.pass_point("request: committed")
        try:
            self._show(state, change.moved, vector, publish)
        except StoreError as error:
            error.add(DONE)
            raise
        finally:
            session.tidy(change.outcome)
        session.check_still_there()
        failpoints.pass_point("request: done")
        return change.outcome

    def _show(self, state: State, moved: bool, vector: Array | None, publish: Callable[[], None]) -> None:
        """Publish what this process has just committed, if the model is another."""
        with self.session.looking:
            self._count = state.inventory.count
            if moved:
                self._vector = vector
                publish()
            self._shown, self._seen = self._written, None  # so that the next look compares

    def _commit(self, change: Change) -> Array | None:
        """Write what a change changes; return the new model, if it is another now and not solved late."""
        if self._running is not None:
            self._running.cut(change.first + 1)
        change.commit()
        if not change.moved or self.solves_late:
            return None
        model = self._tables.model(self.learner) if self._running is None else self._running.model(self._tables.path)
        write_vector(self.file, model)
        return model

    def _acknowledge(self, before: State, pending: Pending, outcome: Outcome) -> tuple[State, str]:
        """Write the receipt and the new state, and that no request waits; return the state, and its text."""
        request = pending.request
        state = self.session.acknowledge(
            before,
            request=pending.number,
            kind=request.kind,
            named_by=request.named_by,
            names=request.names,
            removed=outcome.removed,
            added=outcome.added,
            day=pending.day,
            plan=self._plan,
        )
        state = replace(state, inventory=self._stored.inventory)
        return state, finish_request(self.session.file, state, self.session.signer)

    def rewrite(
        self, describe: Callable[[], Any], learner: Learner, records: MemoryRecords, transcript: Transcript,
        seeded: bool,
    ) -> StoredOwner:  # fmt: skip
        """Put a fresh fit in the place of everything, at once."""
        description = describe()
        self._strangers |= description.plan.strangers
        self.session.refuse_read_only()
        with self.lock:
            before, session, file = self.state, self.session, self.file
            session.logged = True
            with session.transaction(lambda: self._check_unchanged(file, None)):
                save_anew(file, before, description, records, transcript)
            self.refresh()
            session.tidy(None)
        self.late = ()
        return self

    def reindex(self) -> None:
        """Write the indexes again, for the number of records that there are."""
        with self.lock:
            before, self.session.logged = self.state, True
            with self.session.transaction(lambda: self._check_unchanged(self.file, None)):
                index_anew(self.file, before, self._stored)
            self.refresh()

    # --- looking ---

    def model(self) -> Array:
        """Return the model that the learner's selector made of the iterates, or solve for it."""
        with self.session.looking:
            if self._vector is None:
                self._vector = solved(self.session.reader, self.description, self._text, self._strangers)
            return self._vector

    @property
    def solving(self) -> AbstractContextManager[Any]:
        """What keeps this process from looking for a newer state while the model is solved."""
        return self.session.looking

    @property
    def solver(self) -> Learner:
        """The learner that the model is solved by when it is read: requests have one of their own."""
        return self.description.plan.learner

    def verify(self, publish: Callable[[], None], tolerance: float) -> Verification:
        """Read every byte of the file, and re-derive what can be."""
        with self.lock:
            self.catch_up(publish)
            return self.session.verify(self.state.inventory.count, lambda: self._derived_again(tolerance))

    def _derived_again(self, tolerance: float) -> Verification:
        self.refresh()
        return verify(self.learner, self.records, self.transcript, tolerance=tolerance)

    def newest(self) -> State:
        """Return the newest state; requests under way do not hold this up."""
        with self.session.reading() as reader:
            return read_state(reader)

    def receipts(self) -> tuple[State, list[Receipt]]:
        """Return the state and its receipts; requests under way do not hold this up."""
        with self.session.reading() as reader:
            return read_state(reader), self.session.receipts()

    def export(self, ids: Any = None, subjects: Any = None) -> dict[str, Any]:
        """Return all receipts, as can be written to JSON and filed; or those that name certain people."""
        return self.session.export(*self.receipts(), ids=ids, subjects=subjects)

    def array(self, number: int) -> bytes:
        """Return an array that never changes."""
        with self.session.looking:
            return bytes(self.session.reader.need("arrays", number))

    @property
    def file(self) -> StoreFile:
        """The file, for those who hold the lock."""
        return self.session.file

    def close(self) -> None:
        """Close the file, once no other thread is using it."""
        self.session.close()
