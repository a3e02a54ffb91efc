"""The randomness of one request: fresh, and gone afterwards, unless the user fixes it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from expunge.errors import BadPlan

_THREAD = threading.local()


def _stir(rng: np.random.Generator) -> np.random.Generator:
    """Give a generator a new state from the system's entropy."""
    bits = os.urandom(32)
    return _set(rng, int.from_bytes(bits[:16]), int.from_bytes(bits[16:]) | 1)


def _set(rng: np.random.Generator, state: int, increment: int) -> np.random.Generator:
    inner = {"state": state, "inc": increment}
    rng.bit_generator.state = {"bit_generator": "PCG64", "state": inner, "has_uint32": 0, "uinteger": 0}
    return rng


@contextmanager
def randomness(random_state: Any, request: int) -> Iterator[np.random.Generator]:
    """Give the randomness of one request: fresh, and gone afterwards, unless the user fixes it.

    A generator that is kept could be wound back to the noise, and so to the deleted record.
    """
    if random_state is not None:
        yield _given(random_state, request)
        return
    rng = _THREAD.__dict__.pop("rng", None)  # whoever asks meanwhile, in a signal's handler say, gets another
    if rng is None:  # to make one takes longer than to stir it
        rng = np.random.Generator(np.random.PCG64())
    try:
        yield _stir(rng)
    finally:
        _THREAD.rng = _set(rng, 0, 1)  # what was drawn can no longer be found out


def _given(random_state: Any, request: int) -> np.random.Generator:
    """Return the generator that the user asks for."""
    if isinstance(random_state, np.random.Generator):  # a child for each request: one finished later has its own
        return np.random.default_rng(random_state.integers(2**63, size=4))
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return np.random.default_rng([int(random_state), request])
    raise BadPlan(f"random_state={random_state!r}: give None, a whole number of at least 0, or a NumPy generator.")
