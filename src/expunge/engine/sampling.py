"""Learners with a structure from a keyed sample: fit, change, check. (docs/guarantee.md#structure-from-a-sample)

No coin is tossed and no noise drawn: all that is kept is a function of records, keys, and seeds that look at no record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from expunge.base.types import Array, Ints
from expunge.engine.contributions import AT_ONCE, KeyedRecords, Moving
from expunge.engine.finding import find_structure
from expunge.engine.forward import Staged
from expunge.engine.learner import Learner
from expunge.engine.mechanisms.identity import Identity
from expunge.engine.structures import Additions, Forgotten, FromSample, Keyed, Parts, Structure
from expunge.engine.transcript import Rows

Watch = Callable[[int], None]


def learner_of(structure: Structure) -> Learner:
    """Return the learner that a structure makes."""
    query, rule = Additions(structure), FromSample(structure)
    return Learner(Keyed(), query, rule, Identity(), 0.0, "keys", "last", structure=structure)


def fit_structure(structure: Structure, records: KeyedRecords, watch: Watch | None = None) -> Staged:
    """Find the structure in the sample, stage by stage, and sum over everyone: all rows of the transcript."""
    found = find_structure(structure, records)
    if watch is not None:
        watch(1)
    packed = structure.pack(found)[None]
    return Staged(0, sum_everyone(structure, found, records), packed, packed)


def sum_everyone(structure: Structure, found: tuple[Any, ...], records: KeyedRecords) -> Array:
    """Return the exact sums over everyone, given the structure."""
    sums = np.zeros((structure.rows(found), structure.width))
    for part in records.parts():
        sums += structure.total(found, part.batch)
        for row in sums:
            structure.normal(row)
    return sums


@dataclass
class Moved:
    """What a request changes: single rows of the sums, or everything, if somebody in the sample moves."""

    rows: dict[int, Array] = field(default_factory=dict)
    staged: Staged | None = None
    evaluations: int = 0


def move(
    structure: Structure, records: KeyedRecords, sums: Rows, found: tuple[Any, ...], watch: Watch | None = None
) -> Moved:  # fmt: skip
    """Say what the staged edit changes; ``found`` is what was found before.

    Whoever is outside the sample, before or after, is taken out of the sums or put into them: nothing else depends on
    them. If one of those who leave or enter is in it, all is found anew, once, however many they are.
    """
    moving = records.moving()
    number = sum(len(each.keys) for each in moving)
    if any(structure.sampled(found, each.keys, each.batch).any() for each in moving):
        left = records.count + sum(len(each.keys) if each.enters else -len(each.keys) for each in moving)
        return Moved({}, fit_structure(structure, records, watch), number + left)
    return Moved(_new_rows(structure, found, moving, sums), None, number)


def _new_rows(structure: Structure, found: tuple[Any, ...], moving: list[Moving], sums: Rows) -> dict[int, Array]:
    """Return the rows of the sums that change: exact sums, in any order."""
    new: dict[int, Array] = {}
    at_once = max(1, AT_ONCE // (structure.width * structure.rows_each))
    for each in moving:
        if len(each.keys) * structure.rows_each > structure.rows(found):
            total = structure.total(found, each.batch)
            rows = np.flatnonzero(total.any(axis=1))
            _add(new, sums, rows, total[rows], enters=each.enters)
            continue
        for first in range(0, len(each.keys), at_once):
            part = structure.parts(found, tuple([column[first : first + at_once] for column in each.batch]))
            _add(new, sums, *_by_row(part), enters=each.enters)
    for row in new.values():
        structure.normal(row)
    return new


def _by_row(part: Parts) -> Parts:
    """Add up what belongs to one row."""
    rows, at = np.unique(part.rows, return_inverse=True)
    if len(rows) == len(at):
        return part
    added = np.zeros((len(rows), part.values.shape[1]))
    np.add.at(added, at, part.values)
    return Parts(rows, added)


def _add(new: dict[int, Array], sums: Rows, rows: Ints, values: Array, *, enters: bool = True) -> None:
    """Add values to different rows, or take them off; rows are copied before they change."""
    for row, value in zip(rows.tolist(), values, strict=True):
        before = new[row] if row in new else sums[row]
        new[row] = before + value if enters else before - value


def chance_to_move(structure: Structure, records: KeyedRecords, found: tuple[Any, ...]) -> float:
    """Return how likely a request is to find all anew, over the keys of those who leave or enter; their own is secret.

    Records with one key join together.
    """
    outside = 1.0
    for each in records.moving():
        _, at = np.unique(each.keys, return_inverse=True)
        chances = np.zeros(at.max(initial=-1) + 1)
        np.maximum.at(chances, at, structure.chance(found, each.batch))
        outside *= float(np.prod(1.0 - chances))
    return 1.0 - outside


def structure_problems(
    structure: Structure, records: KeyedRecords, sums: Array, packed: Array, tolerance: float
) -> list[str]:
    """Find everything again, and name what does not agree."""
    try:
        structure.unpack(packed)
    except Forgotten:
        pass
    except ValueError as error:
        return [f"iterates: row 0 is no structure ({error})"]
    derived = structure.pack(find_structure(structure, records))
    if not np.allclose(packed, derived, rtol=tolerance, atol=tolerance):
        return ["iterates: row 0 is not the structure that the sample gives"]
    stored = structure.unpack(packed)
    if len(sums) != structure.rows(stored):
        return [f"sums: {len(sums)} rows, where the structure has {structure.rows(stored)}"]
    total = sum_everyone(structure, stored, records)
    wrong = np.flatnonzero((total != sums).any(axis=1))
    more = f", nor are {len(wrong) - 1} others" if len(wrong) > 1 else ""
    return [f"sums: row {wrong[0]} is not what the records contribute{more}"] if len(wrong) else []
