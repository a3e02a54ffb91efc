"""Scrambled 64-bit numbers: what keys and hashes are made with."""

from __future__ import annotations

import numpy as np

from expunge.base.types import Keys


def mix(x: Keys, keys: tuple[int, int] = (0, 0)) -> Keys:
    """Scramble 64-bit numbers (the finalizer of splitmix64, twice), in a way that depends on keys."""
    for key in keys:
        if key:
            x = x ^ np.uint64(key)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x
