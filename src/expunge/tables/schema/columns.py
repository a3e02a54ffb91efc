"""What each column of a table is, declared from public knowledge: encoding by it learns nothing from the records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from expunge.base.errors import BadPlan
from expunge.tables.schema.writing import DecimalSign, Thousands, check_format, check_number_writing, seconds_of
from expunge.tables.texts import check_encoding

MISSING = ("", "?", "na", "n/a", "nan", "null", "none", "nil", "-")
"""How a missing value is written, in lower case, unless a schema says otherwise."""
MOST_BUCKETS = 2**16
WORDS = (1, 2)
"""How many words in a row a text is cut into: single ones and pairs."""
USUAL_WORDS = 64
"""About how many numbers come of a text."""
MOSTLY_ZEROS = 16
"""Rows with this many times as many columns as non-zero numbers are stored sparse."""
WIDE = 256
"""Rows of fewer columns are kept dense."""

Scale = Literal["linear", "log"]
Missing = Literal["middle", "flag", "refuse"]
KeyType = Literal["integer", "text"]


@dataclass(frozen=True)
class Numeric:
    """A number: as it is, or with a public range mapped to -1 to 1, where values outside are clipped to the range.

    A missing value counts as the middle of the range ("middle"), also marked by an extra column ("flag"), or is an
    error ("refuse"). Without a range there is no middle: then "flag" counts it as 0 and marks it, and else it is an
    error. ``decimal``, ``thousands`` and ``unit`` say how texts write it: for 1.234,5 € they are ",", "." and "€".
    """

    kind: ClassVar[str] = "numeric"
    name: str
    low: float | None = None
    high: float | None = None
    scale: Scale = "linear"
    missing: Missing = "middle"
    decimal: DecimalSign = "."
    thousands: Thousands = ""
    unit: str = ""

    def __post_init__(self) -> None:
        _check_range(self.name, self.low, self.high)
        _check_choice(self.name, "scale", self.scale, Scale)
        _check_choice(self.name, "missing", self.missing, Missing)
        _check_said(self.name, check_number_writing(self.decimal, self.thousands, self.unit))

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The range, if there is one."""
        return None if self.low is None or self.high is None else (float(self.low), float(self.high))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that it becomes."""
        return (self.name, f"{self.name} is missing") if self.missing == "flag" else (self.name,)


@dataclass(frozen=True)
class Date:
    """A day or time in ISO form, such as 2026-11-15 or 2026-11-15 12:30: like a number, of days since 1970.

    ``format`` says how texts write it, if not in ISO form: "%d.%m.%Y". A range is always in ISO form.
    """

    kind: ClassVar[str] = "date"
    name: str
    low: str | None = None
    high: str | None = None
    missing: Missing = "middle"
    format: str = ""

    def __post_init__(self) -> None:
        _check_both(self.name, self.low, self.high)
        for field, value in (("low", self.low), ("high", self.high)):
            try:
                seconds_of(value) if value is not None else None
            except (TypeError, ValueError):
                raise BadPlan(f"{_at(self.name)}: {field} = {value!r} is not a day such as '2026-11-15'.") from None
        if self.bounds is not None and self.bounds[0] >= self.bounds[1]:
            raise BadPlan(f"{_at(self.name)}: low = {self.low!r} is not before high = {self.high!r}.")
        _check_choice(self.name, "missing", self.missing, Missing)
        _check_said(self.name, check_format(self.format))

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The range, in seconds since 1970, if there is one."""
        return None if self.low is None or self.high is None else (seconds_of(self.low), seconds_of(self.high))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that it becomes."""
        return (self.name, f"{self.name} is missing") if self.missing == "flag" else (self.name,)


@dataclass(frozen=True)
class Categorical:
    """One of some publicly known values, a 0/1 column each; any other counts as "other", in an extra column.

    A missing value gives zeros in all columns.
    """

    kind: ClassVar[str] = "categorical"
    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _texts(self.name, self.values))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that it becomes."""
        return (*(f"{self.name} = {value}" for value in self.values), f"{self.name} is other")


@dataclass(frozen=True)
class Hashed:
    """One of many values, none of which need be known: each falls into one of ``buckets`` 0/1 columns by its hash."""

    kind: ClassVar[str] = "categorical"
    name: str
    buckets: int

    def __post_init__(self) -> None:
        _check_buckets(self.name, self.buckets)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that it becomes."""
        return _numbered(self.name, self.buckets)


@dataclass(frozen=True)
class Text:
    """Free text: its words, and up to how many in a row ``words`` says, are hashed into ``buckets`` columns."""

    kind: ClassVar[str] = "text"
    name: str
    buckets: int = 256
    words: tuple[int, int] = WORDS

    def __post_init__(self) -> None:
        _check_buckets(self.name, self.buckets)
        pair = self.words
        if not (
            isinstance(pair, (list, tuple)) and len(pair) == 2 and all(type(number) is int for number in pair)
            and 1 <= pair[0] <= pair[1] <= 5
        ):  # fmt: skip
            raise BadPlan(f"{_at(self.name)}: words = {pair!r}: give two whole numbers from 1 to 5, such as [1, 2].")
        object.__setattr__(self, "words", tuple(pair))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that it becomes."""
        return _numbered(self.name, self.buckets)


@dataclass(frozen=True)
class Key:
    """The column that names records (their ids), or people (subjects)."""

    name: str
    type: KeyType = "text"

    def __post_init__(self) -> None:
        _check_choice(self.name, "type", self.type, KeyType)


@dataclass(frozen=True)
class Classes:
    """A target that is one of some publicly known values: all texts, or all whole numbers."""

    name: str
    values: tuple[str, ...] | tuple[int, ...]

    def __post_init__(self) -> None:
        values = self.values
        whole = isinstance(values, (list, tuple)) and bool(values) and all(type(value) is int for value in values)
        object.__setattr__(self, "values", tuple(values) if whole else _texts(self.name, values))
        _check_once(f"{_at(self.name)}: values", self.values)
        if len(self.values) < 2:
            raise BadPlan(f"{_at(self.name)}: values = {list(self.values)!r}: give at least two.")


@dataclass(frozen=True)
class Amount:
    """A target that is a number; with a range, values outside are clipped to it. It is written like `Numeric`."""

    name: str
    low: float | None = None
    high: float | None = None
    decimal: DecimalSign = "."
    thousands: Thousands = ""
    unit: str = ""

    def __post_init__(self) -> None:
        _check_range(self.name, self.low, self.high)
        _check_said(self.name, check_number_writing(self.decimal, self.thousands, self.unit))


Feature = Numeric | Date | Categorical | Hashed | Text


@dataclass(frozen=True)
class Schema:
    """What each column of a table is.

    ``confirmed`` says that someone has read it and that all of it is publicly known. Values that are as in
    ``missing``, in any case, are missing. Files of text are in ``encoding``. If all numbers and dates have ranges,
    every row of features has a norm of at most 1, and each column has an equal share in it.

    >>> schema = Schema((Numeric("age", 0, 120), Categorical("city", ("Rome", "Oslo"))), target=Classes("sick", (0, 1)))
    >>> schema.feature_names
    ('age', 'city = Rome', 'city = Oslo', 'city is other')
    """

    features: tuple[Feature, ...]
    id: Key | None = None
    subject: Key | None = None
    target: Classes | Amount | None = None
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = MISSING
    confirmed: bool = False
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        for field in ("features", "ignored", "missing"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        if not self.features:
            raise BadPlan("columns: none is a feature; declare at least one as numeric, date, categorical or text.")
        if not all(isinstance(value, str) for value in (*self.missing, *self.ignored)):
            raise BadPlan("missing: give a list of texts, such as ['', 'NA'].")
        object.__setattr__(self, "missing", tuple(value.strip().lower() for value in self.missing))
        if type(self.confirmed) is not bool:
            raise BadPlan(f"confirmed = {self.confirmed!r}: give true or false.")
        check_encoding(self.encoding)
        _check_once("columns", [*self.named, *self.ignored])

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that are used, each once."""
        keys = (self.id, self.subject, self.target)
        return (*(one.name for one in self.features), *(one.name for one in keys if one is not None))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns that a model sees."""
        return tuple([name for one in self.features for name in one.features])

    @property
    def width(self) -> int:
        """How many columns a model sees."""
        return sum(len(one.features) for one in self.features)

    @property
    def without_range(self) -> tuple[str, ...]:
        """The features that are numbers or dates without a range; they are taken as they are.

        >>> Schema((Numeric("age"), Numeric("height", 0, 250))).without_range
        ('age',)
        """
        return tuple([one.name for one in self.features if isinstance(one, (Numeric, Date)) and one.bounds is None])

    @property
    def sparse(self) -> bool:
        """Whether rows are mostly zeros, so that only the other numbers are kept: by what is declared, never by data.

        >>> Schema((Text("tweet"),)).sparse, Schema((Text("tweet", 2**14),)).sparse
        (False, True)
        """
        numbers = sum(min(one.buckets, USUAL_WORDS) if isinstance(one, Text) else 1 for one in self.features)
        return self.width >= max(WIDE, MOSTLY_ZEROS * numbers)


SCHEMA_PARTS: tuple[type, ...] = (Schema, Numeric, Date, Categorical, Hashed, Text, Key, Classes, Amount)
"""All classes that a schema consists of."""


def fields_of(part: Any) -> dict[str, Any]:
    """Return what a column is declared as, without its name and what is as usual."""
    said = {one.name: (getattr(part, one.name), one.default) for one in fields(part) if one.name != "name"}
    return {name: value for name, (value, usual) in said.items() if value != usual}


# --- checks -------------------------------------------------------------------------------------------


def _at(name: str) -> str:
    return f"columns.{name}"


def _check_both(name: str, low: Any, high: Any) -> None:
    if (low is None) != (high is None):
        lacking = "low" if low is None else "high"
        raise BadPlan(f"{_at(name)}: {lacking}: missing; give low and high, or neither.")


def _check_range(name: str, low: Any, high: Any) -> None:
    _check_both(name, low, high)
    if low is None:
        return
    for field, value in (("low", low), ("high", high)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise BadPlan(f"{_at(name)}: {field} = {value!r}: give a finite number that is publicly known.")
    if not (low < high and math.isfinite(float(high) - float(low))):
        raise BadPlan(f"{_at(name)}: low = {low!r} is not below high = {high!r}; give a range of some width.")


def _check_choice(name: str, field: str, value: Any, allowed: Any) -> None:
    if value not in get_args(allowed):
        choices = ", ".join(map(repr, get_args(allowed)))
        raise BadPlan(f"{_at(name)}: {field} = {value!r}: use one of {choices}.")


def _check_said(name: str, wrong: str) -> None:
    if wrong:
        raise BadPlan(f"{_at(name)}: {wrong}")


def _check_buckets(name: str, buckets: Any) -> None:
    if type(buckets) is not int or not 2 <= buckets <= MOST_BUCKETS:
        raise BadPlan(f"{_at(name)}: buckets = {buckets!r}: give a whole number from 2 to {MOST_BUCKETS}.")


def _texts(name: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)) or not values or not all(isinstance(value, str) for value in values):
        raise BadPlan(f"{_at(name)}: values: give a list of texts, such as ['red', 'green'].")
    stripped = tuple([value.strip() for value in values])
    _check_once(f"{_at(name)}: values", stripped)
    return stripped


def _check_once(where: str, values: Sequence[object]) -> None:
    twice = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise BadPlan(f"{where}: duplicate {twice[0]!r}; give each once.")


def _numbered(name: str, buckets: int) -> tuple[str, ...]:
    return tuple([f"{name} #{bucket}" for bucket in range(buckets)])
