"""Habits from scikit-learn are answered with what to use instead; parameters that come too late are warned of."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as ScikitLearns
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import expunge
from expunge import HuberRegressor, KMeans, LinearSVC, LogisticRegression, PoissonRegressor, Ridge
from expunge.base.errors import BadPlan, ExpungeError, PlanWarning, UnknownParameter
from expunge.models import habits
from expunge.models.preprocessing import BoundedScaler
from expunge.solvers import DualAveraging
from expunge.solvers.objects import FLAT
from models.showcase import KINDS, X, Y

each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize(
    ("make", "given", "instead"),
    [
        (LinearSVC, {"penalty": "l1"}, r"penalty: LinearSVC .* Use C, .*FrankWolfe\(domain='l1'\)"),
        (LogisticRegression, {"max_iter": 1000}, "max_iter: .*Newton.* needs none.* epochs"),
        (LogisticRegression, {"tol": 1e-4}, "tol: .* fixed before the records are read"),
        (LogisticRegression, {"n_jobs": -1}, "n_jobs: .* Leave it out"),
        (HuberRegressor, {"warm_start": True}, r"warm_start: .* insert\(\) or partial_fit\(\)"),
        (Ridge, {"solver": "svd"}, "solver: Ridge .* Cholesky"),
        (Ridge, {"rho": 0.1}, "rho: Ridge .* no noise"),
        (KMeans, {"n_init": 10}, "n_init: KMeans .* ten starts"),
        (KMeans, {"max_iter": 300}, "max_iter: KMeans .* settled"),
        (KMeans, {"init": "k-means++"}, "init: KMeans .* the sample's"),
        (KMeans, {"radius": 2.0}, r"radius: KMeans .* solver=expunge.solvers.Lloyd\(radius=...\)"),
        (LogisticRegression, {"epochs": 3}, r"epochs: .* Use solver=expunge.solvers.DualAveraging\(epochs=3\)\.$"),
        (LinearSVC, {"rate": 0.5}, r"Use solver=expunge.solvers.GradientDescent\(rate=0.5\)"),
        (PoissonRegressor, {"alpha": 0.5}, r"Use C = 1/\(n·alpha\)"),
        (LogisticRegression, {"roh": 0.1}, r"roh: .* Did you mean rho\?"),
        (
            LogisticRegression,
            {"frobnicate": 1},
            r"frobnicate: .* There are .*class_weight.*, solver, ",
        ),
    ],
)
def test_a_parameter_that_there_is_not_says_what_to_use(make, given, instead):
    with pytest.raises(TypeError, match=instead) as caught:
        make(**given)
    assert isinstance(caught.value, ExpungeError)
    with pytest.raises(ValueError, match=instead):
        make().set_params(**given)


@each_kind
def test_values_without_a_name_are_refused_by_the_class_that_was_asked_for(kind):
    make, given = KINDS[kind]
    taken = {"ridge": "only alpha without a name", "kmeans": "only n_clusters without a name"}
    taken["noisy kmeans"] = taken["kmeans"]
    with pytest.raises(TypeError, match=f"^{make.__name__} takes {taken.get(kind, 'no parameter without its name')}"):
        make(1.0, 2.0)
    with pytest.raises(TypeError, match=rf"^{make.__name__}\.fit takes only X, y, ids, subjects without a name\.$"):
        make(**given).fit(X, Y, None, None, 5)


@each_kind
def test_records_have_no_weights(kind):
    make, given = KINDS[kind]
    model = make(**given)
    for name in ("fit", "partial_fit"):
        with pytest.raises(
            TypeError, match=rf"sample_weight: \w+.{name} has no such parameter. Records have no weights"
        ):
            getattr(model, name)(X, Y, sample_weight=np.ones(60))
    assert not hasattr(model, "plan_")


@each_kind
def test_signatures_are_as_they_were(kind):
    """Which scikit-learn reads, and editors show."""
    make, given = KINDS[kind]
    names = list(inspect.signature(make).parameters)
    assert names == list(inspect.signature(make.__init__).parameters)[1:]
    assert set(names) == set(make(**given).get_params(deep=False))
    assert list(inspect.signature(make.fit).parameters) == ["self", "X", "y", "ids", "subjects"]


def test_what_is_advised_exists():
    """No advice for a name that the model has, nor to use one that it has not."""
    for kind, (make, given) in KINDS.items():
        has = set(make(**given).get_params(deep=False))
        advised = {name for name in make.INSTEAD if name in has} - {"class_weight", "classes"}
        assert not advised, kind
        inner = FLAT if "solver" in has else frozenset()
        for text in [text for text in make.INSTEAD.values() if isinstance(text, str)]:
            for word in ("alpha", "steps", "epochs", "n_rounds", "n_seeds", "step_size", "selector", "batch"):
                assert word not in text.replace("=", " ").replace(",", " ").split() or word in has | inner, (kind, text)
    assert habits.ANYWHERE.keys() <= habits.CLASSIFIER.keys()


def test_alpha_is_what_is_said_of_C():
    """The objective is scikit-learn's, divided by n·C."""
    with pytest.raises(BadPlan, match=r"alpha = 1/\(n·C\)"):
        LogisticRegression(C=2.0, solver="dual_averaging").fit(X, Y)
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, size=(1024, 2)) / 1.5
    targets = (rows[:, 0] + rng.normal(size=1024) / 3 > 0).astype(int)
    weight = 0.05
    theirs = ScikitLearns(C=weight).fit(rows, targets)
    ours = LogisticRegression(rho=1.0, solver=DualAveraging(epochs=200, alpha=1 / (1024 * weight))).fit(rows, targets)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.05)
    assert np.abs(theirs.coef_).max() > 1.0


# --- set_params after fit -------------------------------------------------------------------------------


USES = {
    "predict": lambda model: model.predict(X),
    "unlearn": lambda model: model.unlearn([3]),
    "score": lambda model: model.score(X, Y),
    "to_sklearn": lambda model: model.to_sklearn(),
    "verify": lambda model: model.verify(),
}


@pytest.mark.parametrize("use", USES)
@each_kind
def test_a_model_that_is_used_with_parameters_set_too_late_says_so_once(kind, use):
    make, given = KINDS[kind]
    late = {"ridge": ("alpha", 2.0), "least squares": ("fit_intercept", False)}
    name, value = late.get(kind, ("rho", 0.7))
    model = make(**given).fit(X, Y)
    before = model.plan_
    model.set_params(**{name: value})
    with pytest.warns(PlanWarning, match=rf"^{name}: set after the fit, and not in effect.*replan\(\).*fit\(\)"):
        USES[use](model)
    assert model.plan_ is before
    USES["predict"](model)
    model.replan()
    assert getattr(model.plan_, name) == value
    USES["predict"](model)


def test_a_stored_model_and_one_that_is_saved_say_so_too(tmp_path):
    model = LogisticRegression(solver="dual_averaging").fit(X, Y).set_params(rho=0.7)
    with pytest.warns(PlanWarning, match=r"^rho: .*replan\(\)"):
        model.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as stored:
        stored.set_params(rho=0.5, solver__epochs=2)
        with pytest.warns(PlanWarning, match=r"^rho, solver: .*replan\(\)"):
            stored.unlearn([3])
        stored.set_params(rho=0.4).replan()
        assert stored.plan_.rho == 0.4
        stored.predict(X)


def test_what_is_fitted_or_planned_anew_is_not_warned_of():
    model = LogisticRegression(solver="dual_averaging").set_params(rho=0.5).fit(X, Y)
    model.set_params(random_state=None, rho=0.5, classes=None).predict(X)
    model.set_params(rho=0.3).fit(X, Y).predict(X)
    model.set_params(rho=0.4).replan()
    model.predict(X)
    clone(model.set_params(rho=0.6)).fit(X, Y).predict(X)
    pipe = make_pipeline(BoundedScaler(-1, 1), LogisticRegression(solver="dual_averaging"))
    pipe.set_params(logisticregression__rho=0.5).fit(X, Y)
    GridSearchCV(pipe, {"logisticregression__rho": [0.5, 1.0]}, cv=2).fit(X, Y).predict(X)
    pipe.set_params(logisticregression__rho=1.0, logisticregression__solver__epochs=2)
    with pytest.warns(PlanWarning, match="^rho, solver: "):
        pipe.predict(X)
    with pytest.raises(UnknownParameter, match="alpha"):
        pipe.set_params(logisticregression__penalty="l2")
