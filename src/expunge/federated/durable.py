"""A federation that lives in a file: every answer, round and request is durable, and each is done exactly once.

Answers are durable when `receive` returns. The key of a round's noise is drawn when all answers are there, and recorded
before it is used, as is that of a request; what follows from it is written in one transaction, with which the key goes.
So whatever happens, the file has all that is needed to go on as if nothing had; and between rounds it has no key.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np

from expunge.averaging import FederatedPlan
from expunge.engine import Outcome, Verification
from expunge.errors import (
    BadPlan,
    BusyStore,
    CorruptStore,
    LogNotEmptied,
    NotAStore,
    StoreError,
    Unfinished,
    UnknownId,
)  # fmt: skip
from expunge.federated.clients import SLOTS, Client
from expunge.federated.federation import Federation, Pending, Received, Task, as_names
from expunge.federated.sealing import ROUND_BITS, Seal, SealedContributions, as_seal_key
from expunge.randomness import KEY_BYTES
from expunge.rows import Path as RowPath
from expunge.selectors import select
from expunge.store import failpoints
from expunge.store.codec import UNREADABLE
from expunge.store.file import WAIT, StoreFile, WriterLock, as_wait, beside
from expunge.store.keys import as_signer, fingerprint, load_key
from expunge.store.maintenance import rewrite, write_copy
from expunge.store.receipts import (
    Receipt,
    ReceiptsCheck,
    check_receipts,
    check_signer,
    digest_names,
    export,
    find,
    genesis,
)  # fmt: skip
from expunge.store.saving import as_path, check_new, new_store, page_for, remove
from expunge.store.state import (
    DESCRIPTION,
    KNOWN,
    Description,
    FederationState,
    as_day,
    as_key,
    check_key,
    next_receipt,
    plan_digest,
    read_federation,
    today,
    write_state,
)  # fmt: skip
from expunge.store.tables import StoredRows, as_numbers
from expunge.types import AnyArray, Array

START = 2
"""The number of the array that the first model lies in."""
REQUEST, OLD_SEED, ROUND = 0, 1, 2
"""Numbers of what is pending. The second is the next round's seed, which earlier versions kept between rounds."""
RECORDED, WRITTEN, COMMITTED, ANSWERED, ROUND_RECORDED, ROUND_WRITTEN, ROUND_MADE = POINTS = (
    "federation: recorded",
    "federation: written",
    "federation: committed",
    "federation: answered",
    "federation: round recorded",
    "federation: round written",
    "federation: round made",
)
"""Where a process may die; tests put a hook there."""
_DONE = "But what was asked is done and durable: do not repeat it."
_NO_KEY = "take it from a backup. It is the key that receipts name clients with"


class StoredFederation(Federation):
    """A federation in a file, which one process at a time can have open. Make one with `create`, then `open` it."""

    def __init__(self, path: Path, *, seal: Any, wait: float, sign_with: Any) -> None:
        self.path = path
        self._process = os.getpid()
        self._given_signer = as_signer(sign_with)
        self._signer = self._given_signer or None
        self.lock = threading.RLock()
        self._file = StoreFile(path, wait=as_wait(wait))
        lock_file = WriterLock(path, as_wait(wait))
        self._finalizer = weakref.finalize(self, _close, self._process, self._file, lock_file)
        self._stale = True
        """Whether what is in memory may be other than what is in the file: then it is read anew."""
        self._log = True
        """Whether what is gone may still be in the log, or in what a process that died was writing."""
        try:
            self._acquire(lock_file)
            self._unseal(seal)
            self._drop_old_seed()
            self._catch_up()
        except BaseException:
            self.close()
            raise

    def _acquire(self, lock_file: WriterLock) -> None:
        try:
            lock_file.acquire()
        except BusyStore as error:
            raise BusyStore(
                f"{self.path}: this federation is open already, here or in another process. (Of Flower, an earlier run "
                "may still be going: flwr list, and flwr stop.)"
            ) from error

    def _unseal(self, seal: Any) -> None:
        """Check the keys."""
        _, state = read_federation(self._file)
        self._key = load_key(beside(self.path, "-key"), _NO_KEY)
        check_key(beside(self.path, "-key"), self._key, state)
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
        self._stale = True
        try:
            with self._file.reading():
                self._read()
        except UNREADABLE as error:
            raise CorruptStore(f"{self.path}: this is no sound federation ({error}); restore a backup.") from error
        self._stale = False

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
            raise CorruptStore(f"{self.path}: it has other rounds or numbers than its plan; restore a backup.")
        self._take(plan, start, SealedContributions(file, self._seal, size), sums, answers, iterates)
        if not self.transcript.on_grid(self.learner):
            raise StoreError(
                f"{self.path}: this federation was made by an earlier version, whose answers are not on a grid: their "
                "last digits can tell of clients that have left. Start a new one with its clients; its model can be "
                "read with expunge.federated.load."
            )
        for slot, content in file.all("ids"):
            client, member = _client_from(slot, bytes(content))
            if client.name in self.clients.members or client.name in self.clients.candidates:
                raise CorruptStore(f"{self.path}: ids, row {slot}: another client has this name; restore a backup.")
            (self.clients.members if member else self.clients.candidates)[client.name] = client
        begun, request = file.get("pending", ROUND), file.get("pending", REQUEST)
        if begun is not None and len(begun) != KEY_BYTES:
            raise CorruptStore(f"{self.path}: pending, row {ROUND} is no key; restore a backup.")
        self._round_key = None if begun is None else bytes(begun)
        self._pending = None if request is None else _pending_from(bytes(request))

    def close(self) -> None:
        """Close the file; another process may open it then."""
        if os.getpid() == self._process:
            with self.lock:
                self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what is done, durably ---

    def _catch_up(self) -> None:
        if not self._finalizer.alive or os.getpid() != self._process:
            raise StoreError(f"{self.path}: this federation was closed, or opened by another process; open it again.")
        self._file.check_place()
        if self._stale:
            self._load()
        with suppress(LogNotEmptied):  # this is said below
            super()._catch_up()
        if self._log:
            self._empty_log()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._stale = True  # until all is done, whenever it is interrupted
        try:
            with self._file.transaction():
                yield
        except BaseException:
            with suppress(StoreError):  # then the next call does it
                self._load()
            raise
        self._stale = False

    def _empty_log(self) -> None:
        """Leave nothing in the log, nor in what a process that died was writing."""
        remove(beside(self.path, "-new"))
        self._file.truncate_log()
        self._log = False

    def _tidy(self, outcome: Any) -> None:
        """Empty the log after something that is done."""
        try:
            self._empty_log()
        except StoreError as error:
            raise LogNotEmptied(f"{error} {_DONE}", outcome) from error

    def receive(self, answers: Sequence[tuple[Task, Array]]) -> Received:
        """Take what clients answer; it is durable when this returns."""
        received = super().receive(answers)
        failpoints.reach(ANSWERED)
        return received

    def advance(self) -> int:
        """Make the next round; it is durable when this returns."""
        with self.lock:
            took_part = super().advance()
            failpoints.reach(ROUND_MADE)
            self._tidy(took_part)
            return took_part

    def _begin_round(self, key: bytes) -> None:
        self._log = True  # the key lies there, until it is emptied
        try:
            with self._transaction():
                self._file.put("pending", ROUND, key)
                super()._begin_round(key)
        except StoreError:
            with suppress(StoreError):
                self._empty_log()  # a part of it may be there
            raise
        failpoints.reach(ROUND_RECORDED)

    def _make_round(self) -> int:
        self._log = True
        return super()._make_round()

    def _end_round(self) -> None:
        super()._end_round()
        self._file.drop("pending", ROUND, ROUND + 1)
        failpoints.reach(ROUND_WRITTEN)

    def _enter(self, client: Client) -> None:
        super()._enter(client)
        self._file.put("ids", client.slot, _client_bytes(client, False))

    def _withdraw(self, name: str) -> None:
        client = self.clients.candidates.get(name)
        if client is not None:
            self._file.drop("ids", client.slot, client.slot + 1)
        super()._withdraw(name)

    def _record(self, pending: Pending) -> None:
        texts = [self._file.text("receipts", number) for number in (1, self._state.receipts)]
        check_signer(self._given_signer, [Receipt.from_json(text).signature for text in texts if text is not None])
        self._check_readable(pending.names)
        said = {"kind": pending.kind, "names": pending.names, "key": pending.key.hex(), "day": pending.day}
        self._log = True
        try:
            with self._transaction():
                self._file.put("pending", REQUEST, json.dumps(said).encode())
                self._pending = pending
        except StoreError as error:
            with suppress(StoreError):
                self._empty_log()  # a part of it may be there
            error.add("Of what was asked now, nothing was done.")
            raise
        failpoints.reach(RECORDED)

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
        self._log = True
        try:
            outcome = super()._complete(pending)
        except StoreError as error:
            error.add("A request is recorded; the next to use the federation finishes it, so do not repeat it.")
            raise
        failpoints.reach(COMMITTED)
        self._tidy(outcome)
        return outcome

    def _acknowledge(self, pending: Pending, moved: list[Client]) -> None:
        deletes, names = pending.kind == "delete", np.array(pending.names, dtype=str)
        for client in moved:
            if deletes:
                self._file.drop("ids", client.slot, client.slot + 1)
            else:
                self._file.put("ids", client.slot, _client_bytes(client, True))
        receipt = next_receipt(
            self._state,
            request=uuid.uuid4().hex,
            kind=pending.kind,
            named_by="ids" if deletes else None,
            digests=digest_names(self._key, "ids", names) if deletes else (),
            removed=len(moved) if deletes else 0,
            added=0 if deletes else len(moved),
            day=pending.day,
            plan=self._plan_digest,
            signer=self._signer,
        )
        before = self._state
        self._state = replace(before, version=before.version + 1, receipts=before.receipts + 1, head=receipt.hash)
        self._file.put_text("receipts", self._state.receipts, receipt.to_json())
        write_state(self._file, self._state)
        self._file.drop("pending", REQUEST, REQUEST + 1)
        failpoints.reach(WRITTEN)

    # --- looking ---

    def verify(self, *, tolerance: float = 0.0) -> Verification:
        """Read every byte of the file, and re-derive sums and models from what is held of the members."""
        with self._exclusive():
            problems = self._file.damage()
            if not problems:
                path = self._path  # clients may be computing
                self._load()
                self._path = path
                problems = self._strays()
            if problems:
                return Verification(tuple(problems), None, 0, self.clients.count)
            try:
                return super().verify(tolerance=tolerance)
            except CorruptStore as error:  # what was sealed is not what is held
                return Verification((str(error),), None, 0, self.clients.count)

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
            self._log = True
            try:
                rewrite(self._file)
            finally:
                self._empty_log()

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
            receipts = [Receipt.from_json(text) for text in self._file.texts("receipts")]
            found = find(receipts, self._key, ids=[name])
            return found[-1].day if found else None

    def export_receipts(self, *, names: Any = None) -> dict[str, Any]:
        """Return all receipts, as can be written to JSON and filed; or those that name certain clients."""
        with self._exclusive():
            receipts = [Receipt.from_json(text) for text in self._file.texts("receipts")]
            if names is not None:
                receipts = find(receipts, self._key, ids=[names] if isinstance(names, str) else names)
            public_key = None if self._signer is None else self._signer.public_key
            state = self._state
            return export(receipts, store=state.store, head=state.head, version=state.version, public_key=public_key)

    def verify_receipts(self, public_key: Any = None) -> ReceiptsCheck:
        """Check that no receipt was altered, taken out or put in; with a ``public_key``, their signatures too."""
        return check_receipts(self.export_receipts(), public_key=public_key)


def create(path: str | PathLike[str], plan: FederatedPlan, start: Array, members: Any, *, seal: Any = None) -> None:
    """Write a federation, of which no round has been made, into a new file.

    ``seal`` is the key that contributions are encrypted with: 32 bytes, or the path of a file with it. By default it
    lies beside the store, in a file that ends in ``-seal``. Keep it in another place than backups of the store.
    """
    where = as_path(path)
    if plan.rounds >= 2**ROUND_BITS:
        raise BadPlan(f"rounds={plan.rounds}: a file holds fewer than {2**ROUND_BITS}.")
    drafted = Federation(plan, start)  # which checks all that is given
    drafted.join(members)
    with new_store(where, page_for(4 * (plan.parameters + 1))) as (file, key):
        sealing = as_seal_key(seal, where, new=True)
        store = uuid.uuid4().hex
        Seal(sealing, store)
        file.put_text("about", DESCRIPTION, KNOWN.write(Description("Federation", {}, {}, plan)))
        file.put("arrays", START, drafted.transcript.start.astype("<f8").tobytes())
        for client in drafted.clients.members.values():
            file.put("ids", client.slot, _client_bytes(client, True))
        write_state(file, FederationState(store, 0, 0, genesis(store), fingerprint(key), fingerprint(sealing)))


def open(
    path: str | PathLike[str], *, seal: Any = None, wait: float = WAIT, sign_with: Any = None
) -> StoredFederation:  # fmt: skip
    """Open the file of a federation, and finish what was asked of it and interrupted.

    ``seal`` is the key of `create`, ``sign_with`` an Ed25519 key, or the path of one in PEM, to sign receipts with. One
    process at a time can have a federation open; others wait for ``wait`` seconds before they give up.
    """
    where = as_path(path)
    if not os.path.lexists(where):
        raise NotAStore(f"{where}: there is no such file; write one with expunge.federated.create.")
    return StoredFederation(where, seal=seal, wait=wait, sign_with=sign_with)


def _close(process: int, *files: StoreFile | WriterLock) -> None:
    if os.getpid() == process:  # the files of a process that was forked are its parent's
        for file in files:
            file.close()


def load(path: str | PathLike[str]) -> dict[str, AnyArray]:
    """Return the arrays of a federation's model, by name: for those who serve it, who need neither seal nor lock.

    A process that trains may have the federation open meanwhile.
    """
    file = StoreFile(as_path(path), read_only=True)
    try:
        with file.reading():
            plan, _ = read_federation(file)
            iterates = StoredRows(file, "iterates", plan.parameters)
            made = iterates.shape[0]
            start = as_numbers(file, "arrays", START, file.need("arrays", START), "<f8").astype(np.float64)
    finally:
        file.close()
    if made != plan.rounds:
        raise Unfinished(f"{path}: rounds are still to be made; start the strategy again.")
    return plan.arrays_of(select(plan.selector, RowPath(start, iterates, made)))


def _client_bytes(client: Client, member: bool) -> bytes:
    return json.dumps({"name": client.name, "key": str(client.key), "member": member}).encode()


def _client_from(slot: int, content: bytes) -> tuple[Client, bool]:
    try:
        said = json.loads(content)
        name, key, member = said["name"], int(said["key"]), said["member"]
        if not isinstance(name, str) or not isinstance(member, bool) or not 0 <= key < 2**64 or not 0 <= slot < SLOTS:
            raise ValueError("of another form")
        return Client(name, slot, key), member
    except UNREADABLE as error:
        raise CorruptStore(f"ids, row {slot} is no client ({error}); restore a backup.") from error


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
