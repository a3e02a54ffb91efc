"""How well a model predicts a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.cli.models import has_target
from expunge.cli.output import Report, percent
from expunge.errors import BadRecords
from expunge.schema import EncodedTables
from expunge.types import AnyArray


def encoded_test(tables: EncodedTables) -> tuple[AnyArray, AnyArray | None]:
    """Return features and targets of all records of some files."""
    block = tables.all()
    return block.X.astype(np.float64), block.y


def scores(model: Any, X: AnyArray, y: AnyArray | None) -> dict[str, Any]:
    """Return a model's scores on some records."""
    if not len(X):
        raise BadRecords("there are no records; give at least one.")
    if not has_target(model):
        centers = model.cluster_centers_
        found = model.predict(X)
        return {
            "records": len(X),
            "inertia_per_record": float(((X - centers[found]) ** 2).sum() / len(X)),
            "clusters": np.bincount(found, minlength=len(centers)).tolist(),
        }
    assert y is not None
    predicted = model.predict(X)
    if hasattr(model, "classes_"):
        return _class_scores(model, X, y, predicted)
    errors = predicted - y
    spread = float(((y - y.mean()) ** 2).sum())
    return {
        "records": len(X),
        "r2": 1.0 - float((errors**2).sum()) / spread if spread else None,
        "mean_absolute_error": float(np.abs(errors).mean()),
    }


def _class_scores(model: Any, X: AnyArray, y: AnyArray, predicted: AnyArray) -> dict[str, Any]:
    classes = model.classes_.tolist()
    table = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(table, (np.searchsorted(model.classes_, y), np.searchsorted(model.classes_, predicted)), 1)
    found: dict[str, Any] = {"records": len(X), "accuracy": float((predicted == y).mean())}
    found["largest_class"] = float(table.sum(axis=1).max() / len(X))
    if hasattr(model, "predict_proba"):
        chances = model.predict_proba(X)[np.arange(len(X)), np.searchsorted(model.classes_, y)]
        found["log_loss"] = float(-np.log(np.maximum(chances, 1e-15)).mean())
    return {**found, "classes": classes, "confusion": table.tolist()}


def show_scores(report: Report, title: str, found: dict[str, Any]) -> None:
    """Print scores."""
    facts: dict[str, Any] = {"records": f"{found['records']:,}"}
    if "accuracy" in found:
        facts["accuracy"] = percent(found["accuracy"])
        facts["always the largest class"] = percent(found["largest_class"])
    names = {"log_loss": "log loss", "r2": "R²", "mean_absolute_error": "mean absolute error",
             "inertia_per_record": "inertia per record"}  # fmt: skip
    facts |= {text: f"{found[name]:.4g}" for name, text in names.items() if found.get(name) is not None}
    report.facts(title, facts)
    if "confusion" in found and len(found["classes"]) <= 8:
        rows = [[name, *row] for name, row in zip(found["classes"], found["confusion"], strict=True)]
        report.table("predicted, by true class", ["", *map(str, found["classes"])], rows)
