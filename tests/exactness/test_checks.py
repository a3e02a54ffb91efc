"""check_exact itself: calibrated, readable, and easy to call."""

import numpy as np
import pytest

from cases.toys import people, toy
from expunge import Delete, Shuffled
from expunge.base.errors import BadPlan
from expunge.engine.checks import check_exact, compare


def test_two_samples_of_one_law_pass_about_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    names = ["@place(a)", *(f"noise[{j},0]" for j in range(6))]
    verdicts = []
    for _ in range(60):
        one, other = (np.column_stack([rng.integers(3, size=800), rng.normal(size=(800, 6))]) for _ in range(2))
        verdicts.append(compare(one, other, names, 0.05).passed)
    assert sum(verdicts) >= 51  # 3 failures are expected; 9 or more would be 1 in 500


def test_a_dependence_that_no_single_number_shows_is_found():
    rng = np.random.default_rng(1)
    one = rng.normal(size=(4000, 2))
    other = one.copy()
    other[:, 1] = np.abs(other[:, 1]) * np.sign(other[:, 0]) * rng.choice([1, 1, 1, -1], size=4000)
    report = compare(rng.normal(size=(4000, 2)), other, ["noise[0,0]", "noise[1,0]"], 0.01)
    assert not report
    assert report.worst(1)[0][0] == "noise[0,0]·noise[1,0]"


def test_the_report_reads_well_and_draws_itself(tmp_path):
    learner = toy(sigma=2.0)
    seen = []
    report = check_exact(learner, (people(5)._waiting[0],), [Delete([1])], runs=200, watch=seen.append)
    assert seen[-1] == 400
    assert "no difference found" in str(report)
    report.plot().savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_too_few_runs_or_nothing_left_are_refused():
    data = (np.ones((2, 2)),)
    with pytest.raises(BadPlan, match="runs=5"):
        check_exact(toy(), data, [Delete([1])], runs=5)
    with pytest.raises(BadPlan, match="keep at least one record"):
        check_exact(toy(Shuffled(1)), data, [Delete([0, 1])], runs=100)
