"""Schedules: every edit leaves the law of a fresh draw."""

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from scipy import stats

from expunge import Delete, Insert, MemoryRecords, Replace
from expunge.base.errors import BadPlan
from expunge.engine.hashing import mix
from expunge.engine.randomness import Randomness
from expunge.engine.records.lookup import mix_one
from expunge.engine.schedules import Arrival, Everyone, Scattered, Shuffled, joins

RUNS = 2_500


def _layout(records):
    return tuple(tuple(records.ids_at(place).tolist()) for place in range(len(records.places)))


def _after(schedule, requests, rng, count=4):
    records = MemoryRecords((np.arange(count, dtype=float),))
    records.arrange(schedule, rng)
    for request in requests:
        records.stage(records.edit(schedule, request, Randomness.of(rng)))
        records.commit()
    return _layout(records)


def _same_law(one, other):
    kinds = sorted(set(one) | set(other))
    table = [[sample[kind] for kind in kinds] for sample in (one, other)]
    return stats.chi2_contingency(table).pvalue


@pytest.mark.parametrize("schedule", [Scattered(2), Shuffled(2), Shuffled(1)], ids=str)
@pytest.mark.parametrize(
    ("requests", "left"),
    [
        ([Delete([1])], [0, 2, 3]),
        ([Delete([3, 0])], [1, 2]),
        ([Insert(([9.0],), [7])], [0, 1, 2, 3, 7]),
        ([Delete([0]), Insert(([9.0, 8.0],), [7, 8]), Delete([2, 3])], [1, 7, 8]),
    ],
    ids=["one", "two", "in", "mixed"],
)
def test_the_layout_after_requests_has_the_law_of_a_fresh_draw(schedule, requests, left):
    rng = np.random.default_rng(11)
    changed = Counter(_after(schedule, requests, rng) for _ in range(RUNS))
    fresh: Counter = Counter()
    for _ in range(RUNS):
        records = MemoryRecords((np.zeros(len(left)),), ids=left)
        records.arrange(schedule, rng)
        fresh[_layout(records)] += 1
    assert _same_law(changed, fresh) > 1e-3


def test_swapping_the_last_into_the_hole_of_an_order_of_arrival_is_noticed():
    rng = np.random.default_rng(12)
    schedule = Arrival(4)
    changed = Counter(_after(schedule, [Delete([0])], rng) for _ in range(100))
    assert changed == {((3, 1, 2),): 100}  # weak: the stored order remembers which slot was emptied


def test_shuffled_layouts_are_uniform_over_all_permutations():
    rng = np.random.default_rng(13)
    seen = Counter(_after(Shuffled(1), [Delete([1]), Insert(([0.0],), [5])], rng) for _ in range(RUNS))
    assert set(seen) == {tuple((x,) for x in order) for order in permutations([0, 2, 3, 5])}
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_a_subjects_records_lie_together_and_newcomers_join_them():
    rng = np.random.default_rng(14)
    for _ in range(50):
        schedule = Scattered(5)
        records = MemoryRecords((np.zeros(6),), ids=list("abcdef"), subjects=[1, 2, 1, 2, 1, 3])
        records.arrange(schedule, rng)
        records.stage(records.edit(schedule, Insert(([0.0, 0.0],), ["g", "h"], [2, 4]), Randomness.of(rng)))
        records.commit()
        place = {one: p for p in range(5) for one in records.ids_at(p).tolist()}
        assert place["a"] == place["c"] == place["e"]
        assert place["b"] == place["d"] == place["g"]


def test_a_subjects_records_share_their_key():
    rng = np.random.default_rng(15)
    schedule = Everyone(3, rate=0.5)
    records = MemoryRecords((np.zeros(3),), ids=[1, 2, 3], subjects=["x", "y", "x"])
    records.arrange(schedule, rng)
    records.stage(records.edit(schedule, Insert(([0.0],), [4], ["y"]), Randomness.of(rng)))
    records.commit()
    keys = dict(zip(records.ids_at(0).tolist(), records.keys_at(0).tolist(), strict=True))
    assert keys[1] == keys[3] != keys[2] == keys[4]


def test_a_replacement_moves_nobody():
    rng = np.random.default_rng(16)
    for schedule in (Scattered(3), Shuffled(2), Arrival(2), Everyone(2, rate=0.5)):
        records = MemoryRecords((np.arange(5.0),))
        records.arrange(schedule, rng)
        before = _layout(records)
        records.stage(records.edit(schedule, Replace(([9.0],), [2]), Randomness.of(rng)))
        records.commit()
        assert _layout(records) == before


def test_keys_join_rounds_independently_at_the_rate_and_always_alike():
    keys = np.random.default_rng(17).integers(2**64, size=100_000, dtype=np.uint64)
    masks = np.stack([joins(keys, step, 0.3) for step in range(4)]).astype(float)
    np.testing.assert_allclose(masks.mean(axis=1), 0.3, atol=0.01)
    assert np.abs(np.corrcoef(masks) - np.eye(4)).max() < 0.015
    assert np.array_equal(joins(keys, 2, 0.3), joins(keys, 2, 0.3))
    assert joins(keys, 0, 1.0).all()


def test_one_number_is_mixed_as_many_are():
    numbers = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert mix(numbers).tolist() == [mix_one(x) for x in numbers.tolist()]


def test_steps_visits_and_places():
    scattered = Scattered(3, epochs=2)
    assert scattered.steps(100) == 6
    assert scattered.place(4) == 1
    assert scattered.visits(np.array([0, 2]), 6).tolist() == [0, 2, 3, 5]
    assert Shuffled(3).steps(7) == 3
    assert Shuffled(3).steps(0) == 0
    assert Shuffled(3).visits(np.array([0, 2]), 2).tolist() == [0]
    assert Everyone(4).visits(np.array([0]), 4).tolist() == [0, 1, 2, 3]
    assert Everyone(4).visits(np.zeros(0, dtype=int), 4).tolist() == []
    assert all(a < b for a, b in pairwise(scattered.visits(np.array([0, 1, 2]), 6).tolist()))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Scattered(0), "places"),
        (lambda: Scattered(2, epochs=0), "epochs"),
        (lambda: Scattered(2.5), "places"),
        (lambda: Shuffled(0), "batch"),
        (lambda: Arrival(-1), "batch"),
        (lambda: Everyone(0), "rounds"),
        (lambda: Everyone(2, rate=0.0), "rate"),
        (lambda: Everyone(2, rate=1.5), "rate"),
        (lambda: Everyone(2, rate=float("nan")), "rate"),
        (lambda: Everyone(2, bits=60), "bits"),
    ],
)
def test_impossible_schedules_are_refused_by_name(make, field):
    with pytest.raises(BadPlan, match=field):
        make()
