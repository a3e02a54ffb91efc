"""What is said of a model before any training."""

import json
import os
import tracemalloc
import warnings
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from expunge import HuberRegressor, KMeans, LinearRegression, LinearSVC, LogisticRegression, Ridge
from expunge.audit.forecast import calibration, forecasting
from expunge.audit.forecast import forecast as forecast_
from expunge.audit.forecast.calibration import Calibration, Costs, Point, Typical
from expunge.audit.forecast.problems import Kind
from expunge.base.errors import BadPlan
from expunge.solvers import DualAveraging, GradientDescent, Lloyd
from expunge.solvers.plans.protocol import Size

rng = np.random.default_rng(0)
QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where nothing waits for a disk


def forecast(model, records, features, **more):
    return forecast_(model, records, features, **{"seconds": 0.02, "folder": QUICK, **more})


def calibrated(kind, cost):
    sizes = [Size(128, 16), Size(4096, 16), Size(1024, 128), Size(65536, 128)]
    points = tuple(Point(size, Costs(*cost(size)), 0.0) for size in sizes)
    return Calibration(kind, points, points, Typical(np.ones(1), np.ones(1)), 0.25, 0.0)


@pytest.fixture
def unmeasured(monkeypatch):
    """Have all take as long as it says here, so that nothing need be measured."""

    def cost(size):
        return 1e-6 * size.records, 1e-4, 1e-6 * size.records

    monkeypatch.setattr(forecasting, "calibrate", lambda kind, *_: calibrated(kind, cost))


MODELS = [
    LogisticRegression(rho=0.1, random_state=0, solver="dual_averaging"),
    LogisticRegression(random_state=0, solver="dual_averaging"),
    LogisticRegression(rho=0.3, solver=GradientDescent(steps=20), random_state=0),
    LogisticRegression(
        rho=0.3, solver=DualAveraging(schedule="shuffled", mechanism="tree", coupling="sequential"), random_state=0
    ),
    LogisticRegression(rho=0.3, solver=DualAveraging(epochs=3, n_components=4), random_state=0),
    LinearSVC(rho=0.2, random_state=0, solver="dual_averaging"),
    LinearRegression(rho=0.2, solver=DualAveraging(target_range=(0, 1)), random_state=0),
    HuberRegressor(rho=0.2, solver=DualAveraging(target_range=(0, 1), schedule="arrival"), random_state=0),
    KMeans(3, rho=0.4, random_state=0, solver=Lloyd(radius=3.0)),
    Ridge(),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_plan_and_the_sizes_are_those_of_a_real_fit(model):
    found = forecast(model, 600, 6)
    X = rng.normal(size=(600, 6)) / 3
    y = X[:, 0] > 0 if hasattr(model, "classes") else (X[:, 0] > 0) * 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model.fit(X, y)
    assert [getattr(found.plan, one.name) for one in fields(found.plan)] == [
        getattr(fitted.plan_, one.name) for one in fields(found.plan)
    ]
    kept = fitted._owner.transcript
    tables = {id(table): table for table in (kept.sums, kept.answers, kept.iterates)}
    assert found.transcript_bytes == sum(table[:].nbytes for table in tables.values())
    fitted.unlearn(0)  # it makes an index
    memory = sum(fitted._records.nbytes().values()) + found.transcript_bytes
    assert found.memory_bytes == pytest.approx(memory, rel=0.15)
    assert found.worst_case == pytest.approx(fitted.plan_.rho, rel=1e-6)
    assert 0.0 <= found.typical.replayed_fraction <= found.typical.replay_probability <= found.worst_case + 1e-9
    for times in (found.in_memory, found.in_file, found.without_noise, found.without_noise_in_file):
        assert times.fit > 0.0
        assert times.kept > 0.0
        assert (times.replayed > times.kept) == (found.worst_case > 0.0)
        assert times.kept <= times.deletion <= times.replayed * (1 + 1e-9)
    assert found.in_file.kept >= found.in_memory.kept
    assert json.loads(json.dumps(found.to_dict()))["records"] == 600
    assert all(found.advice)


def test_of_a_keyed_sample_the_planned_share_of_deletions_fits_anew(unmeasured):
    found = forecast(KMeans(3, rho=0.05), 20_000, 6)
    assert tuple(found.typical) == (0.05, 0.05)
    assert found.worst_case == found.plan.worst_case()
    assert "About 0.05 of all deletions fit anew" in found.advice[0]
    assert "rho is 47 times below" in forecast(KMeans(3, rho=0.00025), 20_000, 6).advice[1]


def test_less_rho_means_more_noise_and_fewer_replays(unmeasured):
    some, few = (forecast(LogisticRegression(rho=rho, solver="dual_averaging"), 100_000, 10) for rho in (0.3, 0.01))
    assert few.sigma > some.sigma
    assert few.typical.replay_probability < some.typical.replay_probability
    assert few.paper.ratio > 100
    assert few.paper.sigma == pytest.approx(8 * 2 * few.plan.bound * np.log(100_000) / 0.01)
    assert some.paper.replay_bound == 1.0
    assert few.paper.replay_bound == pytest.approx(0.01 * np.log2(100_000))


def test_larger_tables_take_more_of_everything():
    small, large = (forecast(LinearSVC(rho=0.1, solver="dual_averaging"), records, 10) for records in (2e4, 2e8))
    for name in ("memory_bytes", "file_bytes", "transcript_bytes"):
        assert getattr(large, name) > getattr(small, name)
    assert large.in_memory.fit > small.in_memory.fit
    assert large.in_file.fit > small.in_file.fit


@pytest.mark.parametrize(
    ("model", "records", "features"),
    [
        (LogisticRegression(rho=0.05, solver="dual_averaging"), 1e12, 120),
        (LogisticRegression(solver="dual_averaging"), 10**12, 2),
        (LogisticRegression(rho=0.1, solver="dual_averaging"), 1_000_000, 2**20),
        (LogisticRegression(rho=0.1, solver="gradient_descent"), 10**8, 500),
        (LogisticRegression(rho=0.1, solver=DualAveraging(schedule="shuffled", batch=1, mechanism="tree")), 10**12, 50),
        (KMeans(50, rho=0.1, solver=Lloyd(radius=1.0)), 2**29, 100_000),
        (Ridge(), 6_000_000, 20_000),
    ],
)
def test_what_would_not_fit_into_memory_is_forecast_all_the_same(model, records, features):
    tracemalloc.start()
    try:
        found = forecast(model, records, features, classes=3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**28 < found.memory_bytes
    assert found.in_memory.fit > 0.0


@pytest.mark.parametrize("records", [1, 2, 3])
def test_a_few_records_are_enough(records):
    found = forecast(LogisticRegression(solver="dual_averaging"), records, 1)
    assert found.rho == found.worst_case == 1.0
    assert forecast(KMeans(1, solver=Lloyd(radius=1.0)), records, 1).in_file.fit > 0.0


def test_what_is_not_declared_is_made_up(unmeasured):
    assert forecast(LogisticRegression(solver="dual_averaging"), 1000, 5, classes=4).plan.loss.outputs == 4
    assert (
        forecast(
            LogisticRegression(classes=["a", "b", "c"], solver="dual_averaging"), 1000, 5, classes=7
        ).plan.loss.outputs
        == 3
    )
    assert forecast(HuberRegressor(solver="dual_averaging"), 1000, 5).plan.loss.outputs == 1


def test_nothing_is_warned_of_and_the_model_given_stays_as_it_is():
    model = KMeans(50, rho=0.01, random_state=3, solver=Lloyd(radius=1.0))
    before = model.get_params()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = forecast(model, 1000, 20)
    assert model.get_params() == before
    assert not hasattr(model, "plan_")
    assert any("shifts a centre" in said for said in found.advice)


def test_in_32_bits_a_file_takes_about_half(unmeasured):
    long, short = (
        forecast(LinearSVC(rho=0.1, solver="dual_averaging"), 1_000_000, 50, bits=bits).file_bytes for bits in (64, 32)
    )
    assert 0.5 < short / long < 0.7


def test_the_size_of_a_file_is_about_what_it_will_be(tmp_path, unmeasured):
    X = rng.normal(size=(4000, 30))
    LinearSVC(rho=0.5, solver="dual_averaging").fit(X, X[:, 0] > 0).save(tmp_path / "model")
    size = (tmp_path / "model").stat().st_size
    assert forecast(LinearSVC(rho=0.5, solver="dual_averaging"), 4000, 30).file_bytes == pytest.approx(size, rel=0.25)


def test_advice_tells_when_noise_costs_accuracy_and_what_rho_1_takes(unmeasured):
    low = forecast(LogisticRegression(rho=0.001, solver="dual_averaging"), 500_000, 50)
    assert "With rho = 1 a deletion takes" in low.advice[0]
    assert "will cost accuracy" in low.advice[1]
    assert "0.0312" in low.advice[1]
    assert (
        "cost hardly any accuracy"
        in forecast(LogisticRegression(rho=0.5, solver="dual_averaging"), 500_000, 50).advice[1]
    )
    small = forecast(LogisticRegression(solver="dual_averaging"), 1000, 5)
    assert len(small.advice) == 1
    assert "so few records" in small.advice[0]
    assert "'auto'" in forecast(LogisticRegression(rho=1, solver="dual_averaging"), 500_000, 50).advice[0]
    assert "no noise" in forecast(Ridge(), 1000, 5).advice[0]
    assert (
        "expected_records"
        in forecast(LogisticRegression(expected_records=10, solver="dual_averaging"), 1000, 5).advice[-1]
    )


@pytest.mark.parametrize(
    ("model", "records", "features", "more", "words"),
    [
        (LogisticRegression(solver="dual_averaging"), 0, 5, {}, "records=0"),
        (LogisticRegression(solver="dual_averaging"), 1.5, 5, {}, "records=1.5"),
        (LogisticRegression(solver="dual_averaging"), True, 5, {}, "records=True"),
        (LogisticRegression(solver="dual_averaging"), float("nan"), 5, {}, "records=nan"),
        (LogisticRegression(solver="dual_averaging"), 1e300, 5, {}, "cannot be forecast"),
        (LogisticRegression(solver="dual_averaging"), 10, 0, {}, "features=0"),
        (LogisticRegression(solver="dual_averaging"), 10, "5", {}, "features='5'"),
        (LogisticRegression(solver="dual_averaging"), 10, 1e12, {}, "features=1000000000000.0"),
        (LogisticRegression(solver="dual_averaging"), 10, 5, {"classes": 1}, "classes=1"),
        (LogisticRegression(solver="dual_averaging"), 10, 5, {"classes": 10**9}, "cannot be forecast"),
        (LogisticRegression(solver="dual_averaging"), 10, 5, {"seconds": 0}, "seconds=0"),
        (LogisticRegression(solver="dual_averaging"), 10, 5, {"bits": 16}, "bits=16"),
        (LogisticRegression(solver="dual_averaging"), 10, 5, {"folder": "/nowhere/at/all"}, "folder='/nowhere/at/all'"),
        (LogisticRegression(rho=0, solver="dual_averaging"), 10, 5, {}, "rho=0"),
        (LogisticRegression(rho=1.5, solver="dual_averaging"), 10, 5, {}, "rho=1.5"),
        (LogisticRegression(class_weight={0: 2.0}, solver="dual_averaging"), 10, 5, {}, "class_weight"),
        (LogisticRegression(solver=DualAveraging(steps=10**10)), 10, 5, {}, "steps=10000000000"),
        (LogisticRegression(solver=DualAveraging(epochs=1000, steps=10**5)), 10, 5, {}, "epochs=1000"),
        (LogisticRegression(solver=DualAveraging(epochs="many")), 10, 5, {}, "epochs='many'"),
        (KMeans(3, solver=Lloyd()), 10, 5, {}, "radius"),
        (KMeans(3), 2, 5, {}, "n_clusters=3"),
        (KMeans(3, solver=Lloyd(low=0, high=[1, 2])), 10, 5, {}, "high"),
        (KMeans(3, solver=Lloyd(radius=1.0)), 2, 5, {}, "n_clusters=3"),
        (KMeans(3, solver=Lloyd(radius=1.0, n_rounds=10**9)), 10, 5, {}, "n_rounds"),
        (KMeans(3, solver=Lloyd(radius=1.0)), 10**9, 5, {}, "536,870,912"),
        (Ridge(), 10**7, 5, {}, "6,710,886"),
        (Ridge(feature_bound=[1, 2]), 10, 5, {}, "feature_bound"),
        (HuberRegressor(solver=DualAveraging(target_range=(1, 0))), 10, 5, {}, "target_range"),
        (object(), 10, 5, {}, "model: expected"),
        (LogisticRegression, 10, 5, {}, "model: expected"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name(monkeypatch, model, records, features, more, words):
    if "folder" not in more:
        monkeypatch.setattr(forecasting, "calibrate", lambda *_: pytest.fail("refused too late"))
    with pytest.raises(BadPlan) as error:
        forecast(model, records, features, **more)
    assert words in str(error.value)


# --- extending what was measured -------------------------------------------------------------------------


def kind_of(model, records, features):
    model = forecasting._declared(model, features, 2)
    plan = forecasting._planned(model, records, features)
    return Kind(model, plan, plan.size_for(records), features)


def test_what_grows_with_records_and_steps_is_extended_exactly():
    kind = kind_of(LogisticRegression(rho=0.1, solver="dual_averaging"), 500_000, 50)

    def cost(size):
        fit = 0.01 + 2e-6 * size.records + 1e-4 * size.steps
        return fit, 1e-4 + 1e-6 * size.batch + 1e-7 * size.steps, fit / 2

    found = calibrated(kind, cost)
    assert found.in_memory(kind.wanted, 1.0) == pytest.approx(cost(kind.wanted))
    fit, kept, replay = cost(kind.wanted)
    assert found.in_memory(kind.wanted, 3.0).fit == pytest.approx(fit + 2 * replay)
    assert found.in_file(kind.wanted, 1.0, 0, 0).kept == pytest.approx(kept + 0.25)


def test_problems_with_fewer_features_are_extended_to_all_of_them():
    kind = kind_of(LogisticRegression(rho=0.1, solver="dual_averaging"), 500_000, 2**15)
    assert kind.wider == 4.0
    found = calibrated(kind, lambda size: (1e-6 * size.records, 1e-6, 1e-6 * size.records))
    assert found.in_memory(kind.wanted, 1.0).fit == pytest.approx(4 * 0.5)


def test_deletions_of_which_none_replayed_leave_no_gap():
    kind = kind_of(Ridge(), 1000, 5)
    found = calibrated(kind, lambda size: (1e-6 * size.records, 1e-4, np.nan))
    assert found.in_memory(kind.wanted, 1.0) == pytest.approx((1e-3, 1e-4, 1e-3))


def test_small_problems_grow_only_as_long_as_there_is_time(monkeypatch):
    kind = kind_of(LogisticRegression(rho=0.1, solver="dual_averaging"), 10**9, 50)
    clock = iter(np.arange(0.0, 1e3, 0.01))
    monkeypatch.setattr(calibration.time, "perf_counter", lambda: next(clock))

    def run(size):
        seen.append(size)
        for _ in range(size.records // 1000):
            next(clock)
        return Point(size, Costs(0.0, 0.0, 0.0), size.records / 1e5)

    seen = []
    points = list(calibration._grown(run, run(Size(128, 16)), 3.0, calibration._larger(kind), least=4.0))
    assert points[-1].size.records > 10_000
    assert sum(size.records for size in seen) / 1e5 < 4.5
    assert all(later.records > earlier.records for earlier, later in pairwise(seen))


def test_a_replaced_plan_changes_the_worst_case():
    plan = kind_of(LogisticRegression(rho=0.1, solver="dual_averaging"), 1000, 5).plan
    assert replace(plan, sigma=plan.sigma * 2).worst_case() < 0.06
