"""Train models from which people's records can be deleted exactly."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expunge.domains import Ball, Everywhere
    from expunge.engine import (
        Change,
        Learner,
        Outcome,
        Transcript,
        Verification,
        change,
        insert,
        learn,
        learn_with_outcome,
        replace,
        unlearn,
        verify,
    )
    from expunge.estimators import (
        HuberRegressor,
        KMeans,
        LinearRegression,
        LinearSVC,
        LogisticRegression,
        Ridge,
    )
    from expunge.estimators.ingest import ingest
    from expunge.estimators.opening import open
    from expunge.mechanisms import BinaryTree, Identity, SquareRoot
    from expunge.memory import MemoryRecords
    from expunge.pipelines import check_pipeline
    from expunge.planning import Plan
    from expunge.queries import Gradient, HybridGradient, PerRecord
    from expunge.records import Delete, Insert, Replace
    from expunge.rules import DualAveraging, FrankWolfe, GradientDescent
    from expunge.schedules import Arrival, Everyone, Scattered, Shuffled

__version__ = "0.1.0"

__all__ = [
    "Arrival", "Ball", "BinaryTree", "Change", "Delete", "DualAveraging", "Everyone", "Everywhere", "FrankWolfe",
    "Gradient", "GradientDescent", "HuberRegressor", "HybridGradient", "Identity", "Insert", "KMeans", "Learner",
    "LinearRegression", "LinearSVC", "LogisticRegression", "MemoryRecords", "Outcome", "PerRecord", "Plan",
    "Replace", "Ridge", "Scattered", "Shuffled", "SquareRoot", "Transcript", "Verification", "change", "check_pipeline",
    "ingest", "insert", "learn", "learn_with_outcome", "open", "replace", "unlearn", "verify",
]  # fmt: skip

_HOMES = {
    "domains": "Ball Everywhere",
    "engine": "Change Learner Outcome Transcript Verification change insert learn learn_with_outcome replace unlearn "
    "verify",
    "estimators": "HuberRegressor KMeans LinearRegression LinearSVC LogisticRegression Ridge ingest open",
    "mechanisms": "BinaryTree Identity SquareRoot",
    "memory": "MemoryRecords",
    "pipelines": "check_pipeline",
    "planning": "Plan",
    "queries": "Gradient HybridGradient PerRecord",
    "records": "Delete Insert Replace",
    "rules": "DualAveraging FrankWolfe GradientDescent",
    "schedules": "Arrival Everyone Scattered Shuffled",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
_MODULES = {
    *_HOMES, "accounting", "auditing", "checks", "errors", "federated", "forecast", "losses", "preprocessing",
    "requests", "schema", "store",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what is asked for: the command line answers at once where it needs no scikit-learn."""
    if name in _HOME:
        value = getattr(import_module(f"expunge.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"expunge.{name}")
    else:
        raise AttributeError(f"module 'expunge' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
