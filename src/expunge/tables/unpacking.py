"""How large the batches of an Arrow file are when unpacked, known before unpacking: a few bytes may become many.

The footer says where batches begin, each batch where its buffers are, and each compressed buffer how long it will be.
Arrow reads those numbers too, but does not ask anybody before it unpacks. They are in FlatBuffers: a table begins with
the distance to a list of where its fields are.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from expunge.base.errors import BadRecords
from expunge.tables import limits

_DICTIONARIES, _BATCHES = 2, 3
"""Fields of the footer: where dictionaries are, and where batches are."""
_HEADER_TYPE, _HEADER = 1, 2
"""Fields of a message: whether it is a dictionary or a batch, and that."""
_IS_DICTIONARY, _BATCH_OF_DICTIONARY = 2, 1
"""The type of a dictionary, and the field of it that is a batch."""
_BUFFERS, _COMPRESSION = 2, 3
"""Fields of a batch."""


def check_unpacked(path: Path) -> None:
    """Raise if a batch of an Arrow file would have more bytes than `limits.UNPACKED`, and many more than the file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        limit = max(limits.UNPACKED, limits.UNPACKED_TIMES * len(data))
        try:
            footer = _Table.at(data, len(data) - 10 - _int(data, "<i", len(data) - 10))
            always = sum(_unpacked(data, *place) for place in footer.places(_DICTIONARIES))
            largest = max((_unpacked(data, *place) for place in footer.places(_BATCHES)), default=0)
        except (struct.error, IndexError) as error:
            raise OSError("its footer is damaged") from error
    if always + largest > limit:
        raise BadRecords(
            f"{path}: {always + largest:,} bytes must be unpacked together, but the limit is {limit:,}; write it in "
            "batches of fewer rows, or as Parquet."
        )


def _int(data: Any, kind: str, place: int) -> int:
    """Return the number at a place, if the place is in the file."""
    if place < 0:
        raise IndexError(place)
    return int(struct.unpack_from(kind, data, place)[0])


class _Table(NamedTuple):
    """A table of FlatBuffers in a file."""

    data: Any
    start: int

    @classmethod
    def at(cls, data: Any, place: int) -> _Table:
        """Return the table to which the number at a place points."""
        return cls(data, place + _int(data, "<I", place))

    def field(self, number: int) -> int | None:
        """Return where a field is, if the table has it."""
        fields = self.start - _int(self.data, "<i", self.start)
        if 4 + 2 * number >= _int(self.data, "<H", fields):
            return None
        offset = _int(self.data, "<H", fields + 4 + 2 * number)
        return self.start + offset if offset else None

    def inner(self, number: int) -> _Table:
        """Return a field that is a table."""
        place = self.field(number)
        if place is None:
            raise IndexError(number)
        return _Table.at(self.data, place)

    def items(self, number: int, size: int) -> Iterator[int]:
        """Return where the items of a field are that is a list."""
        place = self.field(number)
        if place is None:
            return
        start = place + _int(self.data, "<I", place)
        for item in range(_int(self.data, "<I", start)):
            yield start + 4 + size * item

    def places(self, number: int) -> Iterator[tuple[int, int]]:
        """Return where the batches of a field begin, and their bodies."""
        for item in self.items(number, 24):
            start = _int(self.data, "<q", item)
            yield start, start + _int(self.data, "<i", item + 8)


def _unpacked(data: Any, start: int, body: int) -> int:
    """Return how many bytes the buffers of a batch have when they are unpacked."""
    message = _Table.at(data, start + (8 if _int(data, "<I", start) == 0xFFFFFFFF else 4))
    batch, kind = message.inner(_HEADER), message.field(_HEADER_TYPE)
    if kind is not None and data[kind] == _IS_DICTIONARY:
        batch = batch.inner(_BATCH_OF_DICTIONARY)
    packed, total = batch.field(_COMPRESSION) is not None, 0
    for buffer in batch.items(_BUFFERS, 16):
        length = _int(data, "<q", buffer + 8)
        if packed and length > 8:
            length = max(length, _int(data, "<q", body + _int(data, "<q", buffer)))
        total += max(length, 0)
    return total
