"""The command line: `expunge`."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from expunge.cli.interrupts import outside_of_commands


def main() -> None:
    """Run the command that the arguments ask for."""
    with outside_of_commands():
        _run()


def _run() -> None:
    try:
        from expunge.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "expunge":
            raise
        sys.exit(f"expunge: the command line needs {error.name}; install it with pip install 'expunge[cli]'.")
    for stream in (sys.stdout, sys.stderr):  # a terminal may not know a letter such as ρ
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="expunge")
