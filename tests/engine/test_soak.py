"""A part of the soak of benchmarks/streams: thousands of mixed requests, which end in a bitwise `verify`."""

import numpy as np
import pytest

from cases.soaking import soak


@pytest.mark.parametrize(("schedule", "requests"), [("scattered", 12_000), ("arrival", 12_000), ("shuffled", 4_000)])
def test_a_long_life_ends_verified_and_holds_no_more_than_its_records_need(schedule, requests):
    found, model = soak(schedule, requests, least=200, most=requests // 5)
    assert found.problems == []
    assert found.requests == requests
    assert found.smallest < 250
    assert found.largest > requests // 6
    assert found.plans > 1 or requests < 12_000
    assert found.replays > 0
    assert found.inserted - found.deleted + 200 == model.n_records_
    assert found.largest_share < 3.0
    if schedule == "arrival":
        assert found.insertion_replays == 0
    else:
        assert found.insertion_replays > 0


def test_memory_does_not_grow_with_the_number_of_requests():
    early, late = (soak("scattered", requests, least=200, most=400, seed=3)[0] for requests in (2_000, 8_000))
    assert max(late.kept_bytes) < 1.3 * max(early.kept_bytes)
    assert np.median(late.kept_bytes) < 1.3 * np.median(early.kept_bytes)
