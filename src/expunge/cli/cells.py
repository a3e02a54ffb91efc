"""Predictions as CSV, for programs, spreadsheets and terminals."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import Any, TextIO

from expunge.cli.output import shown

_FORMULA = re.compile("(^|[;|\t\r\n])([-=+@\uff1d\uff0b\uff0d\uff20][^;|\t\r\n]*)")
"""What a spreadsheet may take for a formula, at the beginning of a text or after what may separate cells; the last four
of its beginnings are wide forms of the first."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def harmless(text: str) -> str:
    """Return a text with an apostrophe before all that a spreadsheet might run; a number is one, with whatever sign.

    Some programs split at semicolons, tabs or bars, even in quotes: what follows them may be run too.

    >>> [harmless(text) for text in ("=1+1", "@x", "-2+3", "-3.5", "ann", "i1;=1+1")]
    ["'=1+1", "'@x", "'-2+3", '-3.5', 'ann', "i1;'=1+1"]
    """
    safe = _FORMULA.sub(lambda found: found[0] if _NUMBER.fullmatch(found[2]) else f"{found[1]}'{found[2]}", text)
    return f"'{safe}" if text.startswith(("\t", "\r")) else safe


class Cells:
    """Writes rows as CSV; texts that a spreadsheet might run get an apostrophe, unless they are wanted ``as_is``.

    All texts are in quotes, since what separates cells for another program may stand in them; numbers are not. On a
    terminal they are shown as all else is.
    """

    def __init__(self, file: TextIO, *, as_is: bool) -> None:
        self._as_is, self._terminal = as_is, file.isatty()
        self._writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        self.quoted = 0
        """How many texts got one."""

    def write(self, rows: Iterable[Iterable[Any]]) -> None:
        """Write rows."""
        self._writer.writerows(
            [self._cell(value) if isinstance(value, str) else value for value in row] for row in rows
        )

    def _cell(self, text: str) -> str:
        if not self._as_is and (safe := harmless(text)) != text:
            self.quoted += 1
            text = safe
        return shown(text) if self._terminal else text
