"""Estimators on streams: partial_fit, plans that say when they no longer fit, and new plans."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from cases.in_solver import in_solver
from expunge import HuberRegressor, LinearRegression, LinearSVC, LogisticRegression
from expunge.base.errors import BadPlan, BadRecords, PlanWarning, SizeWarning
from expunge.base.intake import Delete
from expunge.engine.accounting import FOREVER, worst_case_rho
from expunge.solvers import DualAveraging

RNG = np.random.default_rng(5)
X = RNG.normal(size=(400, 3)) / 3
Y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
STREAM = {"rho": 0.5, "schedule": "arrival", "expected_records": 256, "batch": 16, "random_state": 1}


def stream(**more):
    return LogisticRegression(**in_solver(classes=[0, 1], **{**STREAM, **more}))


def fed(model, stop=400, by=1, **more):
    for first in range(0, stop, by):
        part = slice(first, min(first + by, stop))
        model.partial_fit(X[part], Y[part], **{name: values[part] for name, values in more.items()})
    return model


# --- partial_fit ------------------------------------------------------------------------------------------------


def test_a_model_starts_from_one_record_and_goes_on():
    model = fed(stream(), 300)
    assert model.n_records_ == 300
    assert model.plan_.records == 256
    assert model.verify().ok
    assert model.score(X, Y) > 0.8
    model.unlearn([0, 17, 299])
    assert model.n_records_ == 297
    assert model.verify().ok


@pytest.mark.parametrize("mechanism", ["sqrt", "tree", "anytime", "halving"])
@pytest.mark.parametrize("solver", ["dual_averaging", "frank_wolfe"])
def test_an_arrival_never_replays_and_evaluates_at_most_a_step(mechanism, solver):
    model = stream(mechanism=mechanism, solver=solver).partial_fit(X[:1], Y[:1])
    for number in range(1, 120):
        outcome = model.insert(X[number : number + 1], Y[number : number + 1])
        assert outcome.kept
        assert outcome.evaluations <= 16
    assert model.verify().ok


def test_without_noise_a_stream_is_a_fit_to_the_last_bit():
    fitted = stream(rho=1.0).fit(X, Y)
    for by in (1, 7, 400):
        model = fed(stream(rho=1.0), by=by)
        np.testing.assert_array_equal(model.coef_, fitted.coef_)
        assert model.verify().ok


@pytest.mark.parametrize("schedule", ["scattered", "shuffled"])
def test_with_other_schedules_partial_fit_is_insert(schedule):
    model = LogisticRegression(
        classes=[0, 1], rho=0.5, solver=DualAveraging(schedule=schedule), expected_records=256, random_state=3
    )
    other = clone(model).fit(X[:100], Y[:100])
    fed(model, 100, by=100)
    model.partial_fit(X[100:150], Y[100:150])
    other.insert(X[100:150], Y[100:150])
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert model.n_records_ == 150


@pytest.mark.parametrize("estimator", [LinearRegression, HuberRegressor])
def test_regressions_go_on_too(estimator):
    model = estimator(**in_solver(target_range=(-3, 3), **STREAM))
    for first in range(0, 400, 40):
        model.partial_fit(X[first : first + 40], X[first : first + 40, 0] * 2)
    assert model.n_records_ == 400
    assert model.verify().ok


def test_classes_can_be_told_at_the_first_call():
    model = LinearSVC(**in_solver(**STREAM)).partial_fit(X[:1], Y[:1], classes=[0, 1])
    model.partial_fit(X[1:9], Y[1:9])
    model.partial_fit(X[9:12], Y[9:12], classes=[0, 1])
    assert model.classes_.tolist() == [0, 1]
    for other in ([0, 1, 2], [0], []):
        with pytest.raises(BadPlan, match="the model's are 0, 1"):
            model.partial_fit(X[12:], Y[12:], classes=other)
    for bad in (5, [[0, 1]], [None, 1]):
        with pytest.raises(BadPlan, match="give a list of labels"):
            model.partial_fit(X[12:], Y[12:], classes=bad)
    assert model.n_records_ == 12


def test_one_class_at_first_must_be_told_of_the_others():
    model = LogisticRegression(**in_solver(**STREAM))
    with pytest.raises(BadRecords, match="classes="):
        model.partial_fit(X[:1], Y[:1])
    assert not hasattr(model, "classes_")


def test_ids_and_subjects_are_taken_along():
    names = np.array([f"r{number}" for number in range(40)])
    owners = np.array([f"s{number // 2}" for number in range(40)])
    model = fed(stream(records_per_subject=2), 40, by=4, ids=names, subjects=owners)
    assert model.unlearn(subjects=["s3"]).removed == 2
    assert model.unlearn(["r1"]).removed == 1
    model.partial_fit(X[:1], Y[:1], ids=["r1"], subjects=["s0"])  # an id that was deleted is free again
    assert model.n_records_ == 38
    assert model.verify().ok


def test_sparse_rows_go_on():
    model = stream()
    for first in range(0, 60, 10):
        model.partial_fit(sparse.csr_array(X[first : first + 10]), Y[first : first + 10])
    model.unlearn([3, 30])
    assert model.verify().ok


def test_a_first_call_that_fails_leaves_nothing_behind():
    model = stream()
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit([[np.nan, 0.0, 0.0]], [1])
    assert not hasattr(model, "plan_")
    model.partial_fit(X[:2], Y[:2])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[2:4, :2], Y[2:4])
    assert model.n_records_ == 2


# --- nothing depends on the final size -----------------------------------------------------------------------------


def test_no_parameter_depends_on_how_far_the_stream_has_come():
    plans = [fed(stream(), stop).plan_ for stop in (1, 40, 400)]
    assert plans[0] == plans[1] == plans[2]


def test_arrivals_have_steps_and_noise_without_an_end():
    plan = fed(stream(mechanism="anytime"), 1).plan_
    assert plan.anytime
    assert plan.horizon == FOREVER
    learner = plan.learner
    for records in (10, 10**6, 10**12):
        told = worst_case_rho(plan.sigma, learner.schedule, learner.mechanism, bound=plan.bound, records=records)
        assert told <= 0.5


def test_rho_holds_up_to_the_horizon():
    plan = fed(stream(), 1).plan_
    assert plan.horizon == 4 * 256
    longer = fed(stream(horizon=2**20), 1).plan_
    assert longer.horizon == 2**20
    assert plan.sigma < longer.sigma < 1.5 * plan.sigma
    with pytest.raises(BadPlan, match="horizon"):
        stream(horizon=100).partial_fit(X[:1], Y[:1])


def test_step_sizes_can_be_fixed_or_anytime_with_any_schedule():
    assert not LogisticRegression(solver="dual_averaging").fit(X, Y).plan_.anytime
    assert LogisticRegression(solver=DualAveraging(step_size="anytime")).fit(X, Y).plan_.anytime
    assert not stream(step_size=0.1).fit(X, Y).plan_.anytime
    fixed = LogisticRegression(solver=DualAveraging(steps=8, epochs=2)).fit(X, Y).plan_
    anytime = LogisticRegression(solver=DualAveraging(steps=8, epochs=2, step_size="anytime")).fit(X, Y).plan_
    assert anytime.step_size == fixed.step_size
    assert (anytime.learner.rule.anytime, fixed.learner.rule.anytime) == (16, None)


# --- a plan that no longer fits ---------------------------------------------------------------------------------------


def test_a_plan_is_for_a_quarter_to_four_times_as_many_records():
    plan = fed(stream(expected_records=64), 1).plan_
    assert plan.size_class == (16, 256)
    assert [plan.covers(n) for n in (15, 16, 256, 257)] == [False, True, True, False]


def test_a_stream_that_outgrows_its_plan_says_so_once_and_offers_a_new_one():
    model = fed(stream(expected_records=64), 256)
    with pytest.warns(
        SizeWarning, match=r"257 records.*16 to 256.*replay more often.*replan\(\).*257 evaluations"
    ) as told:
        model.partial_fit(X[256:257], Y[256:257])
    assert told[0].filename == __file__
    fed_before = model.n_records_
    model.insert(X[257:300], Y[257:300])  # said already
    assert model.n_records_ == fed_before + 43
    outcome = model.replan()
    assert (outcome.added, outcome.evaluations) == (300, 300)
    assert outcome.seconds > 0
    assert model.plan_.records == 512
    assert model.verify().ok
    assert model.score(X, Y) > 0.8
    assert model.unlearn([7]).removed == 1
    model.partial_fit(X[300:301], Y[300:301])  # automatic ids go on where they were
    assert model.unlearn([300]).removed == 1


def test_a_stream_that_shrinks_says_so_too():
    model = LogisticRegression(random_state=0, solver="dual_averaging").fit(X[:100], Y[:100])
    model.unlearn(np.arange(68))
    with pytest.warns(SizeWarning, match="31 records"):
        model.unlearn([70])
    assert model.verify().ok


def test_a_model_started_from_nothing_does_not_complain_of_being_small():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fed(stream(expected_records=100_000, random_state=None), 50)


def test_the_last_record_has_a_warning_of_its_own():
    model = stream(expected_records=2, random_state=None).fit(X[:1], Y[:1])
    with pytest.warns(UserWarning, match="every record has been deleted") as told:
        model.unlearn([0])
    assert len(told) == 1
    model.partial_fit(X[:1], Y[:1])
    assert model.n_records_ == 1
    assert model.verify().ok


def test_a_plan_that_was_too_small_from_the_start_says_so_too():
    with pytest.warns(SizeWarning, match="200 records"):
        stream(expected_records=8).fit(X[:200], Y[:200])


def test_a_horizon_within_the_size_class_is_told_when_it_is_passed():
    model = stream(expected_records=64, horizon=100).fit(X[:100], Y[:100])
    with pytest.warns(SizeWarning, match="101 records.*replay more often"):
        model.partial_fit(X[100:101], Y[100:101])


# --- new plans ----------------------------------------------------------------------------------------------------


def test_a_new_plan_can_be_made_for_what_is_expected():
    model = stream().fit(X, Y)
    model.replan(expected_records=5000)
    assert model.plan_.records == 8192
    with pytest.raises(BadPlan, match="expected_records"):
        model.replan(expected_records=0)
    assert model.plan_.records == 8192


def test_a_new_plan_is_a_fit_of_the_records_in_their_stored_order():
    model = stream(rho=1.0).fit(X, Y)
    model.unlearn([3, 399, 17])
    order = np.concatenate([model._records.ids_at(place) for place in range(len(model._records.places))])
    model.replan(expected_records=1000)
    fresh = stream(rho=1.0, expected_records=1000).fit(X[order], Y[order])
    np.testing.assert_array_equal(model.coef_, fresh.coef_)


@pytest.mark.parametrize("kind", ["strings", "subjects", "sparse", "projected"])
def test_a_new_plan_keeps_ids_subjects_and_kinds_of_rows(kind):
    more = {"ids": [f"r{n}" for n in range(100)], "subjects": [f"s{n // 2}" for n in range(100)]}
    if kind != "subjects":
        del more["subjects"]
    model = LogisticRegression(
        random_state=0, solver=DualAveraging(records_per_subject=2, n_components=2 if kind == "projected" else None)
    )
    model.fit(sparse.csr_array(X[:100]) if kind == "sparse" else X[:100], Y[:100], **more)
    model.replan()
    assert model.verify().ok
    assert model.n_records_ == 100
    removed = model.unlearn(subjects=["s4"]) if kind == "subjects" else model.unlearn(["r8", "r9"])
    assert removed.removed == 2
    assert model.verify().ok


def test_a_new_plan_cannot_project_anew():
    model = LogisticRegression(random_state=0, solver=DualAveraging(n_components="auto"), rho=0.05, expected_records=64)
    wide = RNG.normal(size=(64, 40))
    model.fit(wide, (wide[:, 0] > 0).astype(int))
    assert model.plan_.projected
    with pytest.raises(BadPlan, match="n_components='auto'"):
        model.replan()
    assert model.verify().ok


def test_a_new_plan_that_fails_leaves_the_old_one(monkeypatch):
    model = stream().fit(X, Y)
    before = model.coef_.copy()

    def no_memory(*_, **__):
        raise MemoryError

    monkeypatch.setattr("expunge.models.forgetting.learn_with_outcome", no_memory)
    with pytest.raises(MemoryError):
        model.replan(expected_records=9000)
    monkeypatch.undo()
    assert model.plan_.records == 256
    np.testing.assert_array_equal(model.coef_, before)
    assert model.verify().ok
    assert model.unlearn([5]).removed == 1


def test_new_plans_draw_new_noise_and_repeat_with_a_seed():
    one, other = (stream(random_state=4).fit(X, Y) for _ in range(2))
    fitted = one.coef_.copy()
    one.replan()
    other.replan()
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert not np.array_equal(one.coef_, fitted)
    one.unlearn([3])
    other.unlearn([3])
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_a_new_plan_for_no_records():
    model = stream(expected_records=2).fit(X[:1], Y[:1])
    with pytest.warns(UserWarning, match="every record"):
        model.unlearn([0])
    model.replan(expected_records=50)
    model.partial_fit(X[:20], Y[:20])
    assert model.verify().ok
    with pytest.raises(Exception, match="not fitted"):
        stream().replan()


def test_parameters_that_are_assigned_warn_as_those_that_are_set():
    model = stream().fit(X, Y)
    model.rho, model.random_state = model.rho, 7  # nothing new, and what takes effect at once
    model.unlearn([0])
    model.rho, model.solver = 0.2, DualAveraging(schedule="arrival", alpha=0.01)
    with pytest.warns(PlanWarning, match="^rho, solver: set after the fit, and not in effect"):
        model.predict(X)
    model.predict(X)  # it says so once
    model.rho = 0.3
    model.replan()
    assert model.plan_.rho == 0.3
    model.predict(X)


def test_a_new_plan_takes_parameters_as_they_are_now():
    model = stream().fit(X, Y)
    model.set_params(rho=0.2, solver__schedule="scattered")
    model.replan()
    assert (model.plan_.rho, model.plan_.schedule) == (0.2, "scattered")
    assert model.verify().ok


@pytest.mark.filterwarnings("ignore::expunge.PlanWarning")  # used after its new parameters were refused
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": [0, 1, 2]}, "classes: the stored records were encoded with"),
        ({"solver__feature_norm": 2.0}, "feature_norm: the stored records were encoded with 1.0"),
        ({"solver__records_per_subject": 1}, "would have 2 records"),
        ({"solver__n_components": 2, "solver__schedule": "scattered"}, "n_components: the stored records were encoded"),
    ],
    ids=str,
)
def test_a_new_plan_must_fit_the_records_as_they_are_kept(change, message):
    model = stream(records_per_subject=2).fit(X, Y, subjects=np.arange(400) // 2)
    before = model.coef_.copy()
    model.set_params(**change)
    with pytest.raises((BadPlan, BadRecords), match=message):
        model.replan()
    np.testing.assert_array_equal(model.coef_, before)
    assert model.verify().ok


def test_a_new_plan_must_be_for_about_as_many_records_as_there_are():
    model = stream().fit(X, Y)
    with pytest.raises(BadPlan, match="there are 400 records already"):
        model.replan(expected_records=50)
    ranged = LinearRegression(**in_solver(target_range=(-1, 1), **STREAM)).fit(X, X[:, 0])
    ranged.set_params(solver__target_range=(-2, 2))
    with pytest.raises(BadPlan, match="target_range"):
        ranged.replan()


def test_a_new_plan_finishes_what_another_thread_left(monkeypatch):
    model = stream().fit(X, Y)
    need_fit = type(model)._need_fit

    def broken(*given, **more):
        raise MemoryError

    def meanwhile(self):  # after replan has caught up, another thread's request is begun and fails
        need_fit(self)
        monkeypatch.setattr(type(model), "_need_fit", need_fit)
        with monkeypatch.context() as patch:
            patch.setattr("expunge.engine.owner.decide_on", broken)
            with pytest.raises(MemoryError):
                self.serve_request(prepared)

    prepared = model.prepare_request(Delete([7]))
    monkeypatch.setattr(type(model), "_need_fit", meanwhile)
    model.replan()
    assert model.n_records_ == 399
    assert model.has_begun(prepared)
    assert model.verify().ok


def test_a_new_plan_forgets_how_long_a_deleted_id_was():
    model = stream().fit(X[:100], Y[:100], ids=[f"r{n}" for n in range(100)])
    model.insert(X[:1], Y[:1], ids=["alexander-the-great-of-macedon"])
    model.unlearn(["alexander-the-great-of-macedon"])
    model.replan()
    assert model._records.all_ids().dtype.itemsize == 3 * 4
    assert model.unlearn(["r99"]).removed == 1


def test_masked_values_and_words_are_refused():
    model = stream().fit(X, Y)
    masked = np.ma.masked_array(X[:2], mask=np.eye(2, 3, dtype=bool))
    for act in (lambda: model.insert(masked, Y[:2]), lambda: stream().fit(masked, Y[:2])):
        with pytest.raises(BadRecords, match="X: some values are masked"):
            act()
    regression = LinearRegression(**in_solver(target_range=(-1, 1), **STREAM)).fit(X, X[:, 0])
    with pytest.raises(BadRecords, match="y: expected numbers"):
        regression.insert(X[:1], np.array(["high"]))
    with pytest.raises(BadRecords, match="ids are integers"):
        model.insert(X[:1], Y[:1], ids=["ann"])
    assert model.verify().ok
