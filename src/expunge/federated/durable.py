"""A federation that lives in a file: every answer, round and request is durable, and each is done exactly once.

Answers are durable when `receive` returns, a round is made in one transaction, and a request is recorded with the seed
of its coins before they are tossed. The seed of the next round's noise is recorded with the round before it. So
whatever happens, the file has all that is needed to go on as if nothing had.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from secrets import randbits
from types import TracebackType
from typing import Any, Self

import numpy as np

from expunge.averaging import FederatedPlan
from expunge.engine import Outcome, Verification
from expunge.errors import BadPlan, BusyStore, CorruptStore, LogNotEmptied, StoreError
from expunge.federated.clients import Client
from expunge.federated.federation import Federation, Pending, Received, Task
from expunge.federated.sealing import ROUND_BITS, Seal, SealedContributions, as_seal_key
from expunge.store import failpoints
from expunge.store.codec import UNREADABLE
from expunge.store.file import WAIT, StoreFile, WriterLock, as_wait, beside
from expunge.store.keys import as_signer, fingerprint, load_key
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
from expunge.store.saving import PAGES, as_path, new_store
from expunge.store.state import (
    DESCRIPTION,
    KNOWN,
    Description,
    FederationState,
    check_key,
    next_receipt,
    plan_digest,
    read_federation,
    write_state,
)  # fmt: skip
from expunge.store.tables import StoredRows, as_numbers
from expunge.types import Array

START = 2
"""The number of the array that the first model lies in."""
REQUEST, SEED = 0, 1
"""Numbers of what is pending."""
RECORDED, WRITTEN, COMMITTED, ANSWERED, ROUND_WRITTEN, ROUND_MADE = POINTS = (
    "federation: recorded",
    "federation: written",
    "federation: committed",
    "federation: answered",
    "federation: round written",
    "federation: round made",
)
"""Where a process may die; tests put a hook there."""
_DONE = "But what was asked is done and durable: do not repeat it."


class StoredFederation(Federation):
    """A federation in a file, which one process at a time can have open. Make one with `create`, then `open` it."""

    def __init__(self, path: Path, *, seal: Any, wait: float, sign_with: Any) -> None:
        self.path = path
        self._process = os.getpid()
        self._given_signer = as_signer(sign_with)
        self._signer = self._given_signer or None
        self._lock_file = WriterLock(path, as_wait(wait))
        self.lock = threading.RLock()
        self._file: Any = None
        try:
            self._open(seal, wait)
        except BaseException:
            self.close()
            raise

    def _open(self, seal: Any, wait: float) -> None:
        self._file = StoreFile(self.path, wait=wait)
        try:
            self._lock_file.acquire()
        except BusyStore as error:
            raise BusyStore(f"{self.path}: another process has this federation open; close it there first.") from error
        self._key = load_key(beside(self.path, "-key"))
        plan, state = read_federation(self._file)
        check_key(beside(self.path, "-key"), self._key, state)
        key = as_seal_key(seal, self.path, new=False)
        if fingerprint(key) != state.seal:
            raise StoreError(f"{self.path}: seal: this is the key of another federation; give the right one.")
        self._seal = Seal(key, state.store)
        self._plan_digest = plan_digest(plan)
        self._load()
        self._catch_up()
        self._file.truncate_log()

    def _load(self) -> None:
        """Read everything from the file."""
        file = self._file
        with file.reading():
            plan, self._state = read_federation(file)
            numbers = as_numbers(file, "arrays", START, file.need("arrays", START), "<f8")
            start, size = numbers.astype(np.float64), plan.parameters + 1
            sums = StoredRows(file, "sums", size)
            answers = sums if plan.sigma == 0.0 else StoredRows(file, "answers", size, sums.shape[0])
            iterates = StoredRows(file, "iterates", plan.parameters, sums.shape[0])
            if start.shape != (plan.parameters,) or sums.shape[0] > plan.rounds:
                raise CorruptStore(f"{self.path}: it has other rounds or numbers than its plan; restore a backup.")
            self._take(plan, start, SealedContributions(file, self._seal, size), sums, answers, iterates)
            for slot, content in file.all("ids"):
                client, member = _client_from(slot, bytes(content))
                (self.clients.members if member else self.clients.candidates)[client.name] = client
            self._seed_of_round = int.from_bytes(bytes(file.need("pending", SEED)))
            request = file.get("pending", REQUEST)
            self._pending = None if request is None else _pending_from(bytes(request))
        self._stale = False

    def close(self) -> None:
        """Close the file; another process may open it then."""
        if os.getpid() == self._process:
            with self.lock:
                if self._file is not None:
                    self._file.close()
                self._file = None
                self._lock_file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what is done, durably ---

    def _catch_up(self) -> None:
        if self._file is None or os.getpid() != self._process:
            raise StoreError(f"{self.path}: this federation was closed, or opened by another process; open it again.")
        self._file.check_place()
        if self._stale:
            self._load()
        super()._catch_up()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._file.transaction():
                yield
        except BaseException:
            self._stale = True  # what is in memory may be ahead of the file
            raise

    def _draw_seed(self) -> int:
        return randbits(128)

    def receive(self, answers: Sequence[tuple[Task, Array]]) -> Received:
        """Take what clients answer; it is durable when this returns."""
        received = super().receive(answers)
        failpoints.reach(ANSWERED)
        return received

    def advance(self) -> int:
        """Make the next round; it is durable when this returns."""
        took_part = super().advance()
        failpoints.reach(ROUND_MADE)
        self._file.truncate_log()
        return took_part

    def _renew_seed(self) -> None:
        super()._renew_seed()
        self._file.put("pending", SEED, self._seed_of_round.to_bytes(16))
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
        said = {"kind": pending.kind, "names": pending.names, "seed": str(pending.seed)}
        with self._transaction():
            self._file.put("pending", REQUEST, json.dumps(said).encode())
        failpoints.reach(RECORDED)

    def _complete(self, pending: Pending) -> Outcome:
        outcome = super()._complete(pending)
        failpoints.reach(COMMITTED)
        try:
            self._file.truncate_log()
        except StoreError as error:
            raise LogNotEmptied(f"{error} {_DONE}", outcome) from error
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
            if problems := self._file.damage():
                return Verification(tuple(problems), None, 0, self.clients.count)
            path = self._path  # clients may be computing
            self._load()
            self._path = path
            return super().verify(tolerance=tolerance)

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
    drafted = Federation(plan, start, np.random.default_rng(randbits(128)))  # which checks all that is given
    if members:
        drafted.join(members)
    blob = 4 * (plan.parameters + 1)
    page = next((size for size in PAGES if blob <= 2 * size), PAGES[-1])
    with new_store(where, page) as (file, key):
        sealing = as_seal_key(seal, where, new=True)
        store = uuid.uuid4().hex
        Seal(sealing, store)
        file.put_text("about", DESCRIPTION, KNOWN.write(Description("Federation", {}, {}, plan)))
        file.put("arrays", START, drafted.transcript.start.astype("<f8").tobytes())
        file.put("pending", SEED, randbits(128).to_bytes(16))
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
    return StoredFederation(as_path(path), seal=seal, wait=wait, sign_with=sign_with)


def _client_bytes(client: Client, member: bool) -> bytes:
    return json.dumps({"name": client.name, "key": str(client.key), "member": member}).encode()


def _client_from(slot: int, content: bytes) -> tuple[Client, bool]:
    try:
        said = json.loads(content)
        return Client(str(said["name"]), slot, int(said["key"])), bool(said["member"])
    except UNREADABLE as error:
        raise CorruptStore(f"ids, row {slot} is no client ({error}); restore a backup.") from error


def _pending_from(content: bytes) -> Pending:
    try:
        said = json.loads(content)
        if said["kind"] not in ("delete", "insert"):
            raise ValueError(f"a request of kind {said['kind']!r}")
        return Pending(said["kind"], tuple(map(str, said["names"])), int(said["seed"]))
    except UNREADABLE as error:
        raise CorruptStore(f"pending, row {REQUEST} cannot be read ({error}); restore a backup.") from error
