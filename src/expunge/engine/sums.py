"""What steps sum to along a path: records are asked, by plain calls, and what that takes is counted."""

from __future__ import annotations

from expunge.base.grid import NoiseGrid
from expunge.base.types import Array
from expunge.engine.contributions import Contributors, Participation, Query, Total, Totals
from expunge.engine.schedules import Schedule
from expunge.engine.transcript import Path


class Sums:
    """A learner's sums over some records; once an edit is staged, over the records that it leaves.

    What a coin depends on is summed before it is tossed, all of it: an error that came up only after some of its
    outcomes would be a bias.
    """

    __slots__ = ("above", "evaluations", "grid", "participation", "query", "records", "schedule")

    def __init__(
        self, records: Contributors, query: Query, schedule: Schedule, participation: Participation, grid: NoiseGrid
    ) -> None:
        self.records = records
        self.query = query
        self.schedule = schedule
        self.participation = participation
        self.grid = grid
        self.evaluations = 0
        """How many contributions were computed so far."""
        self.above = 0
        """How many of them were above the bound."""

    def total(self, step: int, path: Path) -> Array:
        """Return the sum of a step, as it is kept."""
        place = self.schedule.place(step)
        return self.grid.kept(self._counted(self.records.total(place, step, path, self.query, self.participation)).sum)

    def before(self, step: int, path: Path) -> Array:
        """Return the sum of a step without the staged edit, as it would be kept."""
        place = self.schedule.place(step)
        return self.grid.kept(self._counted(self.records.before(place, step, path, self.query, self.participation)).sum)

    def shift(self, step: int, path: Path) -> Total:
        """Sum what enters a step by the staged edit, minus what leaves it."""
        place = self.schedule.place(step)
        return self._counted(self.records.shift(place, step, path, self.query, self.participation))

    def shifts(self, steps: list[int], path: Path) -> Totals:
        """Return the shifts of several steps, all of one place, along a path that goes beyond them."""
        place = self.schedule.place(steps[0])
        found = self.records.shifts(place, steps, path, self.query, self.participation)
        self.evaluations += int(found.evaluations.sum())
        self.above += int(found.above.sum())
        return found

    def _counted(self, total: Total) -> Total:
        self.evaluations += total.evaluations
        self.above += total.above
        return total
