"""Whether a value, which may be anything, is what a type hint says: the schema of what is read are the classes' own."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from expunge.base.errors import CorruptStore

MOST = 2**63


def check_fields(kind: type, parts: dict[str, Any]) -> None:
    """Raise, naming the field, unless the fields of a dataclass may hold these values."""
    known = _hints(kind)
    for name, value in parts.items():
        if name not in known:
            raise CorruptStore(f"{kind.__name__}: it has no field {str(name)[:40]!r}; restore a backup.")
        if not fits(value, known[name]):
            raise CorruptStore(
                f"{kind.__name__}: {name}: expected {_named(known[name])}, got {type(value).__name__} or a number out "
                "of range; restore a backup."
            )


def fits(value: Any, hint: Any) -> bool:
    """Say whether a value is what a hint says.

    >>> fits((1, 2), tuple[int, ...]), fits((1, "a"), tuple[int, ...]), fits(1, float), fits(True, int)
    (True, False, True, False)
    """
    if hint is Any:
        return True
    if hint is int:
        return type(value) is int and -MOST <= value < MOST
    if hint is float:
        return type(value) in (int, float) and not math.isnan(value)
    inside = get_args(hint)
    match get_origin(hint):
        case None if getattr(hint, "_is_protocol", False):
            return all(hasattr(value, name) for name in _members(hint))
        case None:
            return isinstance(value, hint)
        case origin if origin is Literal:
            return isinstance(value, str) and value in inside
        case origin if origin in (Union, UnionType):
            return any(fits(value, one) for one in inside)
        case origin if origin is tuple:
            return type(value) is tuple and _all_fit(value, inside)
        case origin if origin is dict:
            return type(value) is dict and all(_all_fit(pair, inside) for pair in value.items())
        case _:  # an array of floats
            return isinstance(value, np.ndarray) and value.dtype == np.float64


def _all_fit(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if hints[1:] == (...,):
        return all(fits(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(fits, values, hints))


@cache
def _hints(kind: type) -> dict[str, Any]:
    known = get_type_hints(kind)
    return {field.name: known[field.name] for field in fields(kind)}


def _members(protocol: type) -> list[str]:
    """Return the names of what a protocol asks for."""
    return [name for one in protocol.__mro__ for name in vars(one) if _is_own(one, name)]


def _is_own(kind: type, name: str) -> bool:
    return getattr(kind, "_is_protocol", False) and kind.__module__ != "typing" and not name.startswith("_")


def _named(hint: Any) -> str:
    return getattr(hint, "__name__", "") if get_origin(hint) is None else str(hint).replace("typing.", "")
