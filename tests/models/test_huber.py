"""HuberRegressor with solver='newton': scikit-learn's, scale included, on tables as they are."""

import warnings

import numpy as np
import pytest
import sklearn.linear_model
from sklearn.linear_model._huber import _huber_loss_and_gradient
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from expunge import BadPlan, BadRecords, HuberRegressor, NotAvailable
from expunge.solvers import DualAveraging, Newton

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(600, 3)) + 0.3
AMOUNTS = 2.0 + ROWS @ [1.0, -0.5, 0.0] + 0.5 * RNG.normal(size=600)
AMOUNTS[::12] += 40.0
UNITS = 10.0 ** np.array([-3.0, 0.0, 5.0])
X, Y = ROWS * UNITS + np.array([0.0, 0.0, 1e7]), 1e6 + 1e4 * AMOUNTS
"""The same in units as tables have them."""


def newton(**more):
    return HuberRegressor(solver="newton", **more)


def scikit_learns(rows, y, scaled=True, **more):
    given = {"tol": 1e-10, "max_iter": 100_000, **more}
    scaler = StandardScaler(with_mean=given.get("fit_intercept", True)) if scaled else "passthrough"
    return make_pipeline(scaler, sklearn.linear_model.HuberRegressor(**given)).fit(rows, y)


def table(share=0.0, records=6_000, seed=0):
    """Return rows, targets of which a share lies far above, and what they would be without noise."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(records, 5))
    truth = rows @ [1.0, -1.0, 0.5, 0.0, 2.0]
    y = truth + 0.3 * rng.normal(size=records) + 25.0 * (rng.random(records) < share)
    return rows, y, truth


def share_explained(model, rows, truth):
    return 1.0 - np.square(truth - model.predict(rows)).sum() / np.square(truth - truth.mean()).sum()


# --- what is learned ----------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1e4, 0.05])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_without_noise_it_is_scikit_learns(scaled, intercept, C):
    mine = newton(rho=1.0, standardize=scaled, fit_intercept=intercept, C=C).fit(ROWS, AMOUNTS)
    other = scikit_learns(ROWS, AMOUNTS, scaled, fit_intercept=intercept, alpha=1.0 / C)
    assert np.allclose(mine.predict(ROWS), other.predict(ROWS), atol=1e-4 * other[-1].scale_)
    assert mine.scale_ == pytest.approx(other[-1].scale_, rel=1e-4)


@pytest.mark.parametrize("epsilon", [1.05, 1.35, 3.0])
def test_epsilon_is_scikit_learns(epsilon):
    mine = newton(rho=1.0, epsilon=epsilon, standardize=False).fit(ROWS, AMOUNTS)
    other = scikit_learns(ROWS, AMOUNTS, scaled=False, epsilon=epsilon)[-1]
    assert np.allclose(mine.coef_, other.coef_, atol=1e-4)
    assert mine.scale_ == pytest.approx(other.scale_, rel=1e-4)


@pytest.mark.parametrize("C", [1e4, 1.0])
def test_in_any_units_the_objective_is_at_least_as_low_as_scikit_learns(C):
    mine = newton(rho=1.0, C=C, standardize=False).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge here
        other = scikit_learns(X, Y, scaled=False, alpha=1.0 / C)[-1]

    def objective(model):
        found = np.append(model.coef_, [model.intercept_, model.scale_])
        return _huber_loss_and_gradient(found, X, Y, 1.35, 1.0 / C, np.ones(len(Y)))[0]

    assert objective(mine) <= objective(other) * (1.0 + 1e-12)


@pytest.mark.parametrize("rho", ["auto", 0.05])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_with_noise_it_is_nearly_as_good(share, rho):
    rows, y, truth = table(share)
    other = scikit_learns(rows, y)
    for seed in range(2):
        model = newton(rho=rho, random_state=seed).fit(rows * [1e-3, 1e4, 1.0, 1e6, 1.0], y * 1e5)
        model_share = share_explained(model, rows * [1e-3, 1e4, 1.0, 1e6, 1.0], truth * 1e5)
        assert abs(model_share - share_explained(other, rows, truth)) < 0.002
        assert model.scale_ == pytest.approx(1e5 * other[-1].scale_, rel=0.1)


def test_far_too_little_rho_gives_least_squares_and_never_replays():
    with pytest.warns(expunge.PlanWarning, match="rho"):
        model = newton(rho=1e-6).fit(X, Y)
    expected = make_pipeline(StandardScaler(), sklearn.linear_model.LinearRegression()).fit(X, Y)
    assert np.allclose(model.predict(X), expected.predict(X), rtol=1e-6)
    assert model.scale_ == pytest.approx(np.sqrt(np.mean((Y - expected.predict(X)) ** 2)), rel=1e-3)
    assert model.unlearn(np.arange(50)).kept


def test_about_as_many_replay_as_was_planned():
    rows, y, _ = table(0.05, 4_000)
    model = newton(rho=0.1, random_state=0).fit(rows, y)
    assert 0.04 < model.replay_probability(np.arange(400)).mean() < 0.2


# --- requests -----------------------------------------------------------------------------------------


def test_requests_of_all_kinds_in_memory_and_in_a_file(tmp_path):
    model = newton(rho=0.4).fit(X, Y, ids=np.arange(600), subjects=np.arange(600) // 2)
    model.save(tmp_path / "m.expunge")
    with expunge.open(tmp_path / "m.expunge") as stored:
        assert stored.scale_ == model.scale_
        for one in (model, stored):
            one.unlearn([17, 42])
            one.unlearn(subjects=[3])
            one.insert(X[:2], Y[:2], ids=[1000, 1001], subjects=[500, 500])
            one.replace(X[3:4], Y[3:4], ids=[1000])
            one.partial_fit(X[4:5], Y[4:5], ids=[1002], subjects=[501])
            assert one.verify().ok
            assert one.n_records_ == 599
            served = one.to_sklearn()
            assert np.allclose(served.predict(X), one.predict(X))
            assert served.scale_ == one.scale_
        stored.replan()
        assert stored.verify().ok


def test_deleting_with_no_noise_is_refitting():
    model = newton(rho=1.0).fit(X, Y)
    model.unlearn(np.arange(100))
    fresh = newton(rho=1.0, expected_records=600).fit(X[100:], Y[100:])
    assert np.array_equal(model.coef_, fresh.coef_)
    assert model.scale_ == fresh.scale_


def test_other_solvers_have_their_own_epsilon_and_no_scale():
    model = HuberRegressor(solver=DualAveraging(target_range=(0, 1)), rho=1.0).fit(ROWS, AMOUNTS / 50.0)
    assert model.plan_.loss.width == 0.2
    assert not hasattr(model, "scale_")
    with pytest.raises(NotAvailable, match="Newton"):
        _ = model.scale_
    assert newton().fit(X, Y).plan_.loss.epsilon == 1.35


# --- edges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.3, 1.0, 1e-6])
@pytest.mark.parametrize(
    "y", [np.full(600, 7.0), np.zeros(600), ROWS[:, 0], np.where(ROWS[:, 0] > 2.0, 1.0, 0.0)],
    ids=["constant", "zero", "exact", "nearly all zero"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*least squares:expunge.PlanWarning")
def test_where_residuals_vanish_the_model_is_finite_and_right(y, rho):
    model = newton(rho=rho).fit(ROWS, y)
    assert np.isfinite(model.coef_).all()
    assert 0.0 <= model.scale_ < np.inf
    assert np.median(np.abs(y - model.predict(ROWS))) < (0.1 if rho == 1e-6 else 1e-3)
    model.unlearn([0, 1])
    assert model.verify().ok


@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_equal_records_constant_and_equal_columns(rho):
    same = newton(rho=rho).fit(np.ones((200, 2)), np.full(200, 5.0))
    assert same.predict(np.ones((1, 2))) == pytest.approx(5.0, rel=1e-3)
    rows = np.column_stack([ROWS, ROWS[:, 0], np.full(600, 7.0), np.zeros(600), 1e9 + ROWS[:, 1]])
    model = newton(rho=rho).fit(rows, AMOUNTS)
    expected = scikit_learns(ROWS, AMOUNTS).predict(ROWS)
    assert np.abs(model.predict(rows) - expected).max() < 0.3


@pytest.mark.parametrize("wild", [1e6, 1e12, 1e18])
def test_a_wild_target_or_row_leaves_a_finite_model(wild):
    y, rows = AMOUNTS.copy(), ROWS.copy()
    y[:3] = wild
    model = newton(rho=0.3, random_state=0).fit(rows, y)
    assert np.median(np.abs(model.predict(ROWS) - AMOUNTS)) < 1.0
    rows[3] = wild
    model = newton(rho=0.3, random_state=0).fit(rows, AMOUNTS)
    assert np.isfinite(model.predict(ROWS)).all()
    model.unlearn([3])
    assert model.verify().ok


def test_two_records_one_and_none():
    model = newton().fit(X[:2], Y[:2])
    model.unlearn([0])
    assert np.isfinite([*model.coef_, model.intercept_, model.scale_]).all()
    with pytest.warns(UserWarning, match="every record"):
        model.unlearn([1])
    assert not model.coef_.any()
    model.insert(X[:1], Y[:1], ids=[7])
    assert np.isfinite(model.predict(X)).all()
    assert model.verify().ok


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"epsilon": 1.0}, "epsilon"), ({"epsilon": 0.2}, "epsilon"), ({"epsilon": "wide"}, "epsilon"),
        ({"epsilon": np.inf}, "epsilon"), ({"C": 0.0}, "C=0"), ({"rho": 2.0}, "rho"),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(given, named):
    with pytest.raises(BadPlan, match=named):
        newton(**given).fit(X, Y)


def test_targets_that_no_unit_fits_are_refused_before_anything_is_learned():
    with pytest.raises(BadRecords, match="1e\\+300"):
        newton().fit(X, np.append(Y[1:], 1e300))


def test_without_a_finish_a_kept_deletion_leaves_the_model_as_it_is(tmp_path):
    rows, y, _ = table()
    model = HuberRegressor(finish=None, rho=0.05).fit(rows, y, ids=np.arange(len(y)))
    model.save(tmp_path / "m")
    kept = 0
    with expunge.open(tmp_path / "m") as opened:
        for one in range(12):
            for each in (model, opened):
                before = each.coef_.copy(), each.intercept_, each.scale_
                if each.unlearn([one]).kept:
                    kept += 1
                    assert np.array_equal(each.coef_, before[0])
                    assert (each.intercept_, each.scale_) == before[1:]
                assert each.verify().ok
    assert kept > 9  # of 24, each of which replays with a probability of about 0.07


def test_without_a_finish_all_may_leave():
    model = HuberRegressor(finish=None, rho=0.05).fit(*table(records=400)[:2], ids=np.arange(400))
    with pytest.warns(UserWarning, match="every record has been deleted"):
        model.unlearn(np.arange(400))
    assert not model.coef_.any()
    assert model.verify().ok


@pytest.mark.filterwarnings("ignore:.*far below:expunge.PlanWarning")
@pytest.mark.parametrize(("records", "rho", "rounds"), [(20, 1e-4, 3), (300, 1e-7, 1)])
def test_a_scale_that_is_drawn_far_out_stops_nothing(records, rho, rounds):
    """Whatever a draw is, the next step must follow from it: to fail would be a look at the noise."""
    rows, y, _ = table(records=records)
    for _ in range(8):
        model = HuberRegressor(rho=rho, solver=Newton(rounds=rounds)).fit(rows, y, ids=np.arange(records))
        model.unlearn([1])
        assert model.verify().ok
        assert np.isfinite(model.predict(rows)).all()


@pytest.mark.parametrize("epsilon", [1e200, np.inf, 1.0])
def test_an_epsilon_that_cannot_be_is_named(epsilon):
    with pytest.raises(BadPlan, match="epsilon="):
        HuberRegressor(epsilon=epsilon).fit(X, Y)
