"""Requests to a model, and what can be asked of it: all that needs no scikit-learn, for estimators and files alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

import numpy as np

from expunge.base.columns import rows_in
from expunge.base.errors import BadPlan, BadRecords, ExpungeError, PlanWarning, SeedWarning, warn_caller
from expunge.base.intake import Delete, Insert, Replace, Request, as_ids, as_own_ids, check_named, check_number
from expunge.base.types import AnyArray, Array
from expunge.engine.learner import Transcript
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import Randomness
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.verifying import Verification
from expunge.models.showing import if_available
from expunge.solvers.plans.sized import Standing


class Serving:
    """Records, a transcript and a plan, of which requests can be asked."""

    COLUMNS: ClassVar[tuple[str, ...]]
    """The names of a record's columns in a request."""
    PUBLISHED: ClassVar[tuple[str, ...]]
    """What the fitted model is known by."""
    plan_: Any
    random_state: Any = None
    _owner: Any
    _derived: tuple[Any, ...] | None
    """What is published; None where it is to be solved for when it is next read."""

    # --- what a subclass says ---

    def _new_columns(self, *columns: Any) -> tuple[Any, ...]:
        """Check the columns of a request and return them as records have them; nothing of the caller's is kept."""
        raise NotImplementedError

    def _derive(self, model: Array) -> tuple[Any, ...]:
        """Return what is published, from the model's parameters."""
        raise NotImplementedError

    # --- requests ---

    def unlearn(self, ids: Any = None, subjects: Any = None, missing: Literal["error", "ignore"] = "error") -> Outcome:
        """Delete records, by id or by subject: afterwards everything is as if they had never been in the data.

        With ``missing="ignore"`` those that are not found are skipped, and one named twice is deleted once.
        The outcome is for you only: it depends on what was deleted, so do not store or log it.
        """
        return self.serve_request(self.prepare_request(Delete(ids, subjects, missing)))

    def prepare_request(self, request: Request) -> Request:
        """Check a request as far as possible without the records, and return it in the form in which it is served.

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
                ids, subjects = as_own_ids("ids", request.ids), as_own_ids("subjects", request.subjects)
                return Delete(ids, subjects, request.missing, request.at)
            case Replace():
                self._check_named(request)
                ids, subjects = as_own_ids("ids", request.ids), as_own_ids("subjects", request.subjects)
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

        An error with ``refused`` set says that the request was not begun. After any other error, such as Ctrl-C,
        `has_begun` says whether it was: then the next call finishes it, with its own coins. Do not repeat it.
        """
        self._check_fitted()
        self._warn_of_late()
        with self._owner.lock:
            owner = self._owner  # another, if there was a fresh fit while this waited
            before = Standing(owner.records.count, self._rank())
            with self._randomness() as randomness:
                if isinstance(prepared, Insert) and owner.records.has_subjects:
                    self._check_crowds(prepared)
                    before = Standing(owner.records.count, before.rank)
                owner.seeded = owner.seeded or self.random_state is not None
                outcome = owner.serve(prepared, randomness, self._publish)
            count = owner.records.count
        now = Standing(count, self._rank())
        if now.records not in self.plan_.untroubled or now.rank != before.rank:
            deleted = outcome.removed if isinstance(prepared, Delete) else 0
            for said, kind in self.plan_.remarks(before, now, deleted):
                warn_caller(said, kind)
        return outcome

    def _check_crowds(self, prepared: Insert) -> None:
        """Refuse records of subjects that would have too many, once what was interrupted is finished."""
        try:
            self._owner.catch_up(self._publish)
            self._records.check_new(prepared.ids)
            self._refuse_crowds(prepared.subjects, self._records)
        except ExpungeError as error:
            error.refused = True
            raise

    def has_begun(self, prepared: Request) -> bool:
        """Say whether this very request, as it was given to `serve_request`, has been begun (or is done)."""
        self._check_fitted()
        return self._owner.has_begun(prepared)

    def verify(self, *, tolerance: float = 0.0) -> Verification:
        """Re-derive the whole state from the live records, and name everything that does not agree.

        On another machine linear algebra may round differently: allow a relative ``tolerance`` there, such as 1e-9.
        """
        self._need_fit()
        with self._owner.lock:
            found = self._owner.verify(self._publish, tolerance)
            if not found.ok:  # what is damaged cannot be read, nor derived from
                return found
            fresh = self._derive(self._owner.transcript.model(self._owner.solver))
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
        each = as_own_ids(name, subjects if ids is None else ids)
        requests = [Delete(**{name: each[j : j + 1]}) for j in range(len(each))]
        return np.array(self._owner.chances(requests, self._publish))

    @property
    @if_available
    def ids_(self) -> AnyArray:
        """The ids of all live records, ascending."""
        self._need_fit()
        with self._owner.lock:
            return np.sort(self._records.all_ids())

    @property
    @if_available
    def subjects_(self) -> AnyArray:
        """The subjects of all live records, each once, ascending."""
        self._need_fit()
        with self._owner.lock:
            held = self._records.subjects
        if held is None:
            raise BadRecords("subjects: this model was fitted without subjects; use ids.")
        return np.unique(held)

    @property
    @if_available
    def n_records_(self) -> int:
        """How many records the model has now."""
        self._check_fitted()
        self._look()
        return self._owner.count

    @property
    @if_available
    def transcript_(self) -> Transcript:
        """The state in addition to the records: arrays ``sums``, ``answers`` and ``iterates``, one row per step.

        Do not change them; `verify` would detect it.
        """
        self._need_fit()
        with self._owner.lock:  # all of one state
            kept = self._owner.transcript
            sums, answers, iterates = (cast(Any, table[:]) for table in (kept.sums, kept.answers, kept.iterates))
        return Transcript(sums, answers, iterates, kept.start, kept.assignment)

    @property
    def _records(self) -> MemoryRecords:
        return self._owner.records

    # --- parts ---

    def _warn_of_late(self) -> None:
        """Warn, once, if the model is used though parameters were set that it has not been made with."""
        late, self._owner.late = self._owner.late, ()
        if late:
            warn_caller(
                f"{', '.join(late)}: set after the fit, and not in effect. Call replan(), which is a fresh fit to the "
                "model's own records, or fit().",
                PlanWarning,
            )

    def _check_fitted(self) -> None:
        if "_owner" not in self.__dict__:  # to ask scikit-learn takes longer
            from sklearn.utils.validation import check_is_fitted

            check_is_fitted(self)

    def _rank(self) -> int | None:
        """Return how many directions of the coefficients are determined, where that may fall short."""
        return None

    def _need_fit(self) -> None:
        """Raise if there is no fit; else finish what was interrupted."""
        self._check_fitted()
        self._owner.catch_up(self._publish)

    def _randomness(self) -> Randomness:
        """Return the randomness of the next request; a fixed one must never be used for two."""
        fixed = isinstance(self.random_state, (int, np.integer))
        why = None if self.random_state is None else self._owner.why_no_seed(fixed)
        if why is not None:
            error = BadPlan(f"random_state={self.random_state!r}: {why}. Set it to None.")
            error.refused = True
            raise error
        if self.random_state is not None and not self._owner.warned_of_seed:
            self._owner.warned_of_seed = True
            self._warn_of_seed("what is deleted", "set it to None and call replan()")
        return Randomness.given(self.random_state, (self._owner.begun or 0) + 1)

    def _warn_of_seed(self, what: str, instead: str) -> None:
        state = self.random_state
        shown = state if isinstance(state, (int, np.integer)) else type(state).__name__
        warn_caller(
            f"random_state={shown} is for tests: anyone who knows it, or finds it by trying, can compute {what}. In "
            f"production {instead}.",
            SeedWarning,
        )

    def _check_named(self, request: Delete | Replace) -> None:
        check_named(request)
        if request.subjects is not None and not self._records.has_subjects:
            raise BadRecords("subjects: this model was fitted without subjects; give ids.")

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
        if (plan := self._owner.plan) is not None:
            if self.__dict__.get("plan_") != plan:
                self._owner.late = ()
            self.plan_ = plan  # another process may have made a new one
        owner = self._owner
        self._derived = None if owner.solves_late else self._derive(owner.model())  # in one go: others predict

    @property
    def _published(self) -> tuple[Any, ...]:
        """What the model is known by, as it is now."""
        self._look()
        self._warn_of_late()
        while (derived := self._derived) is None:
            owner = self._owner
            with owner.solving:  # a request that came between would make it a model of two states
                owner.settle(self._publish)
                derived = self._derive(owner.model())
                if self._owner is owner:  # else there was a fresh fit meanwhile
                    self._derived = derived
        return derived

    def _look(self) -> None:
        """Publish what another process has done meanwhile."""
        self._owner.look(self._publish)
