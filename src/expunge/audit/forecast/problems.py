"""Small problems of the same kind as a large one: the model for them, and records drawn at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import clone

from expunge.base.types import AnyArray, Array
from expunge.models import GradientBoostingRegressor, LinearRegressor, PoissonRegressor
from expunge.solvers.plans.protocol import ModelPlan, Size

RHO, RHO_OF_ROUNDS = 0.8, 0.5
"""ρ of small problems: deletions of both kinds, kept and replayed, come up after a few. Where everyone takes part in
every round, most contribute about as much as they may."""
MOST_PARAMETERS = 2**13
"""A small problem has no more parameters than this; where the large one has, it gets fewer features."""
MOST_COLUMNS = 256
"""So many features a small problem of `Ridge` has at most: it keeps their products."""
MOST_EPOCHS = 8
"""So often a small problem goes through its records at most."""
FEW_ROUNDS = 12
"""So many rounds a small problem has where everyone takes part in all of them, and more only with few records."""
MOST_KEPT = 2**20
"""The largest size, in numbers, of a table of a small problem's transcript."""
SPREAD = 3.0
"""The standard deviation of scores that labels are drawn by: the best classifier is then right five times in six."""


@dataclass(frozen=True)
class Kind:
    """All small problems of one kind: the model as it is wanted, its plan, and how many features they have."""

    model: Any
    plan: ModelPlan
    wanted: Size
    features: int
    """How many features the large problem has."""

    @property
    def everyone(self) -> bool:
        """Whether every record takes part in every round."""
        return self.plan.everyone

    @property
    def rho(self) -> float:
        """ρ of small problems."""
        return RHO_OF_ROUNDS if self.everyone else RHO

    @property
    def outputs(self) -> int:
        """How many parameters a feature has."""
        return self.plan.outputs

    @property
    def columns(self) -> int:
        """How many features small problems have."""
        if self.plan.keeps_products:
            return min(self.features, MOST_COLUMNS)
        return min(self.features, max(1, MOST_PARAMETERS // self.outputs))

    @property
    def wider(self) -> float:
        """How many times as many features the large problem has."""
        return self.features / self.columns

    @property
    def epochs(self) -> int:
        """How often small problems go through their records, apart from rounds."""
        return min(MOST_EPOCHS, self.plan.epochs)

    @property
    def rounds(self) -> int:
        """How many rounds small problems have, where everyone takes part in all of them."""
        return min(self.wanted.steps, FEW_ROUNDS)

    @property
    def most_steps(self) -> int:
        """In how many steps small problems can be taken."""
        if not self.plan.steps_alike:
            return self.rounds
        fitting = MOST_KEPT // (self.outputs * self.columns * self.epochs)
        return min(self.wanted.steps, max(FEW_ROUNDS, fitting))

    def model_for(self, size: Size) -> Any:
        """Return the model of a small problem, with everything declared."""
        model = clone(self.model)
        given = self.plan.small_parameters(size, self.columns, self.epochs, self.rho)
        known = model.get_params()
        given |= {name: _cut(known[name], self.columns) for name in self.plan.per_column}
        return model.set_params(**given)

    def draw(self, records: int, rng: np.random.Generator) -> tuple[AnyArray, ...]:
        """Draw records: features, the first of them the most informative, and targets that they mostly determine."""
        region = self.plan.region(self.columns)
        if region is not None:
            return (region.draw(records, rng) + region.center,)
        falling = 1.0 / np.sqrt(np.arange(1.0, self.columns + 1.0))
        X = rng.standard_normal((records, self.columns))
        X *= falling / np.linalg.norm(falling)
        if "y" not in self.model.COLUMNS:
            return (self.plan.bounded(X),)
        scores = SPREAD * (X @ rng.standard_normal((self.columns, max(2, self.outputs))))
        return self.plan.bounded(X), self._targets(scores, rng)

    def _targets(self, scores: Array, rng: np.random.Generator) -> AnyArray:
        if hasattr(self.model, "target_bound"):
            return np.asarray(np.tanh(scores[:, 0]) * min(float(self.model.target_bound), 1.0))
        if isinstance(self.model, PoissonRegressor):
            return rng.poisson(np.exp(np.clip(0.3 * scores[:, 0], -3.0, 3.0))).astype(np.float64)
        if isinstance(self.model, GradientBoostingRegressor):
            return scores[:, 0] + rng.standard_normal(len(scores))
        if isinstance(self.model, LinearRegressor):
            low, high = getattr(self.model.solver, "target_range", (0.0, 1.0))
            noisy = (0.3 * scores[:, 0] + rng.standard_normal(len(scores))) / (2.0 * math.pi)
            return np.asarray(low + (high - low) * np.clip(0.5 + noisy, 0.0, 1.0))
        classes = np.unique(np.asarray(self.model.classes))
        if len(classes) == 2:
            return classes[(rng.random(len(scores)) < expit(scores[:, 0])).astype(np.int64)]
        return classes[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]


def _cut(given: Any, columns: int) -> Any:
    """Return what was given for each column, for the first of them."""
    return given if np.ndim(given) == 0 else np.asarray(given)[:columns]
