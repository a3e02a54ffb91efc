"""What records contribute, and edits of them: staged, undone to the last byte, or committed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from expunge.base.columns import is_sparse, rows_in, stack
from expunge.base.errors import BadContribution, BadRecords
from expunge.base.grid import on_grid
from expunge.base.intake import Delete, Insert, Replace, Request, check_named
from expunge.base.types import AnyArray, Array, Batch, Ints, Mask
from expunge.engine.contributions import AT_ONCE, UNDER_WAY, Moving, Part, Participation, Query, Total, Totals
from expunge.engine.randomness import Randomness
from expunge.engine.records.entering import insertion, replacement
from expunge.engine.records.lookup import Lookup
from expunge.engine.records.places import Places
from expunge.engine.records.pools import aligned
from expunge.engine.schedules import Edit, Schedule, joins_each
from expunge.engine.transcript import Path


def evaluate(query: Query, step: int, path: Path, batch: Batch, participation: Participation) -> Total:
    """Sum what the records of a batch contribute; on a grid of their own the sum is exact in any order.

    (There are two zeros. A sum that is kept has the positive one: ``0.0 + sum``.)
    """
    number: int = batch[0].shape[0]
    if number == 0:
        return Total(np.zeros(query.size), 0, 0)
    fast, exact_to = participation.abilities.total, participation.abilities.exact_to
    if fast is not None and (exact_to is not None or (participation.unit is None and not participation.clip)):
        summed, above = fast(step, path, batch)
    elif participation.unit is None:
        summed, above = _added_up(query, query.contributions(step, path, batch), batch, step, participation)
    else:
        summed, above = _added_up_exactly(query, step, path, batch, participation, number)
    if summed.shape != (query.size,):
        raise BadContribution(
            f"step {step}: the query's total has shape {summed.shape}; it declares size={query.size}. "
            "Return that many numbers at every step."
        )
    _check_finite(summed, step, number)
    return Total(summed, number, above)


def _check_finite(summed: Array, step: int, number: int) -> None:
    if not math.isfinite(summed.dot(summed)) and not np.isfinite(summed).all():
        raise BadContribution(
            f"step {step}: the contributions of {number} records sum to NaN or infinity. "
            "Check the records for NaN and the query for overflow."
        )


def _added_up(
    query: Query, contributions: Array, batch: Batch, step: int, participation: Participation
) -> tuple[Array, int]:
    """Return the sum of contributions, and how many of them are above the bound."""
    each, number = np.asarray(contributions, dtype=float), batch[0].shape[0]
    if each.shape != (number, query.size):
        raise BadContribution(
            f"step {step}: the query gave contributions of shape {each.shape} for {number} records; it "
            f"declares size={query.size}. Return one row of that many numbers for each record."
        )
    lengths, limits = np.sqrt(np.einsum("ij,ij->i", each, each)), _limits(query, batch, participation)
    long = lengths > limits * (1 + 1e-12)
    above = int(np.count_nonzero(long))
    if participation.clip and above:
        shorter = each * np.where(long, limits / np.where(long, lengths, 1.0), 1.0)[:, None]
        each = shorter if participation.unit is None else on_grid(shorter, participation.unit)
    return np.add.reduce(each, axis=0), above


def _limits(query: Query, batch: Batch, participation: Participation) -> Array | float:
    """Return how long contributions may be: the bound, or what the query says of each record where that counts."""
    norms = participation.abilities.norms
    return query.bound if norms is None or not participation.clip else np.minimum(query.bound, norms(batch))


def _added_up_exactly(
    query: Query, step: int, path: Path, batch: Batch, participation: Participation, number: int
) -> tuple[Array, int]:  # fmt: skip
    """Do the same on a grid, where order does not matter, a part of the records at a time."""
    summed, above, unit = np.zeros(query.size), 0, participation.unit
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
        more, higher = _added_up(query, each, part, step, participation)
        summed, above = summed + more, above + higher
    return summed, above


class StagedEdit:
    """A staged edit, and what is needed to undo it."""

    before: Ints
    """How many rows each place has."""
    after: Ints
    """How many it will have."""

    def __init__(self, places: Places, edit: Edit, count_after: int) -> None:
        self.count_after = count_after
        self.places = places
        self.edit = edit
        self.places_before = len(places.lengths)
        self.begun = self.done = False
        self.put_rows: Batch = ()
        self.kept: Sequence[Any] = ()
        """What is kept of each place, to do the edit again or undo it."""
        if edit.within_a_place:
            self.touched = edit.leave_places
            self.before = places.lengths[self.touched]
            self.after = self.before - 1
            place, slots = self.touched.item(0), [edit.leave_slots.item(0), *edit.moved_slots.tolist()]
            self.leave_rows: Batch
            self.leave_rows, *moved = places.rows(place, slots)
            self.put_rows = moved[0] if moved else ()
            self.groups = {place: ((), self.leave_rows)}
        else:
            self.touched = np.unique(np.concatenate([edit.put_places, edit.leave_places, edit.drop_places]))
            self.leave_rows = places.gather(edit.leave_places, edit.leave_slots)
            self.put_rows = self._sources()
            self.groups = self._grouped()

    def make_room(self) -> None:
        """Add the places that the edit needs, and room for the rows that come."""
        edit, by_place = self.edit, self.places
        inserting = edit.added and not edit.removed
        if inserting:
            by_place.resize(max(len(by_place), self.touched.item(-1) + 1))
            by_place.make_room(edit.put_places, edit.put_slots, self.put_rows)
        self.before = self.after = by_place.lengths[self.touched]
        if inserting:
            beyond = edit.put_slots >= by_place.lengths[edit.put_places]
            self.after = self.before + _numbers(self.touched, edit.put_places[beyond])
        elif edit.removed:
            self.after = self.before - _numbers(self.touched, edit.drop_places)

    def make_room_again(self) -> None:
        """Make room for what the edit puts, or takes back, where all has just been read."""
        there = self.touched < len(self.places)
        self.places.reserve(self.touched[there], np.maximum(self.before, self.after)[there])

    def _sources(self) -> Batch:
        """Return the rows to put, in the order of ``put_sources``."""
        edit = self.edit
        if len(edit.put_sources) == 0:
            return ()
        if len(edit.moved_places) == 0:
            return tuple([column[edit.put_sources] for column in edit.entering])
        moved = self.places.gather(edit.moved_places, edit.moved_slots)
        if not edit.entering:
            return tuple([column[-1 - edit.put_sources] for column in moved])
        number = rows_in(edit.entering[0])
        numbers = np.where(edit.put_sources >= 0, edit.put_sources, number - 1 - edit.put_sources)
        return tuple([stack(pair)[numbers] for pair in zip(edit.entering, moved, strict=True)])

    def _grouped(self) -> dict[int, tuple[Batch, Batch]]:
        """Return the rows that enter and leave each place: what its sums gain and lose."""
        edit = self.edit
        enters = np.flatnonzero(edit.put_enters)
        entering = self._by_place(edit.put_places[enters], enters, self.put_rows)
        leaving = self._by_place(edit.leave_places, np.arange(len(edit.leave_places)), self.leave_rows)
        return {place: (entering.get(place, ()), leaving.get(place, ())) for place in {**entering, **leaving}}

    def _by_place(self, at: Ints, numbers: Ints, rows: Batch) -> dict[int, Batch]:
        if len(at) <= 1:
            return {place: tuple([column[numbers] for column in rows]) for place in at.tolist()}
        order = np.argsort(at, kind="stable")
        places, first = np.unique(at[order], return_index=True)
        columns = [column[numbers[order]] for column in rows]
        bounds = [*first.tolist(), len(at)]
        return {
            place: tuple([column[begin:stop] for column in columns])
            for place, begin, stop in zip(places.tolist(), bounds[:-1], bounds[1:], strict=True)
        }

    def at(self, place: int) -> tuple[Batch, Batch]:
        """Return the rows that enter and leave a place."""
        return self.groups.get(place, ((), ()))

    def before_at(self, place: int, width: int) -> Batch:
        """Return the first ``width`` columns of a place as they were before the edit, which is done, in a copy."""
        now = self.places.block(place)[:width]
        number, edit = rows_in(now[0]), self.edit
        at = np.searchsorted(self.touched, place)
        if at == len(self.touched) or self.touched[at] != place:
            return now
        left = np.flatnonzero(edit.leave_places == place)
        moved = np.flatnonzero(edit.put_sources < 0)
        came_from = -1 - edit.put_sources[moved]
        here = edit.moved_places[came_from] == place
        moved, came_from = moved[here], came_from[here]
        order = np.arange(self.before[at])
        order[edit.leave_slots[left]] = number + np.arange(len(left))
        order[edit.moved_slots[came_from]] = number + len(left) + np.arange(len(moved))
        parts = zip(now, self.leave_rows, self.put_rows or self.leave_rows, strict=False)
        return tuple([_aligned(stack([column, gone[left], put[moved]])[order]) for column, gone, put in parts])

    def finish(self) -> None:
        """Do the edit, unless it is done; after an interruption, again."""
        if self.done:
            return
        edit, by_place = self.edit, self.places
        if not self.begun:
            self.kept = by_place.keep(self.touched)
            self.begun = True
        by_place.rewrite(
            self.touched, self.after, self.kept, edit.put_places, edit.put_slots, self.put_rows,
            edit.drop_places, edit.drop_slots,
        )  # fmt: skip
        self.done = True

    def fit_rooms(self) -> None:
        """Give the places that were touched the room that is meant for what lies there now."""
        try:
            self.places.fit_rooms(self.touched)
        except MemoryError:  # it takes room, for a while; then it is done after a later request
            return

    def undo(self) -> None:
        """Put every byte back: the rows that left or moved are all that was overwritten."""
        edit, by_place = self.edit, self.places
        if self.begun:
            moved = edit.put_sources < 0
            back = -1 - edit.put_sources[moved]
            places = np.concatenate([edit.leave_places, edit.moved_places[back]])
            slots = np.concatenate([edit.leave_slots, edit.moved_slots[back]])
            rows = self.leave_rows
            if len(back):
                rows = tuple([stack([left, put[moved]]) for left, put in zip(rows, self.put_rows, strict=True)])
            new = edit.put_slots >= self.before[np.searchsorted(self.touched, edit.put_places)]
            by_place.restore(
                self.touched, self.before, self.kept, places, slots, rows, edit.put_places[new], edit.put_slots[new]
            )
            self.begun = self.done = False
        by_place.resize(self.places_before)


def _aligned(column: Any) -> Any:
    """Return a dense column on the boundary that it has at its place, so that summing it gives the same bits."""
    if is_sparse(column):
        return column
    copy = aligned(column.size, column.dtype).reshape(column.shape)
    copy[...] = column
    return copy


def _numbers(places: Ints, at: Ints) -> Ints:
    """Return how often each place is among others."""
    return np.bincount(np.searchsorted(places, at), minlength=len(places))


class Staging(Lookup):
    """Records of which an edit can be held ready: sums are then as if it were done, until it is committed or undone."""

    staged: Edit | None
    """The edit that is under way, if any."""
    _staging: StagedEdit | None
    """That edit with what is needed to undo it."""
    _ordered: bool

    def edit(self, schedule: Schedule, request: Request, randomness: Randomness) -> Edit:
        """Check a request and turn it into an edit."""
        match request:
            case Delete():
                return schedule.delete(self.places.lengths, *self.leaving(request))
            case Replace():
                check_named(request)
                return replacement(self, request)
            case Insert():
                return insertion(self, schedule, request, randomness)

    def total(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what the records of a place contribute to a step."""
        if self._staging is not None and not self._staging.done:
            self._staging.finish()
        total = evaluate(query, step, path, self._joining_at(place, step, path, participation), participation)
        return total if participation.unit is None else total._replace(sum=0.0 + total.sum)

    def parts(self) -> Iterator[Part]:
        """Return all records, where everyone lies at one place."""
        if self._staging is not None and not self._staging.done:
            self._staging.finish()
        yield Part(self.batch_at(0), self.keys_at(0))

    def moving(self) -> list[Moving]:
        """Return the records that the staged edit moves."""
        sides = ((), ()) if self._staging is None else self._staging.at(0)
        return [
            Moving(enters, rows[: self.width], rows[-1])
            for enters, rows in zip((True, False), sides, strict=True)
            if rows and len(rows[-1])
        ]

    def _joining_at(self, place: int, step: int, path: Path, participation: Participation) -> Batch:
        """Return the records of a place that join a step; where they join all steps of a pass, the pass keeps them."""
        if participation.rate == 1.0 or step == participation.finish:
            return self.batch_at(place)
        if place in path.gathered:
            known: Batch = path.gathered[place]
            return known
        batch = _joining(self.batch_at(place), participation.joined(self.keys_at(place), step))
        if participation.same_part:
            path.gathered[place] = batch
        return batch

    def before(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what the records of a place would contribute to a step without the staged edit."""
        staging = self._staging
        batch = self.batch_at(place) if staging is None or not staging.done else staging.before_at(place, self.width)
        return evaluate(query, step, path, batch, participation)

    def shift(self, place: int, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what enters a place by the staged edit, minus what leaves it."""
        entering, leaving = ((), ()) if self._staging is None else self._staging.at(place)
        left = self._part(leaving, step, path, query, participation)
        if not entering:
            return left._replace(sum=-left.sum)
        came = self._part(entering, step, path, query, participation)
        norm_limit = None if came.norm_limit is None or left.norm_limit is None else came.norm_limit + left.norm_limit
        return Total(came.sum - left.sum, came.evaluations + left.evaluations, came.above + left.above, norm_limit)

    def _part(self, rows: Batch, step: int, path: Path, query: Query, participation: Participation) -> Total:
        """Sum what some rows, in all their columns, contribute to a step."""
        norms = participation.abilities.norms
        if not rows:
            return Total(np.zeros(query.size), 0, 0, None if norms is None else 0.0)
        batch = rows[: self.width]
        if participation.rate < 1.0:
            batch = _joining(batch, participation.joined(rows[-1], step))
        total = evaluate(query, step, path, batch, participation)
        return total if norms is None else total._replace(norm_limit=float(norms(batch).sum()))

    def _taking_part(self, rows: Batch, step: int, participation: Participation) -> Batch:
        """Return those of some rows, given in all their columns, that take part in a step; () if there are none."""
        if not rows:
            return ()
        joined = participation.joined(rows[-1], step) if participation.rate < 1.0 else None
        if joined is not None and not (joined.item(0) if len(joined) == 1 else joined.any()):
            return ()
        return _joining(rows[: self.width], joined)

    def changed(
        self, place: int, step: int, path: Path, query: Query, participation: Participation, stored: Array
    ) -> Total:
        """Return the exact sum of a step over a place as the staged edit changes it."""
        moved, normal = participation.abilities.moved, participation.abilities.normal
        if moved is None:
            shift = self.shift(place, step, path, query, participation)
            new = np.asarray(stored + shift.sum)
            return shift._replace(sum=new if normal is None else normal(new))
        entering, leaving = ((), ()) if self._staging is None else self._staging.at(place)
        came = self._taking_part(entering, step, participation)
        left = self._taking_part(leaving, step, participation)
        if not came and not left:
            return Total(stored.copy(), 0, 0)
        number = (rows_in(came[0]) if came else 0) + (rows_in(left[0]) if left else 0)
        summed = moved(step, path, stored, came, left)
        _check_finite(summed, step, number)
        return Total(summed, number, 0)

    def shifts(self, place: int, steps: list[int], path: Path, query: Query, participation: Participation) -> Totals:
        """Return the shifts of several steps that visit a place, along a path that goes beyond them."""
        along, norms = participation.abilities.along, participation.abilities.norms
        if self._staging is None or along is None or norms is None or participation.abilities.exact_to is None:
            return Totals.of([self.shift(place, step, path.upto(step), query, participation) for step in steps])
        groups = self._staging.at(place)
        signs = np.repeat([1.0, -1.0], [rows_in(rows[0]) if rows else 0 for rows in groups])
        if not len(signs):
            return Totals.of([Total(np.zeros(query.size), 0, 0, 0.0)] * len(steps))
        rows = groups[0] or groups[1]
        if all(groups):
            rows = tuple([stack(parts) for parts in zip(*groups, strict=True)])
        batch = rows[: self.width]
        lengths, sums, joining, norm_limit = norms(batch), [], [], []
        at_once = max(1, AT_ONCE // (len(signs) * query.size))
        for part in (steps[first : first + at_once] for first in range(0, len(steps), at_once)):
            weights = np.tile(signs, (len(part), 1))
            if participation.rate < 1.0:
                weights *= joins_each(rows[-1], part, participation.rate)
            sums.append(along(part, path, batch, weights) + 0.0)
            joining.append(np.count_nonzero(weights, axis=1))
            norm_limit.append(np.abs(weights) @ lengths)
        evaluations = np.concatenate(joining)
        return Totals(np.concatenate(sums), evaluations, np.zeros_like(evaluations), np.concatenate(norm_limit))

    def stage(self, edit: Edit) -> None:
        """Hold an edit ready; places change when a sum over one is first asked for, or at `commit`."""
        if self._staging is not None:
            raise BadRecords(UNDER_WAY)
        places = self._places
        assert places is not None  # or there would be no edit
        if edit.entering:
            places.admit(edit.entering, self.count == 0)
        staging = StagedEdit(places, edit, self.count + edit.added - edit.removed)
        self._staging, self.staged = staging, edit
        if not edit.within_a_place:
            staging.make_room()

    def commit(self) -> None:
        """Make the staged edit final. Should this fail half-way (no memory), it can be called again."""
        staging = self._staging
        if staging is None:
            raise BadRecords("records: there is no change to commit.")
        edit = staging.edit
        staging.finish()
        staging.fit_rooms()
        if self._ordered:
            self.places.resize(-(-staging.count_after // self.places.least))
        indexes = self._index, self._subject_index
        self._index = self._subject_index = None  # if something fails, they are built again
        self._reindex(edit, staging.leave_rows, staging.put_rows, *indexes)
        if edit.added and not edit.removed:
            self._number_on(edit.entering[self.width])
            self.template = tuple([column.empty() for column in self.places.columns])
        self.count = staging.count_after
        self._staging = self.staged = None
        self._index, self._subject_index = indexes

    def _number_on(self, ids: AnyArray) -> None:
        """Let automatic ids begin after all that were given."""
        if self.next_id is not None:
            numbers = ids.dtype.kind == "i"
            self.next_id = max(self.next_id, int(ids.max(initial=-1)) + 1) if numbers else None

    def rollback(self) -> None:
        """Forget the staged edit; every record is as before."""
        if self._staging is not None:
            self._staging.undo()
            self._staging.fit_rooms()
            self._staging = self.staged = None


def _joining(batch: Batch, joined: Mask | None) -> Batch:
    if joined is None or (len(joined) == 1 and joined.item(0)):
        return batch
    numbers = np.flatnonzero(joined)  # looked for once, not in each column
    return tuple([column[numbers] for column in batch])
