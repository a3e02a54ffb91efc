"""Schemas as TOML, for people to read and to correct."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expunge.base.errors import BadPlan
from expunge.tables.schema.columns import (
    Amount,
    Categorical,
    Classes,
    Date,
    Feature,
    Hashed,
    Key,
    Numeric,
    Schema,
    Text,
    fields_of,
)
from expunge.tables.texts import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = "expunge schema 1"
KINDS = ("numeric", "date", "categorical", "text", "id", "subject", "target", "ignore")
HEADER = """\
What each column is. A model is encoded by this file and nothing else, so that
encoding remembers nobody, if all of it is PUBLIC KNOWLEDGE: values, ranges and
vocabularies that you would also know without the records. A rare value may name
one person, and a range that was read off the records keeps the largest and the
smallest of them, even after they are deleted.

Read every line, put in what is publicly known, take out rare values, and then
set confirmed = true.

kind = "numeric"      a number as it is; scale = "log" if most are small and some
                      very large; missing = "flag" (a column says so) or "refuse"
                      low, high: a range, which k-means and some solvers need;
                      then missing = "middle" counts as the middle of it
                      decimal = ",", thousands = ".", unit = "€" if texts are
                      such as 1.234,50 €
       "date"         ISO dates such as 2026-11-15; low, high, missing as above;
                      format = "%d.%m.%Y" if texts are such as 15.11.2026
       "categorical"  values = [...]; others count as "other"; or buckets = 64:
                      any value, hashed
       "text"         free text; words and pairs of words hashed into buckets
       "id"           names a record; type = "integer" or "text"
       "subject"      names the person whose record it is; type as above
       "target"       what to predict: values = [...], or else a number (low,
                      high, decimal, thousands and unit as above)
       "ignore"       left out
encoding = "cp1252"   if files are in Latin-1; else they are in UTF-8\
"""


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """Return the schema that a TOML file declares; an error says where it is wrong."""
    path = Path(path)
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise BadPlan(f"{path}: no such file; `expunge schema data.csv -o {path}` drafts one.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadPlan(f"{path}: cannot be read as text ({error}); give a schema in TOML.") from error
    with _named(path):
        return parse_schema(text)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except BadPlan as error:
        raise BadPlan(f"{path}: {error}") from None


def parse_schema(text: str) -> Schema:
    """Return the schema that some TOML declares.

    >>> parse_schema('format = "expunge schema 1"\\n[columns.age]\\nkind = "numeric"\\nlow = 0\\nhigh = 120').features
    (Numeric(name='age', low=0, high=120, scale='linear', missing='middle', decimal='.', thousands='', unit=''),)
    """
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadPlan(f"invalid TOML: {error}; fix the file.") from None
    except ValueError:  # of Python's own limit
        raise BadPlan("not a schema: a number in it has thousands of digits; write it as 1e300 or shorter.") from None
    except RecursionError:
        raise BadPlan("not a schema: tables or lists in it are nested too deeply; use [columns.NAME] only.") from None
    if said.pop("format", None) != FORMAT:
        raise BadPlan(f"format: expected {FORMAT!r}; draft a schema with `expunge schema data.csv`.")
    columns = said.pop("columns", None)
    if not isinstance(columns, dict) or not all(isinstance(one, dict) for one in columns.values()):
        raise BadPlan("columns: expected a part such as [columns.age] for each column.")
    features: list[Feature] = []
    roles: dict[str, Any] = {}
    ignored = []
    for name, declared in columns.items():
        kind, part = _column(name, declared)
        if kind in ("id", "subject", "target"):
            if kind in roles:
                raise BadPlan(f"columns.{name}: {roles[kind].name!r} is the {kind} already; there can be only one.")
            roles[kind] = part
        elif kind == "ignore":
            ignored.append(name)
        else:
            features.append(part)
    known = {key: said.pop(key) for key in ("missing", "confirmed", "encoding") if key in said}
    if not isinstance(known.get("missing", []), list):
        raise BadPlan("missing: give a list of texts, such as ['', 'NA'].")
    if said:
        raise BadPlan(
            f"{next(iter(said))}: a schema has no such field; use format, confirmed, missing, encoding and columns."
        )
    return Schema(tuple(features), **roles, ignored=tuple(ignored), **known)


def _column(name: str, declared: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the kind of a column and what it is declared as."""
    given = dict(declared)
    kind = given.pop("kind", None)
    if kind == "ignore":
        made: Any = None
    elif kind == "categorical":
        made = Hashed if "buckets" in given else Categorical
    elif kind == "target":
        made = Classes if "values" in given else Amount
    else:
        made = {"numeric": Numeric, "date": Date, "text": Text, "id": Key, "subject": Key}.get(str(kind))
        if made is None:
            raise BadPlan(f"columns.{name}: kind = {kind!r}: use one of {', '.join(map(repr, KINDS))}.")
    if made is None:
        return kind, None
    allowed = {one.name: one for one in fields(made) if one.name != "name"}
    for field in given:
        if field not in allowed:
            meant = [f"did you mean {near}?" for near in get_close_matches(field, allowed, 1)]
            listed = ", ".join(["kind", *allowed])
            raise BadPlan(f"columns.{name}: {field}: {' '.join(meant) or 'remove it'}; here are {listed}.")
    for field, one in allowed.items():
        if one.default is NO_DEFAULT and field not in given:
            lacking = "values = [...] or buckets" if made is Categorical else field
            raise BadPlan(f"columns.{name}: {lacking}: missing; a column of kind {kind!r} needs it.")
    dates = {key: value.isoformat() for key, value in given.items() if hasattr(value, "isoformat")}
    return kind, made(name, **{**given, **dates})


def schema_toml(schema: Schema, notes: Mapping[str, str] | None = None, *, guessed: bool = False) -> str:
    """Return a schema as TOML, with a word on how to read it, and a note on some columns.

    ``guessed`` says that the encoding was.
    """
    try:
        import tomlkit
    except ImportError as error:
        raise BadPlan("schema: tomlkit is needed to write TOML; install expunge[cli].") from error
    document = tomlkit.document()
    for line in HEADER.splitlines():
        document.add(tomlkit.comment(line) if line else tomlkit.nl())
    document.add(tomlkit.nl())
    document.add("format", tomlkit.item(FORMAT))
    document.add("confirmed", tomlkit.item(schema.confirmed))
    document.add("missing", tomlkit.item(list(schema.missing)))
    if not is_utf8(schema.encoding):
        encoding = tomlkit.item(schema.encoding)
        document.add("encoding", encoding.comment("guessed; check") if guessed else encoding)
    parts: list[tuple[str, str, dict[str, Any]]] = []
    for role in ("id", "subject", "target"):
        if (part := getattr(schema, role)) is not None:
            parts.append((part.name, role, fields_of(part) if role == "target" else {"type": part.type}))
    parts += [(part.name, part.kind, fields_of(part)) for part in schema.features]
    parts += [(name, "ignore", {}) for name in schema.ignored]
    columns = tomlkit.table(is_super_table=True)
    for name, kind, said in parts:
        table = tomlkit.table()
        if notes and name in notes:
            table.add(tomlkit.comment(_visible(notes[name])))
        table.add("kind", kind)
        for key, value in said.items():
            table.add(key, _item(tomlkit, value))
        table.add(tomlkit.nl())
        columns.add(name, table)
    document.add("columns", columns)
    lines = tomlkit.dumps(document).rstrip().split("\n")
    return "".join([f"{_visible(line)}\n" for line in lines])


def _visible(text: str) -> str:
    r"""Return TOML in which all that cannot be seen, or turns the direction of writing, is escaped: people read it.

    Its strings are in double quotes, where that is the same.

    >>> _visible('"é\x9b\u202e\U000e0041"')
    '"é\\u009b\\u202e\\U000e0041"'
    """
    return text if text.isprintable() else "".join(map(_visible_letter, text))


def _visible_letter(letter: str) -> str:
    if letter.isprintable() or "\ud800" <= letter <= "\udfff":  # TOML has no way to write half a letter
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"


def _item(tomlkit: Any, value: Any) -> Any:
    """Return a value as TOML; a long list on separate lines."""
    if not isinstance(value, tuple):
        return value
    array = tomlkit.item(list(value))
    return array.multiline(len(", ".join(map(repr, value))) > 60)
