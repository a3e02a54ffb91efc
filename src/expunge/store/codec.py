"""Values and arrays as JSON and plain bytes: what is read can be wrong, but it is never executed."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from expunge.base.errors import BadPlan, CorruptStore
from expunge.base.types import AnyArray
from expunge.store.hints import check_fields

_KINDS = "biufU"
_LENGTH = struct.Struct("<Q")
_LETTERS = 2**24
"""How many letters all arrays of strings in a description may have room for."""
LONGEST = 2**26
"""How many letters a description may have itself."""
VALUES, LISTS = 2**23, 2**21
"""How many values, and how many lists and dicts, a description may have: each needs far more room than its letters."""
KEYS, ALIKE = 2**12, 16
"""How many keys that are no texts a dict may have, and how many of them with one hash: the hashes of texts are random,
but those of numbers can be chosen such that all of them are compared with all others."""
UNREADABLE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError, struct.error,
)  # fmt: skip
"""What may come of reading what is wrong."""


_AS_THEY_ARE = frozenset({type(None), bool, int, float, str})


class Registry:
    """The classes that may be read from a file, by name; objects of other classes must be handed in.

    >>> from expunge.solvers.losses import Huber
    >>> known = Registry([Huber])
    >>> known.read(known.write({"loss": Huber(1.5), "norms": (1.0, 0.1)}))
    {'loss': Huber(width=1.5), 'norms': (1.0, 0.1)}
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self.classes = {one.__name__: one for one in classes}
        self._parts = {one: [each.name for each in fields(one)] for one in self.classes.values() if is_dataclass(one)}

    def write(self, value: Any) -> str:
        """Return a value as JSON: numbers to the last bit, tuples, arrays, dicts of any keys, known dataclasses."""
        text = json.dumps(self._plain(value), ensure_ascii=True, separators=(",", ":"))
        if len(text) > LONGEST:
            raise BadPlan(
                f"this model's description has {len(text):,} letters, but a store takes at most {LONGEST:,}: shorten "
                "the names of features and classes, or leave them out."
            )
        if too_many := _too_many(text):
            raise BadPlan(f"this model's description has {too_many}; train it with fewer features, classes or names.")
        return text

    def read(self, text: str, strangers: Mapping[str, Any] | None = None) -> Any:
        """Return the value that `write` has written; ``strangers`` are objects of other classes, by name."""
        if len(text) > LONGEST:
            raise CorruptStore(f"the description has more than {LONGEST:,} letters; restore a backup.")
        if too_many := _too_many(text):
            raise CorruptStore(f"the description has {too_many}; restore a backup.")
        try:
            return self._value(json.loads(text), _Reading(strangers or {}))
        except UNREADABLE as error:
            if isinstance(error, (BadPlan, CorruptStore)):
                raise
            raise CorruptStore(f"the description cannot be read ({error}); restore a backup.") from error

    def strange(self, value: Any) -> str | None:
        """Return the class of an object in a value that would have to be handed in to `read`, if there is one."""
        return _stranger(self._plain(value))

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if (parts := self._parts.get(kind)) is not None:
            later = getattr(kind, "LATER", ())  # without them the text, and its digest, are those of earlier versions
            told = {part: getattr(value, part) for part in parts}
            kept = {part: self._plain(one) for part, one in told.items() if one is not None or part not in later}
            return {"is": kind.__name__, "with": kept}
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if isinstance(value, tuple):
            return {"tuple": [self._plain(each) for each in value]}
        if isinstance(value, dict):
            if wrong := _crowded(value):
                raise BadPlan(f"a dict with {wrong} cannot be stored; use texts as its keys.")
            return {"dict": [[self._plain(key), self._plain(each)] for key, each in value.items()]}
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "O":
                return {"objects": [self._plain(each) for each in value.tolist()]}
            return {"array": [_type_of(value), list(value.shape), value.ravel().tolist()]}
        return {"stranger": type(value).__name__}

    def _value(self, plain: Any, reading: _Reading) -> Any:
        if isinstance(plain, list):
            return [self._value(each, reading) for each in plain]
        if not isinstance(plain, dict):
            return plain
        match plain:
            case {"tuple": items}:
                return tuple([self._value(each, reading) for each in items])
            case {"dict": pairs}:
                return self._dict([(self._value(key, reading), self._value(each, reading)) for key, each in pairs])
            case {"objects": items}:
                return np.array([self._value(each, reading) for each in items], dtype=object)
            case {"array": [kind, shape, numbers]}:
                dtype, count = _dtype(kind), _count(shape)
                if len(numbers) != count:
                    raise ValueError("an array has another length than declared")
                if dtype.kind == "U":
                    reading.take(count * dtype.itemsize // 4)
                return np.array(numbers, dtype=dtype).reshape(shape)
            case {"is": name, "with": parts}:
                if name not in self.classes:
                    raise CorruptStore(f"{name!r} cannot be in a store; restore a backup.")
                values = {}
                for key, each in parts.items():
                    reading.field = key
                    values[key] = self._value(each, reading)
                return self._made(self.classes[name], values)
            case {"stranger": name}:
                if name not in reading.strangers:
                    raise BadPlan(_wanted(name, reading.field))
                return reading.strangers[name]
        raise CorruptStore("a value of unknown kind; restore a backup.")

    def _dict(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        """Return a dict, unless making it might take long."""
        if wrong := _crowded([key for key, _ in pairs]):
            raise ValueError(f"a dict with {wrong}")
        return dict(pairs)

    def _made(self, kind: type, parts: dict[str, Any]) -> Any:
        """Return an object of a known class, if its fields may hold these values."""
        check_fields(kind, parts)
        try:
            return kind(**parts)
        except BadPlan as error:
            raise CorruptStore(f"{kind.__name__}: {error} Restore a backup.") from error


def strangers_of(*objects: Any) -> dict[str, Any]:
    """Return objects by the names of their classes, as `Registry.read` takes them; None is none."""
    return {type(one).__name__: one for one in objects if one is not None}


class _Reading:
    """What is needed while a value is read, and what is left of the room for it."""

    def __init__(self, strangers: Mapping[str, Any]) -> None:
        self.strangers = strangers
        self.field = ""
        """Which field of an object is read."""
        self._letters = _LETTERS

    def take(self, letters: int) -> None:
        """Take room for so many letters; raise if so many are not left."""
        self._letters -= letters
        if self._letters < 0:
            raise ValueError(f"its arrays of strings have room for more than {_LETTERS:,} letters")


def _wanted(name: Any, field: str) -> str:
    """Say which object of a class of another's must be given."""
    if field == "transformer":
        return (
            f"structure: this model has a structure of yours, {name}; give it as it was given to the model, not "
            f"fitted: open(path, structure={name}(...))."
        )
    return f"loss: this model has a custom loss, {name}; give it: open(path, loss={name}())."


def _too_many(text: str) -> str:
    """Say what a JSON text may have too many of, before it is read; brackets and commas in strings count too."""
    if text.count("[") + text.count("{") > LISTS:
        return f"more than {LISTS:,} lists"
    return f"more than {VALUES:,} values" if text.count(",") + text.count(":") >= VALUES else ""


def _crowded(keys: Iterable[Any]) -> str:
    """Say why a dict of these keys might take long to make."""
    hashes = [hash(key) for key in keys if type(key) is not str]
    if len(hashes) > KEYS:
        return f"more than {KEYS:,} keys that are no texts"
    alike = max(Counter(hashes).values(), default=0)
    return f"{alike} keys of the same hash" if alike > ALIKE else ""


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
    raise CorruptStore(f"arrays of {text!r} cannot be in a store; restore a backup.")


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
        head = content[_LENGTH.size : _LENGTH.size + length].decode()
        if too_many := _too_many(head):
            raise ValueError(too_many)
        info, heads = json.loads(head)
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
        raise CorruptStore("packed arrays have another length than declared; restore a backup.")
    return str(info), arrays
