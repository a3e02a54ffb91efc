"""What goes together in a plan, and what to change where something does not."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from expunge.base.checking import check_one_of, check_positive, check_rho, is_number
from expunge.base.errors import BadPlan
from expunge.base.norms import NORMS

Solver = Literal["dual_averaging", "frank_wolfe", "gradient_descent"]
Region = Literal["everywhere", "l2", "l1"]
When = Literal["scattered", "shuffled", "arrival", "everyone"]
Noise = Literal["sqrt", "tree", "anytime", "halving", "identity"]
Coupling = Literal["joint", "sequential", "adaptive"]
Selected = Literal["tail", "average", "last"]
STEP_SIZES = ("theorem", "paper", "anytime")
"""Step sizes of dual averaging that have a name."""


def check_loss(loss: Any) -> None:
    """Raise if a loss lacks something."""
    lacking = [n for n in ("outputs", "lipschitz", "smoothness", "value", "derivative") if not hasattr(loss, n)]
    if lacking:
        raise BadPlan(
            f"loss: {type(loss).__name__} has no {', '.join(lacking)}; see docs/estimators.md for a loss of your own."
        )


def check_each(given: dict[str, Any]) -> None:
    """Raise if a choice makes no sense by itself."""
    for name, allowed in (
        ("solver", Solver), ("schedule", When), ("mechanism", Noise), ("coupling", Coupling), ("selector", Selected),
        ("domain", Region),
    ):  # fmt: skip
        if not (given[name] is None and name in ("coupling", "domain")):
            check_one_of(name, given[name], allowed)
    check_positive("records_per_subject", given["records_per_subject"], whole=True)
    check_positive("feature_norm", given["feature_norm"])
    if not NORMS[0] <= given["feature_norm"] <= NORMS[1]:
        raise BadPlan(f"feature_norm={given['feature_norm']!r}: give a number from {NORMS[0]:g} to {NORMS[1]:g}.")
    if not isinstance(given["fit_intercept"], (bool, np.bool_)):
        raise BadPlan(f"fit_intercept={given['fit_intercept']!r}: give True or False.")
    check_positive("alpha", given["alpha"], zero=True)
    for name, whole in (("steps", True), ("batch", True), ("epochs", True), ("horizon", True), ("radius", False)):
        if given[name] is not None:
            check_positive(name, given[name], whole=whole)
    if given["step_size"] not in (None, *STEP_SIZES):
        check_positive("step_size", given["step_size"])
    rate = given["rate"]
    if not (is_number(rate) and 0.0 < rate <= 1.0):
        raise BadPlan(f"rate={rate!r}: give a probability above 0 and at most 1.")
    if given["clip"] is not None:
        check_positive("clip", given["clip"])
    check_rho(given["rho"])


def check_together(given: dict[str, Any]) -> None:
    """Raise if two choices do not go together."""
    steps, batch, epochs = given["steps"], given["batch"], given["epochs"]
    if steps is not None and batch is not None:
        raise BadPlan(f"steps={steps} and batch={batch}: give one of them; the other follows.")
    if epochs is not None and epochs > 1 and given["schedule"] != "scattered":
        raise BadPlan(f"epochs={epochs} needs schedule='scattered': there a record has one place in all epochs.")
    if given["horizon"] is not None and given["schedule"] in ("scattered", "everyone"):
        raise BadPlan(
            f"horizon={given['horizon']} with schedule={given['schedule']!r}: there the number of steps is fixed, "
            "and ρ holds for any number of records. Leave horizon out."
        )
    if given["coupling"] == "sequential" and given["mechanism"] == "sqrt" and given["solver"] != "gradient_descent":
        raise BadPlan("coupling='sequential' needs mechanism='tree': with 'sqrt' nearly every deletion would replay.")
    if given["solver"] == "frank_wolfe" and given["domain"] == "everywhere":
        raise BadPlan("solver='frank_wolfe' needs a bounded domain: use domain='l2' or 'l1'.")
    _check_descent(given)
    if given["n_components"] is not None and given["schedule"] == "arrival":
        raise BadPlan(
            "n_components with schedule='arrival': the number of projections follows the number of records, which a "
            "stream changes. Use schedule='scattered', or leave n_components out."
        )


def _check_descent(given: dict[str, Any]) -> None:
    """Raise if choices do not go together with gradient descent, or need it."""
    descent = given["solver"] == "gradient_descent"
    for name, needs in (("schedule", "everyone"), ("mechanism", "identity"), ("coupling", "adaptive")):
        if given[name] == needs and not descent:
            raise BadPlan(f"{name}={needs!r} needs solver='gradient_descent'.")
    if not descent:
        if given["rate"] != 1.0:
            raise BadPlan(f"rate={given['rate']!r} needs solver='gradient_descent': only its rounds visit everyone.")
        return
    for name, goes in (("schedule", ("scattered", "everyone")), ("mechanism", ("sqrt", "identity"))):
        if given[name] not in goes:
            raise BadPlan(
                f"{name}={given[name]!r} with solver='gradient_descent', which has its own, {goes[1]!r}: leave it out."
            )
    if given["coupling"] == "joint":
        raise BadPlan("coupling='joint' with solver='gradient_descent': use 'adaptive' or 'sequential'.")
    if given["batch"] is not None:
        raise BadPlan("batch with solver='gradient_descent': say by rate how many of the records join a round.")
    if given["epochs"] not in (None, 1):
        raise BadPlan("epochs with solver='gradient_descent': say by steps how many rounds there are.")
    if given["step_size"] in STEP_SIZES:
        raise BadPlan(f"step_size={given['step_size']!r} is dual averaging's: give a number, or leave it out.")
