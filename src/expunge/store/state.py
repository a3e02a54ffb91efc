"""What a store holds beside records and tables: the description of the model, and the state that requests change."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from expunge import losses
from expunge.averaging import FederatedPlan
from expunge.clustering import ClusterPlan
from expunge.columns import csr, is_sparse
from expunge.errors import CorruptStore, NotAStore, StoreError
from expunge.extents import Extent
from expunge.intake import as_ids
from expunge.learner import Learner, Transcript
from expunge.least_squares import RidgePlan
from expunge.planning import Plan
from expunge.randomness import KEY_BYTES, Randomness
from expunge.records import Delete, Insert, Replace, Request
from expunge.schema.model import SCHEMA_PARTS
from expunge.store.codec import UNREADABLE, Registry, pack, unpack
from expunge.store.file import StoreFile
from expunge.store.keys import Signer, fingerprint
from expunge.store.parts import ColumnType, Layout
from expunge.store.receipts import Kind, NamedBy, Receipt, genesis, write_receipt
from expunge.store.records import Inventory, StoredRecords
from expunge.store.tables import StoredRows, as_numbers
from expunge.types import AnyArray, Array, Column

DESCRIPTION, STATE = 0, 1
"""Numbers of texts."""
MODEL, PROJECTION = 0, 1
"""Numbers of arrays."""


@dataclass(frozen=True)
class Description:
    """What a model is: its class, its parameters, what it learned to expect at its first fit, and its plan."""

    model: str
    parameters: dict[str, Any]
    attributes: dict[str, Any]
    plan: Any


@dataclass(frozen=True)
class State:
    """What requests change."""

    store: str
    """A random name of the store, the same in all its backups."""
    version: int
    """How often the state has changed."""
    receipts: int
    head: str
    """The hash of the last receipt; with none, `genesis` of the store."""
    key: str
    """The fingerprint of the key that receipts name people with."""
    inventory: Inventory


@dataclass(frozen=True)
class FederationState:
    """What requests change of a federation; its clients and rounds lie in tables."""

    store: str
    version: int
    """How many requests were served. (Rounds are not counted: how many were repeated is nobody's business.)"""
    receipts: int
    head: str
    key: str
    seal: str
    """The fingerprint of the key that contributions are encrypted with."""


def first_state(inventory: Inventory, key: bytes) -> State:
    """Return the state of a new store, which has a name of its own."""
    store = uuid.uuid4().hex
    return State(store, 0, 0, genesis(store), fingerprint(key), inventory)


KNOWN = Registry(
    [
        Description, State, FederationState, Inventory, Layout, ColumnType, Plan, ClusterPlan, RidgePlan,
        FederatedPlan, Extent, losses.Logistic,
        losses.Hinge, losses.SmoothedHinge, losses.Multinomial, losses.MulticlassHinge, losses.Squared, losses.Huber,
        losses.Weighted, *SCHEMA_PARTS,
    ]
)  # fmt: skip


def plan_digest(plan: Any) -> str:
    """Return a digest of a plan."""
    return hashlib.sha256(KNOWN.write(plan).encode()).hexdigest()


def read_description(file: StoreFile, strangers: Mapping[str, Any] | None = None) -> Description:
    """Return what the model is; a loss of the user's own is among the ``strangers``."""
    description: Description = _read(file, DESCRIPTION, Description, strangers)
    return description


def read_state(file: StoreFile) -> State:
    """Return the state."""
    state: State = _read(file, STATE, State)
    return state


def read_federation(file: StoreFile) -> tuple[FederatedPlan, FederationState]:
    """Return the plan and the state of a federation."""
    state: FederationState = _read(file, STATE, FederationState)
    plan = read_description(file).plan
    if not isinstance(plan, FederatedPlan):
        raise CorruptStore(f"{file.path}: about, row {DESCRIPTION} has no plan of a federation; restore a backup.")
    return plan, state


_OPENED_BY: dict[type, str] = {
    State: "model; open it with expunge.open", FederationState: "federation; open it with expunge.federated.open",
}  # fmt: skip


def _read(file: StoreFile, number: int, kind: type, strangers: Mapping[str, Any] | None = None) -> Any:
    text = file.text("about", number)
    if text is None:
        raise CorruptStore(f"{file.path}: about, row {number} is missing; restore a backup.")
    value = KNOWN.read(text, strangers)
    if type(value) in _OPENED_BY and not isinstance(value, kind):
        raise NotAStore(f"{file.path}: this is the file of a {_OPENED_BY[type(value)]}.")
    if not isinstance(value, kind):
        raise CorruptStore(f"{file.path}: about, row {number} is of another kind; restore a backup.")
    return value


def check_key(path: Path, key: bytes, state: State | FederationState) -> None:
    """Raise if a key, unless there is none, is not that of a store."""
    if key and fingerprint(key) != state.key:
        raise StoreError(f"{path}: this is the key of another store; put the right one back, from a backup.")


def write_state(file: StoreFile, state: State | FederationState) -> None:
    """Write the state."""
    file.put_text("about", STATE, KNOWN.write(state))


def read_vector(file: StoreFile) -> Array:
    """Return the model's parameters, as its selector made them of the iterates."""
    return as_numbers(file, "arrays", MODEL, file.need("arrays", MODEL), "<f8").astype(np.float64)


def write_vector(file: StoreFile, model: Array) -> None:
    """Write the model's parameters."""
    file.put("arrays", MODEL, model.astype("<f8").tobytes())


def stored_transcript(file: StoreFile, learner: Learner, records: StoredRecords) -> Transcript:
    """Return the transcript that is in a store; its tables are read when they are needed."""
    start = np.asarray(learner.rule.start, dtype=float)
    steps = learner.schedule.steps(records.count)
    sums = StoredRows(file, "sums", learner.query.size, steps)
    answers = sums if learner.silent else StoredRows(file, "answers", learner.query.size, steps)
    return Transcript(sums, answers, StoredRows(file, "iterates", start.size, steps), start, records)


def store_transcript(file: StoreFile, transcript: Transcript) -> None:
    """Write a transcript anew."""
    StoredRows.store(file, "sums", transcript.sums[:])
    if transcript.answers is not transcript.sums:
        StoredRows.store(file, "answers", transcript.answers[:])
    StoredRows.store(file, "iterates", transcript.iterates[:])


# --- requests that wait -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pending:
    """A request that was accepted, with the day, and the key of its randomness: both stay, whenever it is done."""

    request: Request
    number: str
    """Its name on the receipt."""
    version: int
    """Of the state that it was accepted in."""
    key: bytes
    """What its randomness follows from."""
    day: str
    """When it was accepted: the receipt says so, and not when it was done, which may depend on the records."""

    def to_bytes(self) -> bytes:
        """Return it as bytes."""
        request, arrays = self.request, dict[str, AnyArray]()
        for name in ("ids", "subjects"):
            if (names := getattr(request, name)) is not None:
                arrays[name] = as_ids(name, names)
        widths = []
        for position, column in enumerate(getattr(request, "columns", ())):
            widths.append(int(column.shape[1]) if is_sparse(column) else None)
            if is_sparse(column):
                for part in ("data", "indices", "indptr"):
                    arrays[f"{position} {part}"] = getattr(column, part)
            else:
                arrays[str(position)] = np.asarray(column)
        said = {
            "kind": type(request).__name__, "missing": getattr(request, "missing", None), "widths": widths,
            "number": self.number, "version": self.version, "key": self.key.hex(),
            "day": self.day,
        }  # fmt: skip
        return pack(json.dumps(said), arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> Pending:
        """Return what `to_bytes` has written."""
        text, arrays = unpack(content)
        try:
            said = json.loads(text)
            columns = tuple([_column(arrays, position, width) for position, width in enumerate(said["widths"])])
            request: Request
            ids, subjects = arrays.get("ids"), arrays.get("subjects")
            match said["kind"]:
                case "Delete":
                    request = Delete(ids, subjects, said["missing"])
                case "Insert":
                    request = Insert(columns, ids, subjects)
                case "Replace":
                    request = Replace(columns, ids, subjects, said["missing"])
                case other:
                    raise ValueError(f"a request of kind {other!r}")
            key, day = _key_and_day(said)
            return cls(request, str(said["number"]), int(said["version"]), key, day)
        except UNREADABLE as error:
            raise CorruptStore(f"pending, row 0 cannot be read ({error}); restore a backup.") from error


def today() -> str:
    """Return the day that a request is recorded under."""
    return datetime.now(UTC).date().isoformat()


def _key_and_day(said: dict[str, Any]) -> tuple[bytes, str]:
    if "key" in said:
        return as_key(said["key"]), as_day(said["day"])
    # what was recorded before requests had keys: the state of a generator, and no day
    coins = said["coins"]
    if coins["bit_generator"] not in ("PCG64", "PCG64DXSM"):
        raise ValueError("coins of an unknown kind")
    bits = getattr(np.random, coins["bit_generator"])()
    bits.state = coins
    return Randomness.of(np.random.Generator(bits)).key, today()


def as_day(text: str) -> str:
    """Return a day that was written as text."""
    return date.fromisoformat(text).isoformat()


def as_key(text: str) -> bytes:
    """Return a key that was written as text."""
    key = bytes.fromhex(text)
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of {len(key)} bytes")
    return key


def read_pending(file: StoreFile) -> Pending | None:
    """Return the request that is recorded and not done, if there is one."""
    content = file.get("pending", 0)
    return None if content is None else Pending.from_bytes(bytes(content))


def _column(arrays: dict[str, AnyArray], position: int, width: int | None) -> Column:
    if width is None:
        return arrays[str(position)]
    data, indices, ends = (arrays[f"{position} {part}"] for part in ("data", "indices", "indptr"))
    return csr(data, indices, ends, width)


def next_receipt(
    state: State | FederationState, *, request: str, kind: Kind, named_by: NamedBy | None, digests: tuple[str, ...],
    removed: int, added: int, day: str, plan: Any, signer: Signer | None,
) -> Receipt:  # fmt: skip
    """Return the receipt of a request that was served in a state."""
    return write_receipt(
        request=request, kind=kind, named_by=named_by, digests=digests, removed=removed, added=added,
        day=day, version=state.version + 1, plan=plan, previous=state.head, signer=signer,
    )  # fmt: skip


def advanced(state: State, inventory: Inventory, head: str | None = None) -> State:
    """Return the next state; with a new receipt, its hash."""
    receipts = state.receipts + (head is not None)
    return replace(state, version=state.version + 1, receipts=receipts, head=head or state.head, inventory=inventory)
