"""What a model is, in words: its plan line by line, and its receipts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from expunge.audit.findings import Activity, Facts, PlanLine, ReceiptLine
from expunge.solvers.plans.protocol import ModelPlan

MOST_CLASSES = 30
MOST_RECEIPTS = 50
SHORT = 12
"""How many digits of a hash are shown."""


def facts_of(model: Any, path: Path, exported: dict[str, Any] | None) -> Facts:
    """Return what the model is."""
    state = model._store.state
    schema = getattr(model, "schema_", None)
    confirmed: Literal["none", "confirmed", "not confirmed"] = "none"
    if schema is not None:
        confirmed = "confirmed" if getattr(schema, "confirmed", False) else "not confirmed"
    classes = [str(name) for name in getattr(model, "classes_", [])]
    if len(classes) > MOST_CLASSES:
        classes[MOST_CLASSES:] = [f"… and {len(classes) - MOST_CLASSES:,} more"]
    return Facts(
        file=path.name,
        bytes=path.stat().st_size,
        model=model._store.description.model,
        records=model.n_records_,
        features=int(model.n_features_in_),
        parameters=int(model.plan_.learner.rule.start.size),
        classes=tuple(classes),
        store=state.store,
        version=state.version,
        receipts=state.receipts,
        head=None if exported is None else exported["head"],
        schema=confirmed,
        plan=plan_lines(model.plan_),
    )


def plan_lines(plan: ModelPlan) -> tuple[PlanLine, ...]:
    """Return a plan line by line."""
    return tuple(PlanLine(*line) for line in plan.lines())


# --- receipts ----------------------------------------------------------------------------------------


def activity_of(exported: dict[str, Any]) -> tuple[Activity, ...]:
    """Return what receipts say of each day, by kind of request."""
    requests, removed, added = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for receipt in exported["receipts"]:
        key = receipt["day"], receipt["kind"]
        requests[key] += 1
        removed[key] += receipt["removed"]
        added[key] += receipt["added"]
    return tuple(Activity(*key, requests[key], removed[key], added[key]) for key in sorted(requests))


def last_receipts(exported: dict[str, Any]) -> tuple[ReceiptLine, ...]:
    """Return the last receipts, in short."""
    receipts = exported["receipts"]
    first = max(0, len(receipts) - MOST_RECEIPTS)
    return tuple(
        ReceiptLine(
            number + 1, one["day"], one["kind"], one["named_by"], len(one["digests"]), one["removed"], one["added"],
            one["version"], one["request"][:SHORT], one["hash"][:SHORT], one["signature"] is not None,
        )
        for number, one in enumerate(receipts[first:], first)
    )  # fmt: skip
