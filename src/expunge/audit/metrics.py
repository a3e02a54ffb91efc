"""All scores of predictions, by scikit-learn's metrics. What is undefined is None, and a note says why."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    precision_recall_fscore_support,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from expunge.audit.findings import Calibration, CalibrationBin, ClassScore, Score
from expunge.base.types import Array, Ints, Mask
from expunge.base.wording import counted

BINS = 16
"""How many bars a histogram of errors has."""
CALIBRATION_BINS = 10
LARGEST = 1e300
"""An error beyond it counts as this large, so that it can be drawn."""


class Predicted(NamedTuple):
    """What a classifier says of some records. Classes are numbered; a class that it does not know is the last."""

    truth: Ints
    named: Ints
    scores: Array | None
    """By which records are ranked: one of the second class if there are two, else one for each class."""
    chances: Array | None
    """The probability of each class. Where there are several classes they are ranked by it, if there are any."""


# --- classes -----------------------------------------------------------------------------------------


def score_classes(names: tuple[str, ...], said: Predicted) -> Score:
    """Return the scores of a classifier. Records of classes that it does not know count as errors, where that is fair.

    Its ranking and its probabilities say nothing of such records, so AUC, log-loss and calibration leave them out.
    """
    unknown = len(names)
    counts = confusion_matrix(said.truth, said.named, labels=np.arange(unknown + 1))[:, :unknown]
    values: list[tuple[str, float | None]] = [
        ("accuracy", accuracy_score(said.truth, said.named)),
        ("accuracy of always naming the most frequent class", counts.sum(axis=1).max() / len(said.truth)),
    ]
    strange = int(counts[-1].sum())
    notes = [] if not strange else [_about_strangers(strange, said.chances is not None)]
    known = _of_known(said, unknown)
    area, why = _area(known, unknown)
    values.append(("AUC" if unknown == 2 else "AUC, mean of each class against the rest", area))
    notes += [why] if why else []
    calibration = None
    if known.chances is not None:
        loss, error = None, None
        if len(known.truth):
            loss = log_loss(known.truth, known.chances, labels=np.arange(unknown))
            calibration, error = _calibration(names, known.truth, known.chances)
        values += [("log-loss", loss), ("expected calibration error", error)]
    return Score(
        "classes", len(said.truth), tuple((name, few_digits(value)) for name, value in values),
        (*names, "another class") if strange else names,
        tuple(tuple(row) for row in (counts if strange else counts[:-1]).tolist()),
        classes=_by_class(names, said), calibration=calibration, notes=tuple(notes),
    )  # fmt: skip


def _about_strangers(number: int, chances: bool) -> str:
    what = "AUC, log-loss and calibration leave" if chances else "AUC leaves"
    return (
        f"{counted(number, 'test record')} {'has' if number == 1 else 'have'} a class that the model does not know. "
        f"This counts as an error in accuracy; {what} such records out."
    )


def _of_known(said: Predicted, unknown: int) -> Predicted:
    known = said.truth < unknown
    if known.all():
        return said
    return Predicted._make(None if column is None else column[known] for column in said)


def _area(said: Predicted, classes: int) -> tuple[float | None, str]:
    """Return the area under the curve, and what there is to say about it."""
    there = np.unique(said.truth)
    if len(there) < 2:
        many = "all test records are of one class" if len(there) else "no test record has a class that the model knows"
        return None, f"AUC is undefined: {many}."
    if classes == 2:
        return float(roc_auc_score(said.truth == 1, said.scores)), ""
    scores = said.chances if said.scores is None else said.scores
    assert scores is not None  # a classifier has one or the other
    areas = [roc_auc_score(said.truth == one, scores[:, one]) for one in there]
    if len(there) == classes:
        return float(np.mean(areas)), ""
    return float(np.mean(areas)), f"AUC is the mean over the {len(there)} of {classes} classes that test records have."


def _by_class(names: tuple[str, ...], said: Predicted) -> tuple[ClassScore, ...]:
    precisions, recalls, _, support = precision_recall_fscore_support(
        said.truth, said.named, labels=np.arange(len(names)), zero_division=np.nan
    )
    return tuple(
        ClassScore(name, int(number), few_digits(precision), few_digits(recall))
        for name, number, precision, recall in zip(names, support, precisions, recalls, strict=True)
    )


def _calibration(names: tuple[str, ...], truth: Ints, chances: Array) -> tuple[Calibration, float]:
    """Compare probabilities with what is so: of the second class if there are two, else of the class that is named."""
    if len(names) == 2:
        return _reliability(names[1], chances[:, 1], truth == 1)
    return _reliability(None, chances.max(axis=1), truth == chances.argmax(axis=1))


def _reliability(of: str | None, chance: Array, right: Mask) -> tuple[Calibration, float]:
    """Return the bins that have records, and by how much predicted and observed shares differ in the mean."""
    observed, predicted = calibration_curve(right, chance, pos_label=True, n_bins=CALIBRATION_BINS)
    edges = np.linspace(0.0, 1.0, CALIBRATION_BINS + 1)
    counts = np.bincount(np.searchsorted(edges[1:-1], chance), minlength=CALIBRATION_BINS)  # as calibration_curve does
    filled = np.flatnonzero(counts)
    error = float(np.average(np.abs(observed - predicted), weights=counts[filled]))
    bins = tuple(
        CalibrationBin(
            round(float(edges[j]), 1), round(float(edges[j + 1]), 1), int(counts[j]),
            coarse_share(guess, counts[j]), coarse_share(share, counts[j]),
        )
        for j, guess, share in zip(filled, predicted, observed, strict=True)
    )  # fmt: skip
    return Calibration(of, bins), error


def coarse_share(share: float, records: int) -> float:
    """Return a share with the digits that this many records support, so that no single record shows in it.

    >>> [coarse_share(0.8374, records) for records in (1, 100, 10_000)]
    [0.8, 0.84, 0.837]
    """
    return round(float(share), 1 + math.ceil(math.log10(records) / 2))


# --- numbers -----------------------------------------------------------------------------------------


def score_numbers(truth: Array, predicted: Array) -> Score:
    """Return the scores of a regression, and a histogram of its errors."""
    same = bool(truth.min() == truth.max())
    with np.errstate(over="ignore", invalid="ignore"):
        values = {
            "R²": None if same else r2_score(truth, predicted),
            "mean absolute error": mean_absolute_error(truth, predicted),
            "mean squared error": mean_squared_error(truth, predicted),
            "root mean squared error": root_mean_squared_error(truth, predicted),
        }
        errors = np.clip(predicted - truth, -LARGEST, LARGEST)
    said = {name: few_digits(value) for name, value in values.items()}
    notes = ["R² is undefined: all targets are equal."] if same else []
    if lost := [name for name, value in said.items() if value is None and not (same and name == "R²")]:
        notes.append(f"Targets or predictions are too large for these scores: {', '.join(lost)}.")
    widest = float(np.quantile(np.abs(errors), 0.98))
    edges = np.linspace(-1.0, 1.0, BINS + 1) * float(f"{widest or 1.0:.2g}")
    shares = np.histogram(np.clip(errors, edges[0], edges[-1]), edges)[0] / len(errors)
    return Score(
        "numbers", len(truth), tuple(said.items()), edges=tuple(edges.tolist()),
        shares=tuple(np.round(shares, 3).tolist()), notes=tuple(notes),
    )  # fmt: skip


def few_digits(value: float | None) -> float | None:
    """Return a score with four digits: a report is stored, and more digits would reveal the state of its day.

    What is not a finite number is None.

    >>> few_digits(0.84736912), few_digits(12345.6), few_digits(float("nan"))
    (0.8474, 12350.0, None)
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
