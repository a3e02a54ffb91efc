"""What lies beside a store before SQLite sees it: a file that was sent by others may come with traps."""

from __future__ import annotations

import os
import stat
import struct
import time
from pathlib import Path

from expunge.base.errors import StoreError
from expunge.store import descriptors

ENDINGS = ("-wal", "-shm", "-journal", "-lock", "-key", "-seal", "-new", "-spool")
"""What the names of files that belong to a store end in."""


def private(path: str, flags: int) -> int:
    """Open a file so that, if it is new, only its owner can read it; what SQLite puts beside it is like it."""
    return os.open(path, flags, 0o600)


def make_private(path: Path) -> None:
    """Make an empty file that only its owner can read."""
    try:
        os.close(private(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); check its folder.") from error


def beside(path: Path, ending: str) -> Path:
    """Return the name of a file that belongs to a store."""
    return path.with_name(path.name + ending)


_MAGIC = (0x377F0682, 0x377F0683)
"""What a log begins with; the second if its checksums are of numbers with the highest byte first."""
_HEADER, _FRAME = 32, 24
"""How many bytes the header of a log has, and that of each of its frames."""
_LARGEST = _HEADER + _FRAME + 65536
_SETTLED, _PAUSE = 2.0, 0.001
"""How many seconds to give who is just opening a store, and to wait before looking again."""


def check_neighbours(path: Path) -> None:
    """Raise if there is anything beside a store that SQLite must not see.

    A journal makes SQLite undo what it says was done last, and then remove whatever file the journal names; a store has
    a log instead, and never a journal. And a log that is a link leads SQLite to write elsewhere.
    """
    journal = path.with_name(f"{path.name}-journal")
    if os.path.lexists(journal):
        raise StoreError(
            f"{journal}: this is a journal of SQLite, which no store has. It may have been put there to make SQLite "
            "remove other files. Nothing was opened: remove it if you trust the store, and find out where it came from."
        )
    for ending in ("-wal", "-shm"):
        file = path.with_name(f"{path.name}{ending}")
        try:
            status = os.lstat(file)
        except OSError:
            continue
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise StoreError(f"{file}: this is not a file of the store, but a link or a device; remove it.")


def check_links(path: Path, links: int) -> None:
    """Raise if a file has several names: by each it would have another log and another lock."""
    if links > 1:
        raise StoreError(
            f"{path}: this file has {links} names (hard links). Each name would have a separate log and lock, and the "
            "store would be destroyed. Remove the other names; to have a copy, make a backup."
        )


def check_one_log(path: Path, wait: float) -> None:
    """Raise if others have a store open whose log, or its index, was removed.

    They go on with the files that they have, and whoever opens the store now would be given new ones: neither would
    see what the other writes. Who is just opening the store has none of them for a moment.
    """
    late = time.monotonic() + min(wait, _SETTLED)
    while missing := _missing_log(path):
        if time.monotonic() >= late:
            raise StoreError(
                f"{missing}: was removed while another process has the store open, which needs it. Close the store in "
                "all processes, and open it again."
            )
        time.sleep(_PAUSE)


def _missing_log(path: Path) -> Path | None:
    """Return which file is missing, if somebody has the store open."""
    files = [path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-shm")]
    if all(file.exists() for file in files) or not (descriptors.CAN_TELL and os.access(path, os.W_OK)):
        return None
    with descriptors.alone(path) as alone:
        if alone:
            return None
    return next((file for file in files if not file.exists()), None)


def reset_log(path: Path) -> None:
    """Empty a log of which not even the first frame is whole, if nobody has the store open.

    There is nothing in it. But SQLite would make an index of it, and put there whatever has lain in its memory.
    """
    log = path.with_name(f"{path.name}-wal")
    if _is_hollow(log) and os.access(log, os.W_OK) and os.access(path, os.W_OK):
        with descriptors.alone(path) as alone:
            if alone and _is_hollow(log):
                os.truncate(log, 0)


def _is_hollow(log: Path) -> bool:
    """Say whether a log has bytes, and no whole frame."""
    try:
        if not log.stat().st_size:
            return False
        with open(log, "rb") as file:
            content = file.read(_LARGEST)
    except OSError:
        return False
    if len(content) < _HEADER:
        return True
    magic, _, page = struct.unpack_from(">III", content)
    order = ">" if magic == _MAGIC[1] else "<"
    end = _HEADER + _FRAME + page
    if magic not in _MAGIC or not 512 <= page <= 65536 or len(content) < end:
        return True
    sums = _sums(content[:24], order, (0, 0))
    first = _sums(content[_HEADER : _HEADER + 8], order, sums)
    first = _sums(content[_HEADER + _FRAME : end], order, first)
    return (
        sums != struct.unpack_from(">II", content, 24)
        or content[_HEADER + 8 : _HEADER + 16] != content[16:24]
        or first != struct.unpack_from(">II", content, _HEADER + 16)
    )


def _sums(content: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's checksum of some bytes, which goes on from an earlier one."""
    one, two = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) % 2**32
        two = (two + second + one) % 2**32
    return one, two
