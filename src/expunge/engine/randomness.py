"""Where randomness comes from: one secret key for each fit or request, and four streams that are keyed by it.

What is drawn of a plan and where records lie can be seen; noise and coins must stay secret, also from those who see
some of them. So each stream has a key of its own, made by a hash, and noise and coins come from a cryptographic one:
from what is seen of one stream nothing follows about another, nor about the rest of the same. The key of a request is
recorded with it before it is used, so that it can be repeated with the same randomness, and is forgotten when it is
done: with the key of a fit one could subtract its noise, and what is left is what deleted records contributed.
"""

from __future__ import annotations

import hashlib
import math
import os
from typing import Any, Self, overload

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from expunge.base.errors import BadPlan
from expunge.base.types import Array, Keys

KEY_BYTES = 32
_FIRST_WORDS = 16
"""How many words the first block of a stream has, which is all that most requests need; later ones have more."""
_MOST_WORDS = 4096

_RARE = 2.0**46
"""A quantile below this has more digits: one normal number in 64, from 2.4 standard deviations on."""
_RARE_WORD = np.uint64(int(_RARE) << 12)
_AT_ONCE = 2**14
"""How many numbers are worked out at a time: they stay in the processor's cache."""

Size = int | tuple[int, ...]


def fresh_key() -> bytes:
    """Return a key from the system's entropy. All keys that nobody may know come from here."""
    return os.urandom(KEY_BYTES)


class SecretStream:
    """Random numbers from which neither the key nor any other number can be found out: blocks of SHAKE-256.

    Its methods mean what those of NumPy's `Generator` mean. Every number takes 64 bits of the stream.

    >>> stream = SecretStream(bytes(32), b"an example")
    >>> stream.standard_normal((2, 3)).shape
    (2, 3)
    >>> 0.0 <= stream.random() < 1.0
    True
    """

    __slots__ = ("_at", "_block", "_blocks", "_key", "_label", "_words")

    def __init__(self, key: bytes | bytearray, label: bytes) -> None:
        self._key = key if isinstance(key, bytearray) else bytearray(key)  # who wipes the key wipes the stream
        self._label = label
        self._blocks = self._at = 0
        self._block = b""
        self._words = _FIRST_WORDS

    @overload
    def random(self, size: None = None) -> float: ...

    @overload
    def random(self, size: Size) -> Array: ...

    def random(self, size: Size | None = None) -> float | Array:
        """Return uniform numbers in [0, 1), multiples of 2⁻⁵³."""
        if size is None:
            return (self._word() >> 11) * 2.0**-53
        words = self._array(size).reshape(-1)
        drawn = np.empty(len(words))
        for start in range(0, len(words), _AT_ONCE):
            part = words[start : start + _AT_ONCE] >> np.uint64(11)
            np.multiply(part.view(np.int64), 2.0**-53, out=drawn[start : start + _AT_ONCE])
        return drawn.reshape(size)

    @overload
    def standard_exponential(self, size: None = None) -> float: ...

    @overload
    def standard_exponential(self, size: Size) -> Array: ...

    def standard_exponential(self, size: Size | None = None) -> float | Array:
        """Return exponential numbers of mean 1."""
        if size is None:
            return -math.log1p(-self.random())
        return np.asarray(-np.log1p(-self.random(size)))

    @overload
    def standard_normal(self, size: None = None) -> float: ...

    @overload
    def standard_normal(self, size: Size) -> Array: ...

    def standard_normal(self, size: Size | None = None) -> float | Array:
        """Return normal numbers: a quantile of the lower half, with a sign.

        52 digits say which quantile. Where the density is so low that these would lie apart, 53 more digits follow: so
        numbers are as dense as float64 has them everywhere, up to 11 standard deviations.
        """
        from scipy.special import ndtri

        if size is None:
            word = self._word()
            digits = word >> 12
            lower = float(ndtri((digits + (self._fraction(None) if digits < _RARE else 0.5)) * 2.0**-53))
            return -lower if word & 1 else lower
        words = self._array(size).reshape(-1)
        rare = np.flatnonzero(words < _RARE_WORD)
        more = (self._fraction(len(rare)) - 0.5) * 2.0**-53 if len(rare) else None
        drawn = np.empty(len(words))
        for start in range(0, len(words), _AT_ONCE):
            part, some = words[start : start + _AT_ONCE], drawn[start : start + _AT_ONCE]
            odd = part >> np.uint64(11)
            odd |= np.uint64(1)
            np.multiply(odd.view(np.int64), 2.0**-54, out=some)  # signed ones are converted faster
            if more is not None:
                here = slice(*np.searchsorted(rare, (start, start + _AT_ONCE)))
                some[rare[here] - start] += more[here]
            ndtri(some, out=some)
            some.view(np.uint64)[:] ^= part << np.uint64(63)  # the last digit is the sign
        return drawn.reshape(size)

    def _fraction(self, size: int | None) -> Any:
        """Return uniform numbers above 0 and below 1."""
        return self.random(size) + 2.0**-54

    def words(self, number: int) -> Keys:
        """Return so many times 64 uniform bits."""
        return self._array(number).astype(np.uint64)

    def _word(self) -> int:
        return int.from_bytes(self._bytes(8), "little")

    def _array(self, size: Size) -> np.ndarray[Any, np.dtype[np.uint64]]:
        count = size if isinstance(size, int) else math.prod(size)
        return np.frombuffer(self._bytes(8 * count), dtype="<u8").reshape(size)

    def _bytes(self, wanted: int) -> memoryview:
        """Return the next bytes of the block, or of a new one if it has not enough."""
        if self._at + wanted > len(self._block):
            if not self._key:
                raise ValueError("this stream was wiped.")
            shake = hashlib.shake_256(self._key)
            shake.update(self._blocks.to_bytes(8, "little") + self._label)
            self._block, self._at = shake.digest(max(wanted, 8 * self._words)), 0
            self._blocks += 1
            self._words = min(4 * self._words, _MOST_WORDS)
        self._at += wanted
        return memoryview(self._block)[self._at - wanted : self._at]

    def wipe(self) -> None:
        """Forget the key and what was drawn ahead."""
        _overwrite(self._key)
        self._block = b""


class Layout(np.random.Generator):
    """Draws where records lie, which can be seen; and from a secret stream the keys that say who is in a sample."""

    def __init__(self, bits: np.random.BitGenerator, secret: SecretStream) -> None:
        super().__init__(bits)
        self.secret = secret


def secret_keys(rng: np.random.Generator, number: int) -> Keys:
    """Return so many keys of 64 uniform bits, from the secret stream if there is one (a generator alone has none)."""
    return rng.secret.words(number) if isinstance(rng, Layout) else rng.integers(2**64, size=number, dtype=np.uint64)


class Randomness:
    """The randomness of one fit or request: the same key gives the same streams.

    Use it in a ``with`` statement, after which it is wiped.

    >>> again = Randomness(bytes(32))
    >>> Randomness(bytes(32)).noise.random() == again.noise.random() != again.coins.random()
    True
    """

    __slots__ = ("_key", "_streams")

    def __init__(self, key: bytes | bytearray) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"key: expected {KEY_BYTES} bytes, got {len(key)}.")
        self._key = bytearray(key)
        self._streams: dict[str, Any] = {}

    @classmethod
    def fresh(cls) -> Randomness:
        """Return randomness that nobody knows."""
        return cls(fresh_key())

    @classmethod
    def of(cls, rng: np.random.Generator | Randomness) -> Randomness:
        """Return randomness as it is, or with a key that a generator draws."""
        return rng if isinstance(rng, Randomness) else cls(rng.bytes(KEY_BYTES))

    @classmethod
    def given(cls, random_state: Any, request: int) -> Randomness:
        """Return the randomness of a user's request: fresh, unless the user fixes it.

        A whole number gives each request randomness of its own; a generator draws a key for each.
        """
        if random_state is None:
            return cls.fresh()
        if isinstance(random_state, (np.random.Generator, np.random.RandomState)):
            return cls(random_state.bytes(KEY_BYTES))
        if isinstance(random_state, (int, np.integer)) and random_state >= 0:
            return cls(hashlib.sha3_256(f"random_state {int(random_state)}, request {request}".encode()).digest())
        raise BadPlan(f"random_state={random_state!r}: give None, a whole number of at least 0, or a NumPy generator.")

    @property
    def key(self) -> bytes:
        """What it all follows from, to be recorded with a request until that is done."""
        self._check()
        return bytes(self._key)

    @property
    def plan(self) -> np.random.Generator:
        """For what a plan draws, such as the seeds of centres or a projection: it is kept."""
        made: np.random.Generator = self._streams.get("plan") or self._generator("plan")
        return made

    @property
    def layout(self) -> Layout:
        """For where records lie, and for their keys."""
        made: Layout = self._streams.get("layout") or self._generator("layout")
        return made

    @property
    def noise(self) -> SecretStream:
        """For noise on answers."""
        return self._streams.get("noise") or self._secret("noise")

    @property
    def coins(self) -> SecretStream:
        """For what couplings toss."""
        return self._streams.get("coins") or self._secret("coins")

    def _generator(self, label: str) -> Any:
        self._check()
        source: Any = _Bits(hashlib.shake_256(self._key + f"generator {label}".encode()).digest(32))
        bits = np.random.PCG64(source)  # takes it, whatever types say
        made = Layout(bits, self._secret("keys")) if label == "layout" else np.random.Generator(bits)
        self._streams[label] = made
        return made

    def _secret(self, label: str) -> SecretStream:
        self._check()
        made = self._streams[label] = SecretStream(self._key, label.encode())
        return made

    def _check(self) -> None:
        if not self._key:
            raise ValueError("this randomness was wiped.")

    def wipe(self) -> None:
        """Forget the key and the streams. (What Python has copied meanwhile cannot be reached, and is not kept.)"""
        for stream in self._streams.values():
            if isinstance(stream, SecretStream):
                stream.wipe()
            else:
                stream.bit_generator.state = _BLANK
        self._streams.clear()
        _overwrite(self._key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self.wipe()


_BLANK = {"bit_generator": "PCG64", "state": {"state": 0, "inc": 1}, "has_uint32": 0, "uinteger": 0}


class _Bits(ISeedSequence):
    """Gives a generator its whole state; NumPy's own way takes ten times as long."""

    def __init__(self, bits: bytes) -> None:
        self._bits = bits

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """Return the bits as so many words."""
        words, self._bits = np.frombuffer(self._bits, dtype=dtype), b""  # which are asked for once
        assert len(words) == n_words
        return words


def _overwrite(key: bytearray) -> None:
    key[:] = bytes(len(key))
    key.clear()
