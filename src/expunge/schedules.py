"""Which records meet in which step: random, and blind to what the records say.

A *place* is where records lie together; a *step* visits one place. `Scattered` and `Everyone` have a
fixed number of steps; `Shuffled` and `Arrival` (the *ordered* ones) have as many as the records need.
Proofs that every edit keeps the law: docs/guarantee.md, "Schedules".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from expunge.errors import BadPlan
from expunge.types import Batch, Ints, Keys

NONE: Ints = np.zeros(0, dtype=np.int64)
NO_KEYS: Keys = np.zeros(0, dtype=np.uint64)


class Assignment(NamedTuple):
    """Where each record lies at first: its place, its rank (records of one place lie by rank), its key."""

    places: Ints
    ranks: Ints | None
    keys: Keys | None


@dataclass(frozen=True)
class Edit:
    """A change of the records, place by place: first rows are put into slots, then slots are closed up.

    ``put_sources`` says which row goes into a slot: j ≥ 0 the j-th entering record, -1 - j the record that
    lay at ``moved_places[j], moved_slots[j]``. Dropped slots are those of the old layout.
    """

    put_places: Ints = field(default_factory=lambda: NONE)
    put_slots: Ints = field(default_factory=lambda: NONE)
    put_sources: Ints = field(default_factory=lambda: NONE)
    moved_places: Ints = field(default_factory=lambda: NONE)
    moved_slots: Ints = field(default_factory=lambda: NONE)
    drop_places: Ints = field(default_factory=lambda: NONE)
    drop_slots: Ints = field(default_factory=lambda: NONE)
    keys: Keys | None = None
    """Keys of the entering records, where the schedule has them."""
    entering: Batch = ()
    """The entering records themselves, in all their columns; filled in by the records."""
    removed: int = 0
    added: int = 0

    def places(self) -> Ints:
        """Return the places that change, ascending."""
        if len(self.put_places) == 0 and len(self.drop_places) == 1:
            return self.drop_places
        return np.unique(np.concatenate([self.put_places, self.drop_places]))


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

    def steps(self, count: int) -> int:
        """Return the number of steps for ``count`` records."""

    def places_for(self, count: int) -> int:
        """Return the number of places for ``count`` records."""

    def place(self, step: int) -> int:
        """Return the place that a step visits."""

    def visits(self, places: Ints, steps: int) -> Ints:
        """Return the steps, among the first ``steps``, that visit any of these places, ascending."""

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Draw where ``count`` records lie; records of one subject number go together."""

    def delete(self, count: int, places: Ints, slots: Ints) -> Edit:
        """Return the edit that takes out the records lying there."""

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Draw where the entering records go."""


class Entering(NamedTuple):
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


def joins(keys: Keys, step: int, rate: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say which keys take part in a step: independently with probability ``rate``, the same at every call."""
    return mix(keys + np.uint64((step * 0x9E3779B97F4A7C15) % 2**64)) < np.uint64(min(int(rate * 2.0**64), 2**64 - 1))


def mix(x: Keys) -> Keys:
    """Scramble 64-bit numbers (the finalizer of splitmix64, twice)."""
    for _ in range(2):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x


def _whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise BadPlan(f"{name}={value!r}: give a whole number of at least 1.")


def _append(places: Ints, lengths: Ints, keys: Keys | None) -> Edit:
    """Return the edit that puts the j-th entering record at the end of ``places[j]``."""
    order = np.argsort(places, kind="stable")
    in_order = places[order]
    first = np.searchsorted(in_order, in_order, side="left")
    slots = np.empty_like(places)
    slots[order] = lengths[in_order] + np.arange(len(places)) - first
    return Edit(put_places=places, put_slots=slots, put_sources=np.arange(len(places)), keys=keys)


@dataclass(frozen=True)
class Scattered:
    """Each subject is sent to a place drawn uniformly and independently, and stays there in every epoch.

    Deleting removes a record and moves no other; the law of the rest does not know that it was there.
    """

    places: int
    epochs: int = 1
    ordered = False
    rate = 1.0
    touches_everyone = False

    def __post_init__(self) -> None:
        _whole("places", self.places)
        _whole("epochs", self.epochs)

    def steps(self, count: int) -> int:
        """Return places times epochs."""
        return self.places * self.epochs

    def places_for(self, count: int) -> int:
        """Return the number of places."""
        return self.places

    def place(self, step: int) -> int:
        """Return the step's number within its epoch."""
        return step % self.places

    def visits(self, places: Ints, steps: int) -> Ints:
        """Return each place's step in every epoch."""
        if self.epochs == 1:
            return places
        return (places[None, :] + self.places * np.arange(self.epochs)[:, None]).ravel()

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Draw a place for each subject; in a place, records lie in order of arrival."""
        if subjects is None:
            return Assignment(rng.integers(self.places, size=count), None, None)
        homes = rng.integers(self.places, size=int(subjects.max(initial=-1)) + 1)
        return Assignment(homes[subjects], None, None)

    def delete(self, count: int, places: Ints, slots: Ints) -> Edit:
        """Close up the slots; nothing else moves."""
        return Edit(drop_places=places, drop_slots=slots)

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Append each record at its subject's place, drawn if the subject is new."""
        if entering.subjects is None:
            places = rng.integers(self.places, size=entering.number)
        else:
            drawn = rng.integers(self.places, size=len(entering.home_places))
            places = np.where(entering.home_places >= 0, entering.home_places, drawn)[entering.subjects]
        return _append(places, entering.lengths, None)


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

    def __post_init__(self) -> None:
        _whole("rounds", self.rounds)
        _whole("bits", self.bits)
        if not 0.0 < self.rate <= 1.0:
            raise BadPlan(f"rate={self.rate!r}: give a probability above 0 and at most 1.")
        if self.bits > 45:
            raise BadPlan(f"bits={self.bits}: at most 45, so that 256 records can be summed exactly.")

    def steps(self, count: int) -> int:
        """Return the number of rounds."""
        return self.rounds

    def places_for(self, count: int) -> int:
        """Return 1: everyone lies together."""
        return 1

    def place(self, step: int) -> int:
        """Return 0: there is one place."""
        return 0

    def visits(self, places: Ints, steps: int) -> Ints:
        """Return all rounds, if anything changes."""
        return np.arange(self.rounds) if len(places) else NONE

    def _keys(self, number: int, rng: np.random.Generator) -> Keys | None:
        return None if self.rate == 1.0 else rng.integers(2**64, size=number, dtype=np.uint64)

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Draw a key for each subject (if the rate is below 1)."""
        keys = self._keys(count if subjects is None else int(subjects.max(initial=-1)) + 1, rng)
        if keys is not None and subjects is not None:
            keys = keys[subjects]
        return Assignment(np.zeros(count, dtype=np.int64), None, keys)

    def delete(self, count: int, places: Ints, slots: Ints) -> Edit:
        """Close up the slots."""
        return Edit(drop_places=places, drop_slots=slots)

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Append the records, each with its subject's key."""
        if entering.subjects is None:
            keys = self._keys(entering.number, rng)
        else:
            keys = self._keys(len(entering.home_places), rng)
            if keys is not None:
                keys = np.where(entering.home_places >= 0, entering.home_keys, keys)[entering.subjects]
        return _append(np.zeros(entering.number, dtype=np.int64), entering.lengths, keys)


@dataclass(frozen=True)
class _Ordered:
    """Records in an order, cut into steps of ``batch``."""

    batch: int = 1
    ordered = True
    rate = 1.0
    touches_everyone = False

    def __post_init__(self) -> None:
        _whole("batch", self.batch)

    def steps(self, count: int) -> int:
        """Return ⌈count / batch⌉."""
        return -(-count // self.batch)

    def places_for(self, count: int) -> int:
        """Return the number of steps."""
        return self.steps(count)

    def place(self, step: int) -> int:
        """Return the step itself."""
        return step

    def visits(self, places: Ints, steps: int) -> Ints:
        """Return the places that are still steps."""
        return places[places < steps]

    def delete(self, count: int, places: Ints, slots: Ints) -> Edit:
        """Fill the holes among the first n - k positions, in order, with the survivors of the last k."""
        positions = places * self.batch + slots
        left = count - len(positions)
        tail = np.arange(left, count)
        holes = np.sort(positions[positions < left])
        movers = np.setdiff1d(tail, positions, assume_unique=True)
        return Edit(
            put_places=holes // self.batch,
            put_slots=holes % self.batch,
            put_sources=-1 - np.arange(len(holes)),
            moved_places=movers // self.batch,
            moved_slots=movers % self.batch,
            drop_places=tail // self.batch,
            drop_slots=tail % self.batch,
        )

    def _put(self, targets: Sequence[int], sources: Sequence[int], moved: Sequence[int]) -> Edit:
        at, came = np.array(targets, dtype=np.int64), np.array(moved, dtype=np.int64)
        return Edit(
            put_places=at // self.batch,
            put_slots=at % self.batch,
            put_sources=np.array(sources, dtype=np.int64),
            moved_places=came // self.batch,
            moved_slots=came % self.batch,
        )


@dataclass(frozen=True)
class Shuffled(_Ordered):
    """The paper's schedule: a uniform permutation cut into steps of ``batch`` records (1 in the paper)."""

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Draw a uniform permutation."""
        positions = rng.permutation(count)
        return Assignment(positions // self.batch, positions, None)

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Give each newcomer a uniform position among n + 1; the one displaced goes last."""
        content: dict[int, int] = {}  # position -> entering record j, or -1 - old position
        for j in range(entering.number):
            last = entering.count + j
            position = int(rng.integers(last + 1))
            if position != last:
                content[last] = content.get(position, -1 - position)
            content[position] = j
        targets = sorted(content)
        moved = [-1 - content[t] for t in targets if content[t] < 0]
        numbers = {position: -1 - k for k, position in enumerate(moved)}
        sources = [content[t] if content[t] >= 0 else numbers[-1 - content[t]] for t in targets]
        return self._put(targets, sources, moved)


@dataclass(frozen=True)
class Arrival(_Ordered):
    """Order of arrival, cut into steps of ``batch``; insertions only append. *Weak* unlearning only.

    The state has the law of training in the *stored* order, which remembers in which slots records were
    deleted (never what they said), so the order must not be released. See docs/sharp-edges.md.
    """

    def assign(self, count: int, subjects: Ints | None, rng: np.random.Generator) -> Assignment:
        """Keep the order of arrival."""
        positions = np.arange(count)
        return Assignment(positions // self.batch, positions, None)

    def insert(self, entering: Entering, rng: np.random.Generator) -> Edit:
        """Append to the open last step."""
        targets = range(entering.count, entering.count + entering.number)
        return self._put(targets, range(entering.number), [])
