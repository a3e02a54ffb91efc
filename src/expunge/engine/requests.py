"""Requests: to delete, insert or replace records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from expunge.base.errors import BadRecords
from expunge.base.intake import as_ids
from expunge.base.types import AnyArray

Kind = Literal["delete", "insert", "replace"]
NamedBy = Literal["ids", "subjects"]


class _Naming:
    """A request that names the records it is about, by their ids or by their subjects."""

    ids: Any
    subjects: Any

    @property
    def named_by(self) -> NamedBy:
        """How it names them."""
        return "subjects" if self.ids is None else "ids"

    @cached_property
    def names(self) -> AnyArray:
        """Whom it names, as an array."""
        return as_ids(self.named_by, self.subjects if self.ids is None else self.ids)


@dataclass(frozen=True, eq=False)
class Delete(_Naming):
    """Delete records, by id or by subject.

    With ``missing="ignore"`` those that are not found (they may have been deleted already) are skipped, and one
    named twice is deleted once. ``at`` is when it was asked for, by any clock; see `expunge.engine.streams.apply`.

    >>> Delete(subjects=["ann"], missing="ignore").missing
    'ignore'
    """

    kind: ClassVar[Kind] = "delete"
    ids: Any = None
    subjects: Any = None
    missing: Literal["error", "ignore"] = "error"
    at: float | None = None

    def __post_init__(self) -> None:
        _check_missing(self.missing)


@dataclass(frozen=True, eq=False)
class Insert:
    """Add records. An id that was deleted may come back: it is a new record like any other.

    >>> Insert(([[0.5, 1.0]], [1]), ids=["ann"]).ids
    ['ann']
    """

    kind: ClassVar[Kind] = "insert"
    named_by: ClassVar[None] = None
    names: ClassVar[None] = None  # it names nobody who is there
    columns: tuple[Any, ...]
    ids: Any = None
    subjects: Any = None
    at: float | None = None

    def __post_init__(self) -> None:
        _check_columns(self.columns)


@dataclass(frozen=True, eq=False)
class Replace(_Naming):
    """Give records new content; they keep their ids, subjects and places. A subject named must have one record.

    With ``missing="ignore"`` those that are not found are skipped.

    >>> Replace(([[0.5, 1.0]], [0]), ids=["ann"]).ids
    ['ann']
    """

    kind: ClassVar[Kind] = "replace"
    columns: tuple[Any, ...]
    ids: Any = None
    subjects: Any = None
    missing: Literal["error", "ignore"] = "error"
    at: float | None = None

    def __post_init__(self) -> None:
        _check_columns(self.columns)
        _check_missing(self.missing)


Request = Delete | Insert | Replace


def _check_missing(missing: Any) -> None:
    if missing not in ("error", "ignore"):
        raise BadRecords(f"missing={missing!r}: give 'error', or 'ignore' to skip what is not found.")


def _check_columns(columns: Any) -> None:
    if not isinstance(columns, (tuple, list)):
        raise BadRecords(f"columns: give a tuple of columns, such as (X, y), not {type(columns).__name__}.")


def check_named(request: Delete | Replace) -> None:
    """Raise unless a request says in one way which records it is about."""
    if (request.ids is None) == (request.subjects is None):
        raise BadRecords(f"give either ids or subjects, to say which records to {request.kind}.")
