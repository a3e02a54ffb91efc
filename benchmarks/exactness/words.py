"""Which words did only the deleted record have? Columns that are zero now, ranked by their answers' digits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats

from benchmarks.smoke import sized
from cases import ungridded
from expunge import Delete, Learner, MemoryRecords
from expunge.base.types import Array
from expunge.engine.bits import trailing_zeros
from expunge.engine.changing import change
from expunge.engine.learning import learn
from expunge.solvers.losses import Logistic
from expunge.solvers.plans.linear import make_plan

COMMON, OWN, UNUSED = 300, 12, 100
"""How many words several records have, only the deleted one has, and nobody has."""
LONG = 12
"""How many words a record has."""


@dataclass(frozen=True)
class Text:
    """Sparse rows, the first of which has words of its own; a word counts for as much as makes all rows 1 long."""

    rows: sparse.csr_array
    labels: Array


def text(records: int, seed: int) -> Text:
    """Return records of common words; the first has `OWN` others too."""
    rng = np.random.default_rng(seed)
    popular = 1.0 / np.arange(1, COMMON + 1)
    words = rng.choice(COMMON, size=(records, LONG), p=popular / popular.sum())
    who = np.concatenate([np.repeat(np.arange(records), LONG), np.zeros(OWN, dtype=int)])
    what = np.concatenate([words.ravel(), np.arange(COMMON, COMMON + OWN)])
    rows = sparse.csr_array((rng.uniform(0.5, 1.5, len(who)), (who, what)), (records, COMMON + OWN + UNUSED))
    rows.sum_duplicates()
    rows.data /= np.repeat(np.sqrt(rows.multiply(rows).sum(axis=1)), np.diff(rows.indptr))
    return Text(rows, np.where(rng.random(records) < 0.5, -1.0, 1.0))


def default_plan(records: int) -> Learner:
    """Return what a logistic regression with default parameters runs; with few records that would be without noise."""
    return make_plan(Logistic(), COMMON + OWN + UNUSED, records, rho=sized("auto", 0.5)).learner


def answers_of_engine(records: int, rng: np.random.Generator) -> Array:
    """Learn from a text with default parameters, delete the first record, and return the answers."""
    learner, given = default_plan(records), text(records, int(rng.integers(2**31)))
    held = MemoryRecords((given.rows, given.labels))
    transcript = learn(learner, held, rng)
    change(learner, held, transcript, Delete([0]), rng).commit()
    return transcript.answers[:]


def answers_without_grid(records: int, rng: np.random.Generator) -> Array:
    """Do the same by the engine without a grid."""
    learner, given = default_plan(records), text(records, int(rng.integers(2**31)))
    steps, step_size = learner.schedule.steps(records), float(getattr(learner.rule, "step_size", 1.0))
    problem = ungridded.Problem(given.rows.toarray(), given.labels, steps, "root", learner.sigma, step_size)
    state = ungridded.learn(problem, np.arange(records), rng)
    return ungridded.delete(problem, state, 0, rng)[0].answers


def area(answers: Array) -> float:
    """Return how often a word of the deleted record has fewer trailing zeros than one that nobody had (AUC)."""
    zeros = np.minimum(trailing_zeros(answers[:, COMMON : COMMON + OWN + UNUSED]), 40).mean(axis=0)
    found = stats.mannwhitneyu(-zeros[:OWN], -zeros[OWN:])
    return float(found.statistic) / (OWN * UNUSED)


def spread() -> float:
    """Return the standard deviation of `area` where digits tell nothing."""
    return float(np.sqrt((OWN + UNUSED + 1) / (12.0 * OWN * UNUSED)))
