"""What is refused: every message names the field, and nothing has changed."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from cases.in_solver import in_solver
from expunge.base.errors import BadPlan, BadRecords, DuplicateId, UnknownId
from expunge.models import HuberRegressor, LinearRegression, LinearRegressor, LinearSVC, LogisticRegression
from expunge.solvers import DualAveraging

pytestmark = pytest.mark.filterwarnings("ignore::expunge.PlanWarning")  # looked at between set_params and fit


def table(count=20, features=3, seed=0):
    X = np.random.default_rng(seed).normal(size=(count, features))
    return X, np.arange(count) % 3


X, Y = table()
PLAIN = {"rho": 0.5, "random_state": 0}


def fitted(**given):
    more = {name: given.pop(name) for name in ("ids", "subjects") if name in given}
    return LogisticRegression(**in_solver(**{**PLAIN, **given})).fit(X, Y, **more)


def everything(model):
    """All that is kept, comparable."""
    records, transcript = model._records, model.transcript_
    columns = [column for place in range(len(records.places)) for column in records.places.block(place)]
    tables = [transcript.sums[:], transcript.answers[:], transcript.iterates[:], *records.index.entries()]
    arrays = [*(column.toarray() if sparse.issparse(column) else column for column in columns), *tables]
    rest = {name: value for name, value in vars(model).items() if name not in ("_records", "transcript_")}
    parts = {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in rest.items()}
    return [array.tobytes() for array in arrays], records.count, records.staged, parts


def refuses(model, error, match, act):
    """Assert that the model refuses, and is as before."""
    before = everything(model)
    with pytest.raises(error, match=match):
        act(model)
    assert everything(model) == before
    assert model.verify().ok


def refuses_to_fit(error, match, estimator=LogisticRegression, X=X, y=Y, **given):
    """Assert that a fit fails with nothing left of it, and that a failing refit leaves the old fit in place."""
    more = {name: given.pop(name) for name in ("ids", "subjects") if name in given}
    fresh = estimator(**in_solver(**{**PLAIN, **given}))
    before = vars(fresh).copy()
    with pytest.raises(error, match=match):
        fresh.fit(X, y, **more)
    assert vars(fresh) == before
    good = {"target_range": (0, 2)} if issubclass(estimator, LinearRegressor) else {}
    model = estimator(**in_solver(**PLAIN, **good)).fit(*table(12, seed=1))
    model.set_params(**in_solver(**{**PLAIN, **given}))
    refuses(model, error, match, lambda model: model.fit(X, y, **more))
    model.set_params(random_state=0)
    assert model.unlearn(3).removed == 1


# --- records --------------------------------------------------------------------------------------------


def test_one_class_alone_is_refused():
    refuses_to_fit(BadRecords, r"^y: there is only one class", y=np.zeros(20))
    refuses_to_fit(BadRecords, r"^y: there is only one class", LinearSVC, y=np.array(["a"] * 20))


def test_one_class_alone_is_fine_if_more_are_declared():
    assert fitted(classes=[0, 1, 2, 7]).coef_.shape == (4, 3)
    assert LinearSVC(classes=[0, 1], solver="dual_averaging").fit(X, np.zeros(20)).predict(X).shape == (20,)


@pytest.mark.parametrize("strange", [[7], [1.5], ["a"], [-1], [True]], ids=str)
def test_a_class_that_the_model_does_not_know_is_refused(strange):
    model = LogisticRegression(**in_solver(**PLAIN)).fit(X, Y + 10)
    refuses(
        model, BadRecords, r"^y: .* is not one of the model's classes 10, 11, 12", lambda m: m.insert(X[:1], strange)
    )
    refuses(model, BadRecords, r"^y: .* is not one of the model's classes", lambda m: m.replace(X[:1], strange, ids=3))


def test_a_number_where_classes_are_strings_is_refused():
    model = LogisticRegression(**in_solver(**PLAIN)).fit(X, np.array(["10", "11", "12"])[Y])
    refuses(model, BadRecords, "^y: .* is not one of the model's classes '10'", lambda m: m.insert(X[:1], [10]))


def test_targets_outside_the_declared_classes_are_refused():
    refuses_to_fit(BadRecords, "^y: .*2.* is not one of the model's classes 0, 1, 5", classes=[0, 1, 5])
    refuses_to_fit(BadPlan, "^classes=.*at least two", classes=[4])
    refuses_to_fit(BadPlan, "^classes=.*at least two", classes=[])


def test_continuous_targets_are_no_classes():
    refuses_to_fit(ValueError, "Unknown label type", y=X[:, 0])


def test_ids_that_stand_twice_are_refused():
    refuses_to_fit(DuplicateId, "^ids: duplicate id 'a'", ids=["a", "a", *map(str, range(18))])
    refuses(fitted(), DuplicateId, "^ids: duplicate id 50", lambda m: m.insert(X[:2], Y[:2], ids=[50, 50]))
    refuses(fitted(), DuplicateId, "^ids: duplicate id 3", lambda m: m.unlearn([3, 4, 3]))
    refuses(fitted(), DuplicateId, "^ids: duplicate id 3", lambda m: m.replace(X[:2], Y[:2], [3, 3]))


def test_an_id_that_is_taken_is_refused():
    refuses(fitted(), DuplicateId, "^ids: 19 is in the model already", lambda m: m.insert(X[:2], Y[:2], ids=[50, 19]))


def test_the_wrong_number_of_ids_or_subjects_is_refused():
    refuses_to_fit(BadRecords, "^ids: 3 for 20 records", ids=[1, 2, 3])
    refuses_to_fit(BadRecords, "^subjects: 3 for 20 records", subjects=[1, 2, 3])
    refuses(fitted(), BadRecords, "^ids: 1 for 2 records", lambda m: m.insert(X[:2], Y[:2], ids=[50]))
    refuses(fitted(), BadRecords, "^ids: 1 for 2 records", lambda m: m.replace(X[:2], Y[:2], ids=[3]))


def test_ids_that_are_neither_integers_nor_strings_are_refused():
    refuses_to_fit(BadRecords, "^ids: ids must be integers or strings", ids=np.arange(20) / 2)
    refuses(fitted(), BadRecords, "^ids: ids must be integers or strings", lambda m: m.unlearn(3.5))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(bad):
    rows = X.copy()
    rows[4, 1] = bad
    refuses_to_fit(BadRecords, "X: row 4 has NaN or infinity", X=rows)
    refuses(fitted(), BadRecords, "X: row 1 has NaN or infinity", lambda m: m.insert(rows[3:6], Y[3:6]))
    refuses(fitted(), BadRecords, "X: row 0 has NaN or infinity", lambda m: m.replace(rows[4:5], Y[:1], ids=1))
    refuses(fitted(), ValueError, "X contains", lambda m: m.predict(rows))
    targets = Y.astype(float)
    targets[3] = bad
    refuses_to_fit(BadRecords, "y: row 3 has NaN or infinity", LinearRegression, y=targets, target_range=(0, 2))
    refuses_to_fit(BadRecords, "y: row 3 has NaN or infinity", y=targets)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_in_sparse_rows_are_refused(bad):
    rows = X.copy()
    rows[4, 1] = bad
    refuses_to_fit(ValueError, "X contains", X=sparse.csr_array(rows))
    model = LogisticRegression(**in_solver(**PLAIN)).fit(sparse.csr_array(X), Y)
    refuses(model, ValueError, "X contains", lambda m: m.insert(sparse.csr_array(rows), Y))


def test_rows_of_another_width_are_refused():
    for act in (
        lambda m: m.insert(X[:, :2], Y),
        lambda m: m.replace(X[:1, :2], Y[:1], 3),
        lambda m: m.predict(X[:, :2]),
    ):
        refuses(fitted(), ValueError, "2 features", act)
    refuses(fitted(), ValueError, "2D array", lambda m: m.insert(X[0], Y[:1]))
    refuses(fitted(), ValueError, "inconsistent numbers of samples", lambda m: m.insert(X[:2], Y[:1]))


def test_nothing_at_all_is_refused_or_does_nothing():
    refuses_to_fit(ValueError, "0 sample", X=X[:0], y=Y[:0])
    model = fitted()
    before = everything(model)[:3]
    assert model.unlearn([]).removed == 0
    assert model.insert(X[:0], Y[:0]).added == 0
    assert model.insert(X[:0], Y[:0], ids=[]).kept
    assert model.partial_fit(X[:0], Y[:0]).n_records_ == model.n_records_
    assert model.replace(X[:0], Y[:0], ids=[]).added == 0
    assert everything(model)[:3] == before
    refuses(model, ValueError, "inconsistent|samples", lambda m: m.insert(X[:0], Y[:2]))


# --- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [lambda m: m.unlearn(3), lambda m: m.insert(X, Y), lambda m: m.replace(X[:1], Y[:1], 0), lambda m: m.verify(),
     lambda m: m.predict(X), lambda m: m.replay_probability(3), lambda m: m.to_sklearn(), lambda m: m.n_records_],
    ids=["unlearn", "insert", "replace", "verify", "predict", "replay_probability", "to_sklearn", "n_records_"],
)  # fmt: skip
def test_before_a_fit_there_is_nothing_to_ask(act):
    model = LogisticRegression(solver="dual_averaging")
    with pytest.raises(NotFittedError, match="not fitted"):
        act(model)
    assert vars(model) == vars(LogisticRegression(solver="dual_averaging"))


def test_unknown_records_and_subjects_are_refused_and_the_known_ones_stay():
    model = fitted(subjects=np.arange(20) + 100)
    refuses(model, UnknownId, "^ids: id not found: 77", lambda m: m.unlearn([3, 77]))
    refuses(model, UnknownId, "^ids: id not found: 77", lambda m: m.unlearn(77))
    refuses(model, UnknownId, "^ids: id not found: 77", lambda m: m.replace(X[:2], Y[:2], [3, 77]))
    refuses(model, UnknownId, "^ids: id not found: 77", lambda m: m.replay_probability([3, 77]))
    refuses(model, UnknownId, "^subjects: subject not found: 5", lambda m: m.unlearn(subjects=[103, 5]))
    refuses(model, UnknownId, "^ids: .* are integers", lambda m: m.unlearn("3"))
    refuses(model, UnknownId, "^subjects: .* are integers", lambda m: m.unlearn(subjects="103"))
    model.unlearn(3)
    refuses(model, UnknownId, "^ids: id not found: 3", lambda m: m.unlearn(3))


def test_a_deletion_names_ids_or_subjects_and_not_both():
    model = fitted(subjects=np.arange(20))
    refuses(model, BadRecords, "either ids or subjects", lambda m: m.unlearn())
    refuses(model, BadRecords, "either ids or subjects", lambda m: m.unlearn([3], [3]))


def test_more_records_of_a_subject_than_declared_are_refused():
    crowd = [*np.arange(18), 5, 5]
    refuses_to_fit(BadRecords, "^subjects: 5 would have 3 records, records_per_subject=1", subjects=crowd)
    refuses_to_fit(BadRecords, "records_per_subject=2", subjects=crowd, records_per_subject=2)
    model = fitted(subjects=[*np.arange(18), 5, 17], records_per_subject=2)
    message = "^subjects: 5 would have 3 records, records_per_subject=2"
    refuses(model, BadRecords, message, lambda m: m.insert(X[:2], Y[:2], subjects=[4, 5]))
    message = "^subjects: 99 would have 3 records"
    refuses(model, BadRecords, message, lambda m: m.insert(X[:3], Y[:3], subjects=[99, 99, 99]))
    named = fitted(subjects=[f"s{j}" for j in range(20)])
    refuses(named, BadRecords, "^subjects: 's3' would have 2", lambda m: m.insert(X[:1], Y[:1], subjects=["s3"]))


def test_the_declared_number_counts_also_if_the_parameter_is_changed_later():
    model = fitted(subjects=np.arange(20))
    model.set_params(solver__records_per_subject=9)
    refuses(model, BadRecords, "records_per_subject=1", lambda m: m.insert(X[:1], Y[:1], subjects=[3]))


def test_subjects_are_given_for_all_records_or_for_none():
    message = "^subjects: give them for all records or for none"
    refuses(fitted(), BadRecords, message, lambda m: m.insert(X[:2], Y[:2], subjects=[3, 44]))
    refuses(fitted(), BadRecords, message, lambda m: m.insert(X[:1], Y[:1], subjects=[44]))
    refuses(fitted(subjects=np.arange(20)), BadRecords, message, lambda m: m.insert(X[:1], Y[:1]))


def test_records_with_ids_of_their_own_want_ids_for_newcomers():
    message = "^ids: this model's records have ids"
    refuses(fitted(ids=np.arange(20)), BadRecords, message, lambda m: m.insert(X[:1], Y[:1]))


# --- parameters -----------------------------------------------------------------------------------------


BAD = {
    "rho": [0.0, -0.1, 1.1, np.nan, "much", None, True],
    "solver": ["sgd", None, DualAveraging],
    "finish": ["exact", "none", 1],
    "C": [0.0, -1.0, 2.0, "much", None],
    "standardize": [False, "no", None],
    "n_components": [0, -1, 4, 1.5, "many", True],
    "schedule": ["random", None],
    "mechanism": ["identity", None],
    "coupling": ["adaptive", "none"],
    "steps": [0, -1, 1.5, "many", True],
    "batch": [0, -1, 1.5, "many", True],
    "epochs": [0, -1, 1.5, "many", True],
    "clip": [0.0, -1.0, np.nan, "hard", True],
    "alpha": [-1.0, np.nan, np.inf, "weak", None],
    "radius": [0.0, -1.0, np.nan, np.inf, "wide"],
    "domain": ["simplex", 3],
    "feature_norm": [0.0, -1.0, np.nan, np.inf, None, 1e-40],
    "fit_intercept": ["no", None, 2],
    "step_size": [0.0, -1.0, np.nan, "small"],
    "selector": ["best", None],
    "records_per_subject": [0, -1, 1.5, None],
    "expected_records": [0, -5, 2.5, np.nan, np.inf, "many", True],
    "horizon": [0, -5, 2.5, np.nan, "long", True, 100_000],
    "random_state": [-1, 1.5, "seed"],
}


@pytest.mark.parametrize("estimator", [LogisticRegression, HuberRegressor], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, all_ in BAD.items() for value in all_], ids=str)
def test_a_bad_parameter_is_refused_by_its_name_when_fitting(estimator, name, value):
    given = {"target_range": (0, 2)} if estimator is HuberRegressor and name != "solver" else {}
    refuses_to_fit(BadPlan, rf"\b{name}\b", estimator, **given, **{name: value})


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, np.nan, "half", True])
def test_a_bad_share_of_the_records_is_refused(rate):
    refuses_to_fit(BadPlan, "^rate=", solver="gradient_descent", rate=rate)
    refuses_to_fit(BadPlan, "^rate=", y=Y > 0, solver="newton", rate=rate)


@pytest.mark.parametrize("rounds", [-1, 1.5, "many", True])
def test_a_bad_number_of_rounds_is_refused(rounds):
    refuses_to_fit(BadPlan, "^rounds=", y=Y > 0, solver="newton", rounds=rounds)


@pytest.mark.parametrize("name", sorted(set(LogisticRegression().get_params()) & set(BAD)))
def test_a_bad_parameter_is_refused_by_fit_and_not_before(name):
    assert getattr(LinearSVC(**{name: BAD[name][0]}), name) == BAD[name][0]
    LinearSVC().set_params(**{name: BAD[name][0]})


def test_every_parameter_has_been_tried():
    elsewhere = {"classes", "class_weight", "target_range", "epsilon"}
    estimators = HuberRegressor().get_params().keys() | LinearSVC().get_params().keys()
    assert estimators | DualAveraging.parameters().keys() == BAD.keys() | elsewhere


@pytest.mark.parametrize("clip", [0.0, -1.0, np.nan, "hard"], ids=str)
def test_a_bad_clip_of_least_squares_is_called_clip(clip):
    refuses_to_fit(BadPlan, r"\bclip\b", LinearRegression, target_range=(0, 2), clip=clip)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan, np.inf, "wide", None], ids=str)
def test_a_bad_epsilon_is_called_epsilon(epsilon):
    refuses_to_fit(BadPlan, r"\bepsilon\b", HuberRegressor, target_range=(0, 2), epsilon=epsilon)


@pytest.mark.parametrize(
    "declared", [None, (2, 0), (1, 1), (np.nan, 2), (0, np.inf), (0, 1, 2), 5, "ab", ("a", "b")], ids=str
)
@pytest.mark.parametrize("estimator", [LinearRegression, HuberRegressor], ids=lambda kind: kind.__name__)
def test_a_target_range_that_is_missing_or_none_is_refused(estimator, declared):
    refuses_to_fit(BadPlan, "^target_range=", estimator, target_range=declared)


def test_a_target_range_changed_after_the_fit_does_not_reach_the_fitted_model():
    model = LinearRegression(**in_solver(target_range=(0, 2), epochs=2, **PLAIN)).fit(X, Y)
    same = LinearRegression(**in_solver(target_range=(0, 2), epochs=2, **PLAIN)).fit(X, Y)
    model.set_params(solver__target_range=(-100, 100))
    for one in (model, same):
        one.insert(X[:2], Y[:2])
        one.unlearn([0, 1, 2])
    assert model.verify().ok
    np.testing.assert_array_equal(model.coef_, same.coef_)


@pytest.mark.parametrize("weight", ["balanced", [1, 2, 3], 3.0], ids=str)
def test_class_weights_that_would_read_the_records_are_refused(weight):
    refuses_to_fit(BadPlan, "^class_weight=.* would depend on the records", class_weight=weight)


def test_weights_of_unknown_classes_are_refused():
    refuses_to_fit(BadPlan, "^class_weight: 9 is not one of the classes 0, 1, 2", class_weight={0: 1.0, 9: 2.0})
    refuses_to_fit(BadPlan, "^class_weight: 'a' is not one of the classes", class_weight={"a": 2.0})


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf, "heavy", None], ids=str)
def test_weights_that_are_no_positive_numbers_are_refused(weight):
    refuses_to_fit(BadPlan, r"\bclass_weight\b", class_weight={1: weight})


def test_choices_that_do_not_go_together_are_refused():
    for named, given in (
        ("steps=4 and batch=5", {"steps": 4, "batch": 5}),
        ("epochs=2 needs schedule='scattered'", {"epochs": 2, "schedule": "shuffled"}),
        ("epochs=2 needs schedule='scattered'", {"epochs": 2, "schedule": "arrival"}),
        ("coupling='sequential' needs mechanism='tree'", {"coupling": "sequential"}),
        ("solver='frank_wolfe' needs a bounded domain", {"solver": "frank_wolfe", "domain": "everywhere"}),
        ("n_components with schedule='arrival'", {"n_components": 2, "schedule": "arrival"}),
        ("n_components=4: .* from 1 to 3", {"n_components": 4}),
        ("n_components=0: .* from 1 to 3", {"n_components": 0}),
    ):
        refuses_to_fit(BadPlan, named, **given)


def test_numpys_numbers_are_numbers():
    solver = DualAveraging(
        steps=np.int64(4), epochs=np.int32(2), clip=np.float32(0.5), alpha=np.float64(0.1), radius=np.float32(3),
        feature_norm=np.float64(2), step_size=np.float32(0.1), records_per_subject=np.int64(2),
        n_components=np.int64(2),
    )  # fmt: skip
    model = LogisticRegression(
        rho=np.float32(0.5), solver=solver, expected_records=np.int64(64), random_state=np.int64(3)
    )
    model.fit(X, Y)
