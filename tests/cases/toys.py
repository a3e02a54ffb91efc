"""Small things that several tests use."""

import sys
from pathlib import Path

import numpy as np
import pytest

import expunge
from expunge import DualAveragingRule, GradientDescentRule, Learner, MemoryRecords, SquareRoot
from expunge.engine.schedules import Scattered

OURS = str(Path(expunge.__file__).parent)
"""Where our own code lies; the folder that all of it is cloned into may have any name."""


def long_but(quick, cases):
    """Cases for a test of which each takes long: all but those with these names are for `make test-long`."""
    names = [case if isinstance(case, str) else case.name for case in cases]
    assert set(quick) <= set(names)
    return [
        pytest.param(case, id=name, marks=() if name in quick else pytest.mark.long)
        for case, name in zip(cases, names, strict=True)
    ]


class Swirl:
    """A query that depends on the path, by batch."""

    size = 2
    bound = 2**0.5

    def contributions(self, step, path, batch):
        return np.tanh(1.5 * batch[0] - path[-1][::-1])


def toy(schedule=None, mechanism=None, coupling="joint", sigma=1.5, query=None, rule=None, **more):
    mechanism = mechanism or SquareRoot()
    descend = DualAveragingRule if mechanism.prefix else GradientDescentRule
    return Learner(
        schedule or Scattered(4),
        query or Swirl(),
        rule or descend(np.zeros(2), 0.4),
        mechanism,
        sigma,
        coupling,
        **more,
    )


def people(count=10, seed=0, **more):
    return MemoryRecords((np.random.default_rng(seed).normal(size=(count, 2)),), **more)


def state(records, transcript):
    """Everything that is kept, as bytes that can be compared; of the index, whose hashes have a key, what it finds."""
    by_place = records.places
    blocks = [column.tobytes() for place in range(len(by_place)) for column in by_place.block(place)]
    tables = [np.asarray(table[:]).tobytes() for table in (transcript.sums, transcript.answers, transcript.iterates)]
    found = [records.index.find(hashed) for hashed in records.hashes_of(records.all_ids()).tolist()]
    index = [found, np.sort(records.index.entries()[1]).tobytes()]
    return [records.count, by_place.lengths.tolist(), *blocks, *tables, *index]


def check_buffers(column, filled):
    """Every place has one cell, on the boundary; outside of what is filled, everything is blank."""
    assert len(column.rooms) == len(column.cells) == len(filled)
    assert (filled <= column.rooms).all()
    assert list(column.pools) == sorted(column.pools)
    owned = []
    for room, pool in column.pools.items():
        owned += pool.owners
        assert pool.room == room
        assert (column.rooms[np.array(pool.owners)] == room).all()
        assert column.cells[np.array(pool.owners)].tolist() == list(range(len(pool.owners)))
        assert len(pool.pages) == pool.pages_for(len(pool.owners))
        for buffers, owners in pool.by_page():
            live = np.zeros(len(buffers[0]), dtype=bool)
            for number, place in enumerate(owners.tolist()):
                live[number * room :][: filled[place]] = True
            for buffer in buffers:
                assert buffer.ctypes.data % 64 == room * buffer.itemsize % 64 == 0
                assert not buffer[~live].astype(bool).any()
    assert sorted(owned) == np.flatnonzero(column.rooms).tolist()


def interrupted(function, number):
    """Call a function and press Ctrl-C at the n-th line of our own code; say whether it came to its end before."""
    left = [number]

    def trace(frame, event, argument):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt  # Python then stops tracing
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(before)
    return True
