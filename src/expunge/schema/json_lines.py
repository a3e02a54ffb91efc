"""JSON lines: a table with an object on every line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from expunge.errors import BadRecords
from expunge.schema import reading
from expunge.schema.reading import Broken, Chunk, Table, arrow, opened, trimmed, without_mark

_LOOKED_AT = 1000
"""The columns are the keys of so many objects."""


class _Wrong(ValueError):
    """What is wrong with a line."""


class JsonLines(Table):
    """A file with a JSON object on every line, opened."""

    def __init__(self, path: Path) -> None:
        nested: dict[str, bool] = {}
        with opened(path) as (file, _):
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
            hint = " (jq -c '.[]' makes that of an array)" * lines[0].startswith(b"[")
            raise BadRecords(f"{path}: no JSON objects on its lines; write every record as one, on a line{hint}.")
        super().__init__(path, [name for name in nested if not nested[name]], [name for name in nested if nested[name]])

    def _read(self, columns: list[str], broken: Broken, rows: int) -> Iterator[Chunk]:
        with opened(self.path) as (file, packed):
            start = 1
            while lines := file.readlines(reading.BLOCK):
                if start == 1:
                    lines[0] = without_mark(self.path, lines[0])
                self._position = packed.tell()
                yield self._chunk(lines, start, columns, broken)
                start += len(lines)

    def _chunk(self, lines: Iterable[bytes], start: int, columns: list[str], broken: Broken) -> Chunk:
        records, places = [], []
        for place, line in enumerate(lines, start):
            if line.isspace():
                continue
            try:
                found = _object(line)
                records.append([_text(name, found.get(name)) for name in columns])
            except _Wrong as wrong:
                broken.add(self.path, place, str(wrong))
            else:
                places.append(place)
        pa = arrow()
        made = {
            name: trimmed(pa.array([record[number] for record in records], pa.string()))
            for number, name in enumerate(columns)
        }
        return Chunk(made, np.array(places, dtype=np.int64), self.path)


def _first_lines(path: Path, file: IO[bytes]) -> list[bytes]:
    """Return lines that are not blank, from the beginning of a file."""
    lines: list[bytes] = []
    first = True
    while len(lines) < _LOOKED_AT and (line := file.readline(reading.LONGEST + 1)):
        if first:
            line, first = without_mark(path, line), False
        if len(line) > reading.LONGEST:
            raise BadRecords(f"{path}: lines of more than {reading.LONGEST >> 20} MB; write one record a line.")
        if line and not line.isspace():
            lines.append(line.lstrip())
    return lines


def _refuse(constant: str) -> NoReturn:
    raise _Wrong(f"{constant}, which is not JSON")


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


def _object(line: bytes) -> dict[str, Any]:
    """Return the object on a line, with numbers as they are written."""
    try:
        text = line.decode()
        found = _DECODER.decode(text)
    except UnicodeDecodeError:
        raise _Wrong("not UTF-8") from None
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
