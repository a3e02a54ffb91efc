"""Solvers as objects: what they are, how estimators take them, what "auto" is, and models without a finish."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import expunge
from expunge import BadPlan, LinearRegression, LinearSVC, LogisticRegression, PoissonRegressor
from expunge.base.errors import PlanWarning, UnknownParameter
from expunge.models import HuberRegressor, LinearClassifier
from expunge.solvers import DualAveraging, FrankWolfe, GradientDescent, Newton, automatic_solver
from expunge.solvers.losses import Hinge, Logistic, Multinomial, Squared, SquaredHinge
from expunge.solvers.objects import SOLVERS
from expunge.solvers.plans.newton import NewtonPlan

RNG = np.random.default_rng(8)
X = RNG.normal(size=(800, 3)) * [1.0, 1e6, 1e-3] + [0.0, 3e6, 0.0]
Y = X[:, 0] + RNG.logistic(size=800) / 3 > 0
IDS = np.arange(800)


# --- the objects ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SOLVERS, ids=lambda kind: kind.NAME)
def test_a_solver_is_its_parameters(kind):
    one, other = kind(), kind()
    assert one == other
    assert one is not other
    assert repr(one) == f"{kind.__name__}()"
    assert one.get_params() == kind.parameters()
    assert clone(one, safe=False) == one == pickle.loads(pickle.dumps(one))
    name = next(iter(one.get_params()))
    assert one.set_params(**{name: 7}) is one
    assert one != other
    assert repr(one) == f"{kind.__name__}({name}=7)"


def test_what_a_solver_does_not_understand_is_refused_with_a_remedy():
    with pytest.raises(UnknownParameter, match=r"^epoch: DualAveraging has no such parameter. Did you mean epochs"):
        DualAveraging(epoch=3)
    with pytest.raises(UnknownParameter, match=r"^rho: Newton has no such parameter. Give it to the estimator"):
        Newton().set_params(rho=0.1)
    with pytest.raises(UnknownParameter, match=r"^feature_norm: Newton has no such parameter. There are rounds, rate"):
        Newton(feature_norm=3.0)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (expunge.DualAveragingRule(np.zeros(3), 1.0), r"is the rule of a Learner.*expunge\.solvers\.DualAveraging\(\)"),
        (GradientDescent, r"give an object, solver=GradientDescent\(\)"),
        ("sgd", r"use 'auto', 'newton', 'dual_averaging', 'frank_wolfe', 'gradient_descent', or an object"),
        (None, "use 'auto'"),
    ],
)
def test_what_is_no_solver_is_refused_before_anything_happens(said, why):
    model = LogisticRegression(solver=said)
    with pytest.raises(BadPlan, match=f"^solver.*{why}"):
        model.fit(X, Y)
    assert not hasattr(model, "plan_")


@pytest.mark.parametrize("kind", SOLVERS[1:], ids=lambda kind: kind.NAME)
def test_a_name_is_the_solver_with_its_defaults(kind):
    plans = [LogisticRegression(solver=said, rho=0.5).fit(X, Y).plan_ for said in (kind.NAME, kind())]
    assert plans[0] == plans[1]
    assert plans[0].solver == kind.NAME


def test_the_parameters_of_newton_reach_the_plan():
    plan = LogisticRegression(solver=Newton(rounds=2, rate=0.5), rho=0.3).fit(X, Y).plan_
    assert (plan.rounds, plan.rate) == (2, 0.5)


# --- nested parameters ----------------------------------------------------------------------------------


def test_estimators_show_and_set_the_parameters_of_their_solver():
    solver = DualAveraging(epochs=2)
    model, other = LogisticRegression(solver=solver), LogisticRegression(solver=solver)
    assert model.get_params()["solver__epochs"] == 2
    model.set_params(solver__epochs=5, rho=0.2)
    assert (model.solver.epochs, other.solver.epochs, model.rho) == (5, 2, 0.2)
    assert clone(model).get_params() == model.get_params()
    named = LogisticRegression(solver="frank_wolfe").set_params(solver__domain="l1")
    assert named.solver == FrankWolfe(domain="l1")
    assert LinearSVC().set_params(solver=GradientDescent(), solver__rate=0.5).solver == GradientDescent(rate=0.5)


def test_parameters_of_a_solver_that_there_is_not_are_refused():
    with pytest.raises(UnknownParameter, match=r"^solver__epochs: solver='auto' has no parameters. Give the solver as"):
        LogisticRegression().set_params(solver__epochs=3)
    with pytest.raises(UnknownParameter, match=r"^epochs: GradientDescent has no such parameter"):
        LogisticRegression(solver=GradientDescent()).set_params(solver__epochs=3)


def test_on_a_fitted_model_they_take_effect_at_a_new_plan():
    model = LogisticRegression(solver=DualAveraging()).fit(X, Y)
    before = model.plan_
    model.set_params(solver__epochs=4)
    with pytest.warns(PlanWarning, match=r"^solver: set after the fit"):
        model.predict(X)
    assert model.plan_ == before
    model.replan()
    assert model.plan_.epochs == 4


def test_grid_searches_try_solvers_and_their_parameters():
    grid = [{"solver": [Newton(), "dual_averaging"]}, {"solver": [DualAveraging()], "solver__epochs": [1, 3]}]
    found = GridSearchCV(LogisticRegression(rho=0.5), grid, cv=2).fit(X, Y)
    assert len(found.cv_results_["params"]) == 4
    assert found.best_params_ == {"solver": Newton()}
    pipe = make_pipeline(LogisticRegression(solver=DualAveraging()))
    assert pipe.set_params(logisticregression__solver__epochs=3)[-1].solver.epochs == 3


# --- "auto" ---------------------------------------------------------------------------------------------


def test_auto_is_a_rule_of_loss_and_shape():
    for loss in (Logistic(), SquaredHinge(), Squared(1.0)):
        assert automatic_solver(loss, 1_000) == automatic_solver(loss, 300, sparse=True) == Newton()
        assert automatic_solver(loss, 1_001) == automatic_solver(loss, 301, sparse=True) == DualAveraging()
    assert automatic_solver(Hinge(), 3) == DualAveraging()
    assert automatic_solver(Multinomial(3), 400) == DualAveraging()  # 400 columns for each of three classes


def test_a_model_says_what_it_would_take():
    assert LogisticRegression(classes=[0, 1]).solver_for(5) == Newton()
    assert LogisticRegression().solver_for(5, classes=["a", "b"]) == Newton()
    assert LogisticRegression(classes=[0, 1]).solver_for(500, sparse=True) == DualAveraging()
    assert LinearRegression().solver_for(5) == Newton()
    assert PoissonRegressor().solver_for(5_000) == Newton()  # nothing else can take counts
    assert LinearRegression(solver=FrankWolfe(epochs=2)).solver_for(5) == FrankWolfe(epochs=2)
    with pytest.raises(BadPlan, match=r"^classes="):
        LogisticRegression().solver_for(5)


@pytest.mark.filterwarnings("ignore:X. most rows:expunge.ClippedWarning")
@pytest.mark.parametrize("wide", [False, True])
def test_a_fit_takes_what_the_rule_says_whatever_the_records_are(wide):
    rows = sparse.random_array((60, 400 if wide else 40), density=0.2, format="csr", rng=RNG)
    for filled in (rows, 1e6 * rows):
        plan = LogisticRegression().fit(filled, np.arange(60) % 2).plan_
        assert isinstance(plan, NewtonPlan) is not wide
        assert isinstance(LogisticRegression().fit(filled.toarray(), np.arange(60) % 2).plan_, NewtonPlan)


class Rounded(LinearClassifier):
    """A user's own classifier, whose loss has no curvature that is known."""

    def class_loss(self, classes):
        return Hinge()


@pytest.mark.filterwarnings("ignore:X. most rows:expunge.ClippedWarning")
def test_a_loss_of_ones_own_without_curvature_is_averaged():
    assert Rounded().fit(X, Y).plan_.solver == "dual_averaging"


def test_auto_stays_what_it_was_when_a_model_is_planned_anew(tmp_path):
    model = LogisticRegression().fit(X, Y, ids=IDS)
    model.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as stored:
        assert stored.solver == "auto"
        stored.set_params(C=2.0).replan()
        assert (type(stored.plan_), stored.plan_.C) == (NewtonPlan, 2.0)
        stored.set_params(C=1.0, solver="dual_averaging")
        with pytest.raises(BadPlan, match=r"^solver: the stored records"):
            stored.replan()


# --- defaults -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [LogisticRegression, LinearSVC])
def test_defaults_fit_raw_tables(make):
    model = make().fit(X, Y, ids=IDS)
    assert model.score(X, Y) > 0.8
    model.unlearn([3, 5])
    assert model.verify().ok


def test_least_squares_by_default_is_exact_and_never_replays():
    rows, targets = make_regression(300, 5, noise=3.0, random_state=0)
    model = LinearRegression().fit(rows * 1e5, targets * 1e-4)
    assert model.score(rows * 1e5, targets * 1e-4) > 0.99
    assert model.unlearn(np.arange(100)).kept
    assert np.array_equal(model.coef_, LinearRegression().fit(rows[100:] * 1e5, targets[100:] * 1e-4).coef_)


def test_a_range_is_asked_for_only_by_solvers_that_need_it():
    with pytest.raises(BadPlan, match=r"^target_range=None: DualAveraging needs .*DualAveraging\(target_range="):
        LinearRegression(solver="dual_averaging").fit(X, X[:, 0])
    with pytest.raises(BadPlan, match=r"counts have no declared range"):
        PoissonRegressor(solver="dual_averaging").fit(X, Y)
    assert HuberRegressor(solver=FrankWolfe(target_range=(-5, 5))).fit(X[:, :1], X[:, 0]).target_range_ == (-5, 5)


def test_C_goes_with_newton_and_the_remedy_is_alpha():
    with pytest.raises(BadPlan, match=r"^C=2.0: .*DualAveraging\(alpha=...\), with alpha = 1/\(n·C\)"):
        LogisticRegression(C=2.0, solver=DualAveraging()).fit(X, Y)
    with pytest.raises(BadPlan, match=r"^standardize=False: .*FrankWolfe"):
        LinearSVC(standardize=False, solver=FrankWolfe()).fit(X, Y)


# --- without a finish -----------------------------------------------------------------------------------


def test_without_a_finish_a_kept_deletion_leaves_the_model_as_it_is():
    model = LogisticRegression(rho=0.2, finish=None).fit(X, Y, ids=IDS)
    assert model.plan_.rate == 1.0  # the model is the draw: no record may be left out
    kept = []
    for one in range(40):
        before = model.coef_.copy(), model.intercept_.copy()
        kept.append(model.unlearn(one).kept)
        same = np.array_equal(before[0], model.coef_) and np.array_equal(before[1], model.intercept_)
        assert same is kept[-1]
    assert 20 < sum(kept) < 40
    assert model.verify().ok
    assert model.score(X, Y) > 0.8
    assert model.to_sklearn().predict(X).shape == (800,)


def test_without_a_finish_it_is_nearly_scikit_learns_without_noise():
    exact, bare = (LogisticRegression(rho=1.0, finish=finish).fit(X, Y) for finish in ("exact", None))
    assert np.allclose(exact.decision_function(X), bare.decision_function(X), atol=1e-6)


def test_without_a_finish_a_store_keeps_the_draw_too(tmp_path):
    model = LogisticRegression(rho=0.2, finish=None).fit(X, Y, ids=IDS)
    model.save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as stored:
        assert (stored.finish, stored.plan_.finish) == (None, False)
        for one in range(30):
            before = stored.coef_.copy()
            assert stored.unlearn(one).kept is np.array_equal(before, stored.coef_)
        assert stored.verify().ok
        drawn = stored.coef_.copy()
    with expunge.open(tmp_path / "model") as again:
        assert np.array_equal(again.coef_, drawn)
        with pytest.warns(UserWarning, match=r"every record has been deleted.*\(zeros\)"):
            again.unlearn(IDS[30:])
        assert again.n_records_ == 0
        assert not again.coef_.any()
        assert not again.intercept_.any()
        assert again.verify().ok


def test_a_finish_that_cannot_be_is_refused():
    with pytest.raises(BadPlan, match=r"^finish='exact': it goes with Newton; DualAveraging has none"):
        LogisticRegression(solver=DualAveraging(), finish="exact").fit(X, Y)
    with pytest.raises(BadPlan, match=r"^finish=None: .*least squares draws nothing. Use finish='exact'"):
        LinearRegression(finish=None).fit(X, X[:, 0])
    with pytest.raises(BadPlan, match=r"^finish=None: .*rho=1e-06 and 0 rounds none is drawn"):
        LogisticRegression(rho=1e-6, finish=None).fit(X, Y)
    with pytest.raises(BadPlan, match=r"^finish='none': use one of 'auto', 'exact'"):
        LogisticRegression(finish="none").fit(X, Y)
    assert LogisticRegression(solver="dual_averaging", finish=None).fit(X, Y).plan_.solver == "dual_averaging"


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "solver",
    [
        "auto", "newton", Newton(rounds=2, rate=0.5), DualAveraging(epochs=2, clip=None, step_size="theorem"),
        FrankWolfe(domain="l1", radius=5), GradientDescent(steps=9, rate=0.5, n_components=2),
    ],
    ids=repr,
)  # fmt: skip
def test_a_file_holds_the_solver(solver, tmp_path):
    LogisticRegression(rho=0.5, solver=solver).fit(X, Y).save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as stored:
        assert stored.solver == solver
        assert stored.verify().ok
        stored.unlearn(3)
        stored.replan()
        assert stored.verify().ok


def test_numpys_numbers_in_a_solver_can_be_stored(tmp_path):
    solver = DualAveraging(epochs=np.int64(2), alpha=np.float32(0.5), target_range=np.array([-5, 5]))
    LinearRegression(rho=0.5, solver=solver).fit(X, X[:, 0]).save(tmp_path / "model")
    with expunge.open(tmp_path / "model") as stored:
        assert stored.solver.alpha == 0.5
