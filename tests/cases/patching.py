"""Putting something else in the place of our own code: wherever it is used, and so that it is used for certain.

A patch that hits nothing lets a test pass that should not. These fail instead: if there is nothing to replace, if it is
not all that goes by its name, or if in the end nobody has called what was put in its place.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock


@contextmanager
def patched_everywhere(name: str, replacement: Any) -> Iterator[None]:
    """Replace a function, a class or a constant in every module of ours that has it, its own too.

    ``name`` goes without a module if all that is called so is one and the same; else with the module that defines it.
    What can be called is found under other names too, and the replacement must be called before this is over.
    """
    original, last = _original(name), name.rpartition(".")[2]
    put, watched = _watched(replacement)
    with ExitStack() as patches:
        for module, key in _places(original, last):
            patches.enter_context(mock.patch.object(module, key, put))
        yield
    kept = [module.__name__ for module, _ in _places(put, last)] if callable(put) else []
    assert not kept, f"{name}: {kept} were imported meanwhile, and have kept what was put in its place"
    watched(name)


@contextmanager
def patched_method(owner: type, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of a class, in the class that defines it; the replacement must be called."""
    assert name in vars(owner), f"{owner.__name__} does not define {name} itself; patch the class that does"
    put, watched = _watched(replacement)
    bound = not isinstance(vars(owner)[name], (classmethod, staticmethod))
    with mock.patch.object(owner, name, put if bound else staticmethod(put)):
        yield
    watched(f"{owner.__name__}.{name}")


def _modules() -> list[ModuleType]:
    return [module for path, module in list(sys.modules.items()) if path.partition(".")[0] == "expunge"]


def _original(name: str) -> Any:
    """Return what is to be replaced."""
    home, _, last = name.rpartition(".")
    modules = [importlib.import_module(home)] if home else _modules()
    found = {id(vars(module)[last]): vars(module)[last] for module in modules if last in vars(module)}
    assert found, f"{name}: nothing of ours is called so; has it been moved?"
    assert len(found) == 1, f"{name}: several things are called so; name the module, too"
    return next(iter(found.values()))


def _places(thing: Any, name: str) -> list[tuple[ModuleType, str]]:
    """Return all modules that have something, and what they call it; of numbers and texts, by this name only."""
    return [
        (module, key)
        for module in _modules()
        for key, value in vars(module).items()
        if value is thing and (key == name or callable(thing))
    ]


def _watched(replacement: Any) -> tuple[Any, Callable[[str], None]]:
    """Return a replacement that notes when it is called, and what fails if it never was."""
    if not callable(replacement):
        return replacement, lambda name: None
    calls = 0

    @functools.wraps(replacement, updated=())
    def noted(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        return replacement(*given, **more)

    def check(name: str) -> None:
        assert calls, f"{name}: replaced, but nobody has called what was put in its place"

    return noted, check
