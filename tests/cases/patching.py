"""Putting something else in the place of a function, wherever it was imported: no user of it may be missed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock


@contextmanager
def patched_everywhere(name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a function in every module of ours that has it, its own too; it must be one and the same in all."""
    users = [module for path, module in sys.modules.items() if path.startswith("expunge.") and name in vars(module)]
    assert len({id(vars(module)[name]) for module in users}) == 1, (name, users)
    with ExitStack() as patches:
        for module in users:
            patches.enter_context(mock.patch.object(module, name, replacement))
        yield
