"""Streams: what an insertion reads, what it leaves alone, and parameters that do not know how long they will last."""

import itertools
import math

import numpy as np
import pytest

from cases.toys import people, toy
from expunge import (
    Arrival,
    BinaryTree,
    DualAveragingRule,
    Identity,
    Shuffled,
    SquareRoot,
    insert,
    learn,
    unlearn,
    verify,
)
from expunge.engine.accounting import FOREVER, noise_for, worst_case_rho
from expunge.engine.mechanisms.protocol import matrices
from expunge.engine.selectors import SELECTORS, Running
from expunge.engine.transcript import ArrayRows

TREES = [BinaryTree(), BinaryTree("anytime"), BinaryTree("halving")]


class Counted(ArrayRows):
    """Rows that count how many of them are read."""

    __slots__ = ("read",)

    def __init__(self, array):
        super().__init__(array)
        self.read = 0

    def __getitem__(self, rows):
        found = super().__getitem__(rows)
        self.read += 1 if found.ndim == 1 else len(found)
        return found


def rows_read(transcript):
    return sum(table.read for table in (transcript.sums, transcript.answers, transcript.iterates))


def noise_of(learner, transcript):
    sums, answers = transcript.sums[:], transcript.answers[:]
    noise = answers - (np.cumsum(sums, axis=0) if learner.mechanism.prefix else sums)
    return learner.mechanism.whiten(noise)


# --- weak streams: what an insertion costs ---------------------------------------------------------------


@pytest.mark.parametrize("mechanism", TREES)
@pytest.mark.parametrize("batch", [1, 3])
def test_an_append_reads_as_many_rows_however_long_the_stream_is(mechanism, batch):
    rng = np.random.default_rng(0)
    learner = toy(Arrival(batch), mechanism)
    means = []
    for steps in (256, 1024, 4096):
        records = people(steps * batch)
        transcript = learn(learner, records, rng, rows=Counted)
        before = rows_read(transcript)
        evaluations = []
        for number in range(64):
            outcome = insert(learner, records, transcript, (np.full((1, 2), 0.1 * number),), rng=rng)
            assert outcome.kept
            evaluations.append(outcome.evaluations)
        assert max(evaluations) <= batch
        means.append((rows_read(transcript) - before) / 64)
        assert verify(learner, records, transcript).ok
    assert max(means) < 32
    assert means[-1] < means[0] + 8  # the logarithm may grow


def test_an_append_to_an_open_step_reads_a_few_rows_with_any_mechanism():
    rng = np.random.default_rng(0)
    learner = toy(Arrival(64), SquareRoot())
    records = people(64 * 50 + 1)
    transcript = learn(learner, records, rng, rows=Counted)
    before = rows_read(transcript)
    for _ in range(63):
        insert(learner, records, transcript, (np.ones((1, 2)),), rng=rng)
    assert transcript.steps == 51
    assert rows_read(transcript) - before < 63 * 8


def test_an_append_without_noise_reads_a_few_rows():
    rng = np.random.default_rng(0)
    learner = toy(Arrival(1), SquareRoot(), sigma=0.0)
    records = people(500)
    transcript = learn(learner, records, rng, rows=Counted)
    before = rows_read(transcript)
    for _ in range(10):
        insert(learner, records, transcript, (np.ones((1, 2)),), rng=rng)
    assert rows_read(transcript) - before < 80


@pytest.mark.parametrize("mechanism", [*TREES, SquareRoot(), Identity()])
@pytest.mark.parametrize(("batch", "count"), [(1, 5), (2, 5), (4, 8), (3, 13), (3, 1), (2, 0)])
@pytest.mark.parametrize("entering", [1, 2, 7])
def test_an_append_keeps_all_noise_that_was_there(mechanism, batch, count, entering):
    rng = np.random.default_rng(count)
    learner = toy(Arrival(batch), mechanism)
    records = people(count)
    transcript = learn(learner, records, rng)
    before = noise_of(learner, transcript)
    path = transcript.iterates[: count // batch].copy()
    insert(learner, records, transcript, (rng.normal(size=(entering, 2)),), rng=rng)
    after = noise_of(learner, transcript)
    np.testing.assert_allclose(after[: len(before)], before, atol=1e-9)
    np.testing.assert_array_equal(transcript.iterates[: count // batch], path)
    assert len(after) == -(-(count + entering) // batch)
    assert (np.abs(after[len(before) :]) > 0).all()
    assert verify(learner, records, transcript).ok


@pytest.mark.parametrize(
    ("mechanism", "coupling"),
    [(SquareRoot(), "joint"), *itertools.product([*TREES, Identity()], ["joint", "sequential"])],
    ids=str,
)
@pytest.mark.parametrize("schedule", [Arrival(2), Shuffled(3)], ids=str)
def test_a_kept_request_leaves_the_last_rows_noise_and_moves_the_others_by_what_they_see(mechanism, coupling, schedule):
    rng = np.random.default_rng(4)
    learner, records = toy(schedule, mechanism, coupling, sigma=60.0), people(40)
    transcript = learn(learner, records, rng)
    kept = 0
    for number in range(30):
        before, sums = noise_of(learner, transcript), transcript.sums[:].copy()
        if number % 3:
            outcome = unlearn(learner, records, transcript, records.all_ids()[[7, 2]], rng=rng)
        else:
            outcome = insert(learner, records, transcript, (rng.normal(size=(2, 2)),), rng=rng)
        after = noise_of(learner, transcript)
        if not outcome.kept:
            continue
        kept += 1
        last = min(len(before), len(after)) - 1
        seen = matrices(mechanism, last)[1] @ (transcript.sums[:last] - sums[:last])
        np.testing.assert_allclose(after[:last], before[:last] - seen, atol=1e-9)
        if mechanism.whole and len(after) <= len(before):  # of an append behind a full step the last row stays, too
            np.testing.assert_allclose(after[last], before[last], atol=1e-9)
        assert verify(learner, records, transcript).ok
    assert kept > 15


@pytest.mark.parametrize("schedule", [Arrival(2), Shuffled(2)])
@pytest.mark.parametrize("mechanism", [*TREES, SquareRoot()])
def test_without_noise_a_stream_is_what_learning_gives_to_the_last_bit(schedule, mechanism):
    rng = np.random.default_rng(3)
    learner = toy(schedule, mechanism, sigma=0.0)
    records = people(9)
    transcript = learn(learner, records, rng)
    for number in range(12):
        if number % 3 == 2:
            unlearn(learner, records, transcript, records.all_ids()[[number % 7]], rng=rng)
        else:
            insert(learner, records, transcript, (rng.normal(size=(1 + number % 4, 2)),), rng=rng)
        again = learn(learner, records, rng, arranged=True)
        for name in ("sums", "answers", "iterates"):
            np.testing.assert_array_equal(getattr(transcript, name)[:], getattr(again, name)[:])


def test_rows_keep_some_room_and_give_it_back():
    rows = ArrayRows(np.ones((4, 3)))
    buffers = set()
    for steps in range(5, 400):
        rows.resize(steps)
        rows.write(steps - 1, np.full((1, 3), float(steps)))
        buffers.add(rows.nbytes)
    assert len(buffers) < 30
    assert rows.nbytes < 1.3 * 399 * 24
    assert rows.damage() is None
    rows.resize(5)
    assert rows.nbytes < 100 * 24
    assert rows[:].tolist() == [[1.0] * 3] * 4 + [[5.0] * 3]
    assert rows.damage() is None
    rows.array[2, 1] += 1.0
    assert "row 2, column 1" in rows.damage()


# --- the selected model, kept up to date ------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["tail", "average", "last", lambda path: path[1]])
@pytest.mark.parametrize("schedule", [Arrival(2), Shuffled(2), None])
def test_the_running_model_is_the_model_to_the_last_bit(selector, schedule):
    rng = np.random.default_rng(1)
    learner = toy(schedule, BinaryTree(), sigma=0.3, selector=selector)
    records = people(12)
    transcript = learn(learner, records, rng)
    running = Running(selector)
    for number in range(30):
        first = transcript.steps
        if number % 2:
            outcome = insert(learner, records, transcript, (rng.normal(size=(2, 2)),), rng=rng)
        else:
            outcome = unlearn(learner, records, transcript, records.all_ids()[:2], rng=rng)
        changed = min(first, transcript.steps) - 1 if outcome.kept else min(outcome.replayed_from, first - 1)
        running.cut(max(changed, 0) + 1)
        np.testing.assert_array_equal(running.model(transcript.path), transcript.model(learner))


def test_running_sums_of_dropped_iterates_are_overwritten():
    learner, records = toy(Arrival(1), BinaryTree()), people(50)
    running = Running("tail")
    transcript = learn(learner, records, np.random.default_rng(0))
    running.model(transcript.path)
    running.cut(10)
    assert not running._sums[10:].any()
    assert running._sums[9].any()


def test_averages_are_means_of_the_iterates():
    path = learn(toy(), people(10), np.random.default_rng(0)).path
    rows = path.rows(0, len(path))
    assert len(rows) == len(path)
    np.testing.assert_allclose(SELECTORS["tail"](path), rows[len(rows) // 2 :].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(SELECTORS["average"](path), rows.mean(axis=0), rtol=1e-12)


# --- parameters without a horizon ---------------------------------------------------------------------------


@pytest.mark.parametrize("coupling", ["joint", "sequential"])
def test_anytime_noise_keeps_rho_however_long_the_stream_grows(coupling):
    tree = BinaryTree("anytime")
    sigma = noise_for(0.1, Arrival(1), tree, bound=1.0, records=FOREVER, coupling=coupling)
    told = [
        worst_case_rho(sigma, Arrival(1), tree, bound=1.0, records=2**k, coupling=coupling) for k in range(1, 60, 6)
    ]
    assert all(one <= other for one, other in itertools.pairwise(told))
    assert told[-1] <= 0.1


def test_uniform_noise_does_not_keep_rho():
    sigma = noise_for(0.1, Arrival(1), BinaryTree(), bound=1.0, records=2**10)
    assert worst_case_rho(sigma, Arrival(1), BinaryTree(), bound=1.0, records=2**20) > 0.13


def test_a_square_root_for_a_million_steps_costs_29_percent_more_noise_than_for_1024():
    short, long = (noise_for(0.1, Arrival(1), SquareRoot(), bound=1.0, records=2**k) for k in (10, 20))
    assert long / short == pytest.approx(1.29, abs=0.005)


@pytest.mark.parametrize("mechanism", [*TREES, SquareRoot(), Identity(), BinaryTree((1.0, 3.0))])
@pytest.mark.parametrize("steps", [1, 2, 3, 100, 1024])
def test_the_largest_norm_is_the_largest_of_all_columns(mechanism, steps):
    assert mechanism.largest_norm(steps) == pytest.approx(mechanism.column_norms(steps).max(), rel=1e-12)
    assert mechanism.scale_of(steps - 1) == mechanism.scales(steps)[-1]


def test_the_expansion_of_the_square_roots_norm_is_exact():
    k = np.arange(1, 2**19)
    square = 1.0 + np.sum(np.cumprod(1.0 - 0.5 / k) ** 2)
    assert SquareRoot().largest_norm(2**19) == pytest.approx(math.sqrt(square), rel=1e-11)


def test_anytime_steps_do_not_depend_on_how_many_there_will_be():
    rule = DualAveragingRule(np.zeros(1), 0.5, anytime=4)
    fixed = DualAveragingRule(np.zeros(1), 0.25)
    answer = np.array([2.0])
    assert rule.step(11, None, answer) == fixed.step(11, None, answer)  # after 3 × 4 steps more than 1, half of it
    assert rule.step(0, None, answer) == pytest.approx(-1.0 / 1.25**0.5)
    penalized = DualAveragingRule(np.zeros(1), 0.5, penalty=0.5, anytime=4)
    assert penalized.step(11, None, answer) == pytest.approx(-0.5 / (1 + 0.25 * 12 * 0.5))


def noise_at_the_end(mechanism, steps):
    """Return the standard deviation of the noise on the last answer, for ρ = 0.1."""
    sigma = noise_for(0.1, Arrival(1), mechanism, bound=1.0, records=FOREVER)
    row, total = steps - 1, 0.0
    while row >= 0:
        total += (sigma * mechanism.scale_of(row)) ** 2
        row = mechanism.continues(row)
    return math.sqrt(total)


def test_the_figures_of_the_documentation():
    def root(steps, horizon):
        mechanism = SquareRoot()
        return noise_for(0.1, Arrival(1), mechanism, bound=1.0, records=horizon) * mechanism.largest_norm(steps)

    assert [round(root(2**k, 2**k)) for k in (10, 20)] == [26, 44]
    assert [round(root(2**k, 2 ** (k + 2))) for k in (10, 20)] == [28, 45]
    assert [round(noise_at_the_end(BinaryTree("anytime"), 2**k)) for k in (10, 20)] == [112, 213]
    assert [float(f"{noise_at_the_end(BinaryTree('halving'), 2**k):.2g}") for k in (10, 20)] == [9400, 9600000]


def test_halving_shares_drown_the_sum_in_noise_and_anytime_shares_do_not():
    """With the paper's shares the noise on n = 2^k - 1 records is as large as n; with ours it grows like log n^1.5."""
    for k in (10, 20):
        steps = 2**k - 1
        assert noise_at_the_end(BinaryTree("halving"), steps) > steps
        assert noise_at_the_end(BinaryTree("anytime"), steps) < 10.2 * k**1.5
    assert noise_at_the_end(BinaryTree("anytime"), 2**20 - 1) < 2**20 / 1000
