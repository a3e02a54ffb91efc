"""JSON lines: a table with an object on every line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from expunge.base.errors import BadRecords
from expunge.tables import limits
from expunge.tables.arrow import arrow
from expunge.tables.reading import Broken, Chunk, Table
from expunge.tables.texts import not_utf8, opened, trimmed, without_mark

_LOOKED_AT = 1000
"""How many objects the columns are read from, if they are not longer than a line may be."""
_CELLS = 2**21
"""How many values are read together, whether they are there or not."""


class _Wrong(ValueError):
    """What is wrong with a line."""


class JsonLines(Table):
    """A file with a JSON object on every line, opened."""

    def __init__(self, path: Path, encoding: str = "utf-8") -> None:
        nested: dict[str, bool] = {}
        with opened(path, encoding) as (file, _):
            lines = _first_lines(path, file)
        for line in lines:
            try:
                found = _object(line)
            except _Wrong:
                continue
            for key, value in found.items():
                nested[key] = nested.get(key, False) or isinstance(value, (list, dict))
        if not lines:
            raise BadRecords(f"{path}: empty; give a file with a JSON object on every line.")
        if not nested:
            hint = " (jq -c '.[]' does this for an array)" * lines[0].startswith(b"[")
            raise BadRecords(f"{path}: no JSON objects on its lines; write every record as one, on a line{hint}.")
        flat, deep = ([name for name in nested if nested[name] == kind] for kind in (False, True))
        super().__init__(path, flat, deep, encoding=encoding)

    def _read(self, columns: list[str], broken: Broken, rows: int) -> Iterator[Chunk]:
        with opened(self.path, self.encoding) as (file, packed):
            start, rows = 1, max(1, _CELLS // max(len(columns), 1))
            for lines in _blocks(self.path, file):
                self._position = packed.tell()
                for first in range(0, len(lines), rows):
                    part = lines[first : first + rows]
                    yield self._chunk(part, start, columns, broken)
                    start += len(part)

    def _chunk(self, lines: Iterable[bytes], start: int, columns: list[str], broken: Broken) -> Chunk:
        records, places = [], []
        for place, line in enumerate(lines, start):
            if not line or line.isspace():
                continue
            try:
                found = _object(line)
                records.append([_text(name, found.get(name)) for name in columns])
            except _Wrong as wrong:
                broken.add(self.path, place, self._reason(str(wrong)))
            else:
                places.append(place)
        pa = arrow()
        made = {
            name: trimmed(pa.array([record[number] for record in records], pa.string()))
            for number, name in enumerate(columns)
        }
        numbers = {
            name: np.array([type(record[number]) is _Number for record in records], dtype=bool)
            for number, name in enumerate(columns)
        }
        return Chunk(made, np.array(places, dtype=np.int64), self.path, numbers)


def _blocks(path: Path, file: IO[bytes]) -> Iterator[list[bytes]]:
    """Read all lines, a block of them at a time; one that is too long is never read as a whole."""
    rest, line, final = b"", 1, False
    while not final:
        more = file.read(limits.BLOCK)
        text, final = rest + more, not more
        *lines, rest = text.split(b"\n")
        if final and rest:
            lines, rest = [*lines, rest], b""
        if len(lines[0] if lines else rest) > limits.LONGEST:
            raise BadRecords(
                f"{path}: line {line} is longer than {limits.LONGEST >> 20} MB; write one record per line, shortened."
            )
        if lines:
            if line == 1:
                lines[0] = without_mark(path, lines[0])
            yield lines
        line += len(lines)


def _first_lines(path: Path, file: IO[bytes]) -> list[bytes]:
    """Return lines that are not blank, from the beginning of a file."""
    lines: list[bytes] = []
    first, room = True, limits.LONGEST
    while len(lines) < _LOOKED_AT and room > 0 and (line := file.readline(limits.LONGEST + 1)):
        room -= len(line)
        if first:
            line, first = without_mark(path, line), False
        if len(line) > limits.LONGEST:
            raise BadRecords(f"{path}: lines of more than {limits.LONGEST >> 20} MB; write one record per line.")
        if line and not line.isspace():
            lines.append(line.lstrip())
    return lines


def _refuse(constant: str) -> NoReturn:
    raise _Wrong(f"{constant}, which is not JSON")


class _Number(str):
    """A number, as it is written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_refuse)


def _object(line: bytes) -> dict[str, Any]:
    """Return the object on a line, with numbers as they are written."""
    if wrong := not_utf8(line):
        raise _Wrong(wrong)
    text = line.decode()
    try:
        found = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _Wrong(f"not JSON from character {error.pos + 1} on") from None
    except RecursionError:
        raise _Wrong("nested too deeply") from None
    if not isinstance(found, dict):
        raise _Wrong("not an object")
    if "\\u" in text and not all(map(_is_sound, [*found, *found.values()])):
        raise _Wrong("a NUL, or half a character")
    return found


def _is_sound(value: Any) -> bool:
    """Return whether UTF-8 can hold a string."""
    return not isinstance(value, str) or not any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value)


def _text(name: str, value: Any) -> str | None:
    """Return a value as CSV would have it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise _Wrong(f"a list or object in column {name!r}")
