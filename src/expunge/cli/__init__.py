"""The command line: `expunge`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments ask for."""
    try:
        from expunge.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "expunge":
            raise
        sys.exit(f"expunge: the command line needs {error.name}; install it with pip install 'expunge[cli]'.")
    except KeyboardInterrupt:
        sys.exit(130)
    for stream in (sys.stdout, sys.stderr):  # a terminal may not know a letter such as ρ
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    app(prog_name="expunge")
