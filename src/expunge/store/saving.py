"""Writing a model into a file of its own."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from shutil import rmtree
from typing import Any

from expunge.base.errors import NotAStore, StoreError
from expunge.engine.learner import Transcript
from expunge.engine.records.lookup import fresh_hash_key, hashes
from expunge.engine.records.memory import MemoryRecords
from expunge.store import failpoints
from expunge.store.file import StoreFile, Table
from expunge.store.keys import load_key, make_key
from expunge.store.parameters import write_model
from expunge.store.receipts import KEY_BYTES
from expunge.store.records import StoredRecords, index_records, store_records
from expunge.store.state import (
    DESCRIPTION,
    KNOWN,
    PROJECTION,
    Description,
    State,
    advanced,
    first_state,
    store_transcript,
    write_state,
)
from expunge.store.surroundings import ENDINGS, beside, check_neighbours, sync_file, sync_folder, warn_if_remote

PAGES = (512, 1024, 2048, 4096)
"""Sizes of a page, for small blocks and larger ones."""


def page_for(block: int) -> int:
    """Return the size of pages for blocks of so many bytes: small ones would waste large pages."""
    return next((page for page in PAGES if block <= 2 * page), PAGES[-1])


def as_path(path: str | PathLike[str]) -> Path:
    """Return where a file really is, or say that it is no path: links to one file must not lead to several locks."""
    if not isinstance(path, (str, PathLike)):
        raise NotAStore(f"path: expected the path of a file, got {type(path).__name__}.")
    found, mode = Path(), 0
    try:
        found = Path(os.path.realpath(path))
        mode = os.stat(found).st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:
        raise NotAStore(f"path: {os.fspath(path)!r} cannot be the path of a file ({error}).") from error
    if mode and not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no file"
        raise NotAStore(f"{found}: this is {what}; give the path of a file.")
    return found


def check_new(path: Path) -> None:
    """Raise if a file is there already, cannot be made, or would be taken for one that belongs to another."""
    check_name(path)
    if path.exists():
        raise StoreError(f"{path}: exists already; give another path, or remove the file.")
    check_folder(path)
    check_neighbours(path)
    log = beside(path, "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreError(f"{log}: this is the log of another store, without its store; remove it.")


def check_name(path: Path) -> None:
    """Raise if a store of that name would be taken for a file that belongs to another, and removed with it."""
    for ending in ENDINGS:
        if path.name.endswith(ending):
            raise StoreError(f"{path}: names in {ending} are for files that belong to a store; give another path.")


def check_folder(path: Path) -> None:
    """Raise if a file has no folder to lie in."""
    if not path.parent.is_dir():
        raise NotAStore(f"{path}: no such folder: {path.parent}; make it first.")


@contextmanager
def new_store(path: Path, page: int) -> Iterator[tuple[StoreFile, bytes]]:
    """Give a file to write a store into, and its key; the file gets its name when it is whole.

    If it never is, nothing is left.
    """
    check_new(path)
    warn_if_remote(path)
    new, key_file = beside(path, "-new"), beside(path, "-key")
    remove(new)
    key = load_key(key_file) if key_file.exists() else secrets.token_bytes(KEY_BYTES)
    try:
        file = StoreFile.create(new, page)
        try:
            with file.transaction():
                yield file, key
            file.finish()
        finally:
            file.close()
        failpoints.pass_point("save: written")
        if not key_file.exists():
            make_key(key_file, key)
        rename(new, path)
        failpoints.pass_point("save: renamed")
    except BaseException:
        remove(new)
        raise


def rename(new: Path, path: Path) -> None:
    """Give a file its name, durably."""
    sync_file(new)
    os.replace(new, path)
    sync_folder(path.parent)


def copy_key(source: Path, path: Path) -> None:
    """Give a copy of a store the same key; another that lies there may be the only one of a store that was lost."""
    key = load_key(source)
    if not path.exists():
        make_key(path, key)
    elif load_key(path) != key:
        raise StoreError(f"{path}: this is the key of another store; move it away, or give another path.")


SIDE_FILES = ("", "-wal", "-shm", "-journal")
"""What the names of a SQLite file, and of those that it may have beside it, end in."""


def remove_spool(folder: Path) -> None:
    """Remove what an ingest has left, or whatever has its name: nothing is followed, and no pipe is waited for."""
    if folder.is_dir() and not folder.is_symlink():
        rmtree(folder, ignore_errors=True)
    elif os.path.lexists(folder):
        try:
            os.unlink(folder)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be removed ({error.strerror}); remove it.") from error


def remove(path: Path) -> None:
    """Remove a SQLite file and what belongs to it, if there is one, durably."""
    removed = False
    for ending in SIDE_FILES:
        try:
            os.unlink(f"{path}{ending}")
            removed = True
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{path}{ending}: cannot be removed ({error.strerror}); remove it.") from error
    if removed:
        sync_folder(path.parent)


def begin_store(file: StoreFile, description: Description, projection: bytes | None, transcript: Transcript) -> None:
    """Write what is not records, transcript or state."""
    file.put_text("about", DESCRIPTION, KNOWN.write(description))
    file.put("pending", 0, b"")
    write_model(file, description.plan.learner, transcript)
    if projection is not None:
        file.put("arrays", PROJECTION, projection)


def save(
    path: Path,
    description: Description,
    projection: bytes | None,
    records: MemoryRecords,
    transcript: Transcript,
) -> None:
    """Write a model into a new store."""
    places = max(1, len(records.places.lengths))
    bytes_a_record = sum(_bytes(column) for column in records.template)
    with new_store(path, page_for(records.count * bytes_a_record // places)) as (file, key):
        begin_store(file, description, projection, transcript)
        store_transcript(file, description.plan.learner, transcript)
        write_state(file, first_state(store_records(file, records), key))


def save_anew(
    file: StoreFile,
    before: State,
    description: Description,
    records: MemoryRecords,
    transcript: Transcript,
) -> None:
    """Write a fresh fit in the place of all that a file has, but its receipts."""
    file.put_text("about", DESCRIPTION, KNOWN.write(description))
    file.drop("blocks", 0)
    inventory = store_records(file, records)
    tables: tuple[Table, ...] = ("sums", "answers", "iterates")
    for table in tables:
        file.drop(table, 0)
    store_transcript(file, description.plan.learner, transcript)
    write_model(file, description.plan.learner, transcript)
    write_state(file, advanced(before, inventory))


def index_anew(file: StoreFile, before: State, records: StoredRecords) -> None:
    """Write the indexes again, for the number of records that there are."""
    names, key = records.subjects, records.hash_key or fresh_hash_key()
    ids, subjects = [hashes(records.all_ids(), key)], None if names is None else [hashes(names, key)]
    buckets = index_records(file, ids, subjects, records.places.lengths)
    inventory = replace(before.inventory, buckets=buckets[0], subject_buckets=buckets[1], hash_key=key.hex())
    write_state(file, replace(before, inventory=inventory))


def _bytes(column: Any) -> int:
    return int(column.dtype.itemsize * (column.shape[1] if column.ndim > 1 else 1))
