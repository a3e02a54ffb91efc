"""Adapters for River: its own checks, its evaluation, its pipelines; and records that are unlearned on the way."""

import copy
import importlib
import pickle
import sys

import numpy as np
import pytest
from river import base, checks, compose, datasets, dummy, evaluate, metrics, preprocessing

from cases.in_solver import in_solver
from expunge import HuberRegressor, LinearRegression, LinearSVC, LogisticRegression
from expunge.adapters.river import RiverClassifier, RiverRegressor
from expunge.base.errors import BadPlan, BadRecords, DuplicateId, UnknownId
from expunge.solvers import DualAveraging

PHISHING = ("empty_server_form_handler", "popup_window", "https", "request_from_other_domain",
            "anchor_from_other_domain", "is_popular", "long_url", "age_of_domain", "ip_in_url")  # fmt: skip
POLLS = ("gallup", "ipsos", "morning_consult", "rasmussen", "you_gov")


def classifier(estimator=LogisticRegression, features=PHISHING, id=None, subject=None, **given):
    few = {"classes": [False, True], "expected_records": 1250, "feature_norm": 3.0, "steps": 8, "epochs": 1}
    given = {"random_state": 0, **few, **given}
    return RiverClassifier(estimator(**in_solver(**given)), features, id=id, subject=subject)


def regressor(estimator=LinearRegression, id=None, **given):
    given = {"target_range": (30, 60), "expected_records": 1000, "random_state": 0, "steps": 8, "epochs": 1, **given}
    return RiverRegressor(estimator(**in_solver(**given)), POLLS, id=id)


class Middle(base.Regressor):
    """Predicts what a regressor does before its first record."""

    def learn_one(self, x, y):
        pass

    def predict_one(self, x):
        return 45.0


def scaled(x):
    """Polls on a public range; a transformer that learns nothing."""
    return {name: (value - 40) / 20 if name in POLLS else value for name, value in x.items()}


@pytest.mark.long
@pytest.mark.parametrize(
    "adapter",
    [*(RiverClassifier(**params) for params in RiverClassifier._unit_test_params()),
     *(RiverRegressor(**params) for params in RiverRegressor._unit_test_params()),
     classifier(LinearSVC)],
    ids=lambda adapter: f"{type(adapter).__name__}-{type(adapter.model).__name__}",
)  # fmt: skip
def test_rivers_own_checks_pass(adapter):
    names = set()
    for check in checks.yield_checks(adapter):
        if check.__name__ == "check_bounded_memory_growth":
            continue  # 2,000 records, which are all kept: they must be, to be forgotten
        names.add(check.__name__)
        check(adapter.clone())
    assert len(names) > 20


@pytest.mark.parametrize("estimator", [LogisticRegression, LinearSVC])
def test_progressive_validation_of_a_classifier(estimator):
    """With few steps, for speed, it need not be good: but better by far than the most frequent class so far."""
    adapter, prior = classifier(estimator), dummy.PriorClassifier()
    score, least = (
        evaluate.progressive_val_score(datasets.Phishing().take(600), one, metrics.Accuracy()).get()
        for one in (adapter, prior)
    )
    assert score > least + 0.1
    assert adapter.model.n_records_ == 600
    assert adapter.model.verify().ok


def test_progressive_validation_with_probabilities():
    score = evaluate.progressive_val_score(datasets.Phishing().take(300), classifier(), metrics.ROCAUC())
    assert score.get() > 0.8


@pytest.mark.parametrize("estimator", [LinearRegression, HuberRegressor])
def test_progressive_validation_of_a_regressor_in_a_pipeline(estimator):
    pipeline = compose.Pipeline(compose.FuncTransformer(scaled), regressor(estimator))
    score, most = (
        evaluate.progressive_val_score(datasets.TrumpApproval().take(400), one, metrics.MAE()).get()
        for one in (pipeline, Middle())
    )
    assert score < most / 1.5
    assert pipeline["RiverRegressor"].model.verify().ok


def test_several_classes():
    classes = ["brickface", "cement", "foliage", "grass", "path", "sky", "window"]
    names = ("region-centroid-col", "region-centroid-row", "value-mean", "hue-mean")
    adapter = classifier(classes=classes, features=names, feature_norm=300)
    assert adapter._multiclass
    assert not classifier()._multiclass
    for x, y in datasets.ImageSegments().take(60):
        adapter.learn_one(x, y)
    assert adapter.predict_one(x) in classes
    assert type(adapter.predict_one(x)) is str
    assert sum(adapter.predict_proba_one(x).values()) == pytest.approx(1.0)


def test_records_are_unlearned_among_those_that_are_learned():
    adapter, alive = classifier(id="id", rho=0.5), set()
    for number, (x, y) in enumerate(datasets.Phishing().take(200)):
        adapter.learn_one({**x, "id": f"r{number}", "comment": "ignored"}, y)
        alive.add(f"r{number}")
        if number % 3 == 2:
            adapter.unlearn_one({"id": f"r{number - 2}"})
            alive.remove(f"r{number - 2}")
    assert set(adapter.model._records.all_ids().tolist()) == alive
    assert adapter.model.verify().ok
    with pytest.raises(UnknownId, match="'r0'"):
        adapter.unlearn_one({**x, "id": "r0"}, y)
    with pytest.raises(DuplicateId, match="'r1' is in the model already"):
        adapter.learn_one({**x, "id": "r1"}, y)
    adapter.learn_one({**x, "id": "r0"}, y)


def test_unlearning_in_a_pipeline():
    pipeline = compose.FuncTransformer(scaled) | regressor(id="day")
    for day, (x, y) in enumerate(datasets.TrumpApproval().take(30)):
        pipeline.learn_one({**x, "day": day}, y)
    pipeline["RiverRegressor"].unlearn_one({"day": 7})
    assert pipeline["RiverRegressor"].model.n_records_ == 29
    assert 30 < pipeline.predict_one(x) < 60  # to predict, no id is needed


def test_subjects_are_named_as_well():
    adapter = classifier(id="id", subject="who", records_per_subject=2, features=("a",))
    for number in range(6):
        adapter.learn_one({"id": number, "who": f"s{number // 2}", "a": 0.5}, number % 2 == 0)
    assert adapter.model.unlearn(subjects="s1").removed == 2
    with pytest.raises(BadRecords, match=r"^subjects: 's0' would have 3 records"):
        adapter.learn_one({"id": 9, "who": "s0", "a": 0.5}, True)


def test_before_the_first_record():
    adapter = classifier()
    assert adapter.predict_one({}) is None
    assert adapter.predict_proba_one({}) == {False: 0.5, True: 0.5}
    assert classifier(classes=None).predict_proba_one({}) == {}
    assert regressor().predict_one({}) == 45.0
    assert regressor(target_range=None).predict_one({}) == 0.0


def test_after_the_last_record():
    adapter = classifier(id="id", features=("a",))
    adapter.learn_one({"id": 1, "a": 1.0}, True)
    with pytest.warns(UserWarning, match="every record has been deleted") as caught:
        adapter.unlearn_one({"id": 1})
    assert caught[0].filename == __file__
    assert adapter.predict_one({"a": 1.0}) in (False, True)
    adapter.learn_one({"id": 1, "a": 1.0}, True)
    assert adapter.model.n_records_ == 1


def test_what_a_record_lacks_counts_as_zero_and_what_is_unknown_is_ignored():
    adapter = classifier(features=("a", "b"))
    adapter.learn_one({"b": 0.25, "c": "text"}, True)
    there = [adapter.model._records.batch_at(place)[0] for place in range(len(adapter.model._records.places))]
    assert np.concatenate(there).tolist() == [[0.0, 0.25]]
    assert adapter.features == ("a", "b")


def test_what_is_wrong_is_named():
    with pytest.raises(BadPlan, match=r"^features='https'"):
        classifier(features="https")
    for features in ((), ("a", "b", "a")):
        with pytest.raises(BadPlan, match=r"^features="):
            classifier(features=features)
    with pytest.raises(BadPlan, match=r"^id='a' is one of the features"):
        classifier(features=("a", "b"), id="a")
    with pytest.raises(BadPlan, match=r"declare it with id="):
        classifier().unlearn_one({"id": 3})
    adapter = classifier(features=("a", "b"), id="id")
    with pytest.raises(BadRecords, match=r"^x: no key 'id'"):
        adapter.learn_one({"a": 1.0}, True)
    with pytest.raises(BadRecords, match=r"^x\['b'\]='red': expected a number"):
        adapter.learn_one({"a": 1.0, "b": "red", "id": 1}, True)
    with pytest.raises(BadRecords, match=r"^y: there is only one class"):
        classifier(classes=None).learn_one({"https": 1.0}, True)
    assert adapter.predict_one({}) is None


def test_a_clone_has_learned_nothing_and_a_copy_the_same():
    adapter = classifier(id="id", features=("a",))
    pipeline = compose.Pipeline(preprocessing.StandardScaler(), classifier(features=("a",)))
    for number in range(5):
        adapter.learn_one({"id": number, "a": 1.0}, True)
        pipeline.learn_one({"a": 1.0}, True)
    fresh = adapter.clone()
    assert (fresh.id, fresh.features, fresh.predict_one({})) == ("id", ("a",), None)
    assert adapter.clone({"id": "name"}).id == "name"
    assert pipeline.clone()["RiverClassifier"].predict_one({}) is None
    assert set(adapter._get_params()) == {"model", "features", "id", "subject"}
    for same in (copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter)), adapter.clone(include_attributes=True)):
        same.unlearn_one({"id": 2})
        assert (same.model.n_records_, adapter.model.n_records_) == (4, 5)


def test_without_river_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.delitem(sys.modules, "expunge.adapters.river")
    with pytest.raises(ImportError, match=r"pip install 'expunge\[river\]'"):
        importlib.import_module("expunge.adapters.river")


def test_the_kinds_of_models_are_checked():
    with pytest.raises(BadPlan, match="takes a LinearClassifier, got HuberRegressor"):
        RiverClassifier(HuberRegressor(solver=DualAveraging(target_range=(0, 1))), ("a",))


def test_without_an_id_a_subject_is_forgotten_as_a_whole():
    model = LogisticRegression(
        classes=[0, 1], solver=DualAveraging(records_per_subject=3), expected_records=16, random_state=0
    )
    online = RiverClassifier(model, ("a",), subject="who")
    for number in range(8):
        online.learn_one({"a": 0.1 * number, "who": f"s{number // 2}"}, number % 2)
    online.unlearn_one({"who": "s1"})
    assert model.n_records_ == 6
