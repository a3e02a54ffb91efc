"""Exactness of the estimators: the complete state after requests against that of a fresh fit.

Level 0.01 after Bonferroni, fixed seeds. Cases are small (6 records, 3 or 4 steps, 2 features) with noise about as
large as a contribution, and every two choices meet in one of them. With this many runs a difference of a third of a
standard deviation would be noticed; benchmarks/paper has all combinations, with more runs.
Controls must be caught with p < 1e-6.
"""

import itertools

import numpy as np
import pytest

from cases.in_solver import in_solver
from cases.patching import patched_everywhere, patched_method
from expunge.base.intake import Delete, Insert, Replace
from expunge.engine.checks import _state, _state_names, check_exact, compare, serve_and_commit
from expunge.engine.couplings.common import KEPT
from expunge.engine.transcript import ArrayRows
from expunge.models import HuberRegressor, LinearRegression, LinearSVC, LogisticRegression, Ridge
from expunge.models.serving import Serving

pytestmark = pytest.mark.long

LEVEL = 0.01
RNG = np.random.default_rng(12)
X = np.round(RNG.normal(size=(9, 3)), 2)
Y = np.array([0, 1, 2, 1, 2, 0, 1, 2, 0])
SUBJECTS = [0, 0, 1, 2, 3, 3]

CHOICES = {
    "model": {
        "binary": (LogisticRegression, {"class_weight": {0: 0.5}}),
        "multinomial": (LogisticRegression, {"fit_intercept": False}),
        "svc": (LinearSVC, {}),
        "huber": (HuberRegressor, {"target_range": (0, 2)}),
        "least squares": (LinearRegression, {"target_range": (0, 2)}),
    },
    "solver": {
        "dual averaging": {"step_size": 0.7},
        "frank-wolfe": {"solver": "frank_wolfe"},
        "frank-wolfe on l1": {"solver": "frank_wolfe", "domain": "l1"},
    },
    "schedule": {
        "scattered": {"steps": 4},
        "two epochs": {"steps": 2, "epochs": 2},
        "shuffled": {"schedule": "shuffled", "batch": 2},
        "arrival": {"schedule": "arrival", "batch": 2},
    },
    "noise": {
        "root": {"mechanism": "sqrt"},
        "tree": {"mechanism": "tree"},
        "row by row": {"mechanism": "tree", "coupling": "sequential"},
    },
    "more": {
        "plain": {},
        "projected": {"n_components": 2},
        "clipped": {"clip": 0.4},
        "shrunk": {"alpha": 0.2},
        "last": {"selector": "last"},
    },
    "request": {
        "delete": lambda rows, targets: (Delete([2]),),
        "bulk": lambda rows, targets: (Delete([0, 3, 5]),),
        "insert": lambda rows, targets: (Insert((rows[6:8], targets[6:8]), subjects=[3, 9]),),
        "replace": lambda rows, targets: (Replace((rows[6:7], targets[6:7]), [4]), Delete([1])),
        "subject": lambda rows, targets: (Delete(subjects=[0, 3]), Insert((rows[8:], targets[8:]), subjects=[0])),
    },
}


def sensible(chosen):
    return not (chosen["more"] == "projected" and chosen["schedule"] == "arrival")


def meeting():
    """Cases in which every two choices that go together meet, found greedily."""
    everything = [dict(zip(CHOICES, names, strict=True)) for names in itertools.product(*CHOICES.values())]
    everything = [chosen for chosen in everything if sensible(chosen)]
    pairs = [set(itertools.combinations(chosen.items(), 2)) for chosen in everything]
    left = set().union(*pairs)
    while left:
        best = max(range(len(everything)), key=lambda number: len(pairs[number] & left))
        left -= pairs[best]
        yield everything[best]


CASES = list(meeting())


def targets_for(model_name):
    return np.where(Y == 2, 0, Y) if model_name in ("binary", "svc") else Y


def small_model(chosen, **more):
    estimator, own = CHOICES["model"][chosen["model"]]
    parts = (CHOICES[name][chosen[name]] for name in ("solver", "schedule", "noise", "more"))
    given = {"rho": 0.6, "radius": 2.0, "random_state": 0, **own}
    for part in parts:
        given |= part
    return estimator(**in_solver(**{**given, **more}))


def check(chosen, runs=400, rho=0.6, **more):
    """Check the learner of a fitted model on its encoded records."""
    columns = 3 if chosen["more"] == "projected" else 2
    y = targets_for(chosen["model"])
    model = small_model(chosen, rho=rho).fit(X[:, :columns], y)
    rows, targets = model._encode_rows(X[:, :columns]), model._encode_targets(y)
    requests = CHOICES["request"][chosen["request"]](rows, targets)
    small = rows[:6], targets[:6]
    return check_exact(model.plan_.learner, small, requests, subjects=SUBJECTS, runs=runs, level=LEVEL, **more)


@pytest.mark.parametrize("chosen", CASES, ids=lambda chosen: ", ".join(chosen.values()))
def test_the_state_after_requests_has_the_law_of_a_fresh_fit(chosen):
    report = check(chosen, seed=3)
    assert report.passed, report


# --- controls ---------------------------------------------------------------------------------------------

PLAIN = {
    "model": "binary",
    "solver": "dual averaging",
    "schedule": "scattered",
    "noise": "root",
    "more": "plain",
    "request": "delete",
}


@pytest.mark.parametrize("solver", CHOICES["solver"])
def test_to_keep_always_is_caught(solver):
    chosen = {**PLAIN, "solver": solver, "request": "bulk"}
    with patched_everywhere("keep_or_jump", lambda shift, projection, coins: KEPT):
        report = check(chosen, runs=600, rho=0.95)
    assert report.p_value < 1e-6, report
    twin = check(chosen, runs=600, rho=0.95)
    assert twin.passed, twin


# --- through the estimator itself ---------------------------------------------------------------------------


def whole_state(model, ids):
    state = _state(model.plan_.learner, model._records, model.transcript_, ids)
    return np.concatenate([state, model.coef_.ravel(), np.ravel(model.intercept_)])


def sample(make, runs, seed, ids):
    rng = np.random.default_rng(seed)
    return np.array([whole_state(make(rng), ids) for _ in range(runs)])


def compared(given, gone, count=6, runs=450, requests=None):
    """Compare a model that unlearned some of its records with one that never had them."""
    y = targets_for("binary")
    kept = np.setdiff1d(np.arange(count), gone)

    def make(rng):
        return LogisticRegression(**in_solver(**{"rho": 0.6, "steps": 4, "radius": 2.0, **given}, random_state=rng))

    def unlearned(rng):
        model = make(rng).fit(X[:count, :2], y[:count], ids=np.arange(count))
        (requests or (lambda model: model.unlearn(gone)))(model)
        return model

    def fresh(rng):
        return make(rng).fit(X[kept, :2], y[kept], ids=kept)

    model = fresh(np.random.default_rng(0))
    names = _state_names(model.plan_.learner, model._records, model.transcript_, kept)
    names += [f"coef[{j}]" for j in range(model.coef_.size + np.size(model.intercept_))]
    return compare(sample(unlearned, runs, 1, kept), sample(fresh, runs, 2, kept), names, LEVEL)


CLASSES = {"classes": [0, 1]}


@pytest.mark.parametrize(
    "given",
    [{"solver": "frank_wolfe", "mechanism": "tree"}, {"schedule": "shuffled", "steps": None, "batch": 1},
     {"epochs": 2, "steps": 2, "alpha": 0.1}, {"solver": "gradient_descent", "steps": 3, "rate": 0.6}],
    ids=str,
)  # fmt: skip
def test_after_unlearn_everything_published_has_the_law_of_a_fit_without_the_record(given):
    report = compared({**CLASSES, **given}, [2])
    assert report.passed, report


def test_after_a_stream_of_requests_the_law_is_that_of_the_records_left():
    def requests(model):
        y = targets_for("binary")
        model.unlearn([2, 5])
        model.insert(X[8:9, :2], y[8:9], ids=[5])
        model.replace(X[5:6, :2], y[5:6], ids=5)

    report = compared(CLASSES, [2], requests=requests)
    assert report.passed, report


def test_a_projection_is_forgotten_with_everything_else():
    """Drawn before the records are seen: its law is the same with and without one of them."""
    report = compared({**CLASSES, "n_components": 1}, [2])
    assert report.passed, report


def test_crossing_a_power_of_two_shows_unless_the_number_of_records_was_declared():
    """A fit on 5 records plans for 8, one on 4 for 4: without a declared number the old plan gives the record away."""
    undeclared = compared(CLASSES, [2], count=5)
    assert undeclared.p_value < 1e-6, undeclared
    declared = compared({**CLASSES, "expected_records": 8}, [2], count=5, runs=450)
    assert declared.passed, declared


def test_a_plan_made_for_the_exact_number_of_records_is_caught():
    given, gone = {**CLASSES, "rho": 0.95}, [0, 2, 3]
    assert compared(given, gone, count=8, runs=500).passed
    with patched_everywhere("rounded_up", lambda records: records):
        report = compared(given, gone, count=8, runs=500)
    assert report.p_value < 1e-6, report


PLANNED = {**CLASSES, "rho": 0.95, "expected_records": 8}
"""One plan for all sizes, so that nothing but the mistake can be caught."""


def test_with_one_plan_for_all_sizes_nothing_is_caught():
    assert compared(PLANNED, [0, 2], runs=500).passed


def test_to_keep_always_is_caught_through_the_estimator():
    with patched_everywhere("keep_or_jump", lambda shift, projection, coins: KEPT):
        report = compared(PLANNED, [0, 2], runs=500)
    assert report.p_value < 1e-6, report


def test_coefficients_that_are_not_published_anew_are_caught():
    publish = Serving._publish

    def once(model):
        if not hasattr(model, "coef_"):
            publish(model)

    with patched_method(Serving, "_publish", once):
        report = compared(PLANNED, [0, 2], runs=500)
    assert report.p_value < 1e-6, report


# --- without noise: exact to the last bit -----------------------------------------------------------------

TARGETS = X[:, 2]
CHANGES = {
    "delete": (Delete([2]),),
    "bulk": (Delete([0, 3, 5]),),
    "insert": (Insert((X[6:8, :2], TARGETS[6:8]), subjects=[3, 9]),),
    "replace": (Replace((X[6:7, :2], TARGETS[6:7]), [4]), Delete([1])),
    "subject": (Delete(subjects=[0, 3]), Insert((X[8:, :2], TARGETS[8:]), subjects=[0])),
}


def check_ridge(requests, alpha=0.1, **more):
    learner = Ridge(alpha).fit(X[:, :2], TARGETS).plan_.learner
    small = X[:6, :2], TARGETS[:6]
    return check_exact(learner, small, requests, subjects=SUBJECTS, runs=300, level=LEVEL, **more)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("request_name", CHANGES)
def test_ridge_after_requests_is_a_fresh_fit_wherever_records_lie(request_name, alpha):
    report = check_ridge(CHANGES[request_name], alpha, seed=5)
    assert report.passed, report


def plain_subtraction(learner, records, transcript, request, rng):
    """Serve a deletion by taking products in floating point, not rounded to the grid, off the sums."""
    place = records.locate(request.ids)
    row = [column[place.slots] for column in records.batch_at(0)]
    numbers = np.column_stack([*row, [1.0]])
    before = transcript.sums[0].copy()
    serve_and_commit(learner, records, transcript, request, rng)
    width = learner.query.moments.width
    products = [numbers[0] * np.roll(numbers[0], -distance) for distance in range(width // 2 + 1)]
    before[: width * (width // 2 + 1)] -= np.concatenate(products)
    return with_sums(learner, records, transcript, before)


def uncounted(learner, records, transcript, request, rng):
    """Serve a deletion, but go on counting the record."""
    serve_and_commit(learner, records, transcript, request, rng)
    sums = transcript.sums[0].copy()
    sums[learner.query.moments.width - 1] += 1.0
    return with_sums(learner, records, transcript, sums)


def with_sums(learner, records, transcript, sums):
    iterate = learner.rule.step(0, transcript.path, sums)
    tables = ArrayRows(sums[None]), ArrayRows(sums[None]), ArrayRows(iterate[None])
    return records, type(transcript)(*tables, transcript.start, records)


@pytest.mark.parametrize("serve", [plain_subtraction, uncounted], ids=lambda serve: serve.__name__)
def test_sums_of_ridge_that_are_not_those_of_the_records_left_are_caught(serve):
    report = check_ridge(CHANGES["delete"], serve=serve)
    assert report.p_value < 1e-6, report
