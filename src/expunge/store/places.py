"""Columns of records that lie by place in a store; a part of a place is read when it is needed, and none is kept.

Changes are written at once, in the transaction that the owner has begun: to undo them is to roll it back.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from expunge.base.columns import csr, index_type, pointers, stack
from expunge.base.errors import CorruptStore
from expunge.base.types import AnyArray, Batch, Column, Ints
from expunge.engine.records.pools import aligned
from expunge.store.file import StoreFile
from expunge.store.layout import ColumnType, Layout
from expunge.store.rows import StoredNumbers

PART_BITS = 24
"""A part's number is that of its place, times 2 to the power of this, plus its own within the place."""
REMEMBERED = 64
"""How many parts that were just read are kept for a moment."""


_LAST_LETTER = 0x10FFFF


def written(layout: Layout, columns: Batch) -> bytes:
    """Return a part as bytes."""
    each = [_written(*one) for one in zip(layout.columns, columns, strict=True)]
    heads = [int(columns[0].shape[0]), *[head for head, _ in each]]
    return b"".join([struct.pack(f"<{len(heads)}Q", *heads), *[body for _, body in each]])


def _written(kind: ColumnType, column: Column) -> tuple[int, bytes]:
    """Return a number that says what is needed to read a column, and its bytes."""
    if kind.sparse:
        counts = np.diff(column.indptr).astype("<i4").tobytes()
        indices = column.indices.astype(_index_type(kind))
        return len(column.data), counts + column.data.astype("<f8").tobytes() + indices.tobytes()
    if kind.kind != "U":
        return 0, np.ascontiguousarray(column, dtype=kind.stored).tobytes()
    letters = np.ascontiguousarray(column).view(np.uint32).reshape(len(column), column.dtype.itemsize // 4)
    used = np.flatnonzero(letters.any(axis=0))
    letters = letters[:, : used.item(-1) + 1 if len(used) else 1]
    size = 1 if letters.max(initial=0) < 2**8 else 2 if letters.max(initial=0) < 2**16 else 4
    return letters.shape[1] * 8 + size, letters.astype(f"<u{size}").tobytes()


def _index_type(kind: ColumnType) -> np.dtype[Any]:
    return np.dtype(index_type(kind.tail[0])).newbyteorder("<")


def _length(kind: ColumnType, head: int, count: int) -> int:
    """Return how many bytes a column has."""
    if kind.sparse:
        return 4 * count + head * (8 + _index_type(kind).itemsize)
    if kind.kind == "U":
        if head >> 3 == 0 or head & 7 not in (1, 2, 4):
            raise ValueError("strings of an odd size")
        return count * (head >> 3) * (head & 7)
    return count * kind.numbers * kind.stored.itemsize


class Part:
    """Some records in all their columns, read from bytes when asked for."""

    __slots__ = ("_content", "_heads", "_layout", "_starts", "count")

    def __init__(self, layout: Layout, content: memoryview, name: str) -> None:
        self._layout = layout
        self._content = content
        try:
            self._find_columns()
        except (struct.error, ValueError, OverflowError) as error:
            raise CorruptStore(f"{name} cannot be read ({error}); restore a backup.") from error

    def _find_columns(self) -> None:
        layout, content = self._layout, self._content
        self.count, *self._heads = struct.unpack_from(f"<{len(layout.columns) + 1}Q", content)
        if self.count > layout.rows:
            raise ValueError(f"{self.count} records")
        at = 8 * (len(layout.columns) + 1)
        self._starts = []
        for kind, head in zip(layout.columns, self._heads, strict=True):
            self._starts.append(at)
            at += _length(kind, head, self.count)
        if at != len(content):
            raise ValueError(f"{len(content)} bytes")

    def column(self, position: int) -> Column:
        """Return a column as it is kept; read-only."""
        kind, head, at = self._layout.columns[position], self._heads[position], self._starts[position]
        if kind.sparse:
            return self._sparse(kind, head, at)
        if kind.kind == "U":
            length, size = head >> 3, head & 7
            letters = np.frombuffer(self._content, f"<u{size}", self.count * length, at)
            if size == 4 and letters.max(initial=0) > _LAST_LETTER:
                raise CorruptStore("a string is not valid; restore a backup.")
            return letters.astype(np.uint32).reshape(self.count, length).view(f"U{length}")[:, 0]
        return np.frombuffer(self._content, kind.stored, self.count * kind.numbers, at).reshape(self.count, *kind.tail)

    def _sparse(self, kind: ColumnType, stored: int, at: int) -> Column:
        counts = np.frombuffer(self._content, "<i4", self.count, at)
        data = np.frombuffer(self._content, "<f8", stored, at + 4 * self.count)
        indices = np.frombuffer(self._content, _index_type(kind), stored, at + 4 * self.count + 8 * stored)
        if (
            counts.min(initial=0) < 0
            or int(counts.sum()) != stored
            or (stored and not 0 <= indices.min() <= indices.max() < kind.tail[0])
        ):
            raise CorruptStore("a sparse column is not valid; restore a backup.")
        native = indices.dtype.newbyteorder("=")
        return csr(data.copy(), indices.astype(native), pointers(counts, kind.tail[0]), kind.tail[0])

    @property
    def columns(self) -> Batch:
        """All columns, as they are kept."""
        return tuple([self.column(position) for position in range(len(self._layout.columns))])


def as_served(kind: ColumnType, column: Column) -> AnyArray:
    """Return a column in the type in which it is served."""
    return column if kind.sparse or kind.kind == "U" else column.astype(kind.served, copy=False)


class StoredColumn:
    """One column."""

    __slots__ = ("_places", "_position")

    def __init__(self, places: StoredPlaces, position: int) -> None:
        self._places = places
        self._position = position

    @property
    def _type(self) -> ColumnType:
        return self._places.layout.columns[self._position]

    def empty(self) -> Column:
        """Return a column like this one, without records."""
        return self._type.empty()

    def block(self, place: int, length: int) -> Column:
        """Return the first ``length`` rows of a place."""
        return self._places.joined(self._position, place, 0, length)

    def single(self, place: int, slot: int) -> Column:
        """Return one row."""
        return self._places.single_of((self._position,), place, slot)[0]

    def gather(self, places: Ints, slots: Ints) -> Column:
        """Return single rows."""
        return self._places.gather_of((self._position,), places, slots)[0]


class StoredPlaces:
    """Several columns with the same places, in a store."""

    def __init__(self, file: StoreFile, layout: Layout, least: int) -> None:
        self.file = file
        self.layout = layout
        self.least = least
        self.columns = [StoredColumn(self, position) for position in range(len(layout.columns))]
        self._stored_lengths = StoredNumbers(file, "places")
        self.lengths = self._stored_lengths.read()
        self._recent: OrderedDict[int, Part] = OrderedDict()

    def __len__(self) -> int:
        return len(self.lengths)

    # --- reading ---

    def _part(self, number: int) -> Part:
        part = self._recent.get(number)
        return self._remember(number, self.file.need("blocks", number)) if part is None else part

    def _remember(self, number: int, content: memoryview) -> Part:
        part = self._recent[number] = Part(self.layout, content, f"{self.file.path}: blocks, row {number}")
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        return part

    def joined(self, position: int, place: int, first: int, stop: int) -> Column:
        """Return a column of some slots of a place, from the first of a part on, in memory of its own."""
        kind, rows = self.layout.columns[position], self.layout.rows
        numbers = range((place << PART_BITS) + first // rows, (place << PART_BITS) + -(-stop // rows))
        pieces = [self._part(number).column(position) for number in numbers]
        if sum(piece.shape[0] for piece in pieces) != stop - first:
            raise CorruptStore(f"{self.file.path}: blocks, place {place} lacks records; restore a backup.")
        if kind.sparse or kind.kind == "U":
            return stack([kind.none(), *pieces])
        block = aligned((stop - first) * kind.numbers, kind.served).reshape(stop - first, *kind.tail)
        return np.concatenate(pieces, out=block) if pieces else block

    def batches(self, place: int, width: int, parts: int) -> Iterator[tuple[int, Batch]]:
        """Return (first slot, the given columns) of a place, so many parts at a time."""
        length, step = self.lengths.item(place), parts * self.layout.rows
        for first in range(0, length, step):
            stop = min(first + step, length)
            yield first, tuple([self.joined(position, place, first, stop) for position in range(width)])

    def block(self, place: int) -> Batch:
        """Return the columns of a place."""
        length = self.lengths.item(place)
        return tuple([column.block(place, length) for column in self.columns])

    def rows(self, place: int, slots: list[int]) -> list[Batch]:
        """Return single rows of a place, each in all columns."""
        return [self.single_of(range(len(self.columns)), place, slot) for slot in slots]

    def single_of(self, positions: Sequence[int], place: int, slot: int) -> Batch:
        """Return one row, in some columns."""
        number, slot = (place << PART_BITS) + slot // self.layout.rows, slot % self.layout.rows
        part, kinds = self._part(number), self.layout.columns
        if slot >= part.count:
            raise self._lacking(number)
        return tuple([as_served(kinds[each], part.column(each)[slot : slot + 1].copy()) for each in positions])

    def _lacking(self, number: int) -> CorruptStore:
        return CorruptStore(f"{self.file.path}: blocks, row {number} lacks a record; restore a backup.")

    def gather(self, places: Ints, slots: Ints) -> Batch:
        """Return single rows, in all columns."""
        return self.gather_of(range(len(self.columns)), places, slots)

    def gather_of(self, positions: Sequence[int], places: Ints, slots: Ints) -> Batch:
        """Return single rows, in some columns."""
        numbers, order, bounds = self._by_part(places, slots)
        slots = (slots % self.layout.rows)[order]
        gathered: list[list[Column]] = [[self.layout.columns[position].none()] for position in positions]
        for number, first, stop in zip(numbers, bounds[:-1], bounds[1:], strict=True):
            part = self._part(number)
            if slots[first:stop].max() >= part.count:
                raise self._lacking(number)
            for pieces, position in zip(gathered, positions, strict=True):
                pieces.append(part.column(position)[slots[first:stop]])
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return tuple(
            [
                as_served(self.layout.columns[position], stack(pieces)[back])
                for pieces, position in zip(gathered, positions, strict=True)
            ]
        )

    def _by_part(self, places: Ints, slots: Ints) -> tuple[list[int], Ints, list[int]]:
        """Return the parts of some slots, the order that brings them together, and where each part's begin in it."""
        numbers = (places << PART_BITS) + slots // self.layout.rows
        order = np.argsort(numbers, kind="stable")
        distinct, first = np.unique(numbers[order], return_index=True)
        return distinct.tolist(), order, [*first.tolist(), len(order)]

    # --- writing ---

    def admit(self, rows: Batch, fresh: bool) -> None:
        """Let ids and subjects be of any type, if there are no records."""
        if fresh:
            given = self.layout.width
            types = [ColumnType.of(column) for column in rows[given:]]
            self.layout = Layout((*self.layout.columns[:given], *types), given, self.layout.rows)

    def resize(self, places: int) -> None:
        """Drop empty places at the end, or add empty ones."""
        have = len(self.lengths)
        if places == have:
            return
        lengths = np.zeros(places, dtype=np.int64)
        kept = min(have, places)
        lengths[:kept] = self.lengths[:kept]
        assert not self.lengths[kept:].any()
        self.lengths = lengths
        self._stored_lengths.resize(lengths, have)

    def make_room(self, places: Ints, slots: Ints, rows: Batch) -> None:
        """Do nothing: there is always room."""

    def fit_rooms(self, places: Ints) -> None:
        """Do nothing: no room is kept."""

    def keep(self, places: Ints) -> Sequence[Any]:
        """Keep nothing: the transaction can be rolled back."""
        return ()

    def rewrite(
        self, places: Ints, after: Ints, kept: Sequence[Any], at: Ints, slots: Ints, rows: Batch,
        drop_at: Ints, drop_slots: Ints,
    ) -> None:  # fmt: skip
        """Put rows into slots ``at, slots`` of some places, drop others, so that there are ``after`` rows then."""
        if len(places) == 1 and max(self.lengths[places].item(0), after.item(0)) <= self.layout.rows:  # in one part
            number, before, count = places.item(0) << PART_BITS, self.lengths[places].item(0), after.item(0)
            self._rewrite_part(number, before, count, slots, list(rows))
        else:
            self._rewrite_parts(places, after, at, slots, rows, drop_at, drop_slots)
        self.lengths[places] = after
        self._stored_lengths.write(self.lengths, places)

    def _rewrite_parts(
        self, places: Ints, after: Ints, at: Ints, slots: Ints, rows: Batch, drop_at: Ints, drop_slots: Ints
    ) -> None:
        numbers, order, bounds = self._by_part(at, slots)
        put = {number: order[bounds[k] : bounds[k + 1]] for k, number in enumerate(numbers)}
        dropped = (drop_at << PART_BITS) + drop_slots // self.layout.rows
        before_and_after = zip(self.lengths[places].tolist(), after.tolist(), strict=True)
        lengths = dict(zip(places.tolist(), before_and_after, strict=True))
        for number in sorted({*numbers, *dropped.tolist()}):
            place, part = number >> PART_BITS, number & (1 << PART_BITS) - 1
            before, count = (min(length - part * self.layout.rows, self.layout.rows) for length in lengths[place])
            which = put.get(number, _NONE)
            new = [column[which] for column in rows]
            self._rewrite_part(number, before, count, slots[which] % self.layout.rows, new)

    def _rewrite_part(self, number: int, before: int, count: int, slots: Ints, rows: list[Column]) -> None:
        if count <= 0:
            self._recent.pop(number, None)
            self.file.drop("blocks", number, number + 1)
            return
        old: Batch = self._part(number).columns if before > 0 else tuple([kind.none() for kind in self.layout.columns])
        self._recent.pop(number, None)
        have = int(old[0].shape[0])
        order = np.arange(count)
        order[slots] = have + np.arange(len(slots))
        if rows:
            columns = [self._replaced(*each, order) for each in zip(self.layout.columns, old, rows, strict=True)]
        else:
            columns = [column[order] for column in old]
        content = written(self.layout, tuple(columns))
        self.file.put("blocks", number, content)
        self._remember(number, memoryview(content))

    def _replaced(self, kind: ColumnType, old: Column, new: Column, order: Ints) -> Column:
        if kind.sparse or kind.kind == "U":
            return stack([old, new])[order]
        return np.concatenate([old, new.astype(kind.stored)])[order]

    def lay(self, place: int, columns: Batch, first: int = 0) -> None:
        """Write rows of a place, from the first slot of a part on, where nothing lies yet."""
        rows = self.layout.rows
        self.layout.check_rows(columns, self.file.longest)
        for begin in range(0, int(columns[0].shape[0]), rows):
            piece = tuple([column[begin : begin + rows] for column in columns])
            number = (place << PART_BITS) + (first + begin) // rows
            self.file.put("blocks", number, written(self.layout, piece))


_NONE: Ints = np.zeros(0, dtype=np.int64)


def store_lengths(file: StoreFile, lengths: AnyArray) -> None:
    """Write how many records each place has, again."""
    file.drop("places", 0)
    StoredNumbers(file, "places").resize(lengths.astype(np.int64), 0)
