"""What plans have in common when they are put into words."""

from __future__ import annotations

from typing import Any, Protocol

from expunge.engine.accounting import FOREVER
from expunge.solvers.losses import KNOWN
from expunge.solvers.plans.protocol import AnyPlan, Line

SCHEDULES = {
    "scattered": "each record (or all of a person's) lies at a place drawn by lot",
    "shuffled": "records lie in an order drawn by lot",
    "arrival": "records lie in the order in which they came: the law is that of training in the stored order",
    "everyone": "every record takes part in every round",
}
MECHANISMS = {
    "sqrt": "each answer has a little of the noise of every step before it",
    "tree": "noise on the nodes of a binary tree; an answer has that of a few",
    "anytime": "a binary tree whose noise holds for however many records",
    "halving": "a binary tree with the noise shares of the paper",
    "identity": "each round has noise of its own",
}
COUPLINGS = {
    "joint": "one look at all later noise decides whether the model is kept",
    "sequential": "noise is looked at row by row",
    "adaptive": "one decision for all rounds, from a budget fixed beforehand",
}
SOLVERS = {
    "dual_averaging": "steps along the noisy sum of all gradients",
    "frank_wolfe": "mixes of corners of a bounded region",
    "gradient_descent": "steps along the noisy gradient of a round",
}
SELECTORS = {
    "tail": "the model is the mean of the later half of the path",
    "average": "the model is the mean of the path",
    "last": "the model is the end of the path",
}


class Planned(AnyPlan, Protocol):
    """A plan for about so many records."""

    @property
    def records(self) -> int:
        """How many were planned for."""

    @property
    def records_per_subject(self) -> int:
        """How many of them a subject may have."""

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many it is good for."""

    @property
    def horizon(self) -> int:
        """Up to how many ρ holds."""


def noise_lines(plan: Planned) -> list[Line]:
    """Return what is to be said of noise, and of how many records it is for."""
    low, high = plan.size_class
    horizon = "any number of records" if plan.horizon >= FOREVER else f"up to {plan.horizon:,} records"
    rounding = f"at most {plan.rounding_error:.1g} a request" if plan.sigma else "none"
    return [
        Line("ρ", f"{plan.rho:g}", "how often, at most, a deletion trains a part again (1: always, without noise)"),
        Line("noise σ", f"{plan.sigma:.4g}", "standard deviation of the noise on sums"),
        Line(
            "rounding", rounding, "by how much arithmetic can change the law of what is stored (total variation)"
        ),
        Line("planned for", f"{plan.records:,} records", "rounded up to a power of two"),
        Line("good for", f"{low:,} to {high:,} records", f"ρ holds for {horizon}"),
        Line("records per person", f"{plan.records_per_subject:,}", "at most so many, counted in the noise"),
    ]  # fmt: skip


def loss_in_words(loss: Any) -> str:
    """Return a loss with its parameters; of a user's own only the name, since nobody knows what it would print."""
    return repr(loss) if type(loss) in KNOWN else type(loss).__name__
