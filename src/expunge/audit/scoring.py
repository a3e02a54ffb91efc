"""How good a model is on records that were given for it. No single record shows in what is returned."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from expunge.audit.findings import Check, Score
from expunge.audit.metrics import Predicted, few_digits, score_classes, score_numbers
from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array, Ints
from expunge.base.wording import counted, percent


def score_on(model: Any, test: Any) -> Score:
    """Return the score of a model on ``(X, y)``; for clusters on ``(X, None)`` or X."""
    return score_blocks(model, [test if isinstance(test, tuple) else (test, None)])


def score_blocks(model: Any, blocks: Iterable[tuple[Any, Any]]) -> Score:
    """Return the score of a model on many blocks ``(X, y)``; what it says of a block is kept, the block is not."""
    ask = _clusters if hasattr(model, "cluster_centers_") else _classes if hasattr(model, "classes_") else _numbers
    said = [_said(ask, model, X, y) for X, y in blocks if _rows(X)]
    if not said:
        raise BadRecords("test: no records; give at least one.")
    parts: list[Any] = [None if part[0] is None else np.concatenate(part) for part in zip(*said, strict=True)]
    if ask is _clusters:
        return _of_clusters(len(model.cluster_centers_), *parts)
    if ask is _classes:
        return score_classes(_names(model), Predicted._make(parts))
    return score_numbers(*parts)


def _rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _said(ask: Any, model: Any, X: Any, y: Any) -> tuple[AnyArray | None, ...]:
    """Return what a model says of a block, beside the truth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns without names
        if ask is _clusters:
            return _clusters(model, X)
        if y is None:
            raise BadRecords("test: give (X, y), the features and the targets of some records.")
        truth = np.asarray(y).ravel()
        if len(truth) != _rows(X):
            raise BadRecords(f"test: {_rows(X)} rows and {len(truth)} targets; give one for each row.")
        found: tuple[AnyArray | None, ...] = ask(model, X, truth)
        return found


def _names(model: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in model.classes_)


def _classes(model: Any, X: Any, truth: AnyArray) -> Predicted:
    names = _names(model)
    codes = {name: code for code, name in enumerate(names)}
    chances = model.predict_proba(X) if hasattr(model, "predict_proba") else None
    ranked_by_chances = chances is not None and len(names) > 2
    return Predicted(
        np.array([codes.get(str(name), len(names)) for name in truth]),
        np.array([codes[str(name)] for name in model.predict(X)]),
        None if ranked_by_chances else model.decision_function(X),
        chances,
    )


def _numbers(model: Any, X: Any, truth: AnyArray) -> tuple[Array, Array]:
    if truth.dtype.kind not in "biuf" or not np.isfinite(truth.astype(float)).all():
        raise BadRecords("test: the targets must be numbers, like those that the model was trained on.")
    return truth.astype(float), np.asarray(model.predict(X))


def _clusters(model: Any, X: Any) -> tuple[Ints, Array]:
    return np.asarray(model.predict(X)), np.array([-float(model.score(X))])


def _of_clusters(clusters: int, labels: Ints, inertias: Array) -> Score:
    counts = np.bincount(labels, minlength=clusters)
    names = tuple(f"{number + 1}" for number in range(clusters))
    values = (("mean squared distance to the centre", few_digits(float(inertias.sum()) / len(labels))),)
    return Score("clusters", len(labels), values, names, (tuple(counts.tolist()),))


def said_value(name: str, value: float | None) -> str:
    """Return the value of a score as people say it.

    >>> said_value("accuracy", 0.8474), said_value("AUC", 0.9123), said_value("AUC", None)
    ('84.7 %', '0.9123', 'undefined')
    """
    if value is None:
        return "undefined"
    return percent(value) if name.startswith("accuracy") else f"{value:.4g}"


def check_score(score: Score | None) -> Check:
    """Report the score of the model; it is not judged."""
    finding = "No test records were given."
    if score is not None:
        what = ", ".join(f"{name} {said_value(name, value)}" for name, value in score.values)
        finding = " ".join([f"On {counted(score.records, 'test record')}: {what}.", *score.notes])
    return Check(
        "score", "Score of the model", "not checked" if score is None else "measured", finding,
        "How good the current model is on these records.",
        "Anything about deletion. The score is not judged: its owner decides which score is good enough.",
    )  # fmt: skip
