"""Receipts of requests: each says that a request was done, never how.

They are chained by their hashes, so that none can be altered, moved or taken out unnoticed, and may be signed. People
are named in them by keyed digests: who has the key can ask whether a name is there, nobody else can.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date
from functools import cached_property
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from expunge.base.errors import BadPlan, CorruptStore
from expunge.base.intake import Kind, NamedBy, as_ids
from expunge.base.types import AnyArray, Mask

if TYPE_CHECKING:
    from expunge.store.keys import Signer

FORMAT = "expunge receipts 1"
SAYS = (
    "Each receipt says that the operator's software recorded that a request (to delete, insert or replace records) was "
    "done, on that day and in this order. "
    "Their hashes show that none was altered, moved or taken out since it, or one after it, was signed, or since the "
    "head hash was noted in another place. "
    "They do not show that the model really is free of a record: only verify, run on the store itself, shows that."
)
DIGEST_BYTES = 16
BYTES_A_NAME = 2 * DIGEST_BYTES + 3
"""How many bytes a name takes in the JSON of a receipt."""
STORE_DIGITS = 32
KEY_BYTES = 32
"""How long a key is that names people."""
AT_ONCE = 2**16
UNWRITABLE = (TypeError, ValueError, RecursionError)
"""What may come of writing what is no JSON."""


# --- one receipt --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Receipt:
    """That a request was done. Nothing in it depends on how: on coins, replays, time taken, or what records say.

    One with a field of the wrong shape cannot be made.
    """

    request: str
    """The random id of the request, 32 hexadecimal digits."""
    kind: Kind
    named_by: NamedBy | None
    """How the request named its records; None for an insertion."""
    digests: tuple[str, ...]
    """A keyed digest of each id or subject that was named (`digest_names`); none for an insertion."""
    removed: int
    added: int
    """How many records left and came."""
    day: str
    """The day (UTC) on which it was done, such as 2026-11-15."""
    version: int
    """The version of the state after the request."""
    plan: str
    """The SHA-256 of the plan, in hexadecimal digits."""
    previous: str
    """The hash of the receipt before, or, for the first, `genesis` of the store."""
    signature: str | None = None
    """An Ed25519 signature of the hash (see `Signer`), in hexadecimal digits."""

    def __post_init__(self) -> None:
        for name in ("removed", "added", "version"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        check_hex("request", self.request, 32)
        check_hex("plan", self.plan, 64)
        check_hex("previous", self.previous, 64)
        _check_day(self.day)
        _check_names(self.kind, self.named_by, self.digests)
        object.__setattr__(self, "digests", tuple(self.digests))
        if self.signature is not None:
            check_hex("signature", self.signature, 128)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of all other fields but the signature, as canonical JSON."""
        said = {name: getattr(self, name) for name in _NAMES if name != "signature"}
        return sha256(_canonical(said).encode("ascii")).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the hash, ready for JSON."""
        said = {name: getattr(self, name) for name in _NAMES}
        return {**said, "digests": list(self.digests), "hash": self.hash}

    def to_json(self) -> str:
        """Return all fields and the hash as canonical JSON: names sorted, no spaces, ASCII only."""
        return _canonical(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Return the receipt that `to_json` wrote, or raise `CorruptStore`, naming the field that is wrong."""
        try:
            return _from_dict(_parsed(text))
        except CorruptStore as error:
            raise CorruptStore(f"receipt: {error}") from error


_NAMES = tuple(field.name for field in fields(Receipt))


def write_receipt(
    *,
    request: str,
    kind: Kind,
    named_by: NamedBy | None,
    digests: Iterable[str],
    removed: int,
    added: int,
    day: str,
    version: int,
    plan: str,
    previous: str,
    signer: Signer | None = None,
) -> Receipt:
    """Return the receipt that comes after the one whose hash is ``previous``, signed if there is a ``signer``."""
    said = (request, kind, named_by, tuple(digests), removed, added, day, version, plan, previous)
    receipt = Receipt(*said)
    return receipt if signer is None else Receipt(*said, signature=signer.sign(receipt.hash))


def check_signer(signer: Signer | Literal[False] | None, signatures: Iterable[str | bool | None]) -> None:
    """Raise if a receipt would have no signature though others have, unless that is meant (False)."""
    if signer is None and any(signatures):
        raise BadPlan(
            "sign_with: the receipts of this store are signed; give the key, or sign_with=False to leave receipts "
            "unsigned deliberately."
        )


def genesis(store: str) -> str:
    """Return what stands for the hash of the receipt before the first: no two stores' chains begin alike.

    >>> genesis("b" * 32)
    '...'
    """
    check_hex("store", store, STORE_DIGITS)
    return sha256(f"expunge receipts of store {store}".encode("ascii")).hexdigest()


def _canonical(said: dict[str, Any]) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except (RecursionError, MemoryError) as error:
        raise CorruptStore("not the JSON of receipts: nested too deeply, or too large.") from error
    except (TypeError, ValueError) as error:
        raise CorruptStore(f"not JSON: {error}.") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate name in an object")
    return found


def _from_dict(said: object) -> Receipt:
    """Return the receipt that `Receipt.to_dict` gave, or raise `CorruptStore`. ``said`` may be anything."""
    if not isinstance(said, dict):
        raise CorruptStore("expected an object with the fields of a receipt.")
    for name in (*_NAMES, "hash"):
        if name not in said:
            raise CorruptStore(f"{name}: missing.")
    for name in said:
        if name not in _NAMES and name != "hash":
            shown = repr(name[:40]) if isinstance(name, str) else type(name).__name__
            raise CorruptStore(f"{shown}: a receipt has no such field.")
    if not isinstance(said["digests"], list):
        raise CorruptStore("digests: expected a list.")
    try:
        receipt = Receipt(**{name: said[name] for name in _NAMES})
        check_hex("hash", said["hash"], 64)
    except BadPlan as error:
        raise CorruptStore(str(error)) from error
    if said["hash"] != receipt.hash:
        raise CorruptStore("hash: not that of the other fields; the receipt was altered.")
    return receipt


# --- the shape of fields: what is wrong may be anything, and is not repeated ---------------------------

_HEX = re.compile("[0-9a-f]*")
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def is_hex(value: object, digits: int) -> bool:
    """Say whether a value, which may be anything, is so many hexadecimal digits in lower case."""
    return isinstance(value, str) and len(value) == digits and _HEX.fullmatch(value) is not None


def check_hex(name: str, value: object, digits: int) -> None:
    """Raise unless a value is so many hexadecimal digits in lower case; what is wrong is not repeated."""
    if not is_hex(value, digits):
        raise BadPlan(f"{name}: expected {digits} hexadecimal digits, in lower case.")


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**63:
        raise BadPlan(f"{name}: expected a whole number from 0 to 2^63 - 1.")
    return int(value)


def _check_day(day: object) -> None:
    if isinstance(day, str) and _DAY.fullmatch(day):
        with suppress(ValueError):
            date.fromisoformat(day)
            return
    raise BadPlan("day: expected a day such as 2026-11-15, with no time.")


def _check_names(kind: object, named_by: object, digests: object) -> None:
    if not isinstance(kind, str) or kind not in ("delete", "insert", "replace"):
        raise BadPlan("kind: expected 'delete', 'insert' or 'replace'.")
    if kind == "insert" and named_by is not None:
        raise BadPlan("named_by: expected None, as an insertion names nobody.")
    if kind != "insert":
        _check_named_by(named_by)
    if not _are_digests(digests):
        raise BadPlan(f"digests: expected {2 * DIGEST_BYTES} hexadecimal digits for each name; see digest_names.")
    if kind == "insert" and digests:
        raise BadPlan("digests: expected none, as an insertion names nobody.")


def _are_digests(digests: object) -> bool:
    if not isinstance(digests, (tuple, list)):
        return False
    sized = all(isinstance(digest, str) and len(digest) == 2 * DIGEST_BYTES for digest in digests)
    return sized and is_hex("".join(digests), 2 * DIGEST_BYTES * len(digests))


def _check_named_by(named_by: object) -> None:
    if not isinstance(named_by, str) or named_by not in ("ids", "subjects"):
        raise BadPlan("named_by: expected 'ids' or 'subjects'.")


# --- names --------------------------------------------------------------------------------------------


def digest_names(key: bytes, named_by: NamedBy, names: AnyArray) -> tuple[str, ...]:
    """Return a keyed digest of each name: BLAKE2b with ``key`` and 16 bytes of output, in hexadecimal digits.

    (Keyed BLAKE2b is a proper MAC, and copying its keyed state for each name is the quickest that Python offers: half
    a microsecond, a fourth of HMAC-SHA256.) An id and a subject of the same name have different digests, and so have a
    number and its digits as text.

    >>> digest_names(bytes(32), "ids", np.array([17, 18]))
    ('...', '...')
    >>> digest_names(bytes(32), "ids", np.array(["17"])) == digest_names(bytes(32), "ids", np.array([17]))
    False
    """
    return tuple(_digests(key, named_by, names))


def are_named(key: bytes, named_by: NamedBy, names: AnyArray, digests: Collection[str]) -> Mask:
    """Say of each name whether its digest is among ``digests``; for many names, as no list of theirs is made.

    >>> are_named(bytes(32), "ids", np.arange(5), digest_names(bytes(32), "ids", np.array([3, 9])))
    array([False, False, False,  True, False])
    """
    wanted = frozenset(digests)
    return np.fromiter((digest in wanted for digest in _digests(key, named_by, names)), dtype=np.bool_)


def _digests(key: bytes, named_by: NamedBy, names: object) -> Iterator[str]:
    _check_named_by(named_by)
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise BadPlan(f"key: expected {KEY_BYTES} bytes; see load_key.")
    array = as_ids(named_by, names)
    text = array.dtype.kind == "U"
    person = f"{named_by} {'text' if text else 'int64'}".encode("ascii")
    copy = blake2b(key=key, digest_size=DIGEST_BYTES, person=person).copy
    for first in range(0, len(array), AT_ONCE):
        part = array[first : first + AT_ONCE]
        for name in _encoded(part) if text else part.astype("<i8").view("V8").tolist():
            state = copy()
            state.update(name)
            yield state.hexdigest()


def _encoded(texts: AnyArray) -> list[bytes]:
    return [text.encode("utf-8", "surrogatepass") for text in texts.tolist()]
