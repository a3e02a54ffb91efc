"""One column of records that lie together by place, in a flat buffer: no Python object for a record or a place.

Each place's rows start on a 64-byte boundary, so that summing them gives the same bits wherever they lie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from expunge.regions import Regions, blank
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

    def _rows(self, places: Ints, slots: Ints) -> tuple[AnyArray, Any]:
        """Return the buffer, and where in it these rows are; rows of several numbers are seen as windows on it."""
        buffer, width = self.buffers[0], self.width
        if len(slots) == 1:
            start = self.offsets.item(places.item(0)) + slots.item(0) * width
            return buffer[start : start + width].reshape(1, width), slice(None)
        first = self.offsets[places] + slots * width
        shape = (max(len(buffer) - width + 1, 0), width)
        return np.ndarray(shape, buffer.dtype, buffer, 0, (buffer.itemsize, buffer.itemsize)), first

    def put(self, places: Ints, slots: Ints, rows: AnyArray) -> None:
        """Put rows into slots."""
        if len(slots):
            windows, where = self._rows(places, slots)
            windows[where] = rows.reshape(len(slots), self.width)

    def wipe(self, places: Ints, slots: Ints) -> None:
        """Overwrite rows."""
        if len(slots):
            windows, where = self._rows(places, slots)
            windows[where] = blank(windows.dtype)

    def gather(self, places: Ints, slots: Ints) -> AnyArray:
        """Return a copy of single rows."""
        windows, where = self._rows(places, slots)
        rows = windows[where]
        return (rows.copy() if len(slots) == 1 else rows).reshape(len(slots), *self.tail)

    def make_room(self, places: Ints, rows: Ints, lengths: Ints, at: Ints, entering: AnyArray) -> None:
        """Give places room for so many rows each."""
        self.expect(places, rows * self.width, lengths)

    def shrink(self, count: int, lengths: Ints) -> None:
        """Give room back, if ``count`` records need much less than there is."""
        self.tidy(count * self.width, lengths)
