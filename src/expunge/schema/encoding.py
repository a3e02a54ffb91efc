"""From raw columns to features, targets, ids and subjects, by a schema; each value depends on itself alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from os import PathLike
from typing import Any, Literal, NamedTuple

import numpy as np

from expunge.errors import BadRecords
from expunge.schema.model import Amount, Categorical, Classes, Date, Feature, Hashed, Key, Numeric, Schema, seconds_of
from expunge.schema.tables import Broken, Chunk, OnError, Table, open_tables
from expunge.types import AnyArray, Array, Mask

SHARE = 1.0 - 2.0**-20
"""Rows are kept this much shorter than 1, so that none is longer when rounded to 32 bits."""


LONGEST_KEY = 1_000
"""How many letters an id or a subject may have."""
MOST_NUMBERS = 2**25
"""How many numbers are encoded at once."""
Roles = tuple[Literal["id", "subject"], ...]
ROLES: Roles = ("id", "subject")


class Encoded(NamedTuple):
    """Some records, encoded."""

    X: AnyArray
    """32-bit floats, a row for each record, of norm at most 1."""
    y: AnyArray | None
    ids: AnyArray | None
    subjects: AnyArray | None
    lines: AnyArray
    """Where each stands in its file."""


@dataclass
class Counts:
    """What was noticed while encoding, by column."""

    rows: int = 0
    """How many records were encoded."""
    clipped: Counter[str] = field(default_factory=Counter)
    """Values beyond the public range, which count as its end."""
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
    records whose values do not fit are left out.
    """

    def __init__(
        self, schema: Schema, broken: Broken, *, target: bool = True, keys: Roles = ROLES, clip: bool = True
    ) -> None:
        self.schema = schema
        self.broken = broken
        self.counts = Counts()
        self._target = schema.target if target else None
        self._clip = clip
        self._id = schema.id if "id" in keys else None
        self._subject = schema.subject if "subject" in keys else None
        self._share = SHARE / math.sqrt(len(schema.features))

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        keys = (self._id, self._subject, self._target)
        return [*(one.name for one in self.schema.features), *(one.name for one in keys if one is not None)]

    def blocks(self, table: Table, rows: int = 65536) -> Iterator[Encoded]:
        """Encode a table, some rows at a time; fewer if there are many features."""
        for chunk in table.chunks(self.columns, self.broken, max(1, min(rows, MOST_NUMBERS // self.schema.width))):
            yield self.encode(chunk)

    def encode(self, chunk: Chunk) -> Encoded:
        """Encode some rows; those that do not fit are left out, or an error names them."""
        work = _Work(chunk, frozenset(self.schema.missing))
        X = np.zeros((len(chunk.lines), self.schema.width), dtype=np.float32)
        start = 0
        for one in self.schema.features:
            stop = start + len(one.features)
            self._feature(work, one, X[:, start:stop])
            start = stop
        X *= np.float32(self._share)
        y = None if self._target is None else self._encode_target(work, self._target)
        ids = None if self._id is None else _key(work, self._id)
        subjects = None if self._subject is None else _key(work, self._subject)
        work.finish(self.broken)
        good = work.good
        self.counts.rows += int(good.sum())
        for kind in ("clipped", "unknown", "missing"):
            tally = getattr(self.counts, kind)
            for name, rows in getattr(work, kind).items():
                tally[name] += int((rows & good).sum())
        found = Encoded(X, y, ids, subjects, chunk.lines)
        return found if good.all() else Encoded._make([None if one is None else one[good] for one in found])

    def _feature(self, work: _Work, one: Feature, out: AnyArray) -> None:
        """Write the features of a column."""
        match one:
            case Numeric() | Date():
                values, missing = _moments(work, one.name) if isinstance(one, Date) else _numbers(work, one.name)
                if one.missing == "refuse":
                    work.refuse(one.name, missing, "missing")
                out[:, 0] = np.where(missing, 0.0, _scaled(work.clip(one.name, values, *one.bounds, ~missing), one))
                if one.missing == "flag":
                    out[:, 1] = missing
                work.missing[one.name] = missing
            case Categorical(values=values):
                place = {_truth(value): position for position, value in enumerate(values)}
                codes, missing = _codes(work, one.name, lambda value: place.get(_truth(value), len(values)), values)
                out[np.flatnonzero(~missing), codes[~missing]] = 1.0
                work.unknown[one.name] = (codes == len(values)) & ~missing
                work.missing[one.name] = missing
            case Hashed(buckets=buckets):
                codes, missing = _codes(work, one.name, lambda value: _bucket(_truth(value), buckets))
                out[np.flatnonzero(~missing), codes[~missing]] = 1.0
                work.missing[one.name] = missing
            case _:
                texts, missing = work.texts(one.name)
                hashed = _hasher(one.buckets, one.words).transform(np.where(missing, "", texts))
                out[:] = hashed.toarray()
                work.missing[one.name] = missing

    def _encode_target(self, work: _Work, target: Classes | Amount) -> AnyArray:
        if isinstance(target, Amount):
            values, missing = _numbers(work, target.name)
            work.refuse(target.name, missing, "missing")
            return work.clip(target.name, values, target.low, target.high, ~missing) if self._clip else values
        place = {_truth(str(value)): position for position, value in enumerate(target.values)}
        whole = isinstance(target.values[0], int)
        codes, missing = _codes(
            work, target.name, lambda value: place.get(_whole(value) if whole else _truth(value), -1), place
        )
        work.refuse(target.name, missing, "missing")
        work.refuse(target.name, (codes < 0) & ~missing, "none of the target's values")
        return np.asarray(target.values)[np.maximum(codes, 0)]


class EncodedTables:
    """Files of records, encoded by a schema: blocks (X, y, ids, subjects) for `expunge.ingest`.

    ``paths`` is a CSV, Parquet or JSON-lines file, or several. With ``on_error="skip"`` records that cannot be read or
    do not fit the schema are left out and counted in ``broken``; with "stop" they are an error that names their lines.
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
    ) -> None:
        self.schema = schema
        self.broken = Broken(on_error)
        self.encoder = Encoder(schema, self.broken, target=target, keys=keys, clip=clip)
        self.tables = open_tables([paths] if isinstance(paths, (str, PathLike)) else paths)
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
                if len(block.X):
                    yield block

    def __iter__(self) -> Iterator[tuple[AnyArray | None, ...]]:
        for block in self.blocks():
            yield block[:4]

    def estimate(self, records: int) -> int | None:
        """Return how many records there will be, if this many have been read so far."""
        done, size = sum(table.position() for table in self.tables), sum(table.size_bytes for table in self.tables)
        return round(records * size / done) if done else None

    def all(self) -> Encoded:
        """Return all records at once."""
        found = list(self.blocks())
        if not found:
            raise BadRecords(f"{self.tables[0].path}: there are no records; give at least one.")
        parts = zip(*found, strict=True)
        return Encoded._make([None if part[0] is None else np.concatenate(part) for part in parts])


class _Work:
    """A chunk that is being encoded, and what was noticed about its rows."""

    def __init__(self, chunk: Chunk, missing: frozenset[str]) -> None:
        self.chunk = chunk
        self.good = np.ones(len(chunk.lines), dtype=bool)
        self.clipped: dict[str, Mask] = {}
        self.unknown: dict[str, Mask] = {}
        self.missing: dict[str, Mask] = {}
        self._missing = missing
        self._refused: list[tuple[int, str]] = []

    def refuse(self, name: str, rows: Mask, why: str) -> None:
        """Leave rows out, and say why (without their values: what is said may be kept)."""
        self._refused += [(row, f"column {name!r}: {why}") for row in np.flatnonzero(rows & self.good).tolist()]
        self.good &= ~rows

    def finish(self, broken: Broken) -> None:
        """Note what was refused, line by line."""
        for row, why in sorted(self._refused):
            broken.add(self.chunk.file, int(self.chunk.lines[row]), why)
        broken.check()

    def clip(self, name: str, values: Array, low: float, high: float, present: Mask) -> Array:
        """Return values within a range, and note which were not."""
        self.clipped[name] = ((values < low) | (values > high)) & present
        return np.clip(values, low, high)

    def column(self, name: str) -> Any:
        """Return a raw column."""
        return self.chunk.columns[name]

    def is_text(self, name: str) -> bool:
        """Say whether a raw column is text."""
        import pyarrow as pa

        kind = self.column(name).type
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def dictionary(self, name: str, known: Container[str] = ()) -> tuple[list[str], AnyArray, Mask]:
        """Return the distinct values of a column as texts, which each row has, and which rows are missing.

        A text that is ``known`` is never missing. Whatever file a value comes from, it becomes the same text.
        """
        import pyarrow as pa

        column = self.column(name)
        if pa.types.is_floating(column.type):
            listed = [None if value is None or math.isnan(value) else repr(value) for value in column.to_pylist()]
            column = pa.array(listed, pa.large_string())
        elif not self.is_text(name):
            try:
                column = column.cast(pa.large_string())
            except pa.ArrowException:
                raise BadRecords(
                    f"{self.chunk.file}: column {name!r} holds {column.type}, which is no text; leave it out."
                ) from None
        encoded = column.dictionary_encode()
        texts = [text.strip() for text in encoded.dictionary.to_pylist()] or [""]
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        missing = np.array([text.lower() in self._missing and text not in known for text in texts])
        return texts, codes, missing[codes] | column.is_null().to_numpy(zero_copy_only=False)

    def texts(self, name: str) -> tuple[AnyArray, Mask]:
        """Return the texts of a column, and which are missing."""
        values, codes, missing = self.dictionary(name)
        return np.array(values, dtype=object)[codes], missing

    @cached_property
    def missing_numbers(self) -> Array:
        """What stands for a missing value and is a number."""
        numbers = np.array([_number(text) for text in self._missing])
        return numbers[np.isfinite(numbers)]


def _numbers(work: _Work, name: str) -> tuple[Array, Mask]:
    """Return a column as numbers, 0 where they are missing, and where that is; refuse what is no number."""
    import pyarrow as pa

    column = work.column(name)
    kind = column.type
    if work.is_text(name) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        values, missing = _parsed(work, name)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        small = column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column
        values = small.cast(pa.float64(), safe=False).fill_null(math.nan).to_numpy(zero_copy_only=False)
        missing = np.isnan(values) | np.isin(values, work.missing_numbers)
    else:
        work.refuse(name, np.ones(len(column), dtype=bool), f"expected a number, got {kind}")
        return np.zeros(len(column)), np.zeros(len(column), dtype=bool)
    infinite = np.isinf(values)
    work.refuse(name, infinite, "infinite")
    return np.where(missing | infinite, 0.0, values), missing


def _parsed(work: _Work, name: str) -> tuple[Array, Mask]:
    """Return a column of texts as numbers, and which are missing."""
    import pyarrow as pa

    column = work.column(name)
    if work.is_text(name):
        try:  # a column of clean numbers
            values = column.cast(pa.float64()).fill_null(math.nan).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            values = np.array([math.nan])
        if not np.isnan(values).any():
            return values.astype(np.float64), np.isin(values, work.missing_numbers)
    texts, codes, missing = work.dictionary(name)
    numbers = np.array([_number(text) for text in texts])
    values = numbers[codes]
    missing |= np.isin(values, work.missing_numbers)
    work.refuse(name, np.isnan(values) & ~missing, "no number")
    return np.where(np.isnan(values), 0.0, values), missing


def _number(text: str) -> float:
    """Return a text as a number; NaN if it is none."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _moments(work: _Work, name: str) -> tuple[Array, Mask]:
    """Return a column of dates as seconds, 0 where they are missing, and where that is; refuse what is no date."""
    texts, codes, missing = work.dictionary(name)
    values = np.array([_moment(text) for text in texts])[codes]
    work.refuse(
        name, np.isnan(values) & ~missing,
        "no day or time such as 2026-11-15",
    )  # fmt: skip
    return np.where(np.isnan(values), 0.0, values), missing


def _moment(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError:
        return math.nan


def _scaled(values: Array, one: Numeric | Date) -> Array:
    """Return values of a range between -1 and 1."""
    low, high = one.bounds
    if isinstance(one, Numeric) and one.scale == "log":
        return 2.0 * np.log1p(values - low) / math.log1p(high - low) - 1.0
    return 2.0 * (values - low) / (high - low) - 1.0


def _codes(work: _Work, name: str, code: Callable[[str], int], known: Container[str] = ()) -> tuple[AnyArray, Mask]:
    """Return a number for each value, and which are missing; one that is ``known`` is never missing."""
    texts, codes, missing = work.dictionary(name, known)
    return np.array([code(text) for text in texts], dtype=np.int64)[codes], missing


def _whole(text: str) -> str:
    """Return a whole number as it is usually written: 7.0 is 7."""
    head, _, tail = text.partition(".")
    number = _integer(head if not tail.strip("0") else text)
    return text if number is None else str(number)


def _truth(text: str) -> str:
    """Return true and false as most write them."""
    return text.lower() if text.lower() in ("true", "false") else text


def _bucket(text: str, buckets: int) -> int:
    from sklearn.utils import murmurhash3_32

    return int(murmurhash3_32(text, seed=0, positive=True)) % buckets


@cache
def _hasher(buckets: int, words: tuple[int, int]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=buckets, ngram_range=words, dtype=np.float32)


def _key(work: _Work, key: Key) -> AnyArray:
    """Return ids or subjects; refuse records that have none."""
    texts, codes, missing = work.dictionary(key.name)
    work.refuse(key.name, missing, "missing")
    if key.type == "text":
        odd = np.array([len(text) > LONGEST_KEY or "\0" in text for text in texts])
        work.refuse(key.name, odd[codes], f"longer than {LONGEST_KEY} letters, or with a NUL")
        return np.array(["" if strange else text for text, strange in zip(texts, odd, strict=True)])[codes]
    numbers = [_integer(_whole(text)) for text in texts]
    work.refuse(
        key.name, np.array([number is None for number in numbers])[codes] & ~missing,
        "no whole number of 64 bits",
    )  # fmt: skip
    return np.array([number or 0 for number in numbers], dtype=np.int64)[codes]


def _integer(text: str) -> int | None:
    try:
        number = int(text) if "_" not in text else None
    except ValueError:
        return None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def parse_keys(key: Key | None, given: list[str]) -> list[str] | list[int]:
    """Return ids or subjects that were given as texts, in their type; without a column of ids they are numbers."""
    if key is not None and key.type == "text":
        return given
    numbers = [_integer(text) for text in given]
    for text, number in zip(given, numbers, strict=True):
        if number is None:
            where = "ids" if key is None else f"column {key.name!r}"
            raise BadRecords(f"{where}: {text[:40]!r} is no whole number of 64 bits, as they all are.")
    return [number for number in numbers if number is not None]
