"""Newton's method with noise after the solve: its sums have the same bits in every batch, its plan is public."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from cases.draws import FAR, OUTLYING, ROWS, TARGETS, newton
from expunge import BadPlan, Delete, Insert, MemoryRecords, Replace, learn, verify
from expunge.engine.changing import change
from expunge.solvers import newton as solver
from expunge.solvers.frames import scores_of
from expunge.solvers.losses import Hinge, Logistic, SquaredHinge
from expunge.solvers.newton import Expansion
from expunge.solvers.plans.newton import automatic_share, make_newton_plan
from expunge.solvers.robust_losses import ScaledHuber


def test_scores_have_the_same_bits_row_by_row_and_in_any_order_in_memory():
    rows = np.random.default_rng(0).normal(size=(100, 7))
    parameters = np.random.default_rng(1).normal(size=8)
    expected = scores_of(rows, parameters)
    assert np.array_equal(scores_of(np.asfortranarray(rows), parameters), expected)
    assert np.array_equal([scores_of(row[None], parameters)[0] for row in rows], expected)


@pytest.mark.parametrize(
    ("loss", "targets"), [(Logistic(), TARGETS), (SquaredHinge(), TARGETS), (ScaledHuber(), OUTLYING)]
)
@pytest.mark.parametrize("rows", [ROWS, FAR], ids=["plain", "far"])
def test_contributions_have_the_same_bits_in_every_batch(loss, targets, rows):
    learner = newton(rounds=2, loss=loss)
    records = MemoryRecords((rows, targets))
    transcript = learn(learner, records, np.random.default_rng(0))
    for step in range(transcript.steps):
        path = transcript.path.upto(step)
        each = learner.query.contributions(step, path, (rows, targets))
        whole, _ = learner.query.total(step, path, (np.asfortranarray(rows), targets))
        turned, _ = learner.query.total(step, path, (rows[::-1], targets[::-1]))
        normal = learner.abilities.normal
        assert np.array_equal(normal(each.sum(axis=0)), normal(whole))
        assert np.array_equal(normal(turned), normal(whole))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("rows", [ROWS, FAR], ids=["plain", "far"])
@given(data=st.data())
def test_a_sum_is_moved_to_the_bits_that_it_has_when_all_is_summed_anew(form, rows, data):
    learner = newton(rounds=2)
    path = learn(learner, MemoryRecords((rows, TARGETS)), np.random.default_rng(0)).path
    numbers = data.draw(st.permutations(range(len(rows))))
    stay, leave = sorted(data.draw(st.tuples(*2 * [st.integers(0, len(rows))])))
    step = data.draw(st.integers(0, len(path) - 2))

    def some(which):
        return form(rows[which]), TARGETS[which]

    def total(which):
        return learner.query.total(step, path.upto(step), some(which))[0]

    before, came, left = numbers[:leave], numbers[leave:], numbers[stay:leave]
    moved = learner.query.moved(step, path.upto(step), total(before), some(came), some(left) if left else ())
    assert np.array_equal(moved, total(numbers[:stay] + came))
    assert np.array_equal(moved, learner.abilities.normal(total(before) + total(came) - total(left)))


def test_a_total_is_the_same_in_parts_of_any_size(monkeypatch):
    learner = newton(rounds=2)
    path = learn(learner, MemoryRecords((ROWS, TARGETS)), np.random.default_rng(0)).path
    totals = []
    for numbers in (1, 30, 2**16):
        monkeypatch.setattr(solver, "AT_ONCE", numbers)
        monkeypatch.setattr(solver, "FEW", 2)
        totals.append([learner.query.total(step, path.upto(step), (ROWS, TARGETS))[0] for step in range(len(path) - 1)])
    assert np.array_equal(totals[0], totals[1])
    assert np.array_equal(totals[0], totals[2])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_a_long_history_ends_in_the_same_bits_where_changes_are_summed_by_themselves(form, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 4)) * [1.0, 1e6, 1e-3, 1.0] + [0.0, 1e9, 0.0, 0.0]
    targets = np.where(rows[:, 0] + rng.logistic(size=600) > 0.0, 1.0, -1.0)
    ends = []
    for alone in (False, True):
        if alone:
            monkeypatch.setattr(Expansion, "moved", None)
        learner = make_newton_plan(Logistic(), 4, 600, rho=0.3, rate=0.5).learner
        records, draws = MemoryRecords((form(rows), targets)), np.random.default_rng(1)
        transcript = learn(learner, records, draws)
        for one in range(0, 200, 2):
            request = Delete([one, one + 1]) if one % 3 else Delete([one])
            change(learner, records, transcript, request, draws).commit()
        change(
            learner, records, transcript, Insert((form(rows[:50]), targets[:50]), np.arange(900, 950)), draws
        ).commit()
        change(learner, records, transcript, Replace((form(rows[:3]), targets[:3]), [300, 400, 900]), draws).commit()
        assert verify(learner, records, transcript).ok
        ends.append((transcript.sums[:].tobytes(), transcript.iterates[:].tobytes()))
    assert ends[0] == ends[1]


def test_what_is_remembered_of_the_last_view_is_not_copied():
    learner = newton(rounds=2)
    learn(learner, MemoryRecords((ROWS, TARGETS)), np.random.default_rng(0))
    assert "_viewed" in vars(learner.query)
    assert "_viewed" not in vars(pickle.loads(pickle.dumps(learner.query)))
    assert learner.query == newton(rounds=2).query


def test_outside_the_part_that_rounds_see_a_deletion_changes_the_finish_alone():
    learner = newton(rounds=2, rate=1e-9)
    records = MemoryRecords((ROWS, TARGETS))
    transcript = learn(learner, records, np.random.default_rng(0))
    before = transcript.sums[:].copy()
    outcome = change(learner, records, transcript, Delete([3]), np.random.default_rng(1)).commit()
    after = transcript.sums[:]
    assert outcome.kept
    assert outcome.evaluations == 1
    assert np.array_equal(before[:-1], after[:-1])
    assert not np.array_equal(before[-1], after[-1])


def test_about_as_many_replay_as_was_planned():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 5))
    targets = np.where(rows[:, 0] + rng.logistic(size=4000) > 0.0, 1.0, -1.0)
    learner = make_newton_plan(Logistic(), 5, 4000, rho=0.2).learner
    records = MemoryRecords((rows, targets))
    transcript = learn(learner, records, rng)
    kept = [change(learner, records, transcript, Delete([one]), rng).commit().kept for one in range(300)]
    assert 0.1 < 1.0 - np.mean(kept) < 0.35


def test_the_plan_depends_on_the_number_of_records_by_its_power_of_two_only():
    plans = {make_newton_plan(Logistic(), 5, records) for records in (70_000, 100_000, 131_072)}
    assert len(plans) == 1
    assert automatic_share(10**6, 20) < automatic_share(10**5, 20) < 0.01


@pytest.mark.parametrize(
    ("given", "named"),
    [({"rho": -1.0}, "rho"), ({"rho": 1e-12}, "rho"), ({"C": 0.0}, "C"), ({"standardize": 3}, "stand")],
)
def test_bad_choices_are_named(given, named):
    with pytest.raises(BadPlan, match=named):
        make_newton_plan(Logistic(), 3, 100, **given)


def test_a_loss_without_curvature_is_refused():
    with pytest.raises(BadPlan, match="second derivative"):
        make_newton_plan(Hinge(), 3, 100)


def test_many_parts_add_up_to_the_whole():
    """As a file sums them: parts are in their one form, else limbs would grow until digits are lost."""
    rng = np.random.default_rng(0)
    rows = rng.integers(8, 15, size=(40_000, 3)) + 0.999 * 2.0**-7  # whose lower slices are as large as they can be
    targets = np.where(rng.random(40_000) < 0.5, 1.0, -1.0)
    learner = make_newton_plan(Logistic(), 3, 40_000, rho=1.0).learner
    path = learn(learner, MemoryRecords((rows, targets)), rng).path.upto(2)
    parts = [slice(first, first + 1000) for first in range(0, 40_000, 1000)]
    added = sum(learner.query.total(2, path, (rows[part], targets[part]))[0] for part in parts)
    assert np.array_equal(learner.abilities.normal(added), learner.query.total(2, path, (rows, targets))[0])


def test_classes_are_not_centred_however_rare_one_is():
    rows = np.random.default_rng(0).normal(size=(5000, 2))
    targets = np.where(np.arange(5000) < 2, 1.0, -1.0)
    learner = make_newton_plan(Logistic(), 2, 5000, rho=0.2, rate=1.0).learner
    path = learn(learner, MemoryRecords((rows, targets)), np.random.default_rng(1)).path
    assert not path[2].any()
    assert path[3][-1] < -3.0  # it starts near the log-odds
