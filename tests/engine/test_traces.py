"""What containers tell of a record that is gone: rooms, cells and pickles are those of what is there now.

Whoever holds the memory or a pickle of a model guesses at which place the deleted record lay. With 40 places and 50
deletions, chance is right 1.25 times in the mean, and more than 7 times with probability below 1e-4.
"""

import pickle

import numpy as np
import pytest
from scipy import sparse, stats

from expunge import Delete, Insert, LogisticRegression, MemoryRecords, Scattered
from expunge.engine.randomness import Randomness
from expunge.engine.records import buffers
from expunge.engine.records.buffers import Buffers
from expunge.engine.records.places import Places
from expunge.engine.records.sparse import SparseColumn
from expunge.engine.schedules import Assignment
from expunge.solvers import DualAveraging

PLACES, DELETIONS, MOST = 40, 50, 7
SCHEDULE = Scattered(PLACES)


def table(rng, number, kind):
    x = rng.normal(size=(number, 8))
    return x if kind == "dense" else sparse.csr_array(x * (rng.random((number, 8)) < 0.7))


def after_a_deletion(kind, seed, number=800):
    """Return records after one deletion, and the place where the deleted one lay."""
    rng = np.random.default_rng(seed)
    records = MemoryRecords((table(rng, number, kind), rng.normal(size=number)))
    records.arrange(SCHEDULE, rng)
    records.keep_layout()
    victim = int(rng.integers(number))
    place = records.locate([victim]).places.item(0)
    records.stage(records.edit(SCHEDULE, Delete([victim]), Randomness.of(rng)))
    records.commit()
    return records, place


def parts(by_place):
    for column in by_place.columns:
        yield column, column.filled if isinstance(column, SparseColumn) else by_place.lengths * column.width
        if isinstance(column, SparseColumn):
            yield column.counts, by_place.lengths


def laid_out_again(by_place):
    """Return places that were never changed, with the same rows at the same places."""
    columns, lengths, least = by_place.__getstate__()
    return Places(columns, np.arange(lengths.sum()), lengths, least)


def most_spacious(records):
    """Guess the place that has most room beyond that of a fresh layout."""
    fresh, odd = laid_out_again(records.places), np.zeros(len(records.places))
    for (column, _), (like, _) in zip(parts(records.places), parts(fresh), strict=True):
        odd += column.rooms - like.rooms
    return int(np.argmax(odd + np.random.default_rng(0).random(len(odd)) / 2))


def last_of_its_pool(records):
    """Guess the place that is last of its pool and out of order, where the others are most in order."""
    most, guess = 0.0, 0
    for column, _ in parts(records.places):
        for pool in column.pools.values():
            *others, last = pool.owners
            ascending = np.mean(np.diff(others) > 0) if len(others) > 1 else 0.0
            if ascending > most and last < max(others):
                most, guess = ascending, last
    return guess


def keeps_its_room(monkeypatch):
    """What was done before: rooms end at the boundary, and a place keeps the one that it had."""
    monkeypatch.setattr(buffers, "GRAINS", 2**40)
    monkeypatch.setattr(Buffers, "_fit", lambda buffers, place, needed: None)


def goes_last(monkeypatch):
    """A place that changes its pool goes behind all others, and at first they lie in their order."""
    monkeypatch.setattr(buffers.secrets, "randbelow", lambda number: number - 1)

    class InOrder:
        permutation = staticmethod(np.sort)

    monkeypatch.setattr(buffers.np.random, "default_rng", lambda *seed: InOrder() if not seed else REAL(*seed))


REAL = np.random.default_rng


def right(kind, attack, seeds=DELETIONS):
    return sum(attack(records) == place for records, place in (after_a_deletion(kind, seed) for seed in range(seeds)))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("attack", [most_spacious, last_of_its_pool])
def test_the_place_of_a_deleted_record_cannot_be_told_from_rooms_and_cells(kind, attack):
    assert right(kind, attack) <= MOST


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_place_that_keeps_its_room_is_told(kind, monkeypatch):
    keeps_its_room(monkeypatch)
    assert right(kind, most_spacious) >= (DELETIONS if kind == "dense" else DELETIONS // 2)


def test_a_place_that_goes_last_is_told(monkeypatch):
    goes_last(monkeypatch)
    assert right("dense", last_of_its_pool) > 2 * MOST


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_after_any_history_all_sizes_are_those_of_a_fresh_layout(kind):
    rng = np.random.default_rng(3)
    records, _ = after_a_deletion(kind, 4)
    for turn in range(60):
        ids = records.all_ids()
        grow = turn % 3 == 0 or len(ids) < 100
        new = 1000 * turn + 10_000 + np.arange(20)
        request = Insert((table(rng, 20, kind), np.ones(20)), new) if grow else Delete(rng.choice(ids, 25, False))
        records.stage(records.edit(SCHEDULE, request, Randomness.of(rng)))
        records.rollback() if turn % 5 == 0 else records.commit()
        for (column, filled), (like, _) in zip(
            parts(records.places), parts(laid_out_again(records.places)), strict=True
        ):
            assert column.rooms.tolist() == like.rooms.tolist() == column.rooms_for(filled).tolist()
            assert list(column.pools) == list(like.pools)
            for pool, other in zip(column.pools.values(), like.pools.values(), strict=True):
                assert sorted(pool.owners) == sorted(other.owners)
                assert [len(page[0]) for page in pool.pages] == [len(page[0]) for page in other.pages]


class Drawn(Buffers):
    """Buffers without records."""

    def __init__(self, needed):
        super().__init__((np.dtype(float),), 0)
        self.lay_out(np.array(needed))


def where_it_lies(runs, change):
    """Return in which of eight cells the first place lies, in many runs."""
    found = []
    for _ in range(runs):
        buffers = Drawn([20] * 8 + [40] * 3)
        change(buffers)
        found.append(buffers.cells.item(0))
    return np.bincount(found, minlength=8)


def away_and_back(buffers):
    buffers._move(0, 40)
    buffers._move(9, 24)
    buffers._move(0, 24)
    buffers._move(9, 40)


def test_the_cells_of_a_pool_are_in_uniform_order_whatever_the_history(monkeypatch):
    """Chi-squared at level 1e-4 each; the chance is fixed."""
    chance = np.random.default_rng(5)
    monkeypatch.setattr(buffers.np.random, "default_rng", lambda *seed: chance)
    monkeypatch.setattr(buffers.secrets, "randbelow", lambda number: int(chance.integers(number)))
    for change in (lambda buffers: None, away_and_back):
        assert stats.chisquare(where_it_lies(2000, change)).pvalue > 1e-4
    monkeypatch.setattr(buffers.secrets, "randbelow", lambda number: number - 1)
    assert stats.chisquare(where_it_lies(2000, away_and_back)).pvalue < 1e-6


# --- pickles ---


def by_the_same_places(records):
    """Return records that were laid out as these lie, and never changed."""
    fresh = records.copy()

    class Same:
        ordered = False
        full_step = 0

        def assign(self, count, subjects, rng):
            return Assignment(np.arange(count), records.places.lengths.copy(), None)

    fresh.arrange(Same(), np.random.default_rng(0))
    fresh.keep_layout()
    fresh.locate(fresh.all_ids()[:1])
    return fresh


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("names", ["numbers", "strings"])
def test_a_pickle_is_to_the_byte_that_of_records_that_were_never_changed(kind, names):
    rng = np.random.default_rng(6)
    ids = np.arange(600) if names == "numbers" else np.array([f"p{number}" for number in range(599)] + ["p" * 40])
    records = MemoryRecords((table(rng, 600, kind), np.ones(600)), ids)
    records.arrange(SCHEDULE, rng)
    records.keep_layout()
    records.stage(records.edit(SCHEDULE, Delete(ids[-1:]), Randomness.of(rng)))
    records.commit()
    records.stage(records.edit(SCHEDULE, Delete(ids[:200]), Randomness.of(rng)))
    records.commit()
    fresh = by_the_same_places(records)
    fresh.keyed, fresh._ordered = records.keyed, records._ordered
    assert pickle.dumps(records) == pickle.dumps(fresh)


def test_a_pickled_model_says_nothing_of_the_longest_id_there_was():
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(60, 2)) / 3, np.arange(60) % 2
    ids = np.array([f"p{number}" for number in range(59)] + ["a very long name"])
    model = LogisticRegression(rho=1.0, solver=DualAveraging(steps=4), random_state=0).fit(x, y, ids=ids)
    model.unlearn(["a very long name"])
    again = pickle.loads(pickle.dumps(model))
    assert again.ids_.dtype == "U3"
    assert again._owner.records.places.columns[2].dtype == "U3"


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_no_column_remembers_where_it_was_last_asked(kind):
    records, _ = after_a_deletion(kind, 3)
    assert all(column._found is buffers.NOWHERE for column, _ in parts(records.places))
