"""The complete state of a federation as numbers, for two-sample tests of its law (`check_same_law`)."""

from __future__ import annotations

import numpy as np

from expunge.base.types import Array
from expunge.federated.federation import Federation


def state_of(federation: Federation) -> Array:
    """Return all that is kept of a federation whose rounds are made, as one row of numbers."""
    clients, transcript, plan = federation.clients, federation.transcript, federation.plan
    members = [clients.members[name] for name in federation.members]
    steps = range(federation.made)
    parts = [[member.slot for member in members]]
    if plan.schedule.rate < 1.0:
        parts += [[bool(clients.rounds_of(member, [step])) for member in members] for step in steps]
    held = []
    for member in members:
        numbers = np.zeros((federation.made, plan.query.size))
        joined = clients.rounds_of(member, steps)
        if joined:
            numbers[joined] = clients.held.history(member.slot, joined) * plan.query.unit
        held.append(numbers.ravel())
    sums, answers = transcript.sums[:], transcript.answers[:]
    tables = [answers - sums, sums, answers, transcript.iterates[:], federation.model()]
    return np.concatenate([*parts, *held, *(table.ravel() for table in tables)], dtype=float)


def names_of(federation: Federation) -> list[str]:
    """Return a name for each number of `state_of`; those of the schedule begin with @."""
    plan, members, steps = federation.plan, federation.members, range(federation.made)
    names = [f"slot({name})" for name in members]
    if plan.schedule.rate < 1.0:
        names += [f"@joins({name},{step})" for step in steps for name in members]
    names += [f"sum of {name}[{step},{j}]" for name in members for step in steps for j in range(plan.query.size)]
    for kind in ("noise", "sum", "answer"):
        names += [f"{kind}[{step},{j}]" for step in steps for j in range(plan.query.size)]
    names += [f"w[{step},{j}]" for step in steps for j in range(plan.parameters)]
    return names + [f"model[{j}]" for j in range(plan.parameters)]
