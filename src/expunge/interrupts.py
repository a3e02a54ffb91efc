"""Stretches of code that Ctrl-C does not cut in two."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class uninterrupted:
    """Hold back Ctrl-C until the block is done; then let it through. (Other threads are never interrupted.)"""

    __slots__ = ("_before", "_caught", "_holding")

    def __enter__(self) -> None:
        self._before: Any = None
        self._caught: list[tuple[int, FrameType | None]] = []
        main = threading.current_thread() is threading.main_thread()
        self._holding = main and signal.getsignal(signal.SIGINT) is not None
        if self._holding:
            self._before = signal.signal(signal.SIGINT, lambda number, frame: self._caught.append((number, frame)))

    def __exit__(self, *_: object) -> None:
        if self._holding:
            signal.signal(signal.SIGINT, self._before)
            if self._caught and callable(self._before):
                self._before(*self._caught[0])
