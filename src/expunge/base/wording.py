"""Figures as people say them."""

from __future__ import annotations

_UNITS = ((1e-3, 1e-6, "µs"), (1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h"))
"""Up to how many seconds a unit is used, how many it has, and its name."""


def duration(seconds: float) -> str:
    """Return a time as people say it.

    >>> [duration(s) for s in (3e-6, 0.0021, 0.5, 75, 4000, 1e5, 1e9)]
    ['3 µs', '2.1 ms', '500 ms', '75 s', '67 min', '28 h', '11,574 days']
    """
    for most, unit, name in _UNITS:
        if seconds < most:
            return f"{two_digits(seconds / unit)} {name}"
    return f"{seconds / 86_400:,.0f} days"


def size(count: float) -> str:
    """Return a number of bytes as people say it.

    >>> [size(b) for b in (900, 1.5e6, 2e9)]
    ['900 B', '1.5 MB', '2 GB']
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{two_digits(count / unit)} {name}"
    return f"{count:.0f} B"


def two_digits(number: float) -> str:
    """Return a number with two digits, or all those before the point.

    >>> two_digits(1234.5), two_digits(0.01234)
    ('1,234', '0.012')
    """
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def percent(share: float) -> str:
    """Return a share in per cent, with about three digits.

    >>> [percent(s) for s in (0.84512, 0.03125, 0.00012, 1.0)]
    ['84.5 %', '3.12 %', '0.012 %', '100 %']
    """
    number = 100.0 * share
    return f"{number:.3g} %" if 0.1 <= number < 99.95 or number in (0.0, 100.0) else f"{number:.4g} %"


def counted(number: int, thing: str, things: str = "") -> str:
    """Return how many there are of something, as people say it.

    >>> counted(1, "receipt"), counted(2000, "receipt"), counted(0, "person", "people")
    ('1 receipt', '2,000 receipts', '0 people')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def are(number: int) -> str:
    """Return "is" or "are".

    >>> are(1), are(0)
    ('is', 'are')
    """
    return "is" if number == 1 else "are"


def were(number: int) -> str:
    """Return "was" or "were".

    >>> were(1), were(0)
    ('was', 'were')
    """
    return "was" if number == 1 else "were"
