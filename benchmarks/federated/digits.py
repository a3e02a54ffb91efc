"""Federated averaging on scikit-learn's digits: what a leaving client costs the others, and what noise costs accuracy.

    python benchmarks/federated/digits.py [--quick] [--clients 20 100]

20, 100 and 1,000 simulated clients, uneven in labels and sizes, a model of 650 numbers, ρ of 1, 0.5, 0.2 and 0.1, with
an exact last round (a keyed sample in those before) and with noise in all rounds.
200 clients leave, one after the other, from federations that have made all rounds. What is counted are the updates
that clients are asked for because of it, against those of training the remaining clients anew. (Without noise every
departure costs the same, so that 50 are enough of 1,000 clients.) Accuracy is that of several seeds of the noise,
beside plain averaging (no clip, no noise, more rounds) and beside one round without noise, after which nobody is ever
asked again. After every tenth departure (20 clients) or fiftieth it is compared with a federation that those who left
have never been in.
Settings were chosen on other images (digits_settings.py). About twenty minutes; --quick takes seconds and says little.
Writes out/federated_digits.json and docs/images/federated.png (of some clients only, to out/).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy import stats
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks.federated.digits_data import Clients, Digits, accuracy, load, share_out
from benchmarks.federated.digits_report import draw, tables
from benchmarks.federated.digits_settings import (
    EXACT,
    NUMBERS,
    PLAIN_ROUNDS,
    RHOS,
    SETTINGS,
    Host,
    Setting,
    finished,
    plain_average,
)
from benchmarks.smoke import IMAGES, OUT, SMOKE, parser_of
from benchmarks.streams.report import save_small
from expunge.base.types import Array

IMAGE = IMAGES / "federated.png"
SEEDS = {20: 10, 100: 10, 1000: 5}
DEPARTURES = 200
WITHOUT_NOISE = {20: 200, 100: 200, 1000: 50}
LEAVING = {20: 10, 100: 50, 1000: 200}
"""How many clients leave one federation."""
CHECKED = 50
"""After so many departures, or as many as leave, accuracy is compared."""
CEILING = 100.0
"""The inverse penalty of scikit-learn's model, chosen on the images that settings are chosen on."""

Row = dict[str, Any]


class Departure(NamedTuple):
    """What it took that a client left."""

    changed: bool
    """Whether a round was made anew."""
    share: float
    """Updates asked for, as a share of those of training the others anew."""
    asked: int
    """How many they are."""
    chance: float
    """How probable the change was."""
    seconds: float
    """What the server needed to let it leave, without the rounds that were repeated."""


class Trail(NamedTuple):
    """What came of clients leaving one federation."""

    departures: list[Departure]
    checks: list[tuple[float, float]]
    """Accuracy of the federation, and of one that was trained anew."""
    training: float
    """The server's seconds for all rounds."""


def leave(host: Host, member: int) -> Departure:
    """Let a client leave, and repeat what must be repeated."""
    chance = host.chance_of_change(str(member))
    began = time.perf_counter()
    outcome = host.federation.forget(str(member))
    seconds = time.perf_counter() - began
    asked = host.finish().asked
    return Departure(not outcome.kept, asked / host.retraining, asked, chance, seconds)


def follow(
    digits: Digits, clients: Clients, setting: Setting, rho: float, leaving: int, checked: int, seed: int
) -> Trail:
    """Let clients leave a federation one after the other; from time to time train the others anew beside it."""
    everyone = range(len(clients))
    host = Host(clients, everyone, setting, setting.plan(len(clients), rho), seed)
    training = host.finish().seconds
    order = np.random.default_rng([seed, 1]).permutation(len(clients)).tolist()
    departures, checks = [], []
    for gone, member in enumerate(order[:leaving], start=1):
        departures.append(leave(host, member))
        if gone % checked == 0 or gone == leaving:
            anew = finished(clients, setting, rho, 10_000 + seed, members=sorted(order[gone:]))
            models = host.federation.model(), anew.federation.model()
            checks.append((accuracy(models[0], digits.held_out), accuracy(models[1], digits.held_out)))
    return Trail(departures, checks, training)


def follow_all(
    digits: Digits, clients: Clients, setting: Setting, rho: float, departures: int, leaving: int
) -> Iterator[Trail]:
    """Follow as many federations as are needed."""
    for seed in range(math.ceil(departures / leaving)):
        here = min(leaving, departures - seed * leaving)
        yield follow(digits, clients, setting, rho, here, min(CHECKED, here), seed)


def mean_with_interval(values: Array) -> tuple[float, float, float]:
    """Return the mean and the 95 % interval that drawing the values again and again gives."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, size=(4000, len(values))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def measure_departures(digits: Digits, clients: Clients, setting: Setting, rho: float, number: int) -> Row:
    """Return what departures cost, beside ρ, the paper's ρ, and √T times that."""
    plan = setting.plan(len(clients), rho)
    leaving = LEAVING.get(len(clients), number)
    trails = list(follow_all(digits, clients, setting, rho, number, leaving))
    each = [departure for trail in trails for departure in trail.departures]
    changed = [departure.changed for departure in each]
    mean, low, high = mean_with_interval(np.array([departure.share for departure in each]))
    interval = stats.binomtest(sum(changed), len(each)).proportion_ci()
    checks = np.array([check for trail in trails for check in trail.checks])
    kept = [departure.seconds for departure in each if not departure.changed]
    return {
        "departures": len(each), "updates": float(np.mean([departure.asked for departure in each])),
        "share": mean, "share low": low, "share high": high,
        "changed": float(np.mean(changed)), "changed low": float(interval.low), "changed high": float(interval.high),
        "expected": float(np.mean([departure.chance for departure in each])),
        "asking": float(np.mean([departure.share > 0.0 for departure in each])),
        "rho": rho, "stability": plan.stability, "round by round": min(1.0, math.sqrt(plan.rounds) * plan.stability),
        "unlearned": checks[:, 0].tolist(), "retrained": checks[:, 1].tolist(),
        "kept milliseconds": 1e3 * float(np.median(kept)) if kept else None,
        "training milliseconds": 1e3 * float(np.median([trail.training for trail in trails])),
    }  # fmt: skip


def measure_accuracy(digits: Digits, clients: Clients, setting: Setting, rho: float, seeds: int) -> Row:
    """Return the accuracy with several seeds of the noise, and without clip and noise, on the test part."""
    plan = setting.plan(len(clients), rho)
    scores = [
        accuracy(finished(clients, setting, rho, 100 + seed).federation.model(), digits.held_out)
        for seed in range(seeds if rho < 1.0 else 1)
    ]
    same = plain_average(clients, setting.rounds, setting.steps, setting.rate)
    return {
        "rho": rho, "finish": setting.finish, "rounds": setting.rounds, "clip": setting.clip,
        "selector": setting.selector, "steps": setting.steps, "rate": setting.rate, "sigma": plan.sigma,
        "noise": plan.sigma * math.sqrt(plan.parameters) / (len(clients) * setting.clip),
        "scores": scores, "accuracy": float(np.mean(scores)),
        "spread": float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0,
        "plain, as many rounds": accuracy(same, digits.held_out),
    }  # fmt: skip


def measure_number(digits: Digits, number: int, plain_rounds: int) -> tuple[Clients, Row]:
    """Return clients, and how well they do without noise: by plain averaging, and in one round."""
    clients = Clients(digits.train, share_out(digits.train, number))
    sizes = [len(owned) for owned in clients.owned]
    once = Setting(1, 1e6)  # a clip that no update reaches
    return clients, {
        "clients": number, "images": [min(sizes), int(np.median(sizes)), max(sizes)],
        "plain": accuracy(plain_average(clients, plain_rounds), digits.held_out), "plain rounds": plain_rounds,
        "one round": accuracy(finished(clients, once, 1.0, 0).federation.model(), digits.held_out),
    }  # fmt: skip


def pooled(digits: Digits) -> float:
    """Return the accuracy of scikit-learn's logistic regression on all images at one place."""
    model = LogisticRegression(C=CEILING, solver="newton-cg").fit(digits.train.pixels, digits.train.labels)
    return float(model.score(digits.held_out.pixels, digits.held_out.labels))


def settings_of(number: int, rho: float, quick: bool) -> list[Setting]:
    """Return what is measured: noise, and an exact last round, which is the same if everyone is in the sample."""
    noisy, exact = SETTINGS[number, rho], EXACT[number]
    if quick:
        noisy, exact = Setting(3, 15.0, steps=10), replace(exact, rounds=3, steps=10)
    return [noisy] if rho == 1.0 else [exact, noisy]


def run(quick: bool, numbers: Sequence[int]) -> dict[str, Any]:
    """Measure everything, or a little of it."""
    began = time.perf_counter()
    numbers, rhos = ((20,), (1.0, 0.5)) if quick else (numbers, RHOS)
    digits, rows = load(), []
    hosts = {number: measure_number(digits, number, 5 if quick else PLAIN_ROUNDS) for number in numbers}
    for number, rho in track(list(product(numbers, rhos)), "settings"):
        clients = hosts[number][0]
        departures = 10 if quick else DEPARTURES if rho < 1.0 else WITHOUT_NOISE[number]
        for setting in settings_of(number, rho, quick):
            row = measure_accuracy(digits, clients, setting, rho, 2 if quick else SEEDS[number])
            rows.append({"clients": number, **row, **measure_departures(digits, clients, setting, rho, departures)})
    return {
        "pooled": pooled(digits), "without noise": [row for _, row in hosts.values()], "rows": rows,
        "minutes": (time.perf_counter() - began) / 60.0,
    }  # fmt: skip


def main() -> None:
    """Measure, print tables, write results and picture."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="a little of everything; the picture goes to out/")
    parser.add_argument("--clients", type=int, nargs="+", choices=NUMBERS, default=NUMBERS, help="how many clients")
    given = parser.parse_args()
    quick, numbers = given.quick or SMOKE, tuple(given.clients)
    OUT.mkdir(parents=True, exist_ok=True)
    found = run(quick, numbers)
    some = "-quick" if quick else "" if numbers == NUMBERS else "-" + "-".join(map(str, numbers))
    (OUT / f"federated_digits{some}.json").write_text(json.dumps(found, indent=1))
    save_small(draw(found), OUT / f"federated_digits{some}.png" if some else IMAGE)
    for table in tables(found):
        Console(width=160).print(table)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
