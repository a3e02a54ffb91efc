"""Regions of flat buffers, one for each place: room to spare in proportion, and never much more than is needed.

A region that is full grows where it lies if it is the last, or moves behind the others. When the buffers are full
too, all regions are laid out anew with spare room; when deletions have left the buffers half empty, without. So a
request costs the copy of a few places on average, whatever the history, and memory follows what is there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from expunge.types import AnyArray, Ints

ALIGNMENT = 64
SHARE = 8
"""One part in so many of a region, and of the buffers, is room to spare after an insertion."""


def aligned(elements: int, dtype: np.dtype[Any]) -> AnyArray:
    """Return memory that starts on the boundary, blank so that nothing of old comes back in it."""
    raw = np.zeros(elements * dtype.itemsize + ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + elements * dtype.itemsize].view(dtype)


def realigned(array: AnyArray) -> AnyArray:
    """Return a copy that starts on the boundary, as after unpickling it may not."""
    copy = aligned(len(array), array.dtype)
    copy[...] = array
    return copy


def blank(dtype: np.dtype[Any]) -> AnyArray:
    """Return what memory of this type is overwritten with."""
    return np.zeros((), dtype=dtype)


def resized(numbers: Ints, size: int) -> Ints:
    """Return the first ``size`` of some numbers, zeros added if there are fewer.

    What is returned may lie in a longer array, so that to add or drop one at a time costs little.
    """
    have, whole = len(numbers), numbers.base
    if size == have:
        return numbers
    if not isinstance(whole, np.ndarray) or whole.ctypes.data != numbers.ctypes.data or whole.dtype != numbers.dtype:
        whole = numbers
    if size < have and 4 * size + 64 >= len(whole):
        numbers[size:] = 0
        return numbers[:size]
    if size < have or size > len(whole):
        whole = np.zeros(size + size // SHARE + 16, dtype=numbers.dtype)
        kept = min(size, have)
        whole[:kept] = numbers[:kept]
    return whole[:size]


def step_of(buffers: tuple[AnyArray, ...]) -> int:
    """Return after how many elements all buffers are on the boundary again."""
    return max([ALIGNMENT // math.gcd(ALIGNMENT, buffer.itemsize) for buffer in buffers])


class Regions:
    """A region for each place, in one or two buffers of the same length; what no record takes up is blank."""

    __slots__ = ("buffers", "little", "offsets", "rooms", "step", "used", "whole")

    def __init__(self, dtypes: list[np.dtype[Any]], little: int, whole: int) -> None:
        self.buffers: tuple[AnyArray, ...] = tuple([aligned(0, dtype) for dtype in dtypes])
        self.step = step_of(self.buffers)
        """How many elements there are from one boundary that a region can start on to the next."""
        self.little = little
        """How many elements a region has to spare, beside its share."""
        self.whole = whole
        """How many elements a region has that will be full some day, or 0 if there is no end to it."""
        self.offsets: Ints = np.zeros(0, dtype=np.int64)
        self.rooms: Ints = np.zeros(0, dtype=np.int64)
        self.used = 0
        """Where the last region ends."""

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            setattr(self, name, value)
        self.buffers = tuple([realigned(buffer) for buffer in self.buffers])

    @property
    def size(self) -> int:
        """How many elements there is memory for."""
        return len(self.buffers[0])

    @property
    def content_bytes(self) -> int:
        """Size of what the records take up, spare room included."""
        return sum(buffer.nbytes for buffer in self.buffers)

    @property
    def nbytes(self) -> int:
        """Size of everything in memory."""
        return self.content_bytes + self.offsets.nbytes + self.rooms.nbytes

    def _filled(self, lengths: Ints) -> Ints:
        """Return how many elements the records of each place take up."""
        raise NotImplementedError

    def _padded(self, elements: Any) -> Any:
        """Return how many elements a region has, so that the next begins on the boundary."""
        return -(-elements // self.step) * self.step

    def _roomy(self, needed: Any) -> Any:
        """Return the room of regions, with some to spare."""
        if self.whole:
            return self._padded(np.maximum(needed, self.whole) * np.minimum(needed, 1))
        return self._padded(needed + needed // SHARE + self.little)

    def reserve(self, place: int, needed: int, lengths: Ints) -> None:
        """Give a place room for ``needed`` elements, its records included."""
        have = self.rooms.item(place)
        if needed <= have:
            return
        room, start = int(self._roomy(needed)), self.offsets.item(place)
        if have and start + have == self.used and start + needed <= self.size:
            room = min(room, self.size - start)
            self.rooms[place], self.used = room, start + room
        elif self.used + room <= self.size:
            self._move(place, room)
        else:
            self._lay_anew(np.array([place]), np.array([needed]), lengths)

    def expect(self, places: Ints, needed: Ints, lengths: Ints) -> None:
        """Give many places room at once."""
        if len(places) == 1:
            self.reserve(places.item(0), needed.item(0), lengths)
            return
        short = needed > self.rooms[places]
        if self.used + int(self._roomy(needed[short]).sum()) > self.size:
            self._lay_anew(places, needed, lengths)
        else:
            for place, number in zip(places[short].tolist(), needed[short].tolist(), strict=True):
                self.reserve(place, number, lengths)

    def _lay_anew(self, places: Ints, needed: Ints, lengths: Ints) -> None:
        """Lay all regions out anew with room to spare, some for more than they hold."""
        filled = self._filled(lengths).copy()
        filled[places] = np.maximum(filled[places], needed)
        rooms = self._roomy(filled)
        total = int(rooms.sum())
        self.relay(rooms, total + int(self._padded(total // SHARE)))

    def tidy(self, live: int, lengths: Ints) -> None:
        """Lay all regions out anew, without room to spare, when less than half is taken up by ``live`` elements."""
        if self.size > self.limit(live):
            self.relay(self._padded(self._filled(lengths)))

    def limit(self, live: int) -> int:
        """Return how many elements there may be memory for, with ``live`` of them taken up."""
        return 2 * live + len(self.rooms) * (3 * self.little // 2 + 5 * self.step // 4) + ALIGNMENT

    def relay(self, rooms: Ints, size: int | None = None, dtypes: list[np.dtype[Any]] | None = None) -> None:
        """Lay all regions out anew in other buffers, perhaps of another type; overwrite the old ones.

        The last statement does it all at once: an interruption comes before it or after.
        """
        used = int(rooms.sum())
        offsets, old = np.cumsum(rooms) - rooms, self.buffers
        dtypes = dtypes or [buffer.dtype for buffer in old]
        new = tuple([aligned(used if size is None else size, dtype) for dtype in dtypes])
        step = step_of(new)
        for source, target, number in self._runs(offsets, rooms):
            for before, after in zip(old, new, strict=True):
                after[target : target + number] = before[source : source + number]
        blanks = [blank(buffer.dtype) for buffer in old]
        self.buffers, self.step, self.offsets, self.rooms, self.used, old[0][...], old[-1][...] = (
            new, step, offsets, rooms, used, blanks[0], blanks[-1]
        )  # fmt: skip

    def _runs(self, offsets: Ints, rooms: Ints) -> list[tuple[int, int, int]]:
        """Return what to copy, from where to where; regions that stay side by side go together."""
        taken = np.flatnonzero(self.rooms)
        if len(taken) == 0:
            return []
        source, target, number = self.offsets[taken], offsets[taken], np.minimum(self.rooms, rooms)[taken]
        apart = (source[1:] != source[:-1] + number[:-1]) | (target[1:] != target[:-1] + number[:-1])
        first = np.append(0, np.flatnonzero(apart) + 1)
        numbers = np.add.reduceat(number, first)
        return list(zip(source[first].tolist(), target[first].tolist(), numbers.tolist(), strict=True))

    def _move(self, place: int, room: int) -> None:
        """Give a place a region behind all others, and overwrite the one that it had, all at once."""
        start, have, end = self.offsets.item(place), self.rooms.item(place), self.used
        first, last = self.buffers[0], self.buffers[-1]
        blanks = blank(first.dtype), blank(last.dtype)
        (
            first[end : end + have], last[end : end + have], self.offsets[place], self.rooms[place], self.used,
            first[start : start + have], last[start : start + have],
        ) = (
            first[start : start + have], last[start : start + have], end, room, end + room, *blanks
        )  # fmt: skip

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        for place in range(len(self.rooms) - 1, places - 1, -1):  # room at the end of the buffers can be used again
            room = self.rooms.item(place)
            if room and self.offsets.item(place) + room == self.used:
                self.rooms[place], self.used = 0, self.used - room
        self.rooms = resized(self.rooms, places)
        self.offsets = resized(self.offsets, places)
