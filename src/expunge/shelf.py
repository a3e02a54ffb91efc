"""One column of records that lie together by place, in a flat buffer: no Python object for a record or a place.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

import numpy as np

from expunge.regions import Regions, blank
from expunge.types import AnyArray, Column, Ints


class Shelf(Regions):
    """One dense column: ``width`` numbers a record, the records of a place side by side."""

    __slots__ = ("flat", "tail", "width")

    def __init__(self, column: AnyArray, least: int = 0) -> None:
        self.tail = column.shape[1:]
        self.width = int(np.prod(self.tail, dtype=np.int64))
        self.flat = column.ndim == 1
        super().__init__([column.dtype], 0 if least else 2 * self.width, least * self.width)

    @property
    def buffer(self) -> AnyArray:
        """The numbers of all records, and blanks."""
        return self.buffers[0]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the numbers."""
        return self.buffers[0].dtype

    def empty(self) -> AnyArray:
        """Return a column like this one, without records."""
        return np.zeros((0, *self.tail), dtype=self.dtype)

    def admit(self, column: AnyArray, fresh: bool, lengths: Ints) -> None:
        """Make room for longer strings than any before (on a ``fresh`` shelf, for any type)."""
        longer = column.dtype.kind == "U" and self.dtype.itemsize < column.dtype.itemsize
        if longer or (fresh and column.dtype.kind != self.dtype.kind):
            dtypes = [column.dtype]
            self.relay(self._padded(self._filled(lengths), dtypes), None, dtypes)

    def _filled(self, lengths: Ints) -> Ints:
        return lengths * self.width

    def lay(self, column: AnyArray, order: Ints, lengths: Ints, starts: Ints) -> None:
        """Lay ``column[order]`` out, place by place."""
        self.resize(len(lengths))
        self.relay(self._padded(self._filled(lengths)))
        if len(order) >= 16 * len(lengths):
            for place in np.flatnonzero(lengths).tolist():
                start = starts.item(place)
                rows = order[start : start + lengths.item(place)]
                np.take(column, rows, axis=0, out=self.block(place, len(rows)), mode="clip")
            return
        where = np.repeat(self.offsets - starts * self.width, lengths) + np.arange(len(order)) * self.width
        if self.flat:
            self.buffers[0][where] = column[order]
        else:
            inside = np.arange(self.width)
            for chunk in range(0, len(order), 65536):
                part = slice(chunk, chunk + 65536)
                self.buffers[0][where[part, None] + inside] = column[order[part]].reshape(-1, self.width)

    def block(self, place: int, length: int) -> AnyArray:
        """Return the first ``length`` rows of a place, as a view."""
        start = self.offsets.item(place)
        if self.flat:
            return self.buffers[0][start : start + length]
        return self.buffers[0][start : start + length * self.width].reshape(length, *self.tail)

    def keep(self, place: int, length: int) -> Column:
        """Return what must be kept to do `rewrite` again after an interruption, or to undo it: nothing."""
        return None

    def rewrite(self, place: int, length: int, slots: list[int], rows: Column, after: int, kept: Column) -> None:
        """Put rows into slots (ascending, some perhaps behind the ``length`` that there are); end at ``after``."""
        block = self.block(place, length if length > after else after)
        if len(slots) == 1:
            block[slots[0]] = rows[0]
        elif slots:
            block[slots] = rows
        if after < length:
            block[after:] = blank(block.dtype)

    def gather(self, places: Ints, slots: Ints) -> AnyArray:
        """Return a copy of single rows."""
        where = self.offsets[places] + slots * self.width
        if self.flat:
            return self.buffers[0][where]
        return self.buffers[0][where[:, None] + np.arange(self.width)].reshape(len(where), *self.tail)

    def make_room(self, place: int, rows: int, lengths: Ints) -> None:
        """Give a place room for so many rows."""
        self.reserve(place, rows * self.width, lengths)

    def make_rooms(self, places: Ints, rows: Ints, lengths: Ints, at: Ints, entering: AnyArray) -> None:
        """Make room at many places at once."""
        self.expect(places, rows * self.width, lengths)

    def shrink(self, count: int, lengths: Ints) -> None:
        """Give room back, if ``count`` records need much less than there is."""
        self.tidy(count * self.width, lengths)
