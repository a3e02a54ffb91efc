"""The state of a fitted model, and requests served one after the other.

A request whose coins have been tossed must be served with these coins and no others: to try again with new ones,
because a replay ran out of memory or was interrupted, is a bias. So what has been asked is kept, with the key of its
randomness, until it is done; the next request begins with finishing it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from expunge.base.errors import ExpungeError
from expunge.base.intake import Request
from expunge.base.types import Array
from expunge.engine.changing import Change, chance_of_replay, decide_on, propose
from expunge.engine.learner import Learner, Transcript
from expunge.engine.outcome import Outcome
from expunge.engine.randomness import Randomness
from expunge.engine.records.memory import MemoryRecords
from expunge.engine.selectors import Running
from expunge.engine.verifying import Verification, verify

_TRANSIENTS = ("lock", "_done", "_process")


class Owner:
    """Owns records and transcript, and changes them by whole requests only; safe to share between threads."""

    path: Path | None = None
    """The file that all of it lives in, if it does."""
    plan: Any = None
    """The plan that stands in the file: another process may have made a new one."""
    _decided: Change | None = None
    """A request that was decided and is being committed; a file commits all of one or nothing, and has none."""
    late: tuple[str, ...] = ()
    """Parameters that were set since, and that the learner was not made with."""
    warned_of_seed = False
    """Whether a request with a seed of the user's has been warned of."""

    def __init__(
        self,
        learner: Learner,
        records: MemoryRecords,
        transcript: Transcript,
        *,
        counts: bool = False,
        begun: int = 0,
        seeded: bool = False,
    ) -> None:
        self.learner = learner
        self.records = records
        self.transcript = transcript
        self.begun = begun if counts else None
        """How many requests were begun, where a fixed seed needs to know."""
        self.seeded = seeded
        """Whether any of this comes from a seed that the user gave, and that others may know."""
        self._pending: tuple[Request, bytes] | None = None
        self._decided: Change | None = None
        self._running = Running(learner.selector) if learner.schedule.ordered else None
        self._make_transients()

    def _make_transients(self) -> None:
        """Make what belongs to this process only."""
        self.lock = threading.RLock()
        self._process = os.getpid()
        self._done: weakref.WeakSet[Request] = weakref.WeakSet()  # only those that a caller still holds

    def why_no_seed(self, fixed: bool) -> str | None:
        """Say why the next request cannot have a seed of the user's, if it cannot; a ``fixed`` one is a number."""
        if fixed and self.begun is None:
            return "this model was not fitted with it, and does not count its requests: all would have the same coins"
        if os.getpid() != self._process:
            return "this process was forked from the one that made the model, and both would toss the same coins"
        return None

    def rewrite(
        self,
        describe: Callable[[], Any],
        learner: Learner,
        records: MemoryRecords,
        transcript: Transcript,
        seeded: bool,
    ) -> Owner:
        """Put a fresh fit in the place of everything; return who owns it now. A file has what ``describe`` says."""
        counts, begun = self.begun is not None, (self.begun or 0) + 1
        owner = Owner(learner, records, transcript, counts=counts, begun=begun, seeded=seeded)
        owner.lock, owner._done = self.lock, self._done  # threads may be waiting for it
        return owner

    def look(self, publish: Callable[[], None]) -> None:
        """Publish what another process has done: in memory there is none."""

    def close(self) -> None:
        """Close the file, if there is one."""

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            return {name: value for name, value in self.__dict__.items() if name not in _TRANSIENTS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_transients()

    def serve(self, request: Request, randomness: Randomness, publish: Callable[[], None]) -> Outcome:
        """Serve a request; ``publish`` is called when the path has changed, before anything else is served."""
        with self.lock:
            self.catch_up(publish)
            return self._serve(request, randomness, publish)

    def has_begun(self, request: Request) -> bool:
        """Say whether this very request was begun: then it is done, or will be finished by whatever comes next."""
        with self.lock:
            return (self._pending is not None and self._pending[0] is request) or request in self._done

    def catch_up(self, publish: Callable[[], None]) -> None:
        """Finish what was begun and interrupted, with the coins that were tossed for it."""
        with self.lock:
            if self._decided is not None:
                self._finish(self._decided, publish)
            elif self._pending is not None:
                request, key = self._pending
                self.records.rollback()
                with Randomness(key) as randomness:
                    self._serve(request, randomness, publish)

    def _serve(self, request: Request, randomness: Randomness, publish: Callable[[], None]) -> Outcome:
        try:
            edit = propose(self.learner, self.records, request, randomness)
            if self.learner.structure is not None:
                self.transcript.found(self.learner.structure)  # until here a request can be refused
        except ExpungeError as error:
            error.refused = self._pending is None
            raise
        anew = self._pending is None
        self._pending = request, randomness.key
        if self.begun is not None and anew:
            self.begun += 1
        self._decided = decide_on(self.learner, self.records, self.transcript, edit, randomness)
        return self._finish(self._decided, publish)

    def _finish(self, decided: Change, publish: Callable[[], None]) -> Outcome:
        moved = decided.moved or decided.begun
        if self._running is not None:
            self._running.cut(decided.first + 1)
        try:
            if not decided.finished:
                decided.commit()
        finally:  # Ctrl-C during a commit is raised when it is done
            if decided.finished:
                if moved:
                    publish()
                if self._pending is not None:
                    self._done.add(self._pending[0])  # before it is forgotten: see has_begun
                self._pending = self._decided = None
        return decided.outcome

    @property
    def count(self) -> int:
        """How many records there are."""
        return self.records.count

    @property
    def solving(self) -> AbstractContextManager[Any]:
        """What keeps requests off while the model is solved."""
        return self.lock

    def settle(self, publish: Callable[[], None]) -> None:
        """Finish a commit that has begun: until then the state is half of one request."""
        if self._decided is not None:
            self._finish(self._decided, publish)

    @property
    def solves_late(self) -> bool:
        """Whether the model is solved when it is read, and not by requests."""
        return self.solver.solves_late

    @property
    def solver(self) -> Learner:
        """The learner that the model is solved by when it is read: it remembers what it was solved with."""
        return self.learner

    def model(self) -> Array:
        """Return the model that the learner's selector makes of the iterates."""
        if self._running is None:
            return self.transcript.model(self.learner)
        return self._running.model(self.transcript.path)  # rows are appended: what it costs must not grow with them

    def verify(self, publish: Callable[[], None], tolerance: float) -> Verification:
        """Re-derive what can be, once everything is finished."""
        with self.lock:
            self.catch_up(publish)
            return verify(self.learner, self.records, self.transcript, tolerance=tolerance)

    def chances(self, requests: Sequence[Request], publish: Callable[[], None]) -> list[float]:
        """Return how likely each request, alone, is to replay."""
        with self.lock:
            self.catch_up(publish)
            return [chance_of_replay(self.learner, self.records, self.transcript, request) for request in requests]
