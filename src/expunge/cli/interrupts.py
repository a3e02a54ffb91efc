"""Ctrl-C outside of a command: before one has begun, and after it has ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CODE = 130


@contextmanager
def outside_of_commands() -> Iterator[None]:
    """End without a traceback.

    Until `command_begins`, nothing is done that could be left half, so Ctrl-C ends the process at once. As an exception
    it could come up where Python can only print it, such as in a callback of a library that is being imported.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it may be ignored, as under nohup
    if usual:
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(CODE)
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def command_begins() -> None:
    """From now on Ctrl-C is an exception, which the command deals with."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(CODE)
