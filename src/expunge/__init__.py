"""Train models from which people's records can be deleted exactly."""

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
    ingest,
    open,
)
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
