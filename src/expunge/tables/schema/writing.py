"""Reading numbers and dates from text, as their way of writing is declared: a comma, a unit, the day first."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from typing import Literal, get_args

DecimalSign = Literal[".", ","]
Thousands = Literal["", ",", ".", " ", "'"]
DIRECTIVES = "dmYyHMSfj%"
"""What a date's format may have after a %: nothing that a locale would change."""
_ALIKE = str.maketrans({"\xa0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'", "\u2212": "-"})
_EPOCH = datetime(1970, 1, 1)
_NO_TIME = _EPOCH - _EPOCH


def check_number_writing(decimal: object, thousands: object, unit: object) -> str:
    """Say what is wrong with how numbers are declared to be written, if something is."""
    if decimal not in get_args(DecimalSign):
        return f"decimal = {decimal!r}: use one of '.' and ','."
    if thousands not in get_args(Thousands):
        return f"thousands = {thousands!r}: use one of {', '.join(map(repr, get_args(Thousands)))}."
    if decimal == thousands:
        return f"thousands = {thousands!r}: this is also the decimal sign; change one of them."
    if not isinstance(unit, str) or unit != unit.strip() or len(unit) > 20 or re.search(r"[0-9+-]", unit):
        return f"unit = {unit!r}: give the text before or after the numbers, such as '%' or '€'."
    return ""


def check_format(format: object) -> str:
    """Say what is wrong with the format of a date, if something is."""
    if not isinstance(format, str):
        return f"format = {format!r}: give a text such as '%d.%m.%Y'."
    if format == "":
        return ""
    if odd := [found for found in re.findall(r"%(.?)", format, re.DOTALL) if found not in DIRECTIVES or not found]:
        allowed = ", ".join(f"%{one}" for one in DIRECTIVES[:-1])
        return f"format = {format!r}: %{odd[0]} is not known; use {allowed}."
    moment = datetime(2001, 12, 31)
    try:
        known = datetime.strptime(moment.strftime(format), format) == moment
    except (ValueError, re.error):
        known = False
    return "" if known else f"format = {format!r}: it does not contain the day; give one such as '%d.%m.%Y'."


@cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    whole = rf"[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|\d+" if thousands else r"\d+"
    return re.compile(rf"(?:(?:{whole})(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def plain_number(text: str, decimal: str, thousands: str, unit: str) -> str:
    """Return a number, written in this way, with a point and digits only; "" if it is not a number.

    Thousands are groups of three digits: 1.23 is no number where points stand between thousands.

    >>> plain_number("-1.234,5 €", ",", ".", "€"), plain_number("1.23", ",", ".", "€")
    ('-1234.5', '')
    """
    sign, left = _signed(text.translate(_ALIKE).strip())
    if unit and left.startswith(unit):
        left = left.removeprefix(unit).lstrip()
    elif unit:
        left = left.removesuffix(unit).rstrip()
    if not sign:
        sign, left = _signed(left)
    if not _pattern(decimal, thousands).fullmatch(left):
        return ""
    return sign + (left.replace(thousands, "") if thousands else left).replace(decimal, ".")


def _signed(text: str) -> tuple[str, str]:
    return (text[0], text[1:].lstrip()) if text[:1] in ("+", "-") else ("", text)


def seconds_of(text: str, format: str = "") -> float:
    """Return a day or time, in ISO form or by a format, as seconds since 1970; one without a zone counts as UTC.

    >>> seconds_of("1970-01-02"), seconds_of("2.1.1970", "%d.%m.%Y")
    (86400.0, 86400.0)
    """
    moment = datetime.strptime(text, format) if format else datetime.fromisoformat(text)
    return (moment.replace(tzinfo=None) - (moment.utcoffset() or _NO_TIME) - _EPOCH).total_seconds()
