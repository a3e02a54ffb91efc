"""Which records meet in which step: random, and blind to what the records say.

A *place* is where records lie together; a *step* visits one place. `Scattered` and `Everyone` have a
fixed number of steps; `Shuffled` and `Arrival` (the *ordered* ones) have as many as the records need.
Proofs that every edit keeps the law: docs/guarantee.md, "Schedules".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from expunge.base.errors import BadPlan
from expunge.base.types import Batch, Ints, Keys, Mask
from expunge.engine.hashing import mix

SLOT_BITS = np.int64(32)
SLOT_MASK = np.int64(2**32 - 1)
NONE: Ints = np.zeros(0, dtype=np.int64)
NOT_ANY: Mask = np.zeros(0, dtype=bool)
MINUS_ONE: Ints = np.array([-1])
NOT_ONE: Mask = np.zeros(1, dtype=bool)
ZERO: Ints = np.zeros(1, dtype=np.int64)
ONLY_ONE: Mask = np.ones(1, dtype=bool)
NEWCOMER_FIRST: Ints = np.array([0, -1])
FIRST_ENTERS: Mask = np.array([True, False])


@dataclass(frozen=True)
class Edit:
    """A change of the records: rows are put into slots, then the ends of some places are dropped.

    ``put_sources`` says which row goes into a slot: j ≥ 0 the j-th entering record, -1 - j the record that
    lay at ``moved_places[j], moved_slots[j]``. ``put_enters`` marks the rows that come from outside the place.
    ``leave_places, leave_slots`` are the rows that leave their place, first those that leave for good.
    """

    put_places: Ints = field(default_factory=lambda: NONE)
    put_slots: Ints = field(default_factory=lambda: NONE)
    put_sources: Ints = field(default_factory=lambda: NONE)
    put_enters: Mask = field(default_factory=lambda: NOT_ANY)
    moved_places: Ints = field(default_factory=lambda: NONE)
    moved_slots: Ints = field(default_factory=lambda: NONE)
    drop_places: Ints = field(default_factory=lambda: NONE)
    drop_slots: Ints = field(default_factory=lambda: NONE)
    leave_places: Ints = field(default_factory=lambda: NONE)
    leave_slots: Ints = field(default_factory=lambda: NONE)
    keys: Keys | None = None
    """Keys of the entering records, where the schedule has them."""
    entering: Batch = ()
    """The entering records themselves, in all their columns; filled in by the records."""
    removed: int = 0
    added: int = 0
    within_a_place: bool = field(init=False, repr=False, compare=False)
    """Whether one record is deleted and no other changes its place: the everyday case, served without ado."""

    def __post_init__(self) -> None:
        alone = self.removed == 1 and self.added == 0 and len(self.leave_places) == 1
        object.__setattr__(self, "within_a_place", alone)

    def places(self) -> Ints:
        """Return the places whose records change, ascending."""
        if self.within_a_place:
            return self.leave_places
        return np.unique(np.concatenate([self.put_places[self.put_enters], self.leave_places]))


def fill_holes(lengths: Ints, places: Ints, slots: Ints) -> Edit:
    """Fill the holes among the first n - k slots of each place, in order, with the survivors of its last k."""
    number = len(places)
    if number == 1:
        last = lengths[places] - 1
        if last.item(0) == slots.item(0):
            return Edit(
                drop_places=places, drop_slots=slots, leave_places=places, leave_slots=slots, removed=1
            )  # fmt: skip
        return Edit(places, slots, MINUS_ONE, NOT_ONE, places, last, places, last, places, slots, removed=1)
    taken = np.bincount(places, minlength=len(lengths))
    touched = np.flatnonzero(taken)
    left = lengths - taken
    tail_places = np.repeat(touched, taken[touched])
    within = np.arange(number) - np.repeat(np.cumsum(taken[touched]) - taken[touched], taken[touched])
    tail_slots = left[tail_places] + within
    gone = np.sort((places << SLOT_BITS) | slots)
    holes = gone[(gone & SLOT_MASK) < left[gone >> SLOT_BITS]]
    tails = (tail_places << SLOT_BITS) | tail_slots
    movers = tails[~np.isin(tails, gone, assume_unique=True)]
    return Edit(
        holes >> SLOT_BITS, holes & SLOT_MASK, -1 - np.arange(len(holes)), np.zeros(len(holes), dtype=bool),
        movers >> SLOT_BITS, movers & SLOT_MASK, tail_places, tail_slots, places, slots, removed=number,
    )  # fmt: skip


def draw_slots(lengths: Ints, places: Ints, rng: np.random.Generator) -> Edit:
    """Give each newcomer a uniform slot among the n + 1 of its place; the one displaced goes last."""
    if len(places) == 1:
        last = lengths[places]
        drawn = rng.integers(last + 1)
        if drawn.item(0) == last.item(0):
            return Edit(places, last, ZERO, ONLY_ONE, added=1)
        slots, twice = np.concatenate([drawn, last]), np.concatenate([places, places])
        return Edit(twice, slots, NEWCOMER_FIRST, FIRST_ENTERS, places, drawn, added=1)
    order = np.argsort(places, kind="stable")
    in_order = places[order]
    last = np.empty_like(places)
    last[order] = lengths[in_order] + np.arange(len(places)) - np.searchsorted(in_order, in_order)
    drawn = rng.integers(last + 1) if len(last) else last
    content: dict[int, int] = {}  # position -> newcomer j, or -1 - old position
    ends, slots = (places << SLOT_BITS) | last, (places << SLOT_BITS) | drawn
    for j, (end, slot) in enumerate(zip(ends.tolist(), slots.tolist(), strict=True)):
        if slot != end:
            content[end] = content.get(slot, -1 - slot)
        content[slot] = j
    number = len(content)
    targets, sources = np.fromiter(content, np.int64, number), np.fromiter(content.values(), np.int64, number)
    order = np.argsort(targets)
    targets, sources = targets[order], sources[order]
    old = sources < 0
    came = -1 - sources[old]
    sources[old] = -1 - np.arange(len(came))
    return Edit(
        targets >> SLOT_BITS, targets & SLOT_MASK, sources, ~old, came >> SLOT_BITS, came & SLOT_MASK,
        added=len(places),
    )  # fmt: skip


def into_steps(edit: Edit, batch: int) -> Edit:
    """Turn an edit of one long place into one of places of ``batch`` records each."""
    put, moved, drop = edit.put_slots, edit.moved_slots, edit.drop_slots
    put_places, moved_places = put // batch, moved // batch
    old = edit.put_sources < 0
    origin = moved_places[-1 - edit.put_sources[old]]
    crossing = put_places[old] != origin
    enters = ~old
    enters[old] = crossing
    crossed = moved[-1 - edit.put_sources[old]][crossing]
    leave = np.concatenate([edit.leave_slots, crossed])
    return replace(
        edit, put_places=put_places, put_slots=put % batch, put_enters=enters,
        moved_places=moved_places, moved_slots=moved % batch, drop_places=drop // batch, drop_slots=drop % batch,
        leave_places=leave // batch, leave_slots=leave % batch,
    )  # fmt: skip


class Assignment(NamedTuple):
    """Where the records lie at first."""

    order: Ints
    """The records' numbers, place by place."""
    lengths: Ints
    """How many lie at each place."""
    keys: Keys | None
    """A key for each record, where the schedule has them."""


class Schedule(Protocol):
    """What the engine and the records ask of a schedule."""

    @property
    def ordered(self) -> bool:
        """Whether records lie in an order cut into steps, so that the number of steps follows theirs."""

    @property
    def rate(self) -> float:
        """The probability that a record takes part in a step that visits its place."""

    @property
    def touches_everyone(self) -> bool:
        """Whether every step visits all records."""

    @property
    def bits(self) -> int | None:
        """Sums are exact to so many binary digits below the query's bound; None if they have no grid of their own."""

    @property
    def full_step(self) -> int:
        """How many records a step has that will be full some day, or 0 if there is no end to it."""

    @property
    def finish(self) -> int | None:
        """The last step, where everyone joins it and only then; None if there is none."""

    @property
    def same_part(self) -> bool:
        """Whether the same part of the records joins all steps but the finish, where not everyone does."""

    def steps(self, count: int) -> int:
        """Return the number of steps for ``count`` records."""

    def place(self, step: int) -> int:
        """Return the place that a step visits."""

    def visits(self, places: Ints, steps: int) -> Ints:
        """Return the steps, among the first ``steps``, that visit any of these places, ascending."""

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Draw where ``count`` records lie; records of one subject number go together."""

    def delete(self, lengths: Ints, places: Ints, slots: Ints) -> Edit:
        """Return the edit that takes out the records lying there; ``lengths`` counts the records of each place."""

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Draw where the entering records go."""


@dataclass(frozen=True)
class Entering:
    """What a schedule may know of records that enter: never what they say."""

    count: int
    """How many records there are before."""
    number: int
    """How many enter."""
    lengths: Ints
    """How many records lie at each place."""
    subjects: Ints | None
    """A number for each entering record's subject, or None if every record is its own."""
    home_places: Ints
    """For each subject number the place where its records already lie, or -1."""
    home_keys: Keys
    """For each subject number its records' key, where it has a home."""


def joins(keys: Keys, step: int, rate: float) -> Mask:
    """Say which keys take part in a step: independently with probability ``rate``, the same at every call."""
    return joins_each(keys, [step], rate)[0]


def joins_each(keys: Keys, steps: list[int], rate: float) -> Mask:
    """Say the same for several steps, a row for each."""
    offsets = np.array([(step * 0x9E3779B97F4A7C15) % 2**64 for step in steps], dtype=np.uint64)
    return mix(keys + offsets[:, None]) < np.uint64(min(int(rate * 2.0**64), 2**64 - 1))


def _whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise BadPlan(f"{name}={value!r}: give a whole number of at least 1.")


@dataclass(frozen=True)
class Scattered:
    """Each subject is sent to a place drawn uniformly and independently, and stays there in every epoch.

    Within a place records lie in uniformly random order, so that a hole can be filled by the last of them. No
    record changes its place when another is deleted: the law of the rest does not know that it was there.
    """

    places: int
    epochs: int = 1
    finish = None
    same_part = False
    ordered = False
    rate = 1.0
    touches_everyone = False
    bits = None
    full_step = 0

    def __post_init__(self) -> None:
        _whole("places", self.places)
        _whole("epochs", self.epochs)

    def steps(self, count: int) -> int:
        """Return places times epochs."""
        return int(self.places * self.epochs)

    def place(self, step: int) -> int:
        """Return the step's number within its epoch."""
        return step % self.places

    def visits(self, places: Ints, steps: int) -> Ints:
        """Return each place's step in every epoch."""
        if self.epochs == 1:
            return places
        return (places[None, :] + self.places * np.arange(self.epochs)[:, None]).ravel()

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Draw a place for each subject, and an order within each place."""
        shuffled = rng.permutation(count)
        if subjects is None:
            places = rng.integers(self.places, size=count)
        else:
            homes = rng.integers(self.places, size=int(subjects.max(initial=-1)) + 1)
            places = homes[subjects[shuffled]]
        small = places.astype(np.uint16) if self.places <= 2**16 else places
        order = shuffled[np.argsort(small, kind="stable")]
        return Assignment(order, np.bincount(places, minlength=self.places), None)

    def delete(self, lengths: Ints, places: Ints, slots: Ints) -> Edit:
        """Fill each place's holes from its end."""
        return fill_holes(lengths, places, slots)

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Let each record in at its subject's place, drawn if the subject is new."""
        if entering.subjects is None:
            places = rng.integers(self.places, size=entering.number)
        else:
            drawn = rng.integers(self.places, size=len(entering.home_places))
            places = np.where(entering.home_places >= 0, entering.home_places, drawn)[entering.subjects]
        return draw_slots(entering.lengths, places, rng)


@dataclass(frozen=True)
class Everyone:
    """Every record meets every step; with ``rate`` < 1 each joins each step independently.

    Sums are kept exact on a grid of ``bits`` binary digits below the query's bound (docs/guarantee.md#sums).
    """

    rounds: int
    rate: float = 1.0
    bits: int = 30
    ordered = False
    touches_everyone = True
    full_step = 0
    same_part = False

    def __post_init__(self) -> None:
        _whole("rounds", self.rounds)
        _whole("bits", self.bits)
        if not 0.0 < self.rate <= 1.0:
            raise BadPlan(f"rate={self.rate!r}: give a probability above 0 and at most 1.")
        if self.bits > 45:
            raise BadPlan(f"bits={self.bits}: at most 45, so that 256 records can be summed exactly.")

    @property
    def finish(self) -> int | None:
        """Return None: all steps are alike."""
        return None

    def steps(self, count: int) -> int:
        """Return the number of rounds."""
        return self.rounds

    def place(self, step: int) -> int:
        """Return 0: there is one place."""
        return 0

    def visits(self, places: Ints, steps: int) -> Ints:
        """Return all rounds, if anything changes."""
        return np.arange(min(self.rounds, steps)) if len(places) else NONE

    def _keys(self, number: int, rng: np.random.Generator) -> Keys | None:
        return None if self.rate == 1.0 else rng.integers(2**64, size=number, dtype=np.uint64)

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Draw an order, and a key for each subject (if the rate is below 1)."""
        keys = self._keys(count if subjects is None else int(subjects.max(initial=-1)) + 1, rng)
        if keys is not None and subjects is not None:
            keys = keys[subjects]
        return Assignment(rng.permutation(count), np.array([count]), keys)

    def delete(self, lengths: Ints, places: Ints, slots: Ints) -> Edit:
        """Fill the holes from the end."""
        return fill_holes(lengths, places, slots)

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Let the records in, each with its subject's key."""
        if entering.subjects is None:
            keys = self._keys(entering.number, rng)
        else:
            keys = self._keys(len(entering.home_places), rng)
            if keys is not None:
                keys = np.where(entering.home_places >= 0, entering.home_keys, keys)[entering.subjects]
        edit = draw_slots(entering.lengths, np.zeros(entering.number, dtype=np.int64), rng)
        return replace(edit, keys=keys)


@dataclass(frozen=True)
class _Ordered:
    """Records in an order, cut into steps of ``batch``."""

    batch: int = 1
    finish = None
    same_part = False
    ordered = True
    rate = 1.0
    touches_everyone = False
    bits = None

    def __post_init__(self) -> None:
        _whole("batch", self.batch)

    @property
    def full_step(self) -> int:
        """Return ``batch``."""
        return self.batch

    def steps(self, count: int) -> int:
        """Return ⌈count / batch⌉."""
        return int(-(-count // self.batch))

    def place(self, step: int) -> int:
        """Return the step itself."""
        return step

    def visits(self, places: Ints, steps: int) -> Ints:
        """Return the places that are still steps."""
        return places[places < steps]

    def delete(self, lengths: Ints, places: Ints, slots: Ints) -> Edit:
        """Fill the holes among the first n - k positions, in order, with the survivors of the last k."""
        positions = places * self.batch + slots
        total = lengths.sum(keepdims=True)
        return into_steps(fill_holes(total, np.zeros_like(positions), positions), self.batch)

    def _assignment(self, order: Ints) -> Assignment:
        lengths = np.full(self.steps(len(order)), self.batch)
        if len(lengths):
            lengths[-1] = len(order) - self.batch * (len(lengths) - 1)
        return Assignment(order, lengths, None)


@dataclass(frozen=True)
class Shuffled(_Ordered):
    """The paper's schedule: a uniform permutation cut into steps of ``batch`` records (1 in the paper)."""

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Draw a uniform permutation."""
        return self._assignment(rng.permutation(count))

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Give each newcomer a uniform position among n + 1; the one displaced goes last."""
        edit = draw_slots(np.array([entering.count]), np.zeros(entering.number, dtype=np.int64), rng)
        return into_steps(edit, self.batch)


@dataclass(frozen=True)
class Arrival(_Ordered):
    """Order of arrival, cut into steps of ``batch``; insertions only append. *Weak* unlearning only.

    The state has the law of training in the *stored* order, which remembers in which slots records were
    deleted (never what they said), so the order must not be released. See docs/sharp-edges.md.
    """

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Keep the order of arrival."""
        return self._assignment(np.arange(count))

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Append to the open last step."""
        number = entering.number
        at = np.arange(entering.count, entering.count + number)
        edit = Edit(np.zeros_like(at), at, np.arange(number), np.ones(number, dtype=bool), added=number)
        return into_steps(edit, self.batch)
