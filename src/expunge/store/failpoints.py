"""Named points at which a process may die; tests put a hook there. Docs: docs/store.md#what-is-tested."""

from __future__ import annotations

from collections.abc import Callable

NAMES = (
    "request: recording",
    "request: recorded",
    "request: decided",
    "request: written",
    "request: committed",
    "request: done",
    "save: written",
    "save: renamed",
    "compact: copied",
    "compact: replacing",
    "compact: replaced",
    "backup: copied",
    "backup: renamed",
    "restore: prepared",
    "restore: renamed",
)
"""Where `reach` is called, in the order in which each work comes by."""

hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Say that a point is reached."""
    if hook is not None:
        hook(name)
