"""Small instances of every estimator and solver with every choice of the engine, for `check_exact`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import expunge
from cases.in_solver import in_solver
from cases.learners import Case
from expunge.base.intake import Delete, Insert, Replace

CHOICES: dict[str, tuple[Any, ...]] = {
    "model": ("binary", "multinomial", "svc", "multiclass svc", "huber", "least squares"),
    "solver": ("dual_averaging", "frank_wolfe", "frank_wolfe on l1"),
    "schedule": ("scattered", "two epochs", "shuffled", "arrival"),
    "noise": ("sqrt, joint", "tree, joint", "tree, sequential"),
    "n_components": (None, 2),
    "request": ("delete", "delete two", "insert", "replace"),
}
Chosen = dict[str, Any]


def sensible(chosen: Chosen) -> bool:
    """Say whether the choices go together."""
    return not (chosen["n_components"] and chosen["schedule"] == "arrival")


def product() -> Iterator[Chosen]:
    """Return all combinations of all choices but the request, which takes turns."""
    names = [name for name in CHOICES if name != "request"]
    requests = itertools.cycle(CHOICES["request"])
    for values in itertools.product(*(CHOICES[name] for name in names)):
        chosen = dict(zip(names, values, strict=True))
        if sensible(chosen):
            yield {**chosen, "request": next(requests)}


def _model(chosen: Chosen) -> Any:
    solver, _, domain = chosen["solver"].partition(" on ")
    mechanism, coupling = chosen["noise"].split(", ")
    epochs = 2 if chosen["schedule"] == "two epochs" else 1
    options = {
        "rho": 0.7, "solver": solver, "domain": domain or None, "mechanism": mechanism, "coupling": coupling,
        "schedule": "scattered" if epochs == 2 else chosen["schedule"], "epochs": epochs,
        "n_components": chosen["n_components"], "batch": 2, "radius": 2.0, "random_state": 0,
    }  # fmt: skip
    match chosen["model"]:
        case "binary":
            return expunge.LogisticRegression(**in_solver(class_weight={0: 0.5}, **options))
        case "multinomial":
            return expunge.LogisticRegression(**in_solver(classes=[0, 1, 2], **options))
        case "svc":
            return expunge.LinearSVC(**in_solver(alpha=0.1, **options))
        case "multiclass svc":
            return expunge.LinearSVC(**in_solver(classes=[0, 1, 2], **options))
        case "huber":
            return expunge.HuberRegressor(**in_solver(target_range=(0, 2), **options))
        case _:
            return expunge.LinearRegression(**in_solver(target_range=(0, 2), selector="average", **options))


def name_of(chosen: Chosen) -> str:
    """Return a name that no other combination has."""
    return ", ".join(str(value) for value in chosen.values())


def case_of(chosen: Chosen) -> Case:
    """Return the learner and the encoded records of a small fit."""
    rng = np.random.default_rng(5)
    X = np.round(rng.normal(size=(7, 3)), 2)
    y = np.array([0, 1, 0, 1, 1, 0, 1]) if chosen["model"] in ("binary", "svc") else np.array([0, 1, 2, 1, 2, 0, 1])
    model = _model(chosen).fit(X, y)
    rows, targets = model._encode_rows(X), model._encode_targets(y)
    request: Any = {
        "delete": Delete([2]),
        "delete two": Delete([1, 4]),
        "insert": Insert((rows[5:], targets[5:]), ids=[5, 6]),
        "replace": Replace((rows[5:6], targets[5:6]), ids=[0]),
    }[chosen["request"]]
    return Case(name_of(chosen), model.plan_.learner, (request,), columns=(rows[:5], targets[:5]))
