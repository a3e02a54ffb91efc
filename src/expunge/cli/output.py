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
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from expunge.base import errors
from expunge.cli.interrupts import command_begins
from expunge.cli.phrases import at_the_prompt

if TYPE_CHECKING:
    from expunge.cli.console import Terminal

FOUND, USAGE, INPUT, UNKNOWN, STORE, BUSY, PARTLY, BUG, INTERRUPTED = 1, 2, 3, 4, 5, 6, 7, 70, 130
EXIT_CODES = {
    0: "done; for checks: no problem found",
    FOUND: "a check found a problem: verify, receipts, scan or audit",
    USAGE: "the command was used wrongly: unknown option, missing argument",
    INPUT: "data, schema or parameters are wrong; nothing was changed",
    UNKNOWN: "id or subject not found, or already in the model; nothing was changed",
    STORE: "the file is missing, damaged, read-only or not a model; or a full disk",
    BUSY: "another process is writing; try again",
    PARTLY: "only some of several models are done; the message says which",
    BUG: "an error in Expunge itself; please report it",
    INTERRUPTED: "Ctrl-C; acknowledged requests are done, a begun one is completed",
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


class Report:
    """What a command has to say: sentences and tables go to the terminal, or ``data`` as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.data: dict[str, Any] = {}
        self.notes: list[str] = []
        self.before: dict[str, Any] = {}
        """What is known even if the command fails; it is printed with the error."""
        self.interrupted = "interrupted; acknowledged requests are done, nothing else was begun."

    @cached_property
    def console(self) -> Terminal:
        """Where the result goes, unless it is wanted as JSON."""
        from expunge.cli.console import Terminal

        return Terminal()

    @cached_property
    def aside(self) -> Terminal:
        """Where all else goes."""
        from expunge.cli.console import Terminal

        return Terminal(stderr=True)

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence."""
        if not self.as_json:
            self.console.say(shown(text), style)

    def note(self, text: str) -> None:
        """Print what the user should know besides, apart from the result."""
        text = at_the_prompt(text)
        self.notes.append(text)
        if not self.as_json:
            self.aside.mark("Note: ", "bold yellow", shown_message(text))

    def facts(self, title: str, facts: Mapping[str, object]) -> None:
        """Print names and values."""
        if not self.as_json:
            self.console.facts(shown(title), {shown(name): shown(value) for name, value in facts.items()})

    def table(self, title: str, names: Sequence[str], rows: Iterable[Sequence[object]], right: str = "") -> None:
        """Print a table; columns named in ``right`` are aligned there."""
        if not self.as_json:
            cells = [[shown(value) for value in row] for row in rows]
            self.console.table(shown(title), [shown(name) for name in names], cells, right.split())

    def finish(self) -> None:
        """Print the JSON."""
        if self.as_json:
            print_json({**self.before, **self.data, **({"notes": self.notes} if self.notes else {})})

    def fail(self, code: int, message: str, kind: str) -> NoReturn:
        """Print an error, and exit."""
        message = _as_named(at_the_prompt(message))
        self.tell(code, message, kind)
        raise typer.Exit(code)

    def tell(self, code: int, message: str, kind: str) -> None:
        """Print an error."""
        if self.as_json:
            error = {"kind": kind, "message": message, "exit_code": code}
            print_json({"error": error, **self.before, "notes": self.notes})
        else:
            self.aside.mark("Error: ", "bold red", shown_message(message))


def _as_named(text: str) -> str:
    """Return a message with files of this folder as the user has named them."""
    here = os.path.join(os.getcwd(), "")
    return text if here == os.sep else re.sub(rf"(?<![\w.~/-]){re.escape(here)}", "", text)


def shown(value: object) -> str:
    r"""Return a text without what would steer a terminal, on one line: all that is printed of data goes through here.

    >>> shown("\x1b[31mred\x9b\u202e\n") == "?[31mred???".replace("?", "\ufffd")
    True
    """
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(value))


def shown_message(text: str) -> str:
    r"""Return a message likewise. It may have several lines; all but the first are indented, so that none passes for
    a message of its own: names in it may come from data.

    >>> shown_message("wrong:\nthis")
    'wrong:\n  this'
    """
    return "\n  ".join(map(shown, text.split("\n")))


def _escaped(text: str) -> str:
    r"""Return JSON in which all that would steer a terminal is escaped, so that nothing is lost.

    >>> _escaped('"\x9bé\u202e"')
    '"\\u009bé\\u202e"'
    """
    lines = text.split("\n")
    return "\n".join([line if line.isprintable() else "".join(map(_escaped_letter, line)) for line in lines])


def _escaped_letter(letter: str) -> str:
    if letter.isprintable():
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[first : first + 4]}" for first in range(0, len(units), 4))


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
    sys.stdout.write(_escaped(json.dumps(value, indent=2, ensure_ascii=not unicode, default=str)) + "\n")


@contextmanager
def reporting(as_json: bool) -> Iterator[Report]:
    """Give a report; say errors and warnings in words, and exit with their code."""
    report = Report(as_json)
    try:
        command_begins()
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
                typer.echo(shown_message(traceback.format_exc()), err=True)
            report.fail(
                code,
                f"unexpected {type(error).__name__}: {error}. This is an error in Expunge; please report it, with what "
                "EXPUNGE_DEBUG=1 prints. Requests that were acknowledged are done.",
                type(error).__name__,
            )
        report.fail(code, _said(error), type(error).__name__)


def _said(error: Exception) -> str:
    """Return the message of an error; for a system error also where it happened and what to check."""
    if isinstance(error, errors.ExpungeError) or not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror}; check the path, its permissions, and the free space on the disk."
