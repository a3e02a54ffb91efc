"""What the engine needs of a set of records, what it asks of them, and the requests that change them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from expunge.edits import Edit
from expunge.errors import BadContribution, BadRecords
from expunge.grid import on_grid
from expunge.randomness import Randomness
from expunge.rows import Path
from expunge.schedules import Assignment, Schedule
from expunge.types import AnyArray, Array, Batch, Ints


class Query(Protocol):
    """What a record contributes at a step: ``size`` numbers of norm at most ``bound``.

    A batch has the records' columns in their order: arrays, or `scipy.sparse.csr_array` for sparse columns.

    Where a step visits everyone, a record's contribution must not depend on the batch that it comes in, not even
    in the last bit. A query may also have ``total(step, path, batch) -> (sum, how many were above the bound)``, a
    faster way to the sum of its contributions, ``admit(batch)``, which raises if records are unfit to enter, and
    ``prepare(batch) -> batch`` (or None), which brings records that enter into the form in which they take part.

    With ``exact_to``, a number, it says that its contributions lie on a grid, and that both `contributions` and
    ``total`` are exact for up to so many records: then steps that visit everyone use ``total`` and round nothing.
    With ``norms(batch)`` it says how long each record's contribution can be, at any step and on whatever path: at most
    ``bound``, and where it is less, the adaptive coupling replays less often. If it has both and ``along(steps, path,
    batch, weights)``, that returns sums for several steps, one a row, where ``weights``, in rows too, has for each
    record 1, -1 or 0 to multiply its contribution with. All iterates of these steps are known then.
    """

    @property
    def size(self) -> int:
        """How many numbers a record contributes."""

    @property
    def bound(self) -> float:
        """The largest norm of a contribution; above it only the cost of a deletion is affected."""

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return one row for each record of the batch."""


class Total(NamedTuple):
    """The sum of some records' contributions to a step."""

    sum: Array
    evaluations: int
    above: int
    reach: float | None = None
    """How long these contributions can be, one after the other, on whatever path (None: that many times the bound)."""


class Totals(NamedTuple):
    """Such sums of several steps: a row, or a number, for each."""

    sums: Array
    evaluations: Ints
    above: Ints
    reach: Array | None

    @classmethod
    def of(cls, each: list[Total]) -> Totals:
        """Put single ones together."""
        reach = [one.reach for one in each if one.reach is not None]
        return cls(
            np.stack([one.sum for one in each]),
            np.array([one.evaluations for one in each]),
            np.array([one.above for one in each]),
            np.array(reach) if len(reach) == len(each) else None,
        )


AT_ONCE = 2**20
"""How many numbers contributions may take up at a time, where they are exact in any order."""


def evaluate(query: Query, step: int, path: Path, batch: Batch, share: Share) -> Total:
    """Sum what the records of a batch contribute; on a grid of their own the sum is exact in any order.

    (There are two zeros. A sum that is kept has the positive one: ``0.0 + sum``.)
    """
    number: int = batch[0].shape[0]
    if number == 0:
        return Total(np.zeros(query.size), 0, 0)
    fast = getattr(query, "total", None)
    if fast is not None and (hasattr(query, "exact_to") or (share.unit is None and not share.clip)):
        summed, above = fast(step, path, batch)
    elif share.unit is None:
        summed, above = _added_up(query, query.contributions(step, path, batch), batch, step, share)
    else:
        summed, above = _added_up_exactly(query, step, path, batch, share, number)
    if summed.shape != (query.size,):
        raise BadContribution(
            f"step {step}: the query's total has shape {summed.shape}; it declares size={query.size}. "
            "Return that many numbers at every step."
        )
    if not math.isfinite(summed.dot(summed)) and not np.isfinite(summed).all():
        raise BadContribution(
            f"step {step}: the contributions of {number} records sum to NaN or infinity. "
            "Check the records for NaN and the query for overflow."
        )
    return Total(summed, number, above)


def _added_up(query: Query, contributions: Array, batch: Batch, step: int, share: Share) -> tuple[Array, int]:
    """Return the sum of contributions, and how many of them are above the bound."""
    each, number = np.asarray(contributions, dtype=float), batch[0].shape[0]
    if each.shape != (number, query.size):
        raise BadContribution(
            f"step {step}: the query gave contributions of shape {each.shape} for {number} records; it "
            f"declares size={query.size}. Return one row of that many numbers for each record."
        )
    lengths, limits = np.sqrt(np.einsum("ij,ij->i", each, each)), _limits(query, batch, share)
    long = lengths > limits * (1 + 1e-12)
    above = int(np.count_nonzero(long))
    if share.clip and above:
        shorter = each * np.where(long, limits / np.where(long, lengths, 1.0), 1.0)[:, None]
        each = shorter if share.unit is None else on_grid(shorter, share.unit)
    return np.add.reduce(each, axis=0), above


def _limits(query: Query, batch: Batch, share: Share) -> Array | float:
    """Return how long contributions may be: the bound, or what the query says of each record where that counts."""
    norms = getattr(query, "norms", None)
    return query.bound if norms is None or not share.clip else np.minimum(query.bound, norms(batch))


def _added_up_exactly(
    query: Query, step: int, path: Path, batch: Batch, share: Share, number: int
) -> tuple[Array, int]:  # fmt: skip
    """Do the same on a grid, where order does not matter, a part of the records at a time."""
    summed, above, unit = np.zeros(query.size), 0, share.unit
    assert unit is not None
    rows = max(1, AT_ONCE // query.size)
    for first in range(0, number, rows):
        part = batch if rows >= number else tuple([column[first : first + rows] for column in batch])
        each = on_grid(np.asarray(query.contributions(step, path, part), dtype=float), unit)
        largest = float(np.abs(each).max(initial=0.0))
        if not largest * number < unit * 2.0**53:  # also if it is NaN
            raise BadContribution(
                f"step {step}: {number} contributions of up to {largest:g} cannot be summed exactly on a grid of "
                f"{unit:g}. Check for NaN, declare a larger bound, or use fewer bits."
            )
        more, higher = _added_up(query, each, part, step, share)
        summed, above = summed + more, above + higher
    return summed, above


class Located(NamedTuple):
    """Where records lie."""

    places: Ints
    slots: Ints


class Contributors(Protocol):
    """Whoever contributes to the steps. After `stage`, totals are as if the edit were done, until the end of it."""

    @property
    def count(self) -> int:
        """How many records there are (staged edits do not count)."""

    def total(self, place: int, step: int, path: Path, query: Query, share: Share) -> Total:
        """Sum what the records of a place contribute to a step."""

    def before(self, place: int, step: int, path: Path, query: Query, share: Share) -> Total:
        """Sum what the records of a place would contribute to a step without the staged edit.

        Where steps visit everyone it is not asked for.
        """

    def shift(self, place: int, step: int, path: Path, query: Query, share: Share) -> Total:
        """Sum what enters a place by the staged edit, minus what leaves it."""

    def shifts(self, place: int, steps: list[int], path: Path, query: Query, share: Share) -> Totals:
        """Return the shifts of several steps that visit a place, along a path that goes beyond them.

        ``Totals.of([self.shift(place, step, path.upto(step), query, share) for step in steps])`` will do.
        """

    def stage(self, edit: Edit) -> None:
        """Hold an edit ready."""

    @property
    def staged(self) -> Edit | None:
        """The edit that is under way, if any."""

    def commit(self) -> None:
        """Make the staged edit final; what left is overwritten. Should it fail half-way, it can be called again."""

    def rollback(self) -> None:
        """Forget the staged edit; every byte is as before."""

    def ids_at(self, place: int) -> AnyArray:
        """Return the ids of a place, in their order."""

    def audit(self) -> list[str]:
        """Name every disagreement between the records and what is kept to find them."""

    def batch_at(self, place: int) -> Batch:
        """Return the columns of a place, in the same order."""


class Records(Contributors, Protocol):
    """Records by place, which can be laid out, asked for and changed."""

    def arrange(self, schedule: Schedule, rng: np.random.Generator) -> Assignment:
        """Lay the records out by place."""

    def settle(self, learned: bool) -> None:
        """Keep the layout, or, if learning failed, forget it: the records are as before `arrange`."""

    def edit(self, schedule: Schedule, request: Request, randomness: Randomness) -> Edit:
        """Check a request and turn it into an edit; raise, with nothing changed, if it cannot be served.

        Where records that enter lie is drawn from ``randomness.layout``.
        """

    def locate(self, ids: AnyArray) -> Located:
        """Return where records lie; raise `UnknownId` for those that are not there."""

    def admit(self, query: Query) -> None:
        """Let the query check all records before they are laid out."""

    def prepare(self, query: Query) -> None:
        """Let the query bring all records, now laid out, into form."""

    def let_in(self, query: Query, edit: Edit) -> Edit:
        """Let the query check the records that enter by an edit; return it with them in form."""


class Share(NamedTuple):
    """How a step takes its records: the probability that each joins, and the grid that sums are exact on.

    With ``clip``, contributions above their bound are shortened to it: the adaptive coupling relies on that.
    """

    rate: float
    unit: float | None
    clip: bool = False


@dataclass(frozen=True, eq=False)
class Delete:
    """Take records out, by id or by subject.

    With ``missing="ignore"`` those that are not there (they may have been deleted already) are passed over, and one
    named twice is deleted once. ``at`` is when it was asked for, by any clock; see `expunge.requests.apply`.

    >>> Delete(subjects=["ann"], missing="ignore").missing
    'ignore'
    """

    ids: Any = None
    subjects: Any = None
    missing: Literal["error", "ignore"] = "error"
    at: float | None = None

    def __post_init__(self) -> None:
        _check_missing(self.missing)


@dataclass(frozen=True, eq=False)
class Insert:
    """Add records. An id that was deleted may come back: it is a new record like any other.

    >>> Insert(([[0.5, 1.0]], [1]), ids=["ann"]).ids
    ['ann']
    """

    columns: tuple[Any, ...]
    ids: Any = None
    subjects: Any = None
    at: float | None = None

    def __post_init__(self) -> None:
        _check_columns(self.columns)


@dataclass(frozen=True, eq=False)
class Replace:
    """Give records new content; they keep their ids, subjects and places. A subject named must have one record.

    With ``missing="ignore"`` those that are not there are passed over.

    >>> Replace(([[0.5, 1.0]], [0]), ids=["ann"]).ids
    ['ann']
    """

    columns: tuple[Any, ...]
    ids: Any = None
    subjects: Any = None
    missing: Literal["error", "ignore"] = "error"
    at: float | None = None

    def __post_init__(self) -> None:
        _check_columns(self.columns)
        _check_missing(self.missing)


Request = Delete | Insert | Replace


def _check_missing(missing: Any) -> None:
    if missing not in ("error", "ignore"):
        raise BadRecords(f"missing={missing!r}: give 'error', or 'ignore' to pass over what is not there.")


def _check_columns(columns: Any) -> None:
    if not isinstance(columns, (tuple, list)):
        raise BadRecords(f"columns: give a tuple of columns, such as (X, y), not {type(columns).__name__}.")


def check_named(request: Delete | Replace) -> None:
    """Raise unless a request says in one way which records it is about."""
    if (request.ids is None) == (request.subjects is None):
        purpose = type(request).__name__.lower()
        raise BadRecords(f"give either ids or subjects, to say which records to {purpose}.")
