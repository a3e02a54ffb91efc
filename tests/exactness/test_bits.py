"""The last digits of stored numbers tell nothing of a deleted record: `check_exact` looks at them too.

Level 0.01 after Bonferroni, fixed seeds. The control is an engine without a grid (`tests/cases/ungridded.py`),
and one that rounds when it learns and at no other time: both must be caught with p < 1e-6.
`benchmarks/exactness/bits.py` has more learners, and more runs.
"""

import numpy as np
import pytest

from cases.learners import PEOPLE, TREE, learner
from cases.toys import long_but
from cases.ungridded import check, dense_problem, sparse_problem
from expunge import Delete, Everyone, Identity, Scattered, SquareRoot
from expunge.engine.bits import compare_bits, digits_below, lowest_digit, trailing_zeros
from expunge.engine.checks import check_exact, compare

NOISES = ["root", "tree", "identity"]


def caught_by_bits(report):
    """The smallest p-value of last digits, corrected for all that was compared."""
    bits = [p for name, p in zip(report.names, report.p_values, strict=True) if name.startswith("bits: ")]
    return min(bits) * len(report.names)


@pytest.mark.parametrize("noise", long_but(["root"], NOISES))
def test_an_engine_without_a_grid_is_caught_by_columns_that_only_the_deleted_record_had(noise):
    report = check(sparse_problem(noise), 2, runs=2_000, seed=1)
    assert caught_by_bits(report) < 1e-6, report


@pytest.mark.parametrize("noise", long_but(["root"], NOISES))
def test_an_engine_without_a_grid_is_caught_by_columns_that_all_records_have(noise):
    report = check(dense_problem(noise), 2, runs=6_000, seed=1)
    assert caught_by_bits(report) < 1e-6, report


@pytest.mark.parametrize("noise", long_but(["root"], NOISES))
@pytest.mark.parametrize("problem", [sparse_problem, dense_problem])
def test_an_engine_that_rounds_only_when_it_learns_is_caught(problem, noise):
    report = check(problem(noise, "learning"), 2, runs=1_000, seed=1)
    assert caught_by_bits(report) < 1e-6, report


@pytest.mark.parametrize("noise", long_but(["root"], NOISES))
@pytest.mark.parametrize("problem", [sparse_problem, dense_problem])
def test_an_engine_on_a_grid_passes(problem, noise):
    report = check(problem(noise, "always"), 2, runs=2_000, seed=1)
    assert report.passed, report


def test_by_values_alone_neither_could_be_told_from_an_exact_engine():
    for rounding, runs in (("never", 6_000), ("learning", 1_000)):
        report = check(dense_problem("root", rounding), 2, runs=runs, seed=1)
        values = [p for name, p in zip(report.names, report.p_values, strict=True) if not name.startswith("bits")]
        assert min(values) * len(values) > 0.01


OWN = np.column_stack([PEOPLE, np.zeros((6, 2))])
OWN[2] = 0.4, -0.9, 0.8, -1.1


class Wide:
    """A query of four numbers, of which records without the last two contribute nothing to these."""

    size = 4
    bound = 2.0

    def contributions(self, step, path, batch):
        return np.tanh(batch[0]) * (1.0 + np.tanh(path[-1][::-1])) / 2.0


def wide(schedule, mechanism, coupling="joint"):
    plain = learner(schedule, mechanism, coupling)
    rule = type(plain.rule)(np.zeros(4), 0.5)
    return type(plain)(schedule, Wide(), rule, mechanism, 1.5, coupling, selector="last")


@pytest.mark.parametrize(
    ("schedule", "mechanism", "coupling"),
    [
        (Scattered(3), SquareRoot(), "joint"),
        pytest.param(Scattered(3), TREE, "sequential", marks=pytest.mark.long),
        pytest.param(Everyone(3), Identity(), "sequential", marks=pytest.mark.long),
        pytest.param(Everyone(3), Identity(), "adaptive", marks=pytest.mark.long),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_no_digit_of_the_state_tells_that_a_record_was_there(schedule, mechanism, coupling):
    report = check_exact(wide(schedule, mechanism, coupling), (OWN,), [Delete([2])], runs=2_000, seed=3)
    assert report.passed, report


# --- the comparison itself --------------------------------------------------------------------------------


def digits_by_hand(number):
    """The place of the lowest digit, by whole numbers."""
    numerator, denominator = float(number).as_integer_ratio()
    return (numerator & -numerator).bit_length() - denominator.bit_length()


def test_digits_are_counted_as_by_hand():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=400) * 2.0 ** rng.integers(-30, 30, size=400)
    numbers[:200] = np.rint(numbers[:200] * 1024) / 1024
    present = numbers[numbers != 0.0]
    assert lowest_digit(present).tolist() == [digits_by_hand(number) for number in present]
    assert (lowest_digit(present) == np.frexp(present)[1] - 53 + trailing_zeros(present)).all()


def test_a_sum_of_two_numbers_has_no_digit_below_theirs_and_one_made_otherwise_has():
    rng = np.random.default_rng(1)
    noise, sums, gone = rng.normal(size=(3, 20_000))
    assert digits_below(noise + sums, noise + sums - sums).max() <= 1
    other = noise + (sums + gone)
    assert (digits_below(other, other - sums) > 1).mean() > 0.005


@pytest.mark.parametrize("unit", [None, 2.0**-24])
def test_digits_of_one_law_pass_about_as_often_as_the_level_says(unit):
    rng = np.random.default_rng(2)
    names = [f"{table}[{step},{column}]" for table in ("noise", "answer") for step in range(3) for column in range(2)]
    verdicts = []
    for _ in range(40):
        noise, sums = rng.normal(size=(800, 6)), rng.exponential(size=(800, 6))
        if unit is not None:
            noise, sums = (unit * np.rint(part / unit) for part in (noise, sums))
        states = np.column_stack([noise, noise + sums])
        verdicts.append(compare(states[:400], states[400:], names, 0.05).passed)
    assert sum(verdicts) >= 33  # 2 failures are expected; 8 or more would be 1 in 1,000


def test_digits_that_are_the_same_in_all_runs_are_not_compared():
    states = np.tile([0.1, 0.25, 3.0], (200, 1))
    assert compare_bits(states, 100, ["answer[0,0]", "answer[1,0]", "sum[0,0]"]) == []
