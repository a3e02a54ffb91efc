"""Which columns of a table are what."""

from __future__ import annotations

from typing import NamedTuple

from expunge.base.errors import BadRecords


class Roles(NamedTuple):
    """Which columns of a table are what."""

    features: list[str] | None
    target: str | None
    id: str | None
    subject: str | None

    @property
    def columns(self) -> list[str]:
        """All columns that have a role, each once."""
        return list(dict.fromkeys([*(self.features or []), *(name for name in self[1:] if name is not None)]))

    def label(self, field: str, position: int = 0) -> str:
        """Return what to call a field of a block, or one of the features, in an error."""
        if self.features is None:
            return f"X[:, {position}]" if field == "X" else field
        name = {"X": self.features[position], "y": self.target, "ids": self.id, "subjects": self.subject}[field]
        return f"column {name!r}"


def choose(names: list[str], asked: Roles, before: list[str] | None, start: int) -> Roles:
    """Say which columns of a table are what; ``before`` has the features of an earlier one."""
    there = f"there are {', '.join(map(repr, names))}"
    others = [name for name in names if name not in asked[1:]]
    if asked.features is None and before is not None and len(others) != len(before):
        raise BadRecords(
            f"source: {len(others)} feature columns from row {start} on, {len(before)} before; give every table the "
            "same columns, or name those to take with features=."
        )
    if asked.features is None:
        asked = asked._replace(features=others if before is None else before)
    if not asked.features:
        raise BadRecords(f"source: no feature columns; {there}. Choose some of them with features=.")
    for name in asked.columns:
        if name not in names:
            raise BadRecords(f"column {name!r}: not in the table at row {start}; {there}.")
        if names.count(name) > 1 or asked.features.count(name) > 1:
            raise BadRecords(f"column {name!r}: duplicate name; rename one, or leave it out with features=.")
        if name in asked.features and name in asked[1:]:
            raise BadRecords(f"column {name!r}: a feature, but also target, id or subject; leave it out of features=.")
    return asked


def check_nameless(asked: Roles) -> None:
    """Raise if columns of arrays are named."""
    for name, value in zip(("features", "target", "id", "subject"), asked, strict=True):
        if value is not None:
            raise BadRecords(
                f"{name}={value!r}: the columns of arrays have no names; leave it out, and give (X, y, ids, subjects)."
            )
