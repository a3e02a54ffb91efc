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
from expunge.mechanisms import BinaryTree, Identity, SquareRoot
from expunge.memory import MemoryRecords
from expunge.queries import Gradient, PerRecord
from expunge.records import Delete, Insert, Replace
from expunge.rules import DualAveraging, GradientDescent
from expunge.schedules import Arrival, Everyone, Scattered, Shuffled

__version__ = "0.1.0"

__all__ = [
    "Arrival", "Ball", "BinaryTree", "Change", "Delete", "DualAveraging", "Everyone", "Everywhere", "Gradient",
    "GradientDescent", "Identity", "Insert", "Learner", "MemoryRecords", "Outcome", "PerRecord", "Replace",
    "Scattered", "Shuffled", "SquareRoot", "Transcript", "Verification", "change", "insert", "learn",
    "learn_with_outcome", "replace", "unlearn", "verify",
]  # fmt: skip
