"""Errors for keywords that a method does not have: they say what to use instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from expunge.base.errors import UnknownParameter

Method = TypeVar("Method", bound=Callable[..., Any])


def unknown(model: Any, of: str, name: str, known: list[str], given: Mapping[str, Any]) -> UnknownParameter:
    """Return the error for a name that an object, or one of its methods, does not have; ``given`` is all it got."""
    instead = model.INSTEAD.get(name)
    if instead is not None and not isinstance(instead, str):
        instead = instead(name, given)
    if instead is None:
        near = get_close_matches(name, known, 1)
        instead = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
    else:
        instead = f"{instead}."
    return UnknownParameter(f"{name}: {of} has no such parameter. {instead}")


def guided(method: Method) -> Method:
    """Let a method say what to use instead of a keyword that it does not have, and which parameters need a name."""
    parameters = [one for name, one in inspect.signature(method).parameters.items() if name != "self"]
    known = [one.name for one in parameters]
    placed = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]

    @wraps(method)
    def asked(self: Any, *args: Any, **given: Any) -> Any:
        kind = type(self).__name__
        of = kind if method.__name__ == "__init__" else f"{kind}.{method.__name__}"
        for name in given:
            if name not in known:
                raise unknown(self, of, name, known, given)
        if len(args) > len(placed):
            without = f"only {', '.join(placed)} without a name" if placed else "no parameter without its name"
            others = [f"{name}=..." for name in known if name not in placed]
            remedy = f" Give by name: {', '.join(others)}." if others else ""
            raise UnknownParameter(f"{of} takes {without}.{remedy}")
        return method(self, *args, **given)

    return cast(Method, asked)
