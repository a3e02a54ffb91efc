"""Raw values of a chunk as numbers, moments, codes and keys; what does not fit is refused, what is odd is noted."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from functools import cache, cached_property
from typing import Any

import numpy as np

from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array, Mask
from expunge.tables.reading import Broken, Chunk
from expunge.tables.schema.columns import Amount, Date, Key, Numeric
from expunge.tables.schema.writing import plain_number, seconds_of

DAY = 86_400.0
"""How many seconds a day has."""
LONGEST_KEY = 1_000
"""How many letters an id or a subject may have."""


class Work:
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
                    f"{self.chunk.file}: column {name!r} has type {column.type}, which is not text; leave it out."
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
        """Ways to write a missing value that are numbers."""
        numbers = np.array([_number(text) for text in self._missing])
        return numbers[np.isfinite(numbers)]


def numbers_of(work: Work, one: Numeric | Amount) -> tuple[Array, Mask]:
    """Return a column as numbers, 0 where they are missing, and where that is; refuse what is no number."""
    import pyarrow as pa

    name, column = one.name, work.column(one.name)
    kind = column.type
    if work.is_text(name) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        values, missing = _parsed(work, one)
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


def _parsed(work: Work, one: Numeric | Amount) -> tuple[Array, Mask]:
    """Return a column of texts as numbers, and which are missing."""
    import pyarrow as pa

    name, column = one.name, work.column(one.name)
    way = (one.decimal, one.thousands, one.unit)
    plain = way == (".", "", "") or not work.is_text(name)
    if work.is_text(name) and plain:
        try:  # a column of clean numbers
            values = column.cast(pa.float64()).fill_null(math.nan).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            values = np.array([math.nan])
        if not np.isnan(values).any():
            return values.astype(np.float64), np.isin(values, work.missing_numbers)
    texts, codes, missing = work.dictionary(name)
    values = np.array([_number(text if plain else plain_number(text, *way)) for text in texts])[codes]
    if not plain and (known := work.chunk.numbers.get(name)) is not None and known.any():
        values = np.where(known, np.array([_number(text) for text in texts])[codes], values)
    missing |= np.isin(values, work.missing_numbers)
    work.refuse(name, np.isnan(values) & ~missing, "not a number")
    return np.where(np.isnan(values), 0.0, values), missing


def _number(text: str) -> float:
    """Return a text as a number; NaN if it is not one."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def moments_of(work: Work, one: Date) -> tuple[Array, Mask]:
    """Return a column of dates as seconds, 0 where they are missing, and where that is; refuse what is no date."""
    import pyarrow as pa

    texts, codes, missing = work.dictionary(one.name)
    format = "" if pa.types.is_temporal(work.column(one.name).type) else one.format
    values = np.array([_moment(text, format) for text in texts])[codes]
    like = f"that is written as {format}" if format else "such as 2026-11-15"
    work.refuse(one.name, np.isnan(values) & ~missing, f"not a day or time {like}")
    return np.where(np.isnan(values), 0.0, values), missing


def _moment(text: str, format: str) -> float:
    try:
        return seconds_of(text, format)
    except ValueError:
        return math.nan


def scaled(values: Array, one: Numeric | Date) -> Array:
    """Return values of a range between -1 and 1; without a range as they are, dates as days since 1970."""
    log = isinstance(one, Numeric) and one.scale == "log"
    if one.bounds is None:
        days = values / DAY if isinstance(one, Date) else values
        return np.copysign(np.log1p(np.abs(days)), days) if log else days
    low, high = one.bounds
    if log:
        return 2.0 * np.log1p(values - low) / math.log1p(high - low) - 1.0
    return 2.0 * (values - low) / (high - low) - 1.0


def codes_of(work: Work, name: str, code: Callable[[str], int], known: Container[str] = ()) -> tuple[AnyArray, Mask]:
    """Return a number for each value, and which are missing; one that is ``known`` is never missing."""
    texts, codes, missing = work.dictionary(name, known)
    return np.array([code(text) for text in texts], dtype=np.int64)[codes], missing


def as_whole(text: str) -> str:
    """Return a whole number as it is usually written: 7.0 is 7."""
    head, _, tail = text.partition(".")
    number = _integer(head if not tail.strip("0") else text)
    return text if number is None else str(number)


def as_truth(text: str) -> str:
    """Return true and false as most write them."""
    return text.lower() if text.lower() in ("true", "false") else text


def bucket_of(text: str, buckets: int) -> int:
    """Return the bucket of a text, the same on every machine."""
    from sklearn.utils import murmurhash3_32

    return int(murmurhash3_32(text, seed=0, positive=True)) % buckets


@cache
def hasher_of(buckets: int, words: tuple[int, int]) -> Any:
    """Return what counts words, and sequences of words, of texts in buckets."""
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=buckets, ngram_range=words, dtype=np.float32)


def keys_of(work: Work, key: Key) -> AnyArray:
    """Return ids or subjects; refuse records that have none."""
    texts, codes, missing = work.dictionary(key.name)
    work.refuse(key.name, missing, "missing")
    if key.type == "text":
        odd = np.array([len(text) > LONGEST_KEY or "\0" in text for text in texts])
        work.refuse(key.name, odd[codes], f"longer than {LONGEST_KEY} letters, or with a NUL")
        return np.array(["" if strange else text for text, strange in zip(texts, odd, strict=True)])[codes]
    numbers = [_integer(as_whole(text)) for text in texts]
    work.refuse(
        key.name, np.array([number is None for number in numbers])[codes] & ~missing,
        "not a 64-bit integer",
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
            raise BadRecords(f"{where}: {text[:40]!r} is not a 64-bit integer, unlike all others.")
    return [number for number in numbers if number is not None]
