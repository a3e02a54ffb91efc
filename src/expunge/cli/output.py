"""What commands print: tables and sentences for people, or one JSON object for scripts; and what they exit with."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from expunge import errors

FOUND, USAGE, INPUT, UNKNOWN, STORE, BUSY, BUG, INTERRUPTED = 1, 2, 3, 4, 5, 6, 70, 130
EXIT_CODES = {
    0: "done; for checks: nothing wrong was found",
    FOUND: "a check found something: verify, receipts, scan or audit",
    USAGE: "the command was used wrongly: unknown option, missing argument",
    INPUT: "data, schema or parameters are wrong; nothing was changed",
    UNKNOWN: "an id or subject is not there, or is there already; nothing was changed",
    STORE: "the model's file is missing, damaged, foreign, full or read-only",
    BUSY: "another process is writing; try again",
    BUG: "an error in Expunge itself; please report it",
    INTERRUPTED: "Ctrl-C; what was acknowledged is done, what had begun is finished",
}


def code_of(error: BaseException) -> int:
    """Return what to exit with after an error."""
    match error:
        case errors.UnknownId() | errors.DuplicateId():
            return UNKNOWN
        case errors.BusyStore():
            return BUSY
        case errors.StoreError():
            return STORE
        case errors.ExpungeError() | ValueError() | OSError() | MemoryError():
            return INPUT
    return BUG


class _Console(Console):
    """Prints, and leaves it to others if nobody reads."""

    def on_broken_pipe(self) -> None:
        """Say no more; the command goes on, and exits as it would."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if self.stderr else sys.stdout).fileno())


class Report:
    """What a command has to say: sentences and tables go to the terminal, or ``data`` as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.data: dict[str, Any] = {}
        self.notes: list[str] = []
        self.interrupted = "interrupted; what was acknowledged before is done, nothing else was begun."
        self.console = _Console(highlight=False, markup=False, emoji=False, quiet=as_json)
        self.aside = _Console(stderr=True, highlight=False, markup=False, emoji=False, quiet=as_json)

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence."""
        self.console.print(Text(_shown(text), style))

    def note(self, text: str) -> None:
        """Print what the user should know besides, apart from the result."""
        text = at_the_prompt(text)
        self.notes.append(text)
        self.aside.print(Text.assemble(("Note: ", "bold yellow"), _shown(text)))

    def facts(self, title: str, facts: Mapping[str, object]) -> None:
        """Print names and values."""
        table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False)
        table.add_column(style="dim", overflow="fold")
        table.add_column(overflow="fold")
        for name, value in facts.items():
            table.add_row(Text(_shown(name)), Text(_shown(value)))
        self.console.print(table)

    def table(self, title: str, names: Sequence[str], rows: Iterable[Sequence[object]], right: str = "") -> None:
        """Print a table; columns named in ``right`` are aligned there."""
        table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE)
        for name in names:
            table.add_column(name, justify="right" if name in right.split() else "left", overflow="fold")
        for row in rows:
            table.add_row(*[Text(_shown(value)) for value in row])
        self.console.print(table)

    def finish(self) -> None:
        """Print the JSON."""
        if self.as_json:
            print_json({**self.data, **({"notes": self.notes} if self.notes else {})})

    def fail(self, code: int, message: str, kind: str) -> NoReturn:
        """Print an error, and exit."""
        message = _as_named(at_the_prompt(message))
        self.tell(code, message, kind)
        raise typer.Exit(code)

    def tell(self, code: int, message: str, kind: str) -> None:
        """Print an error."""
        if self.as_json:
            print_json({"error": {"kind": kind, "message": message, "exit_code": code}, "notes": self.notes})
        else:
            self.aside.print(Text.assemble(("Error: ", "bold red"), _shown(message)))


def _as_named(text: str) -> str:
    """Return a message with files of this folder as the user has named them."""
    here = os.path.join(os.getcwd(), "")
    return text if here == os.sep else re.sub(rf"(?<![\w.~/-]){re.escape(here)}", "", text)


def _shown(value: object) -> str:
    """Return a text without what would steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in str(value))


def at_the_prompt(text: str) -> str:
    """Return a message of the library's as one that fits the prompt.

    >>> at_the_prompt("replan() makes a new plan.")
    '`expunge replan` makes a new plan.'
    """
    for python, command in _COMMANDS.items():
        text = text.replace(python, command)
    return text


_COMMANDS = {
    "replan(expected_records=...)": "`expunge replan --expected-records`",
    "replan()": "`expunge replan`",
    "write one with model.save(path)": "`expunge fit` makes one",
    "sign_with: the receipts": "--sign-with: the receipts",
    "sign_with=False": "--unsigned",
    "save()": "`expunge fit`",
    "open it with read_only=True": "commands that only look may still work",
    "give a longer wait= when opening": "give a longer --wait",
    "(use subject= to group records)": '(to group records, declare a column with kind = "subject")',
    "n_samples=": "records: ",
    "n_clusters=": "--clusters ",
    'with on_error="skip" (--on-error skip)': "with --on-error skip",
    "what export_receipts() gave last": "as --receipts what `expunge receipts -o` wrote last",
    "make one with make_signing_key": "make one with `expunge keygen`",
    "make_signing_key makes": "`expunge keygen` makes",
    "records_per_subject=": "--records-per-subject ",
    "Declare the largest number at the first fit": "Declare the largest number when you fit",
}
"""What is said in Python, and at the prompt."""


def tell_usage(error: Any, as_json: bool) -> int:
    """Say that a command was used wrongly, and how it is used; return what to exit with."""
    said, context = error.format_message().replace("Value error, ", ""), error.ctx
    if said.startswith("Usage:"):  # nothing was asked for: the help
        typer.echo(said, err=True)
        return USAGE
    report = Report(as_json)
    command = "expunge" if context is None else context.command_path
    report.tell(USAGE, f"{said}{'.' * (said[-1] not in '.?')} See `{command} --help`.", "Usage")
    return USAGE


def print_json(value: Mapping[str, Any]) -> None:
    """Print JSON, however wide."""
    unicode = "utf" in (sys.stdout.encoding or "utf-8").lower()
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=not unicode, default=str) + "\n")


@contextmanager
def reporting(as_json: bool) -> Iterator[Report]:
    """Give a report; say errors and warnings in words, and exit with their code."""
    report = Report(as_json)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *rest: report.note(str(message))
            warnings.simplefilter("ignore")
            for kind in (errors.SizeWarning, errors.RankWarning, errors.NoiseWarning, errors.ClippedWarning,
                         UserWarning):  # fmt: skip
                warnings.simplefilter("always", kind)
            yield report
        report.finish()
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        report.fail(INTERRUPTED, report.interrupted, "Ctrl-C")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads any more
        raise typer.Exit(0) from None
    except Exception as error:
        code = code_of(error)
        if code == BUG:
            if os.environ.get("EXPUNGE_DEBUG"):
                traceback.print_exc()
            report.fail(
                code,
                f"unexpected {type(error).__name__}: {error}. This is an error in Expunge; please report it, with what "
                "EXPUNGE_DEBUG=1 prints. What was acknowledged before is done.",
                type(error).__name__,
            )
        report.fail(code, _said(error), type(error).__name__)


def _said(error: Exception) -> str:
    """Return what to say of an error; one of the system's says where, and what to look at."""
    if isinstance(error, errors.ExpungeError) or not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror}; check the path, who may write there, and the room on the disk."
