"""Every benchmark runs with ``--smoke`` too: with tiny sizes, in seconds, to see that it still works.

What it finds then says nothing, and so it is written to out/smoke, pictures too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SMOKE = "--smoke" in sys.argv[1:]
"""Processes that a script starts have its arguments, too."""
OUT = Path("out/smoke" if SMOKE else "out")
"""Where results go."""
IMAGES = OUT if SMOKE else Path("docs/images")
"""Where pictures for the documentation go."""


def sized(full: T, tiny: T) -> T:
    """Return a size to measure with: with ``--smoke`` the tiny one."""
    return tiny if SMOKE else full


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return what reads the command line of a script; it can add to it."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs; writes to out/smoke")
    return parser
