"""Bad tables and bad numbers, as newcomers and attackers bring them: a clear error or warning, and nothing blocked."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, load_wine

import expunge
from expunge.base.errors import BadPlan, BadRecords, PlanWarning


@pytest.mark.parametrize("column", [["Bonn", "Köln"] * 30, np.array(["2020-01-01"] * 60, dtype="datetime64[D]")])
@pytest.mark.parametrize("model", [expunge.LogisticRegression(), expunge.GradientBoostingClassifier(), expunge.Ridge()])
def test_columns_that_are_no_numbers_are_named(model: Any, column: Any) -> None:
    frame = pd.DataFrame({"age": np.arange(60.0), "city": column})
    with pytest.raises(BadRecords, match=r"X: column 'city' has .*Encode it") as error:
        model.fit(frame, np.arange(60) % 2)
    assert "Bonn" not in str(error.value)


def test_missing_values_are_named_by_column_and_row() -> None:
    frame = pd.DataFrame({"age": [1.0, np.nan] * 30, "sex": [0, 1] * 30})
    with pytest.raises(BadRecords, match="X: column 'age', row 1 has NaN"):
        expunge.LogisticRegression().fit(frame, np.arange(60) % 2)
    with pytest.raises(BadRecords, match="X: row 1 has NaN"):
        expunge.KMeans(2).fit(frame.to_numpy())
    with pytest.raises(BadRecords, match="y: row 0 has no value"):
        expunge.HuberRegressor().fit(np.ones((2, 1)), [None, 1.0])


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pd.DataFrame(np.arange(12.0).reshape(6, 2), columns=["a", "a"])
    with pytest.raises(BadRecords, match="two columns are called 'a'"):
        expunge.LogisticRegression().fit(frame, [0, 1] * 3)


@pytest.mark.parametrize("C", [1e-300, 1e300, 1e-101])
@pytest.mark.parametrize("kind", ["LogisticRegression", "HuberRegressor", "PoissonRegressor", "LinearSVC"])
def test_a_penalty_that_overflows_is_refused_before_anything(kind: str, C: float) -> None:
    with pytest.raises(BadPlan, match=r"C=.*: give a number from 1e-100 to 1e\+100"):
        getattr(expunge, kind)(C=C).fit(np.arange(60.0)[:, None], np.arange(60) % 2)


def test_a_tiny_column_and_a_small_c_do_not_block_a_model() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1)) * 1e-280
    X[0] = 1.0
    model = expunge.LogisticRegression(C=1e-100, standardize=False, rho=1).fit(X, (rng.random(60) > 0.5) * 1)
    model.unlearn([0])
    assert np.isfinite(model.coef_).all()
    assert model.verify().ok


def test_predictions_of_huge_numbers_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    for model, y in ((expunge.LogisticRegression(), np.arange(60) % 3), (expunge.Ridge(), X[:, 0])):
        model.fit(X, y)
        with pytest.raises(BadRecords, match="X: row 1 has numbers so large"):
            model.predict([[0.0] * 3, [1.7e308, -1.7e308, 1.7e308]])


def test_a_fixed_rho_that_leaves_too_much_noise_warns() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.warns(PlanWarning, match="differs much from the next"):
        expunge.LogisticRegression(rho=0.01).fit(X, y)


def test_rows_that_auto_would_shorten_a_lot_are_reported() -> None:
    X, y = load_wine(return_X_y=True)
    with pytest.warns(expunge.ClippedWarning, match="Scale columns first"):
        expunge.LinearSVC().fit(X, y)


def test_a_sample_that_is_too_small_for_clusters_is_reported() -> None:
    with pytest.warns(PlanWarning, match="of 60 records about 0.006 will be in the sample"):
        expunge.KMeans(3, rho=1e-4).fit(np.arange(60.0)[:, None])


def test_hints_speak_of_what_the_model_has() -> None:
    with pytest.raises(TypeError, match="C = 1/alpha"):
        expunge.HuberRegressor(alpha=1)
    with pytest.raises(TypeError, match="Newton's method needs none"):
        expunge.LogisticRegression(max_iter=1000)
    with pytest.raises(BadPlan, match=r"class_weight\['b'\]=0"):
        expunge.LogisticRegression(class_weight={"b": 0}).fit([[0.0], [1.0]], ["a", "b"])


def test_serving_takes_the_frames_that_the_model_takes() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.random(90) < 0.5})
    model = expunge.LinearSVC().fit(frame, np.arange(90) % 3)
    assert (model.to_sklearn().predict(frame) == model.predict(frame)).all()
