"""Streams through the estimators' own methods, against fresh fits on the records that are left, in the stored order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cases.in_solver import in_solver
from expunge import LogisticRegression
from expunge.base.types import AnyArray, Array
from expunge.engine.checks import Exactness, _state, _state_names, compare
from expunge.engine.outcome import Outcome

X = np.round(np.random.default_rng(21).normal(size=(24, 2)), 2)
Y = (X @ [1.0, -0.7] + 0.4 * np.sin(9 * X[:, 0]) > 0).astype(int)
X = np.concatenate(
    [X, [[1.0, 0.0], [0.99, 0.1], [0.99, -0.1], [0.9, 0.2], [0.9, 0.3]]]
)  # all but the fourth pull alike
Y = np.concatenate([Y, [1, 1, 1, 0, 1]])


class Feed:
    """A model that is fed, and what its records say: each id, and the number of the row that it has now."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.rows: dict[int, int] = {}

    def _take(self, ids: Sequence[int], version: int) -> tuple[Array, AnyArray]:
        rows = [(one + 12 * version) % 24 if version < 2 else 24 + one for one in ids]
        self.rows.update(zip(ids, rows, strict=True))
        return X[rows], Y[rows]

    def arrive(self, *ids: int, version: int = 0) -> None:
        self.model.partial_fit(*self._take(ids, version), ids=list(ids))

    def insert(self, *ids: int, version: int = 0) -> None:
        self.model.insert(*self._take(ids, version), ids=list(ids))

    def replace(self, *ids: int) -> None:
        self.model.replace(*self._take(ids, 1), ids=list(ids))

    def unlearn(self, *ids: int) -> Outcome:
        for one in ids:
            del self.rows[one]
        outcome: Outcome = self.model.unlearn(list(ids))
        return outcome

    def replan_if_outgrown(self) -> None:
        """Make a new plan if the number of records says so: on nothing else may it depend."""
        if not self.model.plan_.covers(self.model.n_records_):
            self.model.replan()


def ten(feed: Feed) -> None:
    feed.arrive(0)
    feed.arrive(1, 2, 3)
    feed.unlearn(1)
    feed.insert(4)
    feed.replace(2)
    feed.arrive(1, 5, version=1)
    feed.unlearn(0, 4)
    feed.arrive(6)
    feed.unlearn(5)
    feed.insert(7, 8)


def through_nothing(feed: Feed) -> None:
    feed.arrive(0, 1, 2)
    feed.unlearn(1)
    feed.unlearn(0, 2)
    feed.arrive(3)
    feed.arrive(0, 4, 5, version=1)
    feed.unlearn(3)
    feed.insert(6, 7)


def outgrowing(feed: Feed) -> None:
    """From 2 records to 10, which is beyond what a plan for 2 covers. In the end there are 9: a fit plans for 16."""
    feed.arrive(0, 1)
    feed.arrive(2)
    feed.unlearn(0)
    for first in (3, 5, 7, 9):
        feed.arrive(first, first + 1)
        feed.replan_if_outgrown()
    feed.unlearn(2, 5)
    feed.replace(3)
    feed.arrive(0, 11, version=1)
    feed.unlearn(6)


def anew_after_replay(feed: Feed) -> None:
    """A mistake: to make a new plan because a deletion replayed."""
    feed.arrive(0, 1, 2, 4, 3, version=2)
    if not feed.unlearn(0).kept:
        feed.model.replan(expected_records=8)


def as_it_is(feed: Feed) -> None:
    """Without the mistake."""
    feed.arrive(0, 1, 2, 4, 3, version=2)
    feed.unlearn(0)


@dataclass(frozen=True)
class EstimatorStream:
    """A stream through an estimator."""

    name: str
    play: Callable[[Feed], None]
    given: dict[str, Any] = field(default_factory=dict)
    seeded: bool = True
    """Whether it takes the given generator; else it draws from the system's entropy, and no two samples are alike."""
    mistake: bool = False
    in_tests: bool = False

    def model(self, rng: np.random.Generator) -> LogisticRegression:
        given = {"classes": [0, 1], "rho": 0.7, "radius": 2.0, "expected_records": 8, **self.given}
        return LogisticRegression(**in_solver(**given, random_state=rng if self.seeded else None))

    def check(self, runs: int, seed: int, level: float = 0.01) -> Exactness:
        """Compare everything kept and published after the stream with that of a fit on what is left."""

        def streamed(rng: np.random.Generator) -> Feed:
            feed = Feed(self.model(rng))
            self.play(feed)
            return feed

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = streamed(np.random.default_rng(seed))
            places = range(len(first.model._records.places))
            order = np.concatenate([first.model._records.ids_at(place) for place in places])
            rows = [first.rows[int(one)] for one in order]

            def fresh(rng: np.random.Generator) -> LogisticRegression:
                return self.model(rng).fit(X[rows], Y[rows], ids=order)

            again = fresh(np.random.default_rng(seed))
            assert again.plan_.records == first.model.plan_.records
            names = _state_names(again.plan_.learner, again._records, again.transcript_, order)
            names += [f"coef[{j}]" for j in range(again.coef_.size)] + ["intercept"]
            one, other = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
            after = np.array([_whole(streamed(one).model, order) for _ in range(runs)])
            return compare(after, np.array([_whole(fresh(other), order) for _ in range(runs)]), names, level)


def _whole(model: Any, ids: AnyArray) -> Array:
    """Return the state of a model, and what it publishes, as one row of numbers."""
    state = _state(model.plan_.learner, model._records, model.transcript_, ids)
    return np.concatenate([state, model.coef_.ravel(), np.ravel(model.intercept_)])


SCATTERED: dict[str, Any] = {"steps": 3}
ARRIVAL: dict[str, Any] = {"schedule": "arrival", "batch": 2}
ONE_BY_ONE: dict[str, Any] = {"schedule": "arrival", "batch": 1}
SHUFFLED: dict[str, Any] = {"schedule": "shuffled", "batch": 2}
UNDECLARED: dict[str, Any] = {"expected_records": None}


def estimator_streams() -> list[EstimatorStream]:
    """Return all streams."""
    row_by_row = {"mechanism": "tree", "coupling": "sequential"}
    forever = {"mechanism": "anytime", "step_size": "anytime"}
    often = {"rho": 0.9}
    return [
        EstimatorStream("scattered, ten", ten, SCATTERED, in_tests=True),
        EstimatorStream("arrival one by one, ten", ten, ONE_BY_ONE, in_tests=True),
        EstimatorStream("arrival, ten", ten, ARRIVAL),
        EstimatorStream("shuffled, ten", ten, SHUFFLED),
        EstimatorStream("arrival one by one, anytime, ten", ten, {**ONE_BY_ONE, **forever}),
        EstimatorStream("arrival one by one, row by row, ten", ten, {**ONE_BY_ONE, **row_by_row}),
        EstimatorStream("arrival one by one, frank-wolfe, ten", ten, {**ONE_BY_ONE, "solver": "frank_wolfe"}),
        EstimatorStream("scattered, ten, no seed", ten, SCATTERED, seeded=False),
        EstimatorStream("arrival, ten, no seed", ten, ARRIVAL, seeded=False),
        EstimatorStream("scattered, through nothing", through_nothing, SCATTERED),
        EstimatorStream("arrival, through nothing", through_nothing, ARRIVAL),
        EstimatorStream("scattered, outgrown", outgrowing, {**SCATTERED, **UNDECLARED}),
        EstimatorStream("arrival, outgrown", outgrowing, {**ARRIVAL, **UNDECLARED}, in_tests=True),
        EstimatorStream("scattered, a new plan after a replay", anew_after_replay, {"steps": 1, **often}, mistake=True),
        EstimatorStream("scattered, no new plan after a replay", as_it_is, {"steps": 1, **often}),
        EstimatorStream("arrival, a new plan after a replay", anew_after_replay, {**ARRIVAL, **often}, mistake=True),
        EstimatorStream("arrival, no new plan after a replay", as_it_is, {**ARRIVAL, **often}),
    ]
