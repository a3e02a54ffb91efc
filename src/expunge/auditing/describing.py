"""What a model is, in words: its plan line by line, its receipts, and what a drawing needs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from expunge.accounting import FOREVER
from expunge.auditing.findings import Activity, Drawing, Facts, PlanLine, ReceiptLine
from expunge.clustering import ClusterPlan
from expunge.least_squares import RidgePlan
from expunge.planning import Plan

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


def plan_lines(plan: Any) -> tuple[PlanLine, ...]:
    """Return a plan line by line."""
    match plan:
        case Plan():
            lines = _of_steps(plan)
        case ClusterPlan():
            lines = _of_clusters(plan)
        case RidgePlan():
            lines = _of_sums(plan)
        case _:
            lines = []
    return tuple(PlanLine(*line) for line in lines)


_SCHEDULES = {
    "scattered": "each record (or all of a person's) lies at a place drawn by lot",
    "shuffled": "records lie in an order drawn by lot",
    "arrival": "records lie in the order in which they came: the law is that of training in the stored order",
    "everyone": "every record takes part in every round",
}
_MECHANISMS = {
    "sqrt": "each answer has a little of the noise of every step before it",
    "tree": "noise on the nodes of a binary tree; an answer has that of a few",
    "anytime": "a binary tree whose noise holds for however many records",
    "halving": "a binary tree with the noise shares of the paper",
    "identity": "each round has noise of its own",
}
_COUPLINGS = {
    "joint": "one look at all later noise decides whether the model is kept",
    "sequential": "noise is looked at row by row",
    "adaptive": "one decision for all rounds, from a budget fixed beforehand",
}
_SOLVERS = {
    "dual_averaging": "steps along the noisy sum of all gradients",
    "frank_wolfe": "mixes of corners of a bounded region",
    "gradient_descent": "steps along the noisy gradient of a round",
}
_SELECTORS = {
    "tail": "the model is the mean of the later half of the path",
    "average": "the model is the mean of the path",
    "last": "the model is the end of the path",
}


def _of_steps(plan: Plan) -> list[tuple[str, str, str]]:
    rounds = plan.schedule == "everyone"
    lines = [
        *_common(plan),
        ("loss", _loss(plan.loss), "what training makes small"),
        ("solver", plan.solver, _SOLVERS[plan.solver]),
        ("schedule", plan.schedule, _SCHEDULES[plan.schedule]),
        ("mechanism", plan.mechanism, _MECHANISMS[plan.mechanism]),
        ("coupling", plan.coupling, _COUPLINGS[plan.coupling]),
        ("selector", plan.selector, _SELECTORS[plan.selector]),
        ("rounds" if rounds else "steps", f"{plan.steps:,}", "as planned" if rounds else "in one pass, as planned"),
        ("records in a step", f"{plan.batch:,}", "about so many"),
    ]
    if rounds:
        lines.append(("rate", f"{plan.rate:g}", "the chance that a record joins a round"))
    else:
        lines.append(("epochs", f"{plan.epochs:,}", "how often the records are gone through"))
    lines += [
        ("feature_norm", f"{plan.feature_norm:g}", "longer rows are scaled down to this"),
        ("clip", "none" if plan.clip is None else f"{plan.clip:g}", "slopes longer than this are shortened"),
        ("bound", f"{plan.bound:.4g}", "the largest norm of one record's contribution"),
        ("domain", plan.domain, "where the parameters may lie"),
        ("alpha", f"{plan.alpha:g}", "weight of the penalty"),
        ("projection", f"to {plan.features:,} columns" if plan.projected else "none", "by a random matrix"),
    ]
    return lines


def _of_clusters(plan: ClusterPlan) -> list[tuple[str, str, str]]:
    return [
        *_common(plan),
        ("clusters", f"{plan.clusters:,}", "how many centres the model has"),
        ("rounds", f"{plan.rounds:,}", f"of which {plan.explore:,} explore, before centres are merged"),
        ("schedule", "everyone", _SCHEDULES["everyone"]),
        ("mechanism", "identity", _MECHANISMS["identity"]),
        ("coupling", plan.coupling, _COUPLINGS[plan.coupling]),
        ("region", str(plan.extent), "where points can lie, as declared"),
        ("bound", f"{plan.bound:.4g}", "the largest norm of one point's contribution"),
    ]


def _of_sums(plan: RidgePlan) -> list[tuple[str, str, str]]:
    bounds = sorted(set(plan.feature_bounds))
    shown = f"{bounds[0]:g}" if len(bounds) == 1 else f"{bounds[0]:g} to {bounds[-1]:g}"
    return [
        ("noise σ", "0", "sums are exact: a record is subtracted without a trace, and no deletion trains again"),
        ("alpha", f"{plan.alpha:g}", "weight of the penalty"),
        ("intercept", "yes" if plan.fit_intercept else "no", "whether there is one"),
        ("feature_bound", shown, "the largest number a column may hold"),
        ("target_bound", f"{plan.target_bound:g}", "the largest target"),
        ("good for", f"up to {plan.largest:,} records", "more could not be summed exactly"),
    ]


def _common(plan: Plan | ClusterPlan) -> list[tuple[str, str, str]]:
    low, high = plan.size_class
    horizon = "any number of records" if plan.horizon >= FOREVER else f"up to {plan.horizon:,} records"
    return [
        ("ρ", f"{plan.rho:g}", "how often, at most, a deletion trains a part again (1: always, without noise)"),
        ("noise σ", f"{plan.sigma:.4g}", "standard deviation of the noise on sums"),
        ("rounding", _rounding(plan), "by how much arithmetic can change the law of what is stored (total variation)"),
        ("planned for", f"{plan.records:,} records", "rounded up to a power of two"),
        ("good for", f"{low:,} to {high:,} records", f"ρ holds for {horizon}"),
        ("records per person", f"{plan.records_per_subject:,}", "at most so many, counted in the noise"),
    ]


def _rounding(plan: Plan | ClusterPlan) -> str:
    return f"at most {plan.rounding_error:.1g} a request" if plan.sigma else "none"


def _loss(loss: Any) -> str:
    return repr(loss) if type(loss).__module__ == "expunge.losses" else type(loss).__name__


def drawing_of(plan: Any) -> Drawing | None:
    """Return what a drawing needs to know of a plan."""
    match plan:
        case Plan():
            kind: Literal["steps", "rounds"] = "rounds" if plan.schedule == "everyone" else "steps"
            return Drawing(
                kind, plan.schedule, plan.mechanism, plan.steps, plan.epochs, plan.batch, plan.rate, plan.sigma > 0.0
            )
        case ClusterPlan():
            return Drawing("rounds", "everyone", "identity", plan.rounds, 1, plan.records, 1.0, plan.sigma > 0.0)
        case RidgePlan():
            return Drawing("sums", "everyone", "identity", 1, 1, 0, 1.0, False)
        case _:
            return None


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
