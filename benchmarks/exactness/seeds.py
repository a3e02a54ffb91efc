"""The attack on seeds: try every small ``random_state`` until one fits what can be seen, and subtract its noise.

Whoever has a model (its plan, its live records, its transcript) fits another with each guess, to stand-ins for the
records. What does not depend on records must agree: the seeds of centres, the projection, where ids lie. With the right
guess the noise agrees too, and answers less noise less the sums of today are what deleted records contributed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from expunge.types import AnyArray, Array


def recovered_seed(model: Any, gone: AnyArray, guesses: Iterable[int]) -> int | None:
    """Return the guess that fits all that can be seen of a model from which some ids were deleted, or None."""
    return next((guess for guess in guesses if _fits(model, stand_in(model, gone, guess), gone)), None)


def recovered_contribution(model: Any, gone: AnyArray, guess: int) -> Array:
    """Return, for each step, the answers less the noise that a guess gives, less the sums of the live records."""
    other = stand_in(model, gone, guess)
    kept, drawn, prefix = model.transcript_, other.transcript_, model.plan_.learner.mechanism.prefix
    noise = drawn.answers[:] - (np.cumsum(drawn.sums[:], axis=0) if prefix else drawn.sums[:])
    sums = np.cumsum(kept.sums[:], axis=0) if prefix else kept.sums[:]
    rest: Array = kept.answers[:] - noise - sums
    return np.diff(rest, axis=0, prepend=np.zeros((1, rest.shape[1]))) if prefix else rest


def stand_in(model: Any, gone: AnyArray, guess: int) -> Any:
    """Fit a model of the same kind with a guess to zeros, as many as there were records."""
    known = {name: value for name, value in model.get_params().items() if name != "random_state"}
    other = type(model)(**known, random_state=guess)
    ids = np.sort(np.concatenate([model.ids_, gone]))
    targets = () if not hasattr(model, "classes_") else (np.resize(model.classes_, len(ids)),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return other.fit(np.zeros((len(ids), model.n_features_in_)), *targets, ids=ids)


def _fits(model: Any, other: Any, gone: AnyArray) -> bool:
    """Say whether two models agree in what depends on no record."""
    if getattr(model.plan_, "seed", None) != getattr(other.plan_, "seed", None):
        return False
    mine, theirs = (vars(one).get("_projection") for one in (model, other))
    if mine is not None and theirs is not None and (mine.components_ != theirs.components_).nnz:
        return False
    return all(
        np.isin(model._records.ids_at(place), other._records.ids_at(place)).all()
        for place in range(len(model._records.shelves.lengths))
    )
