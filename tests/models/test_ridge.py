"""Ridge: scikit-learn's coefficients, exact sums after any history, and a clear word on what cannot be done."""

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
import sklearn.linear_model
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import expunge.engine.changing
from cases.toys import interrupted
from expunge import Ridge
from expunge.base.errors import BadPlan, BadRecords, DuplicateId, RankWarning, UnknownId
from expunge.models.preprocessing import BoundedScaler
from expunge.solvers.exact_moments import EXACT_TO
from expunge.solvers.plans.ridge import RidgePlan

pytestmark = pytest.mark.filterwarnings("ignore::expunge.PlanWarning")  # looked at between set_params and fit

BOUNDS = {"feature_bound": 16.0, "target_bound": 64.0}


def table(count=400, features=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, features)).clip(-16, 16)
    return X, (3.0 + X @ np.arange(1.0, features + 1) / features + rng.normal(size=count)).clip(-64, 64)


X, Y = table()


def fitted(alpha=1.0, rows=X, y=Y, **more):
    kept = {name: more.pop(name) for name in ("ids", "subjects") if name in more}
    return Ridge(alpha, **{**BOUNDS, **more}).fit(rows, y, **kept)


def state(model):
    """What the model has learned, as bytes."""
    kept = model.transcript_
    return [kept.sums.tobytes(), kept.answers.tobytes(), kept.iterates.tobytes(), model.coef_.tobytes(), model.rank_]


def assert_like_scikit_learn(model, rows, y, tolerance=1e-9):
    theirs = sklearn.linear_model.Ridge(model.alpha, fit_intercept=model.fit_intercept).fit(rows, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=tolerance, atol=tolerance * np.abs(theirs.coef_).max())
    np.testing.assert_allclose(model.intercept_, theirs.intercept_, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(model.predict(rows), theirs.predict(rows), rtol=tolerance, atol=tolerance)


# --- the same as scikit-learn's ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0, 1e-3, 1, 100])
def test_coefficients_are_scikit_learns_after_every_kind_of_request(alpha, fit_intercept, form):
    rows = X.copy()
    rows[np.random.default_rng(1).random(X.shape) < 0.3] = 0.0
    model = fitted(alpha, form(rows[:300]), Y[:300], fit_intercept=fit_intercept)
    assert_like_scikit_learn(model, rows[:300], Y[:300])
    model.unlearn(np.arange(0, 150))
    model.unlearn(151)
    model.insert(form(rows[300:]), Y[300:])
    model.replace(form(rows[:2]), Y[:2], ids=[200, 310])
    left = np.concatenate([[150], np.arange(152, 400)])
    now = rows[left]
    now[left == 200], now[left == 310] = rows[0], rows[1]
    y = Y[left]
    y[left == 200], y[left == 310] = Y[0], Y[1]
    assert model.n_records_ == len(left)
    assert_like_scikit_learn(model, now, y)
    assert model.verify().ok


@pytest.mark.parametrize("alpha", [0, 1e-3, 1, 100])
def test_means_that_are_large_against_spreads_cost_no_accuracy(alpha):
    rows = X + np.array([1000.0, -500.0, 0.0, 1000.0, 3.0, 0.0])
    model = fitted(alpha, rows, Y + 5000.0, feature_bound=1024.0, target_bound=8192.0)
    model.unlearn(np.arange(100))
    assert_like_scikit_learn(model, rows[100:], Y[100:] + 5000.0)


def test_numbers_up_to_their_bounds_and_columns_of_very_different_size_are_fine():
    size = np.array([1e-9, 1.0, 1e9, 1e3, 1e-3, 1e6])
    rows = (X / np.abs(X).max(axis=0)) * size
    model = fitted(0.0, rows, 64.0 * Y / np.abs(Y).max(), feature_bound=size)
    model.unlearn(np.arange(50))
    theirs = sklearn.linear_model.Ridge(0.0).fit(rows[50:] / size, 64.0 * Y[50:] / np.abs(Y).max())
    np.testing.assert_allclose(model.coef_ * size, theirs.coef_, rtol=1e-9)
    assert model.rank_ == 6


def test_with_the_default_bounds_rows_in_plain_units_are_close():
    model = Ridge().fit(X, Y)
    theirs = sklearn.linear_model.Ridge().fit(X, Y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-7)


# --- exact sums -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_after_two_thousand_deletions_the_sums_are_those_of_a_fresh_fit_bit_for_bit(form):
    rows, y = table(2500, 5, seed=3)
    model = fitted(1e-3, form(rows), y)
    rng = np.random.default_rng(4)
    gone = rng.permutation(2500)[:2000]
    cuts = np.sort(rng.choice(np.arange(1, 2000), size=60, replace=False))
    for bulk in np.split(gone, cuts):
        outcome = model.unlearn(bulk)
        assert outcome.kept
        assert outcome.evaluations == len(bulk)
    left = np.setdiff1d(np.arange(2500), gone)
    for order in (left, left[::-1], rng.permutation(left)):
        assert state(fitted(1e-3, form(rows[order]), y[order])) == state(model)
    assert model.verify().ok


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
@example(seed=1500, requests=4)  # a column that holds next to nothing
@pytest.mark.filterwarnings("ignore:X. column .* has at most")
def test_any_history_leaves_the_state_of_a_fresh_fit(seed, requests):
    rng = np.random.default_rng(seed)
    features = int(rng.integers(1, 5))
    made = itertools.count(5)

    def some(number):
        rows = rng.uniform(-1, 1, size=(number, features)) * 2.0 ** rng.integers(-20, 4, size=(number, features))
        return rows, rng.uniform(-64, 64, size=number)

    first = some(5)
    live = {number: (row, target) for number, row, target in zip(range(5), *first, strict=True)}
    model = fitted(0.5, *first, ids=np.arange(5))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "every record has been deleted")
        for _ in range(requests):
            kind = rng.choice(["insert", "replace", "unlearn"]) if live else "insert"
            number = int(rng.integers(1, 4 if kind == "insert" else 1 + len(live)))
            new = some(number)
            names = [next(made) for _ in range(number)]
            if kind != "insert":
                names = rng.permutation(list(live))[:number].tolist()
            if kind == "unlearn":
                model.unlearn(names)
                live = {name: record for name, record in live.items() if name not in names}
            else:
                getattr(model, kind)(*new, ids=names)
                live |= {name: (row, target) for name, row, target in zip(names, *new, strict=True)}
    assert model.n_records_ == len(live)
    assert model.verify().ok
    if live:
        rows, y = map(np.array, zip(*live.values(), strict=True))
        assert state(fitted(0.5, rows, y)) == state(model)


def test_a_deletion_looks_at_no_other_record_and_never_replays():
    model = fitted()
    outcome = model.unlearn([3])
    assert (outcome.kept, outcome.evaluations, outcome.replay_probability) == (True, 1, 0.0)
    assert not model.replay_probability([0, 1, 2]).any()
    assert model.insert(X[:2], Y[:2]).kept
    assert model.replace(X[:2], Y[:2], ids=[7, 8]).kept


def test_a_subject_may_have_any_number_of_records():
    model = fitted(subjects=np.repeat(["ann", "bob"], [399, 1]))
    assert model.unlearn(subjects="ann").removed == 399
    assert state(model) == state(fitted(rows=X[399:], y=Y[399:]))


def test_a_record_that_is_all_zeros_counts_as_one_more():
    model = fitted(rows=np.vstack([X, np.zeros(6)]), y=np.append(Y, 0.0))
    before = model.intercept_
    assert model.unlearn(400).kept
    assert model.intercept_ != before
    assert state(model) == state(fitted())


# --- edges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_with_no_records_left_all_is_zero_and_it_can_go_on(alpha):
    model = fitted(alpha)
    with pytest.warns(UserWarning, match=r"every record has been deleted: .* \(zeros\)"):
        model.unlearn(np.arange(400))
    assert not model.coef_.any()
    assert model.intercept_ == 0.0
    assert model.rank_ == (6 if alpha else 0)
    assert not model.transcript_.sums.any()
    assert model.verify().ok
    model.insert(X, Y)
    assert state(model) == state(fitted(alpha))


def test_of_one_record_the_intercept_is_the_target():
    model = fitted(1.0, X[:1], Y[:1])
    np.testing.assert_allclose([*model.coef_, model.intercept_], [0.0] * 6 + [Y[0]], atol=1e-12)
    through_0 = fitted(1e-3, X[:1], Y[:1], fit_intercept=False)
    assert_like_scikit_learn(through_0, X[:1], Y[:1])


def least_norm(rows, y, fit_intercept=True):
    if not fit_intercept:
        return np.linalg.lstsq(rows, y, rcond=1e-10)[0]
    return np.linalg.lstsq(rows - rows.mean(axis=0), y - y.mean(), rcond=1e-10)[0]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("rows", "rank"),
    [
        (np.column_stack([X, X[:, 0]]), 6),
        (np.column_stack([X, X[:, 0] / 2 - X[:, 1] / 4]), 6),
        (np.column_stack([X, np.zeros(400)]), 6),
        (X[:4], 4),
        (X[:1], 1),
    ],
    ids=["twice the same column", "a combination", "zeros", "few records", "one record"],
)
def test_without_a_penalty_a_singular_matrix_gives_the_least_norm_and_a_warning(rows, rank, fit_intercept):
    y = Y[: len(rows)]
    rank -= fit_intercept and len(rows) < 7
    with pytest.warns(RankWarning, match=rf"^rank {rank} of {rows.shape[1]}: .* least norm .* larger alpha"):
        model = fitted(0.0, rows, y, fit_intercept=fit_intercept)
    assert model.rank_ == rank
    np.testing.assert_allclose(model.coef_, least_norm(rows, y, fit_intercept), rtol=1e-7, atol=1e-9)
    assert model.verify().ok


def test_a_constant_column_has_no_weight_beside_an_intercept():
    rows = np.column_stack([X, np.full(400, 0.1)])
    with pytest.warns(RankWarning, match="^rank 6 of 7"):
        model = fitted(0.0, rows)
    assert abs(model.coef_[6]) < 1e-12
    for alpha in (1e-9, 1e-3, 1.0):
        assert fitted(alpha, rows).coef_[6] == 0.0


def test_a_deletion_that_makes_the_matrix_singular_warns_and_is_done():
    rows = np.column_stack([X[:, :2], np.arange(400) == 17])
    model = fitted(0.0, rows)
    assert model.rank_ == 3
    with pytest.warns(RankWarning, match="^rank 2 of 3: 399 records"):
        outcome = model.unlearn(17)
    assert outcome.removed == 1
    np.testing.assert_allclose(model.coef_, least_norm(np.delete(rows, 17, 0), np.delete(Y, 17)), atol=1e-9)
    model.unlearn(18)  # no news
    model.insert(rows[17:19], Y[17:19])
    assert model.rank_ == 3
    assert model.verify().ok


def test_a_warning_that_is_made_an_error_leaves_a_sound_model():
    rows = np.column_stack([X[:, :2], np.arange(400) == 17])
    model = fitted(0.0, rows)
    with pytest.raises(RankWarning):  # pytest makes errors of them
        model.unlearn(17)
    assert model.n_records_ == 399
    assert model.verify().ok


def test_with_a_penalty_there_is_no_singular_matrix():
    model = fitted(1e-3, np.column_stack([X, X]))
    assert model.rank_ == 12
    np.testing.assert_allclose(model.coef_[:6], model.coef_[6:], rtol=1e-6)


# --- what is refused --------------------------------------------------------------------------------------


def refuses(model, error, match, act):
    model.verify(), model._records.index  # what is worked out once, and then kept, is not at issue
    before = pickle.dumps(model)
    with pytest.raises(error, match=match):
        act(model)
    assert pickle.dumps(model) == before
    assert model.verify().ok


HIGH = np.where(np.arange(6) == 4, 16.5, 0.0)[None]


@pytest.mark.parametrize(
    ("error", "match", "act"),
    [
        (UnknownId, "^ids: id not found: 777", lambda m: m.unlearn([3, 777])),
        (DuplicateId, "^ids: duplicate id 3", lambda m: m.unlearn([3, 3])),
        (DuplicateId, "^ids: 3 is in the model already", lambda m: m.insert(X[:1], Y[:1], ids=[3])),
        (BadRecords, "^X: row 0 has NaN", lambda m: m.insert(np.full((1, 6), np.nan), [0.0])),
        (BadRecords, "^y: row 0 has NaN", lambda m: m.insert(X[:1], np.array([np.inf]))),
        (ValueError, "features", lambda m: m.insert(X[:1, :5], Y[:1])),
        (ValueError, "inconsistent|samples", lambda m: m.insert(X[:2], Y[:1])),
        (ValueError, "1d array", lambda m: m.insert(X[:2], np.zeros((2, 2)))),
        (BadRecords, "^y: expected numbers", lambda m: m.insert(X[:1], np.array(["a"]))),
        (BadRecords, r"^features: column 4 .* feature_bound=16", lambda m: m.insert(HIGH, [0.0])),
        (BadRecords, r"^features: column 4 .* feature_bound=16", lambda m: m.replace(-HIGH, [0.0], ids=3)),
        (BadRecords, r"^targets: .* target_bound=64", lambda m: m.replace(X[:1], [65.0], ids=3)),
        (BadRecords, "^features: column 4", lambda m: m.set_params(alpha=1.0).fit(HIGH, [0.0])),
    ],
)
def test_bad_requests_are_refused_and_leave_no_trace(error, match, act):
    refuses(fitted(), error, match, act)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("alpha", value) for value in (-1.0, np.nan, np.inf, "weak", None, [1.0, 2.0])),
        *(("fit_intercept", value) for value in ("no", None, 2)),
        *(("feature_bound", value) for value in (0.0, -1.0, np.nan, np.inf, "wide", None, [1.0], [1] * 5 + [0], 1e99)),
        *(("target_bound", value) for value in (0.0, -1.0, np.nan, np.inf, "wide", None, [1.0], 1e-99)),
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_parameter_is_refused_by_its_name_when_fitting(name, value):
    model = Ridge(**{name: value})
    with pytest.raises(BadPlan, match=rf"^{name}\b"):
        model.fit(X, Y)
    assert not hasattr(model, "plan_")


@pytest.mark.parametrize(
    ("rows", "y", "match"),
    [
        (X, np.zeros((400, 2)), "1d array"),
        (X, np.full(400, "a"), "^y: expected numbers"),
        (np.where(np.arange(6) == 1, np.nan, X), Y, "NaN"),
        (X[:5], Y, "inconsistent"),
        (X[:, 0], Y, "2D array"),
        (HIGH, np.zeros(1), "^features: column 4"),
        (X[:1], np.array([100.0]), "^targets: .*100"),
    ],
    ids=["two targets", "strings", "NaN", "too few rows", "flat", "high feature", "high target"],
)
def test_a_bad_table_is_refused_and_an_earlier_fit_stays(rows, y, match):
    with pytest.raises(ValueError, match=match):
        Ridge(**BOUNDS).fit(rows, y)
    refuses(fitted(), ValueError, match, lambda model: model.fit(rows, y))


def test_more_records_than_can_be_summed_exactly_are_refused(monkeypatch):
    monkeypatch.setattr("expunge.solvers.normal_equations.EXACT_TO", 400)
    model = fitted()
    refuses(model, BadPlan, "^401 records at once: .* sum 400 exactly", lambda m: m.insert(X[:1], Y[:1]))
    message = "^402 records at once: .* several requests"
    refuses(model, BadPlan, message, lambda m: m.replace(X[:201], Y[:201], ids=np.arange(201)))
    model.replace(X[:200], Y[:200], ids=np.arange(200))
    assert RidgePlan(1.0, True, (1.0,), 1.0).size_class == (0, EXACT_TO)


def test_ctrl_c_at_any_line_leaves_a_sound_model_that_goes_on():
    base = fitted(rows=X[:40, :2], y=Y[:40])
    after = {state(fitted(rows=X[gone:40, :2], y=Y[gone:40]))[0] for gone in (1, 2)}
    for line in itertools.count():
        model = copy.deepcopy(base)
        done = interrupted(lambda model=model: model.unlearn([0]), line)
        assert model.verify().ok
        assert model.n_records_ in (39, 40)
        if model.n_records_ == 40:
            model.unlearn([0])
        model.unlearn([1])
        assert state(model)[0] in after
        if done:
            break
    assert line > 200


def test_a_change_that_runs_out_of_memory_is_finished_by_the_next_request(monkeypatch):
    model = fitted()
    forward = expunge.engine.changing.forward
    monkeypatch.setattr(expunge.engine.changing, "forward", lambda *given: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        model.unlearn(3)
    monkeypatch.setattr(expunge.engine.changing, "forward", forward)
    model.unlearn(4)
    assert state(model) == state(fitted(rows=np.delete(X, [3, 4], 0), y=np.delete(Y, [3, 4])))


# --- what is kept, and what is handed out -----------------------------------------------------------------


def test_verify_names_a_flipped_bit_and_a_record_that_was_smuggled_in():
    model = fitted()
    model._owner.transcript.sums.array.view(np.uint64)[0, 9] ^= np.uint64(1 << 40)
    (damage, *rest) = model.verify().problems
    assert damage == "sums: row 0, column 9: bit 40 is flipped"
    assert rest
    model = fitted()
    sums = model._owner.transcript.sums
    query = model.plan_.learner.query
    sums.write(0, sums[0:1] - query.contributions(0, None, (X[17:18], Y[17:18])))
    assert any("record 17 was added from outside" in problem for problem in model.verify().problems)


def test_a_pickled_model_goes_on_where_it_was():
    model = fitted()
    model.unlearn([5])
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        one.unlearn([6, 7])
    assert state(other) == state(model)
    assert other._owner.transcript.answers is other._owner.transcript.sums
    assert other.verify().ok


def test_the_plain_model_is_scikit_learns_own_and_does_not_change():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[*"abcdef"])
    model = Ridge(2.0, **BOUNDS).fit(frame, Y)
    plain = model.to_sklearn()
    assert type(plain) is sklearn.linear_model.Ridge
    assert plain.get_params()["alpha"] == 2.0
    before = plain.predict(frame)
    np.testing.assert_allclose(before, model.predict(frame), rtol=1e-12)
    model.unlearn(np.arange(300))
    assert np.array_equal(plain.predict(frame), before)


def test_partial_fit_fits_and_then_inserts():
    model = Ridge(**BOUNDS)
    for part in np.split(np.arange(400), 8):
        model.partial_fit(X[part], Y[part])
    assert state(model) == state(fitted())
    assert model.n_records_ == 400


def test_replan_takes_parameters_as_they_are_now():
    model = fitted(1.0)
    model.set_params(alpha=7.0, feature_bound=[16.0] * 6)
    model.replan()
    assert state(model) == state(fitted(7.0))
    refuses(model.set_params(feature_bound=0.1), BadRecords, "^features: column 0", lambda m: m.replan())


def test_it_works_in_pipelines_and_grid_searches():
    whole = make_pipeline(BoundedScaler(-16, 16), Ridge()).fit(X, Y)
    assert whole[-1].unlearn(3).removed == 1
    found = GridSearchCV(Ridge(**BOUNDS), {"alpha": [1e-3, 1e3], "fit_intercept": [True, False]}, cv=3).fit(X, Y)
    assert found.best_params_ == {"alpha": 1e-3, "fit_intercept": True}
    assert found.best_estimator_.score(X, Y) > 0.5


def test_a_column_that_is_tiny_beside_its_bound_is_warned_of():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2)) * [1.0, 1e-7]
    with pytest.warns(UserWarning, match=r"^X: column 1 has at most .* Declare a smaller feature_bound"):
        Ridge().fit(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ridge(feature_bound=[8.0, 1e-5]).fit(X, X[:, 0])


def test_before_a_fit_there_is_nothing_to_show():
    for name in ("coef_", "intercept_", "rank_"):
        with pytest.raises(NotFittedError):
            getattr(Ridge(), name)


def test_its_plan_covers_as_many_records_as_can_be_summed():
    plan = Ridge().fit([[0.0], [1.0]], [0.0, 1.0]).plan_
    assert plan.covers(0)
    assert plan.covers(EXACT_TO)
    assert not plan.covers(EXACT_TO + 1)
