"""What all readers of tables have in common: chunks, broken lines, and files that cannot be read."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.types import AnyArray
from expunge.tables import limits
from expunge.tables.arrow import arrow
from expunge.tables.texts import LATIN, NOT_UTF8, is_utf8

NUMBERED = (".parquet", ".arrow", ".feather")
"""Endings of files that have no lines: their rows are numbered."""
_SHOWN = 5
OnError = Literal["stop", "skip"]
_NOTHING: Mapping[str, AnyArray] = MappingProxyType({})


class Chunk(NamedTuple):
    """Some rows of a table, in their order."""

    columns: dict[str, Any]
    """Arrow arrays of equal length, by name. From CSV and JSON lines: strings, without spaces around them."""
    lines: AnyArray
    """Where each row is: the line of the file on which it begins, or its number if there are no lines; from 1."""
    file: Path
    numbers: Mapping[str, AnyArray] = _NOTHING
    """Which texts of a column are numbers in JSON. How texts write numbers does not matter to them."""


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
    remedy: str = 'fix the file, or leave such records out with on_error="skip" (--on-error skip)'
    """What can be done about them."""

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
            latin = f"{LATIN}; else " * any(NOT_UTF8 in reason for _, _, reason in self.first)
            raise BadRecords(f"{self}; {latin}{self.remedy}.")

    def __str__(self) -> str:
        parts: list[str] = []
        before = None
        for (file, reason), group in groupby(self.first, key=lambda one: (one[0], one[2])):
            places = [str(line) for _, line, _ in group]
            word = place_word(file) + "s" * (len(places) > 1)
            parts.append(f"{'' if file == before else f'{file}: '}{word} {', '.join(places)} ({reason})")
            before = file
        more = self.count - len(self.first)
        if more > 0 and self.on_error == "skip":
            most = [f"{count:,} × {reason}" for reason, count in self.reasons.most_common(_SHOWN)]
            others = len(self.reasons) - len(most)
            return "; ".join([*most, *([f"{others} reasons more"] if others else [])]) + f"; the first: {parts[0]}"
        return ", ".join(parts) + f", and {'at least ' * (self.on_error == 'stop')}{more} more" * (more > 0)


def place_word(file: Path) -> str:
    """Return what a place in a file is called: a line, or a row."""
    return "row" if file.suffix.lower() in NUMBERED else "line"


class Table:
    """A file with a table in it, opened. It can be read as often as one likes."""

    of_texts = True
    """Whether its columns are texts, and not numbers, dates and so on."""

    def __init__(
        self,
        path: Path,
        names: list[str],
        nested: Sequence[str] = (),
        total: int | None = None,
        encoding: str = "utf-8",
    ) -> None:
        width, most = len(names) + len(nested), limits.MOST_COLUMNS
        if width > most:
            raise BadRecords(f"{path}: {width:,} columns, but a table may have at most {most:,}; leave some out.")
        self.path = path
        self.encoding = encoding
        self.names = names
        """The columns' names."""
        self.nested = list(nested)
        """The names of columns that hold lists or objects, which cannot be read."""
        self.total = total
        """How many rows there are, if that is known without reading them."""
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
                    numbers = {name: which[start : start + rows] for name, which in chunk.numbers.items()}
                    yield chunk._replace(columns=part, lines=chunk.lines[start : start + rows], numbers=numbers)
            self._position = self.size_bytes
        broken.check()

    def _read(self, columns: list[str], broken: Broken, rows: int) -> Iterator[Chunk]:
        """Read columns that are there, in chunks of any length."""
        raise NotImplementedError

    def _reason(self, wrong: str) -> str:
        """Return why a record is broken, with the name of the encoding that is declared."""
        return wrong if is_utf8(self.encoding) else wrong.replace(NOT_UTF8, f"is not {self.encoding}")

    def check_columns(self, columns: list[str]) -> None:
        """Raise if columns are lacking."""
        lacking = [name for name in columns if name not in self.names]
        for name in lacking:
            if name in self.nested:
                raise BadRecords(
                    f"{self.path}: column {name!r} has lists or objects; leave it out, or give each part its own "
                    "column."
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


@contextmanager
def reading(
    source: Path | str, remedy: str = "it may be damaged or cut short, so fetch it again"
) -> Iterator[None]:  # fmt: skip
    """Say in one line that a file or table could not be read, and why."""
    arrow_error = arrow().ArrowException
    try:
        yield
    except PermissionError as error:
        raise BadRecords(f"{source}: cannot be read (permission denied); ask for permission to read it.") from error
    except (arrow_error, OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = (str(error).splitlines() or [""])[0][:120]
        raise BadRecords(f"{source}: cannot be read ({reason}); {remedy}.") from error


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
