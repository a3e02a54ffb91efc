"""Receipts as a chain: exported for a privacy officer, checked, and searched for a person.

>>> import numpy as np
>>> from expunge.store.receipts import digest_names, genesis, write_receipt
>>> first = write_receipt(
...     request="0" * 32, kind="delete", named_by="ids", digests=digest_names(bytes(32), "ids", np.array([17])),
...     removed=1, added=0, day="2026-11-15", version=1, plan="a" * 64, previous=genesis("b" * 32),
... )
>>> [receipt.day for receipt in find([first], bytes(32), ids=[17])], find([first], bytes(32), ids=[18])
(['2026-11-15'], [])
>>> exported = export([first], store="b" * 32, head=first.hash, version=1)
>>> check_receipts(exported).ok
True
>>> exported["receipts"][0]["removed"] = 2
>>> check_receipts(exported).problems
('receipts[0]: hash: not that of the other fields; the receipt was altered.',)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from expunge.base.errors import BadPlan, CorruptStore
from expunge.store.keys import FilePath, Signer, confirms, load_public_key, read_file
from expunge.store.receipts import (
    FORMAT,
    SAYS,
    STORE_DIGITS,
    UNWRITABLE,
    Receipt,
    _canonical,
    _digests,
    _from_dict,
    _parsed,
    _whole,
    check_hex,
    genesis,
    is_hex,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MOST_PROBLEMS = 20


def find(receipts: Iterable[Receipt], key: bytes, *, ids: object = None, subjects: object = None) -> list[Receipt]:
    """Return the receipts that name any of these people, by id or by subject, as their requests did.

    Names must be of the type that the model has, numbers or text. Insertions name nobody, and are never found.
    """
    if ids is None and subjects is None:
        raise BadPlan("give ids or subjects to look for.")
    wanted: set[str] = set()
    if ids is not None:
        wanted.update(_digests(key, "ids", ids))
    if subjects is not None:
        wanted.update(_digests(key, "subjects", subjects))
    return [receipt for receipt in receipts if not wanted.isdisjoint(receipt.digests)]


def export(
    receipts: Iterable[Receipt], *, store: str, head: str, version: int, signer: Signer | None = None
) -> dict[str, Any]:
    """Return receipts, in order, as a document for a privacy officer to file as JSON.

    ``store`` is the store's random id, ``head`` the hash of its last receipt (with none, `genesis` of the store) and
    ``version`` that of its state. A ``signer`` signs what stands around the receipts: all but the text for people. Note
    the head in another place from time to time: it shows later that no earlier receipt was removed.
    """
    document = {
        "format": FORMAT,
        "says": SAYS,
        "store": str(store),
        "version": int(version),
        "head": head,
        "public_key": None if signer is None else signer.public_key,
        "signature": None,
        "receipts": [receipt.to_dict() for receipt in receipts],
    }
    if signer is not None:
        document["signature"] = signer.sign(_frame_hash(document), "receipts")
    return document


_FRAME = ("format", "store", "version", "head", "public_key")


def _frame_hash(document: dict[str, Any]) -> str:
    """Return the SHA-256 of what stands around receipts, and of how many there are."""
    said = {name: document.get(name) for name in _FRAME} | {"count": len(document["receipts"])}
    return sha256(_canonical(said).encode("ascii")).hexdigest()


def is_framed(document: dict[str, Any], key: Ed25519PublicKey) -> bool:
    """Say whether what stands around receipts, which may be anything, was signed with the private key of this one."""
    signature = document.get("signature")
    if not (isinstance(signature, str) and is_hex(signature, 128)):
        return False
    try:
        return confirms(key, signature, _frame_hash(document), "receipts")
    except UNWRITABLE:
        return False


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
    framed: bool = False
    """With a public key given: whether what stands around the receipts, such as ``version``, is signed by it too."""

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
    the export: anyone who altered the export could have added a key as well. With it every receipt must be signed,
    since removing a signature leaves no other trace; without it signatures are only counted. What stands around the
    receipts must be signed too if the export names a key; if it names none, it was exported without one, and ``framed``
    is False. ``noted`` is a head hash noted earlier, which must be among the receipts: it alone shows that the last
    receipts were not removed together with the head. Versions must ascend, but may skip numbers.
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
            f"signatures: {walk.unsigned:,} of {len(document['receipts']):,} receipts have none: they were written "
            "without the key, or their signatures were removed."
        )
    if noted not in (None, beginning) and noted not in walk.hashes:
        problems.append("noted: no receipt has this hash; receipts were altered or removed since it was noted.")
    if len(problems) > MOST_PROBLEMS:
        problems[MOST_PROBLEMS:] = [f"… and {len(problems) - MOST_PROBLEMS} more."]
    framed = key is not None and is_framed(document, key)
    if key is not None and not framed and not problems and (problem := _unframed(document)) is not None:
        problems.append(problem)
    return ReceiptsCheck(tuple(problems), len(document["receipts"]), walk.signed, walk.unsigned, framed)


_BREAK = "previous: not the hash of the receipt before; one was removed, added or moved here."
_NO_BEGINNING = (
    "previous: not where the receipts of this store begin; the first were removed, or these belong to another store."
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
        yield "public_key: not the one that was given."


def _unframed(document: dict[str, Any]) -> str | None:
    """Say what is wrong with a frame that is not signed by the key given, if anything is."""
    if document.get("signature") is not None:
        return "signature: not made for this export; its version, public_key, head or receipts were altered."
    if document.get("public_key") is None:
        return None  # exported without a key
    return (
        "signature: missing, although the export names a key: it was removed, or an earlier version of Expunge wrote "
        "this. Export again."
    )
