"""Looking after a store: compacting it, backups, and going back to one without bringing anybody back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from expunge.errors import BusyStore, CorruptStore, StoreError
from expunge.randomness import Randomness
from expunge.records import Delete
from expunge.store import failpoints
from expunge.store.file import WAIT, StoreFile, WriterLock, as_wait, beside
from expunge.store.keeper import DurableKeeper
from expunge.store.keys import as_signer, load_key
from expunge.store.receipts import (
    NamedBy,
    Receipt,
    are_named,
    check_receipts,
    check_signer,
    digest_names,
    export,
    read_exported,
)  # fmt: skip
from expunge.store.records import StoredRecords
from expunge.store.saving import as_path, check_folder, check_new, copy_key, remove, rename
from expunge.store.state import (
    Pending,
    State,
    check_key,
    read_description,
    read_pending,
    read_state,
    today,
    write_state,
)  # fmt: skip
from expunge.types import AnyArray


def compact_kept(keeper: DurableKeeper) -> None:
    """Rewrite the file of a store in canonical order."""
    keeper.refuse_read_only()
    with keeper.lock:
        keeper.reindex()
        try:
            rewrite(keeper.file)
        finally:
            keeper.empty_log()


def rewrite(file: StoreFile) -> None:
    """Put a copy in canonical order in the place of all that is in a file; the log must be emptied afterwards."""
    new = beside(file.path, "-new")
    remove(new)
    try:
        file.copy_to(new)
        failpoints.reach("compact: copied")
        copy = StoreFile(new)
        try:
            failpoints.reach("compact: replacing")
            file.replace_by(copy)
        finally:
            copy.close()
        failpoints.reach("compact: replaced")
    finally:
        remove(new)


def backup(path: str | PathLike[str], to: str | PathLike[str], *, loss: Any = None, wait: float = WAIT) -> None:
    """Write a copy of a store, as it is after its last request, to another path; its key goes with it.

    Keep backups no longer than you may: they have the records that are erased later. `restore` erases these again.
    """
    path, to = as_path(path), as_path(to)
    check_new(to)
    keeper = DurableKeeper(path, loss=loss, wait=wait)
    try:
        with keeper.lock:
            keeper.catch_up(lambda: None)  # a copy has no request that waits, nor its coins
            write_copy(keeper.file, to)
    finally:
        keeper.close()


def write_copy(file: StoreFile, to: Path) -> None:
    """Write a copy of a store, and of its key, to a new path, which it gets when it is whole."""
    new = beside(to, "-new")
    try:
        remove(new)
        file.copy_to(new)
        failpoints.reach("backup: copied")
        copy_key(beside(file.path, "-key"), beside(to, "-key"))
        rename(new, to)
        failpoints.reach("backup: renamed")
    finally:
        remove(new)


@dataclass(frozen=True)
class Restored:
    """What going back to a backup meant."""

    erased: int
    """How many records of the backup were erased again."""
    replaced: int
    """How many requests had replaced records since then: these have their old content, and must be replaced again."""
    inserted: int
    """How many records had been inserted since then: they are not in the backup."""


def restore(
    backup: str | PathLike[str],
    path: str | PathLike[str],
    *,
    receipts: Any = None,
    loss: Any = None,
    wait: float = WAIT,
    sign_with: Any = None,
) -> Restored:
    """Put a backup in the place of a store, and erase again who was erased since it was made.

    Who that was is known from the receipts: of the store that is there now or, if it cannot be read, from
    ``receipts``, which `export_receipts` gave (or the path of a file of them). To erase them again gets a receipt of
    its own, for which ``sign_with`` is as in `expunge.open`. Nobody may have the store open
    meanwhile. Go back because a file is lost or damaged, never because a deletion turned out one way or the other: that
    would be a bias.
    """
    source, target, signer = as_path(backup), as_path(path), as_signer(sign_with)
    check_folder(target)
    new = beside(target, "-new")
    lock = WriterLock(target, as_wait(wait))
    lock.acquire()
    try:
        said, waiting = _receipts_of(target) if receipts is None else (_read(receipts), None)
        _copy(source, new)
        strangers = {} if loss is None else {type(loss).__name__: loss}
        restored = _prepare(new, target, source, said, waiting, strangers)
        if restored.erased:  # which gets a receipt
            check_signer(signer, [one["signature"] for one in said["receipts"][:1] + said["receipts"][-1:]])
        failpoints.reach("restore: prepared")
        if not beside(target, "-key").exists():
            copy_key(beside(source, "-key"), beside(target, "-key"))
        for ending in ("-wal", "-shm"):
            beside(target, ending).unlink(missing_ok=True)
        rename(new, target)
        failpoints.reach("restore: renamed")
    except BaseException:
        remove(new)
        raise
    finally:
        lock.release()
        lock.close()
    try:
        _finish(DurableKeeper(target, loss=loss, wait=wait, signer=signer))
    except StoreError as error:
        raise StoreError(
            f"{target}: the backup is restored, but not all is done that belongs to it ({error}) Whoever opens it next "
            "does so first."
        ) from error
    return restored


def _finish(keeper: DurableKeeper) -> None:
    """Do what waits in a store."""
    try:
        keeper.catch_up(lambda: None)
    finally:
        keeper.close()


def _key_of(target: Path, source: Path, state: State) -> bytes:
    """Return the key of a store, which its backups have too; by another nobody who was erased would be found."""
    files = [file for file in (beside(target, "-key"), beside(source, "-key")) if file.exists()]
    keys = [load_key(file) for file in files or [beside(target, "-key")]]
    for file, key in zip(files, keys, strict=True):
        check_key(file, key, state)
    return keys[0]


def _read(receipts: Any) -> dict[str, Any]:
    """Return receipts that were exported, also from a file."""
    said = read_exported(receipts)
    check = check_receipts(said)
    if not check.ok:
        raise CorruptStore(f"receipts: {check.problems[0]}; give what export_receipts() gave last.")
    return said


def _receipts_of(path: Path) -> tuple[dict[str, Any], Pending | None]:
    """Return the receipts of the store that is to be replaced, and the request that waits there."""
    try:
        file = StoreFile(path)
        try:
            file.truncate_log()  # it will be removed: nothing may be in the log only
            state = read_state(file)
            receipts = [Receipt.from_json(text) for text in file.texts("receipts")]
            waiting = read_pending(file)
        finally:
            file.close()
    except BusyStore:
        raise
    except StoreError as error:
        raise StoreError(
            f"receipts: who was erased since the backup cannot be read from {path} ({error}). Give the receipts that "
            "export_receipts() gave last."
        ) from error
    said = export(receipts, store=state.store, head=state.head, version=state.version, public_key=None)
    return _read(said), waiting


def _copy(source: Path, new: Path) -> None:
    remove(new)
    file = StoreFile(source, read_only=True)
    try:
        file.copy_to(new)
    finally:
        file.close()


def _prepare(
    new: Path, target: Path, source: Path, said: dict[str, Any], waiting: Pending | None, strangers: dict[str, Any]
) -> Restored:  # fmt: skip
    """Make a copy of the backup the store's next state: with all receipts, and the erasures to do again waiting."""
    file = StoreFile(new)
    try:
        state = read_state(file)
        receipts = [Receipt.from_json(json.dumps(one)) for one in said["receipts"]]
        _check_descent(source, state, said, receipts)
        key = _key_of(target, source, state)
        newer = receipts[state.receipts :]
        schedule = read_description(file, strangers).plan.learner.schedule
        ids = _named(StoredRecords(file, state.inventory, schedule), newer, waiting, key)
        same = state.version == said["version"]  # as the store that is replaced: what waits there has its coins
        state = replace(state, version=said["version"], receipts=len(receipts), head=said["head"])
        with file.transaction():
            for number, receipt in enumerate(newer, start=len(receipts) - len(newer) + 1):
                file.put_text("receipts", number, receipt.to_json())
            write_state(file, state)
            file.drop("pending", 0)
            if waiting is not None and same:
                file.put("pending", 0, waiting.to_bytes())
            elif len(ids):
                again = Pending(Delete(ids), uuid.uuid4().hex, state.version, Randomness.fresh().key, today())
                file.put("pending", 0, again.to_bytes())
        file.truncate_log()
    finally:
        file.close()
    replaced = sum(receipt.kind == "replace" for receipt in newer)
    return Restored(len(ids), replaced, sum(receipt.added for receipt in newer if receipt.kind == "insert"))


def _check_descent(source: Path, state: State, said: dict[str, Any], receipts: list[Receipt]) -> None:
    """Raise unless the receipts go on where those of the backup end."""
    if said["store"] != state.store:
        raise StoreError(f"{source}: this is a backup of another model, as the receipts show; give one of this model.")
    heads = [receipt.hash for receipt in receipts]
    if state.receipts > len(heads) or (state.receipts and heads[state.receipts - 1] != state.head):
        raise StoreError(
            f"receipts: they do not go on where those of {source} end; give what export_receipts() gave last."
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
