"""A request whose process dies, as often as it dislikes the outcome, ends as if it had been served at once.

With the same randomness, to the last bit. And by two-sample tests of everything that is kept against fresh fits: level
0.01 after Bonferroni, fixed seeds; mistakes must be caught with p < 1e-6. benchmarks/store/retries.py has more runs.
"""

from dataclasses import replace

import numpy as np
import pytest

from cases.dying import CONTROLS, Case, Fate, cases, check_control, undurable, when_recording, whole_state

pytestmark = pytest.mark.long


def never(point: str, fate: Fate) -> bool:
    return False


def end_of(case: Case, folder, seed: int):
    with case.lived(folder, np.random.default_rng(seed)) as model:
        assert model.verify().ok
        assert model.verify_receipts().ok
        assert len(model.export_receipts()["receipts"]) == len(case.asked)
        return whole_state(model, np.sort(model._records.all_ids()))


@pytest.mark.parametrize(
    "case", [case for case in cases() if case.dies is not when_recording], ids=lambda case: case.name
)
def test_deaths_change_nothing_to_the_last_bit(case, monkeypatch):
    deaths = []
    reach = Fate.reach

    def counted(fate, point):
        try:
            reach(fate, point)
        except BaseException:
            deaths.append(point)
            raise

    monkeypatch.setattr(Fate, "reach", counted)
    with undurable() as folder:
        for seed in range(100):
            undisturbed = end_of(replace(case, dies=never), folder, seed)
            assert np.array_equal(end_of(case, folder, seed), undisturbed)
            if seed >= 5 and deaths:  # some replay one time in twenty
                break
    assert deaths


@pytest.mark.parametrize("case", [case for case in cases() if case.in_tests], ids=lambda case: case.name)
def test_after_deaths_the_state_has_the_law_of_a_fresh_fit(case):
    report = case.check(runs=120, seed=7)
    assert report.passed, report


RUNS = list(zip(CONTROLS, (400, 100, 1_100), strict=True))


@pytest.mark.parametrize(("name", "runs"), RUNS)
def test_the_mistake_is_caught(name, runs):
    report = check_control(name, runs)
    assert report.p_value < 1e-6, report


@pytest.mark.parametrize(("name", "runs"), RUNS)
def test_without_the_mistake_the_same_deaths_do_no_harm(name, runs):
    report = CONTROLS[name].check(runs)
    assert report.passed, report
