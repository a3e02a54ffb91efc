"""The small problem that is made of a plan: every kind of plan passes, and the mistake is noticed."""

import numpy as np
import pytest

import expunge
from cases.in_solver import in_solver
from cases.patching import patched_everywhere
from cases.toys import long_but
from expunge.audit.auditor import RUNS
from expunge.audit.rehearsal import LEVEL, rehearse, scaled
from expunge.engine.couplings.common import KEPT, Toss
from expunge.solvers import DualAveraging, Lloyd
from expunge.solvers.losses import Hinge, MulticlassHinge, Multinomial, Weighted
from expunge.solvers.plans.protocol import SmallProblem
from expunge.solvers.plans.small import fewer_classes

RNG = np.random.default_rng(3)
X = RNG.normal(size=(200, 3)) / 3
TWO, FIVE = X[:, 0] > 0, np.digitize(X[:, 0], [-0.3, -0.1, 0.1, 0.3])

pytestmark = pytest.mark.filterwarnings("ignore::expunge.NoiseWarning")


def plan_of(model, y=None):
    return model.fit(X, y).plan_


def logistic(**given):
    return plan_of(expunge.LogisticRegression(**in_solver(**{"rho": 0.3, **given})), TWO)


PLANS = {
    "as it comes": lambda: logistic(),
    "newton": lambda: logistic(solver="newton"),
    "newton, five classes": lambda: plan_of(expunge.LogisticRegression(rho=0.3), FIVE),
    "tree, row by row": lambda: logistic(mechanism="tree", coupling="sequential", clip=0.2, selector="last"),
    "shuffled": lambda: logistic(schedule="shuffled", mechanism="halving", alpha=0.1, domain="l2", feature_norm=50.0),
    "arrival": lambda: logistic(schedule="arrival", mechanism="anytime"),
    "epochs": lambda: logistic(epochs=3),
    "frank-wolfe": lambda: logistic(solver="frank_wolfe", domain="l1"),
    "descent": lambda: logistic(solver="gradient_descent"),
    "descent, row by row": lambda: logistic(solver="gradient_descent", coupling="sequential"),
    "descent, some join": lambda: logistic(solver="gradient_descent", rate=0.1),
    "without noise": lambda: logistic(rho=1.0),
    "arrival without noise": lambda: logistic(rho=1.0, schedule="arrival"),
    "descent without noise": lambda: logistic(rho=1.0, solver="gradient_descent"),
    "five classes": lambda: plan_of(
        expunge.LogisticRegression(rho=0.3, class_weight={0: 3.0}, solver="dual_averaging"), FIVE
    ),
    "svm of five": lambda: plan_of(expunge.LinearSVC(rho=0.3, fit_intercept=False, solver="dual_averaging"), FIVE),
    "huber": lambda: plan_of(expunge.HuberRegressor(rho=0.3, solver=DualAveraging(target_range=(-1, 1))), X[:, 1]),
    "linear": lambda: plan_of(expunge.LinearRegression(rho=0.3, solver=DualAveraging(target_range=(-1, 1))), X[:, 1]),
    "k-means from a sample": lambda: plan_of(expunge.KMeans(3, rho=0.3, random_state=0)),
    "k-means": lambda: plan_of(expunge.KMeans(3, rho=0.3, random_state=0, solver=Lloyd(radius=2.0))),
    "k-means in a box": lambda: plan_of(
        expunge.KMeans(3, rho=0.3, random_state=0, solver=Lloyd(low=-3, high=[3, 2, 5], coupling="sequential"))
    ),
    "k-means without noise": lambda: plan_of(expunge.KMeans(3, rho=1.0, random_state=0, solver=Lloyd(radius=2.0))),
}
MISTAKEN = {
    "newton": 800,
    "frank-wolfe": 600,
    "descent": 500,
    "descent, some join": 700,
    "svm of five": 300,
    "k-means": 300,
    "k-means from a sample": 400,
}
"""How many runs show the mistake, where more are needed than for the others."""


QUICK = (
    "as it comes", "tree, row by row", "arrival", "descent, row by row", "descent without noise", "linear",
    "k-means in a box", "k-means without noise",
)  # fmt: skip


def _mistaken(name):
    return 100 if "without noise" in name else MISTAKEN.get(name, 200)


@pytest.mark.parametrize("name", long_but(QUICK, PLANS))
def test_a_deletion_leaves_no_trace_and_a_mistake_does(name):
    found = rehearse(PLANS[name](), runs=100, mistaken=_mistaken(name), seed=1, show=lambda *what: None)
    assert found.passed, found
    assert found.caught, found


def test_sums_without_noise_are_compared_to_the_last_bit():
    found = rehearse(plan_of(expunge.Ridge(0.1), X[:, 1]), runs=100, seed=1, show=lambda *what: None)
    assert (found.p_value, found.equal, found.control_equal) == (None, found.runs, 0)
    assert found.passed
    assert found.caught


def test_what_the_plan_says_is_kept_and_only_sizes_shrink():
    plan = logistic(mechanism="tree", coupling="sequential", selector="last", domain="l2", clip=0.4, feature_norm=7.0)
    small, whole = plan.small_problem(np.random.default_rng(1)).learner, plan.learner
    assert (small.mechanism, small.coupling, small.selector) == (whole.mechanism, whole.coupling, whole.selector)
    assert type(small.rule) is type(whole.rule)
    assert type(small.rule.domain) is type(whole.rule.domain)
    for name in ("loss", "feature_norm", "intercept", "clip"):
        assert getattr(small.query, name) == getattr(whole.query, name)
    assert small.sigma > 0
    clusters = plan_of(expunge.KMeans(3, rho=0.3, solver=Lloyd(radius=2.0, coupling="sequential")))
    assert clusters.small_problem(np.random.default_rng(1)).learner.coupling == "sequential"


def test_what_was_scaled_down_is_said_and_nothing_else():
    said = {one.name: (one.own, one.here) for one in scaled(logistic().small_problem(np.random.default_rng(1)))}
    assert said["records"] == ("256", "6")
    assert "features" not in said  # there are as many
    assert "epochs" not in said
    assert {"steps", "step size", "noise σ, in contributions of a record"} <= set(said)
    wide = plan_of(expunge.Ridge(0.1), X[:, 1])
    assert rehearse(wide, runs=100, seed=1, show=lambda *what: None).scaled == ()


def test_a_plan_with_little_noise_keeps_its_own():
    plan = logistic(rho=0.99)
    small = plan.small_problem(np.random.default_rng(1)).learner
    assert small.sigma == pytest.approx(logistic(rho=0.99, steps=3).sigma, rel=1e-6)


def test_records_are_made_up_anew_and_the_seed_repeats_them():
    plan = logistic()
    found = [rehearse(plan, runs=100, mistaken=100, seed=seed, show=lambda *what: None) for seed in (1, 2, 1)]
    assert found[0] == found[2]
    assert found[0].control_p_value != found[1].control_p_value
    one, other = (plan.small_problem(np.random.default_rng(seed)) for seed in (1, 2))
    assert isinstance(one, SmallProblem)
    assert not np.array_equal(one.columns[0], other.columns[0])


def _always_keep(shift, projection, coins):
    coins.standard_exponential()
    return KEPT


def _always_jump(shift, projection, coins):
    """Jump where the right coin keeps, by the length that mirrors the noise."""
    return Toss(False, -1.0)


BROKEN = {"joint": "as it comes", "sequential": "tree, row by row"}


@pytest.mark.parametrize("coin", [_always_keep, _always_jump])
@pytest.mark.parametrize("coupling", BROKEN)
def test_an_engine_with_a_broken_coin_does_not_pass(coupling, coin):
    """With fewer runs than an audit makes, and at its level."""
    runs = 400
    assert runs < RUNS
    plan = PLANS[BROKEN[coupling]]()
    assert plan.coupling == coupling
    with patched_everywhere("keep_or_jump", coin):
        found = rehearse(plan, runs=runs, mistaken=100, seed=1, show=lambda *what: None)
    assert found.p_value < LEVEL / 100
    assert not found.passed


def test_losses_keep_their_kind_with_fewer_classes():
    assert fewer_classes(Multinomial(9)) == Multinomial(3)
    assert fewer_classes(MulticlassHinge(4, 0.5)) == MulticlassHinge(3, 0.5)
    assert fewer_classes(Weighted(Multinomial(4), (1, 2, 3, 4))) == Weighted(Multinomial(3), (1, 2, 3))
    assert fewer_classes(Hinge()) == Hinge()
