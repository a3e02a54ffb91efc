"""Every learner of `expunge.paper` on a handful of records, and requests: what tests and the reproduction share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from expunge import Ball, Delete, DualAveragingRule, FrankWolfeRule, Hinge, Insert, Learner, Logistic, paper
from expunge.base.intake import Request
from expunge.base.types import Array
from expunge.solvers.any_loss import HybridLossGradient, LossGradient

N, DIAMETER = 6, 2.0
_RNG = np.random.default_rng(4)
X = _RNG.normal(size=(N, 2))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
WIDE = np.concatenate([X, -X[:, ::-1]], axis=1) / math.sqrt(2.0)


def to_point(w: Array, z: Array) -> Array:
    """The gradient of |w - z|²/2, which is 3-Lipschitz for |w|, |z| within 1.5, and 1-smooth."""
    return np.asarray(w - z)


def towards(w: Array, z: Array) -> Array:
    """How a client changes the model: half of the way."""
    return np.asarray(0.5 * (z - w))


PULL = LossGradient(to_point, 2, 3.0)
HYBRID = HybridLossGradient(to_point, 2, 6.0)
_SIZES: dict[str, Any] = {"n": N, "d": 2, "D": DIAMETER}
_PROJECTED: dict[str, Any] = {"n": N, "d": 4, "radius": 1.0, "components": 2, "key": bytes(32)}
LEARNERS: dict[str, tuple[Learner, tuple[Array, ...]]] = {
    "prefix_sums": (paper.prefix_sums(PULL, DualAveragingRule(np.zeros(2), 0.3), rho=0.5, n=N), (X,)),
    "linear_queries": (paper.linear_queries(PULL, DualAveragingRule(np.zeros(2), 0.1), rho=0.5, rounds=3), (X,)),
    "frank_wolfe": (paper.frank_wolfe(Logistic(), rho=0.5, **_SIZES), (X, Y)),
    "frank_wolfe, any loss": (paper.frank_wolfe(to_point, rho=0.5, G=2.0, H=1.0, **_SIZES), (X,)),
    "dual_averaging": (paper.dual_averaging(Hinge(), rho=0.5, **_SIZES), (X, Y)),
    "dual_averaging, any loss": (paper.dual_averaging(to_point, rho=0.5, G=2.0, **_SIZES), (X,)),
    "projected": (paper.projected(Logistic(), rho=0.5, **_PROJECTED), (WIDE, Y)),
    "projected, dual averaging": (
        paper.projected(Hinge(), base="dual_averaging", rho=0.5, **_PROJECTED),
        (WIDE, Y),
    ),
    "sgd_2021": (paper.sgd_2021(Logistic(), rho=0.4, rounds=3, **_SIZES), (X, Y)),
    "lloyd": (paper.lloyd([[-0.5, 0.0], [0.5, 0.0]], rho=0.5, rounds=2, radius=1.0), (X,)),
    "federated_averaging": (
        paper.federated_averaging(towards, np.zeros(2), rho=0.5, rounds=2, clip=1.0),
        (X,),
    ),
    "weak_stream": (paper.weak_stream(HYBRID, FrankWolfeRule(np.zeros(2), Ball(1.0)), rho=0.5), (X,)),
    "exact_stream": (paper.exact_stream(PULL, DualAveragingRule(np.zeros(2), 0.3, anytime=1.0), rho=0.5), (X,)),
}

NEWCOMER = (np.array([[0.3, -0.2]]),)
REQUESTS: dict[str, tuple[Request, ...]] = {
    "a deletion": (Delete([1]),),
    "several deletions": (Delete([1]), Delete([0, 4])),
}
OF_STREAMS: dict[str, tuple[Request, ...]] = {
    "an insertion": (Insert(NEWCOMER, [50]),),
    "deletion, insertion, deletion": (Delete([1]), Insert(NEWCOMER, [50]), Delete([0])),
}


def named_cases() -> dict[str, tuple[str, tuple[Request, ...]]]:
    """Return, by name, the learner and the requests of every problem of law."""
    found = {f"{name}: {asked}": (name, requests) for name in LEARNERS for asked, requests in REQUESTS.items()}
    streams = [name for name in LEARNERS if name.endswith("_stream")]
    return found | {f"{name}: {asked}": (name, requests) for name in streams for asked, requests in OF_STREAMS.items()}
