"""CSV, a block of it at a time, with the line on which every record begins.

A block ends with the last record that is whole. If nothing in it is odd, PyArrow reads it at once; otherwise it is
read record by record, which tells what is wrong on which line. A value is quoted if a quote is the first thing in it;
quotes inside are doubled, and only spaces may follow the closing one. A record with quotes that are not so is broken,
and reading goes on in the line after the quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray
from expunge.tables import limits
from expunge.tables.arrow import arrow
from expunge.tables.reading import Broken, Chunk, Table, check_names
from expunge.tables.texts import LATIN, NOT_UTF8, not_utf8, opened, trimmed, without_mark

_DELIMITERS = b",", b";", b"\t", b"|"
_QUOTED = re.compile(rb'(?<![^,;\t|\n]) *"(?:[^"]|"")*+(?:"|\Z)')
_OPENING = re.compile(rb' *+"')
_INSIDE = re.compile(rb'(?:[^"]+|"")*+')
_AFTER = re.compile(rb" *+(?:\r(?=\n|\Z))?")
_BLANK = re.compile(rb"(?: *+\r?\n)++")
_PLAIN = {delimiter: re.compile(b"[^\n" + re.escape(delimiter) + b"]*+") for delimiter in _DELIMITERS}


class Delimited(Table):
    """A CSV file, opened."""

    def __init__(self, path: Path, encoding: str = "utf-8", delimiter: bytes | None = None) -> None:
        with opened(path, encoding) as (file, _):
            self._header = _read_header(path, file, delimiter)
        self._delimiter = delimiter
        super().__init__(path, self._header.names, encoding=encoding)

    def _read(self, columns: list[str], broken: Broken, rows: int) -> Iterator[Chunk]:
        with opened(self.path, self.encoding) as (file, packed):
            header = _read_header(self.path, file, self._delimiter)
            if header[:2] != self._header[:2]:
                raise BadRecords(f"{self.path}: its header has changed since it was opened; open it again.")
            text, line, final = header.rest, header.line, False
            while not final:
                more = file.read(limits.BLOCK)
                (text, line), final = _past_blank(text + more, line), not more
                chunk, end = self._block(text, line, final, columns, broken)
                if end == 0 and len(text) > limits.LONGEST:
                    raise BadRecords(
                        f"{self.path}: line {line} is longer than {limits.LONGEST >> 20} MB; break the lines."
                    )
                line += text.count(b"\n", 0, end)
                text = text[end:]
                self._position = packed.tell()
                yield chunk

    def _block(self, text: bytes, line: int, final: bool, columns: list[str], broken: Broken) -> tuple[Chunk, int]:
        """Read all whole records of a text that begins on ``line``; return where the rest begins too."""
        read = self._at_once(text, line, final, columns) or self._one_by_one(text, line, final, columns)
        for place, wrong in read.wrong:
            broken.add(self.path, place, self._reason(wrong))
        return Chunk(read.columns, read.lines, self.path), read.end

    def _at_once(self, text: bytes, line: int, final: bool, columns: list[str]) -> _Read | None:
        """Read with PyArrow; return None if there is something that it would not see, or see otherwise."""
        names, delimiter = self._header.names, self._header.delimiter
        if len(names) == 1:  # then a line of spaces is blank, and not a value
            return None
        letters = np.frombuffer(text, dtype=np.uint8)
        quoted = b'"' in text
        newlines = _unquoted_newlines(letters) if quoted else None
        end = len(text) if final else 1 + (text.rfind(b"\n") if newlines is None else max(newlines[-1:], default=-1))
        text, letters = text[:end], letters[:end]
        if not _is_clean(text) or (quoted and not _sound_quotes(letters, delimiter)):
            return None
        try:
            table, invalid = _with_arrow(text, names, delimiter, columns or names[:1], quoted)
        except arrow().ArrowInvalid:
            return None
        if not quoted and not invalid and len(table) == text.count(b"\n") + (not text.endswith(b"\n")):
            lines = np.arange(line, line + len(table))
        else:
            lines = _lines(letters, _starts(letters, newlines), line)
        if len(lines) != len(table) + len(invalid):
            return None
        wrong = [(int(lines[row]), _miscounted(fields, len(names))) for row, fields in invalid.items() if fields]
        made = {name: trimmed(table.column(name).combine_chunks()) for name in columns}
        return _Read(made, np.delete(lines, list(invalid)) if invalid else lines, wrong, int(end))

    def _one_by_one(self, text: bytes, line: int, final: bool, columns: list[str]) -> _Read:
        """Read record by record, which tells all that is wrong."""
        names = self._header.names
        records = list(_records(text, self._header.delimiter, final))
        filled = [record for record in records if record.fields or record.wrong]
        lines = _lines(np.frombuffer(text, dtype=np.uint8), [record.start for record in filled], line)
        wrong, whole = [], []
        for position, record in enumerate(filled):
            if record.wrong or len(record.fields) != len(names):
                reason = record.wrong or _miscounted(len(record.fields), len(names))
                wrong.append((int(lines[position]), reason))
            else:
                whole.append(position)
        pa, made = arrow(), {}
        for name in columns:
            number = names.index(name)
            made[name] = trimmed(pa.array([filled[position].fields[number] for position in whole], pa.string()))
        return _Read(made, lines[whole], wrong, len(text) if final else records[-1].end if records else 0)


class _Read(NamedTuple):
    """What was read of a text."""

    columns: dict[str, Any]
    lines: AnyArray
    wrong: list[tuple[int, str]]
    """Lines that are broken, and why."""
    end: int
    """Where the rest of the text begins."""


def _miscounted(fields: int, columns: int) -> str:
    return f"{fields} field{'s' * (fields > 1)}, where the header has {columns}"


class _Header(NamedTuple):
    """How a file begins."""

    names: list[str]
    delimiter: bytes
    rest: bytes
    """What was read of the file after the header."""
    line: int
    """The line on which the rest begins."""


def _read_header(path: Path, file: IO[bytes], declared: bytes | None) -> _Header:
    """Read the first line that is not blank, and more lines if names in it have line breaks."""
    text, final = without_mark(path, file.read(max(limits.BLOCK, 4))), False
    line = 1
    while True:
        text, line = _past_blank(text, line)
        delimiter = declared or _delimiter(text)
        record = next((one for one in _records(text, delimiter, final) if one.fields or one.wrong), None)
        if record is not None or final or len(text) > limits.LONGEST:
            break
        more = file.read(limits.BLOCK)
        text, final = text + more, not more
    if record is None and not final:
        raise BadRecords(f"{path}: the header is longer than {limits.LONGEST >> 20} MB; break the lines.")
    if record is None:
        raise BadRecords(f"{path}: empty; give a file with a line of column names, and a line for each record.")
    if record.wrong:
        remedy = f"{LATIN}; else fix it" if record.wrong.endswith(NOT_UTF8) else "fix it"
        raise BadRecords(f"{path}: the header is broken ({record.wrong}); {remedy}, or save the file as UTF-8 again.")
    names = [name.strip() for name in record.fields]
    if all(map(_is_number, names)):
        raise BadRecords(
            f"{path}: no header, only numbers in the first line; add a line of column names before it (or, if they are "
            "names, put a letter before each)."
        )
    check_names(path, names)
    return _Header(names, delimiter, text[record.end :], line + text.count(b"\n", 0, record.end))


def _past_blank(text: bytes, line: int) -> tuple[bytes, int]:
    """Return what follows the blank lines that a text on a line begins with, and on which line: they may be many."""
    end = _take(_BLANK, text, 0)[1]
    return text[end:], line + text.count(b"\n", 0, end)


def _delimiter(text: bytes) -> bytes:
    """Return the most frequent delimiter in the first line, outside of quotes."""
    header = _QUOTED.sub(b'""', text[: 2**18].lstrip(b" \r\n")).partition(b"\n")[0]
    return max(_DELIMITERS, key=header.count)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# All records of a text at once


def _is_clean(text: bytes) -> bool:
    """Return whether a text is UTF-8, without NUL and without CR amid lines."""
    return b"\0" not in text and text.count(b"\r") == text.count(b"\r\n") and not not_utf8(text)


def _with_arrow(
    text: bytes, names: list[str], delimiter: bytes, columns: list[str], quoted: bool
) -> tuple[Any, dict[int, int]]:
    """Return a table of strings, and how many fields those records have that it lacks; 0 for a line of spaces."""
    from pyarrow import csv

    pa = arrow()
    invalid: dict[int, int] = {}

    def note(row: Any) -> str:
        invalid[row.number - 1] = row.actual_columns if row.text.strip(" ") else 0
        return "skip"

    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(use_threads=False, column_names=names, block_size=len(text) + 1),
        csv.ParseOptions(delimiter=delimiter.decode(), newlines_in_values=quoted, invalid_row_handler=note),
        csv.ConvertOptions(
            column_types={name: pa.string() for name in columns}, include_columns=columns, check_utf8=False
        ),
    )
    return table, invalid


def _unquoted_newlines(letters: AnyArray) -> AnyArray:
    """Return where records end, if the quotes are sound."""
    newlines = np.flatnonzero(letters == ord("\n"))
    before = np.searchsorted(np.flatnonzero(letters == ord('"')), newlines)
    return newlines[before % 2 == 0]


def _sound_quotes(letters: AnyArray, delimiter: bytes) -> bool:
    """Return whether every other quote opens a value, and those between close them; doubled ones do both."""
    quotes = np.flatnonzero(letters == ord('"'))
    if len(quotes) % 2:
        return False
    before, after = letters[quotes[::2] - 1], letters[(quotes[1::2] + 1) % len(letters)]
    before[quotes[::2] == 0] = ord("\n")
    after[quotes[1::2] == len(letters) - 1] = ord("\n")
    return bool(np.isin(before, [*delimiter, *b'\n"']).all() and np.isin(after, [*delimiter, *b'\r\n"']).all())


def _starts(letters: AnyArray, newlines: AnyArray | None) -> AnyArray:
    """Return where records begin that end with some newlines, or with all; blank lines are none."""
    ends = np.flatnonzero(letters == ord("\n")) if newlines is None else newlines[newlines < len(letters)]
    starts = np.concatenate([[0], ends + 1])
    lengths = np.concatenate([ends, [len(letters)]]) - starts
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    return starts[(lengths > 1) | (letters[starts] != ord("\r"))]


def _lines(letters: AnyArray, places: Sequence[int] | AnyArray, first: int) -> AnyArray:
    """Return on which lines some places of a text are that begins on line ``first``."""
    newlines = np.flatnonzero(letters == ord("\n"))
    return first + np.searchsorted(newlines, np.asarray(places, dtype=np.int64))


# One record after the other


class _Record(NamedTuple):
    """A record of a text, or what is wrong with it."""

    start: int
    """Where it begins, or where the quote is that is wrong."""
    end: int
    """Where reading continues."""
    fields: list[str]
    """Its values; none if it is broken, or a blank line."""
    wrong: str = ""


def _records(text: bytes, delimiter: bytes, final: bool) -> Iterator[_Record]:
    """Read records as long as they are whole, which the last of a text that is not ``final`` may not be.

    Blank lines that follow each other are one record without values.
    """
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            yield _Record(at, blank.end(), [])
            at = blank.end()
            continue
        newline = text.find(b"\n", at)
        if newline < 0 and not final:
            return
        end = newline + 1 or len(text)
        record = _quoted(text, at, delimiter, final) if b'"' in text[at:end] else _plain(text, at, end, delimiter)
        if record is None:
            return
        yield record
        at = record.end


def _plain(text: bytes, start: int, end: int, delimiter: bytes) -> _Record:
    """Read a record without quotes."""
    line = text[start:end].removesuffix(b"\n").removesuffix(b"\r")
    if not line.strip(b" "):
        return _Record(start, end, [])
    wrong = _wrong(line, b"\r" in line)
    return _Record(start, end, [] if wrong else line.decode().split(delimiter.decode()), wrong)


def _quoted(text: bytes, start: int, delimiter: bytes, final: bool) -> _Record | None:
    """Read a record with quotes; return None if its end is not there yet."""
    fields, place, returns = [], start, False
    while True:
        opening = _OPENING.match(text, place)
        if opening is None:
            value, place = _take(_PLAIN[delimiter], text, place)
        else:
            value, close = _take(_INSIDE, text, opening.end())
            if close == len(text) and (final or close - start > limits.LONGEST):
                return _bad_quote(text, opening.end() - 1, final, "a quote that is not closed")
            value, place = value.replace(b'""', b'"'), _take(_AFTER, text, close + 1)[1]
        if place >= len(text) and not final:
            return None
        last = text[place : place + 1] in (b"", b"\n")
        if opening is None:
            value = value.removesuffix(b"\r") if last else value
            returns = returns or b"\r" in value
        fields.append(value)
        if last:
            end = min(place + 1, len(text))
            wrong = _wrong(text[start:end], returns)
            return _Record(start, end, [] if wrong else [value.decode() for value in fields], wrong)
        if opening is not None and text[place : place + 1] != delimiter:
            return _bad_quote(text, opening.end() - 1, final, "a quote inside a value that is not doubled")
        place += 1


def _take(pattern: re.Pattern[bytes], text: bytes, place: int) -> tuple[bytes, int]:
    """Return what matches a pattern, nothing if it does not, and where that ends."""
    match = pattern.match(text, place)
    return (b"", place) if match is None else (match.group(), match.end())


def _bad_quote(text: bytes, quote: int, final: bool, wrong: str) -> _Record | None:
    """Give up a record; its quote's line ends where reading continues."""
    newline = text.find(b"\n", quote)
    return None if newline < 0 and not final else _Record(quote, newline + 1 or len(text), [], wrong)


def _wrong(record: bytes, returns: bool) -> str:
    """Say why a record is not text, if it is not."""
    if b"\0" in record:
        return "a NUL byte"
    if returns:
        return "CR without LF"
    return not_utf8(record)
