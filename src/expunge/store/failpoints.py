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
"""Where `pass_point` is called for a model, in the order in which each work comes by."""
FEDERATION = (
    "federation: recorded",
    "federation: written",
    "federation: committed",
    "federation: answered",
    "federation: round recorded",
    "federation: round written",
    "federation: round made",
)
"""Where it is called for a federation."""

hook: Callable[[str], None] | None = None


def pass_point(name: str) -> None:
    """Say that a point is passed."""
    if hook is not None:
        hook(name)
