"""Writing a model into a file of its own."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from expunge.errors import NotAStore, StoreError
from expunge.learner import Transcript
from expunge.memory import MemoryRecords
from expunge.store import failpoints
from expunge.store.file import ENDINGS, StoreFile, beside
from expunge.store.keys import KEY_BYTES, load_key, make_key
from expunge.store.records import store_records
from expunge.store.state import (
    DESCRIPTION,
    KNOWN,
    PROJECTION,
    Description,
    first_state,
    store_transcript,
    write_state,
    write_vector,
)
from expunge.types import Array

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
    for ending in ENDINGS:
        if path.name.endswith(ending):
            raise StoreError(f"{path}: names in {ending} are for files that belong to a store; give another path.")
    if path.exists():
        raise StoreError(f"{path}: is already there; give another path, or remove the file.")
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raise if a file has no folder to lie in."""
    if not path.parent.is_dir():
        raise NotAStore(f"{path}: there is no folder {path.parent}; make it first.")


@contextmanager
def new_store(path: Path, page: int) -> Iterator[tuple[StoreFile, bytes]]:
    """Give a file to write a store into, and its key; the file gets its name when it is whole.

    If it never is, nothing is left.
    """
    check_new(path)
    new, key_file = beside(path, "-new"), beside(path, "-key")
    remove(new)
    key = load_key(key_file) if key_file.exists() else secrets.token_bytes(KEY_BYTES)
    try:
        file = StoreFile.create(new, page)
        try:
            with file.transaction():
                yield file, key
        finally:
            file.close()
        failpoints.reach("save: written")
        if not key_file.exists():
            make_key(key_file, key)
        rename(new, path)
        failpoints.reach("save: renamed")
    except BaseException:
        remove(new)
        raise


def rename(new: Path, path: Path) -> None:
    """Give a file its name, durably."""
    descriptor = os.open(new, os.O_RDWR)  # Windows does not sync what is open for reading only
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(new, path)
    with suppress(OSError):  # not every system lets folders be synced
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def copy_key(source: Path, path: Path) -> None:
    """Give a copy of a store the same key."""
    key = load_key(source)
    path.unlink(missing_ok=True)
    make_key(path, key)


def remove(path: Path) -> None:
    """Remove a SQLite file and what belongs to it, if there is one."""
    for ending in ("", "-wal", "-shm", "-journal"):
        try:
            os.unlink(f"{path}{ending}")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{path}{ending}: cannot be removed ({error.strerror}); remove it.") from error


def begin_store(file: StoreFile, description: Description, projection: bytes | None, model: Array) -> None:
    """Write what is not records, transcript or state."""
    file.put_text("about", DESCRIPTION, KNOWN.write(description))
    write_vector(file, model)
    if projection is not None:
        file.put("arrays", PROJECTION, projection)


def save(
    path: Path,
    description: Description,
    projection: bytes | None,
    records: MemoryRecords,
    transcript: Transcript,
    model: Array,
) -> None:
    """Write a model into a new store."""
    places = max(1, len(records.shelves.lengths))
    bytes_a_record = sum(_bytes(column) for column in records.model)
    with new_store(path, page_for(records.count * bytes_a_record // places)) as (file, key):
        begin_store(file, description, projection, model)
        store_transcript(file, transcript)
        write_state(file, first_state(store_records(file, records), key))


def _bytes(column: Any) -> int:
    return int(column.dtype.itemsize * (column.shape[1] if column.ndim > 1 else 1))
