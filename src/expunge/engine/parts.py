"""Schedules of rounds that are draws: the same part of the records in each, and everyone in a finish."""

from __future__ import annotations

from dataclasses import dataclass

from expunge.engine.schedules import Everyone


@dataclass(frozen=True)
class Part(Everyone):
    """The same part of the records meets every step, by their keys."""

    same_part = True


@dataclass(frozen=True)
class PartThenEveryone(Part):
    """The same part of the records meets every step, by their keys; everyone meets the last one, the finish."""

    @property
    def finish(self) -> int:
        """Return the last step."""
        return self.rounds - 1
