"""Verify: a flipped bit in any array, or a record smuggled in or out, is named."""

import numpy as np
import pytest

from cases.toys import people, toy
from expunge import Delete, Everyone, Identity, Insert, Scattered, learn, unlearn, verify
from expunge.engine.randomness import Randomness
from expunge.engine.schedules import Edit


def _learned(seed=0, count=12, **more):
    learner, records = toy(**more), people(count)
    return learner, records, learn(learner, records, np.random.default_rng(seed))


@pytest.mark.parametrize("bit", [0, 20, 51, 63])
@pytest.mark.parametrize("table", ["sums", "answers", "iterates"])
def test_a_flipped_bit_is_named_by_array_row_column_and_bit(table, bit):
    learner, records, transcript = _learned()
    getattr(transcript, table).array.view(np.uint64)[2, 1] ^= np.uint64(1) << np.uint64(bit)
    report = verify(learner, records, transcript)
    assert not report.ok
    assert report.problems[0] == f"{table}: row 2, column 1: bit {bit} is flipped"


def test_a_record_smuggled_in_is_named():
    learner, records, transcript = _learned()
    request = Insert((np.ones((1, 2)),), [77])
    records.stage(records.edit(learner.schedule, request, Randomness.of(np.random.default_rng(1))))
    records.commit()
    report = verify(learner, records, transcript)
    assert any("record 77 was added from outside" in problem for problem in report.problems)


def test_a_record_smuggled_out_is_named_by_its_place():
    learner, records, transcript = _learned()
    place = records.locate([5]).places.item()
    records.stage(records.edit(learner.schedule, Delete([5]), Randomness.of(np.random.default_rng(2))))
    records.commit()
    report = verify(learner, records, transcript)
    assert any(f"place {place}" in problem and "removed or altered" in problem for problem in report.problems)


def test_an_altered_record_is_named_by_its_place():
    learner, records, transcript = _learned()
    place, slot = (part.item() for part in records.locate([3]))
    records.batch_at(place)[0][slot, 0] += 1e-3
    report = verify(learner, records, transcript)
    assert [f"place {place}" in problem for problem in report.problems] == [True]


def test_a_record_that_the_index_does_not_know_is_named():
    learner, records, transcript = _learned()
    place, slot = (part.item() for part in records.locate([3]))
    records.ids_at(place)[slot] = 1003
    report = verify(learner, records, transcript)
    assert f"records: 1003 lies at place {place}, which the index does not know" in report.problems
    assert any("in the index, but not there" in problem for problem in report.problems)


def test_missing_rows_are_named():
    learner, records, transcript = _learned()
    transcript.answers.resize(3)
    assert verify(learner, records, transcript).problems == ("answers: 3 rows for 4 steps of 12 records",)


def test_without_noise_answers_must_be_the_sums():
    learner, records, transcript = _learned(sigma=0.0)
    assert verify(learner, records, transcript).noise_p_value is None
    transcript.answers.write(1, transcript.answers[1:2] + 1.0)
    problems = verify(learner, records, transcript).problems
    assert any("although there is no noise" in problem for problem in problems)


def test_noise_of_the_planned_size_is_plausible_and_other_noise_is_not():
    learner, records, transcript = _learned(count=500, schedule=Scattered(300))
    assert verify(learner, records, transcript).noise_p_value > 1e-3
    louder = toy(Scattered(300), sigma=3.0)
    assert verify(louder, records, transcript).noise_p_value < 1e-6


def test_a_tolerance_allows_for_other_machines():
    learner, records, transcript = _learned()
    transcript.sums.write(1, transcript.sums[1:2] * (1 + 1e-13))
    assert not verify(learner, records, transcript)
    assert verify(learner, records, transcript, tolerance=1e-9)


def test_many_problems_are_cut_short():
    learner, records, transcript = _learned(schedule=Scattered(60))
    transcript.sums.write(0, transcript.sums[:] + 1.0)
    report = verify(learner, records, transcript)
    assert report.problems[-1] == "… and perhaps more"


def test_verify_changes_nothing_and_works_after_a_long_history():
    learner, records, transcript = _learned(schedule=Everyone(3, 0.5), mechanism=Identity(), coupling="sequential")
    rng = np.random.default_rng(3)
    for one in range(11):
        unlearn(learner, records, transcript, [one], rng=rng)
        assert verify(learner, records, transcript)
    assert isinstance(records.edit(learner.schedule, Delete([11]), Randomness.of(rng)), Edit)
