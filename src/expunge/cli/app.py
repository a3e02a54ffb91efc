"""All commands, put together."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from expunge import __version__
from expunge.cli import audit, demo, files, inspect, plan, predict, requests, train
from expunge.cli.output import EXIT_CODES, tell_usage

START, USE, ERASE, CHECK, CARE = "Start", "Use", "Delete and correct", "Check", "Maintain the file"


class Grouped(TyperGroup):
    """Lists commands by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the lists."""
        for title, commands in COMMANDS:
            with formatter.section(title):
                found = [self.get_command(ctx, command.__name__) for command in commands]
                formatter.write_dl([(one.name, one.get_short_help_str(66)) for one in found if one is not None])

    def main(self, *args: Any, **how: Any) -> Any:
        """Run a command, and exit; wrong usage is reported like other errors."""
        if not how.get("standalone_mode", True):
            return super().main(*args, **how)
        try:
            code = super().main(*args, **{**how, "standalone_mode": False})
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            code = tell_usage(error, "--json" in sys.argv)
        sys.exit(code)


app = typer.Typer(
    name="expunge",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=Grouped,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="\n".join(["\b", "Exit codes:", *(f"{code:>5}  {meaning}" for code, meaning in EXIT_CODES.items())]),
)
COMMANDS = (
    (START, (demo.demo, plan.plan, train.schema, train.fit)),
    (USE, (predict.predict, predict.evaluate)),
    (ERASE, (requests.unlearn, requests.insert, requests.replace, requests.replan)),
    (CHECK, (inspect.info, inspect.receipts, inspect.verify, inspect.scan, audit.audit)),
    (CARE, (files.compact, files.backup, files.restore, files.keygen)),
)
for _, commands in COMMANDS:
    for command in commands:
        app.command()(command)


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

    Typical use: draft a schema of your table (`schema`), confirm it, fit a
    model (`fit`) and score it (`evaluate`). When people ask for deletion,
    `unlearn` them and file the receipt. Show that it happened with `verify`,
    `scan` and `audit`. `expunge demo` does all of this on example data.
    """
