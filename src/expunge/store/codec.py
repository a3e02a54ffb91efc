"""Values and arrays as JSON and plain bytes: what is read can be wrong, but it is never executed."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from expunge.errors import BadPlan, CorruptStore
from expunge.types import AnyArray

_KINDS = "biufU"
_LENGTH = struct.Struct("<Q")
_LETTERS = 2**24
"""How many letters an array of strings in a description may have room for."""
UNREADABLE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError, struct.error,
)  # fmt: skip
"""What may come of reading what is wrong."""


class Registry:
    """The classes that may be read from a file, by name; objects of other classes must be handed in.

    >>> from expunge.losses import Huber
    >>> known = Registry([Huber])
    >>> known.read(known.write({"loss": Huber(1.5), "norms": (1.0, 0.1)}))
    {'loss': Huber(width=1.5), 'norms': (1.0, 0.1)}
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self.classes = {one.__name__: one for one in classes}

    def write(self, value: Any) -> str:
        """Return a value as JSON: numbers to the last bit, tuples, arrays, dicts of any keys, known dataclasses."""
        return json.dumps(self._plain(value), ensure_ascii=True, separators=(",", ":"))

    def read(self, text: str, strangers: Mapping[str, Any] | None = None) -> Any:
        """Return the value that `write` has written; ``strangers`` are objects of other classes, by name."""
        try:
            return self._value(json.loads(text), strangers or {})
        except UNREADABLE as error:
            if isinstance(error, (BadPlan, CorruptStore)):
                raise
            raise CorruptStore(f"the description cannot be read ({error}); restore a backup.") from error

    def strange(self, value: Any) -> str | None:
        """Return the class of an object in a value that would have to be handed in to `read`, if there is one."""
        return _stranger(self._plain(value))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if isinstance(value, tuple):
            return {"tuple": [self._plain(each) for each in value]}
        if isinstance(value, dict):
            return {"dict": [[self._plain(key), self._plain(each)] for key, each in value.items()]}
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "O":
                return {"objects": [self._plain(each) for each in value.tolist()]}
            return {"array": [_type_of(value), list(value.shape), value.ravel().tolist()]}
        name = type(value).__name__
        if self.classes.get(name) is type(value) and is_dataclass(value):
            return {"is": name, "with": {one.name: self._plain(getattr(value, one.name)) for one in fields(value)}}
        return {"stranger": name}

    def _value(self, plain: Any, strangers: Mapping[str, Any]) -> Any:
        if isinstance(plain, list):
            return [self._value(each, strangers) for each in plain]
        if not isinstance(plain, dict):
            return plain
        match plain:
            case {"tuple": items}:
                return tuple([self._value(each, strangers) for each in items])
            case {"dict": pairs}:
                return {self._value(key, strangers): self._value(each, strangers) for key, each in pairs}
            case {"objects": items}:
                return np.array([self._value(each, strangers) for each in items], dtype=object)
            case {"array": [kind, shape, numbers]}:
                dtype, count = _dtype(kind), _count(shape)
                if len(numbers) != count or (dtype.kind == "U" and count * dtype.itemsize > 4 * _LETTERS):
                    raise ValueError("an array has another length than it says")
                return np.array(numbers, dtype=dtype).reshape(shape)
            case {"is": name, "with": parts}:
                if name not in self.classes:
                    raise CorruptStore(f"{name!r} is nothing that a store can hold; restore a backup.")
                return self.classes[name](**{key: self._value(each, strangers) for key, each in parts.items()})
            case {"stranger": name}:
                if name not in strangers:
                    raise BadPlan(
                        f"loss: this model has one of its own, {name}; hand it in: open(path, loss={name}())."
                    )
                return strangers[name]
        raise CorruptStore("a value of unknown kind; restore a backup.")


def _stranger(plain: Any) -> str | None:
    if isinstance(plain, dict) and "stranger" in plain:
        return str(plain["stranger"])
    inside = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return next((found for each in inside if (found := _stranger(each)) is not None), None)


def _type_of(array: AnyArray) -> str:
    if not _is_plain(array.dtype):
        raise BadPlan(f"arrays of {array.dtype} cannot be stored; convert them to numbers or strings.")
    return array.dtype.newbyteorder("<").str


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _KINDS and (dtype.itemsize <= 8 if dtype.kind != "U" else dtype.itemsize > 0)


def _dtype(text: Any) -> np.dtype[Any]:
    """Return a type of plain numbers or strings; anything else could be an object."""
    if isinstance(text, str) and 3 <= len(text) <= 12 and text[0] in "<|" and text[1] in _KINDS and text[2:].isdigit():
        dtype = np.dtype(text)
        if _is_plain(dtype):
            return dtype
    raise CorruptStore(f"arrays of {text!r} are nothing that a store can hold; restore a backup.")


def _count(shape: Any) -> int:
    """Return how many numbers an array of this shape has."""
    if any(type(side) is not int or side < 0 for side in shape):
        raise ValueError("a shape")
    return math.prod(shape)


def pack(info: str, arrays: Mapping[str, AnyArray]) -> bytes:
    """Return a text and some arrays as bytes."""
    heads = [[name, _type_of(array), list(array.shape)] for name, array in arrays.items()]
    head = json.dumps([info, heads]).encode()
    parts = [_LENGTH.pack(len(head)), head]
    parts += [array.astype(_type_of(array), copy=False).tobytes() for array in arrays.values()]
    return b"".join(parts)


def unpack(content: bytes) -> tuple[str, dict[str, AnyArray]]:
    """Return the text and the arrays that `pack` has packed; the arrays are copies, in this machine's order."""
    try:
        (length,) = _LENGTH.unpack_from(content)
        info, heads = json.loads(content[_LENGTH.size : _LENGTH.size + length])
        at, arrays = _LENGTH.size + length, {}
        for name, kind, shape in heads:
            dtype, number = _dtype(kind), _count(shape)
            array = np.frombuffer(content, dtype, number, at) if number else np.zeros(0, dtype)
            arrays[str(name)] = array.reshape(shape).astype(dtype.newbyteorder("="))
            at += number * dtype.itemsize
    except UNREADABLE as error:
        if isinstance(error, CorruptStore):
            raise
        raise CorruptStore(f"packed arrays cannot be read ({error}); restore a backup.") from error
    if at != len(content):
        raise CorruptStore("packed arrays have another length than they say; restore a backup.")
    return str(info), arrays
