"""Train models from which people's records can be deleted exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expunge.base.lazy import lazily

if TYPE_CHECKING:
    from expunge.base.errors import (
        BadContribution,
        BadIterate,
        BadPlan,
        BadRecords,
        BusyStore,
        ClippedWarning,
        CorruptStore,
        DuplicateId,
        ExpungeError,
        FullStore,
        LogNotEmptied,
        NewerStore,
        NoiseWarning,
        NotAStore,
        NotAvailable,
        PlanWarning,
        RangeWarning,
        RankWarning,
        ReadOnlyStore,
        RequestFailed,
        SeedWarning,
        SizeWarning,
        StoreError,
        StoreWarning,
        Unfinished,
        UnknownId,
        UnknownParameter,
    )
    from expunge.base.intake import Delete, Insert, Replace
    from expunge.engine.changing import Change, change
    from expunge.engine.checks import check_exact
    from expunge.engine.learner import Learner, Transcript
    from expunge.engine.learning import learn, learn_with_outcome
    from expunge.engine.mechanisms.binary_tree import BinaryTree
    from expunge.engine.mechanisms.identity import Identity
    from expunge.engine.mechanisms.square_root import SquareRoot
    from expunge.engine.outcome import Outcome
    from expunge.engine.records.memory import MemoryRecords
    from expunge.engine.schedules import Arrival, Everyone, Scattered, Shuffled
    from expunge.engine.streams import apply
    from expunge.engine.verifying import Verification, verify
    from expunge.models import (
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        HuberRegressor,
        KMeans,
        LinearClassifier,
        LinearRegression,
        LinearRegressor,
        LinearSVC,
        LogisticRegression,
        PoissonRegressor,
        Ridge,
        Sampled,
    )
    from expunge.models.ingest import ingest
    from expunge.models.opening import open
    from expunge.models.pipelines import check_pipeline
    from expunge.models.preprocessing import BoundedScaler, bound_rows
    from expunge.models.requests import insert, replace, unlearn
    from expunge.solvers.count_losses import Poisson
    from expunge.solvers.domains import Ball, Box, Everywhere, L1Ball, Simplex
    from expunge.solvers.dual_averaging import DualAveragingRule
    from expunge.solvers.frank_wolfe import FrankWolfeRule, HybridGradient
    from expunge.solvers.gradient import Gradient
    from expunge.solvers.gradient_descent import GradientDescentRule
    from expunge.solvers.losses import (
        Hinge,
        Huber,
        Logistic,
        MulticlassHinge,
        Multinomial,
        SmoothedHinge,
        Squared,
        Weighted,
    )
    from expunge.solvers.per_record import PerRecord
    from expunge.solvers.plans.linear import Plan
    from expunge.solvers.robust_losses import ScaledHuber

__version__ = "0.1.0"

__all__ = [
    "Arrival", "BadContribution", "BadIterate", "BadPlan", "BadRecords", "Ball", "BinaryTree", "BoundedScaler",
    "Box", "BusyStore", "Change", "ClippedWarning", "CorruptStore", "Delete", "DualAveragingRule", "DuplicateId",
    "Everyone", "Everywhere", "ExpungeError", "FrankWolfeRule", "FullStore", "Gradient",
    "GradientBoostingClassifier", "GradientBoostingRegressor", "GradientDescentRule", "Hinge", "Huber",
    "HuberRegressor", "HybridGradient", "Identity", "Insert", "KMeans", "L1Ball", "Learner", "LinearClassifier",
    "LinearRegression", "LinearRegressor", "LinearSVC", "LogNotEmptied", "Logistic", "LogisticRegression",
    "MemoryRecords", "MulticlassHinge", "Multinomial", "NewerStore", "NoiseWarning", "NotAStore", "NotAvailable",
    "Outcome", "PerRecord", "Plan", "PlanWarning", "Poisson", "PoissonRegressor", "RangeWarning", "RankWarning",
    "ReadOnlyStore", "Replace", "RequestFailed", "Ridge", "Sampled", "ScaledHuber", "Scattered", "SeedWarning",
    "Shuffled", "Simplex", "SizeWarning", "SmoothedHinge", "SquareRoot", "Squared", "StoreError", "StoreWarning",
    "Transcript", "Unfinished", "UnknownId", "UnknownParameter", "Verification", "Weighted", "apply",
    "bound_rows", "change", "check_exact", "check_pipeline", "ingest", "insert", "learn", "learn_with_outcome",
    "open", "replace", "unlearn", "verify",
]  # fmt: skip

_HOMES = {
    "base.errors": (
        "BadContribution BadIterate BadPlan BadRecords BusyStore ClippedWarning CorruptStore DuplicateId ExpungeError "
        "FullStore LogNotEmptied NewerStore NoiseWarning NotAStore NotAvailable PlanWarning RangeWarning RankWarning "
        "ReadOnlyStore RequestFailed SeedWarning SizeWarning StoreError StoreWarning Unfinished UnknownId "
        "UnknownParameter"
    ),
    "engine.changing": "Change change",
    "engine.checks": "check_exact",
    "engine.learner": "Learner Transcript",
    "engine.learning": "learn learn_with_outcome",
    "engine.mechanisms.binary_tree": "BinaryTree",
    "engine.mechanisms.identity": "Identity",
    "engine.mechanisms.square_root": "SquareRoot",
    "engine.outcome": "Outcome",
    "engine.records.memory": "MemoryRecords",
    "base.intake": "Delete Insert Replace",
    "engine.schedules": "Arrival Everyone Scattered Shuffled",
    "engine.streams": "apply",
    "engine.verifying": "Verification verify",
    "models": (
        "GradientBoostingClassifier GradientBoostingRegressor HuberRegressor KMeans LinearClassifier LinearRegression "
        "LinearRegressor LinearSVC LogisticRegression PoissonRegressor Ridge Sampled"
    ),
    "models.ingest": "ingest",
    "models.opening": "open",
    "models.pipelines": "check_pipeline",
    "models.preprocessing": "BoundedScaler bound_rows",
    "models.requests": "insert replace unlearn",
    "solvers.domains": "Ball Box Everywhere L1Ball Simplex",
    "solvers.dual_averaging": "DualAveragingRule",
    "solvers.frank_wolfe": "FrankWolfeRule HybridGradient",
    "solvers.gradient": "Gradient",
    "solvers.gradient_descent": "GradientDescentRule",
    "solvers.count_losses": "Poisson",
    "solvers.robust_losses": "ScaledHuber",
    "solvers.losses": "Hinge Huber Logistic MulticlassHinge Multinomial SmoothedHinge Squared Weighted",
    "solvers.per_record": "PerRecord",
    "solvers.plans.linear": "Plan",
}
"""Where each public name is defined."""
_ROOMS = ("adapters", "audit", "engine", "federated", "models", "paper", "solvers", "store", "tables")

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(__name__, _HOMES, _ROOMS)
