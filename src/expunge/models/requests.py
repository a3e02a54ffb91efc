"""Requests to a model, to a model at the end of a pipeline, and to your own learner."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from sklearn.pipeline import Pipeline

from expunge.base.errors import BadPlan
from expunge.base.intake import Insert, Replace
from expunge.engine import changing
from expunge.engine.contributions import Records
from expunge.engine.learner import Learner, Transcript
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import Randomness
from expunge.models.forgetting import ForgettingModel
from expunge.models.pipelines import KNOWN_NOISE, SEARCH, check_pipeline

Rng = np.random.Generator | Randomness
Missing = Literal["error", "ignore"]


@overload
def unlearn(
    model: Learner, records: Records, transcript: Transcript, ids: Any = None, *, subjects: Any = None, rng: Rng
) -> Outcome: ...


@overload
def unlearn(model: Any, ids: Any = None, *, subjects: Any = None, missing: Missing = "error") -> Outcome: ...


def unlearn(model: Any, *given: Any, **named: Any) -> Outcome:
    """Delete records, by id or by subject, from a model, a pipeline that ends in one, or your own learner.

    A pipeline is refused if `check_pipeline` finds that a step before the model keeps something of the records: the
    deletion would not reach it. (To delete from the model anyway, call ``pipe[-1].unlearn(ids)``.)

    >>> from sklearn.pipeline import make_pipeline
    >>> from expunge import LogisticRegression
    >>> from expunge.models.preprocessing import BoundedScaler
    >>> ages, bought = np.arange(20.0, 80.0)[:, None], np.arange(60) > 30
    >>> pipe = make_pipeline(BoundedScaler(0, 120), LogisticRegression(classes=[False, True])).fit(ages, bought)
    >>> unlearn(pipe, [17, 42]).removed, pipe[-1].n_records_
    (2, 58)
    """
    if isinstance(model, Learner):
        return changing.unlearn(model, *given, **named)
    return _unlearn(model, *given, **named)


@overload
def insert(
    model: Learner, records: Records, transcript: Transcript, columns: tuple[Any, ...], ids: Any = None, *,
    subjects: Any = None, rng: Rng,
) -> Outcome: ...  # fmt: skip


@overload
def insert(model: Any, X: Any, y: Any = None, ids: Any = None, *, subjects: Any = None) -> Outcome: ...


def insert(model: Any, *given: Any, **named: Any) -> Outcome:
    """Add records to a model, a pipeline that ends in one, or your own learner.

    Rows are given as the pipeline takes them: the steps before the model transform them. It is refused as in `unlearn`.
    """
    if isinstance(model, Learner):
        return changing.insert(model, *given, **named)
    return _insert(model, *given, **named)


@overload
def replace(
    model: Learner, records: Records, transcript: Transcript, columns: tuple[Any, ...], ids: Any, *, rng: Rng
) -> Outcome: ...


@overload
def replace(
    model: Any, X: Any, y: Any = None, ids: Any = None, *, subjects: Any = None, missing: Missing = "error"
) -> Outcome: ...


def replace(model: Any, *given: Any, **named: Any) -> Outcome:
    """Correct records of a model, of a pipeline that ends in one, or of your own learner. See `insert`."""
    if isinstance(model, Learner):
        return changing.replace(model, *given, **named)
    return _replace(model, *given, **named)


# --- pipelines ------------------------------------------------------------------------------------------


def _unlearn(pipe: Any, ids: Any = None, *, subjects: Any = None, missing: Missing = "error") -> Outcome:
    return _model_of(pipe).unlearn(ids, subjects, missing)


def _insert(pipe: Any, X: Any, y: Any = None, ids: Any = None, *, subjects: Any = None) -> Outcome:
    model = _model_of(pipe)
    return model.serve_request(model.prepare_request(Insert(_columns(pipe, X, y), ids, subjects)))


def _replace(
    pipe: Any, X: Any, y: Any = None, ids: Any = None, *, subjects: Any = None, missing: Missing = "error"
) -> Outcome:
    model = _model_of(pipe)
    return model.serve_request(model.prepare_request(Replace(_columns(pipe, X, y), ids, subjects, missing)))


def _model_of(pipe: Any) -> ForgettingModel:
    """Return the model that a pipeline ends in; raise if there is none, or if an earlier step would keep records."""
    last = pipe
    while isinstance(last, Pipeline) and last.steps:
        last = last.steps[-1][1]
    if isinstance(last, ForgettingModel):
        leaks = [leak for leak in check_pipeline(pipe) if (leak.why, leak.instead) != KNOWN_NOISE]
        if leaks:
            said = "; ".join(map(str, leaks))
            raise BadPlan(
                f"pipe: its steps would keep what is deleted from its model. {said}. Then refit. To delete from the "
                "model anyway, call the last step itself."
            )
        return last
    kind = type(last).__name__
    if hasattr(last, "best_estimator_") or kind.endswith("SearchCV"):
        raise BadPlan(f"pipe: {kind}: {SEARCH[0]}, and no deletion reaches it. Instead, {SEARCH[1]}.")
    raise BadPlan(
        f"pipe: it ends in a {kind}, which cannot delete records. Use a model of Expunge as its last step, or call the "
        "model inside of it."
    )


def _columns(pipe: Any, X: Any, y: Any) -> tuple[Any, ...]:
    """Return the columns of a request, with rows as the steps before the model make them."""
    while isinstance(pipe, Pipeline):
        if len(pipe.steps) > 1:
            X = pipe[:-1].transform(X)
        pipe = pipe.steps[-1][1]
    return (X,) if y is None else (X, y)
