"""How well a model predicts the records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from expunge.audit.findings import Calibration, ClassScore, Score
from expunge.audit.score_tables import largest_classes, probability_of, share_or_dash
from expunge.audit.scoring import said_value, score_blocks
from expunge.cli.output import Report
from expunge.tables.schema.encoding import Encoded

_KEYS = {
    "accuracy": "accuracy",
    "accuracy of always naming the most frequent class": "largest_class",
    "AUC": "auc",
    "AUC, mean of each class against the rest": "auc",
    "log-loss": "log_loss",
    "expected calibration error": "expected_calibration_error",
    "R²": "r2",
    "mean absolute error": "mean_absolute_error",
    "mean squared error": "mean_squared_error",
    "root mean squared error": "root_mean_squared_error",
    "mean squared distance to the centre": "mean_squared_distance",
}
MOST_CLASSES = 8
"""How many classes a table of predictions has at most."""
MOST_LINES = 20
"""How many classes a table of precision and recall has at most."""


def show_scores(report: Report, title: str, model: Any, blocks: Iterable[Encoded]) -> dict[str, Any]:
    """Print a model's scores on some records, and return them. Blocks are read one by one, and not kept."""
    found = score_blocks(model, ((block.X.astype(np.float64), block.y) for block in blocks))
    values = {name: said_value(name, value) for name, value in found.values}
    report.facts(title, {"records": f"{found.records:,}", **values})
    said: dict[str, Any] = {"records": found.records, **{_KEYS[name]: value for name, value in found.values}}
    counts = [list(row) for row in found.counts]
    if found.kind == "clusters":
        said["clusters"] = counts[0]
    elif found.kind == "classes":
        said |= {"classes": list(found.labels), "confusion": counts}
        said["by_class"] = [asdict(one) for one in found.classes]
        _show_classes(report, found)
    if found.calibration is not None:
        said["calibration"] = asdict(found.calibration)
        _show_calibration(report, found.calibration)
    for note in found.notes:
        report.note(note)
    return said


def _show_classes(report: Report, found: Score) -> None:
    if len(found.counts) <= MOST_CLASSES:
        rows = [[name, *row] for name, row in zip(found.labels, found.counts, strict=True)]
        report.table("predicted, by true class", ["", *found.labels], rows)
    kept = largest_classes(found.classes, MOST_LINES)
    title = "precision and recall, by class"
    if len(kept) < len(found.classes):
        title += f" (the {len(kept)} of {len(found.classes):,} with the most records; --json has all)"
    report.table(title, ("class", "records", "precision", "recall"), map(_line, kept), "records precision recall")


def _line(one: ClassScore) -> list[str]:
    return [one.label, f"{one.records:,}", share_or_dash(one.precision), share_or_dash(one.recall)]


def _show_calibration(report: Report, calibration: Calibration) -> None:
    report.table(
        f"calibration: the {probability_of(calibration)}",
        ("predicted probability", "records", "mean", "observed"),
        [
            (f"{one.low:.1f} to {one.high:.1f}", f"{one.records:,}", f"{one.predicted:g}", f"{one.observed:g}")
            for one in calibration.bins
        ],
        "records mean observed",
    )
