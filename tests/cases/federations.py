"""Small federations that several tests use."""

from functools import cache

import numpy as np

from expunge.federated.federation import Federation
from expunge.solvers.plans.federated import ArrayType, plan_federation

WISHES = {
    "ann": [0.9, 0.2], "bob": [-0.4, 0.7], "cy": [0.1, -0.8], "dan": [0.5, 0.5], "eve": [3.0, -2.0]
}  # fmt: skip
TRIO = ("ann", "bob", "cy")


@cache
def planned(**more):
    """The plan of a model of two numbers."""
    given = {"clients": 4, "rounds": 4, "clip": 1.0, "rho": 0.5, "finish": None, **more}
    return plan_federation([ArrayType("w", (2,), "<f8")], **given)


def begun(names=TRIO, seed=0, **more):
    """A federation before its first round."""
    federation = Federation(planned(**more), np.zeros(2), np.random.default_rng(seed))
    federation.join(names)
    return federation


def answer(task):
    """What a client answers, always."""
    return np.array(WISHES[task.client]) * (1.0 + 0.1 * task.step) - 0.5 * task.model


def ask(federation, tasks):
    """Let clients answer."""
    return federation.receive([(task, answer(task)) for task in tasks])


def go(federation, rounds=None):
    """Make rounds, up to so many in all."""
    while federation.made < (federation.plan.rounds if rounds is None else rounds):
        ask(federation, federation.tasks())
        federation.advance()
    return federation


def join(federation, *names):
    """Let clients join in the middle."""
    federation.invite(names)
    ask(federation, federation.tasks_of_candidates())
    return federation.admit(names)


def state(federation):
    """All that is kept, as bytes that can be compared."""
    tables = federation.transcript
    held = {
        name: [federation.clients.held.has(client.slot, step) for step in range(federation.plan.rounds)]
        for name, client in federation.clients.members.items()
    }
    rows = [table[:].tobytes() for table in (tables.sums, tables.answers, tables.iterates)]
    return federation.made, sorted(federation.clients.members.values()), federation.candidates, held, rows
