"""Ids and subjects as they are given at the prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expunge.errors import BadRecords


def listed(name: str, given: list[str] | None, file: Path | None) -> list[str] | None:
    """Return the names that were given, and those in a file."""
    if given is None and file is None:
        return None
    names = [one.strip() for one in given or []]
    if file is not None:
        try:
            lines = file.read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadRecords(f"--{name}s-file: {file} cannot be read ({error}); give a text file.") from error
        found = [line.strip() for line in lines if line.strip()]
        if not found:
            raise BadRecords(f"--{name}s-file: {file} is empty; write one {name} on each line.")
        names += found
    if not all(names):
        raise BadRecords(f"--{name}: empty; give the {name} itself.")
    return names


def keys_of(model: Any, role: str, given: list[str] | None) -> Any:
    """Return ids or subjects in the type that they have in a model."""
    from expunge.schema import Key, parse_keys

    if given is None:
        return None
    schema = getattr(model, "schema_", None)
    if schema is not None:
        key = getattr(schema, role)
        if key is None and role == "subject":
            raise BadRecords("--subject: the schema has no column that names people; name records with --id.")
        return parse_keys(key, given)
    held = model.ids_ if role == "id" else model.subjects_
    return parse_keys(Key(role, "integer" if held.dtype.kind in "iu" else "text"), given)
