"""Requests must not be chosen by looking at models: who does gets a state that fresh learning would not give.

The request is for A if the model's first coefficient is positive, and for B if it is not. Given that A was asked
for, the complete state is compared with that of learning without A. The twin asks by a coin of its own.
Level 0.01 after Bonferroni, fixed seeds; the look must be caught with p < 1e-20.
"""

from dataclasses import replace

import numpy as np

from cases.learners import PEOPLE, learner
from expunge import Delete, MemoryRecords, PerRecord, Scattered, SquareRoot, change, learn
from expunge.engine.checks import _state, _state_names, check_same_law

PLAN = learner(Scattered(3), SquareRoot(), sigma=1.5)
A, B = 0, 1
LEFT = np.arange(1, 6)
LOUD_AND_QUIET = np.array([[0.96, 0.96], [0.02, 0.02], *np.tanh(PEOPLE[2:])])
"""Of these A contributes nearly the bound, and B hardly anything."""


def by_looking(model, rng):
    return A if model[0] > 0.0 else B


def by_a_coin(model, rng):
    return A if rng.random() < 0.5 else B


def compared(choose, runs, seed):
    """Compare the states after a request for A, which came about by ``choose``, with learning without A."""

    def asked_for_a(rng):
        while True:
            records = MemoryRecords((PEOPLE,))
            transcript = learn(PLAN, records, rng)
            if choose(transcript.model(PLAN), rng) == A:
                change(PLAN, records, transcript, Delete([A]), rng).commit()
                return records, transcript

    def fresh(rng):
        records = MemoryRecords((PEOPLE[LEFT],), LEFT)
        return records, learn(PLAN, records, rng)

    names = _state_names(PLAN, *fresh(np.random.default_rng(0)), LEFT)
    return check_same_law(
        lambda rng: _state(PLAN, *asked_for_a(rng), LEFT),
        lambda rng: _state(PLAN, *fresh(rng), LEFT),
        names, runs=runs, level=0.01, seed=seed,
    )  # fmt: skip


def test_a_request_chosen_by_looking_at_the_model_is_caught():
    report = compared(by_looking, runs=1000, seed=1)
    assert report.p_value < 1e-20, report


def test_the_same_request_chosen_by_a_coin_leaves_no_trace():
    report = compared(by_a_coin, runs=1000, seed=1)
    assert report.passed, report


def test_who_holds_the_model_before_and_after_sees_whether_it_moved_which_depends_on_the_record():
    """The theorem is about the state at one moment, not about two of them together."""
    plan = replace(PLAN, query=PerRecord(lambda step, path, x: x, size=2, bound=2**0.5))
    rng, moved = np.random.default_rng(2), {A: 0, B: 0}
    for gone in (A, B):
        for _ in range(500):
            records = MemoryRecords((LOUD_AND_QUIET,))
            transcript = learn(plan, records, rng)
            before = transcript.model(plan).copy()
            change(plan, records, transcript, Delete([gone]), rng).commit()
            moved[gone] += not np.array_equal(before, transcript.model(plan))
    assert 0.3 < moved[A] / 500 < 0.5, moved
    assert moved[B] / 500 < 0.03, moved
