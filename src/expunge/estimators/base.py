"""What all models that can forget have in common: requests, plans, the state behind them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Set, Sized
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils.validation import check_is_fitted, validate_data

from expunge.columns import is_sparse, rows_in
from expunge.engine import Outcome, Verification, learn, learn_with_outcome
from expunge.errors import BadPlan, BadRecords, ExpungeError, SizeWarning, warn_caller
from expunge.estimators.durable import Storable
from expunge.intake import as_ids, check_number
from expunge.keeper import Keeper
from expunge.learner import Learner, Transcript
from expunge.memory import MemoryRecords
from expunge.planning import check_positive
from expunge.randomness import Randomness
from expunge.records import Delete, Insert, Replace, Request, check_named
from expunge.store.keeper import DurableKeeper
from expunge.types import AnyArray, Array


class Frozen(Protocol):
    """What a model needs of its plan."""

    @property
    def learner(self) -> Learner:
        """What the engine runs."""

    @property
    def records_per_subject(self) -> int:
        """How many records a subject may have, on which the noise was planned."""

    @property
    def size_class(self) -> tuple[int, int]:
        """From how few to how many records it is good for."""

    @property
    def largest(self) -> int:
        """Up to how many records all of it holds."""

    @property
    def horizon(self) -> int:
        """Up to how many records ρ holds."""

    @property
    def passes(self) -> float:
        """How often a fit goes through the records."""


class ForgettingModel(Storable, BaseEstimator):  # type: ignore[misc]
    """A fitted model, its records and its transcript. Subclasses say what records are and what is made of the path."""

    COLUMNS: ClassVar[tuple[str, ...]]
    """The names of a record's columns in a request."""
    PUBLISHED: ClassVar[tuple[str, ...]]
    """What the fitted model is known by."""
    NOTHING: ClassVar[str] = "noise only"
    """What training on no records gives."""
    plan_: Any
    random_state: Any = None
    expected_records: int | None = None

    # --- what a subclass says ---

    def _make_plan(self, records: int, features: int, expected: int | None) -> Frozen:
        """Return the plan for a table, or for the number of records that is expected."""
        raise NotImplementedError

    def _plan_fit(self, records: int, features: int, y: Any = None, classes: Any = None) -> None:
        """Fix, before the first fit, all that does not depend on what records say; ``y`` tells the classes, at most."""
        self.plan_ = self._make_plan(records, features, self.expected_records)

    def _draw(self, rng: np.random.Generator) -> None:
        """Draw what else is fixed before a fit, from a stream that gives nothing else: all can see it."""

    def _new_columns(self, *columns: Any) -> tuple[Any, ...]:
        """Check the columns of a request and return them as records have them; nothing of the caller's is kept."""
        raise NotImplementedError

    def _derive(self, model: Array) -> tuple[Any, ...]:
        """Return what is published, from the model's parameters."""
        raise NotImplementedError

    def _kept_by_records(self, before: Any) -> list[tuple[str, Any, Any]]:
        """Return (parameter, as it was, as it is) for parameters by which the stored records were encoded."""
        return []

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
        records = MemoryRecords(columns, ids, subjects)
        transcript = learn(self.plan_.learner, records, randomness)
        counts, seeded = isinstance(self.random_state, (int, np.integer)), self.random_state is not None
        self._keeper = Keeper(self.plan_.learner, records, transcript, counts=counts, seeded=seeded)
        self._publish()
        self._report_size(records.count)

    def _report_size(self, records: int) -> None:
        if records > self.plan_.largest:
            warn_caller(_outgrown(self.plan_, records), SizeWarning)

    def replan(self, expected_records: int | None = None) -> Outcome:
        """Fit anew, to the records that there are now, with a plan for their number (or the one you expect).

        Parameters are taken as they are now, so that it can also change ``rho`` or ``schedule``. It costs what a fit
        costs; the outcome tells the evaluations and seconds. Let it depend on the number of records only: to fit anew
        because a model turned out badly, or a deletion replayed, is a bias.
        """
        self._need_fit()
        if expected_records is not None:
            check_positive("expected_records", expected_records, whole=True)
        with self._keeper.lock, self._as_it_was():
            self._keeper.catch_up(self._publish)  # another thread may have been interrupted meanwhile
            randomness, request = self._randomness(), (self._keeper.begun or 0) + 1
            records = self._records.copy()
            before = self.plan_
            self.plan_ = self._make_plan(records.count, self.n_features_in_, expected_records)
            self._check_replan(before, records)
            with randomness:
                transcript, outcome = learn_with_outcome(self.plan_.learner, records, randomness)
            if isinstance(self._keeper, DurableKeeper):
                self._keeper.rewrite(self._description(), records, transcript, transcript.model(self.plan_.learner))
                self._keeper.look(self._publish)
            else:
                keeper = Keeper(
                    self.plan_.learner, records, transcript,
                    counts=self._keeper.begun is not None, begun=request, seeded=self.random_state is not None,
                )  # fmt: skip
                keeper.follow(self._keeper)
                self._keeper = keeper
                self._publish()
        return outcome

    def _check_replan(self, before: Any, records: MemoryRecords) -> None:
        """Raise if the new plan does not fit the records as they are kept."""
        for name, old, new in self._kept_by_records(before):
            if old != new:
                raise BadPlan(f"{name}: records are kept as {old!r} had it; fit anew from the original records.")
        if records.count > self.plan_.size_class[1]:
            raise BadPlan(
                f"expected_records: there are {records.count:,} records already; expect at least a quarter of that."
            )
        self._refuse_crowds(records.subjects, None)

    def unlearn(self, ids: Any = None, subjects: Any = None, missing: Literal["error", "ignore"] = "error") -> Outcome:
        """Delete records, named by id or by subject: afterwards everything is as if they had never been there.

        With ``missing="ignore"`` those that are not there are passed over, and one named twice is deleted once.
        The outcome is for you only: it depends on what was deleted, so do not store or log it.
        """
        return self.serve_request(self.prepare_request(Delete(ids, subjects, missing)))

    def prepare_request(self, request: Request) -> Request:
        """Check a request as far as it goes without the records, and return it in the form in which it is served.

        Its ``columns`` are those of `insert`; those of the result are arrays, encoded. Nothing is changed.
        """
        self._check_fitted()
        try:
            return self._prepared(request)
        except ExpungeError as error:
            error.refused = True
            raise

    def _prepared(self, request: Request) -> Request:
        match request:
            case Delete():
                self._check_named(request)
                ids, subjects = _names("ids", request.ids), _names("subjects", request.subjects)
                return Delete(ids, subjects, request.missing, request.at)
            case Replace():
                self._check_named(request)
                ids, subjects = _names("ids", request.ids), _names("subjects", request.subjects)
            case Insert():
                ids = None if request.ids is None else as_ids("ids", request.ids).copy()
                subjects = None if request.subjects is None else as_ids("subjects", request.subjects).copy()
            case _:
                raise BadRecords(f"request: expected an Insert, a Delete or a Replace, got {type(request).__name__}.")
        if len(request.columns) != len(self.COLUMNS):
            expected = ", ".join(self.COLUMNS) + ("," if len(self.COLUMNS) == 1 else "")
            raise BadRecords(f"columns: expected ({expected}), got {len(request.columns)} columns.")
        columns = self._new_columns(*request.columns)
        for name, given in (("ids", ids), ("subjects", subjects)):
            if given is not None:
                check_number(name, given, rows_in(columns[0]))
        if isinstance(request, Replace):
            return Replace(columns, ids, subjects, request.missing, request.at)
        return Insert(columns, ids, subjects, request.at)

    def serve_request(self, prepared: Request) -> Outcome:
        """Serve a request that `prepare_request` has returned (or another of that form).

        An error with ``refused`` set says that none of it was begun. After any other, such as Ctrl-C, `has_begun` says
        whether it was: then the next call finishes it, with the coins that were tossed for it. Do not ask again.
        """
        self._check_fitted()
        with self._keeper.lock, self._randomness() as randomness:
            if isinstance(prepared, Insert) and self._records.has_subjects:
                try:
                    self._keeper.catch_up(self._publish)
                    self._records.check_new(prepared.ids)
                    self._refuse_crowds(prepared.subjects, self._records)
                except ExpungeError as error:
                    error.refused = True
                    raise
            before = self._records.count
            self._keeper.seeded = self._keeper.seeded or self.random_state is not None
            outcome = self._keeper.serve(prepared, randomness, self._publish)
            now = self._records.count
        if isinstance(prepared, Delete) and outcome.removed and now == 0:
            warn_caller(
                f"every record has been deleted: the model is now what training on nothing gives ({self.NOTHING}). "
                "Insert records, or fit anew."
            )
        elif before <= self.plan_.largest < now or now < self.plan_.size_class[0] <= before:
            warn_caller(_outgrown(self.plan_, now), SizeWarning)
        return outcome

    def has_begun(self, prepared: Request) -> bool:
        """Say whether this very request, as it was given to `serve_request`, has been begun (or is done)."""
        self._check_fitted()
        return self._keeper.has_begun(prepared)

    def verify(self, *, tolerance: float = 0.0) -> Verification:
        """Re-derive the whole state from the live records, and name everything that does not agree.

        On another machine linear algebra may round differently: allow a relative ``tolerance`` there, such as 1e-9.
        """
        self._need_fit()
        with self._keeper.lock:
            found = self._keeper.verify(self._publish, tolerance)
            fresh = self._derive(self._keeper.transcript.model(self.plan_.learner))
            published = self._published
        stale = [
            f"{name}: does not fit the transcript"
            for name, mine, derived in zip(self.PUBLISHED, published, fresh, strict=True)
            if not np.array_equal(mine, derived)
        ]
        return replace(found, problems=(*found.problems, *stale))

    def replay_probability(self, ids: Any = None, subjects: Any = None) -> Array:
        """Return, for each record or subject, how likely deleting it alone is to replay (with epochs, a bound)."""
        self._need_fit()
        self._check_named(Delete(ids, subjects))
        name = "subjects" if ids is None else "ids"
        each = _names(name, subjects if ids is None else ids)
        requests = [Delete(**{name: each[j : j + 1]}) for j in range(len(each))]
        return np.array(self._keeper.chances(requests, self._publish))

    @property
    def ids_(self) -> AnyArray:
        """The ids of all live records, ascending."""
        self._need_fit()
        with self._keeper.lock:
            return np.sort(self._records.all_ids())

    @property
    def subjects_(self) -> AnyArray:
        """The subjects of all live records, each once, ascending."""
        self._need_fit()
        with self._keeper.lock:
            held = self._records.subjects
        if held is None:
            raise BadRecords("subjects: this model was fitted without subjects; its records are named by ids.")
        return np.unique(held)

    @property
    def n_records_(self) -> int:
        """How many records the model has been trained on, as things are now."""
        check_is_fitted(self)
        self._look()
        return self._keeper.count

    @property
    def transcript_(self) -> Transcript:
        """The state beside the records: arrays ``sums``, ``answers`` and ``iterates``, one row a step.

        They are the model's own, to look at; `verify` notices if they are changed.
        """
        self._need_fit()
        with self._keeper.lock:  # all of one state
            kept = self._keeper.transcript
            sums, answers, iterates = (cast(Any, table[:]) for table in (kept.sums, kept.answers, kept.iterates))
        return Transcript(sums, answers, iterates, kept.start, kept.assignment)

    @property
    def _records(self) -> MemoryRecords:
        return self._keeper.records

    # --- parts ---

    def _check_fitted(self) -> None:
        if "_keeper" not in self.__dict__:  # to ask scikit-learn takes longer
            check_is_fitted(self)

    def _need_fit(self) -> None:
        """Raise if there is no fit; else finish what was interrupted."""
        self._check_fitted()
        self._keeper.catch_up(self._publish)

    def _randomness(self) -> Randomness:
        """Return the randomness of the next request; a fixed one must never be used for two."""
        why = None
        if isinstance(self._keeper, DurableKeeper) and self.random_state is not None:
            why = "this model lives in a file, and draws all its randomness from the system"
        elif isinstance(self.random_state, (int, np.integer)) and self._keeper.begun is None:
            why = "this model was not fitted with it, and does not count its requests: all would have the same coins"
        if why is not None:
            error = BadPlan(f"random_state={self.random_state!r}: {why}. Set it to None.")
            error.refused = True
            raise error
        return Randomness.given(self.random_state, (self._keeper.begun or 0) + 1)

    def _check_named(self, request: Delete | Replace) -> None:
        check_named(request)
        if request.subjects is not None and not self._records.has_subjects:
            raise BadRecords("subjects: this model was fitted without subjects; name the records by ids.")

    def _refuse_crowds(self, subjects: Any, records: MemoryRecords | None) -> None:
        """Raise if a subject has more records than declared, on which the noise was planned."""
        if subjects is None:
            return
        names, counts = np.unique(as_ids("subjects", subjects), return_counts=True)
        if records is not None:
            counts = counts + records.numbers_of(names)
        most = int(counts.argmax()) if len(counts) else 0
        if len(counts) and counts[most] > self.plan_.records_per_subject:
            raise BadRecords(
                f"subjects: {names[most].item()!r} would have {counts[most]} records, "
                f"records_per_subject={self.plan_.records_per_subject}. Declare the largest number at the first fit."
            )

    def _shown(self, position: int) -> Any:
        """Return something that was published; raise if there is no fit."""
        self._check_fitted()
        return self._published[position]

    def _publish(self) -> None:
        if isinstance(self._keeper, DurableKeeper):
            self.plan_ = self._keeper.description.plan  # another process may have made a new one
        self._derived = self._derive(self._keeper.model())  # in one go: other threads may be predicting

    @property
    def _published(self) -> tuple[Any, ...]:
        """What the model is known by, as it is now."""
        self._look()
        return self._derived

    def _look(self) -> None:
        """Publish what another process has done meanwhile."""
        if isinstance(self._keeper, DurableKeeper):
            self._keeper.look(self._publish)

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two models must not share records

    def __getstate__(self) -> dict[str, Any]:
        if "_keeper" not in self.__dict__:
            return cast(dict[str, Any], super().__getstate__())
        with self._keeper.lock:  # all at one time, though other threads may be serving requests
            return {**super().__getstate__(), "_keeper": pickle.dumps(self._keeper, pickle.HIGHEST_PROTOCOL)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("_keeper"), bytes):
            state = {**state, "_keeper": pickle.loads(state["_keeper"])}
        super().__setstate__(state)


class SupervisedModel(ForgettingModel):
    """A model whose records are features and a target, and which has coefficients."""

    COLUMNS = ("X", "y")
    PUBLISHED: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")

    def _encode_rows(self, X: Any) -> Any:
        """Return rows as records have them."""
        return X

    def _encode_targets(self, y: AnyArray) -> AnyArray:
        """Return targets as the loss wants them."""
        raise NotImplementedError

    def _fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> None:
        """Check records, make a plan and learn."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, ids: Any = None, subjects: Any = None) -> Self:
        """Learn from records, with an id each (without ids they are numbered 0, 1, 2, …).

        ``subjects`` says whose record each is; by default each is its own.
        """
        with self._as_it_was():
            self._fit(X, y, ids, subjects)
        return self

    def _partial_fit(self, X: Any, y: Any, ids: Any, subjects: Any, classes: Any = None) -> Self:
        if "_keeper" in self.__dict__:
            self.insert(X, y, ids, subjects)
            return self
        with self._as_it_was():
            self._fit(X, y, ids, subjects, classes)
        return self

    def insert(self, X: Any, y: Any, ids: Any = None, subjects: Any = None) -> Outcome:
        """Add records, exactly as if they had been there from the start. An id that was deleted may come back."""
        return self.serve_request(self.prepare_request(Insert((X, y), ids, subjects)))

    def replace(
        self, X: Any, y: Any, ids: Any = None, subjects: Any = None, missing: Literal["error", "ignore"] = "error"
    ) -> Outcome:
        """Correct records, named by id (or by subject, who must then have one): as if they had always been so.

        With ``missing="ignore"`` those that are not there are passed over.
        """
        return self.serve_request(self.prepare_request(Replace((X, y), ids, subjects, missing)))

    def _new_columns(self, X: Any, y: Any) -> tuple[Any, AnyArray]:
        given = X
        if not self._are_plain(X, y):
            refuse_masked(X, y)
            refuse_nan("X", X)
            refuse_nan("y", y)
            X, y = validate_data(
                self, X, y, reset=False, y_numeric=is_regressor(self), ensure_min_samples=0, **TABLE
            )  # fmt: skip
        rows = self._encode_rows(X)
        if is_sparse(rows):
            rows = rows.copy() if self._sparse else rows.toarray()
        elif isinstance(given, np.ndarray) and np.may_share_memory(rows, given):
            rows = rows.copy()  # a request may wait, and what was given may change meanwhile
        return rows, self._encode_targets(y)

    def _are_plain(self, X: Any, y: Any) -> bool:
        """Say whether rows and targets are arrays as they should be, so that scikit-learn need not look at them."""
        if type(X) is not np.ndarray or type(y) is not np.ndarray or hasattr(self, "feature_names_in_"):
            return False
        shaped = X.ndim == 2 and y.ndim == 1 and X.shape == (len(y), self.n_features_in_) and len(y) > 0
        typed = X.dtype == np.float64 and y.dtype.kind in "biuf"
        return shaped and typed and bool(np.isfinite(X).all() and np.isfinite(y).all())

    @property
    def coef_(self) -> Array:
        """The weights of the features."""
        return self._shown(0)

    @property
    def intercept_(self) -> Any:
        """What is added to them."""
        return self._shown(1)


def _outgrown(plan: Frozen, records: int) -> str:
    low, high = plan.size_class
    exceeded = " and a deletion may replay more often than rho says" if records > plan.horizon else ""
    return (
        f"there are now {records:,} records, and the plan is for {low:,} to {high:,}: noise and step sizes no longer "
        f"fit{exceeded}. replan() makes a new plan; it is a fresh fit, {round(records * plan.passes):,} evaluations. "
        "With replan(expected_records=...) it is good for longer."
    )


ROWS: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "dtype": np.float64, "order": "C"}
TABLE: dict[str, Any] = {**ROWS, "accept_large_sparse": True}


def refuse_masked(X: Any, y: Any = None) -> None:
    """Raise if values are masked: what is behind the mask is not meant."""
    for name, rows in (("X", X), ("y", y)):
        if np.ma.is_masked(rows):
            raise BadRecords(f"{name}: some values are masked; fill them in or leave out the records.")


def refuse_nan(name: str, rows: Any) -> None:
    """Name the first row of an array with NaN or infinity; what is not an array is looked at later."""
    if type(rows) is np.ndarray and rows.dtype.kind == "f" and not np.isfinite(rows).all():
        row = int(np.argwhere(~np.isfinite(rows))[0][0])
        raise BadRecords(f"{name}: row {row} holds NaN or infinity; fill in or leave out the record.")


def _names(name: str, given: Any) -> Any:
    """Return ids or subjects, if any are given, as an array of their own, also if there is one, or a set of them."""
    if given is None:
        return None
    if isinstance(given, Set):
        try:
            given = sorted(given)
        except TypeError as error:
            raise BadRecords(f"{name}: ids must be integers or strings, all of one kind ({error}).") from error
    elif isinstance(given, str) or not isinstance(given, Sized) or getattr(given, "ndim", 1) == 0:
        given = [given]
    return as_ids(name, given).copy()
