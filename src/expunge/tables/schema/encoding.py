"""From raw columns to features, targets, ids and subjects, by a schema; each value depends on itself alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, NamedTuple

import numpy as np

from expunge.base.columns import rows_in, stack
from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Column
from expunge.tables.files import open_tables
from expunge.tables.reading import Broken, Chunk, OnError, Table
from expunge.tables.schema.columns import Amount, Categorical, Classes, Date, Feature, Hashed, Numeric, Schema
from expunge.tables.schema.rows import DenseRows, SparseRows
from expunge.tables.schema.values import (
    Work,
    as_truth,
    as_whole,
    bucket_of,
    codes_of,
    hasher_of,
    keys_of,
    moments_of,
    numbers_of,
    scaled,
)

SHARE = 1.0 - 2.0**-20
"""Rows are kept this much shorter than 1, so that none is longer when rounded to 32 bits."""
NO_MIDDLE = 'missing; declare missing = "flag" or "refuse" for this column, or a range with low and high'
"""What is said of a missing number without a range."""
MOST_NUMBERS = 2**25
"""How many numbers are encoded at once."""
SPARSE_ROWS = 4096
"""How many records are encoded at once, if rows are sparse."""
Roles = tuple[Literal["id", "subject"], ...]
ROLES: Roles = ("id", "subject")


class Encoded(NamedTuple):
    """Some records, encoded."""

    X: Column
    """A row for each record: 32-bit floats, or sparse, with the same numbers as 64-bit floats.

    If all numbers have a range, its norm is at most 1. If one has none, rows are dense or sparse 64-bit floats.
    """
    y: AnyArray | None
    ids: AnyArray | None
    subjects: AnyArray | None
    lines: AnyArray
    """Where each is in its file."""


@dataclass
class Counts:
    """What was noticed while encoding, by column."""

    rows: int = 0
    """How many records were encoded."""
    clipped: Counter[str] = field(default_factory=Counter)
    """Values beyond the public range, which are clipped to it."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Categories that are not in the vocabulary, which count as "other"."""
    missing: Counter[str] = field(default_factory=Counter)
    """Values that are missing."""

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, ready for JSON."""
        kinds = ("clipped", "unknown", "missing")
        return {"rows": self.rows, **{kind: {k: v for k, v in getattr(self, kind).items() if v} for kind in kinds}}


class Encoder:
    """Encodes tables by a schema, and counts what it noticed.

    ``target`` says whether the target is read, ``keys`` whether ids and subjects are; ``clip`` whether a target beyond
    its range counts as the end, as it does for a model (to score one, it does not). With ``broken`` set to skip,
    records whose values do not fit are left out. Rows are sparse if the schema says so, unless ``sparse`` is False.
    """

    def __init__(
        self,
        schema: Schema,
        broken: Broken,
        *,
        target: bool = True,
        keys: Roles = ROLES,
        clip: bool = True,
        sparse: bool = True,
    ) -> None:
        self.schema = schema
        self.broken = broken
        self.counts = Counts()
        self._target = schema.target if target else None
        self._clip = clip
        self._id = schema.id if "id" in keys else None
        self._subject = schema.subject if "subject" in keys else None
        self.sparse = sparse and schema.sparse
        raw = bool(schema.without_range)
        self._share: np.floating[Any] = np.float64(1.0) if raw else np.float32(SHARE / math.sqrt(len(schema.features)))

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        keys = (self._id, self._subject, self._target)
        return [*(one.name for one in self.schema.features), *(one.name for one in keys if one is not None)]

    def blocks(self, table: Table, rows: int = 65536) -> Iterator[Encoded]:
        """Encode a table, some rows at a time; fewer if there are many features."""
        most = SPARSE_ROWS if self.sparse else max(1, MOST_NUMBERS // self.schema.width)
        for chunk in table.chunks(self.columns, self.broken, min(rows, most)):
            yield self.encode(chunk)

    def encode(self, chunk: Chunk) -> Encoded:
        """Encode some rows; those that do not fit are left out, or an error names them."""
        work = Work(chunk, frozenset(self.schema.missing))
        made = (SparseRows if self.sparse else DenseRows)(len(chunk.lines), self.schema.width, self._share.dtype)
        for one in self.schema.features:
            self._feature(work, one, made)
        X = made.rows(self._share)
        y = None if self._target is None else self._encode_target(work, self._target)
        ids = None if self._id is None else keys_of(work, self._id)
        subjects = None if self._subject is None else keys_of(work, self._subject)
        work.finish(self.broken)
        good = work.good
        self.counts.rows += int(good.sum())
        for kind in ("clipped", "unknown", "missing"):
            tally = getattr(self.counts, kind)
            for name, rows in getattr(work, kind).items():
                tally[name] += int((rows & good).sum())
        found = Encoded(X, y, ids, subjects, chunk.lines)
        return found if good.all() else Encoded._make([None if one is None else one[good] for one in found])

    def _feature(self, work: Work, one: Feature, out: DenseRows | SparseRows) -> None:
        """Write the features of a column."""
        match one:
            case Numeric() | Date():
                values, missing = moments_of(work, one) if isinstance(one, Date) else numbers_of(work, one)
                if one.missing == "refuse":
                    work.refuse(one.name, missing, "missing")
                elif one.missing == "middle" and one.bounds is None:
                    work.refuse(one.name, missing, NO_MIDDLE)
                inside = values if one.bounds is None else work.clip(one.name, values, *one.bounds, ~missing)
                out.add(np.where(missing, 0.0, scaled(inside, one)))
                if one.missing == "flag":
                    out.add(missing)
                work.missing[one.name] = missing
            case Categorical(values=values):
                place = {as_truth(value): position for position, value in enumerate(values)}
                codes, missing = codes_of(work, one.name, lambda value: place.get(as_truth(value), len(values)), values)
                out.mark(codes, ~missing, len(values) + 1)
                work.unknown[one.name] = (codes == len(values)) & ~missing
                work.missing[one.name] = missing
            case Hashed(buckets=buckets):
                codes, missing = codes_of(work, one.name, lambda value: bucket_of(as_truth(value), buckets))
                out.mark(codes, ~missing, buckets)
                work.missing[one.name] = missing
            case _:
                texts, missing = work.texts(one.name)
                out.join(hasher_of(one.buckets, one.words).transform(np.where(missing, "", texts)))
                work.missing[one.name] = missing

    def _encode_target(self, work: Work, target: Classes | Amount) -> AnyArray:
        if isinstance(target, Amount):
            values, missing = numbers_of(work, target)
            work.refuse(target.name, missing, "missing")
            if not self._clip or target.low is None or target.high is None:
                return values
            return work.clip(target.name, values, target.low, target.high, ~missing)
        place = {as_truth(str(value)): position for position, value in enumerate(target.values)}
        whole = isinstance(target.values[0], int)
        codes, missing = codes_of(
            work, target.name, lambda value: place.get(as_whole(value) if whole else as_truth(value), -1), place
        )
        work.refuse(target.name, missing, "missing")
        work.refuse(target.name, (codes < 0) & ~missing, "none of the target's values")
        return np.asarray(target.values)[np.maximum(codes, 0)]


class EncodedTables:
    """Files of records, encoded by a schema: blocks (X, y, ids, subjects) for `expunge.ingest`.

    ``paths`` is a CSV, JSON-lines, Parquet or Arrow file, or several. With ``on_error="skip"`` records that cannot be
    read or do not fit the schema are left out and counted in ``broken``; with "stop" they are an error naming lines.
    X is sparse if the schema says so (`Schema.sparse`), unless ``sparse`` is False. ``encoding`` is that of these
    files, if it is not the schema's.
    """

    def __init__(
        self,
        schema: Schema,
        paths: Any,
        *,
        on_error: OnError = "stop",
        target: bool = True,
        keys: Roles = ROLES,
        clip: bool = True,
        sparse: bool = True,
        encoding: str | None = None,
    ) -> None:
        self.schema = schema
        self.broken = Broken(on_error)
        self.encoder = Encoder(schema, self.broken, target=target, keys=keys, clip=clip, sparse=sparse)
        listed = [paths] if isinstance(paths, (str, PathLike)) else paths
        self.tables = open_tables(listed, schema.encoding if encoding is None else encoding)
        for table in self.tables:
            table.check_columns(self.encoder.columns)

    @property
    def counts(self) -> Counts:
        """What was noticed so far."""
        return self.encoder.counts

    def blocks(self, rows: int = 65536) -> Iterator[Encoded]:
        """Encode all files, some rows at a time."""
        for table in self.tables:
            for block in self.encoder.blocks(table, rows):
                if rows_in(block.X):
                    yield block

    def some_blocks(self) -> Iterator[Encoded]:
        """Encode all files likewise; that there are no records is an error."""
        yield from self.blocks()
        if not self.counts.rows:
            raise BadRecords(f"{self.tables[0].path}: no records; give at least one.")

    def __iter__(self) -> Iterator[tuple[Column | None, ...]]:
        for block in self.blocks():
            yield block[:4]

    def estimate(self, records: int) -> int | None:
        """Return how many records there will be, if this many have been read so far."""
        done, size = sum(table.position() for table in self.tables), sum(table.size_bytes for table in self.tables)
        return round(records * size / done) if done else None

    def all(self) -> Encoded:
        """Return all records at once."""
        parts = zip(*self.some_blocks(), strict=True)
        return Encoded._make([None if part[0] is None else stack(part) for part in parts])
