"""Small things that several tests use."""

import sys

import numpy as np

from expunge import DualAveraging, GradientDescent, Learner, MemoryRecords, SquareRoot
from expunge.schedules import Scattered


class Swirl:
    """A query that depends on the path, by batch."""

    size = 2
    bound = 2**0.5

    def contributions(self, step, path, batch):
        return np.tanh(1.5 * batch[0] - path[-1][::-1])


def toy(schedule=None, mechanism=None, coupling="joint", sigma=1.5, query=None, rule=None, **more):
    mechanism = mechanism or SquareRoot()
    descend = DualAveraging if mechanism.prefix else GradientDescent
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
    """Everything that is kept, as bytes that can be compared."""
    shelves = records.shelves
    blocks = [column.tobytes() for place in range(len(shelves)) for column in shelves.block(place)]
    tables = [np.asarray(table[:]).tobytes() for table in (transcript.sums, transcript.answers, transcript.iterates)]
    index = [part.tobytes() for part in records.index.entries()]
    return [records.count, shelves.lengths.tolist(), *blocks, *tables, *index]


def check_regions(shelf, filled):
    """Every place has one cell, on the boundary; outside of what is filled, everything is blank."""
    assert len(shelf.rooms) == len(shelf.cells) == len(filled)
    assert (filled <= shelf.rooms).all()
    assert list(shelf.pools) == sorted(shelf.pools)
    owned = []
    for room, pool in shelf.pools.items():
        owned += pool.owners
        assert pool.room == room
        assert (shelf.rooms[np.array(pool.owners)] == room).all()
        assert shelf.cells[np.array(pool.owners)].tolist() == list(range(len(pool.owners)))
        assert len(pool.pages) == pool.pages_for(len(pool.owners))
        for buffers, owners in pool.by_page():
            live = np.zeros(len(buffers[0]), dtype=bool)
            for number, place in enumerate(owners.tolist()):
                live[number * room :][: filled[place]] = True
            for buffer in buffers:
                assert buffer.ctypes.data % 64 == room * buffer.itemsize % 64 == 0
                assert not buffer[~live].astype(bool).any()
    assert sorted(owned) == np.flatnonzero(shelf.rooms).tolist()


def interrupted(function, number):
    """Call a function and press Ctrl-C at the n-th line of our own code; say whether it came to its end before."""
    left = [number]

    def trace(frame, event, argument):
        if "expunge" not in frame.f_code.co_filename:
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
