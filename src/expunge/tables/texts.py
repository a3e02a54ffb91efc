"""Texts in files: unpacked, in UTF-8 whatever their encoding, and without the mark at their start."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from expunge.base.errors import BadPlan, BadRecords

NOT_UTF8 = "is not UTF-8"
LATIN = 'if the file is in Latin-1, declare encoding = "cp1252" in the schema, or give --encoding cp1252'
PACKED = (".gz", ".bz2")
"""Endings of texts that are compressed."""
_STARTS = {
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
    b"PAR1": "is a Parquet file; rename it to end in .parquet",
    b"PK\x03\x04": "is a ZIP archive or an Excel workbook; save the table as CSV",
    b"\x1f\x8b": "is compressed with gzip; rename it to end in .gz",
    b"BZh": "is compressed with bzip2; rename it to end in .bz2",
}


def unpacked_name(path: Path) -> str:
    """Return a file's name in small letters, without the ending of its compression."""
    name = path.name.lower()
    for ending in PACKED:
        name = name.removesuffix(ending)
    return name


@contextmanager
def opened(path: Path, encoding: str = "utf-8") -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a text: give a file to read it from in UTF-8, unpacked, and one whose ``tell`` says how far it was read."""
    with path.open("rb") as raw, _unpacked(path, raw) as unpacked:
        if is_utf8(encoding):
            yield unpacked, raw
        else:
            yield io.BufferedReader(_Recoded(path, unpacked, encoding), 2**16), raw


@contextmanager
def _unpacked(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    ending = path.suffix.lower()
    if ending == ".gz":
        from gzip import GzipFile

        with GzipFile(fileobj=raw) as unpacked:
            yield unpacked  # type: ignore[misc]
    elif ending == ".bz2":
        from bz2 import BZ2File

        with BZ2File(raw) as unpacked2:
            yield unpacked2
    else:
        yield raw


def not_utf8(text: bytes) -> str:
    """Say which byte of a text is not UTF-8, if one is."""
    try:
        text.isascii() or text.decode()
    except UnicodeDecodeError as error:
        return f"byte 0x{text[error.start]:02X} {NOT_UTF8}"
    return ""


def is_utf8(encoding: str) -> bool:
    """Say whether an encoding is UTF-8."""
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def check_encoding(encoding: Any) -> None:
    """Raise unless an encoding is UTF-8 or one of a byte for each letter, of which the first 128 are ASCII's."""
    try:
        known = isinstance(encoding, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,40}", encoding) is not None
        if known and not is_utf8(encoding):
            known = all(bytes([code]).decode(encoding) == chr(code) for code in range(128))
            known = known and len(bytes(range(128, 256)).decode(encoding, "surrogateescape")) == 128
    except (LookupError, UnicodeError):
        known = False
    if not known:
        raise BadPlan(f'encoding = {encoding!r}: use "utf-8", or one of a byte for each letter, such as "cp1252".')


class _Recoded(io.RawIOBase):
    """A text of another encoding, read as UTF-8. Bytes that it does not have stay, so that their lines are broken.

    A text that is UTF-8 after all would be misread in silence: with a mark at its start it is read as UTF-8, and
    otherwise it is an error at its end.
    """

    def __init__(self, path: Path, file: IO[bytes], encoding: str) -> None:
        self._path, self._file, self._encoding = path, file, encoding
        self._rest = b""
        self._begun = self._is_utf8 = self._beyond_ascii = False
        self._utf8: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as many bytes as there is room for, or fewer."""
        while not self._rest:
            block = self._file.read(max(1, len(buffer) // 3))
            if not block:
                self._finish()
                return 0
            self._rest = self._recoded(block)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def _recoded(self, block: bytes) -> bytes:
        if not self._begun:
            block += self._file.read(4)
            whole, block, self._begun = block, without_mark(self._path, block), True
            self._is_utf8 = block != whole
        if self._is_utf8 or block.isascii():
            return block
        self._beyond_ascii = True
        if self._utf8 is not None:
            try:
                self._utf8.decode(block)
            except UnicodeDecodeError:
                self._utf8 = None
        return block.decode(self._encoding, "surrogateescape").encode("utf-8", "surrogateescape")

    def _finish(self) -> None:
        if self._beyond_ascii and self._utf8 is not None and not self._utf8.getstate()[0]:
            raise BadRecords(
                f"{self._path}: is UTF-8, not {self._encoding} as declared; give --encoding utf-8, or declare "
                'encoding = "utf-8" in the schema.'
            )


def without_mark(path: Path, start: bytes) -> bytes:
    """Return the beginning of a text without its byte order mark; raise if it is no UTF-8 text."""
    for mark, what in _STARTS.items():
        if start.startswith(mark):
            raise BadRecords(f"{path}: {what}.")
    if b"\0" in start.partition(b"\n")[0]:
        raise BadRecords(
            f"{path}: is not a text file (it has NUL bytes); save the table as CSV in UTF-8, or as Parquet."
        )
    return start.removeprefix(b"\xef\xbb\xbf")


def trimmed(column: Any) -> Any:
    """Return an array of strings without the spaces around them."""
    _, offsets, data = column.buffers()
    if data is None or data.size == 0:
        return column
    offsets = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data, dtype=np.uint8)
    filled = offsets[1:] > offsets[:-1]
    edges = np.concatenate([data[offsets[:-1][filled]], data[offsets[1:][filled] - 1]])
    if not ((edges <= 32) | (edges > 127)).any():
        return column
    from pyarrow import compute

    return compute.utf8_trim_whitespace(column)
