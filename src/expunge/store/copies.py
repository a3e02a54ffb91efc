"""Compacting a store, backups, and restoring one without bringing deleted people back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from expunge.base.errors import BadPlan, BusyStore, CorruptStore, StoreError
from expunge.base.intake import Delete, Insert, NamedBy
from expunge.base.types import AnyArray
from expunge.engine.randomness import Randomness
from expunge.store import failpoints
from expunge.store.chain import check_receipts, export, is_framed, read_exported
from expunge.store.codec import strangers_of
from expunge.store.file import StoreFile
from expunge.store.keys import Signer, as_signer, confirms, load_key, load_public_key
from expunge.store.locks import WriterLock
from expunge.store.owner import StoredOwner
from expunge.store.receipts import Receipt, are_named, check_signer, digest_names
from expunge.store.records import StoredRecords
from expunge.store.saving import as_path, check_folder, check_name, check_new, copy_key, remove, rename
from expunge.store.sqlite import WAIT, as_wait
from expunge.store.state import (
    SIGNER,
    Pending,
    State,
    check_key,
    learner_of,
    read_description,
    read_pending,
    read_signer,
    read_state,
    today,
    write_state,
)
from expunge.store.surroundings import beside, check_neighbours, sync_folder

MOST_VERSIONS = 2**62
"""Up to what version a store can be restored: receipts go on from there, and have to be told apart."""


def compact_kept(owner: StoredOwner) -> None:
    """Rewrite the file of a store in canonical order."""
    owner.session.refuse_read_only()
    with owner.lock:
        owner.reindex()
        try:
            rewrite(owner.file, owner.check_unchanged)
        finally:
            owner.session.empty_log()


def rewrite(file: StoreFile, check: Callable[[], None]) -> None:
    """Put a copy in canonical order in the place of all that is in a file; the log must be emptied afterwards.

    ``check`` raises if somebody has written in between, though this process has the lock.
    """
    new = beside(file.path, "-new")
    remove(new)
    try:
        file.copy_to(new)
        failpoints.pass_point("compact: copied")
        copy = StoreFile(new)
        try:
            failpoints.pass_point("compact: replacing")
            file.replace_by(copy, check)
        finally:
            copy.close()
        failpoints.pass_point("compact: replaced")
    finally:
        remove(new)


def backup(
    path: str | PathLike[str], to: str | PathLike[str], *, loss: Any = None, structure: Any = None, wait: float = WAIT
) -> None:  # fmt: skip
    """Write a copy of a store, as it is after its last request, to another path; its key goes with it.

    Do not keep backups longer than you may: they contain records that are deleted later. `restore` deletes these again.
    """
    path, to = as_path(path), as_path(to)
    check_new(to)
    owner = StoredOwner(path, strangers=strangers_of(loss, structure), wait=wait)
    try:
        with owner.lock:
            owner.catch_up(lambda: None)  # a copy has no request that waits, nor its coins
            write_copy(owner.file, to)
    finally:
        owner.close()


def write_copy(file: StoreFile, to: Path) -> None:
    """Write a copy of a store, and of its key, to a new path, which it gets when it is whole.

    Until then it has the name that a copy in the making has beside the store itself. If this process is killed, the
    next copy that goes to the same folder takes its place; in the store's own folder any request removes it.
    """
    new = beside(to.with_name(file.path.name), "-new")
    with _writing_beside(file.path, new):
        try:
            remove(new)
            file.copy_to(new)
            StoreFile(new).close()  # which turns its log on
            failpoints.pass_point("backup: copied")
            copy_key(beside(file.path, "-key"), beside(to, "-key"))
            rename(new, to)
            failpoints.pass_point("backup: renamed")
        finally:
            remove(new)


@contextmanager
def _writing_beside(path: Path, new: Path) -> Iterator[None]:
    """Be the only one who writes a copy of that name; in the store's own folder its lock, which is held, sees to it."""
    if new == beside(path, "-new"):
        yield
        return
    store = new.with_name(path.name)  # there may be one
    lock = WriterLock(store, WAIT)
    lock.acquire()
    try:
        yield
    finally:
        if not store.exists():
            lock.remove()
        lock.close()


@dataclass(frozen=True)
class Restored:
    """What restoring a backup did."""

    erased: int
    """How many records of the backup were deleted again."""
    replaced: int
    """How many records had been replaced since then: these have their old content, and must be replaced again."""
    inserted: int
    """How many records had been inserted since then: they are not in the backup."""
    unfinished: Literal["insert", "replace"] | None = None
    """A request that was recorded and not finished, which the backup cannot take over: it is counted above."""


class _Told(NamedTuple):
    """Who was deleted since a backup was made, according to the replaced store or to given receipts."""

    document: dict[str, Any]
    waiting: Pending | None = None
    """The request that waits in the store."""
    signed_by: str | None = None
    """The public key that the store has noted."""
    given: bool = False
    """Whether receipts were given: then nothing but a signature shows that ``version`` is right."""
    behind: bool = False
    """Whether the store itself has receipts that are not among those given."""


def restore(
    backup: str | PathLike[str],
    path: str | PathLike[str],
    *,
    receipts: Any = None,
    loss: Any = None,
    structure: Any = None,
    wait: float = WAIT,
    sign_with: Any = None,
    public_key: Any = None,
    noted: str | None = None,
) -> Restored:
    """Put a backup in the place of a store, and delete again those who were deleted since it was made.

    The receipts say who that was: those of the current store or, if it cannot be read, ``receipts``, the result of
    `export_receipts` (or the path of a file with it). Deleting them again gets its own receipt, for which ``sign_with``
    is as in `expunge.open`, as are ``loss`` and ``structure``. If receipts are signed, the last one must be signed, and
    it vouches for those before it: by ``public_key`` (as in `check_receipts`) or ``sign_with`` or, if neither is given,
    the key that the backup has noted, or else the store. ``sign_with=False`` accepts unsigned ones deliberately.
    ``noted`` is a head hash noted earlier, which must be among the receipts: nothing else shows that the last ones were
    not removed. Nobody may have the store open meanwhile. Restore only because a file is lost or damaged, never because
    of how a deletion turned out: that would be a bias.
    """
    source, target, signer = as_path(backup), as_path(path), as_signer(sign_with)
    check_name(target)
    check_folder(target)
    check_neighbours(target)
    new = beside(target, "-new")
    lock = WriterLock(target, as_wait(wait))
    lock.acquire()
    try:
        told = _receipts_of(target, noted) if receipts is None else _given(target, _read(receipts, noted))
        said = told.document
        _copy(source, new)
        strangers = strangers_of(loss, structure)
        restored = _prepare(new, target, source, told, strangers, signer, public_key)
        if restored.erased:  # which gets a receipt
            check_signer(signer, [one["signature"] for one in said["receipts"][:1] + said["receipts"][-1:]])
        failpoints.pass_point("restore: prepared")
        if not beside(target, "-key").exists():
            copy_key(beside(source, "-key"), beside(target, "-key"))
        for ending in ("-wal", "-shm"):
            beside(target, ending).unlink(missing_ok=True)
        sync_folder(target.parent)  # what was logged for one file must never be found beside the other
        rename(new, target)
        failpoints.pass_point("restore: renamed")
    except BaseException:
        remove(new)
        raise
    finally:
        lock.release()
        lock.close()
    try:
        _finish(StoredOwner(target, strangers=strangers, wait=wait, signer=signer))
    except StoreError as error:
        raise StoreError(
            f"{target}: the backup is restored, but one step is not finished ({error}) The next process that opens it "
            "finishes it first."
        ) from error
    return restored


def _finish(owner: StoredOwner) -> None:
    """Do what waits in a store."""
    try:
        owner.catch_up(lambda: None)
    finally:
        owner.close()


def _key_of(target: Path, source: Path, state: State) -> bytes:
    """Return the key of a store, which its backups have too; by another nobody who was deleted would be found."""
    files = [file for file in (beside(target, "-key"), beside(source, "-key")) if file.exists()]
    keys = [load_key(file) for file in files or [beside(target, "-key")]]
    for file, key in zip(files, keys, strict=True):
        check_key(file, key, state)
    return keys[0]


def _read(receipts: Any, noted: str | None) -> dict[str, Any]:
    """Return receipts that were exported, also from a file."""
    said = read_exported(receipts)
    check = check_receipts(said, noted=noted)
    if not check.ok:
        raise CorruptStore(f"receipts: {check.problems[0]}; give what export_receipts() gave last.")
    return said


def _receipts_of(path: Path, noted: str | None) -> _Told:
    """Return the receipts of the store that is to be replaced, the request that waits there, and who signs."""
    try:
        file = StoreFile(path)
        try:
            file.truncate_log()  # it will be removed: nothing may be in the log only
            state = read_state(file)
            receipts = [Receipt.from_json(text) for text in file.texts("receipts")]
            waiting, signed_by = read_pending(file), read_signer(file)
        finally:
            file.close()
    except BusyStore:
        raise
    except StoreError as error:
        raise StoreError(
            f"receipts: cannot read from {path} who was deleted since the backup ({error}). Give the receipts that "
            "export_receipts() gave last."
        ) from error
    said = export(receipts, store=state.store, head=state.head, version=state.version)
    return _Told(_read(said, noted), waiting, signed_by)


def _given(path: Path, said: dict[str, Any]) -> _Told:
    """Return receipts that were given, and whether the store that is to be replaced, if it can be read, has others."""
    try:
        own = _receipts_of(path, None)
    except BusyStore:
        raise
    except StoreError:  # it is lost, or damaged: that is what they are given for
        return _Told(said, given=True)
    if own.document["store"] != said["store"]:
        return _Told(said, given=True)
    known, given = ([one["hash"] for one in document["receipts"]] for document in (own.document, said))
    return _Told(said, given=True, behind=given[: len(known)] != known)


def _copy(source: Path, new: Path) -> None:
    remove(new)
    file = StoreFile(source, read_only=True)
    try:
        file.copy_to(new)
    finally:
        file.close()


def _prepare(
    new: Path, target: Path, source: Path, told: _Told, strangers: dict[str, Any],
    signer: Signer | Literal[False] | None, public_key: Any,
) -> Restored:  # fmt: skip
    """Make a copy of the backup the store's next state: with all receipts, and the deletions to do again waiting."""
    said, waiting = told.document, told.waiting
    file = StoreFile(new)
    try:
        state = read_state(file)
        receipts = [Receipt.from_json(json.dumps(one)) for one in said["receipts"]]
        _check_descent(source, state, said, receipts)
        keys = _trusted(public_key, signer, read_signer(file), told.signed_by)
        signed_by = _check_signed(receipts, state.receipts, keys, signer)
        version = _version(told, state, receipts, keys)
        if told.behind:
            raise StoreError(
                f"receipts: {target} can be read, and has receipts that are not among those given: people deleted by "
                "them would be back. Leave receipts out."
            )
        key = _key_of(target, source, state)
        newer = receipts[state.receipts :]
        schedule = learner_of(file, read_description(file, strangers).plan).schedule
        ids = _named(StoredRecords(file, state.inventory, schedule), newer, waiting, key)
        same = state.version == version  # as the store that is replaced: what waits there has its coins
        state = replace(state, version=version, receipts=len(receipts), head=said["head"], signed=None)
        with file.transaction():
            for number, receipt in enumerate(newer, start=len(receipts) - len(newer) + 1):
                file.put_text("receipts", number, receipt.to_json())
            write_state(file, state)
            if signed_by is not None:
                file.put_text("about", SIGNER, signed_by)
            file.drop("pending", 0)
            if waiting is not None and same:
                file.put("pending", 0, waiting.to_bytes())
            elif len(ids):
                again = Pending(Delete(ids), uuid.uuid4().hex, state.version, Randomness.fresh().key, today())
                file.put("pending", 0, again.to_bytes())
        file.truncate_log()
    finally:
        file.close()
    replaced = sum(receipt.added for receipt in newer if receipt.kind == "replace")
    inserted = sum(receipt.added for receipt in newer if receipt.kind == "insert")
    if waiting is None or same or isinstance(waiting.request, Delete):
        return Restored(len(ids), replaced, inserted)
    if isinstance(waiting.request, Insert):
        return Restored(len(ids), replaced, inserted + int(waiting.request.columns[0].shape[0]), "insert")
    return Restored(len(ids), replaced + int(waiting.request.columns[0].shape[0]), inserted, "replace")


def _trusted(
    public_key: Any, signer: Signer | Literal[False] | None, backup: str | None, replaced: str | None
) -> list[Any]:
    """Return the public keys that may have signed: those that are given or, if none is, the backup's.

    The backup is what is trusted here; what the store says of itself counts only if nothing else is known, since
    whoever made up its receipts could have put in a key as well.
    """
    own = signer.public_key if signer else None
    for keys in ((own, public_key), (backup,), (replaced,)):
        if known := [load_public_key(key) for key in keys if key is not None]:
            return known
    return []


def _check_signed(
    receipts: list[Receipt], first: int, keys: list[Any], signer: Signer | Literal[False] | None
) -> str | None:  # fmt: skip
    """Raise if receipts that the backup does not have, from ``first`` on, should be signed and are not.

    Return the public key that has signed the last one, if that was checked. The last signature vouches for all
    receipts before it: so they may be of a time before there was a key, or of another key. Those that the backup has
    are as it says.
    """
    if len(receipts) == first or not (keys or any(one.signature is not None for one in receipts)):
        return None
    last = receipts[-1]
    if last.signature is None:
        if signer is not False:
            raise CorruptStore(
                "receipts: the last one is not signed, although this store signs: it, and any before it, may be "
                "forged. Give what export_receipts() gave last; or sign_with=False, if they were left unsigned "
                "deliberately."
            )
        return None
    for key in keys:
        if confirms(key, last.signature, last.hash):
            return str(key.public_bytes_raw().hex())
    if keys:
        raise CorruptStore(
            "receipts: the last one is not signed by the known key; it, and any before it, may be forged. Give what "
            "export_receipts() gave last; or, if the key was changed since, give public_key."
        )
    if signer is None:
        raise BadPlan(
            "public_key: the receipts of this store are signed, but the key is not known; give the public key, or "
            "sign_with=False to accept them as they are."
        )
    return None


def _version(told: _Told, state: State, receipts: list[Receipt], keys: list[Any]) -> int:
    """Return the version of the state to go on from: what an export says only if that is signed."""
    said = told.document
    version = max([state.version, *(receipt.version for receipt in receipts[-1:])])
    if not told.given or any(is_framed(said, key) for key in keys):
        version = int(said["version"])
    elif said.get("signature") is not None and keys:
        raise CorruptStore(
            "receipts: signature: not made for this export by the known key; give what export_receipts() gave last, or "
            "give public_key."
        )
    if version >= MOST_VERSIONS:
        raise CorruptStore(f"receipts: version {version} leaves none for later requests; give those of this store.")
    return version


def _check_descent(source: Path, state: State, said: dict[str, Any], receipts: list[Receipt]) -> None:
    """Raise unless the receipts go on where those of the backup end."""
    if said["store"] != state.store:
        raise StoreError(f"{source}: this is a backup of another model, as the receipts show; give one of this model.")
    heads = [receipt.hash for receipt in receipts]
    if state.receipts > len(heads) or (state.receipts and heads[state.receipts - 1] != state.head):
        raise StoreError(
            f"receipts: they do not continue where those of {source} end; give what export_receipts() gave last."
        )


def _named(
    records: StoredRecords, receipts: Iterable[Receipt], waiting: Pending | None, key: bytes
) -> AnyArray:  # fmt: skip
    """Return the ids of the records that receipts say were deleted, and of those whose deletion waits."""
    wanted: dict[NamedBy, set[str]] = {"ids": set(), "subjects": set()}
    for receipt in receipts:
        if receipt.kind == "delete" and receipt.named_by is not None:
            wanted[receipt.named_by].update(receipt.digests)
    if waiting is not None and isinstance(waiting.request, Delete):
        for by, digests in wanted.items():
            if (names := getattr(waiting.request, by)) is not None:
                digests.update(digest_names(key, by, names))
    ids = records.all_ids()
    gone = are_named(key, "ids", ids, wanted["ids"])
    if records.subjects is not None:
        gone |= are_named(key, "subjects", records.subjects, wanted["subjects"])
    return ids[gone]
