"""What a column holds, learned in one pass and with little memory."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Any
from zlib import crc32

import numpy as np

from expunge.base.types import AnyArray, Array
from expunge.tables.arrow import arrow
from expunge.tables.schema.guessing import PLAIN, Way
from expunge.tables.schema.writing import seconds_of
from expunge.tables.texts import trimmed

KEPT = 2000
"""For how many different values the number of occurrences is known."""
_LONGEST_KEPT = 200
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_PADDED = r"^[+-]?0\d"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class Profile:
    """What was seen of a column so far."""

    def __init__(self, missing: Collection[str], way: Way = PLAIN) -> None:
        self.way = way
        """How numbers or dates are written. What is kept of them is written as usual."""
        self.only_texts = True
        """Whether all values are texts in the file."""
        self.rows = 0
        self.missing = 0
        self.numbers = 0
        """How many values are numbers, and likewise below."""
        self.zeros = 0
        self.dates = 0
        self.words = 0
        """How many words there are in all."""
        self.low, self.high = math.inf, -math.inf
        self.years = 9999, 0
        self.integers = True
        """Whether all are integers of 64 bits, written as such usually are."""
        self.whole = True
        """Whether all numbers are whole."""
        self.padded = False
        """Whether there are numbers with zeros before them, such as 007."""
        self.repeated = False
        """Whether some value occurs more than once."""
        self.unfit = ""
        """The type that is neither text nor number nor date, if that is so."""
        self.kept: dict[str, int] = {}
        """How often each of some values occurs. The values were drawn at random, if there are more than ``KEPT``."""
        self._marks = list(missing)
        self._medians: list[float] = []
        self._limit = 2**32

    @property
    def present(self) -> int:
        """How many values are not missing."""
        return self.rows - self.missing

    @property
    def all_kept(self) -> bool:
        """Whether all different values are kept."""
        return self._limit == 2**32

    @property
    def distinct(self) -> int:
        """How many different values there are, estimated if not all are kept."""
        return min(self.present, round(len(self.kept) * 2**32 / self._limit))

    @property
    def median(self) -> float:
        """About the median of the numbers."""
        return float(np.median(self._medians)) if self._medians else math.nan

    def add(self, column: Any, numbers: AnyArray | None = None) -> None:
        """Add an Arrow array of values; ``numbers`` says which texts are numbers in the file."""
        pa = arrow()
        from pyarrow import compute

        self.rows += len(column)
        if not _is_readable(column.type):
            self.unfit = str(column.type)
            return
        self.only_texts = self.only_texts and _is_text(column.type) and (numbers is None or not numbers.any())
        column = trimmed(column.cast(pa.string()))
        if self.way != PLAIN:
            encoded = column.dictionary_encode()
            read = [self.way.as_usual(text, self._marks) for text in encoded.dictionary.to_pylist()]
            column = pa.array(read, pa.string()).take(encoded.indices)
        counted = compute.value_counts(column)
        values, counts = counted.field("values"), counted.field("counts").to_numpy()
        absent = compute.is_in(compute.utf8_lower(values), pa.array([*self._marks, None], pa.string()))
        if (gone := absent.to_numpy(zero_copy_only=False)).any():
            self.missing += int(counts[gone].sum())
            values, counts = values.filter(compute.invert(absent)), counts[~gone]
        if len(values):
            self._look(values, counts)

    def _look(self, values: Any, counts: AnyArray) -> None:
        """Add different values, with how often each occurs."""
        from pyarrow import compute

        self.repeated = self.repeated or bool((counts > 1).any())
        self._keep(values, counts)
        self.words += int((counts * (1 + compute.count_substring(values, " ").to_numpy())).sum())
        self.integers = self.integers and _are_integers(values)
        numbers = _numbers(values)
        fit = np.isfinite(numbers)
        self.numbers += int(counts[fit].sum())
        if fit.any():
            self._look_at_numbers(numbers[fit], counts[fit])
            self.padded = self.padded or bool(compute.any(compute.match_substring_regex(values, _PADDED)).as_py())
        if not fit.all() and self.numbers * 2 < self.present:
            self._look_at_dates(values.to_pylist(), counts)

    def _look_at_numbers(self, numbers: Array, counts: AnyArray) -> None:
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.whole = self.whole and bool((numbers == np.rint(numbers)).all())
        self.zeros += int(counts[numbers == 0].sum())
        order = np.argsort(numbers)
        middle = np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)
        self._medians.append(float(numbers[order][middle]))

    def _look_at_dates(self, values: list[str], counts: AnyArray) -> None:
        for value, count in zip(values, counts.tolist(), strict=True):
            if _DAY.match(value) and _is_moment(value):
                year = int(value[:4])
                self.years = min(self.years[0], year), max(self.years[1], year)
                self.dates += count

    def _keep(self, values: Any, counts: AnyArray) -> None:
        """Keep the values of least hash, of which we then know all that came."""
        from pyarrow import compute

        values = compute.utf8_slice_codeunits(values, 0, _LONGEST_KEPT)
        few = np.flatnonzero(_hashes(values) < self._limit)
        for value, count in zip(values.take(arrow().array(few)).to_pylist(), counts[few].tolist(), strict=True):
            self.repeated = self.repeated or value in self.kept
            self.kept[value] = self.kept.get(value, 0) + count
        if len(self.kept) > KEPT:
            texts = list(self.kept)
            order = _hashes(arrow().array(texts))
            self._limit = int(np.partition(order, KEPT)[KEPT])
            self.kept = {texts[place]: self.kept[texts[place]] for place in np.flatnonzero(order < self._limit)}


def _is_text(kind: Any) -> bool:
    types = arrow().types
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view, types.is_null))


def _is_readable(kind: Any) -> bool:
    types = arrow().types
    others = types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_date, types.is_timestamp
    return _is_text(kind) or any(test(kind) for test in others)


def _are_integers(values: Any) -> bool:
    """Return whether texts are what integers of 64 bits are written as."""
    pa = arrow()
    try:
        return bool(values.cast(pa.int64()).cast(pa.string()).equals(values))
    except pa.ArrowInvalid:
        return False


def _numbers(values: Any) -> Array:
    """Return texts as numbers; NaN for what is not a number."""
    from pyarrow import compute

    pa = arrow()
    try:
        return values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        fit = compute.match_substring_regex(values, _NUMBER)
        numbers = np.full(len(values), math.nan)
        numbers[fit.to_numpy(zero_copy_only=False)] = values.filter(fit).cast(pa.float64())
        return numbers


def _is_moment(text: str) -> bool:
    try:
        seconds_of(text)
    except ValueError:
        return False
    return True


def _hashes(values: Any) -> AnyArray:
    """Return a number of 32 bits for each text, the same in every run."""
    from sklearn.utils import murmurhash3_32

    texts = values.cast(arrow().binary()).to_pylist()
    sums = np.fromiter(map(crc32, texts), dtype=np.uint32, count=len(texts))
    return murmurhash3_32(sums.view(np.int32), seed=0, positive=True)
