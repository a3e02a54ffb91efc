"""How good a model is on records that were given for it. No single record shows in what is returned."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from expunge.audit.findings import Check, Score
from expunge.base.errors import BadRecords
from expunge.base.types import AnyArray, Array

BINS = 16


def score_on(model: Any, test: Any) -> Score:
    """Return the score of a model on ``(X, y)``; for clusters on ``(X, None)`` or X."""
    X, y = test if isinstance(test, tuple) else (test, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns without names
        if hasattr(model, "cluster_centers_"):
            return _of_clusters(model, X)
        if y is None:
            raise BadRecords("test: give (X, y), the features and the targets of some records.")
        predicted = np.asarray(model.predict(X))
    truth = np.asarray(y).ravel()
    if len(truth) != len(predicted):
        raise BadRecords(f"test: {len(predicted)} rows and {len(truth)} targets; give one for each row.")
    return _of_classes(model, predicted, truth) if hasattr(model, "classes_") else _of_numbers(predicted, truth)


def _of_classes(model: Any, predicted: AnyArray, truth: AnyArray) -> Score:
    names = [str(name) for name in model.classes_]
    codes = {name: code for code, name in enumerate(names)}
    counts = np.zeros((len(names) + 1, len(names)), dtype=np.int64)
    rows = [codes.get(str(name), len(names)) for name in truth]
    np.add.at(counts, (rows, [codes[str(name)] for name in predicted]), 1)
    number = max(1, len(truth))
    right, most = int(np.trace(counts[:-1])), int(counts.sum(axis=1).max(initial=0))
    if not counts[-1].any():
        counts = counts[:-1]
    else:
        names.append("another class")
    usual = "accuracy of always naming the most frequent class"
    values = (("accuracy", few_digits(right / number)), (usual, few_digits(most / number)))
    return Score("classes", len(truth), values, tuple(names), tuple(tuple(row) for row in counts.tolist()))


def _of_numbers(predicted: Array, truth: AnyArray) -> Score:
    if truth.dtype.kind not in "biuf" or not np.isfinite(truth.astype(float)).all():
        raise BadRecords("test: the targets must be numbers, like those that the model was trained on.")
    errors = predicted - truth.astype(float)
    spread = float(np.square(truth - truth.mean()).sum()) if len(truth) else 0.0
    values = [("mean absolute error", few_digits(float(np.abs(errors).mean())) if len(errors) else 0.0)]
    if spread > 0.0:
        values.insert(0, ("R²", few_digits(1.0 - float(errors @ errors) / spread)))
    widest = float(np.quantile(np.abs(errors), 0.98)) if len(errors) else 0.0
    edges = np.linspace(-1.0, 1.0, BINS + 1) * float(f"{widest or 1.0:.2g}")
    shares = np.histogram(np.clip(errors, edges[0], edges[-1]), edges)[0] / max(1, len(errors))
    return Score(
        "numbers", len(truth), tuple(values), edges=tuple(edges.tolist()), shares=tuple(np.round(shares, 3).tolist())
    )


def _of_clusters(model: Any, X: Any) -> Score:
    labels = np.asarray(model.predict(X))
    counts = np.bincount(labels, minlength=len(model.cluster_centers_))
    inertia = -float(model.score(X)) / max(1, len(labels))
    names = tuple(f"{number + 1}" for number in range(len(counts)))
    values = (("mean squared distance to the centre", few_digits(inertia)),)
    return Score("clusters", len(labels), values, names, (tuple(counts.tolist()),))


def few_digits(value: float) -> float:
    """Return a score with four digits: a report is stored, and more digits would reveal the state of its day.

    >>> few_digits(0.84736912), few_digits(12345.6)
    (0.8474, 12350.0)
    """
    return float(f"{value:.4g}")


def check_score(score: Score | None) -> Check:
    """Report the score of the model; it is not judged."""
    finding = "No test records were given."
    if score is not None:
        what = ", ".join(f"{name} {_shown(name, value)}" for name, value in score.values)
        finding = f"On {score.records:,} test record{'s' * (score.records != 1)}: {what}."
    return Check(
        "score", "Score of the model", "not checked" if score is None else "measured", finding,
        "How good the current model is on these records.",
        "Anything about deletion. The score is not judged: its owner decides which score is good enough.",
    )  # fmt: skip


def _shown(name: str, value: float) -> str:
    return f"{value:.1%}" if name.startswith("accuracy") else f"{value:.4g}"
