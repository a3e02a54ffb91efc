"""What a structure finds in a keyed sample: found, and found again where no memory has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.base.columns import stack
from expunge.base.errors import BadPlan
from expunge.base.types import Array, Batch, Keys, Mask
from expunge.engine.contributions import KeyedRecords
from expunge.engine.structures import Forgotten, Structure


def find_structure(structure: Structure, records: KeyedRecords) -> tuple[Any, ...]:
    """Return what is found in the sample. Nothing but this looks at who has joined."""
    found: tuple[Any, ...] = ()
    joined: list[Mask] = []
    sample: list[Batch] = []
    keys: list[Keys] = []
    for part in records.parts():
        joined.append(np.zeros(len(part.keys), dtype=bool))
        sample.append(tuple([column[:0] for column in part.batch]))
        keys.append(part.keys[:0])
    for _ in range(structure.stages):
        stage = structure.find(found, np.concatenate(keys), _stacked(sample))
        found = (*found, stage)
        for number, part in enumerate(records.parts()):
            new = structure.joins(stage, part.keys, part.batch) & ~joined[number]
            joined[number] |= new
            if new.any():
                sample.append(tuple([column[new] for column in part.batch]))
                keys.append(part.keys[new])
    return (*found, structure.find(found, np.concatenate(keys), _stacked(sample)))


def _stacked(batches: list[Batch]) -> Batch:
    return tuple([stack(list(columns)) for columns in zip(*batches, strict=True)])


def recall(structure: Structure, packed: Array, records: KeyedRecords) -> tuple[Any, ...]:
    """Return what was found: from its numbers, or, where these do not hold it, found again in the same sample.

    The records must be those that it was found in: no edit of them may be staged.
    """
    try:
        return structure.unpack(packed)
    except Forgotten:
        found = find_structure(structure, records)
        if not np.array_equal(structure.pack(found), packed):
            raise BadPlan(
                "structure: fitted again on its sample, it makes other features than those that the sums belong to. Is "
                "it another structure, another version of its library, or another machine? Open the model with the "
                "structure and the versions that it was fitted with, or call replan(), which is a fresh fit."
            ) from None
        return structure.unpack(packed)
