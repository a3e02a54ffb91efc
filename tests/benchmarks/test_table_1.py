"""The chapters of the reproduction on tiny sizes: they measure, draw, judge and tabulate; wrong results are missed."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.paper import exact_by_name, lemma, rates, space, streams
from benchmarks.paper.fitting import Point, Sweep, fitted, near, not_slower, run_all, together
from benchmarks.paper.linear_methods import PlainSmooth, WorstDimension, delete_some
from benchmarks.paper.methods import DualAveragingByName, FrankWolfeByName, Setting, excess_of_points, points_around
from benchmarks.paper.problems_with_optima import gaussian_logistic, gaussian_logistic_excess
from expunge import MemoryRecords, learn, learn_with_outcome


def complete(chapter, measured):
    """Return what was measured, as JSON holds it, and the verdicts on it; draw it, and check the tables' widths."""
    result = json.loads(json.dumps({"quick": True, **measured}))
    chapter.draw(result).draw_without_rendering()
    for table in chapter.tables(result):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.head)}
    verdicts = chapter.judge(result)
    assert all(verdict.claim and verdict.found for verdict in verdicts)
    return result, verdicts


def words(verdicts):
    return [verdict.word for verdict in verdicts]


# --- rates ----------------------------------------------------------------------------------------------


def tiny():
    return [
        Sweep("1", FrankWolfeByName(), "noise", "n", (64.0, 128.0), Setting(0, 0.5, 4), Fraction(-1)),
        Sweep("2", DualAveragingByName(), "statistical", "n", (64.0, 128.0), Setting(0, 1.0, 4), Fraction(-1, 2)),
        Sweep("ours", PlainSmooth(deletions=3), "tied", rates.TIED, (64.0, 128.0), Setting(0, 0, 4), Fraction(-1, 2)),
    ]


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(rates, "sweeps", tiny)
    monkeypatch.setattr(rates, "WORKERS", 1)
    seen = []
    found = rates.measure(True, seen.append)
    assert seen[-1] == pytest.approx(1.0)
    return found


def test_rates_are_complete_on_tiny_sizes(measured):
    _, verdicts = complete(rates.CHAPTER, measured)
    assert len(verdicts) == 4  # one for each row and regime, and one for the bounds


def test_a_slope_that_is_too_slow_is_missed_and_one_that_is_not_known_well_is_not_decided(measured):
    for (low, high), word in (((-0.1, 0.1), "MISSED"), ((-1.5, 0.1), "not decided"), ((-1.1, -0.99), "held")):
        measured["sweeps"][0] |= {"slope": (low + high) / 2, "low": low, "high": high, "slope_of_bound": -0.9}
        assert words(rates.judge(measured))[0] == word


def test_a_mean_above_its_bound_is_missed(measured):
    assert words(rates.judge(measured))[-1] == "held"
    measured["sweeps"][1]["of_bound"] = 1.1
    assert words(rates.judge(measured))[-1] == "MISSED"


@pytest.mark.parametrize("method", {(s.method.name, s.method.problem): s.method for s in rates.sweeps()}.values())
def test_every_method_learns_and_is_below_its_bound(method):
    at = Setting(64, 0.5, 96)
    if hasattr(method, "deletions"):
        method = type(method)(deletions=2)
    found = method.measure(at, np.random.default_rng(0))
    assert np.all(found["model"] >= -1e-12)
    assert found["model"].max() <= method.bound(at)


def test_sweeps_share_runs_and_quick_ones_take_the_first_values():
    one = tiny()[0]
    other = replace(one, times=2, quick=1)
    runs = run_all([one, other], False, 2, lambda share: None, workers=1)
    assert [len(found) for found in runs.values()] == [4, 4]
    assert other.chosen(True) == (64.0,)


def test_exponents_are_fitted_to_powers():
    points = [Point(x, 3.0 * x**-0.5, 0.01 * x**-0.5, 10, 1.0) for x in (16.0, 64.0, 256.0)]
    slope, low, high = fitted(points)
    assert slope == pytest.approx(-0.5)
    assert low < -0.5 < high
    assert not_slower({"theorem": "-1/2", "slope_of_bound": -0.4, "low": low, "high": high})


def test_decisions_have_three_outcomes():
    assert [near(1.0, *given, tolerance=0.1) for given in ((0.9, 1.2), (1.2, 1.3), (0.0, 2.0))] == [True, False, None]
    assert [together(given) for given in ([True, True], [None, False], [True, None])] == [True, False, None]


def test_deletions_are_taken_back():
    rng = np.random.default_rng(0)
    learner = DualAveragingByName().learner(Setting(32, 0.5, 3))
    records = MemoryRecords((points_around(32, 3, rng),))
    transcript, learned = learn_with_outcome(learner, records, rng)
    before = transcript.iterates[:].copy()
    found = delete_some(learner, records, transcript, 8, rng)
    assert records.count == learned.evaluations == 32
    assert np.array_equal(transcript.iterates[:], before)
    assert 0.0 <= found["evaluations"].item() <= 32.0


def test_excess_risks_agree_with_a_large_sample():
    rng = np.random.default_rng(1)
    w = np.array([2.0, -1.0, 0.5, 1.0])
    X, y = gaussian_logistic(400_000, 4, rng)
    best = np.array([4.0, 0.0, 0.0, 0.0])
    seen = np.logaddexp(0.0, -y * (X @ w)) - np.logaddexp(0.0, -y * (X @ best))
    assert gaussian_logistic_excess(best) == pytest.approx(0.0, abs=1e-9)
    assert abs(gaussian_logistic_excess(w) - seen.mean()) < 4 * seen.std() / 400_000**0.5
    points = points_around(200_000, 4, rng)
    seen = np.linalg.norm(w - points, axis=1) - np.linalg.norm(np.eye(4)[0] - points, axis=1)
    assert abs(excess_of_points(w[None])[0] - seen.mean()) < 4 * seen.std() / 200_000**0.5


def test_the_worst_dimension_projects_where_there_are_more_features_than_components():
    at = Setting(64, 1.0, 0)
    found = WorstDimension(dimensions=(8, 128)).measure(at, np.random.default_rng(0))
    assert found["model"].shape == (2,)


# --- the lemma ------------------------------------------------------------------------------------------


@pytest.fixture
def errors(monkeypatch):
    monkeypatch.setattr(lemma, "N", 128)
    monkeypatch.setattr(lemma, "RHOS", (0.1, 0.4, 1.0))
    monkeypatch.setattr(lemma, "QUICK_RUNS", 8)
    return lemma.measure(True, lambda share: None)


def test_the_lemma_is_complete_on_tiny_sizes(errors):
    _, verdicts = complete(lemma.CHAPTER, errors)
    assert words(verdicts)[1] != "MISSED"
    assert words(verdicts)[-1] == "held"


def test_noise_that_counts_twice_is_missed(errors):
    for curve in errors["curves"][:-1]:
        curve["mean"] = curve["printed"]
        curve["error"] = [0.01 * value for value in curve["printed"]]
    said = words(lemma.judge(errors))
    assert said[1] == said[2] == said[-1] == "MISSED"


# --- streams --------------------------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch):
    for name, value in {"LEAST": 8, "QUICK_LARGEST": 16, "QUICK_STREAMS": 3, "QUICK_FITS": 4}.items():
        monkeypatch.setattr(streams, name, value)
    return streams.measure(True, lambda share: None)


def test_streams_are_complete_on_tiny_sizes(served):
    result, _ = complete(streams.CHAPTER, served)
    assert result["sizes"] == [8, 16]
    weak = [r for r in result["results"] if r["kind"] == "weak"]
    assert sum(sum(r["replayed insertions"]) for r in weak) == 0
    assert all(i - d == 15 for r in weak for i, d in zip(r["insertions"], r["deletions"], strict=True))


def test_a_stream_that_learns_less_or_replays_more_is_missed(served):
    weak = served["results"][0]
    weak["stream"] = [{"mean": 9.0, "error": 0.01, "runs": 3} for _ in served["sizes"]]
    weak["fresh"] = [{"mean": 1.0, "error": 0.001, "runs": 50} for _ in served["sizes"]]
    weak["replayed deletions"] = [3 * number for number in weak["deletions"]]
    weak["replayed insertions"] = [1, 0, 0]
    said = dict(zip([v.claim[:28] for v in streams.judge(served)], words(streams.judge(served)), strict=True))
    assert [word for claim, word in said.items() if claim.startswith("weak")] == ["MISSED"] * 3


def test_the_stream_learners_know_no_number_of_records():
    for task in streams.TASKS:
        for kind in streams.KINDS:
            learner, rng = task.stream(kind), np.random.default_rng(0)
            for n in (5, 20):
                model = learn(learner, MemoryRecords((task.draw(n, rng),)), rng).model(learner)
                assert task.excess(model) >= 0.0


# --- space ----------------------------------------------------------------------------------------------


def test_space_is_complete_on_tiny_sizes_and_other_exponents_are_missed(monkeypatch):
    monkeypatch.setattr(space, "QUICK_POWERS", range(5, 12, 2))
    result, verdicts = complete(space.CHAPTER, space.measure(True, lambda share: None))
    assert words(verdicts)[0] == "held"
    for point in result["points"]:
        point["transcript"] = 8 * point["n"] ** 2
    assert words(space.judge(result)) == ["MISSED", "MISSED"]


# --- exactness ------------------------------------------------------------------------------------------


def test_exactness_by_name_is_complete_with_few_runs(tmp_path):
    wanted = {job.kind: job for job in exact_by_name.jobs(True)}
    few = [job._replace(runs=150) for job in wanted.values()]
    measured = exact_by_name.measure_jobs(few, lambda share: None, tmp_path / "found", 1)
    _, verdicts = complete(exact_by_name.CHAPTER, measured)
    assert verdicts[0].word == "not decided"


def test_an_interrupted_run_of_exactness_goes_on_with_the_next_problem(tmp_path, monkeypatch):
    wanted = [exact_by_name.Job("named", name, 10) for name in ("one", "two", "three")]
    asked, last = [], "two"

    def run_job(job):
        asked.append(job.name)
        if job.name == last:
            raise KeyboardInterrupt
        return {"kind": job.kind, "name": job.name, "runs": job.runs, "p_value": 0.5}

    def run():
        return exact_by_name.measure_jobs(wanted, lambda share: None, tmp_path / "found", 1)

    monkeypatch.setattr(exact_by_name, "run_job", run_job)
    monkeypatch.setattr(exact_by_name, "commit", lambda: "abc")
    with pytest.raises(KeyboardInterrupt):
        run()
    last = ""
    assert [case["name"] for case in run()["cases"]] == ["one", "two", "three"]
    assert asked == ["one", "two", "two", "three"]
    assert not (tmp_path / "found").exists()
    monkeypatch.setattr(exact_by_name, "commit", lambda: "abc-dirty")
    assert len(run()["cases"]) == 3
    assert asked[4:] == ["one", "two", "three"]


def test_every_name_of_the_paper_has_a_problem_of_law():
    from expunge import paper

    names = {job.name.split(":")[0].split(",")[0] for job in exact_by_name.jobs(False) if job.kind == "named"}
    assert names == set(paper.__all__)
    assert {job.runs for job in exact_by_name.jobs(False) if job.kind == "named"} == {20_000}


def test_a_learner_that_differs_and_an_error_that_is_not_caught_are_missed():
    cases = [
        {"kind": kind, "name": kind, "runs": 20_000, "p_value": p, "comparisons": 9, "worst": "w", "seconds": 1.0}
        for kind, p in (("named", 0.5), ("program", 0.5), ("patched", 1e-9), ("printed", 1e-9))
    ]
    assert words(exact_by_name.judge({"cases": cases})) == ["held"] * 3
    for case in cases:
        case["p_value"] = 1e-4 if case["kind"] in ("named", "program") else 0.5
    assert words(exact_by_name.judge({"cases": cases})) == ["MISSED"] * 3
    for case in cases:
        case |= {"runs": 1_000, "p_value": 0.5}
    assert words(exact_by_name.judge({"cases": cases})) == ["not decided"] * 3
