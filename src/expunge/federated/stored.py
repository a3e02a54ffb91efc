"""A federation that lives in a file: every answer, round and request is durable, and each is done exactly once.

Answers are durable when `receive` returns. The key of a round's noise is drawn when all answers are there, and recorded
before it is used, as is that of a request; what follows from it is written in one transaction, with which the key goes.
So whatever happens, the file has all that is needed to go on as if nothing had; and between rounds it has no key.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np

from expunge.base.errors import (
    BadRecords,
    BusyStore,
    CorruptStore,
    LogNotEmptied,
    NotAStore,
    StoreError,
    UnknownId,
)
from expunge.base.types import Array
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import KEY_BYTES
from expunge.engine.verifying import Verification
from expunge.federated.clients import SLOTS, Client
from expunge.federated.federation import Federation, Pending, Received, Task, as_names
from expunge.federated.sealing import Seal, SealedContributions, as_seal_key
from expunge.store import failpoints
from expunge.store.chain import find
from expunge.store.codec import UNREADABLE
from expunge.store.copies import rewrite, write_copy
from expunge.store.file import StoreFile
from expunge.store.keys import as_signer, fingerprint
from expunge.store.receipts import BYTES_A_NAME, check_signer
from expunge.store.rows import StoredRows, as_numbers
from expunge.store.saving import as_path, check_new
from expunge.store.session import NOTHING_DONE, REQUEST, Filed, Session, Words
from expunge.store.sqlite import WAIT
from expunge.store.state import (
    ABOUT_A_REQUEST,
    as_day,
    as_key,
    plan_digest,
    read_federation,
    signatures,
    today,
    write_state,
)

START = 2
"""The number of the array that holds the first model."""
OLD_SEED, ROUND = 1, 2
"""Numbers of other pending items than requests. The first is the next round's seed, which earlier versions kept."""
_CLOSED = "this federation was closed, or opened by another process; open it again."
_WORDS = Words("federation", closed=_CLOSED, forked=_CLOSED)
_TAKEN = (
    "this federation is open already, here or in another process. (An earlier run of Flower may still be active: flwr "
    "list, and flwr stop.)"
)
_NOT_ALONE = (
    "another process is writing, although this one has the lock. Did somebody remove the lock file? Close the "
    "federation, and open it again."
)
_NO_KEY = "take it from a backup. It is the key that receipts name clients with"


class StoredFederation(Filed, Federation):
    """A federation in a file, which one process at a time can have open. Make one with `create`, then `open` it."""

    def __init__(self, path: Path, *, seal: Any, wait: float, sign_with: Any) -> None:
        self.path = path
        self._session = Session(path, _WORDS, wait=wait, signer=as_signer(sign_with))
        self.lock = self._session.threads
        try:
            self._session.keep_lock(_TAKEN)
            self._unseal(seal)
            self._drop_old_seed()
            self._catch_up()
        except BaseException:
            self.close()
            raise

    def _unseal(self, seal: Any) -> None:
        """Check the keys."""
        _, state = read_federation(self._file)
        self._session.load_key(_NO_KEY)
        self._session.check_key(state)
        key = as_seal_key(seal, self.path, new=False)
        if fingerprint(key) != state.seal:
            raise StoreError(f"{self.path}: seal: this is the key of another federation; give the right one.")
        self._seal = Seal(key, state.store)

    def _drop_old_seed(self) -> None:
        """Forget the seed of the next round, which earlier versions kept: nobody has used it."""
        if self._file.get("pending", OLD_SEED) is not None:
            with self._file.transaction():
                self._file.drop("pending", OLD_SEED, OLD_SEED + 1)

    def _load(self) -> None:
        """Read everything from the file."""
        self._session.stale = True
        try:
            with self._file.reading():
                self._read()
                self._session.known = self._file.changes
        except UNREADABLE as error:
            raise CorruptStore(f"{self.path}: this is not a valid federation ({error}); restore a backup.") from error
        self._session.stale = False

    def _read(self) -> None:
        file = self._file
        plan, self._state = read_federation(file)
        self._plan_digest = plan_digest(plan)
        numbers = as_numbers(file, "arrays", START, file.need("arrays", START), "<f8")
        start, size = numbers.astype(np.float64), plan.parameters + 1
        sums = StoredRows(file, "sums", size)
        answers = sums if plan.sigma == 0.0 else StoredRows(file, "answers", size, sums.shape[0])
        iterates = StoredRows(file, "iterates", plan.parameters, sums.shape[0])
        if start.shape != (plan.parameters,) or sums.shape[0] > plan.rounds:
            raise CorruptStore(f"{self.path}: its rounds or numbers differ from its plan; restore a backup.")
        self._take(plan, start, SealedContributions(file, self._seal, size), sums, answers, iterates)
        if not self.transcript.on_grid(self.learner):
            raise StoreError(
                f"{self.path}: this federation was made by an earlier version, whose answers are not on a grid: their "
                "last digits can reveal clients that have left. Start a new one with its clients; its model can be "
                "read with expunge.federated.load."
            )
        for slot, content in file.all("ids"):
            client, member = _client_from(slot, bytes(content))
            if client.name in self.clients.members or client.name in self.clients.candidates:
                raise CorruptStore(f"{self.path}: ids, row {slot}: another client has this name; restore a backup.")
            (self.clients.members if member else self.clients.candidates)[client.name] = client
        begun, request = file.get("pending", ROUND), file.get("pending", REQUEST)
        if begun is not None and len(begun) != KEY_BYTES:
            raise CorruptStore(f"{self.path}: pending, row {ROUND} is not a key; restore a backup.")
        self._round_key = None if begun is None else bytes(begun)
        self._pending = None if request is None else _pending_from(bytes(request))

    def close(self) -> None:
        """Close the file; another process may open it then."""
        self._session.close()

    @property
    def _file(self) -> StoreFile:
        return self._session.file

    # --- what is done, durably ---

    def _catch_up(self) -> None:
        session = self._session
        session.check_open()
        if session.stale:
            self._load()
        with suppress(LogNotEmptied):  # this is said below
            super()._catch_up()
        if session.logged:
            session.empty_log()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._as_it_was(), self._session.transaction(self._refuse_others):
            yield
        self._session.stale = False

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """Read everything again if something is not done."""
        try:
            yield
        except BaseException:
            with suppress(StoreError):  # then the next call does it
                self._load()
            raise

    def _refuse_others(self) -> NoReturn:
        raise BusyStore(f"{self.path}: {_NOT_ALONE}")

    def _check_alone(self) -> None:
        """Raise if another process has written since all was read: somebody may have removed the lock's file."""
        if self._file.changes != self._session.known:
            self._refuse_others()

    def _check_unchanged(self) -> None:
        """Do so while the file is being replaced, and nobody else can write."""
        reader = StoreFile(self.path, read_only=True)
        try:
            if read_federation(reader)[1] != self._state or not self._session.lock.is_in_place():
                self._refuse_others()
        finally:
            reader.close()

    def receive(self, answers: Sequence[tuple[Task, Array]]) -> Received:
        """Take what clients answer; it is durable when this returns."""
        received = super().receive(answers)
        failpoints.pass_point("federation: answered")
        return received

    def advance(self) -> int:
        """Make the next round; it is durable when this returns."""
        with self.lock:
            took_part = super().advance()
            failpoints.pass_point("federation: round made")
            self._session.tidy(took_part)
            return took_part

    def _begin_round(self, key: bytes) -> None:
        begin = super()._begin_round
        with self._as_it_was():
            self._session.record(key, self._refuse_others, lambda: begin(key), row=ROUND)
        failpoints.pass_point("federation: round recorded")

    def _make_round(self) -> int:
        self._session.logged = True
        return super()._make_round()

    def _end_round(self) -> None:
        super()._end_round()
        self._file.drop("pending", ROUND, ROUND + 1)
        failpoints.pass_point("federation: round written")

    def _enter(self, client: Client) -> None:
        super()._enter(client)
        self._file.put("ids", client.slot, client_bytes(client, False))

    def _withdraw(self, name: str) -> None:
        client = self.clients.candidates.get(name)
        if client is not None:
            self._file.drop("ids", client.slot, client.slot + 1)
        super()._withdraw(name)

    def _record(self, pending: Pending) -> None:
        check_signer(self._session.given_signer, signatures(self._file, self._state))
        self._check_readable(pending.names)
        said = {"kind": pending.kind, "names": pending.names, "key": pending.key.hex(), "day": pending.day}
        content, room = json.dumps(said).encode(), self._file.longest - ABOUT_A_REQUEST
        if (size := max(len(content), len(pending.names) * BYTES_A_NAME)) > room:  # it could not be finished
            raise BadRecords(
                f"{len(pending.names):,} clients at once: a file has room for {len(pending.names) * room // size:,} in "
                "one request. Make several requests."
            )
        try:
            with self._as_it_was():
                self._session.record(content, self._refuse_others, lambda: self._note(pending))
        except StoreError as error:
            error.add(NOTHING_DONE)
            raise
        failpoints.pass_point("federation: recorded")

    def _note(self, pending: Pending) -> None:
        self._pending = pending

    def _check_readable(self, names: Sequence[str]) -> None:
        """Raise if what is held of some clients is damaged: what is recorded must be possible."""
        clients = self.clients
        for name in names:
            client = clients.members.get(name) or clients.candidates[name]
            steps = clients.rounds_of(client, range(self.made))
            if name in clients.candidates:
                steps = [step for step in steps if clients.held.has(client.slot, step)]
            if steps:
                clients.held.history(client.slot, steps)

    def _complete(self, pending: Pending) -> Outcome:
        self._session.logged = True
        try:
            self._check_alone()
            outcome = super()._complete(pending)
        except StoreError as error:
            error.add(_WORDS.recorded)
            raise
        failpoints.pass_point("federation: committed")
        self._session.tidy(outcome)
        return outcome

    def _acknowledge(self, pending: Pending, moved: list[Client]) -> None:
        deletes, names = pending.kind == "delete", np.array(pending.names, dtype=str)
        for client in moved:
            if deletes:
                self._file.drop("ids", client.slot, client.slot + 1)
            else:
                self._file.put("ids", client.slot, client_bytes(client, True))
        self._state = self._session.acknowledge(
            self._state,
            request=uuid.uuid4().hex,
            kind=pending.kind,
            named_by="ids" if deletes else None,
            names=names if deletes else None,
            removed=len(moved) if deletes else 0,
            added=0 if deletes else len(moved),
            day=pending.day,
            plan=self._plan_digest,
        )
        write_state(self._file, self._state)
        self._file.drop("pending", REQUEST, REQUEST + 1)
        failpoints.pass_point("federation: written")

    # --- looking ---

    def verify(self, *, tolerance: float = 0.0) -> Verification:
        """Read every byte of the file, and re-derive sums and models from what is held of the members."""
        with self._exclusive():
            return self._session.verify(self.clients.count, lambda: self._derived_again(tolerance))

    def _derived_again(self, tolerance: float) -> Verification:
        path = self._path  # clients may be computing
        self._load()
        self._path = path
        problems = self._strays()
        if not problems:
            try:
                return super().verify(tolerance=tolerance)
            except CorruptStore as error:  # what was sealed is not what is held
                problems = [str(error)]
        return Verification(tuple(problems), None, 0, self.clients.count)

    def _strays(self) -> list[str]:
        """Name contributions that nobody has been asked for."""
        clients, made = self.clients, self.made
        asked = {
            client.slot: set(clients.rounds_of(client, range(upto)))
            for found, upto in ((clients.members, min(made + 1, self.plan.rounds)), (clients.candidates, made))
            for client in found.values()
        }
        there = cast(SealedContributions, clients.held).there
        strays = [slot for slot, steps in there.items() if steps - asked.get(slot, set())]
        return [f"blocks: there are contributions of slot {slot} that nobody was asked for" for slot in strays[:20]]

    # --- looking after the file ---

    def compact(self) -> None:
        """Rewrite the file in canonical order, without empty pages: then its layout tells nothing of its history.

        Until then the layout may tell how a departure went, and the index of the file may have the random numbers under
        which the contributions of those who left have been. It needs room for two copies for a moment.
        """
        with self._exclusive():
            self._session.logged = True
            try:
                rewrite(self._file, self._check_unchanged)
            finally:
                self._session.empty_log()

    def backup(self, to: str | PathLike[str]) -> None:
        """Write a copy of the file to another path, with the key of its receipts, but without the seal.

        To go back to it, put both in the place of the lost ones, and open it with the same seal. Whoever has left since
        the backup was made is in it again, and must be forgotten again: receipts say who (`was_forgotten`), so export
        them now and then. Who joined since then must be asked again, and rounds made again, with other noise. Go back
        because a file is lost, never because of how a departure or a round turned out: that would be a bias. Keep
        backups no longer than you may.
        """
        where = as_path(to)
        check_new(where)
        with self._exclusive():
            write_copy(self._file, where)

    # --- receipts ---

    def forget(self, names: str | Iterable[str]) -> Outcome:
        """Let clients leave, as `Federation.forget` does; it is durable when this returns."""
        try:
            return super().forget(names)
        except UnknownId as error:
            left = {name: day for name in as_names(names) if (day := self.was_forgotten(name)) is not None}
            members = {*self.clients.members, *self.clients.candidates}
            gone = [f"{name!r} left on {day}" for name, day in left.items() if name not in members]
            raise UnknownId(f"{error} ({', '.join(gone)}.)" if gone else str(error)) from None

    def was_forgotten(self, name: str) -> str | None:
        """Return the day on which a client of this name last left, or None."""
        with self._exclusive():
            found = find(self._session.receipts(), self._session.key, ids=[name])
            return found[-1].day if found else None

    def export_receipts(self, *, names: Any = None) -> dict[str, Any]:
        """Return all receipts, as can be written to JSON and filed; or those that name certain clients."""
        with self._exclusive():
            wanted = [names] if isinstance(names, str) else names
            return self._session.export(self._state, self._session.receipts(), ids=wanted)


def open(
    path: str | PathLike[str], *, seal: Any = None, wait: float = WAIT, sign_with: Any = None
) -> StoredFederation:  # fmt: skip
    """Open the file of a federation, and finish what was asked of it and interrupted.

    ``seal`` is the key of `create`, ``sign_with`` an Ed25519 key, or the path of one in PEM, to sign receipts with. One
    process at a time can have a federation open; others wait for ``wait`` seconds before they give up.
    """
    where = as_path(path)
    if not os.path.lexists(where):
        raise NotAStore(f"{where}: no such file; write one with expunge.federated.create.")
    return StoredFederation(where, seal=seal, wait=wait, sign_with=sign_with)


def client_bytes(client: Client, member: bool) -> bytes:
    """Return what a file says of a client."""
    return json.dumps({"name": client.name, "key": str(client.key), "member": member}).encode()


def _client_from(slot: int, content: bytes) -> tuple[Client, bool]:
    try:
        said = json.loads(content)
        name, key, member = said["name"], int(said["key"]), said["member"]
        if not isinstance(name, str) or not isinstance(member, bool) or not 0 <= key < 2**64 or not 0 <= slot < SLOTS:
            raise ValueError("of another form")
        return Client(name, slot, key), member
    except UNREADABLE as error:
        raise CorruptStore(f"ids, row {slot} is not a client ({error}); restore a backup.") from error


def _pending_from(content: bytes) -> Pending:
    try:
        said = json.loads(content)
        kind, names = said["kind"], said["names"]
        if kind not in ("delete", "insert") or not all(isinstance(name, str) for name in names):
            raise ValueError("of another form")
        if "seed" in said:  # what was recorded before requests had keys and days
            return Pending(kind, tuple(names), np.random.default_rng(int(said["seed"])).bytes(KEY_BYTES), today())
        return Pending(kind, tuple(names), as_key(said["key"]), as_day(said["day"]))
    except UNREADABLE as error:
        raise CorruptStore(f"pending, row {REQUEST} cannot be read ({error}); restore a backup.") from error
