"""Receipts of requests: each says that a request was done, never how.

They are chained by their hashes, so that none can be altered, moved or taken out unnoticed, and may be signed. People
are named in them by keyed digests: who has the key can ask whether a name is there, nobody else can.

>>> first = write_receipt(
...     request="0" * 32, kind="delete", named_by="ids", digests=digest_names(bytes(32), "ids", np.array([17])),
...     removed=1, added=0, day="2026-11-15", version=1, plan="a" * 64, previous=genesis("b" * 32),
... )
>>> [receipt.day for receipt in find([first], bytes(32), ids=[17])], find([first], bytes(32), ids=[18])
(['2026-11-15'], [])
>>> exported = export([first], store="b" * 32, head=first.hash, version=1, public_key=None)
>>> check_receipts(exported).ok
True
>>> exported["receipts"][0]["removed"] = 2
>>> check_receipts(exported).problems
('receipts[0]: hash: not that of the other fields; the receipt was altered.',)
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date
from functools import cached_property
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from expunge.errors import BadPlan, CorruptStore
from expunge.intake import as_ids
from expunge.store.keys import KEY_BYTES, FilePath, Signer, check_hex, confirms, is_hex, load_public_key, read_file
from expunge.types import AnyArray, Mask

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Kind = Literal["delete", "insert", "replace"]
NamedBy = Literal["ids", "subjects"]

FORMAT = "expunge receipts 1"
SAYS = (
    "Each receipt says that the operator's software recorded that a request (to delete, insert or replace records) was "
    "done, on that day and in this order. "
    "Their hashes show that none was altered, moved or taken out since it, or one after it, was signed, or since the "
    "head hash was noted in another place. "
    "They do not show that the model really is free of a record: only verify, run on the store itself, shows that."
)
DIGEST_BYTES = 16
STORE_DIGITS = 32
AT_ONCE = 2**16
MOST_PROBLEMS = 20


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
        said = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "signature"}
        return sha256(_canonical(said).encode("ascii")).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the hash, ready for JSON."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
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


def check_signer(signer: Signer | Literal[False] | None, signatures: Iterable[str | None]) -> None:
    """Raise if a receipt would have no signature though others have, unless that is meant (False)."""
    if signer is None and any(signature is not None for signature in signatures):
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
        raise ValueError("a name stands twice in an object")
    return found


def _from_dict(said: object) -> Receipt:
    """Return the receipt that `Receipt.to_dict` gave, or raise `CorruptStore`. ``said`` may be anything."""
    if not isinstance(said, dict):
        raise CorruptStore("expected an object with the fields of a receipt.")
    names = [field.name for field in fields(Receipt)]
    for name in (*names, "hash"):
        if name not in said:
            raise CorruptStore(f"{name}: missing.")
    for name in said:
        if name not in names and name != "hash":
            shown = repr(name[:40]) if isinstance(name, str) else type(name).__name__
            raise CorruptStore(f"{shown}: a receipt has no such field.")
    if not isinstance(said["digests"], list):
        raise CorruptStore("digests: expected a list.")
    try:
        receipt = Receipt(**{name: said[name] for name in names})
        check_hex("hash", said["hash"], 64)
    except BadPlan as error:
        raise CorruptStore(str(error)) from error
    if said["hash"] != receipt.hash:
        raise CorruptStore("hash: not that of the other fields; the receipt was altered.")
    return receipt


# --- the shape of fields: what is wrong may be anything, and is not repeated ---------------------------

_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


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


def find(receipts: Iterable[Receipt], key: bytes, *, ids: object = None, subjects: object = None) -> list[Receipt]:
    """Return the receipts that name any of these people, by id or by subject, as their requests did.

    Names must be of the type that the model has, numbers or text. Insertions name nobody, and are never found.
    """
    if ids is None and subjects is None:
        raise BadPlan("give ids or subjects, to say whom to look for.")
    wanted: set[str] = set()
    if ids is not None:
        wanted.update(_digests(key, "ids", ids))
    if subjects is not None:
        wanted.update(_digests(key, "subjects", subjects))
    return [receipt for receipt in receipts if not wanted.isdisjoint(receipt.digests)]


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


# --- export and check ---------------------------------------------------------------------------------


def export(
    receipts: Iterable[Receipt], *, store: str, head: str, version: int, public_key: str | None
) -> dict[str, Any]:
    """Return receipts, in order, as a document for a privacy officer to file as JSON.

    ``store`` is the store's random id, ``head`` the hash of its last receipt (with none, `genesis` of the store),
    ``version`` that of its state and ``public_key`` the `Signer`'s, if there is one. Note the head in another place now
    and then: it shows later that no receipt from before was taken out.
    """
    return {
        "format": FORMAT,
        "says": SAYS,
        "store": str(store),
        "version": int(version),
        "head": head,
        "public_key": public_key,
        "receipts": [receipt.to_dict() for receipt in receipts],
    }


@dataclass(frozen=True)
class ReceiptsCheck:
    """What `check_receipts` found."""

    problems: tuple[str, ...]
    """Everything that is wrong, by the receipt's position (from 0); of very many, the first."""
    count: int
    """How many receipts there are."""
    signed: int
    """How many are signed; with a public key given, by that key."""
    unsigned: int = 0
    """With a public key given: how many have no signature. That is one problem, whatever their number."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


def check_receipts(
    exported: dict[str, Any] | FilePath,
    *,
    public_key: FilePath | Ed25519PublicKey | None = None,
    noted: str | None = None,
) -> ReceiptsCheck:
    """Check that receipts are whole and in order: their fields, hashes, versions, request ids and signatures.

    ``exported`` is what `export` gave, its JSON (text that begins with a brace), or the path of a file with it.
    ``public_key`` is the operator's, in hexadecimal digits or as the path of a PEM file, and from another source than
    the export: whoever altered that could have put in a key as well. With it every receipt must be signed, as taking a
    signature off leaves no other trace; without it signatures are only counted. ``noted`` is a head hash noted
    earlier, which must still be there: it alone shows that the last receipts were not taken off together with the head.
    Versions must ascend, but may skip numbers.
    """
    key = None if public_key is None else load_public_key(public_key)
    if noted is not None:
        check_hex("noted", noted, 64)
    try:
        document = read_exported(exported)
    except CorruptStore as error:
        return ReceiptsCheck((str(error),), 0, 0)
    store: Any = document.get("store")
    beginning = genesis(store) if is_hex(store, STORE_DIGITS) else None
    walk = _Walk(key, beginning)
    problems = []
    for number, said in enumerate(document["receipts"]):
        problems += [f"receipts[{number}]: {problem}" for problem in walk.step(said)]
    problems += _frame_problems(document, walk)
    if walk.unsigned:
        problems.append(
            f"signatures: {walk.unsigned:,} of {len(document['receipts']):,} receipts have none: these were written "
            "without the key, or their signatures were taken off."
        )
    if noted not in (None, beginning) and noted not in walk.hashes:
        problems.append("noted: no receipt has this hash; receipts were altered or taken out since it was noted.")
    if len(problems) > MOST_PROBLEMS:
        problems[MOST_PROBLEMS:] = [f"… and {len(problems) - MOST_PROBLEMS} more."]
    return ReceiptsCheck(tuple(problems), len(document["receipts"]), walk.signed, walk.unsigned)


_BREAK = "previous: not the hash of the receipt before; one was taken out, put in or moved here."
_NO_BEGINNING = (
    "previous: not where the receipts of this store begin; the first were taken out, or these are another store's."
)


class _Walk:
    """A walk along a chain of receipts, which may be anything."""

    def __init__(self, key: Ed25519PublicKey | None, beginning: str | None) -> None:
        self.key = key
        self.head = beginning
        """The hash of the receipt before, or None if that cannot be known."""
        self.version = -1
        self.requests: set[str] = set()
        self.hashes: set[str] = set()
        self.signed = self.unsigned = 0

    def step(self, said: object) -> Iterator[str]:
        """Go on to the next receipt; give what is wrong with it."""
        try:
            receipt = _from_dict(said)
        except CorruptStore as error:
            self.head = None
            yield str(error)
            return
        if self.head not in (None, receipt.previous):
            yield _BREAK if self.hashes else _NO_BEGINNING
        if receipt.version <= self.version:
            yield f"version: {receipt.version} does not come after {self.version}, an earlier receipt's."
        if receipt.request in self.requests:
            yield f"request: {receipt.request} has a receipt already."
        yield from self._signature_problems(receipt)
        self.head = receipt.hash
        self.version = max(self.version, receipt.version)
        self.requests.add(receipt.request)
        self.hashes.add(receipt.hash)

    def _signature_problems(self, receipt: Receipt) -> Iterator[str]:
        if self.key is None:
            self.signed += receipt.signature is not None
        elif receipt.signature is None:
            self.unsigned += 1
        elif confirms(self.key, receipt.signature, receipt.hash):
            self.signed += 1
        else:
            yield "signature: not made for this receipt with the private key of the public key given."


def read_exported(exported: object) -> dict[str, Any]:
    """Return what was exported, if it is a list of receipts of this format."""
    if isinstance(exported, str) and exported.lstrip().startswith("{"):
        found = _parsed(exported)
    elif isinstance(exported, (str, os.PathLike)):
        text = read_file(exported, "give what was exported, or the path of a file with it")
        try:
            found = _parsed(text)
        except CorruptStore as error:
            raise CorruptStore(f"{os.fspath(exported)}: {error} Give what was exported.") from error
    else:
        found = exported
    if not isinstance(found, dict) or not isinstance(found.get("format"), str) or found["format"] != FORMAT:
        raise CorruptStore(f"format: not {FORMAT!r}; give what was exported, or the path of a file with it.")
    if not isinstance(found.get("receipts"), list):
        raise CorruptStore("receipts: expected a list.")
    return found


def _frame_problems(document: dict[str, Any], walk: _Walk) -> Iterator[str]:
    """Give what is wrong with what stands around the receipts."""
    if not is_hex(document.get("store"), STORE_DIGITS):
        yield f"store: expected the id of a store, {STORE_DIGITS} hexadecimal digits in lower case."
    head, key = document.get("head"), document.get("public_key")
    if not is_hex(head, 64):
        yield "head: expected 64 hexadecimal digits, in lower case."
    elif walk.head not in (None, head):
        yield "head: not the hash of the last receipt; receipts were taken out or put in at the end."
    try:
        if _whole("version", document.get("version")) < walk.version:
            yield f"version: the last receipt has a later one, {walk.version}."
    except BadPlan as error:
        yield str(error)
    if key is not None and not is_hex(key, 64):
        yield "public_key: expected 64 hexadecimal digits, in lower case, or null."
    elif key is not None and walk.key is not None and key != walk.key.public_bytes_raw().hex():
        yield "public_key: another one than was given."
