"""What plans have in common when they are put into words."""

from __future__ import annotations

from typing import Any, Protocol

from expunge.engine.accounting import FOREVER
from expunge.solvers.losses import KNOWN
from expunge.solvers.plans.protocol import AnyPlan, Line

SCHEDULES = {
    "scattered": "each record (or all of a person's records) is at a random place",
    "shuffled": "records are in random order",
    "arrival": "records are in the order in which they came: the distribution is that of training in the stored order",
    "everyone": "every record takes part in every round",
}
MECHANISMS = {
    "sqrt": "each answer has a little of the noise of every step before it",
    "tree": "noise on the nodes of a binary tree; an answer has the noise of a few nodes",
    "anytime": "a binary tree whose noise is enough for any number of records",
    "halving": "a binary tree with the noise shares of the paper",
    "identity": "each round has its own noise",
}
COUPLINGS = {
    "joint": "one decision from all later noise: keep the model, or replay",
    "sequential": "one decision for each row of noise",
    "adaptive": "one decision for all rounds, from a budget fixed beforehand",
}
SOLVERS = {
    "dual_averaging": "steps along the noisy sum of all gradients",
    "frank_wolfe": "mixes of corners of a bounded region",
    "gradient_descent": "steps along the noisy gradient of a round",
}
SELECTORS = {
    "tail": "the model is the mean of the second half of the iterates",
    "average": "the model is the mean of all iterates",
    "last": "the model is the last iterate",
}


class Planned(AnyPlan, Protocol):
    """A plan for about this many records."""

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
        Line("ρ", f"{plan.rho:g}", (
            "the largest probability that a deletion trains a part again (1: always, without noise)"
        )),
        Line("noise σ", f"{plan.sigma:.4g}", "standard deviation of the noise on sums"),
        Line(
            "rounding", rounding, "how much arithmetic can change the distribution of what is stored (total variation)"
        ),
        Line("planned for", f"{plan.records:,} records", "rounded up to a power of two"),
        Line("good for", f"{low:,} to {high:,} records", f"ρ holds for {horizon}"),
        Line("records per person", f"{plan.records_per_subject:,}", "the most allowed; the noise accounts for it"),
    ]  # fmt: skip


def loss_in_words(loss: Any) -> str:
    """Return a loss with its parameters; of a user's own only the name, since nobody knows what it would print."""
    return repr(loss) if type(loss) in KNOWN else type(loss).__name__
