"""Numbered blobs as SQLite keeps them, with checksums, none of whose bytes lie in a B-tree."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import Any

_HEAD = struct.Struct("<II")


@cache
def least_local(page: int) -> int:
    """Return how many bytes of a long blob SQLite keeps in the B-tree, where blobs fill their pages."""
    return (page - 12) * 32 // 255 - 23


def _header(length: int) -> int:
    """Return the size of the header of SQLite's row with such a blob."""
    code, size = 2 * length + 12, 1
    while code >= 128:
        code, size = code >> 7, size + 1
    return size + 2


def blob_size(page: int, content: int) -> int:
    """Return the length of the blob for so many bytes: its pages are full."""
    least, step = least_local(page), page - 4
    pages = max(1, -(-(content + _HEAD.size) // step))
    size = least + pages * step
    size -= _header(size)
    return size if size - least >= content + _HEAD.size else size + step


def checksum(table: str, number: int, content: Any) -> int:
    """Return the checksum of a row, which tells it from any other row."""
    return zlib.crc32(content, zlib.crc32(f"{table} {number}".encode()))
