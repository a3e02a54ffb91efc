"""Federated averaging from which clients leave exactly; its Flower strategy needs ``expunge[federated]``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from expunge.base.errors import BadPlan
from expunge.federated.federation import Federation, Received, Task
from expunge.federated.files import create, load
from expunge.federated.stored import StoredFederation, open
from expunge.solvers.plans.federated import ArrayType, FederatedPlan, plan_federation

if TYPE_CHECKING:
    from expunge.federated.client import identified
    from expunge.federated.strategy import ForgettingFedAvg

__all__ = [
    "ArrayType", "FederatedPlan", "Federation", "ForgettingFedAvg", "Received", "StoredFederation", "Task", "create",
    "identified", "load", "open", "plan_federation",
]  # fmt: skip

_WITH_FLOWER = {"ForgettingFedAvg": "strategy", "identified": "client"}


def __getattr__(name: str) -> Any:
    """Import what needs Flower when it is asked for."""
    if name not in _WITH_FLOWER:
        raise AttributeError(f"module 'expunge.federated' has no attribute {name!r}")
    try:
        return getattr(import_module(f"expunge.federated.{_WITH_FLOWER[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "flwr":
            raise
        raise BadPlan(f"{name} needs Flower; install it with pip install 'expunge[federated]'.") from error
