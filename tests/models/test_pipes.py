"""Requests to pipelines: the forgetting step is found, earlier steps transform rows, and none may remember."""

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression as ScikitLearns
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from expunge import KMeans, LogisticRegression, Ridge
from expunge.base.errors import BadPlan, BadRecords, CorruptStore, UnknownId
from expunge.models import saving
from expunge.models.preprocessing import BoundedScaler
from expunge.solvers import Lloyd

RNG = np.random.default_rng(0)
X = RNG.uniform([18, 0], [90, 150_000], size=(500, 2))
Y = (X[:, 1] > 60_000).astype(int)
NAMES = np.array([f"person {number}" for number in range(500)])


def scale():
    return BoundedScaler(low=[0, 0], high=[120, 200_000])


def fitted(*steps, **given):
    pipe = make_pipeline(*steps)
    last = pipe.steps[-1][0]
    return pipe.fit(X, Y, **{f"{last}__{name}": value for name, value in {"ids": NAMES, **given}.items()})


def logistic():
    return LogisticRegression(classes=[0, 1], solver="dual_averaging")


def test_the_recipe_of_the_docs_can_be_saved_and_opened(tmp_path):
    with sklearn.config_context(enable_metadata_routing=True):
        last = logistic().set_fit_request(ids=True)
        pipe = make_pipeline(scale(), last).fit(X, Y, ids=NAMES)
        pipe[-1].save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as model:
        assert "_metadata_request" not in vars(model)
        stored = Pipeline([*pipe.steps[:-1], ("model", model)])
        assert (stored.predict(X) == pipe.predict(X)).all()
        assert expunge.unlearn(stored, ["person 17"]).removed == 1
        assert model.n_records_ == 499
        assert model.verify().ok
        assert len(model.export_receipts()["receipts"]) == 1
    with expunge.open(tmp_path / "model", read_only=True) as model:
        assert "person 17" not in model.ids_


@pytest.mark.parametrize("name", ["predict", "_metadata_request", "_given_loss"])
def test_attributes_that_a_model_of_ours_does_not_describe_are_refused(name, tmp_path, monkeypatch):
    model = logistic().fit(X / 200_000, Y)
    monkeypatch.setattr(saving, "NOT_DESCRIBED", tuple({*saving.NOT_DESCRIBED} - {name}))
    model.__dict__[name] = "anything"
    model.save(tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(CorruptStore, match="does not describe a LogisticRegression"):
        expunge.open(tmp_path / "model")


def test_a_pipeline_forgets_learns_and_corrects():
    pipe = fitted(scale(), logistic())
    assert expunge.unlearn(pipe, "person 17").removed == 1
    assert expunge.unlearn(pipe, ["person 17", "person 18"], missing="ignore").removed == 1
    assert expunge.insert(pipe, [[44, 52_000]], [0], ids=["person 500"]).added == 1
    expunge.replace(pipe, [[45, 53_000]], [1], ids=["person 500"])
    model = pipe[-1]
    assert model.n_records_ == 499
    assert model.verify().ok


def test_rows_are_those_that_the_steps_before_make():
    table = [[44, 52_000], [20, 130_000]]
    one, two = (fitted(scale(), Ridge()) for _ in range(2))
    expunge.insert(one, table, [0.0, 1.0], ids=["a", "b"])
    two[-1].insert(two[:-1].transform(table), [0.0, 1.0], ids=["a", "b"])
    assert np.array_equal(one[-1].coef_, two[-1].coef_)
    expunge.replace(one, table[:1], [1.0], ids=["b"])
    two[-1].replace(two[:-1].transform(table[:1]), [1.0], ids=["b"])
    assert np.array_equal(one[-1].coef_, two[-1].coef_)


def test_subjects_nested_pipelines_and_bare_models():
    people = np.arange(500)
    nested = Pipeline([("before", "passthrough"), ("rest", make_pipeline(scale(), Ridge()))])
    nested.fit(X, Y, rest__ridge__ids=NAMES, rest__ridge__subjects=people)
    assert expunge.unlearn(nested, subjects=[17, 19]).removed == 2
    expunge.insert(nested, X[:1], Y[:1], ids=["back"], subjects=[17])
    assert nested[-1][-1].n_records_ == 499
    clusters = KMeans(2, solver=Lloyd(radius=2.0)).fit(X / 100_000)
    assert expunge.unlearn(clusters, [3]).removed == 1
    assert expunge.insert(clusters, X[:1] / 100_000, ids=[1000]).added == 1
    assert expunge.unlearn(make_pipeline(clusters), [1000]).removed == 1


def test_a_step_that_would_remember_is_named_and_nothing_is_deleted():
    pipe = fitted(StandardScaler(), logistic())
    for ask in (
        lambda: expunge.unlearn(pipe, ["person 17"]),
        lambda: expunge.insert(pipe, X[:1], Y[:1], ids=["new"]),
        lambda: expunge.replace(pipe, X[:1], Y[:1], ids=["person 17"]),
    ):
        with pytest.raises(
            BadPlan, match=r"would keep what is deleted from its model. standardscaler .* use BoundedScaler.* last step"
        ):
            ask()
    assert pipe[-1].n_records_ == 500
    assert pipe[-1].unlearn(["person 17"]).removed == 1


def test_what_cannot_forget_says_what_to_use():
    with pytest.raises(BadPlan, match=r"GridSearchCV: choosing hyper-parameters .* fix them in advance"):
        expunge.unlearn(GridSearchCV(logistic(), {"rho": [0.5, 1.0]}), [1])
    for wrong in (make_pipeline(scale(), ScikitLearns()), ScikitLearns(), "model", Pipeline([])):
        with pytest.raises(BadPlan, match=r"which cannot delete records.*a model of Expunge"):
            expunge.unlearn(wrong, [1])
    with pytest.raises(NotFittedError):
        expunge.unlearn(make_pipeline(scale(), logistic()), [1])


def test_requests_are_checked_as_the_models_own():
    pipe = fitted(scale(), logistic())
    with pytest.raises(UnknownId):
        expunge.unlearn(pipe, ["nobody"])
    with pytest.raises(BadRecords, match="columns: expected"):
        expunge.insert(pipe, X[:1], ids=["new"])
    with pytest.raises(BadRecords, match="without subjects"):
        expunge.unlearn(pipe, subjects=[1])
    assert pipe[-1].n_records_ == 500
