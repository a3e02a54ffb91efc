"""How well a model predicts the records."""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.audit.scoring import score_on
from expunge.base.wording import percent
from expunge.cli.output import Report
from expunge.tables.schema.encoding import Encoded

_KEYS = {
    "accuracy": "accuracy",
    "accuracy of always naming the most frequent class": "largest_class",
    "R²": "r2",
    "mean absolute error": "mean_absolute_error",
    "mean squared distance to the centre": "mean_squared_distance",
}


def show_scores(report: Report, title: str, model: Any, block: Encoded) -> dict[str, Any]:
    """Print a model's scores on some records, and return them."""
    found = score_on(model, (block.X.astype(np.float64), block.y))
    said: dict[str, Any] = {
        "records": found.records,
        **{_KEYS[name]: value for name, value in found.values},
    }
    facts = {"records": f"{found.records:,}"}
    for name, value in found.values:
        facts[name] = percent(value) if name.startswith("accuracy") else f"{value:.4g}"
    report.facts(title, facts)
    counts = [list(row) for row in found.counts]
    if found.kind == "clusters":
        said["clusters"] = counts[0]
    elif counts:
        said |= {"classes": list(found.labels), "confusion": counts}
        if len(counts) <= 8:
            rows = [[name, *row] for name, row in zip(found.labels, counts, strict=True)]
            report.table("predicted, by true class", ["", *found.labels], rows)
    return said
