"""Arguments and options that several commands have."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TextIO

import typer

from expunge.errors import BadPlan

Store = Annotated[Path, typer.Argument(metavar="MODEL", help="The model's file, such as model.expunge.")]
Tables = Annotated[
    list[Path],
    typer.Argument(metavar="DATA", help="CSV, Parquet or JSON-lines files (also .gz).", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bars.")]
OnErrorOption = Annotated[
    Literal["stop", "skip"],
    typer.Option(
        "--on-error",
        metavar="stop|skip",
        help="Broken lines and values that do not fit the schema: stop, or skip such records.",
    ),
]
SignWith = Annotated[
    Path | None,
    typer.Option(metavar="KEY", help="Sign receipts with this Ed25519 key (PEM; `expunge keygen` makes one)."),
]
Unsigned = Annotated[
    bool, typer.Option("--unsigned", help="Leave the receipt unsigned, though those before it are signed.")
]
PublicKey = Annotated[
    str | None, typer.Option(metavar="KEY", help="Check signatures with this key: hexadecimal digits, or a PEM file.")
]
Wait = Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for another process that is writing.")]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="A record's id; may be given several times.")]
IdsFile = Annotated[Path | None, typer.Option(metavar="FILE", help="A file with ids, one on each line.")]
Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", metavar="NAME", help="A person, with all their records; may be given several times."),
]
IgnoreMissing = Annotated[bool, typer.Option("--ignore-missing", help="Pass over those that are not there.")]
SubjectsFile = Annotated[Path | None, typer.Option(metavar="FILE", help="A file with subjects, one on each line.")]


def whole(text: str) -> int:
    """Return a whole number that may be written as 2e6 or 2_000_000."""
    try:
        number = float(text)
    except ValueError:
        number = 0.5
    if not number.is_integer() or abs(number) > 1e18:
        raise typer.BadParameter(f"{text!r} is no whole number, such as 2e6.")
    return int(number)


def signing(sign_with: Path | None, unsigned: bool) -> Path | Literal[False] | None:
    """Return what to sign receipts with."""
    if unsigned and sign_with is not None:
        raise BadPlan("--unsigned: a key to sign with is given as well; leave one of them out.")
    return False if unsigned else sign_with


def rho_or_auto(text: str) -> float | str:
    """Return a probability, or "auto"."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a probability nor auto.") from None


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """Give a file that gets its name when all of it is written."""
    handle, name = tempfile.mkstemp(prefix=f"{path.name}-", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def check_output(path: Path, force: bool | None = None) -> None:
    """Raise, before any work, if a file cannot be written there; ``force`` is None where there is no --force."""
    if path.is_dir():
        raise BadPlan(f"{path}: a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise BadPlan(f"{path}: there is no folder {path.parent}; make it first.")
    if path.exists() and not force:
        remedy = "remove it" if force is None else "--force"
        raise BadPlan(f"{path}: there is such a file already; give another name, or {remedy}.")
