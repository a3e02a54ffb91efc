"""Guesses of how texts write numbers and dates, for drafts: each is marked, and to be checked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

from expunge.tables.schema.writing import plain_number

MOSTLY = 0.95
"""If this share of values is numbers or dates, the others count as mistakes."""
UNITS = ("EUR", "USD", "GBP", "CHF", "€", "$", "£", "¥", "%")
_MARKS = {"": "", ",": "comma", ".": "point", " ": "space", "'": "apostrophe"}
_NUMBERS = ((".", ""), (".", ","), (",", ""), (",", "."), (".", " "), (",", " "), (".", "'"), (",", "'"))
"""Decimal sign and thousands separator. Of those that fit equally well the first is taken."""
_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}[./-]\d{1,4}\b")
_DAYS = {"%d{0}%m{0}%Y": "day before month", "%m{0}%d{0}%Y": "month before day", "%d{0}%m{0}%y": "day before month",
         "%m{0}%d{0}%y": "month before day", "%Y{0}%m{0}%d": "year before month"}  # fmt: skip
_TIMES = ("", " %H:%M", " %H:%M:%S")


@dataclass(frozen=True)
class Way:
    """How a column writes numbers, or dates."""

    decimal: Any = "."
    thousands: Any = ""
    unit: str = ""
    format: str = ""
    said: str = ""
    """What was guessed, and to be checked."""

    @property
    def of_numbers(self) -> dict[str, Any]:
        """What a schema says of numbers that are written so."""
        return {"decimal": self.decimal, "thousands": self.thousands, "unit": self.unit}

    def as_usual(self, text: str | None, missing: Collection[str]) -> str | None:
        """Return a text as numbers or dates are usually written. What is not written so becomes nothing like them."""
        if text is None or text.lower() in missing:
            return text
        if not self.format:
            return plain_number(text, self.decimal, self.thousands, self.unit) or f"no number: {text}"
        moment = _moment(text, self.format)
        return f"no date: {text}" if moment is None else moment.isoformat(" ")


PLAIN = Way()


def guess_ways(columns: Mapping[str, Sequence[str]]) -> dict[str, Way]:
    """Return how some columns write numbers or dates, where that is not as usual, from values that each has.

    A number that can be read in two ways (1,234) is read with the decimal sign of those columns that leave no doubt.
    """
    dates = {name: way for name, texts in columns.items() if (way := _date_way(texts)) is not None}
    fits = {name: _fits(texts) for name, texts in columns.items() if name not in dates}
    signs = {ways[0][0] for _, ways in fits.values() if len({decimal for decimal, _ in ways}) == 1}
    sign = signs.pop() if len(signs) == 1 else None
    found = dates
    for name, (unit, ways) in fits.items():
        if (way := _number_way(columns[name], unit, ways, sign)) is not None:
            found[name] = way
    return found


# Numbers


def _fits(texts: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return the unit of numbers, and in which ways most of them can be read, and equally many."""
    units = {unit for text in texts if (unit := _unit(text))}
    unit = units.pop() if len(units) == 1 else ""
    scores = {way: sum(1 for text in texts if plain_number(text, *way, unit)) for way in _NUMBERS}
    best = max(scores.values())
    return unit, [way for way in _NUMBERS if scores[way] == best] if best and best >= MOSTLY * len(texts) else []


def _unit(text: str) -> str:
    bare = text.lstrip("+-\u2212 ")
    return next((unit for unit in UNITS if bare.startswith(unit) or bare.endswith(unit)), "")


def _number_way(texts: Sequence[str], unit: str, ways: list[tuple[str, str]], sign: str | None) -> Way | None:
    if not ways:
        return None
    read = {way: [plain_number(text, *way, unit) for text in texts] for way in ways}
    alike = [way for way in ways if _values(read[way]) == _values(read[ways[0]])]
    doubt = len(alike) < len(ways)
    decimal, thousands = next((way for way in ways if way[0] == sign), ways[0]) if doubt else ways[0]
    if (decimal, thousands, unit) == (".", "", "") and not doubt:
        return None
    said = [f"decimal {_MARKS[decimal]}"] * (decimal == "," or doubt)
    said += [f"{_MARKS[thousands]} between thousands"] * bool(thousands) + [f"unit {unit}"] * bool(unit)
    other = "; the sign could separate thousands or decimals" * doubt
    return Way(decimal, thousands, unit, said=f"guessed: {', '.join(said)}{other}; check")


def _values(read: list[str]) -> list[float | None]:
    return [float(text) if text else None for text in read]


# Dates


def _date_way(texts: Sequence[str]) -> Way | None:
    seen = [match.group(1) for text in texts if (match := _DATE.match(text))]
    if not seen or len(seen) < MOSTLY * len(texts):
        return None
    formats = [day.format(seen[0]) + time for day, time in product(_DAYS, _TIMES)]
    scores = {format: sum(1 for text in texts if _moment(text, format)) for format in formats}
    best = max(scores.values())
    if best < MOSTLY * len(texts):
        return None
    chosen = [format for format in formats if scores[format] == best]
    order = {day.format(seen[0]): said for day, said in _DAYS.items()}
    orders = [order[format.partition(" ")[0]] for format in chosen]
    other = f"; {orders[1]} would fit as well" if len(chosen) > 1 else ""
    return Way(format=chosen[0], said=f"guessed: {orders[0]}{other}; check")


def _moment(text: str, format: str) -> datetime | None:
    try:
        return datetime.strptime(text, format)
    except ValueError:
        return None
