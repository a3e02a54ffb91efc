"""Streams of requests: many of them, served in bulks.

>>> import numpy as np
>>> from expunge import LogisticRegression
>>> X = np.random.default_rng(0).normal(size=(100, 3))
>>> y = (X[:, 0] > 0).astype(int)
>>> model = LogisticRegression(random_state=0).fit(X[:90], y[:90])
>>> stream = [Delete([3]), Delete([4, 5]), Insert((X[90:], y[90:])), Replace((X[6:7], y[6:7]), ids=[6])]
>>> applied = apply(model, stream)
>>> applied.deleted, applied.inserted, applied.replaced, applied.bulks, model.n_records_
(3, 10, 1, 3, 97)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from expunge.base.checking import check_positive
from expunge.base.columns import is_sparse, rows_in
from expunge.base.errors import BadPlan, BadRecords, ExpungeError, RequestFailed, StoreError
from expunge.base.intake import Delete, Insert, Replace, Request
from expunge.base.types import AnyArray
from expunge.engine.outcome import Outcome

__all__ = ["Applied", "Delete", "Insert", "Model", "Replace", "Request", "RequestFailed", "apply"]


class Model(Protocol):
    """What requests can be applied to: all estimators of `expunge.models` can.

    It may also have ``has_begun(prepared) -> bool``, which says, after an interruption, whether this very request was
    begun: then it is done, or whatever the model is asked next finishes it.
    """

    def prepare_request(self, request: Request) -> Request:
        """Check what a request says by itself; return it with columns, ids and subjects as arrays of equal length."""

    def serve_request(self, prepared: Request) -> Outcome:
        """Serve it. An `ExpungeError` with ``refused`` set says that nothing of it was begun."""


@dataclass(frozen=True)
class Applied:
    """How a stream of requests went. Like an `Outcome` it is for the caller only: never store it."""

    requests: int
    bulks: int
    inserted: int
    deleted: int
    replaced: int
    """Records that were inserted, deleted and replaced."""
    replays: int
    """How many bulks replayed."""
    evaluations: int
    """How often a record's contribution was computed."""
    seconds: float


def apply(
    model: Model,
    requests: Iterable[Request | None],
    *,
    bulk: int = 1000,
    every: float | None = None,
    missing: Literal["error", "ignore"] | None = None,
    progress: bool = False,
    watch: Callable[[Outcome], None] | None = None,
) -> Applied:
    """Serve a stream of requests, in order; consecutive ones of a kind are merged into one bulk.

    A bulk has at most ``bulk`` records (a subject counts as one; a single request that is larger goes alone), and no
    more than that are held. With ``every``, a bulk also ends where ``at // every`` of the next request is another
    number. And it ends where the next request is of another form: with ids or without, dense or sparse, a record
    that the bulk replaces already, and so on. So what ends a bulk is the requests themselves, by their count and their
    own clock, never how long the last bulk took to serve: that depends on what its coins said, and bulks cut by it
    would let one outcome decide about the next.

    ``missing``, if given, holds for all deletions and replacements of the stream, in place of their own. ``watch``
    gets the outcome of each bulk. ``progress`` shows a bar (it needs rich).

    A None in the stream ends the bulk (and is not counted): let a source that waits for requests give one now and
    then, by its clock, so that none waits for the next.

    A request that fails raises `RequestFailed`, with its ``number``: those before it are done, it and those after it
    are not. Any other error (Ctrl-C, no memory, an error of the stream itself) comes as it is, with ``done``, how many
    requests of the stream are done, or begun: the model finishes those with their own coins when it is next asked
    anything. Both have ``waiting``, the requests that had been read and are not done. So go on with
    ``requests[error.done:]``, or with ``itertools.chain(error.waiting, requests)`` if they cannot be read again.
    (Without ``done`` the error came before the first request, or while another, its ``__context__``, was on its way:
    that one has it.)

    >>> import numpy as np
    >>> from expunge import LinearRegression
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> model = LinearRegression().fit(X, X[:, 0])
    >>> apply(model, (Delete([j]) for j in range(20)), bulk=8).bulks
    3
    >>> apply(model, [Delete([20]), Delete([3]), Delete([21])])
    Traceback (most recent call last):
    expunge.base.errors.RequestFailed: request 1 (Delete): ids: id not found: 3; ...
    >>> apply(model, [Delete([20]), Delete([3]), Delete([21])], missing="ignore").deleted
    1
    """
    run = _Run(model, bulk, every, missing, watch)
    try:
        try:
            with _shown(progress, requests) as run.show:
                run.all_of(requests)
                return run.applied()
        except BaseException as error:
            run.tell(error)
            raise
    except BaseException as error:
        run.tell(error)  # again, should Ctrl-C have come while another error was told
        raise


class _Run:
    """A stream that is being applied."""

    def __init__(self, model: Model, bulk: Any, every: Any, missing: Any, watch: Any) -> None:
        check_positive("bulk", bulk, whole=True)
        if every is not None:
            check_positive("every", every)
        if missing not in (None, "error", "ignore"):
            raise BadPlan(f"missing={missing!r}: give 'error' or 'ignore', or None to let each Delete say.")
        self.model, self.bulk, self.every, self.missing, self.watch = model, bulk, every, missing, watch
        self.show: Callable[[int, int], None]
        self.began = time.perf_counter()
        self.done = 0
        """How many requests of the stream are done."""
        self.asked: tuple[Request, int] | None = None
        """What was last asked of the model, and how many requests are done with it."""
        self.failure: RequestFailed | None = None
        self.told: list[BaseException] = []
        self.waiting: list[tuple[Request, Request]] = []
        """Requests, as given and as prepared, that will be one bulk."""
        self.read: list[Request] = []
        """Requests that have been read and are not done."""
        self.form: tuple[Any, ...] = ()
        self.size = 0
        self.replacing: set[Any] = set()
        self.bulks = self.replays = self.evaluations = 0
        self.records = dict.fromkeys((Insert, Delete, Replace), 0)

    def all_of(self, requests: Iterable[Request | None]) -> None:
        stream = iter(requests)
        while True:
            try:
                request = next(stream)
            except StopIteration:
                break
            except Exception:  # what it gave before is not lost
                self.serve()
                raise
            if request is None:
                self.serve()
            else:
                self.take(request)
        self.serve()

    def take(self, request: Request) -> None:
        """Let a request wait for others that can be served with it, and serve those that cannot."""
        number = self.done + len(self.waiting)
        self.read.append(request)
        try:
            window = self._window(request)
            prepared = self.model.prepare_request(self._with_missing(request))
        except MemoryError:
            raise
        except Exception as error:
            self.serve()
            raise self._failed(number, request, error) from error
        form, size, names = (*_form(prepared), window), _size(prepared), _replaced(prepared)
        if form != self.form or self.size + size > self.bulk or not self.replacing.isdisjoint(names):
            self.serve()
        self.waiting.append((request, prepared))
        self.form = form
        self.size += size
        self.replacing.update(names)
        if self.size >= self.bulk:
            self.serve()

    def _with_missing(self, request: Request) -> Request:
        if self.missing is None or isinstance(request, Insert) or request.missing == self.missing:
            return request
        return replace(request, missing=self.missing)

    def _window(self, request: Request) -> int | None:
        if not isinstance(request, Request):
            raise BadRecords(f"expected an Insert, a Delete or a Replace, got {type(request).__name__}.")
        if self.every is None:
            return None
        try:
            return math.floor(request.at / self.every)
        except (TypeError, ValueError, OverflowError):
            raise BadRecords(
                f"at={request.at!r}: with every={self.every!r} each request needs a time stamp, a finite number in the "
                "same unit (of a datetime, its timestamp())."
            ) from None

    def serve(self) -> None:
        """Serve all that wait as one bulk."""
        waiting, self.waiting, self.size, self.replacing = self.waiting, [], 0, set()
        if waiting:
            self._serve(waiting)

    def _serve(self, waiting: list[tuple[Request, Request]]) -> None:
        whole = _merged([prepared for _, prepared in waiting])
        self.asked = whole, self.done + len(waiting)
        try:
            outcome = self.model.serve_request(whole)
        except ExpungeError as error:
            if not error.refused or isinstance(error, StoreError):
                raise  # perhaps it was begun: to ask again would be to toss other coins. Or no request is at fault
            if len(waiting) == 1:
                raise self._failed(self.done, waiting[0][0], error) from error
        else:
            self._count(type(whole), outcome, self.asked[1])
            return
        half = len(waiting) // 2  # nothing was begun: up to the one that is at fault, all can be served
        self._serve(waiting[:half])
        self._serve(waiting[half:])

    def _count(self, kind: type[Request], outcome: Outcome, done: int) -> None:
        self.read, self.done = self.read[done - self.done :], done
        self.bulks += 1
        self.replays += not outcome.kept
        self.evaluations += outcome.evaluations
        self.records[kind] += outcome.added if kind is Insert else outcome.removed
        self.show(done, sum(self.records.values()))
        if self.watch is not None:
            self.watch(outcome)

    def _failed(self, number: int, request: Any, error: Exception) -> RequestFailed:
        before = "Nothing was done" if number == 0 else f"The {number} requests before it are done"
        before = "The request before it is done" if number == 1 else before
        reason = str(error).rstrip()
        stop = "" if reason.endswith((".", "!", "?")) else "."
        message = f"request {number} ({type(request).__name__}): {reason}{stop} {before}."
        self.failure = RequestFailed(message, number, request)
        return self.failure

    def applied(self) -> Applied:
        inserted, deleted, replaced = self.records.values()
        seconds = time.perf_counter() - self.began
        return Applied(
            self.done, self.bulks, inserted, deleted, replaced, self.replays, self.evaluations, seconds
        )  # fmt: skip

    def tell(self, error: BaseException) -> None:
        """Let an error say how far the stream came."""
        if error in self.told:
            return
        done = self.done
        if self.asked is not None and self.asked[1] > done:
            has_begun = getattr(self.model, "has_begun", None)
            if has_begun is not None and has_begun(self.asked[0]):
                done = self.asked[1]
        waiting = self.read[done - self.done + (error is self.failure) :]
        with suppress(AttributeError, TypeError):
            error.done, error.waiting = done, waiting  # type: ignore[attr-defined]
        self.told.append(error)
        if error is not self.failure:
            error.add_note(
                f"expunge: {done} requests of the stream are done, or will be at the next call to the model."
            )


# --- bulks --------------------------------------------------------------------------------------------


def _form(prepared: Request) -> tuple[Any, ...]:
    """Return what requests must have in common to be merged."""
    names = [None if given is None else given.dtype.kind for given in (prepared.ids, prepared.subjects)]
    if isinstance(prepared, Delete):
        return Delete, *names, prepared.missing
    missing = prepared.missing if isinstance(prepared, Replace) else None
    return (
        type(prepared),
        *names,
        missing,
        *[(is_sparse(part), part.shape[1:], part.dtype) for part in prepared.columns],
    )


def _size(prepared: Request) -> int:
    """Return how many records (or subjects) a request is about; at least 1, so that any stream is cut some time."""
    if not isinstance(prepared, Delete):
        return max(1, rows_in(prepared.columns[0]))
    return max(1, *[len(names) for names in (prepared.ids, prepared.subjects) if names is not None])


def _replaced(prepared: Request) -> list[Any]:
    """Return the names of the records that a request replaces."""
    if not isinstance(prepared, Replace):
        return []
    return [name for given in (prepared.ids, prepared.subjects) if given is not None for name in given.tolist()]


def _stacked(parts: tuple[Any, ...]) -> Any:
    """Return the rows of several columns, one after the other."""
    if not is_sparse(parts[0]):
        return np.concatenate(parts)
    from scipy import sparse

    return sparse.vstack(parts, "csr")


def _merged(requests: list[Request]) -> Request:
    """Return one request for several of one form."""
    first = requests[0]
    if len(requests) == 1:
        return first
    ids, subjects = _joined([one.ids for one in requests]), _joined([one.subjects for one in requests])
    if isinstance(first, Delete):
        return Delete(ids, subjects, first.missing)
    parts = zip(*[one.columns for one in requests if not isinstance(one, Delete)], strict=True)
    columns = tuple([_stacked(part) for part in parts])
    if isinstance(first, Replace):
        return Replace(columns, ids, subjects, first.missing)
    return Insert(columns, ids, subjects)


def _joined(names: list[AnyArray | None]) -> AnyArray | None:
    given = [each for each in names if each is not None]
    return np.concatenate(given) if given else None


# --- progress -----------------------------------------------------------------------------------------


@contextmanager
def _shown(progress: bool, requests: Iterable[Request | None]) -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows how many requests and records are done."""
    if not progress:
        yield lambda done, records: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as error:
        raise BadPlan("progress=True needs rich; install it with pip install 'expunge[progress]'.") from error
    total = None
    with suppress(TypeError):
        total = len(requests)  # type: ignore[arg-type]
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("requests, {task.fields[speed]}"), TimeElapsedColumn()
    began = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("requests", total=total, speed="0 records/s")

        def show(done: int, records: int) -> None:
            seconds = max(time.perf_counter() - began, 1e-9)
            bar.update(task, completed=done, speed=f"{records / seconds:,.0f} records/s")

        yield show
