"""k-means as a structure from a keyed sample: three stages, then cells, and exact sums over everyone in them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from expunge.base.types import Array, Batch, Ints, Keys, Mask
from expunge.engine.structures import Parts
from expunge.solvers.keyed_kmeans import Cells, cells_of, centers_of
from expunge.solvers.keyed_sample import SHARES, SIDES, KeyedClusters, Stage, first_stage, next_stage
from expunge.solvers.slices import EXACT_TO, SLICES

Found = tuple[Any, ...]
"""A `Stage` for each of three stages, and `Cells`."""


@dataclass(frozen=True)
class SampledClusters:
    """What k-means finds in a keyed sample, and what everyone adds to its cells."""

    settings: KeyedClusters

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(SHARES)

    @cached_property
    def packed(self) -> int:
        """How many numbers the three stages and the cells have: how many centres, the spread, the centres; seeds."""
        settings = self.settings
        return self._of_a_stage * len(SHARES) + 1 + (settings.clusters + settings.seeds) * settings.features

    @property
    def _of_a_stage(self) -> int:
        return 2 + self.settings.clusters * self.settings.features

    @cached_property
    def width(self) -> int:
        """How many numbers a cell has."""
        return 1 + SLICES * self.settings.features

    @property
    def most_rows(self) -> int:
        """How many cells there are at most."""
        return SIDES * self.settings.clusters * self.settings.seeds

    @property
    def rows_each(self) -> int:
        """To how many rows a record adds: to one."""
        return 1

    @property
    def bound(self) -> float:
        """The largest number that a record may have."""
        return self.settings.bound

    @property
    def exact_to(self) -> int:
        """Up to how many records sums are exact."""
        return EXACT_TO

    def admit(self, batch: Batch) -> None:
        """Raise if records cannot be summed exactly."""
        self.settings.admit(batch[0])

    # --- the sample ---

    def find(self, found: Found, keys: Keys, batch: Batch) -> Stage | Cells:
        """Return the next stage, or at last the cells, from those who have joined."""
        if not found:
            return first_stage(self.settings)
        if len(found) < self.stages:
            return next_stage(self.settings, found, keys, batch[0])
        return cells_of(self.settings, found, keys, batch[0])

    def joins(self, stage: Stage, keys: Keys, batch: Batch) -> Mask:
        """Say who joins in a stage."""
        return stage.joins(keys, batch[0])

    def sampled(self, found: Found, keys: Keys, batch: Batch) -> Mask:
        """Say who joins in any stage."""
        stages = found[: self.stages]
        if len(keys) == 1:
            key, point = keys.item(), batch[0][0]
            return np.array([any(stage.joins_alone(key, point) for stage in stages)])
        return np.asarray(np.any([stage.joins(keys, batch[0]) for stage in stages], axis=0))

    def chance(self, found: Found, batch: Batch) -> Array:
        """Return how likely each record is to join in any stage."""
        outside = np.ones(len(batch[0]))
        for stage in found[: self.stages]:
            outside *= 1.0 - stage.chances(batch[0])
        return 1.0 - outside

    # --- as numbers ---

    def pack(self, found: Found) -> Array:
        """Return stages and cells as numbers."""
        self.__dict__.pop("_remembered", None)  # what it held may be of somebody who leaves
        numbers, at = np.zeros(self.packed), 0
        *stages, cells = found
        for stage in stages:
            numbers[at], numbers[at + 1] = len(stage.centers), stage.spread
            numbers[at + 2 : at + 2 + stage.centers.size] = stage.centers.ravel()
            at += self._of_a_stage
        numbers[at] = len(cells.seeds)
        both = np.concatenate([cells.centers, cells.seeds]).ravel()
        numbers[at + 1 : at + 1 + both.size] = both
        return numbers

    def unpack(self, numbers: Array) -> Found:
        """Return stages and cells; those that were asked for last are remembered."""
        known: tuple[Array, Found] | None = self.__dict__.get("_remembered")
        if known is None or not np.array_equal(known[0], numbers):
            known = self.__dict__["_remembered"] = numbers.copy(), self._unpacked(numbers)
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: what is remembered is nobody's state."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def _unpacked(self, numbers: Array) -> Found:
        settings = self.settings
        features, stages, at = settings.features, [], 0
        for number, share in enumerate(SHARES):
            part = numbers[at + 2 : at + 2 + self._count(numbers[at], settings.clusters) * features]
            stages.append(Stage(number, settings.rho * share, part.reshape(-1, features).copy(), numbers.item(at + 1)))
            at += self._of_a_stage
        seeds = self._count(numbers[at], settings.seeds)
        if seeds == 0:
            raise ValueError("it has no seeds")
        both = numbers[at + 1 : at + 1 + (settings.clusters + seeds) * features].reshape(-1, features).copy()
        return (*stages, Cells(settings, both[: settings.clusters], both[settings.clusters :]))

    @staticmethod
    def _count(number: Any, most: int) -> int:
        """Return how many rows there are, or raise if there cannot be so many."""
        if not (0 <= number <= most and number == int(number)):
            raise ValueError(f"{number} rows, of at most {most}")
        return int(number)

    # --- everyone ---

    def rows(self, found: Found) -> int:
        """Return how many cells there are."""
        cells: Cells = found[-1]
        return cells.number

    def total(self, found: Found, batch: Batch) -> Array:
        """Return counts and sums by cell."""
        cells: Cells = found[-1]
        return cells.total(batch[0])

    def parts(self, found: Found, batch: Batch) -> Parts:
        """Return each record's cell, and what it adds there."""
        cells: Cells = found[-1]
        if len(batch[0]) == 1:
            cell, row = cells.one(batch[0][0])
            return Parts(np.array([cell]), row[None])
        return Parts(_whole(cells.cell(batch[0])), cells.contributions(batch[0]))

    def normal(self, row: Array) -> Array:
        """Return a row as it is: its sums have one form."""
        return row

    def model(self, found: Found, sums: Array) -> Array:
        """Return the centres, one after the other."""
        return centers_of(found[-1], sums).ravel()


def _whole(cells: Ints) -> Ints:
    return cells.astype(np.int64, copy=False)
