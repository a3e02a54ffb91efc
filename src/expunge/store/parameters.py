"""The parameters of a model in a store: kept, or solved for when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from expunge.base.types import Array
from expunge.engine.finding import recall
from expunge.engine.learner import Learner, Transcript
from expunge.engine.structures import Forgotten, Structure
from expunge.engine.transcript import Path
from expunge.store.file import StoreFile
from expunge.store.records import StoredRecords
from expunge.store.rows import StoredRows, as_numbers
from expunge.store.state import DESCRIPTION, Description, read_description, read_state, sound, stored_cells

MODEL = 0
"""The number of their array."""


def read_vector(file: StoreFile) -> Array:
    """Return the model's parameters, as its selector made them of the iterates."""
    return as_numbers(file, "arrays", MODEL, file.need("arrays", MODEL), "<f8").astype(np.float64)


def write_vector(file: StoreFile, model: Array) -> None:
    """Write the model's parameters."""
    file.put("arrays", MODEL, model.astype("<f8").tobytes())


def write_model(file: StoreFile, learner: Learner, transcript: Transcript) -> None:
    """Write the parameters of a fresh fit; where they are solved for when they are read, a file must not hold them."""
    write_vector(file, np.zeros(0) if learner.solves_late else transcript.model(learner))


def solved(file: StoreFile, known: Description, text: str | None, strangers: Mapping[str, Any]) -> Array:
    """Solve for the model of a store, from the sums and draws that are there.

    ``known`` is the description that was read as ``text``; another process may have written another plan meanwhile.
    """
    with file.reading():
        current = known if file.text("about", DESCRIPTION) == text else read_description(file, strangers)
        learner = current.plan.learner
        if learner.structure is not None:
            cells, found = stored_cells(file, learner.structure)
            with sound(file):
                return learner.structure.model(_found(file, learner, learner.structure, found[0]), cells[:])
        assert learner.laws is not None
        start, steps = np.asarray(learner.rule.start, dtype=float), learner.schedule.steps(0)
        sums = StoredRows(file, "sums", learner.query.size, steps)
        path = Path(start, StoredRows(file, "iterates", start.size, steps), steps)
        return np.asarray(learner.laws.model(path, sums[:]))


def _found(file: StoreFile, learner: Learner, structure: Structure, packed: Array) -> tuple[Any, ...]:
    """Return what was found in the sample; records are read only where it must be found again."""
    try:
        return structure.unpack(packed)
    except Forgotten:
        return recall(structure, packed, StoredRecords(file, read_state(file).inventory, learner.schedule))
