"""Arguments and options that several commands have."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TextIO

import typer

from expunge.base.errors import BadPlan

Store = Annotated[Path, typer.Argument(metavar="MODEL", help="The model's file, such as model.expunge.")]
Stores = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL", help="The model's file, such as model.expunge, or several.", show_default=False),
]
Tables = Annotated[
    list[Path],
    typer.Argument(metavar="DATA", help="CSV, Parquet or JSON-lines files (also .gz).", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bars.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")]
OnErrorOption = Annotated[
    Literal["stop", "skip"],
    typer.Option(
        "--on-error",
        metavar="stop|skip",
        help="Broken lines and values that do not fit the schema: stop, or skip such records.",
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The encoding of CSV and JSON files, such as cp1252, if not the schema's."),
]
SignWith = Annotated[
    Path | None,
    typer.Option(metavar="KEY", help="Sign receipts with this Ed25519 key (PEM; `expunge keygen` makes one)."),
]
SignerToBe = Annotated[
    Path | None,
    typer.Option(metavar="KEY", help="The Ed25519 key (PEM) to sign receipts with; requests then need it."),
]
Unsigned = Annotated[
    bool, typer.Option("--unsigned", help="Leave the receipt unsigned, although earlier ones are signed.")
]
PublicKey = Annotated[
    str | None, typer.Option(metavar="KEY", help="Check signatures with this key: hexadecimal digits, or a PEM file.")
]
Noted = Annotated[
    str | None,
    typer.Option(metavar="HASH", help=("A receipt's hash that you noted earlier: it must be among the receipts.")),
]
Wait = Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for another process that is writing.")]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="A record's id; may be given several times.")]
IdsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file with ids, one on each line; - is standard input.")
]
Column = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The file of ids or subjects is a table (CSV, Parquet): use this column."),
]
Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", metavar="NAME", help="A person, with all their records; may be given several times."),
]
IgnoreMissing = Annotated[bool, typer.Option("--ignore-missing", help="Ignore ids that are not in the model.")]
SubjectsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file with subjects, one on each line; - is standard input.")
]
Clusters = Annotated[int | None, typer.Option(metavar="K", help="How many clusters k-means finds; by default 8.")]
RecordsPerSubject = Annotated[int, typer.Option(metavar="N", help="The most records that one subject can have.")]
_START = 65_536
"""How many bytes of a file are read before it is overwritten."""
_DATABASE = b"SQLite format 3\0"
_SECRET = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|\A[0-9a-f]{64}\s*\Z")
"""A private key in PEM, or the key beside a model."""


def whole(text: str) -> int:
    """Return a whole number that may be written as 2e6 or 2_000_000."""
    try:
        number = float(text)
    except ValueError:
        number = 0.5
    if not number.is_integer() or abs(number) > 1e18:
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 2e6.")
    return int(number)


def signing(sign_with: Path | None, unsigned: bool) -> Path | Literal[False] | None:
    """Return what to sign receipts with."""
    if unsigned and sign_with is not None:
        raise BadPlan("--unsigned: a key to sign with is given as well; give only one of them.")
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


def check_output(path: Path, force: bool | None = None, reads: Iterable[Path | str | None] = ()) -> None:
    """Raise, before any work, if a file cannot or must not be written there.

    ``force`` is None where there is no --force. Also with it nothing is lost that cannot be made again: a model, what
    belongs to one, a private key, or what the command itself ``reads``.
    """
    if path.is_dir():
        raise BadPlan(f"{path}: a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise BadPlan(f"{path}: no such folder: {path.parent}; make it first.")
    if path.exists() and any(os.path.samefile(path, one) for one in _files(reads)):
        raise BadPlan(f"{path}: this file is also read; write to another file.")
    if (precious := _precious(path)) is not None:
        raise BadPlan(f"{path}: this is {precious}, and is never overwritten; give another name.")
    if path.exists() and not force:
        remedy = "remove it" if force is None else "--force"
        raise BadPlan(f"{path}: this file exists already; give another name, or {remedy}.")


def _files(paths: Iterable[Path | str | None]) -> Iterator[Path]:
    """Give the files that are there; of a folder, the tables in it."""
    for path in [Path(one) for one in paths if one is not None]:
        if path.is_dir():
            from expunge.tables.files import tables_in

            yield from tables_in(path)
        elif path.exists():
            yield path


def _precious(path: Path) -> str | None:
    """Say what is at this path, or belongs there, that must not be overwritten; None if there is nothing."""
    from expunge.store.surroundings import ENDINGS

    for one in (path, Path(os.path.realpath(path))):
        for ending in ENDINGS:
            if one.name.endswith(ending) and one.with_name(one.name.removesuffix(ending)).is_file():
                return f"the name of a file that belongs to {one.name.removesuffix(ending)}"
    if not path.exists():
        return None
    if not path.is_file():
        return "not a regular file"
    try:
        with open(path, "rb") as file:
            start = file.read(_START)
    except OSError as error:
        return f"a file that cannot be read ({error.strerror})"
    if start.startswith(_DATABASE):
        return "a model, or another database"
    return "a secret key" if _SECRET.search(start) else None
