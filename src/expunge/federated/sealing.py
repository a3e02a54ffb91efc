"""Contributions in a store: encrypted with a key that is not in the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from expunge.base.errors import BadPlan, CorruptStore
from expunge.solvers.averaging import Numbers
from expunge.store.file import StoreFile
from expunge.store.keys import load_key, make_key
from expunge.store.receipts import KEY_BYTES
from expunge.store.surroundings import ENDINGS, beside

ROUND_BITS = 20
"""How many binary digits the number of a round may have."""
_NONCE = 12


class Seal:
    """Encrypts and authenticates bytes (AES-256-GCM), each under a number, for one store.

    >>> seal = Seal(bytes(32), "store")
    >>> seal.open(7, seal.close(7, b"secret"))
    b'secret'
    """

    def __init__(self, key: bytes, store: str) -> None:
        self._cipher = _aesgcm()(key)
        self._store = store

    def close(self, number: int, content: bytes) -> bytes:
        """Return bytes that only who has the key can read."""
        nonce = os.urandom(_NONCE)
        return nonce + bytes(self._cipher.encrypt(nonce, content, f"{self._store} {number}".encode()))

    def open(self, number: int, sealed: bytes) -> bytes:
        """Return what was sealed under this number; raise if it was not, or with another key."""
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], f"{self._store} {number}".encode()))
        except (InvalidTag, ValueError) as error:
            raise CorruptStore(
                f"blocks, row {number} was altered, or sealed with another key; give the right seal, or restore a "
                "backup."
            ) from error


def _aesgcm() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise BadPlan("a federation in a file needs cryptography; pip install 'expunge[federated]'.") from error
    return AESGCM


def as_seal_key(seal: Any, path: Path, *, new: bool) -> bytes:
    """Return the key that is given as bytes or as the path of its file, which is made if there is to be a new one."""
    if isinstance(seal, bytes):
        if len(seal) != KEY_BYTES:
            raise BadPlan(f"seal: expected {KEY_BYTES} bytes, or the path of a file that holds the key.")
        return seal
    if seal is not None and not isinstance(seal, (str, os.PathLike)):
        raise BadPlan(f"seal: expected {KEY_BYTES} bytes or the path of a file, got {type(seal).__name__}.")
    file = Path(seal) if seal is not None else beside(path, "-seal")
    if seal is not None and os.path.realpath(file) in {os.path.realpath(beside(path, ending)) for ending in _TAKEN}:
        raise BadPlan("seal: this is another file of the store; give the key its own file.")
    return make_key(file) if new and not os.path.lexists(file) else load_key(file, _LOST)


_TAKEN = ("", *(ending for ending in ENDINGS if ending != "-seal"))
_LOST = (
    "it should hold the key that contributions are encrypted with: put it back, or give seal=. Nobody can read them "
    "without it"
)


class SealedContributions:
    """What clients have contributed, in a store: one sealed blob for each client and round."""

    def __init__(self, file: StoreFile, seal: Seal, size: int) -> None:
        self._file = file
        self._seal = seal
        self._size = size
        self.there: dict[int, set[int]] = {}
        """By slot, for which rounds there is one."""
        for number in file.numbers("blocks"):
            self.there.setdefault(number >> ROUND_BITS, set()).add(number % 2**ROUND_BITS)

    def _read(self, slot: int, step: int) -> Numbers:
        number = _number(slot, step)
        content = self._seal.open(number, bytes(self._file.need("blocks", number)))
        if len(content) != 4 * self._size:
            raise CorruptStore(f"{self._file.path}: blocks, row {number} is not whole; restore a backup.")
        return np.frombuffer(content, "<i4").astype(np.int32)

    def read(self, slots: Sequence[int], step: int) -> Numbers:
        """Return what some clients have contributed to a round, one a row."""
        rows = [self._read(slot, step) for slot in slots]
        return np.stack(rows) if rows else np.zeros((0, self._size), dtype=np.int32)

    def history(self, slot: int, steps: Sequence[int]) -> Numbers:
        """Return what one client has contributed to some rounds, one a row."""
        return np.stack([self._read(slot, step) for step in steps])

    def has(self, slot: int, step: int) -> bool:
        """Say whether a client has contributed to a round."""
        return step in self.there.get(slot, ())

    def write(self, slots: Sequence[int], step: int, numbers: Numbers) -> None:
        """Hold what some clients contribute to a round."""
        for slot, row in zip(slots, numbers, strict=True):
            number = _number(slot, step)
            self._file.put("blocks", number, self._seal.close(number, row.astype("<i4").tobytes()))
            self.there.setdefault(slot, set()).add(step)

    def erase(self, slot: int) -> None:
        """Forget all that a client has contributed."""
        self._file.drop("blocks", _number(slot, 0), _number(slot + 1, 0))
        self.there.pop(slot, None)

    def cut(self, slots: Sequence[int], first: int) -> None:
        """Forget what clients have contributed to the rounds from ``first`` on."""
        for slot in slots:
            self._file.drop("blocks", _number(slot, first), _number(slot + 1, 0))
            if slot in self.there:
                self.there[slot] = {step for step in self.there[slot] if step < first}


def _number(slot: int, step: int) -> int:
    return (slot << ROUND_BITS) | step
