"""What a store holds beside records and tables: the description of the model, and the state that requests change."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from expunge.base.columns import csr, is_sparse, rows_in
from expunge.base.errors import BadRecords, CorruptStore, ExpungeError, NotAStore, StoreError
from expunge.base.intake import Delete, Insert, Replace, Request
from expunge.base.types import AnyArray, Batch, Column
from expunge.engine.learner import Learner, Transcript
from expunge.engine.randomness import KEY_BYTES, Randomness
from expunge.engine.structures import Structure
from expunge.solvers import losses
from expunge.solvers.cluster_choices import CHOICES
from expunge.solvers.extents import Extent
from expunge.solvers.objects import SOLVERS
from expunge.solvers.plans.federated import FederatedPlan
from expunge.solvers.plans.known import PLANS
from expunge.solvers.plans.sized import Sized
from expunge.store.codec import UNREADABLE, Registry, pack, unpack
from expunge.store.file import StoreFile
from expunge.store.keys import Signer, fingerprint
from expunge.store.layout import ColumnType, Layout
from expunge.store.receipts import BYTES_A_NAME, Receipt, genesis, is_hex
from expunge.store.records import Inventory, StoredRecords
from expunge.store.rows import CELLS, StoredRows
from expunge.tables.schema.columns import SCHEMA_PARTS

DESCRIPTION, STATE, SIGNER = 0, 1, 2
"""Numbers of texts."""
PROJECTION = 1
"""Numbers of arrays; those of the model's parameters are in `expunge.store.parameters`."""

OFF_GRID = (
    "this model was saved by an earlier version, whose answers are not on a grid: their last digits can reveal deleted "
    "records. Refit it from its own records with replan() (at the prompt: expunge replan)."
)


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
    signed: tuple[bool, ...] | None = None
    """Of the first and the last receipt, whether they are signed; None if an earlier version wrote the last."""


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
    signed: tuple[bool, ...] | None = None


Kept = TypeVar("Kept", State, FederationState)


def first_state(inventory: Inventory, key: bytes) -> State:
    """Return the state of a new store, which has a name of its own."""
    store = uuid.uuid4().hex
    return State(store, 0, 0, genesis(store), fingerprint(key), inventory)


KNOWN = Registry(
    [
        Description, State, FederationState, Inventory, Layout, ColumnType, *PLANS, Extent, *losses.KNOWN,
        *CHOICES, *SCHEMA_PARTS, *SOLVERS,
    ]
)  # fmt: skip


def plan_digest(plan: Any) -> str:
    """Return a digest of a plan."""
    return hashlib.sha256(KNOWN.write(plan).encode()).hexdigest()


def read_description(file: StoreFile, strangers: Mapping[str, Any] | None = None) -> Description:
    """Return what the model is; a loss of the user's own is among the ``strangers``."""
    description: Description = _read(file, DESCRIPTION, Description, strangers)
    _check_plan(file, description.plan)
    return description


def read_state(file: StoreFile) -> State:
    """Return the state."""
    state: State = _read(file, STATE, State)
    _check_state(file, state)
    check_room(file, "a list of ids", state.inventory.count)
    return state


def read_federation(file: StoreFile) -> tuple[FederatedPlan, FederationState]:
    """Return the plan and the state of a federation."""
    state: FederationState = _read(file, STATE, FederationState)
    _check_state(file, state)
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


def check_room(file: StoreFile, what: str, needed: int) -> None:
    """Raise if a description speaks of more bytes than the whole file has, before any room is made for them."""
    if needed > file.size:
        raise CorruptStore(
            f"{file.path}: {what} would have {needed:,} bytes, and the whole file has {file.size:,}; restore a backup."
        )


def _check_plan(file: StoreFile, plan: Any) -> None:
    """Raise unless what is described has a plan whose numbers can be, and which the file has room for."""
    if type(plan) not in PLANS:
        raise CorruptStore(f"{file.path}: about, row {DESCRIPTION} has no plan; restore a backup.")
    known: Any = plan
    for field in fields(known):
        value = getattr(plan, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if type(one) is int and one < (field.name not in ("seed", *plan.MAY_BE_ZERO)):
                raise CorruptStore(f"{file.path}: {type(plan).__name__}: {field.name} is {one}; restore a backup.")
    if (flaw := plan.flaw()) is not None:
        raise CorruptStore(f"{file.path}: {type(plan).__name__}: {flaw}; restore a backup.")
    with sound(file):
        check_room(file, "a sum", 8 * plan.numbers)


@contextmanager
def sound(file: StoreFile) -> Iterator[None]:
    """Say in one way that what a file describes is no model, whatever making one leads to."""
    try:
        yield
    except (ExpungeError, MemoryError):
        raise
    except UNREADABLE as error:
        raise CorruptStore(
            f"{file.path}: it does not describe a valid model ({type(error).__name__}: {error}); restore a backup."
        ) from error


def learner_of(file: StoreFile, plan: Sized) -> Learner:
    """Return what the engine runs by a plan that was read."""
    with sound(file):
        return plan.learner


def _check_state(file: StoreFile, state: State | FederationState) -> None:
    """Raise unless names, numbers and hashes look like such."""
    hashes = is_hex(state.store, 32) and is_hex(state.head, 64) and is_hex(state.key, 16)
    if not hashes or min(state.version, state.receipts) < 0:
        raise CorruptStore(f"{file.path}: about, row {STATE} is not the state of a store; restore a backup.")


def check_key(path: Path, key: bytes, state: State | FederationState) -> None:
    """Raise if a key, unless there is none, is not that of a store."""
    if key and fingerprint(key) != state.key:
        raise StoreError(f"{path}: this is the key of another store; copy the right one from a backup.")


def write_state(file: StoreFile, state: State | FederationState) -> str:
    """Write the state; return it as text."""
    text = KNOWN.write(state)
    file.put_text("about", STATE, text)
    return text


def finish_request(file: StoreFile, state: State, signer: Signer | None) -> str:
    """Write the state that a request leaves, and who signs, and that no request waits; return the state as text."""
    write_signer(file, signer)
    text = write_state(file, state)
    file.put("pending", 0, b"")  # the row stays, blank, so that the next request dirties no page but its own
    return text


def read_signer(file: StoreFile) -> str | None:
    """Return the public key of whoever signed last; None if nobody did, or an earlier version has not noted it."""
    noted = file.text("about", SIGNER)
    if noted is not None and not is_hex(noted, 64):
        raise CorruptStore(f"{file.path}: about, row {SIGNER} is not a public key; restore a backup.")
    return noted


def write_signer(file: StoreFile, signer: Signer | None) -> None:
    """Note who signs: then receipts that somebody else has made up do not pass for the store's."""
    if signer is not None and file.text("about", SIGNER) != signer.public_key:
        file.put_text("about", SIGNER, signer.public_key)


def stored_transcript(file: StoreFile, learner: Learner, records: StoredRecords) -> Transcript:
    """Return the transcript that is in a store; its tables are read when they are needed."""
    steps = learner.schedule.steps(records.count)
    if learner.structure is not None:
        return _stored_structure(file, learner.structure, records)
    start = np.asarray(learner.rule.start, dtype=float)
    check_room(file, "the transcript", 8 * steps * learner.query.size)
    sums = StoredRows(file, "sums", learner.query.size, steps)
    iterates = StoredRows(file, "iterates", start.size, steps)
    if learner.laws is not None:
        return Transcript(sums, iterates, iterates, start, records)
    answers = sums if learner.silent else StoredRows(file, "answers", learner.query.size, steps)
    return Transcript(sums, answers, iterates, start, records)


def _stored_structure(file: StoreFile, structure: Structure, records: StoredRecords) -> Transcript:
    """Return a structure from a sample and its sums, which are read when they are needed."""
    check_room(file, "the structure", 8 * structure.packed)
    sums, found = stored_cells(file, structure)
    return Transcript(sums, found, found, np.zeros(structure.packed), records)


def stored_cells(file: StoreFile, structure: Structure) -> tuple[StoredRows, StoredRows]:
    """Return the sums of a structure, and the structure itself."""
    return StoredRows(file, "sums", structure.width, None, CELLS), StoredRows(file, "iterates", structure.packed, 1)


def store_transcript(file: StoreFile, learner: Learner, transcript: Transcript) -> None:
    """Write a transcript again."""
    for name, table in transcript.tables.items():
        cells = learner.structure is not None and name == "sums"
        StoredRows.store(file, name, table[:], CELLS if cells else None)


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
        request, arrays = self.request, dict(self.request.labels)
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


ABOUT_A_REQUEST = 2_000
"""No request or receipt has so many bytes beside its records and names."""


def check_fits(file: StoreFile, request: Request) -> None:
    """Raise if a request or its receipt would be longer than a row can be: once recorded, it could not be finished."""
    named, names = request.names, list(request.labels.values())
    columns: Batch = getattr(request, "columns", ())
    count = rows_in(columns[0]) if columns else len(names[0])
    recorded = sum([name.nbytes for name in names]) + sum([_nbytes(column) for column in columns])
    receipt = 0 if named is None else count * BYTES_A_NAME
    size, room = max(recorded, receipt), file.longest - ABOUT_A_REQUEST
    if size > room:
        raise BadRecords(
            f"{count:,} records or names at once: a request is recorded as a whole before it is done, and a file has "
            f"room for {count * room // size:,} like these. Make several requests."
        )


def _nbytes(column: Column) -> int:
    parts = (column.data, column.indices, column.indptr) if is_sparse(column) else (np.asarray(column),)
    return sum(part.nbytes for part in parts)


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
    return Pending.from_bytes(bytes(content)) if content else None


def _column(arrays: dict[str, AnyArray], position: int, width: int | None) -> Column:
    if width is None:
        return arrays[str(position)]
    data, indices, ends = (arrays[f"{position} {part}"] for part in ("data", "indices", "indptr"))
    column = csr(data, indices, ends, width)
    column.check_format(full_check=True)  # or else what is wrong would be read from memory that is not its own
    return column


def advanced(state: State, inventory: Inventory) -> State:
    """Return the next state, of a model that was made again."""
    return replace(state, version=state.version + 1, inventory=inventory)


def signatures(file: StoreFile, state: State | FederationState) -> tuple[bool, ...]:
    """Say of the first receipt and of the last, if there are any, whether they are signed; they are not read again."""
    if state.signed is not None:
        return state.signed
    texts = [file.text("receipts", number) for number in (1, state.receipts)]
    return tuple([Receipt.from_json(text).signature is not None for text in texts if text is not None])


def signs(file: StoreFile, state: State) -> tuple[bool, ...]:
    """Say whether the first receipt and the last are signed, and whether a key was noted, at the fit or since."""
    return (*signatures(file, state), read_signer(file) is not None)


def read_receipt(file: StoreFile, number: str, position: int) -> Receipt | None:
    """Return the receipt of a request, if it stands at this position."""
    text = file.text("receipts", position)
    receipt = None if text is None else Receipt.from_json(text)
    return receipt if receipt is not None and receipt.request == number else None
