"""Ids and subjects as they are given at the prompt.

What stands in a file is never repeated in a message: a list of customers may have been given by mistake.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expunge.base.errors import BadRecords, DuplicateId
from expunge.cli.models import held

_DELIMITERS = ",;\t|"
_SHOWN = 5


@dataclass(frozen=True)
class Names:
    """Ids, or subjects, and where each of them was given."""

    texts: list[str]
    places: list[str]
    """What to call each in a message: the option itself, or the line of a file."""

    def at(self, numbers: Any) -> str:
        """Return where some of them were given.

        >>> Names(["7", "8"], ["--id 7", "line 2 of a.txt"]).at([0, 1])
        '--id 7, line 2 of a.txt'
        """
        found = [self.places[number] for number in numbers[:_SHOWN]]
        more = len(numbers) - len(found)
        return ", ".join(found) + (f" and {more:,} more" if more else "")

    def check_distinct(self, keys: Any) -> None:
        """Raise if one is named twice; ``keys`` are they in the type of a model."""
        first: dict[Any, int] = {}
        for number, key in enumerate(keys):
            if first.setdefault(key, number) != number:
                raise DuplicateId(f"{self.at([first[key], number])}: duplicate name; give each name once.")


def listed(
    name: str,
    given: list[str] | None,
    file: Path | None,
    column: str | None = None,
    *,
    encoding: str | None = None,
    models: Sequence[Path] = (),
) -> Names | None:
    """Return the names that were given, and those in a file: one on each line, or those of a column.

    A file that is not UTF-8 is read in the ``encoding`` or, if none is given, in that of the models' schemas.
    """
    if given is None and file is None:
        return None
    texts = [one.strip() for one in given or []]
    if not all(texts):
        raise BadRecords(f"--{name}: empty; give the {name} itself.")
    places = [f"--{name} {text}" for text in texts]
    if file is not None:
        how = encoding, models
        found = list(_in_column(name, file, column, *how) if column is not None else _on_lines(name, file, *how))
        if not found:
            raise BadRecords(f"--{name}s-file: {_called(file)} is empty; write one {name} on each line.")
        texts += [text for text, _ in found]
        places += [f"{place} of {_called(file)}" for _, place in found]
    return Names(texts, places)


def _called(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _on_lines(
    name: str, file: Path, encoding: str | None, models: Sequence[Path]
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Yield the content of each line of a text, and its line number."""
    if str(file) != "-" and _is_table(file):
        yield from _in_column(name, file, None, encoding, models)
        return
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        lines = re.split("\r\n|\r|\n", _decoded(raw, encoding, models))
    except UnicodeDecodeError as error:
        raise BadRecords(
            f"--{name}s-file: {_called(file)} cannot be read (not in {error.encoding}); give a text file, and its "
            "encoding with --encoding, such as cp1252."
        ) from None
    except OSError as error:
        raise BadRecords(f"--{name}s-file: {_called(file)} cannot be read ({error}); give a text file.") from error
    if str(file) != "-" and re.search(r"\.[ct]sv$", file.name.lower()):
        _refuse_columns(name, file, lines)
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise BadRecords(f"--{name}s-file: line {number} of {_called(file)} has a NUL byte; give a text file.")
        if line.strip():
            yield line.strip(), f"line {number}"


def _decoded(raw: bytes, encoding: str | None, models: Sequence[Path]) -> str:
    """Return a text, which is UTF-8 unless it cannot be: other texts hardly ever could."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode(_checked(encoding) or _declared(models))


def _checked(encoding: str | None) -> str | None:
    from expunge.tables.texts import check_encoding

    if encoding is not None:
        check_encoding(encoding)
    return encoding


def _declared(models: Sequence[Path]) -> str:
    """Return the first encoding other than UTF-8 that is declared in the schemas of models, if there is one."""
    from expunge.tables.texts import is_utf8

    for path in models:
        with held(path, read_only=True) as model:
            schema = getattr(model, "schema_", None)
        if schema is not None and not is_utf8(schema.encoding):
            return str(schema.encoding)
    return "utf-8"


def _is_table(file: Path) -> bool:
    """Say whether a file must be read as a table: all that tables can be, but plain CSV."""
    from expunge.tables.files import ENDINGS
    from expunge.tables.texts import PACKED

    return file.name.lower().endswith(tuple({*ENDINGS, *PACKED} - {".csv", ".tsv"}))


def _refuse_columns(name: str, file: Path, lines: list[str]) -> None:
    """Raise if a CSV file has several columns."""
    header = next((line for line in lines if line.strip()), "")
    names = max((next(csv.reader([header], delimiter=one)) for one in _DELIMITERS), key=len)
    if len(names) > 1:
        raise _which(name, file, [one.strip() for one in names])


def _which(name: str, file: Path, names: list[str]) -> BadRecords:
    """Return what to say of a table with several columns."""
    return BadRecords(
        f"--{name}s-file: {file} has {len(names)} columns{_said(names)}; say with --column which of them has the "
        f"{name}s (where a command takes it), or give a file with one {name} on each line."
    )


def _said(names: list[str]) -> str:
    """Return the names of columns, unless they may be a person's data, where a header is lacking.

    >>> _said(["customer", "city"]), _said(["17", "Rome"])
    (" ('customer', 'city')", ' (their names are not shown, since the first line looks like a record)')
    """
    if any(not one or re.search(r"@|^[\d\W]+$", one) for one in names):
        return " (their names are not shown, since the first line looks like a record)"
    return f" ({', '.join(map(repr, names[:20]))}{', ...' * (len(names) > 20)})"


def _in_column(
    name: str, file: Path, column: str | None, encoding: str | None, models: Sequence[Path]
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Yield the values of a table's column, and where each is; without a name, of its only column."""
    from expunge.tables.files import guess_encoding, open_table
    from expunge.tables.reading import Broken, place_word

    if str(file) == "-":
        raise BadRecords(f"--column: standard input has one {name} on each line; leave --column out, or give a file.")
    known = _checked(encoding) or ("utf-8" if guess_encoding([file]) == "utf-8" else _declared(models))
    table = open_table(file, known)
    if column is None and len(table.names) > 1:
        raise _which(name, file, table.names)
    wanted = table.names[0] if column is None else column
    if wanted not in table.names:
        raise BadRecords(
            f"--column {wanted}: {file} has no such column; there are {len(table.names)}{_said(table.names)}."
        )
    row = place_word(file)
    for chunk in table.chunks([wanted], Broken("stop")):
        for line, value in zip(chunk.lines.tolist(), chunk.columns[wanted].to_pylist(), strict=True):
            text = "" if value is None else str(value).strip()
            if not text or "\0" in text:
                raise BadRecords(
                    f"--column {wanted}: {row} {line} of {file} has no {name}; fill it in, or remove the row."
                )
            yield text, f"{row} {line}"


def check_column(column: str | None, *files: Path | None) -> None:
    """Raise if a column is named and no file that has it."""
    if column is not None and not any(files):
        raise BadRecords("--column: no file is given; give one with --ids-file or --subjects-file.")


def keys_of(model: Any, role: str, given: Names | None) -> Any:
    """Return ids or subjects in the type that they have in a model."""
    from expunge.tables.schema import Key, parse_keys

    if given is None:
        return None
    schema = getattr(model, "schema_", None)
    if schema is None:
        held = model.ids_ if role == "id" else model.subjects_
        key = Key(role, "integer" if held.dtype.kind in "iu" else "text")
    else:
        key = getattr(schema, role)
        if key is None and role == "subject":
            raise BadRecords("--subject: the schema has no subject column; give records with --id.")
    try:
        return parse_keys(key, given.texts)
    except BadRecords:
        number = next(number for number, text in enumerate(given.texts) if not _parses(key, text))
        whose = f"{role}s" if key is None else f"the column {key.name!r}"
        hint = " If it is a header, say so with --column." if given.places[number].startswith("line 1 of ") else ""
        raise BadRecords(f"{given.places[number]}: not a 64-bit integer, as all of {whose} are.{hint}") from None


def _parses(key: Any, text: str) -> bool:
    from expunge.tables.schema import parse_keys

    try:
        parse_keys(key, [text])
    except BadRecords:
        return False
    return True
