"""How federations on the digits are run, and with which settings.

    python benchmarks/federated/digits_settings.py

For each number of clients and each ρ it tries rounds, clips and selectors, on images held out from the training part,
and prints what does best: this is what `SETTINGS` has. `EXACT` is for an exact last round: no clip, and as many rounds
as there may be, since more have never hurt (their accuracies are printed, too). One round needs no noise and asks
nobody again, whatever ρ is, so that it is no choice here; 1,000 clients have at most ten rounds, for the time it takes.
About ten minutes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from rich.progress import track

from benchmarks.federated.digits_data import CLASSES, FEATURES, PARAMETERS, Clients, accuracy, load, share_out
from benchmarks.smoke import parser_of, sized
from expunge.base.types import Array
from expunge.engine.couplings.common import replay_probability
from expunge.engine.selectors import SELECTORS
from expunge.federated.federation import Federation
from expunge.solvers.plans.federated import ArrayType, FederatedPlan, FederatedSelector, Finish, plan_federation

NUMBERS: tuple[int, ...] = sized((20, 100, 1000), (20,))
RHOS: tuple[float, ...] = sized((1.0, 0.5, 0.2, 0.1), (1.0, 0.5))
STEPS, RATE = 50, 16.0
"""Local training: long, since noise does not grow with it."""
ROUNDS: tuple[int, ...] = sized((2, 3, 5, 10, 20), (2,))
CLIPS: tuple[float, ...] = sized((10.0, 15.0, 20.0, 30.0), (10.0,))
WIDE = 1000.0
"""A clip that no update reaches."""
MOST_ROUNDS = {20: 20, 100: 20, 1000: 10}
PLAIN_ROUNDS = sized(40, 2)
"""Rounds of plain averaging, without clip and noise."""


@dataclass(frozen=True)
class Setting:
    """What is chosen for a number of clients and a ρ."""

    rounds: int
    clip: float
    selector: FederatedSelector = "last"
    steps: int = STEPS
    rate: float = RATE
    finish: Finish | None = None

    def plan(self, clients: int, rho: float) -> FederatedPlan:
        """Return the plan of a federation."""
        arrays = [ArrayType("weights", (FEATURES, CLASSES), "<f8")]
        return plan_federation(
            arrays, clients=clients, rounds=self.rounds, clip=self.clip, rho=rho, selector=self.selector,
            finish=self.finish,
        )  # fmt: skip


class Work(NamedTuple):
    """What it took to make rounds."""

    asked: int
    """How many updates of clients."""
    seconds: float
    """The server's part of the time."""


class Host:
    """A federation and its clients, who answer all at once."""

    def __init__(self, clients: Clients, members: Sequence[int], setting: Setting, plan: FederatedPlan, seed: int):
        self.clients = clients
        self.setting = setting
        self.plan = plan
        self.federation = Federation(plan, np.zeros(PARAMETERS), np.random.default_rng([seed, len(members)]))
        self.federation.join([str(member) for member in members])

    def finish(self) -> Work:
        """Make all rounds that are still to be made."""
        asked, seconds = 0, 0.0
        while not self.federation.finished:
            began = time.perf_counter()
            tasks = self.federation.tasks()
            seconds += time.perf_counter() - began
            numbers = [int(task.client) for task in tasks]
            model, setting = self.federation.newest, self.setting
            updates = self.clients.updates(numbers, model, setting.steps, setting.rate)
            began = time.perf_counter()
            self.federation.receive(list(zip(tasks, updates, strict=True)))
            self.federation.advance()
            seconds += time.perf_counter() - began
            asked += len(tasks)
        return Work(asked, seconds)

    @property
    def retraining(self) -> int:
        """How many updates of its members training takes."""
        clients, rounds = self.federation.clients, range(self.plan.rounds)
        return sum(len(clients.rounds_of(client, rounds)) for client in clients.members.values())

    def chance_of_change(self, member: str) -> float:
        """Return how probable it is, given what a member has contributed, that rounds are repeated when it leaves."""
        if self.plan.finish is not None:
            return self.plan.rho
        if self.plan.sigma == 0.0:
            return 1.0
        held, slot = self.federation.clients.held, self.federation.clients.members[member].slot
        lengths = np.linalg.norm(held.history(slot, range(self.plan.rounds)) * self.plan.query.unit, axis=1)
        return 1.0 - float(np.prod([1.0 - replay_probability(length / self.plan.sigma) for length in lengths]))


def finished(clients: Clients, setting: Setting, rho: float, seed: int, members: Sequence[int] | None = None) -> Host:
    """Return a federation with all rounds made; the plan is for all clients, whoever takes part."""
    everyone = range(len(clients)) if members is None else members
    host = Host(clients, everyone, setting, setting.plan(len(clients), rho), seed)
    host.finish()
    return host


def plain_average(clients: Clients, rounds: int, steps: int = STEPS, rate: float = RATE) -> Array:
    """Return the model of plain federated averaging: the mean of all updates as they are."""
    model = np.zeros(PARAMETERS)
    for _ in range(rounds):
        model = model + clients.updates(range(len(clients)), model, steps, rate).mean(axis=0)
    return model


SETTINGS = {
    (20, 1.0): Setting(20, 20.0, "last"),
    (20, 0.5): Setting(3, 20.0, "last"),
    (20, 0.2): Setting(3, 20.0, "last"),
    (20, 0.1): Setting(3, 30.0, "last"),
    (100, 1.0): Setting(20, 15.0, "last"),
    (100, 0.5): Setting(3, 20.0, "tail"),
    (100, 0.2): Setting(2, 20.0, "tail"),
    (100, 0.1): Setting(2, 20.0, "last"),
    (1000, 1.0): Setting(10, 20.0, "last"),
    (1000, 0.5): Setting(10, 20.0, "last"),
    (1000, 0.2): Setting(5, 30.0, "tail"),
    (1000, 0.1): Setting(5, 20.0, "tail"),
}
"""What `main` has found."""
EXACT = {number: Setting(rounds, WIDE, finish="exact") for number, rounds in MOST_ROUNDS.items()}
"""The same with an exact last round."""


def choose_rounds(number: int, rho: float, seeds: int = 3) -> dict[int, float]:
    """Return the accuracy on the images held out with so many rounds, of which the last is exact."""
    digits = load(choosing=True)
    clients, found = Clients(digits.train, share_out(digits.train, number)), {}
    for rounds in [rounds for rounds in ROUNDS if rounds <= MOST_ROUNDS[number]]:
        setting = replace(EXACT[number], rounds=rounds)
        models = [finished(clients, setting, rho, seed).federation.model() for seed in range(seeds)]
        found[rounds] = float(np.mean([accuracy(model, digits.held_out) for model in models]))
    return found


def choose(number: int, rho: float, seeds: int = 3) -> tuple[Setting, float]:
    """Return what does best on the images held out, and its accuracy there."""
    digits = load(choosing=True)
    clients = Clients(digits.train, share_out(digits.train, number))
    found = {}
    for rounds, clip in product([rounds for rounds in ROUNDS if rounds <= MOST_ROUNDS[number]], CLIPS):
        setting = Setting(rounds, clip)
        paths = [
            finished(clients, setting, rho, seed).federation.transcript.path
            for seed in range(1 if rho == 1.0 else seeds)
        ]
        for selector in ("last", "tail"):
            scores = [accuracy(SELECTORS[selector](path), digits.held_out) for path in paths]
            found[replace(setting, selector=selector)] = float(np.mean(scores))
    best = max(found, key=lambda setting: found[setting])
    return best, found[best]


def main() -> None:
    """Print the best settings, and how well plain averaging does."""
    parser_of(__doc__).parse_args()
    digits = load(choosing=True)
    for number, rho in track(list(product(NUMBERS, RHOS)), "settings"):
        setting, score = choose(number, rho)
        print(f"({number}, {rho}): {setting},  # {score:.3f}", flush=True)
        if rho < 1.0:
            print(f"exact at last, accuracy by rounds: {choose_rounds(number, rho)}", flush=True)
    for number in NUMBERS:
        clients = Clients(digits.train, share_out(digits.train, number))
        for steps, rate in product((10, STEPS), (8.0, RATE, 32.0)):
            score = accuracy(plain_average(clients, PLAIN_ROUNDS, steps, rate), digits.held_out)
            print(f"plain averaging, {number} clients, {steps} steps at {rate:g}: {score:.3f}", flush=True)


if __name__ == "__main__":
    main()
