"""The binary digits of stored numbers, as features whose law can be compared.

Two states may agree in law to fifteen digits and differ in the last ones: those of a rounded sum tell what was
summed. Everything here is a function of the numbers alone, and, for units and limits, of both samples together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from expunge.base.types import Array, Ints

DIGITS = 52
"""Binary digits of a float64 behind its leading one."""
UNITS = (24, 28, 40, 46, 49, 52)
"""Residues are taken in units that lie so many digits below a table's typical number."""
MODULI = (2, 4, 16)
WINDOW = 8
"""Counts of digits are cut off so far above the smallest: beyond are too few for a normal limit."""
RARE = 0.01
"""Counts that are rarer than this are cut off below."""
FAR = 10_000
"""The place of the lowest digit of 0, which has none."""

_PLACED = re.compile(r"(?P<table>.+)\[(?P<row>\d+)(?:,(?P<column>\d+))?\]")


def trailing_zeros(numbers: Array) -> Ints:
    """Return how many digits at the end of each number's 53 are 0 (of 0 itself, all).

    >>> trailing_zeros(np.array([1.0, 1.5, 0.1, 0.0])).tolist()
    [52, 51, 1, 53]
    """
    leading = np.int64(1) << np.int64(DIGITS)
    digits = np.ascontiguousarray(numbers, dtype=float).view(np.int64) & (leading - 1) | leading
    lowest = (digits & -digits).astype(float)
    return np.where(numbers == 0.0, DIGITS + 1, np.frexp(lowest)[1] - 1).astype(np.int64)


def lowest_digit(numbers: Array) -> Ints:
    """Return the exponent of the largest power of two of which each number is a multiple.

    >>> lowest_digit(np.array([1.0, 6.0, 0.75])).tolist()
    [0, 1, -2]
    """
    return np.where(numbers == 0.0, FAR, finest_digit(numbers) + trailing_zeros(numbers))


def finest_digit(numbers: Array) -> Ints:
    """Return the exponent of the last of the 53 digits that each number could have (for 0, far up)."""
    return np.where(numbers == 0.0, FAR, np.frexp(numbers)[1] - 1 - DIGITS).astype(np.int64)


def digits_below(answers: Array, noise: Array) -> Ints:
    """Return how far the digits of answers reach below those that their sums and their noise can have.

    A sum of two float64 numbers has no digit below both of theirs. An answer that has was made from others.
    """
    finest = np.minimum(finest_digit(noise), finest_digit(answers - noise))
    return np.asarray(np.maximum(finest - lowest_digit(answers), 0))


# --- features ------------------------------------------------------------------------------------------------


def units_for(numbers: Array) -> list[int]:
    """Return the exponents of the units in which residues of a table are taken, its own finest among them."""
    present = numbers[numbers != 0.0]
    if not present.size:
        return []
    typical = int(np.frexp(np.median(np.abs(present)))[1])
    finest = int(np.quantile(lowest_digit(present), RARE, method="lower"))
    return sorted({typical - unit for unit in UNITS} | {finest})


def limited(counts: Ints, every: Ints) -> Array:
    """Cut counts of digits off below the lowest hundredth of ``every`` count, and `WINDOW` above it."""
    low = int(np.quantile(every, RARE, method="lower"))
    return np.clip(counts, low, low + WINDOW).astype(float)


def features(numbers: Array, units: Sequence[int]) -> Iterator[tuple[str, Array]]:
    """Return what is compared of the digits of numbers, each feature as an array of the same shape."""
    zeros, lowest = trailing_zeros(numbers), lowest_digit(numbers)
    yield "trailing zeros", limited(zeros, zeros)
    yield "lowest digit", limited(lowest, lowest)
    for unit in units:
        yield f"multiples of 2^{unit}", (lowest >= unit).astype(float)
        whole = np.rint(np.ldexp(numbers, -unit))
        for modulus in MODULI:
            yield f"residues mod {modulus} of 2^{unit}", np.mod(whole, modulus)


# --- comparisons ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """The places of one stored table among the numbers of a state: for each of its columns, those of all rows."""

    name: str
    columns: dict[str, list[int]]
    names: dict[str, list[str]]


def _tables(names: Sequence[str]) -> dict[str, _Table]:
    found: dict[str, _Table] = {}
    for place, name in enumerate(names):
        match = _PLACED.fullmatch(name.removeprefix("#"))
        if match is None or name.startswith("@"):
            continue
        table = found.setdefault(match["table"], _Table(match["table"], {}, {}))
        column = match["column"] or match["row"]
        table.columns.setdefault(column, []).append(place)
        table.names.setdefault(column, []).append(name.removeprefix("#"))
    return found


def compare_bits(both: Array, split: int, names: Sequence[str]) -> list[tuple[str, float]]:
    """Compare the digits of all tables of two samples of states: those before ``split``, and those after.

    Each feature is compared by its mean, for every number, over all rows of a column, and over the whole table.
    """
    tables = _tables(names)
    bare = tables.get("N", tables.get("noise"))
    found: list[tuple[str, float]] = []
    for table in tables.values():
        if table.name == "noise" and bare is not table:
            continue  # whitened; N is what it was made from
        units = units_for(both[:, [place for places in table.columns.values() for place in places]])
        pooled: dict[str, Array] = {}
        for column, places in table.columns.items():
            noise = bare.columns.get(column) if bare is not None and table.name == "answer" else None
            for what, feature in _features_of(both[:, places], units, None if noise is None else both[:, noise]):
                found += _by_mean(feature, split, [f"bits: {what} of {name}" for name in table.names[column]])
                mean = feature.mean(axis=1)
                if len(places) > 1:
                    found += _by_mean(mean[:, None], split, [f"bits: {what} of {table.name}[:,{column}]"])
                pooled[what] = pooled.get(what, 0.0) + mean
        if len(table.columns) > 1:
            for what, mean in pooled.items():
                found += _by_mean(mean[:, None], split, [f"bits: {what} of {table.name}[:,:]"])
    return found


def _features_of(numbers: Array, units: Sequence[int], noise: Array | None) -> Iterator[tuple[str, Array]]:
    """Return the features of a column of a table, one after the other, and of answers with their noise one more."""
    if np.ptp(numbers) == 0.0:
        return
    yield from features(numbers, units)
    if noise is not None and noise.shape == numbers.shape:
        below = digits_below(numbers, noise)
        yield "digits below sum and noise", np.minimum(below, WINDOW).astype(float)


def _by_mean(feature: Array, split: int, names: list[str]) -> list[tuple[str, float]]:
    """Compare the means of each column; what is the same number in all runs is left out."""
    from scipy import stats

    parts = feature[:split], feature[split:]
    difference = parts[0].mean(axis=0) - parts[1].mean(axis=0)
    spread = np.sqrt(sum(part.var(axis=0) / len(part) for part in parts))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(spread > 1e-12, difference / spread, np.where(np.abs(difference) > 1e-9, np.inf, np.nan))
    p = 2.0 * stats.norm.sf(np.abs(z))
    return [(name, float(value)) for name, value in zip(names, p, strict=True) if not np.isnan(value)]
