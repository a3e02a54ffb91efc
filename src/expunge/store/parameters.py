"""The parameters of a model in a store: kept, or solved for when they are read."""

from __future__ import annotations

import numpy as np

from expunge.base.types import Array
from expunge.engine.learner import Learner, Transcript
from expunge.engine.transcript import Path
from expunge.store.file import StoreFile
from expunge.store.rows import StoredRows, as_numbers

MODEL = 0
"""The number of their array."""


def read_vector(file: StoreFile) -> Array:
    """Return the model's parameters, as its selector made them of the iterates."""
    return as_numbers(file, "arrays", MODEL, file.need("arrays", MODEL), "<f8").astype(np.float64)


def write_vector(file: StoreFile, model: Array) -> None:
    """Write the model's parameters."""
    file.put("arrays", MODEL, model.astype("<f8").tobytes())


def kept_model(learner: Learner, transcript: Transcript) -> Array:
    """Return the model as a file keeps it: not at all, where it is solved when it is read."""
    return np.zeros(0) if learner.laws is not None else transcript.model(learner)


def solved(file: StoreFile, learner: Learner) -> Array:
    """Solve for the model of a store, from the sums and draws that are there."""
    assert learner.laws is not None
    start, steps = np.asarray(learner.rule.start, dtype=float), learner.schedule.steps(0)
    with file.reading():
        sums = StoredRows(file, "sums", learner.query.size, steps)
        path = Path(start, StoredRows(file, "iterates", start.size, steps), steps)
        return learner.laws.model(path, sums[:])
