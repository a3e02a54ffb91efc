"""Sentences and tables on a terminal; only commands that print some import this."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


class Terminal(Console):
    """Prints, and leaves it to others if nobody reads."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Print no more; the command continues, and exits as usual."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if self.stderr else sys.stdout).fileno())

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence."""
        self.print(Text(text, style))

    def mark(self, mark: str, style: str, text: str) -> None:
        """Print a message after a word that says what it is."""
        self.print(Text.assemble((mark, style), text))

    def facts(self, title: str, facts: Mapping[str, str]) -> None:
        """Print names and values."""
        table = Table(title=_titled(title), title_justify="left", box=box.SIMPLE, show_header=False)
        table.add_column(style="dim", overflow="fold")
        table.add_column(overflow="fold")
        for name, value in facts.items():
            table.add_row(Text(name), Text(value))
        self.print(table)

    def table(self, title: str, names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str]) -> None:
        """Print a table; columns named in ``right`` are aligned there."""
        table = Table(title=_titled(title), title_justify="left", box=box.SIMPLE)
        for name in names:
            table.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*[Text(value) for value in row])
        self.print(table)


def _titled(title: str) -> Text | None:
    return Text(title, "bold") if title else None
