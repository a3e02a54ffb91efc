"""Scaling depends on a row and on public numbers only, so a deleted record leaves nothing behind in it."""

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from expunge.base.errors import BadPlan, BadRecords
from expunge.base.norms import row_norms
from expunge.models.preprocessing import BoundedScaler, bound_rows

FORMATS = {
    "dense": np.asarray,
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_matrix": sparse.csc_matrix,
}
TABLES = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
    elements=st.floats(-8, 8, width=32).filter(lambda value: value == 0 or abs(value) > 1e-30),
)
SCALERS = [BoundedScaler(), BoundedScaler(low=-5, high=5)]


def _dense(X):
    return X.toarray() if sparse.issparse(X) else X


def _bits(X):
    return np.ascontiguousarray(_dense(X)).tobytes()


def _table(seed=0, shape=(500, 7)):
    return np.random.default_rng(seed).normal(size=shape) * 0.4


@pytest.mark.parametrize("form", FORMATS)
@given(X=TABLES, norm=st.floats(1e-3, 1e3))
def test_no_row_is_longer_than_the_norm_and_the_short_ones_are_unchanged(form, X, norm):
    given_X = FORMATS[form](X)
    bounded = bound_rows(given_X, norm)
    assert type(bounded) is type(given_X)
    assert bounded.dtype == X.dtype
    assert (row_norms(bounded) <= norm).all()
    short = row_norms(given_X) <= norm
    assert _bits(_dense(bounded)[short]) == _bits(_dense(given_X)[short])
    assert _bits(bound_rows(bounded, norm)) == _bits(bounded)


@pytest.mark.parametrize("form", FORMATS)
def test_long_rows_keep_their_direction(form):
    X = _table()
    X[X < -0.3] = 0.0
    lengths = np.linalg.norm(X, axis=1)
    assert 0.1 < (lengths > 1).mean() < 0.9
    np.testing.assert_allclose(
        _dense(bound_rows(FORMATS[form](X))), X / np.maximum(lengths, 1)[:, None], rtol=1e-14, atol=0
    )


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 64, 1001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_row_becomes_the_same_in_whatever_batch_it_comes(columns, dtype, order):
    X = np.asarray(_table(1, (60, columns)), dtype=dtype, order=order)
    together = bound_rows(X, 0.5)
    assert not np.array_equal(together, X)
    for start in (0, 1, 17):
        for stop in (start + 1, 60):
            assert _bits(bound_rows(X[start:stop], 0.5)) == _bits(together[start:stop])


@pytest.mark.parametrize("form", FORMATS)
def test_the_input_is_never_changed(form):
    X = FORMATS[form](_table())
    before = X.copy()
    bounded = bound_rows(X, 0.1)
    for array in [bounded] if form == "dense" else [bounded.data, bounded.indices]:
        array[:] = 0
    assert _bits(X) == _bits(before)


def test_duplicate_entries_of_a_sparse_row_count_together():
    X = sparse.csr_array((np.array([2.0, 2.0, -0.5, 0.5]), np.array([1, 1, 0, 0]), np.array([0, 2, 4])), shape=(2, 2))
    assert bound_rows(X).toarray().tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert X.data.tolist() == [2.0, 2.0, -0.5, 0.5]


def test_other_sparse_formats_become_csr():
    assert bound_rows(sparse.coo_array(np.diag([4.0, 0.5]))).format == "csr"


def test_integers_become_floats_whether_or_not_a_row_is_long():
    assert bound_rows(np.array([[2, 0]])).tolist() == [[1.0, 0.0]]
    assert bound_rows(np.array([[0, 1]])).dtype == np.float64


@pytest.mark.parametrize("form", FORMATS)
def test_rows_whose_squares_overflow_are_bounded_too(form):
    bounded = bound_rows(FORMATS[form](np.array([[3e200, 4e200], [0.5, 0.0]])))
    np.testing.assert_allclose(_dense(bounded), [[0.6, 0.8], [0.5, 0.0]], rtol=1e-15)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_with_nan_or_infinity_are_named(form, value):
    X = _table()
    X[3, 2] = value
    with pytest.raises(BadRecords, match="row 3 has NaN or infinity"):
        bound_rows(FORMATS[form](X))


@pytest.mark.parametrize("X", [np.zeros((0, 3)), np.zeros((3, 0)), sparse.csr_array((0, 3)), sparse.csc_array((3, 0))])
def test_nothing_to_bound_is_no_error(X):
    assert bound_rows(X).shape == X.shape


@pytest.mark.parametrize("norm", [0.0, -1.0, np.nan, np.inf, 1e-40, "1", None])
def test_a_norm_out_of_range_is_refused(norm):
    with pytest.raises(BadPlan, match="norm="):
        bound_rows(_table(), norm)


@pytest.mark.parametrize(
    ("X", "what"), [(np.zeros(3), "one row for each record"), (np.array([["a"]]), "expected numbers")]
)
def test_what_is_no_table_of_numbers_is_refused(X, what):
    with pytest.raises(BadRecords, match=what):
        bound_rows(X)


@parametrize_with_checks(SCALERS)
def test_scikit_learn_accepts_the_scaler(estimator, check):
    check(estimator)


def test_a_fitted_mean_gives_the_deleted_record_away():
    X = _table()
    before = StandardScaler().fit(X)
    rest = np.delete(X, 17, axis=0)
    np.testing.assert_allclose(len(X) * before.mean_ - rest.sum(axis=0), X[17], rtol=1e-9)  # who has the rest knows it
    after = StandardScaler().fit(rest)
    assert not np.array_equal(before.transform(rest), after.transform(rest))


@pytest.mark.parametrize("scaler", SCALERS)
def test_a_bounded_scaler_does_not_know_whether_the_record_was_there(scaler):
    X = _table()
    X[17] = 1e6
    rest = np.delete(X, 17, axis=0)
    before, after = clone(scaler).fit(X), clone(scaler).fit(rest)
    assert _bits(before.transform(rest)) == _bits(after.transform(rest))
    assert _bits(np.delete(before.transform(X), 17, axis=0)) == _bits(after.transform(rest))
    assert joblib.hash(vars(before)) == joblib.hash(vars(after))
    assert set(vars(after)) - set(vars(scaler)) == {"n_features_in_"}


@given(TABLES, st.floats(-10, 0), st.floats(0.5, 10), st.floats(-3, 0), st.floats(0.5, 3))
def test_output_lies_in_the_feature_range_and_comes_back(X, low, high, start, end):
    scaler = BoundedScaler(low, high, feature_range=(start, end))
    scaled = scaler.fit_transform(X)
    assert scaled.dtype == X.dtype
    assert X.dtype.type(start) <= scaled.min()
    assert scaled.max() <= X.dtype.type(end)
    tolerance = 1e-5 if X.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(scaler.inverse_transform(scaled), np.clip(X, low, high), rtol=0, atol=20 * tolerance)


def test_the_ends_of_a_range_become_the_ends_of_the_feature_range():
    scaler = BoundedScaler([0.1, -3.0], [0.7, 11.0], feature_range=(0.0, 1.0))
    assert scaler.transform([[0.1, -3.0], [0.7, 11.0]]).tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_values_outside_are_clipped_unless_told():
    assert BoundedScaler().transform([[-1.0, 1e308, 0.5]]).tolist() == [[-1.0, 1.0, 0.0]]
    assert BoundedScaler(clip=False).transform([[-1.0, 3.0, 0.5]]).tolist() == [[-3.0, 5.0, 0.0]]
    assert BoundedScaler(clip=False).inverse_transform([[-3.0, 5.0, 0.0]]).tolist() == [[-1.0, 3.0, 0.5]]


def test_the_input_of_the_scaler_is_never_changed():
    X = _table()
    before = X.copy()
    for clip in (True, False):
        scaler = BoundedScaler(clip=clip).fit(X)
        scaler.transform(X)
        scaler.inverse_transform(X)
    assert _bits(X) == _bits(before)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"low": [0.0, 0.0]}, r"low: shape \(2,\) for 3 columns"),
        ({"high": [1.0] * 4}, r"high: shape \(4,\) for 3 columns"),
        ({"high": [[1.0] * 3]}, r"high: shape \(1, 3\)"),
        ({"low": 1.0}, "low: 1 in column 0 is not below high, 1"),
        ({"low": [0.0, 2.0, 0.0]}, "low: 2 in column 1 is not below high, 1"),
        ({"low": np.nan}, "low=nan: give finite"),
        ({"high": np.inf}, "high=inf: give finite"),
        ({"low": "a"}, "low='a': give a number"),
        ({"low": -1e308, "high": 1e308}, "high: too far above low"),
        ({"feature_range": (1.0, 1.0)}, r"feature_range\[0\]: 1 in column 0 is not below"),
        ({"feature_range": 3.0}, "feature_range=3.0: give two numbers"),
        ({"feature_range": (0.0, 1.0, 2.0)}, "feature_range=.*: give two numbers"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "transform", "inverse_transform"])
def test_errors_name_the_field(options, what, method):
    with pytest.raises(BadPlan, match=what):
        getattr(BoundedScaler(**options), method)(np.zeros((2, 3)))


@pytest.mark.parametrize("method", ["fit", "transform", "inverse_transform"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_scaler_refuses_nan_and_says_where(method, value):
    with pytest.raises(BadRecords, match=r"row 1, column 2 has NaN or infinity; .*SimpleImputer"):
        getattr(BoundedScaler(), method)([[0, 0, 0], [0, 0, value]])


def test_the_scaler_expects_the_columns_it_was_fitted_with():
    scaler = BoundedScaler().fit(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="expecting 3 features"):
        scaler.transform(np.zeros((2, 4)))
    with pytest.raises(BadRecords, match="4 columns; this scaler was fitted with 3"):
        scaler.inverse_transform(np.zeros((2, 4)))


def test_names_of_columns_go_through():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"age": [30.0, 60.0], "share": [0.0, 120.0]}, index=[7, 9])
    scaled = BoundedScaler(0, 120).set_output(transform="pandas").fit_transform(X)
    assert scaled.columns.tolist() == ["age", "share"]
    assert scaled.index.tolist() == [7, 9]
    assert scaled.to_numpy().tolist() == [[-0.5, -1.0], [0.0, 1.0]]
