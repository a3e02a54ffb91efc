"""A user's own structure from a keyed sample: every state is, bit for bit, that of a fresh fit with the same keys."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, PolynomialFeatures, StandardScaler

import expunge
from expunge import Sampled
from expunge.base.errors import BadPlan, BadRecords, PlanWarning, SizeWarning, UnknownParameter
from expunge.engine import finding, sampling

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 4)) * [1.0, 30.0, 0.01, 1.0] + [0.0, 500.0, 0.0, 7.0]
LINEAR = X[:, 0] + (X[:, 1] - 500.0) / 30.0
BINARY = np.where(LINEAR + 0.5 * RNG.normal(size=2000) > 0, "yes", "no")
THREE = np.digitize(LINEAR + 0.3 * RNG.normal(size=2000), [-0.7, 0.7])
AMOUNTS = 50.0 + 10.0 * LINEAR + RNG.normal(size=2000)
TARGETS = {"newton": BINARY, "three": THREE, "ridge": AMOUNTS, "ridge_classifier": THREE}
CLASSES = {"newton": ["no", "yes"], "three": [0, 1, 2], "ridge_classifier": [0, 1, 2]}
BINS = KBinsDiscretizer(4, encode="onehot", strategy="quantile", quantile_method="averaged_inverted_cdf")
STRUCTURES = {
    "scaled": StandardScaler(),
    "bins": BINS,
    "trees": RandomTreesEmbedding(5, max_depth=2),
    "pca": PCA(2),
    "pipeline": make_pipeline(StandardScaler(), PCA(3), PolynomialFeatures(2, include_bias=False)),
}
COLUMNS = {"trees": 20}
pytestmark = pytest.mark.filterwarnings("ignore::expunge.PlanWarning")


def sampled(kind, structure="scaled", **given):
    head = "newton" if kind == "three" else kind
    chosen = STRUCTURES[structure] if isinstance(structure, str) else structure
    if isinstance(structure, str) and structure in COLUMNS:
        given = {"columns": COLUMNS[structure], **given}
    return Sampled(chosen, **{"head": head, "classes": CLASSES.get(kind), "rho": 0.3, "random_state": 0, **given})


def fitted(kind, structure="scaled", records=120, ids=None, subjects=None, **given):
    return sampled(kind, structure, **given).fit(X[:records], TARGETS[kind][:records], ids=ids, subjects=subjects)


def bits(model):
    """Everything that is kept, in bytes."""
    kept, records = model.transcript_, model._records
    tables = kept.sums, kept.iterates, records.keys_at(0), records.ids_at(0), *records.batch_at(0)
    return [np.ascontiguousarray(table).tobytes() for table in tables]


def assert_sound(model):
    """The whole state is that of a fresh fit of the live records with their keys, in any order."""
    report = model.verify()
    assert report.ok, report.problems
    records, structure = model._records, type(model.plan_.structure)(model.plan_.settings)
    keys, batch = records.keys_at(0), records.batch_at(0)
    order = np.random.default_rng(1).permutation(len(keys))
    keys, batch = keys[order], tuple(column[order] for column in batch)
    joined = structure.joins(None, keys, batch)
    found = None, structure.find((None,), keys[joined], tuple(column[joined] for column in batch))
    sums = structure.total(found, batch)
    assert model.transcript_.iterates[0].tobytes() == structure.pack(found).tobytes()
    assert model.transcript_.sums.tobytes() == sums.tobytes()
    parameters = structure.model(found, sums)[structure.packed :]
    assert model._published[3].tobytes() == parameters.tobytes()
    assert np.isfinite(parameters).all()


# --- as good as others ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TARGETS)
def test_it_is_nearly_as_good_as_a_pipeline_on_everyone(kind):
    y, half = TARGETS[kind], 1000
    model = sampled(kind, rho=0.1).fit(X[:half], y[:half])
    theirs = make_pipeline(StandardScaler(), Ridge() if kind == "ridge" else LogisticRegression())
    score, best = model.score(X[half:], y[half:]), theirs.fit(X[:half], y[:half]).score(X[half:], y[half:])
    assert score > best - (0.1 if kind == "ridge_classifier" else 0.02)  # least squares has the middle class wrong


def test_bins_from_a_sample_find_what_no_line_does():
    y = np.abs(X[:, 0]) > 0.7
    model = Sampled(KBinsDiscretizer(8), rho=0.2, random_state=0).fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) > 0.9


def test_amounts_have_the_coefficients_of_ridge():
    model = fitted("ridge", records=2000, rho=1.0, C=10.0)
    theirs = Ridge(alpha=0.1).fit(model.transform(X) / model.structure_.transform(X).std(axis=0), AMOUNTS)
    assert np.allclose(model.predict(X), theirs.predict(model.transform(X)), rtol=1e-4)


def test_scores_follow_from_features_and_coefficients():
    for kind in TARGETS:
        model = fitted(kind)
        features = model.transform(X)
        assert np.allclose(features, model.structure_.transform(X), atol=1e-4)
        scores = model.predict(X) if kind == "ridge" else model.decision_function(X)
        expected = features @ model.coef_.T + model.intercept_
        assert np.allclose(scores, expected.reshape(scores.shape), atol=1e-6)


def test_probabilities_are_there_where_they_mean_something():
    model = fitted("three")
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert (model.predict(X) == model.predict_proba(X).argmax(axis=1)).all()
    assert np.allclose(np.exp(fitted("newton").predict_log_proba(X)), fitted("newton").predict_proba(X))
    assert not hasattr(fitted("ridge_classifier"), "predict_proba")
    assert not hasattr(fitted("ridge"), "decision_function")
    assert is_classifier(fitted("ridge_classifier"))
    assert is_regressor(fitted("ridge"))
    assert not is_classifier(fitted("ridge"))


# --- bit for bit a fresh fit ------------------------------------------------------------------------------


def random_request(model, kind, rng):
    """One request of any kind, of one record or many, to whoever is there."""
    alive, number = rng.permutation(model.ids_), int(rng.choice([1, 1, 2, 30]))
    some = rng.integers(2000, size=number)
    rows, targets = X[some], TARGETS[kind][some]
    match int(rng.integers(3)):
        case 0 if len(alive):
            return lambda: model.unlearn(alive[:number])
        case 1 if len(alive):
            return lambda: model.replace(rows[: len(alive)], targets[: len(alive)], ids=alive[:number])
        case _:
            return lambda: model.insert(rows, targets)


def go_on(model, kind, rng, requests):
    for _ in range(requests):
        random_request(model, kind, rng)()
        assert_sound(model)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_after_any_history_the_state_is_that_of_a_fresh_fit_with_the_same_keys(kind, structure):
    rng = np.random.default_rng([*map(ord, kind + structure)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        go_on(fitted(kind, structure, 80, rho=0.2, random_state=rng), kind, rng, 5)
        go_on(fitted(kind, structure, 30, rho=1.0, random_state=rng), kind, rng, 2)


@pytest.mark.parametrize(("kind", "structure"), [("newton", "pipeline"), ("ridge", "trees"), ("ridge", "bins")])
def test_the_same_in_a_file(kind, structure, tmp_path):
    path, rng = tmp_path / "model", np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted(kind, structure, random_state=None).save(path)
        with expunge.open(path, structure=clone(STRUCTURES[structure])) as model:
            go_on(model, kind, rng, 4)
            predicted = model.predict(X)
            model.compact()
            go_on(model, kind, rng, 1)
            predicted = model.predict(X)
        with expunge.open(path, structure=clone(STRUCTURES[structure]), read_only=True) as model:
            assert (model.predict(X) == predicted).all()
        with expunge.open(path, structure=clone(STRUCTURES[structure])) as model:
            go_on(model, kind, rng, 2)


@pytest.mark.long
@pytest.mark.parametrize(("structure", "kind"), list(zip(STRUCTURES, [*TARGETS, "newton"], strict=True)))
def test_a_thousand_requests(structure, kind):
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        go_on(fitted(kind, structure, 200, rho=0.1, random_state=rng), kind, rng, 1000)


def test_a_deletion_outside_the_sample_changes_sums_only_and_one_inside_finds_all_anew():
    model, kinds = fitted("newton"), set()
    for one in range(30):
        before, number = model.transcript_.iterates.tobytes(), model.n_records_
        outcome = model.unlearn(one)
        assert (model.transcript_.iterates.tobytes() == before) == outcome.kept
        assert outcome.evaluations == (1 if outcome.kept else number)
        kinds.add(outcome.kept)
    assert kinds == {True, False}
    assert np.allclose(model.replay_probability(model.ids_[:10]), 0.3)


def test_a_bulk_finds_all_anew_once_at_most(monkeypatch):
    model, calls, find = fitted("newton", rho=0.5), [], sampling.find_structure
    monkeypatch.setattr(sampling, "find_structure", lambda *given: calls.append(1) or find(*given))
    assert not model.unlearn(np.arange(60)).kept
    assert len(calls) == 1
    assert_sound(model)


def test_subjects_share_a_key():
    model = fitted("newton", subjects=np.arange(120) // 4)
    assert len(np.unique(model._records.keys_at(0))) == 30
    model.insert(X[:4], BINARY[:4], subjects=[0, 0, 77, 77])
    assert len(np.unique(model._records.keys_at(0))) == 31
    assert model.unlearn(subjects=[0, 77]).removed == 8
    assert_sound(model)


@pytest.mark.parametrize("kind", TARGETS)
def test_all_may_leave_one_after_the_other_and_come_back(kind):
    model = fitted(kind, records=20, rho=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in model.ids_.tolist():  # on the way the sample is of one record, one class, and nobody
            model.unlearn(one)
            assert_sound(model)
        assert len(set(np.atleast_1d(model.predict(X[:50])).tolist())) == 1
        assert model.structure_ is None
        assert model.transform(X[:3]).shape == (3, 0)
        model.insert(X[:50], TARGETS[kind][:50])
    assert_sound(model)
    assert model.structure_ is not None


def test_a_class_may_vanish():
    model = fitted("three", rho=0.5)
    model.unlearn(np.flatnonzero(THREE[:120] == 1))
    assert_sound(model)
    assert (model.predict(X[:120]) != 1).mean() > 0.9


class Marked(TransformerMixin, BaseEstimator):
    """Keeps the rows that it was fitted on."""

    def fit(self, X, y=None):
        self.kept_ = X.copy()
        return self

    def transform(self, X):
        return X - self.kept_.mean(axis=0)


def test_nothing_is_left_of_one_in_the_sample_nor_is_the_fitted_transformer_pickled():
    model = fitted("ridge", Marked(), rho=1.0)
    _ = model.coef_
    slot = int(np.flatnonzero(model._records.ids_at(0) == 17)[0])
    key, row = model._records.keys_at(0)[slot].tobytes(), X[17].tobytes()
    assert pickle.dumps(model).count(row) == 1  # among the records, and nowhere else
    model.unlearn(17)
    assert row not in model.structure_.kept_.tobytes()
    for part in (key, row):
        assert part not in pickle.dumps(model)


def test_copies_and_pickles_go_on_alike():
    model = fitted("newton", "pipeline")
    twin, other = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    assert np.array_equal(other.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(twin.transform(X), model.transform(X))
    assert twin.replay_probability([3]) == model.replay_probability([3])
    for one in (model, twin, other, pickle.loads(pickle.dumps(model))):
        if one.n_records_ == 120:
            one.unlearn([3, 5])
        assert_sound(one)
        assert bits(model) == bits(one)


def test_what_is_found_is_found_again_once(monkeypatch):
    model = pickle.loads(pickle.dumps(fitted("newton")))
    calls, find = [], finding.find_structure
    monkeypatch.setattr(finding, "find_structure", lambda *given: calls.append(1) or find(*given))
    for _ in range(3):
        _ = model.coef_
        model.replay_probability([3])
        model.predict(X)
    assert len(calls) == 1


def test_partial_fit_and_replan():
    model = sampled("newton", expected_records=400)
    for first in range(0, 400, 100):
        model.partial_fit(X[first : first + 100], BINARY[first : first + 100])
    assert model.n_records_ == 400
    assert_sound(model)
    model.set_params(structure=PCA(2)).replan()
    assert model.coef_.shape == (1, 2)
    assert_sound(model)
    with pytest.raises(BadPlan, match="head"):
        model.set_params(head="ridge", classes=None).replan()


@pytest.mark.filterwarnings("ignore:head")
def test_a_head_that_is_set_later_takes_effect_at_the_next_fit():
    codes = (BINARY == "yes").astype(float)
    model = Sampled(StandardScaler(), rho=0.3, random_state=0).fit(X[:120], codes[:120])
    before = model.predict(X)
    model.set_params(head="ridge")
    assert np.array_equal(model.predict(X), before)
    model.insert(X[120:140], codes[120:140])
    assert {*model._records.batch_at(0)[1].tolist()} == {-1.0, 1.0}
    assert_sound(model)
    assert model.fit(X[:120], AMOUNTS[:120]).score(X, AMOUNTS) > 0.9
    assert not hasattr(model, "classes_")
    assert model.set_params(head="newton").fit(X[:120], codes[:120]).score(X, codes) > 0.8


def test_interrupted_in_the_middle_of_a_fit_it_is_finished_later(monkeypatch):
    model = fitted("newton", rho=1.0)
    find = sampling.find_structure
    monkeypatch.setattr(sampling, "find_structure", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.unlearn(5)
    monkeypatch.setattr(sampling, "find_structure", find)
    model.unlearn(6)
    assert model.n_records_ == 118
    assert_sound(model)


# --- what a structure sees --------------------------------------------------------------------------------


class Spy(TransformerMixin, BaseEstimator):
    """Notes what it is shown."""

    seen = []  # noqa: RUF012

    def fit(self, X, y=None):
        Spy.seen.append((X.copy(), np.array(y)))
        return self

    def transform(self, X):
        assert len(X) == 1  # it is on no list, so rows come one by one
        return X


def test_it_is_fitted_on_the_sample_only():
    Spy.seen = []
    model = sampled("newton", Spy(), columns=4).fit(X[:200], BINARY[:200])
    records, structure = model._records, model.plan_.structure
    chosen = structure.joins(None, records.keys_at(0), ())
    ((rows, targets),) = Spy.seen
    assert 0 < chosen.sum() < 200
    assert {*map(bytes, rows)} == {*map(bytes, records.batch_at(0)[0][chosen])}
    assert {*targets.tolist()} <= {0, 1}


def test_seeds_follow_from_the_plan_and_the_given_transformer_stays_as_it_is():
    given = make_pipeline(StandardScaler(copy=False), RandomTreesEmbedding(4, max_depth=2))
    model = sampled("newton", given, columns=16)
    before = X[:150].copy()
    model.fit(X[:150], BINARY[:150])
    assert given[1].random_state is None
    assert not hasattr(given[0], "mean_")
    assert model.structure_[1].random_state is not None
    assert np.array_equal(before, X[:150])
    assert np.array_equal(np.sort(model._records.batch_at(0)[0], axis=0), np.sort(before, axis=0))
    other = sampled("newton", given, columns=16, random_state=1).fit(X[:150], BINARY[:150])
    assert other.structure_[1].random_state != model.structure_[1].random_state
    assert_sound(model)


def test_supervised_transformers_and_those_by_column_work():
    columns = make_column_transformer((StandardScaler(), [0, 1]), (KBinsDiscretizer(3), [2]), remainder="drop")
    for structure in (SelectKBest(k=2), columns):
        model = fitted("newton", structure)
        model.unlearn(np.arange(40))
        assert_sound(model)


def test_frames_do_not_come_in_between():
    pytest.importorskip("pandas")
    with sklearn.config_context(transform_output="pandas"):
        model = fitted("newton")
        assert model.transform(X[:3]).shape == (3, 4)
    assert_sound(model)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rho": 0.0}, "rho"), ({"rho": 1.5}, "rho"), ({"C": 0.0}, "C"), ({"C": -1}, "C"), ({"C": 1e-300}, "C"),
        ({"columns": 0}, "columns"), ({"columns": 2.5}, "columns"), ({"columns": 2}, "columns=2.* makes 4 features"),
        ({"columns": 10**6}, "columns=1000000"), ({"head": "forest"}, "head='forest'"),
        ({"head": "ridge"}, "classes"), ({"structure": LogisticRegression()}, "structure"),
        ({"structure": StandardScaler}, "structure=StandardScaler"), ({"structure": "scale"}, "structure"),
        ({"structure": PCA(2, random_state=np.random.RandomState(0))}, "random_state"),
        ({"structure": PCA(9)}, "columns='auto'"), ({"expected_records": -5}, "expected_records"),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(given, named):
    model = sampled("newton", **{name: value for name, value in given.items() if name != "structure"})
    model.structure = given.get("structure", model.structure)
    with pytest.raises(BadPlan, match=named):
        model.fit(X[:50], BINARY[:50])
    assert not hasattr(model, "plan_")


@pytest.mark.parametrize(
    ("structure", "given", "named"),
    [
        ("scaled", {"rho": 1e-9}, "rho=1e-09: StandardScaler refuses the sample.*Use a larger rho"),
        (PCA(3), {"rho": 0.04, "random_state": 4}, "PCA refuses the sample"),
        (OneHotEncoder(), {"columns": 1000}, "handle_unknown"),
    ],
)  # fmt: skip
def test_a_structure_that_refuses_the_sample_is_an_error_at_the_first_fit_and_nothing_is_changed(
    structure, given, named
):
    model = sampled("newton", structure, **given)
    with pytest.raises(BadRecords, match=named):
        model.fit(X[:50], BINARY[:50])
    assert not hasattr(model, "plan_")
    before = fitted("newton")
    kept = bits(before)
    before.set_params(structure=structure if not isinstance(structure, str) else StandardScaler(), **given)
    if "rho" not in given:
        with pytest.raises(BadRecords, match=named):
            before.replan()
        assert bits(before) == kept


class Noisy(Spy):
    """Adds noise to what it transforms."""

    def transform(self, X):
        return X + np.random.default_rng().normal(size=X.shape)


def test_a_structure_that_says_another_thing_each_time_is_refused():
    model = sampled("newton", Noisy(), columns=4)
    with pytest.raises(BadPlan, match="other features of the same row"):
        model.fit(X[:50], BINARY[:50])
    assert not hasattr(model, "plan_")


def test_what_is_unknown_counts_as_ordinary_later():
    codes = (X[:, :1] > 0).astype(float)
    model = Sampled(OneHotEncoder(), rho=0.5, columns=3, random_state=0).fit(codes[:200], BINARY[:200])
    model.insert([[7.0], [0.0]], ["yes", "no"])
    assert np.array_equal(model.transform([[7.0]])[0], model._fitted.centres)
    assert_sound(model)
    model.unlearn(model.ids_[-2:])
    assert_sound(model)


def test_a_structure_that_grows_is_cut_at_its_columns():
    codes = (np.arange(60) % 3).astype(float)[:, None]
    encoder = OneHotEncoder(handle_unknown="ignore")
    model = Sampled(encoder, rho=1.0, columns=3, random_state=0).fit(codes, BINARY[:60])
    model.insert([[9.0]], ["yes"])
    assert model.transform(codes[:2]).shape == (2, 3)
    assert_sound(model)


def test_a_sample_of_one_class_is_warned_of():
    y = np.where(np.arange(100) == 3, "yes", "no")
    with pytest.warns(PlanWarning, match="say nothing of the classes"):
        model = Sampled(StandardScaler(), rho=0.1, random_state=0).fit(X[:100], y)
    assert_sound(model)


def test_bad_records_change_nothing():
    model = fitted("newton")
    before = bits(model)
    with pytest.raises(BadRecords, match="not one of the model's classes"):
        model.insert(X[:1], ["maybe"])
    with pytest.raises((BadRecords, ValueError), match="NaN"):
        model.insert([[np.nan, 0, 0, 0]], ["no"])
    with pytest.raises(ValueError, match="features"):
        model.insert(X[:1, :2], ["no"])
    assert bits(model) == before


@pytest.mark.parametrize("unit", [1e-200, 1e-5, 1e90])
def test_targets_and_features_in_any_unit(unit):
    model = fitted("ridge", rho=0.5)
    other = sampled("ridge", rho=0.5).fit(min(unit, 1e60) * X[:120], unit * AMOUNTS[:120])
    assert np.allclose(other.predict(min(unit, 1e60) * X) / unit, model.predict(X), rtol=1e-5)
    assert_sound(other)


def test_numbers_far_beyond_those_of_the_sample_count_as_far():
    model = fitted("ridge", rho=0.3)
    before = bits(model)
    model.insert([[1e300, -1e300, 1e-300, 0.0]], [1e100], ids=[999])
    assert_sound(model)
    if model._records.count == 121:
        model.unlearn(999)
    assert bits(model)[0] == before[0]
    assert_sound(model)


def test_habits_from_elsewhere_have_a_hint():
    with pytest.raises(UnknownParameter, match="structure"):
        Sampled(StandardScaler(), transformer=PCA())
    with pytest.raises(UnknownParameter, match="1/alpha"):
        Sampled(StandardScaler(), alpha=1.0)


# --- files ------------------------------------------------------------------------------------------------


def test_a_file_wants_its_structure(tmp_path):
    path = tmp_path / "model"
    fitted("newton", "pca", random_state=None).save(path)
    with pytest.raises(BadPlan, match=r"structure=PCA\("):
        expunge.open(path)
    with pytest.raises(BadPlan, match=r"structure=PCA\("):
        expunge.open(path, structure=StandardScaler())
    with pytest.raises(BadPlan, match="structure=PCA: give"):
        expunge.open(path, structure=PCA)
    with pytest.raises(BadPlan, match="random_state"):
        fitted("newton", "pca").save(tmp_path / "other")


def test_another_structure_is_noticed_before_a_request_is_recorded_and_replan_makes_a_fresh_fit(tmp_path):
    path = tmp_path / "model"
    fitted("newton", "pca", random_state=None).save(path)
    with expunge.open(path, structure=PCA(2, whiten=True)) as model:
        for ask in (lambda: model.predict(X), lambda: model.replay_probability([3])):
            with pytest.raises(BadPlan, match="other features"):
                ask()
        with pytest.raises(BadPlan, match="other features") as caught:
            model.unlearn(3)
        assert caught.value.refused
        assert model.n_records_ == 120
        assert "sample" in model.verify().problems[0]
    with expunge.open(path, structure=PCA(2)) as model:
        model.unlearn(3)
        assert_sound(model)
        model.set_params(structure=PCA(1)).replan()
        assert model.coef_.shape == (1, 1)
        model.unlearn([4, 5, 6, 7])
        assert_sound(model)
    with expunge.open(path, structure=PCA(1)) as model:
        assert model.n_records_ == 115
        assert_sound(model)


def test_backups_and_audits_are_given_the_structure(tmp_path):
    path, other = tmp_path / "model", tmp_path / "backup"
    fitted("newton", "pca", random_state=None).save(path)
    with pytest.raises(BadPlan, match="structure=PCA"):
        expunge.store.backup(path, other)
    expunge.store.backup(path, other, structure=PCA(2))
    with expunge.open(path, structure=PCA(2)) as model:
        model.unlearn(np.arange(20))
    assert expunge.store.restore(other, path, structure=PCA(2)).erased == 20
    with expunge.open(path, structure=PCA(2)) as model:
        assert model.n_records_ == 100
        assert_sound(model)
    found = expunge.audit.audit(path, structure=PCA(2), rows=X[17], runs=100, progress=False)
    assert found.ok, found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_are_ingested_straight_into_a_file(tmp_path, dtype):
    blocks = [(X[first : first + 100].astype(dtype), BINARY[first : first + 100]) for first in (0, 100, 200)]
    model = sampled("newton", "pca", random_state=None)
    with expunge.ingest(model, blocks, tmp_path / "model", progress=False) as stored:
        assert stored.n_records_ == 300
        stored.unlearn([3, 4, 5])
        stored.insert(X[:2], BINARY[:2])
        assert stored.verify().ok
    with expunge.open(tmp_path / "model", structure=PCA(2)) as stored:
        stored.unlearn(np.arange(6, 30))
        assert stored.verify().ok
    amounts = [(rows, AMOUNTS[:100]) for rows, _ in blocks]
    with expunge.ingest(sampled("ridge", random_state=None), amounts, tmp_path / "ridge", progress=False) as stored:
        assert stored.unlearn(3).removed == 1
        assert stored.verify().ok
    with pytest.raises(BadRecords, match="refuses the sample"):
        expunge.ingest(model.set_params(rho=1e-9), blocks, tmp_path / "other", progress=False)
    assert not (tmp_path / "other").exists()


def test_a_request_that_was_recorded_and_interrupted_is_finished_when_the_file_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "model"
    fitted("newton", "pca", random_state=None, rho=1.0).save(path)
    find = sampling.find_structure
    with expunge.open(path, structure=PCA(2)) as model:
        monkeypatch.setattr(sampling, "find_structure", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            model.unlearn(5)
    monkeypatch.setattr(sampling, "find_structure", find)
    with pytest.raises(BadPlan, match="other features"):
        expunge.open(path, structure=PCA(1))
    with expunge.open(path, structure=PCA(2)) as model:
        assert model.n_records_ == 119
        assert_sound(model)


def test_two_processes_see_each_others_requests(tmp_path):
    path = tmp_path / "model"
    fitted("newton", random_state=None).save(path)
    with (
        expunge.open(path, structure=StandardScaler()) as one, expunge.open(path, structure=StandardScaler()) as other,
    ):  # fmt: skip
        for number in range(8):
            (one, other)[number % 2].unlearn(number)
            assert np.array_equal(one.predict_proba(X[:9]), other.predict_proba(X[:9]))
        assert_sound(one)
        assert_sound(other)


def test_grid_search_and_a_fit_that_is_repeated():
    search = GridSearchCV(sampled("newton"), {"C": [0.1, 1.0], "structure__with_mean": [True]}, cv=2)
    assert search.fit(X[:400], BINARY[:400]).best_score_ > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SizeWarning)
        model = fitted("newton")
        assert bits(model.fit(X[:120], BINARY[:120])) == bits(fitted("newton"))
    assert repr(clone(model)) == repr(sampled("newton"))
