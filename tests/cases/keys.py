"""The one hook for tests and measurements: where keys come from that should come from the system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from expunge.engine import randomness


@contextmanager
def keys_from(rng: np.random.Generator) -> Iterator[None]:
    """Let keys be drawn by a generator for a while: then what is stored is the same in every run, and no secret."""

    def draw() -> bytes:
        return rng.bytes(randomness.KEY_BYTES)

    with mock.patch.object(randomness, "fresh_key", draw):
        yield
