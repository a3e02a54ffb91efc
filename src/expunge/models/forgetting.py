"""What all models have in common: requests, plans, and their state."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator

from expunge.base.checking import check_positive
from expunge.base.errors import BadPlan, warn_caller
from expunge.base.guiding import unknown
from expunge.engine.learner import Transcript
from expunge.engine.learning import learn, learn_with_outcome
from expunge.engine.outcome import Outcome
from expunge.engine.owner import Owner
from expunge.engine.randomness import Randomness
from expunge.engine.records.memory import MemoryRecords
from expunge.models.habits import ANYWHERE
from expunge.models.saving import Storable
from expunge.models.showing import Shown
from expunge.solvers.plans.protocol import ModelPlan


class ForgettingModel(Shown, Storable, BaseEstimator):
    """A fitted model, its records and its transcript. Subclasses say what records are and what is made of the path."""

    INSTEAD: ClassVar[dict[str, Any]] = ANYWHERE
    """What to use instead of parameters that it does not have, by their names."""
    expected_records: int | None = None

    # --- what a subclass says ---

    def _make_plan(self, records: int, features: int, expected: int | None) -> ModelPlan:
        """Return the plan for a table, or for the number of records that is expected."""
        raise NotImplementedError

    def _plan_fit(self, records: int, features: int, y: Any = None, classes: Any = None, sparse: bool = False) -> None:
        """Fix, before the first fit, what does not depend on the contents of records; ``y`` gives the classes."""
        self.plan_ = self._make_plan(records, features, self.expected_records)

    def _choose_again(self) -> None:
        """Choose the solver again, before a new plan for the records that there are."""

    def _recall(self) -> None:
        """Find out which solver was chosen, from the plan, when a file is opened."""

    def _draw(self, rng: np.random.Generator) -> None:
        """Draw what else is fixed before a fit, from a stream that gives nothing else: all can see it."""

    def _kept_by_records(self, before: Any) -> list[tuple[str, Any, Any]]:
        """Return (parameter, as it was, as it is) for parameters by which the stored records were encoded."""
        return []

    def _refuse_fresh(self, transcript: Transcript) -> None:
        """Raise if a fresh fit came to nothing: the model is then as it was."""

    # --- parameters ---

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn has it. On a fitted model they take effect at `replan` or `fit`, not before.

        If it is used before that, it warns. Only ``random_state`` takes effect at once: with the next request.
        """
        known = self._get_param_names()
        for name in params:
            if name not in known and "__" not in name:
                raise unknown(self, type(self).__name__, name, known, params)
        return super().set_params(**params)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; of a parameter of a fitted model, note that it is not in effect, as `set_params` says."""
        planned = "_owner" in self.__dict__ and "_" not in (name[0], name[-1]) and name != "random_state"
        if planned and name in self._get_param_names() and not _same(getattr(self, name, None), value):
            self._owner.late = tuple(dict.fromkeys([*self._owner.late, name]))
        super().__setattr__(name, value)

    # --- requests ---

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """Leave the model as it was if a fit fails."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.update(before)
            for name in [name for name in self.__dict__ if name not in before]:
                del self.__dict__[name]
            raise

    def _learn(self, columns: tuple[Any, ...], ids: Any, subjects: Any, randomness: Randomness) -> None:
        """Learn from encoded records by the plan, and publish the model."""
        self._refuse_stored("fit")
        if self.random_state is not None:
            self._warn_of_seed("the noise, and so what is deleted later", "leave it out")
        records = MemoryRecords(columns, ids, subjects)
        transcript = learn(self.plan_.learner, records, randomness)
        self._refuse_fresh(transcript)
        counts, seeded = isinstance(self.random_state, (int, np.integer)), self.random_state is not None
        self._owner = Owner(self.plan_.learner, records, transcript, counts=counts, seeded=seeded)
        self._publish()
        _ = self._published  # a model that is solved when it is read: to predict must change nothing
        self._report_size(records.count)

    def _report_size(self, records: int) -> None:
        if records > self.plan_.largest:
            warn_caller(*self.plan_.outgrown(records))

    def replan(self, expected_records: int | None = None) -> Outcome:
        """Refit to the current records, with a plan for their number (or the number you expect).

        It uses the current parameters, so it can also change ``rho`` or ``schedule``. It costs as much as a fit; the
        outcome has the evaluations and seconds. Let it depend on the number of records only: to refit because a model
        turned out badly, or a deletion replayed, is a bias.
        """
        self._need_fit()
        if expected_records is not None:
            check_positive("expected_records", expected_records, whole=True)
        with self._owner.lock, self._as_it_was():
            self._owner.catch_up(self._publish)  # another thread may have been interrupted meanwhile
            randomness = self._randomness()
            records = self._records.copy()
            before = self.plan_
            self._choose_again()
            self.plan_ = self._make_plan(records.count, self.n_features_in_, expected_records)
            self._check_replan(before, records)
            with randomness:
                transcript, outcome = learn_with_outcome(self.plan_.learner, records, randomness)
            self._refuse_fresh(transcript)
            seeded = self.random_state is not None
            self._owner = self._owner.rewrite(self._description, self.plan_.learner, records, transcript, seeded)
            self._owner.look(self._publish)
            self._publish()
        return outcome

    def _check_replan(self, before: Any, records: MemoryRecords) -> None:
        """Raise if the new plan does not fit the records as they are kept."""
        for name, old, new in self._kept_by_records(before):
            if old != new:
                raise BadPlan(
                    f"{name}: the stored records were encoded with {old!r}; refit from the original data to change it."
                )
        if records.count > self.plan_.size_class[1]:
            raise BadPlan(
                f"expected_records: there are {records.count:,} records already; expect at least a quarter of that."
            )
        self._refuse_crowds(records.subjects, None)

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two models must not share records

    def __getstate__(self) -> dict[str, Any]:
        if "_owner" not in self.__dict__:
            return cast(dict[str, Any], super().__getstate__())
        with self._owner.lock:  # all at one time, though other threads may be serving requests
            return {**super().__getstate__(), "_owner": pickle.dumps(self._owner, pickle.HIGHEST_PROTOCOL)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("_owner"), bytes):
            state = {**state, "_owner": pickle.loads(state["_owner"])}
        super().__setstate__(state)


ROWS: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "dtype": np.float64, "order": "C"}
TABLE: dict[str, Any] = {**ROWS, "accept_large_sparse": True}


def _same(old: Any, new: Any) -> bool:
    return old is new or (type(old) is type(new) and np.array_equal(old, new))
