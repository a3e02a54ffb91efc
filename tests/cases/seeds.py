"""The attack on seeds: try every small ``random_state`` until one fits what can be seen, and subtract its noise.

Whoever has a model (its plan, its live records, its transcript) fits another with each guess, to stand-ins for the
records. What does not depend on records must agree: the seeds of centres, the projection, where ids lie. With the right
guess the noise agrees too, and answers less noise less the sums of today are what deleted records contributed.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import expunge
from cases.in_solver import in_solver
from expunge.base.errors import BadPlan, NoiseWarning
from expunge.base.types import AnyArray, Array
from expunge.solvers import Lloyd

SEED, GONE = 7, np.array([41])


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
    known = {name: value for name, value in model.get_params(deep=False).items() if name != "random_state"}
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
    if mine != theirs:
        return False
    return all(
        np.isin(model._records.ids_at(place), other._records.ids_at(place)).all()
        for place in range(len(model._records.places.lengths))
    )


def _small_models() -> dict[str, Callable[..., Any]]:
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-0.5, 0.5, size=(60, 4)), np.arange(60) % 2

    def logistic(**given: Any) -> Any:
        return expunge.LogisticRegression(**in_solver(rho=0.3, steps=8, **given)).fit(X, y)

    return {
        "k-means": lambda **given: expunge.KMeans(2, rho=0.3, solver=Lloyd(radius=1.5, n_rounds=2), **given).fit(X),
        "logistic, projected": lambda **given: logistic(n_components=3, **given),
        "logistic": logistic,
    }


def results(quick: bool) -> list[dict[str, Any]]:
    """Attack models in memory that were trained with a small number, and files, which cannot have one."""
    guesses, found = range(20 if quick else 200), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        for name, fitted in _small_models().items():
            seeded = fitted(random_state=SEED)
            seeded.set_params(random_state=None).unlearn(GONE)
            right = recovered_seed(seeded, GONE, guesses) == SEED
            says = "the number is found by trying" if right else "the number is not found"
            found.append(_row(f"{name}, in memory, random_state={SEED}", True, says, right))
            found.append(_row(f"{name}, in a file", False, *_attack_file(fitted, seeded, guesses)))
    return found


def _attack_file(fitted: Callable[..., Any], seeded: Any, guesses: range) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            seeded.save(f"{folder}/seeded")
            return "a model with a seed was saved", False
        except BadPlan:
            fitted().save(f"{folder}/model")
        with expunge.open(f"{folder}/model") as model:
            model.unlearn(GONE)
            right = recovered_seed(model, GONE, guesses) is not None
    return f"with a seed: refused; without: {'found' if right else 'none'} of {len(guesses)} numbers fits", not right


def _row(name: str, control: bool, says: str, good: bool) -> dict[str, Any]:
    wanted = "found" if control else "not found"
    return {"kind": "seeds", "name": name, "control": control, "says": says, "wanted": wanted, "as_it_should_be": good}
