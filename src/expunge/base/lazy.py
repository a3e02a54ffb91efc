"""Names of a package that are imported when they are first asked for: who needs one waits for no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str], rooms: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package.

    ``homes`` says which names each of its modules has, as a text with spaces; ``rooms`` are modules that are names
    themselves. A module must not be called like a name that another one has.

    >>> get, names = lazily("expunge.base", {"wording": "counted percent"}, ["errors"])
    >>> get("counted")(2, "record"), get("errors").__name__
    ('2 records', 'expunge.base.errors')
    >>> [name for name in names() if not name.startswith("__")]
    ['counted', 'errors', 'percent']
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name in home:
            value = getattr(import_module(f"{package}.{home[name]}"), name)
        elif name in rooms:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        ours = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted({*ours, *home, *rooms})

    return get, names
