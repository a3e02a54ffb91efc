"""One column of records that lie together by place, in a flat buffer: no Python object for a record or a place.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

import numpy as np

from expunge.regions import Regions, blank, step_of
from expunge.types import AnyArray, Ints


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
            step = step_of((column,))
            self.relay(-(-self._filled(lengths) // step) * step, None, [column.dtype])

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

    def _row(self, place: int, slot: int) -> AnyArray:
        """Return the numbers of one row, as a view."""
        start = self.offsets.item(place) + slot * self.width
        return self.buffers[0][start : start + self.width]

    def _windows(self) -> AnyArray:
        """Return the buffer as rows, one from every element on: fancy indexing takes them as a whole."""
        buffer = self.buffers[0]
        shape = (max(len(buffer) - self.width + 1, 0), self.width)
        return np.ndarray(shape, buffer.dtype, buffer, 0, (buffer.itemsize, buffer.itemsize))

    def put(self, places: Ints, slots: Ints, rows: AnyArray) -> None:
        """Put rows into slots."""
        if len(slots) == 1:
            self._row(places.item(0), slots.item(0))[...] = rows.reshape(-1)
        elif len(slots):
            where = self.offsets[places] + slots * self.width
            self._windows()[where] = rows.reshape(len(slots), self.width)

    def wipe(self, places: Ints, slots: Ints) -> None:
        """Overwrite rows."""
        if len(slots) == 1:
            self._row(places.item(0), slots.item(0))[...] = blank(self.buffers[0].dtype)
        elif len(slots):
            self._windows()[self.offsets[places] + slots * self.width] = blank(self.buffers[0].dtype)

    def gather(self, places: Ints, slots: Ints) -> AnyArray:
        """Return a copy of single rows."""
        if len(slots) == 1:
            return self._row(places.item(0), slots.item(0)).copy().reshape(1, *self.tail)
        return self._windows()[self.offsets[places] + slots * self.width].reshape(len(slots), *self.tail)

    def make_room(self, places: Ints, rows: Ints, lengths: Ints, at: Ints, entering: AnyArray) -> None:
        """Give places room for so many rows each."""
        self.expect(places, rows * self.width, lengths)

    def shrink(self, count: int, lengths: Ints) -> None:
        """Give room back, if ``count`` records need much less than there is."""
        self.tidy(count * self.width, lengths)
