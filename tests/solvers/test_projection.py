"""The random projection: it preserves lengths and angles of any rows, and its bits depend on the row alone."""

import hashlib
import math
import pickle
import tracemalloc
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import sparse
from sklearn.random_projection import SparseRandomProjection

from benchmarks.paper.problems_with_optima import ABSOLUTE, turned
from expunge.base.errors import BadPlan, BadRecords
from expunge.solvers.projection import COLUMNS, MOST_FEATURES, Projection, stretch

SHAPES = [(16_384, 88), (4_096, 200), (300, 20)]
"""Numbers of features and components."""
KEYS = 300


def key(number):
    return hashlib.sha256(f"key {number}".encode()).digest()


def matrix(projection):
    return projection.back(np.eye(projection.components))


# --- the property ---------------------------------------------------------------------------------------


def unit(row):
    return row / np.linalg.norm(row)


def pairs(features):
    """Pairs of unit rows of every kind, by name."""
    rng = np.random.default_rng(features)
    hot, other = np.eye(2, features, k=7)
    dense = unit(rng.normal(size=features))
    few = np.zeros(features)
    few[rng.choice(features, 12, replace=False)] = rng.normal(size=12)
    few = unit(few)
    return {
        "dense, itself": (dense, dense),
        "dense, near": (dense, unit(dense + unit(rng.normal(size=features)))),
        "dense, far": (dense, unit(rng.normal(size=features))),
        "sparse, itself": (few, few),
        "sparse, near": (few, unit(few + 0.5 * hot)),
        "one-hot, itself": (hot, hot),
        "one-hot, another": (hot, other),
        "one-hot, dense": (hot, unit(dense + hot)),
    }


@cache
def products(features, components, earlier=False):
    """⟨Φu, Φv⟩ for every pair and each of many keys, by name."""
    named = pairs(features)
    rows = np.array([row for pair in named.values() for row in pair])
    found = []
    for number in range(60 if earlier else KEYS):
        if earlier:  # a very sparse matrix, with entries of which 1/√d are not zero
            drawn = SparseRandomProjection(components, random_state=number).fit(np.zeros((1, features)))
            projected = rows @ drawn.components_.T
        else:
            projected = Projection(key(number), features, components, norm=1.5).apply(rows)
        found.append(np.einsum("pk,pk->p", projected[::2], projected[1::2]))
    return dict(zip(named, np.array(found).T, strict=True))


def failure_bound(components, beta):
    """γ: ⟨u,v⟩ = (|u + v|² - |u - v|²)/4, and by Achlioptas each of |Φ(u ± v)|² is off by a share β but for this."""
    return 4.0 * math.exp(-components * (beta**2 / 4.0 - beta**3 / 6.0))


def failures(found, named, beta):
    return {name: float(np.mean(np.abs(found[name] - u @ v) >= beta)) for name, (u, v) in named.items()}


@pytest.mark.parametrize(("features", "components"), SHAPES)
def test_angles_of_any_two_rows_are_preserved_as_often_as_the_theory_says(features, components):
    """(β, γ): at most a share γ of the matrices is off by β|u||v| or more."""
    named, found = pairs(features), products(features, components)
    for beta in (0.3, 0.5, 0.7, 0.9):
        for name, share in failures(found, named, beta).items():
            assert share <= failure_bound(components, beta), (name, beta)


def test_a_very_sparse_matrix_fails_on_rows_of_one_feature():
    """The control: what earlier versions drew. Half of its columns are zero, and the others have the wrong length."""
    features, components = SHAPES[0]
    found = failures(products(features, components, earlier=True), pairs(features), 0.4)
    assert found["dense, itself"] <= failure_bound(components, 0.4)
    assert found["one-hot, itself"] > 0.95 > failure_bound(components, 0.4)
    drawn = SparseRandomProjection(components, random_state=1).fit(np.zeros((1, features))).components_
    zero = np.mean(np.diff(drawn.tocsc().indptr) == 0)
    assert zero == pytest.approx((1.0 - features**-0.5) ** components, abs=0.02)
    assert 0.48 < zero < 0.52


@pytest.mark.parametrize(("features", "components"), SHAPES)
def test_products_have_the_mean_and_the_variance_of_independent_signs(features, components):
    """E⟨Φu,Φv⟩ = ⟨u,v⟩; the variance is (|u|²|v|² + ⟨u,v⟩² - 2Σu²v²)/k. 24 tests of each, five standard errors."""
    found = products(features, components)
    for name, (u, v) in pairs(features).items():
        variance = max(0.0, (1.0 + (u @ v) ** 2 - 2.0 * np.sum(u**2 * v**2)) / components)
        off = found[name] - u @ v
        assert abs(off.mean()) <= 5.0 * math.sqrt(variance / KEYS) + 1e-12, name
        assert np.mean(off**2) == pytest.approx(variance, rel=5.0 * math.sqrt(3.0 / KEYS), abs=1e-12), name


def test_a_row_of_one_feature_keeps_its_length():
    """All entries are ±1/√k: no column is zero, and none is another's."""
    projection = Projection(key(0), 16_384, 88)
    lengths = np.linalg.norm(projection.apply(sparse.eye_array(16_384, format="csr")), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-12)
    signs = matrix(projection) * math.sqrt(88)
    assert np.array_equal(np.abs(signs).round(12), np.ones_like(signs))
    assert len(np.unique(signs > 0, axis=1).T) == 16_384
    assert abs(signs.mean()) < 5.0 / math.sqrt(signs.size)
    between = signs @ signs.T / math.sqrt(16_384)  # of rows: 0, up to 1 of standard deviation
    assert np.abs(between - np.diag(np.diag(between))).max() < 6.0


# --- signs from a key -----------------------------------------------------------------------------------


def test_signs_come_from_the_key_in_blocks_of_columns():
    """It is part of the format of files."""
    features, components = 2 * COLUMNS + 76, 13
    found = matrix(Projection(key(3), features, components)) < 0
    for column in (0, COLUMNS - 1, COLUMNS, features - 1):
        block, inside = divmod(column, COLUMNS)
        source = hashlib.shake_256(key(3) + b"projection" + block.to_bytes(8, "little")).digest(2 * COLUMNS)
        bits = int.from_bytes(source[2 * inside : 2 * inside + 2], "little")
        assert found[:, column].tolist() == [bool(bits >> bit & 1) for bit in range(components)]
    assert COLUMNS == 512


def test_another_key_has_other_signs_and_the_same_one_the_same():
    one, other = (matrix(Projection(key(number), 2000, 16)) > 0 for number in (1, 2))
    assert abs(np.mean(one == other) - 0.5) < 5.0 * 0.5 / math.sqrt(one.size)
    assert Projection(key(1), 2000, 16) == Projection(key(1), 2000, 16) != Projection(key(2), 2000, 16)


def test_nothing_but_the_key_is_kept():
    projection = Projection(key(1), 50_000, 100)
    matrix(projection)
    kept = pickle.dumps(projection)
    assert len(kept) < 400
    row = np.ones((1, 50_000))
    assert np.array_equal(pickle.loads(kept).apply(row), projection.apply(row))


def test_what_is_not_kept_in_memory_is_made_again(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(3, 2000))
    kept = Projection(key(1), 2000, 16)
    expected = kept.apply(rows)
    monkeypatch.setattr("expunge.solvers.projection.MOST_KEPT", 100)
    other = Projection(key(1), 2000, 16)
    assert np.array_equal(other.apply(rows), expected)
    assert len(kept._kept) == 4
    assert not other._kept


# --- bits -----------------------------------------------------------------------------------------------


def table(features, norm=1.0, count=60):
    """Rows of all kinds: dense, with few numbers, with one, with none; short, and longer than the norm."""
    rng = np.random.default_rng(features)
    rows = rng.normal(size=(count, features)) * rng.choice([0.0, 1.0], p=[0.6, 0.4], size=(count, features))
    rows[::7] = 0.0
    rows[::7, ::9] = rng.normal(size=rows[::7, ::9].shape)
    rows[3], rows[4, 5:] = 0.0, 0.0
    lengths = np.exp(rng.uniform(-3, 3, size=(count, 1))) / np.maximum(np.linalg.norm(rows, axis=1), 1e-9)[:, None]
    return norm * lengths * rows


@pytest.mark.parametrize("norm", [1.0, 7.3, 1e-30, 1e30])
@pytest.mark.parametrize(("features", "components"), [(37, 5), (1500, 88)])
def test_a_row_has_the_same_bits_in_whatever_batch_order_and_storage_it_comes(features, components, norm):
    projection, rows = Projection(key(5), features, components, norm), table(features, norm)
    found = projection.apply(rows)
    long = np.linalg.norm(rows, axis=1) > norm
    assert 10 < long.sum() < 50
    order = np.random.default_rng(0).permutation(len(rows))
    kinds = [np.ascontiguousarray, np.asfortranarray, sparse.csr_array, sparse.csc_array, sparse.coo_array]
    kinds.append(lambda rows: np.repeat(rows, 2, axis=1)[:, ::2])
    for made in kinds:
        assert projection.apply(made(rows)).tobytes() == found.tobytes()
        assert projection.apply(made(rows[order])).tobytes() == found[order].tobytes()
        for some in (slice(0, 1), slice(5, 7), slice(17, 60), [59, 3, 3]):
            assert projection.apply(made(rows[some])).tobytes() == found[some].tobytes()
    assert not np.signbit(found[3]).any()  # there is one zero


def test_without_the_grid_bits_depend_on_storage():
    """The control: a plain product."""
    phi = matrix(Projection(key(5), 1500, 88))
    rows = table(1500)
    plain = rows @ phi.T
    assert (sparse.csr_array(rows) @ phi.T != plain).any()
    assert any((rows[[row]] @ phi.T != plain[row]).any() for row in range(len(rows)))


def test_sums_are_exact():
    projection = Projection(key(6), 200, 7, norm=3.0)
    rows = table(200, norm=0.1, count=5)
    signs = [[int(sign) for sign in row] for row in np.sign(matrix(projection))]
    unit = Fraction(projection._unit)
    for row, found in zip(rows, projection.apply(rows), strict=True):
        features = [int(Fraction(x) / unit) * unit for x in row.tolist()]  # towards zero
        sums = [sum(s * x for s, x in zip(each, features, strict=True)) for each in signs]
        assert [float(total) / math.sqrt(7) for total in sums] == found.tolist()
        np.testing.assert_allclose(found, matrix(projection) @ row, atol=1e-12)


def test_long_rows_are_shortened_and_keep_their_direction():
    projection = Projection(key(7), 400, 30, norm=2.0)
    row = np.random.default_rng(1).normal(size=(1, 400))
    short = 2.0 * row / np.linalg.norm(row)
    for times in (1.0, 1e3, 1e200):
        expected = short @ matrix(projection).T
        np.testing.assert_allclose(projection.apply(times * row), expected, rtol=1e-9, atol=1e-12)
        assert np.array_equal(projection.apply(sparse.csr_array(times * row)), projection.apply(times * row))


def test_back_is_the_adjoint():
    rng = np.random.default_rng(2)
    projection, weights = Projection(key(8), 3000, 50, norm=100.0), rng.normal(size=(3, 50))
    rows = rng.normal(size=(4, 3000))
    np.testing.assert_allclose(projection.apply(rows) @ weights.T, rows @ projection.back(weights).T, rtol=1e-9)
    np.testing.assert_allclose(projection.back(weights), weights @ matrix(projection), atol=1e-12)


def test_sparse_rows_stay_sparse_until_they_are_projected():
    features = 2**24
    columns = np.random.default_rng(3).integers(features, size=(20, 30))
    at = (np.repeat(np.arange(20), 30), columns.ravel())
    rows = sparse.csr_array((np.full(600, 0.1), at), shape=(20, features))
    projection = Projection(key(9), features, 64)
    tracemalloc.start()
    found = projection.apply(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24 * 8  # not one dense row; the pointers of a few thousand columns
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), math.sqrt(0.3), rtol=0.4)


# --- how long projected rows may be ---------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1.0, 0.1, 0.001])
@pytest.mark.parametrize("records", [1, 2**10, 2**20])
def test_the_stretch_is_the_smallest_for_which_bounds_on_all_rows_add_up_to_half_of_rho(records, rho):
    found = []
    for components in (1, 8, 40, 88, 500, 10_000):
        s = stretch(components, records, rho)
        found.append(s)

        def unlikely(s, components=components):
            return records * (s * s * math.exp(1.0 - s * s)) ** (components / 2) <= rho / 2 * (1 + 1e-9)

        assert unlikely(s) or s == 2.0
        assert s == 1.0 + 1 / 256 or not unlikely(s - 1 / 256)
    assert found == sorted(found, reverse=True)
    assert found[-1] < 1.1


def test_the_bound_is_below_that_of_the_cubic_and_holds_where_that_says_nothing():
    """P(|Φx|² ≥ (1+ε)|x|²) ≤ ((1+ε)exp(-ε))^(k/2) ≤ exp(-k(ε²/4 - ε³/6)): the latter never falls below exp(-k/12)."""
    epsilon = np.linspace(0.01, 3.0, 300)
    direct, cubic = (np.log1p(epsilon) - epsilon) / 2, -(epsilon**2) / 4 + epsilon**3 / 6
    assert (direct <= cubic + 1e-12).all()
    assert 88 * cubic.min() > -math.log(2 * 2**14 / 0.1)
    assert stretch(88, 2**14, 0.1) < 1.41


@pytest.mark.parametrize("kind", ["dense", "sparse", "two"])
def test_hardly_a_row_is_longer(kind):
    """Of 40,000 lengths for each k, no larger a share than the bound says."""
    features = 600
    few = {"dense": 600, "sparse": 20, "two": 2}[kind]
    rng = np.random.default_rng(few)
    rows = np.zeros((200, features))
    for row in rows:
        row[rng.choice(features, few, replace=False)] = rng.normal(size=few)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    for components in (10, 40, 88):
        found = [Projection(key(number), features, components).apply(rows) for number in range(200)]
        lengths = np.linalg.norm(np.concatenate(found), axis=1)
        assert np.mean(lengths**2) == pytest.approx(1.0, abs=0.02)
        for s in (1.1, 1.2, 1.3, 1.5):
            assert np.mean(lengths >= s) <= (s * s * math.exp(1.0 - s * s)) ** (components / 2)


# --- the benchmark of rates -----------------------------------------------------------------------------


def test_rates_are_measured_on_features_that_have_the_law_of_the_librarys_projection():
    """There Φx is drawn given Φ, without x. Given the sign it is Gaussian: mean and covariance are all of its law.

    Level: the largest of 72 differences, five standard errors.
    """
    features, components, count = 60, 8, 40_000
    drawn, targets, phi = ABSOLUTE.draw(count, features, components, np.random.default_rng(3))
    np.testing.assert_allclose(np.abs(turned(phi)), components**-0.5)
    np.testing.assert_allclose(phi[:, 0], turned(phi) @ np.full(features, features**-0.5), atol=1e-12)
    records, signs, none = ABSOLUTE.draw(count, features, features, np.random.default_rng(4))
    assert none is None
    projected = records @ phi.T
    moments = []
    for rows, sign in ((drawn, targets), (projected, signs)):
        each = np.column_stack([rows * sign[:, None], *(rows * rows[:, [j]] for j in range(components))])
        moments.append((each.mean(axis=0), each.std(axis=0) / math.sqrt(count)))
    (one, error), (other, another) = moments
    assert (np.abs(one - other) <= 5.0 * np.hypot(error, another)).all()


# --- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"components": 11}, "components=11: give a whole number from 1 to 10"),
        ({"components": 0}, "components=0: give a whole number above 0"),
        ({"components": 2.0}, r"components=2\.0: give a whole number"),
        ({"features": 0}, "features=0: give a whole number above 0"),
        ({"features": MOST_FEATURES + 1}, "features=67,108,865: at most 67,108,864 can be projected"),
        ({"norm": 0.0}, r"norm=0\.0: give a number from 1e-30 to 1e\+30"),
        ({"norm": math.nan}, "norm=nan: give a number"),
        ({"key": b"short"}, "key: give 32 bytes"),
    ],
)
def test_what_is_no_projection_is_refused(given, words):
    with pytest.raises(BadPlan, match=words):
        Projection(**{"key": key(0), "features": 10, "components": 4, **given})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.ones((2, 9)), "X: 9 columns; this projection is for 10"),
        (sparse.csr_array((2, 11)), "X: 11 columns; this projection is for 10"),
        (np.ones(10), "X: expected a table"),
        (np.full((2, 10), "a"), "X: expected numbers"),
        (np.vstack([np.ones(10), np.full(10, np.nan)]), "X: row 1 has NaN or infinity"),
        (np.vstack([np.ones(10), np.full(10, np.inf)]), "X: row 1 has NaN or infinity"),
        (sparse.csr_array(np.diag([1.0] * 4 + [np.nan] + [1.0] * 5)), "X: row 4 has NaN or infinity"),
    ],
)
def test_rows_that_cannot_be_projected_are_refused(rows, words):
    with pytest.raises(BadRecords, match=words):
        Projection(key(0), 10, 4).apply(rows)


def test_no_rows_and_rows_of_nothing():
    projection = Projection(key(0), 10, 4)
    assert projection.apply(np.zeros((0, 10))).shape == projection.apply(sparse.csr_array((0, 10))).shape == (0, 4)
    assert not projection.apply(sparse.csr_array((3, 10))).any()
    with pytest.raises(BadRecords, match="weights: expected rows of 4 numbers"):
        projection.back(np.ones(4))
