"""All commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from expunge import __version__
from expunge.cli import ahead, care, change, look, report, show, train, use
from expunge.cli.output import EXIT_CODES

START, USE, ERASE, CHECK, CARE = "Start", "Use", "Erase and correct", "Check", "Look after the file"

app = typer.Typer(
    name="expunge",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
)
COMMANDS = (
    (START, (show.demo, ahead.plan, train.schema, train.fit)),
    (USE, (use.predict, use.evaluate)),
    (ERASE, (change.unlearn, change.insert, change.replace, change.replan)),
    (CHECK, (look.info, look.receipts, look.verify, look.scan, report.audit)),
    (CARE, (care.compact, care.backup, care.restore, care.keygen)),
)
for panel, commands in COMMANDS:
    for command in commands:
        app.command(rich_help_panel=panel)(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"expunge {__version__}")
        raise typer.Exit


@app.callback()
def expunge(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train models from which people's records can be deleted exactly.

    The way through it: draft a schema of your table (`schema`), confirm it, fit a
    model (`fit`), score it (`evaluate`); when people ask to be erased, `unlearn`
    them and file the receipt; show that it happened with `verify`, `scan` and
    `audit`. `expunge demo` does all of it on data that it makes.
    """
