"""What all readers of tables have in common: chunks, broken lines, and files that cannot be read."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from expunge.errors import BadPlan, BadRecords
from expunge.types import AnyArray

BLOCK = 2**22
"""How many bytes of a text are read at a time."""
LONGEST = 2**24
"""How many bytes a line, or a value in quotes, may have."""
_SHOWN = 5
_STARTS = {
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
    b"PAR1": "is a Parquet file; rename it to end in .parquet",
    b"PK\x03\x04": "is a ZIP archive or an Excel workbook; save the table as CSV",
    b"\x1f\x8b": "is compressed with gzip; rename it to end in .gz",
    b"BZh": "is compressed with bzip2; rename it to end in .bz2",
}


OnError = Literal["stop", "skip"]


class Chunk(NamedTuple):
    """Some rows of a table, in their order."""

    columns: dict[str, Any]
    """Arrow arrays of equal length, by name. From CSV and JSON lines: strings, without spaces around them."""
    lines: AnyArray
    """Where each row stands: the line of the file on which it begins, from 1; in Parquet the row's number, from 1."""
    file: Path


@dataclass
class Broken:
    """Records that could not be read so far. It is filled while reading.

    >>> broken = Broken("skip")
    >>> broken.add(Path("people.csv"), 7, "3 fields, where the header has 4")
    >>> print(broken)
    people.csv: line 7 (3 fields, where the header has 4)
    """

    on_error: OnError = "stop"
    """Whether such records stop the reading, or are left out."""
    count: int = 0
    """How many there were."""
    first: list[tuple[Path, int, str]] = field(default_factory=list)
    """The file, line and reason of the first few."""
    reasons: Counter[str] = field(default_factory=Counter)
    """How many there were for each reason."""

    def __post_init__(self) -> None:
        if self.on_error not in ("stop", "skip"):
            raise BadPlan(f'on_error={self.on_error!r}: give "stop" or "skip".')

    def add(self, file: Path, line: int, reason: str) -> None:
        """Note a record that cannot be read. A reason should not quote the record: it may be shown or kept."""
        self.count += 1
        self.reasons[reason] += 1
        if len(self.first) < _SHOWN:
            self.first.append((file, int(line), reason))

    def check(self) -> None:
        """Raise if there were such records and they are to stop the reading."""
        if self.on_error == "stop" and self.count:
            raise BadRecords(
                f'{self}; mend the file, or leave such records out with on_error="skip" (--on-error skip).'
            )

    def __str__(self) -> str:
        parts: list[str] = []
        before = None
        for (file, reason), group in groupby(self.first, key=lambda one: (one[0], one[2])):
            places = [str(line) for _, line, _ in group]
            word = ("row" if file.suffix.lower() == ".parquet" else "line") + "s" * (len(places) > 1)
            parts.append(f"{'' if file == before else f'{file}: '}{word} {', '.join(places)} ({reason})")
            before = file
        more = self.count - len(self.first)
        if more > 0 and self.on_error == "skip":
            most = [f"{count:,} × {reason}" for reason, count in self.reasons.most_common(_SHOWN)]
            others = len(self.reasons) - len(most)
            return "; ".join([*most, *([f"{others} reasons more"] if others else [])]) + f"; the first: {parts[0]}"
        return ", ".join(parts) + f", and {'at least ' * (self.on_error == 'stop')}{more} more" * (more > 0)


class Table:
    """A file with a table in it, opened. It can be read as often as one likes."""

    def __init__(self, path: Path, names: list[str], nested: Sequence[str] = (), total: int | None = None) -> None:
        self.path = path
        self.names = names
        """The columns' names."""
        self.nested = list(nested)
        """The names of columns that hold lists or objects, which cannot be read."""
        self.total = total
        """How many rows there are, if that can be told without reading them."""
        self.size_bytes = path.stat().st_size
        self._position = 0

    def position(self) -> int:
        """Return how far the file was read, in bytes of ``size_bytes``."""
        return min(self._position, self.size_bytes)

    def chunks(self, columns: Sequence[str] | None, broken: Broken, rows: int = 65536) -> Iterator[Chunk]:
        """Read some columns, or all, in chunks of up to ``rows`` rows.

        Rows that cannot be read are added to ``broken``, which stops the reading if it was made so.
        """
        wanted = list(self.names if columns is None else dict.fromkeys(columns))
        self.check_columns(wanted)
        self._position = 0
        with reading(self.path):
            for chunk in self._read(wanted, broken, rows):
                broken.check()
                for start in range(0, len(chunk.lines), rows):
                    part = {name: column.slice(start, rows) for name, column in chunk.columns.items()}
                    yield chunk._replace(columns=part, lines=chunk.lines[start : start + rows])
            self._position = self.size_bytes
        broken.check()

    def _read(self, columns: list[str], broken: Broken, rows: int) -> Iterator[Chunk]:
        """Read columns that are there, in chunks of any length."""
        raise NotImplementedError

    def check_columns(self, columns: list[str]) -> None:
        """Raise if columns are lacking."""
        lacking = [name for name in columns if name not in self.names]
        for name in lacking:
            if name in self.nested:
                raise BadRecords(
                    f"{self.path}: column {name!r} holds lists or objects; leave it out, or give each a column."
                )
        if lacking:
            near = dict.fromkeys(like for name in lacking for like in _nearest(name, self.names))
            there = f"there is {', '.join(map(repr, near))}" if near else f"there are {_listed(self.names)}"
            many = "s" * (len(lacking) > 1)
            raise BadRecords(f"{self.path}: no column{many} {_listed(lacking)}; {there}. Check the names.")


def _nearest(name: str, names: list[str]) -> list[str]:
    """Return names much like one, whatever the case of their letters."""
    folded = {other.casefold(): other for other in names}
    return [folded[like] for like in get_close_matches(name.casefold(), folded, n=2)]


def _listed(names: list[str]) -> str:
    """Write names in a row, but not too many."""
    return ", ".join([*map(repr, names[:10]), *(["..."] * (len(names) > 10))])


def arrow() -> Any:
    """Return PyArrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise BadPlan("reading tables needs PyArrow; install it with pip install 'expunge[arrow]'.") from error
    return pyarrow


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in one line that a file could not be read, and why."""
    arrow_error = arrow().ArrowException
    try:
        yield
    except PermissionError as error:
        raise BadRecords(f"{path}: may not be read (permission denied); ask for the right to read it.") from error
    except (arrow_error, OSError, EOFError, zlib.error) as error:
        reason = (str(error).splitlines() or [""])[0][:120]
        raise BadRecords(
            f"{path}: cannot be read ({reason}); it may be damaged or cut short, so fetch it anew."
        ) from error


def unpacked_name(path: Path) -> str:
    """Return a file's name in small letters, without the ending of its compression."""
    return path.name.lower().removesuffix(".gz").removesuffix(".bz2")


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a text: give a file to read its bytes from, unpacked, and one whose ``tell`` says how far it was read."""
    with path.open("rb") as raw:
        ending = path.suffix.lower()
        if ending == ".gz":
            from gzip import GzipFile

            with GzipFile(fileobj=raw) as unpacked:
                yield unpacked, raw  # type: ignore[misc]
        elif ending == ".bz2":
            from bz2 import BZ2File

            with BZ2File(raw) as unpacked2:
                yield unpacked2, raw
        else:
            yield raw, raw


def without_mark(path: Path, start: bytes) -> bytes:
    """Return the beginning of a text without its byte order mark; raise if it is no UTF-8 text."""
    for mark, what in _STARTS.items():
        if start.startswith(mark):
            raise BadRecords(f"{path}: {what}.")
    if b"\0" in start.partition(b"\n")[0]:
        raise BadRecords(f"{path}: is not a text (it has NUL bytes); save the table as CSV in UTF-8, or as Parquet.")
    return start.removeprefix(b"\xef\xbb\xbf")


def check_names(path: Path, names: list[str]) -> None:
    """Raise if columns have no name, or share one."""
    if nameless := [str(number) for number, name in enumerate(names, 1) if not name]:
        many = "s" * (len(nameless) > 1)
        raise BadRecords(f"{path}: column{many} number {', '.join(nameless)} without a name; name every column.")
    numbers: dict[str, list[str]] = {}
    for number, name in enumerate(names, 1):
        numbers.setdefault(name, []).append(str(number))
    for name, shared in numbers.items():
        if len(shared) > 1:
            raise BadRecords(f"{path}: columns number {', '.join(shared)} are all named {name!r}; rename all but one.")


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
