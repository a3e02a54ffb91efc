"""Keys: one with which receipts name people, and pairs with which receipts are signed and signatures checked.

Each lies in a file of its own; one that others can read is refused.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from expunge.base.errors import BadPlan, StoreError
from expunge.store.receipts import KEY_BYTES, check_hex, is_hex
from expunge.store.surroundings import sync, sync_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FilePath = str | os.PathLike[str]
Signed = Literal["receipt", "receipts"]
"""What can be signed: a receipt, or what stands around exported ones."""
_LINE, _PEM = 2**10, 2**16
"""No key is as long, and no key in PEM."""
LARGEST = 2**31
"""How many bytes a file of receipts may have."""

# --- naming people ------------------------------------------------------------------------------------


def make_key(path: FilePath, key: bytes | None = None) -> bytes:
    """Write a key for digests (a new random one, if none is given) into a file of its own, and return it.

    Only its owner can read the file. Without the key nobody can be found in receipts again; with it, anyone can test a
    guess of who was named.
    """
    key = key or secrets.token_bytes(KEY_BYTES)
    _write_new(path, f"{key.hex()}\n".encode("ascii"), 0o600)
    return key


_LOST = (
    "take it from a backup. If it is lost, nobody can be found in receipts any more: open the store with read_only and "
    "save() it to another path, which begins new ones"
)


def load_key(path: FilePath, remedy: str = _LOST) -> bytes:
    """Return the key that `make_key` wrote, if nobody but its owner can read it; ``remedy`` is what to do else."""
    data, mode = _read(path, remedy, _LINE)
    _refuse_open(path, mode)
    text = data.strip().decode("ascii", "replace")
    if not is_hex(text, 2 * KEY_BYTES):
        raise StoreError(
            f"{os.fspath(path)}: expected a key of {2 * KEY_BYTES} hexadecimal digits in lower case and nothing else; "
            f"{remedy}."
        )
    return bytes.fromhex(text)


def fingerprint(key: bytes) -> str:
    """Return what tells a key from others, and nothing else of it."""
    return hashlib.blake2b(key, digest_size=8, person=b"fingerprint").hexdigest()


# --- signing ------------------------------------------------------------------------------------------


def make_signing_key(path: FilePath) -> None:
    """Write a new Ed25519 private key as PEM, which only its owner can read, and its public key to ``path``.pub."""
    ed25519, serialization = _cryptography()
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write_new(path, private, 0o600)
    try:
        _write_new(f"{os.fspath(path)}.pub", public, 0o644)
    except BaseException:
        os.unlink(path)
        raise


class Signer:
    """Signs receipts with an Ed25519 private key: the path of a PEM file, or the key itself.

    What is signed is the text ``expunge receipt`` (of what stands around exported receipts: ``expunge receipts``) and
    the hash, in ASCII, with a space between. A file that others can read is refused.
    """

    def __init__(self, key: FilePath | Ed25519PrivateKey) -> None:
        ed25519, _ = _cryptography()
        loaded: Any = _load_pem(key, private=True) if isinstance(key, (str, os.PathLike)) else key
        if not isinstance(loaded, ed25519.Ed25519PrivateKey):
            raise BadPlan(
                f"signer: expected an Ed25519 private key, got {type(loaded).__name__}; make one with make_signing_key."
            )
        self._key: Ed25519PrivateKey = loaded

    @property
    def public_key(self) -> str:
        """The public key, in hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, hash_hex: str, what: Signed = "receipt") -> str:
        """Return the signature of a hash, in hexadecimal digits."""
        check_hex("hash", hash_hex, 64)
        return self._key.sign(_signed_text(hash_hex, what)).hex()


def as_signer(sign_with: Any) -> Signer | Literal[False] | None:
    """Return what signs receipts: nothing if it is None, nor if it is False, for receipts unsigned deliberately."""
    return sign_with if sign_with is None or sign_with is False else Signer(sign_with)


def confirms(key: Ed25519PublicKey, signature: str, hash_hex: str, what: Signed = "receipt") -> bool:
    """Say whether a signature of a hash was made with the private key of this public one."""
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(bytes.fromhex(signature), _signed_text(hash_hex, what))
    except InvalidSignature:
        return False
    return True


def _signed_text(hash_hex: str, what: Signed) -> bytes:
    return f"expunge {what} {hash_hex}".encode("ascii")


def load_public_key(given: object) -> Ed25519PublicKey:
    """Return the public key that is given as hexadecimal digits or as the path of a PEM file."""
    ed25519, _ = _cryptography()
    if isinstance(given, str) and is_hex(given.lower(), 64):
        loaded = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(given))
    elif isinstance(given, (str, os.PathLike)):
        loaded = _load_pem(given, private=False)
    else:
        loaded = given
    if not isinstance(loaded, ed25519.Ed25519PublicKey):
        raise BadPlan(f"public_key: expected an Ed25519 public key, got {type(loaded).__name__}.")
    return loaded


def _load_pem(path: FilePath, *, private: bool) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm

    _, serialization = _cryptography()
    data, mode = _read(path, "give the path of a PEM file; make_signing_key makes a pair", _PEM)
    try:
        if not private:
            return serialization.load_pem_public_key(data)
        key: object = serialization.load_pem_private_key(data, password=None)
    except TypeError as error:
        raise BadPlan(
            f"{os.fspath(path)}: this key is encrypted; load it with its password and give the key itself."
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        kind = "private" if private else "public"
        raise BadPlan(f"{os.fspath(path)}: not a {kind} key in PEM; make_signing_key makes a pair.") from error
    _refuse_open(path, mode)
    return key


def _cryptography() -> tuple[ModuleType, ModuleType]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise BadPlan("signatures need cryptography; install it with pip install 'expunge[sign]'.") from error
    return ed25519, serialization


# --- files --------------------------------------------------------------------------------------------


def read_file(path: FilePath, remedy: str) -> bytes:
    """Return what a file holds, or say why it cannot be read and what to do."""
    data, _ = _read(path, remedy, LARGEST + 1)
    if len(data) > LARGEST:
        raise StoreError(f"{os.fspath(path)}: has more than {LARGEST >> 20:,} MB; {remedy}.")
    return data


def _read(path: FilePath, remedy: str, most: int) -> tuple[bytes, int]:
    """Return what a file begins with, and its permissions. What is no file is refused: a pipe may never end."""
    data = None
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read(min(most, status.st_size))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{os.fspath(path)}: {error.strerror or error}; {remedy}.") from error
    except (ValueError, MemoryError) as error:
        raise StoreError(f"{os.fspath(path)!r}: cannot be read ({error or 'too large'}); {remedy}.") from error
    if data is None:
        raise StoreError(f"{os.fspath(path)}: this is not a file, but a folder, a pipe or a device; {remedy}.")
    return data, stat.S_IMODE(status.st_mode)


def _refuse_open(path: FilePath, mode: int) -> None:
    """Raise if others than its owner can read a file, or write it."""
    if os.name == "posix" and mode & 0o077:
        raise StoreError(f"{os.fspath(path)}: other users can read or change this key; run chmod 600 on it.")


def _write_new(path: FilePath, data: bytes, mode: int) -> None:
    """Write a file that is not there yet, and make sure that it stays; it gets its name when it is whole."""
    name = os.fspath(path)
    new = at = f"{name}-new"
    try:
        if os.path.lexists(name):
            raise FileExistsError
        with suppress(FileNotFoundError):
            os.unlink(new)  # of a process that was killed
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with open(file, "wb") as stream:
                stream.write(data)
                stream.flush()
                sync(file)
            os.replace(new, name)
            at = name
            sync_folder(Path(name).parent)
        except BaseException:
            os.unlink(at)
            raise
    except FileExistsError as error:
        raise StoreError(f"{name}: exists already; give another path, or remove it if it is not needed.") from error
    except OSError as error:
        raise StoreError(f"{name}: {error.strerror}; give a path in a folder that you may write to.") from error
