"""What the engine asks of queries, rules and records, by protocol, and what these hand each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from expunge.base.intake import Request
from expunge.base.types import AnyArray, Array, Batch, Ints, Keys, Mask
from expunge.engine.randomness import Randomness
from expunge.engine.schedules import Assignment, Edit, Schedule, joins
from expunge.engine.transcript import Path


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

    With ``normal(sum) -> sum`` it says that exact sums have one form among several of the same value. Its totals are in
    that form; ``normal`` brings a sum of some of them, or a difference, into it, in place. ``values(sum)`` are the
    numbers that such a sum stands for, to compare where rounding may differ. ``moved(step, path, sum, came, left)`` is
    a faster way to an exact sum after some records came and others left: a new array, in its one form.
    """

    @property
    def size(self) -> int:
        """How many numbers a record contributes."""

    @property
    def bound(self) -> float:
        """The largest norm of a contribution; above it only the cost of a deletion is affected."""

    def contributions(self, step: int, path: Path, batch: Batch) -> Array:
        """Return one row for each record of the batch."""


@dataclass(frozen=True)
class Abilities:
    """What a query can do beside what every query must: see `Query`; None where it cannot."""

    total: Callable[[int, Path, Batch], tuple[Array, int]] | None = None
    admit: Callable[[Batch], None] | None = None
    prepare: Callable[[Batch], Batch] | None = None
    exact_to: int | None = None
    norms: Callable[[Batch], Array] | None = None
    along: Callable[[list[int], Path, Batch, Array], Array] | None = None
    normal: Callable[[Array], Array] | None = None
    values: Callable[[Array], Array] | None = None
    moved: Callable[[int, Path, Array, Batch, Batch], Array] | None = None


class Total(NamedTuple):
    """The sum of some records' contributions to a step."""

    sum: Array
    evaluations: int
    above: int
    norm_limit: float | None = None
    """How long these contributions can be, one after the other, on whatever path (None: that many times the bound)."""


class Totals(NamedTuple):
    """Such sums of several steps: a row, or a number, for each."""

    sums: Array
    evaluations: Ints
    above: Ints
    norm_limit: Array | None

    @classmethod
    def of(cls, each: list[Total]) -> Totals:
        """Put single ones together."""
        norm_limit = [one.norm_limit for one in each if one.norm_limit is not None]
        return cls(
            np.stack([one.sum for one in each]),
            np.array([one.evaluations for one in each]),
            np.array([one.above for one in each]),
            np.array(norm_limit) if len(norm_limit) == len(each) else None,
        )


AT_ONCE = 2**20
"""How many numbers contributions may take up at a time, where they are exact in any order."""


class Located(NamedTuple):
    """Where records lie."""

    places: Ints
    slots: Ints


class Part(NamedTuple):
    """Some records of a place that everyone lies at, with their keys."""

    batch: Batch
    keys: Keys


class Moving(NamedTuple):
    """Records that enter by the staged edit, or leave, with their keys."""

    enters: bool
    batch: Batch
    keys: Keys


UNDER_WAY = "records: another change is under way; commit it or roll it back first."


class Contributors(Protocol):
    """Whoever contributes to the steps. After `stage`, totals are as if the edit were done, until the end of it."""

    @property
    def count(self) -> int:
        """How many records there are (staged edits do not count)."""

    def total(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what the records of a place contribute to a step."""

    def before(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what the records of a place would contribute to a step without the staged edit.

        Where steps visit everyone it is not asked for.
        """

    def shift(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what enters a place by the staged edit, minus what leaves it."""

    def shifts(self, place: int, steps: list[int], path: Path, query: Query, participation: Participation) -> Totals:
        """Return the shifts of several steps that visit a place, along a path that goes beyond them.

        ``Totals.of([self.shift(place, step, path.upto(step), query, participation) for step in steps])`` will do.
        """

    def changed(
        self, place: int, step: int, path: Path, query: Query, participation: Participation, stored: Array
    ) -> Total:
        """Return the exact sum of a step over a place as the staged edit changes it; ``stored`` stays as it is.

        It counts what enters and leaves, as `shift` does. Where sums are not exact it is not asked for.
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


class KeyedRecords(Contributors, Protocol):
    """Contributors who all lie at one place, with a key each: what learners with a structure need."""

    def parts(self) -> Iterator[Part]:
        """Return all records, a part at a time; at least one part, if it be empty."""

    def moving(self) -> list[Moving]:
        """Return the records that the staged edit moves: those that enter, those that leave."""


class Records(KeyedRecords, Protocol):
    """Records by place, which can be laid out, asked for and changed."""

    def arrange(self, schedule: Schedule, rng: np.random.Generator) -> Assignment:
        """Lay the records out by place."""

    def keep_layout(self) -> None:
        """Keep the layout: learning went well."""

    def drop_layout(self) -> None:
        """Forget the layout, if learning failed: the records are as before `arrange`."""

    def edit(self, schedule: Schedule, request: Request, randomness: Randomness) -> Edit:
        """Check a request and turn it into an edit; raise, with nothing changed, if it cannot be served.

        Where records that enter lie is drawn from ``randomness.layout``.
        """

    def locate(self, ids: AnyArray) -> Located:
        """Return where records lie; raise `UnknownId` for those that are not found."""

    def admit(self, abilities: Abilities) -> None:
        """Let the query check all records before they are laid out."""

    def prepare(self, abilities: Abilities) -> None:
        """Let the query bring all records, now laid out, into form."""

    def check_entering(self, abilities: Abilities, edit: Edit) -> Edit:
        """Let the query check the records that enter by an edit; return it with them in form."""


class Participation(NamedTuple):
    """How a step takes its records: the probability that each joins, the grid that sums are exact on, by what means.

    With ``clip``, contributions above their bound are shortened to it: the adaptive coupling relies on that. Everyone
    joins the ``finish``, if there is one. With ``same_part``, it is the same part of the records in all other steps.
    """

    rate: float
    unit: float | None
    abilities: Abilities
    clip: bool = False
    finish: int | None = None
    same_part: bool = False

    def joined(self, keys: Keys, step: int) -> Mask | None:
        """Say which records join a step, by their keys; None means all of them."""
        if self.rate == 1.0 or step == self.finish:
            return None
        return keys < np.uint64(self.rate * 2.0**64) if self.same_part else joins(keys, step, self.rate)


class Rule(Protocol):
    """How the next iterate follows from the noisy answers: deterministic, so that it costs no privacy."""

    @property
    def start(self) -> Array:
        """The first iterate."""

    def step(self, step: int, path: Path, answer: Array) -> Array:
        """Return the iterate after ``step``."""
